"""The loop closed on one machine: floors -> ring -> tape -> Spark -> plan -> edge -> customers.

    python -m benchmarks loop            made-up symbols with TH's rates and interest
    python -m benchmarks.loop --real     the symbols and volumes of a US week (LEVELCAST_DATA), as many as fit here

Three receivers, two reformation servers and the customers are processes; two floors are played by `levelcast publish`.

1. A day is published, `DAY_S` seconds long, while everything goes to all customers in one session.
2. More days follow. Under their load the first one goes from the tape into a lake (`levelcast pipeline run`), the plan
   is made of it and of the subscriptions (`levelcast plan from-lake`), and put in force (`levelcast plan apply`).
3. Trading goes on for `DAY_S` seconds under the plan.

What each customer received, took and was handed, before and after, is compared with what the cost model said from the
rates of the lake, and with what it says of the messages that were really sent. Watermarks are counted as messages by
customers; the model does not know them, so they are added to it: one a second for each session. What each customer was
handed is compared with the tape, record by record. The edge is one line, so that every message is sent once.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.campaign import conduct
from benchmarks.planner_scale import data_dir, real_instance
from benchmarks.report import Cell, Figure, Options, Result, Table, tell
from benchmarks.room import RECEIVERS, write_network
from levelcast.errors import NetError
from levelcast.extras import ExtraMissing, arrow
from levelcast.network import Network, SymbolDirectory, load_network
from levelcast.network.roles import RECEIVER
from levelcast.node.cluster import Cluster
from levelcast.node.options import NodeOptions
from levelcast.node.verdict import judge
from levelcast.planner.files import read_plan
from levelcast.planner.generator import Model, generate
from levelcast.planner.model import Floats, Instance, from_pairs
from levelcast.planner.user_load import Reach, one_for_all, reach_of
from levelcast.plots.style import BLUE, FAINT, GREY, ORANGE, canvas
from levelcast.records import RTYPE_SYSTEM, RTYPE_TRADE
from levelcast.storage.tape.reader import TapeReader
from levelcast.wire.channel_plan import Kind, plan_records

SESSION_S = 23_400
"""09:30 to 16:00."""
OPEN_NS = 1_794_839_400 * 10**9
FLOORS = ("XF01", "XF02")
WATERMARK_S = 1.0
STILL_S, LIMIT_S = 2.0, 60.0
"""Customers are asked for what they have when nothing has come to them for so long."""

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Scale:
    """How large a run is."""

    rate: float = 3000.0
    """Messages a second."""
    day_s: int = 39
    next_s: int = 130
    """The days after the first are this long; the last one is ended before: nobody knows how long Spark takes."""
    customers: int = 30
    processes: int = 3
    groups: int = 10
    sessions: int = 100
    master: str = "local[2]"


QUICK = Scale(rate=500.0, day_s=6, next_s=130, customers=6, processes=1, groups=4, sessions=16, master="local[1]")


@dataclass(frozen=True, slots=True)
class Market:
    """Symbols with their rates, and who wants which."""

    symbols: list[str]
    instance: Instance

    @property
    def interest(self) -> dict[str, list[str]]:
        flows = np.repeat(np.arange(self.instance.n_flows), self.instance.degrees)
        return {
            name_of(user): [self.symbols[flow] for flow in flows[self.instance.users == user]]
            for user in range(self.instance.n_users)
        }


def name_of(user: int) -> str:
    return f"customer-{user:02}"


def made_up(customers: int, quick: bool) -> Market:
    """TH §5.1's model on a few hundred symbols; a tenth of a market, not a hundredth, or a customer had one symbol."""
    model = Model(flows=60 if quick else 400, users=customers, markets=4 if quick else 10, share_taken=0.1)
    instance = generate(model, 1)
    return Market([f"S{flow:03}" for flow in range(instance.n_flows)], instance)


def real(data: Path, customers: int, most: int) -> Market:
    """The `most` symbols of a US week with the largest volumes that somebody wants, and as many that nobody does."""
    whole, symbols = real_instance(data, customers, seed=1)
    order = np.argsort(-whole.rates, kind="stable")
    wanted, other = order[whole.wanted[order]], order[~whole.wanted[order]]
    chosen = np.sort(np.concatenate([wanted[:most], other[: max(0, most - len(wanted))]]))
    return Market([symbols[flow].upper() for flow in chosen], whole.subset(chosen))


# -- the stage --------------------------------------------------------------------------------------------


def write_day(path: Path, market: Market, trades: int, seed: int) -> None:
    """So many trades of one session, busy at its beginning and its end, symbols by their rates."""
    random = np.random.default_rng(seed)
    grid = np.linspace(0, 1, 2001)
    busy = np.cumsum(1 + 1.5 * (2 * grid - 1) ** 4)
    at = np.sort(np.interp(random.random(trades), busy / busy[-1], grid))
    rates = market.instance.rates
    symbol = random.choice(len(rates), size=trades, p=rates / rates.sum())
    pa = arrow()
    table = pa.table(
        {
            "ts_event": OPEN_NS + (at * SESSION_S * 1e9).astype(np.int64),
            "symbol": pa.array(market.symbols).take(pa.array(symbol)),
            "floor": pa.array(FLOORS).take(pa.array(symbol % len(FLOORS))),
            "price": pa.array(["100.25", "100.5"]).take(pa.array(random.integers(2, size=trades))),
            "size": random.integers(1, 10, size=trades) * 100,
        }
    )
    arrow("pyarrow.parquet").write_table(table, str(path))


class Crowd(threading.Thread):
    """A process of customers: how far it says to be."""

    def __init__(self, base: Path, number: int, names: Sequence[str]) -> None:
        super().__init__(daemon=True)
        self.out = base / f"customers-{number}.npz"
        command = [sys.executable, "-m", "benchmarks.loop_customers", "--network", str(base / "network.toml")]
        command += ["--interest", str(base / "interest.json"), "--out", str(self.out), *names]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.said: dict[str, Any] = {}
        self.grew_s = time.monotonic()
        self.start()

    def run(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            said = json.loads(line)
            if said["records"] > self.said.get("records", -1):
                self.grew_s = time.monotonic()
            self.said = said

    @property
    def cpu_s(self) -> float:
        return float(self.said.get("cpu_s", 0.0))

    def end(self) -> dict[str, Any]:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(LIMIT_S)
        return dict(np.load(self.out))


# -- the run ----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Customer:
    """One customer against the tape and the model: messages before and after the swap."""

    name: str
    asked: tuple[int, int] = (0, 0)
    accepted: tuple[int, int] = (0, 0)
    received: tuple[int, int] = (0, 0)
    predicted: tuple[float, float] = (0.0, 0.0)
    """Received, by the model with the rates of the lake."""
    hindsight: tuple[float, float] = (0.0, 0.0)
    """Received, by the model with what was really sent."""
    unopened: tuple[int, int] = (0, 0)
    """Packets dropped by their session."""
    lost: int = 0
    doubled: int = 0
    gaps: int = 0
    error: str = ""


@dataclass(slots=True)
class Outcome:
    """What came of a run."""

    customers: list[Customer] = field(default_factory=list)
    steps: list[tuple[str, float]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    sent: tuple[int, int] = (0, 0)
    """Messages about instruments on the tape, before and after the swap."""
    seconds: tuple[float, float] = (0.0, 0.0)
    cpu_s: tuple[float, float] = (0.0, 0.0)
    """Of the customers' processes, from the first trade to the swap, and from there to the last."""
    around: tuple[int, int] = (0, 0)
    """Trades in the second before the swap, and in the one behind it."""
    report: dict[str, Any] = field(default_factory=dict)
    applied: dict[str, Any] = field(default_factory=dict)

    @property
    def sound(self) -> bool:
        return not self.problems and not any(each.lost or each.doubled or each.error for each in self.customers)


def command(*arguments: object) -> str:
    """A command of the product, to its end; its stdout."""
    done = subprocess.run(
        [sys.executable, "-m", "levelcast", *map(str, arguments)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise NetError(f"levelcast {arguments[0]} {arguments[1]}: {done.stderr.strip().removeprefix('levelcast: ')}")
    return done.stdout


def perform(base: Path, market: Market, scale: Scale) -> Outcome:
    """The whole loop in a directory."""
    outcome = Outcome()
    symbols = {floor: market.symbols[at :: len(FLOORS)] for at, floor in enumerate(FLOORS)}
    file = write_network(base, symbols, scale.groups, "1s", one_sends=True)
    network = load_network(file)
    interest = market.interest
    (base / "interest.json").write_text(json.dumps(interest), encoding="utf-8")
    rows = [f"{user},{symbol}" for user, symbols in interest.items() for symbol in symbols]
    (base / "subscriptions.csv").write_text("\n".join(["user,flow", *rows]) + "\n", encoding="utf-8")
    names = sorted(interest)
    crowds = [Crowd(base, number, names[number :: scale.processes]) for number in range(scale.processes)]
    cluster = Cluster(network, file, base / "data", NodeOptions(), floors=False)
    try:
        _until(lambda: all(crowd.said for crowd in crowds), "the customers do not begin")
        cluster.start_all()
        _until(lambda: _in_ring(cluster), "no ring is formed")
        _play(base, file, market, scale, cluster, crowds, outcome)
    finally:
        found: dict[str, Any] = {}
        for crowd in crowds:
            said = crowd.end()
            found.setdefault("told", {}).update(json.loads(str(said.pop("told"))))
            found |= said
        outcome.problems += [f"{name} did not end on SIGTERM" for name in cluster.stop()]
    outcome.problems = judge(base / "data", RECEIVERS, outcome.problems).problems
    compare(base, network, market, found, outcome)
    return outcome


class Days(threading.Thread):
    """`levelcast publish` of one day after another, the first of them of its own length, until it is ended."""

    def __init__(self, base: Path, file: Path, market: Market, scale: Scale) -> None:
        super().__init__(daemon=True)
        self.done = 0
        self.problem = ""
        self._place, self._market, self._scale = (base, file), market, scale
        self._process: subprocess.Popen[bytes] | None = None
        self._ending = threading.Event()
        self._starting = threading.Lock()

    def run(self) -> None:
        base, file = self._place
        while not self._ending.is_set() and not self.problem:
            seconds = self._scale.next_s if self.done else self._scale.day_s
            day = base / f"day-{self.done + 1}.parquet"
            write_day(day, self._market, int(self._scale.rate * seconds), self.done + 1)
            command = [
                sys.executable,
                "-m",
                "levelcast",
                "publish",
                "--network",
                str(file),
                "--data",
                str(base / "data"),
            ]
            with day.with_suffix(".log").open("w", encoding="utf-8") as log:
                with self._starting:
                    if self._ending.is_set():
                        return
                    self._process = subprocess.Popen(
                        [*command, "--speed", f"{SESSION_S // seconds}x", "--json", str(day)], stdout=log, stderr=log
                    )
                if self._process.wait() and not self._ending.is_set():
                    self.problem = f"levelcast publish: {day.with_suffix('.log').read_text(encoding='utf-8').strip()}"
            self.done += 1

    def end(self) -> None:
        with self._starting:
            self._ending.set()
            if self._process is not None and self._process.poll() is None:
                self._process.send_signal(signal.SIGINT)
        self.join(LIMIT_S)


def _play(
    base: Path, file: Path, market: Market, scale: Scale, cluster: Cluster, crowds: list[Crowd], outcome: Outcome
) -> None:
    lake, plan, tape = base / "lake", base / "plan", base / "data" / RECEIVERS[0]
    began_s, cpu = time.monotonic(), [sum(crowd.cpu_s for crowd in crowds)]
    days = Days(base, file, market, scale)
    days.start()
    try:
        with _step(outcome, "record a day"):
            _until(lambda: days.done or days.problem, "the first day does not end", scale.day_s + LIMIT_S)
        with _step(outcome, "levelcast pipeline run"):
            command("pipeline", "run", "--input", tape, "--lake", lake, "--master", scale.master, "--json")
        with _step(outcome, "levelcast plan from-lake"):
            told = command(
                "plan", "from-lake", "--lake", lake, "--network", file, "--subscriptions", base / "subscriptions.csv",
                "--current", "running", "--sessions", scale.sessions, "--out", plan, "--master", scale.master, "--json",
            )  # fmt: skip
        outcome.report = json.loads(told)
        with _step(outcome, "levelcast plan apply"):
            outcome.applied = json.loads(command("plan", "apply", plan, "--network", file, "--json"))
        _until(lambda: all(crowd.said["replaced"] for crowd in crowds), "customers do not go over to the plan")
        swapped_s = time.monotonic()
        cpu.append(sum(crowd.cpu_s for crowd in crowds))
        with _step(outcome, "trading continues under the plan"):
            until = time.monotonic() + scale.day_s
            while time.monotonic() < until:
                cluster.check()
                time.sleep(0.1)
    finally:
        days.end()
    outcome.problems += [days.problem] if days.problem else []
    outcome.seconds = (swapped_s - began_s, time.monotonic() - swapped_s)
    horizon_ns = cluster.horizon_ns()
    _until(lambda: cluster.complete_upto(horizon_ns), "not all receivers have released everything")
    _until(
        lambda: all(time.monotonic() - crowd.grew_s > STILL_S for crowd in crowds), "something still comes to customers"
    )
    cpu.append(sum(crowd.cpu_s for crowd in crowds))
    outcome.cpu_s = (cpu[1] - cpu[0], cpu[2] - cpu[1])


@contextmanager
def _step(outcome: Outcome, name: str) -> Iterator[None]:
    tell(f"loop: {name}")
    began = time.monotonic()
    yield
    outcome.steps.append((name, time.monotonic() - began))


def _until(condition: Callable[[], object], otherwise: str, limit_s: float = LIMIT_S) -> None:
    until = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > until:
            raise NetError(otherwise)
        time.sleep(0.05)


def _in_ring(cluster: Cluster) -> bool:
    cluster.check()
    return all(member.status.get("state") == "ACTIVE" for member in cluster.of_role(RECEIVER))


# -- against the tape and the model -----------------------------------------------------------------------


@dataclass(slots=True)
class Sent:
    """What the tape has: of each symbol how many messages before and after the swap, and every trade."""

    before: Floats
    after: Floats
    trades: Numbers
    instruments: Numbers
    swap_sequence: int
    seconds: tuple[float, float]
    around: tuple[int, int]
    """Trades in the second before the swap, and in the one behind it."""


def read_tape(tape: Path, directory: SymbolDirectory, symbols: Sequence[str]) -> Sent:
    numbers = np.array([directory.id_of(symbol) for symbol in symbols], np.int64)
    counts = [np.zeros(int(numbers.max()) + 1), np.zeros(int(numbers.max()) + 1)]
    sequences: list[Numbers] = []
    instruments: list[Numbers] = []
    swap, times = 0, [0, 0, 0]
    when: list[Numbers] = []
    for frame in TapeReader(tape).frames():
        swapped = any(record.kind is Kind.SWAP for record in plan_records(frame.data()))
        for run in frame.batches():
            if run.kind.rtype == RTYPE_SYSTEM:
                continue
            ids = run.records["instrument_id"].astype(np.int64)
            np.add.at(counts[int(swap > 0)], ids, 1)
            if run.kind.rtype == RTYPE_TRADE:
                sequences.append(run.records["sequence"].astype(np.int64))
                instruments.append(ids)
                when.append(run.records["ts_recv"].astype(np.int64))
        if swapped and not swap:  # it takes effect behind this frame
            swap, times[1] = frame.line.first_sequence + frame.line.records, frame.line.timestamp_ns
        times[0] = times[0] or frame.line.timestamp_ns
        times[2] = frame.line.timestamp_ns
    behind = np.concatenate(when) - times[1]
    around = (int(((behind > -(10**9)) & (behind <= 0)).sum()), int(((behind > 0) & (behind <= 10**9)).sum()))
    return Sent(
        counts[0][numbers], counts[1][numbers], np.concatenate(sequences), np.concatenate(instruments), swap,
        ((times[1] - times[0]) / 1e9, (times[2] - times[1]) / 1e9), around,
    )  # fmt: skip


def compare(base: Path, network: Network, market: Market, found: dict[str, Any], outcome: Outcome) -> None:
    """What customers counted, beside what the model says and what the tape has."""
    directory = SymbolDirectory(network)
    sent = read_tape(base / "data" / RECEIVERS[0] / "tape", directory, market.symbols)
    outcome.sent = (int(sent.before.sum()), int(sent.after.sum()))
    outcome.around = sent.around
    if not sent.swap_sequence:
        outcome.problems.append("no swap is on the tape")
        return
    customers = arrow("pyarrow.parquet").read_table(str(base / "plan" / "customers.parquet")).to_pydict()
    total = float(arrow("pyarrow.parquet").read_table(str(base / "plan" / "rates.parquet"))["rate"].to_numpy().sum())
    plan = _plan_of(base / "plan", market)
    instance = market.instance
    really = [
        reach_of(_counted(instance, sent.before), one_for_all(instance)),
        reach_of(_counted(instance, sent.after), plan),
    ]
    standing = _watermarks(instance, plan, sent.seconds)
    for at, name in enumerate(customers["user"]):
        user = next(number for number in range(instance.n_users) if name_of(number) == name)
        shares = (customers["received_before"][at] / total, customers["received"][at] / total)
        outcome.customers.append(
            _customer(name, user, shares, sent, really, standing, found, market.interest[name], directory)
        )


def _plan_of(directory: Path, market: Market) -> Any:
    from levelcast.planner.files import NamedInstance, for_problem

    stored = read_plan(directory)
    return for_problem(stored, NamedInstance(market.instance, arrow().array(market.symbols), None))


def _counted(instance: Instance, messages: Floats) -> Instance:
    return Instance(messages, instance.start, instance.users, instance.n_users)


def _watermarks(instance: Instance, plan: Any, seconds: tuple[float, float]) -> list[tuple[Floats, Floats]]:
    """Watermarks that come to each user in groups, and in sessions, before and after: the model with one a session."""
    marks = [np.full(instance.n_users, seconds[0] / WATERMARK_S)] * 2
    flows = np.repeat(np.arange(instance.n_flows), instance.degrees)
    pairs = np.unique(np.stack([plan.session[flows], instance.users]), axis=1)
    sessions = from_pairs(np.full(plan.n_sessions, seconds[1] / WATERMARK_S), pairs[1], pairs[0], instance.n_users)
    own = type(plan)(np.arange(plan.n_sessions, dtype=np.int32), plan.group)
    reach = reach_of(sessions, own)
    return [(marks[0], marks[1]), (reach.received, reach.accepted)]


def _customer(
    name: str, user: int, shares: tuple[float, float], sent: Sent, really: list[Reach],
    standing: list[tuple[Floats, Floats]], found: dict[str, Any], symbols: list[str], directory: SymbolDirectory,
) -> Customer:  # fmt: skip
    told = found["told"][name]
    phases, got = told["phases"], found[name]
    wanted = sent.trades[np.isin(sent.instruments, [directory.id_of(symbol) for symbol in symbols])]
    unique = np.unique(got)
    first, last = phases[0], phases[-1]

    def part(key: str) -> tuple[int, int]:
        return first[key], last[key] - first[key]

    records, foreign = part("records"), part("foreign_messages")
    again = part("duplicates")
    totals = (sent.before.sum(), sent.after.sum())
    return Customer(
        name,
        (int(really[0].asked[user]), int(really[1].asked[user])),
        records,
        (records[0] + foreign[0] + again[0], records[1] + foreign[1] + again[1]),
        (shares[0] * totals[0] + standing[0][0][user], shares[1] * totals[1] + standing[1][0][user]),
        (really[0].received[user] + standing[0][0][user], really[1].received[user] + standing[1][0][user]),
        part("foreign"),
        len(np.setdiff1d(wanted, unique)),
        len(got) - len(unique) + len(np.setdiff1d(unique, wanted)),
        last["gaps"],
        told["error"] if len(phases) > 1 else told["error"] or "it has not gone over to the plan",
    )


# -- telling ----------------------------------------------------------------------------------------------


def result_of(outcome: Outcome, market: Market, options: Options, name: str) -> Result:
    result = Result(name)
    everybody, sent = outcome.customers, outcome.sent
    rows: list[tuple[Cell, ...]] = []
    sums: dict[str, list[float]] = {}
    for key in ("received", "predicted", "hindsight", "asked", "unopened"):
        sums[key] = [float(sum(getattr(each, key)[phase] for each in everybody)) for phase in (0, 1)]
    for phase, title in enumerate(("before", "after")):
        per = 1000 / max(1, sent[phase] * len(everybody))
        received = sums["received"][phase]
        rows.append((
            title, sent[phase], f"{outcome.seconds[phase]:.0f}", sums["predicted"][phase] * per,
            sums["hindsight"][phase] * per, received * per, sums["asked"][phase] * per,
            100 * sums["asked"][phase] / max(1.0, received), outcome.cpu_s[phase] * 1e6 / max(1, sent[phase]),
        ))  # fmt: skip
    columns = (
        "", "sent", "s", "predicted", "model of sent messages", "measured", "requested", "goodput, %", "CPU, us",
    )  # fmt: skip
    title = (
        "messages that reach a subscriber, per 1,000 sent; CPU of all subscribers per message sent "
        f"({market.instance.n_flows:,} symbols, {len(everybody)} subscribers, {outcome.report['groups']} groups, "
        f"{outcome.report['sessions']} sessions)"
    )
    result.tables.append(Table(title, columns, rows))
    off = sorted(abs(each.received[1] / each.predicted[1] - 1) for each in everybody)
    near = sorted(abs(each.received[1] / each.hindsight[1] - 1) for each in everybody)
    filtered = [sums["received"][phase] - sums["asked"][phase] for phase in (0, 1)]
    shares = [filtered[phase] / max(1, sent[phase] * len(everybody)) for phase in (0, 1)]
    result.figures += [
        Figure("received after the swap", sums["received"][1], "messages", "predicted", sums["predicted"][1]),
        Figure("filtered by subscribers, of messages sent", 100 * shares[1], "%", "before", 100 * shares[0]),
        Figure("maximum error of the prediction", 100 * off[-1], "%", "the median one", 100 * off[len(off) // 2]),
        Figure("maximum error, model of sent messages", 100 * near[-1], "%", "the median", 100 * near[len(near) // 2]),
        Figure("records lost", sum(each.lost for each in everybody), "records", "all", sum(sums["asked"])),
        Figure("records duplicated", sum(each.doubled for each in everybody), "records", "all", sum(sums["asked"])),
    ]  # fmt: skip
    result.tables.append(
        Table("duration of each step", ("step", "s"), [(step, f"{s:.1f}") for step, s in outcome.steps])
    )
    per_customer: list[tuple[Cell, ...]] = [
        (each.name, *each.asked, *each.received, each.predicted[1], each.received[1] / each.predicted[1],
         each.unopened[1], each.lost, each.doubled)
        for each in everybody
    ]  # fmt: skip
    heads = (
        "subscriber",
        "requested before",
        "after",
        "received before",
        "after",
        "predicted",
        "ratio",
        "unopened",
        "lost",
    )
    result.tables.append(Table("subscribers, messages", (*heads, "duplicated"), per_customer))
    swap = outcome.applied
    result.notes.append(
        f"plan {swap['number']} was ready after {swap['ready_s']:.2f} s and active {swap['swap_s']:.2f} s later at "
        f"{swap['edges']} edges; in the second before the swap {outcome.around[0]:,} trades were sent, in the one "
        f"after it {outcome.around[1]:,}; " + ("; ".join(outcome.problems) or "all tapes identical")
    )
    try:
        path = options.plot_dir / f"{name}.svg"
        plot(outcome, path)
        result.plots.append(str(path))
    except ExtraMissing as missing:
        result.notes.append(str(missing))
    return result


def plot(outcome: Outcome, path: Path) -> None:
    """Predicted and measured, a dot a customer."""
    with canvas(path, 6.4, 4.6) as (_, (axes,)):
        most = 0.0
        for phase, color, name in ((0, GREY, "before: one session for all"), (1, BLUE, "after: the plan")):
            per = 1000 / max(1, outcome.sent[phase])
            x = [each.predicted[phase] * per for each in outcome.customers]
            y = [each.received[phase] * per for each in outcome.customers]
            axes.plot(x, y, "o", color=color, markersize=5, label=name)
            most = max([most, *x, *y])
        x = [each.predicted[1] * 1000 / max(1, outcome.sent[1]) for each in outcome.customers]
        asked = [each.asked[1] * 1000 / max(1, outcome.sent[1]) for each in outcome.customers]
        axes.plot(x, asked, "_", color=ORANGE, markersize=8, label="of those after: requested")
        axes.plot([0, most * 1.05], [0, most * 1.05], color=FAINT, linewidth=0.8)
        axes.set_xlim(0, most * 1.05)
        axes.set_ylim(0, most * 1.05)
        axes.set_xlabel("predicted by the cost model from the lake")
        axes.set_ylabel("measured at the subscriber")
        axes.set_title("Messages that reach each subscriber, per 1,000 sent")
        axes.legend(frameon=False, loc="upper left")
        axes.grid(True)


def run(options: Options, market: Market | None = None, scale: Scale | None = None, name: str = "loop") -> Result:
    """The benchmark."""
    from levelcast.pipeline.session import SparkMissing, require_spark

    try:
        require_spark()
    except SparkMissing as error:
        result = Result(name)
        result.notes.append(f"{error}; nothing was measured")
        return result
    chosen = scale or (QUICK if options.quick else Scale())
    played = market or made_up(chosen.customers, options.quick)
    base = Path(tempfile.mkdtemp(prefix="loop-"))
    outcome = perform(base, played, chosen)
    if outcome.sound:
        shutil.rmtree(base)
    else:
        errors = [f"{each.name}: {each.error}" for each in outcome.customers if each.error]
        tell(f"VIOLATED, the data are kept in {base}: {'; '.join([*outcome.problems, *errors])}")
    result = result_of(outcome, played, options, name)
    result.more["sound"] = outcome.sound
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if nothing was lost or doubled and all tapes are identical."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.loop", description="Record a tape, plan on Spark and apply the plan under load."
    )
    parser.add_argument("--real", action="store_true", help="symbols and volumes of a US week from LEVELCAST_DATA")
    parser.add_argument(
        "--symbols", type=int, default=2000, help="with --real: number of subscribers (default: %(default)s)"
    )
    parser.add_argument("--quick", action="store_true", help="a few symbols and seconds")
    parser.add_argument("--out", type=Path, default=Options().out, help="where the JSON goes (default: %(default)s)")
    chosen = parser.parse_args(arguments)
    options = Options(quick=chosen.quick, out=chosen.out)
    scale = QUICK if chosen.quick else Scale()
    market, name = made_up(scale.customers, chosen.quick), "loop"
    if chosen.real:
        data = data_dir()
        if data is None:
            parser.error("us_equities_daily_by_symbol_201403 not found; set LEVELCAST_DATA")
        market, name = real(data, scale.customers, chosen.symbols), "loop-real"

    def campaign() -> tuple[Result, bool]:
        result = run(options, market, scale, name)
        return result, bool(result.more.get("sound"))

    return conduct(campaign, options)


if __name__ == "__main__":
    sys.exit(main())

"""Two plans swapped back and forth under load: what customers lose (nothing) and how long a swap takes.

Three receivers, two reformation servers and two floors as processes, 10,000 records a second in all; six customers in
one process of their own: two follow everything, one of them merged, four follow a few symbols each. One plan is put in
force as `levelcast plan apply` does it, then the other, 20 times. Then the floors stop, everything is drained, and what
each customer was given is compared with the tape, record by record.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import levelcast
from benchmarks.report import Figure, Options, Result, Table, tell
from benchmarks.room import RECEIVERS, write_network
from levelcast.edge.subscriber.plan_follower import Replaced
from levelcast.errors import NetError
from levelcast.extras import arrow
from levelcast.network import SymbolDirectory, load_network
from levelcast.network.roles import RECEIVER
from levelcast.node.cluster import Cluster, ClusterRun
from levelcast.node.operate.channel_plans import Applied, apply_plan
from levelcast.node.options import NodeOptions
from levelcast.node.verdict import judge
from levelcast.planner.files import StoredPlan
from levelcast.planner.model import Plan
from levelcast.records import RTYPE_TRADE
from levelcast.storage.tape.reader import TapeReader
from levelcast.units import quantile

TIMES, RATE, PAUSE_S = 20, 10_000.0, 0.5
QUICK_TIMES, QUICK_RATE = 3, 1_000.0
SYMBOLS, GROUPS, SESSIONS = 40, 8, (12, 7)
STILL_S, DRAIN_LIMIT_S = 2.0, 30.0
"""The receivers end when nothing has come to customers for so long: until then they can ask for what they miss."""

Numbers = npt.NDArray[np.int64]


def plan_of(sessions: int, seed: int) -> StoredPlan:
    """Every symbol in some session, every session in some group."""
    random = np.random.default_rng(seed)
    session = np.concatenate([np.arange(sessions), random.integers(sessions, size=SYMBOLS - sessions)]).astype(np.int32)
    flows = arrow().array([f"S{each:02}" for each in random.permutation(SYMBOLS)])
    groups = random.integers(GROUPS, size=sessions).astype(np.int32)
    places, group = np.unique(groups, return_inverse=True)
    plan = Plan(session, group.astype(np.int32))
    return StoredPlan(plan, flows, np.arange(sessions, dtype=np.int32), places.astype(np.int32), {})


# -- customers ---------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Customer:
    """Who follows what, and what it was given."""

    name: str
    symbols: list[str] | None
    merged: bool
    sequences: list[Numbers] = field(default_factory=list)
    came_ns: list[int] = field(default_factory=list)
    replaced_ns: list[int] = field(default_factory=list)
    events: list[str] = field(default_factory=list)


def customers() -> list[Customer]:
    some = [[f"S{each:02}" for each in range(start, start + 3)] for start in (0, 10, 20, 30)]
    return [
        Customer("everything", None, False),
        Customer("everything, merged", None, True),
        *(Customer(f"3 symbols{', merged' if at % 2 else ''}", each, bool(at % 2)) for at, each in enumerate(some)),
    ]


async def follow(file: Path, customer: Customer) -> None:
    def note(event: object) -> None:
        if isinstance(event, Replaced):
            customer.replaced_ns.append(time.monotonic_ns())
        else:
            customer.events.append(repr(event))

    tape = levelcast.Subscriber(file, symbols=customer.symbols, merged=customer.merged, on_event=note)
    async with tape:
        async for batch in tape:
            if batch.kind.rtype == RTYPE_TRADE:
                customer.sequences.append(batch.records["sequence"].astype(np.int64))
                customer.came_ns.append(time.monotonic_ns())


async def follow_all(file: Path, out: Path) -> None:
    """Follow until told to end; then write down what came."""
    everybody = customers()
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    tasks = [asyncio.create_task(follow(file, each)) for each in everybody]
    await asyncio.sleep(0.2)
    while not ended.is_set():
        print(sum(len(some) for each in everybody for some in each.sequences), flush=True)
        await asyncio.sleep(0.2)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    found: dict[str, Any] = {}
    for number, each in enumerate(everybody):
        found[f"sequences-{number}"] = np.concatenate([np.empty(0, np.int64), *each.sequences])
        found[f"came-{number}"] = np.array(each.came_ns, np.int64)
        found[f"replaced-{number}"] = np.array(each.replaced_ns, np.int64)
        found[f"events-{number}"] = np.array(each.events, np.str_)
    np.savez(out, **found)


# -- the run -----------------------------------------------------------------------------------------------


class Swaps(threading.Thread):
    """Puts one plan in force, then the other."""

    def __init__(self, file: Path, times: int) -> None:
        super().__init__(daemon=True)
        self.done: list[Applied] = []
        self.problem = ""
        self._network = load_network(file)
        self._times = times

    def run(self) -> None:
        plans = [plan_of(sessions, seed) for seed, sessions in enumerate(SESSIONS)]
        try:
            for number in range(self._times):
                time.sleep(PAUSE_S)
                self.done.append(apply_plan(self._network, plans[number % 2]))
        except NetError as error:
            self.problem = str(error)


class Progress(threading.Thread):
    """How many records customers were given, as their process says."""

    def __init__(self, watching: subprocess.Popen[str]) -> None:
        super().__init__(daemon=True)
        self._watching = watching
        self._records = 0
        self._grew_s = time.monotonic()

    def run(self) -> None:
        assert self._watching.stdout is not None
        for line in self._watching.stdout:
            if int(line) > self._records:
                self._records, self._grew_s = int(line), time.monotonic()

    def wait_still(self) -> None:
        until = time.monotonic() + DRAIN_LIMIT_S
        while time.monotonic() < min(until, self._grew_s + STILL_S):
            time.sleep(0.1)


@dataclass(slots=True)
class Row:
    """One customer against the tape."""

    name: str
    records: int
    lost: int
    doubled: int
    disordered: int
    swaps: int
    silence_ms: float
    """The longest time without a batch around a swap; `usual_ms`: anywhere else."""
    usual_ms: float
    events: int


def compare(
    customer: Customer,
    found: dict[str, Any],
    number: int,
    tape: Numbers,
    ids: Numbers,
    directory: SymbolDirectory,
) -> Row:
    wanted = tape
    if customer.symbols is not None:
        wanted = tape[np.isin(ids, [directory.id_of(each) for each in customer.symbols])]
    got, came, replaced = (found[f"{name}-{number}"] for name in ("sequences", "came", "replaced"))
    unique = np.unique(got)
    around = [0.0]
    usual = np.diff(came) / 1e6 if len(came) > 1 else np.zeros(1)
    for at in replaced:
        place = int(np.searchsorted(came, at))
        near = slice(max(0, place - 2), place + 2)
        around.append(float(np.diff(came[near]).max(initial=0)) / 1e6)
    return Row(
        customer.name,
        len(wanted),
        len(np.setdiff1d(wanted, unique)),
        len(got) - len(unique) + len(np.setdiff1d(unique, wanted)),
        int((np.diff(got) <= 0).sum()) if customer.merged else 0,
        len(replaced),
        max(around),
        float(np.quantile(usual, 0.99)),
        len(found[f"events-{number}"]),
    )


def perform(base: Path, times: int, rate: float) -> tuple[list[Applied], list[Row], list[str], float]:
    symbols = {f"XF{floor:02}": [f"S{each:02}" for each in range(floor - 1, SYMBOLS, 2)] for floor in (1, 2)}
    file = write_network(base, symbols, GROUPS, "100ms", one_sends=False)
    network = load_network(file)
    out = base / "customers.npz"
    watching = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.plans", "--customers", str(file), str(out)],
        stdout=subprocess.PIPE,
        text=True,
    )
    problems: list[str] = []
    try:
        progress = Progress(watching)
        progress.start()
        cluster = Cluster(network, file, base / "data", NodeOptions(rate=rate))
        run = ClusterRun(cluster, None, sum(term.ns for term in network.liveness()) / 1e9 + 10.0)
        swaps = Swaps(file, times)
        for _ in run.steps():
            receivers = [member.status for member in cluster.of_role(RECEIVER)]
            if run.phase == "running" and not swaps.ident and all(said.get("records", 0) > rate for said in receivers):
                swaps.start()
            run.interrupted = bool(swaps.ident) and not swaps.is_alive()
            if run.phase == "draining":
                progress.wait_still()
        problems += run.problems + ([swaps.problem] if swaps.problem else [])
    finally:
        watching.send_signal(signal.SIGTERM)
        watching.wait(60)
    problems = judge(base / "data", RECEIVERS, problems).problems
    tape, ids, seconds = read_trades(base / "data" / RECEIVERS[0] / "tape")
    found = dict(np.load(out))
    directory = SymbolDirectory(network)
    rows = [compare(each, found, number, tape, ids, directory) for number, each in enumerate(customers())]
    return swaps.done, rows, problems, len(tape) / seconds


def read_trades(tape: Path) -> tuple[Numbers, Numbers, float]:
    runs = [
        run.records for frame in TapeReader(tape).frames() for run in frame.batches() if run.kind.rtype == RTYPE_TRADE
    ]
    times = [int(runs[0]["ts_recv"][0]), int(runs[-1]["ts_recv"][-1])]
    sequences = np.concatenate([run["sequence"] for run in runs]).astype(np.int64)
    ids = np.concatenate([run["instrument_id"] for run in runs]).astype(np.int64)
    return sequences, ids, (times[1] - times[0]) / 1e9


def run(options: Options) -> Result:
    """The benchmark."""
    times, rate = (QUICK_TIMES, QUICK_RATE) if options.quick else (TIMES, RATE)
    base = Path(tempfile.mkdtemp(prefix="plans-"))
    done, rows, problems, traded = perform(base, times, rate)
    broken = [row for row in rows if row.lost or row.doubled or row.disordered]
    if problems or broken:
        tell(f"VIOLATED, the data are kept in {base}: {'; '.join(problems)}")
    else:
        shutil.rmtree(base)
    result = Result("plans")
    everything = sum(row.records for row in rows)
    result.figures += [
        Figure("swaps", len(done), "swaps", "requested", times),
        Figure("records lost at subscribers", sum(row.lost for row in rows), "records", "all", everything),
        Figure("records duplicated at subscribers", sum(row.doubled for row in rows), "records", "all", everything),
        Figure("records/s on the tape", traded, "records/s", "requested", rate),
    ]
    if done:
        ready, swap = sorted(each.ready_s * 1e3 for each in done), sorted(each.swap_s * 1e3 for each in done)
        result.tables.append(
            Table(
                "time of a swap as the command sees it, ms: sent until every edge is ready; from there until active",
                ("step", "p50", "max"),
                [("ready", quantile(ready, 0.5), ready[-1]), ("active", quantile(swap, 0.5), swap[-1])],
            )
        )
    result.tables.append(
        Table(
            "subscribers against the tape; outage: longest time without a batch at a swap, ms; usual: p99 of all, ms",
            ("subscriber", "records", "lost", "duplicated", "disordered", "swaps", "outage", "usual", "events"),
            [astuple(row) for row in rows],
        )
    )
    result.notes.append("; ".join(problems) or "all tapes identical")
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """The customers, as a process of their own."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.plans", description="Run the subscribers of the benchmark plans."
    )
    parser.add_argument("--customers", nargs=2, type=Path, metavar=("NETWORK", "OUT"), required=True)
    file, out = parser.parse_args(arguments).customers
    asyncio.run(follow_all(file, out))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Real processes, real faults, the promises checked: `python -m benchmarks.faults [kind ...]`.

Five receivers, two reformation servers and five floors as processes, 10,000 records a second in all. Each kind of
fault strikes a running network again and again at random moments:

| kind       | what is done                                                              | undone after        |
|------------|---------------------------------------------------------------------------|---------------------|
| token-site | kill -9 of the receiver whose slot it is at that moment                   | 1 s: started again  |
| any-node   | kill -9 of any node: receiver, reformation server, floor                  | 1 s: started again  |
| stop       | SIGSTOP of a receiver                                                     | 2 s: SIGCONT        |
| cut        | a receiver's link is cut; every node is in a network namespace of its own | 2 s: mended         |

Then the floors stop, everything is drained and ended, and it is checked that all tapes are byte-identical and sound,
and that every packet that was witnessed to its floor is on them exactly once and in order. Exit code 1 if not.

Measured is the time from a receiver's fault to the first release of a slot of the next ring at any other receiver,
beside what the timing implies.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random, SystemRandom

from benchmarks.campaign import conduct
from benchmarks.namespaces import Namespaces, NoNamespaces
from benchmarks.recovery import (
    Fault,
    FloorClaim,
    Term,
    eras_of,
    floor_problems,
    implied,
    late_share,
    measure,
    read_content,
    token_site,
)
from benchmarks.report import Cell, Figure, Options, Result, Table, tell
from benchmarks.room import free_ports
from levelcast.errors import NetError
from levelcast.extras import ExtraMissing
from levelcast.network import Network, load_network
from levelcast.network.roles import FLOOR, RECEIVER
from levelcast.node.cluster import Cluster, ClusterNode, ClusterRun
from levelcast.node.options import NodeOptions
from levelcast.node.verdict import judge
from levelcast.plots.style import BLUE, FAINT, INK, ORANGE, RED, canvas
from levelcast.storage.append_file import TapeError
from levelcast.storage.release_log import read_releases
from levelcast.units import quantile, show_ns

KINDS = ("token-site", "any-node", "stop", "cut")
QUICK_KINDS = ("token-site", "stop")
TIMES, RATE, SEED = 20, 10_000.0, 1
UNDONE_AFTER_S = {"kill": 1.0, "stop": 2.0, "cut": 2.0}
GAP_S = (0.5, 2.0)
"""From a network that is whole again to the next fault."""
BACK_LIMIT_S = 60.0
"""A network that is not whole again by then is a broken promise."""
FRESH_NS = 1_000_000_000
LAST_LINES = 5
RECEIVERS, SERVERS, FLOORS = 5, 2, 5
TARGET_MS = 150.0
"""The median after the death of the token site is to stay below this."""

_NETWORK = """\
[network]
name = "five receivers in one room"

[[site]]
name = "room"

[links]
delay = "100us"

[timing]
slot = "5ms"
late = "2ms"
attempts = 3
process = "1ms"
clock_error = "500us"
witness = "majority"

[core]
address = "{address}"
port = {port}
"""


def network_text(address: str, port: int) -> str:
    """The network file: one room, everything but δ_N, τ and k_r by the rules."""
    nodes = [("receiver", f'name = "receiver-{i}"\nid = {100 + i}') for i in range(1, RECEIVERS + 1)]
    nodes += [("reformation", f'name = "reform-{i}"\nid = {200 + i}') for i in range(1, SERVERS + 1)]
    nodes += [("floor", f'name = "XF{i:02}"\npublisher = {i}') for i in range(1, FLOORS + 1)]
    parts = [f'[[{role}]]\n{who}\nsite = "room"\n' for role, who in nodes]
    return "\n".join([_NETWORK.format(address=address, port=port), *parts])


def write_network(directory: Path) -> Path:
    """A network file with a group and a port that nobody else has."""
    chance = SystemRandom()
    port = free_ports()
    path = directory / "network.toml"
    address = f"239.192.{chance.randint(1, 254)}.{chance.randint(1, 254)}"
    path.write_text(network_text(address, port), encoding="utf-8")
    return path


# -- striking ----------------------------------------------------------------------------------------------


class Campaign:
    """The faults of one kind against a running cluster, one after the other. `step` is called all the time."""

    def __init__(self, cluster: Cluster, kind: str, times: int, rng: Random, wires: Namespaces | None = None) -> None:
        self.cluster = cluster
        self.kind = kind
        self.times = times
        self.faults: list[Fault] = []
        self.problems: list[str] = []
        self._rng = rng
        self._wires = wires
        self._open: Fault | None = None
        self._since_s = time.monotonic()
        self._strike_s: float | None = None
        self.done = False
        """Everything was struck and is back, or cannot be brought back."""

    def step(self) -> None:
        now_s = time.monotonic()
        if self._open is not None:
            if now_s - self._since_s >= UNDONE_AFTER_S[self._open.how]:
                self._undo(self._open)
        elif self._strike_s is None:
            self._note_start()
            if whole(self.cluster, time.time_ns()):
                self._strike_s = now_s + self._rng.uniform(*GAP_S)
            elif now_s - self._since_s > BACK_LIMIT_S:
                self.problems.append(f"the network has not recovered {BACK_LIMIT_S:.0f} s after {self._last()}")
                self.done = True
        elif now_s >= self._strike_s:
            self._strike_s = None
            self.done = len(self.faults) >= self.times
            if not self.done:
                self._strike()

    def _note_start(self) -> None:
        """Note when a node that was started again speaks: until then it is Python that starts."""
        fault = self.faults[-1] if self.faults else None
        if fault is not None and not fault.start_ns and self.cluster.members[fault.name].status:
            fault.start_ns = time.time_ns() - fault.undone_ns

    def _last(self) -> str:
        return f"the {self.faults[-1].how} of {self.faults[-1].name}" if self.faults else "its start"

    def _strike(self) -> None:
        """Choose who is struck, at this very moment, and strike."""
        how = self.kind if self.kind in ("stop", "cut") else "kill"
        member = self._choose()
        fault = Fault(self.kind, how, member.place.name, member.place.role.name, time.time_ns())
        if how == "kill":
            self.cluster.kill(fault.name)
        elif how == "stop":
            _signal(member, signal.SIGSTOP)
        else:
            assert self._wires is not None
            self._wires.cut(fault.name)
        self.faults.append(fault)
        self._open = fault
        self._since_s = time.monotonic()

    def _choose(self) -> ClusterNode:
        receivers = self.cluster.of_role(RECEIVER)
        if self.kind == "any-node":
            return self._rng.choice(list(self.cluster.members.values()))
        if self.kind != "token-site":
            return self._rng.choice(receivers)
        ring = self._rng.choice(receivers).status["ring"]
        site = token_site(ring, time.time_ns())
        return next(member for member in receivers if member.place.id == site)

    def _undo(self, fault: Fault) -> None:
        """End the fault that is under way."""
        self._open = None
        fault.undone_ns = time.time_ns()
        if fault.how == "kill":
            self.cluster.start(fault.name)
        elif fault.how == "stop":
            _signal(self.cluster.members[fault.name], signal.SIGCONT)
        else:
            assert self._wires is not None
            self._wires.mend(fault.name)
        self._since_s = time.monotonic()


def _signal(member: ClusterNode, number: signal.Signals) -> None:
    assert member.process is not None
    member.process.send_signal(number)


def whole(cluster: Cluster, now: int) -> bool:
    """Whether every node is up, and every receiver in one ring of them all and releasing."""
    if not all(member.running and member.status for member in cluster.members.values()):
        return False
    receivers = [member.status for member in cluster.of_role(RECEIVER)]
    return (
        len({said["generation"] for said in receivers}) == 1
        and all(said["state"] == "ACTIVE" and len(said["members"]) == len(receivers) for said in receivers)
        and all(now - said["complete_upto_ns"] < FRESH_NS for said in receivers)
    )


# -- one kind ----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Outcome:
    """What came of one kind's campaign."""

    kind: str
    faults: list[Fault] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    terms: list[Term] = field(default_factory=list)
    records: int = 0
    traded_s: float = 0.0
    late: tuple[float, float] = (0.0, 0.0)
    behind_p99_ns: int = 0
    load: str = ""

    @property
    def over_ms(self) -> list[float]:
        """From a receiver's fault to the first release of the next ring, sorted."""
        return sorted(f.over_ns / 1e6 for f in self.faults if f.role == "receiver" and f.over_ns is not None)

    @property
    def back_ms(self) -> list[float]:
        """From the end of a receiver's fault to its first release on time, without the start of a process, sorted."""
        return sorted(
            max(fault.back_ns - fault.start_ns * (fault.how == "kill"), 0) / 1e6
            for fault in self.faults
            if fault.role == "receiver" and fault.back_ns is not None
        )

    @property
    def start_ms(self) -> list[float]:
        """How long killed nodes took to start again, sorted."""
        return sorted(fault.start_ns / 1e6 for fault in self.faults if fault.how == "kill")

    @property
    def implied_ms(self) -> float:
        return sum(term.ns for term in self.terms) / 1e6


def run_kind(kind: str, times: int, rate: float, seed: int, parent: Path | None = None) -> Outcome:
    """One cluster from its start to its end, with its faults; its directory is kept if a promise broke."""
    base = Path(tempfile.mkdtemp(prefix="faults-", dir=parent))
    outcome = Outcome(kind, load=" ".join(f"{each:.1f}" for each in os.getloadavg()))
    try:
        file = write_network(base)
        network = load_network(file)
        outcome.terms = implied(network.timing(), RECEIVERS, at_token_site=kind == "token-site")
        with ExitStack() as stack:
            wires = stack.enter_context(Namespaces(network.node_names)) if kind == "cut" else None
            cluster = Cluster(
                network,
                file,
                base / "data",
                NodeOptions(rate=rate, seed=seed, status_port=0),
                launcher=None if wires is None else lambda place: wires.launch(place.name),
            )
            campaign = Campaign(cluster, kind, times, Random(f"faults {seed} {kind}"), wires)
            outcome.problems = perform(cluster, campaign)
        outcome.faults = campaign.faults
        examine(outcome, cluster)
    except NoNamespaces:
        shutil.rmtree(base)
        raise
    except BaseException:
        tell(f"{kind}: interrupted, its data are in {base}")
        raise
    if outcome.problems:
        _tell_violation(outcome, cluster, base, reproduction(kind, times, rate, seed))
    else:
        shutil.rmtree(base)
    return outcome


def perform(cluster: Cluster, campaign: Campaign) -> list[str]:
    """Run the cluster until the campaign is done; then drain and end it in order. What went wrong."""
    bound_s = sum(term.ns for term in cluster.network.liveness()) / 1e9 + 5.0
    run = ClusterRun(cluster, None, bound_s)
    try:
        for _ in run.steps():
            if run.phase == "running":
                campaign.step()
                run.interrupted = campaign.done
    except NetError as error:
        campaign.problems.append(str(error))
    finally:  # after an interruption there is something left
        for member in cluster.members.values():
            if member.running:
                _signal(member, signal.SIGCONT)
        cluster.stop()
    return [*campaign.problems, *run.problems]


def examine(outcome: Outcome, cluster: Cluster) -> None:
    """Compare the tapes, count every floor's packets, and measure from the release logs."""
    names = [member.place.name for member in cluster.of_role(RECEIVER)]
    verdict = judge(cluster.data, names, outcome.problems)
    outcome.problems = verdict.problems
    try:
        content = read_content(cluster.data / names[0])
        logs = {name: read_releases(cluster.data / name / "releases") for name in names}
    except TapeError as error:
        outcome.problems.append(str(error))
        return
    for member in cluster.of_role(FLOOR):
        outcome.problems += floor_problems(content, _claim(member, outcome.faults))
    measure(outcome.faults, eras_of(content.slots, content.timestamps_ns, cluster.network.timing().slot_ns), logs)
    outcome.late = late_share(outcome.faults, logs)
    outcome.records = content.records
    outcome.behind_p99_ns = max(each.behind_ns[1] for each in verdict.receivers)
    if len(content.timestamps_ns):
        outcome.traded_s = float(content.timestamps_ns[-1] - content.timestamps_ns[0]) / 1e9


def _claim(member: ClusterNode, faults: Sequence[Fault]) -> FloorClaim:
    floor, said = member.place.floor, member.status
    assert floor is not None
    starts = 1 + sum(fault.how == "kill" and fault.name == floor.name for fault in faults)
    witnessed, unwitnessed = said.get("packets_witnessed", 0), said.get("packets_unwitnessed", 0)
    return FloorClaim(floor.name, floor.id, floor.publisher, witnessed, unwitnessed, starts)


def reproduction(kind: str, times: int, rate: float, seed: int) -> str:
    return f"python -m benchmarks.faults {kind} --times {times} --rate {rate:g} --seed {seed}"


def _tell_violation(outcome: Outcome, cluster: Cluster, base: Path, again: str) -> None:
    tell(f"{outcome.kind}: VIOLATED, the data are kept in {base}; again: {again}")
    for problem in outcome.problems:
        tell(f"  {problem}")
    for name in cluster.members:
        log = cluster.data / f"{name}.log"
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
        for line in lines[-LAST_LINES:]:
            tell(f"  {name}: {line}")


# -- the report --------------------------------------------------------------------------------------------


def report(outcomes: Sequence[Outcome], times: int, rate: float, seed: int) -> Result:
    """Every kind beside what its timing implies."""
    result = Result("faults")
    for outcome in outcomes:
        if outcome.over_ms:
            name = f"fault to first release of the next ring, {outcome.kind}, median"
            measured = quantile(outcome.over_ms, 0.5)
            result.figures.append(Figure(name, measured, "ms", "what the timing implies", outcome.implied_ms))
            if outcome.kind == "token-site":
                result.figures.append(Figure(name, measured, "ms", "the target", TARGET_MS))
    struck = sum(len(outcome.faults) for outcome in outcomes)
    broken = sum(bool(outcome.problems) for outcome in outcomes)
    result.figures.append(Figure("campaigns with a violated guarantee", broken, "campaigns", "all", len(outcomes)))
    result.tables += [_recovery_table(outcomes), _load_table(outcomes), *_implied_tables(outcomes)]
    result.notes.append(f"{struck} faults; {reproduction(' '.join(o.kind for o in outcomes), times, rate, seed)}")
    for outcome in outcomes:
        said = "; ".join(outcome.problems) or "all tapes identical and complete, nothing lost or duplicated"
        result.notes.append(f"{outcome.kind}: {'VIOLATED: ' if outcome.problems else ''}{said}")
    return result


def _recovery_table(outcomes: Sequence[Outcome]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for outcome in outcomes:
        over, back = outcome.over_ms, outcome.back_ms
        receivers = [fault for fault in outcome.faults if fault.role == "receiver"]
        silence = sorted(fault.silence_ns / 1e6 for fault in receivers if fault.over_ns is not None)
        reformed = sum(fault.rings > 0 for fault in outcome.faults)
        rows.append((
            outcome.kind, len(outcome.faults), len(receivers), reformed, outcome.implied_ms,
            quantile(over, 0.5), quantile(over, 0.9), quantile(over, 1.0),
            quantile(silence, 0.5), quantile(outcome.start_ms, 0.5), quantile(back, 0.5), quantile(back, 1.0),
        ))  # fmt: skip
    return Table(
        "from a receiver's fault to the first release of the next ring, ms; outage: longest time without a release; "
        "start: of the killed process; back: from then, or from the end of the fault, to its first release on time",
        ("kind", "faults", "of receivers", "reformed", "implied", "p50", "p90", "max", "outage p50", "start p50",
         "back p50", "back max"),
        rows,
    )  # fmt: skip


def _load_table(outcomes: Sequence[Outcome]) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (
            outcome.kind,
            outcome.records,
            round(outcome.records / outcome.traded_s) if outcome.traded_s else 0,
            f"{outcome.late[0]:.2%}",
            f"{outcome.late[1]:.2%}",
            outcome.behind_p99_ns / 1e6,
            sum(fault.rings for fault in outcome.faults),
            outcome.load,
        )
        for outcome in outcomes
    ]
    return Table(
        "the campaigns; late: releases more than 1 ms after timestamp + Δ_A, of all and without the faulted receivers",
        ("kind", "records", "per s", "late", "late, not faulted", "lag p99 ms", "rings", "load before"),
        rows,
    )


def _implied_tables(outcomes: Sequence[Outcome]) -> Iterator[Table]:
    """One table for the kinds that have the same terms."""
    by_terms: dict[tuple[Term, ...], list[str]] = {}
    for outcome in outcomes:
        by_terms.setdefault(tuple(outcome.terms), []).append(outcome.kind)
    for terms, kinds in by_terms.items():
        rows: list[tuple[Cell, ...]] = [(term.term, show_ns(term.ns), term.rule) for term in terms]
        rows.append(("in all", show_ns(sum(term.ns for term in terms)), ""))
        yield Table(f"implied, {', '.join(kinds)}", ("wait until", "time", "rule"), rows)


def show_timing(network: Network) -> str:
    """The derived timing in one line."""
    return ", ".join(f"{each.symbol or each.name} {each.text}" for each in network.explain())


def plot(outcomes: Sequence[Outcome], path: Path) -> Path:
    """Each fault as a point, by kind, with the median, what is implied, and the target."""
    shown = [outcome for outcome in outcomes if outcome.over_ms]
    widest = 2 * TARGET_MS
    most = max((ms for outcome in shown for ms in outcome.over_ms if ms <= widest), default=TARGET_MS)
    right = max(most, TARGET_MS) * 1.08
    with canvas(path, 8.6, 1.3 + 0.62 * max(len(shown), 1)) as (figure, (axes,)):
        for row, outcome in enumerate(reversed(shown)):
            values = [ms for ms in outcome.over_ms if ms <= widest]
            if beyond := len(outcome.over_ms) - len(values):
                says = f"{beyond} up to {outcome.over_ms[-1]:,.0f} ms →"
                axes.text(right, row - 0.3, says, color=BLUE, ha="right", va="center", fontsize=9)
            heights = [row + 0.22 * ((i * 7 % 5) / 2 - 1) for i in range(len(values))]
            axes.scatter(values, heights, s=16, color=BLUE, alpha=0.55, linewidths=0)
            middle = quantile(outcome.over_ms, 0.5)
            axes.plot([middle, middle], [row - 0.36, row + 0.36], color=INK, linewidth=1.6)
            axes.text(middle, row + 0.39, f"{middle:.0f}", color=INK, ha="center", va="bottom", fontsize=9)
            axes.plot([outcome.implied_ms] * 2, [row - 0.36, row + 0.36], color=ORANGE, linewidth=1.6)
        top = len(shown) - 0.3
        axes.axvline(TARGET_MS, color=RED, linewidth=1.2, linestyle=(0, (4, 3)))
        axes.text(TARGET_MS, top, " target", color=RED, va="bottom")
        if shown:
            axes.text(shown[0].implied_ms, top, "implied ", color=ORANGE, ha="right", va="bottom")
        axes.set_yticks(range(len(shown)), [f"{o.kind}, {len(o.over_ms)}" for o in reversed(shown)], color=INK)
        axes.set_ylim(-0.6, top + 0.35)
        axes.set_xlim(0, right)
        axes.grid(axis="x")
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.set_xlabel("ms from the fault to the first release of the next ring; black: median", color=FAINT)
        figure.suptitle(
            "Time from a receiver's fault to the first release of the next ring", x=0.01, ha="left", fontsize=12,
            fontweight="bold",
        )  # fmt: skip
    return path


# -- commands ----------------------------------------------------------------------------------------------


def run(options: Options) -> Result:
    """For `python -m benchmarks faults`: all kinds, or one fault of two kinds."""
    if options.quick:
        return _campaigns(QUICK_KINDS, 1, 2000.0, SEED, options)[0]
    return _campaigns(KINDS, TIMES, RATE, SEED, options)[0]


def _campaigns(kinds: Sequence[str], times: int, rate: float, seed: int, options: Options) -> tuple[Result, bool]:
    """The report, and whether every promise held."""
    outcomes, skipped = [], []
    for kind in kinds:
        tell(f"faults: {kind}, {times} times")
        try:
            outcomes.append(run_kind(kind, times, rate, seed))
        except NoNamespaces as error:
            skipped.append(f"{kind}: NOT RUN, namespaces cannot be made here: {error}")
    result = report(outcomes, times, rate, seed)
    with tempfile.TemporaryDirectory(prefix="faults-") as directory:
        result.notes.insert(0, f"timing: {show_timing(load_network(write_network(Path(directory))))}")
    result.notes += skipped
    options.out.mkdir(parents=True, exist_ok=True)
    each = {outcome.kind: [asdict(fault) for fault in outcome.faults] for outcome in outcomes}
    (options.out / "faults-each.json").write_text(json.dumps(each, indent=1) + "\n", encoding="utf-8")
    try:
        result.plots.append(str(plot(outcomes, options.plot_dir / "faults.svg")))
    except ExtraMissing as missing:
        result.notes.append(str(missing))
    return result, not skipped and not any(outcome.problems for outcome in outcomes)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0: every promise held; 1: one broke, or a kind could not be run; 130: interrupted."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.faults",
        description="Inject faults into running nodes, check the tapes and measure the recovery.",
    )
    parser.add_argument("kind", nargs="*", help=f"which ones: {', '.join(KINDS)}; all if none is named")
    parser.add_argument("--times", type=int, default=TIMES, help="faults of each kind (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=RATE, help="records/s in total (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=SEED, help="of moments, victims and trades")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--out", type=Path, default=None, help="where JSON and plot go, instead of out/bench and docs")
    chosen = parser.parse_args(arguments)
    unknown = [kind for kind in chosen.kind if kind not in KINDS]
    if unknown:
        parser.error(f"unknown kind {', '.join(unknown)}; use {', '.join(KINDS)}")
    options = Options() if chosen.out is None else Options(out=chosen.out, plots=chosen.out)

    def campaign() -> tuple[Result, bool]:
        return _campaigns(chosen.kind or KINDS, chosen.times, chosen.rate, chosen.seed, options)

    return conduct(campaign, options, as_json=chosen.json)


if __name__ == "__main__":
    sys.exit(main())

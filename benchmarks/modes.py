"""Lockstep against pipelined, on the delays between five cities, and between the 21 AWS regions, with 1 % loss.

The AWS regions need `LEVELCAST_DATA`. Cases with rule 6 have the timing that `levelcast.timing.derive` makes from the
same measured path. *Derived* is the hold time that `levelcast timing` derives, *paper* MS §5.1's example: τ = Δ_A =
3 s, k_r = 3. The figure is the latency from a floor's submit to a receiver's release, in true time, one sample per
packet and receiver; the tables also have the share of late releases and the part of the hold time that slots really
needed.
"""

from __future__ import annotations

import multiprocessing
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from benchmarks import aws
from benchmarks.report import Cell, Figure, Options, Result, Table, tell
from levelcast.extras import ExtraMissing
from levelcast.network import Network, five_cities, parse_network
from levelcast.network.hold_input import hold_input
from levelcast.plots.style import BLUE, FAINT, GREY, INK, ORANGE, RED, canvas
from levelcast.protocol.config import Witnesses
from levelcast.sim.scenarios.steady import MS, steady_network
from levelcast.timing.hold import derive_hold
from levelcast.timing.rules import Mode, Timing
from levelcast.units import quantile

if TYPE_CHECKING:
    from matplotlib.axes import Axes

S = 1_000_000_000
JOBS = 2
Group = Literal["five cities", "AWS"]
PAPER_NS, PAPER_ATTEMPTS = 3 * S, 3
"""MS §5.1: "With these parameters, the token transfer time is about 3 seconds.\""""
QUANTILES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0))


@dataclass(frozen=True, slots=True)
class Case:
    """One way to run the ring. In lockstep without a slot it is R, the shortest that rule 4 allows."""

    mode: Mode
    slot_ms: int | None
    witnesses: Witnesses
    lasting_s: int
    """Virtual seconds of load per seed: long where slots are, and less than the simulator's limit of events."""
    hold: Literal["rule 6", "derived", "paper"] = "rule 6"
    group: Group = "five cities"

    @property
    def name(self) -> str:
        slot = f"{self.mode} {self.slot_ms} ms" if self.slot_ms is not None else "lockstep"
        hold = "" if self.hold == "rule 6" else f", {self.hold}"
        group = "" if self.group == "five cities" else f"{self.group}: "
        return f"{group}{slot}, {'w = 1' if self.witnesses == 1 else self.witnesses}{hold}"

    def timing_of(self, network: Network, timing: Timing) -> Timing:
        """Return the timing with the hold time of this case; `timing` is that of rule 6."""
        if self.hold == "derived":
            return replace(timing, hold_ns=network.timing().hold_ns)
        if self.hold == "paper":
            return replace(timing, slot_ns=PAPER_NS, hold_ns=PAPER_NS, attempts=PAPER_ATTEMPTS)
        return timing


WITNESSES: tuple[Witnesses, ...] = ("majority", 1)
DERIVED = Case("pipelined", 50, "majority", 240, "derived")
CASES = (
    DERIVED,
    Case("lockstep", 3_000, 1, 600, "paper"),
    *(
        Case("lockstep" if slot_ms is None else "pipelined", slot_ms, witnesses, lasting_s)
        for witnesses in WITNESSES
        for slot_ms, lasting_s in ((None, 600), (200, 300), (50, 240), (10, 100))
    ),
)
HEADLINE = (Case("lockstep", None, "majority", 600), DERIVED)
AWS_CASES = (
    Case("pipelined", 50, "majority", 20, "derived", "AWS"),
    Case("lockstep", 3_000, 1, 60, "paper", "AWS"),
    Case("lockstep", None, "majority", 120, group="AWS"),
    Case("pipelined", 50, "majority", 20, group="AWS"),
)
"""21 floors send 105 packets/s to 21 receivers: three seeds of 20 s are 130,000 packet releases."""


@dataclass(slots=True)
class Measured:
    """What the runs of one case add up to. Times in ns."""

    slot_ns: int = 0
    hold_ns: int = 0
    latency_ns: list[float] = field(default_factory=list)
    wait_ns: list[float] = field(default_factory=list)
    ready_ns: list[float] = field(default_factory=list)
    missed: int = 0
    """Packet releases whose packet waited longer than τ + δ_N: the first token that could name it did not."""
    late: int = 0
    late_slots: list[str] = field(default_factory=list)
    packets: int = 0
    refused: int = 0
    unwitnessed_most: int = 0
    reformations: int = 0
    faults: int = 0
    requests: int = 0

    def add(self, other: Measured) -> None:
        self.slot_ns, self.hold_ns = other.slot_ns, other.hold_ns
        for name in ("latency_ns", "wait_ns", "ready_ns", "late_slots"):
            getattr(self, name).extend(getattr(other, name))
        for name in ("missed", "late", "packets", "refused", "reformations", "faults", "requests"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.unwitnessed_most = max(self.unwitnessed_most, other.unwitnessed_most)

    def sort(self) -> None:
        for name in ("latency_ns", "wait_ns", "ready_ns"):
            getattr(self, name).sort()


def run(options: Options) -> Result:
    """Run every case over several seeds."""
    seeds = (1,) if options.quick else (1, 2, 3)
    shorter = 10 if options.quick else 1
    cases = CASES if options.quick or aws.table() is None else (*CASES, *AWS_CASES)
    tell(f"modes: {len(cases)} cases, {len(seeds)} seeds each")
    work = [(case, seed, case.lasting_s * S // shorter) for case in cases for seed in seeds]
    measured = {case: Measured() for case in cases}
    for group in {case.group for case in cases}:
        network_of(group)  # the processes inherit it
    with multiprocessing.get_context("fork").Pool(JOBS) as pool:
        for number, ((case, seed, _), one) in enumerate(zip(work, pool.imap(measure, work), strict=True), 1):
            measured[case].add(one)
            tell(f"modes: {number} of {len(work)}, {case.name}, seed {seed}")
    for one in measured.values():
        one.sort()
    result = Result("modes")
    _add_figures(result, measured)
    result.tables += [_latency_table(measured), _hold_table(measured)]
    _add_notes(result, measured, len(seeds))
    try:
        of_cities = {case: one for case, one in measured.items() if case.group == "five cities"}
        result.plots.append(str(plot(of_cities, options.plot_dir / "modes.svg")))
    except ExtraMissing as missing:
        result.notes.append(str(missing))
    return result


@cache
def network_of(group: Group) -> Network:
    """Return a group as a network with its derived hold time."""
    if group == "five cities":
        return parse_network(five_cities())
    table = aws.table()
    assert table is not None
    tell("modes: derive the hold time of the AWS regions")
    hold_ms = derive_hold(hold_input(parse_network(aws.network_text(table)))).hold_ms
    return parse_network(aws.network_text(table, hold_ms))


def measure(work: tuple[Case, int, int]) -> Measured:
    """One case with one seed, under load for so many ns."""
    case, seed, lasting_ns = work
    network = network_of(case.group)
    ring = steady_network(
        network,
        seed=seed,
        mode=case.mode,
        slot_ns=None if case.slot_ms is None else case.slot_ms * MS,
        witnesses=case.witnesses,
        change=partial(case.timing_of, network),
    )
    ring.form()
    counts = ring.world.report_counts
    faults_before = counts["fault"]
    ring.load(lasting_ns)
    ring.drain()
    samples = ring.samples
    return Measured(
        ring.timing.slot_ns,
        ring.timing.hold_ns,
        list(samples.latency_ns),
        list(samples.wait_ns),
        list(samples.ready_ns),
        sum(wait_ns > ring.timing.slot_ns + ring.timing.late_ns for wait_ns in samples.wait_ns),
        samples.late,
        [f"{case.name}, seed {seed}, slot {slot}" for slot in sorted(samples.late_slots)],
        len(ring.checker.submitted),
        ring.refused,
        ring.unwitnessed_most,
        counts["forms"] - 1,
        counts["fault"] - faults_before,
        samples.requests,
    )


def _add_figures(result: Result, measured: dict[Case, Measured]) -> None:
    lockstep, pipelined = (measured[case] for case in HEADLINE)
    for name, at in QUANTILES:
        result.figures.append(
            Figure(f"latency, {DERIVED.name}, {name}", quantile(pipelined.latency_ns, at) / 1e9, "s",
                   "lockstep, majority", quantile(lockstep.latency_ns, at) / 1e9)
        )  # fmt: skip
    network = parse_network(five_cities())
    farthest_ns = max(network.link(f.site, r.site).delay_ns for f in network.floors for r in network.receivers)
    result.figures += [
        Figure(f"latency, {DERIVED.name}, p50", quantile(pipelined.latency_ns, 0.5) / 1e9, "s",
               "the longest one-way delay, the lower limit of a simultaneous release", farthest_ns / 1e9),
        Figure(f"hold time really needed, {DERIVED.name}, max", quantile(pipelined.ready_ns, 1.0) / 1e9, "s",
               "Δ_A", pipelined.hold_ns / 1e9),
        Figure("late releases, all cases", sum(one.late for one in measured.values()), "packet releases",
               "all releases", sum(len(one.latency_ns) for one in measured.values())),
    ]  # fmt: skip


def _latency_table(measured: dict[Case, Measured]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for case, one in measured.items():
        latency = [f"{quantile(one.latency_ns, at) / 1e9:.3f}" for _, at in QUANTILES]
        late = f"{one.late / len(one.latency_ns):.3%}" if one.latency_ns else "-"
        rows.append((case.name, one.packets, len(one.latency_ns), *latency, late))
    columns = ("mode, witnesses", "packets", "releases", *(f"{name} s" for name, _ in QUANTILES), "late")
    return Table("latency from submit to release, true time", columns, rows)


def _hold_table(measured: dict[Case, Measured]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for case, one in measured.items():
        ready = [f"{quantile(one.ready_ns, at) / 1e9:.3f}" for at in (0.5, 0.99, 1.0)]
        wait = [f"{quantile(one.wait_ns, at) / 1e9:.3f}" for at in (0.5, 0.99, 1.0)]
        used = f"{quantile(one.ready_ns, 1.0) / one.hold_ns:.0%}"
        given = f"{one.slot_ns / 1e9:.3f}", f"{one.hold_ns / 1e9:.3f}"
        missed = f"{one.missed / max(len(one.wait_ns), 1):.1%}"
        rows.append((case.name, *given, *wait, missed, *ready, used, one.unwitnessed_most))
    columns = (
        "mode, witnesses", "τ s", "Δ_A s", "wait p50", "p99", "max s", "missed", "ready p50", "p99", "max s", "of Δ_A",
        "credit",
    )  # fmt: skip
    title = "waiting for a token (submit to timestamp), and timestamp until held and witnessed at a receiver"
    return Table(title, columns, rows)


def _add_notes(result: Result, measured: dict[Case, Measured], seeds: int) -> None:
    result.notes += [
        f"{seeds} seed{'s' if seeds > 1 else ''} a case; one packet in 200 ms per floor on average; as many floors as "
        f"receivers, 5 or 21 (AWS), 1 % loss between sites; missed: waited longer than τ + δ_N; "
        "credit: maximum unwitnessed packets of a floor",
        f"requests {sum(one.requests for one in measured.values()):,}, "
        f"faults {sum(one.faults for one in measured.values())}, "
        f"reformations {sum(one.reformations for one in measured.values())}, "
        f"refused for lack of credit {sum(one.refused for one in measured.values())}",
    ]
    result.notes += [f"LATE: {slot}" for one in measured.values() for slot in one.late_slots[:5]]


# The plot


def plot(measured: dict[Case, Measured], path: Path) -> Path:
    """Left: latency as distributions. Right: the hold time and how much of it was needed."""
    lockstep, pipelined = (measured[case] for case in HEADLINE)
    late = sum(one.late for one in measured.values())
    medians = [quantile(one.latency_ns, 0.5) / 1e9 for one in (pipelined, lockstep)]
    with canvas(path, 10.5, 4.3, panels=2) as (figure, (left, right)):
        _plot_latency(left, measured)
        _plot_hold(right, measured)
        figure.suptitle(
            f"The derived hold time releases a packet in {medians[0]:.2f} s instead of {medians[1]:.1f} s; "
            + ("no release was late" if not late else f"{late:,} packet releases were late"),
            x=0.01, ha="left", fontsize=12.5, fontweight="bold",
        )  # fmt: skip
    return path


LABELS: dict[str, tuple[float, bool]] = {
    "lockstep, majority": (0.25, False),
    "pipelined 50 ms, majority": (0.13, False),
    "lockstep, w = 1": (0.74, False),
    "pipelined 50 ms, w = 1": (0.72, True),
    DERIVED.name: (0.5, True),
}
"""For the curves that are drawn: at what height their label stands, and whether it runs up along the curve."""


def _colour(case: Case) -> str:
    return ORANGE if case.mode == "lockstep" else BLUE


def _plot_latency(axes: Axes, measured: dict[Case, Measured]) -> None:
    shares = [i / 200 for i in range(201)]
    for case, one in measured.items():
        if case.name in LABELS:
            values = [quantile(one.latency_ns, share) / 1e9 for share in shares]
            style = "solid" if case.witnesses == "majority" else (0, (4, 1.5))
            axes.plot(values, shares, color=_colour(case), linewidth=2, linestyle=style)
    axes.set_title("Floor's submit to receiver's release (five cities, 1 % loss)", color=INK)
    axes.set_xlabel("latency, s")
    axes.set_ylabel("fraction of packet releases")
    axes.set_xlim(0, None)
    axes.set_ylim(0, 1.01)
    axes.grid(axis="both")
    for case, one in measured.items():
        if case.name not in LABELS:
            continue
        height, upright = LABELS[case.name]
        name = case.name if upright else case.name.replace(" 50 ms", ",\n50 ms slots").replace(", ", ",\n")
        axes.text(
            quantile(one.latency_ns, height) / 1e9 + 0.45,
            height,
            name,
            color=_colour(case),
            rotation=90 if upright else 0,
            ha="left",
            va="center",
            linespacing=1.15,
        )


KEY = (
    "grey: the hold time",
    "coloured: maximum of the slots",
    "line: median of the slots",
)


def _plot_hold(axes: Axes, measured: dict[Case, Measured]) -> None:
    cases = list(measured)
    axes.set_title("Hold time (Δ_A), and how much of it was needed", color=INK)
    for row, case in enumerate(cases):
        one = measured[case]
        hold = one.hold_ns / 1e9
        needed = [quantile(one.ready_ns, at) / 1e9 for at in (0.5, 1.0)]
        axes.barh(row, hold, height=0.62, color=GREY)
        axes.barh(row, needed[1], height=0.62, color=_colour(case), alpha=0.45)
        axes.plot([needed[0]] * 2, [row - 0.31, row + 0.31], color=_colour(case), linewidth=2.2)
        late = f"{one.late / max(len(one.latency_ns), 1):.2%} late" if one.late else "0 late"
        axes.text(hold + 0.2, row, f"{hold:.3g} s, {late}", color=RED if one.late else FAINT, va="center", fontsize=9)
    axes.set_yticks(range(len(cases)), [case.name for case in cases], color=INK)
    axes.invert_yaxis()
    widest = max(one.hold_ns for one in measured.values()) / 1e9 * 1.32
    axes.set_xlim(0, widest)
    axes.set_xlabel("time after the token's timestamp, s")
    for row, text in enumerate(KEY, start=len(cases) - len(KEY)):
        box = {"facecolor": "white", "edgecolor": "none", "pad": 1}
        axes.text(0.6 * widest, row, text, va="center", fontsize=9, bbox=box)
    axes.grid(axis="x")
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)

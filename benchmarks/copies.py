"""Model additional copies: share on time against the hold time and against bandwidth, and the plan for a factor of 1.4.

    python -m benchmarks.copies --only "five cities" --slots 100000     one group, with fewer slots

Repair alone, a third token, parities, packets sent twice and a second path, for the far few (the fifth of the receivers
that need most) and for all, at independent losses and in bursts. The groups are the five cities of `levelcast init` and
the 21 AWS regions (LEVELCAST_DATA). `levelcast.timing.hold_copies` is the model.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import ceil
from pathlib import Path

from benchmarks.campaign import conduct
from benchmarks.hold import Work, counted, groups, with_loss
from benchmarks.report import Cell, Figure, Options, Result, Table, tell
from levelcast.extras import ExtraMissing
from levelcast.plots.style import BLUE, FAINT, GREEN, INK, ORANGE, RED, canvas
from levelcast.timing.copies import NOTHING, Copies, cost_of
from levelcast.timing.copy_plan import CopyPlan, plan_copies
from levelcast.timing.hold_counts import HoldCounts
from levelcast.timing.hold_rules import HoldInput, LossKind

SEED = 7_001
SLOTS = {"five cities": 300_000, "AWS": 80_000}
QUICK_SLOTS = 20_000
REDUNDANCY, TARGET_MS = 1.4, 360
SHARE = 1e-4
"""Late share at which hold times are compared: the slots of a row are too few for the target of a derivation."""
ALONE = "repair alone"
SCHEMES: dict[str, Copies] = {
    ALONE: NOTHING,
    "token 3 times": Copies(1),
    "parity for 6": Copies(0, 6),
    "parity for 3": Copies(0, 3),
    "packets twice": Copies(1, 1),
    "second path": Copies(0, 0, second_path=True),
}
FEW = ("parity for 3", "packets twice", "second path")
"""Schemes that are also tried for the far few alone."""
CASES: tuple[tuple[str, float, LossKind], ...] = (
    *((f"{loss:.1%}", loss, LossKind()) for loss in (0.001, 0.01, 0.05, 0.1)),
    *((f"1.0%, bursts of {spell:.0f} ms", 0.01, LossKind(spell)) for spell in (20.0, 100.0)),
)
COLOURS = (INK, FAINT, ORANGE, RED, GREEN, BLUE)


def rows_of(far: Sequence[int], receivers: int) -> dict[str, tuple[Copies, ...]]:
    """Return the copies of all receivers, by row of a table."""
    rows = {name: (copies,) * receivers for name, copies in SCHEMES.items()}
    for name in FEW:
        few = tuple(SCHEMES[name] if member in far else NOTHING for member in range(receivers))
        rows[f"{name}, far few"] = few
    return rows


def run(options: Options) -> Result:
    """Count late slots of every scheme and loss, and plan the copies of both groups."""
    return measure(groups(quick=options.quick), options)


def measure(named: dict[str, HoldInput], options: Options, slots: int = 0, *, plans: bool = True) -> Result:
    """Count late slots of every scheme and loss for these groups, and plan their copies."""
    result = Result("copies")
    cases = CASES[1:2] if options.quick else CASES
    work = [each for name, group in named.items() for each in _work(name, group, cases, slots or _slots(name, options))]
    counts = {one.label: found for one, found in counted(work)}
    for name, group in named.items():
        result.tables.append(_table(name, group, cases, counts))
    for name, group in named.items() if plans else ():
        _add_plan(result, name, group, options)
    result.notes.append(f"hold times: all but {SHARE:g} of the slots of the worst receiver, without clock errors")
    if "AWS" not in named:
        result.notes.append("The AWS regions were left out: a quick run, LEVELCAST_DATA is not set, or not wanted.")
    try:
        result.plots.append(str(plot(named, counts, [case[0] for case in cases], options.plot_dir / "copies.svg")))
    except ExtraMissing as missing:
        result.notes.append(str(missing))
    return result


def _work(name: str, group: HoldInput, cases: Sequence[tuple[str, float, LossKind]], slots: int) -> list[Work]:
    rows = rows_of(far_few(group), group.receivers)
    return [
        Work(label_of(name, case, row), replace(with_loss(group, loss, kind), copies=copies), slots, SEED)
        for case, loss, kind in cases
        for row, copies in rows.items()
    ]


def _slots(name: str, options: Options) -> int:
    return QUICK_SLOTS if options.quick else SLOTS[name]


def label_of(name: str, case: str, row: str) -> str:
    return f"{name}, {case}: {row}"


def far_few(group: HoldInput) -> tuple[int, ...]:
    """Return the fifth of the receivers with the largest mean delay from the others."""
    mean = group.delay_ms.mean(axis=0)
    return tuple(sorted(range(group.receivers), key=lambda member: -mean[member])[: ceil(group.receivers / 5)])


def hold_ms(counts: HoldCounts) -> int:
    """Return the hold time that all but `SHARE` of the slots of the worst receiver keep."""
    return max(counts.quantile_ms(counts.needed[member], SHARE) for member in range(counts.group.receivers))


def late_share(counts: HoldCounts, after_ms: int) -> float:
    """Return the late share of the worst receiver."""
    return float(counts.late(after_ms).max()) / counts.slots


def bandwidth(group: HoldInput, copies: Sequence[Copies]) -> float:
    """Return the bytes sent over those without copies."""
    return cost_of(copies, group.members, group.packets, group.slot_ms, group.beat_ms).total


def _table(
    name: str, group: HoldInput, cases: Sequence[tuple[str, float, LossKind]], counts: dict[str, HoldCounts]
) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for row, copies in rows_of(far_few(group), group.receivers).items():
        found = [counts[label_of(name, case, row)] for case, _, _ in cases]
        cells: list[Cell] = [f"{hold_ms(each)}; {late_share(each, TARGET_MS):.0e}" for each in found]
        requests = found[min(1, len(found) - 1)]
        sent = f"{requests.requests / requests.seconds / group.receivers:.1f}"
        rows.append((row, f"{bandwidth(group, copies):.2f}", *cells, sent))
    columns = ("copies", "bytes", *(case for case, _, _ in cases), "requests/s at 1 %")
    return Table(f"{name}: hold time in ms; late share of the worst receiver at {TARGET_MS} ms", columns, rows)


def _add_plan(result: Result, name: str, group: HoldInput, options: Options) -> None:
    plan = plan_copies(group, REDUNDANCY, partial(_tell_blocks, name), slots=QUICK_SLOTS * 2 if options.quick else None)
    result.figures += [
        Figure(f"{name}: Δ_A with copies", plan.hold.hold_ms, "ms", "without", plan.without.hold_ms),
        Figure(f"{name}: Δ_A with copies, redundancy 1.4", plan.hold.hold_ms, "ms", "target", TARGET_MS),
        Figure(f"{name}: bytes", plan.cost.total, "times those without copies", "limit", REDUNDANCY),
    ]
    result.notes += [f"{name}: {each}" for each in plan.spent]
    result.more[name] = _as_json(plan)


def _as_json(plan: CopyPlan) -> dict[str, object]:
    return {"hold_ms": plan.hold.hold_ms, "without_ms": plan.without.hold_ms, "cost": plan.cost._asdict()}


def _tell_blocks(label: str, done: int, total: int) -> None:
    if done == total:
        tell(f"copies: plan for {label}, {total} blocks derived")


def plot(named: dict[str, HoldInput], counts: dict[str, HoldCounts], cases: Sequence[str], path: Path) -> Path:
    """Draw the late share against the hold time at 1 % loss, and the hold time against bandwidth for each loss."""
    case = cases[min(1, len(cases) - 1)]
    with canvas(path, 5.2 * len(named), 8.4, panels=len(named), heights=(1, 1)) as (figure, panels):
        for axes, name in zip(panels, named, strict=False):
            for colour, scheme in zip(COLOURS, SCHEMES, strict=True):
                found = counts[label_of(name, case, scheme)]
                times = list(range(150, 500, 5))
                shares = [max(late_share(found, ms), 1e-6) for ms in times]
                axes.plot(times, shares, color=colour, linewidth=1.6, label=scheme)
            axes.axvline(TARGET_MS, color=FAINT, linewidth=0.8, linestyle=":")
            axes.set_yscale("log")
            axes.set_title(f"{name}, {case} loss: late share of the worst receiver", color=INK)
            axes.set_xlabel("hold time, ms")
            axes.grid(axis="y")
            axes.legend(frameon=False, fontsize=8.5)
        for axes, (name, group) in zip(panels[len(named) :], named.items(), strict=True):
            rows = rows_of(far_few(group), group.receivers)
            for colour, each in zip(COLOURS, cases, strict=False):
                dots = sorted((bandwidth(group, rows[row]), hold_ms(counts[label_of(name, each, row)])) for row in rows)
                axes.plot(*zip(*dots, strict=True), "o-", color=colour, linewidth=1.0, markersize=4, label=each)
            axes.set_title(f"{name}: hold time for a late share of 10⁻⁴", color=INK)
            axes.set_xlabel("bytes sent over those without copies")
            axes.set_ylabel("ms")
            axes.grid(axis="y")
            axes.legend(frameon=False, fontsize=8.5)
        figure.suptitle(
            "Additional copies of packets shorten the hold time", x=0.01, ha="left", fontsize=12.5, fontweight="bold"
        )
    return path


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it for one group."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.copies", description="Model additional copies.")
    parser.add_argument("--only", metavar="GROUP", help="run this group alone: five cities, or AWS")
    parser.add_argument("--slots", type=int, default=0, help="slots of each row (default: several 100,000)")
    parser.add_argument("--no-plan", action="store_true", help="leave out the plan, which needs most of the time")
    parser.add_argument("--out", type=Path, default=Options().out, help="where the JSON goes (default: %(default)s)")
    parser.add_argument(
        "--plots", type=Path, default=Options().plots, help="where the plot goes (default: %(default)s)"
    )
    chosen = parser.parse_args(arguments)
    options = Options(out=chosen.out, plots=chosen.plots)
    named = groups()
    if chosen.only is not None and chosen.only not in named:
        parser.error(f"--only {chosen.only}: group not found; use one of {', '.join(named)}")
    wanted = named if chosen.only is None else {chosen.only: named[chosen.only]}
    return conduct(lambda: (measure(wanted, options, chosen.slots, plans=not chosen.no_plan), True), options)


if __name__ == "__main__":
    sys.exit(main())

"""Model the hold time of wide-area groups: the effect of each rule, late slots with fresh seeds, unneeded requests.

    python -m benchmarks.hold --bulk     4 million slots for each kind of loss, with seeds that no derivation used

The groups are the five cities of `levelcast init` and the 21 AWS regions (LEVELCAST_DATA), with 1 % loss, 6 ms of
jitter and 6 packets per slot unless a row states otherwise. `levelcast.timing.hold_model` is the model.
"""

from __future__ import annotations

import argparse
import multiprocessing
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.pool import AsyncResult, Pool
from pathlib import Path

import numpy as np

from benchmarks import aws
from benchmarks.campaign import conduct
from benchmarks.report import Cell, Figure, Options, Result, Table, tell
from levelcast.extras import ExtraMissing
from levelcast.network import five_cities, parse_network
from levelcast.network.hold_input import hold_input
from levelcast.plots.style import BLUE, FAINT, GREY, INK, ORANGE, canvas
from levelcast.timing.hold import DerivedHold, count_slots, derive_hold, worst_late_share
from levelcast.timing.hold_counts import HoldCounts
from levelcast.timing.hold_rules import TODAY, HoldInput, HoldRules, LossKind

JOBS = 2
TABLE_SEED, BULK_SEED = 1_001, 5_000_001
TABLE_SLOTS = {"five cities": 1_000_000, "AWS": 500_000}
QUICK_SLOTS, QUICK_TARGET = 50_000, 1e-4
BULK_SLOTS, BULK_PART = 4_000_000, 500_000
QUANTILES = (0.9, 0.99, 0.999, 0.9999)
DERIVATION_LIMIT_S = {"five cities": 3.0, "AWS": 30.0}

STEPS: tuple[tuple[str, dict[str, object]], ...] = (
    ("beats", {"beats": True}),
    ("missing by the pair's own delay", {"pair_lateness": True}),
    ("nearest first, own interval", {"nearest": True}),
    ("two at once", {"at_once": 2}),
    ("three at once", {"at_once": 3}),
    ("gaps requested immediately", {"gaps": True}),
    ("token again with the next beat", {"token_twice": True}),
    ("one release time for all", {"common_time": True}),
)
"""The changes of the rules, in the order in which they are added."""
BEATS_ONLY = ("token again with the next beat", "one release time for all")
"""Changes that are changes of the beats."""
ALONE = "only "
TODAY_NAME = "rules without short hold times"

CASES: tuple[tuple[str, float, LossKind], ...] = (
    *((f"{loss:.1%} independent", loss, LossKind()) for loss in (0.001, 0.01, 0.05, 0.1)),
    *(
        (f"1 %, bursts of {spell:.0f} ms {where}", 0.01, LossKind(spell, share))
        for where, share in (("on paths", 0.0), ("half at own lines", 0.5), ("all at own lines", 1.0))
        for spell in (20.0, 100.0)
    ),
)
"""Loss and its kind, in a bulk run."""


def groups(*, quick: bool = False) -> dict[str, HoldInput]:
    """Return the groups by name; the regions only with their data."""
    found = {"five cities": hold_input(parse_network(five_cities()))}
    table = aws.table()
    if table is not None and not quick:
        found["AWS"] = aws.hold_input(table)
    if quick:
        return {name: replace(group, late_target=QUICK_TARGET) for name, group in found.items()}
    return found


def with_loss(group: HoldInput, loss: float, kind: LossKind) -> HoldInput:
    """Return the group with another loss on every path that loses anything."""
    lossy = [np.where(matrix > 0.0, loss, 0.0) for matrix in (group.loss, group.source_loss)]
    return replace(group, loss=lossy[0], source_loss=lossy[1], loss_kind=kind)


@dataclass(frozen=True, slots=True)
class Work:
    """A number of slots of one group."""

    label: str
    group: HoldInput
    slots: int
    seed: int


def count(work: Work) -> HoldCounts:
    """Simulate it."""
    return count_slots(work.group, work.slots, work.seed)


def workers() -> Pool:
    """Return a pool whose processes end when they are told to: they do not inherit the handler of `conduct`."""
    return multiprocessing.get_context("fork").Pool(JOBS, signal.signal, (signal.SIGTERM, signal.SIG_DFL))


def counted(work: Sequence[Work]) -> Iterator[tuple[Work, HoldCounts]]:
    """Simulate all of it in two processes, and report progress."""
    begun = time.monotonic()
    with workers() as pool:
        for number, (one, counts) in enumerate(zip(work, pool.imap(count, work), strict=True), 1):
            tell(f"hold: {number} of {len(work)}, {one.label}, {time.monotonic() - begun:.0f} s")
            yield one, counts


# -- the rules, one after the other


def rule_rows() -> dict[str, HoldRules]:
    """Return the rows of the table: cumulative, then each change alone."""
    rows, rules = {TODAY_NAME: TODAY}, TODAY
    for name, change in STEPS:
        rules = replace(rules, **change)  # type: ignore[arg-type]
        rows[f"+ {name}"] = rules
    for name, change in STEPS:
        beats = name in BEATS_ONLY
        rules = replace(TODAY, beats=beats, **change) if beats else replace(TODAY, **change)  # type: ignore[arg-type]
        rows[f"{ALONE}{'beats and ' if beats else ''}{name}"] = rules
    return rows


def run(options: Options) -> Result:
    """Compute the table of the rules, the derived hold times and the table of quantiles."""
    named, result = groups(quick=options.quick), Result("hold")
    work = [
        Work(f"{name}: {row}", replace(group, rules=rules), _slots(name, options), TABLE_SEED)
        for name, group in named.items()
        for row, rules in rule_rows().items()
    ]
    needs = {one.label: counts for one, counts in counted(work)}
    result.tables.append(_rule_table(named, needs))
    for name, group in named.items():
        _add_derivation(result, name, group, options)
    result.tables.append(_quantile_table(named, options))
    result.notes.append("1e-5: the hold time that all but one in 10⁵ slots keep, without clock error and allowances")
    if "AWS" not in named:
        result.notes.append("The AWS regions were left out: a quick run, or LEVELCAST_DATA is not set.")
    try:
        result.plots.append(str(plot(needs, list(named), options.plot_dir / "hold.svg")))
    except ExtraMissing as missing:
        result.notes.append(str(missing))
    return result


def _slots(name: str, options: Options) -> int:
    return QUICK_SLOTS if options.quick else TABLE_SLOTS[name]


def _overall_ms(counts: HoldCounts, share: float) -> int:
    return counts.quantile_ms(counts.needed.sum(axis=0), share)


def _worst_ms(counts: HoldCounts) -> int:
    return max(counts.quantile_ms(counts.needed[member], 1e-5) for member in range(counts.group.members))


def _requests(counts: HoldCounts, number: int) -> float:
    return number / counts.seconds / counts.group.members


def _rule_table(named: dict[str, HoldInput], needs: dict[str, HoldCounts]) -> Table:
    rows: list[tuple[Cell, ...]] = [("rule 6", *(cell for group in named.values() for cell in _rule_6_cells(group)))]
    for row in rule_rows():
        cells: list[Cell] = []
        for name in named:
            counts = needs[f"{name}: {row}"]
            cells += [_overall_ms(counts, share) for share in (0.5, 0.01, 1e-5)]
            cells += [_worst_ms(counts), f"{_requests(counts, counts.requests):.1f}"]
        rows.append((row, *cells))
    columns = tuple(f"{name} {head}" for name in named for head in ("p50", "p99", "1e-5", "worst 1e-5", "requests/s"))
    return Table("timestamp until held and witnessed, ms; requests of a member", ("rules", *columns), rows)


def _rule_6_cells(group: HoldInput) -> tuple[Cell, ...]:
    return "", "", round(group.rule_6_ms), round(group.rule_6_ms), ""


def _derive(group: HoldInput, options: Options, label: str) -> tuple[DerivedHold, float]:
    begun = time.process_time()
    derived = derive_hold(group, partial(_tell_blocks, label), slots=QUICK_SLOTS if options.quick else None)
    return derived, time.process_time() - begun


def _tell_blocks(label: str, done: int, total: int) -> None:
    if done == total or done % 20 == 0:
        tell(f"hold: derivation for {label}, block {done} of {total}")


def _add_derivation(result: Result, name: str, group: HoldInput, options: Options) -> None:
    derived, seconds = _derive(group, options, name)
    result.figures += [
        Figure(f"{name}: Δ_A derived", derived.hold_ms, "ms", "rule 6", group.rule_6_ms),
        Figure(f"{name}: CPU time of the derivation", seconds, "s", "limit", DERIVATION_LIMIT_S[name]),
    ]
    result.notes += [f"{name}: {receiver}" for receiver in derived.receivers[:3]]


def _quantile_table(named: dict[str, HoldInput], options: Options) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for name, group in named.items():
        for share in QUANTILES:
            derived, _ = _derive(replace(group, quantile=share, heavy_tail=True), options, f"{name}, quantile {share}")
            requests = (f"{value:.2f}" for value in (derived.requests_per_s, derived.unneeded_per_s))
            rows.append((f"{name}, {share}", *requests, derived.hold_ms))
    columns = ("group, quantile of q", "requests/s", "unneeded/s", "Δ_A ms")
    return Table("quantile of the delay at which a token is missed; exponential jitter, .999 at 6 ms", columns, rows)


# -- bulk


def bulk(options: Options, only: str = "") -> Result:
    """Derive Δ_A for each kind of loss, and count late slots with fresh seeds; `only`: cases with this text."""
    named, result = groups(quick=options.quick), Result("hold-bulk")
    slots, part = (QUICK_SLOTS, QUICK_SLOTS) if options.quick else (BULK_SLOTS, BULK_PART)
    rows: list[tuple[Cell, ...]] = []
    above, begun = 0, time.monotonic()
    cases = [
        (f"{name}, {label}", with_loss(group, loss, kind))
        for name, group in named.items()
        for label, loss, kind in CASES
        if only in f"{name}, {label}"
    ]
    with workers() as pool:
        started = [(label, case, *_start(pool, label, case, slots, part, options)) for label, case in cases]
        for label, case, derivation, parts in started:
            hold, seconds = derivation.get()
            total = HoldCounts(case)
            for counted_part in parts:
                total.merge(counted_part.get())
                tell(f"hold: {label}, {total.slots:,} of {slots:,} slots, {time.monotonic() - begun:.0f} s")
            member, share = worst_late_share(total, hold.hold_ms - hold.added_ms)
            above += share.low > case.late_target
            rows.append((label, hold.hold_ms, f"{seconds:.1f}", total.slots, case.name(member), share.late, str(share)))
            tell(f"hold: {len(rows)} of {len(cases)} cases: {', '.join(map(str, rows[-1]))}")
    columns = ("group, loss", "Δ_A ms", "derived in s", "slots", "worst receiver", "late", "share (95 % interval)")
    result.tables.append(Table("late slots of the worst receiver, with fresh seeds", columns, rows))
    result.figures.append(Figure("cases with a late share above 1e-5", above, "cases", "all cases", len(rows)))
    result.more["above"] = above
    return result


def _start(
    pool: Pool, label: str, case: HoldInput, slots: int, part: int, options: Options
) -> tuple[AsyncResult[tuple[DerivedHold, float]], list[AsyncResult[HoldCounts]]]:
    """Start the derivation and the parts of a case in the pool, which runs them in the order in which they start."""
    derivation = pool.apply_async(_derive, (case, options, label))
    work = [Work(label, case, part, BULK_SEED + at) for at in range(-(-slots // part))]
    return derivation, [pool.apply_async(count, (one,)) for one in work]


# -- the plot


def plot(needs: dict[str, HoldCounts], names: Sequence[str], path: Path) -> Path:
    """Draw the hold time after each change, and with each change alone: of all receivers and of the worst one."""
    rows = list(rule_rows())
    colours = [ORANGE if row.startswith(ALONE) else BLUE for row in rows]
    places = [-place - (0.6 if colour == ORANGE else 0.0) for place, colour in enumerate(colours)]
    with canvas(path, 10.5, 5.6, panels=len(names)) as (figure, panels):
        for axes, name in zip(panels, names, strict=True):
            values = [_overall_ms(needs[f"{name}: {row}"], 1e-5) for row in rows]
            worst = [_worst_ms(needs[f"{name}: {row}"]) for row in rows]
            axes.barh(places, worst, color=GREY, height=0.7)
            axes.barh(places, values, color=colours, height=0.45)
            for place, value, most in zip(places, values, worst, strict=True):
                axes.text(
                    most + 0.01 * max(worst), place, f"{value:,} / {most:,}", va="center", color=FAINT, fontsize=8.5
                )
            axes.set_yticks(places, rows if axes is panels[0] else [""] * len(rows), color=INK)
            axes.tick_params(axis="y", length=0)
            axes.set_ylim(places[-1] - 0.6, 0.6)
            axes.set_xlim(0, max(worst) * 1.25)
            axes.set_title(f"{name}, 1 % loss", color=INK)
        figure.supxlabel(
            "ms that all but 1 in 10⁵ slots keep: all receivers (coloured) / the worst one (grey)", fontsize=10
        )
        title = "Hold time needed: as the rules are added (blue), and with one change alone (orange)"
        figure.suptitle(title, x=0.01, ha="left", fontsize=12.5, fontweight="bold")
    return path


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if the late share of every case may be within the target."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hold", description="Model the hold time.")
    parser.add_argument("--bulk", action="store_true", help="count late slots of every kind of loss with fresh seeds")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="with --bulk: run the cases whose name has this text"
    )
    parser.add_argument("--quick", action="store_true", help="run for a few seconds, as a test")
    parser.add_argument("--out", type=Path, default=Options().out, help="where the JSON goes (default: %(default)s)")
    chosen = parser.parse_args(arguments)
    options = Options(quick=chosen.quick, out=chosen.out)

    def campaign() -> tuple[Result, bool]:
        result = bulk(options, chosen.only) if chosen.bulk else run(options)
        return result, not result.more.get("above")

    return conduct(campaign, options)


if __name__ == "__main__":
    sys.exit(main())

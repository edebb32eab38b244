"""The arithmetic of MS §2.1, §4.1 and §5.2, measured: passes to find a failure, requests per loss, event against clock.

Each part stands in a module of its own: `paper_layers`, `paper_nacks`, `paper_tokens`. Everything is virtual time, so a
run gives the same figures on any machine.
"""

from __future__ import annotations

import multiprocessing
from multiprocessing.pool import Pool
from pathlib import Path

from benchmarks import paper_layers, paper_nacks, paper_tokens
from benchmarks.paper_nacks import Bulk, Counted
from benchmarks.report import Options, Result, tell
from levelcast.extras import ExtraMissing
from levelcast.plots.style import BLUE, FAINT, GREY, INK, canvas
from levelcast.sim.scenarios.steady import MS

JOBS = 2
NACK_SEEDS = 2
NACK_NS = 25_000 * MS


def run(options: Options) -> Result:
    """All three parts."""
    result = Result("paper")
    with multiprocessing.get_context("fork").Pool(JOBS) as pool:
        _layers(result, options)
        counted, bulk = _nacks(result, options, pool)
        tokens = _tokens(result, options, pool)
    try:
        result.plots.append(str(plot_nacks(counted, bulk, options.plot_dir / "paper-nacks.svg")))
        result.plots.append(str(paper_tokens.plot(tokens, options.plot_dir / "paper-tokens.svg")))
    except ExtraMissing as missing:
        result.notes.append(str(missing))
    return result


def _layers(result: Result, options: Options) -> None:
    tell("paper: token passes to find a failure")
    deaths = 100 if options.quick else paper_layers.DEATHS
    sizes = paper_layers.SIZES[: 1 if options.quick else None]
    found = [
        paper_layers.by_schedule(receivers, layers, deaths) for receivers in sizes for layers in paper_layers.LAYERS
    ]
    detected = paper_layers.in_simulator(quick=options.quick)
    result.figures += paper_layers.figures(found)
    result.tables += paper_layers.tables(found, detected)


def _nacks(result: Result, options: Options, pool: Pool) -> tuple[list[Counted], list[Bulk]]:
    members, branches = paper_nacks.MEMBERS, paper_nacks.BRANCHES
    seeds, lasting_ns = NACK_SEEDS, NACK_NS
    if options.quick:
        members, branches = paper_nacks.QUICK_MEMBERS, paper_nacks.QUICK_BRANCHES
        seeds, lasting_ns = 1, 4_000 * MS
    cases = paper_nacks.cases(members, branches)
    tell(f"paper: requests per loss, {len(cases)} kinds of sets")
    work = [(case, members, branches, seed, lasting_ns) for case in cases for seed in range(1, seeds + 1)]
    counted = {case.name: Counted(case) for case in cases}
    for (case, *_), one in zip(work, pool.imap(paper_nacks.in_simulator, work), strict=True):
        paper_nacks.add(counted[case.name], one)
    large = [
        (case, receivers, below, losses)
        for receivers, below, losses in paper_nacks.bulk_sizes(quick=options.quick)
        for case in paper_nacks.cases(receivers, below)
    ]
    bulk = pool.starmap(paper_nacks.in_bulk, large)
    found = list(counted.values())
    result.figures += paper_nacks.figures(found)
    result.tables += paper_nacks.tables(found, bulk, members, branches)
    sets = {one.case.name: one.case.sets.sizes for one in found if one.case.sets is not None}
    sizes = [f"{name}: {', '.join(map(str, sized))}" for name, sized in sets.items() if sized]
    result.notes.append(f"sizes of the tuned sets of {members}: {'; '.join(sizes)}")
    return found, bulk


def _tokens(result: Result, options: Options, pool: Pool) -> paper_tokens.Results:
    work = paper_tokens.all_work(quick=options.quick)
    tell(f"paper: event-driven and timed tokens, {len(work)} runs")
    measured = pool.imap(paper_tokens.measure, work)
    tokens = {(variant.name, loss, load): one for (variant, loss, load, _), one in zip(work, measured, strict=True)}
    count = paper_tokens.QUICK_DEATHS if options.quick else paper_tokens.DEATHS
    dying = [(variant, load, count) for load in paper_tokens.DEATH_LOADS for variant in paper_tokens.VARIANTS]
    deaths = {
        (variant.name, load): times
        for (variant, load, _), times in zip(dying, pool.imap(paper_tokens.deaths, dying), strict=True)
    }
    result.figures += paper_tokens.figures(tokens, deaths)
    result.tables += paper_tokens.tables(tokens, deaths)
    faults = sum(one.faults for one in tokens.values())
    result.notes.append(f"faults reported without a failure: {faults}")
    return tokens


def plot_nacks(counted: list[Counted], bulk: list[Bulk], path: Path) -> Path:
    """Left: requests per loss in the simulator, with the hold time. Right: the same for more receivers, in arrays."""
    plain = counted[0]
    best = min(counted, key=lambda one: one.per_loss)
    with canvas(path, 11.5, 4.4, panels=2) as (figure, (left, right)):
        for row, one in enumerate(counted):
            left.barh(row, one.per_loss, height=0.62, color=GREY if one.case.sets is None else BLUE)
            more = (one.hold_ns - plain.hold_ns) / 1e6
            text = f"{one.per_loss:.2f}" + (
                f",  hold time + {more:.0f} ms" if more else f",  hold time {one.hold_ns / 1e6:.0f} ms"
            )
            left.text(one.per_loss + 0.08, row, text, color=FAINT, va="center", fontsize=9)
        left.set_yticks(range(len(counted)), [one.case.name for one in counted], color=INK)
        left.invert_yaxis()
        left.set_xlim(0, max(one.per_loss for one in counted) * 1.45)
        left.set_xlabel("requests per lost token or packet")
        left.set_title(
            f"{plain.missed / max(plain.losses, 1):.1f} receivers miss what is lost; in the simulator", color=INK
        )
        left.grid(axis="x")
        left.tick_params(axis="y", length=0)
        sizes = sorted({one.members for one in bulk})
        drawn = {one.case.name: one for one in bulk if one.case.count in (1, 4)}
        for name, last in drawn.items():
            values = [one.requests for one in bulk if one.case.name == name]
            colour = FAINT if last.case.sets is None else BLUE
            right.plot(sizes, values, color=colour, linewidth=1.8, marker="o", markersize=3.5)
            right.text(sizes[-1] * 1.12, values[-1], name, color=colour, va="center", fontsize=9)
        right.set_xscale("log")
        right.set_yscale("log")
        right.set_xlim(None, sizes[-1] * 5)
        right.set_xlabel("receivers")
        right.set_ylabel("requests per loss")
        right.set_title("The same in arrays", color=INK)
        right.grid(axis="both")
        figure.suptitle(
            f"Sets, {best.case.name}: {best.per_loss:.1f} requests per loss instead of {plain.per_loss:.1f}",
            x=0.01, ha="left", fontsize=12.5, fontweight="bold",
        )  # fmt: skip
    return path

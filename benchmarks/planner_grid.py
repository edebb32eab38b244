"""TH figures 6 and 7: the cost against streams and groups, for the paper's algorithms and ours, plotted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarks.planner import QUICK, flooding
from benchmarks.report import Cell, Figure, Options, Result, Table, tell
from levelcast.extras import ExtraMissing
from levelcast.planner.costs import received_by_user, relative_cost
from levelcast.planner.generator import Model, generate
from levelcast.planner.make import Algorithm, make_plan
from levelcast.planner.model import Instance, Plan, Weights
from levelcast.planner.plots import plot_excess, plot_interest
from levelcast.plots.style import BLUE, FAINT, GREY, INK, ORANGE, RED, canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GROUPS, STREAMS = (10, 20, 50, 100), (50, 100, 200, 500, 1000, 2000)
WEIGHTS = (Weights(0.5, 1.5), Weights(1.0, 1.0), Weights(1.5, 0.5))
COLORS = (RED, ORANGE, BLUE, INK)
BELOW_IT = 0.97
SEED = 0

Grid = dict[tuple[int, int], float]


def run(options: Options) -> Result:
    result = Result("planner-grid")
    groups: tuple[int, ...] = (3, 6) if options.quick else GROUPS
    streams: tuple[int, ...] = (6, 30) if options.quick else STREAMS
    instance = generate(QUICK if options.quick else Model(), SEED)
    found: dict[Algorithm, Grid] = {}
    for algorithm in Algorithm:
        found[algorithm] = cells(instance, groups, streams, algorithm, Weights())
        tell(f"planner-grid: {algorithm}")
    by_weights = [cells(instance, groups, streams, Algorithm.GF, weights) for weights in WEIGHTS]
    for algorithm in Algorithm:
        result.tables.append(_table(f"C_x / C_f, {algorithm}", found[algorithm], groups, streams))
    for weights, grid in zip(WEIGHTS, by_weights, strict=True):
        title = f"C_x / C_f, gf, α = {weights.alpha}, β = {weights.beta} (figure 6)"
        result.tables.append(_table(title, grid, groups, streams))
    ratio = {at: found[Algorithm.LEVELCAST][at] / found[Algorithm.IT][at] for at in found[Algorithm.IT]}
    result.tables.append(_table("levelcast with effort fast, as a fraction of IT", ratio, groups, streams))
    result.figures.append(Figure("levelcast in its worst cell", max(ratio.values()), "of IT", "limit", BELOW_IT))
    try:
        result.plots += _plots(options, instance, groups, streams, found, by_weights)
    except ExtraMissing as missing:
        result.notes.append(str(missing))
    return result


def cells(
    instance: Instance, groups: Sequence[int], streams: Sequence[int], algorithm: Algorithm, weights: Weights
) -> Grid:
    """The cost in every cell that has at least one stream to a group."""
    return {
        (m, n): relative_cost(
            instance, make_plan(instance, n, m, algorithm=algorithm, weights=weights, seed=SEED), weights
        )
        for m in groups
        for n in streams
        if n >= m
    }


def _table(title: str, grid: Grid, groups: Sequence[int], streams: Sequence[int]) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (f"{n} streams", *(f"{grid[m, n]:.4f}" if (m, n) in grid else "" for m in groups)) for n in streams
    ]
    return Table(title, ("", *(f"{m} groups" for m in groups)), rows)


def _plots(
    options: Options,
    instance: Instance,
    groups: Sequence[int],
    streams: Sequence[int],
    found: dict[Algorithm, Grid],
    by_weights: list[Grid],
) -> list[str]:
    folder = options.plot_dir
    paths = [folder / f"planner-{name}.svg" for name in ("figure6", "figure7", "interest", "excess")]
    with canvas(paths[0], 11, 4, panels=3) as (_, axes):
        top = max(max(grid.values()) for grid in by_weights) * 1.05
        for panel, weights, grid in zip(axes, WEIGHTS, by_weights, strict=True):
            for m, color in zip(groups, COLORS, strict=False):
                line(panel, streams, [grid.get((m, n)) for n in streams], f"{m} groups", color)
                if (m, m) in grid:
                    panel.plot([m], [grid[m, m]], "o", color=color)  # as many streams as groups: no hierarchy
            frame(panel, streams, f"GF, α = {weights.alpha}, β = {weights.beta}", top)
    with canvas(paths[1], 11, 4, panels=len(groups)) as (_, axes):
        top = max(max(grid.values()) for grid in found.values()) * 1.05
        for panel, m in zip(axes, groups, strict=True):
            for algorithm, color in zip(Algorithm, (GREY, FAINT, INK, ORANGE, BLUE), strict=True):
                line(panel, streams, [found[algorithm].get((m, n)) for n in streams], str(algorithm), color)
            frame(panel, streams, f"{m} groups", top)
    plot_interest(instance, paths[2])
    plot_excess(instance, _plan_for_excess(instance, groups, streams), paths[3])
    return [str(path) for path in paths]


def _plan_for_excess(instance: Instance, groups: Sequence[int], streams: Sequence[int]) -> Plan:
    """50 groups and 1000 streams, or what is nearest."""
    plan = make_plan(instance, streams[-2], groups[-2], seed=SEED)
    asked, _, received = received_by_user(instance, plan)
    everything = received_by_user(instance, flooding(instance))[2]
    assert ((asked <= received + 1e-9) & (received <= everything + 1e-9)).all()
    return plan


def line(panel: Axes, streams: Sequence[int], values: Sequence[float | None], name: str, color: str) -> None:
    """A line with its name at its end."""
    points = [(n, value) for n, value in zip(streams, values, strict=True) if value is not None]
    panel.plot(*zip(*points, strict=True), color=color, linewidth=1.6, marker=".", label=name)


def frame(panel: Axes, streams: Sequence[int], title: str, top: float) -> None:
    panel.set_xscale("log")
    panel.set_xticks(list(streams), [f"{n // 1000}k" if n % 1000 == 0 else f"{n}" for n in streams])
    panel.minorticks_off()
    panel.set_ylim(0, top)
    panel.set_xlabel("streams")
    panel.set_ylabel("C_x / C_f")
    panel.set_title(title)
    panel.grid(axis="y")
    panel.legend(frameon=False, fontsize=8)

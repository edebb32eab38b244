"""How much of the liveness bound random histories need.

The promise: when faults stop, everything sent is released everywhere within a bound that the configuration implies
(`levelcast.timing.rules.liveness_terms`). Every history of the scenario `ring` measures the time that it took; this
sets it in relation to the history's own bound. The compared figure is 1: the bound itself.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.report import Figure, Options, Result, Stopwatch, Table, tell
from levelcast.extras import ExtraMissing
from levelcast.plots.style import BLUE, INK, ORANGE, RED, canvas
from levelcast.sim.run import replay_command, run_seeds
from levelcast.sim.scenarios.ring import Outcome
from levelcast.units import quantile

HISTORIES, QUICK_HISTORIES = 2_000, 100
FIRST_SEED = 1
JOBS = 2
MODES = ("pipelined", "lockstep")
QUANTILES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0))


def run(options: Options) -> Result:
    """Run the histories and set each one's recovery beside its bound."""
    count = QUICK_HISTORIES if options.quick else HISTORIES
    tell(f"liveness: {count:,} histories")
    seeds = range(FIRST_SEED, FIRST_SEED + count)
    with Stopwatch() as watch:
        outcomes = list(run_seeds("ring", seeds, jobs=JOBS))
    result = Result("liveness")
    sound = [outcome for outcome in outcomes if outcome.broken is None]
    shares = sorted(share(outcome) for outcome in sound)
    for name, at in QUANTILES:
        result.figures.append(
            Figure(f"time to release everything after the faults, {name}", quantile(shares, at), "of the bound",
                   "the bound", 1.0)
        )  # fmt: skip
    result.figures.append(
        Figure("histories with a violated guarantee", len(outcomes) - len(sound), "histories", "all", len(outcomes))
    )
    result.tables.append(_by_mode(sound))
    result.notes.append(
        f"{count:,} histories (seeds {seeds[0]}..{seeds[-1]}) on {JOBS} processes: {count / watch.cpu_s:.2f} histories "
        f"per second of CPU, {sum(outcome.crashes for outcome in outcomes):,} crashes, "
        f"{sum(outcome.reformations for outcome in outcomes):,} rings formed"
    )
    if sound:
        slowest = max(sound, key=share)
        result.notes.append(f"the slowest, {share(slowest):.3f} of its bound: {replay_command('ring', slowest.seed)}")
    for outcome in outcomes:
        if outcome.broken is not None:
            result.notes.append(f"BROKEN: {replay_command('ring', outcome.seed)}  ({outcome.broken})")
    try:
        result.plots.append(str(plot(sound, options.plot_dir / "liveness.svg")))
    except ExtraMissing as missing:
        result.notes.append(str(missing))
    return result


def share(outcome: Outcome) -> float:
    """The part of its bound that a history needed."""
    return outcome.liveness_ns / outcome.bound_ns


def _by_mode(outcomes: list[Outcome]) -> Table:
    rows: list[tuple[str | int | float, ...]] = []
    for mode in MODES:
        ours = [outcome for outcome in outcomes if outcome.mode == mode]
        shares = sorted(share(outcome) for outcome in ours)
        times = sorted(outcome.liveness_ns / 1e9 for outcome in ours)
        bounds = sorted(outcome.bound_ns / 1e9 for outcome in ours)
        quantiles = [quantile(shares, at) for _, at in QUANTILES]
        seconds = [quantile(times, 0.5), quantile(times, 1.0), quantile(bounds, 0.5)]
        rows.append((mode, len(ours), *quantiles, *seconds))
    names = tuple(name for name, _ in QUANTILES)
    return Table(
        "fraction of the bound, and seconds of virtual time",
        ("mode", "histories", *names, "p50 s", "max s", "bound p50 s"),
        rows,
    )


def plot(outcomes: list[Outcome], path: Path) -> Path:
    """The distribution of the share, by mode, with the quantiles of all and the bound on one axis."""
    shares = sorted(share(outcome) for outcome in outcomes)
    worst = shares[-1] if shares else 0.0
    step = 0.01
    bins = [[0] * 101 for _ in MODES]
    for outcome in outcomes:
        bins[MODES.index(outcome.mode)][min(int(share(outcome) / step), 100)] += 1
    both = [a + b for a, b in zip(*bins, strict=True)]
    edges = [i * step for i in range(len(both) + 1)]
    top = max(both) * 1.18 or 1.0
    with canvas(path, 8.6, 3.5) as (figure, (axes,)):
        axes.stairs(both, edges, fill=True, color=ORANGE)
        axes.stairs(bins[0], edges, fill=True, color=BLUE)
        for rank, (name, at) in enumerate(QUANTILES):
            value, height = quantile(shares, at), top * (0.97 - 0.11 * rank)
            axes.plot([value, value], [0, height], color=INK, linewidth=0.9, linestyle=(0, (3, 2)))
            axes.text(value + 0.008, height, f"{name} {value:.2f}", color=INK, va="top")
        axes.axvline(1.0, color=RED, linewidth=2.5)
        axes.text(0.99, top * 0.97, "the bound", color=RED, ha="right", va="top")
        for rank, (mode, colour) in enumerate(zip(MODES, (BLUE, ORANGE), strict=True)):
            count = sum(bins[rank])
            axes.text(0.40, top * (0.48 - 0.11 * rank), f"{mode}, {count:,} histories", color=colour, va="top")
        axes.set_xlim(0, 1.005)
        axes.set_ylim(0, top)
        axes.set_xlabel("time from the end of the faults until everything is released, as a fraction of the bound")
        axes.set_ylabel("histories per hundredth")
        figure.suptitle(
            f"The slowest recovery in {len(shares):,} fault histories needed {worst:.0%} of its bound",
            x=0.01, ha="left", fontsize=12, fontweight="bold",
        )  # fmt: skip
    return path

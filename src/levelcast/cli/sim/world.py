"""`levelcast world`: simulate many receivers and a million subscribers in bulk, over measured or synthetic delays."""

from __future__ import annotations

import resource
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console

from levelcast.cli.errors import duration_ns
from levelcast.cli.options import AsJson, option
from levelcast.cli.output import counting, print_json, table
from levelcast.network.regions.delays import Delays, Matrix, load_delays, load_weights
from levelcast.sim.bulk.cities import Globe, Size, build_globe, made_up_cities
from levelcast.sim.bulk.plots import plot_world
from levelcast.sim.bulk.run import PARTS, Conditions, WorldRun, run_world

ROWS: tuple[tuple[str, str, str], ...] = (
    ("late δ_N", "late_ms", "{:,.0f} ms"),
    ("attempts k_r", "attempts", "{:.0f}"),
    ("hold time Δ_A", "hold_ms", "{:,.0f} ms"),
    ("releases", "releases", "{:,.0f}"),
    ("of them on time", "on_time", "{:.4%}"),
    ("held by a receiver, p50", "held_p50_ms", "{:,.0f} ms"),
    ("held by a receiver, last", "held_max_ms", "{:,.0f} ms"),
    ("held and witnessed, p50", "ready_p50_ms", "{:,.0f} ms"),
    ("held and witnessed, last", "ready_max_ms", "{:,.0f} ms"),
    ("release times, first to last receiver", "release_spread_ms", "{:.1f} ms"),
    ("NACKs per packet, busiest primary", "primary_nacks_busiest", "{:.2f}"),
    ("simultaneous NACKs at one primary, maximum", "primary_nacks_peak", "{:,.0f}"),
    ("NACKs per packet, mean primary", "primary_nacks_mean", "{:.2f}"),
    ("NACKs per packet, total of the core", "core_nacks_per_packet", "{:,.0f}"),
    ("copies of replies per packet and receiver", "answer_copies_per_packet", "{:,.1f}"),
    ("NACKs per packet, busiest retransmit server", "edge_nacks_busiest", "{:.3f}"),
    ("NACKs per packet, mean retransmit server", "edge_nacks_mean", "{:.4f}"),
    ("at a subscriber after the release time, p50", "customer_p50_ms", "{:.1f} ms"),
    ("at a subscriber after the release time, p99", "customer_p99_ms", "{:.1f} ms"),
    ("at a subscriber after the release time, p99.9", "customer_p99.9_ms", "{:.1f} ms"),
    ("at a subscriber after the release time, last", "customer_max_ms", "{:,.0f} ms"),
    ("spread in the world, first to last percent", "world_spread_p1_p99_ms", "{:.1f} ms"),
    ("spread in a region, first to last percent, median", "region_spread_p1_p99_median_ms", "{:.1f} ms"),
    ("spread in a region, first to last percent, worst", "region_spread_p1_p99_worst_ms", "{:.1f} ms"),
    ("bound of the subscribers after the release time", "together_ms", "{:.0f} ms"),
    ("with it: delivered after the release time, p50", "together_p50_ms", "{:.1f} ms"),
    ("with it: spread in the world, first to last percent", "together_spread_p1_p99_ms", "{:.1f} ms"),
    ("with it: packets that miss the bound", "together_missed", "{:.3%}"),
    ("with it: the same in the city that misses it most", "together_missed_worst_city", "{:.2%}"),
    ("by the first line", "by_first_line", "{:.3%}"),
    ("by the second line", "by_second_line", "{:.3%}"),
    ("by a retransmission", "by_repair", "{:.4%}"),
    ("latency from source to subscriber, p50", "latency_p50_ms", "{:,.0f} ms"),
    ("latency from source to subscriber, p99", "latency_p99_ms", "{:,.0f} ms"),
)


def world(
    delays: Annotated[Path | None, option("Round trips between cities.", metavar="FILE.csv", unset="synthetic")] = None,
    weights: Annotated[Path | None, option("Relative number of subscribers in each city.", metavar="FILE.csv")] = None,
    cities: Annotated[int, option("Without --delays: number of synthetic cities.", min=10, max=2_000)] = 240,
    primaries: Annotated[int, option("Number of primary receivers, which form the ring.", min=3)] = 100,
    receivers: Annotated[int, option("Number of receivers in all layers, in groups of equal size.", min=6)] = 10_000,
    layers: Annotated[int, option("Number of layers of receivers.", min=2, max=3)] = 2,
    customers: Annotated[int, option("Number of subscribers, each on two lines.", min=10)] = 1_000_000,
    regions: Annotated[int, option("Number of regions, of two sites each.", min=1)] = 60,
    reach: Annotated[str, option("Maximum delay between two receivers.", metavar="TIME")] = "250ms",
    slot: Annotated[str, option("Slot length τ.", metavar="TIME")] = "50ms",
    loss: Annotated[
        list[float] | None, option("Loss of every copy (repeatable).", metavar="RATIO", unset="0.01 and 0.1")
    ] = None,
    branch_loss: Annotated[
        float, option("Ratio of multicasts that are lost for all of a city (MS §3.9).", min=0, max=0.5)
    ] = 0.0,
    slots: Annotated[int, option("Number of slots measured in the core.", min=2)] = 1_000,
    follow: Annotated[int, option("Number of slots measured at the subscribers.", min=1)] = 200,
    together: Annotated[
        str | None,
        option(
            "Bound after the release time, at which subscribers deliver together.",
            metavar="TIME",
            unset="the largest p99 arrival time of a city",
        ),
    ] = None,
    seed: Annotated[int, option("Random seed; the same seed gives the same result.", min=0)] = 1,
    plots: Annotated[Path | None, option("Write three plots to this directory.", metavar="DIR")] = None,
    as_json: AsJson = False,
) -> None:
    """Simulate a large network in bulk: receivers in layers, regions of two lines, a million subscribers.

    The simulation uses arrays instead of objects, and the ring's own timing rules. It prints the releases on time, the
    NACKs at the busiest server, the spread at the subscribers and the latency.

    Examples:

    levelcast world --receivers 1000 --primaries 20 --regions 15 --customers 50000 --slots 200 --follow 50

    levelcast world --delays pings.csv.gz --weights cities.csv --loss 0.01 --loss 0.1 --plots plots
    """
    if weights is not None and delays is None:
        raise typer.BadParameter("--weights needs --delays; synthetic cities have their own weights")
    began, cpu = time.perf_counter(), time.process_time()
    try:
        size = Size(
            primaries=primaries,
            receivers=receivers,
            customers=customers,
            regions=regions,
            layers=layers,
            reach_ms=duration_ns(reach, "--reach", 1) / 1e6,
            slot_ms=duration_ns(slot, "--slot", 1) / 1e6,
        )
        bound_ms = None if together is None else duration_ns(together, "--together", 1) / 1e6
        plans = [Conditions(each, slots, follow, 1.0, branch_loss, seed, bound_ms) for each in (loss or [0.01, 0.1])]
        globe = build_globe(*_cities(delays, weights, cities, seed), size, seed)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    runs = [_run(globe, conditions) for conditions in plans]
    drawn = [str(path) for path in plot_world(runs, plots)] if plots is not None else []
    cost = {
        "wall_s": round(time.perf_counter() - began, 1),
        "cpu_s": round(time.process_time() - cpu, 1),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }
    if as_json:
        shown = [
            {**asdict(run.conditions), **run.figures(), "together_missing": dict(run.missing_cities())} for run in runs
        ]
        print_json({"world": describe(globe), "runs": shown, "plots": drawn, **cost})
        return
    _show(globe, runs)
    typer.echo(f"{cost['wall_s']} s, {cost['cpu_s']} s of CPU, peak memory {cost['peak_mb']:,} MB")
    for path in drawn:
        typer.echo(f"plot: {path}")


def describe(globe: Globe) -> dict[str, float]:
    """Return the size of a simulated network."""
    return {
        "cities": len(globe.delays.names),
        "receiver_cities": len(np.unique(globe.city)),
        "regions": len(globe.regions.sites),
        "primaries": globe.size.primaries,
        "receivers": len(globe.city),
        "customers": len(globe.customers),
        "longest_ms": round(globe.longest_ms, 3),
    }


def _cities(delays: Path | None, weights: Path | None, count: int, seed: int) -> tuple[Delays, Matrix]:
    if delays is None:
        return made_up_cities(count, seed)
    measured = load_delays(delays)
    return measured, np.ones(len(measured.names)) if weights is None else load_weights(weights, measured.names)


def _run(globe: Globe, conditions: Conditions) -> WorldRun:
    with counting() as progress:
        tasks = {part: progress.add_task(f"{part}, {conditions.loss:.0%} loss") for part in PARTS}
        return run_world(
            globe, conditions, lambda part, done, total: progress.update(tasks[part], completed=done, total=total)
        )


def _show(globe: Globe, runs: list[WorldRun]) -> None:
    known = describe(globe)
    title = (
        f"{known['receivers']:,} receivers in {known['receiver_cities']} of {known['cities']} cities, "
        f"{known['customers']:,} subscribers in {known['regions']} regions"
    )
    figures = [run.figures() for run in runs]
    rows = ((name, *(shape.format(each[key]) for each in figures)) for name, key, shape in ROWS)
    Console().print(table(("", *(f">{run.conditions.loss:.0%} loss" for run in runs)), rows, title=title))
    for run in runs:
        cities = ", ".join(f"{name} {share:.1%}" for name, share in run.missing_cities())
        typer.echo(f"{run.conditions.loss:.0%} loss: cities that miss the bound most: {cities or 'none'}")

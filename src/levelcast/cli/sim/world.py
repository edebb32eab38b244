"""`levelcast world`: thousands of receivers and a million customers in bulk, over measured or made-up delays."""

from __future__ import annotations

import json
import resource
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from levelcast.cli.errors import duration_ns
from levelcast.extras import ExtraMissing
from levelcast.network.regions.delays import Delays, Matrix, load_delays, load_weights
from levelcast.sim.bulk.cities import Globe, Size, build_globe, made_up_cities
from levelcast.sim.bulk.plots import plot_world
from levelcast.sim.bulk.run import Conditions, WorldRun, run_world

ROWS: tuple[tuple[str, str, str], ...] = (
    ("late δ_N", "late_ms", "{:,.0f} ms"),
    ("attempts k_r", "attempts", "{:.0f}"),
    ("hold time Δ_A (rule 6)", "hold_ms", "{:,.0f} ms"),
    ("releases", "releases", "{:,.0f}"),
    ("of them on time", "on_time", "{:.4%}"),
    ("held by a receiver, p50", "held_p50_ms", "{:,.0f} ms"),
    ("held by a receiver, last", "held_max_ms", "{:,.0f} ms"),
    ("held and witnessed, p50", "ready_p50_ms", "{:,.0f} ms"),
    ("held and witnessed, last", "ready_max_ms", "{:,.0f} ms"),
    ("instants of release, first to last receiver", "release_spread_ms", "{:.1f} ms"),
    ("NACKs per packet, busiest primary", "primary_nacks_busiest", "{:.2f}"),
    ("NACKs at one primary at once, most", "primary_nacks_peak", "{:,.0f}"),
    ("NACKs per packet, mean primary", "primary_nacks_mean", "{:.2f}"),
    ("NACKs per packet, whole core", "core_nacks_per_packet", "{:,.0f}"),
    ("copies of answers per packet and receiver", "answer_copies_per_packet", "{:,.1f}"),
    ("NACKs per packet, busiest retransmit server", "edge_nacks_busiest", "{:.3f}"),
    ("NACKs per packet, mean retransmit server", "edge_nacks_mean", "{:.4f}"),
    ("at a customer after the instant, p50", "customer_p50_ms", "{:.1f} ms"),
    ("at a customer after the instant, p99", "customer_p99_ms", "{:.1f} ms"),
    ("at a customer after the instant, p99.9", "customer_p99.9_ms", "{:.1f} ms"),
    ("at a customer after the instant, last", "customer_max_ms", "{:,.0f} ms"),
    ("spread in the world, first to last percent", "world_spread_p1_p99_ms", "{:.1f} ms"),
    ("spread in a region, first to last percent, median", "region_spread_p1_p99_median_ms", "{:.1f} ms"),
    ("spread in a region, first to last percent, worst", "region_spread_p1_p99_worst_ms", "{:.1f} ms"),
    ("by the first line", "by_first_line", "{:.3%}"),
    ("by the second line", "by_second_line", "{:.3%}"),
    ("by a retransmission", "by_repair", "{:.4%}"),
    ("latency from source to customer, p50", "latency_p50_ms", "{:,.0f} ms"),
    ("latency from source to customer, p99", "latency_p99_ms", "{:,.0f} ms"),
)


def world(
    delays: Annotated[
        Path | None, typer.Option(metavar="FILE.csv", help="Pings between cities.", show_default="made-up cities")
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(metavar="FILE.csv", help="How many customers each city has, in proportion.")
    ] = None,
    cities: Annotated[int, typer.Option(min=10, max=2_000, help="Without --delays: how many are made up.")] = 240,
    primaries: Annotated[int, typer.Option(min=3, help="Primary receivers: the ring.")] = 100,
    receivers: Annotated[int, typer.Option(min=6, help="Receivers in both layers, in groups of equal size.")] = 10_000,
    customers: Annotated[int, typer.Option(min=10, help="Customers, on two lines each.")] = 1_000_000,
    regions: Annotated[int, typer.Option(min=1, help="Regions of two sites.")] = 60,
    reach: Annotated[str, typer.Option(help="No two receivers farther apart than this.")] = "250ms",
    slot: Annotated[str, typer.Option(help="The slot length τ.")] = "50ms",
    loss: Annotated[
        list[float] | None, typer.Option(help="Loss of every copy; may be given again.", show_default="0.01 and 0.1")
    ] = None,
    branch_loss: Annotated[
        float, typer.Option(min=0, max=0.5, help="Multicasts that are lost for a whole city at once (MS §3.9).")
    ] = 0.0,
    scoped: Annotated[
        bool, typer.Option("--scoped", help="Answers to several secondaries go to their group only.")
    ] = False,
    slots: Annotated[int, typer.Option(min=2, help="Slots that are counted in the core.")] = 1_000,
    follow: Annotated[int, typer.Option(min=1, help="Slots that customers are followed through.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="One seed is one result.")] = 1,
    plot: Annotated[Path | None, typer.Option(metavar="DIR", help="Write three plots there.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Simulate a world in bulk: receivers in two layers, regions of two lines, a million customers.

    Arrays instead of objects, with the ring's own timing rules. Shown are the releases on time, the NACKs at the
    busiest server, the spread at the customers and the latency.

    Examples:

    levelcast world --receivers 1000 --primaries 20 --regions 15 --customers 50000 --slots 200 --follow 50

    levelcast world --delays pings.csv.gz --weights cities.csv --loss 0.01 --loss 0.1 --plot plots
    """
    if weights is not None and delays is None:
        raise typer.BadParameter("--weights names cities of --delays; made-up cities have their own")
    began, cpu = time.perf_counter(), time.process_time()
    try:
        size = Size(
            primaries=primaries,
            receivers=receivers,
            customers=customers,
            regions=regions,
            reach_ms=duration_ns(reach, "--reach", 1) / 1e6,
            slot_ms=duration_ns(slot, "--slot", 1) / 1e6,
        )
        plans = [
            Conditions(each, slots, follow, branch_loss=branch_loss, scoped=scoped, seed=seed)
            for each in (loss or [0.01, 0.1])
        ]
        globe = build_globe(*_cities(delays, weights, cities, seed), size, seed)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    runs = [_run(globe, conditions) for conditions in plans]
    plots = [str(path) for path in _plots(runs, plot)] if plot is not None else []
    cost = {
        "wall_s": round(time.perf_counter() - began, 1),
        "cpu_s": round(time.process_time() - cpu, 1),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }
    if as_json:
        shown = [{**asdict(run.conditions), **run.figures()} for run in runs]
        typer.echo(json.dumps({"world": describe(globe), "runs": shown, "plots": plots, **cost}, indent=2))
        return
    _show(globe, runs)
    typer.echo(f"{cost['wall_s']} s, {cost['cpu_s']} s of CPU, {cost['peak_mb']:,} MB at most")
    for path in plots:
        typer.echo(f"plot: {path}")


def describe(globe: Globe) -> dict[str, float]:
    """How large a world is."""
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
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        tasks = {part: progress.add_task(f"{part}, {conditions.loss:.0%} loss") for part in ("core", "customers")}
        return run_world(
            globe, conditions, lambda part, done, total: progress.update(tasks[part], completed=done, total=total)
        )


def _plots(runs: list[WorldRun], folder: Path) -> list[Path]:
    try:
        return plot_world(runs, folder)
    except ExtraMissing as error:
        typer.echo(f"levelcast: {error}", err=True)
        raise typer.Exit(2) from None


def _show(globe: Globe, runs: list[WorldRun]) -> None:
    known = describe(globe)
    title = (
        f"{known['receivers']:,} receivers in {known['receiver_cities']} of {known['cities']} cities, "
        f"{known['customers']:,} customers in {known['regions']} regions"
    )
    table = Table(title=title, title_justify="left")
    table.add_column("")
    figures = [run.figures() for run in runs]
    for run in runs:
        table.add_column(f"{run.conditions.loss:.0%} loss", justify="right")
    for name, key, shape in ROWS:
        table.add_row(name, *(shape.format(each[key]) for each in figures))
    Console().print(table)

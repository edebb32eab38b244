"""`levelcast regions`: plan regions of two lines from delay and loss, and write their network file."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from secrets import randbits
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape

from levelcast.cli.errors import duration_ns
from levelcast.cli.network_file.init_timing import write_new
from levelcast.cli.options import AsJson, Force, option
from levelcast.cli.output import print_json, table
from levelcast.network import NetworkError, Problem
from levelcast.network.regions.delays import Delays, load_delays, load_weights
from levelcast.network.regions.file import MOST_RECEIVERS, region_file
from levelcast.network.regions.plan import (
    Floats,
    Indexes,
    RegionFacts,
    Regions,
    describe,
    line_costs,
    plan_regions,
    share_out,
    within_reach,
)


def regions(
    delays: Annotated[
        Path, typer.Argument(metavar="DELAYS.csv", help="Round-trip times or one-way delays between locations.")
    ],
    receivers: Annotated[int, option("Number of receivers, at least two per region.", min=2, max=MOST_RECEIVERS)] = 10,
    count: Annotated[int | None, option("Number of regions.", "--regions", min=1, unset="half of --receivers")] = None,
    customers: Annotated[
        Path | None, option("Number of subscribers at each location.", metavar="FILE.csv", unset="equal numbers")
    ] = None,
    loss: Annotated[float, option("Loss between two locations, if not in the file.", min=0, max=0.5)] = 0.01,
    bound: Annotated[
        float, option("Maximum load of a region, in multiples of the mean.", min=1, metavar="FACTOR")
    ] = 2.0,
    reach: Annotated[
        str | None, option('Maximum delay between two receivers, such as "250ms".', metavar="TIME", unset="unlimited")
    ] = None,
    slot: Annotated[str, option("Slot length in the network file.", metavar="TIME")] = "50ms",
    out: Annotated[Path | None, option("Write this network file.", "--out", "-o", metavar="FILE.toml")] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Choose receiver sites and assign subscribers to them, from measured delay and loss.

    A region has two sites, line a and line b. Every subscriber reads both. DELAYS.csv has from_city, to_city, min_ms
    and avg_ms (round trips), or from, to, delay_ms and jitter_ms (one way), and optionally loss; plain or .gz.

    Examples:

    levelcast regions pings.csv.gz --receivers 20

    levelcast regions pings.csv.gz --customers cities.csv --receivers 24 --regions 8 --reach 250ms --out network.toml
    """
    wanted = receivers // 2 if count is None else count
    if receivers < 2 * wanted:
        raise typer.BadParameter(f"{wanted} regions need {2 * wanted} receivers, two each; --receivers is {receivers}")
    measured = load_delays(delays, loss)
    weights = np.ones(len(measured.names)) if customers is None else load_weights(customers, measured.names)
    sites = np.arange(len(measured.names))
    if reach is not None:
        sites = within_reach(measured.quantile_ms, duration_ns(reach, "--reach", 1) / 1e6)
    slot_ms = duration_ns(slot, "--slot", 1) / 1e6
    plan, told = _plan(delays, measured, weights, sites, wanted, bound)
    placed = share_out(plan.load(), receivers, 2)
    if out is not None:
        write_new(out, region_file(measured, plan, placed, slot_ms=slot_ms, network_id=randbits(64)), force=force)
    if as_json:
        print_json([_as_json(measured, *row) for row in zip(told, placed, strict=True)])
        return
    _show(measured, told, placed)
    if out is not None:
        typer.echo(f"Wrote {out}. To see the resulting timing: levelcast timing --network {out}")


def _plan(
    path: Path, delays: Delays, weights: Floats, sites: Indexes, count: int, bound: float
) -> tuple[Regions, list[RegionFacts]]:
    """Plan with `sites` as the only candidates; indexes in the plan refer to all locations."""
    quantile = delays.quantile_ms
    costs = line_costs(quantile, delays.loss)
    try:
        plan = plan_regions(costs[sites], weights, count, loss=delays.loss[sites], bound=bound)
    except ValueError as error:
        raise NetworkError(str(path), [Problem(1, str(error))]) from None
    plan = Regions(sites[plan.sites], plan.customer, plan.region, plan.weight, costs)
    return plan, describe(plan, quantile, delays.loss)


def _as_json(delays: Delays, facts: RegionFacts, receivers: int) -> dict[str, object]:
    names = [delays.names[site] for site in facts.sites]
    return {**asdict(facts), "sites": names, "receivers": int(receivers), "load": facts.customers / int(receivers)}


def _show(delays: Delays, told: list[RegionFacts], receivers: Indexes) -> None:
    numbers = (">receivers", ">locations", ">subscribers", ">first ms", ">second ms", ">loss", ">both lost", ">load")
    rows = [
        (
            *(escape(delays.names[site]) for site in facts.sites),
            str(count),
            str(facts.places),
            f"{facts.customers:,.0f}",
            f"{facts.first_median_ms:.1f} / {facts.first_worst_ms:.1f}",
            f"{facts.second_median_ms:.1f} / {facts.second_worst_ms:.1f}",
            f"{facts.loss:.2%}",
            f"{facts.both_lost:.3%}",
            f"{facts.customers / count:,.0f}",
        )
        for facts, count in zip(told, receivers.tolist(), strict=True)
    ]
    console = Console()
    console.print(table(("line a", "line b", *numbers), rows, title="Regions"))
    console.print("first, second: delay of the nearer and farther line, median / worst; load: subscribers per receiver")

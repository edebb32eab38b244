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

from levelcast.cli.errors import duration_ns, loss_ratio
from levelcast.cli.network_file.hold import plan_holds, store_holds
from levelcast.cli.network_file.init_timing import write_new
from levelcast.cli.options import AsJson, Force, option
from levelcast.cli.output import print_json, table
from levelcast.network import NetworkError, Problem, parse_network
from levelcast.network.regions.coverage import Coverage, coverage
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
    loss: Annotated[
        str,
        option("Loss between two locations, if not in the file; with --within, also the maximum.", metavar="RATIO"),
    ] = "1%",
    within: Annotated[
        str | None,
        option(
            'Report locations to which no region has two lines within this delay, such as "20ms".',
            metavar="TIME",
            unset="no limit",
        ),
    ] = None,
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
    and avg_ms (round trips), or from, to, delay_ms and jitter_ms (one way), and optionally loss and hops; plain or .gz.

    Examples:

    levelcast regions pings.csv.gz --receivers 20

    levelcast regions pings.csv.gz --receivers 20 --within 20ms --loss 1%

    levelcast regions pings.csv.gz --customers cities.csv --receivers 24 --regions 8 --reach 250ms --out network.toml
    """
    wanted = receivers // 2 if count is None else count
    if receivers < 2 * wanted:
        raise typer.BadParameter(f"{wanted} regions need {2 * wanted} receivers, two each; --receivers is {receivers}")
    most_loss = loss_ratio(loss)
    within_ms = None if within is None else duration_ns(within, "--within", 1) / 1e6
    measured = load_delays(delays, most_loss)
    weights = np.ones(len(measured.names)) if customers is None else load_weights(customers, measured.names)
    sites = np.arange(len(measured.names))
    if reach is not None:
        sites = within_reach(measured.quantile_ms, duration_ns(reach, "--reach", 1) / 1e6)
    slot_ms = duration_ns(slot, "--slot", 1) / 1e6
    plan, told = _plan(delays, measured, weights, sites, wanted, bound)
    placed = share_out(plan.load(), receivers, 2)
    if out is not None:
        if out.exists() and not force:
            raise FileExistsError(0, "already exists; use --force to replace it", str(out))
        text = region_file(measured, plan, placed, slot_ms=slot_ms, network_id=randbits(64))
        write_new(out, _with_hold(text, out, quiet=as_json), force=force)
    rows = [_as_json(measured, *row) for row in zip(told, placed, strict=True)]
    covered = None
    if within_ms is not None:
        meets = (measured.quantile_ms <= within_ms) & (measured.loss <= most_loss)
        covered = coverage(meets, weights, plan.sites, sites)
    if as_json:
        print_json(rows if covered is None else {"regions": rows, **_coverage_as_json(measured, covered, weights)})
        return
    _show(measured, told, placed)
    if covered is not None:
        _show_coverage(measured, covered, weights, f"{within} and {most_loss:.2%} loss")
    if out is not None:
        typer.echo(f"Wrote {out}. To see the resulting timing: levelcast timing --network {out}")


def _with_hold(text: str, path: Path, *, quiet: bool) -> str:
    """Return the text of a network file with the hold time that its links need, if there is one."""
    network = parse_network(text, str(path))
    holds, _ = plan_holds(network, [stripe.name for stripe in network.stripes], quiet=quiet)
    return store_holds(text, path, network, holds)


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


def _coverage_as_json(delays: Delays, covered: Coverage, weights: Floats) -> dict[str, object]:
    return {
        "outside": [{"location": delays.names[at], "customers": float(weights[at])} for at in covered.unserved],
        "receivers_needed": 2 * len(covered.added),
        "sites_needed": [[delays.names[site] for site in pair] for pair in covered.added],
        "unreachable": [delays.names[at] for at in covered.unreachable],
    }


def _show_coverage(delays: Delays, covered: Coverage, weights: Floats, limits: str) -> None:
    def names(places: Indexes) -> str:
        return ", ".join(delays.names[at] for at in places)

    if not len(covered.unserved):
        typer.echo(f"Every location has a region with both lines within {limits}.")
        return
    count, missing = len(covered.unserved), weights[covered.unserved].sum()
    typer.echo(
        f"No region has both lines within {limits} of {count} location{'s' if count > 1 else ''} "
        f"({missing:,.0f} subscribers): {names(covered.unserved)}."
    )
    if covered.added:
        sites = ", ".join(" and ".join(delays.names[site] for site in pair) for pair in covered.added)
        served = count - len(covered.unreachable)
        typer.echo(f"{2 * len(covered.added)} more receivers would serve {served} of them: at {sites}.")
    if len(covered.unreachable):
        typer.echo(f"No two free locations are within these limits of {names(covered.unreachable)}.")


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

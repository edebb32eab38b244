"""`levelcast matrix`: compute a network matrix from the probes of a lake, as a file that the network file includes."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from levelcast.cli.lake.spark import spark_errors
from levelcast.cli.network_file.hold import missing_holds
from levelcast.cli.network_file.init_timing import write_new
from levelcast.cli.options import AsJson, Force, LakeDir, Master, option
from levelcast.cli.output import print_json, table
from levelcast.network import Network, load_network
from levelcast.network.measured.file import measured_file
from levelcast.network.measured.matrix import QUANTILES
from levelcast.network.measured.timing import measured_network
from levelcast.pipeline.lake.defaults import LakeError
from levelcast.pipeline.session import require_spark, spark_session
from levelcast.units import show_ns

_SHOWN = 12
"""Maximum number of sites in the table; the file has all of them."""


def matrix(
    lake: LakeDir,
    network_file: Annotated[
        Path | None, option("Network file with the sites and timing.", "--network", metavar="FILE", unset="all sites")
    ] = None,
    hour: Annotated[
        str, option('UTC hour such as "2026-11-16T08", worst, or all: the worst of each pair.', metavar="HOUR")
    ] = "worst",
    quantile: Annotated[float, option("Quantile beyond which a packet is late: 0.5, 0.9, 0.99, 0.999 or 1.")] = 0.99,
    loss: Annotated[float, option("One-way loss of pairs without measured loss.", min=0, max=0.5)] = 0.01,
    out: Annotated[Path | None, option("Write the file to include.", "--out", "-o", metavar="FILE.toml")] = None,
    fix_timing: Annotated[
        bool, option("Write the timing as values too, not only as comments.", "--fix-timing")
    ] = False,
    force: Force = False,
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """Compute hourly delay and loss between sites, the resulting timing, and the best helper of each site.

    The tables network_matrix, network_timing and network_helpers of the lake are updated from its probes. The selected
    hour is written as a file; to use it, add to the network file: include = ["measured.toml"].

    Examples:

    levelcast matrix --lake lake --network network.toml -o measured.toml

    levelcast matrix --lake lake --hour 2026-11-16T08 --quantile 0.999
    """
    network = load_network(network_file) if network_file is not None else None
    if out is not None and out.exists() and not force:
        raise FileExistsError(0, "already exists; use --force to replace it", str(out))
    with spark_errors():
        require_spark(master)
        from levelcast.pipeline.lake.lake import Lake
        from levelcast.pipeline.matrix.job import measure

        if quantile not in QUANTILES:
            known = ", ".join(f"{each:g}" for each in QUANTILES)
            raise LakeError(f"quantile {quantile:g} is not supported; use one of {known}")
        tables = Lake(lake)
        with spark_session(master, "levelcast matrix", inputs=[lake / "probes"]) as spark, tables.alone():
            measured = measure(spark, tables, network, hour, quantile, loss)
    if out is not None:
        hold_ns = None if network is None else _hold_ns(measured, network, quiet=as_json)
        text = measured_file(measured, network, lake.name, fix_timing=fix_timing, hold_ns=hold_ns)
        write_new(out, text, force=force)
        if hold_ns is not None:
            found = (each.timing and replace(each.timing, hold_ns=hold_ns) for each in measured.timed)
            timed = tuple(replace(each, timing=one) for each, one in zip(measured.timed, found, strict=True))
            measured = replace(measured, timed=timed)
    for remark in measured.remarks:
        typer.echo(f"levelcast: {remark}", err=True)
    if as_json:
        print_json(_as_json(measured), ensure_ascii=False)
        return
    _show(measured)
    if out is not None:
        typer.echo(f'Wrote {out}. To use it, add to the network file: include = ["{out.name}"]')


def _hold_ns(measured: Any, network: Network, *, quiet: bool) -> int | None:
    """Return the hold time that the measured links need, if one is for all stripes and follows from the links."""
    if len(network.stripes) > 1 or any(each.timing is None for each in measured.timed):
        return None
    measured_before = any("hold" in each.timing for each in network.included)
    if network.stripes[0].rules.hold_ns is not None and not measured_before:
        typer.echo(
            "levelcast: the network file has a hold time, which has priority over the measured one; remove it, or run "
            "levelcast timing --write after including the file",
            err=True,
        )
    holds = missing_holds(measured_network(network, measured.hour)[0], quiet=quiet)
    return next(iter(holds.values()), None)


def _as_json(measured: Any) -> dict[str, Any]:
    return {
        "hour": measured.name,
        "hours": measured.hours,
        "quantile": measured.hour.quantile,
        "pairs": [{"between": pair, **way._asdict()} for pair, way in sorted(measured.hour.ways.items())],
        "timing": [asdict(each) for each in measured.timed],
        "helpers": {
            site: [{"rank": rank, **asdict(each)} for rank, each in ranked] for site, ranked in measured.helpers.items()
        },
        "remarks": measured.remarks,
    }


def _show(measured: Any) -> None:
    console = Console(highlight=False)
    ways, sites = measured.hour.ways, measured.hour.sites
    console.print(
        f"{len(sites)} sites, {len(ways)} pairs; {measured.name} of {measured.hours} hours, "
        f"quantile {measured.hour.quantile:g}",
    )
    for each in measured.timed:
        if each.timing is None:
            said = f"none: the loss between {each.loss_between} is {each.loss_ratio:.0%}"
        else:
            t = each.timing
            said = (
                f"δ_N {show_ns(t.late_ns)} ({each.delay_between}), k_r {t.attempts} ({each.loss_between} lose up to "
                f"{each.loss_ratio:.2%}), τ_r {show_ns(t.request_ns)}, R {show_ns(t.recovery_ns)}, "
                f"Δ_A {show_ns(t.hold_ns)}"
            )
        console.print(f"stripe {each.stripe}: {said}", soft_wrap=True, markup=False)
    rows = []
    for site, ranked in list(measured.helpers.items())[:_SHOWN]:
        best = [each for rank, each in ranked if rank <= 2]
        near = next(each for _, each in ranked if each.nearest)
        cells = [_helper(each) for each in best] + [""] * (2 - len(best))
        rows.append((escape(site), *cells, "the best" if near is best[0] else _helper(near)))
    console.print(table(("site", "best", "then", "nearest"), rows, title="Helpers"))
    if len(measured.helpers) > _SHOWN:
        console.print(f"and {len(measured.helpers) - _SHOWN} more sites")


def _helper(helper: Any) -> str:
    trip, expected = show_ns(helper.round_trip_ns), show_ns(round(min(helper.expected_ns, 3.6e12)))
    return f"{escape(helper.site)} ({trip}, expected {expected})"

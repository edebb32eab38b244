"""`levelcast report`: write one HTML page about a day in a lake."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from levelcast.cli.lake.spark import spark_errors
from levelcast.cli.options import LakeDir, option


def report(
    lake: LakeDir,
    out: Annotated[Path, option("HTML file to write.", "--out", "-o", metavar="FILE")] = Path("report.html"),
    day: Annotated[str | None, option("Day to report.", "--date", metavar="YYYY-MM-DD", unset="the last")] = None,
    symbol: Annotated[list[str] | None, option("Plot this symbol (repeatable).", unset="the busiest")] = None,
) -> None:
    """Write one self-contained HTML page: prices, volume by venue, rates, release spread, late releases.

    Needs no Java; `levelcast pipeline run` creates the tables.

    Examples:

    levelcast report --lake lake -o report.html

    levelcast report --lake lake --date 2013-10-07 --symbol SPY -o spy.html
    """
    with spark_errors():
        from levelcast.pipeline.lake.lake import Lake
        from levelcast.pipeline.report.page import write_report

        told = write_report(Lake(lake), out, day, symbol or ())
    typer.echo(f"{out}: {told['day']}, {len(told['symbols'])} symbols, {told['bytes']:,} bytes")

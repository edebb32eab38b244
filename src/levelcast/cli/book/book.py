"""`levelcast book`: replay order flow through the matching engine, and show order books."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from levelcast.cli.book.flows import FORMATS, OrderFlow, read_flow, read_levels
from levelcast.cli.book.text import book_table, report_lines, summary
from levelcast.cli.book.write import write_rows
from levelcast.cli.errors import parse_day, replacing, require_new
from levelcast.cli.main import COMMANDS
from levelcast.cli.options import AsJson, Force, option
from levelcast.cli.output import print_json
from levelcast.errors import UserError
from levelcast.market.replay import TOP
from levelcast.market.replay_run import SymbolReplay, SymbolRun
from levelcast.market.synthetic_orders import order_flow, prepared
from levelcast.native.book import BookKernel
from levelcast.records import RecordArray

app = typer.Typer(help=COMMANDS["book"].help, no_args_is_help=True)

Format = Annotated[str, option(f"Format of the file: {', '.join(FORMATS)}.", "--format", metavar="FORMAT")]
Symbols = Annotated[list[str] | None, option("Only this symbol (repeatable).", "--symbol", unset="all")]
Day = Annotated[str | None, option("Day of an ITCH file, such as 2019-12-30.", "--date", metavar="DAY", unset="none")]


@app.command()
def replay(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="File of order events.")],
    form: Format,
    levels: Annotated[int, option("Levels of the book after each event.", min=1, max=100)] = 5,
    out: Annotated[Path | None, option("Write one row per event to this Parquet file.", metavar="FILE")] = None,
    symbol: Symbols = None,
    check: Annotated[
        Path | None, option("Compare with this published LOBSTER orderbook.", "--check", metavar="FILE")
    ] = None,
    match: Annotated[bool, option("Predict the fills of every trade and compare.", "--match")] = False,
    day: Day = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Replay recorded order flow through the matching engine; write the book after every event.

    --check compares each level of a published book as long as it stays in view. --match predicts, for each trade, the
    orders that are filled by price and then place. Exit code 1 if a book differs from the published one.

    Examples:

    levelcast book replay --format dbn orders.dbn.zst --out book.parquet --match

    levelcast book replay --format lobster messages.csv --levels 10 --check book.csv
    """
    if form not in FORMATS:
        raise typer.BadParameter(f'"{form}" is not one of {", ".join(FORMATS)}', param_hint="--format")
    if check is not None and form != "lobster":
        raise typer.BadParameter("only LOBSTER publishes a book; use --format lobster", param_hint="--check")
    require_new(out, force=force)
    flow = read_flow(path, form, None if day is None else parse_day(day))
    published = None if check is None else read_levels(check)
    if published is not None and len(published) != len(flow.events):
        raise UserError(f"{check}: has {len(published):,} rows, and {path} {len(flow.events):,}; pass files of one day")
    found = [_replayed(run) for run in _runs(flow, form, levels, symbol, published)]
    if out is not None:
        with replacing(out) as unfinished:
            write_rows(unfinished, found, levels)
    if as_json:
        print_json([_as_json(each) for each in found])
    else:
        for line in report_lines(found, match=match):
            typer.echo(line)
        typer.echo(summary(found, match=match))
    if any(each.check is not None and each.check.equal_rows < each.check.rows for each in found):
        raise typer.Exit(1)


def _runs(
    flow: OrderFlow, form: str, levels: int, wanted: list[str] | None, published: RecordArray | None
) -> list[SymbolRun]:
    missing = [name for name in wanted or [] if name not in flow.symbols]
    if missing:
        raise UserError(f"symbol {missing[0]} not found in the file; use one of {', '.join(flow.symbols[:10])}")
    runs = []
    for number, name in enumerate(flow.symbols):
        mine = flow.events[flow.events["symbol"] == number]
        if len(mine) and (not wanted or name in wanted):
            runs.append(SymbolRun(name, form, mine, levels, published))
    return runs


def _replayed(run: SymbolRun) -> SymbolReplay:
    for _ in run.steps():
        pass
    return run.result()


def _as_json(found: SymbolReplay) -> dict[str, object]:
    left_out = ("times", "tops")
    return {"events": len(found.times)} | {
        name: value for name, value in asdict(found).items() if name not in left_out and value is not None
    }


@app.command()
def watch(
    path: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="File of order events; without one, orders are generated.")
    ] = None,
    form: Annotated[str, option(f"Format of the file: {', '.join(FORMATS)}.", "--format", metavar="FORMAT")] = "dbn",
    symbol: Annotated[str | None, option("The symbol to show.", metavar="NAME", unset="the first")] = None,
    levels: Annotated[int, option("Levels to show.", min=1, max=50)] = 10,
    rate: Annotated[int, option("Events per second on a terminal.", min=1)] = 2_000,
    count: Annotated[int, option("Number of generated commands.", min=1)] = 20_000,
    day: Day = None,
) -> None:
    """Show a live order book in the terminal, from a file of order events or from generated orders.

    If the output is not a terminal, only the last book is printed.

    Examples:

    levelcast book watch

    levelcast book watch --format dbn orders.dbn.zst --levels 5
    """
    if form not in FORMATS:
        raise typer.BadParameter(f'"{form}" is not one of {", ".join(FORMATS)}', param_hint="--format")
    console = Console()
    if path is None:
        _watch_generated(console, count, levels, rate)
        return
    flow = read_flow(path, form, None if day is None else parse_day(day))
    run = _runs(flow, form, levels, [symbol or flow.symbols[0]], None)[0]
    with _screen(console) as live:
        for number, top in enumerate(run.steps(), 1):
            _show(live, console, run.found.symbol, top, number, rate)
    console.print(book_table(run.found.symbol, top, len(run.found.times)))


def _watch_generated(console: Console, count: int, levels: int, rate: int) -> None:
    kernel = BookKernel(accounts=True)
    prepared(kernel, 3, accounts=True)
    commands = order_flow(count, 3)
    with _screen(console) as live:
        for number, command in enumerate(commands, 1):
            kernel.run(command.tobytes())
            if live is not None:
                _show(live, console, "generated 1", np.frombuffer(kernel.top(1, levels), TOP), number, rate)
    kernel.finish()
    console.print(book_table("generated 1", np.frombuffer(kernel.top(1, levels), TOP), count))
    console.print(
        f"{count:,} commands of 500 accounts in 3 instruments: {kernel.trade_count:,} trades, {kernel.live:,} live "
        "orders. Every asset is conserved."
    )


def _screen(console: Console) -> Live:
    return Live(console=console, transient=True, auto_refresh=False)


def _show(live: Live, console: Console, name: str, top: RecordArray, number: int, rate: int) -> None:
    """Show the book ten times a second on a terminal, and wait so that the rate is kept."""
    step = max(1, rate // 10)
    if not console.is_terminal or number % step:
        return
    shown: Table = book_table(name, top, number)
    live.update(shown, refresh=True)
    time.sleep(step / rate)

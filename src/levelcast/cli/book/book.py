"""`levelcast book`: run the matching engine on order flow, tapes or generated orders; show and serve order books."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from threading import Event
from typing import Annotated

import typer
from rich.console import Console

from levelcast.cli.book.flows import FORMATS, OrderFlow, read_flow, read_levels
from levelcast.cli.book.screen import BookScreen, watch_generated, watch_tape
from levelcast.cli.book.tapes import (
    as_json_of,
    book_server,
    open_service,
    required_instruments,
    serve_until,
    top_of,
    write_tape,
)
from levelcast.cli.book.text import book_table, report_lines, state_line, summary
from levelcast.cli.book.write import write_rows
from levelcast.cli.errors import on_interrupt, parse_day, replacing, require_new
from levelcast.cli.main import COMMANDS
from levelcast.cli.options import AsJson, Force, Unsound, option
from levelcast.cli.output import print_json
from levelcast.errors import UserError
from levelcast.market.floor.machine import OPERATOR
from levelcast.market.replay_run import SymbolReplay, SymbolRun
from levelcast.records import RecordArray

app = typer.Typer(help=COMMANDS["book"].help, no_args_is_help=True)

Format = Annotated[str, option(f"Format of the file: {', '.join(FORMATS)}.", "--format", metavar="FORMAT")]
Symbols = Annotated[list[str] | None, option("Only this symbol (repeatable).", "--symbol", unset="all")]
TapeDir = Annotated[Path, typer.Argument(metavar="DIR", help="Directory of a tape, or of a floor with a tape.")]
Treasury = Annotated[int, option("Publisher of the treasury.", metavar="ID", min=0, max=65535)]
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
        Path | None,
        typer.Argument(metavar="[PATH]", help="File of order events, or tape; without one, orders are generated."),
    ] = None,
    form: Annotated[str, option(f"Format of the file: {', '.join(FORMATS)}.", "--format", metavar="FORMAT")] = "dbn",
    symbol: Annotated[
        str | None, option("The symbol of a file or instrument id of a tape.", metavar="NAME", unset="the first")
    ] = None,
    levels: Annotated[int, option("Levels to show.", min=1, max=50)] = 10,
    rate: Annotated[int, option("Events per second on a terminal.", min=1)] = 2_000,
    count: Annotated[int, option("Number of generated commands.", min=1)] = 20_000,
    day: Day = None,
    treasury: Treasury = OPERATOR,
) -> None:
    """Show a live order book in the terminal, from a file of order events, a tape or generated orders.

    If the output is not a terminal, only the last book is printed.

    Examples:

    levelcast book watch

    levelcast book watch --format dbn orders.dbn.zst --levels 5

    levelcast book watch floor --symbol 2
    """
    if form not in FORMATS:
        raise typer.BadParameter(f'"{form}" is not one of {", ".join(FORMATS)}', param_hint="--format")
    screen = BookScreen(Console(), rate)
    if path is None:
        watch_generated(screen, count, levels)
    elif path.is_dir():
        watch_tape(screen, path, 0 if symbol is None else _instrument(symbol), levels, treasury)
    else:
        flow = read_flow(path, form, None if day is None else parse_day(day))
        run = _runs(flow, form, levels, [symbol or flow.symbols[0]], None)[0]
        name = run.found.symbol
        screen.show((f"{name} after {number:,} events", number, top) for number, top in enumerate(run.steps(), 1))


def _instrument(symbol: str) -> int:
    if not symbol.isascii() or not symbol.isdigit() or not 0 < int(symbol) < 2**32:
        raise typer.BadParameter(f'"{symbol}" is not an instrument id, a number from 1 on', param_hint="--symbol")
    return int(symbol)


@app.command()
def show(
    directory: TapeDir,
    at: Annotated[int | None, option("Sequence of the state.", "--at", min=0, unset="the last one")] = None,
    symbol: Annotated[
        list[int] | None, option("Only this instrument id (repeatable).", metavar="ID", min=1, unset="all")
    ] = None,
    levels: Annotated[int, option("Levels of each book.", min=1, max=1000)] = 5,
    snapshot: Annotated[
        Path | None, option("Begin with this snapshot instead of the start of the tape.", metavar="FILE")
    ] = None,
    save: Annotated[Path | None, option("Write a snapshot of the state to this file.", metavar="FILE")] = None,
    treasury: Treasury = OPERATOR,
    force: Force = False,
    as_json: AsJson = False,
    unsound: Unsound = False,
) -> None:
    """Rebuild the matching engine from a tape up to a sequence, and show its order books.

    The state is that after the last frame that ends at the sequence or before. The last line has a hash of everything:
    books, stops, balances, calendar and events. A snapshot and the later frames give the same hash.

    Examples:

    levelcast book show floor --at 20000 --save state.snapshot

    levelcast book show floor --snapshot state.snapshot --symbol 2
    """
    require_new(save, force=force)
    service = open_service(directory, snapshot, treasury, unsound=unsound)
    engine = service.engine if at is None else service.at(at)
    instruments = required_instruments(engine, symbol or [])
    if save is not None:
        with replacing(save) as unfinished:
            unfinished.write_bytes(engine.snapshot())
    if as_json:
        print_json(as_json_of(engine, instruments, levels))
        return
    console = Console()
    for instrument in instruments:
        console.print(book_table(f"instrument {instrument}", top_of(engine, instrument, levels)))
    typer.echo(state_line(engine))


@app.command()
def serve(
    directory: TapeDir,
    host: Annotated[str, option("Address to listen on.", metavar="ADDRESS")] = "127.0.0.1",
    port: Annotated[int, option("TCP port; 0 takes a free one.", min=0, max=65535)] = 8765,
    snapshot: Annotated[
        Path | None, option("Begin with this snapshot instead of the start of the tape.", metavar="FILE")
    ] = None,
    treasury: Treasury = OPERATOR,
    unsound: Unsound = False,
) -> None:
    """Serve the matching engine of a growing tape over HTTP: books and snapshots at any sequence, until ^C or SIGTERM.

    /book?sequence=N&instrument=ID&levels=L returns JSON, /snapshot?sequence=N a snapshot. Without a sequence, the state
    is the newest one. A snapshot has all accounts: serve it only to receivers.

    Example:

    levelcast book serve floor --port 8765
    """
    service = open_service(directory, snapshot, treasury, unsound=unsound)
    with book_server(service, host, port) as server:
        typer.echo(f"Serving http://{host}:{server.server_address[1]}/book, at sequence {service.engine.sequence:,}.")
        stop = Event()
        on_interrupt(stop.set)
        serve_until(server, stop.is_set)


@app.command()
def generate(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="New directory for the tape.")],
    count: Annotated[int, option("Number of commands.", min=1)] = 20_000,
    symbols: Annotated[int, option("Number of instruments.", min=1, max=1000)] = 3,
    seed: Annotated[int, option("Random seed.", min=0)] = 1,
) -> None:
    """Write a tape of generated orders: definitions, deposits of 500 accounts, and commands.

    Example:

    levelcast book generate orders-tape --count 100000
    """
    last = write_tape(directory, count, symbols, seed)
    typer.echo(f"{directory}: {count:,} commands in {symbols} instruments, sequences 1 to {last:,}.")

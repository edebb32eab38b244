"""`levelcast floor`: run a trading floor, and operate a running one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast

import typer

from levelcast.cli.errors import duration_ns
from levelcast.cli.floor.options import FLOOR_DIR, Database, FloorDir, Symbols, database_of, operate
from levelcast.cli.main import COMMANDS
from levelcast.cli.options import AsJson, Interface, option
from levelcast.cli.output import print_json
from levelcast.errors import UserError
from levelcast.market.fix.schedule import SessionSchedule
from levelcast.market.match_rules import RULES
from levelcast.network import Network, load_network
from levelcast.node.floor.control import ask_floor
from levelcast.node.floor.feed import multicast_group
from levelcast.node.floor.process import FloorOptions, FloorProcess
from levelcast.runtime.sockets import LOOPBACK
from levelcast.storage.append_file import Durability

app = typer.Typer(help=COMMANDS["floor"].help, no_args_is_help=True)
_NO_FEED = "off"


@app.command()
def run(
    network_file: Annotated[
        Path | None, typer.Argument(metavar="[NETWORK]", help="Network file of which this is a floor; default: alone.")
    ] = None,
    data: FloorDir = FLOOR_DIR,
    name: Annotated[str, option("Name of the floor in the network file.", "--name", unset="its only floor")] = "",
    address: Annotated[str, option("Address of the gateway; outside of loopback it needs TLS.")] = LOOPBACK,
    port: Annotated[int, option("TCP port of the gateway; 0: any free one.", min=0, max=65535)] = 9_878,
    comp_id: Annotated[str, option("CompID of the gateway.")] = "FLOOR",
    certificate: Annotated[str, option("TLS certificate of the gateway (PEM).", metavar="FILE", unset="no TLS")] = "",
    key: Annotated[str, option("Private key of the certificate (PEM).", metavar="FILE", unset="no TLS")] = "",
    durable: Annotated[
        str, option("Writes survive a crash of the process, or a power failure.", metavar="process|power")
    ] = "process",
    feed: Annotated[
        str, option('Multicast group of the public order and trade feeds, or "off".', metavar="GROUP:PORT")
    ] = "239.192.7.1:9879",
    interface: Interface = LOOPBACK,
    status_port: Annotated[int, option("Serve /status and /metrics on this port; 0: none.", min=0, max=65535)] = 0,
    tables: Annotated[bool, option("Write the tables of orders and fills as Parquet.")] = True,
    rate: Annotated[int, option("Bytes/s read from one connection.", min=1_000)] = 1_000_000,
    reset_at: Annotated[
        str | None, option("Time of day (UTC) at which message numbers start at 1.", metavar="HH:MM", unset="never")
    ] = None,
    database: Database = "",
    run_time: Annotated[str | None, option("Run time.", "--for", metavar="TIME", unset="until stopped")] = None,
) -> None:
    """Run a trading floor: FIX gateway, matching engine, tape, public feeds and tables in one process.

    SIGTERM and ^C log the sessions out. Restarted with the same directory, it continues where it was, also after a
    crash. The first lines of the output have the address of the gateway.

    Examples:

    levelcast floor run

    levelcast floor run network.toml --name XNYS --data xnys --status-port 9880
    """
    if durable not in ("process", "power"):
        raise typer.BadParameter(f'"{durable}" is not process or power', param_hint="--durable")
    seconds = None if run_time is None else duration_ns(run_time) / 1e9
    network = None if network_file is None else load_network(network_file)
    try:
        group = None if feed == _NO_FEED else multicast_group(feed)
    except (ValueError, OSError):
        raise typer.BadParameter(
            f'"{feed}" is not a multicast group with a port, such as 239.192.7.1:9879', param_hint="--feed"
        ) from None
    options = FloorOptions(
        directory=data,
        address=(address, port),
        comp_id=comp_id,
        database=database_of(database),
        certificate=certificate,
        key=key,
        durable=cast(Durability, durable),
        feed=group,
        interface=interface,
        status_port=status_port,
        tables=tables,
        rate_bytes=rate,
        network=network,
        name="" if network is None else _floor_of(network, name),
        schedule=None if reset_at is None else _schedule(reset_at),
    )
    process = FloorProcess(options, typer.echo)
    host, bound = process.listener.address
    typer.echo(f"gateway {comp_id} at {host}:{bound}{' with TLS' if certificate else ''}")
    if group is not None:
        typer.echo(f"public feeds ORDERS and TRADES at {feed}")
    process.run(seconds)


def _floor_of(network: Network, name: str) -> str:
    names = [floor.name for floor in network.floors]
    if name:
        return name
    if len(names) != 1:
        raise UserError(f"the network has {len(names)} floors; pass --name with one of {', '.join(names)}")
    return names[0]


def _schedule(text: str) -> SessionSchedule:
    hour, _, minute = text.partition(":")
    if not (hour.isdigit() and minute.isdigit() and int(hour) < 24 and int(minute) < 60):
        raise typer.BadParameter(f'"{text}" is not a time of day such as 22:00', param_hint="--reset-at")
    at_ns = (int(hour) * 60 + int(minute)) * 60 * 10**9
    return SessionSchedule(at_ns, at_ns)


@app.command()
def instrument(
    symbol: Annotated[str, typer.Argument(metavar="SYMBOL", help="Symbol of the instrument.")],
    data: FloorDir = FLOOR_DIR,
    tick: Annotated[str, option("Smallest step of prices.", metavar="PRICE")] = "0.01",
    lot: Annotated[int, option("Smallest step of quantities.", min=1)] = 1,
    largest: Annotated[int, option("Largest quantity of an order; 0: no limit.", min=0)] = 0,
    low: Annotated[str, option("Lowest price.", metavar="PRICE", unset="none")] = "",
    high: Annotated[str, option("Highest price.", metavar="PRICE", unset="none")] = "",
    collar: Annotated[
        str, option("A market order trades at most this far from the last price.", metavar="PRICE", unset="none")
    ] = "",
    currency: Annotated[str, option("Currency of prices.")] = "USD",
    rule: Annotated[str, option(f"Matching rule: {', '.join(RULES)}.", unset="resting")] = "",
    value: Annotated[
        list[str] | None, option("Parameter of the rule, such as interval_ns=1000000 (repeatable).", unset="none")
    ] = None,
) -> None:
    """Define an instrument, or change its limits.

    Examples:

    levelcast floor instrument IBM

    levelcast floor instrument IBM --tick 0.05 --lot 10 --collar 5
    """
    values = dict(_pair(each) for each in value or [])
    operate(
        data, "instrument", symbol=symbol, tick=tick, lot=lot, largest=largest, low=low, high=high, collar=collar,
        currency=currency, rule=rule, values=values,
    )  # fmt: skip
    typer.echo(f"{symbol} is defined")


def _pair(text: str) -> tuple[str, int]:
    name, _, number = text.partition("=")
    if not number.lstrip("-").isdigit():
        raise typer.BadParameter(f'"{text}" is not NAME=NUMBER', param_hint="--value")
    return name, int(number)


def _phase(data: Path, op: str, symbols: list[str] | None, state: str) -> None:
    operate(data, op, symbols=symbols or [])
    typer.echo(f"{', '.join(symbols or ['all instruments'])}: {state}")


@app.command("open")
def open_command(
    symbols: Symbols = None,
    data: FloorDir = FLOOR_DIR,
    call: Annotated[bool, option("Begin with a call auction: collect orders until the next `open`.", "--call")] = False,
) -> None:
    """Open instruments for trading.

    Examples:

    levelcast floor open

    levelcast floor open IBM --call
    """
    _phase(data, "preopen" if call else "open", symbols, "collecting orders" if call else "open")


@app.command()
def halt(symbols: Symbols = None, data: FloorDir = FLOOR_DIR) -> None:
    """Halt trading: only cancels are accepted.

    Examples:

    levelcast floor halt IBM
    """
    _phase(data, "halt", symbols, "halted")


@app.command()
def resume(symbols: Symbols = None, data: FloorDir = FLOOR_DIR) -> None:
    """Resume trading after a halt.

    Examples:

    levelcast floor resume IBM
    """
    _phase(data, "resume", symbols, "open")


@app.command()
def close(symbols: Symbols = None, data: FloorDir = FLOOR_DIR) -> None:
    """Close instruments: orders of the day expire.

    Examples:

    levelcast floor close
    """
    _phase(data, "close", symbols, "closed")


@app.command()
def bust(
    trade: Annotated[int, typer.Argument(metavar="TRADE", help="Number of the trade (FIX 527).", min=1)],
    data: FloorDir = FLOOR_DIR,
) -> None:
    """Reverse a trade, if both sides still have what it takes.

    Examples:

    levelcast floor bust 17
    """
    operate(data, "bust", trade=trade)
    typer.echo(f"trade {trade} is busted")


@app.command()
def cancel(
    account: Annotated[str, typer.Argument(metavar="ACCOUNT", help="Account whose orders to cancel.")],
    data: FloorDir = FLOOR_DIR,
    symbol: Annotated[list[str] | None, option("Only orders of this instrument (repeatable).", unset="all")] = None,
) -> None:
    """Cancel the orders of an account.

    Examples:

    levelcast floor cancel ann

    levelcast floor cancel ann --symbol IBM
    """
    found = operate(data, "cancel", account=account, symbols=symbol or [])
    typer.echo(f"{found['cancelled']} orders of {account} are cancelled")


@app.command()
def status(data: FloorDir = FLOOR_DIR, as_json: AsJson = False) -> None:
    """Show the sessions, instruments and counts of the running floor.

    Examples:

    levelcast floor status

    levelcast floor status --json
    """
    found = ask_floor(data, {"op": "status"})
    if as_json:
        print_json(found)
        return
    host, port = found["address"]
    typer.echo(f"gateway at {host}:{port}, sequence {found['sequence']:,}, {found['live_orders']:,} live orders")
    for comp_id, session in found["sessions"].items():
        typer.echo(f"  session {comp_id}: {session['state']}, next {session['next_in']} in, {session['next_out']} out")
    for symbol, listed in found["instruments"].items():
        typer.echo(f"  instrument {symbol}: id {listed['id']}, phase {listed['phase']}")

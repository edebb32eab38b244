"""`levelcast trade`: trade on a floor from the terminal."""

from __future__ import annotations

import asyncio
import os
import shlex
import ssl
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from levelcast.cli.options import option
from levelcast.client.trader import TIMES_IN_FORCE, BookView, TradeOrder, Trader, TradeReport
from levelcast.errors import UserError

PASSWORD_VARIABLE = "LEVELCAST_PASSWORD"
_HELP = """buy|sell SYMBOL SIZE [PRICE] [ioc|fok|gtc|...]   place an order; without a price, a market order
replace ID SIZE [PRICE]     change an order; ID is the number at the beginning of its line
cancel ID | cancel all      cancel orders
orders                      live orders
positions                   balances and positions
book SYMBOL                 the five best levels
instruments                 symbols of the floor
quit"""


def trade(
    comp_id: Annotated[str, typer.Argument(metavar="COMPID", help="CompID of the login.")],
    address: Annotated[str, option("Address of the gateway.", metavar="HOST:PORT")] = "127.0.0.1:9878",
    floor: Annotated[str, option("CompID of the gateway.")] = "FLOOR",
    account: Annotated[str, option("Account of orders.", unset="the first one of the login")] = "",
    password_file: Annotated[
        Path | None, option("File with the password.", metavar="FILE", unset=f"${PASSWORD_VARIABLE}, or a prompt")
    ] = None,
    tls: Annotated[bool, option("Use TLS, with the certificates that this machine trusts.", "--tls")] = False,
    ca: Annotated[
        Path | None, option("Use TLS, with this certificate authority.", metavar="FILE", unset="none")
    ] = None,
    command: Annotated[
        list[str] | None, option("Run this command and exit (repeatable).", "--command", "-c", unset="interactive")
    ] = None,
) -> None:
    """Trade on a floor: place, cancel and replace orders; watch orders and positions.

    Reports are printed as they arrive. Type "help" for the commands.

    Examples:

    levelcast trade ANN

    levelcast trade ANN -c "buy IBM 100 181.52" -c orders
    """
    context = ssl.create_default_context(cafile=str(ca)) if ca is not None else tls
    password = _password(password_file)
    asyncio.run(_trade(Trader(address, comp_id, password, floor=floor, account=account, tls=context), command))


def _password(path: Path | None) -> str:
    if path is not None:
        return path.read_text(encoding="utf-8").partition("\n")[0].rstrip("\r")
    if PASSWORD_VARIABLE in os.environ:
        return os.environ[PASSWORD_VARIABLE]
    return str(typer.prompt("Password", hide_input=True))


async def _trade(trader: Trader, commands: list[str] | None) -> None:
    async with trader:
        terminal = TradeTerminal(trader)
        printer = asyncio.create_task(terminal.print_reports())
        try:
            if commands:
                for line in commands:
                    await terminal.run(line)
                await asyncio.sleep(0.05)  # reports of the last command
            else:
                await terminal.read()
        finally:
            printer.cancel()


class TradeTerminal:
    """Commands of a line each."""

    def __init__(self, trader: Trader) -> None:
        self.trader = trader
        self._numbers: dict[str, int] = {}
        """Short numbers of orders by the floor's number."""

    async def print_reports(self) -> None:
        async for report in self.trader:
            typer.echo(self._line(report))

    async def read(self) -> None:
        loop = asyncio.get_running_loop()
        typer.echo('logged on; type "help" for the commands')
        while True:
            line = await loop.run_in_executor(None, sys.stdin.readline)
            if not line or line.strip() in ("quit", "exit"):
                return
            await self.run(line)

    async def run(self, line: str) -> None:
        """Run a command; an error is one line."""
        try:
            words = shlex.split(line)
            if not words:
                return
            handler = self._handlers.get(words[0])
            if handler is None:
                raise UserError(f'"{words[0]}" is not a command; type help')
            await handler(self, words)
        except (UserError, ValueError, IndexError) as error:
            typer.echo(f"{type(error).__name__ if isinstance(error, IndexError) else 'error'}: {error}", err=True)

    def _line(self, report: TradeReport) -> str:
        order = report.order
        done = f" {report.size} at {report.price}" if report.size else ""
        text = f" ({report.text})" if report.text else ""
        return f"{self._number(order):>4} {report.kind}{done}: {self._shown(order)}{text}"

    def _number(self, order: TradeOrder) -> int:
        return self._numbers.setdefault(order.floor_id or order.id, len(self._numbers) + 1)

    def _shown(self, order: TradeOrder) -> str:
        price = f" at {order.price}" if order.price is not None else ""
        return f"{order.side} {order.symbol} {order.size}{price}, filled {order.filled}, left {order.left}"

    def _order(self, text: str) -> TradeOrder:
        for order in self.trader.orders.values():
            if str(self._number(order)) == text:
                return order
        raise UserError(f"order {text} is not live")

    async def _place(self, words: list[str]) -> None:
        side, symbol, size, *rest = words
        force = next((word for word in rest if word in TIMES_IN_FORCE), "day")
        price = next((word for word in rest if word not in TIMES_IN_FORCE), None)
        self.trader.submit(symbol, "buy" if side == "buy" else "sell", int(size), price, time_in_force=force)
        await asyncio.sleep(0.02)

    async def _replace(self, words: list[str]) -> None:
        await self.trader.replace(self._order(words[1]), int(words[2]), words[3] if len(words) > 3 else None)

    async def _cancel(self, words: list[str]) -> None:
        if words[1] == "all":
            typer.echo(f"{await self.trader.cancel_all()} orders cancelled")
        else:
            await self.trader.cancel(self._order(words[1]))

    async def _orders(self, words: list[str]) -> None:
        for order in self.trader.orders.values():
            typer.echo(f"{self._number(order):>4} {self._shown(order)}")

    async def _positions(self, words: list[str]) -> None:
        for each in await self.trader.positions():
            typer.echo(f"{each.asset:>8} {each.amount:>20,} reserved {each.reserved:,}")

    async def _book(self, words: list[str]) -> None:
        view = self.trader.books.get(words[1]) or await self.trader.watch(words[1])
        typer.echo(book_text(view))

    async def _instruments(self, words: list[str]) -> None:
        typer.echo(" ".join(await self.trader.instruments()))

    async def _help(self, words: list[str]) -> None:
        typer.echo(_HELP)

    _handlers: ClassVar[dict[str, Callable[[TradeTerminal, list[str]], Awaitable[None]]]] = {
        "buy": _place, "sell": _place, "replace": _replace, "cancel": _cancel, "orders": _orders,
        "positions": _positions, "book": _book, "instruments": _instruments, "help": _help,
    }  # fmt: skip


def book_text(view: BookView, levels: int = 5) -> str:
    """Return the best levels of a book, asks above bids."""
    asks = sorted(view.asks.items())[:levels]
    bids = sorted(view.bids.items(), reverse=True)[:levels]
    rows = [f"{'':>10} {price:>12} {size:>10,}" for price, size in reversed(asks)]
    rows += [f"{size:>10,} {price:>12}" for price, size in bids]
    return "\n".join(rows) or "no orders"

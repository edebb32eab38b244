"""Trade on a floor from a program: `levelcast.Trader`, over FIX 4.4.

    async with levelcast.Trader("127.0.0.1:9878", "ANN", password) as trader:
        order = await trader.place("IBM", "buy", 300, "181.52")
        async for report in trader:
            print(report.kind, report.order, report.size, report.price)

- `place`, `replace` and `cancel` return when the floor has decided; a refusal is an `OrderRefused`. `submit` does not
  wait. Reports of all orders come from the iterator, in the order of the floor; `orders` has the live orders.
- Without `journal`, message numbers begin at 1 with every logon, and orders that are live from an earlier logon are
  asked for. With `journal`, a file, the session continues where it was: what the floor sent in between is delivered,
  each report once, and a lost connection is opened again.
- Prices are decimal text, Decimal or int; a float is used with its shortest text.
- Everything runs in the caller's event loop, without threads.
"""

from __future__ import annotations

import asyncio
import secrets
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple

from levelcast.client.trader_journal import TraderJournal
from levelcast.errors import NetError, UserError
from levelcast.market.fix.config import SessionConfig
from levelcast.market.fix.effects import Close, DeliverMessage, Effects, LoggedOn, LoggedOut, PersistEntry, SendBytes
from levelcast.market.fix.journal import SessionImage
from levelcast.market.fix.reader import Message
from levelcast.market.fix.session import FixSession
from levelcast.market.fix.values import time_text
from levelcast.market.fix.writer import Pairs, encode_fields

Side = Literal["buy", "sell"]
Price = str | int | float | Decimal

_SIDES = {"buy": b"1", "sell": b"2"}
_NAMES = {b"1": "buy", b"2": "sell", b"5": "sell"}
_TYPES = {(False, False): b"1", (True, False): b"2", (False, True): b"3", (True, True): b"4"}
"""OrdType by whether there is a price and a stop price."""
TIMES_IN_FORCE = {"day": b"0", "gtc": b"1", "open": b"2", "ioc": b"3", "fok": b"4", "close": b"7"}
_KINDS = {
    b"A": "received", b"0": "accepted", b"F": "fill", b"4": "cancelled", b"5": "replaced", b"8": "refused",
    b"C": "expired", b"D": "restated", b"H": "bust", b"L": "triggered", b"6": "cancel received",
    b"E": "replace received", b"I": "status",
}  # fmt: skip
_OVER = frozenset((b"2", b"4", b"8", b"C"))
"""OrdStatus of an order that is over."""
_CONNECT_S, _ANSWER_S = 10.0, 30.0
_AGAIN_S = 0.2


class OrderRefused(UserError):
    """The floor or its gateway refused a request; the text is the floor's."""


@dataclass(slots=True)
class TradeOrder:
    """An order as the last report left it."""

    id: str
    """ClOrdID of the last request that was accepted."""
    symbol: str
    side: str
    size: int
    price: Decimal | None
    account: str = ""
    floor_id: str = ""
    """The gateway's number of the order."""
    public_id: int = 0
    """Its number in the public order feed."""
    filled: int = 0
    left: int = 0
    average: Decimal = Decimal(0)
    is_live: bool = False
    refusal: str = ""


class TradeReport(NamedTuple):
    """One ExecutionReport."""

    kind: str
    order: TradeOrder
    exec_id: str
    size: int
    """Of a fill or bust, else 0."""
    price: Decimal
    text: str
    is_copy: bool = False


class AccountBalance(NamedTuple):
    account: str
    asset: str
    amount: Decimal
    reserved: Decimal


@dataclass(slots=True)
class BookView:
    """Price levels of an instrument, best first."""

    bids: dict[Decimal, int] = field(default_factory=dict)
    asks: dict[Decimal, int] = field(default_factory=dict)
    last: Decimal | None = None

    @property
    def bid(self) -> Decimal | None:
        return max(self.bids, default=None)

    @property
    def ask(self) -> Decimal | None:
        return min(self.asks, default=None)


class Trader:
    """A FIX session with a floor; see the module docstring."""

    def __init__(
        self,
        address: str,
        comp_id: str,
        password: str,
        *,
        floor: str = "FLOOR",
        account: str = "",
        journal: str | PathLike[str] | None = None,
        tls: ssl.SSLContext | bool = False,
        heartbeat_s: int = 30,
    ) -> None:
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise ValueError(f'address "{address}" is not HOST:PORT')
        self.address = (host, int(port))
        self.account = account
        self.orders: dict[str, TradeOrder] = {}
        """Live orders by ClOrdID."""
        self.books: dict[str, BookView] = {}
        """Of the instruments that `watch` follows."""
        self._tls = ssl.create_default_context() if tls is True else tls or None
        self._journal = TraderJournal(Path(journal)) if journal is not None else None
        config = SessionConfig(
            sender=comp_id.encode(), target=floor.encode(), initiator=True, heartbeat_s=heartbeat_s,
            reset_on_logon=self._journal is None, username=comp_id.encode(), password=password.encode(),
        )  # fmt: skip
        self._session = FixSession(config, self._journal.image() if self._journal else SessionImage())
        self._writer: asyncio.StreamWriter | None = None
        self._task: asyncio.Task[None] | None = None
        self._logged_on = asyncio.Event()
        self._answers: dict[str, asyncio.Future[list[Message]]] = {}
        self._parts: dict[str, list[Message]] = {}
        self._waiting: dict[str, asyncio.Future[TradeOrder]] = {}
        self._reports: deque[TradeReport] = deque()
        self._changed = asyncio.Event()
        self._moved = asyncio.Event()
        self._closing = False
        self._error: NetError | None = None
        self._count = 0
        self._prefix = f"{time.time_ns() // 1_000_000:x}{secrets.token_hex(2)}"
        """ClOrdIDs are never used again, also by a later program."""

    # Connection

    async def __aenter__(self) -> Trader:
        self._task = asyncio.create_task(self._run())
        waiter = asyncio.create_task(self._logged_on.wait())
        await asyncio.wait((waiter, self._task), timeout=_CONNECT_S, return_when=asyncio.FIRST_COMPLETED)
        waiter.cancel()
        if not self._logged_on.is_set():
            await self.close()
            raise self._error or NetError(f"{self._where}: the floor does not answer the logon")
        if self._journal is None:
            await self.refresh()
        return self

    async def __aexit__(self, *unused: object) -> None:
        await self.close()

    @property
    def _where(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"

    async def close(self) -> None:
        """Log out and close the connection. Live orders stay, unless the login cancels on disconnect."""
        self._closing = True
        if self._logged_on.is_set():
            self._perform(self._session.logout(time.time_ns()))
            with suppress(TimeoutError):
                async with asyncio.timeout(5):
                    while self._session.connected:
                        await asyncio.sleep(0.005)
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        if self._journal is not None:
            self._journal.close()

    async def _run(self) -> None:
        """Keep the connection; without a journal, until it is lost."""
        while not self._closing:
            try:
                await self._connect()
            except (OSError, ssl.SSLError) as error:
                self._fail(NetError(f"{self._where}: cannot connect ({error}); check that the floor runs"))
            if self._journal is None:
                break
            await asyncio.sleep(_AGAIN_S)
        self._changed.set()

    async def _connect(self) -> None:
        reader, self._writer = await asyncio.open_connection(*self.address, ssl=self._tls)
        session = self._session
        try:
            self._perform(session.connect(time.time_ns()))
            while session.connected:
                wake = session.wake_ns
                timeout = None if wake is None else max(0.0, (wake - time.time_ns()) / 1e9)
                try:
                    async with asyncio.timeout(timeout):
                        data = await reader.read(65_536)
                except TimeoutError:
                    self._perform(session.step(time.time_ns()))
                    continue
                if not data:
                    break
                self._perform(session.receive(data, time.time_ns()))
        finally:
            self._perform(session.disconnected(time.time_ns()))
            self._logged_on.clear()
            self._writer.close()
            self._writer = None
            if self._journal is None or not self._closing:
                self._fail(self._error or NetError(f"{self._where}: the connection is lost"))

    def _fail(self, error: NetError) -> None:
        self._error = error
        if self._journal is not None and not self._closing:
            return
        futures: list[asyncio.Future[Any]] = [*self._waiting.values(), *self._answers.values()]
        for future in futures:
            if not future.done():
                future.set_exception(error)
                future.exception()  # it may have no reader
        self._waiting.clear()
        self._answers.clear()

    def _perform(self, effects: Effects) -> None:
        for effect in effects:
            if isinstance(effect, PersistEntry):
                if self._journal is not None:
                    self._journal.append(effect.entry)
            elif isinstance(effect, SendBytes):
                if self._writer is not None:
                    self._writer.write(effect.data)
            elif isinstance(effect, DeliverMessage):
                self._on_message(effect.message)
            elif isinstance(effect, LoggedOn):
                self._error = None
                self._logged_on.set()
            elif isinstance(effect, LoggedOut | Close) and not self._closing:
                self._error = NetError(f"{self._where}: {effect.reason}")

    def _send(self, kind: bytes, pairs: Pairs) -> None:
        if self._journal is None and not self._logged_on.is_set():
            raise self._error or NetError(f"{self._where}: not logged on")
        self._perform(self._session.send(kind, encode_fields(pairs), time.time_ns()))

    # Orders

    def submit(
        self, symbol: str, side: Side, size: int, price: Price | None = None, *, stop: Price | None = None,
        time_in_force: str = "day", post_only: bool = False, account: str = "",
    ) -> TradeOrder:  # fmt: skip
        """Send an order without waiting for the answer, and return it."""
        order = TradeOrder(self._next_id(), symbol, side, size, None if price is None else _decimal(price), left=size)
        pairs: list[tuple[int, bytes]] = [(11, order.id.encode()), *self._account(account), (21, b"1")]
        if post_only:
            pairs.append((18, b"6"))
        pairs += [(38, b"%d" % size), (40, _TYPES[price is not None, stop is not None])]
        pairs += [(44, _text(price))] if price is not None else []
        pairs += [(54, _SIDES[side]), (55, symbol.encode()), (59, TIMES_IN_FORCE[time_in_force])]
        pairs += [(60, time_text(time.time_ns()))] + ([(99, _text(stop))] if stop is not None else [])
        self.orders[order.id] = order
        self._send(b"D", pairs)
        return order

    async def place(
        self, symbol: str, side: Side, size: int, price: Price | None = None, *, stop: Price | None = None,
        time_in_force: str = "day", post_only: bool = False, account: str = "",
    ) -> TradeOrder:  # fmt: skip
        """Place an order: a limit order with a price, else a market order; return it when the floor has accepted it."""
        order = self.submit(
            symbol, side, size, price, stop=stop, time_in_force=time_in_force, post_only=post_only, account=account
        )
        return await self._answer_to(order.id)

    async def replace(
        self, order: TradeOrder, size: int, price: Price | None = None, *, stop: Price | None = None
    ) -> TradeOrder:
        """Change size and price of an order. The size is the new total, filled part included."""
        name = self._next_id()
        wanted = price if price is not None else order.price
        pairs: list[tuple[int, bytes]] = [(41, order.id.encode()), (11, name.encode()), *self._account(order.account)]
        pairs += [(38, b"%d" % size), (40, _TYPES[wanted is not None, stop is not None])]
        pairs += [(44, _text(wanted))] if wanted is not None else []
        pairs += [(54, _SIDES[order.side]), (55, order.symbol.encode()), (60, time_text(time.time_ns()))]
        pairs += [(99, _text(stop))] if stop is not None else []
        self._send(b"G", pairs)
        return await self._answer_to(name)

    async def cancel(self, order: TradeOrder) -> TradeOrder:
        """Cancel an order."""
        name = self._next_id()
        self._send(
            b"F",
            [
                (41, order.id.encode()), (11, name.encode()), (38, b"%d" % order.size), (54, _SIDES[order.side]),
                (55, order.symbol.encode()), (60, time_text(time.time_ns())),
            ],
        )  # fmt: skip
        return await self._answer_to(name)

    async def cancel_all(self, symbol: str | None = None) -> int:
        """Cancel all orders of the session's accounts; return how many there were."""
        name = self._next_id()
        pairs = [(11, name.encode()), (530, b"1" if symbol else b"7")]
        pairs += [(55, symbol.encode())] if symbol else []
        (message,) = await self._ask(name, b"q", [*pairs, (60, time_text(time.time_ns()))])
        if message.get(531) == b"0":
            raise OrderRefused(message.get(58).decode())
        return int(message.get(533) or 0)

    async def refresh(self) -> list[TradeOrder]:
        """Ask for the live orders of the session, and return them."""
        name = self._next_id()
        await self._ask(name, b"AF", [(584, name.encode()), (585, b"7")])
        return list(self.orders.values())

    # Questions

    async def instruments(self) -> list[str]:
        """Return the symbols of the floor."""
        name = self._next_id()
        (message,) = await self._ask(name, b"x", [(320, name.encode()), (559, b"4")])
        return [value.decode() for entry in message.group(146) if isinstance(value := entry.get(55), bytes)]

    async def positions(self, account: str = "") -> list[AccountBalance]:
        """Return balances and positions, of all accounts by default: `amount` is all of it, `reserved` is in orders."""
        name, now = self._next_id(), time_text(time.time_ns())
        party: list[dict[int, object]] = [{448: b"1", 447: b"D", 452: b"24"}]
        pairs: Pairs = [
            (710, name.encode()), (724, b"0"), (453, party), (1, (account or self.account or "*").encode()),  # type: ignore[list-item]
            (581, b"1"), (715, now[:8]), (60, now),
        ]  # fmt: skip
        messages = await self._ask(name, b"AN", pairs)
        return [_position(message) for message in messages if message.type == b"AP"]

    async def watch(self, symbol: str, depth: int = 0) -> BookView:
        """Follow the book of an instrument: the view is updated as frames are matched; `moved` waits for a change."""
        name = f"{self._next_id()}"
        view = self.books.setdefault(symbol, BookView())
        types: list[dict[int, object]] = [{269: b"0"}, {269: b"1"}, {269: b"2"}]
        await self._ask(
            name,
            b"V",
            [
                (262, name.encode()), (263, b"1"), (264, b"%d" % depth), (265, b"1"), (267, types),  # type: ignore[list-item]
                (146, [{55: symbol.encode()}]),
            ],
        )  # fmt: skip
        return view

    async def moved(self) -> None:
        """Wait until a book that is watched changes."""
        self._moved.clear()
        await self._moved.wait()

    # Reports

    def __aiter__(self) -> AsyncIterator[TradeReport]:
        return self

    async def __anext__(self) -> TradeReport:
        while not self._reports:
            if self._closing or self._task is None or self._task.done():
                if self._error is not None and not self._closing:
                    raise self._error
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        return self._reports.popleft()

    # Messages

    def _on_message(self, message: Message) -> None:
        kind = message.type
        if kind == b"8":
            self._on_execution(message)
        elif kind == b"9":
            self._settle(message.get(11).decode(), OrderRefused(message.get(58).decode() or "refused"))
        elif kind in (b"W", b"X"):
            self._on_market_data(message)
        elif kind in _REQUEST_TAGS:
            self._on_reply(message.get(_REQUEST_TAGS[kind]).decode(), message)
        elif kind == b"j":
            error = OrderRefused(message.get(58).decode() or "refused")
            for future in list(self._answers.values())[:1]:
                if not future.done():
                    future.set_exception(error)

    def _on_execution(self, message: Message) -> None:
        get = message.get
        name, status, exec_type = get(11).decode(), get(39), get(150)
        original = get(41).decode()
        is_copy = get(797) == b"Y"
        order = self.orders.get(original or name) or self.orders.get(name)
        if order is None:
            order = TradeOrder(name, get(55).decode(), _NAMES.get(get(54), ""), int(get(38) or 0), None)
        _update(order, message)
        if exec_type == b"5":
            self.orders.pop(original, None)
            order.id = name
        if status in _OVER or is_copy:
            self.orders.pop(order.id, None)
        else:
            self.orders[order.id] = order
        if get(37) == b"NONE":
            self.orders.pop(name, None)
        if exec_type != b"I":
            kind = _KINDS.get(exec_type, exec_type.decode())
            self._reports.append(
                TradeReport(
                    kind, order, get(17).decode(), int(get(32) or 0), Decimal((get(31) or b"0").decode()),
                    get(58).decode(), is_copy,
                )
            )  # fmt: skip
            self._changed.set()
        if get(912) == b"Y":
            self._on_reply(get(584).decode(), message)
        if exec_type == b"8":
            order.refusal = get(58).decode()
            self._settle(name, OrderRefused(order.refusal or "refused"))
        elif exec_type not in (b"A", b"6", b"E", b"I"):
            self._settle(name, order)

    def _settle(self, name: str, result: TradeOrder | OrderRefused) -> None:
        future = self._waiting.pop(name, None)
        if future is None or future.done():
            return
        if isinstance(result, OrderRefused):
            future.set_exception(result)
        else:
            future.set_result(result)

    def _on_market_data(self, message: Message) -> None:
        if message.type == b"W":
            view = self.books.setdefault(message.get(55).decode(), BookView())
            view.bids.clear()
            view.asks.clear()
        for entry in message.group(268):
            values = {tag: value for tag, value in entry.items() if isinstance(value, bytes)}
            symbol = (values.get(55) or message.get(55)).decode()
            _apply_entry(self.books.setdefault(symbol, BookView()), values)
        self._moved.set()
        self._on_reply(message.get(262).decode(), message)

    def _on_reply(self, name: str, message: Message) -> None:
        """Collect the messages of an answer, whose last part completes it."""
        future = self._answers.get(name)
        if future is None or future.done():
            return
        parts = self._parts.setdefault(name, [])
        parts.append(message)
        if message.type == b"AO" and message.get(727) not in (b"", b"0"):
            return
        if message.type == b"AP" and len(parts) <= int(message.get(727)):
            return
        del self._parts[name]
        future.set_result(parts)

    async def _ask(self, name: str, kind: bytes, pairs: Pairs) -> list[Message]:
        future: asyncio.Future[list[Message]] = asyncio.get_running_loop().create_future()
        self._answers[name] = future
        try:
            self._send(kind, pairs)
            async with asyncio.timeout(_ANSWER_S):
                found = await future
        except TimeoutError:
            raise NetError(f"{self._where}: the floor does not answer") from None
        finally:
            self._answers.pop(name, None)
        if found[0].type == b"Y":
            raise OrderRefused(found[0].get(58).decode() or "refused")
        return found

    async def _answer_to(self, name: str) -> TradeOrder:
        future: asyncio.Future[TradeOrder] = asyncio.get_running_loop().create_future()
        self._waiting[name] = future
        try:
            async with asyncio.timeout(_ANSWER_S):
                return await future
        except TimeoutError:
            raise NetError(f"{self._where}: the floor does not answer") from None
        finally:
            self._waiting.pop(name, None)

    def _next_id(self) -> str:
        self._count += 1
        return f"{self._prefix}-{self._count}"

    def _account(self, account: str) -> list[tuple[int, bytes]]:
        name = account or self.account
        return [(1, name.encode())] if name else []


_REQUEST_TAGS = {b"y": 320, b"AO": 710, b"AP": 710, b"r": 11, b"Y": 262}
"""The tag of the request's identifier by the type of the answer."""


def _update(order: TradeOrder, message: Message) -> None:
    get = message.get
    order.floor_id, order.public_id = get(37).decode(), int(get(198) or order.public_id)
    order.account = get(1).decode() or order.account
    order.filled, order.left = int(get(14)), int(get(151))
    order.average = Decimal(get(6).decode())
    order.size = int(get(38) or order.size)
    if get(44):
        order.price = Decimal(get(44).decode())
    order.is_live = get(39) in (b"0", b"1", b"6", b"E")


def _apply_entry(view: BookView, values: dict[int, bytes]) -> None:
    if 270 not in values:
        return
    price, size = Decimal(values[270].decode()), int(values.get(271, b"0"))
    if values[269] == b"2":
        view.last = price
        return
    side = view.bids if values[269] == b"0" else view.asks
    if values.get(279) == b"2" or not size:
        side.pop(price, None)
    else:
        side[price] = size


def _position(message: Message) -> AccountBalance:
    amounts = {
        bytes(kind): Decimal(bytes(value).decode())
        for entry in message.group(753)
        if isinstance(kind := entry.get(707), bytes) and isinstance(value := entry.get(708), bytes)
    }
    reserved = amounts.get(b"CRES", Decimal(0))
    symbol = message.get(55)
    if not symbol:
        return AccountBalance(
            message.get(1).decode(), message.get(15).decode(), amounts.get(b"CASH", Decimal(0)) + reserved, reserved
        )
    held = message.group(702)[0]
    long, short = held.get(704), held.get(705)
    amount = Decimal(bytes(long).decode()) if isinstance(long, bytes) else -Decimal(bytes(short).decode())  # type: ignore[arg-type]
    return AccountBalance(message.get(1).decode(), symbol.decode(), amount, reserved)


def _decimal(price: Price) -> Decimal:
    return Decimal(repr(price)) if isinstance(price, float) else Decimal(price)


def _text(price: Price) -> bytes:
    return f"{_decimal(price):f}".encode()

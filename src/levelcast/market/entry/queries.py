"""Replies to queries: status of orders (H, AF), instruments (x), trading status (e), positions and balances (AN).

A reply describes the state after the last frame that was applied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from levelcast.market.entry import reports
from levelcast.market.entry.listing import InstrumentList, Listed
from levelcast.market.entry.order_state import OrderRegistry, OrderState
from levelcast.market.entry.requests import ACCOUNT, CL_ORD_ID, SIDE, SYMBOL, account_of, instrument_of
from levelcast.market.entry.rights import TradingAccount, TradingLogin
from levelcast.market.entry.values import EntryRefused, OrderRejectReason, price_text
from levelcast.market.fix.reader import Message
from levelcast.market.fix.writer import encode_fields
from levelcast.native.book_codes import BookPhase
from levelcast.native.pure_book_snapshot import BALANCE

Replies = list[tuple[bytes, bytes]]
"""MsgType and body of each."""

STATUS_REQUEST_ID, MASS_STATUS_ID, MASS_STATUS_TYPE = 790, 584, 585
ACCOUNT_TYPE, ALL_ACCOUNTS = 581, b"*"
LIST_REQUEST_ID, LIST_TYPE, STATUS_ID, SUBSCRIPTION, POSITION_ID = 320, 559, 324, 263, 710

TRADING_STATUS: dict[int, int] = {
    BookPhase.PRE_OPEN: 21, BookPhase.PRE_CROSS: 21, BookPhase.CROSS: 5, BookPhase.TRADING: 17, BookPhase.HALT: 2,
    BookPhase.PAUSE: 2, BookPhase.PRE_CLOSE: 21, BookPhase.CLOSE: 18, BookPhase.UNAVAILABLE: 18,
}  # fmt: skip
"""SecurityTradingStatus (FIX 326) by phase."""


class Queries:
    def __init__(self, registry: OrderRegistry, listing: InstrumentList, balances: Callable[[], bytes]) -> None:
        self._registry, self._listing, self._balances = registry, listing, balances
        self.watchers: dict[int, dict[bytes, set[int]]] = {}
        """Instruments whose trading status a session follows, by session and SecurityStatusReqID."""
        self._handlers: dict[bytes, Callable[[TradingLogin, Message, bytes], Replies]] = {
            b"H": self._order_status,
            b"AF": self._mass_status,
            b"x": self._security_list,
            b"e": self._security_status,
            b"AN": self._positions,
        }

    def reply(self, login: TradingLogin, message: Message, time: bytes) -> Replies | None:
        """Return the replies to a query; None if the message is not one."""
        handler = self._handlers.get(message.type)
        return None if handler is None else handler(login, message, time)

    def forget(self, session: int) -> None:
        """End the subscriptions of a session."""
        self.watchers.pop(session, None)

    # Orders

    def _order_status(self, login: TradingLogin, message: Message, time: bytes) -> Replies:
        text = message.get(CL_ORD_ID)
        order = self._registry.find(login.number, text)
        request = message.get(STATUS_REQUEST_ID)
        more = b"790=%b\x01" % request if request else b""
        if order is not None:
            return [(b"8", _status(order, time, more))]
        body = reports.refused_order(
            text, message.get(SYMBOL) or b"N/A", message.get(SIDE), b"", b"0", OrderRejectReason.UNKNOWN_ORDER,
            b"unknown order", time, exec_type=b"I",
        )  # fmt: skip
        return [(b"8", body + more)]

    def _mass_status(self, login: TradingLogin, message: Message, time: bytes) -> Replies:
        request, kind = message.get(MASS_STATUS_ID), message.get(MASS_STATUS_TYPE)
        orders = self._registry.open_orders(login.number)
        if kind == b"1":
            orders = [order for order in orders if order.symbol == message.get(SYMBOL)]
        elif kind != b"7":
            raise EntryRefused(0, "MassStatusReqType is not 1 (instrument) or 7 (all)")
        replies = []
        for count, order in enumerate(orders, 1):
            last = b"Y" if count == len(orders) else b"N"
            more = b"584=%b\x01911=%d\x01912=%b\x01" % (request, len(orders), last)
            replies.append((b"8", _status(order, time, more)))
        if replies:
            return replies
        body = reports.refused_order(
            b"NONE", message.get(SYMBOL) or b"N/A", b"1", b"", b"0", OrderRejectReason.UNKNOWN_ORDER, b"no live orders",
            time, exec_type=b"I",
        )  # fmt: skip
        return [(b"8", body + b"584=%b\x01911=0\x01912=Y\x01" % request)]

    # Instruments

    def _security_list(self, login: TradingLogin, message: Message, time: bytes) -> Replies:
        request, kind = message.get(LIST_REQUEST_ID), message.get(LIST_TYPE)
        found = [each for _, each in sorted(self._listing.by_symbol.items())]
        if kind == b"0":
            found = [each for each in found if each.symbol == message.get(SYMBOL)]
        elif kind != b"4":
            raise EntryRefused(0, "SecurityListRequestType is not 0 (symbol) or 4 (all)")
        result = 0 if found else 2
        head = b"320=%b\x01322=%b\x01560=%d\x01393=%d\x01" % (request, request, result, len(found))
        entries = b"146=%d\x01%b" % (len(found), b"".join(map(_listed, found))) if found else b""
        return [(b"y", head + entries)]

    def _security_status(self, login: TradingLogin, message: Message, time: bytes) -> Replies:
        request, kind = message.get(STATUS_ID), message.get(SUBSCRIPTION)
        listed = instrument_of(message, self._listing)
        mine = self.watchers.setdefault(login.number, {})
        if kind == b"2":
            mine.pop(request, None)
            return []
        if kind == b"1":
            mine.setdefault(request, set()).add(listed.id)
        return [(b"f", self._status(request, listed, time, unsolicited=False))]

    def _status(self, request: bytes, listed: Listed, time: bytes, *, unsolicited: bool) -> bytes:
        state = self._listing.phases[listed.id]
        last = b"31=%b\x01" % price_text(state.last) if state.last else b""
        status = TRADING_STATUS.get(state.phase, 20)
        return b"324=%b\x0155=%b\x01325=%b\x01326=%d\x01%b60=%b\x01" % (
            request, listed.symbol, b"Y" if unsolicited else b"N", status, last, time,
        )  # fmt: skip

    def phase_changes(self, instruments: set[int], time: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield the SecurityStatus of changed instruments with the sessions that follow them."""
        for session, mine in self.watchers.items():
            for request, followed in mine.items():
                for instrument in sorted(followed & instruments):
                    listed = self._listing.by_id[instrument]
                    yield session, self._status(request, listed, time, unsolicited=True)

    # Positions and balances

    def _positions(self, login: TradingLogin, message: Message, time: bytes) -> Replies:
        """Return the balances of an account, or of all accounts of the session for the Account `*`."""
        every = message.get(ACCOUNT) == ALL_ACCOUNTS and bool(login.accounts)
        accounts = login.accounts if every else (account_of(message, login),)
        request, kind = message.get(POSITION_ID), message.get(ACCOUNT_TYPE)
        found = [body for each in accounts for body in self._reports(each, request, kind, message, time)]
        ack = b"721=%b\x01710=%b\x01727=%d\x01728=%d\x01729=0\x01%b1=%b\x01581=%b\x01" % (
            request, request, len(found), 0 if found else 2, _parties(accounts[0]), message.get(ACCOUNT), kind,
        )  # fmt: skip
        return [(b"AO", ack), *((b"AP", body % len(found)) for body in found)]

    def _reports(
        self, account: TradingAccount, request: bytes, kind: bytes, message: Message, time: bytes
    ) -> Iterator[bytes]:
        day = message.get(715) or time[:8]
        for count, (key, free, reserved) in enumerate(self._assets(account.number), 1):
            listed = self._listing.by_id.get(key)
            amount = free + reserved
            if listed is not None:
                name = b"55=%b\x0115=%b\x01" % (listed.symbol, listed.currency)
                sides = b"704=%d\x01" % amount if amount >= 0 else b"705=%d\x01" % -amount
                last = price_text(self._listing.phases[key].last)
                held = b"702=1\x01703=TOT\x01%b753=1\x01707=CRES\x01708=%d\x01" % (sides, reserved)
            else:
                currency = (key & 0xFFFFFFFF).to_bytes(4, "little").rstrip(b"\0")
                name, last = b"15=%b\x01" % currency, b"0"
                held = b"702=1\x01703=TOT\x01704=0\x01753=2\x01707=CASH\x01708=%b\x01707=CRES\x01708=%b\x01" % (
                    price_text(free), price_text(reserved),
                )  # fmt: skip
            request_id = request.replace(b"%", b"%%")
            head = b"721=%b.%d.%d\x01710=%b\x01727=%%d\x01728=0\x01715=%b\x01" % (
                request_id, account.number, count, request_id, day,
            )  # fmt: skip
            yield b"%b%b1=%b\x01581=%b\x01%b730=%b\x01731=1\x01734=%b\x01%b" % (
                head, _parties(account), account.name.encode(), kind, name, last, last, held,
            )  # fmt: skip

    def _assets(self, account: int) -> Iterator[tuple[int, int, int]]:
        """Yield key, free and reserved of the balances of an account."""
        keys = self._listing.assets
        for number, asset, _, _, free, reserved in BALANCE.iter_unpack(self._balances()):
            if number == account:
                yield keys[asset], int.from_bytes(free, "little", signed=True), int.from_bytes(reserved, "little")


def _parties(account: TradingAccount) -> bytes:
    return b"453=1\x01448=%d\x01447=D\x01452=24\x01" % account.owner


def _status(order: OrderState, time: bytes, more: bytes) -> bytes:
    return reports.execution(order, b"0", b"I", time, more=more)


def _listed(each: Listed) -> bytes:
    return encode_fields([(55, each.symbol), (167, each.security_type), (15, each.currency), (561, b"%d" % each.lot)])

"""Events of the engine as reports to the sessions of the orders (T2, T6): a function of the tape and the requests.

`apply` yields (session, MsgType, body, cause) in the order of the events. The cause is twice the number of the event,
plus one for the second message of an event to one session. After a restart the same events yield the same causes, so a
session sends what is above its highest one (G2).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import NamedTuple

from levelcast.market.entry import reports
from levelcast.market.entry.listing import InstrumentList
from levelcast.market.entry.order_state import OrderChange, OrderRegistry, OrderState
from levelcast.market.entry.rights import RightsTable
from levelcast.market.entry.values import cancel_reject, order_reject
from levelcast.market.fix.values import time_text
from levelcast.native.book_codes import EVENT, GATEWAY_BITS, BookReason, EventKind
from levelcast.native.pure_book_ledger import CURRENCY

_IN_AUCTION = 2
_ROW = 5
"""Values of a trade."""
_ADDED, _REMOVED, _AUCTION = 1, 2, 4
"""LastLiquidityInd (FIX 851)."""


class Report(NamedTuple):
    session: int
    type: bytes
    body: bytes
    cause: int


class BookEvent(NamedTuple):
    """One event of the engine."""

    kind: int
    reason: int
    flags: int
    side: int
    instrument: int
    command: int
    account: int
    client: int
    order_id: int
    trade: int
    price: int
    size: int
    left: int


class EventReports:
    def __init__(self, registry: OrderRegistry, listing: InstrumentList, rights: RightsTable, gateway: int) -> None:
        self.registry, self.listing, self.rights, self.gateway = registry, listing, rights, gateway
        self.number = 0
        """Number of the last event."""
        self._fills = array("q")
        """For each trade, by its number: both OrderIDs, the number of the first event, price and size."""
        self._out: list[Report] = []
        self.changed: set[int] = set()
        """Instruments whose phase changed in the last frame."""
        self._time = b""
        self._mass = 0
        """Orders that a mass cancel of several accounts has cancelled so far."""
        self._handlers: dict[int, Callable[[BookEvent], None]] = {
            EventKind.ACCEPTED: self._on_accepted,
            EventKind.WAITING: self._on_accepted,
            EventKind.TRADE: self._on_fill,
            EventKind.FILL: self._on_fill,
            EventKind.CANCELLED: self._on_cancelled,
            EventKind.EXPIRED: self._on_cancelled,
            EventKind.REPLACED: self._on_replaced,
            EventKind.TRIGGERED: self._on_triggered,
            EventKind.REJECTED: self._on_rejected,
            EventKind.MASS_CANCELLED: self._on_mass_cancelled,
            EventKind.BUSTED: self._on_busted,
            EventKind.PHASE: self._on_phase,
            EventKind.DEPOSITED: self._on_deposited,
        }

    def apply(self, events: bytes, timestamp_ns: int) -> list[Report]:
        """Apply the events of a frame; return the reports."""
        out: list[Report] = []
        self._out = out
        self.changed = set()
        self._time = time_text(timestamp_ns)
        handlers, make = self._handlers, BookEvent._make
        for values in EVENT.iter_unpack(events):
            self.number += 1
            handler = handlers.get(values[0])
            if handler is not None:
                handler(make(values))
        return out

    def _order(self, event: BookEvent) -> OrderState | None:
        if event.client >> GATEWAY_BITS != self.gateway:
            return None
        return self.registry.order_of(event.client)

    def _say(self, order: OrderState, body: bytes, part: int = 0) -> None:
        cause = 2 * self.number + part
        self._out.append(Report(order.session, b"8", body, cause))
        if self.rights.copies:
            for session in self.rights.copies.get(order.account, ()):
                if session != order.session:
                    self._out.append(Report(session, b"8", body + reports.COPY_MARK, cause))

    def _account(self, number: int) -> bytes:
        account = self.rights.accounts.get(number)
        return account.name.encode() if account is not None else b"%d" % number

    def _end(self, order: OrderState, status: bytes) -> None:
        order.status, order.left = status, 0
        self.registry.close(order)

    # Events

    def _on_accepted(self, event: BookEvent) -> None:
        order = self._order(event)
        if order is None:
            return
        order.number, order.status, order.left = event.order_id, b"0", event.left
        if not order.fixed:
            order.fix_fields(self._account(order.account))
        self._say(order, reports.execution(order, b"%d" % self.number, b"0", self._time))

    def _on_fill(self, event: BookEvent) -> None:
        order = self._order(event)
        fills = self._fills
        if event.kind == EventKind.TRADE:
            self.listing.phases[event.instrument].last = event.price
            fills.extend((order.id if order else 0, 0, self.number, event.price, event.size))
        elif order is not None:
            fills[_ROW * event.trade - _ROW + 1] = order.id
        if order is None:
            return
        order.filled += event.size
        order.notional += event.price * event.size
        order.left = event.left
        order.status = b"1" if event.left else b"2"
        liquidity = _AUCTION if event.flags & _IN_AUCTION else _REMOVED if event.kind == EventKind.TRADE else _ADDED
        self._say(
            order,
            reports.fill(order, self.number, event.trade, event.price, event.size, liquidity, self._time),
        )
        if not event.left:
            self._end(order, b"2")

    def _on_cancelled(self, event: BookEvent) -> None:
        order = self._order(event)
        if order is None:
            return
        exec_id = b"%d" % self.number
        if event.left:
            self._on_restated(order, event, exec_id)
            return
        expired = event.kind == EventKind.EXPIRED
        text = original = b""
        change = self._answered(order, event.reason)
        if change is not None:
            text, original = change.text, order.text
            self.registry.drop(change)
        why = b"" if change is not None else order_reject(event.reason)[1]
        self._end(order, b"C" if expired else b"4")
        more = b"58=%b\x01" % why if why else b""
        body = reports.execution(
            order, exec_id, order.status, self._time, text=text, original=original, left=0, more=more
        )
        self._say(order, body)

    def _on_restated(self, order: OrderState, event: BookEvent, exec_id: bytes) -> None:
        """Report a part that self-trade prevention cancelled: the order goes on with less (150=D)."""
        order.size -= event.size
        order.left = event.left
        order.fix_fields(self._account(order.account))
        why = order_reject(event.reason)[1]
        more = b"378=5\x0158=%b\x01" % why
        self._say(order, reports.execution(order, exec_id, b"D", self._time, more=more))

    def _answered(self, order: OrderState, reason: int) -> OrderChange | None:
        """Return the request that ended an order: the first of its kind without an answer."""
        kind = {BookReason.BY_OWNER: b"F", BookReason.REDUCED: b"G"}.get(BookReason(reason))
        change = next((each for each in order.pending if each.change == kind), None)
        if change is not None:
            order.pending.remove(change)
        return change

    def _on_replaced(self, event: BookEvent) -> None:
        change = self.registry.by_client.get(event.client) if event.client >> GATEWAY_BITS == self.gateway else None
        if not isinstance(change, OrderChange) or change.order is None:
            return
        order = change.order
        if change in order.pending:
            order.pending.remove(change)
        original = order.text
        self.registry.replaced(order, change)
        order.size, order.price, order.left = change.size, event.price, event.left
        order.stop = change.stop if order.order_type in (b"3", b"4") else order.stop
        order.fix_fields(self._account(order.account))
        self._say(order, reports.execution(order, b"%d" % self.number, b"5", self._time, original=original))

    def _on_triggered(self, event: BookEvent) -> None:
        order = self._order(event)
        if order is not None:
            self._say(order, reports.execution(order, b"%d" % self.number, b"L", self._time))

    def _on_rejected(self, event: BookEvent) -> None:
        if event.client >> GATEWAY_BITS != self.gateway:
            return
        request = self.registry.by_client.get(event.client)
        if isinstance(request, OrderState):
            self._reject_order(request, event)
        elif request is not None and request.change == b"q":
            code, why = order_reject(event.reason)
            body = reports.mass_cancel_refused(request.text, request.original, code, why, self._time)
            self._out.append(Report(request.session, b"r", body, 2 * self.number))
            self.registry.drop(request)
        elif request is not None:
            self._reject_change(request, event)

    def _reject_order(self, order: OrderState, event: BookEvent) -> None:
        code, why = order_reject(event.reason)
        if not order.fixed:
            order.fix_fields(self._account(order.account))
        self._end(order, b"8")
        more = b"103=%d\x0158=%b\x01" % (code, why)
        self._say(order, reports.execution(order, b"%d" % self.number, b"8", self._time, more=more))

    def _reject_change(self, change: OrderChange, event: BookEvent) -> None:
        code, why = cancel_reject(event.reason)
        order = change.order
        if order is not None and change in order.pending:
            order.pending.remove(change)
        if event.reason == BookReason.UNKNOWN_ORDER and order is not None and not order.is_open:
            code, why = 0, b"too late: the order is over"
        body = reports.cancel_refused(change.change, change.text, change.original, order, code, why, self._time)
        self._out.append(Report(change.session, b"9", body, 2 * self.number))
        self.registry.drop(change)

    def _on_mass_cancelled(self, event: BookEvent) -> None:
        """Report a mass cancel when the last account of the session has had its command."""
        if event.client >> GATEWAY_BITS != self.gateway:
            return
        self._mass += event.size
        change = self.registry.by_client.get(event.client)
        if not isinstance(change, OrderChange):
            return
        body = reports.mass_cancelled(change, self._mass, self._time)
        self._mass = 0
        self._out.append(Report(change.session, b"r", body, 2 * self.number))
        self.registry.drop(change)

    def _on_busted(self, event: BookEvent) -> None:
        """Report a bust to both sides (S6): `order_id` of the event is the trade."""
        trade, fills = event.order_id, self._fills
        if _ROW * trade > len(fills):
            return
        for part in (0, 1):
            order = self.registry.by_id(fills[_ROW * (trade - 1) + part])
            if order is not None:
                self._reverse(order, trade, fills[_ROW * (trade - 1) + 2] + part, part)

    def _reverse(self, order: OrderState, trade: int, reference: int, part: int) -> None:
        price, size = self._fills[_ROW * trade - 2], self._fills[_ROW * trade - 1]
        order.filled -= size
        order.notional -= price * size
        exec_id = b"%d" % self.number if not part else b"%d.1" % self.number
        self._say(order, reports.bust(order, exec_id, reference, trade, price, size, self._time), part)

    def _on_phase(self, event: BookEvent) -> None:
        self.listing.phases[event.instrument].phase = event.flags
        self.changed.add(event.instrument)

    def _on_deposited(self, event: BookEvent) -> None:
        if not event.instrument:
            self.listing.note_asset(CURRENCY | event.order_id)

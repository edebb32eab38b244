"""Market data of the floor's own book over FIX: MarketDataRequest (V), snapshots (W) and incremental refreshes (X).

A subscription gets the difference between the book after a frame and the book that it has: one message per frame and
subscription, however many orders the frame has. An entry is a price level of a side, named by side and price (FIX 278),
or a trade. These messages are not resent; a program that was away subscribes again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from struct import Struct

from levelcast.market.entry.listing import InstrumentList, Listed
from levelcast.market.entry.values import price_text
from levelcast.market.fix.reader import Message
from levelcast.native.book_codes import EVENT, EventKind

REQUEST_ID, SUBSCRIPTION, DEPTH, UPDATE_TYPE, ENTRY_TYPES, ENTRY_TYPE = 262, 263, 264, 265, 267, 269
RELATED, SYMBOL = 146, 55
MAX_DEPTH = 1_000
MAX_SUBSCRIPTIONS = 200
"""Of a session."""
_LEVEL = Struct("<qQqQ")
BID, OFFER, TRADE = b"0", b"1", b"2"

View = dict[tuple[bytes, int], int]
"""Size by side and price."""


@dataclass(slots=True)
class BookSubscription:
    request: bytes
    types: frozenset[bytes]
    depth: int
    full: bool
    """Every update is a snapshot (265=0)."""
    instruments: dict[int, Listed]
    views: dict[int, View] = field(default_factory=dict)


class MarketData:
    def __init__(self, listing: InstrumentList, top: Callable[[int, int], bytes]) -> None:
        self._listing, self._top = listing, top
        self._subscriptions: dict[int, dict[bytes, BookSubscription]] = {}

    def request(self, session: int, message: Message, time: bytes) -> list[tuple[bytes, bytes]]:
        """Handle a MarketDataRequest; return the type and body of the replies."""
        request, kind = message.get(REQUEST_ID), message.get(SUBSCRIPTION)
        mine = self._subscriptions.setdefault(session, {})
        if kind == b"2":
            mine.pop(request, None)
            return []
        types = frozenset(
            value for entry in message.group(ENTRY_TYPES) if isinstance(value := entry.get(ENTRY_TYPE), bytes)
        )
        symbols = [value for entry in message.group(RELATED) if isinstance(value := entry.get(SYMBOL), bytes)]
        fault = self._fault(mine, request, types, symbols, int(message.get(DEPTH) or 0))
        if fault:
            return [(b"Y", b"262=%b\x01281=%b\x0158=%b\x01" % (request, *fault))]
        listed = [self._listing.by_symbol[symbol] for symbol in symbols]
        depth = min(int(message.get(DEPTH)) or MAX_DEPTH, MAX_DEPTH)
        found = BookSubscription(
            request, types, depth, message.get(UPDATE_TYPE) == b"0", {each.id: each for each in listed}
        )
        if kind == b"1":
            mine[request] = found
        return [(b"W", self._snapshot(found, each)) for each in listed]

    def _fault(
        self, mine: dict[bytes, BookSubscription], request: bytes, types: frozenset[bytes], symbols: list[bytes],
        depth: int,
    ) -> tuple[bytes, bytes] | None:  # fmt: skip
        """Return MDReqRejReason and text of a request that is not accepted."""
        if request in mine:
            return b"1", b"MDReqID is in use"
        if not types or not types <= {BID, OFFER, TRADE}:
            return b"8", b"MDEntryType is not 0 (bid), 1 (offer) or 2 (trade)"
        if depth < 0:
            return b"5", b"MarketDepth is negative"
        if any(symbol not in self._listing.by_symbol for symbol in symbols) or not symbols:
            return b"0", b"unknown instrument"
        if len(mine) >= MAX_SUBSCRIPTIONS:
            return b"2", b"too many subscriptions"
        return None

    def forget(self, session: int) -> None:
        """End the subscriptions of a session."""
        self._subscriptions.pop(session, None)

    def apply(self, events: bytes) -> Iterator[tuple[int, bytes, bytes]]:
        """Yield session, type and body of the updates after a frame."""
        if not any(self._subscriptions.values()):
            return
        trades: dict[int, list[tuple[int, int]]] = {}
        touched: set[int] = set()
        for values in EVENT.iter_unpack(events):
            touched.add(values[4])
            if values[0] == EventKind.TRADE:
                trades.setdefault(values[4], []).append((values[10], values[11]))
        for session, mine in self._subscriptions.items():
            for subscription in mine.values():
                yield from self._updates(session, subscription, touched, trades)

    def _updates(
        self, session: int, found: BookSubscription, touched: set[int], trades: dict[int, list[tuple[int, int]]]
    ) -> Iterator[tuple[int, bytes, bytes]]:
        entries: list[bytes] = []
        for instrument in sorted(touched & found.instruments.keys()):
            listed = found.instruments[instrument]
            if found.full:
                yield session, b"W", self._snapshot(found, listed)
                continue
            old, new = found.views[instrument], self._view(found, instrument)
            found.views[instrument] = new
            entries += _differences(listed, old, new)
            if TRADE in found.types:
                entries += [
                    b"279=0\x01269=2\x0155=%b\x01270=%b\x01271=%d\x01" % (listed.symbol, price_text(price), size)
                    for price, size in trades.get(instrument, ())
                ]
        if entries:
            yield session, b"X", b"262=%b\x01268=%d\x01%b" % (found.request, len(entries), b"".join(entries))

    def _snapshot(self, found: BookSubscription, listed: Listed) -> bytes:
        view = found.views[listed.id] = self._view(found, listed.id)
        entries = [
            b"269=%b\x01270=%b\x01271=%d\x01" % (side, price_text(price), size) for (side, price), size in view.items()
        ]
        last = self._listing.phases[listed.id].last
        if TRADE in found.types and last:
            entries.append(b"269=2\x01270=%b\x01" % price_text(last))
        if not entries:
            entries = [b"269=%b\x01271=0\x01" % min(found.types)]
        return b"262=%b\x0155=%b\x01268=%d\x01%b" % (found.request, listed.symbol, len(entries), b"".join(entries))

    def _view(self, found: BookSubscription, instrument: int) -> View:
        view: View = {}
        for ask, ask_size, bid, bid_size in _LEVEL.iter_unpack(self._top(instrument, found.depth)):
            if bid_size and BID in found.types:
                view[BID, bid] = bid_size
            if ask_size and OFFER in found.types:
                view[OFFER, ask] = ask_size
            if not bid_size and not ask_size:
                break
        return view


def _differences(listed: Listed, old: View, new: View) -> list[bytes]:
    """Return the entries of an incremental refresh: new and changed levels, then those that are gone."""
    entries = []
    for (side, price), size in new.items():
        before = old.get((side, price))
        if before != size:
            entries.append(_entry(b"0" if before is None else b"1", side, listed, price, size))
    entries += [_entry(b"2", side, listed, price, 0) for side, price in sorted(old.keys() - new.keys())]
    return entries


def _entry(action: bytes, side: bytes, listed: Listed, price: int, size: int) -> bytes:
    text = price_text(price)
    return b"279=%b\x01269=%b\x01278=%b%b\x0155=%b\x01270=%b\x01271=%d\x01" % (
        action, side, b"B" if side == BID else b"A", text, listed.symbol, text, size,
    )  # fmt: skip

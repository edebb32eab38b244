"""Order flow of real venues through the matching engine: the book after every event, and the fills of entered orders.

A `flow` is an array of `FLOW`: the order events of one or more symbols in the order of the file. `ReplayBook` builds
the book of one symbol from them. The engine gathers (phase PRE_OPEN), so it keeps queues and matches nothing: what a
venue reports as traded is removed from the order that the venue names.

| action | meaning                                                                                              |
|--------|------------------------------------------------------------------------------------------------------|
 A, M   | new order; new price and size of an order                                                            |
 U      | order `old` is replaced by `order`, with a new place                                                 |
 C, E   | `size` is cancelled, or executed, of a resting order                                                 |
 T, F   | a trade by its aggressor, and its fill by the resting order: the book changes by other events        |
 R      | the book is cleared                                                                                  |
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from levelcast.native.book import BookKernel
from levelcast.native.book_codes import COMMAND, NO_SIZE, UNDEFINED, BookPhase
from levelcast.native.pure_book_snapshot import ORDER
from levelcast.records import RecordArray

FLOW: np.dtype[np.void] = np.dtype(
    [
        ("place", "<i8"), ("ts_event", "<u8"), ("order", "<u8"), ("old", "<u8"), ("price", "<i8"), ("size", "<i8"),
        ("action", "S1"), ("side", "S1"), ("symbol", "<i4"), ("last", "?"),
    ]
)  # fmt: skip
"""`size` has more than 32 bits; `last` marks the last record of an event of the venue."""
TOP: np.dtype[np.void] = np.dtype([("ask_px", "<i8"), ("ask_sz", "<i8"), ("bid_px", "<i8"), ("bid_sz", "<i8")])

INSTRUMENT = 1
VENUE, UNNAMED = 1, 2
"""Accounts of the venue's orders, and of what is in a published book without the orders' names."""
OTHER_SIDE = {b"A": b"B", b"B": b"A"}
_ADD, _REPLACE, _CANCEL = b"AMC"


@dataclass
class KnownOrder:
    """A live order as the venue told it."""

    side: bytes
    price: int
    left: int
    account: int = VENUE


@dataclass
class ReplayCounts:
    """Events by what could be done with them."""

    events: int = 0
    unknown: int = 0
    """Events of orders that were placed before the first event."""
    duplicate: int = 0
    refused: int = 0
    """Events that the engine refused."""


class ReplayBook:
    """The book of one symbol, kept by the engine."""

    def __init__(self, tick: int = 1) -> None:
        self.kernel = BookKernel(accounts=False)
        self.kernel.define(INSTRUMENT, tick, 1, 1, NO_SIZE - 1, UNDEFINED, 0, -1, 0)
        self.kernel.status(INSTRUMENT, int(BookPhase.PRE_OPEN))
        self.known: dict[int, KnownOrder] = {}
        self.counts = ReplayCounts()
        self._unnamed: dict[tuple[bytes, int], KnownOrder] = {}
        self._next_unnamed = 1

    def _command(self, action: int, account: int, client: int, original: int, order: KnownOrder) -> None:
        events = self.kernel.run(
            COMMAND.pack(
                0, INSTRUMENT, 0, 0, order.price, order.left, action, order.side[0], UNDEFINED, client, original,
                account, ord("2"), ord("1"), ord("A"), 0, 0, 0,
            )
        )  # fmt: skip
        self.counts.refused += events[0] == ord("R")

    def add(self, name: int, side: bytes, price: int, size: int) -> None:
        if name in self.known:
            self.counts.duplicate += 1
            return
        self.known[name] = order = KnownOrder(side, price, size)
        self._command(_ADD, VENUE, name, 0, order)

    def reduce(self, name: int, size: int) -> bool:
        """Remove a part of an order, or all of it; return whether the order is known."""
        order = self.known.get(name)
        if order is None:
            self.counts.unknown += 1
            return False
        order.left = max(0, order.left - size)
        if order.left:
            self._command(_REPLACE, VENUE, name, name, order)
        else:
            self._command(_CANCEL, VENUE, 0, name, order)
            del self.known[name]
        return True

    def modify(self, name: int, price: int, size: int, *, loses_place: bool = False) -> None:
        """Change an order; it keeps its place by rule M5, unless `loses_place`."""
        order = self.known.get(name)
        if order is None:
            self.counts.unknown += 1
            return
        if loses_place:
            self._command(_CANCEL, VENUE, 0, name, order)
        order.price, order.left = price, size
        self._command(_ADD if loses_place else _REPLACE, VENUE, name, 0 if loses_place else name, order)

    def clear(self) -> None:
        for name in list(self.known):
            self.reduce(name, self.known[name].left)

    def apply(self, event: RecordArray) -> bool:
        """Apply one event; return whether its order is known."""
        action, name = bytes(event["action"]), int(event["order"])
        price, size = int(event["price"]), int(event["size"])
        self.counts.events += 1
        unknown = self.counts.unknown
        if action == b"A":
            self.add(name, bytes(event["side"]), price, size)
        elif action in (b"C", b"E"):
            self.reduce(name, size)
        elif action == b"M":
            self.modify(name, price, size)
        elif action == b"U":
            old = self.known.get(int(event["old"]))
            if old is not None:
                self.reduce(int(event["old"]), old.left)
                self.add(name, old.side, price, size)
            else:
                self.counts.unknown += 1
        elif action == b"R":
            self.clear()
        return self.counts.unknown == unknown

    # What a published book has, without the names of its orders

    def unnamed(self, side: bytes, price: int) -> int:
        found = self._unnamed.get((side, price))
        return 0 if found is None else found.left

    def set_level(self, side: bytes, price: int, size: int) -> None:
        """Make the size at a price what was published, with one order without a name in place of all others."""
        for name in [name for name, order in self.known.items() if order.side == side and order.price == price]:
            self.reduce(name, self.known[name].left)
        self._drop_unnamed(side, price)
        if size:
            order = self._unnamed[side, price] = KnownOrder(side, price, size, self._next_unnamed)
            self._next_unnamed += 1
            self._command(_ADD, UNNAMED, order.account, 0, order)

    def _drop_unnamed(self, side: bytes, price: int) -> None:
        order = self._unnamed.pop((side, price), None)
        if order is not None:
            self._command(_CANCEL, UNNAMED, 0, order.account, order)

    def reduce_unnamed(self, side: bytes, price: int, size: int) -> bool:
        """Remove a size from what has no name at a price; return whether there was that much."""
        order = self._unnamed.get((side, price))
        if order is None or order.left < size:
            return False
        order.left -= size
        if order.left:
            self._command(_REPLACE, UNNAMED, order.account, order.account, order)
        else:
            order.left = size
            self._drop_unnamed(side, price)
        return True

    # Questions

    def top(self, levels: int) -> RecordArray:
        """Return the best levels."""
        return np.frombuffer(self.kernel.top(INSTRUMENT, levels), TOP)

    def ranked(self, side: bytes, chunk: int = 16) -> Iterator[tuple[int, int, int]]:
        """Yield (order, price, left) of a side by price, then place. Unnamed orders have the number 0."""
        seen = 0
        while True:
            rows = list(ORDER.iter_unpack(self.kernel.front(INSTRUMENT, side[0], chunk)))
            for row in rows[seen:]:
                yield (row[2] if row[1] == VENUE else 0), row[3], row[6]
            if len(rows) < chunk:
                return
            seen, chunk = chunk, chunk * 4

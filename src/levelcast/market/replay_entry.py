"""Orders of a venue entered into the engine, with its own matching: commands in, fills out.

New orders are limit orders and cancels are cancels, as they come; what the venue reports as filled is not used. After
the last event, each order's filled size is compared with the venue's. A size above 32 bits is entered as several
orders, one after the other.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from levelcast.market.replay import INSTRUMENT, TOP
from levelcast.native.book import BookKernel
from levelcast.native.book_codes import COMMAND, EVENT, NO_SIZE, UNDEFINED, BookPhase, EventKind
from levelcast.records import RecordArray

PIECE = 1 << 31
_PIECES = 1 << 8


@dataclass
class EntryCounts:
    """Orders by whether their filled size was predicted."""

    with_fills: int = 0
    """Orders that the venue has filled, at least in part."""
    exact: int = 0
    only_engine: int = 0
    """Orders that only the engine has filled."""
    unknown: int = 0
    """Events of orders that were placed before the first event."""
    out_of_order: int = 0
    """Orders whose number is below one that came before."""
    trades: int = 0


class EntryReplay:
    """Enters orders and collects what the venue and the engine have filled."""

    def __init__(self, price_unit: int) -> None:
        self.price_unit = price_unit
        """Divides every price. The engine counts in it, so that price times size has 64 bits."""
        self.kernel = BookKernel(accounts=False)
        self.kernel.define(INSTRUMENT, 1, 1, 1, NO_SIZE - 1, UNDEFINED, 0, -1, 0)
        self.kernel.status(INSTRUMENT, int(BookPhase.TRADING))
        self.told: dict[int, int] = defaultdict(int)
        self.filled: dict[int, int] = defaultdict(int)
        self.counts = EntryCounts()
        self._entered: dict[int, int] = {}
        self._highest = 0

    def event(self, event: RecordArray) -> None:
        action, name, size = bytes(event["action"]), int(event["order"]), int(event["size"])
        if action == b"A":
            self._enter(name, bytes(event["side"]), int(event["price"]), size)
        elif name not in self._entered:
            self.counts.unknown += 1
        elif action == b"E":
            self.told[name] += size
        elif action == b"C":
            for piece in range(self._entered[name]):
                self._command(b"C", 0, name * _PIECES + piece, b"B", 0, 1)

    def _enter(self, name: int, side: bytes, price: int, size: int) -> None:
        self.counts.out_of_order += name < self._highest
        self._highest = max(self._highest, name)
        pieces = [PIECE] * (size // PIECE) + [size % PIECE] * (size % PIECE > 0)
        self._entered[name] = len(pieces)
        for number, piece in enumerate(pieces):
            self._command(b"A", name * _PIECES + number, 0, side, price, piece)

    def _command(self, action: bytes, client: int, original: int, side: bytes, price: int, size: int) -> None:
        events = self.kernel.run(
            COMMAND.pack(
                0, INSTRUMENT, 0, 0, price // self.price_unit, size, action[0], side[0], UNDEFINED, client, original, 1,
                ord("2"), ord("1"), ord("A"), 0, 0, 0,
            )
        )  # fmt: skip
        for event in EVENT.iter_unpack(events):
            if event[0] in (EventKind.TRADE, EventKind.FILL):
                self.filled[event[7] // _PIECES] += event[11]

    def top(self, levels: int) -> bytes:
        """Return the best levels, as `ReplayBook.top`."""
        top = np.frombuffer(self.kernel.top(INSTRUMENT, levels), TOP).copy()
        for name in ("ask_px", "bid_px"):
            top[name] = np.where(top[name] == UNDEFINED, UNDEFINED, top[name] * self.price_unit)
        return top.tobytes()

    def result(self) -> EntryCounts:
        """Compare all orders."""
        told = {name for name, size in self.told.items() if size}
        self.counts.with_fills = len(told)
        self.counts.exact = sum(self.told[name] == self.filled[name] for name in told)
        self.counts.only_engine = sum(size > 0 and name not in told for name, size in self.filled.items())
        self.counts.trades = self.kernel.trade_count
        return self.counts

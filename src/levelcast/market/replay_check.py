"""Comparison of a replayed book with a published one, by the view rule.

A published book shows the best levels only, and no event tells what changes outside that view. So a level is compared
as long as it stays in view, and taken from the published row when it comes into view from outside. The first row is
taken as it is. A level that an event has made is compared at once.
"""

from __future__ import annotations

from dataclasses import dataclass

from levelcast.market.replay import ReplayBook
from levelcast.native.book_codes import UNDEFINED
from levelcast.records import RecordArray


@dataclass
class CheckCounts:
    """Counts of compared and of equal rows and levels."""

    rows: int = 0
    equal_rows: int = 0
    levels: int = 0
    equal_levels: int = 0
    came_into_view: int = 0
    hidden: int = 0
    """Executions of hidden orders, which change nothing in view."""
    first_different: int = 0
    """Row of the first difference; 0: none."""


View = dict[bytes, dict[int, int]]


def view_of(row: RecordArray) -> View:
    """Return price and size of the levels in a published row."""
    asks = {int(px): int(sz) for px, sz in zip(row["ask_px"], row["ask_sz"], strict=True) if px != UNDEFINED}
    bids = {int(px): int(sz) for px, sz in zip(row["bid_px"], row["bid_sz"], strict=True) if px != UNDEFINED}
    return {b"A": asks, b"B": bids}


class ViewCheck:
    """Applies the events of one symbol and compares each with the published row after it."""

    def __init__(self, book: ReplayBook, levels: int) -> None:
        self.book, self.levels = book, levels
        self.counts = CheckCounts()
        self._view: View = {}

    def step(self, event: RecordArray, published: RecordArray) -> None:
        """Apply an event; compare the book with the published one after it."""
        now = view_of(published)
        if not self._view:
            for side, levels in now.items():
                for price, size in levels.items():
                    self.book.set_level(side, price, size)
            self._view = now
            return
        self._apply(event)
        self.counts.rows += 1
        before = self.counts.levels - self.counts.equal_levels
        extra = sum(self._compare(side, now[side], event) for side in (b"A", b"B"))
        different = self.counts.levels - self.counts.equal_levels - before + extra
        self.counts.equal_rows += not different
        if different and not self.counts.first_different:
            self.counts.first_different = self.counts.rows + 1
        self._view = now

    def _apply(self, event: RecordArray) -> None:
        action, side = bytes(event["action"]), bytes(event["side"])
        price, size = int(event["price"]), int(event["size"])
        if action == b"T":
            self.counts.hidden += 1
        elif action in (b"C", b"E") and int(event["order"]) not in self.book.known:
            self.book.reduce_unnamed(side, price, size)
        else:
            self.book.apply(event)

    def _compare(self, side: bytes, now: dict[int, int], event: RecordArray) -> int:
        """Compare one side; return how many levels in view the engine has and the published book has not."""
        worst = (max(now) if side == b"A" else -min(now)) if now else UNDEFINED
        held = self._held(side, worst)
        made = int(event["price"]) if event["action"] == b"A" and event["side"] == side else 0
        for price, size in now.items():
            if price in self._view[side] or price == made:
                self.counts.levels += 1
                self.counts.equal_levels += held.get(price, 0) == size
            else:
                self.counts.came_into_view += 1
                self.book.set_level(side, price, size)
        extra = 0
        for price in held:
            if price == UNDEFINED or price in now or (price if side == b"A" else -price) > worst:
                continue
            if price in self._view[side] or price == made:
                extra += 1
            else:  # outside the view before, so its end was not told
                self.book.set_level(side, price, 0)
        return extra

    def _held(self, side: bytes, worst: int) -> dict[int, int]:
        """Return the engine's levels of a side, at least down to the worst price in view."""
        name, count = ("ask" if side == b"A" else "bid"), 2 * self.levels + 2
        while True:
            top = self.book.top(count)
            last = int(top[f"{name}_px"][-1])
            if last == UNDEFINED or (last if side == b"A" else -last) > worst:
                return dict(zip(top[f"{name}_px"].tolist(), top[f"{name}_sz"].tolist(), strict=True))
            count *= 2

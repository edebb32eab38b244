"""Refuse repeated and old messages, with a window for each sender (K12).

A sender stamps each datagram with its clock, strictly rising. Of each sender the stamps of the last `FRESH_NS` are
known, so a datagram that arrives out of order over a second path is accepted, once. Stamps from before the start of
this process are refused: it cannot know which of them an earlier process accepted.
"""

from __future__ import annotations

from collections import deque

from levelcast.wire.header import Reason

FRESH_NS = 5_000_000_000
"""Largest difference between a stamp and the own clock."""
MOST_STAMPS = 8_192
"""Stamps that are known of a sender; below the oldest of them, everything is refused."""


def next_stamp(last_ns: int, now_ns: int) -> int:
    """Return the stamp after `last_ns`: strictly rising, unless the clock was far ahead and was set back.

    No receiver has accepted what was stamped then. Without this exception a sender would be refused until its clock is
    where it was.
    """
    return now_ns if last_ns > now_ns + FRESH_NS // 2 else max(now_ns, last_ns + 1)


class SenderWindow:
    """The stamps of one sender that were accepted."""

    __slots__ = ("_floor_ns", "_order", "_seen")

    def __init__(self, floor_ns: int) -> None:
        self._floor_ns = floor_ns
        self._order: deque[int] = deque()
        self._seen: set[int] = set()

    def refusal(self, sent_ns: int, now_ns: int) -> Reason | None:
        """Return why a stamp is refused; None if it is new."""
        if abs(sent_ns - now_ns) > FRESH_NS or sent_ns <= self._floor_ns:
            return Reason.STALE
        return Reason.REPLAYED if sent_ns in self._seen else None

    def add(self, sent_ns: int, now_ns: int) -> None:
        """Remember an accepted stamp, and forget those that are too old to be accepted again."""
        self._seen.add(sent_ns)
        self._order.append(sent_ns)
        while self._order and (self._order[0] < now_ns - FRESH_NS or len(self._order) > MOST_STAMPS):
            gone = self._order.popleft()
            self._seen.discard(gone)
            self._floor_ns = max(self._floor_ns, gone)


class ReplayWindows:
    """A window for each sender, from the start of the process."""

    def __init__(self, start_ns: int) -> None:
        self._start_ns = start_ns
        self._windows: dict[int, SenderWindow] = {}

    def of(self, sender: int) -> SenderWindow:
        """Return the window of a sender that the statement lists, so their number is bounded."""
        found = self._windows.get(sender)
        if found is None:
            found = self._windows[sender] = SenderWindow(self._start_ns)
        return found

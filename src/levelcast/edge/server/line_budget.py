"""Share the capacity of one line among all processes that send over it, sans I/O.

Each stripe of a receiver is a process of its own, and all of them send over the same line. They reserve a start time
for each packet in one budget, in the order of their requests. A stripe without packets leaves its share to the others.

1. Packets follow each other at the line's rate, after a burst of `BURST_NS` or of one packet.
2. No window of `WINDOW_NS` has more than `WINDOW_SHARE` of the bytes of one second. Rule 1 alone exceeds the rate of
   56 kbit/s by 20 % in some seconds: the first and the last packet both count in full. The window is longer than a
   second, so that a process may send a few milliseconds after its start time.
3. Released packets precede retransmissions: each process reports the bytes of releases that wait.

A size is the UDP payload with the UDP and IPv4 headers. The state is a sequence of unsigned 64-bit words: a list here,
a mapped file for several processes (`levelcast.node.line_budget_file`). A process that is killed while it writes leaves
a count that is wrong by one packet at most, and an idle line corrects it.
"""

from __future__ import annotations

from collections.abc import MutableSequence
from math import ceil
from typing import TypeAlias

SECOND_NS = 1_000_000_000
BURST_NS = 50_000_000
LEAST_BURST = 1_500
WINDOW_NS = 1_080_000_000
WINDOW_SHARE = 1.05
FRESH_NS = 2_000_000_000
"""A report that is older is of a process that has ended."""
MOST_AHEAD_NS = 120 * SECOND_NS
"""A state that is further in the future was written before the clock was set back."""

_BUCKET_NS = 10_000_000
_BUCKETS = 128
_RATE, _FREE, _LAST, _TOTAL, _OLDEST = range(5)
_FIRST_BUCKET = 5
_FIRST_REPORT = _FIRST_BUCKET + _BUCKETS

Words: TypeAlias = "MutableSequence[int] | memoryview[int]"


def state_words(senders: int) -> int:
    """Return the number of words of a budget that this number of processes shares."""
    return _FIRST_REPORT + 2 * senders


class LineBudget:
    """The budget of a line of `rate` bytes/s, as one of its senders uses it."""

    def __init__(self, rate: int, words: Words | None = None, sender: int = 0) -> None:
        self.rate = rate
        self._words: Words = [0] * state_words(1) if words is None else words
        self.senders = (len(self._words) - _FIRST_REPORT) // 2
        self._mine = _FIRST_REPORT + 2 * sender
        self._burst_ns = max(BURST_NS, LEAST_BURST * SECOND_NS // rate)
        self._most = int(rate * WINDOW_SHARE)

    def reserve(self, size: int, now: int) -> int | None:
        """Return the time from which on a packet may be sent; None: the budget is in use, try again soon."""
        words = self._words
        if words[_RATE] != self.rate or words[_LAST] > now + MOST_AHEAD_NS:
            for place in range(_FIRST_REPORT):
                words[place] = 0
            words[_RATE] = self.rate
        start = self._after_window(max(now, words[_LAST], words[_FREE] - self._burst_ns), size)
        words[_FIRST_BUCKET + start // _BUCKET_NS % _BUCKETS] += size
        words[_TOTAL] += size
        words[_LAST] = start
        words[_FREE] = max(words[_FREE], start) + ceil(size * SECOND_NS / self.rate)
        return start

    def report(self, waiting: int, now: int) -> None:
        """Report the bytes of this sender's releases that wait."""
        self._words[self._mine] = waiting
        self._words[self._mine + 1] = now

    def waiting_elsewhere(self, now: int) -> int:
        """Return the bytes of releases that wait at the other senders."""
        places = range(_FIRST_REPORT, _FIRST_REPORT + 2 * self.senders, 2)
        reports = ((self._words[place], self._words[place + 1]) for place in places if place != self._mine)
        return sum(waiting for waiting, at_ns in reports if waiting and abs(now - at_ns) < FRESH_NS)

    def close(self) -> None:
        """Release the state."""

    def _after_window(self, start: int, size: int) -> int:
        """Return the first time from `start` on at which the window has room for a packet; forget older packets."""
        words, oldest, total = self._words, self._words[_OLDEST], self._words[_TOTAL]
        newest = words[_LAST] // _BUCKET_NS
        while oldest <= newest:
            leaves_ns = (oldest + 1) * _BUCKET_NS + WINDOW_NS
            place = _FIRST_BUCKET + oldest % _BUCKETS
            if leaves_ns > start and words[place]:
                if total + size <= self._most:
                    break
                start = leaves_ns
            total = max(0, total - words[place])
            words[place] = 0
            oldest += 1
            if oldest <= newest - _BUCKETS:
                oldest = newest - _BUCKETS + 1
        else:
            oldest, total = start // _BUCKET_NS, 0
        words[_OLDEST], words[_TOTAL] = oldest, total
        return start

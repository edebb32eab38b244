"""Share the capacity of one line among all processes that send over it, sans I/O.

Each stripe of a receiver is a process of its own, and all of them send over the same line. They count each packet in
one budget when they send it. A stripe without packets leaves its share to the others.

1. Packets follow each other at `PACE` of the rate, after a burst of at most `BURST_NS` or one packet.
2. The packets of any `WINDOW_NS` have at most `WINDOW_SHARE` of the bytes of one second. Rule 1 alone exceeds a rate of
   56 kbit/s by 20 %, since the first and the last packet of a second both count in full. The window is longer than a
   second: a process may be delayed for the difference between its decision and its send.
3. Released packets precede retransmissions: each process reports the bytes of releases that wait.
4. Of several processes with releases, the one that sent least recently is first. The others wait `TURN_NS` for it.

A size is the UDP payload with the UDP and IPv4 headers. The state is a sequence of unsigned 64-bit words: a list here,
a mapped file for several processes (`levelcast.node.line_budget_file`). A process that is killed while it writes leaves
a count that is wrong by at most one packet, and an idle line corrects it.
"""

from __future__ import annotations

from collections.abc import MutableSequence
from math import ceil
from typing import TypeAlias

SECOND_NS = 1_000_000_000
BURST_NS = 20_000_000
"""Time by which a process may be late without a loss of capacity."""
PACE = 0.96
WINDOW_NS = 1_060_000_000
WINDOW_SHARE = 1.03
TURN_NS = 10_000_000
FRESH_NS = 2_000_000_000
"""A report that is older is of a process that has ended."""
MOST_AHEAD_NS = 3 * SECOND_NS
"""A state that is further in the future was written before the clock was set back."""

_BUCKET_NS = 10_000_000
_BUCKETS = 128
_FREE, _LAST, _TOTAL, _OLDEST = range(4)
_FIRST_BUCKET = 4
_FIRST_REPORT = _FIRST_BUCKET + _BUCKETS
_WAITING, _REPORTED, _SENT = _REPORT = range(3)

Words: TypeAlias = "MutableSequence[int] | memoryview[int]"


def state_words(senders: int) -> int:
    """Return the number of words of a budget that this number of processes shares."""
    return _FIRST_REPORT + len(_REPORT) * senders


class LineBudget:
    """The budget of a line of `rate` bytes/s, as one of its senders uses it."""

    def __init__(self, rate: int, words: Words | None = None, sender: int = 0) -> None:
        self.rate = rate
        self._words: Words = [0] * state_words(1) if words is None else words
        self._reports = range(_FIRST_REPORT, len(self._words), len(_REPORT))
        self._mine = self._reports[sender]
        self._most = int(rate * WINDOW_SHARE)

    @property
    def senders(self) -> int:
        return len(self._reports)

    def claim(self, size: int, now: int) -> int:
        """Count a packet that is sent now, and return `now`; or return the later time at which to try again."""
        words = self._words
        if max(words[_LAST], words[_FREE]) > now + MOST_AHEAD_NS:
            for place in range(_FIRST_REPORT):
                words[place] = 0
        self._forget(now)
        duration_ns = ceil(size * SECOND_NS / (self.rate * PACE))
        start = max(words[_FREE] - BURST_NS, self._after_window(size))
        if self._is_turn_of_another(now):
            start += min(TURN_NS, duration_ns)
        if (start := max(start, words[_LAST])) > now:
            return start
        words[_FIRST_BUCKET + now // _BUCKET_NS % _BUCKETS] += size
        words[_TOTAL] += size
        words[_LAST] = words[self._mine + _SENT] = now
        words[_FREE] = max(words[_FREE], now) + duration_ns
        return now

    def report(self, waiting: int, now: int) -> None:
        """Report the bytes of this sender's releases that wait."""
        self._words[self._mine + _WAITING] = waiting
        self._words[self._mine + _REPORTED] = now

    def waiting_elsewhere(self, now: int) -> int:
        """Return the bytes of releases that wait at the other senders."""
        return sum(self._words[other + _WAITING] for other in self._others(now))

    def close(self) -> None:
        """Release the state."""

    def _others(self, now: int) -> list[int]:
        """Return the reports of other senders that have releases."""
        words = self._words
        waiting = [place for place in self._reports if place != self._mine and words[place + _WAITING]]
        return [place for place in waiting if abs(now - words[place + _REPORTED]) < FRESH_NS]

    def _is_turn_of_another(self, now: int) -> bool:
        mine = self._words[self._mine + _SENT] // TURN_NS
        return any(self._words[other + _SENT] // TURN_NS < mine for other in self._others(now))

    def _forget(self, now: int) -> None:
        """Remove packets that have left the window."""
        words, oldest, newest = self._words, self._words[_OLDEST], self._words[_LAST] // _BUCKET_NS
        while oldest <= newest and _leaves_ns(oldest) <= now:
            place = _FIRST_BUCKET + oldest % _BUCKETS
            words[_TOTAL] = max(0, words[_TOTAL] - words[place])
            words[place] = 0
            oldest += 1
        if oldest > newest:
            oldest, words[_TOTAL] = now // _BUCKET_NS, 0
        words[_OLDEST] = oldest

    def _after_window(self, size: int) -> int:
        """Return the first time at which the window has room for a packet; 0: it has."""
        words, start = self._words, 0
        room = self._most - words[_TOTAL] - size
        for bucket in range(words[_OLDEST], words[_LAST] // _BUCKET_NS + 1):
            if room >= 0:
                break
            room += words[_FIRST_BUCKET + bucket % _BUCKETS]
            start = _leaves_ns(bucket)
        return start


def _leaves_ns(bucket: int) -> int:
    """Return the time at which the last packet of a bucket leaves the window."""
    return (bucket + 1) * _BUCKET_NS + WINDOW_NS

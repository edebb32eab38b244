"""Limit a rate with a token bucket, sans I/O.

A bucket starts full, with `burst` units, and fills at `rate` units/s. A clock that is set back adds nothing. The bucket
counts units times nanoseconds, so amounts are exact. A caller either removes an amount that must be available (`take`),
or spends any amount while nothing is owed (`is_open`, `spend`): a packet is never sent in part.
"""

from __future__ import annotations

_SECOND_NS = 1_000_000_000


class RateLimit:
    """One bucket."""

    __slots__ = ("_at_ns", "_left", "_most", "_rate")

    def __init__(self, rate: int, burst: int, now: int) -> None:
        self._rate, self._most = rate, burst * _SECOND_NS
        self._left, self._at_ns = self._most, now

    def take(self, amount: int, now: int) -> bool:
        """Remove `amount` units; return False, and remove nothing, if fewer are available."""
        self._fill(now)
        if self._left < amount * _SECOND_NS:
            return False
        self._left -= amount * _SECOND_NS
        return True

    def is_open(self, now: int) -> bool:
        """Return whether nothing is owed."""
        self._fill(now)
        return self._left >= 0

    def spend(self, amount: int) -> None:
        """Remove `amount` units, some of which may be owed afterwards."""
        self._left -= amount * _SECOND_NS

    @property
    def open_ns(self) -> int:
        """Time from which on nothing is owed."""
        return self._at_ns + max(0, -(self._left // self._rate))

    def _fill(self, now: int) -> None:
        self._left = min(self._most, self._left + max(0, now - self._at_ns) * self._rate)
        self._at_ns = now

"""Send to a line no faster than it carries: packets wait in order, and it is known how long they will.

A group of the network file may have a line rate (MS §4.4: a stripe of 56 kbit/s). Everything that is sent to it counts,
watermarks and heartbeats too, with the headers of UDP and IP. A short burst may go at once; the rest waits. What waits
longer than `MOST_BEHIND_S` is dropped, oldest first: by then a subscriber has requested it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from levelcast.protocol.rate import RateLimit

HEADERS = 28
"""UDP and IPv4, for each packet."""
BURSTS_A_SECOND = 20
LEAST_BURST = 1_500
MOST_BEHIND_S = 30


class LineRate:
    """One group's line of `rate` bytes/s."""

    def __init__(self, rate: int, now: int) -> None:
        self.rate = rate
        self.dropped = 0
        self._limit = RateLimit(rate, max(LEAST_BURST, rate // BURSTS_A_SECOND), now)
        self._waiting: deque[bytes] = deque()
        self._bytes = 0

    @property
    def behind_ns(self) -> int:
        """How long it takes to send what waits."""
        return round(self._bytes * 1e9 / self.rate)

    @property
    def next_ns(self) -> int | None:
        """When the next packet may leave."""
        return self._limit.open_ns if self._waiting else None

    def push(self, datagrams: Iterable[bytes]) -> None:
        """Add packets after those that wait."""
        for datagram in datagrams:
            self._waiting.append(datagram)
            self._bytes += len(datagram) + HEADERS
        while self._bytes > self.rate * MOST_BEHIND_S and len(self._waiting) > 1:
            self._bytes -= len(self._waiting.popleft()) + HEADERS
            self.dropped += 1

    def due(self, now: int) -> list[bytes]:
        """Take the packets that may leave now."""
        out = []
        while self._waiting and self._limit.is_open(now):
            out.append(self._waiting.popleft())
            size = len(out[-1]) + HEADERS
            self._limit.spend(size)
            self._bytes -= size
        return out

"""Limit the rate of sends to a line: queue packets in order, and report the delay of the queue.

A group of the network file may have a line rate (MS §4.4: a stripe of 56 kbit/s). All packets sent to the group count,
including watermarks and heartbeats, with UDP and IP headers. A short burst is sent immediately, the rest is queued. If
the queue exceeds `MOST_BEHIND_S`, the oldest packets are dropped: by then a subscriber has requested them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from levelcast.protocol.rate import RateLimit

HEADERS = 28
"""Bytes of UDP and IPv4 headers per packet."""
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
        """Time needed to send the queue."""
        return round(self._bytes * 1e9 / self.rate)

    @property
    def next_ns(self) -> int | None:
        """Time at which the next packet may be sent."""
        return self._limit.open_ns if self._waiting else None

    def push(self, datagrams: Iterable[bytes]) -> None:
        """Append packets to the queue."""
        for datagram in datagrams:
            self._waiting.append(datagram)
            self._bytes += len(datagram) + HEADERS
        while self._bytes > self.rate * MOST_BEHIND_S and len(self._waiting) > 1:
            self._bytes -= len(self._waiting.popleft()) + HEADERS
            self.dropped += 1

    def due(self, now: int) -> list[bytes]:
        """Remove and return the packets that may be sent now."""
        out = []
        while self._waiting and self._limit.is_open(now):
            out.append(self._waiting.popleft())
            size = len(out[-1]) + HEADERS
            self._limit.spend(size)
            self._bytes -= size
        return out

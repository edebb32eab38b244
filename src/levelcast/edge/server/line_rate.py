"""A narrow line: packets leave no faster than it carries them, in order, and it is known how far behind it is.

A group of the network file may have a line rate (MS §4.4: a stripe of 56 kbit/s). Everything that is sent to it counts,
watermarks and heartbeats too, with the headers of UDP and IP. A short burst may go at once; the rest waits. What waits
for longer than `MOST_BEHIND_S` is dropped, oldest first: by then a customer has asked for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

HEADERS = 28
"""UDP and IPv4, for each packet."""
BURST_S = 0.05
LEAST_BURST = 1_500
MOST_BEHIND_S = 30.0


class LineRate:
    """One group's line of `rate` bytes a second."""

    def __init__(self, rate: int, now: int) -> None:
        self.rate = rate
        self.dropped = 0
        self._burst = max(LEAST_BURST, rate * BURST_S)
        self._room = self._burst
        self._at_ns = now
        self._waiting: deque[bytes] = deque()
        self._bytes = 0

    @property
    def behind_ns(self) -> int:
        """How long what waits will take."""
        return round(self._bytes * 1e9 / self.rate)

    @property
    def next_ns(self) -> int | None:
        """When the next packet may leave."""
        return self._at_ns + max(0, round(-self._room * 1e9 / self.rate)) + 1 if self._waiting else None

    def push(self, datagrams: Iterable[bytes]) -> None:
        """Packets to send, behind those that wait."""
        for datagram in datagrams:
            self._waiting.append(datagram)
            self._bytes += len(datagram) + HEADERS
        while self._bytes > self.rate * MOST_BEHIND_S and len(self._waiting) > 1:
            self._bytes -= len(self._waiting.popleft()) + HEADERS
            self.dropped += 1

    def due(self, now: int) -> list[bytes]:
        """Those that may leave now."""
        self._room = min(self._burst, self._room + max(0, now - self._at_ns) * self.rate / 1e9)
        self._at_ns = now
        out = []
        while self._waiting and self._room >= 0:
            out.append(self._waiting.popleft())
            size = len(out[-1]) + HEADERS
            self._room -= size
            self._bytes -= size
        return out

"""Limit the rate of sends to a line: queue packets in order, and report the delay of the queue.

A group of the network file may have a line rate (MS §4.4: a stripe of 56 kbit/s). All packets sent over the line count,
including watermarks, heartbeats and retransmissions, with UDP and IP headers. The line's budget, which all stripes
share, decides when a packet may be sent (`levelcast.edge.server.line_budget`).

- Releases are sent in order, before retransmissions. If the releases of all stripes need more than `MOST_BEHIND_S`, the
  oldest are dropped: by then a subscriber has requested them.
- A retransmission waits while another stripe has releases. One that already waits for the same destination is not
  queued again, since subscribers repeat requests. Beyond `MOST_RESENT_S` they are dropped, and requested again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from typing import NamedTuple

from levelcast.edge.server.line_budget import LineBudget
from levelcast.units import PACKET_HEADERS
from levelcast.wire import mold

MOST_BEHIND_S = 30
MOST_RESENT_S = 2
LEAST_RESENT = 16_384
"""Minimum size of the queue of retransmissions, in bytes."""
WAIT_NS = 10_000_000
"""Interval at which a retransmission checks for the releases of other stripes."""


class LinePacket(NamedTuple):
    """A packet for the group, or for one subscriber."""

    datagram: bytes
    to: Hashable | None = None

    @property
    def size(self) -> int:
        """Bytes on the line."""
        return len(self.datagram) + PACKET_HEADERS


class LineRate:
    """One line, as one process sends over it."""

    def __init__(self, budget: LineBudget) -> None:
        self.rate = budget.rate
        self.dropped = 0
        self.next_ns: int | None = None
        """Time at which the next packet may be sent."""
        self._budget = budget
        self._released: deque[LinePacket] = deque()
        self._resent: deque[LinePacket] = deque()
        self._queued: set[tuple[Hashable | None, bytes]] = set()
        """Destinations and headers of the retransmissions that wait."""
        self._released_bytes = self._resent_bytes = self._elsewhere = 0

    @property
    def behind_ns(self) -> int:
        """Time needed to send the queues of all stripes."""
        return round((self._released_bytes + self._resent_bytes + self._elsewhere) * 1e9 / self.rate)

    def push(self, datagrams: Iterable[bytes], now: int) -> None:
        """Append released packets to the queue."""
        for datagram in datagrams:
            self._released.append(packet := LinePacket(datagram))
            self._released_bytes += packet.size
        most, budget = self.rate * MOST_BEHIND_S, self._budget
        if self._released_bytes > most // budget.senders:
            most = max(most - budget.waiting_elsewhere(now), most // budget.senders)
            while self._released_bytes > most and len(self._released) > 1:
                self._released_bytes -= self._released.popleft().size
                self.dropped += 1
        self.next_ns = now

    def push_again(self, datagrams: Iterable[bytes], to: Hashable | None, now: int) -> None:
        """Append retransmitted packets for a subscriber, or for the group."""
        most = max(LEAST_RESENT, self.rate * MOST_RESENT_S)
        for datagram in datagrams:
            packet, key = LinePacket(datagram, to), (to, datagram[: mold.HEADER_SIZE])
            if key in self._queued:
                continue
            if self._resent_bytes + packet.size > most:
                self.dropped += 1
                continue
            self._queued.add(key)
            self._resent.append(packet)
            self._resent_bytes += packet.size
        self.next_ns = now

    def due(self, now: int) -> list[LinePacket]:
        """Remove and return the packets that may be sent now."""
        out: list[LinePacket] = []
        self._elsewhere = self._budget.waiting_elsewhere(now)
        while (queue := self._queue()) is not None:
            self.next_ns = self._budget.claim(queue[0].size, now)
            if self.next_ns > now:
                break
            out.append(self._take(queue))
        else:
            self.next_ns = now + WAIT_NS if self._resent else None
        self._budget.report(self._released_bytes, now)
        return out

    def close(self) -> None:
        self._budget.close()

    def _queue(self) -> deque[LinePacket] | None:
        """Return the queue to send from: releases of any stripe precede retransmissions."""
        if self._released:
            return self._released
        return self._resent if self._resent and not self._elsewhere else None

    def _take(self, queue: deque[LinePacket]) -> LinePacket:
        packet = queue.popleft()
        if queue is self._released:
            self._released_bytes -= packet.size
        else:
            self._resent_bytes -= packet.size
            self._queued.discard((packet.to, packet.datagram[: mold.HEADER_SIZE]))
        return packet

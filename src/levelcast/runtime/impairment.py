"""The delay, jitter and loss of the network file's links, added where a datagram is received.

So one machine plays the world: every node holds back what it hears from another for as long as the link between their
sites takes, and loses as much of it. A seed gives the same draws, but what arrives differs between runs: only the
simulator repeats a history.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from random import Random

from levelcast.network import Link
from levelcast.runtime.sockets import Arrival
from levelcast.wire.header import sender_of


class Impairment:
    """What lies between one node and all others. A link of None is no link: everything on it is lost."""

    def __init__(self, links: Mapping[int, Link | None], seed: int) -> None:
        self._links = links
        self._rng = Random(f"levelcast impairment {seed}")
        self._heap: list[tuple[int, int, Arrival]] = []
        self._sequence = 0
        self.lost = 0

    @property
    def next_ns(self) -> int | None:
        """When the next datagram is due."""
        return self._heap[0][0] if self._heap else None

    def hold(self, arrivals: Iterable[Arrival], now: int) -> None:
        """Lose what the links lose, and keep the rest until it is due; a stranger's datagrams are due at once."""
        random = self._rng.random
        for arrival in arrivals:
            datagram = arrival[0]
            assert isinstance(datagram, bytes)  # each has a fate of its own
            sender = sender_of(datagram)
            link = self._links.get(sender, Link(0)) if sender is not None else Link(0)
            if link is None or random() < link.loss_ratio:
                self.lost += 1
                continue
            self._sequence += 1
            due = now + link.delay_ns + int(link.jitter_ns * random())
            heapq.heappush(self._heap, (due, self._sequence, arrival))

    def due(self, now: int) -> list[Arrival]:
        """What has come by now, in the order in which it was due."""
        arrivals: list[Arrival] = []
        while self._heap and self._heap[0][0] <= now:
            arrivals.append(heapq.heappop(self._heap)[2])
        return arrivals

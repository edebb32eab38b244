"""Inject the delay, jitter and loss of the network file's links at the receiving node.

So one machine can emulate the network: every node delays datagrams from another node by the delay of the link between
their sites, and drops the same fraction. The delay counts from the kernel's receive time, so a process that runs late
does not add to it. Without multicast the link is that of the node that sent the copy, not of the author, so that a
forwarded packet has the delay and loss of both links. A seed gives the same random numbers, but arrivals differ between
runs: only the simulator is reproducible.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from random import Random

from levelcast.network import Link
from levelcast.runtime.sockets import Arrival, Via
from levelcast.wire.header import sender_of


class Impairment:
    """The links between one node and all others. None means no link: every datagram is lost."""

    def __init__(self, links: Mapping[int, Link | None], seed: int) -> None:
        self.links = links
        """They may be replaced while the node runs: datagrams that are held already keep their delay."""
        self._rng = Random(f"levelcast impairment {seed}")
        self._heap: list[tuple[int, int, Arrival]] = []
        """The time at which an arrival is due, which is the arrival's time too, and a number that keeps the order."""
        self._sequence = 0
        self.lost = 0

    @property
    def next_ns(self) -> int | None:
        """Time at which the next datagram is due."""
        return self._heap[0][0] if self._heap else None

    def hold(self, arrivals: Iterable[Arrival]) -> None:
        """Drop datagrams by the links' loss, hold others until due; those of unknown senders are due immediately."""
        random = self._rng.random
        for datagram, source, received_ns in arrivals:
            assert isinstance(datagram, bytes)  # delay and loss apply to each datagram separately
            sender = source.node if isinstance(source, Via) else sender_of(datagram)
            link = self.links.get(sender, Link(0)) if sender is not None else Link(0)
            if link is None or random() < link.loss_ratio:
                self.lost += 1
                continue
            self._sequence += 1
            due = received_ns + link.delay_ns + int(link.jitter_ns * random())
            heapq.heappush(self._heap, (due, self._sequence, (datagram, source, due)))

    def due(self, now: int) -> list[Arrival]:
        """Return the datagrams that are due by now, in order of due time, which is the time of each arrival."""
        arrivals: list[Arrival] = []
        while self._heap and self._heap[0][0] <= now:
            arrivals.append(heapq.heappop(self._heap)[2])
        return arrivals

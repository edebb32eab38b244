"""Virtual network: delay, lose, duplicate and damage datagrams between nodes.

- Delay: a matrix of one-way delays plus jitter, which also reorders.
- Loss: independent per copy, and correlated on the multicast tree (MS §3.9): every node is below a branch, and a
  multicast that is lost at a branch is lost for all nodes below it.
- Duplication, corruption (a flipped bit), truncation.
- Partitions: a copy passes only between nodes on the same side; single directed links can be cut as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from levelcast.network.model import Link


@dataclass(slots=True)
class Weather:
    """Current loss, delay and damage rates of the network."""

    loss: float = 0.0
    branch_loss: float = 0.0
    duplicate: float = 0.0
    corrupt: float = 0.0
    truncate: float = 0.0
    jitter_ns: int = 0
    outlier: float = 0.0
    """Fraction of copies that are delayed by up to `outlier_ns` more, as in long queues; this reorders."""
    outlier_ns: int = 0


class Copy(NamedTuple):
    """One copy of a datagram in transit: damaged copies carry their own bytes."""

    to: int
    delay_ns: int
    damaged: bytes | None


@dataclass(slots=True)
class VirtualNetwork:
    """Network with a delay per pair of nodes and one `Weather` for all."""

    rng: Random
    delay_ns: dict[tuple[int, int], int]
    branch_of: dict[int, int] = field(default_factory=dict)
    weather: Weather = field(default_factory=Weather)
    side_of: dict[int, int] = field(default_factory=dict)
    """Side of the partition by node; other nodes are on side 0."""
    cut: set[tuple[int, int]] = field(default_factory=set)
    """Directed links that carry nothing."""
    sent: int = 0
    lost: int = 0

    def passes(self, sender: int, to: int) -> bool:
        return self.side_of.get(sender, 0) == self.side_of.get(to, 0) and (sender, to) not in self.cut

    def copies(self, sender: int, receivers: Sequence[int], datagram: bytes) -> list[Copy]:
        """Return the copies of a datagram that arrive, with their delays."""
        rng, weather = self.rng, self.weather
        random = rng.random
        lost_branches: set[int] = set()
        if weather.branch_loss and len(receivers) > 1:
            for branch in sorted({self.branch_of.get(to, 0) for to in receivers}):
                if branch != self.branch_of.get(sender, 0) and random() < weather.branch_loss:
                    lost_branches.add(branch)
        copies: list[Copy] = []
        for to in receivers:
            self.sent += 1
            lost = not self.passes(sender, to) or random() < self._loss(sender, to)
            if lost or self.branch_of.get(to, 0) in lost_branches:
                self.lost += 1
                continue
            copies.append(Copy(to, self._delay(sender, to), self._damage(datagram)))
            if weather.duplicate and random() < weather.duplicate:
                copies.append(Copy(to, self._delay(sender, to), None))
        return copies

    def _loss(self, sender: int, to: int) -> float:
        return self.weather.loss

    def _delay(self, sender: int, to: int) -> int:
        weather, rng = self.weather, self.rng
        delay = self.delay_ns[sender, to]
        if weather.jitter_ns:
            delay += int(weather.jitter_ns * rng.random())
        if weather.outlier and rng.random() < weather.outlier:
            delay += int(weather.outlier_ns * rng.random())
        return delay

    def _damage(self, datagram: bytes) -> bytes | None:
        weather, rng = self.weather, self.rng
        if weather.corrupt and rng.random() < weather.corrupt:
            damaged = bytearray(datagram)
            damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
            return bytes(damaged)
        if weather.truncate and rng.random() < weather.truncate:
            return datagram[: rng.randrange(len(datagram))]
        return None


@dataclass(slots=True)
class LinkNetwork(VirtualNetwork):
    """Network in which each pair of nodes has its own delay, jitter and loss, and no other faults occur."""

    links: dict[tuple[int, int], Link] = field(default_factory=dict)

    def _loss(self, sender: int, to: int) -> float:
        return self.links[sender, to].loss_ratio

    def _delay(self, sender: int, to: int) -> int:
        link = self.links[sender, to]
        return link.delay_ns + int(link.jitter_ns * self.rng.random())

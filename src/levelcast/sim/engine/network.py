"""The virtual network: what happens to a datagram between two nodes.

- Delay: a matrix of one-way delays plus jitter, which also reorders.
- Loss: independent per copy, and correlated on the multicast tree (MS §3.9): every node hangs below a branch, and a
  multicast that is lost at a branch is lost for everybody below it.
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
    """How bad the network is at the moment."""

    loss: float = 0.0
    branch_loss: float = 0.0
    duplicate: float = 0.0
    corrupt: float = 0.0
    truncate: float = 0.0
    jitter_ns: int = 0
    outlier: float = 0.0
    """Share of copies that are delayed `outlier_ns` more: long queues reorder."""
    outlier_ns: int = 0


class Copy(NamedTuple):
    """One copy of a datagram on its way: damaged copies carry their own bytes."""

    to: int
    delay_ns: int
    damaged: bytes | None


@dataclass(slots=True)
class VirtualNetwork:
    """Delays between nodes and the weather over them."""

    rng: Random
    delay_ns: dict[tuple[int, int], int]
    branch_of: dict[int, int] = field(default_factory=dict)
    weather: Weather = field(default_factory=Weather)
    side_of: dict[int, int] = field(default_factory=dict)
    """The side of a partition that a node is on; nodes not named are on side 0."""
    cut: set[tuple[int, int]] = field(default_factory=set)
    """Directed links that carry nothing."""
    sent: int = 0
    lost: int = 0

    def passes(self, sender: int, to: int) -> bool:
        return self.side_of.get(sender, 0) == self.side_of.get(to, 0) and (sender, to) not in self.cut

    def copies(self, sender: int, receivers: Sequence[int], datagram: bytes) -> list[Copy]:
        """The copies of a datagram that arrive, and when."""
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
    """A network in which each pair of nodes has its own delay, jitter and loss, and there is no other weather."""

    links: dict[tuple[int, int], Link] = field(default_factory=dict)

    def _loss(self, sender: int, to: int) -> float:
        return self.links[sender, to].loss_ratio

    def _delay(self, sender: int, to: int) -> int:
        link = self.links[sender, to]
        return link.delay_ns + int(link.jitter_ns * self.rng.random())

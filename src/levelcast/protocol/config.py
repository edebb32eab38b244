"""Configuration of one stripe from the network file, the same for all of its nodes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from levelcast.protocol.lines import RegionLines
from levelcast.timing.nack_sets import NackSets
from levelcast.timing.rules import Timing
from levelcast.wire.header import domain_of
from levelcast.wire.messages import Membership


@dataclass(frozen=True, slots=True)
class StripeConfig:
    """The configuration of one stripe."""

    stripe: int
    timing: Timing
    witnesses: Witnesses
    membership: Membership
    """Version 0 of the configured set; the sequence contains later versions (rule 12)."""
    servers: tuple[int, ...]
    """Reformation servers by rank."""
    credit: int = 64
    """W: maximum number of unwitnessed packets of a source (rule 10)."""
    punctual_ns: int = 1_000_000
    """Delay up to which a step, a release or a token counts as punctual: the driver's wake-up is not exact."""
    nearness: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Per member, the others from nearest to farthest; ring order where it is not given."""
    lines: tuple[RegionLines[int], ...] = ()
    """Lines of each region, and its order of preference of receivers (MS §4.3)."""
    homes: dict[int, int] = field(default_factory=dict)
    """Per secondary, its assigned primary, or the assigned secondary one layer up (rule 11)."""
    nack: NackSets | None = None
    """Sets that send requests in turn (MS §5.2); None: all members send immediately. `timing` includes the delay."""

    network: int = 0
    """Network identifier: nodes drop datagrams that have another one."""
    sources: frozenset[int] | None = None
    """Sources that tokens may acknowledge (rule 2); None: all."""

    @property
    def domain(self) -> int:
        """This stripe of this network, in the header of every datagram."""
        return domain_of(self.network, self.stripe)

    def layer_of(self, node: int) -> int:
        """Return 0 for a primary, 1 for its secondaries, 2 for theirs (MS §4.1)."""
        layer = 0
        while node in self.homes:
            node, layer = self.homes[node], layer + 1
        return layer

    @property
    def layers(self) -> int:
        """Number of layers of secondaries."""
        return max(map(self.layer_of, self.homes), default=0)

    @property
    def accept_ahead(self) -> int:
        """Packets of a source that a receiver keeps beyond the order: twice the credit, so that a window fits."""
        return 2 * self.credit


Witnesses = Literal["majority", "all"] | int

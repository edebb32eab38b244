"""What every node of one stripe's ring knows from the network file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from levelcast.timing.nack_sets import NackSets
from levelcast.timing.rules import Timing
from levelcast.wire.messages import Membership


@dataclass(frozen=True, slots=True)
class StripeConfig:
    """The configuration of one stripe."""

    stripe: int
    timing: Timing
    witnesses: Witnesses
    membership: Membership
    """Version 0 of the configured set; later versions come in the sequence (rule 12)."""
    servers: tuple[int, ...]
    """Reformation servers by rank."""
    credit: int = 64
    """W: how many packets a source may have unwitnessed (rule 10)."""
    punctual_ns: int = 1_000_000
    """A release this much behind its instant still counts as on time: the driver's wake-up is not exact."""
    nearness: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Per member, the others from nearest to farthest; ring order where it is not given."""
    edges: tuple[tuple[int, str], ...] = ()
    homes: dict[int, int] = field(default_factory=dict)
    """Per secondary, the primary that it belongs to while all is well, or the secondary one layer up (rule 11)."""
    nack: NackSets | None = None
    """Who asks first and who waits (MS §5.2); None: everybody asks at once. `timing` has the hold time for it."""

    def layer_of(self, node: int) -> int:
        """0 for a primary, 1 for its secondaries, 2 for theirs (MS §4.1)."""
        layer = 0
        while node in self.homes:
            node, layer = self.homes[node], layer + 1
        return layer

    @property
    def layers(self) -> int:
        """How many layers of secondaries there are."""
        return max(map(self.layer_of, self.homes), default=0)

    @property
    def accept_ahead(self) -> int:
        """How far beyond the order a receiver keeps packets: twice the credit, so that a window always fits."""
        return 2 * self.credit


Witnesses = Literal["majority", "all"] | int

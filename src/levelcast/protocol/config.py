"""Configuration of one stripe from the network file, the same for all of its nodes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from levelcast.protocol.lines import RegionLines
from levelcast.timing.copies import Copies
from levelcast.timing.nack_sets import NackSets
from levelcast.timing.rules import GUARD_NS, Timing
from levelcast.timing.secondary import patience_ns
from levelcast.wire.header import domain_of
from levelcast.wire.messages import Cutoff, Membership, Pace


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
    delays: dict[tuple[int, int], int] = field(default_factory=dict)
    """Delay in ns from one node to another that all but late packets keep; δ_N where it is not given."""
    clock_error_ns: int = 0
    """Maximum error of any clock against UTC."""
    asymmetry_ns: int = 3_000_000
    """Error of the offset against other members, from paths that are not alike in both directions (C2)."""
    smeared: bool = False
    """Clocks are smeared around a leap second, so that it needs no stop (C4)."""
    reorder_ns: int = 0
    """Largest jitter of a path."""
    as_in_paper: bool = False
    """Requests follow the paper in pipelined mode too, to measure it."""
    lines: tuple[RegionLines[int], ...] = ()
    """Lines of each region, and its order of preference of receivers (MS §4.3)."""
    homes: dict[int, int] = field(default_factory=dict)
    """Per secondary, its assigned primary, or the assigned secondary one layer up (rule 11)."""
    nack: NackSets | None = None
    """Sets that send requests in turn (MS §5.2); None: all members send immediately. `timing` includes the delay."""

    multicast: bool = True
    """The core has multicast: a repair that several members miss goes to all (W5)."""
    network: int = 0
    """Network identifier: nodes drop datagrams that have another one."""
    sources: frozenset[int] | None = None
    """Sources that tokens may acknowledge (rule 2); None: all."""
    redundancy: float = 1.0
    """Limit of the bytes that a node sends, over those without additional copies (rule W11)."""
    copies: dict[int, Copies] = field(default_factory=dict)
    """Per receiver, what it gets in addition."""

    @property
    def domain(self) -> int:
        """This stripe of this network, in the header of every datagram."""
        return domain_of(self.network, self.stripe)

    @property
    def receivers(self) -> int:
        """Number of receivers in all layers, as configured."""
        return len(self.membership.members) + len(self.homes)

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

    def delay_ns(self, sender: int, receiver: int) -> int:
        """Return the delay from one node to another that all but late packets keep."""
        return self.delays.get((sender, receiver), self.timing.late_ns)

    def cutoff_ns(self, member: int) -> int:
        """Return H_j: time after a beat of this member until every receiver that does not lose it has it (rule 7)."""
        farthest_ns = max((ns for (sender, _), ns in self.delays.items() if sender == member), default=0)
        reach_ns = farthest_ns + 2 * self.clock_error_ns if farthest_ns else self.timing.late_ns
        return reach_ns + GUARD_NS

    def pace(self, members: Iterable[int]) -> Pace:
        """Return the times that a ring of these members must use alike."""
        timing = self.timing
        cutoffs = tuple(Cutoff(member, self.cutoff_ns(member)) for member in members) if timing.beat_ns else ()
        return Pace(timing.hold_ns, timing.beat_ns, cutoffs)

    def patience_ns(self, node: int, pace: Pace | None) -> int:
        """Return the time after a slot for which a secondary without it may delay the claim of this node (rule 11).

        With beats it is not longer than what Δ_A leaves for the claim to be in time: a beat and H_j of the primary, and
        for each layer between them a group beat and its delay.
        """
        longest_ns = patience_ns(self.timing, max(1, self.layers - self.layer_of(node)))
        if pace is None or not pace.beat_ns:
            return longest_ns
        left_ns = pace.hold_ns
        while (home := self.homes.get(node)) is not None:
            left_ns -= pace.beat_ns + self.delay_ns(node, home) + 2 * self.clock_error_ns + GUARD_NS
            node = home
        left_ns -= pace.beat_ns + dict(pace.cutoffs).get(node, self.timing.late_ns + GUARD_NS)
        return max(0, min(left_ns, longest_ns))

    @property
    def accept_ahead(self) -> int:
        """Packets of a source that a receiver keeps beyond the order: twice the credit, so that a window fits."""
        return 2 * self.credit


Witnesses = Literal["majority", "all"] | int

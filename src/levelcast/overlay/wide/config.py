"""Configuration of a wide-area group, the same for all of its processes."""

from __future__ import annotations

from dataclasses import dataclass, field

from levelcast.overlay.wide.choices import Choices
from levelcast.overlay.wide.matrix import NEAR_NS, PathMatrix
from levelcast.overlay.wide.plan import PlanRules
from levelcast.wire.wide_codec import MAX_WIDE_MEMBERS, MAX_WIDE_PAYLOAD
from levelcast.wire.wide_messages import WideContent

MS = 1_000_000
PACKET_BYTES = 1_200
"""Size of a packet's payload: a fragmented datagram is lost twice as often."""


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Processes, protocol and times of a group."""

    choices: Choices
    matrix: PathMatrix
    members: tuple[int, ...]
    """Processes of the first view."""
    margin_ns: int = 20 * MS
    """Time beyond the expected one after which a confirmation is overdue: jitter and processing."""
    defer_ns: int = 0
    """Time for which statements wait for a message to ride on (deferred confirmation, TT §4.1); 0: they do not wait."""
    spacing_ns: int = 0
    """Time between copies: 0 for continuous replication, at least four mean bursts for a discrete one (TT §4.3)."""
    alive_ns: int = 0
    """Interval of signs of life; 0: no process is suspected to have failed, and none joins or leaves."""
    silent: int = 8
    """Intervals without a message after which a process is suspected."""
    window: int = 64
    """Maximum number of own messages that are not known to be received by all."""
    packet_bytes: int = PACKET_BYTES
    near_ns: int = NEAR_NS
    allowed_loss: float = 0.01
    forwarders: int = 1
    subgroups: tuple[tuple[int, ...], ...] = field(init=False, default=())
    rules: PlanRules = field(init=False)

    def __post_init__(self) -> None:
        if (fault := self.choices.fault()) is not None:
            raise ValueError(fault)
        if not 2 <= len(set(self.members)) == len(self.members) <= MAX_WIDE_MEMBERS:
            raise ValueError(f"a group has 2 to {MAX_WIDE_MEMBERS} different processes, not {len(self.members)}")
        if missing := set(self.members) - set(self.matrix.processes):
            raise ValueError(f"the matrix has no paths of process {min(missing)}")
        if (pair := self.matrix.unknown_pair()) is not None:
            raise ValueError(f"the matrix has no path from process {pair[0]} to process {pair[1]}")
        if not 0 < self.packet_bytes <= MAX_WIDE_PAYLOAD:
            raise ValueError(f"packets have 1 to {MAX_WIDE_PAYLOAD} bytes of payload, not {self.packet_bytes}")
        rules = PlanRules(self.choices, self.matrix, self.near_ns, self.allowed_loss, self.forwarders)
        object.__setattr__(self, "rules", rules)
        object.__setattr__(self, "subgroups", self.matrix.subgroups(self.near_ns))

    @property
    def exchange_ns(self) -> int:
        """Return the time in which a message and its answer usually arrive, whatever the processes."""
        return 2 * self.matrix.longest_ns + self.margin_ns

    @property
    def suspect_ns(self) -> int:
        """Return the time without a message after which a process is suspected to have failed."""
        return self.silent * self.alive_ns + self.matrix.longest_ns + self.margin_ns

    def packets(self, payload: bytes) -> int:
        """Return the number of packets of an application message; raise ValueError if it is too large."""
        packets = max(1, -(-len(payload) // self.packet_bytes))
        if packets > self.window:
            most = self.window * self.packet_bytes
            raise ValueError(f"a message has up to {most:,} bytes, not {len(payload):,}; use a larger window")
        return packets

    def knows(self, content: WideContent) -> bool:
        """Return whether the matrix has all processes of a view, and the sources of its messages."""
        processes = {*(member.process for member in content.members), *(each.source for each in content.orphans)}
        return processes <= set(self.matrix.processes)

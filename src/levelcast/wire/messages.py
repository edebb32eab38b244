"""Messages of the core group, as values.

Every message is an immutable named tuple; `levelcast.wire.codec` turns them into bytes and back. The protocol
classes in `levelcast.ring` accept and return these values and never read a datagram.

A `Data`, `Token`, `Ring`, `Group` or `LineHolders` may be passed on by others than its author, so it keeps the datagram
that its author sealed: `sealed`, the last field, empty until the author has sealed it. Two tokens (rings, groups,
assignments) are equal if all other fields are, whatever their datagrams are. `_replace` keeps the old datagram: pass
`sealed=b""` as well.

Numbers and units: times are nanoseconds UTC; slots, packet numbers and generations are unsigned 64-bit; node
ids (one namespace for members, reformation servers and sources) are unsigned 16-bit; a life is 32-bit.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from levelcast.wire.chain_messages import ChainEvidence, ChainMessage, ChainRequest, ChainStatement, ChainSuccession
from levelcast.wire.wide_messages import WideMessage

UNIT_NS = 100_000
"""Unit of the times of claims, and of all times in timing records."""

CONTROL_SOURCE = 0
"""The source id of packets that change the configured set of primaries (rule 12). No floor may have it."""


class Run(NamedTuple):
    """Packets `first` to `last` (both included) of one incarnation of one source (rule 2)."""

    source: int
    incarnation: int
    first: int
    last: int


class Mark(NamedTuple):
    """The highest packet of a source that is known to be witnessed (rule 10)."""

    source: int
    incarnation: int
    number: int


class Era(NamedTuple):
    """One generation of a lineage: tokens from slot `start_slot`, at `start_ns` (T_g), belong to it."""

    generation: int
    start_slot: int
    start_ns: int


class MemberLife(NamedTuple):
    """A primary and the life of its disk: a member that lost its disk returns as another life (rule 12)."""

    member: int
    life: int


class Membership(NamedTuple):
    """One version of the configured set of primaries, in ring order."""

    version: int
    members: tuple[MemberLife, ...]


class Packet(NamedTuple):
    """Content of one packet of a source: `records` is the number of records in `payload`."""

    source: int
    incarnation: int
    number: int
    records: int
    payload: bytes


class Data(NamedTuple):
    """Packets `first` to `last` of one incarnation of a source, as it sealed them: their datagrams, back to back.

    A datagram carries one packet. Consecutive packets are one value while they stay together, so that work per packet
    (rules 2, 8) is done once for all of them. `levelcast.wire.packets` converts packets to values and back.
    """

    source: int
    incarnation: int
    first: int
    last: int
    sealed: bytes


class Parity(NamedTuple):
    """The XOR of `packets` packets of a source: `first`, `first + step`, … (rule W11, TT §4.3).

    `content` is the XOR of their sealed datagrams, each padded with zeros to the longest. Whoever lacks one of the
    packets gets its datagram, with its author's seal, by the XOR with the others.
    """

    source: int
    incarnation: int
    first: int
    packets: int
    step: int
    content: bytes

    @property
    def numbers(self) -> range:
        return range(self.first, self.first + self.packets * self.step, self.step)


class Token(NamedTuple):
    """The acknowledgement of one slot, sent by the slot's site (rules 1, 2)."""

    generation: int
    slot: int
    timestamp_ns: int
    owner: int
    have: int
    credit: int
    runs: tuple[Run, ...]
    witnessed: tuple[Mark, ...]
    sealed: bytes = b""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Token) and self[:-1] == other[:-1]

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self[:-1])


class Claim(NamedTuple):
    """A member had everything up to `have` at T_g + tick · `UNIT_NS`."""

    tick: int
    have: int


class Beat(NamedTuple):
    """A member's claims (rule 8): that of this beat, the last one, and those of the beats before it, oldest first.

    `sequence` counts the beats that this process has sent, so that a gap in it is a loss (TT §2). `error_us` is the
    bound of the error of its clock, None if no source vouches for one; `offset_us` is how far its clock is ahead of the
    median member, None if that is not known (C1, C2).
    """

    sender: int
    generation: int
    claims: tuple[Claim, ...]
    sequence: int
    sent_ns: int
    error_us: int | None = None
    offset_us: int | None = None


class Request(NamedTuple):
    """A receiver requests tokens (by slot) and acknowledged packets from a holder (rule 5)."""

    sender: int
    generation: int
    have: int
    slots: tuple[int, ...]
    packets: tuple[Run, ...]


class CatchUpSlot(NamedTuple):
    """A slot as it is on the tape: its runs are exactly the packets that the slot ordered, in that order."""

    slot: int
    timestamp_ns: int
    runs: tuple[Run, ...]


class CatchUp(NamedTuple):
    """Released slots from a member's tape, for a member that lags too far for repairs (rule 9).

    Covers every slot after `after_slot` up to and including `upto_slot`; slots that are not listed are empty.
    `chain_before` and `chain_after` are the tape's hash chain at both ends.
    """

    sender: int
    after_slot: int
    upto_slot: int
    chain_before: bytes
    chain_after: bytes
    slots: tuple[CatchUpSlot, ...]


class CatchUpPackets(NamedTuple):
    """Packets of a `CatchUp` after `after_slot`: from a tape, so without their sources' seals (rule 9)."""

    sender: int
    after_slot: int
    packets: tuple[Packet, ...]


class FaultReason:
    """Reasons for which a node requests a reformation (MS §4.3)."""

    TOKEN_MISSING = 1
    PACKET_MISSING = 2
    OUTSIDE = 3
    STUCK = 4
    MEMBERSHIP = 5
    REFUSED = 6
    CONTRADICTION = 7
    LEAVING = 8

    NAMES: ClassVar[dict[int, str]] = {
        1: "token missing",
        2: "packet missing",
        3: "outside the ring",
        4: "promised, no ring",
        5: "membership changed",
        6: "ring refused",
        7: "token contradicts the order",
        8: "leaves the ring",
    }


class Fault(NamedTuple):
    """A report to the reformation servers. `generation` is the one the reporter has entered."""

    reporter: int
    life: int
    generation: int
    promised: int
    reason: int
    slot: int
    suspect: int


class Invite(NamedTuple):
    """A reformation server invites all members into `generation`."""

    generation: int
    server: int


class Join(NamedTuple):
    """A primary's promise to send and count nothing below `generation`, and its holdings (rule 12)."""

    generation: int
    member: int
    life: int
    caught_up: int
    have: int
    settled: int
    clock_ns: int
    lineage: tuple[Era, ...]
    before: Membership | None
    current: Membership
    current_witnessed: bool


class Promised(NamedTuple):
    """The answer to an invitation that arrived too late: the generation that was already promised."""

    member: int
    generation: int


class Cutoff(NamedTuple):
    """H_j: time after which every receiver knows a claim of this member (rule 7)."""

    member: int
    ns: int


class Pace(NamedTuple):
    """Times that all receivers of a ring must use alike: Δ_A, β and the cut-offs (rules 6 to 8)."""

    hold_ns: int
    beat_ns: int
    """0: no beats; claims are in the tokens (lockstep)."""
    cutoffs: tuple[Cutoff, ...]


class PaceChange(NamedTuple):
    """One version of the times of a ring, as a record of the sequence: a *timing record* (rule W9).

    It applies to slots with a timestamp of `from_ns` or later. `before_ns` is the hold time that it replaces.
    """

    version: int
    from_ns: int
    before_ns: int
    pace: Pace


class Ring(NamedTuple):
    """The one immutable announcement of `generation` (rule 12). The last era of `lineage` is its own.

    `helper` reported the best history and serves the others; `membership` is the configured set it was formed
    under, and `membership_stands` means that a joiner knew its record to be witnessed. `edges` are the receivers of the
    lines, by the names of their edge groups (MS §4.3). Without a `pace` each receiver uses the hold time of its file,
    and claims are in the tokens.
    """

    generation: int
    server: int
    helper: int
    membership: Membership
    membership_stands: bool
    members: tuple[MemberLife, ...]
    lineage: tuple[Era, ...]
    edges: tuple[tuple[int, str], ...]
    pace: Pace | None = None
    sealed: bytes = b""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ring) and self[:-1] == other[:-1]

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self[:-1])


class GroupToken(NamedTuple):
    """A secondary's turn: its `have`, to its group and its primary (rule 11). `generation` is the ring it follows.

    `turn_ns` is the scheduled time of the turn.
    """

    sender: int
    generation: int
    group: int
    turn_ns: int
    have: int


class GroupRequest(NamedTuple):
    """A secondary requests a group from a server (`invitation` 0), or answers an invitation (MS §4.3).

    `group` and `primary` are its current ones, 0 for none; `suspect` is the node that does not answer it, 0 for none. A
    secondary that names itself stops as planned.
    """

    secondary: int
    invitation: int
    group: int
    primary: int
    suspect: int


class GroupInvite(NamedTuple):
    """A server checks whether a secondary is running: it is about to form groups with `number`."""

    number: int
    server: int


class Group(NamedTuple):
    """The secondaries of one primary, in the order of their turns (rule 11). The highest number counts."""

    number: int
    server: int
    primary: int
    members: tuple[int, ...]
    sealed: bytes = b""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Group) and self[:-1] == other[:-1]

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self[:-1])


class LineHolders(NamedTuple):
    """The receivers of the lines after a change of the secondaries (MS §4.3), as `edges` of a RING.

    The highest (generation of the ring, number) counts; a RING itself has number 0.
    """

    generation: int
    server: int
    number: int
    holders: tuple[tuple[int, str], ...]
    sealed: bytes = b""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LineHolders) and self[:-1] == other[:-1]

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self[:-1])


class LineRequest(NamedTuple):
    """A receiver requests the newest assignment of lines from the servers, or a server from all receivers.

    `generation` and `number` are those of the assignment that the sender knows, 0 for none.
    """

    sender: int
    generation: int
    number: int


class Repair(NamedTuple):
    """Messages of others, passed on as their authors sealed them (rules 5, 11, 12); `sender` is not their author."""

    sender: int
    items: tuple[Token | Data | Ring | Group | LineHolders | ChainMessage, ...]


class Probe(NamedTuple):
    """A message that every receiving node answers, to measure delay and loss."""

    sender: int
    number: int
    sent_ns: int


class Echo(NamedTuple):
    """The answer to a probe, with the prober's time and the answering node's own: of the arrival and of the answer."""

    sender: int
    to: int
    number: int
    sent_ns: int
    heard_ns: int
    left_ns: int


NOTHING_RECENT = -(2**31)
"""`recent_us` of a path on which nothing has arrived in the last seconds."""


class PathFigures(NamedTuple):
    """Delay and loss of messages from `peer` in the last minutes; delays by two clocks, in microseconds."""

    peer: int
    heard: int
    lost: int
    bursts: int
    """Groups of losses without an arrival between them."""
    least_us: int
    p50_us: int
    p99_us: int
    p999_us: int
    last: int
    """Number of the newest message."""
    arrived: bytes
    """The last messages, one bit each, the newest first: 1 if it has arrived."""
    recent_us: int = NOTHING_RECENT
    """Least delay of the last seconds."""


class PathRow(NamedTuple):
    """Figures of the paths from other nodes to `sender` (TT §2). A long row is sent in several messages."""

    sender: int
    paths: tuple[PathFigures, ...]


class ReleaseSecond(NamedTuple):
    """The released slots of a receiver with timestamps in one second since the epoch."""

    second: int
    slots: int
    late: int
    """Those that were late by protocol."""
    longest_us: int
    """The largest time that one of them needed, from its timestamp on (rule W10)."""


class ReleaseRow(NamedTuple):
    """Time that slots needed at a receiver (rule W10): quantiles of a minute, and the last seconds, oldest first."""

    sender: int
    p50_us: int
    p99_us: int
    p999_us: int
    seconds: tuple[ReleaseSecond, ...]


Message = (
    Data
    | Parity
    | Token
    | Beat
    | Request
    | Repair
    | CatchUp
    | CatchUpPackets
    | Fault
    | Invite
    | Join
    | Promised
    | Ring
    | GroupToken
    | GroupRequest
    | GroupInvite
    | Group
    | LineHolders
    | LineRequest
    | PathRow
    | ReleaseRow
    | Probe
    | Echo
    | WideMessage
    | ChainMessage
    | ChainRequest
    | ChainEvidence
    | ChainStatement
    | ChainSuccession
)

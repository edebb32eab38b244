"""What the core group says to itself, as values.

Every message is an immutable named tuple; `levelcast.wire.codec` turns them into bytes and back. The protocol
classes in `levelcast.ring` take and return these values and never look into a datagram.

A `Data`, `Token`, `Ring` or `Group` may be passed on by others than its author, so it keeps the datagram that its
author sealed: `sealed`, the last field, empty until the author has sealed it. Two tokens (rings, groups) are equal if
they say the same, whatever their datagrams are. `_replace` keeps the old datagram: give it `sealed=b""` as well.

Numbers and units: times are nanoseconds UTC; slots, packet numbers and generations are unsigned 64-bit; node
ids (members, reformation servers and sources share one namespace) are unsigned 16-bit; a life is 32-bit.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

CONTROL_SOURCE = 0
"""The source id whose packets change the configured set of primaries (rule 12). No floor may have it."""


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
    """One generation of a lineage: from slot `start_slot` on, at `start_ns` (T_g), tokens are of it."""

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
    """What one packet of a source says: so many `records` in `payload`."""

    source: int
    incarnation: int
    number: int
    records: int
    payload: bytes


class Data(NamedTuple):
    """Packets `first` to `last` of one incarnation of a source, as it sealed them: their datagrams, back to back.

    A datagram carries one packet. Those that follow one another are one value for as long as they stay together, so
    that what is done per packet on the way (rules 2, 8) is done once for all of them. `levelcast.wire.packets` makes
    values of packets, and packets of values.
    """

    source: int
    incarnation: int
    first: int
    last: int
    sealed: bytes


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


class Request(NamedTuple):
    """A receiver asks a holder for tokens (by slot) and for acknowledged packets (rule 5)."""

    sender: int
    generation: int
    have: int
    slots: tuple[int, ...]
    packets: tuple[Run, ...]


class CatchUpSlot(NamedTuple):
    """A slot as it stands on the tape: its runs are exactly what the slot ordered, in that order."""

    slot: int
    timestamp_ns: int
    runs: tuple[Run, ...]


class CatchUp(NamedTuple):
    """Released slots from a member's tape, for one that is too far behind for repairs (rule 9).

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
    """Why a node asks for a reformation (MS §4.3)."""

    TOKEN_MISSING = 1
    PACKET_MISSING = 2
    OUTSIDE = 3
    STUCK = 4
    MEMBERSHIP = 5
    REFUSED = 6
    CONTRADICTION = 7

    NAMES: ClassVar[dict[int, str]] = {
        1: "token missing",
        2: "packet missing",
        3: "outside the ring",
        4: "promised, no ring",
        5: "membership changed",
        6: "ring refused",
        7: "token contradicts the order",
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
    """A reformation server invites everybody into `generation`."""

    generation: int
    server: int


class Join(NamedTuple):
    """A primary's promise to send and count nothing below `generation`, and what it holds (rule 12)."""

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
    """The answer to an invitation that came too late: the generation that was already promised."""

    member: int
    generation: int


class Ring(NamedTuple):
    """The one immutable announcement of `generation` (rule 12). The last era of `lineage` is its own.

    `helper` reported the best history and serves the rest; `membership` is the configured set it was formed
    under, and `membership_stands` says that a joiner knew its record to be witnessed.
    """

    generation: int
    server: int
    helper: int
    membership: Membership
    membership_stands: bool
    members: tuple[MemberLife, ...]
    lineage: tuple[Era, ...]
    edges: tuple[tuple[int, str], ...]
    sealed: bytes = b""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ring) and self[:-1] == other[:-1]

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self[:-1])


class GroupToken(NamedTuple):
    """A secondary's turn: what it has, to its group and its primary (rule 11). `generation` is the ring it follows."""

    sender: int
    generation: int
    group: int
    turn: int
    have: int


class GroupRequest(NamedTuple):
    """A secondary asks a server for a group (`invitation` 0), or answers an invitation (MS §4.3).

    `group` and `primary` are what it has now, 0 for none; `suspect` is who does not answer it, 0 for nobody.
    """

    secondary: int
    invitation: int
    group: int
    primary: int
    suspect: int


class GroupInvite(NamedTuple):
    """A server asks a secondary whether it is there: it is about to form groups with `number`."""

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


class Repair(NamedTuple):
    """Messages of others, passed on as their authors sealed them (rules 5, 11, 12); `sender` is not their author."""

    sender: int
    items: tuple[Token | Data | Ring | Group, ...]


class Probe(NamedTuple):
    """Whoever hears this answers it: how long does it take, and is it lost?"""

    sender: int
    number: int
    sent_ns: int


class Echo(NamedTuple):
    """The answer to a probe, with the prober's time and the answerer's own."""

    sender: int
    to: int
    number: int
    sent_ns: int
    heard_ns: int


Message = (
    Data
    | Token
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
    | Probe
    | Echo
)

"""Messages of a reformation as bytes (rule 12, MS §4.3); part of the table in `levelcast.wire.codec`.

    kind         sender    generation         body
    6  Fault     reporter  entered            life u32, promised u64, reason u8, slot u64, suspect u16
    7  Invite    server    of the invitation  nothing
    8  Join      member    promised           life u32, caught_up u64, have u64, settled u64, clock u64, flags u8,
                                              [era], membership before if flag 1, membership current;
                                              flag 2: current is witnessed
    9  Promised  member    promised           nothing
    10 Ring      server    of the ring        helper u16, flags u8, membership, [member], [era], [node u16, text],
                                              pace if flag 2; flag 1: the membership is known to be witnessed

    era         generation u64, start_slot u64, start u64
    member      member u16, life u32
    membership  version u64, [member]
    pace        hold u64, beat u64, [member u16, cut-off u64]

The header, the seal and the rule that a message has one encoding are those of every core datagram.
"""

from __future__ import annotations

from struct import Struct
from typing import Any

from levelcast.wire.header import HEADER_SIZE, bad_field, seal_datagram
from levelcast.wire.messages import (
    Cutoff,
    Era,
    Fault,
    FaultReason,
    Invite,
    Join,
    MemberLife,
    Membership,
    Pace,
    Promised,
    Ring,
)
from levelcast.wire.parts import (
    Codec,
    Packed,
    check_time,
    fixed,
    pack_holders,
    unpack_holders,
)

KIND_INVITE, KIND_JOIN, KIND_RING = 7, 8, 10
MAX_ERAS = 2_048
MAX_MEMBERS = 256

_JOIN = Struct("<IQQQQB")
_MEMBERSHIP = Struct("<Q")
_RING = Struct("<HB")
_ERAS = Packed("<QQQ", Era, MAX_ERAS)
_MEMBERS = Packed("<HI", MemberLife, MAX_MEMBERS)
_PACE = Struct("<QQ")
_CUTOFFS = Packed("<HQ", Cutoff, MAX_MEMBERS)

# The flags of a Join
_BEFORE_PRESENT = 1
_CURRENT_WITNESSED = 2
# The flags of a Ring
_MEMBERSHIP_STANDS = 1
_PACE_PRESENT = 2


def _pack_membership(membership: Membership) -> bytes:
    return _MEMBERSHIP.pack(membership.version) + _MEMBERS.pack(membership.members)


def _unpack_membership(datagram: bytes, at: int) -> tuple[Membership, int]:
    (version,) = _MEMBERSHIP.unpack_from(datagram, at)
    members, end = _MEMBERS.unpack(datagram, at + _MEMBERSHIP.size)
    return Membership(version, members), end


def _check_lineage(lineage: tuple[Era, ...]) -> None:
    slot = generation = -1
    for era in lineage:
        check_time(era.start_ns)
        if era.start_slot <= slot or era.generation <= generation:
            bad_field("a lineage that does not rise")
        slot, generation = era.start_slot, era.generation


def _check_fault(message: Fault) -> None:
    if message.reason not in FaultReason.NAMES:
        bad_field("fault reason")


def _check_join(message: Join) -> None:
    check_time(message.clock_ns)
    _check_lineage(message.lineage)


def encode_join(message: Join, domain: int) -> bytes:
    _check_join(message)
    before = message.before
    flags = (_BEFORE_PRESENT if before is not None else 0) | (_CURRENT_WITNESSED if message.current_witnessed else 0)
    body = b"".join(
        (
            _JOIN.pack(message.life, message.caught_up, message.have, message.settled, message.clock_ns, flags),
            _ERAS.pack(message.lineage),
            _pack_membership(before) if before is not None else b"",
            _pack_membership(message.current),
        )
    )
    return seal_datagram(KIND_JOIN, domain, message.member, message.generation, body)


def decode_join(datagram: bytes, domain: int, sender: int, generation: int) -> tuple[Join, int]:
    life, caught_up, have, released, clock_ns, flags = _JOIN.unpack_from(datagram, HEADER_SIZE)
    if flags & ~(_BEFORE_PRESENT | _CURRENT_WITNESSED):
        bad_field("flags")
    lineage, at = _ERAS.unpack(datagram, HEADER_SIZE + _JOIN.size)
    before: Membership | None = None
    if flags & _BEFORE_PRESENT:
        before, at = _unpack_membership(datagram, at)
    current, at = _unpack_membership(datagram, at)
    witnessed = bool(flags & _CURRENT_WITNESSED)
    message = Join(generation, sender, life, caught_up, have, released, clock_ns, lineage, before, current, witnessed)
    _check_join(message)
    return message, at


def _check_ring(message: Ring) -> None:
    # Without a member no slot has an owner; without its own era the ring has no first slot (rules 1, 12).
    if not message.members or not message.lineage or message.lineage[-1].generation != message.generation:
        bad_field("ring")
    _check_lineage(message.lineage)
    if message.pace is not None:
        members = sorted({life.member for life in message.members}) if message.pace.beat_ns else []
        if sorted(cutoff.member for cutoff in message.pace.cutoffs) != members:
            bad_field("cut-offs that are not one for each member of the ring")
        for time_ns in (message.pace.hold_ns, message.pace.beat_ns, *(cutoff.ns for cutoff in message.pace.cutoffs)):
            check_time(time_ns)


def encode_ring(message: Ring, domain: int) -> bytes:
    _check_ring(message)
    pace = message.pace
    flags = (_MEMBERSHIP_STANDS if message.membership_stands else 0) | (_PACE_PRESENT if pace is not None else 0)
    parts = [
        _RING.pack(message.helper, flags),
        _pack_membership(message.membership),
        _MEMBERS.pack(message.members),
        _ERAS.pack(message.lineage),
        pack_holders(message.edges),
    ]
    if pace is not None:
        parts += [_PACE.pack(pace.hold_ns, pace.beat_ns), _CUTOFFS.pack(pace.cutoffs)]
    return seal_datagram(KIND_RING, domain, message.server, message.generation, b"".join(parts))


def decode_ring(datagram: bytes, domain: int, sender: int, generation: int) -> tuple[Ring, int]:
    helper, flags = _RING.unpack_from(datagram, HEADER_SIZE)
    if flags & ~(_MEMBERSHIP_STANDS | _PACE_PRESENT):
        bad_field("flags")
    membership, at = _unpack_membership(datagram, HEADER_SIZE + _RING.size)
    members, at = _MEMBERS.unpack(datagram, at)
    lineage, at = _ERAS.unpack(datagram, at)
    edges, at = unpack_holders(datagram, at)
    pace: Pace | None = None
    if flags & _PACE_PRESENT:
        hold_ns, beat_ns = _PACE.unpack_from(datagram, at)
        cutoffs, at = _CUTOFFS.unpack(datagram, at + _PACE.size)
        pace = Pace(hold_ns, beat_ns, cutoffs)
    stands = bool(flags & _MEMBERSHIP_STANDS)
    message = Ring(generation, sender, helper, membership, stands, members, lineage, edges, pace)
    _check_ring(message)
    return message, at


CODECS: dict[type[Any], Codec] = {
    Fault: fixed(6, Fault, "IQBQH", "reporter", "generation", _check_fault),
    Invite: fixed(KIND_INVITE, Invite, "", "server", "generation"),
    Join: Codec(KIND_JOIN, encode_join, decode_join),
    Promised: fixed(9, Promised, "", "member", "generation"),
    Ring: Codec(KIND_RING, encode_ring, decode_ring),
}

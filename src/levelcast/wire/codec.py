"""Core datagrams: the messages of `levelcast.wire.messages` as bytes and back.

The header and the seal are the same for every kind: see `levelcast.wire.header`. The body lies between them.
`[x]` is a u32 count and that many x, without gaps; `text` is a u8 length and UTF-8; `hash` is a u8 length and
bytes.

    kind         sender    body
    1  Data      source    incarnation u64, number u64, records u32, payload (the rest)
    2  Token     site      slot u64, timestamp u64, have u64, credit u32, [run], [mark]
    3  Request   sender    have u64, [slot u64], [run]
    4  Repair    sender    [complete datagram of kind Token or Data, of the same stripe]
    5  Settled   sender    after u64, upto u64, hash before, hash after, [slot u64, timestamp u64, [run]]
    6  Fault     reporter  life u32, promised u64, reason u8, slot u64, suspect u16
    7  Invite    server    nothing
    8  Join      member    life u32, caught_up u64, have u64, settled u64, clock u64, flags u8, [era],
                           membership before if flag 1, membership current; flag 2: current is witnessed
    9  Promised  member    nothing
    10 Ring      server    helper u16, flags u8, membership, [member], [era], [node u16, text];
                           flag 1: the membership is known to be witnessed
    11 to 14               secondary groups: see `levelcast.wire.group_codec`
    15, 16                 measuring the network: see `levelcast.wire.probe_codec`

    run         source u16, incarnation u64, first u64, last u64
    mark        source u16, incarnation u64, number u64
    era         generation u64, start_slot u64, start u64
    member      member u16, life u32
    membership  version u64, [member]

A message has exactly one encoding: `encode(decode(b)) == b` for every b that decodes. So nothing is skipped,
every flag and reserved byte is checked, and two members that hold the same message hold the same bytes.

What a value may be is stated once, in the `_check_*` functions, and both directions call them: a message
that every receiver would reject fails at the node that made it. Whether a message makes sense *now* (its
generation, its place in the lineage, who may send it) is for `levelcast.ring`.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterable
from struct import Struct
from typing import Any, NamedTuple

from levelcast import native
from levelcast.wire import group_codec, probe_codec
from levelcast.wire.header import (
    COUNT,
    HEADER_SIZE,
    KIND_AT,
    LENGTH_AT,
    MAX_DATAGRAM,
    SEAL_SIZE,
    STRIPE_AT,
    Malformed,
    Packed,
    Reason,
    bad_field,
    new_tuple,
    open_datagram,
    pack_bytes,
    seal_datagram,
    unpack_bytes,
    unpack_count,
)
from levelcast.wire.messages import (
    CatchUp,
    CatchUpSlot,
    Data,
    Echo,
    Era,
    Fault,
    FaultReason,
    Group,
    GroupInvite,
    GroupRequest,
    GroupToken,
    Invite,
    Join,
    Mark,
    MemberLife,
    Membership,
    Message,
    Probe,
    Promised,
    Repair,
    Request,
    Ring,
    Run,
    Token,
)
from levelcast.wire.packets import BODY, DATA_OVERHEAD, KIND_DATA, MAX_PAYLOAD, check_packet

__all__ = [
    "MAX_DATAGRAM",
    "MAX_PAYLOAD",
    "MAX_REPAIR_BYTES",
    "Decoded",
    "Malformed",
    "Reason",
    "decode",
    "decode_batch",
    "encode",
    "encode_batch",
    "repair_bytes",
]

# A full token, and a Repair with one, fit a datagram: everything that was sent can be repaired.
MAX_RUNS = 1_024
MAX_MARKS = 1_024
MAX_REQUEST_SLOTS = 4_096
MAX_REPAIR_ITEMS = 1_024
MAX_SETTLED_SLOTS = 2_048
MAX_ERAS = 2_048
MAX_MEMBERS = 256
MAX_EDGES = 256
MAX_TEXT = 255
MAX_HASH = 64
MAX_TIME_NS = 2**63 - 1
"""Times stay within a signed 64-bit number: numpy's datetime64 and Arrow's timestamps are signed."""

_TOKEN = Struct("<QQQI")
_REQUEST = Struct("<Q")
_SETTLED = Struct("<QQ")
_SETTLED_SLOT = Struct("<QQ")
_FAULT = Struct("<IQBQH")
_JOIN = Struct("<IQQQQB")
_MEMBERSHIP = Struct("<Q")
_RING = Struct("<HB")
_EDGE = Struct("<H")
_SLOT = Struct("<Q")
_STRIPE_AND_SENDER = Struct("<HH")

MAX_REPAIR_BYTES = MAX_DATAGRAM - (HEADER_SIZE + COUNT.size + SEAL_SIZE)
"""Room for the items of one Repair."""
assert MAX_PAYLOAD == MAX_REPAIR_BYTES - DATA_OVERHEAD

# The flags of a Join
_BEFORE_PRESENT = 1
_CURRENT_WITNESSED = 2
# The flag of a Ring
_MEMBERSHIP_STANDS = 1

KIND_TOKEN, KIND_REQUEST, KIND_REPAIR, KIND_SETTLED = 2, 3, 4, 5
KIND_FAULT, KIND_INVITE, KIND_JOIN, KIND_PROMISED, KIND_RING = 6, 7, 8, 9, 10


class Decoded(NamedTuple):
    stripe: int
    message: Message


def encode(message: Message, stripe: int) -> bytes:
    """The one datagram that carries `message`; raises `Malformed` for what no receiver would accept."""
    try:
        return _ENCODERS[type(message)](message, stripe)
    except struct.error as error:
        raise Malformed(Reason.BAD_FIELD, f"{type(message).__name__}: {error}") from None


def decode(datagram: bytes | memoryview) -> Decoded:
    """The message of a datagram; raises `Malformed`, and nothing else, whatever the bytes are."""
    # Slices of bytes are bytes: a view is copied once here, and nothing below has to convert.
    if type(datagram) is not bytes:
        datagram = bytes(datagram)
    kind, stripe, sender, generation, unsealed = open_datagram(datagram)
    decoder = _DECODERS.get(kind)
    if decoder is None:
        raise Malformed(Reason.UNKNOWN_KIND)
    try:
        message, end = decoder(unsealed, stripe, sender, generation)
    except struct.error:
        raise Malformed(Reason.TRUNCATED_BODY) from None
    if end != len(unsealed):
        raise Malformed(Reason.TRAILING_BYTES)
    if kind == KIND_DATA:
        message = new_tuple(Data, (*message[:4], datagram))
    return new_tuple(Decoded, (stripe, message))


def repair_bytes(item: Token | Data) -> int:
    """The room that an item takes in a Repair; all items of one share `MAX_REPAIR_BYTES`."""
    return len(item.sealed) if type(item) is Data else len(encode(item, 0))


def encode_batch(messages: Iterable[Message], stripe: int) -> list[bytes]:
    return [encode(message, stripe) for message in messages]


def decode_batch(datagrams: Iterable[bytes | memoryview], stripe: int) -> tuple[list[Message], Counter[Reason]]:
    """The messages of this stripe in the order they came, and how many datagrams were rejected for what."""
    messages: list[Message] = []
    rejected: Counter[Reason] = Counter()
    for datagram in datagrams:
        try:
            found, message = decode(datagram)
        except Malformed as malformed:
            rejected[malformed.reason] += 1
        else:
            if found == stripe:
                messages.append(message)
            else:
                rejected[Reason.WRONG_STRIPE] += 1
    return messages, rejected


# ---------------------------------------------------------------------------------------------------------
# Parts that several messages share

_RUNS = Packed("<HQQQ", Run, MAX_RUNS)
_MARKS = Packed("<HQQ", Mark, MAX_MARKS)
_ERAS = Packed("<QQQ", Era, MAX_ERAS)
_MEMBERS = Packed("<HI", MemberLife, MAX_MEMBERS)


def _pack_membership(membership: Membership) -> bytes:
    return _MEMBERSHIP.pack(membership.version) + _MEMBERS.pack(membership.members)


def _unpack_membership(datagram: bytes, at: int) -> tuple[Membership, int]:
    (version,) = _MEMBERSHIP.unpack_from(datagram, at)
    members, end = _MEMBERS.unpack(datagram, at + _MEMBERSHIP.size)
    return Membership(version, members), end


def _check_time(time_ns: int) -> None:
    if time_ns > MAX_TIME_NS:
        bad_field("time")


def _check_runs(runs: tuple[Run, ...]) -> None:
    for _, _, first, last in runs:
        if not 0 < first <= last:  # packets are numbered from 1 (rule 10)
            bad_field("run")


def _check_lineage(lineage: tuple[Era, ...]) -> None:
    slot = generation = -1
    for era in lineage:
        if era.start_ns > MAX_TIME_NS:
            bad_field("time")
        if era.start_slot <= slot or era.generation <= generation:
            bad_field("a lineage that does not rise")
        slot, generation = era.start_slot, era.generation


def _check_no_generation(generation: int) -> None:
    if generation:
        bad_field("generation in a kind that has none")


# ---------------------------------------------------------------------------------------------------------
# One check, one encoder and one decoder per kind. A decoder gets the header's stripe, sender and generation,
# and returns the message and where its body ended.


def _encode_data(message: Data, stripe: int) -> bytes:
    source, _, first, last, sealed = message
    if first != last:
        bad_field("several packets, which do not share a datagram")
    if sealed[STRIPE_AT : STRIPE_AT + 4] != _STRIPE_AND_SENDER.pack(stripe, source):
        bad_field("a packet that was sealed for another stripe, or by another source")
    return sealed


def _decode_data(datagram: bytes, stripe: int, sender: int, generation: int) -> tuple[Data, int]:
    """Without the bytes: `decode` puts the whole datagram into the value."""
    _check_no_generation(generation)
    incarnation, number, records = BODY.unpack_from(datagram, HEADER_SIZE)
    check_packet(number, records, len(datagram) - HEADER_SIZE - BODY.size)
    return new_tuple(Data, (sender, incarnation, number, number, b"")), len(datagram)


def _encode_token(message: Token, stripe: int) -> bytes:
    generation, slot, timestamp_ns, site, have, credit, runs, witnessed = message
    _check_time(timestamp_ns)
    _check_runs(runs)
    body = _TOKEN.pack(slot, timestamp_ns, have, credit) + _RUNS.pack(runs) + _MARKS.pack(witnessed)
    return seal_datagram(KIND_TOKEN, stripe, site, generation, body)


def _decode_token(datagram: bytes, stripe: int, sender: int, generation: int) -> tuple[Token, int]:
    slot, timestamp_ns, have, credit = _TOKEN.unpack_from(datagram, HEADER_SIZE)
    _check_time(timestamp_ns)
    runs, at = _RUNS.unpack(datagram, HEADER_SIZE + _TOKEN.size)
    _check_runs(runs)
    witnessed, at = _MARKS.unpack(datagram, at)
    return new_tuple(Token, (generation, slot, timestamp_ns, sender, have, credit, runs, witnessed)), at


def _encode_request(message: Request, stripe: int) -> bytes:
    slots = message.slots
    if len(slots) > MAX_REQUEST_SLOTS:
        bad_field(f"{len(slots)} slots, {MAX_REQUEST_SLOTS} at most")
    _check_runs(message.packets)
    body = b"".join(
        (
            _REQUEST.pack(message.have),
            COUNT.pack(len(slots)),
            struct.pack(f"<{len(slots)}Q", *slots),
            _RUNS.pack(message.packets),
        )
    )
    return seal_datagram(KIND_REQUEST, stripe, message.sender, message.generation, body)


def _decode_request(datagram: bytes, stripe: int, sender: int, generation: int) -> tuple[Request, int]:
    (have,) = _REQUEST.unpack_from(datagram, HEADER_SIZE)
    at = HEADER_SIZE + _REQUEST.size
    count = unpack_count(datagram, at, MAX_REQUEST_SLOTS)
    slots: tuple[int, ...] = struct.unpack_from(f"<{count}Q", datagram, at + COUNT.size)
    packets, at = _RUNS.unpack(datagram, at + COUNT.size + count * _SLOT.size)
    _check_runs(packets)
    return Request(sender, generation, have, slots, packets), at


def _encode_repair(message: Repair, stripe: int) -> bytes:
    items = message.items
    if len(items) > MAX_REPAIR_ITEMS:
        bad_field(f"{len(items)} items, {MAX_REPAIR_ITEMS} at most")
    if not all(isinstance(item, Token | Data) for item in items):
        bad_field("a Repair carries tokens and data")
    parts = [COUNT.pack(len(items)), *[encode(item, stripe) for item in items]]
    return seal_datagram(KIND_REPAIR, stripe, message.sender, 0, b"".join(parts))


def _decode_repair(datagram: bytes, stripe: int, sender: int, generation: int) -> tuple[Repair, int]:
    _check_no_generation(generation)
    count = unpack_count(datagram, HEADER_SIZE, MAX_REPAIR_ITEMS)
    at = HEADER_SIZE + COUNT.size
    items: list[Token | Data] = []
    for _ in range(count):
        (length,) = COUNT.unpack_from(datagram, at + LENGTH_AT)
        # Before it is decoded: a Repair in a Repair in a Repair would recurse as deep as its sender likes.
        if datagram[at + KIND_AT] not in (KIND_DATA, KIND_TOKEN):
            bad_field("a Repair carries tokens and data")
        if at + length > len(datagram):
            raise Malformed(Reason.TRUNCATED_BODY)
        items.append(_decode_item(datagram[at : at + length], stripe))
        at += length
    return Repair(sender, tuple(items)), at


def _decode_item(datagram: bytes, stripe: int) -> Token | Data:
    data = native.open_data(datagram, stripe, Data)  # the ordinary case
    if data is not None:
        return data
    item_stripe, item = decode(datagram)
    if item_stripe != stripe:
        bad_field("an item of another stripe")
    assert isinstance(item, Token | Data)
    return item


def _check_settled(message: CatchUp) -> None:
    if message.after_slot > message.upto_slot:
        bad_field("settled range")
    before = message.after_slot
    for slot, timestamp_ns, runs in message.slots:
        if not before < slot <= message.upto_slot:
            bad_field("settled slot")
        before = slot
        _check_time(timestamp_ns)
        _check_runs(runs)


def _encode_settled(message: CatchUp, stripe: int) -> bytes:
    _check_settled(message)
    if len(message.slots) > MAX_SETTLED_SLOTS:
        bad_field(f"{len(message.slots)} slots, {MAX_SETTLED_SLOTS} at most")
    parts = [
        _SETTLED.pack(message.after_slot, message.upto_slot),
        pack_bytes(message.chain_before, MAX_HASH),
        pack_bytes(message.chain_after, MAX_HASH),
        COUNT.pack(len(message.slots)),
    ]
    for slot, timestamp_ns, runs in message.slots:
        parts.append(_SETTLED_SLOT.pack(slot, timestamp_ns))
        parts.append(_RUNS.pack(runs))
    return seal_datagram(KIND_SETTLED, stripe, message.sender, 0, b"".join(parts))


def _decode_settled(datagram: bytes, stripe: int, sender: int, generation: int) -> tuple[CatchUp, int]:
    _check_no_generation(generation)
    after_slot, upto_slot = _SETTLED.unpack_from(datagram, HEADER_SIZE)
    chain_before, at = unpack_bytes(datagram, HEADER_SIZE + _SETTLED.size, MAX_HASH)
    chain_after, at = unpack_bytes(datagram, at, MAX_HASH)
    count = unpack_count(datagram, at, MAX_SETTLED_SLOTS)
    at += COUNT.size
    slots: list[CatchUpSlot] = []
    for _ in range(count):
        slot, timestamp_ns = _SETTLED_SLOT.unpack_from(datagram, at)
        runs, at = _RUNS.unpack(datagram, at + _SETTLED_SLOT.size)
        slots.append(CatchUpSlot(slot, timestamp_ns, runs))
    message = CatchUp(sender, after_slot, upto_slot, chain_before, chain_after, tuple(slots))
    _check_settled(message)
    return message, at


def _check_fault(message: Fault) -> None:
    if message.reason not in FaultReason.NAMES:
        bad_field("fault reason")


def _encode_fault(message: Fault, stripe: int) -> bytes:
    _check_fault(message)
    reporter, life, generation, promised, reason, slot, suspect = message
    return seal_datagram(KIND_FAULT, stripe, reporter, generation, _FAULT.pack(life, promised, reason, slot, suspect))


def _decode_fault(datagram: bytes, stripe: int, sender: int, generation: int) -> tuple[Fault, int]:
    life, promised, reason, slot, suspect = _FAULT.unpack_from(datagram, HEADER_SIZE)
    message = Fault(sender, life, generation, promised, reason, slot, suspect)
    _check_fault(message)
    return message, HEADER_SIZE + _FAULT.size


def _encode_invite(message: Invite, stripe: int) -> bytes:
    return seal_datagram(KIND_INVITE, stripe, message.server, message.generation, b"")


def _decode_invite(datagram: bytes, stripe: int, sender: int, generation: int) -> tuple[Invite, int]:
    return Invite(generation, sender), HEADER_SIZE


def _check_join(message: Join) -> None:
    _check_time(message.clock_ns)
    _check_lineage(message.lineage)


def _encode_join(message: Join, stripe: int) -> bytes:
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
    return seal_datagram(KIND_JOIN, stripe, message.member, message.generation, body)


def _decode_join(datagram: bytes, stripe: int, sender: int, generation: int) -> tuple[Join, int]:
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


def _encode_promised(message: Promised, stripe: int) -> bytes:
    return seal_datagram(KIND_PROMISED, stripe, message.member, message.generation, b"")


def _decode_promised(datagram: bytes, stripe: int, sender: int, generation: int) -> tuple[Promised, int]:
    return Promised(sender, generation), HEADER_SIZE


def _check_ring(message: Ring) -> None:
    # Without a member there is no site for a slot; without its own era there is no first slot (rules 1, 12).
    if not message.members or not message.lineage or message.lineage[-1].generation != message.generation:
        bad_field("ring")
    _check_lineage(message.lineage)


def _encode_ring(message: Ring, stripe: int) -> bytes:
    _check_ring(message)
    if len(message.edges) > MAX_EDGES:
        bad_field(f"{len(message.edges)} edges, {MAX_EDGES} at most")
    parts = [
        _RING.pack(message.helper, _MEMBERSHIP_STANDS if message.membership_stands else 0),
        _pack_membership(message.membership),
        _MEMBERS.pack(message.members),
        _ERAS.pack(message.lineage),
        COUNT.pack(len(message.edges)),
    ]
    for node, address in message.edges:
        parts.append(_EDGE.pack(node))
        try:
            parts.append(pack_bytes(address.encode(), MAX_TEXT))
        except UnicodeEncodeError:
            bad_field("edge address")
    return seal_datagram(KIND_RING, stripe, message.server, message.generation, b"".join(parts))


def _decode_ring(datagram: bytes, stripe: int, sender: int, generation: int) -> tuple[Ring, int]:
    helper, flags = _RING.unpack_from(datagram, HEADER_SIZE)
    if flags & ~_MEMBERSHIP_STANDS:
        bad_field("flags")
    membership, at = _unpack_membership(datagram, HEADER_SIZE + _RING.size)
    members, at = _MEMBERS.unpack(datagram, at)
    lineage, at = _ERAS.unpack(datagram, at)
    count = unpack_count(datagram, at, MAX_EDGES)
    at += COUNT.size
    edges: list[tuple[int, str]] = []
    for _ in range(count):
        (node,) = _EDGE.unpack_from(datagram, at)
        address, at = unpack_bytes(datagram, at + _EDGE.size, MAX_TEXT)
        try:
            edges.append((node, address.decode()))  # strict UTF-8 has one encoding per string
        except UnicodeDecodeError:
            bad_field("edge address")
    stands = bool(flags & _MEMBERSHIP_STANDS)
    message = Ring(generation, sender, helper, membership, stands, members, lineage, tuple(edges))
    _check_ring(message)
    return message, at


_ENCODERS: dict[type[Any], Callable[[Any, int], bytes]] = {
    Data: _encode_data,
    Token: _encode_token,
    Request: _encode_request,
    Repair: _encode_repair,
    CatchUp: _encode_settled,
    Fault: _encode_fault,
    Invite: _encode_invite,
    Join: _encode_join,
    Promised: _encode_promised,
    Ring: _encode_ring,
    GroupToken: group_codec.encode_token,
    GroupRequest: group_codec.encode_plea,
    GroupInvite: group_codec.encode_invite,
    Group: group_codec.encode_group,
    Probe: probe_codec.encode_probe,
    Echo: probe_codec.encode_echo,
}

_DECODERS: dict[int, Callable[[bytes, int, int, int], tuple[Message, int]]] = {
    KIND_DATA: _decode_data,
    KIND_TOKEN: _decode_token,
    KIND_REQUEST: _decode_request,
    KIND_REPAIR: _decode_repair,
    KIND_SETTLED: _decode_settled,
    KIND_FAULT: _decode_fault,
    KIND_INVITE: _decode_invite,
    KIND_JOIN: _decode_join,
    KIND_PROMISED: _decode_promised,
    KIND_RING: _decode_ring,
    group_codec.KIND_GROUP_TOKEN: group_codec.decode_token,
    group_codec.KIND_GROUP_PLEA: group_codec.decode_plea,
    group_codec.KIND_GROUP_INVITE: group_codec.decode_invite,
    group_codec.KIND_GROUP: group_codec.decode_group,
    probe_codec.KIND_PROBE: probe_codec.decode_probe,
    probe_codec.KIND_ECHO: probe_codec.decode_echo,
}

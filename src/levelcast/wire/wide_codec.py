"""Messages of a wide-area group as bytes (TT §4, §5); part of the table in `levelcast.wire.codec`.

    kind             sender     generation  body
    23 WideData      source     view        life u32, number u64, part u16, parts u16, settled u64, closed u64,
                                            [member u16], [predecessor], [statement], payload (the rest)
    24 WideRelay     any member view        asks u8, complete datagram of kind WideData, of the same stripe
    25 WideConfirm   member     view        settled u64, closed u64, [statement]
    26 WideRequest   process    view known  incarnation u64, leaves u8
    27 WidePrepare   proposer   view        round u32, [member u16]
    28 WidePromise   member     view        round u32, proposer u16, accepted_round u32, accepted_by u16, number u64,
                                            content, [id]
    29 WideAccept    proposer   view        round u32, content
    30 WideAccepted  member     view        round u32, proposer u16
    31 WideView      any node   view        content

    id           source u16, life u32, number u64
    statement    id, flags u8: 0 to 3 the scope, + 4 asks, + 8 wants
    predecessor  id, view u64, [member u16]
    content      [member u16, life u32, incarnation u64, number u64], [id]

Members are in ascending order. The header, the seal and the rule that a message has one encoding are those of every
core datagram.
"""

from __future__ import annotations

from itertools import pairwise
from struct import Struct
from typing import Any

from levelcast.wire.header import HEADER_SIZE, bad_field, new_tuple, open_datagram, seal_datagram
from levelcast.wire.parts import COUNT, Codec, Packed, PackedNumbers, check_limit, fixed, unpack_count
from levelcast.wire.wide_messages import (
    Scope,
    WideAccept,
    WideAccepted,
    WideConfirm,
    WideContent,
    WideData,
    WideId,
    WideMember,
    WidePredecessor,
    WidePrepare,
    WidePromise,
    WideRelay,
    WideRequest,
    WideStatement,
    WideView,
)

KIND_WIDE_DATA = 23
MAX_WIDE_MEMBERS = 256
MAX_PREDECESSORS = 512
MAX_STATEMENTS = 1_024
MAX_ORPHANS = 2_048
MAX_WIDE_PAYLOAD = 8_192

_DATA = Struct("<IQHHQQ")
_ID = Struct("<HIQ")
_STATEMENT = Struct("<HIQB")
_PREDECESSOR = Struct("<HIQQ")
_FLOORS = Struct("<QQ")
_FLAG = Struct("<B")
_ROUND = Struct("<I")
_PROMISE = Struct("<IHIHQ")
_PROCESSES = PackedNumbers("H", MAX_WIDE_MEMBERS, "members")
_MEMBERS = Packed("<HIQQ", WideMember, MAX_WIDE_MEMBERS)
_IDS = Packed("<HIQ", WideId, MAX_ORPHANS)
_ASKS, _WANTS = 4, 8
_SCOPES = frozenset(Scope)


def check_id(each: WideId) -> None:
    if each.life < 1 or each.number < 1:
        bad_field("life or number of a message")


def _check_ascending(processes: tuple[int, ...]) -> None:
    if any(later <= earlier for earlier, later in pairwise(processes)):
        bad_field("members that are not in ascending order")


def _check_content(content: WideContent) -> None:
    _check_ascending(tuple(member.process for member in content.members))
    if any(member.life < 1 for member in content.members):
        bad_field("life of a member")
    for each in content.orphans:
        check_id(each)
    if any(later <= earlier for earlier, later in pairwise(content.orphans)):
        bad_field("messages that are not in ascending order")


def _check_floors(settled: int, closed: int) -> None:
    if closed > settled:
        bad_field("a closed message that is not settled")


def _check_data(message: WideData) -> None:
    check_id(message.id)
    _check_ascending(message.members)
    if not message.members or message.source in message.members:
        bad_field("destinations")
    if message.life > message.view:
        bad_field("a life that begins after the view")
    if not message.part < message.parts:
        bad_field("part")
    if message.settled >= message.number:
        bad_field("a message that is received before it is sent")
    _check_floors(message.settled, message.closed)
    everybody = tuple(sorted((*message.members, message.source)))
    for each in message.predecessors:
        check_id(each.id)
        _check_ascending(each.members)
        if each.members == everybody:
            bad_field("a list of members that is left out")
    if len(message.payload) > MAX_WIDE_PAYLOAD:
        bad_field(f"{len(message.payload)} bytes of payload")


def _pack_statements(statements: tuple[WideStatement, ...]) -> bytes:
    check_limit(statements, MAX_STATEMENTS, "statements")
    parts = [COUNT.pack(len(statements))]
    for each in statements:
        check_id(each.id)
        if each.scope not in _SCOPES:
            bad_field("scope")
        parts.append(_STATEMENT.pack(*each.id, each.scope | _ASKS * each.asks | _WANTS * each.wants))
    return b"".join(parts)


def _unpack_statements(datagram: bytes, at: int) -> tuple[tuple[WideStatement, ...], int]:
    count, at = unpack_count(datagram, at, MAX_STATEMENTS)
    found = []
    for _ in range(count):
        *identity, flags = _STATEMENT.unpack_from(datagram, at)
        if flags >= 2 * _WANTS:
            bad_field("flags")
        each = new_tuple(WideId, identity)
        check_id(each)
        found.append(WideStatement(each, flags & 3, bool(flags & _ASKS), bool(flags & _WANTS)))
        at += _STATEMENT.size
    return tuple(found), at


def _pack_predecessors(predecessors: tuple[WidePredecessor, ...]) -> bytes:
    check_limit(predecessors, MAX_PREDECESSORS, "predecessors")
    parts = [COUNT.pack(len(predecessors))]
    for each in predecessors:
        parts += [_PREDECESSOR.pack(*each.id, each.view), _PROCESSES.pack(each.members)]
    return b"".join(parts)


def _unpack_predecessors(datagram: bytes, at: int) -> tuple[tuple[WidePredecessor, ...], int]:
    count, at = unpack_count(datagram, at, MAX_PREDECESSORS)
    found = []
    for _ in range(count):
        *identity, view = _PREDECESSOR.unpack_from(datagram, at)
        members, at = _PROCESSES.unpack(datagram, at + _PREDECESSOR.size)
        found.append(WidePredecessor(new_tuple(WideId, identity), view, members))
    return tuple(found), at


def encode_data(message: WideData, domain: int) -> bytes:
    if message.sealed:
        return message.sealed
    _check_data(message)
    head = _DATA.pack(message.life, message.number, message.part, message.parts, message.settled, message.closed)
    lists = (
        _PROCESSES.pack(message.members),
        _pack_predecessors(message.predecessors),
        _pack_statements(message.statements),
    )
    body = b"".join((head, *lists, message.payload))
    return seal_datagram(KIND_WIDE_DATA, domain, message.source, message.view, body)


def _open_data(datagram: bytes, sender: int, view: int) -> WideData:
    life, number, part, parts, settled, closed = _DATA.unpack_from(datagram, HEADER_SIZE)
    members, at = _PROCESSES.unpack(datagram, HEADER_SIZE + _DATA.size)
    predecessors, at = _unpack_predecessors(datagram, at)
    statements, at = _unpack_statements(datagram, at)
    message = WideData(
        view, sender, life, number, part, parts, settled, closed, members, predecessors, statements, datagram[at:]
    )
    _check_data(message)
    return message


def decode_data(datagram: bytes, domain: int, sender: int, generation: int) -> tuple[WideData, int]:
    return _open_data(datagram, sender, generation), len(datagram)


def encode_relay(message: WideRelay, domain: int) -> bytes:
    body = bytes((message.asks,)) + encode_data(message.item, domain)
    return seal_datagram(24, domain, message.sender, message.view, body)


def decode_relay(datagram: bytes, domain: int, sender: int, generation: int) -> tuple[WideRelay, int]:
    inner = datagram[HEADER_SIZE + 1 :]
    kind, found, source, view, unsealed = open_datagram(inner)
    if kind != KIND_WIDE_DATA or found != domain:
        bad_field("an item that no relay carries")
    (asks,) = _FLAG.unpack_from(datagram, HEADER_SIZE)
    if asks > 1:
        bad_field("flags")
    item = _open_data(unsealed, source, view)
    return WideRelay(sender, generation, bool(asks), item._replace(sealed=inner)), len(datagram)


def encode_confirm(message: WideConfirm, domain: int) -> bytes:
    _check_floors(message.settled, message.closed)
    body = _FLOORS.pack(message.settled, message.closed) + _pack_statements(message.statements)
    return seal_datagram(25, domain, message.sender, message.view, body)


def decode_confirm(datagram: bytes, domain: int, sender: int, generation: int) -> tuple[WideConfirm, int]:
    settled, closed = _FLOORS.unpack_from(datagram, HEADER_SIZE)
    _check_floors(settled, closed)
    statements, at = _unpack_statements(datagram, HEADER_SIZE + _FLOORS.size)
    return WideConfirm(sender, generation, settled, closed, statements), at


def _encode_request(message: WideRequest, domain: int) -> bytes:
    return _REQUEST.encode(message._replace(leaves=int(message.leaves)), domain)  # type: ignore[arg-type]


def _decode_request(datagram: bytes, domain: int, sender: int, generation: int) -> tuple[WideRequest, int]:
    found, at = _REQUEST.decode(datagram, domain, sender, generation)
    if found.leaves > 1:
        bad_field("flags")
    return found._replace(leaves=bool(found.leaves)), at


def encode_prepare(message: WidePrepare, domain: int) -> bytes:
    _check_ascending(message.without)
    body = _ROUND.pack(message.round) + _PROCESSES.pack(message.without)
    return seal_datagram(27, domain, message.sender, message.view, body)


def decode_prepare(datagram: bytes, domain: int, sender: int, generation: int) -> tuple[WidePrepare, int]:
    (number,) = _ROUND.unpack_from(datagram, HEADER_SIZE)
    without, at = _PROCESSES.unpack(datagram, HEADER_SIZE + _ROUND.size)
    _check_ascending(without)
    return WidePrepare(sender, generation, number, without), at


def _pack_content(content: WideContent) -> bytes:
    _check_content(content)
    return _MEMBERS.pack(content.members) + _IDS.pack(content.orphans)


def _unpack_content(datagram: bytes, at: int) -> tuple[WideContent, int]:
    members, at = _MEMBERS.unpack(datagram, at)
    orphans, at = _IDS.unpack(datagram, at)
    content = WideContent(members, orphans)
    _check_content(content)
    return content, at


def _check_promise(message: WidePromise) -> None:
    _check_content(WideContent((), message.held))
    if not message.accepted_round and (message.accepted_by or message.accepted != WideContent((), ())):
        bad_field("a content that was not accepted")


def encode_promise(message: WidePromise, domain: int) -> bytes:
    _check_promise(message)
    head = _PROMISE.pack(message.round, message.proposer, message.accepted_round, message.accepted_by, message.number)
    body = b"".join((head, _pack_content(message.accepted), _IDS.pack(message.held)))
    return seal_datagram(28, domain, message.sender, message.view, body)


def decode_promise(datagram: bytes, domain: int, sender: int, generation: int) -> tuple[WidePromise, int]:
    turn, proposer, accepted_round, accepted_by, number = _PROMISE.unpack_from(datagram, HEADER_SIZE)
    accepted, at = _unpack_content(datagram, HEADER_SIZE + _PROMISE.size)
    held, at = _IDS.unpack(datagram, at)
    message = WidePromise(sender, generation, turn, proposer, accepted_round, accepted_by, accepted, number, held)
    _check_promise(message)
    return message, at


def encode_accept(message: WideAccept, domain: int) -> bytes:
    body = _ROUND.pack(message.round) + _pack_content(message.content)
    return seal_datagram(29, domain, message.sender, message.view, body)


def decode_accept(datagram: bytes, domain: int, sender: int, generation: int) -> tuple[WideAccept, int]:
    (number,) = _ROUND.unpack_from(datagram, HEADER_SIZE)
    content, at = _unpack_content(datagram, HEADER_SIZE + _ROUND.size)
    return WideAccept(sender, generation, number, content), at


def encode_view(message: WideView, domain: int) -> bytes:
    return seal_datagram(31, domain, message.sender, message.view, _pack_content(message.content))


def decode_view(datagram: bytes, domain: int, sender: int, generation: int) -> tuple[WideView, int]:
    content, at = _unpack_content(datagram, HEADER_SIZE)
    return WideView(sender, generation, content), at


_REQUEST = fixed(26, WideRequest, "QB", "sender", "view")

CODECS: dict[type[Any], Codec] = {
    WideData: Codec(KIND_WIDE_DATA, encode_data, decode_data),
    WideRelay: Codec(24, encode_relay, decode_relay),
    WideConfirm: Codec(25, encode_confirm, decode_confirm),
    WideRequest: Codec(26, _encode_request, _decode_request),
    WidePrepare: Codec(27, encode_prepare, decode_prepare),
    WidePromise: Codec(28, encode_promise, decode_promise),
    WideAccept: Codec(29, encode_accept, decode_accept),
    WideAccepted: fixed(30, WideAccepted, "IH", "sender", "view"),
    WideView: Codec(31, encode_view, decode_view),
}

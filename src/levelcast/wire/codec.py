"""Core datagrams: the messages of `levelcast.wire.messages` as bytes and back.

The header and the seal are the same for every kind: see `levelcast.wire.header`. The body is between them.
`[x]` is a u32 count and that many x, without gaps; `text` is a u8 length and UTF-8; `hash` is a u8 length and
bytes.

    kind         sender    body
    1  Data      source    incarnation u64, number u64, records u32, payload (the rest)
    2, 3, 5, 17, 20        tokens, beats, requests, catch-up: see `levelcast.wire.token_codec`
    4  Repair    sender    [complete datagram of kind Data, Token, Ring, Group, LineHolders or ChainMessage, of the
                           same stripe]
    6 to 10                reformation: see `levelcast.wire.reformation_codec`
    11 to 14               secondary groups: see `levelcast.wire.group_codec`
    15 Probe     prober    number u64, sent u64
    16 Echo      any node  to u16, number u64, sent u64, heard u64, left u64
    18, 19                 lines of regions: see `levelcast.wire.line_codec`
    21 PathRow   any node  [peer u16, heard u32, lost u32, bursts u32, delays in µs i32: least, 0.5, 0.99 and 0.999
                           quantile, last u64, arrived 32 bytes, least delay of the last seconds in µs i32, −2³¹ if
                           unknown]
    22 ReleaseRow receiver needs in µs u32: 0.5, 0.99 and 0.999 quantile, [second u64, slots u32, late u32, longest u32]
    32 to 35, 37           chain multicast: see `levelcast.wire.chain_codec`

    23 to 31               wide-area groups: see `levelcast.wire.wide_codec`
    36 Parity    source    incarnation u64, first u64, packets u16, step u16, XOR of their datagrams (the rest)

    run         source u16, incarnation u64, first u64, last u64
    mark        source u16, incarnation u64, number u64

A message has exactly one encoding: `encode(decode(b)) == b` for every b that decodes. So nothing is skipped,
every flag and reserved byte is checked, and two members that hold the same message hold the same bytes.

A `Data`, `Token`, `Ring`, `Group`, `LineHolders`, `WideData` or `ChainMessage` keeps its datagram (`sealed`) from its
author on: `seal_message` makes it once, `decode` fills it in, and `encode` returns it. Only the author seals such a
message. A node that passes one on sends it as an item of a Repair (a `WideData` in a WideRelay): the header of the
Repair names the node that sent it, the header of the item its author.

Each allowed value is stated once, in the `check_*` functions, and both directions call them: a message that every
receiver would reject fails at the node that made it. Whether a message makes sense *now* (its generation, its position
in the lineage, its sender) is for `levelcast.ring`.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

from levelcast import native
from levelcast.native.layout import AES_GCM_KIND, KIND_AT, KIND_DATA, LENGTH_AT, SEAL_KIND_AT
from levelcast.native.layout import DATA_BODY as BODY
from levelcast.wire import chain_codec, group_codec, line_codec, parity, reformation_codec, token_codec, wide_codec
from levelcast.wire.chain_messages import ChainMessage
from levelcast.wire.header import (
    HEADER_SIZE,
    Malformed,
    Reason,
    bad_field,
    domain_in,
    new_tuple,
    open_datagram,
    seal_datagram,
    sender_of,
    wrong_domain,
)
from levelcast.wire.messages import (
    Data,
    Echo,
    Group,
    LineHolders,
    Message,
    PathFigures,
    PathRow,
    Probe,
    ReleaseRow,
    ReleaseSecond,
    Repair,
    Ring,
    Token,
)
from levelcast.wire.packets import check_packet
from levelcast.wire.parts import COUNT, Codec, Encoder, Packed, check_limit, check_no_generation, fixed, unpack_count
from levelcast.wire.seal import SEALS, Seal
from levelcast.wire.wide_messages import WideData

KIND_REPAIR = 4
KIND_PATH_ROW = 21
KIND_RELEASE_ROW = 22
MAX_REPAIR_ITEMS = 1_024
MAX_PATHS = 15
"""Paths of one PathRow, which fits a datagram without fragments."""
ARRIVED_BYTES = 32
_PATHS = Packed(f"<HIIIiiiiQ{ARRIVED_BYTES}si", PathFigures, MAX_PATHS)
MAX_RELEASE_SECONDS = 8
"""Seconds of a ReleaseRow: the last one, and those before it, in case their rows were lost."""
_NEEDS = struct.Struct("<III")
_SECONDS = Packed("<QIII", ReleaseSecond, MAX_RELEASE_SECONDS)
_ITEM_KINDS = (
    KIND_DATA,
    token_codec.KIND_TOKEN,
    reformation_codec.KIND_RING,
    group_codec.KIND_GROUP,
    line_codec.KIND_LINE_HOLDERS,
    chain_codec.KIND_CHAIN_MESSAGE,
)
"""Kinds that others than the author may send, inside a Repair; their messages keep their datagram."""
_ITEMS = (Data, Token, Ring, Group, LineHolders, ChainMessage)
_KEPT_KINDS = (*_ITEM_KINDS, wide_codec.KIND_WIDE_DATA)

_Authored = TypeVar("_Authored", bound=Token | Ring | Group | LineHolders | WideData | ChainMessage)


RepairItem = Token | Data | Ring | Group | LineHolders | ChainMessage
OpenItem = Callable[[bytes, int], RepairItem | None]
"""Returns the message of an item's datagram, of this domain; None if the item is left out."""


class Decoded(NamedTuple):
    domain: int
    message: Message


def kinds_of(messages: Iterable[type] | None = None) -> frozenset[int]:
    """Return the kinds of these messages; by default all kinds."""
    return frozenset(_CODECS[each].kind for each in (_CODECS if messages is None else messages))


def encode(message: Message, domain: int) -> bytes:
    """Return the only datagram that carries `message`; raises `Malformed` for a message that no receiver would accept.

    A message that its author has sealed stays as it is.
    """
    try:
        return _ENCODERS[type(message)](message, domain)
    except struct.error as error:
        raise Malformed(Reason.BAD_FIELD, f"{type(message).__name__}: {error}") from None


def seal_message(message: _Authored, domain: int) -> _Authored:
    """Return the same message with its datagram: its author calls this once, before any other use."""
    return new_tuple(type(message), (*message[:-1], encode(message, domain)))


def decode(
    datagram: bytes | memoryview, seals: Mapping[int, Seal] = SEALS, open_item: OpenItem | None = None
) -> Decoded:
    """Return the message of a datagram; raises `Malformed`, and nothing else, whatever the bytes are.

    `seals` checks the seals: `CHECKED` if they were verified before. `open_item` opens the items of a Repair; without
    it, one that cannot be decoded makes the Repair malformed.
    """
    # Slices of bytes are bytes: a view is copied once here, and nothing below has to convert.
    if type(datagram) is not bytes:
        datagram = bytes(datagram)
    kind, domain, sender, generation, unsealed = open_datagram(datagram, seals)
    decoder = _DECODERS.get(kind)
    if decoder is None:
        raise Malformed(Reason.UNKNOWN_KIND)
    message: Message
    try:
        if kind == KIND_REPAIR and open_item is not None:
            message, end = _decode_repair(unsealed, domain, sender, generation, open_item)
        else:
            message, end = decoder(unsealed, domain, sender, generation)
    except struct.error:
        raise Malformed(Reason.TRUNCATED_BODY) from None
    if end != len(unsealed):
        raise Malformed(Reason.TRAILING_BYTES)
    if kind in _KEPT_KINDS:
        message = new_tuple(type(message), (*message[:-1], datagram))
    return new_tuple(Decoded, (domain, message))


def decode_batch(datagrams: Iterable[bytes | memoryview], domain: int) -> tuple[list[Message], Counter[Reason]]:
    """Return the messages of this domain in order of arrival, and the number of rejected datagrams by reason."""
    messages: list[Message] = []
    rejected: Counter[Reason] = Counter()
    for datagram in datagrams:
        try:
            found, message = decode(datagram)
        except Malformed as malformed:
            rejected[malformed.reason] += 1
        else:
            if reason := wrong_domain(found, domain):
                rejected[reason] += 1
            else:
                messages.append(message)
    return messages, rejected


# ---------------------------------------------------------------------------------------------------------
# One encoder and one decoder per kind; `decode` adds the datagram to messages that keep it.


def _once(encoder: Encoder) -> Encoder:
    """Return an encoder of messages that only their author encodes."""

    def encode_once(message: Token | Ring | Group | LineHolders | WideData | ChainMessage, domain: int) -> bytes:
        sealed = message.sealed
        if not sealed:
            return encoder(message, domain)
        if domain_in(sealed) != domain:
            bad_field("a message that was sealed for another stripe or network")
        return sealed

    return encode_once


def _encode_data(message: Data, domain: int) -> bytes:
    source, _, first, last, sealed = message
    if first != last:
        bad_field("several packets, each of which needs its own datagram")
    if domain_in(sealed) != domain or sender_of(sealed) != source:
        bad_field("a packet that was sealed for another stripe or network, or by another source")
    return sealed


def _decode_data(datagram: bytes, domain: int, sender: int, generation: int) -> tuple[Data, int]:
    if datagram[SEAL_KIND_AT] != AES_GCM_KIND:  # there it is the salt
        check_no_generation(generation)
    incarnation, number, records = BODY.unpack_from(datagram, HEADER_SIZE)
    check_packet(number, records, len(datagram) - HEADER_SIZE - BODY.size)
    return new_tuple(Data, (sender, incarnation, number, number, b"")), len(datagram)


def _encode_repair(message: Repair, domain: int) -> bytes:
    items = message.items
    check_limit(items, MAX_REPAIR_ITEMS, "items")
    for item in items:
        if type(item) not in _ITEMS or not item.sealed:
            bad_field("an item that no Repair carries, or that its author has not sealed")
    parts = [COUNT.pack(len(items)), *[encode(item, domain) for item in items]]
    return seal_datagram(KIND_REPAIR, domain, message.sender, 0, b"".join(parts))


def _decode_repair(
    datagram: bytes, domain: int, sender: int, generation: int, open_item: OpenItem | None = None
) -> tuple[Repair, int]:
    check_no_generation(generation)
    count, at = unpack_count(datagram, HEADER_SIZE, MAX_REPAIR_ITEMS)
    items: list[RepairItem] = []
    open_one = open_item or _decode_item
    for _ in range(count):
        (length,) = COUNT.unpack_from(datagram, at + LENGTH_AT)
        # Before it is decoded: nested Repairs would recurse to any depth that their sender chooses.
        if datagram[at + KIND_AT] not in _ITEM_KINDS:
            bad_field("an item of a kind that no Repair carries")
        if at + length > len(datagram):
            raise Malformed(Reason.TRUNCATED_BODY)
        item = open_one(datagram[at : at + length], domain)
        if item is not None:
            items.append(item)
        at += length
    return Repair(sender, tuple(items)), at


def _encode_path_row(message: PathRow, domain: int) -> bytes:
    for path in message.paths:
        if len(path.arrived) != ARRIVED_BYTES:
            bad_field(f"{len(path.arrived)} bytes of arrivals, not {ARRIVED_BYTES}")
    return seal_datagram(KIND_PATH_ROW, domain, message.sender, 0, _PATHS.pack(message.paths))


def _decode_path_row(datagram: bytes, domain: int, sender: int, generation: int) -> tuple[PathRow, int]:
    check_no_generation(generation)
    paths, at = _PATHS.unpack(datagram, HEADER_SIZE)
    return PathRow(sender, paths), at


def _encode_release_row(message: ReleaseRow, domain: int) -> bytes:
    sender, p50_us, p99_us, p999_us, seconds = message
    _check_seconds(seconds)
    body = _NEEDS.pack(p50_us, p99_us, p999_us) + _SECONDS.pack(seconds)
    return seal_datagram(KIND_RELEASE_ROW, domain, sender, 0, body)


def _decode_release_row(datagram: bytes, domain: int, sender: int, generation: int) -> tuple[ReleaseRow, int]:
    check_no_generation(generation)
    p50_us, p99_us, p999_us = _NEEDS.unpack_from(datagram, HEADER_SIZE)
    seconds, at = _SECONDS.unpack(datagram, HEADER_SIZE + _NEEDS.size)
    _check_seconds(seconds)
    return ReleaseRow(sender, p50_us, p99_us, p999_us, seconds), at


def _check_seconds(seconds: tuple[ReleaseSecond, ...]) -> None:
    if any(late.second <= early.second for early, late in pairwise(seconds)):
        bad_field("seconds that are not in their order")
    if any(each.late > each.slots for each in seconds):
        bad_field("more late slots than slots")


def _decode_item(datagram: bytes, domain: int) -> RepairItem:
    data = native.open_data(datagram, domain, Data)  # the ordinary case
    return data if data is not None else decode_item(datagram, domain, SEALS)


def decode_item(datagram: bytes, domain: int, seals: Mapping[int, Seal]) -> RepairItem:
    """Return the message of an item of a Repair, which must be of this domain; raises `Malformed`."""
    item_domain, item = decode(datagram, seals)
    if item_domain != domain:
        bad_field("an item of another stripe or network")
    assert isinstance(item, RepairItem)
    return item


_CODECS: dict[type[Any], Codec] = {
    Data: Codec(KIND_DATA, _encode_data, _decode_data),
    Repair: Codec(KIND_REPAIR, _encode_repair, _decode_repair),
    Probe: fixed(15, Probe, "QQ", "sender"),
    Echo: fixed(16, Echo, "HQQQQ", "sender"),
    PathRow: Codec(KIND_PATH_ROW, _encode_path_row, _decode_path_row),
    ReleaseRow: Codec(KIND_RELEASE_ROW, _encode_release_row, _decode_release_row),
    **token_codec.CODECS,
    **parity.CODECS,
    **reformation_codec.CODECS,
    **group_codec.CODECS,
    **line_codec.CODECS,
    **wide_codec.CODECS,
    **chain_codec.CODECS,
}
_ENCODERS = {message: codec.encode for message, codec in _CODECS.items()}
_ENCODERS |= {message: _once(_ENCODERS[message]) for message in (*_ITEMS, WideData) if message is not Data}
_DECODERS = {codec.kind: codec.decode for codec in _CODECS.values()}

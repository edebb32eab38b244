"""MoldUDP64 packets (Nasdaq's public framing of market data over UDP): what the edge sends and customers ask for.

All numbers are big-endian. Every packet, also a request, starts with the same 20 bytes:

    offset  type  field
    0       10s   session: printable ASCII, filled up with spaces on the right
    10      u64   sequence of the first message; the first message of a session has 1
    18      u16   count of messages

    downstream  count 1 ... 0xFFFE   count blocks, each a u16 length (without itself) and one message
                count 0              heartbeat: the sequence is the next one to expect
                count 0xFFFF         end of session: the sequence is one past the last message
    request     count 1 ... 0xFFFF   unicast to the server: so many messages from the sequence on. The answer is
                                     an ordinary downstream packet, unicast to the socket that asked

Here a message is one DBN record, whose first byte is its own length in 4-byte words. So the records of a packet
without the lengths between them are a payload as the ring carries it and `levelcast.records` reads it; a block
whose length is not its record's is malformed. Which records there may be is for `levelcast.records` to say.

`levelcast.kernel` opens packets whose records all have one size, as most do. The walk from block to block here is for
mixed packets and for telling what is wrong with a bad one.

A packet of data has exactly one encoding, as core datagrams have. Deviation from the specification: it lets a
server send messages of length 0 and bytes after the last block; nobody who speaks for Levelcast does, so they are
rejected and counted like any other damage.
"""

from __future__ import annotations

from itertools import pairwise
from struct import Struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from levelcast import kernel
from levelcast.wire.parts import MAX_DATAGRAM, Malformed, Reason, bad_field, new_tuple

__all__ = [
    "DEFAULT_PACKET_BYTES",
    "END_OF_SESSION",
    "HEADER_SIZE",
    "LENGTH_SIZE",
    "MAX_COUNT",
    "MIN_PACKET_BYTES",
    "SESSION_SIZE",
    "Downstream",
    "EndOfSession",
    "Heartbeat",
    "Malformed",
    "Packet",
    "Reason",
    "Request",
    "bounds",
    "cut",
    "decode",
    "decode_request",
    "encode",
    "encode_payload",
    "frame_mixed",
    "frame_uniform",
    "header",
    "record_places",
    "session_name",
    "uniform_size",
]

SESSION_SIZE = 10
LENGTH_SIZE = 2
END_OF_SESSION = 0xFFFF
MAX_COUNT = 0xFFFE
MAX_SEQUENCE = 2**64 - 1
MAX_REQUEST = 0xFFFF

_HEADER = Struct(">10sQH")
HEADER_SIZE = _HEADER.size
_WORD = 4
_MAX_RECORD = 255 * _WORD

DEFAULT_PACKET_BYTES = 1_400
"""The UDP payload of a packet: fits an Ethernet frame behind most tunnels."""
MIN_PACKET_BYTES = HEADER_SIZE + LENGTH_SIZE + _MAX_RECORD
"""Every record fits a packet of this size."""

Buffer = bytes | bytearray | memoryview
Indices = npt.NDArray[np.int64]


class Packet(NamedTuple):
    """Records of a session in order. `size` is the size of each of them, or 0 when they differ."""

    session: bytes
    sequence: int
    records: int
    size: int
    payload: bytes


class Heartbeat(NamedTuple):
    """The session lives, and `sequence` is its next one."""

    session: bytes
    sequence: int


class EndOfSession(NamedTuple):
    """The session is over; its last message was `sequence` - 1."""

    session: bytes
    sequence: int


class Request(NamedTuple):
    """A customer asks for so many messages from `sequence` on."""

    session: bytes
    sequence: int
    messages: int


Downstream = Packet | Heartbeat | EndOfSession


def session_name(text: str) -> bytes:
    """A name of at most 10 characters as it stands in packets; a ValueError for one that cannot.

    >>> session_name("XNYS-1")
    b'XNYS-1    '
    """
    name = text.encode("ascii", "replace").ljust(SESSION_SIZE)
    if text[:1] in ("", " ") or len(name) > SESSION_SIZE or not text.isascii() or not text.isprintable():
        raise ValueError(f"{text!r} is no session name: 1 to {SESSION_SIZE} printable ASCII characters, no space first")
    return name


def header(session: bytes, sequence: int, count: int) -> bytes:
    """The first 20 bytes, unchecked: for callers that count themselves."""
    return _HEADER.pack(session, sequence, count)


# ---------------------------------------------------------------------------------------------------------
# Single packets, both ways


def encode(message: Downstream | Request) -> bytes:
    """The one packet that says `message`; raises `Malformed` for what no customer would accept."""
    session, sequence = message[0], message[1]
    _check_head(session, sequence)
    if isinstance(message, Heartbeat):
        return header(session, sequence, 0)
    if isinstance(message, EndOfSession):
        return header(session, sequence, END_OF_SESSION)
    if isinstance(message, Request):
        if not 1 <= message.messages <= MAX_REQUEST:
            bad_field("count")
        return header(session, sequence, message.messages)
    packets = encode_payload(session, sequence, message.payload, MAX_DATAGRAM)
    if len(packets) != 1:
        raise Malformed(Reason.WRONG_LENGTH, f"{len(message.payload)} bytes of records are not one packet")
    if (message.records, message.size) != (_HEADER.unpack_from(packets[0])[2], uniform_size(message.payload)):
        bad_field("count or size")
    return packets[0]


def decode(datagram: Buffer) -> Downstream:
    """What a downstream packet says; raises `Malformed`, and nothing else, whatever the bytes are."""
    if type(datagram) is not bytes:
        datagram = bytes(datagram)
    packet = kernel.open_mold(datagram, Packet)
    if packet is not None:
        return packet
    session, sequence, count = _open(datagram)
    if count == 0 or count == END_OF_SESSION:
        if len(datagram) != HEADER_SIZE:
            raise Malformed(Reason.TRAILING_BYTES)
        return Heartbeat(session, sequence) if count == 0 else EndOfSession(session, sequence)
    if sequence + count - 1 > MAX_SEQUENCE:
        bad_field("sequence")
    if len(datagram) < HEADER_SIZE + LENGTH_SIZE + _WORD:
        raise Malformed(Reason.TRUNCATED_BODY)
    payload = b"".join(_walk_blocks(datagram, count))
    return new_tuple(Packet, (session, sequence, count, uniform_size(payload), payload))


def decode_request(datagram: Buffer) -> Request:
    """What a customer asks for; raises `Malformed`, and nothing else, whatever the bytes are."""
    datagram = bytes(datagram)
    session, sequence, count = _open(datagram)
    if len(datagram) != HEADER_SIZE:
        raise Malformed(Reason.TRAILING_BYTES)
    if count == 0:
        bad_field("count")
    return Request(session, sequence, count)


def _check_head(session: bytes, sequence: int) -> None:
    if len(session) != SESSION_SIZE or not session.isascii() or not session.decode("ascii").isprintable():
        bad_field("session")
    if session[0] == 0x20:  # a name starts on the left: no two spellings of one
        bad_field("session")
    if not 1 <= sequence <= MAX_SEQUENCE:
        bad_field("sequence")


def _open(datagram: bytes) -> tuple[bytes, int, int]:
    if len(datagram) < HEADER_SIZE:
        raise Malformed(Reason.TOO_SHORT)
    if len(datagram) > MAX_DATAGRAM:
        raise Malformed(Reason.WRONG_LENGTH)
    session, sequence, count = _HEADER.unpack_from(datagram)
    _check_head(session, sequence)
    return session, sequence, count


def _walk_blocks(datagram: bytes, count: int) -> list[bytes]:
    found = []
    at, end = HEADER_SIZE, len(datagram)
    for _ in range(count):
        start = at + LENGTH_SIZE
        if start >= end:
            raise Malformed(Reason.TRUNCATED_BODY)
        size = datagram[at] << 8 | datagram[at + 1]
        at = start + size
        if at > end:
            raise Malformed(Reason.TRUNCATED_BODY)
        if size == 0 or datagram[start] * _WORD != size:
            bad_field("block is not one record")
        found.append(datagram[start:at])
    if at != end:
        raise Malformed(Reason.TRAILING_BYTES)
    return found


# ---------------------------------------------------------------------------------------------------------
# Payloads: records with nothing between them


def uniform_size(payload: Buffer) -> int:
    """The size of every record of `payload` if they all have one, else 0."""
    if len(payload) < _WORD:
        return 0
    size = payload[0] * _WORD
    if size == 0 or len(payload) % size:
        return 0
    lengths = bytes(payload[::size])
    return size if lengths == lengths[:1] * len(lengths) else 0


def record_places(payload: Buffer) -> tuple[Indices, Indices]:
    """The offset and the size of each record; `Malformed` unless records fill `payload` to its last byte."""
    if size := uniform_size(payload):
        offsets = np.arange(0, len(payload), size, dtype=np.int64)
        return offsets, np.full(len(offsets), size, np.int64)
    starts = []
    at, end = 0, len(payload)
    while at < end:
        starts.append(at)
        words = payload[at]
        if words == 0:
            bad_field("record of length zero")
        at += words * _WORD
    if at != end:
        raise Malformed(Reason.TRUNCATED_BODY)
    offsets = np.array(starts, np.int64)
    return offsets, np.diff(offsets, append=end)


def cut(packet: Packet, skip: int, keep: int | None = None) -> Packet:
    """The packet without its first `skip` records, and with at most `keep` of the others (at least one stays)."""
    session, sequence, count, size, payload = packet
    keep = min(count - skip, count if keep is None else keep)
    assert 0 <= skip < count
    assert keep >= 1
    if (skip, keep) == (0, count):
        return packet
    if size:
        part = payload[skip * size : (skip + keep) * size]
    else:
        offsets, sizes = record_places(payload)
        last = skip + keep - 1
        part = payload[int(offsets[skip]) : int(offsets[last] + sizes[last])]
        size = uniform_size(part)
    return Packet(session, sequence + skip, keep, size, part)


# ---------------------------------------------------------------------------------------------------------
# Many records at once: lengths go in for all of them, then Python works per packet


def frame_uniform(payload: Buffer, size: int, order: Indices | None = None) -> npt.NDArray[np.uint8]:
    """The blocks of records of one `size`, in `order` (indices into them) or as they come."""
    records = np.frombuffer(payload, np.dtype((np.void, size)))
    if order is not None:
        records = records.take(order)
    blocks = np.empty(len(records), np.dtype([("length", ">u2"), ("record", np.void, size)]))
    blocks["length"] = size
    blocks["record"] = records
    return blocks.view(np.uint8)


def frame_mixed(payload: Buffer, offsets: Indices, sizes: Indices) -> npt.NDArray[np.uint8]:
    """The blocks of the records at `offsets` with `sizes`, in that order.

    Records are whole words, so all of it is done in units of two bytes: one for the length, then the record.
    """
    halves = np.frombuffer(payload, np.uint16)
    block_halves = sizes // 2 + 1
    starts = np.cumsum(block_halves) - block_halves
    # Each half takes the one after its neighbour's, except that a block begins one before its record.
    source = np.arange(int(block_halves.sum())) + np.repeat(offsets // 2 - 1 - starts, block_halves)
    blocks = halves.take(source, mode="clip")  # the length's own half may lie before the payload
    blocks[starts] = sizes.astype(">u2").view(np.uint16)
    framed: npt.NDArray[np.uint8] = blocks.view(np.uint8)
    return framed


def bounds(sizes: Indices, packet_bytes: int, uniform: int = 0) -> list[int]:
    """Where packets of records with `sizes` begin, and at last their number: as many in each as fit.

    `uniform` is the one size that they all have, where the caller knows it.
    """
    room = packet_bytes - HEADER_SIZE
    if uniform:
        each = min(room // (uniform + LENGTH_SIZE), MAX_COUNT)
        return [*range(0, len(sizes), each), len(sizes)]
    ends = np.cumsum(sizes + LENGTH_SIZE)
    cuts, first, before = [0], 0, 0
    while first < len(sizes):
        first = min(int(np.searchsorted(ends, before + room, "right")), first + MAX_COUNT)
        before = int(ends[first - 1])
        cuts.append(first)
    return cuts


def encode_payload(
    session: bytes, sequence: int, payload: Buffer, packet_bytes: int = DEFAULT_PACKET_BYTES
) -> list[bytes]:
    """The packets, of at most `packet_bytes` each, that carry the records of `payload` from `sequence` on."""
    assert MIN_PACKET_BYTES <= packet_bytes <= MAX_DATAGRAM
    _check_head(session, sequence)
    offsets, sizes = record_places(payload)
    if sequence + len(sizes) - 1 > MAX_SEQUENCE:
        bad_field("sequence")
    if not len(sizes):
        return []
    size = uniform_size(payload)
    blocks = (frame_uniform(payload, size) if size else frame_mixed(payload, offsets, sizes)).data
    cuts = bounds(sizes, packet_bytes, size)
    ends = np.concatenate(([0], np.cumsum(sizes + LENGTH_SIZE)))[cuts].tolist()
    return [
        header(session, sequence + first, last - first) + blocks[start:end]
        for (first, last), (start, end) in zip(pairwise(cuts), pairwise(ends), strict=True)
    ]

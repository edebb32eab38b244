"""MoldUDP64 packets (Nasdaq's public framing of market data over UDP): packets of the edge and requests of subscribers.

All numbers are big-endian. Every packet, also a request, starts with the same 20 bytes:

    offset  type  field
    0       10s   session: printable ASCII, filled up with spaces on the right
    10      u64   sequence of the first message; the first message of a session has 1
    18      u16   count of messages

    downstream  count 1 ... 0xFFFE   count blocks, each a u16 length (without itself) and one message
                count 0              heartbeat: the sequence is the next one to expect
                count 0xFFFF         end of session: the sequence is one past the last message
    request     count 1 ... 0xFFFF   unicast to the server: count messages from the sequence on. The answer is
                                     an ordinary downstream packet, unicast to the requesting socket

Here a message is one DBN record; its first byte is its own length in 4-byte words. So the records of a packet
without the lengths between them are a payload as the ring carries it and `levelcast.records` reads it. A block is
malformed if its length is not that of its record. `levelcast.records` defines the allowed records.

`levelcast.native` makes packets, and opens those with records of one size, which is the usual case; a subscriber gets
complete trains of them as one `Block`. The walk from block to block here is for mixed packets and for finding the
error in a bad one.

A packet of data has exactly one encoding, as core datagrams have. Deviation from the specification: it allows a
server to send messages of length 0 and bytes after the last block. No Levelcast sender does, so they are rejected and
counted like any other damage.
"""

from __future__ import annotations

from itertools import pairwise
from struct import Struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from levelcast import native
from levelcast.records.walk import BadRecords, record_places, uniform_size
from levelcast.wire.header import MAX_DATAGRAM, Malformed, Reason, bad_field, new_tuple

SESSION_SIZE = 10
LENGTH_SIZE = 2
END_OF_SESSION = 0xFFFF
MAX_COUNT = 0xFFFE
MAX_SEQUENCE = 2**64 - 1
MAX_REQUEST = 0xFFFF

HEADER = Struct(">10sQH")
HEADER_SIZE = HEADER.size
_WORD = 4
_MAX_RECORD = 255 * _WORD

DEFAULT_PACKET_BYTES = 1_400
"""The UDP payload of a packet: fits an Ethernet frame, also through common tunnels."""
MIN_PACKET_BYTES = HEADER_SIZE + LENGTH_SIZE + _MAX_RECORD
"""Every record fits a packet of this size."""

Buffer = bytes | bytearray | memoryview
Indices = npt.NDArray[np.int64]


class EdgePacket(NamedTuple):
    """Records of a session in order. `size` is the size of each of them, or 0 when they differ."""

    session: bytes
    sequence: int
    records: int
    size: int
    payload: bytes


class Block(NamedTuple):
    """Consecutive packets with nothing between them as one, as `native.drain_molds` joins them.

    All records have one `size` and are of allowed types. `packets` is the number of packets.
    """

    session: bytes
    sequence: int
    records: int
    size: int
    payload: bytes
    packets: int


class Heartbeat(NamedTuple):
    """The session is active, and `sequence` is its next one."""

    session: bytes
    sequence: int


class EndOfSession(NamedTuple):
    """The session is over; its last message was `sequence` - 1."""

    session: bytes
    sequence: int


class RetransmitRequest(NamedTuple):
    """A subscriber requests `messages` messages from `sequence` on."""

    session: bytes
    sequence: int
    messages: int


Downstream = EdgePacket | Heartbeat | EndOfSession


def session_name(text: str) -> bytes:
    """Return a name of at most 10 characters as it is in packets; raises ValueError if it is not allowed.

    >>> session_name("XNYS-1")
    b'XNYS-1    '
    """
    name = text.encode("ascii", "replace").ljust(SESSION_SIZE)
    if text[:1] in ("", " ") or len(name) > SESSION_SIZE or not text.isascii() or not text.isprintable():
        raise ValueError(f"{text!r} is not a session name; use 1-{SESSION_SIZE} printable ASCII bytes, no space first")
    return name


def header(session: bytes, sequence: int, count: int) -> bytes:
    """Return the first 20 bytes, unchecked: for callers that count themselves."""
    return HEADER.pack(session, sequence, count)


# ---------------------------------------------------------------------------------------------------------
# Single packets, both ways


def encode(message: Downstream | RetransmitRequest) -> bytes:
    """Return the only packet that carries `message`; raises `Malformed` for values that no subscriber would accept."""
    session, sequence = message[0], message[1]
    _check_head(session, sequence)
    if isinstance(message, Heartbeat):
        return header(session, sequence, 0)
    if isinstance(message, EndOfSession):
        return header(session, sequence, END_OF_SESSION)
    if isinstance(message, RetransmitRequest):
        if not 1 <= message.messages <= MAX_REQUEST:
            bad_field("count")
        return header(session, sequence, message.messages)
    packets = encode_payload(session, sequence, message.payload, MAX_DATAGRAM)
    if len(packets) != 1:
        raise Malformed(Reason.WRONG_LENGTH, f"{len(message.payload)} bytes of records are not one packet")
    if (message.records, message.size) != (HEADER.unpack_from(packets[0])[2], uniform_size(message.payload)):
        bad_field("count or size")
    return packets[0]


def decode(datagram: Buffer) -> Downstream:
    """Decode a downstream packet; raises `Malformed`, and nothing else, whatever the bytes are."""
    if type(datagram) is not bytes:
        datagram = bytes(datagram)
    packet = native.open_mold(datagram, EdgePacket)
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
    return new_tuple(EdgePacket, (session, sequence, count, uniform_size(payload), payload))


def decode_request(datagram: Buffer) -> RetransmitRequest:
    """Decode a subscriber's request; raises `Malformed`, and nothing else, whatever the bytes are."""
    datagram = bytes(datagram)
    session, sequence, count = _open(datagram)
    if len(datagram) != HEADER_SIZE:
        raise Malformed(Reason.TRAILING_BYTES)
    if count == 0:
        bad_field("count")
    return RetransmitRequest(session, sequence, count)


def is_session(name: bytes) -> bool:
    """Return whether a session may have this name. It is left-aligned, so no name has two spellings."""
    return len(name) == SESSION_SIZE and name.isascii() and name.decode("ascii").isprintable() and name[:1] != b" "


def _check_head(session: bytes, sequence: int) -> None:
    if not is_session(session):
        bad_field("session")
    if not 1 <= sequence <= MAX_SEQUENCE:
        bad_field("sequence")


def _open(datagram: bytes) -> tuple[bytes, int, int]:
    if len(datagram) < HEADER_SIZE:
        raise Malformed(Reason.TOO_SHORT)
    if len(datagram) > MAX_DATAGRAM:
        raise Malformed(Reason.WRONG_LENGTH)
    session, sequence, count = HEADER.unpack_from(datagram)
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


def check_records(payload: Buffer) -> None:
    """Raise `Malformed` unless records fill `payload` to its last byte."""
    try:
        record_places(payload)
    except BadRecords as bad:
        raise Malformed(Reason.TRUNCATED_BODY if payload[bad.offset] else Reason.BAD_FIELD, bad.reason) from None


def cut(packet: EdgePacket, skip: int, keep: int | None = None) -> EdgePacket:
    """Return the packet without its first `skip` records, and with at most `keep` of the others (at least one)."""
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
    return EdgePacket(session, sequence + skip, keep, size, part)


# ---------------------------------------------------------------------------------------------------------
# Many records together


def pick(payload: Buffer, offsets: Indices, sizes: Indices) -> bytes:
    """Return the records at `offsets` with `sizes`, in that order, with nothing between them."""
    if size := uniform_size(payload):
        return np.frombuffer(payload, np.dtype((np.void, size))).take(offsets // size).tobytes()
    numbers = sizes // _WORD
    starts = np.cumsum(numbers) - numbers
    # Each word is copied from the position after its neighbour's, except where a record begins.
    source = np.arange(int(numbers.sum())) + np.repeat(offsets // _WORD - starts, numbers)
    words: npt.NDArray[np.uint32] = np.frombuffer(payload, np.uint32).take(source)
    return words.tobytes()


def encode_payload(
    session: bytes, sequence: int, payload: Buffer, packet_bytes: int = DEFAULT_PACKET_BYTES
) -> list[bytes]:
    """Return the packets, of at most `packet_bytes` each, that carry the records of `payload` from `sequence` on."""
    assert MIN_PACKET_BYTES <= packet_bytes <= MAX_DATAGRAM
    _check_head(session, sequence)
    made = native.mold_train(payload, session, sequence, packet_bytes, True)
    if made is None:
        check_records(payload)
        raise Malformed(Reason.WRONG_LENGTH)
    count, buffer, ends = made
    if sequence + count - 1 > MAX_SEQUENCE:
        bad_field("sequence")
    return split_train(buffer, ends)


def split_train(buffer: Buffer, ends: Buffer) -> list[bytes]:
    """Return the packets that are stored back to back in `buffer`, each up to one of `ends` (little-endian u32)."""
    places = np.frombuffer(ends, "<u4").tolist()
    return [bytes(buffer[start:end]) for start, end in pairwise([0, *places])]

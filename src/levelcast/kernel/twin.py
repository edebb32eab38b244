"""What the compiled module does, said in Python: the oracle of its tests, and its stand-in where there is no compiler.

Every function answers with a plain "no" (-1 or None) where its input is not the ordinary case. Callers then take
their own, slower way, which also finds out what is wrong.
"""

from __future__ import annotations

import socket
import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

Buffer = bytes | bytearray | memoryview
Source = tuple[str, int]

_T = TypeVar("_T", bound=tuple[Any, ...])

_WORD = 4
_LARGEST_DATAGRAM = 65_507

_types: dict[int, tuple[int, int, int]] = {}


def crc32(data: Buffer, value: int = 0, /) -> int:
    """zlib's CRC-32."""
    return zlib.crc32(data, value)


# ---------------------------------------------------------------------------------------------------------
# Records


def teach(rows: Iterable[tuple[int, int, int, int]], /) -> None:
    """The record types that there are: rtype, least size, offsets of sequence and ts_recv (-1 for none)."""
    for rtype, base, sequence, ts_recv in rows:
        _types[rtype] = (base, sequence, ts_recv)


def _walk(view: memoryview) -> Iterator[tuple[int, int, int]]:
    """Offset and stamped fields' offsets of each record; a ValueError where there is no allowed one."""
    at, end = 0, len(view)
    while at < end:
        if end - at < _WORD or view[at + 1] not in _types:
            raise ValueError
        base, sequence, ts_recv = _types[view[at + 1]]
        size = view[at] * _WORD
        if size < base or at + size > end:
            raise ValueError
        yield at, sequence, ts_recv
        at += size


def count(payload: Buffer, /) -> int:
    """How many records fill `payload`; -1 unless all of them are allowed ones."""
    try:
        return sum(1 for _ in _walk(memoryview(payload)))
    except ValueError:
        return -1


def count_fresh(payload: Buffer, /) -> int:
    """`count`, and -1 also if a record has a sequence or a receive time already."""
    view = memoryview(payload)
    number = 0
    try:
        for at, sequence, ts_recv in _walk(view):
            if sequence >= 0 and any(view[at + sequence : at + sequence + 4]):
                return -1
            if ts_recv >= 0 and any(view[at + ts_recv : at + ts_recv + 8]):
                return -1
            number += 1
    except ValueError:
        return -1
    return number


def stamp(buffer: bytearray | memoryview, first_sequence: int, ts_recv_ns: int, /) -> int:
    """Number the records from `first_sequence` on (the low 32 bits) and date them; how many. On -1 nothing is done."""
    view = memoryview(buffer)
    try:
        places = list(_walk(view))
    except ValueError:
        return -1
    for number, (at, sequence, ts_recv) in enumerate(places, first_sequence):
        if sequence >= 0:
            struct.pack_into("<I", view, at + sequence, number & 0xFFFFFFFF)
        if ts_recv >= 0:
            struct.pack_into("<Q", view, at + ts_recv, ts_recv_ns)
    return len(places)


def unstamp(buffer: bytearray | memoryview, /) -> int:
    """Set the stamped fields back to 0; how many records there are. On -1 nothing is done."""
    view = memoryview(buffer)
    try:
        places = list(_walk(view))
    except ValueError:
        return -1
    for at, sequence, ts_recv in places:
        if sequence >= 0:
            view[at + sequence : at + sequence + 4] = bytes(4)
        if ts_recv >= 0:
            view[at + ts_recv : at + ts_recv + 8] = bytes(8)
    return len(places)


def assemble(packets: tuple[tuple[Any, ...], ...], first_sequence: int, ts_recv_ns: int, /) -> bytearray | None:
    """The stamped records of packets (source, incarnation, number, records, payload).

    None unless every packet holds as many fresh records as it says.
    """
    content = bytearray()
    for _, _, _, records, payload in packets:
        if records < 0 or count_fresh(payload) != records:
            return None
        content += payload
    stamp(content, first_sequence, ts_recv_ns)
    return content


# ---------------------------------------------------------------------------------------------------------
# Datagrams

_DATA = struct.Struct("<2sBBHHQIBBHQQI")
"""The header of a core datagram (`levelcast.wire.parts`) and of a Data in it (`levelcast.wire.core`)."""
_SEAL = struct.Struct("<I")
_MOLD = struct.Struct(">10sQHH")
"""The header of a MoldUDP64 packet (`levelcast.wire.mold`) and the length of its first block."""


def open_data(datagram: bytes, stripe: int, kind: type[_T], /) -> _T | None:
    """The packet in a sound Data datagram of the stripe, as a `kind`, if all its records are fresh ones; else None."""
    if not _DATA.size + _SEAL.size < len(datagram) <= _LARGEST_DATAGRAM:
        return None
    *head, sender, generation, length, seal, seal_size, reserved, incarnation, number, records = _DATA.unpack_from(
        datagram
    )
    if head != [b"LC", 1, 1, stripe] or generation or (length, seal, seal_size, reserved) != (len(datagram), 1, 4, 0):
        return None
    payload = datagram[_DATA.size : -_SEAL.size]
    if not number or _SEAL.pack(zlib.crc32(datagram[: -_SEAL.size])) != datagram[-_SEAL.size :]:
        return None
    if count_fresh(payload) != records:
        return None
    return tuple.__new__(kind, (sender, incarnation, number, records, payload))


def open_mold(datagram: bytes, kind: type[_T], /) -> _T | None:
    """Session, sequence, count, size and records of a MoldUDP64 packet whose blocks all have one size; else None."""
    if not _MOLD.size + _WORD <= len(datagram) <= _LARGEST_DATAGRAM:
        return None
    session, sequence, number, size = _MOLD.unpack_from(datagram)
    if session[0] == 0x20 or any(not 0x20 <= character <= 0x7E for character in session):
        return None
    if not sequence or not 0 < number < 0xFFFF or sequence + number - 1 >= 1 << 64 or not size:
        return None
    if len(datagram) != 20 + number * (size + 2):
        return None
    blocks = [datagram[at : at + size + 2] for at in range(20, len(datagram), size + 2)]
    if any(block[:2] != datagram[20:22] or block[2] * _WORD != size for block in blocks):
        return None
    return tuple.__new__(kind, (session, sequence, number, size, b"".join(block[2:] for block in blocks)))


def mold_packets(
    content: Buffer, session: bytes, sequence: int, packet_bytes: int, kind: type[_T], /
) -> list[_T] | None:
    """Packets of at most `packet_bytes` with all records in order, as `kind`s of (session, sequence, count, datagram).

    None unless records fill `content` and every one is of an instrument (has an id above 0).
    """
    if len(session) != 10 or not 20 + 2 + 1020 <= packet_bytes <= _LARGEST_DATAGRAM:
        raise ValueError("a session has 10 bytes, and a packet room for the largest record")
    view = memoryview(content)
    packets: list[tuple[int, list[bytes]]] = []
    at, end, room = 0, len(view), 0
    while at < end:
        size = view[at] * _WORD
        if size < 8 or at + size > end or not any(view[at + 4 : at + 8]):
            return None
        if not packets or room < size + 2 or len(packets[-1][1]) == 0xFFFE:
            sequence += len(packets[-1][1]) if packets else 0
            packets.append((sequence, []))
            room = packet_bytes - 20
        packets[-1][1].append(size.to_bytes(2, "big") + view[at : at + size])
        room -= size + 2
        at += size
    return [
        tuple.__new__(
            kind, (session, first, len(blocks), struct.pack(">10sQH", session, first, len(blocks)) + b"".join(blocks))
        )
        for first, blocks in packets
    ]


# ---------------------------------------------------------------------------------------------------------
# Sockets

_UDP_GRO = 104


def drain(fileno: int, limit: int, own_host: str, own_port: int, /) -> list[tuple[bytes, Source]]:
    """Waiting datagrams with where they came from, without one's own; trains of them are cut up.

    It stops at `limit`, of which the last train may go beyond.
    """
    found: list[tuple[bytes, Source]] = []
    with socket.socket(fileno=fileno) as receiver:
        try:
            while limit > 0:
                content, ancillary, _, source = receiver.recvmsg(65_536, socket.CMSG_SPACE(4), socket.MSG_DONTWAIT)
                limit -= 1
                if source == (own_host, own_port):
                    continue
                segment = len(content) or 1
                for level, name, value in ancillary:
                    if (level, name) == (socket.IPPROTO_UDP, _UDP_GRO):
                        segment = int.from_bytes(value[:4], "little")
                cut = [(content[at : at + segment], source) for at in range(0, len(content) or 1, segment)]
                limit -= len(cut) - 1
                found += cut
        except (BlockingIOError, ConnectionRefusedError):
            pass
        finally:
            receiver.detach()
    return found

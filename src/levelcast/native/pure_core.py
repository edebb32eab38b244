"""Pure-Python implementation of the compiled module: test oracle, and fallback without a C compiler.

Every function returns -1 or None if its input is not the ordinary case. Callers then use their own, slower path, which
also finds the error.
"""

from __future__ import annotations

import socket
import struct
import time
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

from levelcast.native.layout import (
    CRC32_KIND,
    CRC32_SIZE,
    DATA_BODY,
    HEADER,
    KIND_DATA,
    LENGTH_AT,
    MAGIC,
    SEAL_SIZE_AT,
    SENDER_AT,
    STRIPE_BITS,
    STRIPE_MASK,
    VERSION,
)

Buffer = bytes | bytearray | memoryview
Source = tuple[str, int]

_T = TypeVar("_T", bound=tuple[Any, ...])

_WORD = 4
LARGEST_DATAGRAM = 65_507

_types: dict[int, tuple[int, int, int]] = {}


def crc32(data: Buffer, value: int = 0, /) -> int:
    """Return zlib's CRC-32."""
    return zlib.crc32(data, value)


# ---------------------------------------------------------------------------------------------------------
# Records


def teach(rows: Iterable[tuple[int, int, int, int]], /) -> None:
    """Define the record types: rtype, minimum size, offsets of sequence and ts_recv (-1 for none)."""
    for rtype, base, sequence, ts_recv in rows:
        _types[rtype] = (base, sequence, ts_recv)


def _walk(view: memoryview) -> Iterator[tuple[int, int, int]]:
    """Yield the offset and the stamped fields' offsets of each record; raises ValueError at one that is not allowed."""
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
    """Return the number of records that fill `payload`; -1 unless all of them are allowed ones."""
    try:
        return sum(1 for _ in _walk(memoryview(payload)))
    except ValueError:
        return -1


def record_ends(payload: Buffer, /) -> bytes:
    """Return the offset after each record as int64, whatever its type; ends before one that is empty or incomplete."""
    view = memoryview(payload)
    found, at = array("q"), 0
    while at < len(view) and 0 < (size := view[at] * _WORD) <= len(view) - at:
        at += size
        found.append(at)
    return found.tobytes()


def count_fresh(payload: Buffer, /) -> int:
    """Return `count`; -1 also if a record already has a sequence or a receive time."""
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
    """Write sequences from `first_sequence` on (low 32 bits) and times; return the number of records. -1: unchanged."""
    return _set_stamps(buffer, first_sequence, 1, ts_recv_ns)


def unstamp(buffer: bytearray | memoryview, /) -> int:
    """Reset the stamped fields to 0; return the number of records. -1: unchanged."""
    return _set_stamps(buffer, 0, 0, 0)


def _set_stamps(buffer: bytearray | memoryview, first_sequence: int, step: int, ts_recv_ns: int) -> int:
    view = memoryview(buffer)
    try:
        places = list(_walk(view))
    except ValueError:
        return -1
    for number, (at, sequence, ts_recv) in enumerate(places):
        if sequence >= 0:
            struct.pack_into("<I", view, at + sequence, first_sequence + number * step & 0xFFFFFFFF)
        if ts_recv >= 0:
            struct.pack_into("<Q", view, at + ts_recv, ts_recv_ns)
    return len(places)


# ---------------------------------------------------------------------------------------------------------
# Datagrams

_PAYLOAD_AT = HEADER.size + DATA_BODY.size
"""Offset of the records of a Data; they end at the seal, and the header states the size of that."""
_ROW = struct.Struct("<HQQII")
_U32 = struct.Struct("<I")
_CRC32_OVERHEAD = _PAYLOAD_AT + CRC32_SIZE


def _header(domain: int, source: int, length: int) -> bytes:
    """Return the header of a Data with a CRC-32 seal, which has no key epoch."""
    network, stripe = domain >> STRIPE_BITS, domain & STRIPE_MASK
    return HEADER.pack(MAGIC, VERSION, KIND_DATA, stripe, source, 0, length, CRC32_KIND, CRC32_SIZE, 0, network)


def open_data(datagram: bytes, domain: int, kind: type[_T], /) -> _T | None:
    """Return a valid Data datagram of the domain as a `kind` (source, incarnation, first, last, sealed), if all its
    records are fresh; else None.
    """
    if not _CRC32_OVERHEAD < len(datagram) <= LARGEST_DATAGRAM:
        return None
    sender = int.from_bytes(datagram[SENDER_AT : SENDER_AT + 2], "little")
    if datagram[: HEADER.size] != _header(domain, sender, len(datagram)):
        return None
    incarnation, number, records = DATA_BODY.unpack_from(datagram, HEADER.size)
    if not number or _U32.pack(zlib.crc32(datagram[:-CRC32_SIZE])) != datagram[-CRC32_SIZE:]:
        return None
    if count_fresh(datagram[_PAYLOAD_AT:-CRC32_SIZE]) != records:
        return None
    return tuple.__new__(kind, (sender, incarnation, number, number, datagram))


def datagram_places(sealed: bytes) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each datagram, which are stored back to back; raises ValueError for other bytes."""
    at, end = 0, len(sealed)
    while at < end:
        size = _U32.unpack_from(sealed, at + LENGTH_AT)[0] if end - at >= _PAYLOAD_AT else 0
        if not _PAYLOAD_AT <= size <= end - at or size < _PAYLOAD_AT + sealed[at + SEAL_SIZE_AT]:
            raise ValueError("these are no sealed packets")
        yield at, at + size
        at += size


def cut(sealed: bytes, skip: int, take: int, /) -> bytes:
    """Return the datagrams of `take` packets after the first `skip`; raises ValueError if there are fewer."""
    places = list(islice(datagram_places(sealed), max(0, skip + take)))
    if skip < 0 or take < 1 or len(places) < skip + take:
        raise ValueError("these are no sealed packets")
    return sealed[places[skip][0] : places[-1][1]]


def xor_padded(parts: Sequence[bytes], /) -> bytes:
    """Return the XOR of byte strings, each padded with zeros to the longest."""
    number = 0
    for part in parts:
        number ^= int.from_bytes(part, "little")
    return number.to_bytes(max(map(len, parts), default=0), "little")


def ends(sealed: bytes, /) -> bytes:
    """Return the end of each datagram, 32 bits each."""
    return b"".join(_U32.pack(end) for _, end in datagram_places(sealed))


def assemble(values: Sequence[tuple[Any, ...]], /) -> tuple[bytes, bytes, int]:
    """Return a row for each packet, all payloads, and the number of records.

    `values` are (source, incarnation, first, last, sealed); a row is source, incarnation, number, records and bytes of
    the payload.
    """
    rows: list[bytes] = []
    payloads: list[bytes] = []
    for _, _, _, _, sealed in values:
        for at, end in datagram_places(sealed):
            payload = sealed[at + _PAYLOAD_AT : end - sealed[at + SEAL_SIZE_AT]]
            source = sealed[at + SENDER_AT : at + SENDER_AT + 2]
            rows.append(source + sealed[at + HEADER.size : at + _PAYLOAD_AT] + _U32.pack(len(payload)))
            payloads.append(payload)
    return b"".join(rows), b"".join(payloads), sum(_U32.unpack_from(row, 18)[0] for row in rows)


def stamped(table: Buffer, content: Buffer, first_sequence: int, ts_recv_ns: int, /) -> bytearray | None:
    """Return the payloads of packets with sequences and times in their records; `table` contains their rows.

    None unless every packet contains as many fresh records as its row states.
    """
    found, at = bytearray(content), 0
    if len(table) % _ROW.size:
        return None
    for _, _, _, records, size in _ROW.iter_unpack(table):
        if at + size > len(found) or count_fresh(found[at : at + size]) != records:
            return None
        at += size
    if at != len(found):
        return None
    stamp(found, first_sequence, ts_recv_ns)
    return found


def cut_records(view: memoryview, at: int, room: int) -> tuple[int, int]:
    """Return the end and the number of the allowed records from `at` on that fit `room` bytes."""
    end, records = at, 0
    while len(view) - end >= _WORD and view[end + 1] in _types:
        size = view[end] * _WORD
        if size < _types[view[end + 1]][0] or end + size > min(len(view), at + room):
            break
        end += size
        records += 1
    return end, records


def seal_packets(
    payload: Buffer, packet_bytes: int, most: int, domain: int, source: int, incarnation: int, number: int, /
) -> tuple[bytes, int, int, int]:
    """Seal records in datagrams of at most `packet_bytes`, at most `most` datagrams, numbered from `number` on.

    Returns the datagrams and the number of packets, records and bytes of `payload`; ends before a record that is not
    allowed.
    """
    view, taken, total = memoryview(payload), 0, 0
    sealed: list[bytes] = []
    room = min(packet_bytes, LARGEST_DATAGRAM) - _CRC32_OVERHEAD
    while len(sealed) < most:
        end, records = cut_records(view, taken, room)
        if not records:
            break
        head = _header(domain, source, end - taken + _CRC32_OVERHEAD)
        datagram = head + DATA_BODY.pack(incarnation, number + len(sealed), records) + view[taken:end]
        sealed.append(datagram + _U32.pack(zlib.crc32(datagram)))
        taken, total = end, total + records
    return b"".join(sealed), len(sealed), total, taken


# ---------------------------------------------------------------------------------------------------------
# Sockets

_UDP_GRO = 104
_TIMESTAMPNS = 35
_TIMESPEC = struct.Struct("@ll")
_ANCILLARY = socket.CMSG_SPACE(4) + socket.CMSG_SPACE(_TIMESPEC.size)


def drain(fileno: int, limit: int, own_host: str, own_port: int, /) -> list[tuple[bytes, Source, int]]:
    """Return waiting datagrams with source address and receive time, without the socket's own; trains are split.

    The time is the kernel's, by the wall clock; for a socket without SO_TIMESTAMPNS it is the present time. It stops at
    `limit`, which the last train may exceed.
    """
    found: list[tuple[bytes, Source, int]] = []
    with socket.socket(fileno=fileno) as receiver:
        try:
            while limit > 0:
                content, ancillary, _, source = receiver.recvmsg(65_536, _ANCILLARY, socket.MSG_DONTWAIT)
                limit -= 1
                if source == (own_host, own_port):
                    continue
                segment, received_ns = len(content) or 1, 0
                for level, name, value in ancillary:
                    if (level, name) == (socket.IPPROTO_UDP, _UDP_GRO):
                        segment = int.from_bytes(value[:4], "little")
                    elif (level, name) == (socket.SOL_SOCKET, _TIMESTAMPNS):
                        seconds, rest_ns = _TIMESPEC.unpack(value)
                        received_ns = seconds * 1_000_000_000 + rest_ns
                received_ns = received_ns or time.time_ns()
                cut = [(content[at : at + segment], source, received_ns) for at in range(0, len(content) or 1, segment)]
                limit -= len(cut) - 1
                found += cut
        except (BlockingIOError, ConnectionRefusedError):
            pass
        finally:
            receiver.detach()
    return found


def drain_packets(
    fileno: int, limit: int, own_host: str, own_port: int, domain: int, most: int, kind: type[_T], /
) -> list[tuple[_T | bytes, Source, int]]:
    """Drain packets: consecutive ones become one `kind` of at most about `most` bytes, with the last one's time.

    A datagram that is not a valid packet of the domain (`open_data`) is returned as it is. It stops after about `limit`
    bytes.
    """

    def open_one(datagram: bytes) -> tuple[_T | None, object]:
        return open_data(datagram, domain, kind), None

    return drain_opened(fileno, limit, own_host, own_port, most, open_one)


REFUSED = object()
"""Instead of the key of a packet: the datagram is dropped."""


def drain_opened(
    fileno: int,
    limit: int,
    own_host: str,
    own_port: int,
    most: int,
    open_one: Callable[[bytes], tuple[_T | None, object]],
) -> list[tuple[_T | bytes, Source, int]]:
    """Drain packets as `drain_packets`; `open_one` returns a packet, or None, and its key: a value has one key."""
    found: list[tuple[_T | bytes, Source, int]] = []
    pending: list[_T] = []
    size = last_ns = 0
    whence: Source | None = None
    held_key: object = None

    def hand_over() -> None:
        if pending:
            assert whence is not None
            sealed = b"".join(each[4] for each in pending)
            found.append((tuple.__new__(type(pending[0]), (*pending[0][:3], pending[-1][3], sealed)), whence, last_ns))
            pending.clear()

    while limit > 0 and (datagrams := drain(fileno, 1, own_host, own_port)):
        for datagram, source, received_ns in datagrams:
            limit -= len(datagram) + 1
            data, key = open_one(datagram)
            follows = (
                data is not None
                and source == whence
                and pending
                and key == held_key
                and (data[0], data[1], data[2]) == (pending[-1][0], pending[-1][1], pending[-1][3] + 1)
                and size + len(datagram) <= most
            )
            if not follows:
                hand_over()
                whence, size, held_key = source, 0, key
            if key is REFUSED:
                continue
            if data is None:
                found.append((datagram, source, received_ns))
            else:
                pending.append(data)
                size += len(datagram)
                last_ns = received_ns
    hand_over()
    return found

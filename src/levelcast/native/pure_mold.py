"""Pure-Python implementation of the compiled module for the edge: test oracle, and fallback without a C compiler.

Every function returns None if its input is not the ordinary case. Callers then use their own, slower path, which also
finds the error.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import Any, TypeVar

from levelcast.native.pure_core import Source, count, drain, teach

__all__ = ["LastRecords", "drain_molds", "join_molds", "mold_train", "open_mold", "send_many", "teach"]

Buffer = bytes | bytearray | memoryview

_T = TypeVar("_T", bound=tuple[Any, ...])

_WORD = 4
_LARGEST_DATAGRAM = 65_507
_MOLD = struct.Struct(">10sQHH")
"""The header of a MoldUDP64 packet (`levelcast.wire.mold`) and the length of its first block."""


def open_mold(datagram: bytes, kind: type[_T], /) -> _T | None:
    """Return session, sequence, count, size and records of a MoldUDP64 packet with blocks of one size; else None."""
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


def mold_train(
    content: Buffer, session: bytes, sequence: int, packet_bytes: int, every: bool, /
) -> tuple[int, bytes, bytes] | None:
    """Return the packets, of at most `packet_bytes` each, that carry the records of `content` from `sequence` on.

    The result is the number of records, the packets back to back, and the end of each (little-endian u32). None unless
    records fill `content` and each has an instrument (an id above 0), or `every` includes the others too.
    """
    if len(session) != 10 or not 20 + 2 + 1020 <= packet_bytes <= _LARGEST_DATAGRAM:
        raise ValueError("a session has 10 bytes, and a packet room for the largest record")
    view = memoryview(content)
    packets: list[list[bytes]] = []
    at, end, room = 0, len(view), 0
    while at < end:
        size = view[at] * _WORD
        if not size or at + size > end or not (every or (size >= 8 and any(view[at + 4 : at + 8]))):
            return None
        if room < size + 2 or len(packets[-1]) == 0xFFFE:
            packets.append([])
            room = packet_bytes - 20
        packets[-1].append(size.to_bytes(2, "big") + view[at : at + size])
        room -= size + 2
        at += size
    number, buffer, ends = 0, b"", b""
    for blocks in packets:
        buffer += struct.pack(">10sQH", session, sequence + number, len(blocks)) + b"".join(blocks)
        ends += struct.pack("<I", len(buffer))
        number += len(blocks)
    return number, buffer, ends


BLOCK_PACKETS = 256
BLOCK_BYTES = 1 << 20


def join_molds(datagrams: list[bytes], kind: type[_T], /) -> list[_T | bytes]:
    """Join consecutive packets with allowed records of one size and nothing between them; return others as they are.

    A `kind` is (session, sequence, records, size, payload, packets). At most `BLOCK_PACKETS` packets and `BLOCK_BYTES`
    bytes of records are joined.
    """
    found: list[tuple[Any, ...] | bytes] = []
    for datagram in datagrams:
        packet = open_mold(datagram, tuple)
        if packet is None or count(packet[4]) != packet[2]:
            found.append(datagram)
            continue
        session, sequence, number, size, payload = packet
        if found and isinstance(found[-1], tuple):
            last_session, first, records, last_size, before, packets = found[-1]
            follows = (session, sequence, size) == (last_session, first + records, last_size)
            if follows and packets < BLOCK_PACKETS and len(before) + len(payload) <= BLOCK_BYTES:
                found[-1] = (session, first, records + number, size, before + payload, packets + 1)
                continue
        found.append((*packet, 1))
    return [each if isinstance(each, bytes) else tuple.__new__(kind, each) for each in found]


# ---------------------------------------------------------------------------------------------------------
# The last records


class LastRecords:
    """The last record of each instrument on each floor, by kind.

    A kind is (rtype, minimum size, a blank record, where, what): records of the type with the value `what` in byte
    `where`, or all if `where` is -1. They are stored with the size of the blank, which supplies the missing bytes of
    shorter ones after the minimum size.
    """

    def __init__(self, kinds: tuple[tuple[int, int, bytes, int, int], ...], /) -> None:
        for rtype, base, blank, where, what in kinds:
            size = len(blank)
            if not 0 <= rtype <= 255 or not 8 <= base <= size <= 1020 or size % _WORD:
                raise ValueError("no such kinds of records can be kept")
            if not -1 <= where < base or not 0 <= what <= 255:
                raise ValueError("no such kinds of records can be kept")
        self._kinds = {kind[0]: (rank, kind) for rank, kind in enumerate(kinds)}
        if len(self._kinds) < len(kinds) or len(kinds) > 16:
            raise ValueError("no such kinds of records can be kept")
        self._rows: dict[tuple[int, int, int], bytes] = {}

    def update(self, payload: Buffer, /) -> bool:
        """Store records, of which later ones replace earlier ones. False for other bytes, and nothing is changed."""
        content = bytes(payload)
        if count(content) < 0:
            return False
        at, found = 0, {}
        while at < len(content):
            record = content[at : at + content[at] * _WORD]
            at += len(record)
            if record[1] not in self._kinds:
                continue
            rank, (_, base, blank, where, what) = self._kinds[record[1]]
            if len(record) < base:
                return False
            if where < 0 or record[where] == what:
                row = record[: len(blank)] if len(record) >= len(blank) else record[:base] + blank[base:]
                floor, instrument = struct.unpack_from("<HI", record, 2)
                found[rank, instrument, floor] = bytes((len(blank) // _WORD,)) + row[1:]
        self._rows |= found
        return True

    def payload(self) -> bytes:
        """Return all records, by kind, instrument and floor."""
        return b"".join(self._rows[key] for key in sorted(self._rows))

    def __len__(self) -> int:
        return len(self._rows)


# ---------------------------------------------------------------------------------------------------------
# Sockets

_UDP_SEGMENT = 103
_TRAIN_CARS = 64
_TRAIN_BYTES = 65_000
_NO_ROOM = frozenset({errno.EAGAIN, errno.EWOULDBLOCK, errno.ENOBUFS, errno.ENOMEM, errno.ECONNREFUSED})
_NO_TRAINS = frozenset({errno.EINVAL, errno.EIO, errno.ENOPROTOOPT, errno.EOPNOTSUPP, errno.EMSGSIZE})


def trains(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield first and end of each train: datagrams of one size; the last may be shorter; an empty one is sent alone."""
    first = total = 0
    for place, size in enumerate(sizes):
        full = place - first == _TRAIN_CARS or total + size > _TRAIN_BYTES
        if place > first and (full or not 0 < size <= sizes[first] or sizes[place - 1] < sizes[first]):
            yield first, place
            first, total = place, 0
        total += size
    if sizes:
        yield first, len(sizes)


def send_many(
    fileno: int, host: str, port: int, buffer: Buffer, ends: Buffer, offload: bool, /
) -> tuple[int, int, int, int, bool]:
    """Send datagrams that are stored back to back in `buffer`, each up to one of `ends` (little-endian u32), in order.

    With `offload`, consecutive datagrams of one size are sent as trains (UDP_SEGMENT), until the kernel refuses one.
    Returns:

    - the number of datagrams sent;
    - the number refused for lack of buffer space: sending continues after them. Any other error ends it;
    - the last error number, 0 if none occurred;
    - the number of trains, and whether the kernel (still) accepts them.
    """
    view = memoryview(buffer)
    try:
        socket.inet_aton(host)
        places = [0, *(end for (end,) in struct.iter_unpack("<I", ends))]
        sizes = [end - start for start, end in pairwise(places)]
        if min(sizes, default=0) < 0 or places[-1] > len(view) or not 0 <= port <= 65_535:
            raise ValueError
    except (OSError, ValueError, struct.error):
        raise ValueError("an IPv4 address, and ends in order within the buffer, are wanted") from None
    sent = refused = error = number = 0
    with socket.socket(fileno=fileno) as sender:
        try:
            waiting = list(trains(sizes)) if offload else [(place, place + 1) for place in range(len(sizes))]
            waiting.reverse()
            while waiting:
                first, last = waiting.pop()
                ancillary = []
                if last - first > 1:
                    ancillary = [(socket.IPPROTO_UDP, _UDP_SEGMENT, struct.pack("=H", sizes[first]))]
                try:
                    sender.sendmsg([view[places[first] : places[last]]], ancillary, 0, (host, port))
                except OSError as why:
                    if last - first > 1 and why.errno in _NO_TRAINS:
                        offload = False
                        waiting = [(place, place + 1) for place in reversed(range(first, len(sizes)))]
                        continue
                    error = why.errno or errno.EIO
                    if error not in _NO_ROOM:
                        break
                    refused += last - first
                else:
                    sent += last - first
                    number += last - first > 1
        finally:
            sender.detach()
    return sent, refused, error, number, offload


def drain_molds(fileno: int, limit: int, kind: type[_T], /) -> list[tuple[_T | bytes, Source]]:
    """Return waiting datagrams as `join_molds` joins them, each with its source address; trains are split.

    It stops at `limit` datagrams, which the last train may exceed.
    """
    found: list[tuple[_T | bytes, Source]] = []
    for source, arrivals in groupby(drain(fileno, limit, "", 0), key=lambda each: each[1]):
        found += [(each, source) for each in join_molds([datagram for datagram, *_ in arrivals], kind)]
    return found

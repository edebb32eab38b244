"""Encode and decode the frame index of one segment.

    offset  type  field of the header
    0       8s    "LVLCTAPE"
    8       u16   version, 2
    10      u16   stripe
    12      u32   size of the header
    16      u64   records per segment
    24      u64   slot of the last frame before this segment
    32      u64   sequence of the first record of this segment
    40      32s   chain hash before this segment
    72      u32   number of sources, then each: source u16, incarnation u64, next u64
            u32   number of membership records, then each: slot u64, version u64, count u16, count x (member u16,
                  life u32)
            u32   only if there are any: number of timing records, then each: size u16 and the record
            u32   CRC-32 of the bytes before

    offset  type  field of a frame
    0       u32   size of this entry
    4       u32   CRC-32 of the following bytes
    8       u64   slot
    16      u64   timestamp
    24      u64   sequence of its first record
    32      u32   records
    36      u32   packets
    40      u64   offset of its bytes in the segment's data
    48      u64   bytes
    56      32s   chain hash of the frame
    88            each packet: source u16, incarnation u64, number u64, records u32, bytes u32

The header is the tape's `Tip` before the segment. So the newest segment is sufficient to continue the tape, and
retention may remove the older ones. It is a function of the frames, so it is the same at every receiver.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from levelcast.native import crc32
from levelcast.protocol.history import PACKET_ROW, Frame, MembershipChange, SourcePosition, Tip
from levelcast.storage.append_file import TapeError, check_version
from levelcast.wire.messages import MemberLife, Membership
from levelcast.wire.pace_change import decode_pace_change, encode_pace_change

MAGIC = b"LVLCTAPE"
VERSION = 2
_FIXED = Struct("<8sHHIQQQ32s")
_COUNT = Struct("<I")
_PLACE = Struct("<HQQ")
_SIZE = Struct("<H")
_RECORD = Struct("<QQH")
_MEMBER = Struct("<HI")
_ENTRY_HEAD = Struct("<II")
_ENTRY = Struct("<QQQIIQQ32s")
_ENTRY_SIZE = _ENTRY_HEAD.size + _ENTRY.size
_PACKETS_AT = 36
_START_BYTES = 1 << 16

ENTRY = np.dtype(
    [("size", "<u4"), ("crc", "<u4"), ("slot", "<u8"), ("timestamp", "<u8"), ("sequence", "<u8"), ("records", "<u4"),
     ("packets", "<u4"), ("at", "<u8"), ("bytes", "<u8"), ("chain", "V32")]
)  # fmt: skip
"""A frame without its packets, as a row of an array."""
PACKET = np.dtype([("source", "<u2"), ("incarnation", "<u8"), ("number", "<u8"), ("records", "<u4"), ("bytes", "<u4")])
assert (ENTRY.itemsize, PACKET.itemsize) == (_ENTRY_SIZE, PACKET_ROW.size)

Ints = npt.NDArray[np.int64]
Rows = npt.NDArray[np.void]


class IndexHeader(NamedTuple):
    """The beginning of a segment: its position in the tape, and the tape's tip before it."""

    stripe: int
    records_per_segment: int
    tip: Tip
    size: int


class PacketLine(NamedTuple):
    """A packet of a frame, without its payload."""

    source: int
    incarnation: int
    number: int
    records: int
    size: int


class IndexEntry(NamedTuple):
    """A frame in the index; its packets are at offset `packets_at` of the index."""

    slot: int
    timestamp_ns: int
    first_sequence: int
    records: int
    packets: int
    at: int
    size: int
    chain: bytes
    packets_at: int

    @property
    def next_sequence(self) -> int:
        return self.first_sequence + self.records


def pack_header(stripe: int, records_per_segment: int, tip: Tip) -> bytes:
    places = b"".join(_PLACE.pack(source, *place) for source, place in sorted(tip.places.items()))
    records = b"".join(
        _RECORD.pack(record.slot, record.membership.version, len(record.membership.members))
        + b"".join(_MEMBER.pack(*life) for life in record.membership.members)
        for record in tip.records
    )
    rest = b"".join((_COUNT.pack(len(tip.places)), places, _COUNT.pack(len(tip.records)), records))
    if tip.paces:
        changes = [encode_pace_change(change) for change in tip.paces]
        rest += _COUNT.pack(len(changes)) + b"".join(_SIZE.pack(len(change)) + change for change in changes)
    size = _FIXED.size + len(rest) + _COUNT.size
    fixed = _FIXED.pack(MAGIC, VERSION, stripe, size, records_per_segment, tip.slot, tip.next_sequence, tip.chain)
    return fixed + rest + _COUNT.pack(crc32(fixed + rest))


def unpack_header(content: bytes, where: object) -> IndexHeader:
    """Return the header of the index `where`; raise TapeError for anything else."""
    if not content.startswith(MAGIC):
        raise TapeError(f"{where}: not an index of a Levelcast tape")
    try:
        _, version, stripe, size, per_segment, slot, next_sequence, chain = _FIXED.unpack_from(content)
        check_version(where, version, VERSION)
        if size > len(content) or crc32(content[: size - 4]) != _COUNT.unpack_from(content, size - 4)[0]:
            raise TapeError(f"{where}: its header is damaged or truncated")
        tip = Tip(slot, chain, next_sequence)
        (places,) = _COUNT.unpack_from(content, _FIXED.size)
        at = _FIXED.size + _COUNT.size
        for source, incarnation, following in _PLACE.iter_unpack(content[at : at + places * _PLACE.size]):
            tip.places[source] = SourcePosition(incarnation, following)
        at = _unpack_records(content, at + places * _PLACE.size, tip)
        if at < size - _COUNT.size:
            _unpack_paces(content, at, tip, where)
        if not tip.records:
            raise TapeError(f"{where}: its header has no configured set")
    except struct_error:
        raise TapeError(f"{where}: its header is damaged or truncated") from None
    return IndexHeader(stripe, per_segment, tip, size)


def _unpack_paces(content: bytes, at: int, tip: Tip, where: object) -> None:
    (count,) = _COUNT.unpack_from(content, at)
    at += _COUNT.size
    for _ in range(count):
        (size,) = _SIZE.unpack_from(content, at)
        at += _SIZE.size + size
        change = decode_pace_change(content[at - size : at])
        if change is None:
            raise TapeError(f"{where}: its header has a damaged timing record")
        tip.paces.append(change)


def _unpack_records(content: bytes, at: int, tip: Tip) -> int:
    """Read the membership records; return their end."""
    (records,) = _COUNT.unpack_from(content, at)
    at += _COUNT.size
    for _ in range(records):
        slot, version, count = _RECORD.unpack_from(content, at)
        at += _RECORD.size
        end = at + count * _MEMBER.size
        members = tuple(MemberLife(*life) for life in _MEMBER.iter_unpack(content[at:end]))
        tip.records.append(MembershipChange(slot, Membership(version, members)))
        at = end
    return at


def pack_frame(frame: Frame, at: int, size: int) -> bytes:
    """Return the entry of a frame with `size` bytes at offset `at` of the data."""
    packets = len(frame.table) // PACKET_ROW.size
    fixed = _ENTRY.pack(
        frame.slot, frame.timestamp_ns, frame.first_sequence, frame.records, packets, at, size, frame.chain
    )
    checksum = crc32(frame.table, crc32(fixed))
    return b"".join((_ENTRY_HEAD.pack(_ENTRY_SIZE + len(frame.table), checksum), fixed, frame.table))


def read_start(path: Path) -> tuple[IndexHeader, bytes]:
    """Return the header of an index, and its first bytes with the header and some frames."""
    with path.open("rb") as file:
        content = file.read(_START_BYTES)
        content += file.read(max(0, header_size(content) - len(content)))
    return unpack_header(content, path), content


def header_size(content: bytes) -> int:
    """Return the size of the header that starts with `content`; 0 if `content` is too short."""
    return int(_FIXED.unpack_from(content)[3]) if len(content) >= _FIXED.size else 0


def _entries(content: bytes, at: int, *, check: bool = True) -> Iterator[tuple[int, int]]:
    """Yield offset and size of the entries from byte `at` on while they are complete and, with `check`, intact."""
    view, end = memoryview(content), len(content)
    while at + _ENTRY_SIZE <= end:
        size, checksum = _ENTRY_HEAD.unpack_from(content, at)
        if size < _ENTRY_SIZE or at + size > end:
            return
        if check and crc32(view[at + _ENTRY_HEAD.size : at + size]) != checksum:
            return
        (packets,) = _COUNT.unpack_from(content, at + _PACKETS_AT)
        if size != _ENTRY_SIZE + packets * PACKET_ROW.size:
            return
        yield at, size
        at += size


def read_frames(content: bytes, at: int) -> Iterator[IndexEntry]:
    """Yield the frames from byte `at` of an index on, while their entries are complete."""
    for start, _ in _entries(content, at):
        yield IndexEntry._make((*_ENTRY.unpack_from(content, start + _ENTRY_HEAD.size), start + _ENTRY_SIZE))


def find_entry(content: bytes, at: int) -> int | None:
    """Return the offset of the first complete and intact entry from byte `at` on, at any alignment."""
    return next((start for start, _ in _candidates(content, at)), None)


def intact_entries(content: bytes) -> list[IndexEntry]:
    """Return everything in an index that is an intact entry, wherever it is damaged."""
    return [next(read_frames(content, start)) for start, _ in _candidates(content, 0)]


def read_last(path: Path) -> IndexEntry | None:
    """Return the entry that ends an index, from its last bytes; None if the file ends otherwise."""
    size, window = path.stat().st_size, _START_BYTES
    while True:
        begin = max(0, size - window)
        with path.open("rb") as file:
            file.seek(begin)
            content = file.read(size - begin)
        for start, length in _candidates(content, 0):
            if start + length == len(content):
                return next(read_frames(content, start))
        if begin == 0:
            return None
        window *= 8


def _candidates(content: bytes, at: int) -> Iterator[tuple[int, int]]:
    """Yield offset and size of everything from byte `at` on that is an intact entry."""
    octets = np.frombuffer(content, np.uint8)[at:].astype(np.uint32)
    count = len(octets) - _ENTRY_SIZE + 1
    if count <= 0:
        return

    def number(first: int) -> npt.NDArray[np.uint32]:
        made = np.zeros(count, np.uint32)
        for i in range(4):
            made |= octets[first + i : first + i + count] << np.uint32(8 * i)
        return made

    sizes, packets = number(0), number(_PACKETS_AT)
    fits = (sizes >= _ENTRY_SIZE) & (sizes - _ENTRY_SIZE == packets * np.uint32(PACKET_ROW.size))
    for offset in (np.flatnonzero(fits) + at).tolist():
        yield from islice(_entries(content, offset), 1)


def last_timestamp(content: bytes, at: int) -> int:
    """Return the timestamp of the last frame of a finished index, without checking the entries."""
    last = deque(_entries(content, at, check=False), maxlen=1)
    return int(_ENTRY.unpack_from(content, last[0][0] + _ENTRY_HEAD.size)[1]) if last else 0


def end_of(line: IndexEntry) -> int:
    """Return the offset at which the entry of a frame ends in the index."""
    return line.packets_at + line.packets * PACKET_ROW.size


def table_of(content: bytes, line: IndexEntry) -> bytes:
    """Return the rows of a frame's packets."""
    return content[line.packets_at : end_of(line)]


def read_packets(content: bytes, line: IndexEntry) -> list[PacketLine]:
    return [PacketLine(*row) for row in PACKET_ROW.iter_unpack(table_of(content, line))]


@dataclass(slots=True)
class Index:
    """The complete entries of the index of one segment."""

    header: IndexHeader
    content: bytes
    lines: Rows
    starts: Ints
    """Offset of each entry in the file."""
    end: int
    """End offset of the last complete entry."""

    @property
    def chains(self) -> list[bytes]:
        return [bytes(chain) for chain in self.lines["chain"]]

    def data_of(self, frame: int, content: bytes) -> bytes:
        """Return the records of a frame from the `content` of the segment."""
        at = int(self.lines["at"][frame])
        return content[at : at + int(self.lines["bytes"][frame])]

    def table(self, frame: int) -> bytes:
        """Return the rows of a frame's packets."""
        at = int(self.starts[frame])
        return self.content[at + ENTRY.itemsize : at + int(self.lines["size"][frame])]

    def packets(self) -> tuple[Rows, Ints]:
        """Return all packets, and the frame of each."""
        counts = self.lines["packets"].astype(np.int64)
        frames = np.repeat(np.arange(len(counts)), counts)
        first = np.cumsum(counts) - counts
        at = self.starts[frames] + ENTRY.itemsize + (np.arange(len(frames)) - first[frames]) * PACKET.itemsize
        octets = np.frombuffer(self.content, np.uint8)[at[:, None] + np.arange(PACKET.itemsize)]
        return np.ascontiguousarray(octets).view(PACKET).reshape(-1), frames

    @property
    def next_sequence(self) -> int:
        last = self.lines[-1] if len(self.lines) else None
        return int(last["sequence"]) + int(last["records"]) if last is not None else self.header.tip.next_sequence


def read_index(path: Path) -> Index:
    """Read an index into arrays; raise TapeError if even the header cannot be read."""
    content = path.read_bytes()
    header = unpack_header(content, path)
    found = np.array(list(_entries(content, header.size)), np.int64).reshape(-1, 2)
    starts, end = found[:, 0], int(found[-1].sum()) if len(found) else header.size
    octets = np.frombuffer(content, np.uint8)
    lines = np.ascontiguousarray(octets[starts[:, None] + np.arange(_ENTRY_SIZE)]).view(ENTRY).reshape(-1)
    return Index(header, content, lines, starts, end)

"""Read one segment of a tape: its index, and its data mapped into memory.

A segment contains complete frames. Data without an index entry is ignored: while a writer runs, a reader sees only
finished frames.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from levelcast.protocol.history import PACKET_ROW, Frame, SourcePosition, Tip, chained, runs_of
from levelcast.records import BadRecords, RecordArray, RecordBatch, RecordType, group_by_type, split
from levelcast.storage.append_file import TapeError
from levelcast.storage.tape.directory import ACTIVE, DATA, INDEX, list_segments, segment_path
from levelcast.storage.tape.index import (
    IndexEntry,
    IndexHeader,
    Ints,
    PacketLine,
    end_of,
    find_entry,
    read_frames,
    read_packets,
    table_of,
    unpack_header,
)
from levelcast.storage.tape.stamps import frame_bytes, unstamp_into
from levelcast.wire.messages import CONTROL_SOURCE, Run


class TapeFrame:
    """A frame on the tape: its index entry, and its bytes on request."""

    __slots__ = ("line", "number", "segment")

    def __init__(self, segment: Segment, number: int, line: IndexEntry) -> None:
        self.segment = segment
        self.number = number
        self.line = line

    @property
    def chain_before(self) -> bytes:
        return self.segment.chain_before(self.number)

    def packets(self) -> list[PacketLine]:
        """Return its packets without their payloads."""
        return self.segment.packets(self.line)

    def data(self) -> memoryview:
        """Return the stamped records as they are in the file, without a copy."""
        return self.segment.data(self.line)

    def batches(self) -> list[RecordBatch]:
        """Return the stamped records as arrays, views of the file. A record's full sequence is
        `line.first_sequence + batch.first + i`."""
        try:
            return split(self.data())
        except BadRecords as error:
            raise TapeError(f"{self}: {error}") from None

    def frame(self) -> Frame:
        """Return the un-stamped frame as in the ring; raise TapeError unless its content matches its chain hash, and
        its stamps match the frame."""
        runs = runs_of(Run(source, incarnation, number, number) for source, incarnation, number, *_ in self.packets())
        return self.check()._replace(runs=runs)

    def check(self) -> Frame:
        """Check the frame as `frame` does; return it without its runs."""
        line, table = self.line, self.segment.table(self.line)
        content = bytearray(self.data())
        rows = list(PACKET_ROW.iter_unpack(table))
        if sum(row[4] for row in rows) != len(content):
            raise TapeError(f"{self}: its packets do not match its bytes")
        try:
            unstamp_into(content)
        except BadRecords as error:
            raise TapeError(f"{self}: {error}") from None
        records = sum(row[3] for row in rows)
        place = (line.slot, line.timestamp_ns, line.first_sequence, records)
        frame = chained(*place, (), table, bytes(content), self.chain_before)
        if frame.chain != line.chain or records != line.records:
            raise TapeError(f"{self}: its records do not match its chain hash")
        if frame_bytes(frame) != self.data():
            raise TapeError(f"{self}: the sequence or receive time of a record does not match its frame")
        return frame

    def __repr__(self) -> str:
        return f"{self.segment.data_path}: frame of slot {self.line.slot}, sequence {self.line.first_sequence}"


class Segment:
    """One segment; reads its index when first needed."""

    def __init__(self, directory: Path, first_sequence: int, *, active: bool) -> None:
        self.first_sequence = first_sequence
        self.active = active
        self.index_path = segment_path(directory, first_sequence, INDEX)
        self.data_path = segment_path(directory, first_sequence, ACTIVE if active else DATA)
        self._content = b""
        self._header: IndexHeader | None = None
        self._lines: list[IndexEntry] = []
        self._map: mmap.mmap | None = None

    @property
    def header(self) -> IndexHeader:
        if self._header is None:
            self._content = self.index_path.read_bytes()
            self._header = unpack_header(self._content, self.index_path)
            if self._header.tip.next_sequence != self.first_sequence:
                raise TapeError(f"{self.index_path}: its first sequence does not match its file name")
            self._lines = list(read_frames(self._content, self._header.size))
        return self._header

    @property
    def is_loaded(self) -> bool:
        return self._header is not None

    @property
    def lines(self) -> list[IndexEntry]:
        _ = self.header
        return self._lines

    @property
    def next_sequence(self) -> int:
        return self.lines[-1].next_sequence if self.lines else self.first_sequence

    @property
    def index_end(self) -> int:
        """End offset of the last complete entry of the index."""
        return end_of(self.lines[-1]) if self.lines else self.header.size

    def check_index(self) -> None:
        """Raise TapeError if intact entries follow a damaged one. A growing index may end with a part of an entry."""
        end = self.index_end
        if end < len(self._content) and (later := find_entry(self._content, end + 1)) is not None:
            raise TapeError(
                f"{self.index_path}: damaged at byte {end:,}: the entry at byte {later:,} and others are intact"
            )

    def size_bytes(self) -> int:
        return self.index_path.stat().st_size + self.data_path.stat().st_size

    def refresh(self) -> None:
        """Load frames that were added since."""
        if self._header is not None:
            with self.index_path.open("rb") as file:
                file.seek(self.index_end)
                known = self.index_end
                self._content = self._content[:known] + file.read()
            self._lines += read_frames(self._content, known)

    def unload(self) -> None:
        """Free the memory of the index."""
        self._header, self._content, self._lines, self._map = None, b"", [], None

    def frames(self, first: int = 0) -> Iterator[TapeFrame]:
        for number in range(first, len(self.lines)):
            yield TapeFrame(self, number, self._lines[number])

    def chain_before(self, number: int) -> bytes:
        return self.lines[number - 1].chain if number else self.header.tip.chain

    def packets(self, line: IndexEntry) -> list[PacketLine]:
        _ = self.header
        return read_packets(self._content, line)

    def table(self, line: IndexEntry) -> bytes:
        """Return the rows of a frame's packets as they are in the index."""
        _ = self.header
        return table_of(self._content, line)

    def data(self, line: IndexEntry) -> memoryview:
        end = line.at + line.size
        if self._map is None or len(self._map) < end:
            with self.data_path.open("rb") as file:
                if os.fstat(file.fileno()).st_size:  # the kernel maps no empty file
                    self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            if self._map is None or len(self._map) < end:
                raise TapeError(f"{self.data_path}: truncated, its index has records up to byte {end}")
        return memoryview(self._map)[line.at : end]

    def tip(self, frames: int | None = None) -> Tip:
        """Return the state of the order after this segment, or after its first `frames`; read only records that change
        the configured set."""
        tip = self.header.tip.copy()
        for frame in islice(self.frames(), frames):
            line, packets = frame.line, frame.packets()
            if line.slot <= tip.slot or line.first_sequence != tip.next_sequence:
                raise TapeError(f"{frame}: does not follow the previous frame")
            if any(packet.source == CONTROL_SOURCE for packet in packets):
                tip.append(frame.frame())
                continue
            for packet in packets:
                tip.places[packet.source] = SourcePosition(packet.incarnation, packet.number + 1)
            tip.slot, tip.chain, tip.next_sequence = line.slot, line.chain, line.next_sequence
        return tip


def open_segments(directory: Path) -> list[Segment]:
    """Return the segments of a tape in order; raise TapeError if it has none, or parts of one are missing."""
    return [Segment(directory, first, active=active) for _, first, active in list_segments(directory)]


def group_records(content: memoryview, where: object) -> Iterator[tuple[RecordType, Ints, RecordArray]]:
    """Yield `records.group_by_type` of the content of the file `where`; raise TapeError for bad records."""
    try:
        yield from group_by_type(content)
    except BadRecords as bad:
        raise TapeError(f"{where}: {bad}") from None

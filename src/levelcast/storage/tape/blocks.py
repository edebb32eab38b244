"""Read a tape in blocks: many consecutive frames at a time, so that numpy does the work per record.

Memory holds one block, however long the tape is. The end of the tape is fixed when the blocks are created: frames that
a writer adds later are not read, so that several passes find the same records.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from levelcast.records import RecordArray, RecordType
from levelcast.storage.append_file import TapeError
from levelcast.storage.tape.index import IndexEntry, Ints
from levelcast.storage.tape.reader import TapeReader
from levelcast.storage.tape.segment import Segment, group_records

BLOCK_RECORDS = 1 << 16


class RecordBlock(NamedTuple):
    """Consecutive records of a tape, from `first_sequence` on."""

    first_sequence: int
    segment: Segment
    data: memoryview

    def by_type(self) -> Iterator[tuple[RecordType, Ints, RecordArray]]:
        """Yield the records of each type and size, with their numbers in the block."""
        yield from group_records(self.data, self.segment.data_path)


class TapeBlocks:
    """The records of a tape from a sequence on, to its present end."""

    def __init__(self, reader: TapeReader, from_sequence: int = 1, block_records: int = BLOCK_RECORDS) -> None:
        self._reader = reader
        self._from = from_sequence
        self._most = block_records
        self.stop = reader.segments[-1].next_sequence
        """First sequence after the last record."""

    def __iter__(self) -> Iterator[RecordBlock]:
        """Yield blocks in order; the first one may begin before the wanted sequence, at the start of its frame."""
        try:
            for segment, lines in self._together():
                yield _block(segment, lines)
        except FileNotFoundError as gone:
            raise TapeError(f"{gone.filename}: renamed or removed by the running node; run the command again") from None

    def _together(self) -> Iterator[tuple[Segment, list[IndexEntry]]]:
        """Yield frames of one segment with at most `block_records` records, or a single larger frame."""
        lines: list[IndexEntry] = []
        count = 0
        for frame in self._reader.frames(from_sequence=self._from):
            line, segment = frame.line, frame.segment
            if line.first_sequence >= self.stop:
                return
            if lines and count + line.records > self._most:
                yield segment, lines
                lines, count = [], 0
            lines.append(line)
            count += line.records
            # Before the reader goes on: it may unload this segment then.
            if frame.number + 1 == len(segment.lines) or line.next_sequence >= self.stop:
                yield segment, lines
                lines, count = [], 0


def _block(segment: Segment, lines: list[IndexEntry]) -> RecordBlock:
    first, last = lines[0], lines[-1]
    size = last.at + last.size - first.at
    if size != sum(line.size for line in lines):
        raise TapeError(f"{segment.index_path}: frames are not consecutive between slots {first.slot} and {last.slot}")
    return RecordBlock(first.first_sequence, segment, segment.data(first._replace(size=size)))

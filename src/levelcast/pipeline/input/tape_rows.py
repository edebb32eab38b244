"""Turn records of tapes into rows of the schema, many frames at a time; without Spark."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from levelcast.pipeline.input.tapes import Definitions, Piece, TapeSelection, every_frame, open_segment
from levelcast.pipeline.lake.schema import Ints, Names, RecordRows, to_arrow
from levelcast.records import RecordArray, RecordType
from levelcast.storage.append_file import TapeError
from levelcast.storage.tape.index import IndexEntry
from levelcast.storage.tape.segment import Segment, group_records

BATCH_ROWS = 1 << 16


_OWN_SYMBOL = {"instrument": "raw_symbol", "mapping": "stype_out_symbol"}
"""Fields with the symbol, of kinds that define it."""


def rows(
    piece: Piece,
    directory: Definitions,
    *,
    wanted: TapeSelection | None = None,
    columns: Sequence[str] | None = None,
    batch_rows: int = BATCH_ROWS,
    unsound: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a piece as rows of the schema, in order; unless `unsound`, all of its frames are valid."""
    wanted = wanted or TapeSelection()
    wanted = replace(wanted, sequence=wanted.sequence.within(piece.start, piece.stop - 1))
    segment = open_segment(piece, None if unsound else every_frame)
    symbols, venues = Names(directory.symbols), Names(directory.venues)
    for lines in _together(segment.lines, wanted, batch_rows):
        parts = list(_parts(segment, lines, wanted, directory))
        batch = to_arrow(parts, stripe=piece.stripe, symbols=symbols, venues=venues, columns=columns)
        if batch.num_rows:
            yield batch


def _together(lines: list[IndexEntry], wanted: TapeSelection, batch_rows: int) -> Iterator[list[IndexEntry]]:
    """Yield consecutive frames, about `batch_rows` records at a time."""
    first = bisect_left(lines, wanted.sequence.low, key=lambda line: line.next_sequence - 1)
    last = bisect_right(lines, wanted.sequence.high, key=lambda line: line.first_sequence)
    chosen: list[IndexEntry] = []
    count = 0
    for line in lines[first:last]:
        if chosen and (count + line.records > batch_rows or chosen[-1].next_sequence != line.first_sequence):
            yield chosen
            chosen, count = [], 0
        if wanted.wants(line):
            chosen.append(line)
            count += line.records
    if chosen:
        yield chosen


def _parts(
    segment: Segment, lines: list[IndexEntry], wanted: TapeSelection, directory: Definitions
) -> Iterator[RecordRows]:
    for line, following in pairwise(lines):
        if line.at + line.size != following.at:
            raise TapeError(f"{segment.index_path}: frames are not consecutive at slot {following.slot}")
    first = lines[0].first_sequence
    whole = segment.data(lines[0]._replace(size=lines[-1].at + lines[-1].size - lines[0].at))
    counts = [line.records for line in lines]
    total = sum(counts)
    slot = np.repeat(np.array([line.slot for line in lines], np.int64), counts)
    ts_recv = np.repeat(np.array([line.timestamp_ns for line in lines], np.uint64), counts)
    found = 0
    low, high = wanted.sequence.low - first, wanted.sequence.high - first
    for kind, at, records in group_records(whole, segment.data_path):
        found += len(records)
        if len(records) > total or (len(at) and at[-1] >= total):
            break
        kept = _mask(kind, records, at, low, high, wanted, directory)
        if kept is not None:
            at, records = at[kept], records[kept]
        yield RecordRows(records, first + at, slot[at], ts_recv[at])
    if found != total:
        raise TapeError(
            f"{segment.data_path}: has {found} records where its index has {total}, starting at sequence {first:,}"
        )


def _mask(
    kind: RecordType, records: RecordArray, at: Ints, low: int, high: int, wanted: TapeSelection, directory: Definitions
) -> npt.NDArray[np.bool_] | None:
    """Return a mask of the selected records; None for all of them."""
    kept = np.ones(len(records), bool)
    if wanted.kinds is not None and kind.name not in wanted.kinds:
        return np.zeros(len(records), bool)
    if len(at) and (at[0] < low or at[-1] > high):
        kept &= (at >= low) & (at <= high)
    for names, known, column in (
        (wanted.symbols, directory.symbols, "instrument_id"),
        (wanted.venues, directory.venues, "publisher_id"),
    ):
        if names is None:
            continue
        if column == "instrument_id" and kind.name in _OWN_SYMBOL:
            kept &= np.isin(records[_OWN_SYMBOL[kind.name]], [name.encode() for name in names])
        else:
            kept &= np.isin(records[column], [number for number, name in known.items() if name in names])
    return None if kept.all() else kept

"""Payloads as bytes: check and count their records, stamp them, split them into arrays.

`levelcast.records.walk` finds the borders of records. Arrays are of one type and size, as payloads usually are.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from levelcast import native
from levelcast.records.codes import UNDEF_TIMESTAMP, WORD_BYTES
from levelcast.records.layout import BY_RTYPE, RecordArray, RecordType
from levelcast.records.walk import BadRecords, Payload, RecordRun, check_end, record_places, runs, shapes_at, single_run

__all__ = ["RecordBatch", "count_records", "group_by_type", "split", "stamp", "stamp_into"]

native.teach(
    (
        kind.rtype,
        kind.base_size,
        -1 if kind.sequence_offset is None else kind.sequence_offset,
        -1 if kind.ts_recv_offset is None else kind.ts_recv_offset,
    )
    for kind in BY_RTYPE.values()
)


def count_records(payload: Payload) -> int:
    """Return the number of records in `payload`; BadRecords unless allowed records fill it to its last byte."""
    count = native.count(payload)
    return count if count >= 0 else _blame(payload)


def stamp(payload: Payload, first_sequence: int, ts_recv_ns: int) -> bytes:
    """Return a copy with sequence numbers from `first_sequence` on and the acknowledgement's timestamp (rule 5)."""
    copy = bytearray(payload)
    stamp_into(copy, first_sequence, ts_recv_ns)
    return bytes(copy)


def stamp_into(buffer: bytearray | memoryview, first_sequence: int, ts_recv_ns: int) -> int:
    """Stamp the buffer itself; return the count. On BadRecords it is unchanged."""
    assert 0 <= ts_recv_ns <= UNDEF_TIMESTAMP
    count = native.stamp(buffer, first_sequence, ts_recv_ns)
    return count if count >= 0 else _blame(buffer)


def _blame(payload: Payload) -> NoReturn:
    """Raise BadRecords for the first record that is not allowed."""
    for _ in _checked(payload):
        pass
    raise AssertionError("native code refused a payload without a fault")


def _checked(payload: Payload) -> Iterator[tuple[RecordType, RecordRun]]:
    """Yield the runs with their types; BadRecords at the first record that is not allowed."""
    end = 0
    for run in runs(payload):
        kind = BY_RTYPE.get(run.rtype)
        if kind is None:
            raise BadRecords(f"unknown rtype {run.rtype:#04x}", run.offset)
        if run.size < kind.base_size:
            raise BadRecords(f"{kind.name} record of {run.size} bytes is shorter than {kind.base_size}", run.offset)
        yield kind, run
        end = run.offset + run.records * run.size
    check_end(payload, end)


class RecordBatch(NamedTuple):
    """Neighbouring records of one type: `records[i]` is the payload's record number `first + i`, from 0."""

    kind: RecordType
    first: int
    records: RecordArray


def split(payload: Payload) -> list[RecordBatch]:
    """Split the payload into runs of records of one type and size, in order.

    The arrays are views of the payload, except for records without (all of) their tail, which are copied into
    blank ones of full size, so that a reader finds every field of the type.
    """
    return [
        RecordBatch(kind, run.first, _array(payload, run.offset, run.records, run.size, kind))
        for kind, run in _checked(payload)
    ]


def group_by_type(payload: Payload) -> Iterator[tuple[RecordType, npt.NDArray[np.int64], RecordArray]]:
    """Yield the records of each type and size, with their numbers in the payload; the arrays are as in `split`."""
    if native.count(payload) < 0:
        _blame(payload)
    if run := single_run(payload):
        kind = BY_RTYPE[run.rtype]
        yield kind, np.arange(run.records), _array(payload, 0, run.records, run.size, kind)
        return
    offsets, _ = record_places(payload)
    shapes = shapes_at(payload, offsets)
    for shape in np.unique(shapes).tolist():
        kind, size = BY_RTYPE[shape % 256], shape // 256 * WORD_BYTES
        numbers = np.flatnonzero(shapes == shape)
        rows = _gather(payload, offsets[numbers], size)
        yield kind, numbers, _array(rows.data.cast("B"), 0, len(numbers), size, kind)


def _gather(payload: Payload, offsets: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.uint32]:
    """Return the records of one size at these offsets, one after the other. Records consist of 4-byte words."""
    words = np.frombuffer(payload, np.uint32)
    rows: npt.NDArray[np.uint32] = words[(offsets // WORD_BYTES)[:, None] + np.arange(size // WORD_BYTES)]
    return rows


@lru_cache(maxsize=1024)
def _view_dtype(kind: RecordType, size: int) -> np.dtype[np.void]:
    """Return the type's fields in records of `size` bytes, without their longer tail."""
    fields = kind.dtype.fields
    assert fields is not None
    assert size >= kind.dtype.itemsize
    names = list(fields)
    forms, offsets = [fields[name][0] for name in names], [fields[name][1] for name in names]
    return np.dtype({"names": names, "formats": forms, "offsets": offsets, "itemsize": size})


def _array(payload: Payload, offset: int, count: int, size: int, kind: RecordType) -> RecordArray:
    full_size = kind.dtype.itemsize
    if size >= full_size:
        return np.frombuffer(payload, kind.dtype if size == full_size else _view_dtype(kind, size), count, offset)
    records = kind.blank.repeat(count)
    theirs = np.frombuffer(payload, np.uint8, count * size, offset).reshape(count, size)
    records.view(np.uint8).reshape(count, full_size)[:, : kind.base_size] = theirs[:, : kind.base_size]
    records["length"] = full_size // WORD_BYTES
    return records

"""Payloads as bytes: check and count their records, stamp them, split them into arrays.

Most payloads are of one type and size, and for those each function works on all records at once; the walk
from record to record is for mixed ones and for telling what is wrong with a bad one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from levelcast.records.codes import UNDEF_TIMESTAMP, WORD_BYTES
from levelcast.records.layout import BY_RTYPE, RecordArray, RecordType

__all__ = ["BadRecords", "Batch", "Payload", "count_records", "split", "stamp", "stamp_into"]

Payload = bytes | bytearray | memoryview
"""A buffer of plain bytes (a memoryview has format "B")."""


class BadRecords(ValueError):
    """A payload that is not an array of allowed records; `offset` is the byte where the bad record starts."""

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(f"{reason} at byte {offset}")
        self.reason = reason
        self.offset = offset


def _walk(view: memoryview) -> Iterator[tuple[int, int, RecordType]]:
    """(offset, size, type) of each record."""
    offset, end = 0, len(view)
    while offset < end:
        size = view[offset] * WORD_BYTES
        if size == 0:
            raise BadRecords("record of length zero", offset)
        if offset + size > end:
            raise BadRecords(f"record of {size} bytes runs past the end", offset)
        kind = BY_RTYPE.get(view[offset + 1])
        if kind is None:
            raise BadRecords(f"unknown rtype {view[offset + 1]:#04x}", offset)
        if size < kind.base_size:
            raise BadRecords(f"{kind.name} record of {size} bytes is shorter than {kind.base_size}", offset)
        yield offset, size, kind
        offset += size


def _uniform(view: memoryview) -> tuple[int, int, RecordType] | None:
    """(count, size, type) of a payload of allowed records of one type and size, else None: see `_walk`."""
    if len(view) < WORD_BYTES:
        return None
    size = view[0] * WORD_BYTES
    kind = BY_RTYPE.get(view[1])
    if kind is None or size < kind.base_size or len(view) % size:
        return None
    count = len(view) // size
    lengths, rtypes = view[0::size].tobytes(), view[1::size].tobytes()
    if lengths != lengths[:1] * count or rtypes != rtypes[:1] * count:
        return None
    return count, size, kind


def count_records(payload: Payload) -> int:
    """How many records `payload` has; BadRecords unless it is allowed records to its last byte."""
    view = memoryview(payload)
    if uniform := _uniform(view):
        return uniform[0]
    return sum(1 for _ in _walk(view))


def stamp(payload: Payload, first_sequence: int, ts_recv_ns: int) -> bytes:
    """A copy with sequence numbers from `first_sequence` on and the acknowledgement's timestamp (rule 5)."""
    copy = bytearray(payload)
    stamp_into(copy, first_sequence, ts_recv_ns)
    return bytes(copy)


def stamp_into(buffer: bytearray | memoryview, first_sequence: int, ts_recv_ns: int) -> int:
    """`stamp` in place; returns the count. On BadRecords the buffer is untouched."""
    assert 0 <= ts_recv_ns <= UNDEF_TIMESTAMP
    view = memoryview(buffer)
    if uniform := _uniform(view):
        count, size, kind = uniform
        _stamp_uniform(view, size, kind, first_sequence, ts_recv_ns)
        return count
    return _stamp_each(view, first_sequence, ts_recv_ns)


@lru_cache(maxsize=1024)
def _stamp_dtype(kind: RecordType, size: int) -> np.dtype[np.void]:
    """The stamped fields alone, at their places in records of `size` bytes."""
    places = [("sequence", "<u4", kind.sequence_offset), ("ts_recv", "<u8", kind.ts_recv_offset)]
    present = [(name, form, offset) for name, form, offset in places if offset is not None]
    names, forms, offsets = zip(*present, strict=True) if present else ((), (), ())
    return np.dtype({"names": names, "formats": forms, "offsets": offsets, "itemsize": size})


def _stamp_uniform(view: memoryview, size: int, kind: RecordType, first_sequence: int, ts_recv_ns: int) -> None:
    records = np.frombuffer(view, _stamp_dtype(kind, size))
    if kind.sequence_offset is not None:
        numbers = np.arange(len(records), dtype=np.uint64) + np.uint64(first_sequence & 0xFFFFFFFF)
        records["sequence"] = numbers.astype(np.uint32)  # wraps: the low 32 bits
    if kind.ts_recv_offset is not None:
        records["ts_recv"] = ts_recv_ns


def _stamp_each(view: memoryview, first_sequence: int, ts_recv_ns: int) -> int:
    places = list(_walk(view))  # all of it first, so that a bad record leaves the buffer as it was
    for number, (offset, _, kind) in enumerate(places, first_sequence):
        if kind.sequence_offset is not None:
            struct.pack_into("<I", view, offset + kind.sequence_offset, number & 0xFFFFFFFF)
        if kind.ts_recv_offset is not None:
            struct.pack_into("<Q", view, offset + kind.ts_recv_offset, ts_recv_ns)
    return len(places)


class Batch(NamedTuple):
    """Neighbouring records of one type: `records[i]` is the payload's record number `first + i`, from 0."""

    kind: RecordType
    first: int
    records: RecordArray


def split(payload: Payload) -> list[Batch]:
    """The payload as runs of records of one type and size, in order.

    The arrays are views of the payload, except for records without (all of) their tail, which are copied into
    blank ones of full size, so that a reader finds every field of the type.
    """
    view = memoryview(payload)
    if uniform := _uniform(view):
        return [_batch(view, 0, 0, *uniform)]
    runs: list[list[int]] = []  # offset, first, count, size, rtype
    for number, (offset, size, kind) in enumerate(_walk(view)):
        if runs and runs[-1][3:] == [size, kind.rtype]:
            runs[-1][2] += 1
        else:
            runs.append([offset, number, 1, size, kind.rtype])
    return [_batch(view, offset, first, n, size, BY_RTYPE[rtype]) for offset, first, n, size, rtype in runs]


@lru_cache(maxsize=1024)
def _view_dtype(kind: RecordType, size: int) -> np.dtype[np.void]:
    """The type's fields in records of `size` bytes, whose longer tail stays hidden."""
    fields = kind.dtype.fields
    assert fields is not None
    assert size >= kind.dtype.itemsize
    names = list(fields)
    forms, offsets = [fields[name][0] for name in names], [fields[name][1] for name in names]
    return np.dtype({"names": names, "formats": forms, "offsets": offsets, "itemsize": size})


def _batch(view: memoryview, offset: int, first: int, count: int, size: int, kind: RecordType) -> Batch:
    full_size = kind.dtype.itemsize
    if size == full_size:
        return Batch(kind, first, np.frombuffer(view, kind.dtype, count, offset))
    if size > full_size:
        return Batch(kind, first, np.frombuffer(view, _view_dtype(kind, size), count, offset))
    records = kind.blank.repeat(count)
    theirs = np.frombuffer(view, np.uint8, count * size, offset).reshape(count, size)
    records.view(np.uint8).reshape(count, full_size)[:, : kind.base_size] = theirs[:, : kind.base_size]
    records["length"] = full_size // WORD_BYTES
    return Batch(kind, first, records)

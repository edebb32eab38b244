"""Payloads as bytes: check and count their records, stamp them, split them into arrays.

`levelcast.native` walks from record to record; the walk here is for telling what is wrong with a bad one. Arrays are of
one type and size, as most payloads are.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple, NoReturn

import numpy as np

from levelcast import native
from levelcast.records.codes import UNDEF_TIMESTAMP, WORD_BYTES
from levelcast.records.layout import BY_RTYPE, RecordArray, RecordType

__all__ = ["BadRecords", "Payload", "RecordBatch", "count_records", "split", "stamp", "stamp_into"]

native.teach(
    (
        kind.rtype,
        kind.base_size,
        -1 if kind.sequence_offset is None else kind.sequence_offset,
        -1 if kind.ts_recv_offset is None else kind.ts_recv_offset,
    )
    for kind in BY_RTYPE.values()
)

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
    if count > 64:
        heads = np.ndarray(count, "<u2", view, strides=(size,))  # length and rtype together
        return None if (heads != heads[0]).any() else (count, size, kind)
    lengths, rtypes = view[0::size].tobytes(), view[1::size].tobytes()
    if lengths != lengths[:1] * count or rtypes != rtypes[:1] * count:
        return None
    return count, size, kind


def count_records(payload: Payload) -> int:
    """How many records `payload` has; BadRecords unless it is allowed records to its last byte."""
    count = native.count(payload)
    return count if count >= 0 else _blame(payload)


def stamp(payload: Payload, first_sequence: int, ts_recv_ns: int) -> bytes:
    """A copy with sequence numbers from `first_sequence` on and the acknowledgement's timestamp (rule 5)."""
    copy = bytearray(payload)
    stamp_into(copy, first_sequence, ts_recv_ns)
    return bytes(copy)


def stamp_into(buffer: bytearray | memoryview, first_sequence: int, ts_recv_ns: int) -> int:
    """`stamp` in place; returns the count. On BadRecords the buffer is untouched."""
    assert 0 <= ts_recv_ns <= UNDEF_TIMESTAMP
    count = native.stamp(buffer, first_sequence, ts_recv_ns)
    return count if count >= 0 else _blame(buffer)


def _blame(payload: Payload) -> NoReturn:
    """Raises BadRecords for the first record that is not allowed."""
    for _ in _walk(memoryview(payload)):
        pass
    raise AssertionError("the kernel refused a payload without a fault")


class RecordBatch(NamedTuple):
    """Neighbouring records of one type: `records[i]` is the payload's record number `first + i`, from 0."""

    kind: RecordType
    first: int
    records: RecordArray


def split(payload: Payload) -> list[RecordBatch]:
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


def _batch(view: memoryview, offset: int, first: int, count: int, size: int, kind: RecordType) -> RecordBatch:
    full_size = kind.dtype.itemsize
    if size == full_size:
        return RecordBatch(kind, first, np.frombuffer(view, kind.dtype, count, offset))
    if size > full_size:
        return RecordBatch(kind, first, np.frombuffer(view, _view_dtype(kind, size), count, offset))
    records = kind.blank.repeat(count)
    theirs = np.frombuffer(view, np.uint8, count * size, offset).reshape(count, size)
    records.view(np.uint8).reshape(count, full_size)[:, : kind.base_size] = theirs[:, : kind.base_size]
    records["length"] = full_size // WORD_BYTES
    return RecordBatch(kind, first, records)

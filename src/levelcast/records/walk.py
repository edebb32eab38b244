"""Find the borders of records in a payload: the only module that steps from record to record.

The first byte of a record is its length in 4-byte words (rule 1). A step needs nothing else, so a walk also passes
records of unknown types; `levelcast.records.payload` checks those. `levelcast.native` does the stepping.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from levelcast import native
from levelcast.errors import LevelcastError
from levelcast.records.codes import WORD_BYTES

__all__ = [
    "BadRecords",
    "Payload",
    "RecordRun",
    "each_record",
    "last_record",
    "record_ends",
    "record_places",
    "runs",
    "uniform_size",
]

Payload = bytes | bytearray | memoryview
"""A buffer of plain bytes (a memoryview has format "B")."""

Offsets = npt.NDArray[np.int64]


class BadRecords(LevelcastError, ValueError):
    """A payload that is not an array of allowed records; `offset` is the byte where the bad record starts."""

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(f"{reason} at byte {offset}")
        self.reason = reason
        self.offset = offset


class RecordRun(NamedTuple):
    """Neighbouring records of one size and type; `first` is the number of the first one in the payload, from 0."""

    first: int
    offset: int
    records: int
    size: int
    rtype: int


def uniform_size(payload: Payload) -> int:
    """Return the size of the records of `payload` if they all have the same, else 0."""
    if len(payload) < WORD_BYTES:
        return 0
    size = payload[0] * WORD_BYTES
    if size == 0 or len(payload) % size:
        return 0
    lengths = bytes(payload[::size])
    return size if lengths == lengths[:1] * len(lengths) else 0


def record_ends(payload: Payload) -> Offsets:
    """Return the offset after each record, up to a length of zero or a record that runs past the end."""
    return np.frombuffer(native.record_ends(payload), np.int64)


def record_places(payload: Payload) -> tuple[Offsets, Offsets]:
    """Return the offset and the size of each record; `BadRecords` unless records fill `payload` to its last byte."""
    if size := uniform_size(payload):
        offsets = np.arange(0, len(payload), size, dtype=np.int64)
        return offsets, np.full(len(offsets), size, np.int64)
    ends = record_ends(payload)
    check_end(payload, int(ends[-1]) if len(ends) else 0)
    offsets = np.concatenate((np.zeros(1, np.int64), ends[:-1])) if len(ends) else ends
    return offsets, ends - offsets


def check_end(payload: Payload, end: int) -> None:
    """Raise `BadRecords` for the record at `end`, where a walk has stopped; nothing at the end of `payload`."""
    if end < len(payload):
        size = payload[end] * WORD_BYTES
        raise BadRecords(f"record of {size} bytes runs past the end" if size else "record of length zero", end)


def each_record(payload: bytes) -> Iterator[bytes]:
    """Yield each record as bytes."""
    at = 0
    for end in memoryview(native.record_ends(payload)).cast("q"):
        yield payload[at:end]
        at = end
    check_end(payload, at)


def last_record(payload: Payload) -> int:
    """Return the offset of the last complete record, 0 if there is none."""
    ends = record_ends(payload)
    return int(ends[-2]) if len(ends) > 1 else 0


def single_run(payload: Payload) -> RecordRun | None:
    """Return the run that fills `payload`; None if its records are not all of one size and type."""
    if size := uniform_size(payload):
        rtypes = bytes(payload[1::size])
        if rtypes == rtypes[:1] * len(rtypes):
            return RecordRun(0, 0, len(rtypes), size, rtypes[0])
    return None


def runs(payload: Payload) -> list[RecordRun]:
    """Return the runs of `payload` in order, as far as complete records reach."""
    if run := single_run(payload):
        return [run]
    ends = record_ends(payload)
    if not len(ends):
        return []
    offsets = np.concatenate((np.zeros(1, np.int64), ends[:-1]))
    shapes = shapes_at(payload, offsets)
    firsts = np.concatenate((np.zeros(1, np.int64), np.flatnonzero(np.diff(shapes)) + 1))
    counts = np.diff(firsts, append=len(ends))
    heads = zip(firsts.tolist(), offsets[firsts].tolist(), counts.tolist(), shapes[firsts].tolist(), strict=True)
    return [RecordRun(first, at, count, shape // 256 * WORD_BYTES, shape % 256) for first, at, count, shape in heads]


def shapes_at(payload: Payload, offsets: Offsets) -> Offsets:
    """Return length in words and type of each record as one number: words * 256 + rtype."""
    octets = np.frombuffer(payload, np.uint8)
    return octets[offsets].astype(np.int64) * 256 + octets[offsets + 1]

"""Merge the records of many sessions and stripes into one order (rule 15): timestamp, stripe, global sequence.

- A record is delivered once every followed session is known to be complete up to its timestamp: from the session's
  watermarks and marks, and from its own later records. So an idle session delays the others by at most the watermark
  interval, and a session that has ended does not delay them.
- A record without an instrument (a venue's halt) is in every session. It is used from the first, by name, of the
  followed sessions of a stripe and plan, and skipped in the others.
- Definitions, mappings, status and system messages have no global sequence. Such a record gets the position of the
  record before it in its session, or of the beginning of its frame. So it keeps its order in its session. Its order
  relative to records of the same frame in other sessions is not defined.
- The output is runs of records of one type and stripe. Python works per batch, numpy per record.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from levelcast.records import RecordArray, RecordType
from levelcast.records.sequences import WRAP, whole_sequence
from levelcast.wire.watermark import Watermark

_FOREVER = 2**64 - 1
_UNKNOWN = -1
_FRAME_BEGINS = -1
"""Sort key of an unknown sequence: before every record of its frame that has one."""

Times = npt.NDArray[np.uint64]
Sequences = npt.NDArray[np.int64]


class Merged(NamedTuple):
    """The next records in the merged order, of one type and stripe."""

    stripe: int
    kind: RecordType
    records: RecordArray
    sequence: int | None
    """The global sequence of the first record; None if the type has none."""


class _Chunk(NamedTuple):
    kind: RecordType
    records: RecordArray
    times: Times
    lows: Sequences
    """The low 32 bits of each global sequence; -1 at the beginning of a frame."""

    def part(self, which: slice | npt.NDArray[np.bool_]) -> _Chunk:
        return _Chunk(self.kind, self.records[which], self.times[which], self.lows[which])


@dataclass(slots=True, eq=False)
class _Lane:
    """One session."""

    stripe: int
    complete_ns: int
    leads: bool
    """True if the records without an instrument are used from this session."""
    ended: bool = False
    chunks: deque[_Chunk] = field(default_factory=deque)
    time_ns: int = 0
    """Time of the last record; `low` has the low bits of its sequence."""
    low: int = _UNKNOWN

    def cut(self, upto_ns: int) -> Iterator[_Chunk]:
        """Remove and yield the records up to a time."""
        while self.chunks:
            chunk = self.chunks[0]
            number = int(np.searchsorted(chunk.times, np.uint64(upto_ns), "right"))
            if number < len(chunk.times):
                if number:
                    yield chunk.part(slice(None, number))
                    self.chunks[0] = chunk.part(slice(number, None))
                return
            yield self.chunks.popleft()


class Merger:
    """Merge the records of each session, passed in order, into one order across all sessions.

    >>> from levelcast.records import split, trades
    >>> merger = Merger()
    >>> merger.follow([b"1/0/0     ", b"1/0/1     "], stripe=0)
    >>> batch = trades(2)
    >>> batch["instrument_id"], batch["ts_recv"], batch["sequence"] = 7, 50, [3, 5]
    >>> merger.take(b"1/0/1     ", split(batch.tobytes())[0].kind, batch)
    >>> merger.ready()
    []
    >>> merger.complete(b"1/0/0     ", Watermark(100, 6, 0))
    >>> merger.complete(b"1/0/1     ", Watermark(100, 6, 0))
    >>> [(merged.sequence, len(merged.records)) for merged in merger.ready()]
    [(3, 2)]
    """

    def __init__(self) -> None:
        self.waiting = 0
        """Records that wait for other sessions."""
        self._lanes: dict[bytes, _Lane] = {}
        self._near: dict[int, int] = {}
        """For each stripe, a 64-bit global sequence near the next ones."""

    @property
    def complete_ns(self) -> int:
        """Time up to which every followed session is complete."""
        return min((lane.complete_ns for lane in self._lanes.values() if not lane.ended), default=_FOREVER)

    def follow(self, sessions: Iterable[bytes], stripe: int, complete_ns: int = 0) -> None:
        """Add all followed sessions of one plan and stripe, complete up to the end of the previous plan's sessions."""
        names = sorted(sessions)
        for name in names:
            self._lanes.setdefault(name, _Lane(stripe, complete_ns, name == names[0]))

    def near(self, stripe: int, sequence: int) -> None:
        """Set a global sequence near the next ones of a stripe, for example from a snapshot."""
        self._near[stripe] = sequence

    def complete(self, session: bytes, watermark: Watermark) -> None:
        """Record that a session is complete up to a time."""
        lane = self._lanes.get(session)
        if lane is not None:
            self._near[lane.stripe] = watermark.next_sequence
            lane.complete_ns = max(lane.complete_ns, watermark.complete_ns)

    def end(self, session: bytes) -> None:
        """Record that a session has ended."""
        lane = self._lanes.get(session)
        if lane is not None:
            lane.ended = True

    def take(self, session: bytes, kind: RecordType, found: RecordArray) -> None:
        """Add the session's next records, of one type. Records of a session that is not followed are ignored."""
        lane = self._lanes.get(session)
        if lane is None or not len(found):
            return
        times = np.full(len(found), lane.time_ns, np.uint64)
        if kind.ts_recv_offset is not None:
            times = found["ts_recv"].astype(np.uint64)
        if kind.sequence_offset is not None:
            lows = found["sequence"].astype(np.int64)
        else:
            lows = np.where(times == lane.time_ns, lane.low, _UNKNOWN)
        lane.time_ns, lane.low = int(times[-1]), int(lows[-1])
        lane.complete_ns = max(lane.complete_ns, lane.time_ns - 1)
        chunk = _Chunk(kind, found, times, lows)
        if not lane.leads and not (bound := found["instrument_id"] != 0).all():
            chunk = chunk.part(bound)
        if len(chunk.times):
            lane.chunks.append(chunk)
            self.waiting += len(chunk.times)

    def ready(self) -> list[Merged]:
        """Return the records that can be delivered now, in order."""
        upto_ns = self.complete_ns
        if not self.waiting:
            self._drop_ended()
            return []
        chunks: list[_Chunk] = []
        stripes: list[int] = []
        for lane in self._lanes.values():
            for chunk in lane.cut(upto_ns):
                chunks.append(chunk)
                stripes.append(lane.stripe)
        self._drop_ended()
        if not chunks:
            return []
        self.waiting -= sum(len(chunk.times) for chunk in chunks)
        return self._in_order(chunks, stripes)

    def _drop_ended(self) -> None:
        for name in [name for name, lane in self._lanes.items() if lane.ended and not lane.chunks]:
            del self._lanes[name]

    def _in_order(self, chunks: list[_Chunk], stripes: list[int]) -> list[Merged]:
        lengths = [len(chunk.times) for chunk in chunks]
        times = np.concatenate([chunk.times for chunk in chunks])
        stripe = np.repeat(stripes, lengths)
        sequences = np.concatenate(
            [self._whole(chunk.lows, where) for chunk, where in zip(chunks, stripes, strict=True)]
        )
        order = np.lexsort((sequences, stripe, times))
        kinds = list({chunk.kind.rtype: chunk.kind for chunk in chunks}.values())
        number_of = {kind.rtype: number for number, kind in enumerate(kinds)}
        key = stripe * len(kinds) + np.repeat([number_of[chunk.kind.rtype] for chunk in chunks], lengths)
        key, stripe, sequences = key[order], stripe[order], sequences[order]
        sorted_records = self._sorted(chunks, kinds, order)
        starts = [0, *(np.flatnonzero(np.diff(key)) + 1).tolist(), len(key)]
        places = dict.fromkeys(number_of, 0)
        out = []
        for start, end in pairwise(starts):
            where, kind = int(stripe[start]), kinds[int(key[start]) % len(kinds)]
            at = places[kind.rtype]
            places[kind.rtype] = at + end - start
            known = kind.sequence_offset is not None and where in self._near
            found = sorted_records[kind.rtype][at : at + end - start]
            out.append(Merged(where, kind, found, int(sequences[start]) if known else None))
        return out

    def _sorted(self, chunks: list[_Chunk], kinds: list[RecordType], order: Sequences) -> dict[int, RecordArray]:
        """Return the records of each type in the merged order."""
        if len(kinds) == 1:
            return {kinds[0].rtype: _joined([chunk.records for chunk in chunks], kinds[0])[order]}
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        found = {}
        begins = np.cumsum([0, *(len(chunk.times) for chunk in chunks)]).tolist()
        for kind in kinds:
            mine = [number for number, chunk in enumerate(chunks) if chunk.kind is kind]
            ranks = np.concatenate([rank[begins[number] : begins[number + 1]] for number in mine])
            found[kind.rtype] = _joined([chunks[number].records for number in mine], kind)[ranks.argsort()]
        return found

    def _whole(self, lows: Sequences, stripe: int) -> Sequences:
        """Return global sequences from their low 32 bits."""
        whole = whole_sequence(lows, self._near.get(stripe, WRAP // 2))
        return np.where(lows == _UNKNOWN, _FRAME_BEGINS, whole)


def _joined(arrays: list[RecordArray], kind: RecordType) -> RecordArray:
    """Join arrays of one type; a tail longer than the type's own is truncated."""
    if all(each.dtype == kind.dtype for each in arrays):
        return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
    out = np.zeros(sum(map(len, arrays)), kind.dtype)
    for name in kind.dtype.names or ():
        out[name] = np.concatenate([each[name] for each in arrays])
    return out

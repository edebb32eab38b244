"""Convert messages from the edge protocol to batches of records, per session or merged into one order."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from levelcast import records
from levelcast.client.streams import Streams
from levelcast.client.symbol_filter import SymbolFilter
from levelcast.edge.subscriber.delivery import Complete, Deliver, SubscriberCounts
from levelcast.edge.subscriber.merge import Merger
from levelcast.edge.subscriber.plan_follower import Closed, Followed
from levelcast.records import RecordArray, RecordType
from levelcast.records.sequences import WRAP
from levelcast.wire.snapshot import Snapshot
from levelcast.wire.watermark import Watermark

_TRADE = next(kind for kind in records.RECORD_TYPES if kind.rtype == records.RTYPE_TRADE)
_FOREVER = 2**64 - 1


class Batch(NamedTuple):
    """The next records of a session, all of one type; if merged, the next records of all sessions."""

    session: str
    """Empty if sessions are merged."""
    sequence: int
    """Sequence of the first record in its session."""
    kind: RecordType
    records: RecordArray
    """An array with the type's fields; usually a view of received data, so it is read-only."""
    global_sequence: int | None
    """Sequence of the first record on the tape; None if the type lacks the field, or not all 64 bits are known yet."""
    watermark: Watermark | None
    """A watermark before these records: the session is complete up to its time (rule 15); if merged, all are."""
    stripe: int = 0

    @property
    def global_sequences(self) -> npt.NDArray[np.uint64] | None:
        """Sequence on the tape of every record, if that of the first is known."""
        if self.global_sequence is None:
            return None
        low = self.records["sequence"]
        whole: npt.NDArray[np.uint64] = (low - low[0]).astype(np.uint64) + np.uint64(self.global_sequence)
        return whole


def snapshot_batches(snapshot: Snapshot, wanted: SymbolFilter) -> list[Batch]:
    """Return the selected records of a snapshot: by type, each in the tape's order."""
    found = []
    for kind, _, rows in records.split(snapshot.records) if snapshot.records else ():
        chosen = wanted.choose(kind, rows)
        rows = rows if chosen is None else rows[chosen]
        place = None
        if kind.sequence_offset is not None and len(rows):
            behind = np.uint32(snapshot.next_global % WRAP) - rows["sequence"]
            rows = rows[(-behind.astype(np.int64)).argsort(kind="stable")]
            place = snapshot.next_global - int(behind.max())
        if len(rows):
            found.append(Batch("", 0, kind, rows, place, None, snapshot.stripe))
    return found


class BatchQueue:
    """Queue batches for the caller. With `watermarks`, each watermark yields a batch without records."""

    def __init__(self, streams: Streams, wanted: SymbolFilter, *, merged: bool, watermarks: bool) -> None:
        self.batches: deque[Batch] = deque()
        self._streams = streams
        self._wanted = wanted
        self._watermarks = watermarks
        self._merger = Merger() if merged else None
        self._merged_ns = 0
        self._near: dict[int, int] = {}
        """A recent 64-bit global sequence of each stripe; the next ones are close to it."""

    def know_near(self, stripe: int, sequence: int) -> None:
        self._near[stripe] = sequence
        if self._merger is not None:
            self._merger.near(stripe, sequence)

    def follow(self, effect: Followed) -> None:
        for name in effect.sessions:
            self._streams[name].stripe = effect.stripe
        if self._merger is not None:
            self._merger.follow(effect.sessions, effect.stripe, effect.complete_ns)

    def end(self, effect: Closed) -> None:
        if self._merger is not None:
            self._merger.end(effect.session)

    def complete(self, effect: Complete, position: int) -> None:
        """Process a watermark; `position` is the session's next sequence."""
        stream = self._streams[effect.session]
        stream.watermark = effect.watermark
        stream.near = effect.watermark.next_sequence
        self.know_near(stream.stripe, stream.near)
        if self._merger is not None:
            self._merger.complete(effect.session, effect.watermark)
        elif self._watermarks:
            batch = Batch(stream.name, position, _TRADE, records.trades(0), None, stream.watermark, stream.stripe)
            self.batches.append(batch)

    def deliver(self, deliver: Deliver, counts: SubscriberCounts) -> None:
        """Add the next records of a session; `counts` counts those that are filtered out."""
        stream = self._streams[deliver.session]
        if stream.near is None:
            stream.near = self._near.get(stream.stripe)
        for run in records.split(deliver.payload):
            chosen = self._wanted.choose(run.kind, run.records)
            found = run.records
            first = 0
            if chosen is not None:
                if run.kind.rtype != records.RTYPE_SYSTEM:
                    counts.unwanted += len(found) - int(chosen.sum())
                if not chosen.any():
                    continue
                found, first = found[chosen], int(chosen.argmax())
            if run.kind.rtype == records.RTYPE_INSTRUMENT:
                self._wanted.define(found)
            if self._merger is not None:
                self._merger.take(deliver.session, run.kind, found)
                continue
            place = None
            if run.kind.sequence_offset is not None:
                place = stream.whole(int(found["sequence"][0]))
                if place is not None:
                    stream.near = stream.whole(int(found["sequence"][-1]))
            sequence = deliver.sequence + run.first + first
            batch = Batch(stream.name, sequence, run.kind, found, place, stream.watermark, stream.stripe)
            self.batches.append(batch)

    def merge(self) -> None:
        """Append the batches that the merge has ready."""
        merger = self._merger
        if merger is None:
            return
        complete_ns = merger.complete_ns
        known = 0 < complete_ns < _FOREVER
        watermark = Watermark(complete_ns, max(self._near.values(), default=0), 0) if known else None
        for merged in merger.ready():
            self.batches.append(Batch("", 0, merged.kind, merged.records, merged.sequence, watermark, merged.stripe))
        if self._watermarks and watermark is not None and complete_ns > self._merged_ns:
            self._merged_ns = complete_ns
            self.batches.append(Batch("", 0, _TRADE, records.trades(0), None, watermark))

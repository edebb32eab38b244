"""Queue a program's records and split them into packets of a source, as credit allows (rule 10).

A packet has as many records of one floor as fit, in the order in which they were queued. One call of the compiled
module (`Source.submit_all`) splits all queued records into packets, which are journaled and sent together.
With little credit, records wait in the queue, so later packets are fuller. The definitions of the floor's symbols
(`levelcast.network.symbols`) precede the first record.

A floor with a journal writes a progress point (`levelcast.storage.publication`) for each such batch of packets.
One point is enough, because a batch is one entry of the journal: after a crash it is present completely or not at all.
"""

from __future__ import annotations

from collections import deque
from hashlib import blake2b
from threading import Condition

import numpy as np

from levelcast.protocol.effects import Effect
from levelcast.records import RecordArray
from levelcast.ring.source import Source, Submitted
from levelcast.storage.publication import UNKNOWN_DIGEST, Point, Progress
from levelcast.wire.packets import DATA_OVERHEAD, MAX_PAYLOAD

MAX_PACKET_BYTES = MAX_PAYLOAD + DATA_OVERHEAD


class PacketQueue:
    """The `Work` of a floor's driver. `changed` guards the queue: a program fills it, the driver's thread empties it.

    `wake_ns` is 0 while new records wait that no step has processed; afterwards a token wakes the driver.
    """

    def __init__(
        self,
        source: Source,
        definitions: RecordArray,
        progress: Progress | None,
        changed: Condition,
        packet_bytes: int,
    ) -> None:
        self.source = source
        self.wake_ns: int | None = None
        self.waiting = 0
        """Records in the queue."""
        self.total = progress.total if progress is not None else 0
        """Records in packets, over all starts of a floor with a journal."""
        self.witnessed = self.total
        """Records in completely witnessed batches of packets."""
        self._packet_bytes = packet_bytes
        self._progress = progress
        self._changed = changed
        self._buffer = bytearray()
        self._start = self._end = 0
        """The queue is the bytes of `_buffer` between them."""
        self._definitions = memoryview(definitions.tobytes())
        self._unwitnessed: deque[tuple[int, int]] = deque()
        """The last packet of each batch, and `total` after it."""
        self._publication = progress.next_publication if progress is not None else 1
        self._position = 0
        self._hash: blake2b | None = None

    def begin(self, position: int, hashed: blake2b) -> None:
        """Start or continue a resumable publication: its first `position` records have this hash."""
        assert not self.waiting
        self._position, self._hash = position, hashed

    def put(self, records: RecordArray) -> None:
        """Queue a copy of records. The caller holds `changed`."""
        content = np.ascontiguousarray(records).data.cast("B")
        if self._end + len(content) > len(self._buffer):
            self._make_room(len(content))
        self._buffer[self._end : self._end + len(content)] = content
        self._end += len(content)
        self.waiting += len(records)
        self.wake_ns = 0

    def step(self, now: int) -> list[Effect]:
        """Submit queued records, as credit allows, and update `witnessed`."""
        effects: list[Effect] = []
        with self._changed:
            while self._unwitnessed and self._unwitnessed[0][0] <= self.source.witnessed:
                self.witnessed = self._unwitnessed.popleft()[1]
            while self.waiting and self.source.room:
                submitted = self._submit_definitions(now) if self._definitions else self._submit(now)
                assert submitted.records, "a record exceeds the packet size"
                effects += submitted.effects
            self.wake_ns = None
        return effects

    def _submit_definitions(self, now: int) -> Submitted:
        submitted = self.source.submit_all(self._definitions, self._packet_bytes, now)
        self._definitions = self._definitions[submitted.taken :]
        return submitted

    def _make_room(self, size: int) -> None:
        """Move the queue to the start of the buffer, of which it and `size` more bytes fill at most a half."""
        waiting = self._buffer[self._start : self._end]
        if 2 * (len(waiting) + size) > len(self._buffer):
            self._buffer = bytearray(4 * (len(waiting) + size))
        self._buffer[: len(waiting)] = waiting
        self._start, self._end = 0, len(waiting)

    def _submit(self, now: int) -> Submitted:
        with memoryview(self._buffer)[self._start : self._end] as front:
            submitted = self.source.submit_all(front, self._packet_bytes, now)
            if self._hash is not None:
                self._hash.update(front[: submitted.taken])
        self._start += submitted.taken
        if self._start == self._end:
            self._start = self._end = 0
        self.waiting -= submitted.records
        self.total += submitted.records
        self._position += submitted.records
        self._unwitnessed.append((submitted.last, self.total))
        if self._progress is not None:
            digest = UNKNOWN_DIGEST if self._hash is None else self._hash.digest()
            self._progress.note(
                Point(self._publication, self.source.incarnation, submitted.last, self.total, self._position, digest)
            )
        return submitted

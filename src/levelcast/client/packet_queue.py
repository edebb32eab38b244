"""Records on their way from a program into the packets of a source: a queue, and the packing.

A packet has as many whole records as fit, of one floor, in the order in which they were given. When credit is short
(rule 10) records wait in the queue, so later packets are fuller. In front of the first record go the definitions of the
floor's symbols (`levelcast.network.symbols`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from hashlib import blake2b
from threading import Condition

from levelcast.protocol.effects import Effect, Persist
from levelcast.records import RecordArray
from levelcast.ring.source import Source
from levelcast.storage.publication import Point, Progress, hasher
from levelcast.wire.messages import Data
from levelcast.wire.packets import DATA_OVERHEAD, MAX_PAYLOAD

MAX_PACKET_BYTES = MAX_PAYLOAD + DATA_OVERHEAD


@dataclass(slots=True)
class _Chunk:
    """Records of one size that wait; those before `at` have gone."""

    content: memoryview
    size: int
    at: int = 0

    @property
    def records(self) -> int:
        return (len(self.content) - self.at) // self.size


class PacketQueue:
    """The `Work` of a floor's driver. `changed` guards the queue: a program fills it, the driver's thread empties it.

    `wake_ns` is 0 while there is something to send and credit for it; else a token wakes the driver.
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
        """Records in packets, over all starts of a floor that keeps a journal."""
        self.witnessed = self.total
        """Of them, those that are safe."""
        self._payload_bytes = packet_bytes - DATA_OVERHEAD
        self._progress = progress
        self._changed = changed
        self._queue: deque[_Chunk] = deque()
        self._definitions = _Chunk(memoryview(definitions.tobytes()), definitions.dtype.itemsize)
        self._unwitnessed: deque[tuple[int, int]] = deque()
        self._publication = progress.next_publication if progress is not None else 1
        self._position = 0
        self._hash = hasher()

    def begin(self, position: int, hashed: blake2b) -> None:
        """Go on behind the first `position` records of a publication, which have this hash."""
        assert not self.waiting
        self._position, self._hash = position, hashed

    def put(self, content: bytes, size: int) -> None:
        """Queue records of one size. The caller has `changed`."""
        self._queue.append(_Chunk(memoryview(content), size))
        self.waiting += len(content) // size
        self.wake_ns = 0

    def step(self, now: int) -> list[Effect]:
        """Make packets of what waits, as far as there is credit, and see what has become safe."""
        effects: list[Effect] = []
        with self._changed:
            while self._unwitnessed and self._unwitnessed[0][0] <= self.source.witnessed:
                self.witnessed = self._unwitnessed.popleft()[1]
            while self.waiting and self.source.room:
                if self._definitions.records:
                    payload, count = _packed(deque((self._definitions,)), self._payload_bytes)
                    effects += self.source.submit(payload, count, now)
                else:
                    effects += self._submit(now)
            self.wake_ns = None
        return effects

    def _submit(self, now: int) -> list[Effect]:
        payload, count = _packed(self._queue, self._payload_bytes)
        while self._queue and not self._queue[0].records:
            self._queue.popleft()
        effects = self.source.submit(payload, count, now)
        number = next(each.entry.last for each in effects if isinstance(each, Persist) and type(each.entry) is Data)
        self.waiting -= count
        self.total += count
        self._position += count
        self._unwitnessed.append((number, self.total))
        if self._progress is not None:
            self._hash.update(payload)
            source, digest = self.source, self._hash.digest()
            point = Point(self._publication, source.incarnation, number, self.total, self._position, digest)
            self._progress.note(point)
        return effects


def _packed(chunks: deque[_Chunk], room: int) -> tuple[bytes, int]:
    """As many records as fit, from the front of the chunks on."""
    parts: list[memoryview] = []
    count = 0
    for chunk in chunks:
        fitting = min(chunk.records, room // chunk.size)
        parts.append(chunk.content[chunk.at : chunk.at + fitting * chunk.size])
        chunk.at += fitting * chunk.size
        room -= fitting * chunk.size
        count += fitting
        if chunk.records:
            break
    return b"".join(parts), count

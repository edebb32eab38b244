"""Publish trades from files, each by its own floor, exactly once regardless of restarts.

1. All trades are read once: unpublishable trades are rejected before anything is sent. Up to `KEPT_BYTES` of trades
   stay in memory; a larger publication is read again for each of the next steps.
2. The floors with trades in the files are opened. If one has published before from its directory, the trades are
   compared with its publication by hash (`levelcast.storage.publication`): the floor continues after the common part.
3. The trades are published, as fast as credit allows or at a multiple of their recorded speed. Then the replay waits
   until they are witnessed (rule 10). A floor that waits for credit does not delay the others.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path

import numpy as np

from levelcast.client.publisher import Publisher
from levelcast.client.source_loop import SourceLoop
from levelcast.formats.trade_files import survey
from levelcast.network import Network, SymbolDirectory
from levelcast.records import RecordArray
from levelcast.runtime.sockets import LOOPBACK
from levelcast.storage.publication import Point, hasher

STEP_S = 0.1
"""Interval at which `steps` yields to the caller."""
TICK_S = 0.005
"""Trades that are due within this time are published together."""


KEPT_BYTES = 64 << 20


class _KeptBatches:
    """Return all trades from the beginning at each call: from memory if `KEPT_BYTES` suffice, else from the files."""

    def __init__(self, batches: Callable[[], Iterator[RecordArray]]) -> None:
        self._batches = batches
        self._kept: list[RecordArray] | None = None

    def __call__(self) -> Iterator[RecordArray]:
        if self._kept is not None:
            yield from self._kept
            return
        kept: list[RecordArray] = []
        size = 0
        for batch in self._batches():
            size += batch.nbytes
            if size <= KEPT_BYTES:
                kept.append(batch)
            else:
                kept.clear()
            yield batch
        if size <= KEPT_BYTES:
            self._kept = kept


class Replay:
    """Publish trades. `batches` returns all trades, from the beginning, at each call.

    `speed` is a multiple of the recorded speed; `rate` is a number of trades/s.
    """

    def __init__(
        self,
        network: Network,
        batches: Callable[[], Iterator[RecordArray]],
        *,
        data: Path | None = None,
        speed: float | None = None,
        rate: float | None = None,
        impair: bool = False,
        interface: str = LOOPBACK,
        seed: int = 1,
    ) -> None:
        self.network = network
        self.directory = SymbolDirectory(network)
        self._batches = _KeptBatches(batches)
        self.survey = survey(self._batches())
        self.stopping = False
        """Set to stop early; trades in packets by then are kept."""
        self.floors: dict[int, Publisher] = {}
        """Floors by publisher."""
        self.before: Counter[int] = Counter()
        """Trades of each publisher that earlier starts have published."""
        self._speed = speed
        self._rate = rate
        self._loops: dict[str, SourceLoop] = {}
        self._origin: tuple[float, int] | None = None
        self._latest_ns = 0
        self._taken = 0
        try:
            self._open(data, impair, interface, seed)
        except BaseException:
            self.close()
            raise

    def _open(self, data: Path | None, impair: bool, interface: str, seed: int) -> None:
        for publisher in sorted(self.survey.by_floor):
            floor = self.directory.floor_of(publisher)
            if floor.stripe not in self._loops:
                self._loops[floor.stripe] = SourceLoop(self.network, floor.stripe, interface)
            self.floors[publisher] = Publisher(
                self.network, floor.name, data=data, impair=impair, seed=seed, loop=self._loops[floor.stripe]
            )
        known = {number: floor.progress.points for number, floor in self.floors.items() if floor.progress is not None}
        found = resume_from(self._batches(), known) if any(known.values()) else {}
        for number in known:
            position, hashed = found.get(number, (0, hasher()))
            self.before[number] = position
            self.floors[number].queue.begin(position, hashed)
        self._published_before = {number: floor.published for number, floor in self.floors.items()}

    # -- status -------------------------------------------------------------------------------------------

    @property
    def published(self) -> int:
        """Trades in packets, including those of earlier starts."""
        return self.before.total() + sum(
            floor.published - self._published_before[number] for number, floor in self.floors.items()
        )

    @property
    def unwitnessed(self) -> int:
        """Packets that are not yet witnessed."""
        return sum(floor.unwitnessed for floor in self.floors.values())

    @property
    def witnessed(self) -> int:
        """Trades that are witnessed."""
        return self.published - sum(floor.published - floor.witnessed for floor in self.floors.values())

    @property
    def waiting(self) -> int:
        """Trades that wait for credit."""
        return sum(floor.waiting for floor in self.floors.values())

    @property
    def heard_ns(self) -> int:
        """Time of the last datagram from the ring; 0: none."""
        return max((loop.heard_ns for loop in self._loops.values()), default=0)

    @property
    def namesakes(self) -> list[str]:
        """Floors that another process runs as well."""
        return [floor.floor.name for floor in self.floors.values() if floor.namesakes]

    @property
    def warnings(self) -> list[str]:
        return [loop.warning for loop in self._loops.values() if loop.warning is not None]

    @property
    def settled(self) -> bool:
        return all(floor.settled for floor in self.floors.values())

    # -- publishing ---------------------------------------------------------------------------------------

    def steps(self) -> Iterator[None]:
        """Publish everything and wait until it is witnessed; yield to the caller every `STEP_S`."""
        seen: Counter[int] = Counter()
        for batch in self._batches():
            fresh = _unpublished(batch, seen, self.before)
            if len(fresh):
                yield from self._publish(fresh)
            if self.stopping:
                return
        while not self.settled and not self.stopping:
            for floor in self.floors.values():
                if not floor.settled:
                    floor.flush(STEP_S)
                    break
            yield

    def _publish(self, batch: RecordArray) -> Iterator[None]:
        first, told = 0, time.monotonic()
        dues = np.maximum.accumulate(np.maximum(batch["ts_event"], np.uint64(self._latest_ns)))
        self._latest_ns = int(dues[-1])
        while first < len(batch) and not self.stopping:
            last = self._due(dues, first)
            if last > first:
                yield from self._insist(dict(split_floors(batch[first:last])))
            else:
                time.sleep(TICK_S)
            self._taken += last - first
            first = last
            if time.monotonic() - told > STEP_S:
                told = time.monotonic()
                yield

    def _due(self, dues: np.ndarray[tuple[int], np.dtype[np.uint64]], first: int) -> int:
        """Return the end of the due part of the batch."""
        if self._speed is None and self._rate is None:
            return len(dues)
        now = time.monotonic()
        if self._origin is None:
            self._origin = (now, int(dues[first]))
        began, began_ns = self._origin
        if self._rate is not None:
            return min(len(dues), max(first, first + int((now - began) * self._rate) - self._taken))
        assert self._speed is not None
        due_ns = began_ns + int((now - began) * 1e9 * self._speed)
        return first + int(np.searchsorted(dues[first:], np.uint64(due_ns), "right"))

    def _insist(self, left: dict[int, RecordArray]) -> Iterator[None]:
        """Publish the records of each floor; a floor without credit does not delay the others."""
        told = time.monotonic()
        while left and not self.stopping:
            for number, records in list(left.items()):
                taken = self.floors[number].publish(records, block=False)
                if taken < len(records):
                    left[number] = records[taken:]
                else:
                    del left[number]
            if left:
                self.floors[next(iter(left))].wait_for_room(TICK_S)
            if time.monotonic() - told > STEP_S:
                told = time.monotonic()
                yield

    def close(self) -> None:
        """Stop immediately: packets are in the journals, the remaining trades are in the files."""
        for floor in self.floors.values():
            floor.close()
        for loop in self._loops.values():
            loop.close()

    def __enter__(self) -> Replay:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def split_floors(batch: RecordArray) -> Iterator[tuple[int, RecordArray]]:
    """Yield each publisher's records, in their order."""
    publishers = batch["publisher_id"]
    order = publishers.argsort(kind="stable")
    numbers, starts = np.unique(publishers[order], return_index=True)
    bare = batch.view(f"V{batch.dtype.itemsize}")  # otherwise numpy copies field by field
    for number, start, end in zip(numbers.tolist(), starts, [*starts[1:], len(order)], strict=False):
        yield number, np.take(bare, order[start:end]).view(batch.dtype)


def _unpublished(batch: RecordArray, seen: Counter[int], before: Mapping[int, int]) -> RecordArray:
    """Return the trades that earlier starts have not published, and update `seen`."""
    if not before:
        return batch
    fresh = np.ones(len(batch), np.bool_)
    for number, position in before.items():
        mine = np.flatnonzero(batch["publisher_id"] == number)
        fresh[mine[: max(0, position - seen[number])]] = False
        seen[number] += len(mine)
    return batch[fresh]


def resume_from(batches: Iterable[RecordArray], known: Mapping[int, Sequence[Point]]) -> dict[int, tuple[int, blake2b]]:
    """Return, by publisher, the length and hash of the longest prefix that matches a known publication."""
    tracks = {number: _Track(points) for number, points in known.items() if points}
    for batch in batches:
        for number, records in split_floors(batch):
            if number in tracks:
                tracks[number].add(records)
    return {number: track.best for number, track in tracks.items() if track.best[0]}


class _Track:
    """Hash one floor's records, and compare the hash at each progress point of its publications."""

    def __init__(self, points: Sequence[Point]) -> None:
        self.best: tuple[int, blake2b] = (0, hasher())
        self._known = {(point.position, point.digest) for point in points}
        self._stops = sorted({point.position for point in points}, reverse=True)
        self._hash = hasher()
        self._position = 0

    def add(self, records: RecordArray) -> None:
        first = 0
        while first < len(records) and self._stops:
            last = min(len(records), first + self._stops[-1] - self._position)
            self._hash.update(records[first:last].tobytes())
            self._position += last - first
            first = last
            if self._position == self._stops[-1]:
                self._stops.pop()
                if (self._position, self._hash.digest()) in self._known:
                    self.best = (self._position, self._hash.copy())

"""The engine of a tape at any sequence: for a late joiner, a service and the command line (M14).

A frame is applied completely or not at all, so the state at sequence N is the one after the last frame that ends at N
or before. `BookService` applies the frames of a tape once and keeps snapshots at intervals. A state in the past is
restored from the last snapshot before it and the frames that follow. A late joiner restores `snapshot_at(N)` and
applies the frames after the sequence of the snapshot.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from levelcast.errors import UserError
from levelcast.market.engine import BookFrame, MatchingEngine

Frames = Callable[[int], Iterable[BookFrame]]
"""Return the frames of a tape after a sequence."""

INTERVAL = 1_000_000
"""Commands between two snapshots: a rebuild of fewer takes less than a second."""
KEPT = 16


class SequenceNotHeld(UserError):
    """A sequence is after the end of the tape, or before the state that the service began with."""


class BookService:
    """States of the engine by sequence. `first` is the state to begin with, that of a snapshot or of a new floor."""

    def __init__(self, frames: Frames, first: MatchingEngine, interval: int = INTERVAL, kept: int = KEPT) -> None:
        self.engine = first
        """The state after the last frame that `follow` has applied. Others may read it."""
        self._frames, self._interval = frames, interval
        self._snapshots = deque([(first.sequence, first.snapshot())])
        self._kept = kept
        self._next = first.kernel.count + interval

    def follow(self) -> None:
        """Apply the frames that are new on the tape."""
        for frame in self._frames(self.engine.sequence):
            self.engine.frame(frame)
            if self.engine.kernel.count >= self._next:
                self._snapshots.append((self.engine.sequence, self.engine.snapshot()))
                self._next = self.engine.kernel.count + self._interval
                if len(self._snapshots) > self._kept:
                    del self._snapshots[1]  # the first one stays: everything else follows from it

    def at(self, sequence: int) -> MatchingEngine:
        """Return the state at a sequence, as an engine of its own."""
        if sequence > self.engine.sequence:
            raise SequenceNotHeld(
                f"sequence {sequence:,} is after the end of the tape; the last one is {self.engine.sequence:,}"
            )
        if sequence < self._snapshots[0][0]:
            first = self._snapshots[0][0]
            raise SequenceNotHeld(f"sequence {sequence:,} is before the first snapshot, {first:,}; begin with the tape")
        before = max((each for each in self._snapshots if each[0] <= sequence), key=lambda each: each[0])
        engine = MatchingEngine.restore(before[1])
        for frame in self._frames(engine.sequence):
            if frame.sequence > sequence:
                break
            engine.frame(frame)
        return engine

    def snapshot_at(self, sequence: int) -> bytes:
        return self.at(sequence).snapshot()

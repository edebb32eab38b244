"""Keep checkpoints of a feed along its tape, sans I/O: packets can be rebuilt from each of them.

A checkpoint is a feed's state without its snapshot, made every few hundred frames. Each segment of the tape begins with
one, so that every message that retention leaves on the tape can be sent. The driver owns the files (`EdgeStorage`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol

from levelcast.edge.server.feed import Feed, FeedState, FramePosition, decode_state
from levelcast.errors import LevelcastError
from levelcast.wire import mold
from levelcast.wire.channel_plan import is_plan_session, parse_session
from levelcast.wire.header import Malformed

CHECKPOINT_FRAMES = 256
CHECKPOINT_RECORDS = 65_536
"""Make a checkpoint after this many frames or records; the interval is longer if there are many sessions."""
FRAMES_A_SESSION = 16
RECORDS_A_SESSION = 64
_PAST = 2**64
UNREADABLE = (OSError, LevelcastError)
"""Errors raised by a driver's files."""


class FrameReader(Protocol):
    """Read the frames of a tape from a position on, in the driver."""

    def read(self, most_bytes: int, most_frames: int) -> tuple[Sequence[tuple[FramePosition, bytes]], bool]:
        """Return the next frames with their stamped records, and False at the end of the tape."""

    def close(self) -> None: ...


class EdgeStorage(Protocol):
    """A receiver's tape and the checkpoints along it, in the driver's files."""

    def read_from(self, slot: int, sequence: int) -> FrameReader:
        """Read frames after `slot`, the first of which has the record `sequence`; raise an error if it was removed."""

    def first_sequence(self) -> int | None:
        """Return the sequence of the first record that is still on the tape."""

    def append(self, slot: int, checkpoint: bytes) -> int | None:
        """Store a checkpoint and return its location, or None on failure."""

    def read(self, location: int) -> bytes:
        """Return the checkpoint at a location."""

    def close(self) -> None: ...


def _plan_of(session: bytes) -> int:
    """Return the number of the plan that a session belongs to."""
    position = parse_session(session)
    return position.number if position is not None else 0


class _Checkpoint(NamedTuple):
    slot: int
    location: int | None
    content: bytes = b""
    """Content of a checkpoint that is not stored."""


class Spacing:
    """Decide when a feed that follows the tape makes its next checkpoint."""

    def __init__(self, segment_records: int) -> None:
        self._segment_records = segment_records
        self._frames, self._global = 0, 1

    def is_due(self, feed: Feed) -> bool:
        following = feed.packetizer.next_global
        frames, records = feed.frames - self._frames, following - self._global
        per_segment, sessions = self._segment_records, feed.sessions
        if (
            frames < CHECKPOINT_FRAMES + FRAMES_A_SESSION * sessions
            and records < CHECKPOINT_RECORDS + RECORDS_A_SESSION * sessions
            and (following - 1) // per_segment == (self._global - 1) // per_segment
        ):
            return False
        self.begin(feed)
        return True

    def begin(self, feed: Feed) -> None:
        self._frames, self._global = feed.frames, feed.packetizer.next_global


class FeedCheckpoints:
    """The checkpoints along a tape, in order; `known` has slot and location of each stored one."""

    def __init__(self, storage: EdgeStorage, segment_records: int, known: Iterable[tuple[int, int]] = ()) -> None:
        self.segment_records = segment_records
        self.storage = storage
        self._checkpoints = [_Checkpoint(slot, location) for slot, location in known]
        self._pending = 0
        """Number of checkpoints at the end of the list that are not stored yet."""
        self._spacing = Spacing(segment_records)
        self.state = lru_cache(maxsize=16)(self._state)

    def __len__(self) -> int:
        return len(self._checkpoints)

    def begin(self, feed: Feed) -> None:
        """Make checkpoints of this feed from its position on."""
        self._spacing.begin(feed)

    def note(self, feed: Feed) -> None:
        """Make a checkpoint of a feed after a frame, if one is due."""
        if self._spacing.is_due(feed) and (not self._checkpoints or feed.slot > self._checkpoints[-1].slot):
            self._checkpoints.append(_Checkpoint(feed.slot, None, feed.checkpoint()))
            self._pending += 1

    def save(self) -> None:
        """Store the checkpoints made since the last call. If the storage fails, a checkpoint stays in memory."""
        first = len(self._checkpoints) - self._pending
        self._pending = 0
        for number, (slot, _, content) in enumerate(self._checkpoints[first:], first):
            location = self.storage.append(slot, content)
            if location is not None:
                self._checkpoints[number] = _Checkpoint(slot, location)

    def insert(self, feed: Feed, since_slot: int) -> None:
        """Add a checkpoint of a reading, unless there is one between `since_slot` and its position."""
        index = bisect_right(self._checkpoints, feed.slot, key=lambda each: each.slot)
        if index + self._pending <= len(self._checkpoints) and (
            not index or self._checkpoints[index - 1].slot <= since_slot
        ):
            self._checkpoints.insert(index, _Checkpoint(feed.slot, None, feed.checkpoint()))

    def before(self, session: bytes, sequence: int) -> FeedState | None:
        """Return the last checkpoint from which a message can be rebuilt."""
        index = bisect_left(self._checkpoints, True, key=lambda each: self._sequence(each, session) > sequence)
        return self.state(self._checkpoints[index - 1]) if index else None

    def first(self, session: bytes, from_sequence: int) -> int | None:
        """Return the first message of a session after a checkpoint that is still on the tape."""
        index = bisect_left(self._checkpoints, True, key=lambda each: self._global(each) >= from_sequence)
        first = self._sequence(self._checkpoints[index], session) if index < len(self._checkpoints) else 0
        return first if 0 < first < _PAST else None

    def _sequence(self, checkpoint: _Checkpoint, session: bytes) -> int:
        """Return a session's next sequence at a checkpoint; 0: not known, `_PAST`: its plan was replaced."""
        state = self.state(checkpoint)
        if state is None:
            return 0
        sessions = state.snapshot.sessions
        index = bisect_left(sessions, (session, 0))
        if index < len(sessions) and sessions[index].session == session:
            return sessions[index].next_sequence
        there, wanted = _plan_of(sessions[0].session) if sessions else 0, _plan_of(session)
        if there == wanted and is_plan_session(session):
            return 1  # a feed has the parts of the active plan from its beginning
        return _PAST if there > wanted else 0

    def _global(self, checkpoint: _Checkpoint) -> int:
        state = self.state(checkpoint)
        return 0 if state is None else state.snapshot.next_global

    def _state(self, checkpoint: _Checkpoint) -> FeedState | None:
        try:
            location = checkpoint.location
            return decode_state(checkpoint.content if location is None else self.storage.read(location))
        except (*UNREADABLE, Malformed):
            return None

    def close(self) -> None:
        self.save()
        self.storage.close()


def replay(
    feed: Feed, frames: Iterable[tuple[FramePosition, mold.Buffer]], checkpoints: FeedCheckpoints | None = None
) -> None:
    """Apply the frames of a tape to a feed, and make checkpoints."""
    if checkpoints is not None:
        checkpoints.begin(feed)
    for frame, content in frames:
        feed.book(feed.release(frame, content, 0), content)
        if checkpoints is not None:
            checkpoints.note(feed)

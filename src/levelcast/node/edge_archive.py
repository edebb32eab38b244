"""Retransmission from the tape: what has left the memory of the edge is gathered again from the frames on disk.

The packets of a session are a function of the tape, the plan and the watermark interval
(`levelcast.edge.server.packetizer`). So whatever is on the tape can be sent again under its old numbers, from any place
where it is known how far the sessions had come: a *mark*, a feed's state without its snapshot, made every few hundred
frames.

- A request goes to a *reading*: a feed of its own, that begins at the last mark before what is wanted and follows the
  tape from there. It keeps a few megabytes of what it gathered, for the next request of a customer who reads on.
- Work is done in slices of `SLICE_BYTES` or `SLICE_FRAMES` of the tape, one in a turn of the node's loop; who does the
  turns may leave one out when the ring is about to be due.
- Customers take turns. Each may have so many requests waiting, and one that is repeated does not count again.
- There is a mark where each segment of the tape begins, so that retention leaves nothing on the tape that cannot be
  sent. Marks that are not known, as after the loss of their file, are made by the first reading that passes.
- What retention has taken is gone. The customer is told by a heartbeat from where on there is something.

    DATA/NAME/edge/marks    entries: slot u64, size u32, then the state (`levelcast.edge.server.feed`)
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict, deque
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from levelcast.edge.server.feed import Feed, FeedState, decode_state
from levelcast.edge.server.packetizer import Outgoing
from levelcast.runtime.sockets import Address
from levelcast.storage.append_file import AppendFile, TapeError
from levelcast.storage.tape.cursor import TapeCursor
from levelcast.storage.tape.directory import first_sequence_of
from levelcast.storage.tape.reader import TapeReader
from levelcast.wire import mold
from levelcast.wire.channel_plan import is_plan_session, parse_session
from levelcast.wire.header import Malformed

__all__ = ["Archive", "ArchiveCounts", "FeedCheckpoints"]

MARK_FRAMES = 256
MARK_RECORDS = 65_536
"""A mark is made after so many frames or records, and after some more of them where a mark is large."""
FRAMES_A_SESSION = 16
RECORDS_A_SESSION = 64
SLICE_BYTES = 128 << 10
"""Of the tape, in one turn, and frames: each costs about the same however small it is."""
SLICE_FRAMES = 16
READINGS = 4
"""Places of the tape that are read at one time."""
READING_BYTES = 8 << 20
READING_IDLE_NS = 10_000_000_000
"""One that nobody wants for so long is let go, and with it a segment that retention has taken meanwhile."""
MAX_WAITING = 32
"""Requests of one customer, and customers that wait."""
MAX_CUSTOMERS = 256
MAX_ANSWERS = 8
"""In one turn."""
_ENTRY = Struct("<QI")
_PAST = 2**64


def _plan_of(session: bytes) -> int:
    """The number of the plan that a session is of."""
    place = parse_session(session)
    return place.number if place is not None else 0


class _Mark(NamedTuple):
    slot: int
    at: int
    size: int
    content: bytes = b""
    """Of one that is not in the file."""


class _Spacing:
    """When a feed that follows the tape comes to the place of the next mark."""

    def __init__(self, segment_records: int) -> None:
        self._segment_records = segment_records
        self._frames, self._global = 0, 1

    def is_due(self, feed: Feed) -> bool:
        frames, records = feed.frames - self._frames, feed.next_global - self._global
        per_segment, sessions = self._segment_records, feed.sessions
        if (
            frames < MARK_FRAMES + FRAMES_A_SESSION * sessions
            and records < MARK_RECORDS + RECORDS_A_SESSION * sessions
            and (feed.next_global - 1) // per_segment == (self._global - 1) // per_segment
        ):
            return False
        self.begin(feed)
        return True

    def begin(self, feed: Feed) -> None:
        self._frames, self._global = feed.frames, feed.next_global


class FeedCheckpoints:
    """Where the sessions stood, along a tape. The file is only a help: what does not fit the tape is cut off."""

    def __init__(self, path: Path, tape: TapeReader, segment_records: int) -> None:
        self.unsaved = 0
        """Marks that are only in memory, because the disk did not take them."""
        self.segment_records = segment_records
        self._path = path
        self._file: AppendFile | None = None
        self._marks: list[_Mark] = []
        self._pending = 0
        """The last so many of them are not in the file yet."""
        self._spacing = _Spacing(segment_records)
        self.state = lru_cache(maxsize=16)(self._state)
        with suppress(OSError, TapeError):
            self._open(tape)

    def _open(self, tape: TapeReader) -> None:
        """Read the file; what retention has taken from the tape goes from it too, when that is more than the rest."""
        file = self._file = AppendFile.open(self._path)
        upto_slot, at = tape.tip().slot, 0
        found: list[_Mark] = []
        while len(head := file.read(_ENTRY.size, at)) == _ENTRY.size:
            slot, size = _ENTRY.unpack(head)
            end = at + _ENTRY.size + size
            if end > file.size or slot > upto_slot or (found and slot <= found[-1].slot):
                break
            found.append(_Mark(slot, at + _ENTRY.size, size))
            at = end
        file.truncate(at)
        if found and ((last := self._state(found[-1])) is None or tape.chain_at(last.slot) != last.chain):
            file.truncate(0)  # it is of another tape
            found = []
        self._marks = [mark for mark in found if mark.slot >= tape.before.slot]
        if len(self._marks) < len(found) / 2:
            kept = [mark._replace(at=0, size=0, content=file.read(mark.size, mark.at)) for mark in self._marks]
            file.close()
            self._file = AppendFile.create(self._path, b"")
            self._marks, self._pending = kept, len(kept)
            self.save()

    def __len__(self) -> int:
        return len(self._marks)

    def begin(self, feed: Feed) -> None:
        """Marks are to be made of this feed, from where it stands."""
        self._spacing.begin(feed)

    def note(self, feed: Feed) -> None:
        """Make a mark of where a feed stands behind a frame, if it is time for one."""
        if self._spacing.is_due(feed) and (not self._marks or feed.slot > self._marks[-1].slot):
            self._marks.append(_Mark(feed.slot, 0, 0, feed.mark()))
            self._pending += 1

    def save(self) -> None:
        """Write down those that were made since. One that the disk does not take is kept in memory."""
        first = len(self._marks) - self._pending
        self._pending = 0
        for number, mark in enumerate(self._marks[first:], first):
            try:
                if self._file is None:
                    self._file = AppendFile.create(self._path, b"")
                at = self._file.size + _ENTRY.size
                self._file.append(_ENTRY.pack(mark.slot, len(mark.content)), mark.content)
                self._marks[number] = _Mark(mark.slot, at, len(mark.content))
            except (OSError, TapeError):
                self.unsaved += 1

    def insert(self, feed: Feed, since_slot: int) -> None:
        """A mark of a reading that came by, unless there is one between `since_slot` and where it stands."""
        place = bisect_right(self._marks, feed.slot, key=lambda mark: mark.slot)
        if place + self._pending <= len(self._marks) and (not place or self._marks[place - 1].slot <= since_slot):
            self._marks.insert(place, _Mark(feed.slot, 0, 0, feed.mark()))

    def before(self, session: bytes, sequence: int) -> FeedState | None:
        """The last mark from which a message can be gathered again."""
        place = bisect_left(self._marks, True, key=lambda mark: self._place(mark, session) > sequence)
        return self.state(self._marks[place - 1]) if place else None

    def first(self, session: bytes, from_sequence: int) -> int | None:
        """The first message of a session behind a mark that stands on what is left of a tape."""
        place = bisect_left(self._marks, True, key=lambda mark: self._global(mark) >= from_sequence)
        first = self._place(self._marks[place], session) if place < len(self._marks) else 0
        return first if 0 < first < _PAST else None

    def _place(self, mark: _Mark, session: bytes) -> int:
        """A session's next sequence at a mark, 0 where that is not known, `_PAST` where its plan was replaced."""
        state = self.state(mark)
        if state is None:
            return 0
        sessions = state.snapshot.sessions
        place = bisect_left(sessions, (session, 0))
        if place < len(sessions) and sessions[place].session == session:
            return sessions[place].next_sequence
        there, wanted = _plan_of(sessions[0].session) if sessions else 0, _plan_of(session)
        if there == wanted and is_plan_session(session):
            return 1  # a feed has the parts of the plan in force from its beginning
        return _PAST if there > wanted else 0

    def _global(self, mark: _Mark) -> int:
        state = self.state(mark)
        return 0 if state is None else state.snapshot.next_global

    def _state(self, mark: _Mark) -> FeedState | None:
        content = mark.content
        try:
            if not content and self._file is not None:
                content = self._file.read(mark.size, mark.at)
            return decode_state(content)
        except (OSError, Malformed):
            return None

    def close(self) -> None:
        self.save()
        if self._file is not None:
            self._file.close()
            self._file = None


class _Reading:
    """A feed that follows the tape again from a mark on, or from its beginning."""

    def __init__(self, feed: Feed, cursor: TapeCursor, segment_records: int) -> None:
        self.feed = feed
        self.cursor = cursor
        self.spacing = _Spacing(segment_records)
        self.spacing.begin(feed)
        self.marked_slot = feed.slot
        self.used_ns = 0

    def holds(self, request: mold.RetransmitRequest) -> bool:
        """Whether what is wanted first has not left its store."""
        held = self.feed.retransmitter.held(request.session)
        if held is None and self.feed.is_past(request.session):
            return False
        first = held[0] if held is not None else self.feed.next_sequences.get(request.session, 0)
        return first <= request.sequence


@dataclass(slots=True)
class ArchiveCounts:
    """What was taken from the tape."""

    packets: int = 0
    slices: int = 0
    gone: int = 0
    too_many: int = 0
    """Requests of a customer that had as many waiting as it may, or that came when too many customers were."""


class Archive:
    """Answers what the live feed's store no longer has."""

    def __init__(self, directory: Path, live: Feed, marks: FeedCheckpoints) -> None:
        self.counts = ArchiveCounts()
        self._tape = directory
        self._live = live
        self.marks = marks
        self._readings: deque[_Reading] = deque()
        """The one that was used last is at the end."""
        self._waiting: OrderedDict[Address, deque[mold.RetransmitRequest]] = OrderedDict()

    @property
    def is_busy(self) -> bool:
        return bool(self._waiting)

    def takes(self, request: mold.RetransmitRequest) -> bool:
        """Whether a request is for what the store does not have any more, but was sent."""
        held = self._live.retransmitter.held(request.session)
        if held is not None:
            return request.sequence < held[0]
        live = self._live.next_sequences.get(request.session)
        return request.sequence < live if live is not None else self._live.is_past(request.session)

    def ask(self, request: mold.RetransmitRequest, customer: Address) -> bool:
        """Queue a request; False when it is refused."""
        waiting = self._waiting.get(customer)
        if waiting is None:
            if len(self._waiting) >= MAX_CUSTOMERS:
                self.counts.too_many += 1
                return False
            waiting = self._waiting[customer] = deque()
        if request in waiting:
            return True
        if len(waiting) >= MAX_WAITING:
            self.counts.too_many += 1
            return False
        waiting.append(request)
        return True

    def rest(self, now: int) -> None:
        """Let go of readings that nobody wants any more."""
        for reading in [each for each in self._readings if abs(now - each.used_ns) > READING_IDLE_NS]:
            self._drop(reading)

    def work(self, now: int) -> list[tuple[Address, Outgoing]]:
        """One slice: answers that can be given now, and a step on the way to others."""
        out: list[tuple[Address, Outgoing]] = []
        for _ in range(MAX_ANSWERS):
            if not self._waiting:
                break
            customer, waiting = next(iter(self._waiting.items()))
            request = waiting[0]
            reading = self._reading_for(request, now)
            done = True
            if reading is None:
                out.append((customer, self._gone(request)))
            elif (found := self._found(reading, request)) is not None:
                out.append((customer, found))
            else:
                done = not self._advance(reading) or not reading.holds(request)
                if done and (found := reading.feed.retransmitter.give(request)) is not None:
                    self.counts.packets += found.packets
                    out.append((customer, found))
            if not done:
                break
            waiting.popleft()
            self._waiting.move_to_end(customer)
            if not waiting:
                del self._waiting[customer]
        return out

    def _found(self, reading: _Reading, request: mold.RetransmitRequest) -> Outgoing | None:
        """The answer, if the reading has all of it, or as much as one answer may have."""
        server = reading.feed.retransmitter
        trial = server.find(request)
        if trial is None or trial.sequence != request.sequence:
            return None
        if trial.records < request.messages and trial.packets < server.config.reply_packets:
            return None
        found = server.give(request)
        assert found is not None
        self.counts.packets += found.packets
        return found

    def _advance(self, reading: _Reading) -> bool:
        """Read on by a slice; False where the tape, or what there is of it, has ended."""
        self.counts.slices += 1
        feed, live = reading.feed, self._live
        try:
            frames, more = reading.cursor.read(SLICE_BYTES, SLICE_FRAMES)
        except (OSError, TapeError):
            self._drop(reading)
            return False
        for line, content in frames:
            feed.book(feed.release(line, content, 0))
            if reading.spacing.is_due(feed):
                self.marks.insert(feed, reading.marked_slot)
                reading.marked_slot = feed.slot
        if not more and feed.slot == live.slot:
            feed.book(feed.advance(live.marked_ns, 0))
        return more

    # -- readings -----------------------------------------------------------------------------------------

    def _reading_for(self, request: mold.RetransmitRequest, now: int) -> _Reading | None:
        """One that has what is wanted or comes to it soonest; None where it is gone."""
        able = [reading for reading in self._readings if reading.holds(request)]
        near = max(able, key=lambda reading: reading.feed.slot, default=None)
        state = self.marks.before(request.session, request.sequence)
        if near is not None and (state is None or near.feed.slot >= state.slot):
            self._readings.remove(near)
            self._readings.append(near)
            near.used_ns = now
            return near
        if state is not None and not self._live.fits(state):
            state = None
        with suppress(OSError, TapeError):  # gone, or damaged
            return self._begin(state, now)
        return None

    def _begin(self, state: FeedState | None, now: int) -> _Reading:
        slot, following = (state.slot, state.snapshot.next_global) if state is not None else (0, 1)
        cursor = TapeCursor(self._tape, slot, following)
        feed = self._live.again(READING_BYTES, state)
        feed.retransmitter.counts = self._live.retransmitter.counts
        reading = _Reading(feed, cursor, self.marks.segment_records)
        reading.used_ns = now
        if len(self._readings) >= READINGS:
            self._drop(self._readings[0])
        self._readings.append(reading)
        return reading

    def _drop(self, reading: _Reading) -> None:
        self._readings.remove(reading)
        reading.cursor.close()

    def _gone(self, request: mold.RetransmitRequest) -> Outgoing:
        """A heartbeat: from its number on there is something."""
        self.counts.gone += 1
        self._live.retransmitter.counts.gone += 1
        session = request.session
        first = self.marks.first(session, first_sequence_of(self._tape) or 1)
        if first is None:
            held = self._live.retransmitter.held(session)
            first = held[0] if held is not None else self._live.next_sequences.get(session, 1)
        datagram = mold.encode(mold.Heartbeat(session, first))
        return Outgoing(session, first, 0, datagram, len(datagram).to_bytes(4, "little"))

    def close(self) -> None:
        while self._readings:
            self._drop(self._readings[0])
        self.marks.close()

"""Retransmit from the tape, sans I/O: rebuild packets that have left the memory of the edge.

The packets of a session are a function of the tape, the plan and the watermark interval
(`levelcast.edge.server.packetizer`). So every message on the tape can be sent again under its old number, from any
position at which the sessions' sequences are known: a checkpoint (`levelcast.edge.server.checkpoints`).

- A request is served by a *reading*: a separate feed that starts at the last checkpoint before the message and follows
  the tape. It keeps a few megabytes of rebuilt packets for the next request of a subscriber that continues to read.
- One call of `work` reads `SLICE_BYTES` or `SLICE_FRAMES` of the tape. The driver chooses when to call it.
- Subscribers are served in turn. The number of waiting requests per subscriber is limited; a repeat is not counted.
- Missing checkpoints, for example after their file was lost, are recreated by the first reading that passes them.
- Messages that retention has removed are not available. A heartbeat reports the first message that still is.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable
from contextlib import suppress
from dataclasses import dataclass

from levelcast.edge.server.checkpoints import UNREADABLE, FeedCheckpoints, FrameReader, Spacing
from levelcast.edge.server.feed import Feed, FeedState
from levelcast.edge.server.packetizer import Outgoing, bare_packet
from levelcast.wire import mold

SLICE_BYTES = 128 << 10
"""Limit of one call in bytes of tape, and in frames: each frame costs about the same however small it is."""
SLICE_FRAMES = 16
READINGS = 4
"""Maximum number of tape positions that are read at the same time."""
READING_BYTES = 8 << 20
READING_IDLE_NS = 10_000_000_000
"""Close a reading after this time without a request, and with it a segment that retention has removed meanwhile."""
MAX_WAITING = 32
"""Maximum number of waiting requests per subscriber, and of waiting subscribers."""
MAX_SUBSCRIBERS = 256
MAX_ANSWERS = 8
"""Maximum number of answers per call."""


class _Reading:
    """A feed that follows the tape again from a checkpoint, or from the beginning."""

    def __init__(self, feed: Feed, frames: FrameReader, segment_records: int, now: int) -> None:
        self.feed = feed
        self.frames = frames
        self.spacing = Spacing(segment_records)
        self.spacing.begin(feed)
        self.checkpoint_slot = feed.slot
        self.used_ns = now

    def holds(self, request: mold.RetransmitRequest) -> bool:
        """Return whether the first message of a request is still in the store or still ahead."""
        held = self.feed.retransmitter.held(request.session)
        if held is None and self.feed.is_past(request.session):
            return False
        first = held[0] if held is not None else self.feed.next_sequences.get(request.session, 0)
        return first <= request.sequence


@dataclass(slots=True)
class ArchiveCounts:
    """Retransmissions from the tape."""

    packets: int = 0
    slices: int = 0
    too_many: int = 0
    """Requests rejected because the subscriber, or the number of waiting subscribers, was at its limit."""


class Archive:
    """Answer requests for messages that the live feed's store no longer has."""

    def __init__(self, live: Feed, checkpoints: FeedCheckpoints) -> None:
        self.counts = ArchiveCounts()
        self.live = live
        self.checkpoints = checkpoints
        self._readings: deque[_Reading] = deque()
        """In order of last use."""
        self._waiting: OrderedDict[Hashable, deque[mold.RetransmitRequest]] = OrderedDict()

    @property
    def is_busy(self) -> bool:
        return bool(self._waiting)

    def takes(self, request: mold.RetransmitRequest) -> bool:
        """Return whether a request begins with a message that was sent and has left the store."""
        held = self.live.retransmitter.held(request.session)
        if held is not None:
            return request.sequence < held[0]
        live = self.live.next_sequences.get(request.session)
        return request.sequence < live if live is not None else self.live.is_past(request.session)

    def ask(self, request: mold.RetransmitRequest, subscriber: Hashable) -> bool:
        """Queue a request; return False if it is rejected."""
        waiting = self._waiting.get(subscriber, deque())
        if request in waiting:
            return True
        if len(waiting) >= MAX_WAITING or (not waiting and len(self._waiting) >= MAX_SUBSCRIBERS):
            self.counts.too_many += 1
            return False
        self._waiting.setdefault(subscriber, waiting).append(request)
        return True

    def rest(self, now: int) -> None:
        """Close readings without requests."""
        for reading in [each for each in self._readings if abs(now - each.used_ns) > READING_IDLE_NS]:
            self._drop(reading)

    def work(self, now: int) -> list[tuple[Hashable, Outgoing]]:
        """Read one slice; return the answers that are complete."""
        out: list[tuple[Hashable, Outgoing]] = []
        for _ in range(MAX_ANSWERS):
            if not self._waiting:
                break
            subscriber, waiting = next(iter(self._waiting.items()))
            request = waiting[0]
            reading = self._reading_for(request, now)
            done = True
            if reading is None:
                out.append((subscriber, self._gone(request)))
            elif (found := self._found(reading, request)) is not None:
                out.append((subscriber, found))
            else:
                done = not self._advance(reading) or not reading.holds(request)
                if done and (found := reading.feed.retransmitter.give(request)) is not None:
                    self.counts.packets += found.packets
                    out.append((subscriber, found))
            if not done:
                break
            waiting.popleft()
            self._waiting.move_to_end(subscriber)
            if not waiting:
                del self._waiting[subscriber]
        return out

    def _found(self, reading: _Reading, request: mold.RetransmitRequest) -> Outgoing | None:
        """Return the answer if the reading has all of it, or as much as one answer may hold."""
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
        """Read one slice; return False at the end of the tape or of its readable part."""
        self.counts.slices += 1
        feed, live = reading.feed, self.live
        try:
            frames, more = reading.frames.read(SLICE_BYTES, SLICE_FRAMES)
        except UNREADABLE:
            self._drop(reading)
            return False
        for frame, content in frames:
            feed.book(feed.release(frame, content, 0))
            if reading.spacing.is_due(feed):
                self.checkpoints.insert(feed, reading.checkpoint_slot)
                reading.checkpoint_slot = feed.slot
        if not more and feed.slot == live.slot:
            feed.book(feed.advance(live.packetizer.marked_ns, 0))
        return more

    # -- readings -----------------------------------------------------------------------------------------

    def _reading_for(self, request: mold.RetransmitRequest, now: int) -> _Reading | None:
        """Return the reading that has the message or reaches it first; None if the message is no longer available."""
        able = [reading for reading in self._readings if reading.holds(request)]
        near = max(able, key=lambda reading: reading.feed.slot, default=None)
        state = self.checkpoints.before(request.session, request.sequence)
        if near is not None and (state is None or near.feed.slot >= state.slot):
            self._readings.remove(near)
            self._readings.append(near)
            near.used_ns = now
            return near
        if state is not None and not self.live.fits(state):
            state = None
        with suppress(*UNREADABLE):  # removed, or damaged
            return self._begin(state, now)
        return None

    def _begin(self, state: FeedState | None, now: int) -> _Reading:
        slot, following = (state.slot, state.snapshot.next_global) if state is not None else (0, 1)
        frames = self.checkpoints.storage.read_from(slot, following)
        feed = self.live.again(READING_BYTES, state)
        feed.retransmitter.counts = self.live.retransmitter.counts
        reading = _Reading(feed, frames, self.checkpoints.segment_records, now)
        if len(self._readings) >= READINGS:
            self._drop(self._readings[0])
        self._readings.append(reading)
        return reading

    def _drop(self, reading: _Reading) -> None:
        self._readings.remove(reading)
        reading.frames.close()

    def _gone(self, request: mold.RetransmitRequest) -> Outgoing:
        """Return a heartbeat with the number of the first message that is still available."""
        self.live.retransmitter.counts.gone += 1
        session = request.session
        first = self.checkpoints.first(session, self.checkpoints.storage.first_sequence() or 1)
        if first is None:
            held = self.live.retransmitter.held(session)
            first = held[0] if held is not None else self.live.next_sequences.get(session, 1)
        return bare_packet(session, first, 0)

    def close(self) -> None:
        while self._readings:
            self._drop(self._readings[0])
        self.checkpoints.close()

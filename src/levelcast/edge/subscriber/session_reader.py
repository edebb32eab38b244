"""Read sessions as a subscriber: receive packets from any edge, deliver records in order and once.

Packets that arrive together are one `mold.Block`, made by `levelcast.native.drain_molds`, which costs as much here as a
single packet. The rules below for packets also apply to blocks.

Treatment of a hole in a session, by grade:

 grade       | a hole is                                                        | then                            |
|-------------|------------------------------------------------------------------|---------------------------------|
 GUARANTEED  | requested after `reorder_ns`, then every `retry_ns`              | nothing is delivered past it    |
             | after `attempts` requests: `Stuck`, once; then requested slower  | the caller may `skip` it        |
 BEST_EFFORT | awaited for `reorder_ns`, never requested                        | `Lost`, and delivery continues  |
 LATEST_ONLY | requested after `reorder_ns`, unless newer prices are known      | delivery does not wait for it;  |
|             | after `attempts` requests: `Lost`                                | see `latest_only`               |

- A session is read from the sequence that the caller specifies (1: from its beginning; one past a snapshot: a late
  joiner without a hole), or from the first packet received.
- Retransmissions may divide the sequence into packets in another way. Overlaps are trimmed, and messages received twice
  count as duplicates.
- A heartbeat with a higher sequence means that messages are missing. BEST_EFFORT gives up messages only when data
  arrives: a false heartbeat must not make it reject real data.
- A large hole is requested in several requests in parallel: at full speed more arrives in 1 ms than one answer holds.
- Holes are ranges and waiting packets are bounded, so no packet, however far ahead, costs more than itself.
- Packets of sessions that are not followed are dropped by the name in their header, before they are decoded.
- Records are checked when they arrive; those of a block have been checked already. A batch has records of one size, or
  is a single mixed packet. Small neighbouring packets are joined; large ones are not copied again.

The interface is that of every protocol class: `receive` and `wake` get `now` and return effects in order, and
`next_ns` is the time of the next `wake`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from levelcast import native
from levelcast.edge.subscriber.delivery import (
    Ask,
    Complete,
    Deliver,
    Effect,
    Ended,
    Grade,
    Lost,
    Stuck,
    SubscriberConfig,
    SubscriberCounts,
)
from levelcast.edge.subscriber.latest_only import Hole, LatestOnly
from levelcast.wire import mold
from levelcast.wire.header import Malformed, Reason, new_tuple
from levelcast.wire.mold import Block, EdgePacket, EndOfSession, Heartbeat
from levelcast.wire.watermark import last_watermark

MAX_ASKS = 16
MAX_ASKED_BYTES = 256 << 10
"""Maximum requests of one session at a time, nearest hole first, and estimated bytes of the answers."""
ANSWER_PACKETS = 8
"""Packets per request for a large hole: the maximum that a server sends for one request (`RetransmitConfig`)."""
SLOWER = 10
"""Factor of `retry_ns` once stuck."""
MAX_LOST_KEPT = 256
MAX_BATCH_BYTES = 64 << 10
"""Maximum bytes of a batch of joined packets; a block may be larger."""


class _Waiting(NamedTuple):
    """A packet, or a block of several packets, after a hole."""

    sequence: int
    came_ns: int
    packet: EdgePacket
    packets: int


@dataclass(slots=True)
class _Room:
    """The requests and bytes that may still be requested in one call."""

    requests: int
    bytes: int

    def __bool__(self) -> bool:
        return self.requests > 0 and self.bytes > 0


@dataclass(slots=True, eq=False)
class _Inbox:
    """One session."""

    session: bytes
    next: int | None
    top: int
    """The highest sequence known to exist, plus one."""
    newest: LatestOnly | None
    waiting: list[_Waiting] = field(default_factory=list)
    """In order, all beyond `next`; `kept` is the number of their packets, `kept_bytes` the size of their records."""
    kept: int = 0
    kept_bytes: int = 0
    full: int = 0
    """Maximum records per packet so far, and size of the last records; 0 before the first packet."""
    record_bytes: int = 0
    ready: list[EdgePacket | Lost | Ended] = field(default_factory=list)
    lost: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=MAX_LOST_KEPT))
    ask_ns: int | None = None
    attempts: int = 0
    left: int = 0
    """The first message that a server still has, as reported in reply to a request for older ones."""
    end: int | None = None
    end_ns: int = 0
    ended: bool = False

    def missing(self) -> Iterator[tuple[int, int]]:
        """Yield the holes, nearest first, as (first, one past the last)."""
        assert self.next is not None
        at = self.next
        for sequence, _, packet, _ in self.waiting:
            if sequence > at:
                yield at, sequence
            at = max(at, sequence + packet.records)
        if self.top > at:
            yield at, self.top


def _messages(item: bytes | memoryview | Block) -> int:
    """Return the number of messages in a block, or in a packet according to its header."""
    if isinstance(item, Block):
        return item.records
    count = int.from_bytes(item[mold.HEADER_SIZE - 2 : mold.HEADER_SIZE], "big")
    return 0 if count == mold.END_OF_SESSION else count


def _count_out(inbox: _Inbox, item: _Waiting) -> None:
    """Remove a waiting packet from the counts."""
    inbox.kept -= item.packets
    inbox.kept_bytes -= len(item.packet.payload)


class SessionReader:
    """Read `sessions` (name -> first sequence, None for the first received), or every session received."""

    def __init__(
        self, sessions: Mapping[bytes, int | None] | None = None, config: SubscriberConfig | None = None
    ) -> None:
        self.config = config or SubscriberConfig()
        self.counts = SubscriberCounts()
        self._open = sessions is None
        self._inboxes: dict[bytes, _Inbox] = {}
        self._timed: dict[bytes, _Inbox] = {}
        """Sessions with a deadline."""
        for name, start in (sessions or {}).items():
            self.follow(name, start)

    @property
    def next_ns(self) -> int | None:
        """Time at which `wake` should be called."""
        return min((at for inbox in self._timed.values() if (at := self._deadline(inbox)) is not None), default=None)

    def position(self, session: bytes) -> int | None:
        """Return the session's next sequence; None before the first packet."""
        inbox = self._inboxes.get(session)
        return inbox.next if inbox is not None else None

    def follow(self, session: bytes, start: int | None = None) -> None:
        """Also read a session, from its sequence `start` on, or from the first packet received."""
        newest = LatestOnly() if self.config.grade is Grade.LATEST_ONLY else None
        self._inboxes.setdefault(session, _Inbox(session, start, start or 0, newest))

    def unfollow(self, session: bytes) -> None:
        """Stop reading a session."""
        self._inboxes.pop(session, None)
        self._timed.pop(session, None)

    def announce(self, session: bytes, sequence: int, now: int) -> list[Effect]:
        """Record that a session exists up to `sequence`, as a heartbeat would."""
        return self.receive([mold.encode(Heartbeat(session, sequence))], now)

    def probe(self, session: bytes) -> list[Effect]:
        """Request the next messages of a session from which nothing is received."""
        inbox = self._inboxes.get(session)
        if inbox is None or inbox.next is None or inbox.ended:
            return []
        self.counts.requests += 1
        messages = min(inbox.full * ANSWER_PACKETS or mold.MAX_REQUEST, mold.MAX_REQUEST)
        return [Ask(session, inbox.attempts, mold.encode(mold.RetransmitRequest(session, inbox.next, messages)))]

    def wants(self, session: bytes) -> bool:
        """Return whether packets of a session are processed."""
        return self._open or session in self._inboxes

    def receive(self, arrived: Iterable[bytes | memoryview | Block], now: int) -> list[Effect]:
        """Process downstream packets, multicast or unicast, in order of arrival; neighbours may be joined to blocks."""
        counts = self.counts
        touched: dict[bytes, _Inbox] = {}
        for item in arrived:
            if not self._open and self._is_foreign(item):
                counts.foreign += item.packets if type(item) is Block else 1
                counts.foreign_messages += _messages(item)
                continue
            if type(item) is Block:
                message: mold.Downstream = new_tuple(EdgePacket, item[:5])
                number = item.packets
            else:
                number = 1
                try:
                    assert not isinstance(item, Block)
                    message = mold.decode(item)
                except Malformed as malformed:
                    counts.malformed[malformed.reason] += 1
                    continue
            inbox = self._inboxes.get(message.session) or self._new_inbox(message.session)
            if inbox is None:
                counts.foreign += number
                counts.foreign_messages += _messages(item)
                continue
            before = inbox.next
            if type(message) is EdgePacket:
                counts.packets += number
                self._packet(inbox, message, number, now, checked=type(item) is Block)
            else:
                counts.heartbeats += 1
                assert isinstance(message, Heartbeat | EndOfSession)
                self._announced(inbox, message, now)
            self._settle(inbox, inbox.next != before, now)
            if inbox.ready or inbox.newest is not None:
                touched[inbox.session] = inbox
        effects: list[Effect] = []
        for inbox in touched.values():
            self._hand_over(inbox, effects)
        return effects

    def wake(self, now: int) -> list[Effect]:
        """Repeat requests, or give up messages."""
        effects: list[Effect] = []
        for inbox in list(self._timed.values()):
            at = self._deadline(inbox)
            if at is None or at > now:
                continue
            if self.config.grade is Grade.GUARANTEED:
                self._ask(inbox, now, effects)
            elif inbox.newest is not None:
                self._ask_latest(inbox, inbox.newest, now, effects)
            else:
                self._give_up(inbox, now)
            self._hand_over(inbox, effects)
        return effects

    def gone(self, session: bytes, left: int) -> None:
        """Record a server's report that the first message it still has of a session is `left`."""
        if (inbox := self._inboxes.get(session)) is not None:
            inbox.left = left

    def skip(self, session: bytes, now: int, upto: int | None = None) -> list[Effect]:
        """Give up the nearest hole of a session, or its part before `upto`, as the caller decides."""
        effects: list[Effect] = []
        inbox = self._inboxes[session]
        if inbox.newest is not None and inbox.newest.holes:
            self._lose_oldest(inbox, inbox.newest)
            self._settle(inbox, True, now)
        elif hole := next(inbox.missing(), None):
            self._lose(inbox, hole[1] if upto is None or upto <= hole[0] else min(upto, hole[1]))
            self._settle(inbox, True, now)
        self._hand_over(inbox, effects)
        return effects

    def expect(self, session: bytes, prices: Iterable[tuple[int, int]]) -> None:
        """Set the floors and instruments of the only trades that the caller needs of a session.

        If each of them has arrived after a hole, LATEST_ONLY does not request the hole.
        """
        inbox = self._inboxes.get(session) or (self._new_inbox(session) if self._open else None)
        if inbox is not None and inbox.newest is not None:
            inbox.newest.expect(prices)

    # -- input --------------------------------------------------------------------------------------------

    def _is_foreign(self, item: bytes | memoryview | Block) -> bool:
        """Return whether the header has the name of a session that is not followed; nothing else is examined."""
        if isinstance(item, Block):
            return item[0] not in self._inboxes
        return len(item) >= mold.HEADER_SIZE and bytes(item[: mold.SESSION_SIZE]) not in self._inboxes

    def _new_inbox(self, session: bytes) -> _Inbox | None:
        if len(self._inboxes) >= self.config.max_sessions:
            return None
        self.follow(session)
        return self._inboxes[session]

    def _announced(self, inbox: _Inbox, message: Heartbeat | EndOfSession, now: int) -> None:
        if inbox.next is None:
            inbox.next = message.sequence
        inbox.top = max(inbox.top, message.sequence)
        if type(message) is EndOfSession and inbox.end is None:
            inbox.end, inbox.end_ns = message.sequence, now

    def _packet(self, inbox: _Inbox, packet: EdgePacket, number: int, now: int, *, checked: bool) -> None:
        counts = self.counts
        if inbox.next is None:
            inbox.next = packet.sequence
        end = packet.sequence + packet.records
        newest = inbox.newest
        if end <= inbox.next and not (newest is not None and newest.wants(packet.sequence, end)):
            self._again(inbox, packet.sequence, end)
            return
        if not checked and native.count(packet.payload) != packet.records:
            counts.malformed[Reason.BAD_FIELD] += 1
            return
        inbox.top = max(inbox.top, end)
        inbox.full = max(inbox.full, packet.records // number)
        inbox.record_bytes = len(packet.payload) // packet.records
        if newest is not None:
            self._place(inbox, newest, packet, now)
        elif packet.sequence > inbox.next:
            self._keep_waiting(inbox, packet, number, now)
        else:
            self._take(inbox, packet)
            self._drain(inbox)

    def _place(self, inbox: _Inbox, newest: LatestOnly, packet: EdgePacket, now: int) -> None:
        """Deliver the new messages of a packet immediately, with the grade *latest only*."""
        assert inbox.next is not None
        fresh, new, superseded = newest.place(packet, inbox.next, now + self.config.reorder_ns)
        inbox.ready += fresh
        self.counts.superseded += superseded
        end = packet.sequence + packet.records
        if new < packet.records:
            self._again(inbox, packet.sequence, min(end, inbox.next), max(0, new - max(0, end - inbox.next)))
        inbox.next = max(inbox.next, end)
        while newest.is_full:
            self._lose_oldest(inbox, newest)

    def _keep_waiting(self, inbox: _Inbox, packet: EdgePacket, number: int, now: int) -> None:
        waiting = inbox.waiting
        place = bisect_left(waiting, packet.sequence, key=lambda each: each.sequence)
        if place < len(waiting) and waiting[place].sequence == packet.sequence:
            known = waiting[place]
            if known.packet.records >= packet.records:
                self.counts.duplicates += packet.records
                return
            self.counts.duplicates += known.packet.records
            waiting[place] = _Waiting(packet.sequence, known.came_ns, packet, number)
            _count_out(inbox, known)
        else:
            waiting.insert(place, _Waiting(packet.sequence, now, packet, number))
        inbox.kept += number
        inbox.kept_bytes += len(packet.payload)
        most, most_bytes = self.config.max_waiting, self.config.max_waiting_bytes
        while (inbox.kept > most or inbox.kept_bytes > most_bytes) and len(waiting) > 1:
            dropped = waiting.pop()
            self.counts.overflow += dropped.packets
            _count_out(inbox, dropped)

    def _again(self, inbox: _Inbox, first: int, end: int, new: int = 0) -> None:
        """Count messages below the next one as late or duplicate, except `new` ones."""
        late = sum(max(0, min(end, stop) - max(first, start)) for start, stop in inbox.lost)
        self.counts.late += late
        self.counts.duplicates += end - first - new - late

    def _take(self, inbox: _Inbox, packet: EdgePacket) -> None:
        """Accept a packet that holds the next message, and possibly some before it."""
        assert inbox.next is not None
        known = inbox.next - packet.sequence
        if known >= packet.records:
            self._again(inbox, packet.sequence, packet.sequence + packet.records)
            return
        if known:
            self._again(inbox, packet.sequence, inbox.next)
            packet = mold.cut(packet, known)
        inbox.ready.append(packet)
        inbox.next += packet.records

    def _drain(self, inbox: _Inbox) -> None:
        assert inbox.next is not None
        taken = 0
        for item in inbox.waiting:
            if item.sequence > inbox.next:
                break
            self._take(inbox, item.packet)
            _count_out(inbox, item)
            taken += 1
        del inbox.waiting[:taken]

    # -- holes --------------------------------------------------------------------------------------------

    def _settle(self, inbox: _Inbox, moved: bool, now: int) -> None:
        """Update the timers of a session after a change."""
        assert inbox.next is not None
        if inbox.newest is not None:
            self._settle_latest(inbox, inbox.newest, moved, now)
            return
        if inbox.end is not None and inbox.next >= inbox.end and not inbox.ended:
            inbox.ended = True
            inbox.ready.append(Ended(inbox.session, inbox.end))
        if inbox.next >= inbox.top:
            inbox.ask_ns, inbox.attempts = None, 0
            self._timed.pop(inbox.session, None)
        elif inbox.ask_ns is None:
            self.counts.gaps += 1
            inbox.ask_ns = now + self.config.reorder_ns
            self._timed[inbox.session] = inbox
        elif moved:
            # Part of an answer has arrived: request the rest when no more arrives.
            inbox.attempts = 0
            inbox.ask_ns = min(inbox.ask_ns, now + self.config.reorder_ns)

    def _deadline(self, inbox: _Inbox) -> int | None:
        if self.config.grade is Grade.GUARANTEED:
            return inbox.ask_ns
        if inbox.newest is not None:
            return inbox.newest.next_ns
        if inbox.kept >= self.config.max_waiting or inbox.kept_bytes >= self.config.max_waiting_bytes:
            return 0
        if inbox.waiting:
            return inbox.waiting[0].came_ns + self.config.reorder_ns
        return inbox.end_ns + self.config.reorder_ns if inbox.end is not None and not inbox.ended else None

    def _ask(self, inbox: _Inbox, now: int, effects: list[Effect]) -> None:
        config = self.config
        attempt = inbox.attempts
        room = _Room(MAX_ASKS, MAX_ASKED_BYTES)
        for first, end in inbox.missing():
            if room.requests == MAX_ASKS and attempt == config.attempts:
                effects.append(Stuck(inbox.session, first, end - first, inbox.left if inbox.left > first else 0))
            if not self._request(inbox, first, end, attempt, room, effects):
                break
        inbox.attempts += 1
        inbox.ask_ns = now + config.retry_ns * (1 if attempt < config.attempts else SLOWER)

    def _request(self, inbox: _Inbox, first: int, end: int, attempt: int, room: _Room, effects: list[Effect]) -> bool:
        """Request a hole in parts within the limit; return False when the limit is reached."""
        part = min(inbox.full * ANSWER_PACKETS or mold.MAX_REQUEST, mold.MAX_REQUEST)
        while first < end and room:
            messages = min(end - first, part)
            effects.append(
                Ask(inbox.session, attempt, mold.encode(mold.RetransmitRequest(inbox.session, first, messages)))
            )
            room.requests -= 1
            room.bytes -= messages * inbox.record_bytes
            self.counts.requests += 1
            first += messages if inbox.full else end
        return bool(room)

    # -- holes of the grade latest only -------------------------------------------------------------------

    def _settle_latest(self, inbox: _Inbox, newest: LatestOnly, moved: bool, now: int) -> None:
        assert inbox.next is not None
        soon_ns = now + self.config.reorder_ns
        if inbox.next >= inbox.top:
            newest.tail = None
        elif newest.tail is None:
            newest.tail = Hole(inbox.next, inbox.top, soon_ns)
        else:
            ask_ns, attempts = newest.tail.ask_ns, newest.tail.attempts
            waited = (min(ask_ns, soon_ns), 0) if moved else (ask_ns, attempts)
            newest.tail = Hole(inbox.next, inbox.top, *waited)
        if newest.holes or newest.tail is not None:
            self.counts.gaps += inbox.session not in self._timed
            self._timed[inbox.session] = inbox
            return
        newest.forget()
        self._timed.pop(inbox.session, None)
        if inbox.end is not None and inbox.next >= inbox.end and not inbox.ended:
            inbox.ended = True
            inbox.ready.append(Ended(inbox.session, inbox.end))

    def _ask_latest(self, inbox: _Inbox, newest: LatestOnly, now: int, effects: list[Effect]) -> None:
        """Request the holes that are due, unless they cannot matter or have reached the maximum number of requests."""
        config = self.config
        room = _Room(MAX_ASKS, MAX_ASKED_BYTES)
        for hole in [each for each in newest.holes if each.ask_ns <= now]:
            if newest.is_covered(hole):
                newest.holes.remove(hole)
                inbox.lost.append((hole.first, hole.end))
                self.counts.superseded += hole.end - hole.first
            elif hole.attempts >= config.attempts:
                newest.holes.remove(hole)
                self._tell_lost(inbox, hole.first, hole.end)
            elif room:
                self._request(inbox, hole.first, hole.end, hole.attempts, room, effects)
                hole.attempts += 1
                hole.ask_ns = now + config.retry_ns
            else:
                hole.ask_ns = now + config.reorder_ns
        tail = newest.tail
        if tail is not None and tail.ask_ns <= now:
            # The announcement may be false: give it up only at the end of the session.
            if inbox.end is not None and tail.attempts >= config.attempts:
                self._tell_lost(inbox, tail.first, tail.end)
                inbox.next = tail.end
            else:
                self._request(inbox, tail.first, tail.end, tail.attempts, room, effects)
                tail.ask_ns = now + config.retry_ns * (1 if tail.attempts < config.attempts else SLOWER)
                tail.attempts += 1
        self._settle(inbox, False, now)

    def _lose_oldest(self, inbox: _Inbox, newest: LatestOnly) -> None:
        hole = newest.holes.pop(0)
        self._tell_lost(inbox, hole.first, hole.end)

    def _tell_lost(self, inbox: _Inbox, first: int, end: int) -> None:
        inbox.ready.append(Lost(inbox.session, first, end - first))
        inbox.lost.append((first, end))
        self.counts.lost += end - first

    def _give_up(self, inbox: _Inbox, now: int) -> None:
        while (at := self._deadline(inbox)) is not None and at <= now:
            self._lose(inbox, inbox.waiting[0].sequence if inbox.waiting else inbox.end or 0)
            self._settle(inbox, True, now)

    def _lose(self, inbox: _Inbox, upto: int) -> None:
        assert inbox.next is not None
        assert upto > inbox.next
        self._tell_lost(inbox, inbox.next, upto)
        inbox.next = upto
        self._drain(inbox)

    # -- output -------------------------------------------------------------------------------------------

    def _hand_over(self, inbox: _Inbox, effects: list[Effect]) -> None:
        """Deliver ready items; join neighbouring small packets of one record size into one batch."""
        run: list[EdgePacket] = []
        room = following = 0
        for item in inbox.ready:
            if run and not (
                type(item) is EdgePacket
                and item.size
                and item.size == run[0].size
                and len(item.payload) <= room
                and item.sequence == following
            ):
                self._batch(inbox, run, effects)
                run = []
            if type(item) is EdgePacket:
                following = item.sequence + item.records
                room = (room if run else MAX_BATCH_BYTES) - len(item.payload)
                run.append(item)
            else:
                assert isinstance(item, Lost | Ended)
                effects.append(item)
        if run:
            self._batch(inbox, run, effects)
        inbox.ready.clear()
        if inbox.newest is not None and (watermark := inbox.newest.complete()):
            effects.append(Complete(inbox.session, watermark))

    def _batch(self, inbox: _Inbox, run: list[EdgePacket], effects: list[Effect]) -> None:
        session, sequence, _, size, _ = run[0]
        total = sum(packet.records for packet in run)
        self.counts.records += total
        payload = run[0].payload if len(run) == 1 else b"".join([packet.payload for packet in run])
        effects.append(Deliver(session, sequence, total, size, payload))
        if watermark := last_watermark(payload, size):
            if inbox.newest is not None:
                inbox.newest.mark(sequence, watermark)
            else:
                effects.append(Complete(session, watermark))

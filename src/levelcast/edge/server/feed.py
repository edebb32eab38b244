"""Build one stripe's edge output at one receiver, sans I/O: packets, retransmission store and snapshot.

Everything here is a function of the tape, the first plan and the watermark interval
(`levelcast.edge.server.packetizer`, rule 4). So a feed that starts from a saved state and the frames after it, or from
all frames, sends the same packets as every other feed. A frame that was sent but was not on the tape when the process
crashed gets the same numbers when it is sent again.

- The watermark's grid begins at the first frame of the tape, which is the same at every receiver.
- A timing record that counts (`levelcast.protocol.pace`) is sent in every session after its frame, so subscribers know
  a change of the hold time before the first slot to which it applies. Watermarks state the hold time. Before the first
  timing record it is not on the tape, and that of the ring is used: if a ring is formed with another one, watermarks
  that a receiver rebuilds from the tape may state the new one for times before. Nothing else differs.
- A plan arrives in tape records (`levelcast.edge.server.plan_switch`). When it is ready, the feed sends its parts
  as its plan session and a READY mark in every session. After the frame that activates it, every session gets a LAST
  mark as its last record and ends. The new plan's sessions begin at 1. The watermark grid continues across plans.
- The end of an old session is sent immediately, repeated soon, and then sent with the heartbeats for `LINGER_NS`. Until
  then its messages can be requested.
- A saved state is a header, the state of the plans and a snapshot:

    offset  type  field
    0       8s    "LVLCEDGE"
    8       u16   version, 3; 2 has no hold time
    10      u16   reserved, 0
    12      u32   CRC-32 of the first plan
    16      u64   watermark interval
    24      u64   slot of the last frame that is included
    32      32s   chain hash of the tape there
    64      u32   bytes of the state of the plans
    68            the state of the plans (`Plans.state`)
            u64   hold time before the first timing record; 0: not known
            u32   bytes of the timing records
                  the last timing records
            u32   CRC-32 of the bytes before
                  the snapshot (`levelcast.wire.snapshot`)

  The state does not identify the receiver that wrote it: a receiver may start from another receiver's state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from struct import Struct
from typing import NamedTuple, Protocol
from zlib import crc32

from levelcast import native
from levelcast.edge.server.last_records import Latest
from levelcast.edge.server.packetizer import (
    GatherConfig,
    Outgoing,
    Packetizer,
    PacketizerState,
    SessionMap,
    bare_packet,
)
from levelcast.edge.server.plan_switch import PlanLimits, Plans, Ready, Swapped, session_plan
from levelcast.edge.server.retransmit_store import RetransmitConfig, Retransmitter
from levelcast.protocol.history import GENESIS
from levelcast.protocol.pace import follows, with_change
from levelcast.records import BadRecords, count_records
from levelcast.wire import mold
from levelcast.wire.channel_plan import (
    ChannelPlan,
    Kind,
    PlanRecord,
    encode_record,
    parse_session,
    part_records,
    plan_records,
    plan_session,
    session_of,
)
from levelcast.wire.header import Malformed, Reason
from levelcast.wire.messages import PaceChange
from levelcast.wire.pace_change import encode_pace_change, pace_changes
from levelcast.wire.snapshot import Position, Snapshot, decode_snapshot, encode_snapshot
from levelcast.wire.watermark import Holds

MAGIC = b"LVLCEDGE"
VERSION = 3
_BEFORE_HOLDS = 2
"""Version of states without a hold time: there was no timing record."""
_HEADER = Struct("<8sHHIQQ32sI")
_HOLDS = Struct("<QI")
_CRC = Struct("<I")
LINGER_NS = 60_000_000_000
"""Keep the sessions of a replaced plan this long, by the time of the tape."""
END_TIMES = 3
END_EVERY_NS = 100_000_000


class FramePosition(Protocol):
    """A frame's position: a `protocol.history.Frame` or an entry of a tape's index."""

    @property
    def slot(self) -> int: ...
    @property
    def timestamp_ns(self) -> int: ...
    @property
    def first_sequence(self) -> int: ...
    @property
    def chain(self) -> bytes: ...


class FeedState(NamedTuple):
    """The state of a feed at a slot."""

    plan_crc: int
    watermark_ns: int
    slot: int
    chain: bytes
    plans: bytes
    snapshot: Snapshot
    first_hold_ns: int = 0
    changes: tuple[PaceChange, ...] = ()


@dataclass(slots=True)
class _Past:
    """A replaced plan: the ends of its sessions."""

    plan: bytes | None
    """The session with the plan's parts."""
    ends: dict[bytes, int]
    until_ns: int
    said: int = 0
    next_ns: int = 0

    def say(self, now: int, heartbeat_ns: int) -> list[Outgoing]:
        self.said += 1
        self.next_ns = now + (END_EVERY_NS if self.said < END_TIMES else heartbeat_ns)
        return [bare_packet(session, sequence, mold.END_OF_SESSION) for session, sequence in self.ends.items()]


def decode_state(content: bytes) -> FeedState:
    """Decode a saved state; raise `Malformed`, and no other error, for any invalid bytes."""
    if len(content) < _HEADER.size:
        raise Malformed(Reason.TOO_SHORT)
    magic, version, reserved, plan_crc, watermark_ns, slot, chain, plans_size = _HEADER.unpack_from(content)
    if magic != MAGIC:
        raise Malformed(Reason.BAD_MAGIC)
    if version not in (VERSION, _BEFORE_HOLDS):
        raise Malformed(Reason.UNKNOWN_VERSION)
    crc_at = _HEADER.size + plans_size
    first_hold_ns = holds_size = 0
    if version == VERSION:
        if len(content) < crc_at + _HOLDS.size:
            raise Malformed(Reason.TRUNCATED_BODY)
        first_hold_ns, holds_size = _HOLDS.unpack_from(content, crc_at)
        crc_at += _HOLDS.size + holds_size
    if len(content) < crc_at + _CRC.size:
        raise Malformed(Reason.TRUNCATED_BODY)
    if _CRC.unpack_from(content, crc_at)[0] != crc32(content[:crc_at]) or reserved:
        raise Malformed(Reason.BROKEN_SEAL)
    plans = content[_HEADER.size : _HEADER.size + plans_size]
    Plans().restore(plans)
    snapshot = decode_snapshot(content[crc_at + _CRC.size :])
    try:
        count_records(snapshot.records)
        changes = tuple(pace_changes(content[crc_at - holds_size : crc_at]))
    except BadRecords as error:
        raise Malformed(Reason.BAD_FIELD, str(error)) from None
    return FeedState(plan_crc, watermark_ns, slot, chain, plans, snapshot, first_hold_ns, changes)


def resume(feed: Feed, states: Iterable[bytes], chain_at: Callable[[int], bytes | None]) -> Feed | None:
    """Return a feed like `feed` at the first saved state that matches it and the tape; None if none does.

    `chain_at` returns the chain hash of the tape at a slot, or None if the tape does not have the slot.
    """
    for content in states:
        with suppress(Malformed):
            state = decode_state(content)
            if feed.fits(state) and chain_at(state.slot) == state.chain:
                return feed.again(feed.retransmitter.config.store_bytes, state)
    return None


class Feed:
    """The edge of one stripe, from the beginning of its tape or from a `state` for which `fits` is true.

    `plan` applies before the first plan on the tape; `limits` apply to the plans on the tape.
    """

    def __init__(
        self,
        plan: SessionMap,
        stripe: int = 0,
        config: GatherConfig | None = None,
        retransmit: RetransmitConfig | None = None,
        state: FeedState | None = None,
        limits: PlanLimits | None = None,
        first_hold_ns: int = 0,
    ) -> None:
        """`first_hold_ns` is the ring's hold time, if the state has none; 0: not known."""
        self.config = config or GatherConfig()
        self.retransmitter = Retransmitter(retransmit)
        self.plans = Plans(limits, stripe)
        self.ended = False
        self.slot = 0
        """Slot of the last frame; `chain` is the tape's hash at that slot."""
        self.chain = GENESIS
        self.frames = 0
        """Number of frames since the feed was created, and of `records` sent."""
        self.records = 0
        self._first_plan = self._plan = plan
        self._plan_crc = crc32(repr((sorted(plan.session_of.items()), plan.default)).encode())
        self._stripe = stripe
        self._latest = Latest()
        self._unread: mold.Buffer = b""
        """The last frame. Its definitions are read after its packets were sent."""
        self._past: list[_Past] = []
        self._beacon_ns = 0
        self._groups: dict[bytes, tuple[int, ...]] = {}
        self._begun = state is not None
        self._first_hold_ns = first_hold_ns
        self._changes: list[PaceChange] = []
        """The last timing records that count."""
        resume = None
        if state is not None:
            assert self.fits(state)
            self.slot, self.chain = state.slot, state.chain
            self.plans.restore(state.plans)
            self._first_hold_ns, self._changes = state.first_hold_ns or first_hold_ns, list(state.changes)
            self._latest.update(state.snapshot.records)
            _, next_global, marked_ns, frame_ns, positions, _ = state.snapshot
            resume = PacketizerState(dict(positions), marked_ns, frame_ns, next_global)
        if self.plans.current is not None:
            self._plan = session_plan(self.plans.current, stripe)
        self.packetizer = Packetizer(self._plan, 0, stripe=stripe, config=self.config, resume=resume)
        self.packetizer.holds = self.holds
        self._note_groups()
        for known in (self.plans.current, self.plans.ready):
            if known is not None:
                self.retransmitter.keep(self._plan_packets(known))

    def fits(self, state: FeedState) -> bool:
        """Return whether a state was saved under the first plan and the watermark interval of this feed."""
        plans = Plans(stripe=self._stripe)
        plans.restore(state.plans)
        plan = self._first_plan if plans.current is None else session_plan(plans.current, self._stripe)
        return (
            state.plan_crc == self._plan_crc
            and state.watermark_ns == self.config.watermark_ns
            and state.snapshot.stripe == self._stripe
            and {each.session for each in state.snapshot.sessions} == set(plan.sessions)
        )

    @property
    def next_sequences(self) -> dict[bytes, int]:
        return self.packetizer.state.next_sequences

    def again(self, store_bytes: int, state: FeedState | None) -> Feed:
        """Return a feed with the same plan and settings, from the start of the tape or a state; it sends the same."""
        retransmit = replace(self.retransmitter.config, store_bytes=store_bytes)
        limits, hold_ns = self.plans.limits, self._first_hold_ns
        return type(self)(self._first_plan, self._stripe, self.config, retransmit, state, limits, hold_ns)

    @property
    def holds(self) -> Holds:
        """The hold time, as watermarks state it."""
        if not self._changes:
            return Holds(self._first_hold_ns, self._first_hold_ns)
        last = self._changes[-1]
        return Holds(last.pace.hold_ns, last.before_ns, last.from_ns)

    def ring_holds(self, hold_ns: int) -> None:
        """Note the hold time of the ring, which applies until the first timing record; 0: not known."""
        if hold_ns and not self._changes:
            self._first_hold_ns = hold_ns
            self.packetizer.holds = self.holds

    @property
    def sessions(self) -> int:
        """Number of sessions of the active plan."""
        return len(self._plan.sessions)

    @property
    def next_ns(self) -> int | None:
        """Time at which the next heartbeat, or end of an old session, is due."""
        next_ns = self.packetizer.next_ns
        if next_ns is None:
            return None
        if self.plans.current is not None:
            next_ns = min(next_ns, self._beacon_ns)
        return min([next_ns, *(past.next_ns for past in self._past)])

    def is_past(self, session: bytes) -> bool:
        """Return whether a session may belong to a plan that was replaced."""
        place, number = parse_session(session), self.plans.number
        if place is None:
            return number > 0 and session in self._first_plan.sessions
        return place.stripe == self._stripe and place.number < number

    def groups_of(self, session: bytes) -> tuple[int, ...]:
        """Return the indices, in a block of groups, of the groups to which a session's packets are sent."""
        return self._groups.get(session, (0,))

    def release(self, frame: FramePosition, content: mold.Buffer, now: int, *, control: bool = True) -> list[Outgoing]:
        """Return the packets of the next frame, to be sent immediately; pass them and the records to `book` later.

        `control`: the frame may contain records of the operator.
        """
        if not self._begun:
            start_ns = frame.timestamp_ns - 1
            self.packetizer = Packetizer(self._plan, start_ns, stripe=self._stripe, config=self.config, now=now)
            self.packetizer.holds = self.holds
            self._begun = True
        self._read_definitions()
        packets = self.packetizer.release(frame.timestamp_ns, frame.first_sequence, content, now)
        self.slot, self.chain = frame.slot, frame.chain
        self.frames += 1
        for change in pace_changes(content) if control else ():
            packets += self._change_pace(change, frame.timestamp_ns, now)
        for record in plan_records(content) if control else ():
            packets += self._take(record, frame.timestamp_ns, now)
        self._unread = content
        return packets

    def book(self, packets: list[Outgoing], content: mold.Buffer = b"") -> None:
        """Store sent packets for retransmission, and records for the snapshot."""
        self.retransmitter.keep(packets)
        known = len(self._latest)
        self._latest.update(content)
        if len(self._latest) == known and self._unread is content:  # nothing in it is new, so nothing is defined
            self._unread = b""
        self._read_definitions()
        self.records += sum(packet.records for packet in packets)

    def _read_definitions(self) -> None:
        """Add the instruments that the last frame defines: a plan in a later frame may list them."""
        self.plans.define(self._unread)
        self._unread = b""

    def advance(self, complete_ns: int, now: int) -> list[Outgoing]:
        """Return the watermarks up to `complete_ns`; none before the first frame, at which the grid begins."""
        return self.packetizer.advance(complete_ns, now) if self._begun else []

    def heartbeats(self, now: int) -> list[Outgoing]:
        """Return the heartbeats of idle sessions and plan sessions, and the ends of old sessions, that are due."""
        out = self.packetizer.heartbeats(now)
        if self._beacon_ns <= now and not self.ended:
            self._beacon_ns = now + self.config.heartbeat_ns
            out += self._beacon()
        for past in [each for each in self._past if each.next_ns <= now]:
            if past.until_ns > now:
                out += past.say(now, self.config.heartbeat_ns)
            else:
                self._forget(past)
        return out

    def announce(self) -> list[Outgoing]:
        """Return a heartbeat of every session."""
        return self.packetizer.announce() + self._beacon()

    def _beacon(self) -> list[Outgoing]:
        """Return a heartbeat of the active plan's plan session. A plan that is only ready has none: subscribers learn
        from this heartbeat with which plan to begin."""
        plan = self.plans.current
        if plan is None or self.ended:
            return []
        return [bare_packet(plan_session(plan.number, self._stripe), len(part_records(plan, self._stripe)) + 1, 0)]

    def end(self) -> list[Outgoing]:
        """Return the end of every session; the caller sends it more than once."""
        self.ended = True
        return self.packetizer.end()

    def snapshot(self) -> bytes:
        """Return the current snapshot for subscribers."""
        return self._snapshot(self._latest.payload())

    def _snapshot(self, content: bytes) -> bytes:
        numbers, marked_ns, frame_ns, next_global = self.packetizer.state
        sessions = tuple(Position(session, numbers[session]) for session in self._plan.sessions)
        return encode_snapshot(Snapshot(self._stripe, next_global, marked_ns, frame_ns, sessions, content))

    def state(self) -> bytes:
        """Return the state that a restarted feed needs to continue after `slot`."""
        return self._state(self.snapshot())

    def checkpoint(self) -> bytes:
        """Return a state without the snapshot's records: a feed made from it sends again what this one sends."""
        return self._state(self._snapshot(b""))

    def _state(self, snapshot: bytes) -> bytes:
        self._read_definitions()
        plans = self.plans.state()
        changes = b"".join(encode_pace_change(each) for each in self._changes)
        fields = (self._plan_crc, self.config.watermark_ns, self.slot, self.chain, len(plans))
        head = b"".join(
            (_HEADER.pack(MAGIC, VERSION, 0, *fields), plans, _HOLDS.pack(self._first_hold_ns, len(changes)), changes)
        )
        return b"".join((head, _CRC.pack(crc32(head)), snapshot))

    def _change_pace(self, change: PaceChange, frame_ns: int, now: int) -> list[Outgoing]:
        """Apply a timing record after the frame that contains it; return its packets, none if it does not count."""
        if not follows(self._changes, change, frame_ns):
            return []
        self._changes = with_change(self._changes, change, frame_ns)
        self.packetizer.holds = self.holds
        return self.packetizer.say(encode_pace_change(change), now)

    # -- plans --------------------------------------------------------------------------------------------

    def _take(self, record: PlanRecord, frame_ns: int, now: int) -> list[Outgoing]:
        """Apply a record of the operator after the frame that contains it; return the packets to send."""
        happened = self.plans.take(record)
        if isinstance(happened, Ready):
            self._note_groups()
            return [*self._plan_packets(happened.plan), *self._mark(Kind.READY, happened.plan, frame_ns, now)]
        return self._swap(happened.plan, frame_ns, now) if isinstance(happened, Swapped) else []

    def _swap(self, plan: ChannelPlan, frame_ns: int, now: int) -> list[Outgoing]:
        out = self._mark(Kind.LAST, plan, frame_ns, now)
        ends, *resume = self.packetizer.state
        number = plan.number - 1
        past = _Past(plan_session(number, self._stripe) if number else None, ends, frame_ns + LINGER_NS)
        self._past.append(past)
        out += past.say(now, self.config.heartbeat_ns)
        self._plan = session_plan(plan, self._stripe)
        unplanned = self.packetizer.unplanned
        self.packetizer = Packetizer(
            self._plan, 0, stripe=self._stripe, config=self.config, resume=PacketizerState({}, *resume), now=now
        )
        self.packetizer.unplanned, self.packetizer.holds = unplanned, self.holds
        self._note_groups()
        return out

    def _mark(self, kind: Kind, plan: ChannelPlan, frame_ns: int, now: int) -> list[Outgoing]:
        parts, next_global = len(part_records(plan, self._stripe)), self.packetizer.state.next_global
        record = PlanRecord(kind, plan.number, parts, plan.digest, 0, self._stripe, frame_ns, next_global)
        return self.packetizer.say(encode_record(record), now)

    def _plan_packets(self, plan: ChannelPlan) -> list[Outgoing]:
        """Return the packets of the plan session, which carries the plan itself."""
        name = plan_session(plan.number, self._stripe)
        made = native.mold_train(b"".join(part_records(plan, self._stripe)), name, 1, self.config.packet_bytes, True)
        assert made is not None
        count, buffer, ends = made
        return [Outgoing(name, 1, count, buffer, ends)]

    def _note_groups(self) -> None:
        """Set the groups of each session. Any subscriber may read a plan, so its parts are sent to all groups."""
        everywhere = {0}
        plans = [plan for plan in (self.plans.current, self.plans.ready) if plan is not None]
        for plan in plans:
            everywhere.update(plan.groups[plan.used].tolist())
            for index in plan.used:
                self._groups[session_of(plan.number, self._stripe, index)] = (int(plan.groups[index]),)
        for plan in plans:
            self._groups[plan_session(plan.number, self._stripe)] = tuple(sorted(everywhere))

    def _forget(self, past: _Past) -> None:
        self._past.remove(past)
        for session in (*past.ends, *((past.plan,) if past.plan is not None else ())):
            self.retransmitter.forget(session)
            self._groups.pop(session, None)

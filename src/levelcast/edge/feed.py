"""One stripe's edge at one receiver, sans I/O: what is sent, what can be asked for again, and the snapshot.

Everything here is a function of the tape, the plan and the watermark interval (`levelcast.edge.gather`, rule 4), so a
feed that starts from a saved state and the frames behind it, or from all frames, sends what every other one sends. A
frame that was sent but did not reach the tape before the process died gets the same numbers when it is sent again.

- The watermark's grid begins at the first frame of the tape, which is the same at every receiver.
- A saved state is a header and a snapshot:

    offset  type  field
    0       8s    "LVLCEDGE"
    8       u16   version, 1
    10      u16   reserved, 0
    12      u32   CRC-32 of the plan
    16      u64   watermark interval
    24      u64   slot of the last frame that is counted in
    32      32s   chain hash of the tape there
    64      u32   CRC-32 of the bytes before
    68            the snapshot (`levelcast.wire.snapshot`)

  It says nothing about the receiver that wrote it: one receiver may start from another one's.
"""

from __future__ import annotations

from dataclasses import replace
from struct import Struct
from typing import NamedTuple, Protocol
from zlib import crc32

from levelcast.edge.gather import GatherConfig, Gatherer, GatherState, Outgoing, SessionPlan
from levelcast.edge.latest import Latest
from levelcast.edge.retransmit import RetransmitConfig, Retransmitter
from levelcast.records import BadRecords, count_records
from levelcast.ring.order import GENESIS
from levelcast.wire import mold
from levelcast.wire.parts import Malformed, Reason
from levelcast.wire.snapshot import Position, Snapshot, decode_snapshot, encode_snapshot

__all__ = ["Feed", "FeedState", "Placed", "decode_state"]

MAGIC = b"LVLCEDGE"
VERSION = 1
_HEADER = Struct("<8sHHIQQ32s")
_CRC = Struct("<I")
_SNAPSHOT_AT = _HEADER.size + _CRC.size


class Placed(Protocol):
    """A frame's place: a `ring.order.Frame` or a line of a tape's index."""

    @property
    def slot(self) -> int: ...
    @property
    def timestamp_ns(self) -> int: ...
    @property
    def first_sequence(self) -> int: ...
    @property
    def chain(self) -> bytes: ...


class FeedState(NamedTuple):
    """Where a feed stood."""

    plan_crc: int
    watermark_ns: int
    slot: int
    chain: bytes
    snapshot: Snapshot


def decode_state(content: bytes) -> FeedState:
    """A saved state; raises `Malformed`, and nothing else, whatever the bytes are."""
    if len(content) < _SNAPSHOT_AT:
        raise Malformed(Reason.TOO_SHORT)
    magic, version, reserved, plan_crc, watermark_ns, slot, chain = _HEADER.unpack_from(content)
    if magic != MAGIC:
        raise Malformed(Reason.BAD_MAGIC)
    if version != VERSION:
        raise Malformed(Reason.UNKNOWN_VERSION)
    if _CRC.unpack_from(content, _HEADER.size)[0] != crc32(content[: _HEADER.size]) or reserved:
        raise Malformed(Reason.BROKEN_SEAL)
    snapshot = decode_snapshot(content[_SNAPSHOT_AT:])
    try:
        count_records(snapshot.records)
    except BadRecords as error:
        raise Malformed(Reason.BAD_FIELD, str(error)) from None
    return FeedState(plan_crc, watermark_ns, slot, chain, snapshot)


class Feed:
    """The edge of one stripe, from the beginning of its tape or from `state`, which must be one that it `fits`."""

    def __init__(
        self,
        plan: SessionPlan,
        stripe: int = 0,
        config: GatherConfig | None = None,
        retransmit: RetransmitConfig | None = None,
        state: FeedState | None = None,
    ) -> None:
        self.config = config or GatherConfig()
        self.retransmitter = Retransmitter(retransmit)
        self.ended = False
        self.slot = 0
        """Of the last frame; `chain` is the tape's hash there."""
        self.chain = GENESIS
        self.frames = 0
        """Frames since the feed was made, and `records` of them that were sent."""
        self.records = 0
        self._plan = plan
        self._plan_crc = crc32(repr((sorted(plan.session_of.items()), plan.default)).encode())
        self._stripe = stripe
        self._latest = Latest()
        self._begun = state is not None
        resume = None
        if state is not None:
            assert self.fits(state)
            self.slot, self.chain = state.slot, state.chain
            self._latest.update(state.snapshot.records)
            _, next_global, marked_ns, frame_ns, positions, _ = state.snapshot
            resume = GatherState(dict(positions), marked_ns, frame_ns, next_global)
        self._gatherer = Gatherer(plan, 0, stripe=stripe, config=self.config, resume=resume)

    def fits(self, state: FeedState) -> bool:
        """Whether a state was saved under the plan and the interval of this feed."""
        return (
            state.plan_crc == self._plan_crc
            and state.watermark_ns == self.config.watermark_ns
            and state.snapshot.stripe == self._stripe
            and {each.session for each in state.snapshot.sessions} == set(self._plan.sessions)
        )

    @property
    def next_sequences(self) -> dict[bytes, int]:
        return self._gatherer.state.next_sequences

    def again(self, store_bytes: int, state: FeedState | None) -> Feed:
        """A feed of the same plan and settings from the beginning of the tape, or from a state: it sends the same."""
        retransmit = replace(self.retransmitter.config, store_bytes=store_bytes)
        return Feed(self._plan, self._stripe, self.config, retransmit, state)

    @property
    def sessions(self) -> int:
        """How many there are."""
        return len(self._plan.sessions)

    @property
    def next_global(self) -> int:
        """The stripe's sequence behind the last frame; `marked_ns` is the last watermark."""
        return self._gatherer.next_global

    @property
    def marked_ns(self) -> int:
        return self._gatherer.marked_ns

    @property
    def unplanned(self) -> int:
        return self._gatherer.unplanned

    @property
    def next_ns(self) -> int | None:
        """When the next heartbeat is due."""
        return self._gatherer.next_ns

    def release(self, frame: Placed, content: mold.Buffer, now: int) -> list[Outgoing]:
        """The packets of the next frame, to be sent at once; `book` them and the frame's records afterwards."""
        if not self._begun:
            start_ns = frame.timestamp_ns - 1
            self._gatherer = Gatherer(self._plan, start_ns, stripe=self._stripe, config=self.config, now=now)
            self._begun = True
        packets = self._gatherer.release(frame.timestamp_ns, frame.first_sequence, content, now)
        self.slot, self.chain = frame.slot, frame.chain
        self.frames += 1
        return packets

    def book(self, packets: list[Outgoing], content: mold.Buffer = b"") -> None:
        """Keep packets that were sent for those who ask, and records for the snapshot."""
        self.retransmitter.keep(packets)
        self._latest.update(content)
        self.records += sum(packet.records for packet in packets)

    def advance(self, complete_ns: int, now: int) -> list[Outgoing]:
        """The watermarks up to `complete_ns`; none before the first frame, from which the grid begins."""
        return self._gatherer.advance(complete_ns, now) if self._begun else []

    def heartbeats(self, now: int) -> list[Outgoing]:
        return self._gatherer.heartbeats(now)

    def announce(self) -> list[Outgoing]:
        """A heartbeat of every session, at once."""
        return self._gatherer.announce()

    def end(self) -> list[Outgoing]:
        """The end of every session; to be sent more than once."""
        self.ended = True
        return self._gatherer.end()

    def snapshot(self) -> bytes:
        """The snapshot as it stands, for customers."""
        return self._snapshot(self._latest.payload())

    def _snapshot(self, content: bytes) -> bytes:
        numbers, marked_ns, frame_ns, next_global = self._gatherer.state
        sessions = tuple(Position(session, numbers[session]) for session in self._plan.sessions)
        return encode_snapshot(Snapshot(self._stripe, next_global, marked_ns, frame_ns, sessions, content))

    def state(self) -> bytes:
        """What a restarted feed needs to go on behind `slot`."""
        return self._state(self.snapshot())

    def mark(self) -> bytes:
        """A state without the snapshot's records: a feed that is made of it sends again what this one sends."""
        return self._state(self._snapshot(b""))

    def _state(self, snapshot: bytes) -> bytes:
        fields = (self._plan_crc, self.config.watermark_ns, self.slot, self.chain)
        head = _HEADER.pack(MAGIC, VERSION, 0, *fields)
        return b"".join((head, _CRC.pack(crc32(head)), snapshot))

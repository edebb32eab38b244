"""Convert one stripe's released frames to the packets of its sessions.

1. A record is sent in the session that the plan assigns to its instrument. A record without an instrument (id 0: a
   venue's halt, a system message) is sent in every session, except records of the ring (floor `CONTROL_SOURCE`): of
   these the feed sends the timing records that count, after their frame. An instrument without a session uses the
   plan's default session; if there is none, its records are counted and not sent.
2. Within a session, records keep the order of the sequence and are numbered from 1. A packet never contains records
   of two frames: the records that a slot releases are sent immediately.
3. Watermarks are on a grid of multiples of the interval, not on a timer. Every session gets one for each grid point G,
   in a separate packet, after all frames with a timestamp up to G and before all later ones.
4. So the packets of a session, byte for byte, are a function of the frames, the plan, the interval and the hold time.
   Every receiver sends the same packets, in whatever steps it learns what is complete. A subscriber may use any packet
   from any receiver, and a restarted edge continues the numbering from its tape. Only heartbeats depend on a clock, and
   they have no number.
5. A session in which nothing was sent for an interval gets a heartbeat. While the ring advances, watermarks are more
   frequent than that. Heartbeats without watermarks mean that the edge runs and the ring does not advance.

The output is one `Outgoing` per session and frame, made by one call of `levelcast.native`. With several sessions,
numpy sorts a frame's records first. No Python code runs per packet or per record.

Every grid point gets a watermark, because the numbers after it would differ otherwise. After the ring has stopped for
one minute, the edge sends 600 watermarks per session at 100 ms. These 200 kB would have been sent during that minute.

    >>> plan = SessionMap({7: session_name("XNYS-1")})
    >>> packetizer = Packetizer(plan, start_ns=0)
    >>> batch = records.trades(2)
    >>> batch["instrument_id"] = 7
    >>> [(p.sequence, p.records) for p in packetizer.release(50, 1, batch.tobytes(), now=60)]
    [(1, 2)]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from levelcast import native, records
from levelcast.records import NO_INSTRUMENT, record_places
from levelcast.wire import mold
from levelcast.wire.messages import CONTROL_SOURCE
from levelcast.wire.mold import session_name
from levelcast.wire.watermark import UNKNOWN_HOLDS, Watermark, encode_watermark

_NO_SESSION = -1
_MAX_SESSIONS = 2**15 - 1
"""The indices have 16 bits: numpy sorts those by radix."""
_DENSE_IDS = 1 << 20
"""Up to this instrument id, sessions are looked up in a table; above it, by binary search."""

_END = Struct("<I")

Numbers = npt.NDArray[np.int64]


class Outgoing(NamedTuple):
    """Packets of one session to multicast, back to back: those of one released slot, or a single one."""

    session: bytes
    sequence: int
    """Sequence of the first record."""
    records: int
    """Number of records in all packets; 0 for a heartbeat and an end of session."""
    buffer: bytes
    """The packets back to back."""
    ends: bytes
    """End offset of each packet in `buffer`: little-endian u32."""

    @property
    def packets(self) -> int:
        return len(self.ends) // _END.size

    @property
    def datagrams(self) -> list[bytes]:
        """Return the packets separately, for callers that do not send `buffer` as it is."""
        return mold.split_train(self.buffer, self.ends)


class SessionMap:
    """Map each instrument to its session; `default` is for instruments that the plan does not list."""

    def __init__(self, session_of: Mapping[int, bytes], default: bytes | None = None) -> None:
        sessions = set(session_of.values()) | ({default} if default is not None else set())
        for session in sessions:
            assert session_name(session.decode("ascii").rstrip()) == session
        assert len(sessions) <= _MAX_SESSIONS
        self.session_of = dict(session_of)
        self.default = default
        self.sessions: tuple[bytes, ...] = tuple(sorted(sessions))
        self.takes_everything = not session_of and default is not None
        """True if one session carries every instrument."""
        index = {session: number for number, session in enumerate(self.sessions)}
        self._default = _NO_SESSION if default is None else index[default]
        planned = {NO_INSTRUMENT: _NO_SESSION} if default is not None else {}
        planned |= {instrument: index[session] for instrument, session in session_of.items()}
        ids = np.array(sorted(planned), np.uint32)
        self._look_up(ids, np.array([planned[int(each)] for each in ids], np.int16))

    @classmethod
    def of_arrays(
        cls, names: Sequence[bytes], ids: npt.NDArray[np.uint32], indices: npt.NDArray[np.integer[Any]], default: int
    ) -> SessionMap:
        """Create a plan of many instruments: sorted `ids`, each in the session `names[index]`; `default` is an index.

        No dictionary is built: `session_of` stays empty.
        """
        plan = cls({}, names[default])
        plan.sessions = tuple(sorted(names))
        plan.takes_everything = False
        place = {name: number for number, name in enumerate(plan.sessions)}
        places = np.array([place[name] for name in names], np.int16)
        plan._default = int(places[default])
        nobodys = np.array([NO_INSTRUMENT], np.uint32), np.array([_NO_SESSION], np.int16)
        plan._look_up(np.concatenate((nobodys[0], ids)), np.concatenate((nobodys[1], places[indices])))
        return plan

    def _look_up(self, ids: npt.NDArray[np.uint32], sessions: npt.NDArray[np.int16]) -> None:
        """Set the lookup of an instrument's session: a table or sorted ids."""
        self._ids, self._sessions = ids, sessions
        self._table: npt.NDArray[np.int16] | None = None
        if len(self._ids) and int(self._ids[-1]) < _DENSE_IDS:
            # One element more than the largest id, for every id that is larger.
            self._table = np.full(int(self._ids[-1]) + 2, self._default, np.int16)
            self._table[self._ids] = self._sessions

    def indices(self, instrument_ids: npt.NDArray[np.uint32]) -> npt.NDArray[np.int16]:
        """Return the index in `sessions` for each instrument, -1 if it has none."""
        if self._table is not None:
            return self._table.take(instrument_ids, mode="clip")
        if not len(self._ids):
            return np.full(len(instrument_ids), _NO_SESSION, np.int16)
        places = np.searchsorted(self._ids, instrument_ids).clip(max=len(self._ids) - 1)
        return np.where(self._ids[places] == instrument_ids, self._sessions[places], np.int16(self._default))


@dataclass(frozen=True, slots=True)
class GatherConfig:
    packet_bytes: int = mold.DEFAULT_PACKET_BYTES
    """Maximum UDP payload in bytes."""
    heartbeat_ns: int = 1_000_000_000
    watermark_ns: int = 100_000_000
    """Interval of the grid of rule 3, the same at every receiver; 0 disables watermarks."""

    def __post_init__(self) -> None:
        if not mold.MIN_PACKET_BYTES <= self.packet_bytes <= 65_507:
            raise ValueError(f"packet_bytes must be {mold.MIN_PACKET_BYTES} to 65,507, not {self.packet_bytes}")
        if self.heartbeat_ns <= 0 or self.watermark_ns < 0:
            raise ValueError("heartbeat_ns must be greater than 0, and watermark_ns must not be negative")


class PacketizerState(NamedTuple):
    """The state that a restarted edge needs to continue the numbering."""

    next_sequences: dict[bytes, int]
    marked_ns: int
    frame_ns: int
    next_global: int


class Packetizer:
    """The edge of one stripe. `start_ns` is the time at which its plan begins: the first grid point is after it."""

    def __init__(
        self,
        plan: SessionMap,
        start_ns: int,
        *,
        stripe: int = 0,
        config: GatherConfig | None = None,
        resume: PacketizerState | None = None,
        now: int = 0,
    ) -> None:
        self.config = config or GatherConfig()
        self.unplanned = 0
        """Records of instruments without a session."""
        self.holds = UNKNOWN_HOLDS
        """The hold time that watermarks state."""
        self._stripe = stripe
        self._plan = plan
        self._state = resume or PacketizerState({}, start_ns, start_ns, 1)
        _, self.marked_ns, self._frame_ns, self.next_global = self._state
        """Times of the last watermark and the last frame, and the stripe's next sequence after that frame."""
        self._next = [self._state.next_sequences.get(session, 1) for session in plan.sessions]
        self._sent_ns: Numbers = np.full(len(plan.sessions), now, np.int64)
        self._look_ns = now + self.config.heartbeat_ns
        self._ended = False

    @property
    def state(self) -> PacketizerState:
        numbers = dict(zip(self._plan.sessions, self._next, strict=True))
        return PacketizerState(numbers, self.marked_ns, self._frame_ns, self.next_global)

    @property
    def next_ns(self) -> int | None:
        """Time to call `heartbeats`: at or shortly before the next one is due."""
        return None if self._ended or not len(self._sent_ns) else self._look_ns

    def release(self, timestamp_ns: int, first_sequence: int, payload: mold.Buffer, now: int) -> list[Outgoing]:
        """Return the packets of a released frame with the stamped records `payload`, after the watermarks before it."""
        assert timestamp_ns > self._frame_ns, "frames must be in the order of their slots"
        assert timestamp_ns > self.marked_ns, "frame below a watermark"
        assert not self._ended
        out = self._watermarks(timestamp_ns - 1, now)
        if self._plan.takes_everything and self._release_whole(timestamp_ns, first_sequence, payload, now, out):
            return out
        offsets, sizes = record_places(payload)
        self._frame_ns, self.next_global = timestamp_ns, first_sequence + len(offsets)
        positions, keys = self._assign(payload, offsets)
        if not len(positions):
            return out
        order = keys.argsort(kind="stable")
        positions, keys = positions[order], keys[order]
        sizes = sizes[positions]
        content = memoryview(mold.pick(payload, offsets[positions], sizes))
        starts = np.concatenate(([0], np.flatnonzero(np.diff(keys)) + 1, [len(keys)]))
        places = np.concatenate(([0], np.cumsum(sizes)))[starts].tolist()
        for first, start, end in zip(starts.tolist(), places, places[1:], strict=False):
            made = self._session(int(keys[first]), content[start:end], True, now)
            assert made is not None
            out.append(made)
        return out

    def _release_whole(
        self, timestamp_ns: int, first_sequence: int, payload: mold.Buffer, now: int, out: list[Outgoing]
    ) -> bool:
        """Send all records in the one session; return False if a record has no instrument and must be examined."""
        made = self._session(0, payload, False, now) if payload else None
        if made is None:
            return False
        self._frame_ns, self.next_global = timestamp_ns, first_sequence + made.records
        out.append(made)
        return True

    def _session(self, index: int, content: mold.Buffer, every: bool, now: int) -> Outgoing | None:
        """Return the packets of one session's records; None if one has no instrument and `every` is false."""
        session, sequence = self._plan.sessions[index], self._next[index]
        made = native.mold_train(content, session, sequence, self.config.packet_bytes, every)
        if made is None:
            return None
        count, buffer, ends = made
        self._next[index] = sequence + count
        self._sent_ns[index] = now
        return Outgoing(session, sequence, count, buffer, ends)

    def advance(self, complete_ns: int, now: int) -> list[Outgoing]:
        """Return the watermarks that are due when every frame up to `complete_ns` has been released."""
        return [] if self._ended else self._watermarks(complete_ns, now)

    def heartbeats(self, now: int) -> list[Outgoing]:
        """Return heartbeats of the sessions that have been idle for the interval."""
        if self._ended:
            return []
        due = np.flatnonzero(self._sent_ns <= now - self.config.heartbeat_ns).tolist()
        self._sent_ns[due] = now
        if len(self._sent_ns):
            self._look_ns = int(self._sent_ns.min()) + self.config.heartbeat_ns
        return [self._bare(index, 0) for index in due]

    def announce(self) -> list[Outgoing]:
        """Return a heartbeat of every session, for a newly added group."""
        return [] if self._ended else [self._bare(index, 0) for index in range(len(self._next))]

    def end(self) -> list[Outgoing]:
        """Return the end of every session. It is not acknowledged, so the caller sends it more than once."""
        self._ended = True
        return [self._bare(index, mold.END_OF_SESSION) for index in range(len(self._next))]

    def _assign(self, payload: mold.Buffer, offsets: Numbers) -> tuple[Numbers, npt.NDArray[np.int16]]:
        """Return the positions of the records to send, and the session of each, ordered within each session."""
        words = np.frombuffer(payload, "<u4")
        heads = offsets // records.WORD_BYTES
        instruments = words[heads + 1]
        keys = self._plan.indices(instruments)
        positions = np.flatnonzero(keys != _NO_SESSION)
        if len(positions) == len(keys):
            return positions, keys
        nobodys = np.flatnonzero(keys == _NO_SESSION)
        unbound = instruments[nobodys] == NO_INSTRUMENT
        self.unplanned += int(len(nobodys) - unbound.sum())
        everybodys = nobodys[unbound & (words[heads[nobodys]] >> 16 != CONTROL_SOURCE)]
        keys = keys[positions]
        if len(everybodys):
            sessions = len(self._plan.sessions)
            positions = np.concatenate((positions, everybodys.repeat(sessions)))
            keys = np.concatenate((keys, np.tile(np.arange(sessions, dtype=np.int16), len(everybodys))))
            order = positions.argsort(kind="stable")
            positions, keys = positions[order], keys[order]
        return positions, keys

    def _watermarks(self, upto_ns: int, now: int) -> list[Outgoing]:
        out: list[Outgoing] = []
        interval_ns = self.config.watermark_ns
        if not interval_ns:
            return out
        grid_ns = (self.marked_ns // interval_ns + 1) * interval_ns
        while grid_ns <= upto_ns:
            out += self.say(encode_watermark(Watermark(grid_ns, self.next_global, self._stripe, self.holds)), now)
            self.marked_ns = grid_ns
            grid_ns += interval_ns
        return out

    def say(self, record: bytes, now: int) -> list[Outgoing]:
        """Return a record of the edge itself as the next one of every session, in a separate packet."""
        block = len(record).to_bytes(mold.LENGTH_SIZE, "big") + record
        out = []
        for index, session in enumerate(self._plan.sessions):
            sequence = self._next[index]
            out.append(_alone(session, sequence, 1, mold.header(session, sequence, 1) + block))
            self._next[index] += 1
        self._sent_ns[:] = now
        return out

    def _bare(self, index: int, count: int) -> Outgoing:
        return bare_packet(self._plan.sessions[index], self._next[index], count)


def bare_packet(session: bytes, sequence: int, count: int) -> Outgoing:
    """Return a heartbeat, or the end of a session."""
    return _alone(session, sequence, 0, mold.header(session, sequence, count))


def _alone(session: bytes, sequence: int, records: int, datagram: bytes) -> Outgoing:
    return Outgoing(session, sequence, records, datagram, _END.pack(len(datagram)))

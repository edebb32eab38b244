"""From one stripe's released frames to the packets of its sessions.

1. A record goes to the session that the plan gives its instrument. One of no instrument (id 0: a venue's halt, a
   system message) goes to every session, except the ring's own (floor `CONTROL_SOURCE`), which stay inside. One
   whose instrument has no session goes to the plan's default session; without one it is counted and goes nowhere.
2. Within a session records keep the order of the sequence and are numbered from 1. A packet never holds records
   of two frames: what a slot releases leaves at once.
3. Watermarks stand on a grid of whole intervals, not on a timer: every session gets one for each grid point G,
   in a packet of its own, after all frames with a timestamp up to G and before all later ones.
4. So the packets of a session, byte for byte, are a function of the frames, the plan and the interval. Every
   receiver sends the same ones, in whatever steps it learns what is complete; a customer may take any packet from
   any of them, and a restarted edge counts on from its tape. Only heartbeats depend on a clock, and they have no
   number.
5. A session in which nothing was sent for an interval gets a heartbeat. While the ring moves, watermarks come more
   often than that; heartbeats alone say that the edge lives and the ring stands still.

What leaves is one `Outgoing` for each session and frame, made by one call of `levelcast.native`. With several sessions
numpy sorts a frame's records before. No Python runs per packet or per record.

A grid point is never left out, or the numbers behind it would differ. After the ring stood still for a minute the
edge sends 600 watermarks a session at 100 ms, the 200 kB that it would have sent during that minute.

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
from levelcast.wire.watermark import Watermark, encode_watermark

_NO_SESSION = -1
_MAX_SESSIONS = 2**15 - 1
"""Indices of 16 bits: numpy sorts those by radix."""
_DENSE_IDS = 1 << 20
"""Up to this instrument id the plan is a table that is looked up directly; beyond, it is searched."""

_END = Struct("<I")

Numbers = npt.NDArray[np.int64]


class Outgoing(NamedTuple):
    """Packets of one session to multicast, one behind the other: what a slot releases in it, or a single one."""

    session: bytes
    sequence: int
    """Of the first record."""
    records: int
    """In all of them; 0 for a heartbeat and an end of session."""
    buffer: bytes
    """The packets back to back."""
    ends: bytes
    """Where each of them ends in `buffer`: little-endian u32."""

    @property
    def packets(self) -> int:
        return len(self.ends) // _END.size

    @property
    def datagrams(self) -> list[bytes]:
        """Each of them; for those who do not send them as they stand."""
        return mold.split_train(self.buffer, self.ends)


class SessionMap:
    """Which session each instrument is in; `default` is for those that the plan does not name."""

    def __init__(self, session_of: Mapping[int, bytes], default: bytes | None = None) -> None:
        sessions = set(session_of.values()) | ({default} if default is not None else set())
        for session in sessions:
            assert session_name(session.decode("ascii").rstrip()) == session
        assert len(sessions) <= _MAX_SESSIONS
        self.session_of = dict(session_of)
        self.default = default
        self.sessions: tuple[bytes, ...] = tuple(sorted(sessions))
        self.takes_everything = not session_of and default is not None
        """Whether there is one session, with every instrument in it."""
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
        """A plan of many instruments: `ids` in order, each in the session `names[index]`; `default` is one of them.

        There is no dictionary of them: its `session_of` stays empty.
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
        """How an instrument's session is found."""
        self._ids, self._sessions = ids, sessions
        self._table: npt.NDArray[np.int16] | None = None
        if len(self._ids) and int(self._ids[-1]) < _DENSE_IDS:
            # One place more than the largest id, for every id that is larger.
            self._table = np.full(int(self._ids[-1]) + 2, self._default, np.int16)
            self._table[self._ids] = self._sessions

    def indices(self, instrument_ids: npt.NDArray[np.uint32]) -> npt.NDArray[np.int16]:
        """The index in `sessions` for each instrument, -1 where it has none."""
        if self._table is not None:
            return self._table.take(instrument_ids, mode="clip")
        if not len(self._ids):
            return np.full(len(instrument_ids), _NO_SESSION, np.int16)
        places = np.searchsorted(self._ids, instrument_ids).clip(max=len(self._ids) - 1)
        return np.where(self._ids[places] == instrument_ids, self._sessions[places], np.int16(self._default))


@dataclass(frozen=True, slots=True)
class GatherConfig:
    packet_bytes: int = mold.DEFAULT_PACKET_BYTES
    """The largest UDP payload."""
    heartbeat_ns: int = 1_000_000_000
    watermark_ns: int = 100_000_000
    """The grid of rule 3, the same at every receiver; 0 for no watermarks."""

    def __post_init__(self) -> None:
        if not mold.MIN_PACKET_BYTES <= self.packet_bytes <= 65_507:
            raise ValueError(f"packets have {mold.MIN_PACKET_BYTES} to 65,507 bytes, not {self.packet_bytes}")
        if self.heartbeat_ns <= 0 or self.watermark_ns < 0:
            raise ValueError("a heartbeat interval is above 0, a watermark's not below")


class PacketizerState(NamedTuple):
    """What a restarted edge needs to count on."""

    next_sequences: dict[bytes, int]
    marked_ns: int
    frame_ns: int
    next_global: int


class Packetizer:
    """One stripe's edge. `start_ns` is when its plan begins: the first grid point lies after it."""

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
        """Records whose instrument has no session."""
        self._stripe = stripe
        self._plan = plan
        self._state = resume or PacketizerState({}, start_ns, start_ns, 1)
        _, self.marked_ns, self._frame_ns, self.next_global = self._state
        """The last watermark, the last frame, and the stripe's sequence behind it."""
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
        """When to ask for heartbeats: not after the next one is due, and not often before."""
        return None if self._ended or not len(self._sent_ns) else self._look_ns

    def release(self, timestamp_ns: int, first_sequence: int, payload: mold.Buffer, now: int) -> list[Outgoing]:
        """The packets of a released frame, whose stamped records are `payload`, behind the watermarks before it."""
        assert timestamp_ns > self._frame_ns, "frames come in the order of their slots"
        assert timestamp_ns > self.marked_ns, "a frame below a watermark"
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
        """One session takes every record: False where one of them has no instrument and must be looked at."""
        made = self._session(0, payload, False, now) if payload else None
        if made is None:
            return False
        self._frame_ns, self.next_global = timestamp_ns, first_sequence + made.records
        out.append(made)
        return True

    def _session(self, index: int, content: mold.Buffer, every: bool, now: int) -> Outgoing | None:
        """The packets of one session's records; None where one has no instrument, unless `every` one is meant."""
        session, sequence = self._plan.sessions[index], self._next[index]
        made = native.mold_train(content, session, sequence, self.config.packet_bytes, every)
        if made is None:
            return None
        count, buffer, ends = made
        self._next[index] = sequence + count
        self._sent_ns[index] = now
        return Outgoing(session, sequence, count, buffer, ends)

    def advance(self, complete_ns: int, now: int) -> list[Outgoing]:
        """Every frame with a timestamp up to `complete_ns` is released: the watermarks that follow from it."""
        return [] if self._ended else self._watermarks(complete_ns, now)

    def heartbeats(self, now: int) -> list[Outgoing]:
        """Heartbeats of the sessions that have been silent for the interval."""
        if self._ended:
            return []
        due = np.flatnonzero(self._sent_ns <= now - self.config.heartbeat_ns).tolist()
        self._sent_ns[due] = now
        if len(self._sent_ns):
            self._look_ns = int(self._sent_ns.min()) + self.config.heartbeat_ns
        return [self._bare(index, 0) for index in due]

    def announce(self) -> list[Outgoing]:
        """A heartbeat of every session, for a group that is sent to from now on."""
        return [] if self._ended else [self._bare(index, 0) for index in range(len(self._next))]

    def end(self) -> list[Outgoing]:
        """The end of every session. It may be asked for again: nobody acknowledges it, so it is sent more than once."""
        self._ended = True
        return [self._bare(index, mold.END_OF_SESSION) for index in range(len(self._next))]

    def _assign(self, payload: mold.Buffer, offsets: Numbers) -> tuple[Numbers, npt.NDArray[np.int16]]:
        """Which records go out and to which session, each session's in order."""
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
            out += self.say(encode_watermark(Watermark(grid_ns, self.next_global, self._stripe)), now)
            self.marked_ns = grid_ns
            grid_ns += interval_ns
        return out

    def say(self, record: bytes, now: int) -> list[Outgoing]:
        """A record of the edge's own as the next one of every session, in a packet of its own."""
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
    """A heartbeat, or the end of a session."""
    return _alone(session, sequence, 0, mold.header(session, sequence, count))


def _alone(session: bytes, sequence: int, records: int, datagram: bytes) -> Outgoing:
    return Outgoing(session, sequence, records, datagram, _END.pack(len(datagram)))

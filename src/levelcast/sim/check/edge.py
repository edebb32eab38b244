"""Generate trades for simulated edges, and check the sessions of a stripe against the tape."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from levelcast.edge.server.packetizer import Outgoing, SessionMap
from levelcast.protocol.pace import follows, hold_at
from levelcast.records import RTYPE_SYSTEM, RTYPE_TRADE, each_record, trades
from levelcast.sim.check.ring import Checker, InvariantBroken
from levelcast.sim.engine.disk import stamped_content
from levelcast.wire import mold
from levelcast.wire.channel_plan import ChannelPlan, Kind, build_channel_plan, decode_record, session_of
from levelcast.wire.messages import PaceChange
from levelcast.wire.mold import session_name
from levelcast.wire.pace_change import decode_pace_change, pace_changes
from levelcast.wire.watermark import decode_watermark

UNPLANNED = 99
"""Instrument in no plan: no session has its records."""

_TRADE = bytearray(trades(1).tobytes())
_SET = struct.Struct("<HIQq")
_SET_AT = 2
_TRADE_ID = struct.Struct("<Q")
_TRADE_ID_AT = 48


def trade(floor: int, instrument: int, number: int, at_ns: int) -> bytes:
    """Return one trade as its floor sends it; `number` makes it unique."""
    _SET.pack_into(_TRADE, _SET_AT, floor, instrument, at_ns, number)
    _TRADE_ID.pack_into(_TRADE, _TRADE_ID_AT, number)
    return bytes(_TRADE)


def stamped(record: bytes) -> tuple[int, int]:
    """Return timestamp and sequence of a trade on the tape."""
    return int.from_bytes(record[32:40], "little"), int.from_bytes(record[44:48], "little")


class Key(NamedTuple):
    """Position of a record in the order of all stripes (rule 15)."""

    timestamp_ns: int
    stripe: int
    sequence: int


def instrument_of(record: bytes) -> int:
    return int.from_bytes(record[4:8], "little")


def symbol_of(record: bytes) -> tuple[int, int]:
    """Return floor and instrument of a trade."""
    return record[2] | record[3] << 8, instrument_of(record)


class Truth:
    """Sessions of one stripe as they were first sent: the reference for every edge and every delivery."""

    def __init__(self, stripe: int, plan: SessionMap, checker: Checker, first_hold_ns: int = 0) -> None:
        self.stripe = stripe
        self.plan = plan
        self.plans: dict[int, ChannelPlan] = {}
        """Plans that the operator has sent, by number."""
        self.frames = checker.frames
        self.streams: dict[bytes, list[bytes]] = {session: [] for session in plan.sessions}
        """Records of each session, with watermarks; the first has number 1."""
        self.first_hold_ns = first_hold_ns
        """The hold time of the ring, before all timing records."""
        self._changes: list[PaceChange] = []
        self._scanned = 0
        self._trains: dict[tuple[bytes, int], bytes] = {}

    def note(self, name: str, sent: list[Outgoing]) -> list[Outgoing]:
        """Check and record packets that an edge has numbered, to send or store them; return them."""
        for out in sent:
            if not out.records:
                continue
            known = self._trains.setdefault((out.session, out.sequence), out.buffer)
            if known is not out.buffer:
                if known != out.buffer:
                    raise InvariantBroken("one numbering", f"{name} has different bytes at {_place(out)}")
                continue
            stream = self.streams.setdefault(out.session, [])
            if out.sequence != len(stream) + 1:
                raise InvariantBroken("one numbering", f"{name} sends {_place(out)}, expected {len(stream) + 1}")
            for datagram in out.datagrams:
                packet = mold.decode(datagram)
                assert isinstance(packet, mold.EdgePacket)
                stream.extend(each_record(bytes(packet.payload)))
        return sent

    def tape(self) -> Iterator[bytes]:
        """Yield every trade on the tape, stamped."""
        for frame in self.frames():
            for record in each_record(stamped_content(frame)):
                if record[1] == RTYPE_TRADE:
                    yield record

    def expected(self) -> dict[bytes, list[bytes]]:
        """Return the tape's records of each session, computed from the plan without the edge's code."""
        plan = self.plan
        wanted: dict[bytes, list[bytes]] = {session: [] for session in plan.sessions}
        for frame in self.frames():
            swapped = plan
            for record in each_record(stamped_content(frame)):
                if record[1] != RTYPE_TRADE:
                    swapped = self._swapped(record) or swapped
                elif (instrument := instrument_of(record)) == 0:
                    for session in plan.sessions:
                        wanted[session].append(record)
                elif (only := plan.session_of.get(instrument, plan.default)) is not None:
                    wanted[only].append(record)
            if swapped is not plan:
                plan = swapped
                wanted |= {session: [] for session in plan.sessions}
        return wanted

    def _swapped(self, record: bytes) -> SessionMap | None:
        """Return the plan that a swap record activates after its frame, or None."""
        said = decode_record(record)
        if said is None or said.kind is not Kind.SWAP:
            return None
        plan = self.plans[said.number]
        names = {index: session_of(plan.number, self.stripe, index) for index in plan.used}
        pairs = zip(plan.instruments.tolist(), plan.sessions.tolist(), strict=True)
        return SessionMap({instrument: names[index] for instrument, index in pairs}, names[plan.default])

    def check_end(self) -> None:
        """Check that sessions equal the tape, and that their watermarks are correct."""
        sequences = [(frame.timestamp_ns, frame.first_sequence + frame.records) for frame in self.frames()]
        changes = self.pace_changes()
        for session, wanted in self.expected().items():
            done = 0
            times = [stamped(record)[0] for record in wanted]
            over = False
            for record in self.streams.get(session, ()):
                if over:
                    raise InvariantBroken("edge tape", f"{name_of(session)} continues after its last record")
                if record[1] == RTYPE_SYSTEM:
                    mark = decode_record(record)
                    over = mark is not None and mark.kind is Kind.LAST
                    if decode_pace_change(record) is not None:
                        self._check_pace_change(session, record, changes)
                    elif mark is None:
                        self._check_watermark(session, record, times, done, sequences)
                elif done == len(wanted) or record != wanted[done]:
                    what = f"record {done + 1} of {name_of(session)} differs from the tape"
                    raise InvariantBroken("edge tape", what)
                else:
                    done += 1

    def pace_changes(self) -> list[PaceChange]:
        """Return the timing records on the tape that count, in order."""
        frames = self.frames()
        for frame in frames[self._scanned :]:
            for change in pace_changes(stamped_content(frame)):
                if follows(self._changes, change, frame.timestamp_ns):
                    self._changes.append(change)
        self._scanned = len(frames)
        return self._changes

    def release_ns(self, timestamp_ns: int) -> int:
        """Return the release time of a slot with this timestamp."""
        return timestamp_ns + hold_at(self.pace_changes(), timestamp_ns, self.first_hold_ns)

    @property
    def shortest_hold_ns(self) -> int:
        return min([self.first_hold_ns, *(change.pace.hold_ns for change in self.pace_changes())])

    def _check_pace_change(self, session: bytes, record: bytes, changes: list[PaceChange]) -> None:
        change = decode_pace_change(record)
        if change not in changes:
            raise InvariantBroken("edge tape", f"{name_of(session)} has {change}, which does not count")

    def number_after(self, session: bytes, trades: int) -> int:
        """Return the number after this many trades of a session; one not sent yet if there are fewer."""
        left = trades
        for number, record in enumerate(self.streams.get(session, ()), 1):
            left -= record[1] == RTYPE_TRADE
            if not left:
                return number + 1
        return len(self.streams.get(session, ())) + 1 + left

    def last_prices(self, session: bytes, upto: int) -> dict[tuple[int, int], int]:
        """Return the number of the last trade below `upto`, per (floor, instrument)."""
        return {
            symbol_of(record): number
            for number, record in enumerate(self.streams[session][: upto - 1], 1)
            if record[1] == RTYPE_TRADE
        }

    def last_records(self, next_global: int) -> list[bytes]:
        """Return the last trade of each floor and instrument below a sequence, in any session."""
        below = (record for record in self.tape() if stamped(record)[1] < next_global)
        return sorted({symbol_of(record): record for record in below}.values())

    def _check_watermark(
        self, session: bytes, record: bytes, times: list[int], done: int, sequences: list[tuple[int, int]]
    ) -> None:
        watermark = decode_watermark(record)
        if watermark is None:
            raise InvariantBroken("edge tape", f"{name_of(session)} has a system message that is not a watermark")
        due = bisect_right(times, watermark.complete_ns)
        if due != done:
            raise InvariantBroken("watermark", f"{name_of(session)}: {done} of {due} records precede {watermark}")
        place = bisect_right(sequences, (watermark.complete_ns, 2**63))
        after = sequences[place - 1][1] if place else 1
        if after != watermark.next_sequence or watermark.stripe != self.stripe:
            raise InvariantBroken("watermark", f"{name_of(session)}: {watermark}, but the sequence there is {after}")


def _place(out: Outgoing) -> str:
    return f"{name_of(out.session)}/{out.sequence}"


def name_of(session: bytes) -> str:
    return session.decode().rstrip()


# -- plans and instruments --------------------------------------------------------------------------------


def draw_plan(rng: Random, stripe: int) -> SessionMap:
    """Draw one to three sessions of two instruments each; sometimes one is the default for other instruments."""
    names = [session_name(f"S{stripe}-{letter}") for letter in "ABC"[: rng.choice((1, 2, 2, 3))]]
    listed = instruments_of(stripe)[: 2 * len(names)]
    return SessionMap({each: names[i % len(names)] for i, each in enumerate(listed)}, rng.choice((None, *names)))


def draw_channel_plan(rng: Random, stripe: int, number: int) -> ChannelPlan:
    """Draw a plan with one to three sessions, to be sent in the sequence."""
    sessions = rng.randint(1, 3)
    pairs = [(each, rng.randrange(sessions)) for each in instruments_of(stripe)]
    groups = [rng.randrange(3) for _ in range(sessions)]
    return build_channel_plan(number, pairs, groups, default=rng.randrange(sessions))


def one_session(stripe: int) -> SessionMap:
    """Return the plan that is active before the first one in the sequence."""
    return SessionMap({}, session_name(f"S{stripe}"))


def instruments_of(stripe: int) -> list[int]:
    return list(range(10 * stripe + 1, 10 * stripe + 7))


def draw_instrument(rng: Random, stripe: int) -> int:
    """Draw an instrument: usually one of the stripe's, sometimes 0 (sent to every session) or an unplanned one."""
    draw = rng.random()
    if draw < 0.03:
        return 0
    return UNPLANNED if draw < 0.06 else rng.choice(instruments_of(stripe))

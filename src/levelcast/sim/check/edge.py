"""What the sessions of a stripe must be: the trades of a simulated history, and the tape that edges must follow."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from levelcast.edge.server.packetizer import Outgoing, SessionMap
from levelcast.records import RTYPE_SYSTEM, RTYPE_TRADE, each_record, trades
from levelcast.sim.check.ring import Checker, InvariantBroken
from levelcast.sim.engine.disk import stamped_content
from levelcast.wire import mold
from levelcast.wire.channel_plan import ChannelPlan, Kind, build_channel_plan, decode_record, session_of
from levelcast.wire.mold import session_name
from levelcast.wire.watermark import decode_watermark

UNPLANNED = 99
"""An instrument that no plan has: its records go nowhere."""

_TRADE = bytearray(trades(1).tobytes())
_SET = struct.Struct("<HIQq")
_SET_AT = 2
_TRADE_ID = struct.Struct("<Q")
_TRADE_ID_AT = 48


def trade(floor: int, instrument: int, number: int, at_ns: int) -> bytes:
    """One trade as its floor sends it; `number` tells it from every other one."""
    _SET.pack_into(_TRADE, _SET_AT, floor, instrument, at_ns, number)
    _TRADE_ID.pack_into(_TRADE, _TRADE_ID_AT, number)
    return bytes(_TRADE)


def stamped(record: bytes) -> tuple[int, int]:
    """Timestamp and sequence of a trade on the tape."""
    return int.from_bytes(record[32:40], "little"), int.from_bytes(record[44:48], "little")


class Key(NamedTuple):
    """A record's place in the one order of all stripes (rule 15)."""

    timestamp_ns: int
    stripe: int
    sequence: int


def instrument_of(record: bytes) -> int:
    return int.from_bytes(record[4:8], "little")


def symbol_of(record: bytes) -> tuple[int, int]:
    """Floor and instrument of a trade."""
    return record[2] | record[3] << 8, instrument_of(record)


class Truth:
    """The sessions of one stripe as they were first sent; every edge and every delivery is held against them."""

    def __init__(self, stripe: int, plan: SessionMap, checker: Checker) -> None:
        self.stripe = stripe
        self.plan = plan
        self.plans: dict[int, ChannelPlan] = {}
        """Those that the operator has sent, by number."""
        self.frames = checker.frames
        self.streams: dict[bytes, list[bytes]] = {session: [] for session in plan.sessions}
        """Each session's records, watermarks among them; the first has number 1."""
        self._trains: dict[tuple[bytes, int], bytes] = {}

    def note(self, name: str, sent: list[Outgoing]) -> list[Outgoing]:
        """Note packets that an edge has numbered, to send them or for its store; return them."""
        for out in sent:
            if not out.records:
                continue
            known = self._trains.setdefault((out.session, out.sequence), out.buffer)
            if known is not out.buffer:
                if known != out.buffer:
                    raise InvariantBroken("one numbering", f"{name} has other bytes at {_place(out)}")
                continue
            stream = self.streams.setdefault(out.session, [])
            if out.sequence != len(stream) + 1:
                raise InvariantBroken("one numbering", f"{name} sends {_place(out)}, {len(stream) + 1} is next")
            for datagram in out.datagrams:
                packet = mold.decode(datagram)
                assert isinstance(packet, mold.EdgePacket)
                stream.extend(each_record(bytes(packet.payload)))
        return sent

    def tape(self) -> Iterator[bytes]:
        """Every trade on the tape, stamped."""
        for frame in self.frames():
            for record in each_record(stamped_content(frame)):
                if record[1] == RTYPE_TRADE:
                    yield record

    def expected(self) -> dict[bytes, list[bytes]]:
        """What the tape has for each session, by the words of the plan and not by the edge's code."""
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
        """The plan that takes effect behind the frame of this record."""
        said = decode_record(record)
        if said is None or said.kind is not Kind.SWAP:
            return None
        plan = self.plans[said.number]
        names = {index: session_of(plan.number, self.stripe, index) for index in plan.used}
        pairs = zip(plan.instruments.tolist(), plan.sessions.tolist(), strict=True)
        return SessionMap({instrument: names[index] for instrument, index in pairs}, names[plan.default])

    def check_end(self) -> None:
        """The sessions are the tape, and the watermarks in them are true."""
        sequences = [(frame.timestamp_ns, frame.first_sequence + frame.records) for frame in self.frames()]
        for session, wanted in self.expected().items():
            done = 0
            times = [stamped(record)[0] for record in wanted]
            over = False
            for record in self.streams.get(session, ()):
                if over:
                    raise InvariantBroken("edge tape", f"{name_of(session)} goes on behind its last record")
                if record[1] == RTYPE_SYSTEM:
                    mark = decode_record(record)
                    over = mark is not None and mark.kind is Kind.LAST
                    if mark is None:
                        self._check_watermark(session, record, times, done, sequences)
                elif done == len(wanted) or record != wanted[done]:
                    what = f"{name_of(session)} has another record {done + 1} than the tape"
                    raise InvariantBroken("edge tape", what)
                else:
                    done += 1

    def number_after(self, session: bytes, trades: int) -> int:
        """The number after so many trades of a session; one that nobody has sent yet if there are fewer."""
        left = trades
        for number, record in enumerate(self.streams.get(session, ()), 1):
            left -= record[1] == RTYPE_TRADE
            if not left:
                return number + 1
        return len(self.streams.get(session, ())) + 1 + left

    def last_prices(self, session: bytes, upto: int) -> dict[tuple[int, int], int]:
        """Per (floor, instrument), the number of its last trade below `upto`."""
        return {
            symbol_of(record): number
            for number, record in enumerate(self.streams[session][: upto - 1], 1)
            if record[1] == RTYPE_TRADE
        }

    def last_records(self, next_global: int) -> list[bytes]:
        """The last trade of each floor and instrument below a sequence, whatever session it is in."""
        below = (record for record in self.tape() if stamped(record)[1] < next_global)
        return sorted({symbol_of(record): record for record in below}.values())

    def _check_watermark(
        self, session: bytes, record: bytes, times: list[int], done: int, sequences: list[tuple[int, int]]
    ) -> None:
        watermark = decode_watermark(record)
        if watermark is None:
            raise InvariantBroken("edge tape", f"{name_of(session)} has a system message that is no watermark")
        due = bisect_right(times, watermark.complete_ns)
        if due != done:
            raise InvariantBroken("watermark", f"{name_of(session)}: {done} of {due} records came before {watermark}")
        place = bisect_right(sequences, (watermark.complete_ns, 2**63))
        after = sequences[place - 1][1] if place else 1
        if after != watermark.next_sequence or watermark.stripe != self.stripe:
            raise InvariantBroken("watermark", f"{name_of(session)}: {watermark}, but the sequence there is {after}")


def _place(out: Outgoing) -> str:
    return f"{name_of(out.session)}/{out.sequence}"


def name_of(session: bytes) -> str:
    return session.decode().rstrip()


# -- what is traded ---------------------------------------------------------------------------------------


def draw_plan(rng: Random, stripe: int) -> SessionMap:
    """One to three sessions of two instruments each; sometimes one of them takes what is not planned."""
    names = [session_name(f"S{stripe}-{letter}") for letter in "ABC"[: rng.choice((1, 2, 2, 3))]]
    listed = instruments_of(stripe)[: 2 * len(names)]
    return SessionMap({each: names[i % len(names)] for i, each in enumerate(listed)}, rng.choice((None, *names)))


def draw_channel_plan(rng: Random, stripe: int, number: int) -> ChannelPlan:
    """A plan for the sequence, of one to three sessions."""
    sessions = rng.randint(1, 3)
    pairs = [(each, rng.randrange(sessions)) for each in instruments_of(stripe)]
    groups = [rng.randrange(3) for _ in range(sessions)]
    return build_channel_plan(number, pairs, groups, default=rng.randrange(sessions))


def one_session(stripe: int) -> SessionMap:
    """The plan before the first one in the sequence."""
    return SessionMap({}, session_name(f"S{stripe}"))


def instruments_of(stripe: int) -> list[int]:
    return list(range(10 * stripe + 1, 10 * stripe + 7))


def draw_instrument(rng: Random, stripe: int) -> int:
    """Mostly one of the stripe's; sometimes none at all, which goes to every session, or one that nobody planned."""
    draw = rng.random()
    if draw < 0.03:
        return 0
    return UNPLANNED if draw < 0.06 else rng.choice(instruments_of(stripe))

"""Timing records at the edge: every session gets those that count, and watermarks state the hold time."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from random import Random
from struct import Struct
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levelcast.edge.server import feed as module
from levelcast.edge.server.feed import Feed, decode_state
from levelcast.edge.server.packetizer import GatherConfig, Outgoing, SessionMap
from levelcast.protocol.history import Frame
from levelcast.protocol.pace import hold_at, with_change
from levelcast.storage.tape.stamps import frame_bytes
from levelcast.wire import mold
from levelcast.wire.messages import Cutoff, Pace, PaceChange
from levelcast.wire.mold import session_name
from levelcast.wire.pace_change import decode_pace_change, encode_pace_change
from levelcast.wire.watermark import Holds, decode_watermark
from tests.edge_parts import each_record
from tests.planned_parts import PlannedTape, some_plan
from tests.tape_parts import SLOT_NS

MS = 1_000_000
FIRST_HOLD_NS = 30 * MS
FIRST = SessionMap({}, session_name("main"))
TWO = SessionMap({1: session_name("A"), 2: session_name("B")}, session_name("A"))
CONFIG = GatherConfig(watermark_ns=2 * SLOT_NS)


def change(version: int, from_ns: int, before_ms: int, hold_ms: int) -> PaceChange:
    return PaceChange(version, from_ns, before_ms * MS, Pace(hold_ms * MS, 25 * MS, (Cutoff(1, 100 * MS),)))


def pace_tape(seed: int) -> tuple[PlannedTape, list[PaceChange]]:
    """Trades with timing records, some of which do not count, and a change of the plan; and those that count."""
    tape, counted = PlannedTape(seed), []
    tape.trade(2)
    holds = [30, 50, 40, 45]
    for version, (before, hold) in enumerate(pairwise(holds), start=1):
        last_ns = tape.frames[-1].timestamp_ns
        good = change(version, last_ns + 100 * SLOT_NS + before * MS, before, hold)
        bad = [change(version + 1, good.from_ns, before, hold), change(version, last_ns, before, hold)]
        records = [encode_pace_change(each) for each in (tape.rng.choice(bad), good, good)]
        tape.trade(1, records)
        counted.append(good)
        while tape.frames[-1].timestamp_ns < good.from_ns + 2 * abs(hold - before) * MS:
            tape.trade(10)
        if version == 2:
            tape.swap(some_plan(1, seed))
    return tape, counted


def play(feed: Feed, frames: Iterable[Frame], chance: Random, hold_ns: int = 0) -> list[Outgoing]:
    out = []
    for frame in frames:
        content = frame_bytes(frame)
        packets = feed.release(frame, content, 0)
        feed.ring_holds(hold_ns)
        if chance.random() < 0.5:
            packets += feed.advance(frame.timestamp_ns + chance.randint(0, SLOT_NS - 1), 0)
        feed.book(packets, content)
        out += packets
    return out


def streams(sent: Iterable[Outgoing]) -> dict[bytes, list[bytes]]:
    found: dict[bytes, list[bytes]] = {}
    for out in sent:
        for datagram in out.datagrams:
            message = mold.decode(datagram)
            if isinstance(message, mold.EdgePacket):
                found.setdefault(message.session, []).extend(each_record(bytes(message.payload)))
    return found


@pytest.mark.parametrize("plan", [FIRST, TWO], ids=["one session", "two sessions"])
@settings(max_examples=25)
@given(seed=st.integers(0, 2**32))
def test_every_session_has_the_timing_records_that_count_and_its_watermarks_state_them(
    plan: SessionMap, seed: int
) -> None:
    tape, counted = pace_tape(seed)
    sent = streams(play(Feed(plan, config=CONFIG, first_hold_ns=FIRST_HOLD_NS), tape.frames, Random(seed)))
    assert len(sent) > len(plan.sessions)
    for session, records in sent.items():
        if session.startswith(b"1/0/*"):
            continue
        known: list[PaceChange] = []
        for record in records:
            if (found := decode_pace_change(record)) is not None:
                known.append(found)
            if (watermark := decode_watermark(record)) is not None and session in plan.sessions:
                last = known[-1] if known else None
                assert watermark.holds == (
                    Holds(FIRST_HOLD_NS, FIRST_HOLD_NS)
                    if last is None
                    else Holds(last.pace.hold_ns, last.before_ns, last.from_ns)
                )
        assert known == (counted[:2] if session in plan.sessions else counted[2:])


def test_a_subscriber_that_joins_knows_the_hold_time_from_the_next_watermark() -> None:
    tape, _ = pace_tape(1)
    sent = streams(play(Feed(FIRST, config=CONFIG, first_hold_ns=FIRST_HOLD_NS), tape.frames, Random(1)))
    changes: list[PaceChange] = []
    for record in (each for records in sent.values() for each in records):
        if (found := decode_pace_change(record)) is not None and found not in changes:
            changes = with_change(changes, found, found.from_ns - found.before_ns - 1)
        if (mark := decode_watermark(record)) is not None:
            holds = mark.holds
            stated = PaceChange(2, holds.from_ns, holds.before_ns, Pace(holds.hold_ns, 0, ()))
            for later_ns in range(mark.complete_ns, mark.complete_ns + 100 * SLOT_NS, SLOT_NS):
                if not changes or changes[-1].from_ns <= later_ns:
                    assert hold_at([stated], later_ns, 0) == hold_at(changes, later_ns, FIRST_HOLD_NS)


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32), cut=st.floats(0, 1))
def test_a_feed_that_was_restored_sends_the_same_timing_records_and_hold_times(seed: int, cut: float) -> None:
    tape, _ = pace_tape(seed)
    at = int(len(tape.frames) * cut)
    whole = Feed(FIRST, config=CONFIG, first_hold_ns=FIRST_HOLD_NS)
    stopped = Feed(FIRST, config=CONFIG, first_hold_ns=FIRST_HOLD_NS)
    before = play(stopped, tape.frames[:at], Random(seed))
    state = decode_state(stopped.checkpoint() if at % 2 else stopped.state())
    again = Feed(FIRST, config=CONFIG, state=state if at else None, first_hold_ns=(7 if at else FIRST_HOLD_NS))
    after = play(again, tape.frames[at:], Random(seed + 1))
    expected = streams(play(whole, tape.frames, Random(seed + 2)))
    found = streams([*before, *after])
    for session, records in expected.items():
        ours = found.get(session, [])
        assert ours[: len(records)] == records[: len(ours)] or session.endswith(b"* ")
        assert abs(len(ours) - len(records)) <= 3


def test_the_hold_time_of_the_ring_counts_until_the_first_timing_record() -> None:
    feed = Feed(FIRST, config=CONFIG)
    tape, counted = pace_tape(3)
    assert feed.holds == Holds()
    play(feed, tape.frames[:1], Random(1), hold_ns=40 * MS)
    assert feed.holds == Holds(40 * MS, 40 * MS)
    play(feed, tape.frames[1:], Random(1), hold_ns=70 * MS)
    assert feed.holds.hold_ns == counted[-1].pace.hold_ns


def test_a_state_of_an_earlier_version_has_no_hold_time() -> None:
    tape, _ = pace_tape(3)
    feed = Feed(FIRST, config=CONFIG)
    play(feed, tape.frames[:2], Random(1))
    content = feed.state()
    state = decode_state(content)
    at = module._HEADER.size + len(state.plans)
    head = bytearray(content[:at])
    head[8:10] = (2).to_bytes(2, "little")
    snapshot = content[at + module._HOLDS.size + Struct("<I").size :]
    old = bytes(head) + crc32(head).to_bytes(4, "little") + snapshot
    assert decode_state(old) == state
    assert Feed(FIRST, config=CONFIG, state=decode_state(old), first_hold_ns=40 * MS).holds.hold_ns == 40 * MS

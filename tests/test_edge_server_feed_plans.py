"""Plans that are replaced on the tape: who starts anywhere sends the same, and every session is whole."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelcast.edge.server.feed import END_TIMES, LINGER_NS, Feed, decode_state
from levelcast.edge.server.packetizer import GatherConfig, Outgoing, SessionMap
from levelcast.edge.server.plan_switch import PlanLimits
from levelcast.protocol.history import Frame
from levelcast.records import RTYPE_SYSTEM, RTYPE_TRADE, instruments, split
from levelcast.storage.tape.stamps import frame_bytes
from levelcast.wire import mold
from levelcast.wire.channel_plan import (
    Kind,
    PlanRecord,
    build_channel_plan,
    decode_record,
    parse_session,
    part_records,
    plan_session,
    session_of,
    swap_record,
)
from levelcast.wire.header import Malformed
from levelcast.wire.messages import CONTROL_SOURCE
from levelcast.wire.mold import session_name
from levelcast.wire.snapshot import decode_snapshot
from tests.edge_parts import each_record
from tests.planned_parts import INSTRUMENTS, PlannedTape, planned_tape, some_plan
from tests.tape_parts import SLOT_NS

MAIN = session_name("main")
FIRST = SessionMap({}, MAIN)
CONFIG = GatherConfig(watermark_ns=4 * SLOT_NS)


def make_feed(state: bytes | None = None, stripe: int = 0) -> Feed:
    return Feed(FIRST, stripe, CONFIG, state=None if state is None else decode_state(state))


def play(feed: Feed, frames: Iterable[Frame], chance: Random) -> list[Outgoing]:
    out = []
    for frame in frames:
        content = frame_bytes(frame)
        packets = feed.release(frame, content, 0)
        feed.book(packets, content)
        out += packets
        if chance.random() < 0.5:
            marks = feed.advance(frame.timestamp_ns + chance.randint(0, SLOT_NS - 1), 0)
            feed.book(marks)
            out += marks
    return out


def payloads(sent: Iterable[Outgoing]) -> dict[bytes, bytes]:
    """The records of each session, which has no hole."""
    found: dict[bytes, bytes] = {}
    numbers: dict[bytes, int] = {}
    for out in sent:
        for datagram in out.datagrams:
            message = mold.decode(datagram)
            if isinstance(message, mold.EdgePacket):
                assert message.sequence == numbers.get(message.session, 1)
                numbers[message.session] = message.sequence + message.records
                found[message.session] = found.get(message.session, b"") + message.payload
    return found


def marks_of(payload: bytes) -> list[PlanRecord]:
    found = (decode_record(record) for record in each_record(payload) if record[1] == RTYPE_SYSTEM)
    return [each for each in found if each is not None]


@given(st.integers(0, 2**32), st.integers(0, 3))
def test_a_feed_that_was_restored_anywhere_sends_what_one_that_never_stopped_sends(seed: int, swaps: int) -> None:
    chance = Random(seed)
    frames = planned_tape(seed, swaps).frames
    steady = make_feed()
    wanted = play(steady, frames, chance)
    saved = chance.randint(1, len(frames) - 1)
    first = make_feed()
    before = play(first, frames[:saved], chance)
    second = make_feed(first.state())
    after = play(second, frames[saved:], chance)
    last_ns = frames[-1].timestamp_ns + SLOT_NS - 1
    wanted += steady.advance(last_ns, 0)
    after += second.advance(last_ns, 0)
    numbered = {(each.session, each.sequence): each.buffer for each in wanted if each.records}
    assert {(each.session, each.sequence): each.buffer for each in before + after if each.records} == numbered
    assert second.snapshot() == steady.snapshot()
    assert second.state() == steady.state()
    assert [second.groups_of(name) for name in second.next_sequences] == [
        steady.groups_of(name) for name in steady.next_sequences
    ]


@pytest.mark.parametrize("booked", [True, False])
def test_a_plan_without_an_instrument_of_an_earlier_frame_is_refused(booked: bool) -> None:
    """Frames may be released together, before any of them is booked."""
    tape = PlannedTape(0)
    new = instruments(1)
    new["instrument_id"], new["publisher_id"], new["raw_symbol"] = INSTRUMENTS + 1, 1, b"NEW"
    tape.trade(3)  # nothing of them is new at the end
    defining = tape.frame([(201, new.tobytes(), 1)])
    for record in part_records(some_plan(1, 0), 0):
        tape.frame([(CONTROL_SOURCE, record, 1)])
    feed = make_feed()
    play(feed, tape.frames[: tape.frames.index(defining)], Random(0))
    for frame in tape.frames[tape.frames.index(defining) :]:
        content = frame_bytes(frame)
        packets = feed.release(frame, content, 0)
        if booked:
            feed.book(packets, content)
    assert feed.plans.ready is None
    assert feed.plans.refused is not None
    assert "misses 1 of the directory's symbols" in feed.plans.refused.reason


@given(st.integers(0, 2**32))
def test_every_trade_is_in_one_session_of_its_plan_and_every_old_session_ends_with_its_mark(seed: int) -> None:
    tape = planned_tape(seed)
    sent = play(make_feed(), tape.frames, Random(seed))
    found = payloads(sent)
    plans = {number: some_plan(number, seed) for number in (1, 2, 3)}
    seen: list[int] = []
    for name, payload in found.items():
        place = parse_session(name)
        marks = marks_of(payload)
        if place is not None and place.session is None:
            assert [mark.part for mark in marks] == list(range(marks[0].parts))
            continue
        number = place.number if place is not None else 0
        kinds = [mark.kind for mark in marks]
        assert kinds == ([Kind.READY, Kind.LAST] if number < 3 else [])
        if number < 3:
            assert decode_record(each_record(payload)[-1]) == marks[-1]
            assert (marks[-1].number, marks[-1].digest) == (number + 1, plans[number + 1].digest)
        for run in split(payload):
            if run.kind.rtype == RTYPE_TRADE:
                seen += run.records["trade_id"].tolist()
                if number:
                    assert place is not None
                    ids = run.records["instrument_id"].tolist()
                    assert all(plans[number].sessions_of([each]) == [place.session] for each in ids)
    assert sorted(seen) == list(range(tape.trades))


def test_the_end_of_old_sessions_is_said_often_and_then_they_are_forgotten() -> None:
    tape = PlannedTape(1)
    plan = some_plan(1, 1)
    tape.swap(plan)
    feed = make_feed()
    sent = play(feed, tape.frames, Random(1))
    (end,) = [out for out in sent if out.session == MAIN and not out.records]
    assert mold.decode(end.buffer) == mold.EndOfSession(MAIN, end.sequence)
    held = feed.retransmitter.held(MAIN)
    assert held is not None
    assert end.sequence == held[1]
    now = tape.frames[-1].timestamp_ns
    said = []
    for _ in range(END_TIMES + 3):
        next_ns = feed.next_ns
        assert next_ns is not None
        now = max(now, next_ns)
        said += [out for out in feed.heartbeats(now) if out.session == MAIN]
    assert len(said) >= END_TIMES
    assert {out.buffer for out in said} == {end.buffer}
    feed.heartbeats(now + LINGER_NS)
    assert feed.retransmitter.held(MAIN) is None
    assert not [out for out in feed.heartbeats(now + 2 * LINGER_NS) if out.session == MAIN]


def test_the_plan_is_a_session_of_its_own_that_can_be_asked_for_after_a_restart() -> None:
    tape = PlannedTape(1)
    plan, following = some_plan(1, 1), some_plan(2, 1)
    tape.swap(plan)
    feed = make_feed()
    play(feed, tape.frames, Random(1))
    again = make_feed(feed.state())
    request = mold.encode(mold.RetransmitRequest(plan_session(1, 0), 1, 9))
    first, second = feed.retransmitter.answer(request), again.retransmitter.answer(request)
    assert first is not None
    assert second == first
    beacon = [out for out in again.heartbeats(10**18) if out.session == plan_session(1, 0)]
    assert [mold.decode(out.buffer) for out in beacon] == [mold.Heartbeat(plan_session(1, 0), 2)]
    groups = {0, *plan.groups[plan.used].tolist()}
    assert set(again.groups_of(plan_session(1, 0))) == groups
    begun = len(tape.frames)
    tape.swap(following)
    play(again, tape.frames[begun:-1], Random(2))
    everywhere = groups | set(following.groups[following.used].tolist())
    assert set(again.groups_of(plan_session(2, 0))) == set(again.groups_of(plan_session(1, 0))) == everywhere
    index = following.used[0]
    assert again.groups_of(session_of(2, 0, index)) == (int(following.groups[index]),)


def test_a_plan_that_does_not_fit_changes_nothing_but_the_refusal() -> None:
    bad = build_channel_plan(1, [(each, 0) for each in range(1, INSTRUMENTS)], [0])
    tape = PlannedTape(1)
    tape.swap(bad)
    feed = make_feed()
    sent = play(feed, tape.frames, Random(1))
    assert {out.session for out in sent} == {MAIN}
    assert marks_of(payloads(sent)[MAIN]) == []
    assert feed.plans.refused is not None
    assert feed.plans.refused.reason == "it was to take effect before it was ready"
    early = make_feed()
    play(early, tape.frames[:-1], Random(1))
    assert early.plans.refused is not None
    assert early.plans.refused.reason == "it misses 1 of the directory's symbols: 12"


def test_limits_refuse_at_the_edge_too() -> None:
    tape = planned_tape(5, 1)
    narrow = Feed(FIRST, 0, CONFIG, limits=PlanLimits(groups=1))
    play(narrow, tape.frames, Random(1))
    wide = Feed(FIRST, 0, CONFIG, limits=PlanLimits(groups=4))
    play(wide, tape.frames, Random(1))
    assert (narrow.plans.number, wide.plans.number) == (0, 1)


def test_a_snapshot_has_the_sessions_of_the_plan_in_force() -> None:
    tape = planned_tape(3, 2)
    feed = make_feed()
    play(feed, tape.frames, Random(1))
    names = [each.session for each in decode_snapshot(feed.snapshot()).sessions]
    assert names == sorted(session_of(2, 0, index) for index in some_plan(2, 3).used)


def test_a_swap_record_may_come_in_one_frame_with_the_plan() -> None:
    tape = PlannedTape(2)
    plan = some_plan(1, 2)
    tape.rng.seed(1)
    tape.frame([(0, part, 1) for part in [*part_records(plan, 0), swap_record(plan, 0)]])
    feed = make_feed()
    play(feed, tape.frames, Random(1))
    assert feed.plans.number == 1


@given(st.data())
def test_a_damaged_state_is_refused(data: st.DataObject) -> None:
    feed = make_feed()
    play(feed, planned_tape(4, 2).frames, Random(1))
    content = bytearray(feed.state())
    at = data.draw(st.integers(0, len(content) - 1))
    cut = bytes(content[:at])
    content[at] ^= 1 << data.draw(st.integers(0, 7))
    for bad in (bytes(content), cut):
        with pytest.raises(Malformed):
            decode_state(bad)

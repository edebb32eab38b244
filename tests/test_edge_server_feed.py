"""One feed of many starts: whatever is restored, the bytes are those of a feed that never stopped."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelcast.edge.server.feed import Feed, decode_state
from levelcast.edge.server.packetizer import GatherConfig, Outgoing, SessionMap
from levelcast.protocol.history import Frame
from levelcast.storage.tape.stamps import frame_bytes
from levelcast.wire.header import Malformed
from levelcast.wire.snapshot import decode_snapshot
from tests.edge_parts import ALPHA, BETA
from tests.tape_parts import SLOT_NS, make_frames

EVERYTHING = SessionMap({}, ALPHA)
TWO = SessionMap({1: BETA, 2: BETA}, ALPHA)
CONFIG = GatherConfig(watermark_ns=4 * SLOT_NS)


def play(feed: Feed, frames: list[Frame], chance: Random) -> Iterator[Outgoing]:
    for frame in frames:
        content = frame_bytes(frame)
        packets = feed.release(frame, content, 0)
        feed.book(packets, content)
        yield from packets
        if chance.random() < 0.5:
            marks = feed.advance(frame.timestamp_ns + chance.randint(0, SLOT_NS - 1), 0)
            feed.book(marks)
            yield from marks


@given(st.integers(0, 2**32), st.sampled_from([EVERYTHING, TWO]), st.integers(2, 25))
def test_a_feed_that_was_restored_sends_what_one_that_never_stopped_sends(
    seed: int, plan: SessionMap, count: int
) -> None:
    chance = Random(seed)
    frames = make_frames(count, seed=seed % 50)
    steady = Feed(plan, config=CONFIG)
    wanted = list(play(steady, frames, chance))
    saved = chance.randint(1, count - 1)
    first = Feed(plan, config=CONFIG)
    before = list(play(first, frames[:saved], chance))
    second = Feed(plan, config=CONFIG, state=decode_state(first.state()))
    after = list(play(second, frames[saved:], chance))
    last_ns = frames[-1].timestamp_ns + SLOT_NS - 1
    wanted += steady.advance(last_ns, 0)
    after += second.advance(last_ns, 0)
    by_number = {(each.session, each.sequence): each.buffer for each in wanted}
    assert {(each.session, each.sequence): each.buffer for each in before + after} == by_number
    assert len(by_number) == len(wanted) == len(before) + len(after)
    assert second.snapshot() == steady.snapshot()
    assert second.state() == steady.state()


def test_before_the_first_frame_there_are_only_heartbeats() -> None:
    feed = Feed(EVERYTHING, config=CONFIG)
    assert feed.advance(10**18, 0) == []
    assert [(each.sequence, each.records) for each in feed.heartbeats(10**10)] == [(1, 0)]
    snapshot = decode_snapshot(feed.snapshot())
    assert (snapshot.next_global, snapshot.sessions, snapshot.records) == (1, ((ALPHA, 1),), b"")


def test_the_grid_begins_at_the_first_frame() -> None:
    frames = make_frames(3)
    feed = Feed(EVERYTHING, config=CONFIG)
    first = feed.release(frames[0], frame_bytes(frames[0]), 0)
    assert first[0].sequence == 1
    assert first[0].records == sum(packet.records for packet in frames[0].packets)


def test_a_state_of_another_plan_interval_or_stripe_does_not_fit() -> None:
    feed = Feed(EVERYTHING, config=CONFIG)
    list(play(feed, make_frames(2), Random(1)))
    state = decode_state(feed.state())
    assert Feed(EVERYTHING, config=CONFIG).fits(state)
    assert not Feed(TWO, config=CONFIG).fits(state)
    assert not Feed(EVERYTHING).fits(state)
    assert not Feed(EVERYTHING, 1, CONFIG).fits(state)


@given(st.data())
def test_a_damaged_state_is_refused(data: st.DataObject) -> None:
    feed = Feed(EVERYTHING, config=CONFIG)
    list(play(feed, make_frames(2), Random(1)))
    content = bytearray(feed.state())
    at = data.draw(st.integers(0, len(content) - 1))
    cut = bytes(content[:at])
    content[at] ^= 1 << data.draw(st.integers(0, 7))
    for bad in (bytes(content), cut):
        with pytest.raises(Malformed):
            decode_state(bad)

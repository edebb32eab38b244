"""The sending side of an edge as a value: released frames, requests and the time go in, effects come out."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest

from levelcast.edge.server.archive import Archive
from levelcast.edge.server.checkpoints import FeedCheckpoints
from levelcast.edge.server.feed import END_EVERY_NS, END_TIMES, Feed
from levelcast.edge.server.machine import (
    DIG_GAP_NS,
    DIG_PATIENCE_NS,
    SNAPSHOT_AGE_NS,
    EdgeConfig,
    EdgeEffect,
    EdgeServer,
    Multicast,
    Reply,
    SaveState,
)
from levelcast.edge.server.packetizer import GatherConfig, SessionMap
from levelcast.edge.server.retransmit_store import RetransmitConfig
from levelcast.network.model import MulticastGroup
from levelcast.protocol.effects import Release
from levelcast.protocol.history import Frame
from levelcast.sim.edges import SimEdgeFiles
from levelcast.sim.engine.disk import Disk
from levelcast.storage.tape.stamps import frame_bytes
from levelcast.wire import mold
from levelcast.wire.mold import EdgePacket, EndOfSession, Heartbeat, RetransmitRequest
from tests.edge_parts import ALPHA, each_record
from tests.ring_parts import make_config
from tests.tape_parts import SLOT_NS, T0, make_frames

MS = 1_000_000
WEST = MulticastGroup("west", "239.1.1.1", 7)
SLOW = MulticastGroup("slow", "239.1.1.2", 7, rate_bytes=20_000)


class Edge:
    """An edge server with a virtual tape, and everything that it sent."""

    def __init__(self, config: EdgeConfig | None = None, *groups: MulticastGroup, store_bytes: int = 1 << 20) -> None:
        self.now = T0
        self.files = SimEdgeFiles(Disk(make_config(), 1))
        retransmit = RetransmitConfig(store_bytes=store_bytes)
        feed = Feed(SessionMap({}, ALPHA), config=GatherConfig(watermark_ns=4 * SLOT_NS), retransmit=retransmit)
        archive = Archive(feed, FeedCheckpoints(self.files, 40))
        self.server = EdgeServer(archive, self.now, config)
        self.complete_ns = 0
        self.ring_ns: int | None = None
        self.announced = self.server.assign(groups or [WEST], self.now)

    def release(self, frame: Frame, *, late: bool = False, delayed: bool = False) -> list[EdgeEffect]:
        release = Release(frame, frame.timestamp_ns, late, delayed=delayed)
        effects = self.server.released(release, frame_bytes(frame), self.now)
        self.files.disk.tape.frames.append(frame)
        self.complete_ns = frame.timestamp_ns
        return effects

    def step(self, after_ns: int = 0, *requests: tuple[str, RetransmitRequest]) -> list[EdgeEffect]:
        self.now += after_ns
        datagrams = [(subscriber, mold.encode(request)) for subscriber, request in requests]
        effects = self.server.step(datagrams, self.complete_ns, self.now)
        return effects + self.server.work(self.ring_ns, self.now)


def packets(effects: Iterable[EdgeEffect]) -> list[mold.Downstream]:
    sent = [each for each in effects if not isinstance(each, SaveState)]
    return [mold.decode(datagram) for each in sent for datagram in mold.split_train(each.buffer, each.ends)]


def numbered(effects: Iterable[EdgeEffect]) -> dict[int, bytes]:
    return {each.sequence: bytes(each.payload) for each in packets(effects) if isinstance(each, EdgePacket)}


def test_a_group_that_is_added_gets_a_heartbeat_and_one_that_is_kept_does_not() -> None:
    edge = Edge()
    assert packets(edge.announced) == [Heartbeat(ALPHA, 1)]
    (effect,) = edge.server.assign([WEST, SLOW], edge.now)
    assert isinstance(effect, Multicast)
    assert effect.group is SLOW
    assert edge.server.assign([WEST], edge.now) == []


def test_what_a_slot_releases_is_one_effect_for_each_group() -> None:
    other = MulticastGroup("east", "239.1.1.3", 7)
    edge = Edge(None, WEST, other)
    (frame,) = make_frames(1, records=60)
    effects = edge.release(frame)
    assert [effect.group for effect in effects if isinstance(effect, Multicast)] == [WEST, other]
    assert len(effects) == 2
    assert len(packets(effects[:1])) > 1


@pytest.mark.parametrize("late", [True, False])
def test_late_and_delayed_frames_are_paced_and_one_on_time_is_sent_at_once(late: bool) -> None:
    edge = Edge(EdgeConfig(pace_rate=1_000_000, pace_burst=2_000))
    frames = make_frames(40)
    late_ones = [edge.release(frame, late=late, delayed=not late) for frame in frames[:-1]]
    sent = [effect for effects in late_ones for effect in effects]
    assert late_ones[-1] == []
    (at_once,) = edge.release(frames[-1])
    assert min(numbered([at_once])) > max(numbered(sent)) + 1
    began = edge.now
    while edge.server._backlog:
        assert edge.server.wake_ns is not None
        edge.now = edge.server.wake_ns
        sent += edge.step()
    size = sum(len(effect.buffer) for effect in sent if isinstance(effect, Multicast))
    assert (size - 3_400) / 1_000_000 <= (edge.now - began) / 1e9
    found = numbered([*sent, at_once])
    records = [each for _, payload in sorted(found.items()) for each in each_record(payload)]
    assert len(records) == max(found) + len(each_record(found[max(found)])) - 1, "no number is missing"


def test_a_line_with_a_rate_is_woken_for_and_never_gets_more() -> None:
    edge = Edge(None, SLOW)
    sent = [effect for frame in make_frames(30) for effect in edge.release(frame)]
    began, size = edge.now, sum(len(effect.buffer) for effect in sent if isinstance(effect, Multicast))
    ((where, line),) = edge.server.lines.items()
    assert where == (SLOW, 0)
    for _ in range(1_000):
        if not line.behind_ns:
            break
        assert edge.server.wake_ns is not None
        edge.now = max(edge.now + 1, edge.server.wake_ns)
        effects = edge.step()
        size += sum(len(effect.buffer) for effect in effects if isinstance(effect, Multicast))
        assert size <= 1_500 + 1_400 + 20_000 * (edge.now - began) / 1e9
    assert line.behind_ns == 0


def test_answers_share_the_rate_of_the_line_after_releases_and_are_not_queued_twice() -> None:
    edge = Edge(None, SLOW)
    frames = make_frames(30)
    for frame in frames[:20]:
        edge.release(frame)
    while edge.step(20 * MS) or edge.server.lines[SLOW, 0].behind_ns:
        pass
    began, size = edge.now, 0
    for frame in frames[20:]:
        edge.release(frame)
    wanted = RetransmitRequest(ALPHA, 1, 60)
    kinds: list[type[EdgeEffect]] = []
    for turn in range(2_000):
        effects = edge.step(1 * MS, *([("subscriber", wanted)] if turn < 50 else []))
        size += sum(len(each.buffer) + 28 * len(each.ends) // 4 for each in effects if not isinstance(each, SaveState))
        assert size <= 1_500 + 1_500 + 20_000 * (edge.now - began) / 1e9, "answers count"
        kinds += [type(each) for each in effects if numbered([each])]
    assert Reply in kinds
    assert Multicast not in kinds[kinds.index(Reply) :][:-20], "releases first"
    assert edge.server.lines[SLOW, 0].behind_ns == 0


def test_heartbeats_when_nothing_is_released_and_ends_when_told() -> None:
    edge = Edge()
    assert edge.server.wake_ns == T0 + 1_000 * MS
    assert packets(edge.step(1_000 * MS)) == [Heartbeat(ALPHA, 1)]
    edge.server.end_sessions()
    ends = [each for _ in range(10) for each in packets(edge.step(END_EVERY_NS))]
    assert ends == [EndOfSession(ALPHA, 1)] * END_TIMES
    assert edge.release(make_frames(1)[0]) == []


def test_a_request_is_answered_alone_and_several_for_the_same_by_the_group() -> None:
    edge = Edge()
    for frame in make_frames(10):
        edge.release(frame)
    edge.step()
    wanted = RetransmitRequest(ALPHA, 1, 5)
    replies = edge.step(MS, ("one", wanted), ("two", wanted), ("three", wanted))
    assert [type(each) for each in replies] == [Reply, Multicast]
    assert isinstance(replies[0], Reply)
    assert replies[0].to == "one"
    status = edge.server.status()
    assert (status["requests"], status["shared"], status["to_group"]) == (3, 2, 1)


def test_requests_that_are_too_many_for_a_step_stay_where_they_are() -> None:
    edge = Edge(EdgeConfig(max_requests=2, max_read=5))
    request = mold.encode(RetransmitRequest(ALPHA, 1, 1))
    waiting = iter([(number, request) for number in range(9)])
    edge.server.step(waiting, 0, edge.now)
    assert len(list(waiting)) == 7
    edge = Edge(EdgeConfig(max_of_one=1, max_read=5))
    waiting = iter([(1, request)] * 9)
    edge.server.step(waiting, 0, edge.now)
    assert len(list(waiting)) == 4
    assert edge.server.status()["refused"] == {"unknown session": 1, "too fast": 4}


@pytest.mark.parametrize("seed", range(4))
def test_what_has_left_the_store_comes_from_the_tape(seed: int) -> None:
    edge, chance = Edge(store_bytes=1_400), Random(seed)
    sent: list[EdgeEffect] = []
    for frame in make_frames(60, seed):
        sent += edge.release(frame) + edge.step(5 * MS)
    records = {
        number: record
        for sequence, payload in numbered(sent).items()
        for number, record in enumerate(each_record(payload), sequence)
    }
    for _ in range(20):
        first = chance.randint(1, len(records) - 60)
        effects = edge.step(MS, ("one", RetransmitRequest(ALPHA, first, 5)))
        while not effects:
            assert edge.server.wake_ns == edge.now
            effects = edge.step()
        (reply,) = effects
        assert isinstance(reply, Reply)
        found = [each for _, payload in sorted(numbered([reply]).items()) for each in each_record(payload)]
        assert found == [records[number] for number in range(first, first + 5)]
    assert edge.server.status()["from_tape"] > 0
    assert edge.files.checkpoints


def test_the_tape_is_not_read_when_the_ring_is_about_to_be_due() -> None:
    edge = Edge(store_bytes=1_400)
    for frame in make_frames(60):
        edge.release(frame)
        edge.step(5 * MS)
    edge.server._dug_ns = edge.now
    edge.ring_ns = edge.now + DIG_GAP_NS // 2
    assert edge.step(0, ("one", RetransmitRequest(ALPHA, 1, 5))) == []
    assert edge.server.wake_ns is not None
    assert edge.server.wake_ns > edge.ring_ns
    edge.ring_ns = edge.now + DIG_PATIENCE_NS  # it is always due
    assert edge.server.archive.counts.slices == 0
    edge.step(DIG_PATIENCE_NS)
    assert edge.server.archive.counts.slices == 1


def test_the_state_is_saved_every_so_many_frames_and_at_the_end() -> None:
    edge = Edge(EdgeConfig(save_frames=4))
    saved = []
    for frame in make_frames(10):
        edge.release(frame)
        saved += [each.keep_previous for each in edge.step(5 * MS) if isinstance(each, SaveState)]
    assert saved == [True, True]
    (last,) = edge.server.close(edge.now)
    assert isinstance(last, SaveState)
    assert not last.keep_previous
    assert last.content == edge.server.feed.state()


def test_one_snapshot_serves_all_for_a_while() -> None:
    edge = Edge()
    first = edge.server.snapshot(edge.now)
    edge.release(make_frames(1)[0])
    edge.step()
    assert edge.server.snapshot(edge.now + SNAPSHOT_AGE_NS) is first
    assert edge.server.snapshot(edge.now + SNAPSHOT_AGE_NS + 1) != first

"""The customer gets every record once and in order, whatever the network does; or is told what is missing."""

from __future__ import annotations

import heapq
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levelcast import native, records
from levelcast.edge.server.packetizer import GatherConfig, Outgoing, Packetizer, SessionMap
from levelcast.edge.server.retransmit_store import RetransmitConfig, Retransmitter
from levelcast.edge.subscriber.delivery import (
    Ask,
    Complete,
    Deliver,
    Effect,
    Ended,
    Grade,
    Lost,
    Stuck,
    SubscriberConfig,
)
from levelcast.edge.subscriber.session_reader import SessionReader
from levelcast.wire import mold
from levelcast.wire.header import Reason
from levelcast.wire.mold import Block, EndOfSession, Heartbeat, RetransmitRequest
from tests.edge_parts import ALPHA, BETA, GAMMA, KINDS, each_record, payloads, with_ids

MS = 1_000_000
PLAN = SessionMap({1: ALPHA, 2: ALPHA, 3: BETA, 4: BETA, 5: GAMMA, 6: ALPHA})
BEST_EFFORT = SubscriberConfig(Grade.BEST_EFFORT)


def packet(first: int, count: int = 1, session: bytes = ALPHA) -> bytes:
    """Trades whose `ts_event` is their sequence."""
    numbered = [(KINDS[0], 1, 1)] * (first + count)
    payload = b"".join(each_record(with_ids(numbered))[first : first + count])
    (datagram,) = mold.encode_payload(session, first, payload)
    return datagram


def delivered(effects: list[Effect]) -> list[int]:
    """The sequences of delivered trades, after checking that each record is the one of its sequence."""
    found = []
    for effect in effects:
        if isinstance(effect, Deliver):
            for number, record in enumerate(each_record(effect.payload), effect.sequence):
                assert int.from_bytes(record[8:16], "little") == number
                found.append(number)
    return found


def asks(effects: list[Effect]) -> list[tuple[int, int, int]]:
    """(attempt, first, count) of each request."""
    found = []
    for effect in effects:
        if isinstance(effect, Ask):
            request = mold.decode_request(effect.datagram)
            assert request.session == effect.session
            found.append((effect.attempt, request.sequence, request.messages))
    return found


# -- one step at a time -----------------------------------------------------------------------------------


def test_neighbouring_packets_are_one_batch() -> None:
    effects = SessionReader().receive([packet(1, 3), packet(4), packet(5, 2)], 0)
    assert [effect[:4] for effect in effects] == [(ALPHA, 1, 6, 64)]
    assert delivered(effects) == [1, 2, 3, 4, 5, 6]


def test_packets_that_overtake_are_put_in_order_without_asking() -> None:
    customer = SessionReader()
    assert delivered(customer.receive([packet(1)], 0)) == [1]
    assert customer.receive([packet(3), packet(4)], 0) == []
    assert customer.next_ns == MS
    assert delivered(customer.receive([packet(2)], 5)) == [2, 3, 4]
    assert customer.next_ns is None
    assert (customer.counts.gaps, customer.counts.requests) == (1, 0)


def test_a_hole_is_asked_for_again_and_again_then_reported() -> None:
    customer = SessionReader({ALPHA: 1}, SubscriberConfig(attempts=2))
    customer.receive([packet(4, 2), packet(9)], 0)
    assert customer.wake(MS - 1) == []
    assert asks(customer.wake(MS)) == [(0, 1, 3), (0, 6, 3)]
    assert customer.next_ns == 21 * MS
    assert asks(customer.wake(21 * MS)) == [(1, 1, 3), (1, 6, 3)]
    effects = customer.wake(41 * MS)
    assert effects[0] == Stuck(ALPHA, 1, 3)
    assert asks(effects) == [(2, 1, 3), (2, 6, 3)]
    assert customer.next_ns == 241 * MS  # slower from here on
    assert not [effect for effect in customer.wake(241 * MS) if isinstance(effect, Stuck)]
    assert delivered(customer.receive([packet(1, 3)], 242 * MS)) == [1, 2, 3, 4, 5]
    assert asks(customer.wake(243 * MS)) == [(0, 6, 3)]


def test_the_caller_may_skip_what_does_not_come() -> None:
    customer = SessionReader({ALPHA: 1})
    customer.receive([packet(4)], 0)
    effects = customer.skip(ALPHA, 0)
    assert effects[0] == Lost(ALPHA, 1, 3)
    assert delivered(effects) == [4]
    assert customer.next_ns is None
    assert customer.skip(ALPHA, 0) == []


def test_a_heartbeat_shows_what_is_missing_at_the_end() -> None:
    customer = SessionReader()
    customer.receive([packet(1), mold.encode(Heartbeat(ALPHA, 2))], 0)
    assert customer.next_ns is None
    customer.receive([mold.encode(Heartbeat(ALPHA, 5))], 0)
    assert asks(customer.wake(MS)) == [(0, 2, 3)]


def test_a_late_joiner_begins_where_it_says_or_where_it_comes_in() -> None:
    customer = SessionReader({ALPHA: 3, BETA: None})
    effects = customer.receive([packet(2, 2), packet(7, 1, BETA), packet(1, 1, GAMMA)], 0)
    assert delivered(effects) == [3, 7]
    assert (customer.position(ALPHA), customer.position(BETA), customer.position(GAMMA)) == (4, 8, None)
    assert customer.counts.foreign == 1


def test_what_is_not_wanted_is_dropped_by_its_header_unopened(monkeypatch: pytest.MonkeyPatch) -> None:
    customer = SessionReader({ALPHA: 1})
    opened: list[bytes] = []

    def decode(datagram: mold.Buffer, real: Callable[[mold.Buffer], mold.Downstream] = mold.decode) -> mold.Downstream:
        opened.append(bytes(datagram[: mold.SESSION_SIZE]))
        return real(datagram)

    monkeypatch.setattr(mold, "decode", decode)
    blocks = native.join_molds([packet(1, 2, BETA), packet(3, 2, BETA), packet(1, 1, ALPHA)], Block)
    heartbeat = mold.encode(Heartbeat(BETA, 9))
    broken = packet(5, 1, BETA)[:-1]
    effects = customer.receive([*blocks, heartbeat, broken, memoryview(packet(5, 1, BETA)), packet(2)], 0)
    assert delivered(effects) == [1, 2]
    assert customer.counts.foreign == 2 + 3
    assert customer.counts.foreign_messages == 4 + 0 + 1 + 1
    assert opened == [ALPHA]
    assert not customer.counts.malformed
    assert customer.position(BETA) is None
    customer.receive([packet(1, 1, BETA)[: mold.HEADER_SIZE - 1], packet(3)[:-1]], 0)
    assert sum(customer.counts.malformed.values()) == 2  # too short for a header, and a wanted one


def test_overlaps_are_trimmed_and_counted() -> None:
    customer = SessionReader({ALPHA: 1})
    effects = customer.receive([packet(1, 4), packet(3, 4), packet(2, 2), packet(9, 2), packet(9, 3), packet(9)], 0)
    assert delivered(effects) == [1, 2, 3, 4, 5, 6]
    assert delivered(customer.receive([packet(7, 3)], 0)) == [7, 8, 9, 10, 11]
    assert customer.counts.duplicates == 2 + 2 + 2 + 1 + 1


def test_best_effort_waits_a_moment_then_goes_on() -> None:
    customer = SessionReader({ALPHA: 1}, BEST_EFFORT)
    customer.receive([packet(3), packet(6)], 0)
    effects = customer.wake(MS)
    assert [type(effect) for effect in effects] == [Lost, Deliver, Lost, Deliver]
    assert delivered(effects) == [3, 6]
    assert customer.receive([packet(1, 3), packet(6)], 2 * MS) == []
    counts = customer.counts
    assert (counts.lost, counts.late, counts.duplicates, counts.requests) == (4, 2, 2, 0)


def test_best_effort_believes_data_more_than_heartbeats() -> None:
    customer = SessionReader(None, BEST_EFFORT)
    customer.receive([packet(1), mold.encode(Heartbeat(ALPHA, 2**63))], 0)
    assert customer.wake(10**12) == []
    assert delivered(customer.receive([packet(2)], 10**12)) == [2]


@pytest.mark.parametrize("grade", Grade)
def test_the_end_comes_when_everything_before_it_has(grade: Grade) -> None:
    customer = SessionReader({ALPHA: 1}, SubscriberConfig(grade))
    over = mold.encode(EndOfSession(ALPHA, 4))
    assert customer.receive([packet(1), over, over], 0)[1:] == []
    effects = customer.receive([packet(2, 2), over], 0)
    assert delivered(effects) == [2, 3]
    assert effects[-1] == Ended(ALPHA, 4)
    assert customer.receive([over], 0) == []
    assert customer.next_ns is None


def test_the_end_of_a_session_that_is_whole_already() -> None:
    customer = SessionReader()
    customer.receive([packet(1)], 0)
    assert customer.receive([mold.encode(EndOfSession(ALPHA, 2))], 0) == [Ended(ALPHA, 2)]


def test_best_effort_ends_without_what_is_lost() -> None:
    customer = SessionReader({ALPHA: 1}, BEST_EFFORT)
    customer.receive([packet(1), mold.encode(EndOfSession(ALPHA, 4))], 0)
    assert customer.wake(MS) == [Lost(ALPHA, 2, 2), Ended(ALPHA, 4)]
    assert customer.next_ns is None


@pytest.mark.parametrize("grade", [Grade.GUARANTEED, Grade.BEST_EFFORT])
def test_memory_is_bounded(grade: Grade) -> None:
    customer = SessionReader({ALPHA: 1}, SubscriberConfig(grade, max_waiting=4))
    customer.receive([packet(number) for number in range(2, 12)], 0)
    assert customer.counts.overflow == 6
    if grade is Grade.BEST_EFFORT:
        assert customer.next_ns == 0
        assert delivered(customer.wake(0)) == [2, 3, 4, 5]
    else:
        assert asks(customer.wake(MS)) == [(0, 1, 1), (0, 6, 6)]


def test_more_sessions_than_believable_are_foreign() -> None:
    customer = SessionReader(None, SubscriberConfig(max_sessions=2))
    customer.receive([packet(1, 1, session) for session in (ALPHA, BETA, GAMMA)], 0)
    assert customer.counts.foreign == 1


def test_malformed_packets_are_counted_and_never_delivered() -> None:
    customer = SessionReader()
    good = packet(1)
    unknown_type = good[:23] + b"\x99" + good[24:]
    assert customer.receive([b"", good[:-1], unknown_type, good + b"\0"], 0) == []
    assert customer.counts.malformed == {
        Reason.TOO_SHORT: 1,
        Reason.TRUNCATED_BODY: 1,
        Reason.BAD_FIELD: 1,
        Reason.TRAILING_BYTES: 1,
    }
    assert delivered(customer.receive([good], 0)) == [1]


@given(st.lists(st.binary(max_size=60), max_size=5))
def test_no_packet_is_an_error(datagrams: list[bytes]) -> None:
    customer = SessionReader()
    customer.receive(datagrams, 0)
    customer.wake(10**12)


def test_a_watermark_is_told() -> None:
    gatherer = Packetizer(PLAN, 0, stripe=2)
    out = gatherer.release(50 * MS, 7, with_ids([(KINDS[0], 1, 1)] * 2), 0) + gatherer.advance(250 * MS, 0)
    effects = SessionReader().receive([datagram for each in out for datagram in each.datagrams], 0)
    told = [effect for effect in effects if isinstance(effect, Complete)]
    assert [(each.session, *each.watermark[:3]) for each in told] == [
        (session, 200 * MS, 9, 2) for session in (ALPHA, BETA, GAMMA)
    ]


# -- blocks -----------------------------------------------------------------------------------------------


def block(first: int, *counts: int) -> Block:
    """Packets of so many trades each, joined."""
    datagrams = [packet(first + sum(counts[:i]), count) for i, count in enumerate(counts)]
    (joined,) = native.join_molds(datagrams, Block)
    assert isinstance(joined, Block)
    assert joined.packets == len(counts)
    return joined


def test_a_block_is_delivered_as_it_came() -> None:
    customer = SessionReader({ALPHA: 1})
    whole = block(1, 20, 20, 3)
    (effect,) = customer.receive([whole], 0)
    assert isinstance(effect, Deliver)
    assert effect.payload is whole.payload
    assert (effect.sequence, effect.records) == (1, 43)
    assert (customer.counts.packets, customer.counts.records) == (3, 43)


def test_blocks_and_packets_overlap_in_any_way() -> None:
    customer = SessionReader({ALPHA: 1})
    assert delivered(customer.receive([block(11, 5, 5), packet(9, 4), block(9, 4, 9)], 0)) == []
    assert delivered(customer.receive([block(1, 3, 3), block(5, 4, 4)], 0)) == list(range(1, 22))
    counts = customer.counts
    assert counts.packets == 9
    assert counts.records == 21
    assert counts.duplicates == 10 + 4 + 13 + 6 + 8 - 21
    assert customer.next_ns is None


def test_waiting_is_bounded_by_packets_and_not_by_blocks() -> None:
    customer = SessionReader({ALPHA: 1}, SubscriberConfig(max_waiting=4))
    customer.receive([block(10, 1, 1), block(20, 1, 1)], 0)
    assert customer.counts.overflow == 0
    customer.receive([block(5, 1, 1, 1)], 0)
    assert customer.counts.overflow == 4
    assert delivered(customer.receive([block(1, 4)], 0)) == [1, 2, 3, 4, 5, 6, 7]
    customer.receive([block(10, 1, 1, 1, 1, 1)], 0)  # too many, but it is the only one
    assert delivered(customer.receive([packet(8, 2)], 0)) == [8, 9, 10, 11, 12, 13, 14]
    assert customer.counts.overflow == 4


def test_waiting_is_bounded_by_bytes() -> None:
    customer = SessionReader({ALPHA: 1}, SubscriberConfig(max_waiting_bytes=10 * 64))
    customer.receive([block(10, 3, 3), packet(20, 3), packet(30, 3)], 0)
    assert customer.counts.overflow == 1
    assert delivered(customer.receive([packet(1, 9), packet(16, 4)], 0)) == list(range(1, 23))
    assert customer._inboxes[ALPHA].kept == customer._inboxes[ALPHA].kept_bytes == 0


def test_a_large_hole_is_asked_for_in_parts_and_bounded() -> None:
    customer = SessionReader({ALPHA: 1})
    far = mold.encode_payload(ALPHA, 10_001, records.trades(40).tobytes())
    customer.receive([*far[:1], mold.encode(Heartbeat(ALPHA, 12_000))], 0)
    wanted = asks(customer.wake(MS))
    assert wanted == [(0, 1 + 160 * part, 160) for part in range(16)]
    customer.receive(mold.encode_payload(ALPHA, 1, records.trades(9_900).tobytes()), 2 * MS)
    assert asks(customer.wake(3 * MS)) == [(0, 9_901, 100), *((0, 10_021 + 160 * part, 160) for part in range(12)),
                                           (0, 11_941, 59)]  # fmt: skip
    large = SessionReader({ALPHA: 1})
    large.receive(mold.encode_payload(ALPHA, 100_001, records.trades(900).tobytes(), 60_000), 0)
    assert asks(large.wake(MS)) == [(0, 1, 7_200)]


def test_large_blocks_are_not_copied_into_one_batch() -> None:
    customer = SessionReader({ALPHA: 1})
    many = mold.encode_payload(ALPHA, 1, records.trades(3_000).tobytes())
    one, other = (native.join_molds(part, Block)[0] for part in (many[:75], many[75:]))
    effects = [each for each in customer.receive([one, other, *many[:3]], 0) if isinstance(each, Deliver)]
    assert isinstance(one, Block)
    assert isinstance(other, Block)
    assert [each.payload for each in effects] == [one.payload, other.payload]
    assert customer.counts.duplicates == 60


# -- the whole way ----------------------------------------------------------------------------------------


class Lossy:
    """An edge, a retransmit server and a customer, with a network between them that loses, doubles and reorders.

    With `joined` what comes to the customer at one time comes in blocks.
    """

    def __init__(self, seed: int, loss: float, grade: Grade, frames: list[bytes], joined: bool) -> None:
        self.joined = joined
        self.chance = random.Random(seed)
        self.loss = loss
        self.gatherer = Packetizer(PLAN, 0, config=GatherConfig(watermark_ns=20 * MS, heartbeat_ns=50 * MS))
        self.server = Retransmitter(RetransmitConfig(reply_packets=2))
        self.customer = SessionReader(
            dict.fromkeys(PLAN.sessions, 1), SubscriberConfig(grade, retry_ns=7 * MS, attempts=10**6)
        )
        self.sent: dict[bytes, list[bytes]] = {session: [] for session in PLAN.sessions}
        self.got: dict[bytes, list[bytes | None]] = {session: [] for session in PLAN.sessions}
        self.ended: set[bytes] = set()
        self.wire: list[tuple[int, int, str, bytes]] = []
        self.count = 0
        self.frames = frames

    def carry(self, now: int, to: str, datagram: bytes) -> None:
        for _ in range(self.chance.choice((1, 1, 1, 2))):
            if self.chance.random() >= self.loss:
                self.count += 1
                heapq.heappush(self.wire, (now + self.chance.randint(0, 5 * MS), self.count, to, datagram))

    def multicast(self, now: int, out: list[Outgoing]) -> None:
        self.server.keep(out)
        for each in out:
            for datagram in each.datagrams:
                if each.records:
                    found = mold.decode(datagram)
                    assert isinstance(found, mold.EdgePacket)
                    self.sent[each.session] += each_record(found.payload)
                self.carry(now, "customer", datagram)

    def note(self, now: int, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Deliver):
                got = self.got[effect.session]
                assert effect.sequence == len(got) + 1
                assert effect.records == len(each_record(effect.payload))
                got += each_record(effect.payload)
            elif isinstance(effect, Lost):
                assert effect.sequence == len(self.got[effect.session]) + 1
                self.got[effect.session] += [None] * effect.messages
            elif isinstance(effect, Ask):
                self.carry(now, "server", effect.datagram)
            elif isinstance(effect, Complete):
                self.check_complete(effect)
            elif isinstance(effect, Ended):
                assert len(self.got[effect.session]) == effect.sequence - 1
                self.ended.add(effect.session)

    def check_complete(self, complete: Complete) -> None:
        """Nothing that was sent before the watermark is still to come."""
        text = f"levelcast complete to {complete.watermark.complete_ns}".encode()
        place = next(i for i, record in enumerate(self.sent[complete.session]) if text + b"\0" in record)
        assert len(self.got[complete.session]) > place

    def run(self) -> None:
        for step in range(3_000):
            now = (step + 1) * MS
            if step < 10 * len(self.frames):
                if step % 10 == 0:
                    self.multicast(now, self.gatherer.release(now, 1, self.frames[step // 10], now))
                self.multicast(now, self.gatherer.advance(now, now) + self.gatherer.heartbeats(now))
            elif step % 10 == 0:
                self.multicast(now, self.gatherer.end())
            arrived: list[bytes] = []
            while self.wire and self.wire[0][0] <= now:
                _, _, to, datagram = heapq.heappop(self.wire)
                if to == "customer" and self.joined:
                    arrived.append(datagram)
                elif to == "customer":
                    self.note(now, self.customer.receive([datagram], now))
                else:
                    answer = self.server.answer(datagram)
                    for reply in answer.datagrams if answer is not None else ():
                        self.carry(now, "customer", reply)
            if self.chance.random() < 0.5:
                arrived.sort(key=lambda each: each[:18])  # so that there is more to join
            self.note(now, self.customer.receive(native.join_molds(arrived, Block), now))
            if (due := self.customer.next_ns) is not None and due <= now:
                self.note(now, self.customer.wake(now))
            if len(self.ended) == len(PLAN.sessions):
                return
        raise AssertionError("the sessions did not end")


@settings(max_examples=40)
@given(
    st.integers(0, 2**32),
    st.sampled_from([0.0, 0.05, 0.3, 0.6]),
    st.lists(payloads(60), min_size=1, max_size=12),
    st.booleans(),
)
def test_whatever_the_network_does_every_record_comes_once_in_order(
    seed: int, loss: float, frames: list[bytes], joined: bool
) -> None:
    story = Lossy(seed, loss, Grade.GUARANTEED, frames, joined)
    story.run()
    assert story.got == story.sent
    assert story.customer.counts.lost == story.customer.counts.late == 0


@settings(max_examples=20)
@given(
    st.integers(0, 2**32),
    st.sampled_from([0.0, 0.3]),
    st.lists(payloads(60), min_size=1, max_size=12),
    st.booleans(),
)
def test_best_effort_says_exactly_what_it_lost(seed: int, loss: float, frames: list[bytes], joined: bool) -> None:
    story = Lossy(seed, loss, Grade.BEST_EFFORT, frames, joined)
    story.run()
    for session, sent in story.sent.items():
        assert len(story.got[session]) == len(sent)
        assert all(mine is None or mine == theirs for mine, theirs in zip(story.got[session], sent, strict=True))
    assert story.customer.counts.lost == sum(got.count(None) for got in story.got.values())
    assert story.customer.counts.requests == 0


def test_a_request_for_more_than_it_can_say_is_cut() -> None:
    customer = SessionReader({ALPHA: 1})
    customer.receive([mold.encode(Heartbeat(ALPHA, 10**9))], 0)
    (ask,) = customer.wake(MS)
    assert isinstance(ask, Ask)
    assert mold.decode_request(ask.datagram) == RetransmitRequest(ALPHA, 1, 0xFFFF)


def test_the_example_of_the_docs_runs(capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).resolve().parents[1] / "docs" / "edge-internals.md").read_text(encoding="utf-8")
    example = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[-1]
    exec(compile(example, "docs/edge-internals.md", "exec"), {})
    assert capsys.readouterr().out.splitlines() == ["1 20 trade", "21 30 trade"]

"""Customers over plans that are replaced, with loss and disorder: each record once, in order, in the right groups."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from levelcast.edge.server.feed import Feed
from levelcast.edge.server.packetizer import GatherConfig, Outgoing, SessionMap
from levelcast.edge.server.retransmit_store import RetransmitConfig, Retransmitter
from levelcast.edge.subscriber.delivery import Ask, Complete, Deliver, Ended, Grade, Lost, Stuck, SubscriberConfig
from levelcast.edge.subscriber.merge import Merger
from levelcast.edge.subscriber.plan_follower import (
    Closed,
    Followed,
    Happening,
    JoinGroup,
    Leave,
    PlanFollower,
    Replaced,
)
from levelcast.protocol.history import Frame
from levelcast.records import RTYPE_STATUS, RTYPE_SYSTEM, RTYPE_TRADE, split
from levelcast.storage.tape.stamps import frame_bytes
from levelcast.wire.channel_plan import build_channel_plan, part_records, session_of
from levelcast.wire.mold import Block, session_name
from levelcast.wire.snapshot import decode_snapshot
from tests.planned_parts import INSTRUMENTS, PlannedTape, planned_tape, some_plan
from tests.tape_parts import SLOT_NS, T0

MAIN = session_name("main")
STRIPES = {MAIN: 0, session_name("second"): 1}
CONFIG = GatherConfig(watermark_ns=4 * SLOT_NS)
MS = 1_000_000
Pair = tuple[int, int]


class Customer:
    """A follower, what it was given, and what that says."""

    def __init__(self, stage: Stage, follower: PlanFollower, wanted: Collection[int] | None, loss: float) -> None:
        self.stage = stage
        self.follower = follower
        self.wanted = None if wanted is None else set(wanted)
        self.loss = loss
        self.joined = {0}
        self.got: list[Pair] = []
        """The trades that were handed on, by stripe and id, and the halts as negative ones."""
        self.merged: list[Pair] = []
        self.events: list[Happening] = []
        self._stripe_of: dict[bytes, int] = {}
        self._merger = Merger()

    def perform(self, effects: list[Happening]) -> None:
        for effect in effects:
            if isinstance(effect, Ask):
                self.stage.ask(self, effect)
            elif isinstance(effect, JoinGroup):
                assert effect.group not in self.joined
                self.joined.add(effect.group)
            elif isinstance(effect, Leave):
                self.joined.remove(effect.group)
            elif isinstance(effect, Followed):
                self._stripe_of |= dict.fromkeys(effect.sessions, effect.stripe)
                self._merger.follow(effect.sessions, effect.stripe, effect.complete_ns)
            elif isinstance(effect, Closed):
                self._merger.end(effect.session)
            elif isinstance(effect, Complete):
                self._merger.complete(effect.session, effect.watermark)
            elif isinstance(effect, Deliver):
                for run in split(effect.payload):
                    if run.kind.rtype != RTYPE_SYSTEM:
                        self.got += self._pairs(self._stripe_of[effect.session], run)
                        self._merger.take(effect.session, run.kind, run.records)
            else:
                self.events.append(effect)
        assert self.joined == set(self.follower.groups)
        for merged in self._merger.ready():
            self.merged += self._pairs(merged.stripe, merged)

    def _pairs(self, stripe: int, run: object) -> list[Pair]:
        records = run.records  # type: ignore[attr-defined]
        kind = run.kind  # type: ignore[attr-defined]
        wanted = [self.wanted is None or each in self.wanted or not each for each in records["instrument_id"].tolist()]
        if kind.rtype == RTYPE_TRADE:
            return [(stripe, each) for each, mine in zip(records["trade_id"].tolist(), wanted, strict=True) if mine]
        if kind.rtype == RTYPE_STATUS:
            return [(stripe, -each) for each in records["ts_event"].tolist()]
        return []


class Stage:
    """Edges that send what tapes say, and a network that loses, doubles and delays."""

    def __init__(self, tapes: Mapping[int, PlannedTape], seed: int) -> None:
        self.rng = Random(f"stage {seed}")
        self.now = T0
        self.customers: list[Customer] = []
        self.feeds = {stripe: Feed(SessionMap({}, _name(stripe)), stripe, CONFIG) for stripe in tapes}
        self.tapes = tapes
        self.archives = {stripe: Retransmitter(RetransmitConfig(1 << 30)) for stripe in tapes}
        """What the tape has: everything that was sent."""
        self._flying: list[tuple[int, int, Customer, bytes]] = []
        self._number = 0

    def customer(
        self, wanted: Collection[int] | None, loss: float = 0.2, start: Mapping[bytes, int] | None = None,
        grade: Grade = Grade.GUARANTEED, sessions: Collection[bytes] | None = None,
    ) -> Customer:  # fmt: skip
        stripes = {name: stripe for name, stripe in STRIPES.items() if stripe in self.tapes}
        follower = PlanFollower(wanted, stripes, sessions, start, SubscriberConfig(grade))
        self.customers.append(made := Customer(self, follower, wanted, loss))
        return made

    def send(self, stripe: int, sent: list[Outgoing], *, sure: bool = False) -> None:
        groups = self.feeds[stripe].groups_of
        for out in sent:
            where = set(groups(out.session))
            for customer in self.customers:
                if where & customer.joined:
                    for datagram in out.datagrams:
                        self._fly(customer, datagram, sure=sure)

    def _fly(self, customer: Customer, datagram: bytes, *, sure: bool = False) -> None:
        chance = self.rng.random()
        if customer.loss >= 1:
            return
        for _ in range(1 if sure or customer.loss <= chance < 1 - customer.loss / 4 else 0 if chance < 0.5 else 2):
            self._number += 1
            delay_ns = self.rng.choice((0, 0, 0, MS, 3 * MS)) if customer.loss else 0
            heapq.heappush(self._flying, (self.now + delay_ns, self._number, customer, datagram))

    def ask(self, customer: Customer, ask: Ask) -> None:
        for archive in self.archives.values():
            if self.rng.random() > customer.loss and archive.held(ask.session) is not None:
                found = archive.answer(ask.datagram)
                for datagram in found.datagrams if found is not None else ():
                    self._fly(customer, datagram)

    def run_to(self, until_ns: int) -> None:
        """Let time pass: packets arrive, customers wake."""
        while True:
            times = [each for c in self.customers if (each := c.follower.next_ns) is not None]
            if self._flying:
                times.append(self._flying[0][0])
            at = min(times, default=until_ns)
            if at >= until_ns:
                break
            self.now = max(self.now, at)
            arrived: dict[int, list[bytes | Block]] = {}
            while self._flying and self._flying[0][0] <= self.now:
                _, _, customer, datagram = heapq.heappop(self._flying)
                arrived.setdefault(self.customers.index(customer), []).append(datagram)
            for number, customer in enumerate(self.customers):
                if number in arrived:
                    customer.perform(customer.follower.receive(arrived[number], self.now))
                next_ns = customer.follower.next_ns
                if next_ns is not None and next_ns <= self.now:
                    customer.perform(customer.follower.wake(self.now))
        self.now = max(self.now, until_ns)

    def announce(self) -> None:
        for stripe, feed in self.feeds.items():
            self.send(stripe, feed.heartbeats(self.now), sure=True)
        self.run_to(self.now + 10 * MS)

    def play(self, frames: Mapping[int, list[Frame]] | None = None) -> None:
        tapes = frames or {stripe: tape.frames for stripe, tape in self.tapes.items()}
        queue = sorted((frame.timestamp_ns, stripe, frame) for stripe, some in tapes.items() for frame in some)
        for timestamp_ns, stripe, frame in queue:
            self.run_to(timestamp_ns + SLOT_NS)
            feed, content = self.feeds[stripe], frame_bytes(frame)
            packets = feed.release(frame, content, self.now)
            feed.book(packets, content)
            self.archives[stripe].keep(packets)
            self.send(stripe, packets)
            self.beat()

    def beat(self) -> None:
        for stripe, feed in self.feeds.items():
            later = [frame.timestamp_ns for frame in self.tapes[stripe].frames if frame.slot > feed.slot]
            marks = feed.advance(min([self.now - SLOT_NS, *later[:1]]) - 1, self.now)
            feed.book(marks)
            self.archives[stripe].keep(marks)
            self.send(stripe, marks)
            if (next_ns := feed.next_ns) is not None and next_ns <= self.now:
                self.send(stripe, feed.heartbeats(self.now))

    def settle(self, seconds: int = 8) -> None:
        for _ in range(seconds * 2):
            self.run_to(self.now + 500 * MS)
            self.beat()


def _name(stripe: int) -> bytes:
    return next(name for name, number in STRIPES.items() if number == stripe)


def trades_of(tapes: Mapping[int, PlannedTape], wanted: Collection[int] | None, *, merged: bool) -> list[Pair]:
    """What a customer should get of some tapes; `merged` in the order of all."""
    lines = []
    for stripe, tape in tapes.items():
        for frame in tape.frames:
            for place, run in enumerate(split(bytes(frame_bytes(frame)))):
                if run.kind.rtype == RTYPE_TRADE:
                    pairs = zip(run.records["instrument_id"].tolist(), run.records["trade_id"].tolist(), strict=True)
                    lines += [
                        (frame.timestamp_ns, stripe, place, (stripe, trade))
                        for instrument, trade in pairs
                        if wanted is None or instrument in wanted
                    ]
    return [line[-1] for line in (sorted(lines) if merged else lines)]


def halts_of(tapes: Mapping[int, PlannedTape]) -> list[Pair]:
    return [
        (stripe, -each)
        for stripe, tape in tapes.items()
        for frame in tape.frames
        for run in split(bytes(frame_bytes(frame)))
        if run.kind.rtype == RTYPE_STATUS
        for each in run.records["ts_event"].tolist()
    ]


def assert_whole(stage: Stage, customer: Customer) -> None:
    """Nothing lost, nothing doubled, every stripe's instruments in order, and all of it merged."""
    wanted = customer.wanted
    got = [pair for pair in customer.got if pair[1] >= 0]
    assert sorted(got) == sorted(trades_of(stage.tapes, wanted, merged=False))
    instrument_of = {
        (stripe, trade): instrument
        for stripe, tape in stage.tapes.items()
        for frame in tape.frames
        for run in split(bytes(frame_bytes(frame)))
        if run.kind.rtype == RTYPE_TRADE
        for instrument, trade in zip(
            run.records["instrument_id"].tolist(), run.records["trade_id"].tolist(), strict=True
        )
    }
    for stripe in stage.tapes:
        for instrument in range(1, INSTRUMENTS + 2):
            mine = [pair for pair in got if pair[0] == stripe and instrument_of[pair] == instrument]
            assert mine == sorted(mine), "an instrument's records keep their order"
    merged = [pair for pair in customer.merged if pair[1] >= 0]
    assert merged == trades_of(stage.tapes, wanted, merged=True)
    assert sorted(pair for pair in customer.merged if pair[1] < 0) == sorted(halts_of(stage.tapes))


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.integers(1, 2), st.integers(0, 3))
def test_nothing_is_lost_or_doubled_however_plans_are_replaced(seed: int, stripes: int, swaps: int) -> None:
    tapes = {stripe: planned_tape(seed, swaps, stripe) for stripe in range(stripes)}
    stage = Stage(tapes, seed)
    rng = Random(seed)
    everything = stage.customer(None)
    some = stage.customer(rng.sample(range(1, INSTRUMENTS + 1), 3))
    one = stage.customer([rng.randint(1, INSTRUMENTS + 1)], loss=0.0)
    stage.announce()
    stage.play()
    stage.settle()
    for customer in (everything, some, one):
        assert_whole(stage, customer)
        assert not any(isinstance(event, Lost) for event in customer.events)
        assert customer.follower.plans == dict.fromkeys(tapes, swaps)
        replaced = [event for event in customer.events if isinstance(event, Replaced)]
        assert sorted(replaced) == [Replaced(stripe, number + 1) for stripe in tapes for number in range(swaps)]


@pytest.mark.parametrize("seed", range(5))
def test_only_the_groups_that_carry_what_is_wanted_are_joined(seed: int) -> None:
    tape = planned_tape(seed, 2)
    stage = Stage({0: tape}, seed)
    customer = stage.customer([3])
    stage.announce()
    stage.play()
    stage.settle()
    plan = some_plan(2, seed)
    assert customer.joined == {int(plan.groups[index]) for index in plan.sessions_of([3])}
    assert set(customer.follower.positions) == {session_of(2, 0, index) for index in plan.sessions_of([3])}


def test_a_customer_that_knows_the_plan_before_it_takes_effect_asks_for_nothing() -> None:
    tape = PlannedTape(7)
    tape.trade(3)
    tape.swap(some_plan(1, 7), 8)
    tape.trade(5)
    stage = Stage({0: tape}, 7)
    customer = stage.customer(None, loss=0.0)
    stage.announce()
    stage.play()
    assert customer.follower.counts.requests == 0
    stage.settle(1)
    assert_whole(stage, customer)


def test_a_customer_that_comes_late_begins_with_the_plan_in_force_and_not_with_one_that_ended() -> None:
    tape = planned_tape(11, 3)
    before = len(tape.frames)
    tape.trade(30)
    stage = Stage({0: tape}, 11)
    stage.play({0: tape.frames[:before]})
    late = stage.customer(None, loss=0.0)
    stage.play({0: tape.frames[before:]})
    stage.settle(5)
    assert late.follower.plans == {0: 3}
    wanted = trades_of({0: tape}, None, merged=False)
    got = [pair for pair in late.got if pair[1] >= 0]
    assert got
    assert sorted(got) == sorted(set(got))
    assert set(wanted[-100:]) <= set(got)
    assert not [event for event in late.events if isinstance(event, Stuck | Lost)]


@example(11005)  # it goes on at the moment when a plan was replaced and the next one is not known yet
@settings(max_examples=40)
@given(st.integers(0, 2**32))
def test_who_goes_on_from_positions_misses_nothing_over_a_swap(seed: int) -> None:
    tape = planned_tape(seed, 3)
    rng = Random(seed)
    cut = rng.randint(1, len(tape.frames) - 1)
    stage = Stage({0: tape}, seed)
    first = stage.customer([2, 5, 9], loss=0.1)
    stage.announce()
    stage.play({0: tape.frames[:cut]})
    stage.run_to(stage.now + 50 * MS)
    stage.customers.clear()
    second = stage.customer([2, 5, 9], loss=0.1, start=first.follower.positions)
    second.perform(second.follower.wake(stage.now))
    stage.announce()
    stage.play({0: tape.frames[cut:]})
    stage.settle()
    got = [pair for pair in first.got + second.got if pair[1] >= 0]
    assert sorted(got) == sorted(trades_of({0: tape}, [2, 5, 9], merged=False))


@settings(max_examples=40)
@given(st.integers(0, 2**32))
def test_a_late_joiner_by_snapshot_has_everything_behind_it(seed: int) -> None:
    tape = planned_tape(seed, 2)
    cut = Random(seed).randint(1, len(tape.frames) - 1)
    stage = Stage({0: tape}, seed)
    stage.play({0: tape.frames[:cut]})
    snapshot = decode_snapshot(stage.feeds[0].snapshot())
    late = stage.customer([1, 4], loss=0.2, start=dict(snapshot.sessions))
    late.perform(late.follower.wake(stage.now))
    stage.play({0: tape.frames[cut:]})
    stage.settle()
    rest = PlannedTape.__new__(PlannedTape)
    rest.frames = tape.frames[cut:]
    got = [pair for pair in late.got if pair[1] >= 0]
    assert sorted(got) == sorted(trades_of({0: rest}, [1, 4], merged=False))


@settings(max_examples=40)
@given(st.integers(0, 2**32))
@example(154)  # every session had ended before anything was heard of the next plan
@example(4955)  # and the customer listened where the plan before was sent
def test_best_effort_loses_what_it_loses_and_goes_over_to_the_next_plan(seed: int) -> None:
    tape = planned_tape(seed, 3)
    stage = Stage({0: tape}, seed)
    customer = stage.customer(None, loss=0.1, grade=Grade.BEST_EFFORT)
    stage.announce()
    stage.play()
    stage.settle()
    got = [pair for pair in customer.got if pair[1] >= 0]
    assert len(got) == len(set(got))
    assert set(got) <= set(trades_of({0: tape}, None, merged=False))
    assert customer.follower.plans == {0: 3}


def test_sessions_that_the_caller_chose_are_followed_to_their_ends_and_no_further() -> None:
    tape = planned_tape(3, 2)
    stage = Stage({0: tape}, 3)
    plan = some_plan(1, 3)
    name = session_of(1, 0, plan.used[0])
    chosen = stage.customer(None, loss=0.0, sessions=[MAIN])
    stage.announce()
    stage.play()
    stage.settle(1)
    assert chosen.follower.over
    assert [event for event in chosen.events if isinstance(event, Ended)] != []
    assert chosen.follower.plans == {0: 0}
    assert name not in chosen.follower.positions


def test_a_plan_announced_again_with_another_content_is_the_one_that_counts() -> None:
    tape = PlannedTape(5)
    tape.trade(2)
    first = build_channel_plan(1, [(each, 0) for each in range(1, INSTRUMENTS + 1)], [0])
    second = build_channel_plan(1, [(each, each % 3) for each in range(1, INSTRUMENTS + 1)], [1, 2, 3])
    tape.trade(2, part_records(first, 0))
    tape.trade(3)
    tape.swap(second)
    tape.trade(4)
    stage = Stage({0: tape}, 5)
    customer = stage.customer([1, 2])
    stage.announce()
    stage.play()
    stage.settle()
    assert_whole(stage, customer)
    assert customer.joined == {2, 3}


def test_the_end_of_the_day_is_the_end() -> None:
    tape = planned_tape(2, 1)
    stage = Stage({0: tape}, 2)
    customer = stage.customer(None)
    stage.announce()
    stage.play()
    stage.settle(2)
    assert not customer.follower.over
    for _ in range(3):
        stage.send(0, stage.feeds[0].end(), sure=True)
        stage.run_to(stage.now + 100 * MS)
    for _ in range(50):
        stage.run_to(stage.now + 100 * MS)
    assert customer.follower.over
    assert_whole(stage, customer)


@settings(max_examples=10)
@given(st.integers(0, 2**32))
def test_a_customer_that_was_away_while_plans_were_replaced_reads_them_all(seed: int) -> None:
    tape = planned_tape(seed, 4)
    rng = Random(seed)
    gone, back = sorted(rng.sample(range(1, len(tape.frames)), 2))
    tape.trade(3)
    stage = Stage({0: tape}, seed)
    customer = stage.customer(rng.choice((None, [3, 8])), loss=0.1)
    stage.announce()
    stage.play({0: tape.frames[:gone]})
    customer.loss = 1.0
    stage.play({0: tape.frames[gone:back]})
    stage.run_to(stage.now + 70_000 * MS)
    stage.beat()
    customer.loss = 0.1
    stage.play({0: tape.frames[back:]})
    stage.settle(40)
    assert_whole(stage, customer)


@settings(max_examples=20)
@given(st.integers(0, 2**32))
def test_latest_only_has_the_newest_price_of_every_symbol_over_all_plans(seed: int) -> None:
    tape = planned_tape(seed, 3)
    stage = Stage({0: tape}, seed)
    customer = stage.customer(None, loss=0.2, grade=Grade.LATEST_ONLY)
    stage.announce()
    stage.play()
    stage.settle()
    assert customer.follower.plans == {0: 3}
    got = [trade for _, trade in customer.got if trade >= 0]
    assert len(got) == len(set(got))
    lost = [event for event in customer.events if isinstance(event, Lost)]
    for instrument in range(1, INSTRUMENTS + 2):
        wanted = [trade for _, trade in trades_of({0: tape}, [instrument], merged=False)]
        mine = [trade for trade in got if trade in set(wanted)]
        assert mine == sorted(mine), "never an older price behind a newer one"
        assert lost or mine[-1:] == wanted[-1:]

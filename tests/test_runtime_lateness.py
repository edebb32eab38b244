"""A release that is late by protocol is told from a process that ran late, and every reader tells the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from levelcast.network import Link
from levelcast.node.verdict import judge
from levelcast.pipeline.audit.release_stats import measure
from levelcast.pipeline.input.release_logs import read_logs
from levelcast.protocol.config import StripeConfig
from levelcast.protocol.effects import GROUP, Effect, Release, Send
from levelcast.protocol.history import GENESIS, Frame, first_tip, make_frame
from levelcast.protocol.machine import Machine
from levelcast.records import RecordArray, trades
from levelcast.ring.member import Member
from levelcast.runtime.driver import Driver
from levelcast.runtime.impairment import Impairment
from levelcast.runtime.lateness import ReadyTimes, split_at_instants
from levelcast.runtime.sockets import RECEIVERS, Address, Arrival
from levelcast.storage.disk import initialise_disk
from levelcast.storage.node_store import NodeStore
from levelcast.storage.receiver_store import ReceiverStore
from levelcast.storage.release_log import (
    LATE,
    MOVED,
    TOKEN,
    is_late,
    read_entries,
    read_releases,
    read_together,
    scheduling_ns,
)
from levelcast.wire.codec import decode, encode, seal_message
from levelcast.wire.messages import Data, Invite, Message, Repair, Run, Token
from tests.ring_parts import MS, PIPELINED, SERVER, START, make_config, make_data, make_ring, make_token, seat_in_ring

SLOT, HOLD = PIPELINED.slot_ns, 130 * MS
CONFIG = replace(make_config(), timing=replace(PIPELINED, hold_ns=HOLD))
DELAY = MS
"""Of every datagram."""
NAMES = {1: "one", 2: "two", 3: "three"}
FLOOR = 7


class Seat:
    """The sockets and the clock of one receiver, and its driver."""

    def __init__(self, hall: Hall, node: int, config: StripeConfig, impairment: Impairment | None) -> None:
        self.hall = hall
        self.node = node
        self.config = config
        self.inbox: list[Arrival] = []
        self.stalled = False
        self.impairment = impairment
        self.directory = hall.data / NAMES[node]
        initialise_disk(hall.data, NAMES[node], config.domain, "process")
        self.start()

    def start(self) -> None:
        self.store = ReceiverStore.open(self.directory, first_tip(self.config))
        self.member = Member(self.config, self.node, self.store.image, self.store.tape.tip, self.hall.now)
        self.driver = Driver(
            self.node, 0, self.member, self, self.store, clock=self, impairment=self.impairment, punctual_ns=MS
        )

    def wait(self, timeout_s: float, others: Sequence[int] = (), *, packets: bool = True) -> tuple[bool, list[int]]:
        return any(arrival[2] <= self.hall.now for arrival in self.inbox), []

    def drain(self, domain: int | None = None) -> list[Arrival]:
        arrived = [arrival for arrival in self.inbox if arrival[2] <= self.hall.now]
        self.inbox = [arrival for arrival in self.inbox if arrival[2] > self.hall.now]
        return arrived

    def learn(self, node: int, address: Address) -> None:
        pass

    def send(self, to: int, datagrams: Sequence[bytes]) -> None:
        for datagram in datagrams:
            self.hall.send(self.node, to, datagram)

    def send_buffer(self, to: int, buffer: bytes, ends: bytes) -> None:
        self.send(to, [buffer])

    def close(self) -> None:
        pass

    def wall_ns(self) -> int:
        return self.hall.now

    def sleep_ns(self, duration: int) -> None:
        pass

    def both_ns(self) -> tuple[int, int]:
        return self.hall.now, self.hall.now

    @property
    def log(self) -> RecordArray:
        return read_releases(self.directory / "releases")


class Hall:
    """Three receivers on one clock, which advances by a millisecond; every datagram takes one."""

    def __init__(self, data: Path, config: StripeConfig = CONFIG, impaired: Impairment | None = None) -> None:
        self.data = data
        self.now = START - 30 * MS
        self.lost: Callable[[int, Message], bool] = lambda to, message: False
        self.seats = {node: Seat(self, node, config, impaired if node == 1 else None) for node in NAMES}
        for message in (Invite(1, SERVER), make_ring()):
            self.send(SERVER, GROUP, encode(message, 0))

    def send(self, sender: int, to: int, datagram: bytes) -> None:
        message = decode(datagram)[1]
        for node, seat in self.seats.items():
            if node != sender and to in (GROUP, RECEIVERS, node) and not self.lost(node, message):
                seat.inbox.append((datagram, ("127.0.0.1", 4000 + sender), self.now + DELAY))

    def trade(self, number: int) -> None:
        data = make_data(FLOOR, number, payload=trades(1).tobytes())
        self.send(FLOOR, RECEIVERS, encode(data, 0))

    def run(self, until_ns: int) -> None:
        while self.now < until_ns:
            self.now += MS
            for seat in self.seats.values():
                if not seat.stalled:
                    seat.driver.turn()

    def close(self) -> None:
        for seat in self.seats.values():
            seat.driver.close()


@contextmanager
def hall_in(data: Path, config: StripeConfig = CONFIG, impaired: Impairment | None = None) -> Iterator[Hall]:
    hall = Hall(data, config, impaired)
    yield hall
    hall.close()


@pytest.fixture
def hall(tmp_path: Path) -> Iterator[Hall]:
    with hall_in(tmp_path) as made:
        made.run(START + 5 * MS)
        yield made


def instant(slot: int) -> int:
    return START + (slot - 1) * SLOT + HOLD


def slot_of_only_release(log: RecordArray) -> int:
    (slot,) = log["slot"].tolist()
    return int(slot)


# -- the definition ---------------------------------------------------------------------------------------


def test_without_faults_a_frame_is_ready_long_before_its_instant_and_is_released_at_it(hall: Hall) -> None:
    hall.trade(1)
    hall.run(START + 2 * HOLD)
    for seat in hall.seats.values():
        log = seat.log
        slot = slot_of_only_release(log)
        assert log["scheduled_ns"].tolist() == log["released_ns"].tolist() == [instant(slot)]
        assert START < log["ready_ns"][0] < instant(slot) - HOLD // 2
        assert log["flags"].tolist() == [0]
        assert (seat.driver.counters.late, seat.driver.counters.delayed) == (0, 0)


def test_a_packet_that_arrives_after_the_instant_makes_its_frame_late(hall: Hall) -> None:
    held_back = instant(2) + 30 * MS
    hall.lost = lambda to, message: to == 3 and isinstance(message, Data | Repair) and hall.now < held_back
    hall.trade(1)
    hall.run(START + 3 * HOLD)
    log, others = hall.seats[3].log, hall.seats[1].log
    assert slot_of_only_release(log) == slot_of_only_release(others) == 2
    assert log["ready_ns"][0] > held_back
    assert log["flags"].tolist() == [LATE]
    assert others["flags"].tolist() == [0]
    assert scheduling_ns(log).max() < MS, "the process ran when it arrived"
    assert (hall.seats[3].driver.counters.late, hall.seats[3].driver.counters.delayed) == (1, 0)


def test_a_process_that_runs_late_releases_with_a_scheduling_delay_and_not_late(hall: Hall) -> None:
    hall.trade(1)
    hall.run(instant(2) - 5 * MS)
    hall.seats[1].stalled = True
    hall.run(instant(2) + 9 * MS)
    hall.seats[1].stalled = False
    hall.run(START + 2 * HOLD)
    log = hall.seats[1].log
    assert log["flags"].tolist() == [0]
    assert scheduling_ns(log).tolist() == [10 * MS]
    assert (hall.seats[1].driver.counters.late, hall.seats[1].driver.counters.delayed) == (0, 1)


@pytest.mark.parametrize("late", [False, True])
def test_a_process_that_reads_late_knows_which_of_two_datagrams_arrived_before_the_instant(
    hall: Hall, late: bool
) -> None:
    """The packet of the frame is read in one turn with tokens that the frame does not need, from before and after."""
    arrives = instant(2) + (2 * MS if late else -MS)
    hall.lost = lambda to, message: to == 1 and isinstance(message, Data | Repair)
    hall.trade(1)
    hall.run(instant(2) - 12 * MS)
    seat = hall.seats[1]
    seat.stalled = True
    data = make_data(FLOOR, 1, payload=trades(1).tobytes())
    seat.inbox.append((encode(data, 0), ("127.0.0.1", 4007), arrives))
    hall.run(instant(2) + 12 * MS)
    assert {arrival[2] > instant(2) for arrival in seat.inbox} == {False, True}
    seat.stalled = False
    hall.run(START + 2 * HOLD)
    assert slot_of_only_release(seat.log) == 2
    assert is_late(seat.log).tolist() == [late]
    assert late == (int(seat.log["ready_ns"][0]) > instant(2))
    assert scheduling_ns(seat.log)[0] > 10 * MS


def test_the_delay_of_a_link_that_the_driver_adds_is_part_of_the_arrival(tmp_path: Path) -> None:
    links: dict[int, Link | None] = {2: Link(DELAY), 3: Link(DELAY), FLOOR: Link(DELAY)}
    with hall_in(tmp_path, impaired=Impairment(links, seed=1)) as hall:
        hall.run(START + 5 * MS)
        links[FLOOR] = Link(HOLD + 20 * MS)
        hall.lost = lambda to, message: to == 1 and isinstance(message, Repair)
        hall.trade(1)
        received_ns = hall.now + DELAY
        hall.run(START + 3 * HOLD)
        log = hall.seats[1].log
        assert received_ns + HOLD + 20 * MS == log["ready_ns"][0]
        assert is_late(log).tolist() == [True]
        assert is_late(hall.seats[2].log).tolist() == [False]


def test_a_release_that_the_ring_moves_because_of_a_late_witness_is_late(tmp_path: Path) -> None:
    """All three must have the slot, and one gets its packet late, but before the others release it."""
    config = replace(CONFIG, witnesses="all")
    with hall_in(tmp_path, config) as hall:
        hall.run(START + 5 * MS)
        hall.lost = lambda to, message: (
            to == 3 and isinstance(message, Data | Repair) and hall.now < instant(2) - 50 * MS
        )
        hall.trade(1)
        hall.run(START + 3 * HOLD)
        log = hall.seats[1].log
        assert log["flags"].tolist() == [LATE | MOVED]
        assert log["ready_ns"][0] < instant(2) < log["scheduled_ns"][0] == log["released_ns"][0]


def test_a_receiver_that_was_down_at_the_instant_is_late(hall: Hall) -> None:
    hall.trade(1)
    hall.run(instant(2) - 5 * MS)
    seat = hall.seats[1]
    seat.stalled = True
    seat.driver.close()
    seat.inbox.clear()
    hall.run(instant(2) + 20 * MS)
    seat.start()
    seat.stalled = False
    hall.run(START + 3 * HOLD)
    assert is_late(seat.log).tolist() == [True]
    assert seat.log["ready_ns"][0] > instant(2)


def test_nothing_is_ready_while_the_clock_is_not_trusted() -> None:
    """A release that rule 13 stops is late, although all that it needs has arrived."""
    seat, ring = seat_in_ring(), make_ring()
    run = Run(FLOOR, 1, 1, 1)
    seat.step(make_token(ring, 2, runs=(run,)), make_data(FLOOR, 1), at=START + 12 * MS)
    seat.step(make_token(ring, 3), at=START + 22 * MS)
    receiver = seat.receiver
    assert (receiver.released, receiver.ready_slot) == (0, 2)
    seat.step(at=START + 23 * MS, trusted=False)
    assert receiver.ready_slot == 0
    seat.step(at=START + 24 * MS)
    assert receiver.ready_slot == 2
    assert receiver.open_instants == (START + 2 * SLOT + PIPELINED.hold_ns, SLOT)


# -- own tokens -------------------------------------------------------------------------------------------


def test_a_receiver_records_by_how_much_it_sent_its_tokens_late(hall: Hall) -> None:
    seat = hall.seats[1]
    hall.trade(1)
    hall.run(START + 27 * MS)
    seat.stalled = True
    hall.run(START + 36 * MS)
    seat.stalled = False
    hall.run(START + 2 * HOLD)
    counters = seat.driver.counters
    assert counters.tokens == 1 + 2 * HOLD // (3 * SLOT)
    assert (counters.tokens_delayed, counters.max_token_delay_ns) == (1, 7 * MS)
    (path,) = (seat.directory / "releases").iterdir()
    told = read_entries(path)
    (delayed,) = told[told["flags"] & TOKEN != 0]
    assert delayed["slot"] == 4
    assert delayed["scheduled_ns"] == START + 3 * SLOT
    assert delayed["released_ns"] - delayed["scheduled_ns"] == 7 * MS


class Clerk(NodeStore):
    """A store that keeps what the driver tells it."""

    def __init__(self) -> None:
        super().__init__()
        self.releases: list[Release] = []
        self.tokens: list[tuple[int, int, int]] = []

    def content(self, frame: Frame) -> bytearray:
        return bytearray()

    def release(self, release: Release, content: bytearray, generation: int, released_ns: int) -> None:
        self.releases.append(release)

    def log_token(self, token: Token, due_ns: int, sent_ns: int) -> None:
        self.tokens.append((token.slot, due_ns, sent_ns))


class Puppet(Machine):
    """A machine that does what it is told in its next step."""

    def __init__(self, wake_ns: int | None) -> None:
        self.wake_ns = wake_ns
        self.ready = 0
        self.becomes_ready = 0
        self.effects: list[Effect] = []

    @property
    def ready_slot(self) -> int:
        return self.ready

    def step(self, batch: Iterable[Message], now: int, *, clock_trusted: bool = True) -> list[Effect]:
        self.ready = self.becomes_ready
        return self.effects


def turn_of(hall: Hall, puppet: Puppet, *effects: Effect, came: Message | None = None) -> tuple[Driver, Clerk]:
    """Run one turn, in which a message may arrive, with the sockets and the clock of receiver 1."""
    seat, clerk, puppet.effects = hall.seats[1], Clerk(), list(effects)
    seat.inbox = [] if came is None else [(encode(came, 0), ("127.0.0.1", 4002), hall.now)]
    driver = Driver(1, 0, puppet, seat, clerk, clock=seat, punctual_ns=MS)
    driver.turn()
    return driver, clerk


def test_what_becomes_ready_without_a_message_was_ready_when_the_step_was_due(hall: Hall) -> None:
    frame = make_frame(1, START, 1, (make_data(FLOOR, 1),), GENESIS)
    puppet = Puppet(hall.now - 9 * MS)
    puppet.becomes_ready = 1
    _, clerk = turn_of(hall, puppet, Release(frame, START, False))
    assert [release.ready_ns for release in clerk.releases] == [hall.now - 9 * MS]


def own_token(timestamp_ns: int, owner: int = 1) -> Token:
    return seal_message(Token(1, 4, timestamp_ns, owner, 3, 8, (), ()), 0)


def test_a_token_is_due_at_its_slot_although_other_work_was_due_before(hall: Hall) -> None:
    token = own_token(hall.now - 3 * MS)
    _, clerk = turn_of(hall, Puppet(hall.now - 20 * MS), Send(GROUP, token))
    assert clerk.tokens == [(4, hall.now - 3 * MS, hall.now)]


def test_a_token_that_waited_for_a_message_is_not_delayed_by_its_process(hall: Hall) -> None:
    """In lockstep a slot owner with a gap waits for the repair."""
    puppet = Puppet(hall.now + 5 * MS)
    driver, clerk = turn_of(hall, puppet, Send(GROUP, own_token(hall.now - 20 * MS)), came=Invite(1, SERVER))
    assert clerk.tokens == []
    assert (driver.counters.tokens, driver.counters.max_token_delay_ns) == (1, 0)


def test_the_token_of_another_owner_is_no_own_token(hall: Hall) -> None:
    driver, clerk = turn_of(hall, Puppet(hall.now), Send(GROUP, own_token(hall.now - 20 * MS, owner=2)))
    assert (driver.counters.tokens, clerk.tokens) == (0, [])


# -- every reader -----------------------------------------------------------------------------------------


def test_log_status_table_and_audit_agree_and_those_with_all_logs_subtract_delayed_tokens(hall: Hall) -> None:
    """Receiver 3 stalls, so its tokens make frames of 1 and 2 late; receiver 2 also misses a packet for too long."""
    for number in range(1, 6):
        hall.trade(number)
        hall.run(hall.now + 3 * SLOT)
    hall.seats[3].stalled = True
    hall.trade(6)
    hall.run(hall.now + HOLD + 20 * MS)
    hall.seats[3].stalled = False
    hall.run(hall.now + HOLD)
    missing_until = hall.now + HOLD + 40 * MS
    hall.lost = lambda to, message: to == 2 and isinstance(message, Data | Repair) and hall.now < missing_until
    hall.trade(7)
    hall.run(hall.now + 4 * HOLD)
    directories = {name: hall.data / name / "releases" for name in NAMES.values()}
    own = {NAMES[node]: int(is_late(seat.log).sum()) for node, seat in hall.seats.items()}
    status = {NAMES[node]: seat.driver.counters.late for node, seat in hall.seats.items()}
    assert own == status
    assert own["one"] > 0
    assert own["two"] > own["one"]
    assert own["three"] == 0
    together = {name: int(is_late(log).sum()) for name, log in read_together(directories).items()}
    assert together == {"one": 0, "two": 1, "three": 0}
    verdict = judge(hall.data, list(NAMES.values()))
    assert verdict.problems == []
    assert {each.name: each.late for each in verdict.receivers} == together, "one record in each frame"
    assert {name: int(is_late(log).sum()) for name, log in read_logs(directories, {}).items()} == together
    audited = measure(read_together(directories), 1, 10, 0).late.sum(axis=0)
    assert dict(zip(NAMES.values(), audited.tolist(), strict=True)) == together


# -- parts ------------------------------------------------------------------------------------------------


def test_ready_times_of_slots() -> None:
    times = ReadyTimes(3, 100)
    times.note(3, 110)
    times.note(5, 120)
    times.note(6, 130)
    assert [times.take(slot) for slot in (2, 3, 4, 5)] == [100, 100, 120, 120]
    assert (times.take(6), times.take(7)) == (130, 0)


def test_slots_that_a_reformation_voids_become_ready_again() -> None:
    times = ReadyTimes(1, 100)
    times.note(4, 110)
    times.note(9, 120)
    times.note(6, 130)
    times.note(8, 140)
    assert [times.take(slot) for slot in (2, 4, 5, 6, 7, 8)] == [110, 110, 120, 120, 140, 140]
    times = ReadyTimes(5, 100)
    times.note(4, 110)
    times.note(5, 120)
    assert (times.take(4), times.take(5)) == (100, 120)


def test_arrivals_are_split_only_at_instants() -> None:
    some: list[Arrival] = [(b"", ("", 0), at) for at in (95, 100, 101, 110, 111)]
    assert split_at_instants(some, None) == [some]
    assert split_at_instants(some, (111, 10)) == [some]
    assert split_at_instants([], (0, 10)) == [[]]
    assert split_at_instants(some, (100, 10)) == [some[:2], some[2:4], some[4:]]
    assert [len(group) for group in split_at_instants(some[::-1], (100, 10))] == [2, 2, 1]

"""The driver's loop, with sockets, disk and clock that only write down what happens."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import pytest

from levelcast.network import Link
from levelcast.overlay.clock_check import START_ALARM_NS, START_EVERY_NS, START_NS, ClockCheck, MemberClock
from levelcast.overlay.hold_feedback import FeedbackRules, HoldFeedback
from levelcast.overlay.paths import ENOUGH, Paths
from levelcast.overlay.probe import Prober
from levelcast.protocol.effects import (
    GROUP,
    Effect,
    Forget,
    JournalEntry,
    Persist,
    Promise,
    Release,
    Send,
    ServeTape,
)
from levelcast.protocol.events import ClockDoubted, Event, FaultReported
from levelcast.protocol.history import GENESIS, Frame, History, MembershipChange, Tip, make_frame
from levelcast.protocol.machine import Machine
from levelcast.records import trades
from levelcast.runtime.driver import GATHER_NS, LONGEST_SLEEP_NS, QUIET_NS, Driver, quiet_before_release
from levelcast.runtime.impairment import Impairment
from levelcast.runtime.sockets import RECEIVERS, Address, Arrival
from levelcast.storage.node_store import NodeStore
from levelcast.storage.tape.stamps import packet_fault
from levelcast.wire.codec import decode, encode, seal_message
from levelcast.wire.messages import (
    Beat,
    Claim,
    Cutoff,
    Data,
    Echo,
    FaultReason,
    Group,
    GroupInvite,
    Invite,
    MemberLife,
    Membership,
    Message,
    Pace,
    Packet,
    Parity,
    PathRow,
    Probe,
    Promised,
    ReleaseRow,
    ReleaseSecond,
    Repair,
    Request,
    Token,
)
from levelcast.wire.packets import join, seal
from tests.ring_parts import PIPELINED, make_config, make_ring

MS = 1_000_000
NOW = 1_700_000_000_000_000_000
ME, PEER = 101, 102
FROM_PEER: Address = ("127.0.0.1", 4102)
TOKEN = seal_message(Token(1, 5, NOW, PEER, 4, 64, (), ()), 0)
PACKET = seal(Packet(1, 1, 1, 1, b"x" * 64), 0)


class Script(Machine):
    """A machine that returns what it is told to, and remembers what it was given."""

    upcoming: Frame | None = None

    def __init__(self, *effects: Effect) -> None:
        self.wake_ns: int | None = None
        self.effects = list(effects)
        self.batches: list[list[Message]] = []
        self.trusted: list[bool] = []

    def step(self, batch: Iterable[Message], now: int, *, clock_trusted: bool = True) -> list[Effect]:
        self.batches.append(list(batch))
        self.trusted.append(clock_trusted)
        effects, self.effects = self.effects, []
        return effects


class Stage(NodeStore):
    """Sockets, disk and clock in one, with one diary."""

    def __init__(self) -> None:
        self.diary: list[tuple[object, ...]] = []
        self.inbox: list[tuple[bytes | Data, Address]] = []
        """What has arrived at the present time."""
        self.earlier: list[Arrival] = []
        """What has arrived before."""
        self.now = NOW
        self.monotonic = 0
        self.slept_s = 0.0
        self.quiet_ns = -1
        """How long it slept without listening."""
        self.oversleeps_ns = 0
        self.ticks_ns = 0
        """What each look at the clock takes."""
        self.readable: set[int] = set()
        self.woken_by_packets = True

    def wait(self, timeout_s: float, others: Sequence[int] = (), *, packets: bool = True) -> tuple[bool, list[int]]:
        self.slept_s = timeout_s
        self.woken_by_packets = packets
        self.now += self.oversleeps_ns
        return bool(self.inbox or self.earlier), [each for each in others if each in self.readable]

    def drain(self, domain: int | None = None) -> list[Arrival]:
        inbox, self.inbox = self.inbox, []
        earlier, self.earlier = self.earlier, []
        return [*earlier, *((content, source, self.now) for content, source in inbox)]

    def learn(self, node: int, address: Address) -> None:
        self.diary.append(("learn", node, address))

    def send(self, to: int, datagrams: Sequence[bytes]) -> None:
        self.diary += [("send", to, datagram) for datagram in datagrams]

    def send_buffer(self, to: int, buffer: bytes, ends: bytes) -> None:
        self.diary.append(("send together", to, buffer, ends))

    def persist(self, entry: JournalEntry) -> None:
        self.diary.append(("persist", entry))

    def commit(self) -> None:
        self.diary.append(("commit",))

    def content(self, frame: Frame) -> bytearray:
        return bytearray(b"stamped")

    def release(self, release: Release, content: bytearray, generation: int, released_ns: int) -> None:
        self.diary.append(("release", release.frame.slot, release.late))

    def forget(self, slot: int, ordered: Mapping[int, tuple[int, int]]) -> None:
        self.diary.append(("forget", slot))

    def serve(self, member: int, request: ServeTape, credit: int) -> list[Message]:
        return [Promised(member, request.after_slot)]

    def close(self) -> None:
        self.diary.append(("close",))

    def wall_ns(self) -> int:
        self.now += self.ticks_ns
        return self.now

    def sleep_ns(self, duration: int) -> None:
        self.quiet_ns = duration
        self.now += duration

    def both_ns(self) -> tuple[int, int]:
        return self.now, self.monotonic

    def words(self) -> list[object]:
        return [line[0] for line in self.diary]


@pytest.fixture
def stage() -> Stage:
    return Stage()


def driver(stage: Stage, machine: Script, impairment: Impairment | None = None) -> Driver:
    return Driver(ME, 0, machine, stage, stage, clock=stage, impairment=impairment)


def release(slot: int, scheduled_ns: int) -> Release:
    return Release(make_frame(slot, NOW, 1, (PACKET,), GENESIS), scheduled_ns, False)


def test_what_is_persisted_is_written_before_the_first_send_behind_it(stage: Stage) -> None:
    machine = Script(Persist(Promise(7)), Persist(TOKEN), Send(GROUP, TOKEN), Send(PEER, TOKEN), Persist(PACKET))
    driver(stage, machine).turn()
    assert stage.words() == ["persist", "persist", "commit", "send", "persist", "commit", "send"]


def test_one_that_has_not_spoken_is_invited_by_the_group_and_then_by_itself(stage: Stage) -> None:
    machine = Script(Send(PEER, GroupInvite(7, ME)))
    running = driver(stage, machine)
    running.turn()
    stage.inbox = [(encode(TOKEN, 0), FROM_PEER)]
    running.turn()
    machine.effects = [Send(PEER, GroupInvite(7, ME))]
    running.turn()
    assert [line[1] for line in stage.diary if line[0] == "send"] == [GROUP, PEER]


def test_a_turn_without_anything_new_writes_nothing(stage: Stage) -> None:
    driver(stage, Script(Send(GROUP, TOKEN))).turn()
    assert stage.words() == ["send"]


def test_a_message_is_journaled_and_sent_on_as_it_came(stage: Stage) -> None:
    datagram = encode(TOKEN, 0)
    machine = Script()
    running = driver(stage, machine)
    stage.inbox = [(datagram, FROM_PEER)]

    def step(batch: Iterable[Message], now: int, *, clock_trusted: bool = True) -> list[Effect]:
        (token,) = batch
        assert isinstance(token, Token)
        return [Persist(token), Send(GROUP, token)]

    machine.step = step  # type: ignore[method-assign]
    running.turn()
    assert stage.diary[1:] == [("persist", TOKEN), ("commit",), ("send", GROUP, datagram)]
    (persisted,) = [line[1] for line in stage.diary if line[0] == "persist"]
    assert isinstance(persisted, Token)
    assert persisted.sealed is datagram


def test_effects_are_carried_out_in_order_and_counted(stage: Stage) -> None:
    reports: list[Event] = []
    machine = Script(
        release(3, NOW),
        Persist(Promise(1)),
        Forget(3, {}),
        ServeTape(PEER, 2, 3),
        Send(PEER, Request(ME, 1, 3, (4,), ())),
        FaultReported(4, FaultReason.STUCK, 0),
        release(4, NOW - 5 * MS),
    )
    running = Driver(ME, 0, machine, stage, stage, clock=stage, on_event=reports.append)
    running.turn()
    assert stage.words() == ["release", "persist", "commit", "forget", "send", "send", "release"]
    assert stage.diary[-1] == ("release", 4, False), "the process ran late, and the frame is not"
    assert reports == [FaultReported(4, FaultReason.STUCK, 0)]
    counters = running.counters
    assert (counters.frames, counters.records, counters.late, counters.requests) == (2, 2, 0, 1)
    assert counters.delayed == 1
    assert counters.max_behind_ns == 5 * MS


def test_malformed_datagrams_are_counted_by_reason_and_never_delivered(stage: Stage) -> None:
    good = encode(TOKEN, 0)
    machine = Script()
    running = driver(stage, machine)
    broken = good[:-1] + bytes([good[-1] ^ 1])
    elsewhere = encode(TOKEN._replace(sealed=b""), 3)
    stage.inbox = [(each, FROM_PEER) for each in (b"", b"?" * 40, broken, broken, elsewhere, good)]
    running.turn()
    assert machine.batches == [[TOKEN]]
    assert running.counters.malformed == {"too short": 1, "bad magic": 1, "broken seal": 2, "wrong stripe": 1}
    assert running.counters.received == 6


def test_a_machine_that_does_not_listen_to_beats_drops_them_unread(stage: Stage) -> None:
    beat = Beat(PEER, 1, (Claim(7, 5),), 8, NOW)
    for listens in (True, False):
        machine = Script()
        machine.LISTENS = frozenset({Token, Beat} if listens else {Token})  # type: ignore[misc]
        running = driver(stage, machine)
        good = encode(beat, 0)
        stage.inbox = [(each, FROM_PEER) for each in (good, good[:-1] + b"?", encode(TOKEN, 0), b"LC\2")]
        running.turn()
        assert machine.batches == [[beat, TOKEN] if listens else [TOKEN]]
        assert running.counters.malformed == ({"broken seal": 1, "too short": 1} if listens else {"too short": 1})


def test_records_that_no_tape_can_hold_stop_at_the_door_also_within_a_repair(stage: Stage) -> None:
    packet = Packet(1, 1, 1, 2, trades(2).tobytes())
    good = seal(packet, 0)
    stamped = trades(2)
    stamped["sequence"] = 1
    bad = [PACKET, seal(packet._replace(records=3), 0), seal(packet._replace(payload=stamped.tobytes()), 0)]
    machine = Script()
    running = Driver(ME, 0, machine, stage, stage, clock=stage, packet_fault=packet_fault)
    messages: list[Message] = [*bad, good, Repair(PEER, (bad[0], TOKEN, good))]
    stage.inbox = [(encode(message, 0), FROM_PEER) for message in messages]
    running.turn()
    assert machine.batches == [[good, Repair(PEER, (TOKEN, good))]]
    assert running.counters.malformed == {"bad records": 4}


def test_packets_that_the_machine_rebuilds_are_checked_like_those_from_the_network(stage: Stage) -> None:
    machine = Script()
    running = Driver(ME, 0, machine, stage, stage, clock=stage, packet_fault=packet_fault)
    assert [machine.refuses(seal(Packet(1, 1, 1, count, trades(2).tobytes()), 0)) for count in (2, 3)] == [False, True]
    assert running.counters.malformed == {"bad records": 1}
    assert not Script().refuses(PACKET)


def test_parities_go_where_packets_go(stage: Stage) -> None:
    parity = Parity(ME, 1, 1, 1, 1, PACKET.sealed)
    driver(stage, Script(Send(GROUP, parity), Send(PEER, parity))).turn()
    assert stage.diary == [("send", RECEIVERS, encode(parity, 0)), ("send", PEER, encode(parity, 0))]


def test_addresses_are_learnt_from_sound_datagrams_only_and_again_after_a_restart(stage: Stage) -> None:
    running = driver(stage, Script())
    moved = ("127.0.0.1", 4999)
    for datagram, source in (
        (encode(TOKEN, 0)[:-1], moved),
        (encode(TOKEN, 0), FROM_PEER),
        (encode(TOKEN, 0), FROM_PEER),
        (encode(Invite(2, PEER), 0), moved),
    ):
        stage.inbox = [(datagram, source)]
        running.turn()
    assert stage.diary == [("learn", PEER, FROM_PEER), ("learn", PEER, moved)]


def test_no_address_is_learnt_from_the_items_of_a_repair(stage: Stage) -> None:
    """Their authors did not send this datagram; before, a ring that a member handed on moved its server there."""
    ring, forwarder = make_ring(), 103
    group = seal_message(Group(7, 902, PEER, (301,)), 0)
    machine = Script()
    running = driver(stage, machine)
    repair = Repair(forwarder, (TOKEN, PACKET, ring, group))
    stage.inbox = [(encode(repair, 0), FROM_PEER)]
    running.turn()
    assert machine.batches == [[repair]]
    assert stage.diary == [("learn", forwarder, FROM_PEER)]


def test_a_datagram_of_an_older_version_is_counted_and_teaches_nothing(stage: Stage) -> None:
    running = driver(stage, Script())
    stage.inbox = [(bytes.fromhex("4c4301070201090004000000000000001c0000000104000082194996"), FROM_PEER)]
    running.turn()
    assert running.counters.malformed == {"version 1": 1}
    assert stage.diary == []


def test_a_process_with_the_same_name_is_noticed_and_not_believed(stage: Stage) -> None:
    machine = Script()
    running = driver(stage, machine)
    stage.inbox = [(encode(TOKEN._replace(owner=ME, sealed=b""), 0), FROM_PEER)]
    running.turn()
    assert machine.batches == [[]]
    assert running.counters.namesakes == 1
    assert stage.diary == []
    stage.inbox = [(encode(Probe(ME, 7, 5), 0), FROM_PEER)]
    running.turn()
    assert running.counters.namesakes == 2
    echo = encode(Echo(ME, ME, 7, 5, stage.now, stage.now), 0)
    assert stage.diary == [("learn", ME, FROM_PEER), ("send", ME, echo)], "a process that starts under this id is told"


def test_it_sleeps_until_the_first_of_all_deadlines(stage: Stage) -> None:
    machine = Script()
    impairment = Impairment({PEER: Link(2 * MS)}, seed=1)
    running = driver(stage, machine, impairment)
    running.turn()
    assert stage.slept_s == LONGEST_SLEEP_NS / 1e9
    machine.wake_ns = NOW + 7 * MS
    stage.inbox = [(encode(TOKEN, 0), FROM_PEER)]
    running.turn()
    assert stage.slept_s == pytest.approx(0.007)
    assert machine.batches[-1] == []
    running.turn()
    assert stage.slept_s == pytest.approx(0.002)
    stage.now += 2 * MS
    running.turn()
    assert machine.batches[-1] == [TOKEN]
    stage.now += 20 * MS
    running.turn()
    assert stage.slept_s == 0


def test_a_clock_that_was_stepped_is_not_trusted(stage: Stage) -> None:
    machine = Script()
    running = driver(stage, machine)
    stage.now, stage.monotonic = NOW + MS, MS
    running.turn()
    stage.now, stage.monotonic = NOW + 1000 * MS, 2 * MS
    running.turn()
    assert machine.trusted == [True, False]


def test_it_stops_between_two_turns_and_closes_disk_and_sockets(stage: Stage) -> None:
    running = driver(stage, Script())
    turns: list[int] = []
    running.run(lambda: len(turns) == 3, turns.append)
    running.close()
    assert turns == [NOW] * 3
    assert stage.words() == ["close", "close"]


class Page:
    """A service that writes down when it is called."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.filenos: Sequence[int] = (7, 8)
        self.wake_ns: int | None = NOW + 3 * MS

    def step(self, ready: Collection[int], now: int) -> None:
        self.stage.diary.append(("service", tuple(ready)))

    def released(self, release: Release, content: bytes | bytearray, now: int) -> None:
        self.stage.diary.append(("edge", release.frame.slot, bytes(content)))

    def close(self) -> None:
        self.stage.diary.append(("service closed",))


def test_a_service_hears_of_a_release_before_the_tape_and_is_stepped_with_what_can_be_read(stage: Stage) -> None:
    stage.readable = {8}
    Driver(ME, 0, Script(release(5, NOW)), stage, stage, clock=stage, services=[Page(stage)]).turn()
    assert stage.diary == [("edge", 5, b"stamped"), ("release", 5, False), ("service", (8,))]
    assert stage.slept_s == pytest.approx(0.003)


def test_services_are_closed_with_disk_and_sockets(stage: Stage) -> None:
    Driver(ME, 0, Script(), stage, stage, clock=stage, services=[Page(stage)]).close()
    assert stage.words() == ["service closed", "close", "close"]


SPIN_NS = MS // 10


def about_to_release(stage: Stage, due: int, busy_ns: int = MS) -> Driver:
    """A node that has prepared the frame which is due then, and whose turns took so long of late."""
    machine = Script()
    machine.upcoming = release(5, due).frame
    machine.release_is_next = True
    running = Driver(ME, 0, machine, stage, stage, clock=stage, quiet_ns=MS, spin_ns=SPIN_NS)
    running.turn()
    running._busy_ns = busy_ns
    machine.wake_ns = due
    return running


def test_before_a_release_the_sleep_ends_early_and_the_rest_is_spun(stage: Stage) -> None:
    due = NOW + 3 * MS
    running = about_to_release(stage, due)
    stage.oversleeps_ns, stage.ticks_ns = 2 * MS, 1_000
    now = running.turn()
    assert stage.slept_s == pytest.approx(0.002, abs=1e-5)
    assert stage.quiet_ns == pytest.approx(MS - SPIN_NS, abs=10_000)
    assert 0 <= now - due <= 2_000


def test_from_a_moment_before_a_release_until_after_it_nothing_is_taken_in(stage: Stage) -> None:
    due = NOW + MS // 2
    running = about_to_release(stage, due)
    stage.inbox = [(PACKET, FROM_PEER)]
    stage.ticks_ns = 1_000
    assert 0 <= running.turn() - due <= 2_000
    assert stage.inbox
    running.machine.wake_ns = stage.now + MS // 2  # the next release comes at once, and yet what has come goes first
    running.turn()
    assert not stage.inbox


def test_where_turns_are_short_the_silence_is(stage: Stage) -> None:
    running = about_to_release(stage, stage.now + MS // 2, busy_ns=MS // 5)
    stage.inbox = [(PACKET, FROM_PEER)]
    running.turn()
    assert not stage.inbox, "there is time for a turn of 0.2 ms"
    stage.inbox, stage.ticks_ns = [(PACKET, FROM_PEER)], 1_000
    stage.now += MS // 5
    running.turn()
    assert stage.inbox, "and now there is not"


def test_the_longest_turns_of_late_count_most(stage: Stage) -> None:
    running = driver(stage, Script())
    stage.ticks_ns = 10_000
    found = []
    for _ in range(3):
        stage.inbox = [(PACKET, FROM_PEER)]
        running.turn()
        found.append(running._busy_ns)
        stage.ticks_ns = 1_000
    assert found[0] >= 10_000
    assert found[1:] == [found[0] * 7 // 8, found[0] * 7 // 8 * 7 // 8]
    running.turn()  # one that takes nothing in does not count
    assert running._busy_ns == found[-1]


@pytest.mark.parametrize("overdue_ns", [0, 5 * MS])
def test_nothing_is_slept_or_spun_for_what_is_overdue(stage: Stage, overdue_ns: int) -> None:
    running = about_to_release(stage, stage.now)
    stage.now = before = stage.now + overdue_ns
    assert running.turn() == before
    assert stage.quiet_ns == 0


def test_a_clock_that_is_set_back_ends_the_spin(stage: Stage) -> None:
    due = stage.now + MS // 2
    running = about_to_release(stage, due)
    stage.ticks_ns = -1_000
    assert running.turn() < due


def test_what_comes_well_before_a_release_is_taken_in(stage: Stage) -> None:
    running = about_to_release(stage, stage.now + 3 * MS)
    stage.inbox = [(PACKET, FROM_PEER)]
    running.turn()
    assert not stage.inbox
    assert stage.quiet_ns == -1


def test_a_token_is_neither_met_by_a_spin_nor_waited_for_in_silence(stage: Stage) -> None:
    machine = Script()
    machine.wake_ns = NOW + 2 * MS
    running = Driver(ME, 0, machine, stage, stage, clock=stage, spin_ns=SPIN_NS)
    stage.oversleeps_ns, stage.ticks_ns = 2 * MS - SPIN_NS // 2, 1_000
    assert running.turn() < machine.wake_ns
    assert stage.slept_s == pytest.approx(0.002, abs=1e-5)
    assert stage.quiet_ns == -1


def test_the_silence_before_a_release_is_no_large_part_of_a_slot_nor_of_the_time_a_token_may_take() -> None:
    assert quiet_before_release(replace(PIPELINED, slot_ns=10 * MS, late_ns=12 * MS)) == QUIET_NS
    assert quiet_before_release(replace(PIPELINED, slot_ns=MS, late_ns=12 * MS)) == 400_000
    assert quiet_before_release(replace(PIPELINED, slot_ns=10 * MS, late_ns=MS)) == 500_000


@pytest.mark.parametrize(("due_ms", "sleeps_ns"), [(20, GATHER_NS), (0.4, 400_000)])
def test_while_packets_keep_coming_they_gather_and_only_what_is_due_ends_the_sleep(
    stage: Stage, due_ms: float, sleeps_ns: int
) -> None:
    machine = Script()
    running = driver(stage, machine)
    stage.inbox = [(PACKET, FROM_PEER)]
    running.turn()
    assert stage.woken_by_packets
    machine.wake_ns = stage.now + int(due_ms * MS)
    running.turn()
    assert not stage.woken_by_packets
    assert stage.slept_s == pytest.approx(sleeps_ns / 1e9)
    running.turn()  # nothing came in the turn before
    assert stage.woken_by_packets


def test_packets_that_came_together_are_one_message_and_leave_together(stage: Stage) -> None:
    (together,) = join(seal(Packet(1, 1, number, 1, b"x" * 64), 0) for number in (1, 2, 3))
    machine = Script(Persist(together), Send(GROUP, together), Send(GROUP, PACKET))
    running = driver(stage, machine)
    stage.inbox = [(together, FROM_PEER)]
    running.turn()
    assert machine.batches == [[together]]
    assert running.counters.received == 3
    ends = struct.pack("<3I", *(len(PACKET.sealed) * number for number in (1, 2, 3)))
    assert stage.diary == [
        ("learn", 1, FROM_PEER),
        ("persist", together),
        ("commit",),
        ("send together", RECEIVERS, together.sealed, ends),
        ("send", RECEIVERS, PACKET.sealed),
    ]


def test_what_the_next_release_sends_is_made_before_its_instant(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def content(frame: Frame) -> bytearray:
        made.append(frame.slot)
        return bytearray(b"stamped")

    monkeypatch.setattr(stage, "content", content)
    machine = Script()
    running = driver(stage, machine)
    first, second = release(5, NOW), release(6, NOW)
    machine.upcoming = first.frame
    running.turn()
    running.turn()
    assert made == [5]
    machine.effects = [first, second]
    machine.upcoming = None
    running.turn()
    assert made == [5, 6], "the second came without notice"
    assert [line[1] for line in stage.diary if line[0] == "release"] == [5, 6]


class Learner(Script):
    """A machine that remembers the delays that it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.delays: list[Mapping[int, int]] = []

    def learn_delays(self, delays_ns: Mapping[int, int]) -> None:
        self.delays.append(delays_ns)


def test_beats_and_probes_measure_paths_whose_figures_are_published_and_used(stage: Stage) -> None:
    machine = Learner()
    paths = Paths(ME, [PEER, 103], stage.now)
    running = Driver(ME, 0, machine, stage, stage, clock=stage, paths=paths)
    for number in range(1, ENOUGH + 1):
        stage.inbox = [(encode(Beat(PEER, 1, (Claim(number, 5),), number, stage.now - 20 * MS), 0), FROM_PEER)]
        running.turn()
    assert PEER in paths.meters
    stage.now += 2_000 * MS
    probe, row = Probe(103, 1, stage.now - 5 * MS), PathRow(103, ())
    stage.inbox = [(encode(probe, 0), FROM_PEER), (encode(row, 0), FROM_PEER)]
    running.turn()
    assert set(paths.meters) == {PEER, 103}
    assert 103 in paths.rows
    assert abs(machine.delays[-1][PEER] - 20 * MS) <= MS
    sent = [
        decode(entry[2]).message
        for entry in stage.diary
        if entry[:2] == ("send", GROUP) and isinstance(entry[2], bytes)
    ]
    rows = [message for message in sent if isinstance(message, PathRow)]
    assert {path.peer for path in rows[-1].paths} == {PEER, 103}


class Followed(Script):
    """A machine of which the first member of a ring releases slots."""

    ring_members = (ME, PEER)
    history = History(Tip(records=[MembershipChange(0, Membership(0, ()))]))

    def pace(self, now: int) -> Pace | None:
        return Pace(100 * MS, 25 * MS, (Cutoff(ME, 20 * MS),))

    def hold_ns(self, timestamp_ns: int) -> int:
        return 100 * MS


def test_rows_of_receivers_are_published_and_a_timing_record_reaches_the_own_machine_too(stage: Stage) -> None:
    machine = Followed()
    rules = FeedbackRules(1e-5, 5_000 * MS, 30_000 * MS, 40 * MS, 2_000 * MS)
    feedback = HoldFeedback(ME, 0, machine, stage.now, recovery_ns=0, resend_ns=200 * MS, rules=rules)
    running = Driver(ME, 0, machine, stage, stage, clock=stage, feedback=feedback)
    while not any(isinstance(message, Data) for batch in machine.batches for message in batch):
        stage.now += 1_000 * MS
        stage.monotonic += 1_000 * MS
        assert stage.now < NOW + 20_000 * MS
        late = ReleaseSecond(stage.now // 1_000_000_000 - 1, 20, 1, 150_000)
        stage.inbox = [(encode(ReleaseRow(PEER, 1, 2, 3, (late,)), 0), FROM_PEER)]
        running.turn()
    sent = [decode(each[2]).message for each in stage.diary if each[0] == "send" and isinstance(each[2], bytes)]
    assert ReleaseRow in map(type, sent)
    (record,) = [each for each in sent if isinstance(each, Data)]
    assert machine.batches[-1] == [record]


class Told(Script):
    """A machine that remembers what it was told about its clock."""

    def __init__(self) -> None:
        super().__init__()
        self.clock: list[tuple[int | None, int | None]] = []

    def learn_clock(self, error_us: int | None, offset_us: int | None) -> None:
        self.clock.append((error_us, offset_us))


class ClockStage:
    """A driver with a clock check, in a ring of nodes `ME`, `PEER` and 103."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        config = replace(
            make_config(), membership=Membership(0, tuple(MemberLife(each, 1) for each in (ME, PEER, 103)))
        )
        self.machine, self.events = Told(), list[Event]()
        prober, paths = Prober(ME, [PEER, 103], None, NOW), Paths(ME, [PEER, 103], NOW)
        self.check = ClockCheck(ME, config, prober, paths, NOW, 0)
        self.driver = Driver(
            ME, 0, self.machine, stage, stage, clock=stage, prober=prober, paths=paths, clock_check=self.check,
            on_event=self.events.append,
        )  # fmt: skip

    def run(self, lasting_ns: int, off_ns: int = 0) -> None:
        """Answer every probe of the node as `PEER` does, whose clock is behind by `off_ns`."""
        for _ in range(lasting_ns // START_EVERY_NS):
            self.stage.diary.clear()
            self.driver.turn()
            self.stage.now += START_EVERY_NS
            self.stage.monotonic += START_EVERY_NS
            sent = [line[-1] for line in self.stage.diary]
            probes = [decode(datagram).message for datagram in sent if isinstance(datagram, bytes)]
            for probe in probes:
                if isinstance(probe, Probe):
                    heard_ns = (probe.sent_ns + self.stage.now) // 2 - off_ns
                    echo = Echo(PEER, ME, probe.number, probe.sent_ns, heard_ns, heard_ns)
                    self.stage.inbox.append((encode(echo, 0), FROM_PEER))


def test_a_machine_is_not_trusted_with_its_clock_before_a_majority_agreed(stage: Stage) -> None:
    clocks = ClockStage(stage)
    assert not clocks.driver.clock_trusted
    clocks.run(START_NS)
    assert clocks.machine.trusted[0] is False
    assert clocks.machine.trusted[-1] is True
    assert clocks.driver.clock_trusted
    assert clocks.machine.clock[-1] == (None, 0)
    clocks.check.bound.vouch("chrony", 250_000, stage.monotonic)
    stage.now += 1_000 * MS
    clocks.driver.turn()
    assert clocks.machine.clock[-1][0] == 250


def test_a_clock_that_disagrees_with_a_majority_is_an_event_and_not_trusted(stage: Stage) -> None:
    clocks = ClockStage(stage)
    clocks.run(START_NS + 2 * START_ALARM_NS, off_ns=20 * MS)
    (event,) = clocks.events
    assert isinstance(event, ClockDoubted)
    assert event.value_ns == pytest.approx(20 * MS, rel=0.01)
    assert clocks.driver.counters.reports == {"clock-doubted": 1}
    assert not any(clocks.machine.trusted)


def test_a_clock_that_is_set_is_checked_again(stage: Stage) -> None:
    clocks = ClockStage(stage)
    clocks.run(START_NS)
    stage.now += 50 * MS
    clocks.run(START_NS)
    assert clocks.driver.clock_was_set
    assert not clocks.check.checked
    stage.now -= 50 * MS
    clocks.run(START_NS)
    assert not clocks.driver.clock_was_set
    assert clocks.check.checked


def test_what_members_state_about_their_clocks_is_kept(stage: Stage) -> None:
    clocks = ClockStage(stage)
    stage.inbox = [(encode(Beat(PEER, 1, (Claim(7, 5),), 8, NOW, 300, -20), 0), FROM_PEER)]
    clocks.driver.turn()
    assert clocks.check.told == {PEER: MemberClock(300, -20)}


def test_the_loop_wakes_to_judge_the_clock(stage: Stage) -> None:
    clocks = ClockStage(stage)
    clocks.driver.turn()
    clocks.check.wake_ns = stage.now + 7 * MS
    clocks.driver.turn()
    assert stage.slept_s == pytest.approx(0.007)

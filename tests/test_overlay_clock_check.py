"""The check of one clock against members whose delays and clocks are planted."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from levelcast.overlay.clock_check import (
    EVERY_NS,
    MS,
    OFFSET_NS,
    RETURN_NS,
    SETTLE_NS,
    START_ALARM_NS,
    START_EVERY_NS,
    START_NS,
    START_SAMPLES,
    ClockCheck,
    MemberClock,
    median_offset,
)
from levelcast.overlay.paths import ROW_NS, Paths
from levelcast.overlay.probe import Prober
from levelcast.protocol.clock import DAY_NS, LEAP_MARGIN_NS, Vouched
from levelcast.protocol.config import StripeConfig
from levelcast.protocol.effects import GROUP, Effect, Send
from levelcast.protocol.events import ClockBack, ClockDoubt, ClockDoubted, LeapAnnounced
from levelcast.wire.messages import (
    NOTHING_RECENT,
    Beat,
    Claim,
    Echo,
    MemberLife,
    Membership,
    PathFigures,
    PathRow,
    Probe,
)
from tests.ring_parts import PIPELINED

S = 1_000 * MS
T0 = 1_700_000_040_000_000_000
ME = 1
LIMIT_NS = 4 * MS


def config(members: int = 5, *, smeared: bool = False) -> StripeConfig:
    lives = tuple(MemberLife(member, 1) for member in range(1, members + 1))
    return StripeConfig(
        0, PIPELINED, "majority", Membership(0, lives), (101,), clock_error_ns=MS, asymmetry_ns=3 * MS, smeared=smeared
    )


@dataclass
class Stage:
    """The check of node `ME` with made-up members, in true time."""

    members: int = 5
    node: int = ME
    smeared: bool = False
    one_machine: bool = False
    off_ns: int = 0
    """How far this node's clock is ahead of the true time."""
    others_off_ns: dict[int, int] = field(default_factory=dict)
    delays_ns: dict[tuple[int, int], int] = field(default_factory=dict)
    absent: set[int] = field(default_factory=set)
    beating: bool = False
    true_ns: int = T0
    effects: list[Effect] = field(default_factory=list)

    def __post_init__(self) -> None:
        peers = [member for member in range(1, self.members + 1) if member != self.node]
        made = config(self.members, smeared=self.smeared)
        self.prober = Prober(self.node, peers, None, self.now)
        self.paths = Paths(self.node, peers, self.now)
        self.check = ClockCheck(
            self.node, made, self.prober, self.paths, self.now, self.mono, one_machine=self.one_machine
        )
        self.peers = peers

    @property
    def now(self) -> int:
        return self.true_ns + self.off_ns

    @property
    def mono(self) -> int:
        return self.true_ns - T0

    def delay(self, sender: int, receiver: int) -> int:
        return self.delays_ns.get((sender, receiver), 20 * MS)

    def turn(self, *, was_set: bool = False) -> None:
        """One step, with the answers to its probes and with beats and rows if members beat."""
        effects = self.check.step(self.now, self.mono, was_set=was_set)
        self.effects += effects
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.message, Probe):
                for member in self.peers if effect.to == GROUP else (effect.to,):
                    if member not in self.absent:
                        self.echo(effect.message, member)
        if self.beating:
            for member in self.peers:
                if member not in self.absent:
                    self.beat(member)

    def echo(self, probe: Probe, member: int) -> None:
        there, here = self.delay(self.node, member), self.delay(member, self.node)
        theirs = self.others_off_ns.get(member, 0) - self.off_ns
        heard = probe.sent_ns + there + theirs
        arrived = self.now + there + here
        self.prober.step([(Echo(member, self.node, probe.number, probe.sent_ns, heard, heard), arrived)], self.now)

    def beat(self, member: int) -> None:
        """A beat from the member arrives, and its row about the beats of this node."""
        sent_ns = self.true_ns + self.others_off_ns.get(member, 0)
        number = (self.true_ns - T0) // MS + 1
        self.paths.hear_beat(member, number, sent_ns, self.now + self.delay(member, self.node))
        there_us = (self.delay(self.node, member) + self.others_off_ns.get(member, 0) - self.off_ns) // 1_000
        figures = PathFigures(self.node, 9, 0, 0, 0, 0, 0, 0, 9, bytes(32), there_us)
        self.paths.take([PathRow(member, (figures,))], self.now)

    def run(self, lasting_ns: int) -> Stage:
        end_ns = self.true_ns + lasting_ns
        while self.true_ns < end_ns:
            self.turn()
            self.true_ns += max(1, min(self.check.wake_ns - self.now, end_ns - self.true_ns))
        return self

    @property
    def doubts(self) -> list[ClockDoubt]:
        return [effect.doubt for effect in self.effects if isinstance(effect, ClockDoubted)]

    @property
    def probes(self) -> list[Send]:
        return [effect for effect in self.effects if isinstance(effect, Send)]


# -- the start --------------------------------------------------------------------------------------------


def test_a_right_clock_is_checked_within_a_second_and_sends_nothing_before() -> None:
    stage = Stage()
    assert not stage.check.trusted
    stage.run(START_EVERY_NS * (START_SAMPLES - 2))
    assert not stage.check.trusted
    stage.run(START_NS - START_EVERY_NS * START_SAMPLES)
    assert stage.check.checked
    assert stage.check.trusted
    assert stage.check.offset_ns == 0
    assert stage.doubts == []


@pytest.mark.parametrize("off_ns", [5 * MS, -20 * MS, 200 * MS])
def test_a_clock_that_is_off_at_the_start_is_never_trusted_and_raises_one_alarm(off_ns: int) -> None:
    stage = Stage(off_ns=off_ns)
    for _ in range(60):
        stage.run(200 * MS)
        assert not stage.check.trusted
    assert stage.doubts == [ClockDoubt.OFFSET]
    (alarm,) = (effect for effect in stage.effects if isinstance(effect, ClockDoubted))
    assert (alarm.value_ns, alarm.limit_ns, alarm.heard) == (off_ns, LIMIT_NS, 5)


def test_the_alarm_of_the_start_waits_for_better_samples() -> None:
    stage = Stage(off_ns=20 * MS).run(START_ALARM_NS // 2)
    assert stage.doubts == []


def test_a_wrong_member_does_not_keep_the_others_from_starting() -> None:
    stage = Stage(others_off_ns={2: 200 * MS, 3: -200 * MS}).run(START_NS)
    assert stage.check.checked
    assert stage.check.offset_ns == 0


def test_nobody_waits_for_a_majority_that_does_not_run() -> None:
    stage = Stage(absent={3, 4, 5}).run(START_NS - 1)
    assert not stage.check.trusted
    stage.run(2 * START_EVERY_NS)
    assert stage.check.trusted
    assert not stage.check.checked


def test_a_node_that_ran_unchecked_falls_silent_as_soon_as_a_majority_contradicts() -> None:
    stage = Stage(absent={3, 4, 5}, off_ns=20 * MS).run(3 * START_NS)
    assert stage.check.trusted
    stage.absent.clear()
    stage.run(2 * START_SAMPLES * EVERY_NS)
    assert not stage.check.trusted
    assert stage.doubts == [ClockDoubt.OFFSET]


def test_two_clocks_that_disagree_are_no_start() -> None:
    stage = Stage(members=2, off_ns=20 * MS).run(5 * S)
    assert not stage.check.trusted
    assert stage.doubts == [ClockDoubt.OFFSET]


def test_the_only_member_has_nobody_to_ask() -> None:
    stage = Stage(members=1)
    assert stage.check.trusted
    assert stage.run(5 * S).probes == []


def test_a_secondary_is_compared_with_members_and_is_not_one_of_them() -> None:
    stage = Stage(members=5, node=9, absent={4, 5}, off_ns=20 * MS)
    stage.run(5 * S)
    assert (stage.check.heard, stage.check.needed) == (3, 3)
    assert stage.doubts == [ClockDoubt.OFFSET]


# -- while it runs ----------------------------------------------------------------------------------------


def checked(**values: object) -> Stage:
    stage = Stage(**values).run(START_NS)  # type: ignore[arg-type]
    assert stage.check.checked
    stage.effects.clear()
    return stage


def test_probes_end_once_beats_of_a_majority_are_measured_in_both_directions() -> None:
    stage = checked(beating=True, absent={4, 5})
    stage.run(SETTLE_NS - S)
    assert {send.to for send in stage.probes} == {2, 3, 4, 5}
    stage.run(2 * S)
    stage.effects.clear()
    stage.run(5 * S)
    assert stage.probes == []
    assert set(stage.check.compared) == {2, 3}
    stage.absent.add(3)
    stage.run(10 * S)
    assert stage.probes, "too few beats again"


@pytest.mark.parametrize("beating", [True, False])
def test_an_offset_is_an_alarm_after_ten_seconds(beating: bool) -> None:
    stage = checked(beating=beating)
    stage.run(2 * SETTLE_NS)
    stage.off_ns = 12 * MS
    stage.run(OFFSET_NS - S)
    assert stage.check.trusted
    stage.run(10 * S)
    assert stage.doubts == [ClockDoubt.OFFSET]
    assert not stage.check.trusted
    assert stage.check.offset_us is not None
    assert abs(stage.check.offset_us - 12_000) < 500


def test_an_offset_that_ends_earlier_is_none_and_the_time_begins_again() -> None:
    stage = checked(beating=True).run(2 * SETTLE_NS)
    for _ in range(3):
        stage.off_ns = 12 * MS
        stage.run(OFFSET_NS // 2)
        stage.off_ns = 0
        stage.run(OFFSET_NS)
    assert stage.doubts == []


def test_an_offset_within_clock_error_and_asymmetry_is_none() -> None:
    stage = checked(beating=True, delays_ns={(member, ME): 26 * MS for member in range(2, 6)}, off_ns=MS // 2)
    assert stage.run(60 * S).doubts == []


def test_without_a_majority_nothing_is_judged() -> None:
    stage = checked(beating=True).run(2 * SETTLE_NS)
    stage.absent |= {3, 4, 5}
    stage.off_ns = 50 * MS
    stage.run(60 * S)
    assert stage.doubts == []
    assert stage.check.offset_ns is None
    assert stage.check.offset_us is None


def test_a_clock_that_no_majority_can_agree_with_is_found_at_once() -> None:
    stage = checked(beating=True).run(2 * SETTLE_NS)
    stage.off_ns = -1 * S
    stage.run(2 * EVERY_NS)
    assert stage.doubts == [ClockDoubt.APART]


def test_members_that_state_a_larger_error_can_agree_with_more() -> None:
    stage = checked(beating=True).run(2 * SETTLE_NS)
    for member in stage.peers:
        stage.check.hear_beat(Beat(member, 1, (Claim(1, 1),), 1, T0, 2_000_000, 0))
    stage.off_ns = -1 * S
    stage.run(2 * EVERY_NS)
    assert stage.doubts == []
    assert stage.check.told[2] == MemberClock(2_000_000, 0)


def test_beats_of_strangers_are_not_kept() -> None:
    stage = Stage()
    stage.check.hear_beat(Beat(77, 1, (Claim(1, 1),), 1, T0, 5, 5))
    assert stage.check.told == {}


def test_a_clock_that_is_right_again_for_ten_seconds_returns() -> None:
    stage = checked(beating=True).run(2 * SETTLE_NS)
    stage.off_ns = 12 * MS
    stage.run(OFFSET_NS + 5 * S)
    assert not stage.check.trusted
    stage.off_ns = 0
    stage.run(RETURN_NS - S)
    assert not stage.check.trusted
    stage.run(10 * S)
    assert stage.check.trusted
    assert isinstance(stage.effects[-1], ClockBack)


def test_a_clock_that_was_set_begins_again_with_the_check_of_the_start() -> None:
    stage = checked(beating=True).run(2 * SETTLE_NS)
    stage.off_ns = 300 * MS
    for _ in range(4):
        stage.turn(was_set=True)
        stage.true_ns += EVERY_NS
    assert not stage.check.checked
    stage.off_ns = 0
    stage.run(START_EVERY_NS)
    assert not stage.check.trusted
    stage.run(START_NS)
    assert stage.check.checked
    stage.run(3 * SETTLE_NS)
    assert stage.doubts == [], "what was measured with the wrong clock does not count"


def test_answers_to_probes_from_before_the_clock_was_set_do_not_count() -> None:
    stage = checked()
    (sent,) = (effect for effect in stage.prober.probe(stage.now, [2]) if isinstance(effect, Send))
    probe = sent.message
    assert isinstance(probe, Probe)
    stage.turn(was_set=True)
    stage.echo(probe, 2)
    assert stage.check._echoes[2].there.count == 0


# -- the time source and leap seconds ---------------------------------------------------------------------


def test_a_bound_above_the_clock_error_is_an_alarm_at_once_and_ends_ten_seconds_after_it() -> None:
    stage = checked().run(S)
    assert (stage.check.vouched, stage.check.error_ns, stage.check.error_us) == (None, MS, None)
    stage.check.bound.vouch("chrony", 900_000, stage.mono)
    stage.run(EVERY_NS)
    assert stage.check.vouched == Vouched("chrony", 900_000)
    stage.run(4 * S)
    assert stage.doubts == []
    stage.run(2 * S)
    assert stage.doubts == [ClockDoubt.BOUND], "0.1 ms at 20 ppm are 5 s"
    for _ in range(10):
        assert not stage.check.trusted
        stage.check.bound.vouch("chrony", 100_000, stage.mono)
        stage.run(S)
    stage.run(S)
    assert stage.check.trusted


def test_the_nodes_of_one_machine_share_its_clock_which_is_shown_and_not_judged() -> None:
    stage = Stage(one_machine=True, off_ns=900 * MS)
    assert stage.check.trusted
    stage.check.bound.vouch("chrony", 30 * MS, stage.mono)
    stage.run(30 * S)
    assert stage.doubts == []
    assert stage.check.trusted
    assert stage.check.error_us is not None
    assert stage.check.error_us > 30_000
    assert stage.check.offset_ns == 900 * MS


def test_the_ceiling_of_the_kernel_silences_nobody() -> None:
    stage = checked()
    stage.check.bound.vouch("kernel", 32 * MS, stage.mono)
    stage.run(20 * S)
    assert stage.doubts == []
    assert stage.check.error_ns > 32 * MS


@pytest.mark.parametrize("smeared", [False, True])
def test_a_leap_second_is_announced_once_and_stops_a_clock_that_is_not_smeared(smeared: bool) -> None:
    stage = Stage(smeared=smeared)
    stage.true_ns = (T0 // DAY_NS + 1) * DAY_NS - 60 * S
    stage.run(2 * S)
    for _ in range(3):
        stage.check.announce_leap(True, stage.now)
        stage.run(S)
    notices = [effect for effect in stage.effects if isinstance(effect, LeapAnnounced)]
    assert notices == [LeapAnnounced(0, (T0 // DAY_NS + 1) * DAY_NS, smeared)]
    stage.run(55 * S - LEAP_MARGIN_NS - S)
    assert stage.check.trusted
    stage.run(2 * S)
    assert stage.check.trusted is smeared
    stage.run(60 * S)
    assert stage.check.trusted is smeared, "only a restart ends it"


def test_a_row_that_has_nothing_recent_or_is_old_is_not_used() -> None:
    stage = checked(beating=True).run(2 * SETTLE_NS)
    assert stage.check._by_beats(2, stage.now) is not None
    stage.paths.take([PathRow(2, (PathFigures(ME, 9, 0, 0, 0, 0, 0, 0, 9, bytes(32), NOTHING_RECENT),))], stage.now)
    assert stage.check._by_beats(2, stage.now) is None
    assert stage.check._by_beats(3, stage.now + 4 * ROW_NS) is None


def test_the_median_of_an_even_number_is_the_middle_one_nearest_or_farthest() -> None:
    assert median_offset([5], optimistic=True) == 5
    assert median_offset([-7, 1, 2, 50], optimistic=True) == 1
    assert median_offset([-7, 1, 2, 50], optimistic=False) == 2
    assert median_offset([-7, -4, 2, 50], optimistic=False) == -4

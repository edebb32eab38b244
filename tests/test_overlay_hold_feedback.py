"""The hold time follows what receivers measure: each clause of rule W10, without I/O."""

from __future__ import annotations

import pytest

from levelcast.overlay.hold_feedback import (
    QUIET_NS,
    SECOND_NS,
    FeedbackRules,
    HoldController,
    HoldFeedback,
    ReleaseMeter,
)
from levelcast.protocol.effects import Effect, Release, Send
from levelcast.protocol.events import HoldChosen
from levelcast.protocol.history import Frame, History, MembershipChange, SourcePosition, Tip
from levelcast.protocol.timing_record import settled_ns, timing_record
from levelcast.wire.messages import (
    CONTROL_SOURCE,
    Cutoff,
    Data,
    Membership,
    Pace,
    PaceChange,
    ReleaseRow,
    ReleaseSecond,
    Run,
)
from levelcast.wire.pace_change import decode_pace_change
from levelcast.wire.packets import open_packets

MS = 1_000_000
T0 = 1_700_000_000 * SECOND_NS
HOLD = 400 * MS
RULES = FeedbackRules(1e-5, 5 * SECOND_NS, 30 * SECOND_NS, 100 * MS, 2_000 * MS)
MEMBERS = (1, 2, 3)


def fill(
    controller: HoldController,
    seconds: range,
    need_ms: float = 300,
    *,
    late: int = 0,
    slots: int = 20,
    nodes: tuple[int, ...] = MEMBERS,
) -> None:
    for node in nodes:
        for second in seconds:
            each = ReleaseSecond(T0 // SECOND_NS + second, slots, late, int(need_ms * 1_000))
            controller.hear(ReleaseRow(node, 0, 0, 0, (each,)), T0 + (second + 2) * SECOND_NS)


def decided(controller: HoldController, second: float, *, since: float = 0, hold_ns: int = HOLD) -> int | None:
    now = T0 + int(second * SECOND_NS) + hold_ns
    found = controller.decide(MEMBERS, now, hold_ns, T0 + int(since * SECOND_NS))
    return None if found is None else found.hold_ns


def late_slots(*late: tuple[int, int, float], slots: int = 20, upto: int = 8) -> HoldController:
    """Rows of all members, in which (member, second, need in ms) are late."""
    controller = HoldController(RULES)
    fill(controller, range(upto), slots=slots)
    for node, second, need_ms in late:
        fill(controller, range(second, second + 1), need_ms, late=1, slots=slots, nodes=(node,))
    return controller


# -- longer -------------------------------------------------------------------------------------------------


def test_two_late_slots_of_one_receiver_make_it_longer_by_a_tenth_of_the_largest_need() -> None:
    assert decided(late_slots((2, 3, 430.0), (2, 4, 500.0)), 8) == 550 * MS
    found = late_slots((2, 3, 430.0), (2, 4, 500.0)).decide(MEMBERS, T0 + 8 * SECOND_NS + HOLD, HOLD, T0)
    assert found is not None
    assert found[1:] == (2, 2, 100, 500 * MS, 5 * SECOND_NS)


def test_it_grows_by_a_tenth_at_least_and_twofold_at_most() -> None:
    assert decided(late_slots((2, 3, 401.0), (2, 4, 401.0)), 8) == pytest.approx(1.1025 * HOLD, rel=0.003)
    assert decided(late_slots((2, 3, 380.0), (2, 4, 380.0)), 8) == 440 * MS
    assert decided(late_slots((2, 3, 401.0), (2, 4, 5_000.0)), 8) == 800 * MS


def test_it_does_not_exceed_rule_6() -> None:
    controller = late_slots((2, 3, 2_400.0), (2, 4, 2_400.0))
    assert decided(controller, 8, hold_ns=1_900 * MS) == 2_000 * MS
    assert decided(controller, 8, hold_ns=2_000 * MS) is None


def test_one_late_slot_or_one_at_each_of_two_receivers_changes_nothing() -> None:
    assert decided(late_slots((2, 3, 500.0)), 8) is None
    assert decided(late_slots((2, 3, 500.0), (1, 4, 500.0)), 8) is None


def test_a_late_share_below_the_target_changes_nothing() -> None:
    controller = late_slots((2, 3, 500.0), (2, 4, 500.0), slots=50_000)
    assert decided(controller, 8) is None


def test_late_slots_before_the_window_or_before_the_last_change_do_not_count() -> None:
    controller = late_slots((2, 0, 500.0), (2, 1, 500.0))
    assert decided(controller, 6) == 550 * MS
    assert decided(controller, 8) is None
    assert decided(controller, 6, since=0.5) is None, "the window has begun before the change"


def test_a_receiver_whose_rows_begin_within_the_window_has_to_wait() -> None:
    controller = HoldController(RULES)
    fill(controller, range(8), nodes=(1, 3))
    fill(controller, range(4, 8), 500.0, late=1, nodes=(2,))
    assert decided(controller, 8) is None
    fill(controller, range(8, 12), nodes=(2,))
    assert decided(controller, 10) == 550 * MS


# -- shorter ------------------------------------------------------------------------------------------------


def test_it_becomes_a_tenth_shorter_if_nobody_needs_four_fifths() -> None:
    controller = HoldController(RULES)
    fill(controller, range(40), 200.0)
    assert decided(controller, 35) == 360 * MS
    assert decided(controller, 35, since=10) is None, "30 s have not passed since the change"


def test_it_stays_a_quarter_above_the_largest_need_and_two_slots() -> None:
    controller = HoldController(RULES)
    fill(controller, range(40), 300.0)
    assert decided(controller, 35) == 375 * MS
    fill(controller, range(20, 21), 315.0)
    assert decided(controller, 35) is None, "a change of less than 2 % is omitted"
    low = HoldController(RULES)
    fill(low, range(40), 20.0)
    assert decided(low, 35, hold_ns=105 * MS) == 100 * MS
    assert decided(low, 35, hold_ns=101 * MS) is None


@pytest.mark.parametrize("need_ms", [321.0, 399.0])
def test_one_slot_that_needed_more_than_four_fifths_keeps_it(need_ms: float) -> None:
    controller = HoldController(RULES)
    fill(controller, range(40), 200.0)
    fill(controller, range(20, 21), need_ms, nodes=(3,))
    assert decided(controller, 35) is None


def test_one_late_slot_keeps_it() -> None:
    controller = HoldController(RULES)
    fill(controller, range(40), 200.0)
    fill(controller, range(20, 21), 200.0, late=1, nodes=(3,))
    assert decided(controller, 35) is None


def test_a_secondary_that_needs_more_keeps_it() -> None:
    controller = HoldController(RULES)
    fill(controller, range(40), 200.0)
    fill(controller, range(20, 21), 390.0, nodes=(11,))
    assert decided(controller, 35) is None


def test_rows_of_every_member_with_slots_are_needed() -> None:
    controller = HoldController(RULES)
    fill(controller, range(40), 200.0, nodes=(1, 2))
    assert decided(controller, 35) is None, "nothing is known of member 3"
    fill(controller, range(20), 200.0, nodes=(3,))
    assert decided(controller, 35) is None, "member 3 has been away"
    idle = HoldController(RULES)
    fill(idle, range(40), 0.0, slots=0)
    assert decided(idle, 35) is None, "an idle ring shows nothing"


def test_a_change_is_never_followed_by_its_reverse() -> None:
    for need_ms in range(50, 400, 10):
        controller = HoldController(RULES)
        fill(controller, range(200), float(need_ms))
        hold_ns = HOLD
        for _ in range(40):
            shorter = decided(controller, 190, hold_ns=hold_ns)
            if shorter is None:
                break
            hold_ns = shorter
        assert need_ms * MS <= hold_ns * 0.801 or hold_ns == HOLD


def test_a_lost_row_is_repeated_and_times_in_the_future_are_ignored() -> None:
    controller = HoldController(RULES)
    fill(controller, range(40), 200.0)
    wrong = ReleaseSecond(2**40, 20, 20, 1)
    controller.hear(ReleaseRow(2, 0, 0, 0, (wrong,)), T0 + 40 * SECOND_NS)
    assert decided(controller, 35) == 360 * MS


# -- the meter ----------------------------------------------------------------------------------------------


def test_a_row_has_the_last_seconds_whose_slots_are_due() -> None:
    meter = ReleaseMeter(T0 - 10 * SECOND_NS, 2 * SECOND_NS)
    for slot in range(40):
        meter.note(T0 + slot * 100 * MS, (200 + slot) * MS, T0 + slot * 100 * MS + HOLD, late=slot == 15)
    row = meter.row(1, T0 + 3 * SECOND_NS + HOLD, HOLD)
    assert [each.slots for each in row.seconds] == [0, 0, 0, 0, 0, 10, 10, 10]
    assert [each.late for each in row.seconds][-3:] == [0, 1, 0]
    assert [each.longest_us for each in row.seconds][-3:] == [209_000, 219_000, 229_000]
    assert (row.p50_us, row.p99_us, row.p999_us) == (215_000, 229_000, 229_000)


def test_slots_after_a_start_and_in_a_new_ring_are_left_out_for_the_recovery_time() -> None:
    meter = ReleaseMeter(T0, 2 * SECOND_NS)
    meter.note(T0, 900 * MS, T0 + SECOND_NS, late=True)
    meter.note(T0 + 3 * SECOND_NS, 300 * MS, T0 + 3 * SECOND_NS + HOLD, late=False)
    meter.recover(T0 + 4 * SECOND_NS)
    meter.note(T0 + 4 * SECOND_NS, 900 * MS, T0 + 5 * SECOND_NS, late=True)
    meter.note(T0 + 6 * SECOND_NS, 300 * MS, T0 + 6 * SECOND_NS + HOLD, late=False)
    row = meter.row(1, T0 + 8 * SECOND_NS, HOLD)
    assert [(each.slots, each.late) for each in row.seconds] == [(0, 0), (1, 0), (0, 0), (0, 0), (1, 0)]


# -- the record ---------------------------------------------------------------------------------------------


class FakeReceiver:
    """A receiver of a ring with these members and times."""

    def __init__(self) -> None:
        self.generation = 7
        self.history = History(Tip(records=[MembershipChange(0, Membership(0, ()))]))
        self.ring_members: tuple[int, ...] = MEMBERS
        self.beat_ns = 25 * MS

    def pace(self, now: int) -> Pace | None:
        changes = self.history.tip.paces
        return changes[-1].pace if changes else Pace(HOLD, self.beat_ns, (Cutoff(1, 80 * MS),))

    def hold_ns(self, timestamp_ns: int) -> int:
        return HOLD


def feedback_of(node: int, receiver: FakeReceiver, rules: FeedbackRules | None = RULES) -> HoldFeedback:
    made = HoldFeedback(node, 5, receiver, T0 - 40 * SECOND_NS, recovery_ns=SECOND_NS, resend_ns=200 * MS, rules=rules)
    for second in range(-38, -1):
        each = ReleaseSecond(T0 // SECOND_NS + second, 20, int(second > -6), 500_000)
        for sender in MEMBERS:
            made.hear(ReleaseRow(sender, 0, 0, 0, (each,)), T0)
    return made


def records(effects: list[Effect]) -> list[Data]:
    return [each.message for each in effects if isinstance(each, Send) and isinstance(each.message, Data)]


def change_in(data: Data) -> PaceChange:
    (packet,) = open_packets(data)
    assert (packet.source, packet.number) == (CONTROL_SOURCE, 1)
    change = decode_pace_change(packet.payload)
    assert change is not None
    return change


def frame_at(timestamp_ns: int, source: int = 9) -> Frame:
    return Frame(1, timestamp_ns, 1, 1, (Run(source, 1, 1, 1),), b"", b"", b"", b"")


def test_the_first_member_sends_a_record_until_it_is_in_the_sequence() -> None:
    receiver = FakeReceiver()
    feedback = feedback_of(1, receiver)
    effects = feedback.step(T0)
    (event,) = [each for each in effects if isinstance(each, HoldChosen)]
    assert (event.hold_ns, event.before_ns) == (550 * MS, 400 * MS)
    (data,) = records(effects)
    change = change_in(data)
    assert change[:3] == (1, T0 + SECOND_NS + HOLD, HOLD)
    assert change.pace.hold_ns == 550 * MS
    assert feedback.step(T0 + 100 * MS) == []
    assert records(feedback.step(T0 + 200 * MS)) == [data]
    receiver.history.tip.paces = [change]
    assert feedback.step(T0 + 400 * MS) == []
    assert not records(feedback.step(T0 + 1_500 * MS))


def test_a_record_that_would_come_too_late_is_given_up_and_made_again_in_a_higher_incarnation() -> None:
    receiver = FakeReceiver()
    feedback = feedback_of(1, receiver)
    (first,) = records(feedback.step(T0))
    receiver.history.tip.places[CONTROL_SOURCE] = SourcePosition(T0 + 10 * SECOND_NS, 2)
    assert not records(feedback.step(T0 + SECOND_NS))
    (second,) = records(feedback.step(T0 + 2 * SECOND_NS))
    assert second.incarnation == T0 + 10 * SECOND_NS + 1 > first.incarnation
    assert change_in(second).version == 1


@pytest.mark.parametrize("why", ["other member", "file", "lockstep", "no ring", "clock"])
def test_others_publish_their_row_alone(why: str) -> None:
    receiver = FakeReceiver()
    if why == "lockstep":
        receiver.beat_ns = 0
    if why == "no ring":
        receiver.ring_members = ()
    feedback = feedback_of(2 if why == "other member" else 1, receiver, None if why == "file" else RULES)
    effects = feedback.step(T0, clock_trusted=why != "clock")
    assert [type(each.message) for each in effects if isinstance(each, Send)] == (
        [ReleaseRow] if why != "clock" else []
    )


def test_a_packet_of_an_operator_postpones_a_change() -> None:
    receiver = FakeReceiver()
    feedback = feedback_of(1, receiver)
    feedback.released(Release(frame_at(T0 - HOLD, CONTROL_SOURCE), T0, False), T0)
    assert not records(feedback.step(T0 + SECOND_NS // 2))
    for second in range(1, 10):
        assert not records(feedback.step(T0 + second * SECOND_NS + SECOND_NS // 2))
    assert QUIET_NS == 10 * SECOND_NS


def test_a_pending_or_falling_change_postpones_the_next() -> None:
    receiver = FakeReceiver()
    change = timing_record(0, Pace(800 * MS, 25 * MS, (Cutoff(1, 80 * MS),)), HOLD, T0 - 3 * SECOND_NS)
    assert settled_ns(change) == T0 - 400 * MS
    receiver.history.tip.paces = [change]
    assert not records(feedback_of(1, receiver).step(T0)), "the window begins again when it is in force"
    receiver.history.tip.paces = [change._replace(from_ns=T0 - 20 * SECOND_NS)]
    assert records(feedback_of(1, receiver).step(T0))


def test_only_lateness_by_protocol_counts_and_a_tape_or_a_new_ring_begins_a_recovery() -> None:
    receiver = FakeReceiver()
    feedback = HoldFeedback(1, 5, receiver, T0 - 40 * SECOND_NS, recovery_ns=SECOND_NS, resend_ns=200 * MS)

    def release(at_s: float, need_ms: int, *, late: bool = False, from_tape: bool = False) -> None:
        stamp = T0 + int(at_s * SECOND_NS)
        made = Release(frame_at(stamp), stamp + HOLD, late, stamp + need_ms * MS, from_tape=from_tape)
        feedback.released(made, stamp + 3 * HOLD)

    release(0, 300)  # the process ran late, and the slot was ready in time
    release(1, 350, from_tape=True)
    release(1.1, 900, late=True)
    release(3, 310)
    receiver.generation = 8
    release(4, 900, late=True)
    release(6, 320)
    row = feedback.step(T0 + 8 * SECOND_NS)[0]
    assert isinstance(row, Send)
    assert isinstance(row.message, ReleaseRow)
    told = {each.second - T0 // SECOND_NS: each[1:] for each in row.message.seconds if each.slots}
    assert told == {0: (1, 0, 300_000), 3: (1, 0, 310_000), 6: (1, 0, 320_000)}


def test_the_time_at_which_the_others_know_the_witness_is_part_of_the_need() -> None:
    receiver = FakeReceiver()
    feedback = HoldFeedback(1, 5, receiver, T0 - 40 * SECOND_NS, recovery_ns=SECOND_NS, resend_ns=200 * MS)
    feedback.released(Release(frame_at(T0), T0 + HOLD, False, T0 + 200 * MS, witness_ns=T0 + 340 * MS), T0 + HOLD)
    effect = feedback.step(T0 + 3 * SECOND_NS)[0]
    assert isinstance(effect, Send)
    assert isinstance(effect.message, ReleaseRow)
    assert max(each.longest_us for each in effect.message.seconds) == 340_000

"""What a primary receiver says, keeps and releases in each of its states, and in which order."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from levelcast.protocol.config import StripeConfig
from levelcast.protocol.effects import (
    GROUP,
    SERVERS,
    Checkpoint,
    Effect,
    Forget,
    Persist,
    Promise,
    Release,
    Send,
    ServeTape,
)
from levelcast.protocol.event_text import sentence
from levelcast.protocol.history import GENESIS, first_tip
from levelcast.protocol.journal_image import JournalImage
from levelcast.ring.member import Member
from levelcast.timing.rules import GUARD_NS
from levelcast.wire.messages import (
    CatchUp,
    Data,
    Fault,
    FaultReason,
    Group,
    GroupToken,
    Invite,
    Join,
    Mark,
    Message,
    Promised,
    Repair,
    Request,
    Ring,
    Run,
    Token,
)
from levelcast.wire.packets import open_packets
from tests.ring_parts import (
    LOCKSTEP,
    MS,
    PIPELINED,
    SERVER,
    START,
    Seat,
    kept,
    make_config,
    make_data,
    make_ring,
    make_token,
    membership,
    released,
    reports,
    seat_in_ring,
    sent,
)

RING = make_ring(5)
"""Members 1, 2, 3 from slot 1 on: slots 1, 4, 7 ... are member 1's."""
HOLD = PIPELINED.hold_ns
LATE = PIPELINED.late_ns
TAU_R = PIPELINED.request_ns
K_R = PIPELINED.attempts
SOON = START - 20 * MS


def at_slot(slot: int) -> int:
    return START + (slot - 1) * PIPELINED.slot_ns


def run_of(first: int, last: int, source: int = 201) -> Run:
    return Run(source, 1, first, last)


def play(
    seat: Seat, first: int, last: int, runs: dict[int, Run] | None = None, have: int | None = None
) -> list[Effect]:
    """Slots `first` to `last` as they come: own ones when due, the others' tokens on time."""
    effects: list[Effect] = []
    for slot in range(first, last + 1):
        own = RING.members[(slot - 1) % 3].member == seat.member
        named = [runs[slot]] if runs and slot in runs else []
        messages = [] if own else [make_token(RING, slot, have, named)]
        effects += seat.step(*messages, at=at_slot(slot))
    return effects


def index_of(effects: list[Effect], kind: type, of: type) -> int:
    """Where the first Persist or Send of such a message stands."""
    for i, effect in enumerate(effects):
        if isinstance(effect, Persist) and kind is Persist and isinstance(effect.entry, of):
            return i
        if isinstance(effect, Send) and kind is Send and isinstance(effect.message, of):
            return i
    raise LookupError(of.__name__)


def new() -> Seat:
    return Seat(make_config(), 1, SOON)


def promised() -> Seat:
    seat = new()
    seat.step(Invite(5, SERVER), at=SOON)
    return seat


def active() -> Seat:
    return seat_in_ring(ring=RING)


# -- invitations ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [new, promised, active], ids=lambda make: make.__name__)
def test_a_higher_invitation_is_promised_in_the_journal_before_it_is_joined(make: Callable[[], Seat]) -> None:
    seat = make()
    effects = seat.step(Invite(9, SERVER), at=SOON)
    assert kept(effects, Promise) == [Promise(9)]
    assert index_of(effects, Persist, Promise) < index_of(effects, Send, Join)
    assert [e.to for e in effects if isinstance(e, Send) and isinstance(e.message, Join)] == [SERVER]
    assert seat.receiver.promised == 9


def test_the_same_invitation_is_joined_again_until_the_ring_is_entered() -> None:
    seat = promised()
    again = seat.step(Invite(5, SERVER), at=SOON)
    assert len(sent(again, Join)) == 1
    assert kept(again, Promise) == []
    seat.step(RING, at=SOON)
    assert sent(seat.step(Invite(5, SERVER), at=SOON), Join) == []


@pytest.mark.parametrize("entered", [False, True])
def test_a_lower_invitation_is_answered_with_the_promise(entered: bool) -> None:
    seat = active() if entered else promised()
    effects = seat.step(Invite(4, SERVER + 1), at=SOON)
    assert Send(SERVER + 1, Promised(1, 5)) in effects
    assert sent(effects, Join) == []
    assert seat.receiver.promised == 5


def test_a_join_says_what_the_member_holds_and_in_which_generation_it_had_caught_up() -> None:
    seat = active()
    play(seat, 1, 6)
    (join,) = sent(seat.step(Invite(9, SERVER), at=at_slot(6)), Join)
    assert join == Join(9, 1, 1, 5, 6, 0, at_slot(6), RING.lineage, None, membership(1, 2, 3), True)


def test_a_member_that_has_not_caught_up_names_the_generation_before() -> None:
    """History F1: entering a ring proves nothing about the slots before it."""
    seat = active()
    play(seat, 1, 2)
    seat.enter(make_ring(9, start_slot=11, start_ns=START + 200 * MS, before=RING.lineage, helper=2), at_slot(3))
    (join,) = sent(seat.step(Invite(12, SERVER), at=at_slot(3)), Join)
    assert (join.caught_up, join.have) == (5, 2)


def test_a_join_carries_the_primarys_own_have_and_its_tokens_the_lowest_of_its_group() -> None:
    """History F7."""
    seat = active()
    play(seat, 1, 3)
    seat.receiver.claims.hear(GroupToken(31, RING.generation, 1, 1, 2))
    seat.receiver.claims.hear(GroupToken(32, RING.generation, 1, 1, 1))
    assert [token.have for token in sent(seat.step(at=at_slot(4)), Token)] == [1]
    seat.receiver.claims.take(Group(1, SERVER, 1, (31,)))
    play(seat, 5, 6)
    assert [token.have for token in sent(seat.step(at=at_slot(7)), Token)] == [2]
    (join,) = sent(seat.step(Invite(9, SERVER), at=at_slot(7)), Join)
    assert join.have == 7


# -- rings ------------------------------------------------------------------------------------------------


def test_the_promised_ring_is_journaled_and_entered() -> None:
    seat = promised()
    effects = seat.step(RING, at=SOON)
    assert kept(effects, Ring) == [RING]
    assert len(reports(effects, "entered")) == 1
    assert (seat.receiver.generation, seat.receiver.active) == (5, True)
    assert seat.receiver.ring_members == (1, 2, 3)


@pytest.mark.parametrize(
    "ring",
    [make_ring(4), make_ring(6), make_ring(5, (2, 3)), make_ring(5, life=2)],
    ids=["lower", "higher than promised", "without me", "with another life of me"],
)
def test_no_other_ring_is_entered(ring: Ring) -> None:
    seat = promised()
    assert kept(seat.step(ring, at=SOON), Ring) == []
    assert (seat.receiver.generation, seat.receiver.active) == (0, False)


def test_a_ring_that_nobody_promised_is_not_entered() -> None:
    seat = new()
    assert kept(seat.step(RING, at=SOON), Ring) == []
    assert seat.receiver.generation == 0


def test_a_ring_that_is_heard_again_changes_nothing() -> None:
    seat = active()
    play(seat, 1, 3)
    assert kept(seat.step(RING, at=at_slot(3)), Ring) == []
    assert seat.receiver.have == 3


def test_a_member_that_hears_of_a_later_ring_without_it_asks_to_be_let_in() -> None:
    later = make_ring(9, (2, 3), start_slot=2)
    for message in (later, make_token(later, 3)):
        seat = active()
        faults = sent(seat.step(message, at=SOON + TAU_R), Fault)
        assert [fault.reason for fault in faults] == [FaultReason.OUTSIDE]
        assert seat.receiver.active  # what its own ring witnesses is still true


@pytest.mark.parametrize(
    ("start_ns", "why"),
    [
        (START + 4 * PIPELINED.slot_ns - 1, "before the last slot"),
        (START + 4 * PIPELINED.slot_ns + 2_000 * MS, "too far in the future"),
    ],
)
def test_a_ring_with_an_impossible_start_time_is_refused_and_reported(start_ns: int, why: str) -> None:
    seat = active()
    play(seat, 1, 4)
    seat.step(Invite(9, SERVER), at=at_slot(4))
    effects = seat.step(make_ring(9, start_slot=5, start_ns=start_ns, before=RING.lineage), at=at_slot(4) + TAU_R)
    assert kept(effects, Ring) == []
    assert [fault.reason for fault in sent(effects, Fault)] == [FaultReason.REFUSED]
    assert why in sentence(reports(effects, "refused")[0])
    assert seat.receiver.generation == 5


@pytest.mark.parametrize("start_ns", [START + 4 * PIPELINED.slot_ns, START + 4 * PIPELINED.slot_ns + 100 * MS])
def test_a_ring_that_starts_behind_the_last_slot_and_soon_is_entered(start_ns: int) -> None:
    seat = active()
    play(seat, 1, 4)
    seat.enter(make_ring(9, start_slot=5, start_ns=start_ns, before=RING.lineage), at_slot(4))
    assert seat.receiver.generation == 9


def test_entering_a_ring_voids_what_its_lineage_does_not_know_and_the_packets_are_named_again() -> None:
    seat = active()
    play(seat, 1, 2)
    seat.step(make_data(201, 1), at=at_slot(3))
    play(seat, 3, 5, runs={3: run_of(1, 1)}, have=0)  # and nobody else claims to have it
    ring = make_ring(9, start_slot=3, start_ns=at_slot(9), before=RING.lineage)
    effects = seat.enter(ring, at_slot(6))
    assert [report.slot for report in reports(effects, "voided")] == [3]
    assert seat.receiver.have == 2
    (token,) = sent(seat.step(at=at_slot(9)), Token)
    assert (token.generation, token.slot, token.have, token.runs) == (9, 3, 3, (run_of(1, 1),))


def test_a_slot_below_the_start_is_void_too_if_the_lineage_gives_it_to_another_generation() -> None:
    """History F2: the ring in between began again at slot 3, without this member."""
    seat = active()
    play(seat, 1, 2)
    play(seat, 3, 5, have=0)
    between = make_ring(7, (2, 3), start_slot=3, start_ns=at_slot(7), before=RING.lineage)
    ring = make_ring(9, start_slot=5, start_ns=at_slot(11), before=between.lineage, helper=2)
    effects = seat.enter(ring, at_slot(10))
    assert [report.slot for report in reports(effects, "voided")] == [3]
    assert seat.receiver.have == 2
    seat.step(make_token(RING, 3), make_token(between, 3), make_token(between, 4), at=at_slot(10))
    assert seat.receiver.have == 4
    assert (5, 3) in seat.disk.journal.tokens  # written before it was void; a restart does not take it up
    seat.restart(at_slot(10))
    seat.step(at=at_slot(10))
    assert seat.receiver.have == 4


# -- tokens in --------------------------------------------------------------------------------------------


def test_a_valid_token_is_journaled_and_a_void_one_is_not() -> None:
    seat = active()
    valid = make_token(RING, 2)
    assert valid in kept(seat.step(valid, at=at_slot(2)), Token)
    stale = make_token(make_ring(4), 3)
    assert stale not in kept(seat.step(stale, at=at_slot(3)), Token)


def test_tokens_of_the_promised_generation_that_come_before_the_ring_are_not_lost() -> None:
    seat = promised()
    assert kept(seat.step(make_token(RING, 2), make_token(RING, 3), at=at_slot(3)), Token) == []
    effects = seat.step(RING, at=at_slot(3))
    assert [token.slot for token in kept(effects, Token)] == [2, 3, 1]
    assert seat.receiver.have == 3


@pytest.mark.parametrize(
    "wrong", [make_token(RING, 2)._replace(owner=3), make_token(RING, 2)._replace(timestamp_ns=at_slot(2) + 1)]
)
def test_a_token_that_does_not_fit_the_schedule_is_rejected(wrong: Token) -> None:
    seat = active()
    play(seat, 1, 1)
    effects = seat.step(wrong, at=at_slot(2))
    assert [report.slot for report in reports(effects, "rejected")] == [2]
    assert seat.receiver.have == 1


def test_a_run_means_the_incarnation_that_it_names_whatever_else_is_held() -> None:
    """History F10."""
    seat = active()
    seat.step(at=START)
    old, newer = make_data(201, 1), make_data(201, 1, incarnation=2)
    seat.step(old, newer, at=START + MS)
    seat.step(make_token(RING, 2, runs=[run_of(1, 1)]), at=at_slot(2))
    frame = seat.receiver.history.at(2).frame
    assert frame is not None
    assert frame.packets == tuple(open_packets(old))


def test_a_second_token_for_a_slot_is_reported_and_the_first_one_stays() -> None:
    seat = active()
    seat.step(make_token(RING, 3), at=at_slot(1))
    other = make_token(RING, 3, runs=[run_of(1, 1)])
    effects = seat.step(other, at=at_slot(1) + 1)
    assert [report.slot for report in reports(effects, "conflict")] == [3]
    assert other not in kept(effects, Token)


# -- data in ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [new, promised, active], ids=lambda make: make.__name__)
def test_packets_are_kept_in_every_state_and_once(make: Callable[[], Seat]) -> None:
    seat = make()
    packet = make_data(201, 1)
    assert kept(seat.step(packet, packet, at=SOON), Data) == [packet]
    assert kept(seat.step(Repair(2, (packet,)), at=SOON), Data) == []


def test_packets_beyond_twice_the_credit_are_not_kept() -> None:
    seat = active()
    most = seat.config.accept_ahead
    effects = seat.step(make_data(201, most), make_data(201, most + 1), at=SOON)
    assert [packet.first for packet in kept(effects, Data)] == [most]
    assert len(reports(effects, "rejected")) == 1


def test_control_is_handled_before_data() -> None:
    effects = new().step(make_data(201, 1), Invite(5, SERVER), at=SOON)
    assert index_of(effects, Send, Join) < index_of(effects, Persist, Data)


# -- tokens out -------------------------------------------------------------------------------------------


def test_the_own_token_is_journaled_just_before_it_is_sent_to_all_and_after_what_it_names() -> None:
    seat = active()
    effects = seat.step(make_data(201, 1), at=START)
    (token,) = sent(effects, Token)
    assert token == Token(5, 1, START, 1, 1, seat.config.credit, (run_of(1, 1),), ())
    at = effects.index(Send(GROUP, token))
    assert effects[at - 1] == Persist(token)
    assert index_of(effects, Persist, Data) < at - 1


def test_a_slot_has_one_token_and_the_next_one_comes_a_round_later() -> None:
    seat = active()
    assert seat.receiver.wake_ns == START
    assert [token.slot for token in sent(seat.step(at=START), Token)] == [1]
    assert sent(seat.step(at=START + 1), Token) == []
    play(seat, 2, 3)
    assert [token.slot for token in sent(seat.step(at=at_slot(4)), Token)] == [4]


def test_the_timestamp_is_the_scheduled_time_however_late_the_token_is_sent() -> None:
    (token,) = sent(active().step(at=START + 7 * MS), Token)
    assert token.timestamp_ns == START


def test_a_pipelined_site_sends_on_time_and_says_honestly_what_it_has() -> None:
    seat = seat_in_ring(member=2, ring=RING)
    assert [token.have for token in sent(seat.step(at=at_slot(2)), Token)] == [0]
    seat = seat_in_ring(member=2, ring=RING)
    seat.step(make_token(RING, 1), at=START)
    assert [token.have for token in sent(seat.step(at=at_slot(2)), Token)] == [2]
    seat = seat_in_ring(member=2, ring=RING)
    seat.step(make_token(RING, 1, runs=[run_of(1, 1)]), at=START)  # and packet 1 never came
    assert [token.have for token in sent(seat.step(at=at_slot(2)), Token)] == [0]


def test_a_lockstep_site_waits_until_it_holds_everything_before() -> None:
    seat = seat_in_ring(make_config(mode="lockstep"), 2, RING)
    due = START + LOCKSTEP.slot_ns
    assert sent(seat.step(at=due), Token) == []
    named = make_token(RING, 1, runs=[run_of(1, 1)], slot_ns=LOCKSTEP.slot_ns)
    assert sent(seat.step(named, at=due + 30 * MS), Token) == []
    (token,) = sent(seat.step(make_data(201, 1), at=due + 60 * MS), Token)
    assert (token.slot, token.have, token.timestamp_ns) == (2, 2, due)


def test_a_site_more_than_r_late_says_so_instead_of_sending_stale_tokens() -> None:
    assert len(sent(active().step(at=START + PIPELINED.recovery_ns), Token)) > 0
    effects = active().step(at=START + PIPELINED.recovery_ns + 1)
    assert sent(effects, Token) == []
    assert [(fault.reason, fault.suspect) for fault in sent(effects, Fault)] == [(FaultReason.TOKEN_MISSING, 1)]


@pytest.mark.parametrize("make", [new, promised], ids=lambda make: make.__name__)
def test_nobody_sends_a_token_before_it_has_entered_a_ring(make: Callable[[], Seat]) -> None:
    seat = make()
    assert sent(seat.step(make_data(201, 1), at=at_slot(4)), Token) == []


def test_after_promising_a_higher_generation_a_member_sends_no_token_until_it_enters_it() -> None:
    seat = active()
    play(seat, 1, 3)
    seat.step(Invite(9, SERVER), at=at_slot(3))
    assert sent(seat.step(at=at_slot(10)), Token) == []
    ring = make_ring(9, start_slot=4, start_ns=at_slot(11), before=RING.lineage)
    assert [(token.generation, token.slot) for token in sent(seat.step(ring, at=at_slot(11)), Token)] == [(9, 4)]


def test_after_promising_a_member_still_learns_and_releases_what_the_ring_before_has_witnessed() -> None:
    seat = active()
    seat.step(make_data(201, 1), at=SOON)
    play(seat, 1, 1)
    seat.step(Invite(9, SERVER), at=at_slot(2) - MS)
    assert seat.receiver.witnessed == 0
    seat.step(make_token(RING, 2), at=at_slot(2))
    assert seat.receiver.witnessed == 1
    (release,) = released(seat.step(at=START + HOLD))
    assert (release.frame.slot, release.late) == (1, False)


def test_what_the_ring_before_has_witnessed_is_released_on_time_in_the_next_one() -> None:
    seat = active()
    seat.step(make_data(201, 1), at=SOON)
    play(seat, 1, 3)
    seat.enter(make_ring(9, start_slot=4, start_ns=at_slot(11), before=RING.lineage), at_slot(10))
    (release,) = released(seat.step(at=START + HOLD))
    assert (release.frame.slot, release.late) == (1, False)


def test_what_is_witnessed_is_told_to_its_source_and_told_again_if_it_asks() -> None:
    seat = active()
    seat.step(make_data(201, 1), at=SOON)
    play(seat, 1, 3)
    (token,) = sent(seat.step(at=at_slot(4)), Token)
    assert token.witnessed == (Mark(201, 1, 1),)
    play(seat, 5, 6)
    (token,) = sent(seat.step(at=at_slot(7)), Token)
    assert token.witnessed == ()
    play(seat, 8, 9)
    seat.step(make_data(201, 1), at=at_slot(9))
    (token,) = sent(seat.step(at=at_slot(10)), Token)
    assert token.witnessed == (Mark(201, 1, 1),)


def test_nobody_is_woken_to_ask_for_what_has_come() -> None:
    """With slots 2 and 3 complete the next instant is its own slot 4; with a packet missing it is the time to ask."""
    seat = active()
    play(seat, 1, 3)
    assert seat.receiver.wake_ns == at_slot(4)
    lacking = active()
    play(lacking, 1, 3, {2: run_of(1, 1)})
    assert lacking.receiver.wake_ns == at_slot(2) + LATE
    lacking.step(at=at_slot(2) + LATE)
    assert lacking.receiver.open_repairs == 1


# -- release ----------------------------------------------------------------------------------------------


def loaded(config: StripeConfig | None = None) -> Seat:
    """A member that has named packet 1 in slot 1."""
    seat = seat_in_ring(config, ring=RING)
    seat.step(make_data(201, 1), at=START)
    return seat


def test_a_slot_is_released_at_timestamp_plus_hold_and_not_before() -> None:
    seat = loaded()
    play(seat, 2, 30)
    assert released(seat.step(at=START + HOLD - 1)) == []
    assert seat.receiver.wake_ns == START + HOLD
    (release,) = released(seat.step(at=START + HOLD))
    assert (release.frame.slot, release.scheduled_ns, release.late) == (1, START + HOLD, False)
    assert release.frame.packets == tuple(open_packets(make_data(201, 1)))
    assert seat.receiver.late_releases == 0
    assert seat.receiver.complete_upto_ns() == START


def test_it_says_whether_a_release_alone_is_due() -> None:
    """Slot 1 is released when its own token of slot 31 is due, slot 2 between two of its own."""
    seat = loaded()
    assert not seat.receiver.release_is_next
    play(seat, 2, 30)
    assert seat.receiver.wake_ns == START + HOLD == at_slot(31)
    assert not seat.receiver.release_is_next
    play(seat, 31, 32)
    assert seat.receiver.wake_ns == at_slot(33) == at_slot(3) + HOLD
    assert not seat.receiver.release_is_next, "the token of slot 33 is expected too"


def test_a_release_that_the_driver_wakes_up_for_too_late_is_marked_late() -> None:
    seat = loaded()
    play(seat, 2, 30)
    (release,) = released(seat.step(at=START + HOLD + seat.config.punctual_ns + 1))
    assert release.late
    assert seat.receiver.late_releases == 1


def test_nothing_is_released_without_its_witnesses() -> None:
    seat = loaded()
    effects = play(seat, 2, 60, have=0)
    assert released(effects) == []
    assert seat.receiver.witnessed == 0


def test_a_late_witness_means_the_same_later_instant_at_every_receiver() -> None:
    """The completing token is slot 32's: the first in which a second member claims slot 1."""
    tokens = [make_token(RING, slot, 32 if slot == 32 else 0) for slot in range(2, 36) if slot % 3 != 1]
    instant = at_slot(32) + PIPELINED.hear_ns
    assert instant > START + HOLD
    prompt = loaded()
    for slot in range(2, 36):
        prompt.step(*[token for token in tokens if token.slot == slot], at=at_slot(slot))
    lagging = Seat(make_config(), 3, SOON)
    lagging.enter(RING, SOON)
    own = [make_token(RING, slot, runs=[run_of(1, 1)] if slot == 1 else ()) for slot in range(1, 36, 3)]
    lagging.step(*[token for token in tokens if token.owner != 3], *own, at=instant - 2 * MS)
    lagging.step(make_data(201, 1), *[token for token in tokens if token.owner == 3], at=instant - MS)
    for seat in (prompt, lagging):
        assert released(seat.step(at=instant - 1)) == []
        (release,) = released(seat.step(at=instant))
        assert (release.frame.slot, release.scheduled_ns, release.late) == (1, instant, True)


def test_with_one_witness_a_site_releases_what_it_holds_and_waits_for_nobody() -> None:
    seat = loaded(make_config(witnesses=1))
    (release,) = released(seat.step(at=START + HOLD))
    assert not release.late


def test_with_all_as_witnesses_the_last_member_is_waited_for() -> None:
    seat = loaded(make_config(witnesses="all"))
    seat.step(make_token(RING, 2), at=at_slot(2))
    assert released(seat.step(at=START + HOLD)) == []
    seat.step(make_token(RING, 3), at=START + HOLD + 1)
    assert [frame.slot for frame in seat.frames] == [1]


def test_frames_are_released_in_slot_order_and_only_up_to_the_first_gap() -> None:
    seat = loaded()
    seat.step(make_data(202, 1), make_data(202, 2), at=START)
    seat.step(make_token(RING, 2, runs=[run_of(1, 1, 202)]), at=at_slot(2))
    seat.step(make_token(RING, 5, 5, [run_of(2, 2, 202)]), make_token(RING, 6, 6), at=at_slot(3))
    effects = seat.step(at=at_slot(40))
    assert [release.frame.slot for release in released(effects)] == [1]
    effects = seat.step(make_token(RING, 3), at=at_slot(40) + 1)
    assert [release.frame.slot for release in released(effects)] == [2]
    assert (seat.receiver.released, seat.receiver.have) == (2, 3)


def test_while_the_clock_is_not_trusted_there_is_no_token_no_release_and_no_join() -> None:
    seat = loaded()
    play(seat, 2, 30)
    wrong = START + HOLD
    effects = seat.step(Invite(9, SERVER), at=wrong, trusted=False)
    assert sent(effects, Token) == []
    assert sent(effects, Join) == []
    assert released(effects) == []
    assert seat.receiver.promised == 5
    assert not seat.receiver.active
    request = Request(2, 5, 0, (1,), ())
    assert len(sent(seat.step(request, at=wrong, trusted=False), Repair)) == 1
    effects = seat.step(at=wrong + 5 * MS)
    assert [release.frame.slot for release in released(effects)] == [1]
    assert [token.slot for token in sent(effects, Token)] == [31]


# -- repair -----------------------------------------------------------------------------------------------


def test_a_token_not_held_when_it_counts_as_missing_is_requested_from_its_site() -> None:
    seat = active()
    seat.step(at=START)
    assert sent(seat.step(at=at_slot(2) + LATE - 1), Request) == []
    effects = seat.step(at=at_slot(2) + LATE)
    assert Send(2, Request(1, 5, 1, (2,), ())) in effects


def test_a_packet_that_a_token_names_is_requested_when_it_counts_as_missing() -> None:
    seat = active()
    seat.step(at=START)
    seat.step(make_data(201, 1), make_token(RING, 2, runs=[run_of(1, 3)]), at=at_slot(2))
    assert sent(seat.step(at=at_slot(2) + LATE - 1), Request) == []
    effects = seat.step(at=at_slot(2) + LATE)
    assert Send(2, Request(1, 5, 1, (), (run_of(2, 3),))) in effects


def test_a_gap_in_the_numbers_of_a_source_is_requested_before_a_token_names_it() -> None:
    seat = active()
    seat.step(make_data(201, 2), at=START)
    assert sent(seat.step(at=START + GUARD_NS - 1), Request) == []
    effects = seat.step(at=START + GUARD_NS)
    request = Request(1, 5, seat.receiver.have, (), (run_of(1, 1),))
    assert [Send(2, request), Send(3, request)] == [
        effect for effect in effects if isinstance(effect, Send) and isinstance(effect.message, Request)
    ]


def test_each_attempt_asks_the_site_and_helpers_and_after_k_r_of_them_a_fault_is_reported() -> None:
    seat = active()
    seat.step(make_token(RING, 3), at=START)
    asked: list[int] = []
    faults: list[Fault] = []
    for attempt in range(K_R + 1):
        now = at_slot(2) + LATE + attempt * TAU_R
        effects = seat.step(at=now)
        requests = [e for e in effects if isinstance(e, Send) and isinstance(e.message, Request)]
        asked += [e.to for e in requests if isinstance(e.message, Request) and 2 in e.message.slots]
        faults += [fault for fault in sent(effects, Fault) if fault.slot == 2]
    assert asked == [2, 3] * (K_R + 1), "the site and the only other member, at once"
    assert [(fault.reason, fault.suspect) for fault in faults] == [(FaultReason.TOKEN_MISSING, 2)]


def test_a_repair_is_as_good_as_the_original() -> None:
    seat = active()
    seat.step(at=START)
    effects = seat.step(Repair(3, (make_token(RING, 2, runs=[run_of(1, 1)]), make_data(201, 1))), at=at_slot(3))
    assert len(kept(effects, Token)) == 1
    assert len(kept(effects, Data)) == 1
    assert seat.receiver.have == 2


def test_requests_are_served_with_what_is_held_and_to_all_if_two_ask() -> None:
    seat = loaded()
    token = seat.disk.journal.tokens[5, 1]
    request = Request(2, 5, 0, (1, 2), (run_of(1, 4),))
    answer = Repair(1, (token, make_data(201, 1)))
    assert Send(2, answer) in seat.step(request, at=START + MS)
    assert Send(GROUP, answer) in seat.step(request._replace(sender=3), at=START + 2 * MS)


def test_requests_are_served_after_promising_too() -> None:
    seat = loaded()
    seat.step(Invite(9, SERVER), at=START + MS)
    assert len(sent(seat.step(Request(2, 5, 0, (1,), ()), at=START + MS), Repair)) == 1


def test_one_that_asks_from_an_older_generation_is_told_of_the_ring() -> None:
    assert Send(2, Repair(1, (RING,))) in loaded().step(Request(2, 4, 0, (1,), ()), at=START + MS)


# -- pleas ------------------------------------------------------------------------------------------------


def test_a_new_member_asks_to_be_let_in_and_then_now_and_again() -> None:
    seat = Seat(make_config(), 1, START)
    asked = Send(GROUP, Fault(1, 1, 0, 0, FaultReason.OUTSIDE, 0, 0))
    assert asked in seat.step(at=START)
    assert sent(seat.step(at=START + PIPELINED.ask_ns - 1), Fault) == []
    assert seat.receiver.wake_ns == START + PIPELINED.ask_ns
    assert asked in seat.step(at=START + PIPELINED.ask_ns)


@pytest.mark.parametrize(
    ("reason", "vouched"),
    [
        (FaultReason.OUTSIDE, True),
        (FaultReason.STUCK, True),
        (FaultReason.LEAVING, False),
        (FaultReason.TOKEN_MISSING, False),
    ],
)
def test_a_member_vouches_only_for_a_life_that_asks_to_join(reason: int, vouched: bool) -> None:
    seat = seat_in_ring(ring=make_ring(5, (1, 2), configured=membership(1, 2, 3)))
    faults = sent(seat.step(Fault(3, 1, 0, 0, reason, 0, 0), at=START), Fault)
    assert [(fault.reason, fault.suspect) for fault in faults] == [(FaultReason.MEMBERSHIP, 3)] * vouched


def test_a_promise_without_its_ring_is_reported() -> None:
    seat = promised()
    assert seat.receiver.wake_ns is not None
    stuck_ns = seat.receiver.wake_ns
    assert sent(seat.step(at=stuck_ns - 1), Fault) == []
    (fault,) = sent(seat.step(at=stuck_ns), Fault)
    assert (fault.reason, fault.generation, fault.promised) == (FaultReason.STUCK, 0, 5)


# -- planned stops ----------------------------------------------------------------------------------------


WITHOUT = make_ring(6, (2, 3), start_slot=9, configured=membership(1, 2, 3))


def leaving() -> Seat:
    seat = active()
    seat.receiver.leave()
    return seat


def test_a_member_that_leaves_says_so_to_the_servers_until_it_is_in_no_ring() -> None:
    seat = leaving()
    assert not seat.receiver.has_left
    said = Send(SERVERS, Fault(1, 1, 5, 5, FaultReason.LEAVING, 1, 1))
    effects = seat.step(at=START)
    assert said in effects
    assert reports(effects, "leaves")
    assert reports(effects, "fault") == []
    assert sent(effects, Token), "its slots are not missed"
    assert said not in seat.step(at=START + PIPELINED.request_ns - 1)
    assert seat.receiver.wake_ns is not None
    assert seat.receiver.wake_ns <= START + PIPELINED.request_ns
    (again,) = sent(seat.step(at=START + PIPELINED.request_ns), Fault)
    assert again.reason == FaultReason.LEAVING
    effects = seat.step(WITHOUT, at=START + 2 * TAU_R)
    assert seat.receiver.has_left
    assert sent(effects, Fault) == []
    assert sent(seat.step(at=START + PIPELINED.ask_ns), Fault) == [], "it does not ask to join"


def test_a_token_of_the_ring_without_it_is_enough() -> None:
    seat = leaving()
    seat.step(make_token(WITHOUT, 9), at=START)
    assert seat.receiver.has_left


def test_a_member_that_leaves_makes_no_promise() -> None:
    seat = leaving()
    effects = seat.step(Invite(6, SERVER), at=START)
    assert (sent(effects, Join), seat.receiver.promised) == ([], 5)


def test_one_without_a_ring_or_a_clock_leaves_at_once() -> None:
    seat = new()
    assert not seat.receiver.has_left
    seat.receiver.leave()
    assert seat.receiver.has_left
    seat = leaving()
    seat.step(at=START, trusted=False)
    assert seat.receiver.has_left


def test_after_a_start_it_listens_before_it_reports_its_missed_slot() -> None:
    seat = active()
    began = START + PIPELINED.recovery_ns + 100 * MS
    seat.restart(began)
    assert sent(seat.step(at=began + TAU_R - 1), Fault) == []
    assert seat.receiver.wake_ns == began + TAU_R
    (fault,) = sent(seat.step(at=began + TAU_R), Fault)
    assert (fault.reason, fault.suspect) == (FaultReason.TOKEN_MISSING, 1)
    seat.restart(began)
    (fault,) = sent(seat.step(make_token(WITHOUT, 9), at=began + MS), Fault)
    assert fault.reason == FaultReason.OUTSIDE
    assert sent(seat.step(at=began + TAU_R), Fault) == []


# -- restart ----------------------------------------------------------------------------------------------


def test_a_restart_goes_on_where_the_journal_ends_and_says_nothing_twice() -> None:
    seat = loaded()
    play(seat, 2, 5)
    before = seat.receiver
    seat.restart(at_slot(5) + MS)
    after = seat.receiver
    effects = seat.step(at=at_slot(5) + MS)
    assert (after.promised, after.generation, after.have) == (before.promised, before.generation, 5)
    assert after.history.tip == before.history.tip
    assert sent(effects, Token) == []
    assert kept(effects, Token) == []
    play(seat, 6, 6)
    assert [token.slot for token in sent(seat.step(at=at_slot(7)), Token)] == [7]
    play(seat, 8, 30)
    (release,) = released(seat.step(at=START + HOLD))
    assert (release.frame.slot, release.late) == (1, False)


def test_a_token_that_was_journaled_but_never_sent_is_not_made_again_but_served() -> None:
    """History F4."""
    seat = loaded()
    play(seat, 2, 3)
    effects = seat.receiver.step((), at_slot(4))
    (token,) = kept(effects, Token)
    seat.disk.journal.apply(token)  # and then the process is killed
    seat.step(make_data(201, 2), at=at_slot(4))
    seat.restart(at_slot(4) + MS)
    effects = seat.step(make_data(201, 2), Request(2, 5, 3, (4,), ()), at=at_slot(4) + MS)
    assert sent(effects, Token) == []
    assert sent(effects, Repair) == [Repair(1, (token,))]


def test_a_promise_survives_a_restart() -> None:
    """History F3."""
    seat = active()
    seat.step(Invite(9, SERVER), at=SOON)
    seat.restart(START)
    effects = seat.step(Invite(8, SERVER), at=START)
    assert sent(effects, Promised) == [Promised(1, 9)]
    assert sent(effects, Token) == []


def test_what_was_released_is_not_released_again_after_a_restart() -> None:
    seat = loaded()
    play(seat, 2, 31)
    assert [frame.slot for frame in seat.frames] == [1]
    seat.restart(at_slot(32))
    assert released(play(seat, 32, 40)) == []
    assert seat.receiver.have == 40


# -- checkpoints ------------------------------------------------------------------------------------------


def test_what_every_member_has_and_is_released_leaves_the_journal_behind_a_checkpoint() -> None:
    seat = loaded()
    effects = play(seat, 2, 60)
    checkpoints = kept(effects, Checkpoint)
    forgets = [effect for effect in effects if isinstance(effect, Forget)]
    assert checkpoints
    assert [checkpoint.slot for checkpoint in checkpoints] == [forget.slot for forget in forgets]
    for checkpoint, forget in zip(checkpoints, forgets, strict=True):
        assert effects.index(Persist(checkpoint)) < effects.index(forget)
        assert checkpoint.chain == seat.frames[0].chain
    assert min(slot for _, slot in seat.disk.journal.tokens) == checkpoints[-1].slot + 1
    assert seat.disk.journal.packets == {}


def test_a_member_that_lags_keeps_everything_in_everybodys_journal() -> None:
    seat = loaded()
    for slot in range(2, 61):
        own, lags = slot % 3 == 1, slot % 3 == 0
        messages = [] if own else [make_token(RING, slot, 0 if lags else slot)]
        assert kept(seat.step(*messages, at=at_slot(slot)), Checkpoint) == []
    assert seat.receiver.released > 16
    assert len(seat.disk.journal.tokens) == 60


def test_a_restart_from_a_checkpoint_needs_no_forgotten_token() -> None:
    seat = loaded()
    play(seat, 2, 60)
    tip = seat.receiver.history.tip.copy()
    assert seat.disk.journal.checkpoint is not None
    seat.restart(at_slot(61))
    assert seat.receiver.released == seat.disk.journal.checkpoint.slot
    play(seat, 61, 61)
    tip.slot = 61
    assert seat.receiver.history.tip == tip


# -- catching up by frames --------------------------------------------------------------------------------


def far_ahead() -> Seat:
    """Member 1 after 90 slots, its journal long forgotten."""
    seat = active()
    for number in range(1, 5):
        seat.step(make_data(201, number), at=SOON)
    runs = {2: run_of(1, 1), 5: run_of(2, 3), 9: run_of(4, 4)}
    seat.step(at=START)
    # Slot 1 is member 1's own and names everything it holds.
    play(seat, 2, 90, runs=runs)
    return seat


def served(seat: Seat, request: Request, at: int) -> list[Message]:
    effects = seat.step(request, at=at)
    (serve,) = [effect for effect in effects if isinstance(effect, ServeTape)]
    return seat.disk.tape.serve(seat.member, serve, seat.config.credit)


def behind() -> Seat:
    """Member 2 in the same ring, which has heard nothing since."""
    return seat_in_ring(member=2, ring=RING)


def test_one_that_is_too_far_behind_catches_up_by_frames_and_has_the_same_tape() -> None:
    ahead, seat = far_ahead(), behind()
    now = at_slot(90)
    (request, *_) = [r for r in sent(seat.step(at=now), Request) if 1 in r.slots]
    settled, *packets = served(ahead, request, now)
    assert isinstance(settled, CatchUp)
    assert released(seat.step(settled, at=now)) == []  # its packets are still missing
    effects = seat.step(*packets, at=now)
    assert [release.late for release in released(effects)] == [True]
    assert seat.frames == ahead.frames
    assert len(reports(effects, "caught-up")) == 1
    assert seat.receiver.have == seat.receiver.released == settled.upto_slot
    assert kept(effects, Checkpoint) == [Checkpoint(settled.upto_slot, settled.chain_after)]
    assert max(i for i, e in enumerate(effects) if isinstance(e, Release)) < index_of(effects, Persist, Checkpoint)
    own = [token.slot for token in sent(effects, Token)]
    assert all(slot > settled.upto_slot for slot in own)


def test_packets_from_a_tape_are_kept_for_the_catch_up_alone_and_may_come_before_it() -> None:
    ahead, seat = far_ahead(), behind()
    now = at_slot(90)
    settled, *packets = served(ahead, Request(2, 5, 0, (1,), ()), now)
    effects = seat.step(*packets, at=now)
    assert kept(effects, Data) == []  # neither journaled
    asked = seat.step(Request(3, 5, 0, (), (run_of(1, 4),)), at=now)
    assert sent(asked, Repair) == []  # nor passed on: its source has not sealed them
    assert released(seat.step(settled, at=now)) != []
    assert seat.frames == ahead.frames


def test_a_catch_up_beyond_the_present_is_ignored() -> None:
    seat = behind()
    seat.step(CatchUp(1, 0, 2**60, GENESIS, GENESIS, ()), at=at_slot(90))
    assert seat.receiver.have == 0


@pytest.mark.parametrize("wrong", ["chain_before", "chain_after"])
def test_frames_with_a_wrong_chain_are_refused(wrong: str) -> None:
    ahead, seat = far_ahead(), behind()
    now = at_slot(90)
    seat.step(at=now)
    settled, *packets = served(ahead, Request(2, 5, 0, (1,), ()), now)
    assert isinstance(settled, CatchUp)
    other = bytes([1]) * 32
    lie = settled._replace(chain_before=other) if wrong == "chain_before" else settled._replace(chain_after=other)
    effects = seat.step(*packets, lie, at=now)
    assert len(reports(effects, "diverged")) == 1
    assert released(effects) == []
    assert (seat.receiver.have, seat.receiver.released) == (0, 0)
    assert released(seat.step(settled, at=now)) == []
    assert released(seat.step(*packets, at=now)) != []  # the true ones are still welcome, all of them


def test_frames_that_begin_elsewhere_are_ignored() -> None:
    seat = behind()
    effects = seat.step(CatchUp(1, 3, 40, bytes(32), bytes(32), ()), at=START)
    assert (seat.receiver.have, reports(effects, "diverged")) == (0, [])


def test_frames_are_served_only_within_a_generation() -> None:
    """History F14: one of an older generation is told of the ring instead."""
    effects = far_ahead().step(Request(2, 4, 0, (1,), ()), at=at_slot(90))
    assert not any(isinstance(effect, ServeTape) for effect in effects)
    assert sent(effects, Repair) == [Repair(1, (RING,))]


def test_with_a_witness_below_a_majority_a_ring_may_void_what_was_released_and_the_receiver_says_so() -> None:
    seat = loaded(make_config(witnesses=1))
    assert len(released(seat.step(at=START + HOLD))) == 1
    other = make_ring(9, start_slot=1, start_ns=START + HOLD + 50 * MS)
    effects = seat.enter(other, START + HOLD)
    assert len(reports(effects, "diverged")) == 1
    assert kept(effects, Ring) == []
    effects = seat.step(Invite(12, SERVER), make_data(201, 2), at=START + HOLD + 60 * MS)
    assert sent(effects, Token) == []
    assert sent(effects, Join) == []


def test_a_restarted_member_reads_its_journal_before_it_answers_an_invitation() -> None:
    """Its claims are in the journal: a JOIN that said less would let the next ring void them (rule 8)."""
    config, ring = make_config(), make_ring()
    journal = JournalImage()
    journal.apply(Promise(ring.generation))
    journal.apply(ring)
    for slot in (1, 2, 3):
        journal.apply(make_token(ring, slot))
    receiver = Member(config, 1, journal, first_tip(config), START)
    (join,) = sent(receiver.step((Invite(ring.generation + 1, SERVER),), START), Join)
    assert (join.caught_up, join.have) == (ring.generation, 3)


@pytest.mark.parametrize(
    ("life", "vouched"), [(1, True), (2, False)], ids=["the configured life", "a life that nobody configured"]
)
def test_a_member_vouches_for_a_configured_life_that_pleads_outside_its_ring(life: int, vouched: bool) -> None:
    """A server that was away knows an old set and would refuse it."""
    seat = seat_in_ring(make_config(4), ring=make_ring(5, (1, 2, 3), configured=membership(1, 2, 3, 4)))
    effects = seat.step(Fault(4, life, 0, 0, FaultReason.OUTSIDE, 0, 0), at=START)
    pleas = [fault for fault in sent(effects, Fault) if fault.reason == FaultReason.MEMBERSHIP]
    assert [(fault.reporter, fault.suspect) for fault in pleas] == ([(1, 4)] if vouched else [])

"""Rules 12 and 16: how a reformation server forms a ring, and why no two servers form the same one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelcast.protocol.effects import GROUP, Effect, Persist, Send, ServerCounter
from levelcast.protocol.journal_image import JournalImage
from levelcast.protocol.lines import RegionLines
from levelcast.ring.reformation_server import REMINDERS, ReformationServer
from levelcast.timing.rules import REFUSED_ASKS
from levelcast.wire.messages import Era, Fault, FaultReason, Invite, Join, Membership, Message, Promised, Ring
from tests.ring_parts import (
    MS,
    PIPELINED,
    SERVER,
    START,
    kept,
    lives,
    make_config,
    make_join,
    make_ring,
    membership,
    reports,
    sent,
)

TAU_R = PIPELINED.request_ns
T_JOIN = PIPELINED.join_ns
LEAD = PIPELINED.lead_ns
BACKOFF = PIPELINED.backoff_ns
LATER = START + T_JOIN + (PIPELINED.attempts + 1) * TAU_R
"""The ring that was formed at START has been announced."""


class Office:
    """A reformation server with its journal."""

    def __init__(self, server: int = SERVER, journal: JournalImage | None = None, at: int = START) -> None:
        self.journal = journal if journal is not None else JournalImage()
        self.server = ReformationServer(make_config(), server, self.journal, at)

    @property
    def phase(self) -> str:
        return self.server.phase

    def step(self, *messages: Message, at: int) -> list[Effect]:
        """Step, and again for as long as the server wants to be woken at once."""
        effects = self.server.step(messages, at)
        while self.server.wake_ns is not None and self.server.wake_ns <= at:
            effects += self.server.step((), at)
        for effect in effects:
            if isinstance(effect, Persist):
                self.journal.apply(effect.entry)
        return effects

    def invite(self, at: int = START, why: Fault | None = None) -> int:
        """Hear of a fault, wait for its turn, and return the generation that it invites to."""
        self.step(why if why is not None else fault(), at=at)
        if self.phase == "WAITING":
            assert self.server.wake_ns is not None
            self.step(at=self.server.wake_ns)
        assert self.phase == "INVITING"
        return self.server.counter

    def quiet(self, since: int = START) -> None:
        """Let it announce its ring as often as it does."""
        for attempt in range(1, PIPELINED.attempts + 1):
            self.step(at=since + T_JOIN + attempt * TAU_R)

    def form(self, *joins: Join, at: int = START) -> Ring:
        """Take these JOINs (their generation is filled in) and return the ring that comes of them."""
        generation = self.invite(at)
        effects = self.step(*[join._replace(generation=generation) for join in joins], at=at)
        effects += self.step(at=at + T_JOIN)
        (ring, *_) = sent(effects, Ring)
        return ring


def fault(
    reporter: int = 1, reason: int = FaultReason.TOKEN_MISSING, *, generation: int = 0, promised: int = 0, life: int = 1
) -> Fault:
    return Fault(reporter, life, generation, promised, reason, 7, 2)


def join(member: int, **what: object) -> Join:
    return make_join(0, member, **what)  # type: ignore[arg-type]


# -- the phases -------------------------------------------------------------------------------------------


def test_the_first_server_invites_at_once_when_it_hears_of_a_fault() -> None:
    office = Office()
    assert (office.phase, office.server.wake_ns) == ("IDLE", None)
    effects = office.step(fault(), at=START)
    assert office.phase == "INVITING"
    (invite,) = sent(effects, Invite)
    assert effects.index(Persist(ServerCounter(invite.generation))) < effects.index(Send(GROUP, invite))


def test_servers_back_off_by_rank_and_leave_it_to_the_one_that_invites_first() -> None:
    second = Office(SERVER + 1)
    assert sent(second.step(fault(), at=START), Invite) == []
    assert (second.phase, second.server.wake_ns) == ("WAITING", START + BACKOFF)
    second.step(Invite(1 << 32, SERVER), at=START + 5 * MS)
    assert second.phase == "IDLE"
    second.step(fault(), at=START + 5 * MS + T_JOIN + LEAD - 1)
    assert second.phase == "IDLE"
    second.step(fault(), at=START + 5 * MS + T_JOIN + LEAD)
    assert second.phase == "WAITING"


def test_a_server_whose_turn_comes_invites() -> None:
    second = Office(SERVER + 1)
    second.step(fault(), at=START)
    assert sent(second.step(at=START + BACKOFF - 1), Invite) == []
    assert len(sent(second.step(at=START + BACKOFF), Invite)) == 1


def test_a_ring_that_somebody_else_formed_ends_the_wait() -> None:
    second = Office(SERVER + 1)
    second.step(fault(), at=START)
    second.step(make_ring(1 << 32), at=START + MS)
    assert second.phase == "IDLE"


def test_invitations_are_repeated_and_given_up_when_no_majority_comes() -> None:
    office = Office()
    generation = office.invite()
    office.step(join(1)._replace(generation=generation), at=START)
    repeats = 0
    for attempt in range(1, 20):
        effects = office.step(at=START + attempt * TAU_R)
        repeats += len(sent(effects, Invite))
        if office.phase == "IDLE":
            break
    assert reports(effects, "gives-up")
    assert repeats >= PIPELINED.attempts
    assert sent(effects, Ring) == []


def test_members_of_the_last_ring_that_have_not_joined_are_invited_more_often() -> None:
    office = Office()
    ring = office.form(join(1), join(2), join(3))
    office.quiet()
    generation = office.invite(LATER, leaving(2, generation=ring.generation))
    office.step(join(1)._replace(generation=generation), at=LATER)
    assert office.server.wake_ns == LATER + TAU_R // REMINDERS
    effects = office.step(at=LATER + TAU_R // REMINDERS)
    assert effects == [Send(3, Invite(generation, SERVER))]
    assert office.server.wake_ns == LATER + 2 * (TAU_R // REMINDERS)


def test_a_member_that_returns_is_invited_more_often_too() -> None:
    office = Office()
    ring = office.form(join(1), join(2))
    office.quiet()
    generation = office.invite(LATER, fault(3, FaultReason.OUTSIDE, generation=ring.generation))
    office.step(join(1)._replace(generation=generation), join(2)._replace(generation=generation), at=LATER)
    assert office.step(at=LATER + TAU_R // REMINDERS) == [Send(3, Invite(generation, SERVER))]


@pytest.mark.parametrize(
    ("reason", "reminded"),
    [(FaultReason.TOKEN_MISSING, 0), (FaultReason.OUTSIDE, 2), (FaultReason.MEMBERSHIP, 2)],
)
def test_a_ring_that_has_failed_is_invited_at_the_usual_interval(reason: int, reminded: int) -> None:
    office = Office()
    ring = office.form(join(1), join(2), join(3))
    office.quiet()
    office.invite(LATER, fault(1, reason, generation=ring.generation, promised=ring.generation))
    office.step(join(1)._replace(generation=office.server.counter), at=LATER)
    assert len(sent(office.step(at=LATER + TAU_R // REMINDERS), Invite)) == reminded


def test_an_invitation_that_comes_below_a_promise_makes_the_server_wait_and_go_higher() -> None:
    office = Office()
    generation = office.invite()
    higher = generation + (5 << 32)
    office.step(Promised(2, higher), at=START)
    assert (office.phase, office.server.wake_ns) == ("WAITING", START + BACKOFF)
    (invite,) = sent(office.step(at=START + BACKOFF), Invite)
    assert invite.generation > higher


def test_a_promise_below_the_invitation_is_no_reason_to_wait() -> None:
    office = Office()
    generation = office.invite()
    office.step(Promised(2, generation - 1), at=START)
    assert office.phase == "INVITING"


def test_a_higher_invitation_of_another_server_has_precedence_and_a_lower_one_has_not() -> None:
    office = Office()
    generation = office.invite()
    office.step(Invite(generation - 1, SERVER + 1), at=START)
    assert office.phase == "INVITING"
    office.step(Invite(generation + 1, SERVER + 1), at=START)
    assert office.phase == "IDLE"


def test_the_ring_is_announced_k_r_times() -> None:
    office = Office()
    generation = office.invite()
    effects = office.step(*[join(member)._replace(generation=generation) for member in (1, 2, 3)], at=START)
    assert office.phase == "ANNOUNCING"
    for attempt in range(1, 10):
        effects += office.step(at=START + attempt * TAU_R)
    assert office.phase == "IDLE"
    assert sent(effects, Ring) == [office.server.ring] * PIPELINED.attempts


# -- generations ------------------------------------------------------------------------------------------


def test_a_generation_is_never_used_again_across_restarts() -> None:
    """History F5."""
    journal = JournalImage()
    generations = []
    for restart in range(4):
        office = Office(journal=journal, at=START + restart * MS)
        generations.append(office.invite(START + restart * MS))
    assert generations == sorted(set(generations))


def test_a_server_that_was_killed_before_its_first_invitation_left_has_used_up_the_number() -> None:
    office = Office()
    effects = office.server.step([fault()], START)
    (counter,) = kept(effects, ServerCounter)
    office.journal.apply(counter)
    assert Office(journal=office.journal).invite() > counter.generation


def test_no_two_servers_and_no_two_lives_of_one_have_a_generation_in_common() -> None:
    mine = Office().invite()
    other = Office(SERVER + 1).invite()
    returned = Office(journal=JournalImage(life=2)).invite()
    assert len({mine, other, returned}) == 3


def test_a_generation_is_above_every_one_that_was_heard_of() -> None:
    high = 77 << 32
    ring = make_ring(high, (1, 2), configured=membership(1, 2, 3))
    for message in (fault(promised=high), fault(generation=high), Invite(high, SERVER), ring):
        office = Office(SERVER + 1)
        office.step(message, at=START)
        assert office.invite(START + 1_000 * MS, fault(3)) > high


# -- forming ----------------------------------------------------------------------------------------------


def test_when_everybody_has_joined_the_ring_is_formed_at_once() -> None:
    office = Office()
    generation = office.invite()
    joins = [join(member)._replace(generation=generation) for member in (1, 2, 3)]
    assert sent(office.step(*joins[:2], at=START + MS), Ring) == []
    assert len(sent(office.step(joins[2], at=START + 2 * MS), Ring)) == 1


def test_with_a_majority_the_rest_are_waited_for_and_then_no_longer() -> None:
    office = Office()
    generation = office.invite()
    joins = [join(member)._replace(generation=generation) for member in (1, 3)]
    assert sent(office.step(*joins, at=START + MS), Ring) == []
    assert sent(office.step(at=START + T_JOIN - 1), Ring) == []
    (ring,) = sent(office.step(at=START + T_JOIN), Ring)
    assert {life.member for life in ring.members} == {1, 3}


@pytest.mark.parametrize(
    "joins",
    [[join(1)], [join(1), join(1)], [join(1), join(2, life=2), join(3, life=2)], [join(1), join(4), join(5)]],
    ids=["one", "one twice", "new lives", "strangers"],
)
def test_without_a_majority_of_the_configured_lives_no_ring_is_formed(joins: list[Join]) -> None:
    office = Office()
    generation = office.invite()
    office.step(*[each._replace(generation=generation) for each in joins], at=START)
    assert sent(office.step(at=START + T_JOIN), Ring) == []


def test_joins_of_another_generation_do_not_count() -> None:
    office = Office()
    generation = office.invite()
    office.step(*[join(member)._replace(generation=generation - 1) for member in (1, 2, 3)], at=START)
    assert sent(office.step(at=START + T_JOIN), Ring) == []


def test_a_generation_has_one_ring_whatever_comes_later() -> None:
    office = Office()
    ring = office.form(join(1), join(2))
    late = join(3, have=50, caught_up=9)._replace(generation=ring.generation)
    effects = office.step(late, at=START + T_JOIN + MS)
    for attempt in range(1, 5):
        effects += office.step(late, at=START + T_JOIN + attempt * TAU_R)
    assert set(sent(effects, Ring)) == {ring}
    assert office.server.rings_formed == 1


def test_the_ring_starts_one_past_the_best_history_whose_holder_helps_and_has_the_first_slot() -> None:
    before = (Era(3, 1, START - 1_000 * MS), Era(6, 8, START - 500 * MS))
    ring = Office().form(
        join(1, caught_up=3, have=30, lineage=before[:1]),  # longer, but of a history that was left
        join(2, caught_up=6, have=12, lineage=before),
        join(3, caught_up=6, have=14, lineage=before),
    )
    assert ring.helper == 3
    assert ring.lineage == (*before, ring.lineage[-1])
    assert ring.lineage[-1][:2] == (ring.generation, 15)
    assert ring.members == lives(3, 1, 2)


def test_the_first_ring_is_formed_like_any_other_and_starts_at_slot_one() -> None:
    ring = Office().form(join(1), join(2), join(3))
    assert ring.lineage == (Era(ring.generation, 1, START + LEAD),)
    assert ring.members == lives(1, 2, 3)
    assert ring.membership == membership(1, 2, 3)
    assert ring.membership_stands


def test_generations_that_no_member_needs_its_journal_for_leave_the_lineage() -> None:
    before = (Era(3, 1, START - 1_000 * MS), Era(6, 8, START - 500 * MS))
    joins = [join(m, caught_up=6, have=12, lineage=before, settled=8) for m in (1, 2, 3)]
    assert Office().form(*joins).lineage[:-1] == before[1:]
    joins[0] = joins[0]._replace(settled=7)
    assert Office().form(*joins).lineage[:-1] == before


@given(st.lists(st.integers(-500, 500), min_size=3, max_size=3), st.integers(-10_000, 10_000))
def test_the_start_time_follows_the_middle_one_of_the_members_clocks_not_the_servers(
    offsets: list[int], server_offset: int
) -> None:
    at = START + server_offset * MS
    joins = [join(member, clock_ns=START + offset * MS) for member, offset in enumerate(offsets, start=1)]
    ring = Office(at=at).form(*joins, at=at)
    assert ring.lineage[-1].start_ns == START + sorted(offsets)[1] * MS + LEAD


def test_clocks_run_on_while_the_server_waits_for_the_rest() -> None:
    ring = Office().form(join(1, clock_ns=START), join(2, clock_ns=START))
    assert ring.lineage[-1].start_ns == START + T_JOIN + LEAD


def test_the_start_time_lies_behind_the_last_slot_of_the_ring_before() -> None:
    before = (Era(3, 1, START + 5_000 * MS),)
    ring = Office().form(*[join(m, caught_up=3, have=10, lineage=before) for m in (1, 2, 3)])
    assert ring.lineage[-1].start_ns == START + 5_000 * MS + 10 * PIPELINED.slot_ns


def test_while_a_change_of_the_set_is_in_doubt_the_ring_has_members_of_both_sets_and_does_not_let_it_stand() -> None:
    new = membership(2, 3, 4, version=1)
    holds: dict[str, object] = {"before": membership(1, 2, 3), "current": new, "have": 9, "caught_up": 3}
    joins = [join(member, witnessed=False, **holds) for member in (1, 2, 3, 4)]
    ring = Office().form(*joins)
    assert {life.member for life in ring.members} == {1, 2, 3, 4}
    assert (ring.membership, ring.membership_stands) == (new, False)
    joins[3] = joins[3]._replace(current_witnessed=True)
    ring = Office().form(*joins)
    assert {life.member for life in ring.members} == {2, 3, 4}
    assert ring.membership_stands


def test_a_member_that_lost_its_disk_is_not_in_the_ring_until_a_record_names_its_new_life() -> None:
    """History F6."""
    joins = [join(1), join(2), join(3, life=2)]
    assert Office().form(*joins).members == lives(1, 2)
    replaced = Membership(1, (*lives(1, 2), *lives(3, life=2)))
    known = [each._replace(before=membership(1, 2, 3), current=replaced) for each in joins]
    assert set(Office().form(*known).members) == set(replaced.members)


# -- afterwards -------------------------------------------------------------------------------------------


def settled_office(*members: int) -> tuple[Office, Ring, int]:
    """A server some time after it has formed a ring of these members."""
    office = Office()
    ring = office.form(*[join(member) for member in members])
    later = START + 1_000 * MS
    while office.phase != "IDLE":
        office.step(at=later)
        later += TAU_R
    return office, ring, later


def test_a_member_that_missed_the_announcement_is_sent_the_ring() -> None:
    office, ring, now = settled_office(1, 2, 3)
    effects = office.step(fault(2, FaultReason.STUCK, promised=ring.generation), at=now)
    assert effects == [Send(2, ring)]
    assert office.phase == "IDLE"


def test_a_fault_in_the_ring_that_stands_and_a_promise_above_it_are_reasons_to_reform() -> None:
    office, ring, now = settled_office(1, 2, 3)
    office.step(fault(2, generation=ring.generation, promised=ring.generation), at=now)
    assert office.phase == "INVITING"
    office, ring, now = settled_office(1, 2, 3)
    office.step(fault(2, FaultReason.STUCK, promised=ring.generation + 1), at=now)
    assert office.phase == "INVITING"


def test_a_configured_member_outside_is_let_in_by_a_new_ring() -> None:
    office, ring, now = settled_office(1, 2)
    office.step(fault(3, FaultReason.OUTSIDE), at=now)
    assert office.phase == "INVITING"
    assert office.server.counter > ring.generation


@pytest.mark.parametrize("asks", [fault(9, FaultReason.OUTSIDE), fault(3, FaultReason.OUTSIDE, life=2)])
def test_a_stranger_and_a_new_life_cannot_cause_a_reformation(asks: Fault) -> None:
    office, _, now = settled_office(1, 2)
    office.step(asks, at=now)
    assert office.phase == "IDLE"


def test_a_member_that_asks_and_does_not_join_is_refused_more_and_more_often() -> None:
    office, _, now = settled_office(1, 2)
    refused = []
    for _ in range(4):
        asks = 0
        while office.phase == "IDLE":
            now += PIPELINED.ask_ns
            office.step(fault(3, FaultReason.OUTSIDE), at=now)
            asks += 1
        refused.append(asks - 1)
        generation = office.server.counter
        office.step(*[join(member)._replace(generation=generation) for member in (1, 2)], at=now)
        for _ in range(2 * PIPELINED.attempts):
            now += TAU_R
            office.step(at=now)
    assert refused == [0, 1, REFUSED_ASKS, REFUSED_ASKS]


def test_one_that_was_refused_and_then_joins_has_its_patience_back() -> None:
    office, _, now = settled_office(1, 2)
    for members in ((1, 2), (1, 2, 3)):
        while office.phase == "IDLE":
            now += PIPELINED.ask_ns
            office.step(fault(3, FaultReason.OUTSIDE), at=now)
        generation = office.server.counter
        office.step(*[join(member)._replace(generation=generation) for member in members], at=now)
        for _ in range(2 * PIPELINED.attempts):
            now += TAU_R
            office.step(at=now)
    assert office.phase == "IDLE"
    assert office.server._patience == {}


def test_the_ring_assigns_every_line_to_one_of_its_members() -> None:
    office = Office()
    office.server.config = replace(office.server.config, lines=(RegionLines(("west-a", "west-b"), (2, 1, 3)),))
    assert office.form(join(1), join(3)).edges == ((3, "west-a"), (1, "west-b"))


def test_a_life_that_a_member_vouches_for_is_let_in_and_refused_more_often_if_it_does_not_join() -> None:
    office, ring, now = settled_office(1, 2)
    vouches = fault(1, FaultReason.MEMBERSHIP, generation=ring.generation, promised=ring.generation)._replace(suspect=9)
    office.step(vouches, at=now)
    assert office.phase == "INVITING"
    generation = office.server.counter
    office.step(*[join(member)._replace(generation=generation) for member in (1, 2)], at=now)
    for _ in range(2 * PIPELINED.attempts):
        now += TAU_R
        office.step(at=now)
    assert office.phase == "IDLE"
    vouches = vouches._replace(generation=generation, promised=generation)
    office.step(vouches, at=now)
    assert office.phase == "IDLE", "9 was named and did not join: the next plea for it is refused once"
    office.step(vouches, at=now)
    assert office.phase == "INVITING"


def test_a_joiner_with_an_outdated_set_does_not_end_the_waiting() -> None:
    """Its set is complete without 4; the best joiner's is not, and 4 is on its way."""
    office = Office()
    office.step(fault(), at=START)
    generation = office.server.counter
    newer = membership(1, 2, 4, version=1)
    for member, current in ((1, newer), (2, newer), (3, membership(1, 2, 3))):
        have = 9 if current is newer else 3
        asked = join(member, have=have, current=current, before=None)
        office.step(asked._replace(generation=generation), at=START)
    assert office.phase == "INVITING"
    office.step(join(4, have=0, current=membership(1, 2, 3))._replace(generation=generation), at=START)
    assert office.phase == "ANNOUNCING"


# -- planned stops ----------------------------------------------------------------------------------------


def leaving(member: int, *, generation: int) -> Fault:
    return Fault(member, 1, generation, generation, FaultReason.LEAVING, 7, member)


def test_a_member_that_leaves_is_not_awaited_and_not_in_the_ring() -> None:
    office = Office()
    ring = office.form(join(1), join(2), join(3))
    office.quiet()
    effects = office.step(leaving(3, generation=ring.generation), at=LATER)
    assert reports(effects, "leave-heard")
    assert reports(effects, "fault-heard") == []
    generation = office.server.counter
    office.step(join(1)._replace(generation=generation), at=LATER)
    effects = office.step(join(2)._replace(generation=generation), at=LATER)
    assert [life.member for life in sent(effects, Ring)[0].members] == [1, 2]


def test_one_that_joined_and_then_leaves_is_not_in_the_ring_either() -> None:
    office = Office()
    generation = office.invite()
    office.step(*[join(member)._replace(generation=generation) for member in (3, 1)], at=START)
    office.step(leaving(3, generation=0), at=START)
    effects = office.step(join(2)._replace(generation=generation), at=START)
    assert [life.member for life in sent(effects, Ring)[0].members] == [1, 2]


def test_an_announcement_while_all_others_have_joined_forms_the_ring() -> None:
    office = Office()
    generation = office.invite()
    office.step(*[join(member)._replace(generation=generation) for member in (1, 2)], at=START)
    effects = office.step(leaving(3, generation=0), at=START)
    assert [life.member for life in sent(effects, Ring)[0].members] == [1, 2]


def test_no_ring_is_formed_for_a_leave_that_would_end_it() -> None:
    office = Office()
    ring = office.form(join(1), join(2))
    office.quiet()
    office.step(leaving(2, generation=ring.generation), at=LATER)
    assert office.phase == "IDLE"


def test_the_ring_needs_the_same_majority_without_the_members_that_leave() -> None:
    office = Office()
    generation = office.invite()
    office.step(leaving(2, generation=0), leaving(3, generation=0), at=START)
    effects = office.step(join(1)._replace(generation=generation), at=START)
    assert sent(effects + office.step(at=START + T_JOIN), Ring) == []


def test_a_repeated_announcement_is_answered_with_the_ring_and_changes_nothing() -> None:
    office = Office()
    ring = office.form(join(1), join(2))
    office.quiet()
    effects = office.step(leaving(3, generation=0), at=LATER)
    assert effects == [Send(3, ring)]
    assert office.phase == "IDLE"


def test_one_that_asks_to_join_again_no_longer_leaves() -> None:
    office = Office()
    generation = office.invite()
    office.step(leaving(3, generation=0), fault(3, FaultReason.OUTSIDE), at=START)
    effects = office.step(*[join(member)._replace(generation=generation) for member in (1, 2)], at=START)
    assert sent(effects, Ring) == []
    effects = office.step(join(3)._replace(generation=generation), at=START)
    assert [life.member for life in sent(effects, Ring)[0].members] == [1, 2, 3]


def test_an_announcement_ends_with_the_ring_that_it_named() -> None:
    for other in (False, True):
        office = Office()
        ring = office.form(join(1), join(2), join(3))
        office.quiet()
        office.step(leaving(3, generation=ring.generation), at=LATER)
        generation = office.server.counter
        if other:
            office.step(make_ring(generation + (1 << 32), (1, 2), configured=membership(1, 2, 3)), at=LATER)
        else:
            office.step(*[join(member)._replace(generation=generation) for member in (1, 2)], at=LATER)
        office.quiet(LATER)
        newest = office.server.ring
        assert newest is not None
        back = office.invite(2 * LATER - START, fault(3, FaultReason.OUTSIDE, generation=1, promised=1))
        effects = office.step(*[join(member)._replace(generation=back) for member in (1, 2)], at=2 * LATER - START)
        assert sent(effects, Ring) == [], "it is awaited again"


def test_a_planned_stop_does_not_delay_the_return() -> None:
    office = Office()
    ring = office.form(join(1), join(2), join(3))
    office.quiet()
    office.step(leaving(3, generation=ring.generation), at=LATER)
    generation = office.server.counter
    office.step(*[join(member)._replace(generation=generation) for member in (1, 2)], at=LATER)
    office.quiet(LATER)
    office.step(fault(3, FaultReason.OUTSIDE, generation=1, promised=1), at=2 * LATER - START)
    assert office.phase == "INVITING"


def test_a_join_request_during_an_announcement_is_taken_up_after_it() -> None:
    office = Office()
    office.form(join(1), join(2))
    office.step(fault(3, FaultReason.OUTSIDE), at=START + T_JOIN + MS)
    assert office.phase == "ANNOUNCING"
    office.quiet()
    assert office.phase in ("WAITING", "INVITING")

"""Secondary receivers (rule 11, MS §4.1, §4.3): histories by script, and the parts by themselves.

Each history plays to a good end with the rules as they are, and breaks a promise when the clause that it is about is
taken out (`levelcast.sim.mutations`, S1 to S6).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import pytest

from benchmarks.layers import passes_to_detect, passes_to_know, rings
from levelcast.protocol.effects import SERVERS, Persist, Send
from levelcast.protocol.history import first_tip
from levelcast.protocol.journal_image import JournalImage
from levelcast.ring.group_server import GroupServer
from levelcast.ring.schedule import Schedule
from levelcast.ring.secondary import AWAY_ASKS, Secondary
from levelcast.ring.secondary_claims import SecondaryClaims
from levelcast.ring.turns import Turns
from levelcast.sim.check.ring import InvariantBroken
from levelcast.sim.mutations import MUTATIONS, Mutation
from levelcast.sim.run import replay_command, run_seed
from levelcast.timing.secondary import group_round_ns, patience_ns, silent_after_ns
from levelcast.wire.messages import (
    Cutoff,
    Data,
    Group,
    GroupInvite,
    GroupRequest,
    GroupToken,
    Pace,
    Repair,
    Request,
    Ring,
    Token,
)
from tests.group_stage import EVERYBODY, GroupStage, LayerStage
from tests.ring_parts import MS, PIPELINED, START, kept, make_config, make_data, make_ring, make_token, reports, sent
from tests.ring_stage import RING_TRAFFIC, A, B, C, P, Q, S, U, X, Y

Play = Callable[[GroupStage], None]


class History(NamedTuple):
    """A script, and the promise that breaks without its clause."""

    name: str
    play: Play
    breaks: str
    stage: type[GroupStage] = GroupStage

    @property
    def mutation(self) -> Mutation:
        (found,) = (mutation for mutation in MUTATIONS.values() if mutation.history == self.name)
        return found


HISTORIES: dict[str, History] = {}


def history(name: str, *, breaks: str, stage: type[GroupStage] = GroupStage) -> Callable[[Play], Play]:
    def register(play: Play) -> Play:
        HISTORIES[name] = History(name, play, breaks, stage)
        return play

    return register


@history("S1", breaks="cover")
def history_s1(stage: GroupStage) -> None:
    """P misses a packet that everybody else has, and no repair reaches it yet. A's next token must not claim the
    slot: what all claim may leave the journals, and P would have to be served from a tape."""
    stage.begin()
    deaf = stage.lose(Repair, to=P)
    slot = stage.until_ordered(A, stage.send(X, only_to=EVERYBODY - {P}))
    stage.until_before_slot_of(A)
    stage.run(5)
    stage.expect(stage.have(P) < slot <= stage.have(Q))
    deaf.lift()
    stage.end()


@history("S2", breaks="own primary")
def history_s2(stage: GroupStage) -> None:
    """P misses a packet that B's token names. It is A that P asks: a thousand secondaries that asked the site would
    implode on it (MS §4.1)."""
    stage.begin()
    stage.until_before_slot_of(B)
    packet = stage.send(X, only_to=EVERYBODY - {P})
    stage.until(lambda: stage.slot_of(P, packet) is not None)
    asked = {to for to, message in stage.world.sent if isinstance(message, Request) and message.sender == P}
    stage.expect(asked == {A})
    stage.end()


@history("S3", breaks="agreement")
def history_s3(stage: GroupStage) -> None:
    """A and its secondaries hold a slot that B and C never hear of. If P and Q counted, A would release it; then A
    dies, and the ring of B and C voids it."""
    stage.begin()
    stage.until_before_slot_of(A)
    stage.lose(*RING_TRAFFIC, sender=A, to={B, C})
    packet = stage.send(X, only_to={A, P, Q})
    slot = stage.until_ordered(A, packet)
    stage.run_past_release()
    stage.expect(min(stage.have(P), stage.have(Q)) >= slot)
    stage.kill(A)

    ring = stage.reform(S, {B, C}, announce_to=EVERYBODY - {A})
    stage.expect(ring.lineage[-1].start_slot <= slot)
    stage.send(Y, only_to={B, C, U})
    stage.run_past_release()
    stage.end()


@history("S4", breaks="no loss")
def history_s4(stage: GroupStage) -> None:
    """A dies and does not return. P, which hears of the ring without A, misses a packet: only another primary can
    serve it."""
    stage.begin()
    stage.take_away(A)
    stage.reform(S, {B, C}, announce_to=EVERYBODY - {A})
    stage.until_ordered(B, stage.send(X, only_to=EVERYBODY - {A, P}))
    stage.end()


@history("S5", breaks="liveness")
def history_s5(stage: GroupStage) -> None:
    """All secondaries of A and B die. Their primaries must go on without them: C alone is no majority."""
    stage.begin()
    stage.take_away(P, Q, U)
    stage.send(X)
    stage.end()


@history("S6", breaks="cover")
def history_s6(stage: GroupStage) -> None:
    """P does not hear of generation 2. What it has belongs to the history of generation 1, and A must not claim for
    it that it has caught up in the new one."""
    stage.begin()
    stage.reform(S, {A, B, C}, announce_to=EVERYBODY - {P})
    stage.until_before_slot_of(A)
    stage.run(5)
    stage.expect(stage.receiver(P).generation < stage.receiver(A).generation)
    stage.end()


@history("S7", breaks="cover", stage=LayerStage)
def history_s7(stage: GroupStage) -> None:
    """U, two layers down, misses a packet that everybody else has, and no repair reaches it yet. Neither P nor A may
    claim the slot."""
    stage.begin()
    deaf = stage.lose(Repair, to=U)
    slot = stage.until_ordered(P, stage.send(X, only_to=EVERYBODY - {U}))
    stage.run(stage.config.timing.request_ns / MS)
    said = stage.receiver(A).claims.said(P)
    stage.expect(said is not None and said.have < slot)
    stage.until_before_slot_of(A)
    stage.run(5)
    stage.expect(stage.have(U) < slot <= stage.have(Q))
    deaf.lift()
    stage.end()


@pytest.mark.parametrize("name", HISTORIES)
def test_history_keeps_every_promise(name: str) -> None:
    HISTORIES[name].play(HISTORIES[name].stage())


@pytest.mark.parametrize("name", HISTORIES)
def test_history_breaks_without_its_clause(name: str) -> None:
    told = HISTORIES[name]
    stage = told.stage()
    with told.mutation.applied(), pytest.raises(InvariantBroken) as broken:
        told.play(stage)
    assert broken.value.promise == told.breaks, stage.story()


def members_of(group: Group | None) -> tuple[int, ...]:
    return group.members if group is not None else ()


# -- more that happens on the stage -----------------------------------------------------------------------


def test_a_secondary_releases_the_same_frames_at_the_same_instant() -> None:
    stage = GroupStage()
    stage.begin()
    packets = [stage.send(X), stage.send(Y)]
    stage.run_past_release()
    assert all(stage.released(node, packet) for node in EVERYBODY for packet in packets)
    tapes = [[frame.chain for frame in stage.world.nodes[node].disk.tape.frames] for node in EVERYBODY]
    assert all(tape == tapes[0] for tape in tapes)
    assert all(stage.receiver(node).late_releases == 0 for node in EVERYBODY)


def test_a_dead_secondary_is_found_by_its_group_and_the_primary_ring_does_not_notice() -> None:
    stage = GroupStage()
    stage.begin()
    ring = stage.receiver(A).generation
    stage.take_away(Q)
    timing = stage.config.timing
    found_ms = (silent_after_ns(timing) + timing.request_ns) / MS
    stage.soon(lambda: stage.secondary(P).suspect == Q, within_ms=found_ms)
    gather_ms = (timing.attempts + 3) * timing.request_ns / MS
    stage.soon(lambda: members_of(stage.secondary(P).group) == (P,), within_ms=gather_ms)
    assert members_of(stage.receiver(A).claims.group) == (P,)
    packet = stage.send(X)
    stage.run_past_release()
    assert stage.released(A, packet)
    assert all(stage.receiver(node).generation == ring for node in (A, B, C))
    assert all(stage.receiver(node).late_releases == 0 for node in (A, B, C, P, U))


def test_dead_secondaries_hold_the_ring_no_longer_than_their_layer_has_in_the_hold_time() -> None:
    """Every secondary dies just before a packet is acknowledged: no primary releases it late."""
    stage = GroupStage()
    stage.begin()
    stage.take_away(P, Q, U)
    packet = stage.send(X)
    slot = stage.until_ordered(A, packet)
    stage.run(stage.patience_ms / 2)
    assert stage.receiver(A).witnessed < slot, "they did not hold it at all"
    stage.run_past_release()
    assert all(stage.released(node, packet) for node in (A, B, C))
    assert all(stage.receiver(node).late_releases == 0 for node in (A, B, C))


def test_an_orphan_gets_a_primary_of_the_ring_that_stands() -> None:
    stage = GroupStage()
    stage.begin()
    stage.take_away(A)
    stage.reform(S, {B, C}, announce_to=EVERYBODY - {A})
    assert stage.secondary(P).standing == "ORPHAN"
    stage.until(lambda: stage.secondary(P).standing == stage.secondary(Q).standing == "FOLLOWS")
    assert {stage.secondary(P).primary, stage.secondary(Q).primary} <= {B, C}
    stage.end()


def test_an_orphan_goes_home_when_its_primary_is_back_in_the_ring() -> None:
    stage = GroupStage()
    stage.begin()
    stage.kill(A)
    stage.reform(S, {B, C}, announce_to=EVERYBODY - {A})
    stage.until(lambda: {stage.secondary(P).primary, stage.secondary(Q).primary} <= {B, C})
    stage.end()
    away_ms = (AWAY_ASKS + 2) * stage.config.timing.ask_ns / MS
    stage.soon(lambda: stage.secondary(P).primary == stage.secondary(Q).primary == A, within_ms=2 * away_ms)
    assert stage.receiver(U).generation == stage.receiver(A).generation
    group = stage.secondary(P).group
    stage.run(2 * away_ms)
    assert stage.secondary(P).group == group, "who is at home asks for nothing"


def test_a_secondary_that_lost_its_disk_catches_up_from_the_tape_of_its_primary() -> None:
    stage = GroupStage()
    stage.begin()
    for _ in range(12):
        stage.send(X)
        stage.run(40)
    stage.run_past_release()
    stage.lose_disk(P)
    stage.start(P)
    stage.end()
    assert stage.receiver(P).generation == stage.receiver(A).generation


def test_a_restarted_secondary_goes_on_from_its_journal_in_the_same_group() -> None:
    stage = GroupStage()
    stage.begin()
    stage.until_ordered(P, stage.send(X))
    had, group = stage.have(P), stage.secondary(P).group
    stage.restart(P)
    assert stage.have(P) == had
    stage.until(lambda: stage.secondary(P).standing == "FOLLOWS")
    assert stage.secondary(P).group == group, "nobody had to form it anew"
    stage.end()


# -- layers -----------------------------------------------------------------------------------------------


def test_one_of_the_second_layer_asks_its_home_and_is_served_by_it() -> None:
    stage = LayerStage()
    stage.begin()
    packet = stage.send(X, only_to=EVERYBODY - {U})
    stage.until(lambda: stage.slot_of(U, packet) is not None)
    asked = {to for to, message in stage.world.sent if isinstance(message, Request) and message.sender == U}
    assert asked == {P}
    stage.end()


def test_orphans_of_a_home_in_the_first_layer_get_another_one_and_the_ring_does_not_notice() -> None:
    stage = LayerStage()
    stage.begin()
    ring = stage.receiver(A).generation
    stage.take_away(P)
    timing = stage.config.timing
    found_ms = (silent_after_ns(timing) + timing.request_ns) / MS
    stage.soon(lambda: P in {stage.secondary(Q).suspect, stage.secondary(U).suspect}, within_ms=found_ms)
    stage.until(lambda: all(stage.secondary(node).primary in (A, B, C) for node in (Q, U)))
    packet = stage.send(X, only_to=EVERYBODY - {P, U})
    stage.run_past_release()
    assert all(stage.released(node, packet) for node in (A, B, C, Q, U))
    assert all(stage.receiver(node).generation == ring for node in (A, B, C))
    assert all(stage.receiver(node).late_releases == 0 for node in (A, B, C, Q, U))


def test_one_that_dies_at_the_bottom_drops_nobody_between_and_makes_nobody_late() -> None:
    stage = LayerStage()
    stage.begin()
    stage.take_away(U)
    packet = stage.send(X)
    slot = stage.until_ordered(A, packet)
    patience_ms = patience_ns(stage.config.timing) / MS
    stage.run(patience_ms - 20)
    assert stage.receiver(A).witnessed < slot or stage.receiver(A).claims.said(P) is not None
    stage.run_past_release()
    assert all(stage.released(node, packet) for node in (A, B, C, P, Q))
    assert all(stage.receiver(node).late_releases == 0 for node in (A, B, C, P, Q))


def test_who_does_not_hear_a_mate_for_good_is_given_another_primary() -> None:
    """A link that is cut one way: without it the group would be formed again and again."""
    stage = GroupStage()
    stage.begin()
    stage.lose(GroupToken, sender=Q, to=P)
    stage.run(6 * stage.config.timing.ask_ns / MS)
    formed = stage.world.report_counts["forms-group"]
    assert stage.secondary(P).primary != stage.secondary(Q).primary
    stage.run(20 * stage.config.timing.ask_ns / MS)
    assert stage.secondary(P).primary != stage.secondary(Q).primary
    assert stage.world.report_counts["forms-group"] <= formed + 4, "it asks for its own one now and then"
    stage.end()


# -- the parts --------------------------------------------------------------------------------------------


def test_turns_come_round_once_in_a_round_and_never_two_at_a_time() -> None:
    turns = Turns(90 * MS, (P, Q, U))
    times = sorted(turns.next_of(member, START) for member in (P, Q, U))
    assert [b - a for a, b in pairwise(times)] == [30 * MS, 30 * MS]
    at_ns = turns.next_of(Q, START)
    assert turns.next_of(Q, at_ns - 1) == at_ns
    assert turns.next_of(Q, at_ns) == at_ns + 90 * MS


def test_a_round_is_a_beat_but_leaves_a_turn_to_each_secondary() -> None:
    assert group_round_ns(PIPELINED, 0, 500) == PIPELINED.request_ns
    assert group_round_ns(PIPELINED, 20 * MS, 20) == 20 * MS
    assert group_round_ns(PIPELINED, 20 * MS, 100) == 100 * MS


def secondary_in_group(at: int = START) -> Secondary:
    config = make_config()
    secondary = Secondary(config, P, JournalImage(), first_tip(config), at)
    secondary.step((Group(5, 101, A, (P, Q)), make_ring()), at)
    return secondary


def test_a_secondary_claims_only_behind_what_it_has_journaled() -> None:
    secondary = secondary_in_group()
    token = make_token(make_ring(), 1)
    at = Turns(PIPELINED.request_ns, (P, Q), make_ring().lineage[-1].start_ns).next_of(P, START)
    effects = secondary.step((token,), at)
    (said, _) = sent(effects, GroupToken)
    assert said.have == 1
    assert kept(effects, Token) == [token]
    assert effects.index(Persist(token)) < effects.index(Send(A, said))


def test_a_secondary_says_nothing_that_a_member_says() -> None:
    secondary = secondary_in_group()
    messages: list[object] = []
    for ms in range(0, 2000, 5):
        messages += [e.message for e in secondary.step((), START + ms * MS) if isinstance(e, Send)]
    assert {type(message) for message in messages} == {GroupToken, GroupRequest, Request}


def test_a_slot_that_nobody_claims_does_not_make_a_primary_suspect() -> None:
    """The site of slot 1 is dead: nobody has its token, and A can answer nothing."""
    secondary = secondary_in_group()
    for ms in range(0, 1000, 5):
        secondary.step((GroupToken(Q, 1, 5, ms, 0),), START + ms * MS)
    assert secondary.suspect == 0
    secondary.step((make_token(make_ring(), 2), GroupToken(Q, 1, 5, 1000, 0)), START + 1000 * MS)
    for ms in range(1000, 1500, 5):
        secondary.step((GroupToken(Q, 1, 5, ms, 0),), START + ms * MS)
    assert secondary.suspect == A


def test_a_secondary_with_a_wrong_clock_is_silent() -> None:
    secondary = secondary_in_group()
    effects = secondary.step((GroupInvite(9, 101),), START + 100 * MS, clock_trusted=False)
    assert not [effect for effect in effects if isinstance(effect, Send)]
    assert secondary.standing == "SILENT"


def test_a_secondary_that_is_left_out_of_the_group_of_its_primary_asks_again() -> None:
    secondary = secondary_in_group()
    (plea,) = sent(secondary.step((Group(6, 102, A, (Q,)),), START + MS), GroupRequest)
    assert plea == GroupRequest(P, 0, 6, 0, 0)
    assert secondary.standing == "ALONE"


def test_a_secondary_that_leaves_names_itself_until_its_group_is_without_it() -> None:
    secondary = secondary_in_group()
    assert not secondary.has_left
    secondary.leave()
    tau_r = secondary.timing.request_ns
    said = GroupRequest(P, 0, 5, A, P)
    effects = secondary.step((GroupInvite(9, 101),), START + MS)
    assert sent(effects, GroupRequest) == [said], "it does not reply to the invitation"
    assert reports(effects, "leaves")
    assert sent(secondary.step((), START + MS + tau_r - 1), GroupRequest) == []
    assert secondary.wake_ns is not None
    assert secondary.wake_ns <= START + MS + tau_r
    assert sent(secondary.step((), START + MS + tau_r), GroupRequest) == [said]
    assert not secondary.has_left
    effects = secondary.step((Group(6, 102, A, (Q,)),), START + MS + 2 * tau_r)
    assert secondary.has_left
    assert sent(effects, GroupRequest) == []
    assert sent(secondary.step((), START + MS + 4 * tau_r), GroupRequest) == [], "it does not ask for a group"


def test_a_secondary_without_a_clock_leaves_at_once() -> None:
    secondary = secondary_in_group()
    secondary.leave()
    secondary.step((), START + MS, clock_trusted=False)
    assert secondary.has_left


def test_an_older_group_is_ignored() -> None:
    secondary = secondary_in_group()
    secondary.step((Group(4, 102, B, (P, U)),), START + MS)
    assert secondary.primary == A


def test_tokens_of_a_ring_that_it_was_not_told_of_are_kept_until_it_is() -> None:
    secondary = secondary_in_group()
    ring = make_ring(2, (1, 2), start_slot=1, start_ns=START + 50 * MS)
    secondary.step((make_token(ring, 1), make_data(201, 1)), START + 60 * MS)
    before = secondary.standing
    effects = secondary.step((ring,), START + 61 * MS)
    assert kept(effects, Ring) == [ring]
    assert secondary.have == 1
    assert (before, secondary.standing) == ("LOST", "FOLLOWS")
    assert not kept(effects, Data)


def test_a_cover_counts_who_was_heard_and_drops_who_lags() -> None:
    ring = make_ring()
    schedule, cover = Schedule(ring, PIPELINED.slot_ns), SecondaryClaims(patience_ns(PIPELINED))
    assert cover.lowest(95, schedule, START) == 95
    cover.hear(GroupToken(P, 1, 5, 10, 7))
    until_ns = schedule.time_of(8) + patience_ns(PIPELINED)
    assert cover.lowest(95, schedule, until_ns) == 7
    assert cover.lowest(95, schedule, until_ns + 1) == 95
    cover.hear(GroupToken(P, 1, 5, 11, 90))
    assert cover.lowest(95, schedule, until_ns + 1) == 90
    assert cover.lowest(5, schedule, until_ns + 1) == 5


def keeps_the_latest_report() -> None:
    cover = SecondaryClaims(patience_ns(PIPELINED))
    cover.hear(GroupToken(P, 1, 5, 10, 7))
    cover.hear(GroupToken(P, 1, 5, 9, 3))
    said = cover.said(P)
    assert said is not None
    assert said.have == 7, "overtaken on its way"


CLAUSES: dict[str, tuple[Callable[[], None], str]] = {
    "overtaken-report-counts": (keeps_the_latest_report, "overtaken"),
}


@pytest.mark.parametrize("name", CLAUSES)
def test_a_promise_about_reports_holds_and_breaks_without_its_clause(name: str) -> None:
    promise, broken = CLAUSES[name]
    promise()
    with MUTATIONS[name].applied(), pytest.raises(AssertionError, match=broken):
        promise()


def test_the_patience_with_beats_is_what_the_hold_time_leaves() -> None:
    config = replace(make_config(), delays={(A, B): 30 * MS, (A, P): 40 * MS, (P, A): 5 * MS}, clock_error_ns=MS)
    config.homes.update({P: A, Q: P})
    pace = Pace(200 * MS, 20 * MS, (Cutoff(A, 50 * MS),))
    assert config.patience_ns(A, pace) == (200 - 20 - 50) * MS
    assert config.patience_ns(P, pace) == (200 - 20 - 50 - 20 - 5 - 2 - 2) * MS
    assert config.patience_ns(A, pace._replace(hold_ns=60 * MS)) == 0
    long = pace._replace(hold_ns=10**12)
    assert config.patience_ns(A, long) == config.patience_ns(A, None) == patience_ns(config.timing, 2)
    assert config.patience_ns(P, None) == patience_ns(config.timing, 1)


def test_a_cover_lets_go_of_who_is_in_its_group_no_more_and_tells_them() -> None:
    cover = SecondaryClaims(patience_ns(PIPELINED))
    cover.hear(GroupToken(P, 1, 5, 10, 7))
    group = Group(6, 101, A, (Q,))
    cover.take(group)
    assert cover.said(P) is None
    cover.take(Group(5, 101, A, (P,)))  # an older one
    assert cover.group == group
    assert cover.hear(GroupToken(P, 1, 5, 11, 8)) == group
    assert cover.said(P) is None
    assert cover.hear(GroupToken(Q, 1, 5, 11, 8)) == group
    assert cover.said(Q) is not None


def test_a_cover_hears_a_secondary_whose_new_group_has_a_lower_number() -> None:
    """Secondary and server were restarted: neither knows the number that was in use (seed 4455 of `receivers`)."""
    cover = SecondaryClaims(patience_ns(PIPELINED))
    cover.hear(GroupToken(P, 1, 7, 10, 7))
    cover.hear(GroupToken(P, 1, 6, 11, 8))
    cover.hear(GroupToken(P, 1, 6, 12, 8))
    said = cover.said(P)
    assert said is not None
    assert said.have == 8


def test_a_secondary_of_an_older_ring_counts_below_the_start_of_this_one() -> None:
    ring = make_ring(2, start_slot=50, start_ns=START + 500 * MS)
    schedule, cover = Schedule(ring, PIPELINED.slot_ns), SecondaryClaims(patience_ns(PIPELINED))
    cover.hear(GroupToken(P, 1, 5, 10, 49))
    cover.hear(GroupToken(Q, 3, 5, 10, 49))
    assert cover.lowest(90, schedule, START + 500 * MS) == 48
    cover.take(Group(6, 101, A, (Q,)))
    assert cover.lowest(90, schedule, START + 500 * MS) == 90, "one of a later ring does not count"


class Keeper:
    """A keeper of groups, and what it sends."""

    def __init__(self, homes: dict[int, int], server: int = 101) -> None:
        config = make_config()
        config.homes.update(homes)
        self.keeper = GroupServer(config, server, 1)
        self.ring = make_ring()
        self.now = START

    def step(self, *messages: GroupRequest | Group, ms: int = 0) -> list[Send]:
        self.now += ms * MS
        return [e for e in self.keeper.step(messages, self.ring, self.now) if isinstance(e, Send)]

    def invited(self, sends: list[Send]) -> dict[int, int]:
        return {send.to: send.message.number for send in sends if isinstance(send.message, GroupInvite)}

    def groups(self, sends: list[Send]) -> dict[int, tuple[int, ...]]:
        return {send.message.primary: send.message.members for send in sends if isinstance(send.message, Group)}


def test_a_plea_gathers_those_of_the_same_home_and_gives_each_its_primary() -> None:
    keeper = Keeper({P: A, Q: A, U: B})
    invited = keeper.invited(keeper.step(GroupRequest(P, 0, 0, 0, 0)))
    assert set(invited) == {P, Q}
    number = invited[P]
    assert keeper.step(GroupRequest(P, number, 0, 0, 0)) == []
    sends = keeper.step(GroupRequest(Q, number, 0, 0, 0))
    assert keeper.groups(sends) == {A: (P, Q)}
    assert {send.to for send in sends} == {A, P, Q, SERVERS}
    assert len(keeper.step(ms=26)) == 4, "announcements are repeated"


def test_who_does_not_answer_gets_no_place() -> None:
    keeper = Keeper({P: A, Q: A})
    number = keeper.invited(keeper.step(GroupRequest(P, 0, 0, 0, Q)))[P]
    keeper.step(GroupRequest(P, number, 0, 0, Q))
    assert keeper.invited(keeper.step(ms=26)) == {Q: number}
    assert keeper.groups(keeper.step(ms=52)) == {A: (P,)}


def test_an_orphan_gets_the_primary_with_the_fewest() -> None:
    keeper = Keeper({P: A, Q: B})
    keeper.ring = make_ring(2, (B, C))
    keeper.step(Group(1 << 32, 102, B, (Q,)))
    number = keeper.invited(keeper.step(GroupRequest(P, 0, 0, A, A)))[P]
    assert number >> 32 == 2, "above every number that it has heard of"
    assert keeper.groups(keeper.step(GroupRequest(P, number, 0, A, A))) == {C: (P,)}


def test_a_primary_that_failed_a_secondary_is_not_given_again_at_once() -> None:
    keeper = Keeper({P: A})
    number = keeper.invited(keeper.step(GroupRequest(P, 0, 0, A, A)))[P]
    assert keeper.groups(keeper.step(GroupRequest(P, number, 0, A, A))) == {B: (P,)}
    later = keeper.step(GroupRequest(P, 0, number, B, B), ms=10_000)
    number = keeper.invited(later)[P]
    assert keeper.groups(keeper.step(GroupRequest(P, number, number, B, B))) == {A: (P,), B: ()}


def test_a_secondary_that_missed_its_group_is_told_and_nothing_is_formed() -> None:
    keeper = Keeper({P: A})
    group = Group(7 << 32, 102, A, (P, Q))
    keeper.step(group)
    assert keeper.step(GroupRequest(P, 0, 0, 0, 0)) == [Send(P, Repair(101, (group,)))]
    assert keeper.keeper.phase == "IDLE"


def test_nobody_waits_for_a_secondary_that_leaves() -> None:
    keeper = Keeper({P: A, Q: A})
    keeper.step(Group(7 << 32, 102, A, (P, Q)))
    invited = keeper.invited(keeper.step(GroupRequest(Q, 0, 7 << 32, A, Q)))
    assert set(invited) == {P}
    sends = keeper.step(GroupRequest(P, invited[P], 7 << 32, A, 0))
    assert keeper.groups(sends) == {A: (P,)}
    assert Q not in {send.to for send in sends}
    (answer,) = keeper.step(GroupRequest(Q, 0, 7 << 32, A, Q))
    assert (answer.to, isinstance(answer.message, Group)) == (Q, True)
    assert keeper.keeper.phase == "IDLE"


def test_one_that_joined_and_then_leaves_gets_no_place() -> None:
    keeper = Keeper({P: A, Q: A})
    number = keeper.invited(keeper.step(GroupRequest(P, 0, 0, 0, 0)))[P]
    keeper.step(GroupRequest(Q, number, 0, 0, 0))
    keeper.step(GroupRequest(Q, 0, 0, 0, Q))
    assert keeper.groups(keeper.step(GroupRequest(P, number, 0, 0, 0))) == {A: (P,)}


def test_a_secondary_that_asks_again_no_longer_leaves() -> None:
    keeper = Keeper({P: A, Q: A}, server=102)
    keeper.step(Group(7 << 32, 101, A, (P, Q)))
    keeper.step(GroupRequest(Q, 0, 7 << 32, A, Q))
    keeper.step(GroupRequest(Q, 0, 7 << 32, A, 0), ms=1)
    assert set(keeper.invited(keeper.step(ms=1000))) == {P, Q}


def test_the_second_server_leaves_a_planned_stop_to_the_first() -> None:
    keeper = Keeper({P: A, Q: A}, server=102)
    keeper.step(Group(7 << 32, 101, A, (P, Q)))
    keeper.step(GroupRequest(Q, 0, 7 << 32, A, Q))
    keeper.step(Group(8 << 32, 101, A, (P,)), ms=50)
    assert keeper.step(ms=1000) == []


def test_the_second_server_leaves_it_to_the_first() -> None:
    keeper = Keeper({P: A}, server=102)
    assert keeper.step(GroupRequest(P, 0, 0, 0, 0)) == []
    keeper.step(Group(7 << 32, 101, A, (P,)), ms=50)
    assert keeper.step(ms=1000) == []
    keeper.step(GroupRequest(P, 0, 7 << 32, A, A))
    assert keeper.invited(keeper.step(ms=1000)), "the first one does nothing"


# -- the paper's arithmetic -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("receivers", "layers", "passes"),
    [(100, 1, 100), (100, 2, 10), (100, 3, 5), (10_000, 1, 10_000), (10_000, 2, 100), (10_000, 3, 22)],
)
def test_passes_to_detect_a_failure_are_the_root_of_the_receivers(receivers: int, layers: int, passes: int) -> None:
    """MS §4.1: L_i = L_1^(1/i); counted in turns of a ring of that size, for whoever dies right after its turn."""
    assert passes_to_detect(receivers, layers) == passes
    assert (passes - 1) ** layers < receivers <= passes**layers
    members = tuple(range(1, passes + 1))
    turns = Turns(passes * MS, members)
    for member in members[:: max(1, passes // 50)]:
        at_ns = turns.next_of(member, START)
        assert turns.next_of(member, at_ns) - at_ns == passes * MS


def test_passes_are_counted_in_whole_numbers_however_many_receivers_there_are() -> None:
    for root in (3, 10**9 + 7, 2**60 + 1, 10**150 + 1):
        for layers in (2, 3, 5):
            assert passes_to_detect(root**layers, layers) == root
            assert passes_to_detect(root**layers + 1, layers) == root + 1


@pytest.mark.parametrize(("receivers", "layers"), [(1, 1), (7, 1), (100, 2), (100, 3), (101, 2), (10_000, 3), (5, 4)])
def test_rings_hold_every_receiver_and_are_joined_by_their_heads(receivers: int, layers: int) -> None:
    found = rings(receivers, layers)
    assert len(found) == layers
    assert len(found[0]) == 1, "one ring at the top"
    assert max(len(ring) for layer in found for ring in layer) <= passes_to_detect(receivers, layers)
    assert [member for ring in found[-1] for member in ring] == list(range(receivers))
    for upper, lower in pairwise(found):
        assert [member for ring in upper for member in ring] == [ring[0] for ring in lower]
    assert passes_to_know(receivers, layers) == layers * passes_to_detect(receivers, layers)


@pytest.mark.parametrize(("receivers", "layers"), [(0, 1), (1, 0)])
def test_passes_need_a_receiver_and_a_layer(receivers: int, layers: int) -> None:
    with pytest.raises(ValueError, match="1 or more"):
        passes_to_detect(receivers, layers)


# -- seeds ------------------------------------------------------------------------------------------------


def test_a_seed_gives_the_same_history_again() -> None:
    assert run_seed("receivers", 4) == run_seed("receivers", 4)


@pytest.mark.parametrize("seed", [0, 3, 5])
def test_a_random_history_keeps_every_promise(seed: int) -> None:
    outcome = run_seed("receivers", seed)
    assert outcome.broken is None, replay_command("receivers", seed)
    assert outcome.secondaries
    assert outcome.groups

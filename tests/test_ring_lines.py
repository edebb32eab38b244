"""The assignment of lines by servers, the duty of receivers, and reports of secondaries that stopped (MS §4.3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from levelcast.protocol.config import StripeConfig
from levelcast.protocol.effects import GROUP, Send
from levelcast.protocol.history import first_tip
from levelcast.protocol.journal_image import JournalImage
from levelcast.protocol.lines import RegionLines
from levelcast.ring.group_server import ReformationAndGroupServer
from levelcast.ring.group_watch import GroupWatch
from levelcast.ring.line_duty import CHECK_ASKS, LineDuty
from levelcast.ring.line_server import LineServer
from levelcast.ring.secondary import Secondary
from levelcast.sim.mutations import MUTATIONS
from levelcast.timing.secondary import silent_after_ns
from levelcast.wire.codec import seal_message
from levelcast.wire.messages import (
    Group,
    GroupInvite,
    GroupRequest,
    LineHolders,
    LineRequest,
    Message,
    Repair,
    Ring,
)
from tests.ring_parts import MS, PIPELINED, SERVER, START, make_config, make_ring
from tests.ring_stage import A, B, C, P, Q

TAU_R = PIPELINED.request_ns
OTHER = SERVER + 1
LINES = (RegionLines(("a", "b"), (P, Q, A, B, C)),)


def config() -> StripeConfig:
    made = replace(make_config(), lines=LINES)
    made.homes.update({P: A, Q: B})
    return made


def ring(generation: int = 1 << 32, *edges: tuple[int, str]) -> Ring:
    return seal_message(make_ring(generation)._replace(edges=edges, sealed=b""), config().domain)


def holders(number: int, *held: tuple[int, str], generation: int = 1 << 32, server: int = SERVER) -> LineHolders:
    return seal_message(LineHolders(generation, server, number, held), config().domain)


class Desk:
    """The assignment of one server, and what it sends."""

    def __init__(self, server: int = SERVER) -> None:
        self.lines = LineServer(config(), server, 1, START)
        self.now = START

    def step(
        self, *batch: Message, ring: Ring | None, alive: tuple[int, ...], ms: int = 0, formed: bool = False
    ) -> list[Send]:
        self.now += ms * MS
        effects = self.lines.step(batch, ring, alive, self.now, formed=formed)
        return [effect for effect in effects if isinstance(effect, Send)]


def said(sends: list[Send]) -> list[tuple[tuple[int, str], ...]]:
    return [send.message.holders for send in sends if isinstance(send.message, LineHolders) and send.to == GROUP]


def test_a_failed_secondary_loses_its_line_and_the_change_is_repeated() -> None:
    desk, first = Desk(), ring(1 << 32, (P, "a"), (Q, "b"))
    assert said(desk.step(ring=first, alive=(P, Q), formed=True)) == [], "the ring has the assignment"
    assert said(desk.step(ring=first, alive=(Q,), ms=200, formed=True)) == [((A, "a"), (Q, "b"))]
    repeated = [said(desk.step(ring=first, alive=(Q,), ms=26)) for _ in range(5)]
    assert [len(each) for each in repeated] == [1, 1, 0, 0, 0]
    assert desk.lines.wake_ns is None


def test_another_server_announces_only_what_nobody_has_announced() -> None:
    first = ring(1 << 32, (P, "a"), (Q, "b"))
    found = holders(1 << 32 | SERVER << 16, (A, "a"), (Q, "b"))
    desk = Desk(OTHER)
    desk.step(ring=first, alive=(P, Q))
    desk.step(ring=first, alive=(Q,), ms=500)
    desk.step(found, ring=first, alive=(Q,), ms=10)
    assert said(desk.step(ring=first, alive=(Q,), ms=500)) == []

    alone = Desk(OTHER)
    alone.step(ring=first, alive=(P, Q))
    assert said(alone.step(ring=first, alive=(Q,), ms=500)) == []
    assert said(alone.step(ring=first, alive=(Q,), ms=2 * 90)) == [found.holders]


def test_two_servers_that_know_different_groups_do_not_alternate() -> None:
    first = ring(1 << 32, (P, "a"), (Q, "b"))
    desk = Desk()
    desk.step(ring=first, alive=(P, Q), formed=True)
    desk.step(ring=first, alive=(Q,), ms=500, formed=True)
    other = holders(9 << 32, (P, "a"), (Q, "b"), server=OTHER)
    assert said(desk.step(other, ring=first, alive=(Q,), ms=1)) == []
    assert said(desk.step(ring=first, alive=(Q,), ms=900)) == []
    assert desk.lines.newest == other


def corrects_its_own_assignment_at_once() -> None:
    first = ring(1 << 32, (P, "a"), (Q, "b"))
    desk = Desk(OTHER)
    desk.step(ring=first, alive=(P, Q))
    desk.step(holders(1 << 32, (A, "a"), (B, "b")), ring=first, alive=(P, Q), ms=1)
    assert said(desk.step(ring=first, alive=(P, Q), ms=500)) == [((P, "a"), (Q, "b"))], "it has missed a group"
    assert said(desk.step(ring=first, alive=(Q,), ms=10)) == [((A, "a"), (Q, "b"))], "not corrected"

    former = Desk()
    former.step(ring=first, alive=(P, Q), formed=True)
    assert said(former.step(ring=first, alive=(Q,), ms=10)) == [((A, "a"), (Q, "b"))], "it has formed the ring"


def test_a_restarted_server_learns_the_number_in_use_and_continues_above_it() -> None:
    desk, first = Desk(), ring(1 << 32, (P, "a"), (Q, "b"))
    (asked,) = desk.step(ring=None, alive=())
    assert asked == Send(GROUP, LineRequest(SERVER, 0, 0))
    in_use = holders(7 << 32 | OTHER << 16, (P, "a"), (A, "b"), server=OTHER)
    desk.step(Repair(A, (in_use,)), ring=first, alive=(P,), ms=10)
    assert desk.lines.newest == in_use
    desk.step(ring=first, alive=(P,), ms=500)
    assert said(desk.step(ring=first, alive=(), ms=10, formed=True)) == [((A, "a"), (B, "b"))]
    assert desk.lines.newest is not None
    assert desk.lines.newest.number >> 32 == 8


def test_a_server_whose_number_was_too_low_announces_again_above_the_one_in_use() -> None:
    desk, first = Desk(), ring(1 << 32, (P, "a"), (Q, "b"))
    desk.step(ring=first, alive=(P, Q), formed=True)
    assert said(desk.step(ring=first, alive=(P,), ms=10, formed=True)) == [((P, "a"), (A, "b"))]
    in_use = holders(7 << 32, (A, "a"), (Q, "b"), server=OTHER)
    assert said(desk.step(Repair(C, (in_use,)), ring=first, alive=(P,), ms=10)) == [((P, "a"), (A, "b"))]
    assert desk.lines.newest is not None
    assert desk.lines.newest.number >> 32 == 8


def test_a_receiver_is_sent_an_assignment_that_it_has_missed() -> None:
    desk, first = Desk(), ring(1 << 32, (P, "a"), (Q, "b"))
    desk.step(ring=first, alive=(P, Q), formed=True)
    (answer, *_) = desk.step(LineRequest(P, 0, 0), ring=first, alive=(P, Q), ms=1)
    assert answer == Send(P, holders(0, (P, "a"), (Q, "b")))
    assert desk.step(LineRequest(P, 1 << 32, 0), ring=first, alive=(P, Q), ms=1) == []


# -- the receiver -----------------------------------------------------------------------------------------


def test_a_receiver_starts_at_once_and_stops_when_the_other_has_the_assignment_too() -> None:
    duty = LineDuty(A, PIPELINED, secondaries=True)
    duty.enter(ring(1 << 32, (A, "a"), (B, "b")), START)
    assert duty.held(START) == ("a",)
    duty.hear(holders(1, (C, "a"), (A, "b")), START + 5)
    stop_ns = START + 5 + PIPELINED.hear_ns
    assert duty.held(START + 5) == ("b", "a")
    assert (duty.held(stop_ns - 1), duty.held(stop_ns)) == (("b", "a"), ("b",))
    duty.hear(holders(0, (A, "a")), START + 6)
    duty.enter(ring(1, (A, "a")), START + 7)
    assert duty.held(stop_ns) == ("b",), "an older assignment changes nothing"
    duty.hear(holders(2, (A, "a"), (A, "b")), START + 8)
    assert sorted(duty.held(stop_ns)) == ["a", "b"]


def test_a_restarted_receiver_has_no_line_until_a_server_answers_or_none_does() -> None:
    duty = LineDuty(A, PIPELINED, secondaries=True)
    duty.resume(ring(1 << 32, (A, "a")))
    assert duty.held(START) == ()
    now = START
    for _ in range(PIPELINED.attempts):
        assert duty.due(now) == LineRequest(A, 0, 0)
        assert duty.due(now) is None
        now += TAU_R
    assert duty.due(now) is None
    assert duty.held(now) == ("a",)
    assert duty.due(now + CHECK_ASKS * PIPELINED.ask_ns) == LineRequest(A, 1 << 32, 0)

    duty = LineDuty(A, PIPELINED, secondaries=True)
    duty.resume(ring(1 << 32, (A, "a")))
    duty.hear(holders(3, (B, "a")), START)
    assert (duty.held(START), duty.due(START + 9 * TAU_R)) == ((), None)


def test_a_secondary_sends_to_the_lines_of_the_newest_assignment() -> None:
    secondary = Secondary(config(), P, JournalImage(1), first_tip(config()), START)
    assert secondary.lines(START) == ()
    secondary.step((ring(1 << 32, (P, "a"), (Q, "b")),), START)
    assert secondary.lines(START) == ("a",)
    secondary.step((holders(1 << 32, (A, "a"), (P, "b")),), START + MS)
    assert secondary.lines(START + 500 * MS) == ("b",)
    effects = secondary.step((LineRequest(SERVER, 0, 0),), START + 2 * MS)
    passed = [e.message.items[0] for e in effects if isinstance(e, Send) and isinstance(e.message, Repair)]
    assert passed == [ring(1 << 32, (P, "a"), (Q, "b")), holders(1 << 32, (A, "a"), (P, "b"))]


def test_a_secondary_that_stops_as_planned_waits_until_another_receiver_sends_to_its_line() -> None:
    secondary = Secondary(config(), P, JournalImage(1), first_tip(config()), START)
    group = seal_message(Group(5 << 32, SERVER, A, (P,)), config().domain)
    secondary.step((ring(1 << 32, (P, "a"), (Q, "b")), group), START)
    secondary.leave()
    without = seal_message(Group(6 << 32, SERVER, A, ()), config().domain)
    secondary.step((without,), now := START + 10 * MS)
    assert not secondary.has_left, "nobody else has its line"
    secondary.step((holders(1 << 32, (A, "a"), (Q, "b")),), now)
    assert (secondary.lines(now), secondary.has_left) == (("a",), False)
    assert secondary.wake_ns is not None
    assert secondary.wake_ns <= now + PIPELINED.hear_ns
    secondary.step((), now + PIPELINED.hear_ns)
    assert secondary.has_left


def test_a_ring_without_a_receiver_takes_its_lines_with_the_same_overlap() -> None:
    duty = LineDuty(A, PIPELINED, secondaries=False)
    duty.enter(ring(1 << 32, (A, "a"), (B, "b")), START)
    duty.lose(2 << 32, (), START)
    assert duty.wake_ns(START) == START + PIPELINED.hear_ns
    assert (duty.held(START), duty.held(START + PIPELINED.hear_ns)) == (("a",), ())
    duty.hear(holders(9, (A, "a")), START + MS)
    assert duty.held(START + PIPELINED.hear_ns) == (), "an assignment of the old ring"


@pytest.mark.parametrize("ring_first", [True, False])
def test_the_overlap_ends_when_the_new_receiver_has_sent_a_token_in_the_ring(ring_first: bool) -> None:
    duty, edges = LineDuty(A, PIPELINED, secondaries=False), ((B, "a"), (C, "b"))
    duty.enter(ring(1 << 32, (A, "a"), (A, "b")), START)
    if ring_first:
        duty.lose(2 << 32, edges, START)
    duty.lose(2 << 32, (), START + MS)
    duty.hear_token(2 << 32, C)
    duty.lose(2 << 32, edges, START + 2 * MS)
    assert duty.held(START + 2 * MS) == ("a",), "only B's token ends the overlap of a"
    duty.hear_token(1 << 32, B)
    assert duty.held(START + 2 * MS) == ("a",), "a token of the old ring"
    duty.hear_token(2 << 32, B)
    assert duty.held(START + 2 * MS) == ()


def test_the_node_that_serves_a_group_of_one_reports_it_until_the_group_is_formed_anew() -> None:
    watch = GroupWatch(PIPELINED)
    watch.take(Group(5, SERVER, A, (P,)), START)
    silent_ns = silent_after_ns(PIPELINED)
    assert watch.due(START + silent_ns - 1) == []
    watch.hear(P, START + 50 * MS)
    assert watch.wake_ns == START + 50 * MS + silent_ns
    report = GroupRequest(A, 0, 5, A, P)
    assert watch.due(START + 50 * MS + silent_ns) == [report]
    assert watch.wake_ns == START + 50 * MS + silent_ns + TAU_R
    watch.take(Group(6, SERVER, A, ()), START + 300 * MS)
    assert watch.wake_ns is None


def test_a_server_forms_a_group_without_the_one_that_its_primary_reports_and_moves_its_line() -> None:
    server = ReformationAndGroupServer(config(), SERVER, JournalImage(1), START)
    first = ring(1 << 32, (P, "a"), (Q, "b"))
    old = [seal_message(Group(5 << 32, OTHER, home, (member,)), config().domain) for home, member in ((A, P), (B, Q))]
    sends = server.step((first, Repair(A, (old[0],)), Repair(B, (old[1],))), START)
    assert server.keeper.secondaries == {P, Q}
    assert Send(GROUP, LineRequest(SERVER, 1 << 32, 0)) in sends
    sends = server.step((GroupRequest(A, 0, 5 << 32, A, P),), START + 500 * MS)
    assert [send.to for send in sends if isinstance(send, Send) and isinstance(send.message, GroupInvite)] == [P]
    formed = server.step((), START + 500 * MS + PIPELINED.attempts * TAU_R)
    assert server.keeper.secondaries == {Q}
    (moved,) = (send.message for send in formed if isinstance(send, Send) and isinstance(send.message, LineHolders))
    assert moved.holders == ((A, "a"), (Q, "b"))


# -- clauses that few random histories need: each promise holds, and breaks without its clause ------------------------


def sends_to_the_newest_line() -> None:
    duty = LineDuty(A, PIPELINED, secondaries=True)
    duty.hear(holders(2, (A, "a")), START)
    duty.hear(holders(1, (B, "a")), START + MS)
    assert duty.held(START + PIPELINED.hear_ns + MS) == ("a",), "newest"


def moves_the_line_of_a_secondary_that_fails_with_its_primary() -> None:
    server = ReformationAndGroupServer(config(), SERVER, JournalImage(1), START)
    served = seal_message(Group(5 << 32, OTHER, C, (P,)), config().domain)
    server.step((ring(1 << 32, (P, "a"), (Q, "b")), Repair(C, (served,))), START)
    without_c = make_ring(2 << 32, (A, B))._replace(edges=((P, "a"), (A, "b")), sealed=b"")
    now = START + 500 * MS
    server.step((seal_message(without_c, config().domain),), now)
    while (wake_ns := server.wake_ns) is not None:
        server.step((), now := max(now, wake_ns))
    assert P not in server.keeper.secondaries, "moved"


CLAUSES: dict[str, tuple[Callable[[], None], str]] = {
    "own-lines-corrected-late": (corrects_its_own_assignment_at_once, "not corrected"),
    "older-assignment-counts": (sends_to_the_newest_line, "newest"),
    "orphans-unwatched": (moves_the_line_of_a_secondary_that_fails_with_its_primary, "moved"),
}


@pytest.mark.parametrize("name", CLAUSES)
def test_a_promise_about_lines_holds_and_breaks_without_its_clause(name: str) -> None:
    promise, broken = CLAUSES[name]
    promise()
    with MUTATIONS[name].applied(), pytest.raises(AssertionError, match=broken):
        promise()

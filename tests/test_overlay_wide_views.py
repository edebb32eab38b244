"""Agreement on the next view: one content for all, with the reports of all that stay."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from levelcast.overlay.wide.views import TRIES, ProposalStage, ViewChange
from levelcast.protocol.effects import Effect, Send
from levelcast.sim.mutations import MUTATIONS
from levelcast.wire.messages import Message
from levelcast.wire.wide_messages import (
    WideAccept,
    WideAccepted,
    WideContent,
    WideId,
    WideMember,
    WidePrepare,
    WidePromise,
    WideRequest,
    WideView,
)
from tests.wide_parts import MS, equal_matrix, group

HELD = {2: WideId(5, 1, 7), 3: WideId(5, 1, 8), 5: WideId(5, 1, 9)}
"""A message of process 5 that each holds."""


class Members:
    """View changes of five members, and the messages between them."""

    def __init__(self, count: int = 5) -> None:
        self.config = group("M", equal_matrix(count + 1), alive_ns=10 * MS)
        self.installed: dict[int, list[tuple[int, WideContent]]] = {each: [] for each in range(1, count + 2)}
        self.mail: deque[tuple[int, int, Message]] = deque()
        self.sent: list[tuple[int, int, Message]] = []
        self.now = 0
        self.changes = {each: self._change(each) for each in range(1, count + 1)}
        members = tuple(WideMember(each, 1, 0, 0) for each in range(1, count + 1))
        for change in self.changes.values():
            change.begin(1, members, 0)

    def _change(self, process: int) -> ViewChange:
        def report(without: frozenset[int]) -> Iterable[WideId]:
            return [HELD[process]] if process in HELD and 5 in without else []

        def install(view: int, content: WideContent) -> None:
            self.installed[process].append((view, content))
            self.changes[process].begin(view, content.members, self.now)

        return ViewChange(self.config, process, report, lambda: 10 * process, install)

    def put(self, process: int, effects: Iterable[Effect]) -> None:
        for effect in effects:
            assert isinstance(effect, Send)
            self.mail.append((process, effect.to, effect.message))

    def step(self, process: int, suspects: Iterable[int] = (), wait_ms: int = 0) -> None:
        self.now += wait_ms * MS
        self.put(process, self.changes[process].step(frozenset(suspects), self.now))

    def deliver(self, passes: Callable[[int, int, Message], bool] = lambda *_: True) -> None:
        """Deliver everything that passes, answers too; the rest is lost."""
        while self.mail:
            sender, to, message = self.mail.popleft()
            self.sent.append((sender, to, message))
            if to not in self.changes or not passes(sender, to, message):
                continue
            change = self.changes[to]
            if isinstance(message, WidePrepare):
                self.put(to, change.prepare(message, self.now))
            elif isinstance(message, WidePromise):
                self.put(to, change.promise(message, self.now))
            elif isinstance(message, WideAccept):
                self.put(to, change.accept(message, self.now))
            elif isinstance(message, WideAccepted):
                self.put(to, change.accepted(message, self.now))
            elif isinstance(message, WideView) and message.view > change.view:
                self.installed[to].append((message.view, message.content))
                change.begin(message.view, message.content.members, self.now)


def processes(content: WideContent) -> list[int]:
    return [member.process for member in content.members]


def test_a_suspected_member_is_removed_with_the_reports_of_the_others() -> None:
    members = Members()
    members.step(1, suspects=(5,))
    members.deliver(lambda sender, to, _: 5 not in (sender, to))
    (view, content) = members.installed[2][0]
    assert view == 2
    assert processes(content) == [1, 2, 3, 4]
    assert content.orphans == (HELD[2], HELD[3])
    assert [member.number for member in content.members] == [10, 20, 30, 40]
    assert all(members.installed[each] == [(2, content)] for each in (1, 3, 4))


def test_nobody_proposes_without_a_reason_and_the_first_one_proposes() -> None:
    members = Members()
    for each in range(1, 6):
        members.step(each)
    members.step(2, suspects=(5,))
    assert not members.mail
    patience_ms = 2 * TRIES * members.config.exchange_ns // MS
    members.step(2, suspects=(5,), wait_ms=patience_ms - 1)
    assert not members.mail
    members.step(2, suspects=(1, 5))  # the second is the first that nobody suspects
    assert members.mail


def test_processes_join_and_leave() -> None:
    members = Members()
    for change in members.changes.values():
        change.request(WideRequest(6, 0, 3, False))
        change.request(WideRequest(4, 1, 0, True))
        change.request(WideRequest(4, 1, 9, True))  # of another incarnation
    members.step(1)
    members.deliver()
    ((_, content),) = members.installed[1]
    assert processes(content) == [1, 2, 3, 5, 6]
    assert content.members[-1] == WideMember(6, 2, 3, 0)
    # A late repetition of the request is no reason for another view.
    members.changes[1].request(WideRequest(6, 0, 3, False))
    members.step(1, wait_ms=1_000)
    assert not members.mail


def test_a_process_that_returns_before_its_removal_is_a_new_life() -> None:
    members = Members()
    members.changes[1].request(WideRequest(5, 0, 1, False))
    members.step(1)
    members.deliver(lambda sender, to, _: 5 not in (sender, to))
    ((_, content),) = members.installed[1]
    assert content.members[-1] == WideMember(5, 2, 1, 0)
    assert content.orphans == (HELD[2], HELD[3])


def test_a_member_that_does_not_answer_is_left_out_after_some_tries() -> None:
    members = Members()
    members.step(1, suspects=(5,))
    for _ in range(TRIES):
        members.deliver(lambda sender, to, _: not {4, 5} & {sender, to})
        assert not members.installed[1]
        members.step(1, suspects=(5,), wait_ms=members.config.exchange_ns // MS + 1)
    members.deliver(lambda sender, to, _: not {4, 5} & {sender, to})
    assert processes(members.installed[1][0][1]) == [1, 2, 3]


def test_a_minority_forms_no_view() -> None:
    members = Members()
    members.step(1, suspects=(3, 4, 5))
    for _ in range(3 * TRIES):
        members.deliver(lambda sender, to, _: {sender, to} <= {1, 2})
        members.step(1, suspects=(3, 4, 5), wait_ms=members.config.exchange_ns // MS + 1)
    assert not members.installed[1]
    assert not members.installed[2]


def test_a_member_receives_nothing_between_its_promise_and_the_next_view() -> None:
    members = Members()
    assert not members.changes[2].frozen
    members.step(1, suspects=(5,))
    members.deliver(lambda _, to, message: to == 2 and isinstance(message, WidePrepare))
    assert members.changes[2].frozen
    assert not members.changes[3].frozen


def accept_at_three_only(members: Members) -> None:
    """Process 1 removes 5; 3 accepts, and 1 and 2 are not heard any more."""
    members.step(1, suspects=(5,))
    members.deliver(lambda _, to, message: not isinstance(message, WideAccept | WideAccepted) or to == 3)
    assert not members.installed[1]


def take_over(members: Members) -> WideContent:
    """Process 2 proposes another view, without 1."""
    for _ in range(9):
        members.step(2, suspects=(1,), wait_ms=10 * TRIES * members.config.exchange_ns // MS)
        members.deliver(lambda sender, to, _: 1 not in (sender, to))
        if members.installed[2]:
            return members.installed[2][0][1]
    raise AssertionError("no view")


def test_a_content_that_may_be_decided_is_decided() -> None:
    members = Members()
    accept_at_three_only(members)
    content = take_over(members)
    assert processes(content) == [1, 2, 3, 4]
    assert content.orphans == (HELD[2], HELD[3])


def test_without_the_report_of_an_accepted_content_two_views_are_decided() -> None:
    with MUTATIONS["accepted-view-forgotten"].applied():
        members = Members()
        members.step(1, suspects=(5,))
        # A majority accepts, and 1 alone learns of it.
        members.deliver(lambda _, to, message: not isinstance(message, WideView))
        assert processes(members.installed[1][0][1]) == [1, 2, 3, 4]
        assert processes(take_over(members)) != [1, 2, 3, 4]


def test_without_all_reports_a_message_that_a_member_holds_is_lost() -> None:
    members = Members()
    with MUTATIONS["report-of-majority"].applied():
        members.step(1, suspects=(5,))
        members.deliver(lambda sender, to, _: not {3, 5} & {sender, to})
    assert HELD[3] not in members.installed[1][0][1].orphans


def test_a_lower_ballot_and_an_answer_to_another_proposal_are_ignored() -> None:
    members = Members()
    change = members.changes[3]
    assert change.prepare(WidePrepare(2, 1, 4, (5,)), 0)
    assert change.prepare(WidePrepare(1, 1, 4, (5,)), 0) == []
    assert change.accept(WideAccept(1, 1, 3, WideContent((), ())), 0) == []
    assert change.prepare(WidePrepare(2, 9, 9, ()), 0) == []
    assert change.promise(WidePromise(1, 1, 4, 3, 0, 0, WideContent((), ()), 0, ()), 0) == []
    assert change.stage is ProposalStage.IDLE


def test_members_that_answer_again_are_not_removed() -> None:
    # An isolated member suspects all others, and proposes to remove them until it is heard again.
    members = Members()
    for _ in range(TRIES + 2):
        members.step(1, suspects=(2, 3, 4, 5), wait_ms=members.config.exchange_ns // MS + 1)
        members.deliver(lambda *_: False)
    members.step(1, suspects=(2, 3, 4, 5), wait_ms=members.config.exchange_ns // MS + 1)
    members.deliver()
    assert processes(members.installed[1][0][1]) == [1, 2, 3, 4, 5]

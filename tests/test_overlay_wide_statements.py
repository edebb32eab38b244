"""Statements go together: at once, deferred, or on a message."""

from __future__ import annotations

from levelcast.overlay.wide.statements import MAX_EARLY, MAX_RIDING, EarlyStatements, StatementOutbox
from levelcast.wire.wide_messages import Scope, WideId, WideStatement

A, B = WideId(1, 1, 1), WideId(2, 1, 1)


def test_statements_to_a_process_go_in_one_message() -> None:
    outbox = StatementOutbox(0)
    for to, each in ((3, A), (4, A), (3, B)):
        outbox.add(to, WideStatement(each, Scope.OWN), 10)
    assert outbox.wake_ns == 10
    assert outbox.take_due(10) == [(3, (WideStatement(A, 1), WideStatement(B, 1))), (4, (WideStatement(A, 1),))]
    assert outbox.take_due(10) == []
    assert outbox.wake_ns is None


def test_a_later_statement_includes_an_earlier_one() -> None:
    outbox = StatementOutbox(0)
    outbox.add(3, WideStatement(A, Scope.GROUP, asks=True), 0)
    outbox.add(3, WideStatement(A, Scope.OWN, wants=True), 0)
    assert outbox.take_due(0) == [(3, (WideStatement(A, Scope.GROUP, True, True),))]


def test_deferred_statements_wait_unless_somebody_asks() -> None:
    outbox = StatementOutbox(50)
    outbox.add(3, WideStatement(A, Scope.OWN), 10)
    outbox.add(4, WideStatement(A, Scope.OWN), 20)
    assert outbox.take_due(59) == []
    outbox.hurry(4, 59)
    assert [to for to, _ in outbox.take_due(59)] == [4]
    assert [to for to, _ in outbox.take_due(60)] == [3]


def test_statements_ride_on_a_message_to_their_receivers() -> None:
    outbox = StatementOutbox(50)
    for to in (3, 4):
        outbox.add(to, WideStatement(A, Scope.OWN), 0)
    outbox.add(4, WideStatement(B, Scope.OWN, asks=True), 0)
    assert outbox.take_riding((3, 5)) == (WideStatement(A, 1),)
    assert outbox.take_due(50) == [(4, (WideStatement(A, 1), WideStatement(B, 1, asks=True)))]


def test_a_message_carries_so_many_and_the_others_wait() -> None:
    outbox = StatementOutbox(50)
    for number in range(1, MAX_RIDING + 11):
        outbox.add(3, WideStatement(WideId(1, 1, number), Scope.OWN), 0)
    assert len(outbox.take_riding((3,))) == MAX_RIDING
    assert len(outbox.take_due(50)[0][1]) == 10


def test_nothing_rides_without_deferral_and_nothing_goes_to_a_former_member() -> None:
    outbox = StatementOutbox(0)
    outbox.add(3, WideStatement(A, Scope.OWN), 0)
    assert outbox.take_riding((3,)) == ()
    outbox.drop(3)
    assert outbox.take_due(0) == []


def test_statements_may_arrive_before_their_message() -> None:
    early = EarlyStatements()
    early.add(A, 3, Scope.OWN)
    early.add(A, 4, Scope.ALL)
    early.add(B, 4, Scope.OWN)
    early.forget(lambda each: each == B)
    assert early.take(A) == [(3, Scope.OWN), (4, Scope.ALL)]
    assert early.take(A) == early.take(B) == []
    for number in range(1, MAX_EARLY + 2):
        early.add(WideId(9, 1, number), 3, Scope.OWN)
    assert early.take(WideId(9, 1, MAX_EARLY)) != []
    assert early.take(WideId(9, 1, MAX_EARLY + 1)) == []

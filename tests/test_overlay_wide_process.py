"""One process of a wide-area group, step by step: delivery, receipt, repairs, questions, packets and membership."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext

import pytest

from levelcast.overlay.wide.config import GroupConfig
from levelcast.overlay.wide.matrix import PathMatrix
from levelcast.overlay.wide.process import GroupProcess
from levelcast.protocol.effects import Effect, Send, WideDeliver, WideInstall, WideSettle
from levelcast.sim.mutations import MUTATIONS
from levelcast.wire.codec import decode, encode
from levelcast.wire.messages import Message, Probe
from levelcast.wire.wide_messages import (
    Scope,
    WideConfirm,
    WideContent,
    WideData,
    WideId,
    WideMember,
    WidePrepare,
    WideRelay,
    WideRequest,
    WideStatement,
    WideView,
)
from tests.wide_parts import MS, equal_matrix, group, matrix_of, tt_matrix

START = 10**18


class Stage:
    """Processes that a test steps one by one; nothing is sent by itself."""

    def __init__(self, config: GroupConfig) -> None:
        self.config = config
        self.now = START
        self.processes = {each: GroupProcess(config, each, START) for each in config.members}
        self.effects: dict[int, list[Effect]] = {each: [] for each in config.members}

    def note(self, process: int, effects: list[Effect]) -> list[tuple[int, Message]]:
        self.effects[process] += effects
        return [(effect.to, effect.message) for effect in effects if isinstance(effect, Send)]

    def submit(self, process: int, payload: bytes = b"", to: Iterable[int] | None = None) -> list[tuple[int, Message]]:
        chosen = None if to is None else list(to)
        return self.note(process, self.processes[process].submit(payload, self.now, chosen))

    def step(self, process: int, *messages: Message, wait_ms: float = 0) -> list[tuple[int, Message]]:
        """Step with messages as they arrive, after a time."""
        self.now += int(wait_ms * MS)
        batch = [decode(encode(message, 7)).message for message in messages]
        return self.note(process, self.processes[process].step(batch, self.now))

    def of(self, process: int, kind: type) -> list[Effect]:
        return [effect for effect in self.effects[process] if isinstance(effect, kind)]

    def payloads(self, process: int) -> list[bytes]:
        return [effect.payload for effect in self.of(process, WideDeliver) if isinstance(effect, WideDeliver)]

    def settled(self, process: int) -> list[int]:
        return [effect.id.number for effect in self.of(process, WideSettle) if isinstance(effect, WideSettle)]


def first(sent: list[tuple[int, Message]], to: int) -> Message:
    return next(message for receiver, message in sent if receiver == to)


def statements(sent: list[tuple[int, Message]]) -> dict[int, tuple[WideStatement, ...]]:
    return {to: message.statements for to, message in sent if isinstance(message, WideConfirm)}


def test_delivery_comes_before_reliable_receipt() -> None:
    stage = Stage(group("B", equal_matrix(3)))
    sent = stage.submit(1, b"hello")
    confirms = {each: stage.step(each, first(sent, each), wait_ms=10) for each in (2, 3)}
    assert stage.payloads(2) == stage.payloads(3) == [b"hello"]
    assert stage.settled(2) == []
    assert statements(confirms[2]) == dict.fromkeys((1, 3), (WideStatement(WideId(1, 1, 1), Scope.OWN),))
    stage.step(2, first(confirms[3], 2))
    stage.step(1, first(confirms[3], 1))
    assert stage.settled(2) == [1]
    assert stage.settled(1) == []
    stage.step(1, first(confirms[2], 1))
    assert stage.settled(1) == [1]
    assert stage.processes[1].buffered == 0


def test_the_sender_repairs_when_a_confirmation_is_overdue_and_again_later() -> None:
    stage = Stage(group("B", equal_matrix(3, 10), margin_ns=5 * MS))
    stage.submit(1, b"x")
    assert stage.step(1, wait_ms=24) == []
    again = stage.step(1, wait_ms=1)
    assert [to for to, _ in again] == [2, 3]
    assert all(isinstance(message, WideRelay) and message.asks for _, message in again)
    assert stage.processes[1].wake_ns == stage.now + 25 * MS
    # Its destination confirms it, and every repetition, too.
    confirmed = stage.step(2, first(again, 2))
    assert stage.payloads(2) == [b"x"]
    assert set(statements(confirmed)) == {1, 3}
    assert set(statements(stage.step(2, first(again, 2)))) == {1}
    assert stage.payloads(2) == [b"x"]


def test_the_nearest_holder_repairs_and_the_others_ask_first() -> None:
    stage = Stage(group("M", tt_matrix((1, 2, 3, 4), loss=0.0), margin_ns=20 * MS))
    sent = stage.submit(1, b"x")
    confirms = {each: stage.step(each, first(sent, each)) for each in (2, 3)}
    for each in (1, 2, 3):
        stage.step(each, *(first(confirms[other], each) for other in (2, 3) if other != each))
    acted = {each: stage.step(each, wait_ms=700 * (each == 1)) for each in (1, 2, 3)}
    assert isinstance(first(acted[3], 4), WideRelay)  # O is nearest to K
    assert all(isinstance(first(acted[each], 4), WideConfirm) for each in (1, 2))
    assert statements(acted[2])[4][0].asks


def test_a_lost_confirmation_is_asked_for() -> None:
    stage = Stage(group("B", equal_matrix(3)))
    sent = stage.submit(1, b"x")
    stage.step(2, first(sent, 2))
    stage.step(3, first(sent, 3))
    (question,) = [message for to, message in stage.step(2, wait_ms=100) if to == 3]
    (answer,) = [message for to, message in stage.step(3, question) if to == 2]
    assert isinstance(answer, WideConfirm)
    # The question states the receipt by 2, so that 3 knows of all.
    assert answer.statements == (WideStatement(WideId(1, 1, 1), Scope.ALL),)
    stage.step(2, answer)
    assert stage.settled(2) == [1]


def test_the_acceptance_ends_d_and_is_repeated_when_asked_for() -> None:
    stage = Stage(group("D", equal_matrix(3)))
    sent = stage.submit(1, b"x")
    confirms = {each: stage.step(each, first(sent, each)) for each in (2, 3)}
    assert set(statements(confirms[2])) == {1}
    accepted = stage.step(1, first(confirms[2], 1), first(confirms[3], 1))
    assert stage.settled(1) == [1]
    stage.step(2, first(accepted, 2))
    assert stage.settled(2) == [1]
    question = first(stage.step(3, wait_ms=200), 1)
    stage.step(3, first(stage.step(1, question), 3))
    assert stage.settled(3) == [1]


def test_a_coordinator_forwards_collects_and_accepts() -> None:
    # H | U, O | K: U coordinates O.
    stage = Stage(group("N", tt_matrix((1, 2, 3, 4), loss=0.0), near_ns=45 * MS))
    sent = stage.submit(1, b"x")
    assert [to for to, _ in sent] == [2, 4]
    at_u = stage.step(2, first(sent, 2))
    assert isinstance(first(at_u, 3), WideRelay)
    at_o = stage.step(3, first(at_u, 3))
    assert set(statements(at_o)) == {2}
    reported = statements(stage.step(2, first(at_o, 2)))
    assert {to: each[0].scope for to, each in reported.items()} == {1: Scope.GROUP, 4: Scope.GROUP}


def test_a_coordinator_states_the_receipt_of_its_subgroup() -> None:
    stage = Stage(group("N", tt_matrix((1, 2, 3, 4), loss=0.0), near_ns=45 * MS, alive_ns=50 * MS))
    stage.submit(1, b"x")
    number = WideId(1, 1, 1)
    stage.step(1, WideConfirm(4, 1, 0, 0, (WideStatement(number, Scope.OWN),)))
    assert stage.processes[1].entries[number].unknown == {2, 3}
    stage.step(1, WideConfirm(2, 1, 0, 0, (WideStatement(number, Scope.OWN),)))
    assert stage.processes[1].entries[number].unknown == {3}
    stage.step(1, WideConfirm(2, 1, 0, 0, (WideStatement(number, Scope.GROUP),)))
    assert stage.settled(1) == [1]


def test_causal_order_with_subsets() -> None:
    stage = Stage(group("B", equal_matrix(3)))
    to_three = first(stage.submit(1, b"first", (3,)), 3)
    to_two = first(stage.submit(1, b"second", (2,)), 2)
    stage.step(2, to_two)
    answer = first(stage.submit(2, b"answer", (3,)), 3)
    stage.step(3, answer)
    assert stage.payloads(3) == []
    stage.step(3, to_three)
    assert stage.payloads(3) == [b"first", b"answer"]


def test_messages_are_divided_into_packets_and_assembled() -> None:
    stage = Stage(group("B", equal_matrix(2), packet_bytes=4))
    sent = stage.submit(1, b"0123456789")
    packets = [message for _, message in sent if isinstance(message, WideData)]
    assert [(each.part, each.parts, each.payload) for each in packets] == [
        (0, 3, b"0123"),
        (1, 3, b"4567"),
        (2, 3, b"89"),
    ]
    for each in (packets[2], packets[0], packets[2]):
        stage.step(2, each)
    assert stage.payloads(2) == []
    stage.step(2, packets[1])
    assert stage.payloads(2) == [b"0123456789"]
    assert stage.payloads(1) == []


def test_copies_are_sent_at_once_or_spaced() -> None:
    matrix = matrix_of({(1, 2): (10, 0.2)})
    at_once = Stage(group("BR", matrix))
    assert len(at_once.submit(1)) == 3
    spaced = Stage(group("BR", matrix, spacing_ns=40 * MS, margin_ns=500 * MS))
    assert len(spaced.submit(1)) == 1
    assert [len(spaced.step(1, wait_ms=wait)) for wait in (39, 1, 39, 1, 40)] == [0, 1, 0, 1, 0]


def test_the_window_limits_what_is_not_received() -> None:
    stage = Stage(group("B", equal_matrix(2), window=2))
    sent = stage.submit(1) + stage.submit(1)
    assert stage.processes[1].room == 0
    with pytest.raises(ValueError, match="check room"):
        stage.submit(1)
    answers = [message for each in sent for _, message in stage.step(2, each[1])]
    stage.step(1, *answers)
    assert stage.processes[1].room == 2


@pytest.mark.parametrize(
    ("process", "to", "why"), [(1, (9,), "process 9 is not a member"), (1, (2, 70), "process 70 is not a member")]
)
def test_messages_go_to_members_only(process: int, to: tuple[int, ...], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Stage(group("B", equal_matrix(2))).submit(process, b"", to)


def test_what_is_not_for_this_process_is_ignored() -> None:
    stage = Stage(group("B", equal_matrix(3)))
    message = first(stage.submit(1, b"x", (2,)), 2)
    assert isinstance(message, WideData)
    assert stage.step(3, message) == []
    assert stage.step(2, message._replace(view=5)) != []  # it states its own view, and waits for the newer one
    assert stage.step(2, message._replace(source=9)) == []  # not a member
    assert stage.step(2, Probe(1, 1, 1)) == []
    assert stage.payloads(2) == stage.payloads(3) == []


def test_messages_of_strangers_are_ignored() -> None:
    stage = Stage(group("N", equal_matrix(3), alive_ns=50 * MS))
    message = first(stage.submit(1, b"x"), 2)
    assert isinstance(message, WideData)
    number = message.id
    for stranger in (
        WideConfirm(9, 1, 0, 0, (WideStatement(number, Scope.ALL, asks=True, wants=True),)),
        WideRelay(9, 1, True, message),
        WideRequest(9, 0, 5, False),
        WidePrepare(9, 1, 7, ()),
        WideView(2, 8, WideContent((WideMember(1, 1, 0, 0), WideMember(9, 8, 0, 0)), ())),
        WideView(2, 8, WideContent((WideMember(1, 1, 0, 0),), (WideId(9, 1, 1),))),
    ):
        for each in (1, 2):
            stage.step(each, stranger)
    assert stage.settled(1) == []
    assert stage.payloads(2) == []
    assert stage.processes[1].members == (1, 2, 3)
    assert not any(effect.to == 9 for effect in stage.of(1, Send) + stage.of(2, Send) if isinstance(effect, Send))


def test_a_message_is_sent_to_its_destinations_only_even_if_others_want_it() -> None:
    stage = Stage(group("M", equal_matrix(3)))
    message = first(stage.submit(1, b"x", (2,)), 2)
    assert isinstance(message, WideData)
    stage.step(2, message)
    wanted = WideConfirm(3, 1, 0, 0, (WideStatement(message.id, Scope.NONE, wants=True),))
    assert [stage.step(each, wanted) for each in (1, 2)] == [[], []]


def test_a_message_has_no_more_packets_than_the_window() -> None:
    stage = Stage(group("B", equal_matrix(2), window=3, packet_bytes=10))
    with pytest.raises(ValueError, match="up to 30 bytes, not 31"):
        stage.submit(1, bytes(31))
    assert len(stage.submit(1, bytes(30))) == 3


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"members": (1,)}, "2 to 256 different processes"),
        ({"members": (1, 1, 2)}, "2 to 256 different processes"),
        ({"members": (1, 2, 8)}, "no paths of process 8"),
        ({"matrix": PathMatrix({(1, 2): 1, (2, 1): 1, (3, 1): 1}, {})}, "no path from process 1 to process 3"),
        ({"packet_bytes": 0}, "bytes of payload, not 0"),
    ],
)
def test_a_configuration_is_checked(change: dict[str, object], why: str) -> None:
    before = group("B", equal_matrix(3))
    fields = {"choices": before.choices, "matrix": before.matrix, "members": before.members} | change
    with pytest.raises(ValueError, match=why):
        GroupConfig(**fields)  # type: ignore[arg-type]


def install(
    stage: Stage, process: int, view: int, members: Iterable[WideMember], orphans: Iterable[WideId] = ()
) -> None:
    stage.step(process, WideView(2, view, WideContent(tuple(members), tuple(orphans))))


def stay(*processes: int, number: int = 0) -> list[WideMember]:
    return [WideMember(each, 1, 0, number) for each in processes]


def test_receipts_of_a_removed_process_are_not_awaited() -> None:
    stage = Stage(group("B", equal_matrix(3), alive_ns=50 * MS))
    sent = stage.submit(1)
    stage.step(1, *(message for to, message in stage.step(2, first(sent, 2)) if to == 1))
    assert stage.settled(1) == []
    install(stage, 1, 2, stay(1, 2))
    assert stage.settled(1) == [1]
    assert stage.of(1, WideInstall)[-1] == WideInstall(2, (1, 2))


def test_a_message_of_a_failed_source_is_completed_by_those_who_hold_it() -> None:
    stage = Stage(group("M", equal_matrix(3), alive_ns=50 * MS))
    sent = stage.submit(1, b"last words")
    stage.step(2, first(sent, 2))
    for each in (2, 3):
        install(stage, each, 2, stay(2, 3), [WideId(1, 1, 1)])
    repair = first([each for each in stage.step(2, wait_ms=200) if isinstance(each[1], WideRelay)], 3)
    stage.step(3, repair)
    assert stage.payloads(3) == [b"last words"]


def test_a_message_that_no_member_holds_is_not_received_any_more() -> None:
    stage = Stage(group("B", equal_matrix(3), alive_ns=50 * MS))
    sent = stage.submit(1, b"x")
    stage.step(2, first(sent, 2))
    install(stage, 2, 2, stay(2, 3))
    assert stage.of(2, WideSettle) == [WideSettle(WideId(1, 1, 1), by_all=False)]
    install(stage, 3, 2, stay(2, 3))
    stage.step(3, first(sent, 3))
    assert stage.payloads(3) == []


def after_a_lost_one(stage: Stage) -> tuple[Message, Message]:
    """4 sends, 1 after it, and fails; 2 delivers both and sends. Return what 3 misses: the last and the first."""
    before = stage.submit(4, b"before")
    stage.step(1, first(before, 1))
    lost = stage.submit(1, b"lost")
    stage.step(2, first(before, 2), first(lost, 2))
    after = stage.submit(2, b"after")
    for each in (2, 3, 4):
        install(stage, each, 2, [WideMember(2, 1, 0, 1), WideMember(3, 1, 0, 0), WideMember(4, 1, 0, 1)])
    return first(after, 3), first(before, 3)


def floors(sender: int, settled: int) -> WideConfirm:
    return WideConfirm(sender, 2, settled, 0, ())


def test_a_message_after_a_lost_one_waits_for_what_may_have_been_before_that() -> None:
    stage = Stage(group("B", equal_matrix(4), alive_ns=50 * MS))
    after, before = after_a_lost_one(stage)
    stage.step(3, after)
    assert stage.payloads(3) == []
    stage.step(3, before)
    assert stage.payloads(3) == [b"before"]
    stage.step(3, floors(4, 1), floors(2, 1))
    assert stage.payloads(3) == [b"before", b"after"]


def test_without_that_clause_the_order_is_lost() -> None:
    stage = Stage(group("B", equal_matrix(4), alive_ns=50 * MS))
    after, before = after_a_lost_one(stage)
    with MUTATIONS["before-lost-one"].applied():
        stage.step(3, after)
        # Its views have no number of 4 that is not settled: the clause is all that holds it back.
        assert stage.payloads(3) == [b"after"]
    stage.step(3, before)
    assert stage.payloads(3) == [b"after", b"before"]


def test_a_message_is_closed_only_after_what_is_before_it() -> None:
    def closed(stage: Stage) -> int:
        before = stage.submit(1, b"before")
        stage.step(2, first(before, 2))
        after = stage.submit(2, b"after", (1,))
        answers = stage.step(1, first(after, 1))
        stage.step(2, *(message for to, message in answers if to == 2))
        assert stage.settled(2) == [1]
        signs = [message for to, message in stage.step(2, wait_ms=60) if to == 3 and isinstance(message, WideConfirm)]
        sign = signs[-1]
        assert sign.settled == 1
        return sign.closed

    assert closed(Stage(group("B", equal_matrix(3), alive_ns=50 * MS))) == 0
    with MUTATIONS["closed-without-past"].applied():
        assert closed(Stage(group("B", equal_matrix(3), alive_ns=50 * MS))) == 1


@pytest.mark.parametrize("clause", [None, "wanted-not-requested"])
def test_a_new_coordinator_requests_what_it_has_dropped(clause: str | None) -> None:
    # U, O and K are one subgroup of H; U fails after O has received, and K has not.
    config = group("N", tt_matrix((1, 2, 3, 4), loss=0.0), near_ns=110 * MS, alive_ns=100 * MS)
    assert config.subgroups[1] == (3, 2, 4)
    stage = Stage(config)
    at_o = stage.step(3, first(stage.submit(1, b"x"), 3))
    stage.step(2, first(at_o, 2))
    assert not stage.processes[2].entries[WideId(1, 1, 1)].kept
    for each in (1, 2, 4):
        install(stage, each, 2, stay(1, 2, 4))
    with MUTATIONS[clause].applied() if clause is not None else nullcontext():
        asked = stage.step(2, wait_ms=900)
    wanted = [to for to, each in statements(asked).items() if any(statement.wants for statement in each)]
    assert wanted == ([1] if clause is None else [])
    question = WideConfirm(2, 2, 0, 0, (WideStatement(WideId(1, 1, 1), Scope.OWN, wants=True),))
    stage.step(2, *(message for to, message in stage.step(1, question) if to == 2))
    assert stage.processes[2].entries[WideId(1, 1, 1)].kept


def test_a_returning_process_is_not_a_destination_of_earlier_messages() -> None:
    config = group("M", equal_matrix(3), alive_ns=50 * MS)
    stage = Stage(config)
    sent = stage.submit(1, b"early")
    again = GroupProcess(config, 3, START, incarnation=1, joins=True)
    asks = [effect.message for effect in again.step((), START) if isinstance(effect, Send)]
    assert len(asks) == 2
    members = (*stay(1, 2), WideMember(3, 2, 1, 0))
    again.step([WideView(1, 2, WideContent(members, ()))], START)
    assert (again.life, again.members) == (2, (1, 2, 3))
    effects = again.step([first(sent, 3)], START)
    assert not any(isinstance(effect, WideDeliver) for effect in effects)
    install(stage, 1, 2, members)
    assert stage.processes[1].entries[WideId(1, 1, 1)].unknown == {2}


def test_a_process_leaves_too_early_without_that_clause() -> None:
    stage = Stage(group("B", equal_matrix(2), alive_ns=50 * MS))
    stage.submit(1)
    stage.processes[1].leave()
    with MUTATIONS["leaves-too-early"].applied():
        assert any(isinstance(message, WideRequest) for _, message in stage.step(1, wait_ms=60))


@pytest.mark.parametrize("clause", [None, "received-after-promise"])
def test_a_process_that_has_reported_receives_nothing_before_the_next_view(clause: str | None) -> None:
    stage = Stage(group("B", equal_matrix(3), alive_ns=50 * MS))
    sent = stage.submit(1, b"x")
    stage.step(2, WidePrepare(3, 1, 1, (1,)))
    with MUTATIONS[clause].applied() if clause is not None else nullcontext():
        stage.step(2, first(sent, 2))
    # Its report had no such message, so that it would be alone with it.
    assert stage.payloads(2) == ([] if clause is None else [b"x"])


def test_a_process_leaves_when_it_keeps_nothing() -> None:
    stage = Stage(group("B", equal_matrix(2), alive_ns=50 * MS))
    sent = stage.submit(1)
    stage.processes[1].leave()
    assert stage.processes[1].room == 0
    requests: Callable[[], list[str]] = lambda: [type(message).__name__ for _, message in stage.step(1, wait_ms=60)]  # noqa: E731
    assert "WideRequest" not in requests()
    stage.step(1, *(message for _, message in stage.step(2, first(sent, 2))))
    assert "WideRequest" in requests()
    install(stage, 1, 2, stay(2))
    assert stage.processes[1].has_left
    assert stage.step(1, wait_ms=100) == []
    assert stage.processes[1].wake_ns is None


def test_a_view_is_sent_to_those_who_have_an_older_one() -> None:
    stage = Stage(group("B", equal_matrix(3), alive_ns=50 * MS))
    install(stage, 1, 2, stay(1, 2))
    sent = stage.step(1, WideConfirm(3, 1, 0, 0, ()))
    view = first([each for each in sent if isinstance(each[1], WideView)], 3)
    assert isinstance(view, WideView)
    assert [member.process for member in view.content.members] == [1, 2]
    again = stage.step(1, WideConfirm(3, 1, 0, 0, ()))
    assert not any(isinstance(message, WideView) for _, message in again)


def test_while_the_view_changes_messages_wait() -> None:
    stage = Stage(group("B", equal_matrix(3), alive_ns=50 * MS))
    stage.step(1, WidePrepare(2, 1, 1, (3,)))
    assert [each for each in stage.submit(1, b"x") if isinstance(each[1], WideData)] == []
    install(stage, 1, 2, stay(1, 2))
    sent = [effect for effect in stage.of(1, Send) if isinstance(effect, Send) and isinstance(effect.message, WideData)]
    assert [(effect.to, effect.message.view) for effect in sent if isinstance(effect.message, WideData)] == [(2, 2)]

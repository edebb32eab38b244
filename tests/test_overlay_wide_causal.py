"""Causal order by direct predecessors: what a message names, and when it may be delivered."""

from __future__ import annotations

from levelcast.overlay.wide.causal import CausalHistory, CausalQueue
from levelcast.wire.wide_messages import WideData, WideId, WidePredecessor


def data(source: int, number: int, members: tuple[int, ...], *predecessors: WidePredecessor) -> WideData:
    return WideData(1, source, 1, number, 0, 1, 0, 0, members, predecessors, (), b"")


def of(message: WideData, *members: int) -> WidePredecessor:
    return WidePredecessor(message.id, 1, members)


def test_a_message_to_all_takes_the_place_of_all_before() -> None:
    history = CausalHistory()
    first, second = data(1, 1, (2, 3)), data(2, 1, (1, 3))
    history.add(first)
    history.add(second)
    assert history.predecessors((1, 2), 3) == (of(first), of(second))
    third = data(3, 1, (1, 2), of(first), of(second))
    history.add(third)
    assert history.predecessors((2, 3), 1) == (of(third),)


def test_a_message_to_some_leaves_the_constraints_of_the_others() -> None:
    history = CausalHistory()
    first = data(1, 1, (2, 3))
    history.add(first)
    second = data(1, 2, (2,), of(first, 1, 2, 3))
    history.add(second)
    assert history.predecessors((3,), 1) == (of(first, 3), of(second, 1, 2))


def test_constraints_of_others_are_passed_on() -> None:
    # 1 sends to 3, then to 2; what 2 sends to 3 must come after both.
    history = CausalHistory()
    first = data(1, 1, (3,))
    history.add(data(1, 2, (2,), of(first, 1, 3)))
    assert of(first, 3) in history.predecessors((3,), 2)


def test_a_later_message_of_a_source_takes_the_place_of_an_earlier_one() -> None:
    history = CausalHistory()
    history.add(data(1, 1, (2, 3)))
    history.add(data(1, 2, (2, 3)))
    assert [each.id.number for each in history.predecessors((1, 3), 2)] == [2]


def test_closed_messages_are_forgotten() -> None:
    history = CausalHistory()
    for source in (1, 2, 3):
        history.add(data(source, 1, tuple({1, 2, 3} - {source})))
    assert len(history) == 3
    history.forget(lambda each: each.source < 3)
    assert [each.id.source for each in history.predecessors((1, 2), 3)] == [3]


def test_a_message_waits_for_its_predecessors() -> None:
    delivered: set[WideId] = set()
    queue = CausalQueue(lambda predecessor, _: predecessor.id in delivered)
    first = data(1, 1, (3,))
    second = data(2, 1, (3,), of(first))
    queue.add(second)
    assert queue.ready() is None
    queue.add(first)
    for expected in (first, second):
        found = queue.ready()
        assert found == expected
        delivered.add(expected.id)
    assert queue.ready() is None
    assert not queue.waiting

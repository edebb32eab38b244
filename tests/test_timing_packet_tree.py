"""Trees within uplinks: every receiver once, no node beyond its room, and a tree whenever there is one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelcast.timing.packet_tree import NoTreeError, PacketTree, packet_trees

MS = 1_000_000
ROOT, OTHER = 100, 101


def delays(places: dict[int, float]) -> object:
    return lambda one, other: abs(places[one] - places[other]) * MS


def sent_by(tree: PacketTree) -> dict[int, int]:
    return {node: len(below) for node, below in tree.children().items()}


def grow(room: dict[int, int], places: dict[int, float], roots: tuple[int, ...] = (ROOT,)) -> dict[int, PacketTree]:
    receivers = [each for each in room if each not in roots]
    return packet_trees(roots, receivers, room, delays(places))  # type: ignore[arg-type]


LINE = {ROOT: 0.0, OTHER: 0.0, 1: 10.0, 2: 20.0, 3: 30.0, 4: 40.0}


def test_a_source_with_room_for_all_sends_to_all_itself() -> None:
    (tree,) = grow({ROOT: 4, 1: 9, 2: 9, 3: 9, 4: 9}, LINE).values()
    assert sent_by(tree) == {ROOT: 4}


def test_copies_that_do_not_fit_take_the_way_over_the_node_that_is_reached_soonest() -> None:
    (tree,) = grow({ROOT: 2, 1: 2, 2: 0, 3: 0, 4: 0}, LINE).values()
    assert sent_by(tree) == {ROOT: 2, 1: 2}
    assert tree.path(1) == [(ROOT, 1)]
    far = next(each for each in (2, 3, 4) if tree.parents[each] == 1)
    assert tree.path(far) == [(ROOT, 1), (1, far)]


def test_a_node_with_room_is_reached_first_where_the_others_need_it() -> None:
    (tree,) = grow({ROOT: 1, 1: 0, 2: 0, 3: 0, 4: 3}, LINE).values()
    assert tree.parents == {4: ROOT, 1: 4, 2: 4, 3: 4}


def test_sources_that_need_their_own_room_use_it_first() -> None:
    # The soonest tree of the first source would take the room of 1, which the second one needs.
    places = {ROOT: 0.0, OTHER: 0.0, 1: 1.0, 2: 2.0}
    trees = grow({ROOT: 1, OTHER: 1, 1: 2, 2: 0}, places, (ROOT, OTHER))
    assert {root: tree.parents for root, tree in trees.items()} == {ROOT: {1: ROOT, 2: 1}, OTHER: {1: OTHER, 2: 1}}


def test_too_little_room_names_the_source_and_the_copies() -> None:
    with pytest.raises(NoTreeError) as error:
        grow({ROOT: 1, 1: 1, 2: 1, 3: 0, 4: 0}, LINE)
    assert (error.value.root, error.value.needed, error.value.room) == (ROOT, 4, 3)
    with pytest.raises(NoTreeError):
        grow({ROOT: 0, 1: 9, 2: 9, 3: 9, 4: 9}, LINE)


@given(
    room=st.lists(st.integers(0, 4), min_size=2, max_size=9),
    own=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    places=st.lists(st.integers(0, 200), min_size=12, max_size=12),
)
def test_a_tree_is_found_if_and_only_if_there_is_room(room: list[int], own: list[int], places: list[int]) -> None:
    receivers = list(range(1, len(room) + 1))
    roots = tuple(range(100, 100 + len(own)))
    at = dict(zip((*receivers, *roots), map(float, places), strict=False))
    given_room = dict(zip((*receivers, *roots), (*room, *own), strict=True))
    needed = sum(max(0, len(receivers) - each) for each in own)
    try:
        trees = grow(dict(given_room), at, roots)
    except NoTreeError:
        assert sum(room) < needed
        return
    assert sum(room) >= needed
    sent = dict.fromkeys(given_room, 0)
    for root, tree in trees.items():
        assert tree.root == root
        assert set(tree.parents) == set(receivers)
        for node, copies in sent_by(tree).items():
            sent[node] += copies
        for receiver in receivers:
            path = tree.path(receiver)
            assert (path[0][0], path[-1][1]) == (root, receiver)
            assert len({node for hop in path for node in hop}) == len(path) + 1
    assert all(sent[node] <= given_room[node] for node in sent)

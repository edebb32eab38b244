"""Detours: one node passes on what a cut or a long path does not bring in time, and no other does."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelcast.overlay.detours import RELAY_US, ROW_AGE_NS, SETTLED_NS, Detours, DetourTo, Rows
from levelcast.overlay.paths import HeardPath
from levelcast.wire.messages import NOTHING_RECENT, PathFigures

A, B, C, D = 1, 2, 3, 4
FLOOR, LONELY_FLOOR = 11, 12
NODES = frozenset((A, B, C, D))
NOW = 100_000_000_000
Delays = dict[tuple[int, int], int]


def rows_of(
    delays_ms: Delays, cut: tuple[tuple[int, int], ...] = (), at_ns: int = NOW
) -> dict[int, dict[int, HeardPath]]:
    """The rows that all nodes have published; delays by (sender, receiver)."""
    rows: dict[int, dict[int, HeardPath]] = {}
    for (sender, to), ms in delays_ms.items():
        recent = NOTHING_RECENT if (sender, to) in cut else ms * 1_000
        figures = PathFigures(sender, 1_000, 0, 0, ms * 1_000, ms * 1_000, ms * 1_000, ms * 1_000, 50, b"", recent)
        rows.setdefault(to, {})[sender] = HeardPath(at_ns, figures)
    return rows


def settled(here: int, rows: Rows, floors: dict[int, int] | None = None, *, shorter: bool = True) -> Detours:
    """A node that has had the rows of all for long enough."""
    detours = Detours(here, NODES, floors or {}, shorter=shorter)
    began_ns = NOW - SETTLED_NS
    detours.update(rows_of(even(), at_ns=began_ns), began_ns)
    detours.update(rows, NOW)
    return detours


def even(ms: int = 50) -> Delays:
    return dict.fromkeys(permutations(sorted(NODES), 2), ms)


def chosen(delays: Delays, cut: tuple[tuple[int, int], ...] = (), *, shorter: bool = True, now: int = NOW) -> object:
    """Which node passes on from whom to whom."""
    found = {}
    for here in sorted(NODES):
        detours = settled(here, rows_of(delays, cut), {FLOOR: A}, shorter=shorter)
        if now != NOW:
            detours.update(rows_of(delays, cut), now)
        for sender in sorted(NODES):
            for each in detours.over_here(sender):
                found[sender, each.to] = (here, each.tokens)
        assert detours.count == sum(1 for node, _ in found.values() if node == here)
    return found


def test_no_detour_where_all_paths_are_alike() -> None:
    assert chosen(even()) == {}


def test_a_cut_path_has_a_detour_over_the_best_node_alone() -> None:
    delays = even() | {(A, C): 20}
    assert chosen(delays, ((A, B),)) == {(A, B): (C, True)}
    assert chosen(delays, ((A, B),), shorter=False) == {(A, B): (C, True)}
    assert chosen(delays, ((A, B), (C, B))) == {(A, B): (D, True), (C, B): (D, True)}


def test_a_path_that_was_never_heard_is_cut() -> None:
    delays = even()
    del delays[A, B]
    assert chosen(delays) == {(A, B): (C, True)}


def test_paths_of_a_receiver_that_has_just_started_are_not_cut() -> None:
    delays = even()
    del delays[A, B]
    here = Detours(C, NODES, {}, shorter=True)
    here.update(rows_of(delays), NOW)
    assert here.over_here(A) == ()
    here.update(rows_of(delays, at_ns=NOW + SETTLED_NS), NOW + SETTLED_NS)
    assert here.over_here(A) == (DetourTo(B, tokens=True),)


def test_a_long_path_has_a_detour_only_if_that_is_wanted() -> None:
    delays = even() | {(A, B): 200}
    assert chosen(delays) == {(A, B): (C, False)}
    assert chosen(delays, shorter=False) == {}


@pytest.mark.parametrize(
    ("direct_ms", "over_ms", "is_taken"),
    [(100, 88, True), (100, 91, False), (20, 9, True), (20, 12, False), (200, 179, True), (200, 185, False)],
)
def test_a_detour_wins_ten_percent_and_ten_milliseconds(direct_ms: int, over_ms: int, is_taken: bool) -> None:
    delays = even(1_000) | {(A, B): direct_ms, (A, C): over_ms - 1, (C, B): 1}
    assert ((A, B) in chosen(delays)) is is_taken  # type: ignore[operator]


def test_a_detour_is_kept_until_it_wins_less_than_half_of_that() -> None:
    def times(over_ms: int) -> dict[int, dict[int, HeardPath]]:
        return rows_of(even(1_000) | {(A, B): 100, (A, C): over_ms - 1, (C, B): 1})

    here = Detours(C, NODES, {}, shorter=True)
    here.update(times(93), NOW)
    assert here.over_here(A) == ()
    here.update(times(85), NOW)
    assert here.over_here(A) == (DetourTo(B, tokens=False),)
    here.update(times(93), NOW)
    assert here.over_here(A) == (DetourTo(B, tokens=False),)
    here.update(times(97), NOW)
    assert here.over_here(A) == ()


def test_a_second_path_is_the_best_detour_for_packets_and_tokens() -> None:
    found: dict[tuple[int, DetourTo], int] = {}
    for each in (B, C, D):
        here = Detours(each, NODES, {}, shorter=False, second=frozenset((B,)))
        here.update(rows_of(even() | {(A, D): 20, (C, D): 10, (D, B): 45, (D, C): 30}), NOW)
        found |= {(sender, one): each for sender in NODES for one in here.over_here(sender)}
    to_b = DetourTo(B, tokens=True)
    assert found == {(A, to_b): D, (C, to_b): D, (D, to_b): C}


def test_a_receiver_or_a_detour_that_publishes_nothing_takes_no_part() -> None:
    assert chosen(even(), ((A, B),), now=NOW + ROW_AGE_NS) == {}
    everywhere_cut = tuple((A, to) for to in (B, C, D))
    assert chosen(even(), everywhere_cut) == {}  # A has failed: nothing of it arrives anywhere


def test_a_floor_has_the_paths_of_its_site() -> None:
    here = settled(C, rows_of(even() | {(A, C): 20}, ((A, B),)), {FLOOR: A}, shorter=False)
    assert here.over_here(FLOOR) == here.over_here(A) == (DetourTo(B, tokens=True),)
    assert here.over_here(LONELY_FLOOR) == ()


@given(
    delays=st.lists(st.integers(1, 200), min_size=12, max_size=12),
    cut=st.sets(st.sampled_from(sorted(permutations(sorted(NODES), 2))), max_size=4),
    clocks=st.lists(st.integers(-50, 50), min_size=4, max_size=4),
)
def test_each_pair_has_at_most_one_detour_and_clocks_do_not_matter(
    delays: list[int], cut: set[tuple[int, int]], clocks: list[int]
) -> None:
    pairs = dict(zip(permutations(sorted(NODES), 2), delays, strict=True))
    offset = dict(zip(sorted(NODES), clocks, strict=True))
    pairs_of: dict[tuple[int, int], int] = {}
    for here in sorted(NODES):
        detours = settled(here, rows_of(pairs, tuple(cut)))
        for sender in NODES:
            for each in detours.over_here(sender):
                assert pairs_of.setdefault((sender, each.to), here) == here
                assert here not in (sender, each.to)
                assert each.tokens is ((sender, each.to) in cut)
                over = pairs[sender, here] * 1_000 + pairs[here, each.to] * 1_000 + RELAY_US
                assert each.tokens or over <= pairs[sender, each.to] * 900
    shown = {pair: ms + offset[pair[1]] - offset[pair[0]] for pair, ms in pairs.items()}
    for here in sorted(NODES):
        detours = settled(here, rows_of(shown, tuple(cut)))
        for sender in NODES:
            for each in detours.over_here(sender):
                if each.tokens:
                    assert pairs_of[sender, each.to] == here

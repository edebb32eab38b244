"""Subgroups, coordinators and nearest holders follow from the matrix of delay and loss."""

from __future__ import annotations

from levelcast.overlay.wide.matrix import PathMatrix
from tests.wide_parts import MS, H, K, O, T, U, equal_matrix, matrix_of, tt_matrix


def test_subgroups_are_joined_while_their_farthest_processes_are_near() -> None:
    matrix = tt_matrix()
    assert matrix.subgroups(30 * MS) == ((H,), (U,), (O,), (K,), (T,))
    assert matrix.subgroups(45 * MS) == ((H,), (U, O), (K,), (T,)) or matrix.subgroups(45 * MS)[1] in {(U, O), (O, U)}
    assert {frozenset(group) for group in matrix.subgroups(60 * MS)} == {
        frozenset({H, T}),
        frozenset({U, O}),
        frozenset({K}),
    }
    assert [len(group) for group in matrix.subgroups(300 * MS)] == [5]


def test_a_chain_of_near_processes_is_not_one_subgroup() -> None:
    matrix = matrix_of({(1, 2): (20, 0), (2, 3): (20, 0), (1, 3): (40, 0)})
    assert {len(group) for group in matrix.subgroups(25 * MS)} == {1, 2}


def test_the_coordinator_is_in_the_middle_of_its_subgroup() -> None:
    matrix = matrix_of(
        {(1, 2): (10, 0), (2, 3): (10, 0), (1, 3): (18, 0), (1, 4): (90, 0), (2, 4): (90, 0), (3, 4): (80, 0)}
    )
    assert matrix.subgroups(20 * MS) == ((2, 3, 1), (4,))


def test_equal_processes_have_one_order_everywhere() -> None:
    assert equal_matrix(4).subgroups() == ((1, 2, 3, 4),)


def test_the_nearest_holder_is_the_one_that_repairs_first() -> None:
    # A near one that loses much is farther than a safe one (TT §4.2, corrected).
    matrix = matrix_of({(1, 3): (10, 0.3), (2, 3): (19, 0.01), (1, 2): (5, 0)})
    assert matrix.nearest(3, (1, 2)) == [2, 1]
    assert tt_matrix().nearest(K, (H, U, O, T)) == [O, U, H, T]


def test_paths_may_differ_by_direction() -> None:
    matrix = PathMatrix({(1, 2): 10, (2, 1): 30}, {(1, 2): 0.1})
    assert (matrix.delay_ns(1, 2), matrix.delay_ns(2, 1), matrix.delay_ns(1, 1)) == (10, 30, 0)
    assert matrix.round_trip_ns(1, 2) == matrix.round_trip_ns(2, 1) == 40
    assert (matrix.loss(1, 2), matrix.loss(2, 1), matrix.longest_ns) == (0.1, 0.0, 30)

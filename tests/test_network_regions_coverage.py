"""Locations that no region serves within limits, and the pairs of sites that would serve them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from levelcast.network.regions.coverage import coverage

PAIRS = np.array([[0, 1]])


def matrix(*rows: str) -> np.ndarray:
    return np.array([[each == "x" for each in row] for row in rows])


def test_both_lines_have_to_meet_the_limits() -> None:
    within = matrix("xx.x", "x..x", "....", "....")
    found = coverage(within, np.ones(4), PAIRS, np.arange(4))
    assert found.unserved.tolist() == found.unreachable.tolist() == [1, 2]
    assert found.added == ()


def test_the_pair_that_serves_most_subscribers_is_added_first() -> None:
    within = matrix("xx....", "xx....", "..xxx.", "..xx..", "....x.", "....x.")
    found = coverage(within, np.array([1, 1, 1, 1, 9, 0.0]), PAIRS, np.arange(6))
    assert found.unserved.tolist() == [2, 3, 4]
    assert found.added[0] == (2, 4), "nine subscribers"
    assert found.unreachable.tolist() == [2, 3], "site 2 is in a region already"


@given(
    st.integers(2, 8).flatmap(
        lambda n: st.lists(st.lists(st.booleans(), min_size=n, max_size=n), min_size=n, max_size=n)
    )
)
def test_every_location_is_served_now_or_by_an_added_pair_or_unreachable(rows: list[list[bool]]) -> None:
    within = np.array(rows)
    found = coverage(within, np.ones(len(rows)), PAIRS, np.arange(len(rows)))
    pairs = [(0, 1), *found.added]
    assert len({site for pair in pairs for site in pair}) == 2 * len(pairs), "a site is in one region"
    lacking = [at for at in range(len(rows)) if not any(within[a, at] and within[b, at] for a, b in pairs)]
    assert lacking == found.unreachable.tolist()
    assert set(lacking) <= set(found.unserved.tolist())

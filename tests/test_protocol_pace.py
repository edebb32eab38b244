"""The hold time follows from the timing records of the tape, the same for every reader (rule W9)."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from levelcast.protocol.pace import KEPT, change_at, follows, hold_at, with_change
from levelcast.wire.messages import Cutoff, Pace, PaceChange

MS = 1_000_000
S = 1_000 * MS
FIRST_NS = 600 * MS


def change(version: int, from_ns: int, before_ms: int, hold_ms: int) -> PaceChange:
    return PaceChange(version, from_ns, before_ms * MS, Pace(hold_ms * MS, 25 * MS, (Cutoff(1, 100 * MS),)))


SHORTER = change(1, 10 * S, 600, 400)


def test_a_longer_hold_time_applies_at_once() -> None:
    longer = [change(1, 10 * S, 600, 900)]
    assert hold_at(longer, 10 * S - 1, FIRST_NS) == 600 * MS
    assert hold_at(longer, 10 * S, FIRST_NS) == 900 * MS


def test_a_shorter_one_is_reached_at_half_of_the_time_that_passes() -> None:
    found = [hold_at([SHORTER], 10 * S + ms * MS, FIRST_NS) // MS for ms in (-1, 0, 50, 100, 399, 400, 5000)]
    assert found == [600, 600, 575, 550, 400, 400, 400]


@given(st.lists(st.integers(1, 3_000), min_size=1, max_size=6), st.integers(1, 200))
def test_slots_are_due_in_their_order_whatever_changes(holds_ms: list[int], slot_ms: int) -> None:
    changes: list[PaceChange] = []
    before_ms, at_ns = 600, 0
    for version, hold_ms in enumerate(holds_ms, start=1):
        new = change(version, at_ns + before_ms * MS + 1, before_ms, hold_ms)
        assert follows(changes, new, at_ns)
        changes = with_change(changes, new, at_ns)
        before_ms, at_ns = hold_ms, new.from_ns + 8 * S
    times = range(changes[0].from_ns, at_ns, slot_ms * MS * max(1, 100 // slot_ms))
    due = [time_ns + hold_at(changes, time_ns, FIRST_NS) for time_ns in times]
    assert all(earlier < later for earlier, later in pairwise(due))


def test_a_change_counts_only_if_it_is_released_before_it_applies() -> None:
    assert follows([], SHORTER, 10 * S - 600 * MS - 1)
    assert not follows([], SHORTER, 10 * S - 600 * MS)


def test_a_change_that_is_ordered_while_the_hold_time_falls_is_released_later() -> None:
    """Found by a simulated history: the slot of the record still has the longer hold time."""
    slow = change(1, 10 * S, 2_000, 400)
    at_ns = 12 * S  # the hold time is 1 s there, and 400 ms from 13.2 s on
    assert not follows([slow], change(2, 13 * S, 400, 500), at_ns)
    assert not follows([slow], change(2, 13 * S + 150 * MS, 400, 500), at_ns)
    assert follows([slow], change(2, 13 * S + 200 * MS, 400, 500), at_ns)
    late_ns = 13 * S
    assert not follows([slow], change(2, 13 * S + 450 * MS, 400, 500), late_ns)
    assert follows([slow], change(2, 13 * S + 501 * MS, 400, 500), late_ns)


def test_a_change_follows_the_one_before() -> None:
    after = change(2, 20 * S, 400, 500)
    assert follows([SHORTER], after, 15 * S)
    assert not follows([], after, 15 * S)
    assert not follows([SHORTER], SHORTER._replace(from_ns=20 * S), 15 * S)
    assert not follows([SHORTER], after, 10 * S - 1), "the change before does not apply yet"
    assert not follows([SHORTER], after._replace(before_ns=450 * MS), 15 * S), "another hold time before"
    assert not follows([SHORTER], change(2, 10 * S + 399 * MS, 400, 500), 10 * S), "the fall is not over"


def test_older_changes_are_dropped_and_their_last_hold_time_kept() -> None:
    changes: list[PaceChange] = []
    for version in range(1, KEPT + 3):
        changes = with_change(changes, change(version, version * 10 * S, 600, 600), version * 10 * S - 2 * S)
    assert [each.version for each in changes] == list(range(3, KEPT + 3))
    assert hold_at(changes, 0, 1) == 600 * MS
    assert change_at(changes, 29 * S) is None
    assert change_at(changes, 31 * S) == changes[0]

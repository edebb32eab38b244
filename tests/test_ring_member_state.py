"""The states of a receiver as tables (rules 12, 13)."""

from __future__ import annotations

from typing import get_args

import pytest

from levelcast.ring.member_state import DUTIES, State, state_of
from levelcast.wire.messages import FaultReason


def test_every_state_has_its_duties() -> None:
    assert set(DUTIES) == set(get_args(State))


@pytest.mark.parametrize(
    ("promised", "entered", "outside", "trusted", "state"),
    [
        (0, 0, True, True, "NEW"),
        (3, 0, True, True, "PROMISED"),
        (3, 2, False, True, "PROMISED"),
        (3, 3, False, True, "ACTIVE"),
        (3, 3, True, True, "OUTSIDE"),
        (3, 3, False, False, "SILENT"),
        (3, 2, True, False, "SILENT"),
        (0, 0, True, False, "SILENT"),
    ],
)
def test_the_state_follows_from_what_is_journaled_and_known(
    promised: int, entered: int, outside: bool, trusted: bool, state: State
) -> None:
    assert state_of(promised, entered, outside, trusted) == state


def test_a_member_speaks_only_in_the_ring_that_it_last_promised() -> None:
    assert {state for state, duties in DUTIES.items() if duties.sends} == {"ACTIVE", "OUTSIDE"}


def test_a_member_with_a_wrong_clock_does_nothing_that_depends_on_time() -> None:
    assert not any(DUTIES["SILENT"][:3])
    assert DUTIES["SILENT"].pleads is None


def test_who_has_no_ring_asks_for_one_in_the_words_that_fit() -> None:
    assert DUTIES["NEW"].pleads == DUTIES["OUTSIDE"].pleads == FaultReason.OUTSIDE
    assert DUTIES["PROMISED"].pleads == FaultReason.STUCK

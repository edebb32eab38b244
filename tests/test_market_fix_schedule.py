"""A schedule names the period of a time, also over midnight and on some weekdays only."""

from __future__ import annotations

import pytest

from levelcast.market.fix.schedule import DAY_NS, SessionSchedule
from tests.fix_parts import START, S

HOUR = 3_600 * S
MIDNIGHT = START // DAY_NS * DAY_NS
"""Of a Monday."""


@pytest.mark.parametrize(("hour", "start"), [(7.99, None), (8, 8), (16.99, 8), (17, None)])
def test_period_of_a_day(hour: float, start: int | None) -> None:
    schedule = SessionSchedule(8 * HOUR, 17 * HOUR)
    assert schedule.period(MIDNIGHT + int(hour * HOUR)) == (None if start is None else MIDNIGHT + start * HOUR)
    assert schedule.end(MIDNIGHT + 8 * HOUR) == MIDNIGHT + 17 * HOUR


@pytest.mark.parametrize(("hour", "start"), [(21.99, None), (22, 22), (23, 22), (4.99, -2), (5, None)])
def test_period_over_midnight(hour: float, start: int | None) -> None:
    schedule = SessionSchedule(22 * HOUR, 5 * HOUR)
    assert schedule.period(MIDNIGHT + int(hour * HOUR)) == (None if start is None else MIDNIGHT + start * HOUR)


def test_equal_times_make_a_period_of_a_day() -> None:
    schedule = SessionSchedule(6 * HOUR, 6 * HOUR)
    assert schedule.period(MIDNIGHT) == MIDNIGHT - 18 * HOUR
    assert schedule.period(MIDNIGHT + 6 * HOUR) == MIDNIGHT + 6 * HOUR
    assert schedule.end(MIDNIGHT) == MIDNIGHT + DAY_NS


def test_weekdays_are_those_on_which_a_period_begins() -> None:
    schedule = SessionSchedule(22 * HOUR, 5 * HOUR, frozenset({0}))
    assert schedule.period(MIDNIGHT + 23 * HOUR) is not None
    assert schedule.period(MIDNIGHT + 27 * HOUR) is not None
    assert schedule.period(MIDNIGHT + 47 * HOUR) is None


@pytest.mark.parametrize("values", [(-1, 0), (0, DAY_NS), (0, 0, frozenset({7}))])
def test_values_outside_a_day_are_refused(values: tuple) -> None:
    with pytest.raises(ValueError, match="24 hours"):
        SessionSchedule(*values)

"""Rule 13: a clock that steps is not trusted; one that is slewed is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelcast.protocol.clock import MAX_SLEW_PPM, ClockGuard
from tests.ring_parts import MS, START

TOLERANCE_NS = 5 * MS
SECOND = 1000 * MS


def guard_at(wall_ns: int = START) -> ClockGuard:
    return ClockGuard(wall_ns, 0, TOLERANCE_NS)


def test_clocks_that_run_alike_are_trusted_whatever_their_difference() -> None:
    guard = guard_at()
    assert all(guard.check(START + second * SECOND, second * SECOND) for second in range(100))
    assert guard.trusted


@pytest.mark.parametrize("step_ns", [10 * MS, -10 * MS, 900 * MS, -900 * MS])
def test_a_step_is_noticed_at_once_and_forgiven_when_the_clock_is_back(step_ns: int) -> None:
    guard = guard_at()
    assert guard.check(START + SECOND, SECOND)
    assert not guard.check(START + SECOND + MS + step_ns, SECOND + MS)
    assert not guard.trusted
    assert not guard.check(START + 2 * SECOND + step_ns, 2 * SECOND)
    assert guard.check(START + 3 * SECOND, 3 * SECOND)


def test_a_clock_within_the_tolerance_is_trusted() -> None:
    guard = guard_at()
    assert guard.check(START + TOLERANCE_NS, 0)
    assert not guard.check(START + TOLERANCE_NS + 1, 0)


@given(st.integers(-MAX_SLEW_PPM, MAX_SLEW_PPM), st.lists(st.integers(1, 100), min_size=1, max_size=30))
def test_slewing_at_the_kernels_rate_is_trusted_however_long_it_lasts(ppm: int, gaps_s: list[int]) -> None:
    guard = guard_at()
    monotonic = 0
    for gap in gaps_s:
        monotonic += gap * SECOND
        assert guard.check(START + monotonic + monotonic * ppm // 1_000_000, monotonic)


def test_a_clock_that_drifts_much_faster_than_any_slew_is_not_trusted_for_ever() -> None:
    guard = guard_at()
    fast = 1 + 10 * MAX_SLEW_PPM / 1e6
    trusted = [guard.check(START + int(second * SECOND * fast), second * SECOND) for second in range(1, 20)]
    assert trusted[0]
    assert not trusted[-1]


def test_waiting_does_not_make_a_stepped_clock_trustworthy() -> None:
    guard = guard_at()
    assert guard.check(START + SECOND, SECOND)
    trusted = [guard.check(START + s * SECOND + 10 * MS, s * SECOND) for s in range(2, 60)]
    assert not any(trusted)

"""Rule 13: a clock that steps is not trusted, one that is slewed is; C1 and C4: bounds, and leap seconds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelcast.protocol.clock import (
    DAY_NS,
    FREE_RUNNING_PPM,
    KERNEL,
    LEAP_MARGIN_NS,
    MAX_SLEW_PPM,
    ClockGuard,
    ErrorBound,
    LeapSecond,
    Vouched,
)
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


def test_nobody_vouches_for_a_clock_until_a_source_does() -> None:
    bound = ErrorBound()
    assert bound.at(SECOND) is None
    assert not bound.exceeds(0, SECOND)


def test_a_bound_grows_with_the_drift_of_a_crystal_since_it_was_read() -> None:
    bound = ErrorBound()
    bound.vouch("chrony", 100_000, 5 * SECOND)
    assert bound.at(5 * SECOND) == Vouched("chrony", 100_000)
    assert bound.at(55 * SECOND) == Vouched("chrony", 100_000 + 50 * FREE_RUNNING_PPM * 1_000)
    assert bound.at(4 * SECOND) == Vouched("chrony", 100_000)
    assert not bound.exceeds(MS, 50 * SECOND)
    assert bound.exceeds(MS, 51 * SECOND)


def test_the_smallest_bound_counts_and_a_source_replaces_what_it_said() -> None:
    bound = ErrorBound()
    bound.vouch("chrony", 300_000, 0)
    bound.vouch("phc2sys", 200_000, 0)
    assert bound.at(0) == Vouched("phc2sys", 200_000)
    bound.vouch("phc2sys", 900_000, SECOND)
    assert bound.at(SECOND) == Vouched("chrony", 320_000)


def test_the_kernel_lowers_a_bound_and_exceeds_nothing_alone() -> None:
    bound = ErrorBound()
    bound.vouch(KERNEL, 40 * MS, 0)
    assert bound.at(0) == Vouched(KERNEL, 40 * MS)
    assert not bound.exceeds(MS, SECOND)
    bound.vouch("chrony", 2 * MS, 0)
    assert bound.exceeds(MS, 0)
    bound.vouch(KERNEL, 500_000, 0)
    assert not bound.exceeds(MS, 0)


def test_a_leap_second_is_at_the_end_of_the_day_and_may_be_taken_back() -> None:
    midnight = (START // DAY_NS + 1) * DAY_NS
    leap = LeapSecond(smeared=False)
    assert not leap.announce(False, START)
    assert leap.announce(True, START)
    assert not leap.announce(True, START + SECOND)
    assert leap.at_ns == midnight
    assert not leap.refuses(midnight - LEAP_MARGIN_NS - 1)
    assert not leap.announce(False, START + 2 * SECOND)
    assert not leap.refuses(midnight)


@pytest.mark.parametrize("smeared", [False, True])
def test_from_shortly_before_a_leap_second_only_smeared_clocks_run(smeared: bool) -> None:
    midnight = (START // DAY_NS + 1) * DAY_NS
    leap = LeapSecond(smeared=smeared)
    leap.announce(True, START)
    assert leap.refuses(midnight - LEAP_MARGIN_NS) is not smeared
    assert not leap.announce(True, midnight + SECOND), "the kernel may announce it for a while after it"
    assert leap.refuses(midnight + 60 * SECOND) is not smeared

"""Copies are planned where they shorten the hold time, within the factor, and not where they gain nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from levelcast.timing.copies import NOTHING, Copies
from levelcast.timing.copy_plan import LEAST_GAIN, CopyPlan, levels_for, plan_copies
from levelcast.timing.hold import count_slots, derive_hold, worst_late_share
from levelcast.timing.hold_rules import HoldInput, LossKind
from tests.hold_parts import small_group
from tests.test_timing_hold import FRESH, cities, regions

SLOTS = 40_000


def group(loss: float = 0.05) -> HoldInput:
    return small_group(5, loss, packets=6, late_target=1e-3)


def plan(redundancy: float, loss: float = 0.05) -> CopyPlan:
    return plan_copies(group(loss), redundancy, slots=SLOTS)


def test_the_plan_shortens_the_hold_time_within_the_factor() -> None:
    found = plan(1.4)
    assert found.hold.hold_ms < (1.0 - LEAST_GAIN) * found.without.hold_ms
    assert found.gain_ms == found.without.hold_ms - found.hold.hold_ms
    assert 1.0 < found.cost.total <= max(found.cost.data, found.cost.control) <= 1.4
    assert found.hold == derive_hold(replace(group(), copies=found.copies), slots=SLOTS)
    assert [row.copies for row in found.spent] == [
        each
        for _, each in sorted(zip(_needs(found), found.copies, strict=True), key=lambda pair: -pair[0])
        if any(each)
    ]


def _needs(found: CopyPlan) -> list[int]:
    needs = {each.name: each.hold_ms for each in found.without.receivers}
    return [needs[f"member {member}"] for member in range(5)]


def test_less_is_spent_with_a_smaller_factor_and_first_on_those_that_need_most() -> None:
    less, more = plan(1.1), plan(1.4)
    assert less.cost.data <= 1.1
    assert less.without.hold_ms >= less.hold.hold_ms >= more.hold.hold_ms
    assert 0 < len(less.spent) < 5


def test_nothing_is_sent_without_a_factor_or_without_a_gain() -> None:
    assert plan(1.0).copies == (NOTHING,) * 5
    assert plan(1.0).hold == plan(1.0).without
    calm = plan_copies(small_group(5, 0.0, packets=6, late_target=1e-3), 2.0, slots=SLOTS)
    assert calm.copies == (NOTHING,) * 5
    assert (calm.gain_ms, calm.cost, calm.spent) == (0, (1.0, 1.0, 1.0), ())
    bursts = replace(group(), loss_kind=LossKind(60.0))
    assert not any(each.parity for each in plan_copies(bursts, 1.4, slots=SLOTS).copies)


def test_only_the_given_levels_are_used() -> None:
    path = Copies(0, 0, second_path=True)
    found = plan_copies(group(), 2.2, levels=(NOTHING, path), slots=SLOTS)
    assert {each.second_path for each in found.copies} >= {True}
    assert not any(each.parity for each in found.copies)
    assert not any(each.second_path for each in levels_for(6))


@pytest.mark.parametrize("redundancy", [0.9, 4.1])
def test_a_factor_outside_its_limits_is_refused(redundancy: float) -> None:
    with pytest.raises(ValueError, match="it must be 1 to 4"):
        plan(redundancy)


def test_five_cities_need_at_most_360_ms_at_a_factor_of_1_4() -> None:
    found = plan_copies(cities(), 1.4)
    assert found.hold.hold_ms <= 360 < found.without.hold_ms
    fresh = count_slots(replace(cities(), copies=found.copies), 1_000_000, FRESH)
    assert worst_late_share(fresh, found.hold.hold_ms - found.hold.added_ms)[1].low <= 1e-5


@pytest.mark.campaign
def test_the_aws_regions_need_at_most_360_ms_at_a_factor_of_1_4(data_dir: Path) -> None:
    found = plan_copies(regions(data_dir), 1.4)
    assert found.hold.hold_ms <= 360 < found.without.hold_ms

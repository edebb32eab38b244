"""Requests in bulk go to whom the protocol sends them, as often, and count a fault by time."""

from __future__ import annotations

import numpy as np
import pytest

from levelcast.protocol.gaps import MOST_ATTEMPTS
from levelcast.protocol.repair_plan import RepairPlan
from levelcast.sim.bulk.paths import SitePaths
from levelcast.sim.bulk.repair import BulkRepair, Item
from levelcast.sim.scenarios.steady import MS
from tests.bulk_parts import Small, config_of, core_of

SMALL = Small(5, 2, 0.0)


@pytest.fixture
def repair() -> BulkRepair:
    found = BulkRepair(SitePaths(core_of(SMALL), np.random.default_rng(1)))
    found.counting = True
    return found


def test_a_gap_that_nobody_can_fill_is_asked_of_two_helpers_three_times(repair: BulkRepair) -> None:
    repair.repair([Item(np.full(15, np.inf))], np.zeros(15), None, MOST_ATTEMPTS)
    assert repair.counts.sent_nacks.tolist() == [2 * MOST_ATTEMPTS] * 5 + [MOST_ATTEMPTS] * 10


def test_a_primary_asks_as_the_protocol_does(repair: BulkRepair) -> None:
    """The same members in the same order, and again after the same time."""
    config = config_of(SMALL)
    for asker in range(5):
        plan = RepairPlan(config, asker + 1)
        for attempt in range(7):
            near = [(member, False) for member in config.nearness[asker + 1]]
            asked = plan.ask(3, near, attempt)
            assert [member + 1 for member in repair.targets(asker, 2, attempt)] == asked
            again_ms = repair.again_ms(asker, [member - 1 for member in asked], attempt)
            assert again_ms == pytest.approx(plan.again_ns(asked, attempt) / MS, abs=0.01)


def test_three_are_asked_and_the_nearest_holder_is_first(repair: BulkRepair) -> None:
    """Nothing is lost here: one attempt is enough, and the answer comes within the shortest round trip."""
    has_ms = np.zeros(15)
    has_ms[0] = np.inf
    item = Item(has_ms)
    repair.repair([item], np.full(15, 100.0), 4)
    assert repair.counts.sent_nacks.sum() == 3
    assert repair.counts.nacks_peak == 1
    assert 100.0 < item.has_ms[0] <= 100.0 + repair.nearest_ms[0]


def test_a_second_primary_makes_the_reply_a_multicast_and_a_secondary_does_not(repair: BulkRepair) -> None:
    has_ms = np.zeros(15)
    has_ms[[0, 1]] = np.inf
    repair.repair([Item(has_ms)], np.full(15, 100.0), 4)
    assert repair.counts.answers_to_all > 0
    repair.counts.answers_to_all = 0
    has_ms = np.zeros(15)
    has_ms[5:] = np.inf
    repair.repair([Item(has_ms)], np.full(15, 100.0), 4)
    assert repair.counts.answers_to_all == 0
    assert np.isfinite(has_ms).all()


def test_a_fault_is_counted_each_time_that_the_attempts_of_rule_5_would_last(repair: BulkRepair) -> None:
    timing = SMALL.timing()
    due_ms, give_up_ms = timing.late_ns / MS, timing.attempts * timing.request_ns / MS
    has_ms = np.zeros(15)
    has_ms[:4] = due_ms + give_up_ms * np.array([0.9, 1.1, 2.1, 0.0])
    has_ms[7] = np.inf  # a secondary causes no reformation
    repair.count_faults([Item(has_ms)], np.zeros(15), 0.0)
    assert repair.counts.faults == 3

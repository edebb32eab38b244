"""Customers in bulk: what two lines, loss and grades must come to."""

from __future__ import annotations

import numpy as np
import pytest

from levelcast.network.delays import Delays
from levelcast.sim.bulk import CoreRun
from levelcast.sim.bulk_edge import (
    BEST_EFFORT,
    GUARANTEED,
    LATEST_ONLY,
    BulkEdge,
    Customers,
    EdgeRules,
    EdgeRun,
    histogram_quantile,
)

HOLD_MS = 1_000.0
SLOT_MS = 50.0


def released(receivers: int, slots: int, late: float = 0.0) -> CoreRun:
    """Every slot has a packet, and all receivers release it at the instant, or `late` ms after it."""
    nothing = np.zeros((slots, receivers), np.float32)
    counts = np.zeros(receivers, np.int64)
    return CoreRun(
        slots=range(slots),
        held=nothing,
        ready=nothing,
        release=nothing + np.float32(HOLD_MS + late),
        late=nothing > 0,
        packets=np.ones(slots, np.int64),
        wait_ms=np.zeros(slots),
        sent_nacks=counts,
        nacks=counts,
        completing_ms=np.zeros(slots),
    )


def run(loss: float, grade: int = GUARANTEED, customers: int = 20_000, slots: int = 20, **rules: float) -> EdgeRun:
    """One region: customers in city 0, their lines at cities 1 (5 ms) and 2 (20 ms), one receiver each."""
    delay = np.array([[0.5, 5.0, 20.0], [5.0, 0.5, 15.0], [20.0, 15.0, 0.5]])
    delays = Delays(("a", "b", "c"), delay, np.full((3, 3), 1.0), np.full((3, 3), loss))
    everybody = Customers(
        np.zeros(customers, np.int32),
        np.zeros(customers, np.int32),
        np.ones(customers, np.int32),
        np.full(customers, grade, np.int8),
        np.array([0, customers]),
    )
    edge = BulkEdge(delays, np.array([1, 2]), everybody, EdgeRules(**rules), 3)  # type: ignore[arg-type]
    return edge.run(released(2, slots), HOLD_MS, SLOT_MS, slots)


def test_without_loss_the_nearer_line_is_first_and_nobody_asks() -> None:
    seen = run(0.0)
    assert seen.first_line == 20_000 * seen.slots
    assert seen.asked.sum() == 0
    assert 5.0 <= seen.quantile_ms(0.001) < seen.quantile_ms(0.999) <= 6.1
    assert seen.spread_ms.max() <= 1.0


def test_the_second_line_brings_what_the_first_has_lost() -> None:
    seen = run(0.1)
    share = np.array([seen.first_line, seen.second_line, seen.repaired]) / (20_000 * seen.slots)
    assert share == pytest.approx([0.9, 0.09, 0.01], rel=0.05)
    assert 5.0 < seen.quantile_ms(0.89) < 6.1 < 20.0 < seen.quantile_ms(0.92) < 21.1


def test_requests_are_as_many_as_lost_packets_and_attempts_make() -> None:
    """p² of the packets are asked for, on average 1 / (1 - p)² times, and (1 - p) of the requests arrive."""
    seen = run(0.2)
    per_packet = 20_000 * 0.04 / 0.64
    assert seen.asked.mean() == pytest.approx(per_packet, rel=0.05)
    assert seen.nacks.sum() / seen.slots == pytest.approx(per_packet * 0.8, rel=0.05)
    assert seen.nacks[0] > 2 * seen.nacks[1], "the nearer server is asked first"
    assert seen.lost.sum() == 0


def test_a_repair_takes_the_next_packet_and_a_round_trip() -> None:
    seen = run(0.1)
    counts = seen.arrivals[0].copy()
    counts[: int((22.0 + 10.0) / 0.1)] = 0
    soonest = histogram_quantile(counts, 0.001)
    assert soonest == pytest.approx(SLOT_MS + 5.0 + 1.0 + 10.0, abs=3.0)


def test_best_effort_loses_and_does_not_ask() -> None:
    seen = run(0.1, BEST_EFFORT)
    assert seen.asked.sum() == 0
    assert seen.lost[BEST_EFFORT] / (20_000 * seen.slots) == pytest.approx(0.01, rel=0.1)


def test_latest_only_asks_for_what_is_not_superseded() -> None:
    asked = [run(0.1, LATEST_ONLY, superseded=share).asked.sum() for share in (0.0, 0.5, 1.0)]
    assert asked[2] == 0
    assert asked[1] == pytest.approx(asked[0] / 2, rel=0.1)


def test_one_line_is_asked_about_far_more_often() -> None:
    alone = run(0.1, two_lines=False)
    assert alone.second_line == 0
    assert alone.asked.sum() > 8 * run(0.1).asked.sum()
    assert alone.nacks[1] == 0


def test_loss_that_a_whole_place_shares() -> None:
    seen = run(0.0, slots=200, customers=50, branch_loss=0.1)
    per_slot = np.unique(seen.asked)
    assert per_slot.tolist() == [0, 50], "all or nobody"


def test_a_late_release_is_late_at_customers() -> None:
    seen = run(0.0)
    assert seen.slowest_ms < 7.0
    delays = Delays(("a",), np.ones((1, 1)), np.zeros((1, 1)), np.zeros((1, 1)))
    here = np.zeros(5, np.int32)
    one = Customers(here, here, here, np.zeros(5, np.int8), np.array([0, 5]))
    late = BulkEdge(delays, np.zeros(1, np.intp), one, EdgeRules(), 1).run(released(1, 4, 300.0), HOLD_MS, SLOT_MS, 4)
    assert late.quantile_ms(0.5) == pytest.approx(301.0, abs=0.2)

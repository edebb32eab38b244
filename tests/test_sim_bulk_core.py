"""The core in bulk says what the protocol itself says, where both can be run; and one seed is one result."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from levelcast.sim.bulk.core import BulkCore
from levelcast.sim.bulk.paths import Core
from levelcast.sim.scenarios.steady import MS
from tests.bulk_parts import Small, bulk, exact

CASES = {
    "a ring": Small(5, 0, 0.05, hold_ms=65.0),
    "two layers": Small(5, 2, 0.07, hold_ms=110.0),
    "three layers": Small(5, 1, 0.1, below=1, hold_ms=115.0),
}


SEEDS = range(1, 5)


def quantiles(values: object) -> list[float]:
    return [float(each) for each in np.quantile(np.asarray(values, np.float64), [0.1, 0.5, 0.9, 0.99])]


@pytest.mark.parametrize("small", CASES.values(), ids=CASES)
def test_bulk_agrees_with_the_protocol(small: Small) -> None:
    """In time until held and witnessed, wait for a token, requests a packet, share on time and latency."""
    rings = [exact(small, seed, 12_000 * MS) for seed in SEEDS]
    runs = [bulk(small, seed, 1_500) for seed in SEEDS]

    ready = quantiles(np.concatenate([ring.samples.ready_ns for ring in rings]) / MS)
    bulk_ready = quantiles(np.concatenate([run.ready.ravel() for run in runs]))
    assert bulk_ready[:3] == pytest.approx(ready[:3], rel=0.06)
    assert bulk_ready[3] == pytest.approx(ready[3], rel=0.15), "the hundredth that is slowest depends on few slots"

    wait = quantiles(np.concatenate([ring.samples.wait_ns for ring in rings]) / MS)
    bulk_wait = quantiles(np.concatenate([run.wait_ms for run in runs]))
    assert bulk_wait == pytest.approx(wait, rel=0.12)

    asked = sum(sum(ring.asked.counted.values()) for ring in rings)
    packets = sum(len(ring.checker.submitted) for ring in rings)
    per_packet = sum(run.sent_nacks.sum() for run in runs) / sum(run.packets_counted for run in runs)
    assert per_packet == pytest.approx(asked / packets, rel=0.12)

    to_all = sum(ring.asked.answers["all"] for ring in rings) / sum(ring.asked.answers.total() for ring in rings)
    assert sum(run.answers_to_all for run in runs) / sum(run.answers for run in runs) == pytest.approx(to_all, abs=0.03)

    late = [late for ring in rings for each in ring.asked.releases.values() for late in each]
    bulk_late = np.concatenate([run.late[run.packets > 0].ravel() for run in runs])
    assert 0.005 < np.mean(late) < 0.98, "the case says nothing about being late"
    assert bulk_late.mean() == pytest.approx(np.mean(late), abs=0.08)

    latency = quantiles(np.concatenate([ring.samples.latency_ns for ring in rings]) / MS)
    slots = [np.repeat(np.arange(len(run.packets)), run.packets) for run in runs]
    bulk_latency = np.concatenate(
        [(run.release[slot] + np.sort(run.wait_ms)[:, None]).ravel() for run, slot in zip(runs, slots, strict=True)]
    )
    assert quantiles(bulk_latency) == pytest.approx(latency, rel=0.03)


def test_nothing_is_late_with_the_hold_time_of_rule_6() -> None:
    run = bulk(Small(5, 2, 0.05), 3, 800)
    assert run.on_time == 1.0
    assert run.faults == 0
    assert (run.held <= run.ready).all()
    assert np.median(run.held) < np.median(run.ready)
    assert run.ready.max() < run.release.min()


def test_without_loss_nobody_asks() -> None:
    run = bulk(Small(4, 2, 0.0), 3, 300)
    assert run.sent_nacks.sum() == 0
    assert run.resent == 0


def test_one_seed_is_one_result() -> None:
    small = Small(4, 2, 0.05)
    assert np.array_equal(bulk(small, 7, 200).ready, bulk(small, 7, 200).ready)
    assert not np.array_equal(bulk(small, 7, 200).ready, bulk(small, 8, 200).ready)


def test_answers_to_secondaries_stay_theirs_when_loss_is_common_to_a_city() -> None:
    """With the tree's loss all secondaries of a city miss the same (MS §3.9): each gets its answer (MS §4.1)."""
    small = Small(4, 6, 0.0)
    home = np.concatenate([np.arange(4), np.repeat(np.arange(4), 6)])
    core = Core(
        small.delays(),
        home,  # a group in one city
        home,
        np.arange(28, 31),
        small.timing(),
        3,
        np.zeros(28),
        0.0,
    )
    alone = BulkCore(core, 5).run(400, 120.0, warm=50)
    common = BulkCore(replace(core, branch_loss=0.05), 5).run(400, 120.0, warm=50)
    assert alone.sent_nacks.sum() == 0
    assert 0 < common.answers_to_all < 0.1 * common.answers
    assert common.copies < 3 * common.answers

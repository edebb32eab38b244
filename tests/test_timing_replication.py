"""Formulas of copies: each agrees with drawn networks, and each printed formula that is corrected does not."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import numpy.typing as npt
import pytest

from levelcast.timing.replication import (
    CopyPath,
    copies_needed,
    cost,
    expected_time,
    expected_time_both,
    expected_time_via,
    forwarding_cost,
    forwards,
    lost_with_outages,
    probability,
    probability_with,
    repair_time,
)

Draws = npt.NDArray[np.floating]
DRAWS = 400_000
NETWORKS = 20
SIGMAS = 4.4
"""Half width of an interval: all of some 200 comparisons are inside with a probability of 99.8 %."""


def random_path(rng: Random, copies: tuple[int, ...] = (1, 2, 3)) -> CopyPath:
    return CopyPath(rng.uniform(5, 250), rng.uniform(0.02, 0.4), rng.choice(copies))


def lost(path: CopyPath, draws: np.random.Generator, count: int = DRAWS) -> npt.NDArray[np.bool_]:
    """Whether all copies of each message are lost, drawn copy by copy."""
    return np.asarray((draws.random((path.copies, count)) < path.loss).all(axis=0))


def times(path: CopyPath, draws: np.random.Generator, *, requests_lost: bool = True) -> Draws:
    """The time until the first copy arrives: a loss is noticed after δ, and requested until it arrives."""
    found = np.full(DRAWS, path.delay)
    waiting = np.flatnonzero(lost(path, draws))
    while len(waiting):
        found[waiting] += 2 * path.delay
        failed = lost(path, draws, len(waiting))
        if requests_lost:
            failed |= draws.random(len(waiting)) < path.loss
        waiting = waiting[failed]
    return found


def repairs(delay: float, loss: float, draws: np.random.Generator) -> Draws:
    found, waiting = np.zeros(DRAWS), np.arange(DRAWS)
    while len(waiting):
        found[waiting] += 2 * delay
        waiting = waiting[(draws.random(len(waiting)) < loss) | (draws.random(len(waiting)) < loss)]
    return found


def is_mean(drawn: Draws, value: float) -> bool:
    """Whether a value is within the confidence interval of a drawn mean."""
    half = SIGMAS * float(drawn.std()) / math.sqrt(len(drawn)) + 1e-9
    return abs(float(drawn.mean()) - value) <= half


def networks(seed: int) -> list[tuple[CopyPath, CopyPath, CopyPath]]:
    rng = Random(seed)
    return [(random_path(rng), random_path(rng), random_path(rng)) for _ in range(NETWORKS)]


def printed_time(path: CopyPath) -> float:
    return path.delay * (1 + path.all_lost) / (1 - path.all_lost)


@pytest.mark.parametrize("requests_lost", [True, False])
def test_time_until_the_first_copy(requests_lost: bool) -> None:
    draws = np.random.default_rng(1)
    outside = 0
    for direct, first, second in networks(1):
        drawn = times(direct, draws, requests_lost=requests_lost)
        assert is_mean(drawn, expected_time(direct, requests_lost=requests_lost))
        outside += not is_mean(drawn, printed_time(direct))
        over = times(first, draws, requests_lost=requests_lost) + times(second, draws, requests_lost=requests_lost)
        assert is_mean(over, expected_time_via(first, second, requests_lost=requests_lost))
    # E2: the printed one is right without lost requests only. With three copies and little loss the two are one.
    assert outside >= NETWORKS // 2 if requests_lost else outside == 0


def test_time_of_single_copies_is_not_the_printed_one() -> None:
    rng, draws = Random(2), np.random.default_rng(2)
    for _ in range(NETWORKS):
        path = random_path(rng, copies=(1,))
        drawn = times(path, draws)
        assert is_mean(drawn, expected_time(path))
        assert not is_mean(drawn, printed_time(path))  # E2


def test_probability_and_the_one_with_a_forwarder() -> None:
    draws = np.random.default_rng(3)
    for direct, first, second in networks(3):
        direct_lost, over_lost = lost(direct, draws), lost(first, draws) | lost(second, draws)
        assert is_mean(1.0 - direct_lost, probability(direct))
        drawn = 1.0 - (direct_lost & over_lost)
        assert is_mean(drawn, probability_with(direct, first, second))
        e, over = direct.all_lost, probability(first) * probability(second)
        printed = (1 - e) + e * (1 - over)
        # E4: where the second path fails as often as not, the two are one, too.
        if abs(printed - probability_with(direct, first, second)) > 0.005:
            assert not is_mean(drawn, printed)


def test_example_of_a_forwarder() -> None:
    direct, leg = CopyPath(100, 0.1), CopyPath(70, 0.01)
    assert probability_with(direct, leg, leg) == pytest.approx(0.99801, abs=5e-6)
    draws = np.random.default_rng(4)
    drawn = 1.0 - (lost(direct, draws) & (lost(leg, draws) | lost(leg, draws)))
    assert is_mean(drawn, probability_with(direct, leg, leg))
    assert not is_mean(drawn, 0.90199)  # as printed


def test_time_with_both_paths_is_below_the_printed_minimum() -> None:
    draws = np.random.default_rng(5)
    compared = 0
    for direct, first, second in networks(5):
        drawn = np.minimum(times(direct, draws), times(first, draws) + times(second, draws))
        found = expected_time_both(direct, [(first, second)])
        assert is_mean(drawn, found)
        printed = min(expected_time(direct), expected_time_via(first, second))
        assert found <= printed + 1e-9
        if printed > 1.03 * found:
            compared += 1
            assert not is_mean(drawn, printed)  # E5
    assert compared >= NETWORKS // 2


def test_time_with_several_forwarders() -> None:
    draws = np.random.default_rng(6)
    for (direct, first, second), (third, fourth, _) in zip(networks(6)[:8], networks(7)[:8], strict=True):
        over_k, over_l = times(first, draws) + times(second, draws), times(third, draws) + times(fourth, draws)
        drawn = np.minimum(times(direct, draws), np.minimum(over_k, over_l))
        assert is_mean(drawn, expected_time_both(direct, [(first, second), (third, fourth)]))


def test_a_forwarder_helps_where_the_printed_condition_says_no() -> None:
    direct, leg = CopyPath(100, 0.1), CopyPath(70, 0.01)
    assert expected_time(direct, requests_lost=False) == pytest.approx(122.2, abs=0.05)
    assert expected_time_via(leg, leg, requests_lost=False) == pytest.approx(142.8, abs=0.05)
    assert expected_time_both(direct, [(leg, leg)], requests_lost=False) == pytest.approx(104.3, abs=0.05)
    assert forwards(direct, 70, 70)
    rng = Random(8)
    for _ in range(200):
        direct, first, second = (random_path(rng, copies=(1,)) for _ in range(3))
        if not forwards(direct, first.delay, second.delay):
            # Even its earliest copy is later than the mean repaired one.
            assert first.delay + second.delay >= direct.delay + repair_time(direct.delay, direct.loss)


def test_cost_of_a_forwarder_is_what_it_sends_in_addition() -> None:
    draws = np.random.default_rng(9)
    for _, first, second in networks(9):
        assert cost(first) == first.copies * first.delay
        drawn = np.where(lost(first, draws), 0.0, second.copies * second.delay)
        assert is_mean(drawn, forwarding_cost(first, second))
        assert not is_mean(drawn, cost(first) + cost(second))  # E6


@pytest.mark.parametrize(("loss", "allowed", "copies"), [(0.2, 0.01, 3), (0.1, 0.01, 2), (0.01, 0.01, 1), (0, 0.01, 1)])
def test_number_of_copies(loss: float, allowed: float, copies: int) -> None:
    assert copies_needed(loss, allowed) == copies


def test_number_of_copies_keeps_the_allowed_loss_and_the_printed_one_does_not() -> None:
    rng, draws = Random(10), np.random.default_rng(10)
    for _ in range(NETWORKS):
        loss, allowed = rng.uniform(0.05, 0.5), rng.uniform(0.001, 0.03)
        copies = copies_needed(loss, allowed)
        assert loss**copies <= allowed < loss ** (copies - 1)
        assert is_mean(lost(CopyPath(1, loss, copies), draws) * 1.0, loss**copies)
        printed = math.ceil(math.log(allowed) / math.log(loss)) if loss <= allowed else 1
        drawn = lost(CopyPath(1, loss, printed), draws)
        assert float(drawn.mean()) - SIGMAS * float(drawn.std()) / math.sqrt(DRAWS) > allowed  # E7


@pytest.mark.parametrize(("loss", "allowed"), [(1.0, 0.01), (-0.1, 0.01), (0.1, 0.0), (0.1, 1.0)])
def test_number_of_copies_of_impossible_values(loss: float, allowed: float) -> None:
    with pytest.raises(ValueError, match="allowed loss"):
        copies_needed(loss, allowed)


def test_time_of_a_repair_and_the_helper_that_it_selects() -> None:
    rng, draws = Random(11), np.random.default_rng(11)
    for _ in range(NETWORKS):
        delay, loss = rng.uniform(5, 250), rng.uniform(0.05, 0.5)
        drawn = repairs(delay, loss, draws)
        assert is_mean(drawn, repair_time(delay, loss))
        assert not is_mean(drawn, delay * (1 + loss) / (1 - loss))  # E8
    near, safe = (10, 0.3), (19, 0.01)
    assert near[0] * (1 + near[1]) / (1 - near[1]) < safe[0] * (1 + safe[1]) / (1 - safe[1])
    assert repair_time(*near) == pytest.approx(40.8, abs=0.05)
    assert repair_time(*safe) == pytest.approx(38.8, abs=0.05)
    assert float(repairs(*near, draws).mean()) > float(repairs(*safe, draws).mean())


def test_examples_of_the_expected_time() -> None:
    assert expected_time(CopyPath(120, 0.1), requests_lost=False) == pytest.approx(146.7, abs=0.05)
    assert expected_time(CopyPath(120, 0.1)) == pytest.approx(149.6, abs=0.05)
    assert expected_time(CopyPath(240, 0.5), requests_lost=False) == pytest.approx(720)
    assert expected_time(CopyPath(240, 0.5)) == pytest.approx(1200)


def test_loss_that_no_copy_prevents() -> None:
    received = [100 * (1 - lost_with_outages(0.0088, copies, 0.0004)) for copies in (1, 2, 3)]
    assert received == pytest.approx([99.08, 99.95, 99.96], abs=0.006)

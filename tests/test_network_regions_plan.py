"""Regions from delay and loss: compared with every possible choice where there are few, and bounded where asked."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest

from levelcast.network.regions.plan import (
    Floats,
    assign,
    choose_pairs,
    line_costs,
    pair_costs,
    plan_regions,
    score,
    share_out,
)


def made_up(seed: int, sites: int, places: int) -> tuple[Floats, Floats]:
    """Sites and customers on a square, delay by distance."""
    rng = np.random.default_rng(seed)
    here, there = rng.uniform(0, 100, (sites, 2)), rng.uniform(0, 100, (places, 2))
    delays = np.hypot(*(here[:, None] - there[None]).transpose(2, 0, 1)) + 1.0
    return delays, rng.uniform(1, 10, places)


def best_of_all(costs: Floats, weights: Floats, count: int) -> float:
    pairs = list(combinations(range(len(costs)), 2))
    apart = [
        chosen for chosen in combinations(pairs, count) if len({site for pair in chosen for site in pair}) == 2 * count
    ]
    return min(float(score(pair_costs(costs, np.array(chosen)).min(axis=0), weights)) for chosen in apart)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_choice_is_as_good_as_the_best_of_all(count: int) -> None:
    ratios = []
    for seed in range(12):
        costs, weights = made_up(seed, 7, 12)
        pairs = choose_pairs(costs, weights, count)
        ratios.append(score(pair_costs(costs, pairs).min(axis=0), weights) / best_of_all(costs, weights, count))
    assert max(ratios) < 1.05
    assert np.mean(ratios) < 1.01


def test_pairs_have_no_common_site_and_many_sites_are_enough() -> None:
    costs, weights = made_up(3, 60, 40)
    pairs = choose_pairs(costs, weights, 30)
    assert sorted(pairs.ravel().tolist()) == list(range(60))


def test_lines_of_a_customer_are_at_different_sites_and_the_nearer_is_first() -> None:
    costs, weights = made_up(5, 20, 50)
    plan = plan_regions(costs, weights, 6)
    first, second = plan.lines()
    assert (first != second).all()
    assert (costs[first, plan.customer] <= costs[second, plan.customer]).all()
    assert np.allclose(np.bincount(plan.customer, plan.weight), weights)


def test_room_of_a_region_is_kept_and_a_place_is_divided_for_it() -> None:
    costs, weights = made_up(6, 12, 20)
    weights[0] = weights[1:].sum()  # one place has half of all customers
    free = plan_regions(costs, weights, 4, bound=4.0)
    tight = plan_regions(costs, weights, 4, bound=1.3)
    assert free.load().max() > 0.5 * weights.sum() - 1e-6
    assert tight.load().max() <= 1.3 * weights.sum() / 4 + 1e-6
    assert (tight.customer == 0).sum() > 1


def test_assignment_within_room_is_near_the_best_of_all() -> None:
    ratios = []
    for seed in range(10):
        costs, _ = made_up(100 + seed, 6, 6)
        pairs = np.array([[0, 1], [2, 3], [4, 5]])
        customer, region, weight = assign(costs, np.ones(6), pairs, bound=1.0)
        prices = pair_costs(costs, pairs)
        got = (prices[region, customer] * weight).sum()
        fair = [each for each in product(range(3), repeat=6) if max(map(each.count, range(3))) <= 2]
        ratios.append(got / min(sum(prices[r, c] for c, r in enumerate(each)) for each in fair))
    assert max(ratios) < 1.3
    assert np.mean(ratios) < 1.08


def test_what_customers_lose_is_bounded_too() -> None:
    costs, weights = made_up(8, 8, 30)
    loss = np.zeros_like(costs)
    loss[:, :10] = 0.2  # whoever serves the first ten places is asked often
    plan = plan_regions(costs, weights, 4, loss=loss, bound=1.5)
    asked = np.bincount(plan.region, plan.weight * (plan.customer < 10), 4)
    assert asked.max() <= 1.5 * weights[:10].sum() / 4 + 1e-6


def test_a_lossy_line_is_avoided_when_another_is_little_longer() -> None:
    delays = np.array([[10.0], [11.0], [12.0]])
    loss = np.array([[0.2], [0.0], [0.0]])
    assert choose_pairs(line_costs(delays, loss), np.ones(1), 1).tolist() == [[1, 2]]
    assert choose_pairs(line_costs(delays, 0 * loss), np.ones(1), 1).tolist() == [[0, 1]]


def test_a_place_without_customers_changes_nothing() -> None:
    costs, weights = made_up(9, 10, 12)
    more = np.concatenate([costs, np.full((10, 1), 1e6)], axis=1)
    plan = plan_regions(more, np.append(weights, 0.0), 3)
    assert plan.sites.tolist() == plan_regions(costs, weights, 3).sites.tolist()
    assert 12 not in plan.customer


@pytest.mark.parametrize(
    ("count", "bound", "weights", "says"),
    [
        (4, 2.0, [1.0, 1.0], "4 regions need 8 sites"),
        (0, 2.0, [1.0, 1.0], "0 regions"),
        (1, 0.9, [1.0, 1.0], "bound of 0.9"),
        (1, 2.0, [0.0, 0.0], "weights"),
        (1, 2.0, [1.0], "weights"),
        (1, 2.0, [1.0, -1.0], "weights"),
    ],
)
def test_what_cannot_be_is_said(count: int, bound: float, weights: list[float], says: str) -> None:
    costs, _ = made_up(1, 6, 2)
    with pytest.raises(ValueError, match=says):
        plan_regions(costs, np.array(weights), count, bound=bound)


def test_share_out_gives_each_the_least_and_all_the_total() -> None:
    shared = share_out(np.array([100.0, 10.0, 1.0, 0.0]), 20, 2)
    assert shared.sum() == 20
    assert shared.min() == 2
    with pytest.raises(ValueError, match="3 cannot be divided"):
        share_out(np.ones(4), 3, 1)

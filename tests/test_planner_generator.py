"""The benchmark of TH §5.1 has the paper's facts."""

from __future__ import annotations

import numpy as np
import pytest

from levelcast.planner.costs import costs
from levelcast.planner.generator import Model, generate
from levelcast.planner.model import Instance, Plan, PlanError


def flooding(instance: Instance) -> Plan:
    return Plan(np.where(instance.wanted, 0, -1).astype(np.int32), np.zeros(1, np.int32))


def test_markets_have_the_sizes_of_the_paper_s_model() -> None:
    assert Model().market_sizes().tolist() == [6828, 3414, 2276, 1707, 1366, 1138, 975, 854, 759, 683]
    assert Model().decay == pytest.approx(7.9809, abs=1e-3)


def test_twenty_draws_have_the_facts_of_the_paper() -> None:
    most, least, means, goodput, factor = [], [], [], [], []
    for seed in range(20):
        instance = generate(Model(), seed)
        symbols = np.bincount(instance.users, minlength=500)
        found = costs(instance, flooding(instance))
        most.append(symbols.max())
        least.append(symbols.min())
        means.append(symbols.mean())
        goodput.append(found.flooding_goodput)
        factor.append(found.unicast_factor)
    assert set(most) == {102}
    assert min(least) == 15
    assert 66.5 <= np.mean(means) <= 68
    assert np.mean(goodput) == pytest.approx(0.0195, abs=0.001)
    assert 9.4 <= np.mean(factor) <= 10.3


def test_ten_percent_of_the_symbols_have_fifty_five_percent_of_the_interest() -> None:
    model = Model(flows=10_000, users=4_000, markets=1, markets_per_user=1, share_taken=0.001)
    pairs = generate(model, 3).degrees
    assert pairs[:1000].sum() / pairs.sum() == pytest.approx(0.55, abs=0.01)


def test_the_same_seed_gives_the_same_draw() -> None:
    one, same, other = (generate(Model(flows=500, users=20), seed) for seed in (1, 1, 2))
    assert (one.users == same.users).all()
    assert len(one.users) != len(other.users) or (one.users != other.users).any()


@pytest.mark.parametrize(
    "numbers",
    [{"flows": 5}, {"markets_per_user": 11}, {"share_taken": 0.0}, {"head": 0.6}, {"users": -1}, {"markets": 0}],
)
def test_impossible_numbers_are_refused(numbers: dict[str, int]) -> None:
    with pytest.raises(PlanError):
        Model(**numbers)


@pytest.mark.parametrize("per_user", [1, 3, 10])
def test_any_number_of_markets_can_be_followed(per_user: int) -> None:
    instance = generate(Model(flows=1000, users=30, markets_per_user=per_user), 0)
    assert instance.rates.max() <= 1
    assert np.bincount(instance.users, minlength=30).min() >= per_user

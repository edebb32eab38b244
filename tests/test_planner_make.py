"""Every algorithm: legal plans on random and degenerate instances, and the same plan for the same seed."""

from __future__ import annotations

import numpy as np
import pytest

from levelcast.planner.annealing import Effort, Search
from levelcast.planner.costs import fault, relative_cost
from levelcast.planner.generator import generate
from levelcast.planner.items import join, merge_equal, pin
from levelcast.planner.make import Algorithm, make_plan
from levelcast.planner.model import Instance, Limits, PlanError, Weights, from_pairs
from tests.plan_parts import SMALL, random_instance

NOBODY = np.empty(0, np.int64)

DEGENERATE = {
    "no users": from_pairs([1.0, 2.0], NOBODY, NOBODY, 0),
    "no flows": from_pairs([], NOBODY, NOBODY, 3),
    "users who want nothing": from_pairs([1.0, 2.0], NOBODY, NOBODY, 3),
    "one flow": from_pairs([1.0], np.array([0, 1]), np.array([0, 0]), 2),
    "a flow nobody wants": from_pairs([1.0, 2.0, 3.0], np.array([0, 1]), np.array([0, 2]), 2),
    "no rates": from_pairs([0.0, 0.0, 0.0], np.array([0, 1, 1]), np.array([0, 1, 2]), 2),
    "equal columns": from_pairs([1.0, 2.0, 3.0, 4.0], np.array([0, 1] * 4), np.repeat(np.arange(4), 2), 2),
    "one user": from_pairs([1.0, 2.0, 3.0], np.zeros(3, int), np.arange(3), 1),
    "fewer flows than groups": random_instance(1, flows=4, users=6, density=0.6),
}


@pytest.mark.parametrize("algorithm", Algorithm)
@pytest.mark.parametrize("name", DEGENERATE)
def test_plans_of_degenerate_instances_are_legal(algorithm: Algorithm, name: str) -> None:
    for sessions, groups in ((20, 7), (3, 3), (1, 1)):
        plan = make_plan(DEGENERATE[name], sessions, groups, algorithm=algorithm)
        assert fault(DEGENERATE[name], plan) is None
        assert relative_cost(DEGENERATE[name], plan) <= 1 + 1e-9
        assert plan.n_sessions <= sessions
        assert plan.n_groups <= groups


@pytest.mark.parametrize("algorithm", Algorithm)
@pytest.mark.parametrize("seed", range(8))
def test_plans_of_random_instances_are_legal(algorithm: Algorithm, seed: int) -> None:
    instance = random_instance(seed, flows=60, users=30, density=0.1 + 0.05 * seed)
    plan = make_plan(instance, 12, 4, algorithm=algorithm, seed=seed)
    assert fault(instance, plan) is None
    assert 0 <= relative_cost(instance, plan) <= 1 + 1e-9


@pytest.mark.parametrize("algorithm", Algorithm)
def test_the_same_seed_gives_the_same_plan(algorithm: Algorithm) -> None:
    instance = generate(SMALL, 5)
    plans = [make_plan(instance, 40, 5, algorithm=algorithm, seed=seed) for seed in (3, 3, 4)]
    assert (plans[0].session == plans[1].session).all()
    assert (plans[0].group == plans[1].group).all()
    assert len(plans[0].session) != len(plans[2].session) or (plans[0].session != plans[2].session).any()


def test_ours_is_better_than_the_paper_s_and_it_than_the_gf_it_begins_with() -> None:
    total = dict.fromkeys(Algorithm, 0.0)
    for seed in range(3):
        instance = generate(SMALL, seed)
        for algorithm in Algorithm:
            total[algorithm] += relative_cost(instance, make_plan(instance, 60, 6, algorithm=algorithm, seed=seed))
    assert total[Algorithm.LEVELCAST] < min(total[each] for each in Algorithm if each is not Algorithm.LEVELCAST)
    assert total[Algorithm.IT] < total[Algorithm.GF]


@pytest.mark.parametrize(("sessions", "groups"), [(4, 4), (8, 4), (60, 4), (60, 60)])
def test_every_shape_is_searched(sessions: int, groups: int) -> None:
    instance = generate(SMALL, 1)
    plan = make_plan(instance, sessions, groups)
    paper = make_plan(instance, sessions, groups, algorithm=Algorithm.GF)
    assert relative_cost(instance, plan) <= relative_cost(instance, paper)


def test_large_instances_take_the_other_ways_and_stay_legal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("levelcast.planner.annealing._MERGE_PAIRS", 1)
    monkeypatch.setattr("levelcast.planner.annealing._JOINT_BYTES", 1)
    instance = generate(SMALL, 2)
    plan = make_plan(instance, 60, 4)
    assert fault(instance, plan) is None
    assert relative_cost(instance, plan) < relative_cost(instance, make_plan(instance, 60, 4, algorithm=Algorithm.GF))


def test_progress_ends_at_one_with_the_cost_of_the_plan() -> None:
    instance = generate(SMALL, 1)
    told: list[tuple[float, float]] = []
    plan = make_plan(instance, 60, 4, progress=lambda share, cost: told.append((share, cost)))
    assert [share for share, _ in told] == sorted(share for share, _ in told)
    assert told[-1][0] == 1.0
    assert told[-1][1] == pytest.approx(relative_cost(instance, plan))
    assert len(told) > 3


def test_more_effort_is_more_sweeps() -> None:
    from levelcast.planner.annealing import sweeps_for

    items = Search(generate(SMALL, 1), 10, 2, Weights(), 0).items
    fast, balanced, best = (sweeps_for(items, effort) for effort in Effort)
    assert fast < balanced <= best


@pytest.mark.parametrize(("sessions", "groups"), [(3, 4), (0, 0), (5, 0), (-1, 1)])
def test_impossible_numbers_are_refused(sessions: int, groups: int) -> None:
    with pytest.raises(PlanError, match="group"):
        make_plan(random_instance(1), sessions, groups)


def test_equal_columns_become_one_item() -> None:
    instance = DEGENERATE["equal columns"]
    label = merge_equal(instance)
    assert set(label.tolist()) == {0}
    assert join(instance, label).rates.tolist() == [10.0]
    kept = merge_equal(instance, np.array([0, 0, 1, 1]))
    assert kept[0] == kept[1] != kept[2] == kept[3]


def test_items_have_the_rates_and_the_users_of_their_flows() -> None:
    instance = random_instance(4, flows=40, users=4)
    label = pin(merge_equal(instance), [[0, 7, 9], [9, 11]])
    items = join(instance, label)
    assert label[0] == label[7] == label[9] == label[11]
    matrix = instance.matrix()
    for item in range(items.n_flows):
        users = items.users[items.start[item] : items.start[item + 1]]
        assert users.tolist() == np.flatnonzero(matrix[:, label == item].any(axis=1)).tolist()
        assert items.rates[item] == pytest.approx(instance.rates[label == item].sum())


def limited(instance: Instance) -> Limits:
    rate = float(instance.rates[instance.wanted].sum())
    return Limits(session_rate=rate / 10, group_rate=rate / 3, together=((400, 401, 402),), apart=((0, 1), (0, 2)))


@pytest.mark.parametrize("seed", range(3))
def test_limits_are_kept(seed: int) -> None:
    instance = generate(SMALL, seed)
    plan = make_plan(instance, 60, 5, limits=limited(instance), seed=seed)
    assert fault(instance, plan, limited(instance)) is None
    assert plan.session[0] != plan.session[1]


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        (Limits(session_rate=0.01), "above the limit"),
        (Limits(session_rate=1.0), "carry"),
        (Limits(together=((0, 1),), apart=((0, 1),)), "together and apart"),
    ],
)
def test_limits_that_cannot_be_kept_are_refused(limits: Limits, says: str) -> None:
    with pytest.raises(PlanError, match=says):
        make_plan(generate(SMALL, 1), 10, 2, limits=limits)


def test_the_paper_s_algorithms_know_no_limits() -> None:
    with pytest.raises(PlanError, match="does not support limits"):
        make_plan(generate(SMALL, 1), 10, 2, algorithm=Algorithm.IT, limits=Limits(session_rate=9.0))

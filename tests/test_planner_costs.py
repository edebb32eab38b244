"""Costs against the paper's equations as they stand, the optimum on tiny instances, and what makes a plan illegal."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from levelcast.planner.costs import costs, fault, received_by_user, require_legal
from levelcast.planner.make import Algorithm, make_plan
from levelcast.planner.model import Curve, Instance, Limits, Plan, PlanError, Weights, from_pairs, tidy
from tests.plan_parts import random_instance, random_plan, transcribed


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


@pytest.mark.parametrize("seed", range(25))
def test_costs_are_those_of_equations_1_to_4(seed: int) -> None:
    random = np.random.default_rng(seed)
    instance = random_instance(seed, flows=int(random.integers(1, 12)), users=int(random.integers(1, 9)))
    plan = random_plan(seed, instance, int(random.integers(1, 7)), int(random.integers(1, 4)))
    h = float(random.integers(1, 20))
    weights = Weights(Curve(0.4, 4.8).at(h), Curve(0.9, 0.8).at(h))
    found = costs(instance, plan, weights)
    for name, value in transcribed(instance, plan, 0.4 + 4.8 / h, 0.9 + 0.8 / h).items():
        assert getattr(found, name) == pytest.approx(value, rel=1e-12, abs=1e-9), name


def test_flooding_costs_one_and_a_session_for_every_flow_nothing() -> None:
    instance = random_instance(1)
    sent = instance.wanted
    flooding = Plan(np.where(sent, 0, -1).astype(np.int32), ints(0))
    assert costs(instance, flooding).relative == pytest.approx(1)
    session = np.full(instance.n_flows, -1, np.int32)
    session[sent] = np.arange(sent.sum())
    alone = Plan(session, np.arange(sent.sum(), dtype=np.int32))
    assert costs(instance, alone).c_x == pytest.approx(0, abs=1e-9)
    assert costs(instance, alone).goodput == pytest.approx(1)


def test_goodput_and_unicast_factor_count_flows_that_somebody_wants() -> None:
    instance = from_pairs([2.0, 1.0, 50.0], np.array([0, 1, 0]), np.array([0, 0, 1]), 2)
    found = costs(instance, Plan(ints(0, 0, -1), ints(0)))
    assert found.unicast_factor == pytest.approx((2 * 2 + 1) / 3)
    assert found.flooding_goodput == pytest.approx((2 * 2 + 1) / (2 * 3))


def test_what_each_user_receives_adds_up_to_the_costs() -> None:
    instance = random_instance(5, flows=20, users=70)
    plan = tidy(*_labels(random_plan(5, instance, 6, 3)))
    asked, accepted, received = received_by_user(instance, plan)
    found = costs(instance, plan)
    assert received.sum() == pytest.approx(found.c_1)
    assert accepted.sum() == pytest.approx(found.c_2)
    assert (asked <= accepted + 1e-9).all()
    assert (accepted <= received + 1e-9).all()


def _labels(plan: Plan) -> tuple[np.ndarray, np.ndarray]:
    return plan.session, plan.group


def optimum(instance: Instance, sessions: int, groups: int) -> float:
    """The least C_x over all maps."""
    least = float("inf")
    for group in product(range(groups), repeat=sessions):
        for session in product(range(sessions), repeat=instance.n_flows):
            plan = Plan(np.array(session, np.int32), np.array(group, np.int32))
            least = min(least, costs(instance, plan).c_x)
    return least


@pytest.mark.parametrize("seed", range(3))
def test_the_optimum_of_tiny_instances_is_found(seed: int) -> None:
    instance = random_instance(seed, flows=6, users=5, density=0.5)
    instance = instance.subset(np.flatnonzero(instance.wanted))
    best = min(costs(instance, make_plan(instance, 3, 2, seed=attempt)).c_x for attempt in range(10))
    least = optimum(instance, 3, 2)
    assert best == pytest.approx(least, rel=1e-9, abs=1e-9)
    for algorithm in Algorithm:
        assert costs(instance, make_plan(instance, 3, 2, algorithm=algorithm)).c_x >= least - 1e-9


LEGAL = Plan(ints(0, 1, -1), ints(0, 1))


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        (Plan(ints(0, 1), ints(0, 1)), "2 flows and the instance 3"),
        (Plan(ints(0, -1, -1), ints(0)), "not in any session"),
        (Plan(ints(0, 1, 2), ints(0, 1, 1)), "session 2 is empty or has no subscriber"),
        (Plan(ints(0, 0, -1), ints(0, 0)), "session 1 is empty"),
        (Plan(ints(0, 1, -1), ints(0, 2)), "a group has no session"),
        (Plan(ints(0, 1, -1), ints(0, -1)), "not in any group"),
        (Plan(ints(0, 3, -1), ints(0, 0)), "has no group"),
    ],
)
def test_an_illegal_plan_is_refused(plan: Plan, says: str) -> None:
    instance = from_pairs([1.0, 1.0, 1.0], np.array([0, 1]), np.array([0, 1]), 2)
    assert fault(instance, LEGAL) is None
    with pytest.raises(PlanError, match=says):
        require_legal(instance, plan)


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        (Limits(session_rate=0.5), "session 0 has a rate"),
        (Limits(group_rate=0.5), "group 0 has a rate"),
        (Limits(together=((0, 1),)), "together"),
    ],
)
def test_a_plan_beyond_its_limits_is_refused(limits: Limits, says: str) -> None:
    instance = from_pairs([1.0, 1.0, 1.0], np.array([0, 1]), np.array([0, 1]), 2)
    assert says in (fault(instance, LEGAL, limits) or "")
    assert "apart" in (fault(instance, Plan(ints(0, 0, -1), ints(0)), Limits(apart=((0, 1),))) or "")


@pytest.mark.parametrize(("text", "at_8"), [("1", 1.0), ("0.4+4.8/h", 1.0), (" 2.5 + 1 / h ", 2.625)])
def test_a_weight_is_a_number_or_the_paper_s_curve(text: str, at_8: float) -> None:
    assert Curve.parse(text).at(8) == pytest.approx(at_8)


@pytest.mark.parametrize("text", ["", "-1", "h", "1+2", "1+2/x", "nan"])
def test_other_weights_are_refused(text: str) -> None:
    with pytest.raises(PlanError, match="neither a number"):
        Curve.parse(text)


def test_weights_are_not_both_nothing() -> None:
    with pytest.raises(PlanError, match="not both 0"):
        Weights(0, 0)


@pytest.mark.parametrize(("rates", "flows"), [([-1.0], [0]), ([float("nan")], [0]), ([1.0], [1]), ([1.0], [0, 0])])
def test_broken_instances_are_refused(rates: list[float], flows: list[int]) -> None:
    with pytest.raises(PlanError):
        from_pairs(rates, np.zeros(len(flows), int), np.array(flows), 1)

"""Every symbol has a place, and what each user gets is what the cost model adds up."""

from __future__ import annotations

import numpy as np
import pytest

from levelcast.planner.costs import costs
from levelcast.planner.generator import generate
from levelcast.planner.make import make_plan
from levelcast.planner.model import Instance, Plan, PlanError, Weights, from_pairs
from levelcast.planner.user_load import complete_plan, one_for_all, reach_of, with_rest
from tests.plan_parts import SMALL

# Three users; flow 0 is for all, 1 and 2 for one each, 3 and 4 for nobody.
FIVE = from_pairs([10, 4, 2, 5, 1], np.array([0, 1, 2, 0, 1]), np.array([0, 0, 0, 1, 2]), 3)


def test_what_reaches_each_user() -> None:
    plan = Plan(np.array([0, 1, 1, 2, 2], np.int32), np.array([0, 0, 1], np.int32))
    reach = reach_of(FIVE, plan)
    assert reach.asked.tolist() == [14, 12, 10]
    assert reach.accepted.tolist() == [16, 16, 10]
    assert reach.received.tolist() == [16, 16, 16]
    assert (reach.sessions, reach.groups, reach.filtered) == (3, 2, 12)
    assert reach.costs(Weights(1, 2)) == costs(FIVE, plan, Weights(1, 2))
    flood = reach_of(FIVE, one_for_all(FIVE))
    assert flood.received.tolist() == flood.accepted.tolist() == [22, 22, 22]


def test_the_rest_gets_a_free_group_or_the_one_with_the_fewest_users() -> None:
    plan = Plan(np.array([0, 1, 1, -1, -1], np.int32), np.array([0, 1], np.int32))
    free = with_rest(FIVE, plan, 3)
    assert (free.session.tolist(), free.group.tolist()) == ([0, 1, 1, 2, 2], [0, 1, 2])
    full = with_rest(FIVE, plan, 2)
    assert full.group.tolist() == [0, 1, 1]  # two users there, and three in group 0
    assert with_rest(FIVE, full, 2) is full


def test_a_complete_plan_has_every_flow_and_is_no_dearer_than_either_way() -> None:
    instance = generate(SMALL, 3)
    assert not instance.wanted.all()
    plan = complete_plan(instance, 30, 4)
    assert (plan.session >= 0).all()
    assert (plan.n_groups <= 4, plan.n_sessions <= 30) == (True, True)
    whole = costs(instance, plan).c_w
    for number in (3, 4):
        assert whole <= costs(instance, with_rest(instance, make_plan(instance, 29, number), 4)).c_w
    assert whole < costs(instance, one_for_all(instance)).c_w / 2


@pytest.mark.parametrize(("sessions", "groups"), [(1, 1), (2, 1), (2, 2), (3, 2)])
def test_few_sessions_still_carry_everything(sessions: int, groups: int) -> None:
    plan = complete_plan(FIVE, sessions, groups)
    assert (plan.session >= 0).all()
    assert plan.n_sessions <= sessions
    assert plan.n_groups <= groups


def test_where_all_or_nothing_is_wanted() -> None:
    wanted = FIVE.subset(np.arange(3))
    assert complete_plan(wanted, 3, 2).n_groups == 2
    nobody = Instance(FIVE.rates, np.zeros(6, np.int64), np.empty(0, np.int32), 0)
    assert complete_plan(nobody, 3, 2).n_sessions == 1
    with pytest.raises(PlanError, match="more than"):
        complete_plan(FIVE, 1, 2)

"""Living with change: re-planning within a bound on moved flows, placing what is new, comparing plans."""

from __future__ import annotations

import numpy as np
import pytest

from levelcast.planner.constrained import Change, differences, replan
from levelcast.planner.costs import fault, relative_cost
from levelcast.planner.generator import Model, generate
from levelcast.planner.make import make_plan
from levelcast.planner.model import Instance, Limits, Plan, PlanError, Weights
from tests.plan_parts import SMALL

SESSIONS, GROUPS = 60, 5
TODAY = Model(SMALL.flows, SMALL.users + 6, SMALL.markets, share_taken=SMALL.share_taken)


@pytest.fixture(scope="module")
def old() -> Plan:
    return make_plan(generate(SMALL, 1), SESSIONS, GROUPS)


@pytest.fixture(scope="module")
def today() -> Instance:
    return generate(TODAY, 2)


def change(today: Instance, old: Plan, max_moved: int, limits: Limits = Limits()) -> Change:  # noqa: B008
    return replan(today, old, SESSIONS, GROUPS, max_moved, Weights(), limits, 0, lambda *_: None)


@pytest.mark.parametrize("max_moved", [0, 1, 10, 40, 1000])
def test_no_more_flows_move_than_are_allowed(old: Plan, today: Instance, max_moved: int) -> None:
    found = change(today, old, max_moved)
    assert fault(today, found.plan) is None
    stays = (old.session >= 0) & (found.plan.session >= 0)
    now = found.old_session[found.plan.session[stays]]
    assert int((now != old.session[stays]).sum()) == found.moved <= max_moved


def test_each_allowed_move_helps(old: Plan, today: Instance) -> None:
    found = [relative_cost(today, change(today, old, moved).plan) for moved in (0, 5, 20, 80)]
    assert found == sorted(found, reverse=True)
    assert found[-1] < found[0]


def test_sessions_and_groups_that_go_on_keep_their_group(old: Plan, today: Instance) -> None:
    found = change(today, old, 30)
    for session, before in enumerate(found.old_session):
        if before >= 0:
            assert found.old_group[found.plan.group[session]] == old.group[before]


def test_limits_hold_for_what_is_placed(old: Plan, today: Instance) -> None:
    wanted = np.flatnonzero(today.wanted & (old.session < 0))[:2]
    limits = Limits(apart=((int(wanted[0]), int(wanted[1])),))
    assert fault(today, change(today, old, 10, limits).plan, limits) is None


def test_a_plan_that_is_too_large_is_refused(old: Plan, today: Instance) -> None:
    with pytest.raises(PlanError, match="the old plan has"):
        replan(today, old, 3, 2, 10, Weights(), Limits(), 0, lambda *_: None)


def test_plans_are_compared_by_their_flows_not_by_their_numbers(old: Plan) -> None:
    random = np.random.default_rng(1)
    sessions, groups = random.permutation(old.n_sessions), random.permutation(old.n_groups)
    renamed_group = np.empty(old.n_sessions, np.int32)
    renamed_group[sessions] = groups[old.group]
    session = np.where(old.session >= 0, sessions[old.session], -1).astype(np.int32)
    same = np.stack([np.arange(SMALL.flows)] * 2, axis=1)
    assert differences(old, Plan(session, renamed_group), same) == (0, 0)
    moved = session.copy()
    full = np.bincount(session[session >= 0]).argmax()
    other = next(s for s in range(old.n_sessions) if s != full and renamed_group[s] == renamed_group[full])
    moved[np.flatnonzero(session == full)[0]] = other
    assert differences(old, Plan(moved, renamed_group), same) == (1, 0)

"""Compute the load of each user with a plan, and plans for a network that sends flows without a subscriber.

TH omits flows without a subscriber (§2 (ii), no dummies). A network cannot: its edges send every record that is on the
tape, so an active plan contains every symbol. Those without a subscriber are in one session, the *rest*. It has a
group of its own if that costs less than the group saves for the others; else it is in the group where it affects the
fewest users.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from levelcast.planner.annealing import Effort, Progress
from levelcast.planner.costs import (
    Costs,
    costs,
    costs_of,
    members,
    received_by_user,
    sizes,
)
from levelcast.planner.make import check_numbers, make_plan
from levelcast.planner.model import UNSENT, Floats, Instance, Limits, Plan, PlanError, Weights


@dataclass(frozen=True, slots=True)
class Reach:
    """Load of each user with a plan: messages/s requested, accepted in sessions, and received in groups."""

    asked: Floats
    accepted: Floats
    received: Floats
    sent: float
    """The rate of all subscribed flows: the basis of C_f."""
    sessions: int
    groups: int

    def costs(self, weights: Weights) -> Costs:
        received, accepted, asked = (float(each.sum()) for each in (self.received, self.accepted, self.asked))
        return costs_of(weights, received, accepted, asked, self.sent, len(self.asked))

    @property
    def filtered(self) -> float:
        """Messages/s that reach a user without a request, in total over all users."""
        return float(self.received.sum() - self.asked.sum())


def reach_of(instance: Instance, plan: Plan) -> Reach:
    asked, accepted, received = received_by_user(instance, plan)
    sent = float(instance.rates[instance.wanted].sum())
    return Reach(asked, accepted, received, sent, plan.n_sessions, plan.n_groups)


def one_for_all(instance: Instance) -> Plan:
    """Return the plan of an edge before its first plan: every flow, subscribed or not, in one session of one group."""
    return Plan(np.zeros(instance.n_flows, np.int32), np.zeros(1, np.int32))


def with_rest(instance: Instance, plan: Plan, groups: int) -> Plan:
    """Return the plan with all unassigned flows in one more session, in a free group if there is one."""
    rest = plan.session == UNSENT
    if not rest.any():
        return plan
    session = np.where(rest, plan.n_sessions, plan.session).astype(np.int32)
    if plan.n_groups < groups:
        at = plan.n_groups
    else:
        at = int(sizes(members(instance, plan.flow_group(), plan.n_groups)).argmin())
    return Plan(session, np.append(plan.group, at).astype(np.int32))


def complete_plan(
    instance: Instance,
    sessions: int,
    groups: int,
    *,
    effort: Effort = Effort.FAST,
    weights: Weights = Weights(),  # noqa: B008  (frozen)
    seed: int = 0,
    progress: Progress = lambda *_: None,
    limits: Limits = Limits(),  # noqa: B008  (frozen)
) -> Plan:
    """Return a plan that contains every flow, also without a subscriber, with at most these sessions and groups."""
    check_numbers(sessions, groups)
    make = partial(make_plan, instance, effort=effort, weights=weights, seed=seed, progress=progress, limits=limits)
    if instance.wanted.all():
        return make(sessions, groups)
    if sessions == 1 or not instance.wanted.any():
        return _within(instance, [one_for_all(instance)], limits)[0]
    tries = [min(groups, sessions - 1)]
    if groups > 1 and float(instance.rates[~instance.wanted].sum()) > 0:
        tries.append(min(groups, sessions) - 1)
    found = [with_rest(instance, make(sessions - 1, number), groups) for number in dict.fromkeys(tries)]
    return min(_within(instance, found, limits), key=lambda plan: costs(instance, plan, weights).c_w)


def _within(instance: Instance, plans: list[Plan], limits: Limits) -> list[Plan]:
    """Return the plans whose groups, with the flows that have no subscriber, keep the limit; PlanError if none does."""
    rates = [float(np.bincount(plan.flow_group(), instance.rates).max()) for plan in plans]
    kept = [plan for plan, rate in zip(plans, rates, strict=True) if rate <= limits.group_rate * (1 + 1e-9)]
    if not kept:
        raise PlanError(
            f"a group needs {min(rates):.4g} records/s, and its line carries {limits.group_rate:.4g}; allow more groups"
        )
    return kept

"""Compute the load of each user with a plan, and plans for a network that sends flows without a subscriber.

TH omits flows without a subscriber (§2 (ii), no dummies). A network cannot: its edges send every record that is on the
tape, so an active plan contains every symbol. Those without a subscriber are in one session, the *rest*. It has a
group of its own if that costs less than the group saves for the others; else it is in the group where it affects the
fewest users.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from levelcast.planner.annealing import Effort, Progress
from levelcast.planner.costs import Costs, costs, costs_of, members, received_by_user, sizes
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
    if limits.group_rate < np.inf:
        return _complete_within(instance, sessions, groups, weights, limits.group_rate, make)
    if sessions == 1 or not instance.wanted.any():
        return one_for_all(instance)
    tries = [min(groups, sessions - 1)]
    if groups > 1 and float(instance.rates[~instance.wanted].sum()) > 0:
        tries.append(min(groups, sessions) - 1)
    found = [with_rest(instance, make(sessions - 1, number), groups) for number in dict.fromkeys(tries)]
    return min(found, key=lambda plan: costs(instance, plan, weights).c_w)


def _complete_within(
    instance: Instance, sessions: int, groups: int, weights: Weights, most: float, make: Callable[[int, int], Plan]
) -> Plan:
    """Return a complete plan with at most `most` records/s in each group; flows without a subscriber fill groups."""
    needed = float(instance.rates.sum())
    spare = int(np.ceil(instance.rates[~instance.wanted].sum() / most))
    nothing = Plan(np.full(instance.n_flows, UNSENT, np.int32), np.zeros(0, np.int32))
    found = []
    for left in dict.fromkeys((0, spare, spare + 1)):
        if groups - left < 1 or needed > most * groups:
            continue
        try:
            plan = make(sessions - left, groups - left) if instance.wanted.any() else nothing
        except PlanError:
            continue
        if (filled := _filled(instance, plan, groups, most)) is not None:
            found.append(filled)
    if not found:
        raise PlanError(
            f"the symbols need {needed:.4g} records/s, and {groups:,} groups of {most:.4g} records/s, the rate of "
            "their lines, do not carry them; allow more groups"
        )
    return min(found, key=lambda plan: costs(instance, plan, weights).c_w)


def _filled(instance: Instance, plan: Plan, groups: int, most: float) -> Plan | None:
    """Return the plan with each unassigned flow in a new group or a session with capacity, or None."""
    session, group = plan.session.copy(), plan.group.tolist()
    used = plan.session != UNSENT
    loads = np.bincount(plan.flow_group()[used], instance.rates[used], groups)
    rest = np.flatnonzero(~used)
    for flow in rest[np.argsort(-instance.rates[rest], kind="stable")]:
        fits = [number for number in range(groups) if loads[number] + instance.rates[flow] <= most]
        if not fits:
            return None
        unused = [number for number in fits if number >= plan.n_groups]
        number = (unused or fits)[0]
        if number not in group:
            group.append(number)
        session[flow] = group.index(number)
        loads[number] += instance.rates[flow]
    return Plan(session, np.array(group, np.int32))

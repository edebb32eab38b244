"""Plan within limits, and from an active plan (issue: a move costs every subscriber a re-join).

Limits are capacities of sessions (MS §4.4: a session fits the line of its subscribers) and of groups, flows that must
be in one session and flows that must not. All moves are two-level moves of the kernel, which checks the limits for
each of them.

A re-plan first inserts new flows at the lowest cost, while no old flow moves. Then old items move if a move saves
more than a price per flow. The price falls from round to round until the allowed number of flows has moved, so the
moves with the largest savings are first. With no move allowed, this only adds new symbols and new users.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from levelcast.planner.annealing import Effort, Progress, sweeps_for, unit_of
from levelcast.planner.cluster import ClusterLimits, PlanShape, cluster_both, seed_for
from levelcast.planner.costs import costs
from levelcast.planner.items import join, merge_equal, pin
from levelcast.planner.model import UNSENT, Instance, Ints, Limits, Plan, PlanError, Weights, scattered

_PRICES = 12
"""Rounds of a re-plan: the price of a move falls from a hundred units to 0."""


@dataclass(frozen=True, slots=True)
class Change:
    """A plan, and for each of its sessions and groups the one of the old plan that it continues (UNSENT: a new one)."""

    plan: Plan
    old_session: Ints
    old_group: Ints
    moved: int
    """Number of old flows that are in another session now."""


class Bound:
    """The items of an instance under limits, optionally with the sessions of an older plan."""

    def __init__(
        self, instance: Instance, sessions: int, groups: int, limits: Limits, home: Ints | None, seed: int
    ) -> None:
        self.whole, self.limits, self.seed = instance, limits, seed
        self.sent = np.flatnonzero(instance.wanted)
        flows = instance.subset(self.sent)
        at_home = np.full(len(self.sent), UNSENT, np.int32) if home is None else home[self.sent]
        capped = limits.session_rate < np.inf or limits.group_rate < np.inf
        label = np.arange(len(self.sent), dtype=np.int32) if capped else merge_equal(flows, at_home + 1)
        place = scattered(instance.n_flows, self.sent, np.arange(len(self.sent)))
        pairs = [(int(place[a]), int(place[b])) for a, b in limits.apart if place[a] >= 0 and place[b] >= 0]
        label = _single_out(label, {flow for pair in pairs for flow in pair})
        self.item_of = pin(label, [[int(place[k]) for k in flows if place[k] >= 0] for flows in limits.together])
        self.items = join(flows, self.item_of)
        n = self.items.n_flows
        self.weight = np.bincount(self.item_of, minlength=n).astype(np.int32)
        self.home = scattered(n, self.item_of, at_home)
        self.rules = ClusterLimits(limits.session_rate, limits.group_rate)
        apart = np.array([(self.item_of[a], self.item_of[b]) for a, b in pairs], np.int64).reshape(-1, 2)
        if (apart[:, 0] == apart[:, 1]).any():
            raise PlanError("two flows are pinned together and apart")
        self.rules.set_apart(n, apart)
        self.n_sessions, self.n_groups = sessions, groups
        self._check_room()

    def _check_room(self) -> None:
        most = min(self.limits.session_rate, self.limits.group_rate)
        fastest = float(self.items.rates.max(initial=0))
        if fastest > most:
            raise PlanError(f"a flow, or a set pinned together, has a rate of {fastest:g}, above the limit of {most:g}")
        room = min(self.limits.session_rate * self.n_sessions, self.limits.group_rate * self.n_groups)
        if float(self.items.rates.sum()) > room:
            raise PlanError(
                f"the flows have a total rate of {float(self.items.rates.sum()):g}, but {self.n_sessions:,} sessions "
                f"in {self.n_groups:,} groups within these limits carry {room:g}"
            )

    def search(self, weights: Weights, effort: Effort, report: Progress) -> Plan:
        """Return a new plan within the limits."""
        shape = PlanShape(
            self.n_sessions, self.n_groups, min(self.n_sessions, 2 * self.n_sessions // self.n_groups + 64)
        )
        slot = np.full(self.items.n_flows, UNSENT, np.int32)
        sweeps = max(sweeps_for(self.items, effort) // 8, 4)
        cooling = np.geomspace(0.1, 0.003, sweeps) * unit_of(self.items, weights)
        parts = [np.zeros(1), *np.array_split(cooling, min(10, sweeps)), np.zeros(20)]
        for step, part in enumerate(parts):
            cluster_both(self.items, slot, shape, weights, seed_for(self.seed, step), part, self.rules)
            if (slot >= 0).all():
                report((step + 1) / len(parts), costs(self.whole, self._plan(shape, slot), weights).relative)
        self._require_all_placed(slot)
        return self._plan(shape, slot)

    def replan(self, shape: PlanShape, max_moved: int, weights: Weights, report: Progress) -> Ints:
        """Return each item's slot, with at most `max_moved` flows in another session than before."""
        slot, rules = self.home.copy(), self.rules
        rules.home, rules.weight = self.home, self.weight
        rules.budget = 0
        cluster_both(self.items, slot, shape, weights, seed_for(self.seed, 0), np.zeros(3), rules)
        self._require_all_placed(slot)
        rules.budget = max_moved
        prices = [*np.geomspace(100, 0.001, _PRICES - 1), 0.0] if max_moved else []
        for step, price in enumerate(prices):
            rules.penalty = float(price) * unit_of(self.items, weights) / max(1, self.whole.n_users)
            cluster_both(self.items, slot, shape, weights, seed_for(self.seed, 1 + step), np.zeros(10), rules)
            report((step + 1) / _PRICES, costs(self.whole, self._plan(shape, slot), weights).relative)
        return slot

    def _require_all_placed(self, slot: Ints) -> None:
        if lost := int((slot < 0).sum()):
            raise PlanError(f"{lost:,} flows do not fit within the limits; allow more sessions or higher rates")

    def _plan(self, shape: PlanShape, slot: Ints) -> Plan:
        return shape.plan_of(self.spread(slot))

    def spread(self, slot: Ints) -> Ints:
        """Map items to all flows."""
        return scattered(self.whole.n_flows, self.sent, slot[self.item_of])


def replan(
    instance: Instance,
    old: Plan,
    sessions: int,
    groups: int,
    max_moved: int,
    weights: Weights,
    limits: Limits,
    seed: int,
    report: Progress,
) -> Change:
    """Return a better plan from `old`, with its `session` for this instance's flows (UNSENT: not in the old plan)."""
    if old.n_sessions > sessions or old.n_groups > groups:
        raise PlanError(
            f"the old plan has {old.n_sessions:,} sessions in {old.n_groups:,} groups, but only {sessions:,} and "
            f"{groups:,} are allowed"
        )
    shape = PlanShape(sessions, groups, int(np.bincount(old.group, minlength=1).max()) + 8)
    slots_of_old = shape.slot_of(np.arange(old.n_sessions, dtype=np.int32), old.group)
    home = Plan(old.session, slots_of_old).flow_group()
    bound = Bound(instance, sessions, groups, limits, home, seed)
    slot = bound.spread(bound.replan(shape, max_moved, weights, report))
    used = np.unique(slot[slot >= 0])
    old_of_slot = scattered(shape.groups * shape.slots, slots_of_old, np.arange(old.n_sessions))
    group_slots, group = np.unique(used // shape.slots, return_inverse=True)
    session = np.where(slot >= 0, np.searchsorted(used, slot), UNSENT).astype(np.int32)
    stays = (slot >= 0) & (home >= 0)
    return Change(
        Plan(session, group.astype(np.int32)),
        old_of_slot[used],
        np.where(group_slots < old.n_groups, group_slots, UNSENT).astype(np.int32),
        int((slot[stays] != home[stays]).sum()),
    )


def _single_out(label: Ints, flows: set[int]) -> Ints:
    """Return the same classes, but with each of these flows in a class by itself."""
    apart = label.astype(np.int64)
    for offset, flow in enumerate(sorted(flows)):
        apart[flow] = len(label) + offset
    return np.unique(apart, return_inverse=True)[1].astype(np.int32)


def differences(a: Plan, b: Plan, common: npt.NDArray[np.integer]) -> tuple[int, int]:
    """Return how many of the flows `common` (rows of a's and b's numbers) are in another session and in another group.

    Session numbers of two plans are unrelated: each session of b continues the session of a with the largest number of
    common flows, if no other session of b has more in common with it.
    """
    x, y = a.session[common[:, 0]], b.session[common[:, 1]]
    both = (x >= 0) & (y >= 0)
    x, y = x[both], y[both]
    return _unmatched(x, y), _unmatched(a.group[x], b.group[y])


def _unmatched(x: Ints, y: Ints) -> int:
    if not len(x):
        return 0
    cells, count = np.unique(np.stack([x, y]), axis=1, return_counts=True)
    taken_x: set[int] = set()
    taken_y: set[int] = set()
    kept = 0
    for at in np.argsort(-count, kind="stable"):
        i, j = int(cells[0, at]), int(cells[1, at])
        if i not in taken_x and j not in taken_y:
            taken_x.add(i)
            taken_y.add(j)
            kept += int(count[at])
    return len(x) - kept

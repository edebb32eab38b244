"""Levelcast's own planner: annealing by heat-bath moves on the exact cost of both levels.

1. Flows with equal columns become one item (`items`).
2. With many sessions per group, *groups first*: items are inserted greedily into empty groups and annealed on C_1
   alone, which then has nearly all of the excess. (A random start fails at scale: every group has every user already,
   and no move gains anything.) Within the groups items are merged, the cheapest pair of all groups first, until the
   allowed number of sessions is left: they are spread over the groups by need, not evenly.
3. With fewer, *sessions first*: the same for the sessions on C_2, and then for the sessions as items on C_1.
4. *Both*: annealing continues with moves of an item to any session of any group, by their exact cost on both levels,
   C_w(after) − C_w(before). A session that becomes empty may start again in another group.

The unit of temperature is the average cost of an item under flooding. Effort is a number of kernel steps, not of
seconds, so the same seed gives the same plan regardless of the load of the machine.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

import numpy as np

from levelcast.native import planner
from levelcast.planner.cluster import PlannerRun, PlanShape, cluster, cluster_both
from levelcast.planner.costs import costs, members, product, rates_of, sizes
from levelcast.planner.items import as_items, join, merge_equal
from levelcast.planner.model import UNSENT, Floats, Instance, Ints, Plan, Weights, scattered

Progress = Callable[[float, float], None]
"""Called with the fraction of the work done and the current C_x / C_f."""


class Effort(enum.StrEnum):
    """Length of the search: about a second, ten seconds, and a minute for TH's benchmark."""

    FAST = "fast"
    BALANCED = "balanced"
    BEST = "best"


_STEPS = {Effort.FAST: 5e7, Effort.BALANCED: 5e8, Effort.BEST: 2e9}
"""Kernel steps: pairs of item and user visited, plus `_VISIT` for each visit of an item."""
_VISIT = 20
_FEWEST, _MOST = 6, {Effort.FAST: 1_000, Effort.BALANCED: 6_000, Effort.BEST: 40_000}
"""Minimum and maximum visits of each item at the first level."""
_CHUNKS = 20
"""Number of progress reports: each restarts the kernel, which is cheap from ten rounds on."""
_MERGE_PAIRS = 1e7
"""Maximum number of pairs to merge (for 256 users; fewer for more); larger sets of items are clustered first."""
_MICRO = 1.5
"""Initial clusters for merging, per session, if there are too many items."""
_JOINT_BYTES = 1 << 25
"""Maximum state size of step 4; above it the cache misses, and sessions are refined group by group."""
_SESSIONS_FIRST, _FEW_SESSIONS = 12, 150
"""Below this number of sessions per group, and up to that number in total, sessions are clustered first."""


def sweeps_for(items: Instance, effort: Effort) -> int:
    """Return the number of visits of each item at the first level."""
    steps = len(items.users) + _VISIT * items.n_flows
    return int(np.clip(_STEPS[effort] / max(steps, 1), _FEWEST, _MOST[effort]))


def unit_of(items: Instance, weights: Weights = Weights()) -> float:  # noqa: B008  (frozen)
    """Return the average cost of an item at one level under flooding: the unit of temperature."""
    rate = float(items.rates.sum()) / max(items.n_flows, 1)
    return rate * items.n_users * (weights.alpha + weights.beta) / 2


def cooling_for(items: Instance, clusters: int, sweeps: int) -> Floats:
    """Return a geometric schedule. Long runs start hot; short ones keep the greedy start. Few clusters melt later."""
    hot = min(0.5, 0.03 * (sweeps / 10) ** 0.65) * float(np.clip(50 / clusters, 0.1, 10)) ** 1.4
    return np.geomspace(hot, min(0.01, hot / 10), sweeps) * unit_of(items)


class Search(PlannerRun):
    """One search on one instance, without limits (`constrained` has those)."""

    def __init__(self, instance: Instance, sessions: int, groups: int, weights: Weights, seed: int) -> None:
        super().__init__(instance, sessions, groups, weights, seed)
        self.item_of = merge_equal(self.flows)
        self.items = join(self.flows, self.item_of)
        n = max(self.items.n_flows, 1)
        self.n_sessions, self.n_groups = min(sessions, n), min(groups, n)

    def run(self, effort: Effort, report: Progress) -> Plan:
        if not self.items.n_flows:
            return Plan(np.full(self.whole.n_flows, UNSENT, np.int32), np.empty(0, np.int32))
        sweeps = sweeps_for(self.items, effort)
        few = self.n_groups < self.n_sessions < min(_SESSIONS_FIRST * self.n_groups, _FEW_SESSIONS)
        session, group = (self.sessions_first if few else self.groups_first)(sweeps, report)
        shape, slot = self.shaped(session, group)
        report(0.5, costs(self.whole, self.plan(shape, slot), self.weights).relative)
        if self.items.n_users * shape.groups * shape.slots <= _JOINT_BYTES:
            self.both(slot, shape, (0.1, 0.001, sweeps // 4) if few else (0.01, 0.001, sweeps // 8), report)
        else:
            self.refine(slot, shape, sweeps // 8)
        plan = self.plan(shape, slot)
        report(1.0, costs(self.whole, plan, self.weights).relative)
        return plan

    # -- the first level --------------------------------------------------------------------------------------------

    def groups_first(self, sweeps: int, report: Progress) -> tuple[Ints, Ints]:
        """Return each item's session, and each session's group."""
        group = self.anneal(self.items, self.n_groups, sweeps, report)
        session = self.split(group)
        group_of = np.empty(int(session.max()) + 1, np.int32)
        group_of[session] = group
        return session, group_of

    def sessions_first(self, sweeps: int, report: Progress) -> tuple[Ints, Ints]:
        session = self.anneal(self.items, self.n_sessions, sweeps, report)
        streams = as_items(self.items, session, self.n_sessions)
        tries = [self.anneal(streams, self.n_groups, 300, lambda *_: None) for _ in range(5)]
        return session, min(tries, key=lambda group: _excess(streams, group, self.n_groups))

    def anneal(self, items: Instance, clusters: int, sweeps: int, report: Progress) -> Ints:
        """Anneal one level, from greedy insertion to a cold end."""
        label = np.full(items.n_flows, UNSENT, np.int32)
        unlike = float(self.weights.alpha + self.weights.beta)
        flooding = costs(self.whole, _one_group(self.whole), self.weights).c_f or 1.0
        for share, part in _in_chunks(np.append(cooling_for(items, clusters, sweeps), np.zeros(2))):
            cluster(items, label, clusters, self._next_seed(), part)
            report(share / 2, unlike * _excess(items, label, clusters) / flooding)
        return label

    def split(self, group: Ints) -> Ints:
        """Return each item's session, for known groups."""
        small = np.arange(self.items.n_flows, dtype=np.int32)
        in_group = np.bincount(group, minlength=self.n_groups).astype(np.int64)
        if (in_group**2).sum() * max(1, self.items.n_users // 256) > _MERGE_PAIRS:
            small = self.micro(group)
        count = int(small.max()) + 1
        into, group_of = np.empty(count, np.int32), np.empty(count, np.int32)
        group_of[small] = group
        planner.merge_down(
            members(self.items, small, count),
            rates_of(self.items, small, count),
            group_of,
            self.items.n_users,
            self.n_groups,
            self.n_sessions,
            into,
        )
        return np.unique(into[small], return_inverse=True)[1].astype(np.int32)

    def micro(self, group: Ints) -> Ints:
        """Return somewhat more clusters than allowed sessions, by greedy insertion, with more in groups with excess."""
        excess = rates_of(self.items, group, self.n_groups) * sizes(members(self.items, group, self.n_groups))
        excess -= np.bincount(group, self.items.rates * self.items.degrees, self.n_groups)
        room = (_MICRO * self.n_sessions * excess / max(excess.sum(), 1e-300)).astype(np.int64) + 2
        label = np.full(self.items.n_flows, UNSENT, np.int32)
        for g in range(self.n_groups):
            items = np.flatnonzero(group == g).astype(np.int32)
            if len(items):
                cluster(self.items, label, min(int(room[g]), len(items)), self._next_seed(), np.zeros(1), items=items)
        distinct = np.unique(group * np.int64(room.max()) + label, return_inverse=True)[1]
        return np.asarray(distinct, np.int32)

    # -- both levels ------------------------------------------------------------------------------------------------

    def shaped(self, session: Ints, group: Ints) -> tuple[PlanShape, Ints]:
        """Return the sessions as slots, with free slots for a few more in any group."""
        shape = PlanShape(self.n_sessions, self.n_groups, (int(np.bincount(group).max()) + 8 + 63) // 64 * 64)
        return shape, shape.slot_of(session, group)

    def both(self, slot: Ints, shape: PlanShape, schedule: tuple[float, float, int], report: Progress) -> None:
        hot, cold, sweeps = schedule
        cooling = np.geomspace(hot, cold, max(sweeps, 3)) * unit_of(self.items, self.weights)
        for share, part in _in_chunks(np.append(cooling, np.zeros(3))):
            cluster_both(self.items, slot, shape, self.weights, self._next_seed(), part)
            report(0.5 + share / 2, costs(self.whole, self.plan(shape, slot), self.weights).relative)

    def refine(self, slot: Ints, shape: PlanShape, sweeps: int) -> None:
        """Refine the sessions of one group at a time, for large instances."""
        group = (slot // shape.slots).astype(np.int32)
        users = sizes(members(self.items, group, shape.groups))
        for g in range(shape.groups):
            items = np.flatnonzero(group == g).astype(np.int32)
            if not len(items):
                continue
            used, local = np.unique(slot[items], return_inverse=True)
            label = scattered(len(slot), items, local)
            unit = float(self.items.rates[items].sum()) * float(users[g]) / len(items)
            cooling = np.geomspace(0.03, 0.003, sweeps) * unit
            cluster(self.items, label, len(used), self._next_seed(), np.append(cooling, [0.0, 0.0]), items=items)
            slot[items] = used[label[items]]

    def plan(self, shape: PlanShape, slot: Ints) -> Plan:
        """Map items back to flows."""
        return shape.plan_of(scattered(self.whole.n_flows, self.sent, slot[self.item_of]))


def _in_chunks(temperatures: Floats) -> list[tuple[float, Floats]]:
    """Split a schedule into parts, each with the fraction that is done after it."""
    parts = np.array_split(temperatures, min(_CHUNKS, max(1, len(temperatures) // 10)))
    done = np.cumsum([len(part) for part in parts]) / len(temperatures)
    return list(zip(done.tolist(), parts, strict=True))


def _excess(items: Instance, label: Ints, clusters: int) -> float:
    """Return the excess rate for the users of the clusters: C_x of one level without its weight."""
    received = product(rates_of(items, label, clusters), sizes(members(items, label, clusters)))
    return received - product(items.rates, items.degrees)


def _one_group(instance: Instance) -> Plan:
    """Return the plan of flooding."""
    wanted = instance.wanted
    return Plan(np.where(wanted, 0, UNSENT).astype(np.int32), np.zeros(int(wanted.any()), np.int32))

"""Clustering of items: the K-means of TH §4.2 with distance (8), and the same walk with a temperature.

One kernel implements both. At temperature 0 it is the paper's K-means: a point leaves its cluster, is compared with
all of them, and moves to the closest (in a tie, it stays), until a pass moves none. Above 0 the cluster is drawn by
the heat bath. With points that have no cluster yet, one pass is greedy insertion.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from levelcast.native import planner
from levelcast.planner.model import Floats, Instance, Ints, Longs, Plan, Weights, tidy

_NO_INTS = np.empty(0, np.int32)
_NO_LONGS = np.empty(0, np.int64)
_NO_CAP = 1e300
MAX_PASSES = 200
"""K-means stops by itself after about thirty passes; this is a bound for adversarial inputs."""

COLD = np.zeros(MAX_PASSES)


def seed_for(seed: int, step: int) -> int:
    """Return a kernel seed for one step of an algorithm."""
    return int(np.random.SeedSequence([seed, step]).generate_state(1, np.uint64)[0])


class PlannerRun:
    """One run of an algorithm on the subscribed flows, with a kernel seed for each step."""

    def __init__(self, instance: Instance, sessions: int, groups: int, weights: Weights, seed: int) -> None:
        self.whole, self.weights = instance, weights
        self.sent = np.flatnonzero(instance.wanted)
        self.flows = instance.subset(self.sent)
        self.n_sessions, self.n_groups = sessions, groups
        self.seed, self.steps = seed, 0

    def _next_seed(self) -> int:
        self.steps += 1
        return seed_for(self.seed, self.steps)


@dataclass(frozen=True, slots=True)
class PlanShape:
    """Maximum numbers of sessions and groups; group g has the slots g·slots, g·slots + 1, … for sessions."""

    sessions: int
    groups: int
    slots: int

    def slot_of(self, session: Ints, group: Ints) -> Ints:
        """Return a plan's sessions as slots."""
        order = np.argsort(group, kind="stable")
        within = np.arange(len(group)) - np.searchsorted(group[order], group[order])
        slot = np.empty(len(group), np.int32)
        slot[order] = group[order] * self.slots + within
        return Plan(session, slot).flow_group()

    def plan_of(self, slot: Ints) -> Plan:
        """Return the plan of the used sessions, renumbered."""
        return tidy(slot, np.arange(self.groups * self.slots) // self.slots)


class ClusterLimits:
    """Limits of a two-level run: capacities, items to keep apart, and the maximum weight that may leave its slot."""

    def __init__(self, session_rate: float = _NO_CAP, group_rate: float = _NO_CAP) -> None:
        self.session_rate = min(session_rate, _NO_CAP)
        self.group_rate = min(group_rate, _NO_CAP)
        self.apart_start: Longs = _NO_LONGS
        self.apart: Ints = _NO_INTS
        self.home: Ints = _NO_INTS
        self.weight: Ints = _NO_INTS
        self.penalty = 0.0
        self.budget = 0

    def set_apart(self, n_items: int, pairs: npt.NDArray[np.integer]) -> None:
        """Keep the items of each pair in different sessions."""
        if len(pairs):
            both = np.concatenate([pairs, pairs[:, ::-1]])
            both = both[np.argsort(both[:, 0], kind="stable")]
            self.apart_start = np.searchsorted(both[:, 0], np.arange(n_items + 1)).astype(np.int64)
            self.apart = np.ascontiguousarray(both[:, 1], np.int32)


def cluster_both(
    instance: Instance,
    slot: Ints,
    shape: PlanShape,
    weights: Weights,
    seed: int,
    temperatures: Floats = COLD,
    rules: ClusterLimits | None = None,
    items: Ints | None = None,
) -> int:
    """Cluster both levels together, by the exact cost of a move: improve `slot` directly, only for `items` if given.
    Return the number of moves in the last pass."""
    bound = rules or ClusterLimits()
    moved: int = planner.anneal(
        instance.start,
        instance.users,
        instance.rates,
        np.arange(instance.n_flows, dtype=np.int32) if items is None else items,
        slot,
        instance.n_users,
        shape.groups,
        shape.slots,
        shape.sessions,
        weights.alpha,
        weights.beta,
        temperatures,
        seed,
        bound.session_rate,
        bound.group_rate,
        bound.apart_start,
        bound.apart,
        bound.home,
        bound.weight,
        bound.penalty,
        bound.budget,
    )
    return moved


def cluster(
    instance: Instance, label: Ints, clusters: int, seed: int, temperatures: Floats = COLD, items: Ints | None = None
) -> int:
    """Cluster one level: improve `label`, only for `items` if given; return the number of moves in the last pass."""
    shape = PlanShape(clusters, 1, clusters)
    return cluster_both(instance, label, shape, Weights(0.0, 1.0), seed, temperatures, items=items)

"""The planning problem: flows with rates, users with interest, and the weights of filtering (TH §2, §3.2).

An `Instance` is TH's λ and W in sparse form: for each flow the users that want it, V_k of TH §4.1. A `Plan` is X and Y:
each flow's session and each session's group. Z and P need not be stored: without duplication the subscription problem
has one solution (TH §2). A user accepts the sessions with one of its flows and the groups with such a session.

An *item* is the unit that a clustering moves: a rate and a set of users. A flow is an item; so is a session (TH
clusters sessions like flows), a set of flows that are pinned together, and all flows with the same users.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from levelcast.errors import UserError

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint64]

UNSENT = -1
"""The session of a flow that is not sent, because it has no subscriber."""


class PlanError(UserError):
    """Error: no such plan is possible, with a one-line message."""


@dataclass(frozen=True, slots=True)
class Instance:
    """Items with their rates λ and their users: those of item k are `users[start[k]:start[k + 1]]`, ascending."""

    rates: Floats
    start: Longs
    users: Ints
    n_users: int

    @property
    def n_flows(self) -> int:
        return len(self.rates)

    @property
    def degrees(self) -> Longs:
        """Return |V_k|: the number of users of each item."""
        return np.diff(self.start)

    @property
    def wanted(self) -> npt.NDArray[np.bool_]:
        """Return TH's I_k: True for items with a user."""
        return self.degrees > 0

    def subset(self, items: npt.NDArray[np.integer]) -> Instance:
        """Return only these items, in this order."""
        degrees = self.degrees[items]
        start = np.concatenate(([0], np.cumsum(degrees))).astype(np.int64)
        at = np.repeat(self.start[items] - start[:-1], degrees) + np.arange(start[-1])
        return Instance(self.rates[items], start, self.users[at], self.n_users)

    def matrix(self) -> npt.NDArray[np.uint8]:
        """Return W itself, one row per user: for small instances."""
        dense = np.zeros((self.n_users, self.n_flows), np.uint8)
        dense[self.users, np.repeat(np.arange(self.n_flows), self.degrees)] = 1
        return dense


def from_pairs(
    rates: npt.ArrayLike, users: npt.NDArray[np.integer], flows: npt.NDArray[np.integer], n_users: int
) -> Instance:
    """Return the instance in which `users[i]` wants `flows[i]`. Each pair must be unique."""
    checked = np.ascontiguousarray(rates, np.float64)
    if not np.isfinite(checked).all() or (checked < 0).any():
        raise PlanError("a rate is negative or not a number")
    n_flows, n = len(checked), max(n_users, 1)
    if len(flows) and (flows.min() < 0 or flows.max() >= n_flows or users.min() < 0 or users.max() >= n_users):
        raise PlanError("a pair contains an unknown user or flow")
    keys = flows.astype(np.int64) * n + users  # one sort of one array: the fastest that numpy has
    keys.sort()
    if (keys[1:] == keys[:-1]).any():
        flow, user = divmod(int(keys[:-1][keys[1:] == keys[:-1]][0]), n)
        raise PlanError(f"the pair of user {user} and flow {flow} is duplicated")
    start = np.searchsorted(keys, np.arange(n_flows + 1, dtype=np.int64) * n)
    keys %= n
    return Instance(checked, start.astype(np.int64), keys.astype(np.int32), n_users)


def scattered(size: int, at: npt.NDArray[Any], values: npt.NDArray[np.integer]) -> Ints:
    """Return an array with these values at these positions, and UNSENT elsewhere."""
    whole = np.full(size, UNSENT, np.int32)
    whole[at] = values
    return whole


@dataclass(frozen=True, slots=True)
class Plan:
    """X as `session[k]` (UNSENT: not sent) and Y as `group[l]`."""

    session: Ints
    group: Ints

    @property
    def n_sessions(self) -> int:
        return len(self.group)

    @property
    def n_groups(self) -> int:
        return int(self.group.max()) + 1 if len(self.group) else 0

    def flow_group(self) -> Ints:
        """Return each flow's group, or UNSENT."""
        sent = self.session >= 0
        return scattered(len(sent), sent, self.group[self.session[sent]])


def tidy(session: npt.NDArray[np.integer], group: npt.NDArray[np.integer]) -> Plan:
    """Return a plan without empty sessions and groups (TH §2 (ii)), numbered in the order of their lowest flow."""
    sent = session >= 0
    labels = _by_first(session[sent])
    group_labels = np.empty(0, np.int32)
    if sent.any():
        of_session = np.empty(int(labels.max()) + 1, np.int64)
        of_session[labels] = group[session[sent]]
        group_labels = _by_first(of_session)
    return Plan(scattered(len(session), sent, labels), group_labels)


def _by_first(labels: npt.NDArray[np.integer]) -> Ints:
    """Return the same classes, numbered by first appearance."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int32)
    rank[np.argsort(first)] = np.arange(len(first), dtype=np.int32)
    return rank[inverse]


_CURVE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(?:\+\s*(\d+(?:\.\d+)?)\s*/\s*h)?\s*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Curve:
    """TH (2) and (4): the cost of a message, as fixed + per_packet / h with h messages per packet."""

    fixed: float
    per_packet: float = 0.0

    def at(self, aggregation: float) -> float:
        return self.fixed + self.per_packet / aggregation

    @classmethod
    def parse(cls, text: str) -> Curve:
        """Parse `1`, or `0.4+4.8/h`."""
        match = _CURVE.fullmatch(text)
        if match is None:
            raise PlanError(f'"{text}" is neither a number nor of the form 0.4+4.8/h')
        return cls(float(match[1]), float(match[2] or 0))


@dataclass(frozen=True, slots=True)
class Weights:
    """α(h) and β(h) at the h in use: the cost of dropping a message by its session, and by its flow."""

    alpha: float = 1.0
    beta: float = 1.0

    def __post_init__(self) -> None:
        if not (0 <= self.alpha < float("inf") and 0 <= self.beta < float("inf") and self.alpha + self.beta > 0):
            raise PlanError("alpha and beta must be numbers of at least 0, and not both 0")


@dataclass(frozen=True, slots=True)
class Limits:
    """Additional limits of a plan (MS §4.4: a session fits the line of its subscribers), in units of the rates."""

    session_rate: float = float("inf")
    group_rate: float = float("inf")
    together: tuple[tuple[int, ...], ...] = field(default=())
    """Sets of flows that must be in one session."""
    apart: tuple[tuple[int, int], ...] = field(default=())
    """Pairs of flows that must be in different sessions."""

    @property
    def none(self) -> bool:
        return self == Limits()

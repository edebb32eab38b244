"""Compute the exact cost of a plan (TH §3, §5.3), and check that it is legal (TH §2).

With the subscriptions that follow from X and Y, the sums (1) and (3) need only the number of users of each group and
session: C_1 = α·Σ_m Θ_m·|P_m| and C_2 = β·Σ_l θ_l·|C_l|, where Θ_m is the rate of all sessions of group m. The excess
C_x is C_w minus the rate that the users requested, and C_f is the excess of flooding. Where the paper is unspecific:
unicast factor and goodput count, like C_f, only subscribed flows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from levelcast.native import planner
from levelcast.planner.model import UNSENT, Floats, Instance, Ints, Limits, Longs, Plan, PlanError, Weights, Words

_ONES = np.array([byte.bit_count() for byte in range(256)], np.uint8)


@dataclass(frozen=True, slots=True)
class Costs:
    """C_1, C_2, C_w, C_x, C_f and the measures of TH §5.3."""

    c_1: float
    c_2: float
    c_w: float
    c_x: float
    c_f: float
    goodput: float
    """The fraction of the messages that reach a user's machine and that the user requested."""
    flooding_goodput: float
    unicast_factor: float
    """Mean number of transmissions of a message by unicast."""

    @property
    def relative(self) -> float:
        """C_x / C_f, the measure of quality: 0 is unicast, 1 is flooding."""
        return self.c_x / self.c_f if self.c_f else 0.0


def members(instance: Instance, label: Ints, clusters: int) -> Words:
    """Return the users of each cluster (TH (7)) as bits, 64 in a word: one row per cluster."""
    bits = np.zeros((clusters, (instance.n_users + 63) // 64), np.uint64)
    planner.members(instance.start, instance.users, label, instance.n_users, bits)
    return bits


def sizes(bits: Words) -> Longs:
    """Return the number of users of each row."""
    return np.asarray(_ONES[bits.view(np.uint8)].sum(axis=1), np.int64)


def product(rates: Floats, counts: Longs) -> float:
    """Return their inner product; not by BLAS: its threads may add in another order on another machine."""
    return float((rates * counts).sum())


def rates_of(instance: Instance, label: Ints, clusters: int) -> Floats:
    """Return θ = λ·X."""
    placed = label >= 0
    return np.asarray(np.bincount(label[placed], instance.rates[placed], clusters), np.float64)


def costs(instance: Instance, plan: Plan, weights: Weights = Weights()) -> Costs:  # noqa: B008  (frozen)
    """Compute all costs from the definitions."""
    flow_group, n_groups = plan.flow_group(), plan.n_groups
    theta = rates_of(instance, plan.session, plan.n_sessions)
    group_rate = rates_of(instance, flow_group, n_groups)
    received = product(group_rate, sizes(members(instance, flow_group, n_groups)))
    accepted = product(theta, sizes(members(instance, plan.session, plan.n_sessions)))
    wanted = product(instance.rates, instance.degrees)
    sent = float(instance.rates[instance.wanted].sum())
    return costs_of(weights, received, accepted, wanted, sent, instance.n_users)


def costs_of(weights: Weights, received: float, accepted: float, wanted: float, sent: float, n_users: int) -> Costs:
    """Compute the costs from total rates: received in groups, accepted in sessions, requested, and sent."""
    alpha, beta = weights.alpha, weights.beta
    c_1, c_2 = alpha * received, beta * accepted
    return Costs(
        c_1=c_1,
        c_2=c_2,
        c_w=c_1 + c_2,
        c_x=alpha * (received - wanted) + beta * (accepted - wanted),
        c_f=(alpha + beta) * (sent * n_users - wanted),
        goodput=wanted / received if received else 1.0,
        flooding_goodput=wanted / (sent * n_users) if sent and n_users else 1.0,
        unicast_factor=wanted / sent if sent else 0.0,
    )


def relative_cost(instance: Instance, plan: Plan, weights: Weights = Weights()) -> float:  # noqa: B008  (frozen)
    """Return C_x / C_f."""
    return costs(instance, plan, weights).relative


def received_by_user(instance: Instance, plan: Plan) -> tuple[Floats, Floats, Floats]:
    """Return, for each user, the rate requested, the rate of the accepted sessions, and that of the joined groups."""
    n = instance.n_users
    asked = np.asarray(np.bincount(instance.users, np.repeat(instance.rates, instance.degrees), n), np.float64)
    return asked, _heard(instance, plan.session, plan.n_sessions), _heard(instance, plan.flow_group(), plan.n_groups)


def _heard(instance: Instance, label: Ints, clusters: int) -> Floats:
    total = np.zeros(instance.n_users)
    for bits, rate in zip(members(instance, label, clusters), rates_of(instance, label, clusters), strict=True):
        total += rate * np.unpackbits(bits.view(np.uint8), bitorder="little", count=instance.n_users)
    return total


def fault(instance: Instance, plan: Plan, limits: Limits = Limits()) -> str | None:  # noqa: B008  (frozen)
    """Return the reason why a plan is not legal, in one line, or None. A plan with a fault is not written."""
    if len(plan.session) != instance.n_flows:
        return f"the plan has {len(plan.session):,} flows and the instance {instance.n_flows:,}"
    return fault_of_maps(plan, instance.wanted) or _over_limits(instance, plan, limits)


def fault_of_maps(plan: Plan, wanted: npt.NDArray[np.bool_] | None = None) -> str | None:
    """Check the rules of TH §2 only; without `wanted`, all flows are subscribed."""
    sought = np.ones(len(plan.session), bool) if wanted is None else wanted
    if len(plan.session) and (plan.session.min() < UNSENT or plan.session.max() >= plan.n_sessions):
        return "a flow is in a session that has no group"
    if len(plan.group) and plan.group.min() < 0:
        return "a session is not in any group"
    lost = sought & (plan.session < 0)
    if lost.any():  # (i) no false exclusion
        return f"{int(lost.sum()):,} subscribed flows are not in any session"
    listened = np.zeros(plan.n_sessions, bool)
    listened[plan.session[sought]] = True
    if not listened.all():  # (ii) no dummies
        return f"session {int(np.argmin(listened))} is empty or has no subscriber"
    if not np.isin(np.arange(plan.n_groups), plan.group).all():
        return "a group has no session"
    return None


def _over_limits(instance: Instance, plan: Plan, limits: Limits) -> str | None:
    def above(rate: Floats, most: float, what: str) -> str | None:
        over = np.flatnonzero(rate > most * (1 + 1e-9))
        return f"{what} {over[0]} has a rate of {rate[over[0]]:.6g}, above the limit of {most:g}" if len(over) else None

    at = plan.session
    parted = [flows for flows in limits.together if len({int(at[k]) for k in flows if at[k] >= 0}) > 1]
    joined = [pair for pair in limits.apart if at[pair[0]] == at[pair[1]] >= 0]
    return (
        above(rates_of(instance, at, plan.n_sessions), limits.session_rate, "session")
        or above(rates_of(instance, plan.flow_group(), plan.n_groups), limits.group_rate, "group")
        or (f"flows {parted[0]} are pinned together and in different sessions" if parted else None)
        or (f"flows {joined[0]} are pinned apart and in one session" if joined else None)
    )


def require_legal(instance: Instance, plan: Plan, limits: Limits = Limits()) -> Plan:  # noqa: B008  (frozen)
    """Return the plan, or raise PlanError."""
    if (wrong := fault(instance, plan, limits)) is not None:
        raise PlanError(f"the plan is not legal: {wrong}")
    return plan

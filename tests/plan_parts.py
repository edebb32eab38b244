"""Instances for the planner's tests, and TH's equations as they stand in the paper."""

from __future__ import annotations

import numpy as np

from levelcast.planner.generator import Model
from levelcast.planner.model import Instance, Plan, from_pairs

SMALL = Model(flows=600, users=24, markets=4, share_taken=0.05)
"""TH §5.1's model, small enough for a test."""


def random_instance(seed: int, flows: int = 12, users: int = 8, density: float = 0.3) -> Instance:
    random = np.random.default_rng(seed)
    interest = random.random((users, flows)) < density
    at_user, at_flow = np.nonzero(interest)
    return from_pairs(random.exponential(size=flows), at_user, at_flow, users)


def random_plan(seed: int, instance: Instance, sessions: int, groups: int) -> Plan:
    """Any labels, empty sessions among them."""
    random = np.random.default_rng(seed)
    session = random.integers(sessions, size=instance.n_flows).astype(np.int32)
    session[~instance.wanted] = -1
    return Plan(session, random.integers(groups, size=sessions).astype(np.int32))


def transcribed(instance: Instance, plan: Plan, alpha: float, beta: float) -> dict[str, float]:
    """C_1, C_2, C_x and C_f, letter by letter: TH (1), (3), §3.2 and §5.3, with X, Y, Z, P and W as matrices."""
    w = instance.matrix()
    n_users, n_flows = w.shape
    lam = instance.rates
    n_sessions, n_groups = plan.n_sessions, plan.n_groups
    x = np.array([[int(plan.session[k] == s) for s in range(n_sessions)] for k in range(n_flows)])
    y = np.array([[int(plan.group[s] == m) for m in range(n_groups)] for s in range(n_sessions)])
    wants = [[any(w[n, k] and x[k, s] for k in range(n_flows)) for s in range(n_sessions)] for n in range(n_users)]
    z = np.array(wants, int).reshape(n_users, n_sessions)
    p = ((z @ y) > 0).astype(int)
    theta = lam @ x
    c_1 = sum(
        p[n, m] * y[s, m] * alpha * theta[s] for n in range(n_users) for s in range(n_sessions) for m in range(n_groups)
    )
    c_2 = sum(
        z[n, s] * x[k, s] * beta * lam[k] for n in range(n_users) for s in range(n_sessions) for k in range(n_flows)
    )
    wanted = sum(w[n, k] * lam[k] for n in range(n_users) for k in range(n_flows))
    anybody = [int(w[:, k].sum() > 0) for k in range(n_flows)]
    c_f = sum((alpha + beta) * (anybody[k] - w[n, k]) * lam[k] for n in range(n_users) for k in range(n_flows))
    return {"c_1": c_1, "c_2": c_2, "c_w": c_1 + c_2, "c_x": c_1 + c_2 - (alpha + beta) * wanted, "c_f": c_f}

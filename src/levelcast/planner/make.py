"""Run a planning algorithm: validate the request, compute the plan, and reject it if it is not legal."""

from __future__ import annotations

import enum

from levelcast.planner.annealing import Effort, Progress, Search
from levelcast.planner.constrained import Bound
from levelcast.planner.costs import require_legal
from levelcast.planner.model import Instance, Limits, Plan, PlanError, Weights
from levelcast.planner.paper_algorithms import PaperPlanner


class Algorithm(enum.StrEnum):
    """The four algorithms of TH §4.3, and Levelcast's own."""

    SF = "sf"
    GF = "gf"
    IT = "it"
    RRA = "rra"
    LEVELCAST = "levelcast"


def make_plan(
    instance: Instance,
    sessions: int,
    groups: int,
    *,
    algorithm: Algorithm = Algorithm.LEVELCAST,
    effort: Effort = Effort.FAST,
    weights: Weights = Weights(),  # noqa: B008  (frozen)
    limits: Limits = Limits(),  # noqa: B008  (frozen)
    seed: int = 0,
    progress: Progress = lambda *_: None,
) -> Plan:
    """Return a legal plan with at most these sessions and groups; the same for the same seed. Raises PlanError."""
    check_numbers(sessions, groups)
    if algorithm is Algorithm.LEVELCAST:
        if limits.none:
            plan = Search(instance, sessions, groups, weights, seed).run(effort, progress)
        else:
            plan = Bound(instance, sessions, groups, limits, None, seed).search(weights, effort, progress)
    elif not limits.none:
        raise PlanError(f"algorithm {algorithm} does not support limits; use the algorithm levelcast")
    else:
        planner = PaperPlanner(instance, sessions, groups, weights, seed)
        by_name = {Algorithm.SF: planner.sf, Algorithm.GF: planner.gf, Algorithm.IT: planner.it}
        plan = by_name.get(algorithm, planner.rra)(progress)
    return require_legal(instance, plan, limits)


def check_numbers(sessions: int, groups: int) -> None:
    """Check the numbers. A session is in one group, so groups beyond the number of sessions would be empty."""
    if groups < 1 or sessions < 1:
        raise PlanError("there must be at least one group and one session")
    if groups > sessions:
        raise PlanError(f"{groups:,} groups are more than {sessions:,} sessions; every group needs a session")

"""`levelcast plan make --engine spark`: compute the same plan files on Spark, where the interest is stored."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from levelcast.pipeline.session import spark_session
from levelcast.planner.costs import fault_of_maps
from levelcast.planner.files import StoredPlan, write_plan
from levelcast.planner.model import PlanError, Weights


def make_on_spark(
    interest: Path, rates: Path, out: Path, asked: dict[str, Any], weights: Weights, master: str
) -> dict[str, Any]:
    """Make and write a plan, and return its report."""
    with spark_session(master, "levelcast plan") as spark:
        from levelcast.pipeline.channels.spark_plan import plan_on_spark, read_table

        begun = time.perf_counter()
        made = plan_on_spark(
            read_table(spark, interest, ("user", "flow")),
            read_table(spark, rates, ("flow", "rate")),
            asked["sessions_allowed"],
            asked["groups_allowed"],
            weights,
            asked["seed"],
        )
        seconds = time.perf_counter() - begun
    if (wrong := fault_of_maps(made.plan)) is not None:
        raise PlanError(f"the plan is not legal: {wrong}")
    found = asked | {
        "engine": "spark",
        "master": master,
        "flows_sent": len(made.plan.session),
        "users": len(made.users),
        "pairs": made.n_pairs,
        "sessions": made.plan.n_sessions,
        "groups": made.plan.n_groups,
        "relative_cost": made.costs.relative,
        **asdict(made.costs),
        "seconds": round(seconds, 3),
    }
    session_ids, group_ids = (np.arange(n, dtype=np.int32) for n in (made.plan.n_sessions, made.plan.n_groups))
    write_plan(out, StoredPlan(made.plan, made.flows, session_ids, group_ids, found))
    return found

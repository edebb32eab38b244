"""Print the results of `levelcast plan`, and its progress."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TimeElapsedColumn

from levelcast.cli.output import print_json, table
from levelcast.planner.annealing import Progress as Report
from levelcast.planner.costs import costs
from levelcast.planner.model import Instance, Plan, Weights


def facts(instance: Instance, plan: Plan, weights: Weights) -> dict[str, Any]:
    """Return the size and costs of a plan for its report."""
    cost = costs(instance, plan, weights)
    return {
        "flows": instance.n_flows,
        "flows_sent": int((plan.session >= 0).sum()),
        "users": instance.n_users,
        "pairs": len(instance.users),
        "sessions": plan.n_sessions,
        "groups": plan.n_groups,
        "relative_cost": cost.relative,
        **asdict(cost),
    }


@contextmanager
def bar(quiet: bool) -> Iterator[Report]:
    """Show progress with the current cost on standard error, if that is a terminal."""
    columns = (BarColumn(), "C_x/C_f {task.fields[cost]}", TimeElapsedColumn())
    off = quiet or not sys.stderr.isatty()
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=off) as shown:
        task = shown.add_task("plan", total=1.0, cost="?")
        yield lambda share, cost: shown.update(task, completed=share, cost=f"{cost:.4f}")


def tell(found: dict[str, Any], where: str, as_json: bool) -> None:
    """Print a report as a table or as JSON."""
    if as_json:
        print_json(found, ensure_ascii=False)
        return
    rows = ((name.replace("_", " "), _shown(value)) for name, value in found.items() if value is not None)
    Console(soft_wrap=True).print(table(("", ""), rows, title=where, show_header=False))


def _shown(value: Any) -> Any:
    if isinstance(value, dict):
        return ", ".join(f"{key} {part:.4g}" for key, part in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else value

"""What `levelcast plan` shows: the facts of a plan, and progress while one is made."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from levelcast.planner.annealing import Progress as Report
from levelcast.planner.costs import Costs
from levelcast.planner.model import Instance, Plan


def facts(instance: Instance, plan: Plan, cost: Costs) -> dict[str, Any]:
    """What a report says of a plan."""
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
    """Progress with the current cost, on standard error, if somebody looks at it."""
    console = Console(stderr=True)
    columns = (BarColumn(), TextColumn("C_x/C_f {task.fields[cost]}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=quiet or not sys.stderr.isatty()) as shown:
        task = shown.add_task("plan", total=1.0, cost="?")
        yield lambda share, cost: shown.update(task, completed=share, cost=f"{cost:.4f}")


def tell(found: dict[str, Any], where: str, as_json: bool) -> None:
    """A report, for a person or for a program."""
    if as_json:
        typer.echo(json.dumps(found, indent=2, ensure_ascii=False))
        return
    table = Table(title=where, title_justify="left", show_header=False)
    for name, value in found.items():
        if isinstance(value, dict):
            value = ", ".join(f"{key} {part:.4g}" for key, part in value.items())
        if isinstance(value, bool):
            value = "yes" if value else "no"
        shown = f"{value:,}" if isinstance(value, int) else f"{value:.6g}" if isinstance(value, float) else str(value)
        if value is not None:
            table.add_row(name.replace("_", " "), shown)
    Console(soft_wrap=True).print(table)

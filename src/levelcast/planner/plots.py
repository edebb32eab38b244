"""Plot the interest matrix (TH figure 4), and the messages that reach users without a request."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from levelcast.planner.costs import received_by_user
from levelcast.planner.model import Instance, Plan
from levelcast.plots.style import BLUE, GREY, ORANGE, canvas

_MOST_DOTS = 60_000


def plot_interest(instance: Instance, path: Path) -> None:
    """Plot TH figure 4: a dot for each flow that a user wants, and under it each flow's rate."""
    flows = np.repeat(np.arange(instance.n_flows), instance.degrees)
    step = max(1, len(flows) // _MOST_DOTS)
    with canvas(path, 9, 5, heights=(3, 1)) as (_, (top, bottom)):
        # Thousands of dots are one bitmap inside the SVG, not thousands of elements.
        top.plot(flows[::step], instance.users[::step], ",", color=BLUE, rasterized=True)
        top.set_ylabel("user")
        shown = "" if step == 1 else f", one pair in {step} shown"
        top.set_title(f"Interest matrix: {instance.n_users:,} users, {len(flows):,} pairs{shown}")
        at = np.linspace(0, instance.n_flows - 1, min(instance.n_flows, 2000)).astype(int)
        bottom.plot(at, instance.rates[at], color=ORANGE, linewidth=1)
        bottom.set_xlabel("flow")
        bottom.set_ylabel("rate")


def plot_excess(instance: Instance, plan: Plan, path: Path) -> None:
    """Plot the rates that each user requested, accepts in sessions and receives in groups, sorted by excess."""
    asked, accepted, received = received_by_user(instance, plan)
    order = np.argsort(received - asked, kind="stable")
    flooding = float(instance.rates[instance.wanted].sum()) or 1.0
    at = np.arange(instance.n_users)
    with canvas(path, 9, 4) as (_, (axes,)):
        for values, color, name in (
            (received, GREY, "dropped by its session"),
            (accepted, ORANGE, "dropped by its flow"),
            (asked, BLUE, "requested"),
        ):
            axes.fill_between(at, values[order] / flooding * 100, color=color, linewidth=0, label=name, step="mid")
        axes.set_xlabel("users, by messages received without a request")
        axes.set_ylabel("% of all messages")
        axes.set_title("Messages that reach each user's machine (flooding is 100 %)")
        axes.legend(frameon=False, loc="upper left")
        axes.set_ylim(bottom=0)

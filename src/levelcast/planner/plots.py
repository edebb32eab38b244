"""Pictures, as SVG: the interest matrix (TH figure 4), and who gets how much that they did not ask for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from levelcast.planner.costs import received_by_user
from levelcast.planner.model import Instance, Plan, PlanError

_INK, _FAINT, _BLUE, _ORANGE, _GREY = "#1b1f24", "#6a737d", "#0b62c4", "#c2540a", "#c8ced6"
_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "levelcast",
    "font.size": 10,
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": _FAINT,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": _FAINT,
    "ytick.color": _FAINT,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
}
_MOST_DOTS = 60_000


@contextmanager
def _canvas(path: Path, width: float, height: float, rows: list[float]) -> Iterator[list[Any]]:
    """Panels one above the other, written to `path` at the end."""
    try:
        import matplotlib
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise PlanError("plots need matplotlib, which is not here: pip install 'levelcast[plot]'") from None
    with matplotlib.rc_context(_STYLE):  # type: ignore[arg-type]
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(len(rows), 1, squeeze=False, gridspec_kw={"height_ratios": rows})[:, 0]
        yield list(axes)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=150)


def plot_interest(instance: Instance, path: Path) -> None:
    """TH figure 4: a dot for each flow that a user wants, and under it each flow's rate."""
    flows = np.repeat(np.arange(instance.n_flows), instance.degrees)
    step = max(1, len(flows) // _MOST_DOTS)
    with _canvas(path, 9, 5, [3, 1]) as (top, bottom):
        # Thousands of dots are a picture inside the SVG, not thousands of elements.
        top.plot(flows[::step], instance.users[::step], ",", color=_BLUE, rasterized=True)
        top.set_ylabel("user")
        shown = "" if step == 1 else f", one pair in {step} shown"
        top.set_title(f"Who wants what: {instance.n_users:,} users, {len(flows):,} pairs{shown}")
        at = np.linspace(0, instance.n_flows - 1, min(instance.n_flows, 2000)).astype(int)
        bottom.plot(at, instance.rates[at], color=_ORANGE, linewidth=1)
        bottom.set_xlabel("flow")
        bottom.set_ylabel("rate")


def plot_excess(instance: Instance, plan: Plan, path: Path) -> None:
    """What each user asked for, takes in sessions and receives in groups, from the luckiest user on."""
    asked, accepted, received = received_by_user(instance, plan)
    order = np.argsort(received - asked, kind="stable")
    flooding = float(instance.rates[instance.wanted].sum()) or 1.0
    at = np.arange(instance.n_users)
    with _canvas(path, 9, 4, [1]) as (axes,):
        for values, color, name in (
            (received, _GREY, "dropped by its session"),
            (accepted, _ORANGE, "dropped by its flow"),
            (asked, _BLUE, "asked for"),
        ):
            axes.fill_between(at, values[order] / flooding * 100, color=color, linewidth=0, label=name, step="mid")
        axes.set_xlabel("users, by what they get and did not ask for")
        axes.set_ylabel("% of all messages")
        axes.set_title("What reaches each user's machine (flooding is 100 %)")
        axes.legend(frameon=False, loc="upper left")
        axes.set_ylim(bottom=0)

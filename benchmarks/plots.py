"""How plots look here: white ground, no box, direct labels instead of a legend, text that stays text.

The files are small and the same figures give the same bytes, so that a plot in `docs/` changes only when a figure did.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, FAINT, GRID = "#1b1f24", "#6a737d", "#e1e4e8"
BLUE, ORANGE, GREY, RED = "#0b62c4", "#c2540a", "#c8ced6", "#b3261e"

STYLE: dict[str, object] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "levelcast",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    # White on purpose, not transparent: on a dark page the dark text would vanish.
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
}


class PlotMissing(Exception):
    """There is nothing to plot with."""

    def __init__(self) -> None:
        super().__init__(
            "No plot: matplotlib is not installed. `pip install 'levelcast[plot]'` brings it; "
            "the figures do not need it."
        )


@contextmanager
def canvas(path: Path, width: float, height: float, panels: int = 1) -> Iterator[tuple[Figure, list[Axes]]]:
    """A figure with panels side by side, written to `path` at the end. Raises PlotMissing without matplotlib."""
    try:
        import matplotlib
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise PlotMissing from None
    with matplotlib.rc_context(STYLE):  # type: ignore[arg-type]
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(1, panels, squeeze=False)[0]
        yield figure, list(axes)
        path.parent.mkdir(parents=True, exist_ok=True)
        plain = path.suffix == ".svg"
        figure.savefig(path, metadata={"Date": None} if plain else None, dpi=150)

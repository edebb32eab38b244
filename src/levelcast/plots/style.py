"""Draw with matplotlib in one style: white background, no box, text that stays text.

The files are small, and equal data give equal bytes, so that a plot in `docs/` changes only when its data changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from levelcast.extras import matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, FAINT, GRID = "#1b1f24", "#6a737d", "#e1e4e8"
BLUE, ORANGE, GREY, RED = "#0b62c4", "#c2540a", "#c8ced6", "#b3261e"
GREEN, PURPLE = "#2b7a3d", "#7a3b8f"

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
    # White on purpose, not transparent: on a dark page the dark text would be unreadable.
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
}


@contextmanager
def canvas(
    path: Path, width: float, height: float, panels: int = 1, *, heights: Sequence[float] = (1,)
) -> Iterator[tuple[Figure, list[Axes]]]:
    """Yield a figure with rows of `panels` panels, and write it to `path` at the end; sizes are in inches."""
    agg, figures = matplotlib("matplotlib.backends.backend_agg"), matplotlib("matplotlib.figure")
    with matplotlib().rc_context(STYLE):
        figure = figures.Figure(figsize=(width, height), layout="constrained")
        agg.FigureCanvasAgg(figure)
        axes = figure.subplots(len(heights), panels, squeeze=False, gridspec_kw={"height_ratios": heights})
        yield figure, list(axes.flat)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=150)

"""Plot a sweep: a metric against a parameter, with the histories' quantiles as bands, a panel for each value of
another parameter. Rows are those of `levelcast.pipeline.sweep.run`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from levelcast.plots.svg import COLOURS, WIDTH, Axis, Picture, plain, ticks
from levelcast.units import quantile

BANDS = ((0.05, 0.95), (0.25, 0.75))
PER_LINE = 4
_LEFT, _RIGHT, _TOP, _BOTTOM, _GAP = 64, 12, 52, 34, 20
_PANEL = 210
_STYLE = (
    "text{font:11px system-ui,sans-serif;fill:#4a5058}text.title{font-size:13px;font-weight:600;fill:#1b1f24}"
    ".grid{stroke:#e1e4e8;stroke-width:1}.ground{fill:#fff}"
)


@dataclass(frozen=True, slots=True)
class SweepPlot:
    """Specification of a plot: `figure` against `against`, a panel for each value of `by`."""

    figure: str
    against: str
    by: str | None = None

    @classmethod
    def read(cls, text: str) -> SweepPlot:
        """Parse `FIGURE:AGAINST` or `FIGURE:AGAINST:BY`; raise ValueError with a message."""
        parts = [part.strip() for part in text.split(":")]
        if len(parts) not in (2, 3) or not all(parts):
            raise ValueError(f"{text!r} is not a plot; use FIGURE:AGAINST or FIGURE:AGAINST:BY")
        return cls(*parts)

    @property
    def file_name(self) -> str:
        return "-".join(filter(None, ("sweep", self.figure, self.against, self.by))) + ".svg"


def value_of(row: dict[str, Any], name: str) -> Any:
    """Return a parameter, a metric or a column of a row."""
    told = json.loads(row["parameters"])
    return told[name] if name in told else row["figures"].get(name, row.get(name))


def names_of(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Return the names of all values in the rows."""
    found: dict[str, None] = {}
    for row in rows:
        found |= dict.fromkeys((*json.loads(row["parameters"]), *row["figures"], "scenario", "seed", "cpu_s"))
    return list(found)


def check(wanted: SweepPlot, names: Sequence[str]) -> None:
    """Raise ValueError for names that no row has."""
    for name in filter(None, (wanted.figure, wanted.against, wanted.by)):
        if name not in names:
            raise ValueError(f"no history has {name!r}; available: {', '.join(sorted(names))}")


def plot(rows: Sequence[dict[str, Any]], wanted: SweepPlot) -> str:
    """Return the plot as a separate SVG file; raise ValueError if there is nothing to show."""
    return _alone(picture(rows, wanted))


def picture(rows: Sequence[dict[str, Any]], wanted: SweepPlot) -> Picture:
    """Return the plot for a page; raise ValueError if there is nothing to show."""
    check(wanted, names_of(rows))
    panels: dict[Any, dict[Any, list[float]]] = {}
    for row in rows:
        figure = value_of(row, wanted.figure)
        if isinstance(figure, (int, float)) and math.isfinite(figure):
            panel = panels.setdefault(None if wanted.by is None else value_of(row, wanted.by), {})
            panel.setdefault(value_of(row, wanted.against), []).append(float(figure))
    if not panels:
        raise ValueError(f"no history has a number for {wanted.figure!r}")
    return _draw(wanted, panels)


def _draw(wanted: SweepPlot, panels: dict[Any, dict[Any, list[float]]]) -> Picture:
    along = sorted({at for panel in panels.values() for at in panel}, key=_order)
    most = max(quantile(values, BANDS[0][1]) for panel in panels.values() for values in panel.values())
    least = min(0.0, *(quantile(values, BANDS[0][0]) for panel in panels.values() for values in panel.values()))
    across = min(len(panels), PER_LINE)
    lines = -(-len(panels) // PER_LINE)
    width = (WIDTH - _LEFT - _RIGHT - _GAP * (across - 1)) / across
    height = _TOP + lines * (_PANEL + _BOTTOM + _GAP)
    drawn = Picture(height, f"{wanted.figure} against {wanted.against}")
    drawn.write(_LEFT, 16, f"{wanted.figure} against {wanted.against}", kind="title")
    counts = [len(values) for panel in panels.values() for values in panel.values()]
    each = f"{min(counts):,}" if min(counts) == max(counts) else f"{min(counts):,} to {max(counts):,}"
    drawn.write(_LEFT, 32, f"median, 50 % and 90 % of {each} histories at each value")
    for number, (by, panel) in enumerate(sorted(panels.items(), key=lambda item: _order(item[0]))):
        left = _LEFT + number % PER_LINE * (width + _GAP)
        top = _TOP + number // PER_LINE * (_PANEL + _BOTTOM + _GAP) + 12
        x = Axis(0, max(len(along) - 1, 1), left + width * 0.06, left + width * 0.94)
        y = Axis(least, most or 1.0, top + _PANEL, top)
        colour = COLOURS[number % len(COLOURS)]
        if wanted.by is not None:
            drawn.write(left, top - 5, f"{wanted.by} {_shown(by)}")
        for tick in ticks(y.low, y.high):
            drawn.rule(left, y(tick), left + width, y(tick))
            if number % PER_LINE == 0:
                drawn.write(left - 7, y(tick) + 4, plain(tick), "end")
        every = max(1, math.ceil(len(along) * 42 / width))
        for place, at in enumerate(along):
            if place % every == 0:
                drawn.write(x(place), top + _PANEL + 16, _shown(at), "middle")
        known = [place for place, at in enumerate(along) if at in panel]
        for low, high in BANDS:
            ends = [[(x(place), y(quantile(panel[along[place]], share))) for place in known] for share in (low, high)]
            if len(known) == 1:
                ((at, below),), ((_, above),) = ends
                ends = [[(at - 9, below), (at + 9, below)], [(at - 9, above), (at + 9, above)]]
            drawn.area([*ends[0], *reversed(ends[1])], colour)
        middle = [(x(place), y(quantile(panel[along[place]], 0.5))) for place in known]
        drawn.line(middle, colour, 1.8)
        for place, (at, up) in zip(known, middle, strict=True):
            drawn.dot(at, up, colour, f"{_shown(along[place])}: {plain(quantile(panel[along[place]], 0.5))}")
    return drawn


def _alone(drawn: Picture) -> str:
    """Return the plot as a separate file: with its style and a white background."""
    head, _, rest = drawn.text.partition("</title>")
    head = head.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    ground = f'<rect class="ground" width="{WIDTH}" height="{drawn.height}"/>'
    return f"{head}</title><style>{_STYLE}</style>{ground}{rest}\n"


def _order(value: Any) -> tuple[int, float, str]:
    if isinstance(value, (int, float)):
        return 1, float(value), ""
    return (0, 0.0, "") if value is None else (2, 0.0, str(value))


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}"
    return "none" if value is None else str(value)

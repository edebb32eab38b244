"""Draw charts of the HTML report as SVG text: no dependency, light and dark, no external resources.

`levelcast.plots.style` is for plots in separate files; `docs/dependencies.md` gives the reason for both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

COLOURS = (
    "#3b76d6", "#e07b39", "#3a9d6e", "#b5479f", "#8a7a2f", "#5b5fc7", "#c43d3d", "#4aa3b5", "#7d8796", "#a8823f",
    "#2f5a3d", "#d98cb3", "#6b4a9b", "#94b34d",
)  # fmt: skip
WIDTH = 860
_LEFT, _RIGHT, _TOP, _BOTTOM = 74, 32, 12, 30
_WIDEST = 110

Show = Callable[[float], str]


@dataclass(frozen=True, slots=True)
class Axis:
    """A range of values along a length of the page."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        span = (self.high - self.low) or 1.0
        return self.start + (value - self.low) / span * (self.end - self.start)


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return round numbers from low to high."""
    span = high - low
    if span <= 0 or not math.isfinite(span):
        return [low]
    rough = span / about
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * each for each in (1, 2, 5, 10) if unit * each >= rough)
    first = math.ceil(low / step - 1e-9)
    return [round(number * step, 12) for number in range(first, math.floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Return logarithms of powers of ten; with few of them, also of their multiples by two and five."""
    powers = range(math.floor(low), math.ceil(high) + 1)
    digits = (1, 2, 5) if high - low < 2 else (1,)
    marks = [power + math.log10(digit) for power in powers for digit in digits]
    return [mark for mark in marks if low - 1e-9 <= mark <= high + 1e-9]


def time_ticks(low_s: float, high_s: float, about: int = 8) -> list[float]:
    """Return full minutes, quarters or hours."""
    steps = (1, 2, 5, 10, 30, 60, 300, 600, 900, 1800, 3600, 7200, 10800, 21600)
    step = next((each for each in steps if (high_s - low_s) / each <= about), steps[-1])
    return [number * step for number in range(math.ceil(low_s / step), math.floor(high_s / step) + 1)]


def clock(seconds: float) -> str:
    whole = round(seconds)
    text = f"{whole // 3600 % 24:02}:{whole // 60 % 60:02}"
    return f"{text}:{whole % 60:02}" if whole % 60 else text


def plain(value: float) -> str:
    """Format a number for an axis."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{value / (1e3 if unit == 'k' else limit):,.4g} {unit}"
    return f"{value:,.6g}"


def _path(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


class Picture:
    """Shapes on a canvas; `text` is the SVG."""

    def __init__(self, height: int, title: str) -> None:
        self.height = height
        self._title = title
        self._parts: list[str] = []

    def line(self, points: Sequence[tuple[float, float]], colour: str, width: float = 1.4) -> None:
        if points:
            stroke = f'stroke="{colour}" stroke-width="{width}" stroke-linejoin="round"'
            self._parts.append(f'<polyline points="{_path(points)}" fill="none" {stroke}/>')

    def area(self, points: Sequence[tuple[float, float]], colour: str) -> None:
        self._parts.append(f'<polygon points="{_path(points)}" fill="{colour}" opacity="0.18"/>')

    def box(self, x: float, y: float, width: float, height: float, colour: str, tip: str = "") -> None:
        inside = f"<title>{escape(tip)}</title>" if tip else ""
        self._parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.4):.2f}" height="{max(height, 0):.2f}" '
            f'fill="{colour}">{inside}</rect>'
        )

    def dot(self, x: float, y: float, colour: str, tip: str = "") -> None:
        self._parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6" fill="{colour}" opacity="0.75">'
            f"<title>{escape(tip)}</title></circle>"
        )

    def write(self, x: float, y: float, text: str, anchor: str = "start", kind: str = "label") -> None:
        self._parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{escape(text)}</text>')

    def rule(self, x1: float, y1: float, x2: float, y2: float) -> None:
        self._parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="grid"/>')

    def across(self, axis: Axis, y1: float, y2: float, at: Sequence[float], show: Show, unit: str = "UTC") -> None:
        """Draw the ticks and the unit of a horizontal axis."""
        self.write(_LEFT - 7, y2 + 16, unit, "end")
        for value in at:
            self.rule(axis(value), y1, axis(value), y2)
            self.write(axis(value), y2 + 16, show(value), "middle")

    def up(self, axis: Axis, at: Sequence[float], show: Show, unit: str = "") -> None:
        """Draw the ticks and the unit of a vertical axis."""
        self.write(_LEFT - 7, _TOP - 1, unit, "end")
        for value in at:
            self.rule(_LEFT, axis(value), WIDTH - _RIGHT, axis(value))
            self.write(_LEFT - 7, axis(value) + 4, show(value), "end")

    @property
    def text(self) -> str:
        return (
            f'<svg viewBox="0 0 {WIDTH} {self.height}" role="img" aria-label="{escape(self._title)}">'
            f"<title>{escape(self._title)}</title>{''.join(self._parts)}</svg>"
        )


def price_and_volume(
    title: str,
    at_s: Sequence[float],
    close: Sequence[float],
    high: Sequence[float],
    low: Sequence[float],
    volume: Sequence[float],
    length_s: float,
) -> str:
    """Draw the price with its range above, the volume below."""
    picture = Picture(300, title)
    x = Axis(min(at_s), max(at_s) + length_s, _LEFT, WIDTH - _RIGHT)
    pad = (max(high) - min(low)) * 0.05 or abs(max(high)) * 0.01 or 1.0
    y = Axis(min(low) - pad, max(high) + pad, 196, _TOP + 8)
    v = Axis(0, max(volume) or 1, 272, 208)
    picture.up(y, ticks(y.low, y.high), plain, "price")
    picture.across(x, _TOP, 272, time_ticks(x.low, x.high), clock)
    picture.rule(_LEFT, v(max(volume)), WIDTH - _RIGHT, v(max(volume)))
    picture.write(_LEFT - 7, 212, plain(max(volume)), "end")
    picture.write(_LEFT - 7, 272, "volume", "end")
    middle = [x(each + length_s / 2) for each in at_s]
    upper, lower = [y(each) for each in high], [y(each) for each in low]
    picture.area([*zip(middle, upper, strict=True), *reversed([*zip(middle, lower, strict=True)])], COLOURS[0])
    picture.line([(a, y(b)) for a, b in zip(middle, close, strict=True)], COLOURS[0])
    width = (x(x.low + length_s) - x(x.low)) * 0.85
    for at, amount in zip(at_s, volume, strict=True):
        picture.box(x(at), v(amount), width, 272 - v(amount), COLOURS[8])
    return picture.text


def lines(
    title: str,
    series: Sequence[tuple[str, Sequence[tuple[float, float]]]],
    unit: str,
    *,
    along: str = "UTC",
    log: bool = False,
) -> str:
    """Draw named curves; `log` selects a logarithmic y axis. `along` is the quantity on the x axis."""
    times = along == "UTC"
    picture = Picture(250, title)
    points = [point for _, each in series for point in each if not log or point[1] > 0]
    x = Axis(min(p[0] for p in points), max(p[0] for p in points), _LEFT, WIDTH - _RIGHT)

    def height(value: float) -> float:
        return math.log10(value) if log else value

    heights = [height(p[1]) for p in points]
    y = Axis(min(heights) if log else 0, max(heights) or 1, 250 - _BOTTOM, _TOP + 14)
    show = (lambda power: plain(10**power)) if log else plain
    picture.up(y, (log_ticks if log else ticks)(y.low, y.high), show, unit)
    at = time_ticks(x.low, x.high) if times else ticks(x.low, x.high)
    picture.across(x, _TOP, 250 - _BOTTOM, at, clock if times else plain, along)
    for number, (_, each) in enumerate(series):
        shown = [(x(a), y(height(b))) for a, b in each if not log or b > 0]
        picture.line(shown, COLOURS[number % len(COLOURS)])
    _legend(picture, [name for name, _ in series])
    return picture.text


def shares(title: str, rows: Sequence[tuple[str, Sequence[tuple[str, float]]]]) -> str:
    """Draw one stacked bar per row; its parts add up to one."""
    names = sorted({name for _, parts in rows for name, _ in parts}, key=lambda name: -_total(rows, name))
    colour = {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(names)}
    picture = Picture(34 + 26 * len(rows), title)
    x = Axis(0, 1, _LEFT, WIDTH - _RIGHT)
    for row, (label, parts) in enumerate(rows):
        top, at = 22 + 26 * row, 0.0
        picture.write(_LEFT - 7, top + 14, label, "end")
        for name, part in sorted(parts, key=lambda each: names.index(each[0])):
            picture.box(x(at), top, x(at + part) - x(at) - 0.6, 19, colour[name], f"{label} {name} {part:.1%}")
            if part > 0.055:
                picture.write(x(at + part / 2), top + 13.5, f"{part:.0%}", "middle", "inside")
            at += part
    _legend(picture, names)
    return picture.text


def _total(rows: Sequence[tuple[str, Sequence[tuple[str, float]]]], name: str) -> float:
    return sum(part for _, parts in rows for each, part in parts if each == name)


def columns(title: str, bars: Sequence[tuple[str, float]], unit: str) -> str:
    """Draw counts as adjacent columns."""
    picture = Picture(220, title)
    y = Axis(0, max(count for _, count in bars) or 1, 220 - _BOTTOM, _TOP + 8)
    picture.up(y, ticks(y.low, y.high), plain, unit)
    room = min((WIDTH - _LEFT - _RIGHT) / len(bars), _WIDEST)
    for number, (label, count) in enumerate(bars):
        left = _LEFT + room * number
        picture.box(left + room * 0.1, y(count), room * 0.8, y(0) - y(count), COLOURS[0], f"{label}: {count:,.0f}")
        picture.write(left + room / 2, 220 - _BOTTOM + 16, label, "middle")
    return picture.text


def dots(title: str, series: Sequence[tuple[str, Sequence[tuple[float, float]]]], show: Show = plain) -> str:
    """Draw points by time, with a logarithmic y axis."""
    picture = Picture(250, title)
    points = [point for _, each in series for point in each]
    x = Axis(min(p[0] for p in points), max(p[0] for p in points), _LEFT, WIDTH - _RIGHT)
    heights = [math.log10(max(p[1], 1e-9)) for p in points]
    y = Axis(math.floor(min(heights)), math.ceil(max(heights) + 1e-9), 250 - _BOTTOM, _TOP + 14)
    picture.up(y, range(math.ceil(y.low), math.floor(y.high) + 1), lambda power: show(10.0**power), "late by")
    picture.across(x, _TOP, 250 - _BOTTOM, time_ticks(x.low, x.high), clock)
    for number, (name, each) in enumerate(series):
        colour = COLOURS[number % len(COLOURS)]
        for a, b in each:
            picture.dot(x(a), y(math.log10(max(b, 1e-9))), colour, f"{name} {clock(a)} {show(b)}")
    _legend(picture, [name for name, _ in series])
    return picture.text


def _legend(picture: Picture, names: Sequence[str]) -> None:
    at = float(_LEFT)
    for number, name in enumerate(names):
        if at > WIDTH - 90:
            picture.write(at, 11, "…")
            return
        picture.box(at, 3, 9, 9, COLOURS[number % len(COLOURS)])
        picture.write(at + 13, 11, name)
        at += 26 + 7.2 * len(name)

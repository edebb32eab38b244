"""Render the report's section about the network: delays and loss between sites, timing by the hour, helpers.

Uses only `network_matrix`, `network_timing` and `network_helpers` (`levelcast matrix`), of the report's day or, if
that has none, of the last day that has. With many sites, the pictures show only the best measured ones.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from html import escape

from levelcast.pipeline.lake.lake import Lake, Row
from levelcast.plots import svg
from levelcast.plots.html import card, table

MOST_SITES = 24
"""Maximum rows and columns of a heat map; of more sites, those with the largest number of probes, then by name."""
MOST_HELPERS = 40
_HOUR_NS = 3_600_000_000_000
_DAY_NS = 24 * _HOUR_NS
_COLD, _HOT = (237, 244, 252), (24, 82, 158)
_LOSSY = "#c43d3d"


def sections(lake: Lake, day: str) -> Iterator[str]:
    """Yield the parts of the section; nothing without a matrix."""
    days = sorted({file.day for file in lake.files("network_matrix")})
    chosen = day if day in days else next(reversed(days), day)
    rows = lake.rows("network_matrix", [chosen])
    if not rows:
        return
    sites = _sites(rows)
    shown = sites[:MOST_SITES]
    pairs = len({(row["from_site"], row["to_site"]) for row in rows})
    probes = sum(row["probes"] for row in rows)
    hours = len({row["start_ns"] for row in rows})
    few = sum(not row["enough"] for row in rows)
    yield "<h2>Network</h2>"
    yield (
        f"<p>{len(sites):,} sites, {pairs:,} directions between them, {probes:,} probes in {hours} "
        f"{'hour' if hours == 1 else 'hours'} of {escape(chosen)}; one-way delays. {few:,} of {len(rows):,} directions "
        "and hours have fewer than 100 answers: their p99 is about the maximum seen.</p>"
    )
    if len(sites) > len(shown):
        yield f"<p>The pictures show {len(shown)} of the sites; the tables have all of them.</p>"
    for column, title in (("p50_ns", "Median delay, ms"), ("p99_ns", "99th percentile of the delay, ms")):
        values = _worst(rows, column)
        yield card(title, heat_map(title, sorted(shown), values, _worst(rows, "loss_ratio"), _milliseconds))
    yield from _timing(lake.rows("network_timing", [chosen]))
    yield from _helpers(lake.rows("network_helpers", [chosen]), set(shown))


def _sites(rows: Sequence[Row]) -> list[str]:
    measured = Counter(row[end] for row in rows for end in ("from_site", "to_site"))
    return sorted(measured, key=lambda site: (-measured[site], site))


def _worst(rows: Sequence[Row], column: str) -> dict[tuple[str, str], float]:
    """Return the worst hour of each direction."""
    found: dict[tuple[str, str], float] = {}
    for row in rows:
        if row[column] is not None:
            key = row["from_site"], row["to_site"]
            found[key] = max(found.get(key, 0.0), float(row[column]))
    return found


class Map(svg.Picture):
    """A picture with the elements of a heat map. Its squares have fixed colours, so their text has too."""

    def slant(self, x: float, y: float, text: str) -> None:
        self._parts.append(
            f'<text transform="translate({x:.1f},{y:.1f}) rotate(-50)" class="label">{escape(text)}</text>'
        )

    def corner(self, x: float, y: float, size: float) -> None:
        path = f"{x:.1f},{y:.1f} {x + size:.1f},{y:.1f} {x:.1f},{y + size:.1f}"
        self._parts.append(f'<polygon points="{path}" fill="{_LOSSY}" pointer-events="none"/>')

    def inside(self, x: float, y: float, text: str, colour: str) -> None:
        style = f"fill:{colour};pointer-events:none"
        self._parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle" style="{style}">{escape(text)}</text>')


def heat_map(
    title: str,
    sites: Sequence[str],
    values: dict[tuple[str, str], float],
    losses: dict[tuple[str, str], float],
    show: Callable[[float], str],
) -> str:
    """Draw a square for each direction, row to column, darker for longer; a red corner grows with the loss."""
    longest = max((len(_short(site)) for site in sites), default=1)
    left, top = 26 + 6.2 * longest, 20 + 5.2 * longest
    side = min(46.0, (svg.WIDTH - left - 50) / max(1, len(sites)))
    picture = Map(int(top + side * len(sites) + 26), title)
    known = [values[a, b] for a in sites for b in sites if (a, b) in values]
    low, high = (math.log(max(1.0, edge)) for edge in (min(known, default=1.0), max(known, default=1.0)))
    for row, a in enumerate(sites):
        y = top + side * row
        picture.write(left - 6, y + side / 2 + 4, _short(a), "end")
        picture.slant(left + side * row + side / 2, top - 6, _short(a))
        for place, b in enumerate(sites):
            value, x = values.get((a, b)), left + side * place
            if value is None:
                if a != b:
                    picture.rule(x + 2, y + side / 2, x + side - 3, y + side / 2)
                continue
            part = (math.log(max(1.0, value)) - low) / (high - low) if high > low else 0.5
            loss = losses.get((a, b))
            told = "not measured" if loss is None else f"{loss:.2%}"
            picture.box(x, y, side - 1, side - 1, _shade(part), f"{a} to {b}: {show(value)} ms, loss {told}")
            if loss:
                picture.corner(x, y, side * min(0.5, 0.12 + 2 * loss))
            if side >= 26:
                picture.inside(x + side / 2, y + side / 2 + 4, show(value), "#fff" if part > 0.45 else "#1d232b")
    picture.write(left, top + side * len(sites) + 18, "row: from; column: to. A red corner is loss; it grows with it.")
    return picture.text


def _shade(part: float) -> str:
    mixed = (round(cold + (hot - cold) * part) for cold, hot in zip(_COLD, _HOT, strict=True))
    return "#" + "".join(f"{value:02x}" for value in mixed)


def _short(name: str) -> str:
    return name if len(name) <= 16 else name[:15] + "…"


def _milliseconds(ns: float) -> str:
    value = ns / 1e6
    return f"{value:.0f}" if value >= 9.95 else f"{value:.1f}" if value >= 0.995 else f"{value:.2f}"


def _timing(rows: Sequence[Row]) -> Iterator[str]:
    if not rows:
        return
    rows = sorted(rows, key=lambda row: (row["stripe"], row["start_ns"]))
    first = rows[0]
    whose = f"the network {first['network']}" if first["network"] else "a ring with a receiver at every site"
    yield (
        f"<h3>Timing by the hour</h3><p>Timing from rules 5 and 6 for each hour, for {escape(whose)}: quantile "
        f"{first['quantile']:g}, loss by its upper bound. A pair without probes uses the network file.</p>"
    )
    able = [row for row in rows if row["hold_ns"] is not None]
    if len({row["start_ns"] for row in able}) > 1:
        series = [
            (name, [((row["start_ns"] % _DAY_NS) / 1e9 + 1800, row[column] / 1e9) for row in able
                    if row["stripe"] == first["stripe"]])
            for name, column in (("hold Δ_A", "hold_ns"), ("recovery R", "recovery_ns"), ("late δ_N", "late_ns"))
        ]  # fmt: skip
        yield card("By the hour", svg.lines("Timing by the hour", series, "s"))
    columns = [("late_ns", 1e6, "{:,.1f} ms"), ("attempts", 1, "{:.0f}")]
    columns += [(name, 1e9, "{:,.2f} s") for name in ("recovery_ns", "hold_ns")]
    cells = [
        [
            _hour(row["start_ns"]) + ("" if len({each["stripe"] for each in rows}) == 1 else f" {row['stripe']}"),
            *("none" if row[name] is None else shown.format(row[name] / unit) for name, unit, shown in columns),
            row["delay_between"],
            f"{row['loss_between']} ({row['loss_ratio']:.2%})" if row["loss_ratio"] else "not measured",
        ]
        for row in rows
    ]
    head = ["hour", "δ_N", "k_r", "R", "Δ_A", "longest delay", "highest loss, at most"]
    yield card("δ_N late, k_r attempts, R recovery, Δ_A hold", table(head, cells))


def _helpers(rows: Sequence[Row], shown: set[str]) -> Iterator[str]:
    if not rows:
        return
    last = max(row["start_ns"] for row in rows)
    by_site: dict[str, list[Row]] = {}
    for row in rows:
        if row["start_ns"] == last:
            by_site.setdefault(row["site"], []).append(row)
    far = [site for site, ranked in by_site.items() if not any(row["rank"] == 1 and row["nearest"] for row in ranked)]
    cells = []
    for site in sorted(by_site, key=lambda each: (each not in far, each not in shown, each))[:MOST_HELPERS]:
        ranked = sorted(by_site[site], key=lambda row: row["rank"])
        best = [_helper(row) for row in ranked[:2]]
        near = next((row for row in ranked if row["nearest"]), None)
        nearest = "the best" if near is None or near["rank"] == 1 else _helper(near)
        cells.append([site, *best, *[""] * (2 - len(best)), nearest])
    yield (
        f"<h3>Helpers</h3><p>Best sites to request data from, at {_hour(last)}: the round trip, the probability "
        "of an answer, and the expected time to the repair if that site gets the first request. For "
        f"{len(far):,} of {len(by_site):,} sites the best is not the nearest.</p>"
    )
    yield card("By site", table(["site", "best", "then", "nearest"], cells))


def _helper(row: Row) -> str:
    trip, expected = _milliseconds(row["round_trip_ns"]), _milliseconds(row["expected_ns"])
    return f"{row['helper']}: {trip} ms, {row['answers']:.1%}, {expected} ms"


def _hour(start_ns: int) -> str:
    return f"{start_ns % _DAY_NS // _HOUR_NS:02}:00"

"""One page about a day in a lake: everything in it, nothing loaded from anywhere. Needs neither Spark nor Java."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from levelcast.pipeline.lake.defaults import LakeError
from levelcast.pipeline.lake.lake import Lake, Row, State
from levelcast.pipeline.report import sections
from levelcast.plots import svg
from levelcast.plots.html import card, table
from levelcast.units import show_ns
from levelcast.version import __version__

SYMBOLS = 6
_DAY_NS = 86_400_000_000_000
_UNIT = 1e9
_SHORT_S = 3600
"""A day with less than this in it is shown second by second."""
_FEW = 3
"""Intervals of rates that make no curve: then the seconds do."""
_CURVE = 400

_STYLE = """
:root{color-scheme:light dark;--ink:#1d232b;--dim:#67717e;--page:#fbfbf9;--card:#fff;--line:#e3e5e8}
@media(prefers-color-scheme:dark){:root{--ink:#e4e7eb;--dim:#98a2ae;--page:#14171b;--card:#1c2026;--line:#30363e}}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:940px;margin:0 auto;padding:28px 20px 60px}
h1{font-size:25px;margin:0 0 2px}h2{font-size:18px;margin:34px 0 4px}h3{font-size:15px;margin:0 0 6px}
p{margin:4px 0 10px;color:var(--dim)}
section.card{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:14px 16px;margin:10px 0}
svg{width:100%;height:auto;display:block}
svg text{font:11px system-ui,sans-serif;fill:var(--dim)}svg text.inside{fill:#fff}
svg .grid{stroke:var(--line);stroke-width:1}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
td,th{padding:3px 10px 3px 0;text-align:right;border-bottom:1px solid var(--line)}
td:first-child,th:first-child{text-align:left}th{font-weight:600;color:var(--dim)}
"""


def write_report(lake: Lake, out: Path, day: str | None = None, symbols: Sequence[str] = ()) -> dict[str, Any]:
    """Write the page; what it is about."""
    states = {state.name: state for state in lake.states()}
    days = states["trades"].days if "trades" in states else ()
    days = days or tuple(sorted({each for name in sections.DAYS_OF if name in states for each in states[name].days}))
    if not days:
        raise LakeError(
            f"{lake.directory}: has no trades yet: levelcast pipeline run --input PATH --lake {lake.directory}"
        )
    chosen = day or days[-1]
    if chosen not in days:
        what = "trades" if "trades" in states else "network matrix"
        raise LakeError(f"{lake.directory}: has no {what} of {chosen}: it has {', '.join(days)}")
    about = Day(lake, states, chosen, list(symbols))
    page = "".join(_page(about))
    unfinished = out.with_name(out.name + ".tmp")
    unfinished.write_text(page, encoding="utf-8")
    unfinished.replace(out)
    return {"day": chosen, "symbols": about.symbols, "bytes": len(page.encode())}


class Day:
    """What the page is made of."""

    def __init__(self, lake: Lake, states: dict[str, State], day: str, symbols: list[str]) -> None:
        self.lake, self.states, self.day = lake, states, day
        self.share = self.rows("venue_share")
        self.symbols = symbols or self._busiest()
        missing = [symbol for symbol in symbols if symbol not in {row["symbol"] for row in self.share}]
        if missing:
            raise LakeError(f"{lake.directory}: has no trades of {missing[0]} on {day}")

    def rows(self, name: str, **where: str) -> list[Row]:
        """Rows of the day where columns have these values; none if there is no such table."""
        return self.lake.rows(name, [self.day], [(column, "=", value) for column, value in where.items()])

    def _busiest(self) -> list[str]:
        trades = _sums((row for row in self.share if row["symbol"] != "ALL"), "symbol", "trades")
        return sorted(trades, key=lambda symbol: (-trades[symbol], symbol))[:SYMBOLS]

    def bars(self, interval: str, **where: str) -> list[Row]:
        found = self.rows("bars", interval=interval, venue="ALL", variant="all", **where)
        return sorted(found, key=lambda row: row["start_ns"])


def _sums(rows: Iterable[Row], by: str, of: str) -> Counter[Any]:
    """The sum of a column for each value of another."""
    found = Counter[Any]()
    for row in rows:
        found[row[by]] += row[of]
    return found


def _page(day: Day) -> Iterator[str]:
    yield '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>Levelcast, {escape(day.day)}</title><style>{_STYLE}</style></head><body><main>"
    traded = "trades" in day.states
    yield f"<h1>The {'tape' if traded else 'network'} of {escape(day.day)}</h1>"
    source = escape(day.lake.directory.name)
    yield f"<p>Times are UTC, by the tape. Made by Levelcast {__version__} from the lake {source}.</p>"
    for part in (_summary, _prices, _rates, _venues, _throughs, _releases) if traded else ():
        yield from part(day)
    yield from sections.more(day.lake, day.day)
    yield from _tables(day)
    yield "</main></body></html>"


def _money(units: float) -> str:
    """With two to four decimals."""
    text = f"{units / _UNIT:,.4f}"
    return text[:-2] if text.endswith("00") else text.removesuffix("0")


def _summary(day: Day) -> Iterator[str]:
    days = {row["symbol"]: row for row in day.bars("1d")}
    rows = []
    for symbol in day.symbols:
        bar = days.get(symbol)
        if bar is not None:
            prices = [_money(bar[name]) for name in ("open", "high", "low", "close", "vwap") if bar[name] is not None]
            rows.append([symbol, *prices, f"{bar['volume']:,}", f"{bar['trades']:,}"])
    total = sum(row["trades"] for row in days.values())
    volume = sum(row["volume"] for row in days.values())
    yield f"<p>{len(days):,} symbols, {total:,} trades, {volume:,} units traded; busts and corrections applied.</p>"
    yield card("The busiest", table(["symbol", "open", "high", "low", "close", "vwap", "volume", "trades"], rows))


def _prices(day: Day) -> Iterator[str]:
    yield "<h2>Price and volume</h2><p>Close with the range of each bar; volume below.</p>"
    for symbol in day.symbols:
        minutes = day.bars("1m", symbol=symbol)
        if not minutes:
            continue
        long = (minutes[-1]["start_ns"] - minutes[0]["start_ns"]) / 1e9 > _SHORT_S
        found, length = (minutes, 60.0) if long else (day.bars("1s", symbol=symbol), 1.0)
        found = found or minutes
        at = [row["start_ns"] % _DAY_NS / 1e9 for row in found]
        close, high, low = ([row[name] / _UNIT for row in found] for name in ("close", "high", "low"))
        volume = [row["volume"] for row in found]
        title = f"{symbol}, price and volume"
        yield card(symbol, svg.price_and_volume(title, at, close, high, low, volume, length))


def _rates(day: Day) -> Iterator[str]:
    rows = day.rows("rates")
    if not rows:
        return
    yield "<h2>Message rates</h2>"
    seconds = rows[0]["seconds"]
    grid = sorted({row["start_s"] for row in rows})
    busy = _by_second(day) if len(grid) <= _FEW else []
    if busy:
        yield card("Trades in each second", svg.lines("Trades by second", busy, "trades/s"))
    elif len(grid) > 1:
        known = {(row["symbol"], row["start_s"]): row["rate"] for row in rows}
        times = range(grid[0], grid[-1] + 1, seconds)
        series = [
            (symbol, [(at + seconds / 2, known.get((symbol, at), 0.0)) for at in times]) for symbol in day.symbols
        ]
        drawn = svg.lines("Message rates by time of day", series, "messages/s")
        yield card(f"Messages a second, in intervals of {seconds} s", drawn)
    span = grid[-1] + seconds - grid[0]
    ranked = sorted((count / span for count in _sums(rows, "symbol", "messages").values()), reverse=True)
    for fit in day.rows("rate_fit"):
        top = f"{fit['top_symbols']:,} of {fit['symbols']:,} symbols"
        share = f"The busiest {top} have {fit['top_share']:.0%} of the messages"
        curves = [("measured", [(float(rank), rate) for rank, rate in enumerate(ranked)])]
        if fit["decay"] is not None and len(ranked) > 1:
            places = np.unique(np.linspace(0, len(ranked) - 1, _CURVE))
            fitted = fit["scale"] * np.exp(-places / fit["decay"])
            curves.append(("exponential", list(zip(places.tolist(), fitted.tolist(), strict=True))))
            share += f"; an exponential with a decay of {fit['decay']:,.1f} ranks fits with r² = {fit['r2']:.3f}"
        yield f"<p>{share} (TH §5.1: 10 % had 55 % of New York).</p>"
        if len(ranked) > 1:
            drawn = svg.lines("Rate by rank", curves, "messages/s", along="rank", log=True)
            yield card("Messages a second by rank", drawn)


def _by_second(day: Day) -> list[tuple[str, list[tuple[float, float]]]]:
    """Trades in each second, for a tape too short for a curve of rates."""
    second = {symbol: day.bars("1s", symbol=symbol) for symbol in day.symbols}
    return [
        (symbol, [(row["start_ns"] % _DAY_NS / 1e9 + 0.5, float(row["trades"])) for row in found])
        for symbol, found in second.items()
        if len(found) > 1
    ]


def _venues(day: Day) -> Iterator[str]:
    parts: dict[str, list[tuple[str, float]]] = {symbol: [] for symbol in ("ALL", *day.symbols)}
    for row in day.share:
        if row["symbol"] in parts and row["volume_share"]:
            parts[row["symbol"]].append((row["venue"], row["volume_share"]))
    shown = [(symbol, each) for symbol, each in parts.items() if each]
    if shown:
        yield "<h2>Venue share</h2><p>Part of the quantity traded.</p>"
        yield card("By symbol", svg.shares("Venue share", shown))


def _throughs(day: Day) -> Iterator[str]:
    rows = day.rows("trade_throughs")
    if not rows:
        return
    yield "<h2>Trades through a better quote</h2>"
    yield "<p>Worse than another venue was showing when the trade came; exempt by its sale condition, or not.</p>"
    exempt, size = _sums(rows, "venue", "exempt"), _sums(rows, "venue", "size")
    counts = Counter(row["venue"] for row in rows).most_common()
    cells = [[v, f"{n:,}", f"{exempt[v]:,}", f"{n - exempt[v]:,}", f"{size[v]:,}"] for v, n in counts]
    yield card("By venue", table(["venue", "through", "exempt", "not exempt", "quantity"], cells))


def _releases(day: Day) -> Iterator[str]:
    rows = day.rows("releases")
    if not rows:
        return
    yield "<h2>Release</h2>"
    of_kind = {kind: [row for row in rows if row["kind"] == kind] for kind in ("spread", "delay", "late")}
    spread, delay, late = _bins(of_kind["spread"]), _bins(of_kind["delay"]), of_kind["late"]
    if spread:
        yield "<p>How long after the first receiver the last one released a slot, where all were on time.</p>"
        yield card("Spread over the receivers", svg.columns("Release spread", spread, "slots"))
    if delay:
        yield card("Behind the instant, all receivers", svg.columns("Release delay", delay, "releases"))
    by: dict[str, list[tuple[float, float]]] = {}
    for row in late:
        by.setdefault(row["receiver"], []).append((row["scheduled_ns"] % _DAY_NS / 1e9, max(row["low_ns"], 1.0)))
    on_time = _sums(of_kind["delay"], "receiver", "releases")
    yield f"<p>{len(late):,} of {len(late) + sum(on_time.values()):,} releases were late (rule 7).</p>"
    cells = []
    for receiver in sorted({*on_time, *by}):
        good, bad = on_time[receiver], [ns for _, ns in by.get(receiver, [])]
        most = show_ns(max(bad)) if bad else ""
        cells.append([receiver, f"{good:,}", f"{len(bad):,}", f"{good / (good + len(bad)):.1%}", most])
    yield card("By receiver", table(["receiver", "on time", "late", "share on time", "latest by"], cells))
    if late:
        yield card("Late releases, by how much", svg.dots("Late releases", sorted(by.items()), show_ns))


def _range(low: int, high: int) -> str:
    begin, end = show_ns(low), show_ns(high)
    return f"{begin.split()[0]} – {end}" if begin.split()[-1] == end.split()[-1] else f"{begin} – {end}"


def _bins(rows: Sequence[Row]) -> list[tuple[str, float]]:
    counts, tops = _sums(rows, "low_ns", "releases"), {row["low_ns"]: row["high_ns"] for row in rows}
    return [
        (f"< {show_ns(tops[low])}" if low < 0 else _range(low, tops[low]), float(counts[low])) for low in sorted(counts)
    ]


def _tables(day: Day) -> Iterator[str]:
    yield "<h2>Tables</h2><p>Of the whole lake.</p>"
    rows = [
        [s.name, f"{s.rows:,}", f"{s.files:,}", f"{s.bytes / 2**20:,.1f}", str(s.version)] for s in day.states.values()
    ]
    yield card("Rows and files", table(["table", "rows", "files", "MB", "version"], rows))
    reasons = Counter(row["reason"] for row in day.lake.rows("quarantine"))
    if reasons:
        cells = [[reason, f"{count:,}"] for reason, count in reasons.items()]
        yield card("Quarantine", table(["reason", "rows"], cells))

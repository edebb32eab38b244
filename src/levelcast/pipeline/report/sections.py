"""Render the sections of the report that are independent of the tape's day: audits, plans, sweeps, the network,
subscribers.

Each is a function of rows that yields HTML, nothing without data; `more` yields all of them in order.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from html import escape

from levelcast.pipeline.lake.lake import Lake, Row
from levelcast.pipeline.report import network
from levelcast.pipeline.sweep.plots import SweepPlot, picture
from levelcast.pipeline.sweep.run import row_of
from levelcast.plots.html import card, table
from levelcast.units import show_ns

MOST_FINDINGS = 20
MOST_PLANS = 10
MOST_DELIVERIES = 20
HELD = "held"
DRAWN = ("latency_p99_ms", "ready_p99_ms")
"""Metrics of a sweep to draw: the first of these that its histories have."""


def audit_section(runs: Sequence[Row], findings: Sequence[Row]) -> Iterator[str]:
    """Render the last verdict of each audit, of any day, and its findings."""
    if not runs:
        return
    last = {row["audit"]: row for row in sorted(runs, key=lambda row: row["at_ns"])}
    failed = sum(row["verdict"] != "passed" for row in last.values())
    verdict = "All passed." if not failed else f"{failed} of {len(last)} found faults."
    yield f"<h2>Audits</h2><p>The last run of each. {verdict}</p>"
    cells = [[row["audit"], _time(row["at_ns"]), row["verdict"], row["sentence"]] for _, row in sorted(last.items())]
    yield card("Verdicts", table(["audit", "run", "verdict", ""], cells))
    found = [each for each in findings if each["run"] == last.get(each["audit"], {"run": None})["run"]]
    if found:
        found.sort(key=lambda row: (row["audit"], row["number"]))
        cells = [[each["audit"], each["subject"] or "", each["kind"], each["says"]] for each in found[:MOST_FINDINGS]]
        yield card(f"{len(found):,} findings{_first_of(found)}", table(["audit", "whose", "kind", "what"], cells))


def plan_section(rows: Sequence[Row]) -> Iterator[str]:
    """Render the last channel plans, each with the plan before it."""
    if not rows:
        return
    rows = sorted(rows, key=lambda row: -row["made_ns"])[:MOST_PLANS]
    last = rows[0]
    saved = 1 - last["cost"] / last["cost_before"] if last["cost_before"] else 0.0
    yield (
        f"<h2>Channel plans</h2><p>The last plan costs {saved:.0%} less than {escape(str(last['before']))} "
        "(TH §3.2): messages that subscribers receive and drop. Messages/s, in total over all subscribers.</p>"
    )
    shown = ("asked", "received_before", "received", "cost_before", "cost")
    cells = [
        [_time(row["made_ns"]), f"{row['sessions']:,} / {row['groups']:,}", *(f"{row[name]:,.0f}" for name in shown)]
        for row in rows
    ]
    head = ["made", "sessions / groups", "subscribed", "received before", "received", "cost before", "cost"]
    yield card("Before and after", table(head, cells))


def delivery_section(rows: Sequence[Row]) -> Iterator[str]:
    """Render the spread between subscribers together and on arrival, and who misses the bound."""
    if not rows:
        return
    missing = max(row["missing"] for row in rows)
    bound = "All keep the bound." if not missing else f"Up to {missing:,} of an edge miss the bound."
    late = sum(row["late"] for row in rows) / max(1, sum(row["late"] + row["records"] for row in rows))
    yield f"<h2>Subscribers</h2><p>Those that deliver together. {bound} {late:.2%} of their records were late.</p>"
    worst = sorted(rows, key=lambda row: (-row["missing"], -row["needed_ns"], row["at_ns"]))[:MOST_DELIVERIES]
    cells = [
        [
            row["receiver"],
            _time(row["at_ns"]),
            f"{row['subscribers']:,}",
            *(show_ns(row[key]) for key in ("spread_on_arrival_ns", "spread_ns", "bound_ns", "needed_ns")),
            f"{row['missing']:,}",
            row["worst"] or "",
        ]
        for row in worst
    ]
    head = ["edge", "at", "subscribers", "spread on arrival", "together", "bound", "needed", "miss it", "worst"]
    yield card("Spread between subscribers", table(head, cells))


def sweep_section(stored: Sequence[Row]) -> Iterator[str]:
    """Render the histories of the simulator, by scenario."""
    if not stored:
        return
    by: dict[tuple[str, str], list[Row]] = {}
    for row in stored:
        by.setdefault((row["scenario"], row["code"]), []).append(row)
    bad = [row for row in stored if row["verdict"] != HELD]
    verdict = "Every guarantee held in all of them." if not bad else f"{len(bad):,} did not hold."
    yield f"<h2>Sweeps</h2><p>{len(stored):,} histories of the simulator. {verdict}</p>"
    cells = [
        [
            scenario,
            code[:8],
            f"{len(rows):,}",
            f"{sum(row['verdict'] == HELD for row in rows):,}",
            f"{len({row['parameters'] for row in rows}):,}",
            f"{sum(row['cpu_s'] or 0.0 for row in rows):,.0f} s",
        ]
        for (scenario, code), rows in sorted(by.items())
    ]
    yield card("By scenario", table(["scenario", "code", "histories", "held", "settings", "CPU"], cells))
    if bad:
        bad.sort(key=lambda row: (row["scenario"], row["parameters"], row["seed"]))
        cells = [
            [row["scenario"], str(row["seed"]), row["verdict"], row["broken"] or ""] for row in bad[:MOST_FINDINGS]
        ]
        yield card(f"Not held{_first_of(bad)}", table(["scenario", "seed", "verdict", "what"], cells))
    for (scenario, code), rows in sorted(by.items()):
        histories = [row_of(row) for row in rows]
        drawn = [name for name in DRAWN if any(each["figures"].get(name) for each in histories)][:1]
        for wanted in (SweepPlot(figure, parameter) for figure in drawn for parameter in _varied(rows)):
            yield card(f"{scenario}, {code[:8]}", picture(histories, wanted).text)


def _first_of(rows: Sequence[Row]) -> str:
    return f", the first {MOST_FINDINGS}" if len(rows) > MOST_FINDINGS else ""


def _varied(rows: Sequence[Row]) -> list[str]:
    """Return the parameters with at least two values in a sweep, except the seed."""
    values: dict[str, set[str]] = {}
    for row in rows:
        for name, value in json.loads(row["parameters"]).items():
            values.setdefault(name, set()).add(json.dumps(value))
    return sorted(name for name, found in values.items() if len(found) > 1)


def _time(at_ns: int) -> str:
    return f"{datetime.fromtimestamp(at_ns // 1_000_000_000, UTC):%Y-%m-%d %H:%M}"


DAYS_OF = ("audits", "network_matrix")
"""Tables with days that have a page even without trades."""


def more(lake: Lake, day: str) -> Iterator[str]:
    """Yield all sections, in order."""
    yield from audit_section(lake.rows("audits"), lake.rows("audit_findings"))
    yield from plan_section(lake.rows("plans"))
    yield from network.sections(lake, day)
    yield from delivery_section(lake.rows("deliveries", [day]))
    yield from sweep_section(lake.rows("sweeps"))

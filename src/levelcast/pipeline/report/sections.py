"""Sections of the report beside the tape's day: what audits found, what plans cost, what the network is like.

`SECTIONS` is the list: each is a function of the lake and the day that yields HTML, nothing if it has nothing to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any

from levelcast.pipeline.lake import Lake
from levelcast.pipeline.report import network
from levelcast.pipeline.report.parts import card, table
from levelcast.pipeline.tables import TABLES

MOST_FINDINGS = 20
MOST_PLANS = 10

Row = dict[str, Any]


def _rows(lake: Lake, name: str) -> list[Row]:
    if name not in TABLES or not lake.has(name):
        return []
    found: list[Row] = lake.arrow(name).to_pylist()
    return found


def audits(lake: Lake, day: str) -> Iterator[str]:
    """The last verdict of each audit, whenever it was run, and what it found."""
    del day
    yield from audit_section(_rows(lake, "audits"), _rows(lake, "audit_findings"))


def audit_section(runs: Sequence[Row], findings: Sequence[Row]) -> Iterator[str]:
    if not runs:
        return
    last = {row["audit"]: row for row in sorted(runs, key=lambda row: row["at_ns"])}
    failed = sum(row["verdict"] != "passed" for row in last.values())
    verdict = "All passed." if not failed else f"{failed} of {len(last)} found something."
    yield f"<h2>Audits</h2><p>The last run of each. {verdict}</p>"
    cells = [[row["audit"], _time(row["at_ns"]), row["verdict"], row["sentence"]] for _, row in sorted(last.items())]
    yield card("Verdicts", table(["audit", "run", "verdict", ""], cells))
    found = [each for each in findings if each["run"] == last.get(each["audit"], {"run": None})["run"]]
    if found:
        found.sort(key=lambda row: (row["audit"], row["number"]))
        cells = [[each["audit"], each["subject"] or "", each["kind"], each["says"]] for each in found[:MOST_FINDINGS]]
        more = f", the first {MOST_FINDINGS}" if len(found) > MOST_FINDINGS else ""
        yield card(f"{len(found):,} findings{more}", table(["audit", "whose", "kind", "what"], cells))


def plans(lake: Lake, day: str) -> Iterator[str]:
    """The last channel plans, each beside what was in force before it."""
    del day
    yield from plan_section(_rows(lake, "plans"))


def plan_section(rows: Sequence[Row]) -> Iterator[str]:
    if not rows:
        return
    rows = sorted(rows, key=lambda row: -row["made_ns"])[:MOST_PLANS]
    last = rows[0]
    saved = 1 - last["cost"] / last["cost_before"] if last["cost_before"] else 0.0
    yield (
        f"<h2>Channel plans</h2><p>The last plan costs {saved:.0%} less than {escape(str(last['before']))} "
        "(TH §3.2): what customers receive and drop. Messages a second, of all customers together.</p>"
    )
    cells = [
        [
            _time(row["made_ns"]),
            f"{row['sessions']:,} / {row['groups']:,}",
            f"{row['asked']:,.0f}",
            f"{row['received_before']:,.0f}",
            f"{row['received']:,.0f}",
            f"{row['cost_before']:,.0f}",
            f"{row['cost']:,.0f}",
        ]
        for row in rows
    ]
    head = ["made", "sessions / groups", "asked for", "received before", "received", "cost before", "cost"]
    yield card("Before and after", table(head, cells))


def _time(at_ns: int) -> str:
    return f"{datetime.fromtimestamp(at_ns // 1_000_000_000, UTC):%Y-%m-%d %H:%M}"


Section = Callable[[Lake, str], Iterator[str]]
SECTIONS: tuple[Section, ...] = (audits, plans, network.sections)
DAYS_OF = ("audits", "network_matrix")
"""Tables whose days have a page even without trades."""


def more(lake: Lake, day: str) -> Iterator[str]:
    """All sections, in order."""
    for section in SECTIONS:
        yield from section(lake, day)

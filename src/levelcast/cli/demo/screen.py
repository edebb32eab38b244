"""Render the live view of a running demo: receivers, floors, subscribers, events; for terminals from 80 by 24."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from levelcast.cli.demo.event_text import EventText, Sentence
from levelcast.network.roles import RECEIVER
from levelcast.node.cluster import ClusterNode
from levelcast.node.demo.run import FloorLine, Show

WIDE = 100
"""Terminal width from which table columns are spaced further apart."""
_FEWEST_EVENTS = 3
_STATES = {
    "": ("starts", "dim"),
    "NEW": ("new", "dim"),
    "OUTSIDE": ("outside", "yellow"),
    "PROMISED": ("waits", "yellow"),
    "ACTIVE": ("in ring", "green"),
    "SILENT": ("SILENT", "bold red"),
}
_WIDTHS = {
    **{"receiver": 11, "state": 8, "rec/s": 6, "released": 8, "have": 6, "late": 6, "reqs": 5, "lost": 5},
    **{"lag": 8, "edge pk": 7, "floor": 5, "published": 9, "waiting": 7, "unwitnessed": 11},
    **{"subscriber in": 13, "records": 8, "gaps": 4},
}
"""Minimum widths of columns, so that they do not move while numbers grow."""
_RECEIVER_COLUMNS = ("receiver", "state", "rec/s", "released", "have", "late", "reqs", "lost", "lag", "edge pk")
_LEFT = frozenset({"receiver", "state", "floor", "subscriber in"})
_FAR_BEHIND = 50
"""A receiver in the ring that is missing more slots than this is catching up."""


def picture(show: Show, tale: EventText, world: str, width: int, height: int) -> RenderableType:
    """Return the live view, in at most `height` lines."""
    receivers = show.cluster.of_role(RECEIVER)
    gap = 3 if width >= WIDE else 1
    above = 3 + len(receivers) + 2
    floors = _fitting(show.floors(), max(2, height - above - 2 - _FEWEST_EVENTS))
    below = max(len(floors), len(show.customers.all)) + 2
    return Group(
        _head(show),
        Text(world, "dim", no_wrap=True, overflow="ellipsis"),
        Text(),
        _receivers(show, receivers, gap),
        Text(),
        _beside(_floors(floors, gap), _customers(show, gap), gap),
        *_events(tale.sentences, height - above - below),
    )


def _newest(show: Show) -> dict[str, Any]:
    """Return the status of the receiver with the highest `have` in the newest ring; {} if none is in a ring."""
    statuses = [member.status for member in show.cluster.of_role(RECEIVER) if member.running]
    active = [status for status in statuses if status.get("state") == "ACTIVE"]
    return max(active, key=lambda status: (ring_number(status["generation"]), status["have"]), default={})


def ring_number(generation: str) -> int:
    """Return the count of a generation, without the server that made it."""
    return int(generation.partition("@")[0])


def _head(show: Show) -> Text:
    parts = [f"{show.elapsed_s:5.1f} s", show.phase]
    newest = _newest(show)
    if newest:
        parts.append(f"ring {ring_number(newest['generation'])}, {len(newest['members'])} members")
        parts.append(f"slot {newest['have']:,}")
    spread_ns = show.releases.spread_ns()
    if spread_ns is not None:
        parts.append(f"spread {spread_ns / 1e6:.2f} ms")
    head = Text(no_wrap=True, overflow="ellipsis")
    head.append(parts[0], "bold").append("   ").append(parts[1], "bold green")
    for part in parts[2:]:
        head.append("  ·  ", "dim").append(part)
    return head


def _table(columns: Iterable[str], gap: int) -> Table:
    table = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False, header_style="dim")
    for title in columns:
        side: Literal["left", "right"] = "left" if title in _LEFT else "right"
        table.add_column(title, justify=side, no_wrap=True, overflow="ellipsis", min_width=_WIDTHS[title])
    return table


def _receivers(show: Show, receivers: Sequence[ClusterNode], gap: int) -> Table:
    table = _table(_RECEIVER_COLUMNS, gap)
    newest = _newest(show)
    for member in receivers:
        name, status = member.place.name, member.status
        if not member.running:
            ended = ("ended", "dim") if member.expected_end or member.process is None else ("DOWN", "bold red")
            table.add_row(name, Text(*ended), *[""] * (len(_RECEIVER_COLUMNS) - 2))
            continue
        state = str(status.get("state", ""))
        behind_ns = show.releases.behind_ns(name) if state == "ACTIVE" else None
        table.add_row(
            name,
            _state(state, status, newest),
            f"{show.lives.records_a_second(name):,.0f}",
            f"{status.get('tape_records', 0):,}",
            f"{status.get('have', 0):,}",
            f"{show.releases.logs[name].late:,}",
            f"{show.lives.total(name, 'requests'):,}",
            f"{show.lives.total(name, 'lost_on_purpose'):,}",
            "" if behind_ns is None else f"{behind_ns / 1e3:,.0f} µs",
            f"{show.lives.edge_packets(name):,}",
        )
    return table


def _state(state: str, status: dict[str, Any], newest: dict[str, Any]) -> Text:
    if state == "ACTIVE" and newest:
        if status["generation"] != newest["generation"]:
            return Text("old ring", "yellow")
        if status["have"] < newest["have"] - _FAR_BEHIND:
            return Text("catch-up", "cyan")
    return Text(*_STATES.get(state, (state.lower(), "")))


def _fitting(floors: Sequence[FloorLine], most: int) -> list[FloorLine]:
    """Return at most `most` floors; the last one sums those that do not fit."""
    if len(floors) <= most:
        return list(floors)
    busiest = sorted(floors, key=lambda floor: -floor.published)
    shown, others = busiest[: most - 1], busiest[most - 1 :]
    counts = zip(*((floor.published, floor.waiting, floor.unwitnessed) for floor in others), strict=True)
    published, waiting, unwitnessed = map(sum, counts)
    running = any(floor.running for floor in others)
    return [*shown, FloorLine(f"+ {len(others)}", "", published, waiting, unwitnessed, running)]


def _floors(floors: Sequence[FloorLine], gap: int) -> Table:
    table = _table(("floor", "published", "waiting", "unwitnessed"), gap)
    for floor in floors:
        style = "" if floor.running else "dim"
        waiting = Text(f"{floor.waiting:,}", "yellow" if floor.waiting else style)
        table.add_row(floor.name, f"{floor.published:,}", waiting, f"{floor.unwitnessed:,} pk", style=style)
    return table


def _customers(show: Show, gap: int) -> Table:
    table = _table(("subscriber in", "records", "gaps", "lost"), gap)
    for customer in show.customers.all:
        cells = (f"{customer.records:,}", f"{customer.gaps:,}", f"{customer.lost:,}")
        table.add_row(customer.region, *cells, style="red" if customer.error else "")
    return table


def _beside(left: Table, right: Table, gap: int) -> Table:
    grid = Table.grid(padding=(0, 2 * gap, 0, 0))
    grid.add_row(left, right)
    return grid


def _events(sentences: Sequence[Sentence], lines: int) -> list[Text]:
    """Return the last events, below an empty line."""
    if lines < 2:
        return []
    return [Text(), *(line_of(sentence) for sentence in sentences[-(lines - 1) :])]


def line_of(sentence: Sentence) -> Text:
    line = Text(f"{sentence.at_s:5.1f} s  ", "dim", no_wrap=True, overflow="ellipsis")
    return line.append(sentence.text, sentence.style or "default")

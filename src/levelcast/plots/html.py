"""HTML elements that sections of the report use: cards and tables."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape


def card(title: str, inside: str) -> str:
    return f'<section class="card"><h3>{escape(title)}</h3>{inside}</section>'


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def line(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    return f"<table>{line(head, 'th')}{''.join(line(row, 'td') for row in rows)}</table>"

"""Format parts of Markdown pages."""

from __future__ import annotations

from collections.abc import Iterable

NOTE = "<!-- Made from the code: change it there, then run python -m website.reference --write. -->"


def table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table; bars in its cells are escaped."""
    listed = [list(columns), *map(list, rows)]
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in listed]
    return "\n".join([lines[0], "|" + "---|" * len(listed[0]), *lines[1:]])


def code(text: str) -> str:
    """Return inline code; empty for an empty text."""
    return f"`{text}`" if text else ""


def page(title: str, *parts: str) -> str:
    """Return a page that is generated completely."""
    return "\n\n".join((f"# {title}", NOTE, *(part.strip("\n") for part in parts if part))) + "\n"

"""Make the sidebar from the lists of `docs/index.md`, which stays a page of plain links.

Each heading of level 2 becomes the caption of the pages that are linked in the list below it. The pages of
`docs/benchmarks/` are below `docs/benchmarks.md`.
"""

from __future__ import annotations

import re
from typing import Any

HOME, BENCHMARKS = "index", "benchmarks"
_CAPTION = re.compile(r"^## (.+)$", re.MULTILINE)
_ENTRY = re.compile(r"^- \[([^\]]+)\]\(([^)#\s]+)\)", re.MULTILINE)


def sections(text: str) -> dict[str, list[tuple[str, str]]]:
    """Return the captions of the home page, each with the titles and paths of its pages."""
    _, *parts = _CAPTION.split(text)
    return {caption: _ENTRY.findall(part) for caption, part in zip(parts[::2], parts[1::2], strict=True)}


def _toctree(*lines: str) -> str:
    return "\n".join(("\n\n```{toctree}", ":hidden:", *lines, "```\n"))


def _add_toctrees(_: Any, docname: str, source: list[str]) -> None:
    if docname == HOME:
        for caption, pages in sections(source[0]).items():
            entries = [f"{title} <{path.removeprefix('../').lower()}>" for title, path in pages]
            source[0] += _toctree(f":caption: {caption}", "", *entries)
    elif docname == BENCHMARKS:
        source[0] += _toctree(":glob:", "", f"{BENCHMARKS}/*")


def setup(app: Any) -> None:
    app.connect("source-read", _add_toctrees)

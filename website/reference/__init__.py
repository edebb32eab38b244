"""Write the reference pages that are made from the code: `python -m website.reference --write`.

The pages are committed, so that every viewer shows them; a test fails when one of them is not current.
"""

from __future__ import annotations

from collections.abc import Callable

from website.layout import ROOT
from website.reference import commands, metrics, network_keys, wire_formats

DOCS = ROOT / "docs"
WRITE = "python -m website.reference --write"
PAGES: dict[str, Callable[[], str]] = {
    "commands.md": commands.page,
    "metrics.md": metrics.page,
    "network-keys.md": network_keys.page,
    "wire-formats.md": lambda: wire_formats.page((DOCS / "wire-formats.md").read_text(encoding="utf-8")),
}
"""The text of each page, by its path in `docs/`."""


def stale() -> list[str]:
    """Return the pages that differ from the code."""
    return [name for name, page in PAGES.items() if (DOCS / name).read_text(encoding="utf-8") != page()]


def write() -> list[str]:
    """Rewrite the pages that differ from the code; return them."""
    written = stale()
    for name in written:
        (DOCS / name).write_text(PAGES[name](), encoding="utf-8")
    return written

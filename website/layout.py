"""Define the folders of the site, and its pages that are files of the root; imports nothing of Sphinx."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOT_PAGES = {name.removesuffix(".md").lower(): name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")}
"""Pages of the site with the text of a file of the root."""
SOURCES = "_source"
"""Folder of the site with a page for each other file that is linked: `_source/src/levelcast/units.py.html`."""

"""Describe the tables and keys of the network file next to the code that reads them (`docs/network-keys.md`).

Each module of `levelcast.network.sections` declares its tables as `TABLES`. A test compares them with the keys that the
module reads. Types are not repeated here: they are the `expected` texts of `levelcast.network.fields`.
"""

from __future__ import annotations

from typing import NamedTuple

REQUIRED = "required"
NONE = "none"


class FileKey(NamedTuple):
    """A key of a table."""

    name: str
    meaning: str
    """Markdown; links are relative to `docs/`."""
    default: str = REQUIRED
    """The default value, or its origin if it depends on other values."""
    type: str = ""
    """Only for values that `Fields` does not check by itself."""


class FileTable(NamedTuple):
    """A table of the network file; in an array of tables, each of its items."""

    header: str
    """As in the file, such as [core] or [[site]]; empty for keys above all tables."""
    keys: tuple[FileKey, ...]
    note: str = ""
    """Presence of the table, if it is not simply optional."""

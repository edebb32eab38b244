"""Write `docs/network-keys.md`: every table and key of the network file.

Types are recorded while the sections read a file that has every table.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

from levelcast.network.fields import Fields, ProblemReport
from levelcast.network.keys import FileKey, FileTable
from levelcast.network.sections import SECTIONS, TABLES
from levelcast.network.sections.draft import Draft
from levelcast.network.toml_lines import LineNumbers
from website.reference import markdown

T = TypeVar("T")

_INTRO = """
Every table and key of the [network file](network-file.md). A name has up to 64 letters, digits, `-`, `_` and `.`, and
begins with a letter or digit. A text has up to 200 characters. Quantities are strings with a unit:

| type | units | examples |
|---|---|---|
| duration, at most one hour | ns, us, ms, s, min | `"300us"`, `"35.6ms"` |
| age | s, min, h, d | `"12h"`, `"7d"` |
| size | kB, MB, GB, TB, KiB, MiB, GiB, TiB | `"64MiB"`, `"10GB"` |
| bit rate | kbit, Mbit, Gbit | `"56kbit"`, `"10Mbit"` |
"""
_EVERYTHING: dict[str, Any] = {
    "site": [{"name": "north"}],
    "links": {"delay": "1ms", "pairs": [{"between": ["north", "north"]}]},
    "helpers": {"north": []},
    "timing": {"slot": "20ms"},
    "receiver": [{"name": "r", "id": 1, "site": "north"}],
    "secondary": [{"name": "s", "site": "north"}],
    "reformation": [{"name": "f", "id": 2, "site": "north"}],
    "floor": [{"name": "XNOR", "publisher": 3, "site": "north", "symbols": ["A"]}],
    "gateway": [{"name": "o", "id": 4, "site": "north"}],
    "instruments": {"A": 1},
    "edge": {"group": [{"name": "g", "address": "239.0.0.1", "port": 1, "line": "a"}]},
    "status": {"port": 1},
    "probe": {"every": "1s"},
    "keys": {"authority": "ed25519:" + "A" * 43 + "="},
}
"""A file with every table whose keys are read only if it is present."""
_SHORT = (
    (r" with a unit .*", ""),
    (r"up to 64 letters, .*", "name"),
    (r"a rate in bit/s", "bit rate"),
    (r"a string of up to \d+ characters", "text"),
    (r"a market code of (.*), such as .*", r"\1"),
    (r"(an IPv4 (?:multicast )?address)\b.*", r"\1"),
    (r", such as \"(?:00|ed).*", ""),
    (r"^an? ", ""),
    (r'("[^"]+")', r"`\1`"),
    (r"(\[1, 2, 4\])", r"`\1`"),
)


class RecordingReport(ProblemReport):
    """Record the type of each value that a section reads, by the table's header and the key."""

    def __init__(self) -> None:
        super().__init__(LineNumbers(""))
        self.types: dict[tuple[str, str], str] = {}


class RecordingFields(Fields):
    """Read a table, and record the types of its values."""

    report: RecordingReport

    def raw(self, key: str) -> object:
        self.report.types.setdefault((_header(self.path), key), "")
        return super().raw(key)

    def read(self, key: str, accept: Callable[[Any], T | None], expected: str, *args: Any, **options: Any) -> T | None:
        self.report.types[_header(self.path), key] = expected
        return super().read(key, accept, expected, *args, **options)


def _header(path: tuple[str | int, ...]) -> str:
    names = ".".join(part for part in path if isinstance(part, str))
    if not path:
        return ""
    return f"[[{names}]]" if isinstance(path[-1], int) else f"[{names}]"


def read_types() -> dict[tuple[str, str], str]:
    """Return the expected value of each key that the sections read, by the table's header and the key."""
    report = RecordingReport()
    root, draft = RecordingFields(report, (), _EVERYTHING, "the file"), Draft(report)
    for read in SECTIONS:
        read(root, draft)
    if report.problems:
        raise AssertionError(f"the file with every table is not valid: {report.problems}")
    return report.types


def _type(table: FileTable, key: FileKey, types: dict[tuple[str, str], str]) -> str:
    text = key.type or types[table.header, key.name]
    for pattern, short in _SHORT:
        text = re.sub(pattern, short, text)
    return text.strip()


def _section(table: FileTable, types: dict[tuple[str, str], str]) -> str:
    rows = [
        (
            key.name if " " in key.name else markdown.code(key.name),
            _type(table, key, types),
            key.default,
            key.meaning,
        )
        for key in table.keys
    ]
    note = f"{table.note[0].upper()}{table.note[1:]}.\n\n" if table.note else ""
    title = markdown.code(table.header) or "Above all tables"
    return f"## {title}\n\n{note}" + markdown.table(("key", "type", "default", "meaning"), rows)


def page() -> str:
    """Return the page."""
    types = read_types()
    return markdown.page("Keys of the network file", _INTRO, *(_section(table, types) for table in TABLES))

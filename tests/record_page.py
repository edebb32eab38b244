"""The byte layout of every record, from the definitions in the code.

python -m tests.record_page            # print the tables (Markdown)
python -m tests.record_page --write    # put them into docs/records.md
"""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from levelcast.records import RECORD_TYPES, RecordType
from levelcast.wire import channel_plan, membership, watermark

PAGE = Path(__file__).resolve().parents[1] / "docs" / "records.md"
BEGIN, END = "<!-- layouts: python -m tests.record_page --write -->", "<!-- end of layouts -->"

Row = tuple[int, str, str, str]
"""Offset, type, field and part."""

SYSTEM_TAILS: tuple[tuple[str, bytes, struct.Struct, str, str], ...] = (
    (
        "membership",
        membership._TEXT_START.encode(),
        membership._HEAD,
        "version, count",
        "count × (member u16, life u32), zeros up to a 4-byte word",
    ),
    (
        "channel plan",
        channel_plan.PLAN_TEXT,
        channel_plan._TAIL,
        "kind, reserved, stripe, number, part, parts, next_sequence, digest, size, reserved",
        "size bytes of content, zeros up to a 4-byte word",
    ),
    (
        "watermark",
        watermark.WATERMARK_TEXT,
        watermark._TAIL,
        "next_sequence, stripe, reserved, hold, hold_before, hold_from",
        "",
    ),
)
"""Levelcast's own system messages: name, start of the text, fixed part of the tail with its fields, what follows."""

_CODES = {"B": "u8", "H": "u16", "I": "u32", "Q": "u64"}


def type_name(kind: np.dtype[np.generic]) -> str:
    """`u32` for `<u4`, `char[71]` for `S71`."""
    if kind.kind == "S":
        return f"char[{kind.itemsize}]" if kind.itemsize > 1 else "char"
    return f"{kind.kind}{kind.itemsize * 8}"


def record_rows(kind: RecordType) -> Iterator[Row]:
    assert kind.dtype.fields is not None
    for name in kind.dtype.names or ():
        field, offset = kind.dtype.fields[name][:2]
        yield int(offset), type_name(field), f"`{name}`", "DBN" if offset < kind.base_size else "tail"


def tail_rows(start: int, layout: struct.Struct, names: str) -> Iterator[Row]:
    """The fields of a little-endian struct from an offset on."""
    items = re.findall(r"\d*[a-zA-Z]", layout.format.removeprefix("<"))
    for item, name in zip(items, names.split(", "), strict=True):
        kind = f"char[{item[:-1]}]" if item.endswith("s") else _CODES[item]
        yield start, kind, name if name == "reserved" else f"`{name}`", "tail"
        start += struct.calcsize(f"<{item}")


def table(rows: Sequence[Row]) -> list[str]:
    return [
        "| offset | type | field | part |",
        "|---|---|---|---|",
        *(f"| {offset} | {kind} | {field} | {part} |" for offset, kind, field, part in rows),
    ]


def layouts() -> str:
    """All tables: the record types, then the tails of system messages."""
    lines: list[str] = []
    for kind in RECORD_TYPES:
        size, base = kind.dtype.itemsize, kind.base_size
        tail = f", {base} of DBN and {size - base} of the tail" if size > base else ""
        lines += [f"## {kind.name}", "", f"Type {kind.rtype:#04x}, {size} bytes{tail}.", ""]
        lines += [*table(list(record_rows(kind))), ""]
    start = next(kind.base_size for kind in RECORD_TYPES if kind.name == "system")
    for name, text, layout, names, rest in SYSTEM_TAILS:
        rows = list(tail_rows(start, layout, names))
        if rest:
            rows.append((start + layout.size, "", rest, "tail"))
        lines += [f"## system: {name}", "", f'A system record whose `msg` begins with "{text.decode()}".', ""]
        lines += [*table(rows), ""]
    return "\n".join(lines).rstrip()


def in_page(text: str, drawn: str) -> str:
    """The page with the tables between its marks."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{drawn}\n\n{END}{after}"


def main() -> None:
    if "--write" in sys.argv[1:]:
        PAGE.write_text(in_page(PAGE.read_text(encoding="utf-8"), layouts()), encoding="utf-8")
    else:
        print(layouts())


if __name__ == "__main__":
    main()

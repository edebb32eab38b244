"""Dictionary of FIX 4.4: the rows of the tables as fields, groups and layouts of messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from levelcast.market.fix.field_table import FIELDS_BY_TYPE
from levelcast.market.fix.message_table import BLOCKS, HEADER, MESSAGE_NAMES, MESSAGES, TRAILER
from levelcast.market.fix.value_table import ALLOWED_VALUES


class Field(NamedTuple):
    tag: int
    name: str
    type: str
    values: frozenset[bytes] = frozenset()
    """The only values allowed; empty if any value of the type is."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The fields of a message, or of one entry of a repeating group, in their order."""

    name: str
    members: Mapping[int, Layout | None]
    """By tag: None for a field, the layout of the entries for the count of a group."""
    required: tuple[int, ...]

    @property
    def first(self) -> int:
        """Tag of the first field, which begins every entry of a group."""
        return next(iter(self.members))


def _rows(text: str) -> Iterator[str]:
    """Return the rows of a table with their continuation lines joined."""
    joined = text.replace("\n    ", " ").strip()
    return (row for row in joined.split("\n") if row)


def _read_fields() -> Iterator[Field]:
    allowed = {name: frozenset(values.encode().split()) for name, _, values in _split(ALLOWED_VALUES)}
    for kind, rows in FIELDS_BY_TYPE.items():
        for entry in rows.split():
            tag, _, name = entry.partition(":")
            yield Field(int(tag), name, kind, allowed.get(name, frozenset()))


def _split(text: str) -> Iterator[tuple[str, str, str]]:
    return (row.partition(":") for row in _rows(text))


FIELDS: dict[int, Field] = {field.tag: field for field in sorted(_read_fields())}
TAGS: dict[str, int] = {field.name: field.tag for field in FIELDS.values()}

_BLOCKS = {name: rest for name, _, rest in _split(BLOCKS)}


def _words(text: str) -> list[str]:
    """Return the fields and brackets of a row, with the blocks in it replaced by their fields."""
    words: list[str] = []
    for word in text.replace("(", " ( ").replace(")", " ) ").split():
        block = word.rstrip("!")
        words += _words(_BLOCKS[block]) if block in _BLOCKS else [word]
    return words


def _layout(name: str, words: Iterator[str]) -> Layout:
    members: dict[int, Layout | None] = {}
    required: list[int] = []
    tag = 0
    for word in words:
        if word == ")":
            break
        if word == "(":
            members[tag] = _layout(FIELDS[tag].name, words)
            continue
        tag = TAGS[word.rstrip("!")]
        members[tag] = None
        if word.endswith("!"):
            required.append(tag)
    return Layout(name, members, tuple(required))


def _layouts(rows: Iterable[tuple[str, str, str]]) -> Iterator[tuple[bytes, Layout]]:
    for head, _, fields in rows:
        code, _, name = head.partition(" ")
        yield code.encode(), _layout(name, iter(_words(fields)))


HEADER_LAYOUT = _layout("header", iter(_words(HEADER)))
TRAILER_LAYOUT = _layout("trailer", iter(_words(TRAILER)))
LAYOUTS: dict[bytes, Layout] = dict(_layouts(_split(MESSAGES)))
"""By MsgType."""

NAMES: dict[bytes, str] = {
    code.encode(): name for code, _, name in (entry.partition(":") for entry in MESSAGE_NAMES.split())
}
"""Every message of FIX 4.4 by its MsgType."""

SESSION_TYPES = frozenset((b"0", b"1", b"2", b"3", b"4", b"5", b"A"))

DATA_OF_LENGTH: dict[int, int] = {
    field.tag: TAGS[field.name.removesuffix("Length").removesuffix("Len")]
    for field in FIELDS.values()
    if field.type == "Length" and field.name not in ("BodyLength", "MaxMessageSize")
}
"""The tag of a data field by the tag of its length. The data may contain the delimiter."""

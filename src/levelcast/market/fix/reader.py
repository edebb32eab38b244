"""Messages as values: split a frame into fields, check structure and values, name the first fault.

A message that fails a check is returned with its `rejection`, its type, number and header fields, since the session
needs these to answer. The checks of the structure are in `shape`; here are those of the values: no value is empty,
each has the form of its type and is in the list of its field, and each count equals the number of entries. `dict`,
`zip` and `split` do the work per field; only numbers, times and listed values cost a call.
"""

from __future__ import annotations

from collections.abc import Sequence

from levelcast.market.fix.dictionary import DATA_OF_LENGTH, FIELDS, LAYOUTS
from levelcast.market.fix.framing import SOH, FixFrame
from levelcast.market.fix.reasons import Rejection, SessionRejectReason
from levelcast.market.fix.shape import MessageShape, Place, describe
from levelcast.market.fix.values import CHECKS, is_count

MAX_SHAPES = 64
"""Shapes that a reader keeps. A program that sends more pays for them itself."""

_DATA_OF_LENGTH: dict[bytes, bytes] = {b"%d" % length: b"%d" % data for length, data in DATA_OF_LENGTH.items()}

Fields = dict[int, "bytes | list[Fields]"]
"""By tag: a value, or the entries of a group under the tag of its count."""


class Message:
    """A message as it was received."""

    __slots__ = ("fields", "raw", "rejection", "seq", "type")

    def __init__(self, kind: bytes, seq: int | None, fields: Fields, rejection: Rejection | None, raw: bytes) -> None:
        self.type = kind
        self.seq = seq
        self.fields = fields
        self.rejection = rejection
        self.raw = raw

    def get(self, tag: int) -> bytes:
        """Return the value of a field, empty if the message does not have it."""
        value = self.fields.get(tag, b"")
        return value if isinstance(value, bytes) else b"%d" % len(value)

    def group(self, tag: int) -> list[Fields]:
        """Return the entries of the group with this count."""
        value = self.fields.get(tag, [])
        return value if isinstance(value, list) else []

    @property
    def has_layout(self) -> bool:
        """Return whether the fields of the type are known, so that an application can support it."""
        return self.type in LAYOUTS

    def __repr__(self) -> str:
        return f"Message({self.type!r}, {self.seq}, {self.fields}, {self.rejection})"


class Reader:
    """Read frames; keeps the shapes that it has seen."""

    def __init__(self) -> None:
        self._shapes: dict[tuple[bytes, tuple[bytes, ...]], MessageShape] = {}

    def read(self, frame: FixFrame) -> Message:
        names, _, values = zip(*[part.partition(b"=") for part in frame.body.split(SOH)], strict=True)
        kind = values[0]
        shape = self._shapes.get((kind, names))
        if shape is None:
            if not _DATA_OF_LENGTH.keys().isdisjoint(names):
                return self._read_with_data(frame)
            shape = describe(kind, names)
            if len(self._shapes) >= MAX_SHAPES:
                self._shapes.clear()
            self._shapes[kind, names] = shape
        return self._apply(shape, names, values, frame)

    def _apply(self, shape: MessageShape, names: Sequence[bytes], values: Sequence[bytes], frame: FixFrame) -> Message:
        rejection = shape.rejection or (_empty(names, values) if b"" in values else None)
        if rejection is None:
            for index, check, tag in shape.checks:
                if not check(values[index]):
                    rejection = _refused(tag, values[index])
                    break
            else:
                for index, entries in shape.counts:
                    if int(values[index]) != entries:
                        rejection = Rejection(SessionRejectReason.GROUP_COUNT, names[index])
                        break
        seq = None
        if shape.seq_index >= 0 and is_count(text := values[shape.seq_index]):
            seq = int(text)
        fields: Fields
        if rejection is not None:
            fields = {tag: values[index] for tag, index in shape.header.items()}
        elif shape.recipe is None:
            fields = dict(zip(shape.tags, values, strict=True))
        else:
            fields = assemble(shape.recipe, values)
        return Message(shape.type, seq, fields, rejection, frame.raw)

    def _read_with_data(self, frame: FixFrame) -> Message:
        """Read a message with data, which may contain delimiters. Its shape is not kept."""
        names, values, fault = split_with_data(frame.body)
        shape = describe(values[0], names)
        shape.rejection = fault or shape.rejection
        return self._apply(shape, names, values, frame)


def assemble(recipe: Sequence[Place], values: Sequence[bytes]) -> Fields:
    """Return the fields of a message or an entry with groups."""
    fields: Fields = {}
    for tag, index, entries in recipe:
        fields[tag] = values[index] if entries is None else [assemble(entry, values) for entry in entries]
    return fields


def split_with_data(body: bytes) -> tuple[list[bytes], list[bytes], Rejection | None]:
    """Return names and values of the fields, and a fault if the data after a length does not have it."""
    names: list[bytes] = []
    values: list[bytes] = []
    at, size = 0, len(body) + 1
    fault: Rejection | None = None
    while at < size:
        end = body.find(SOH, at)
        end = size - 1 if end < 0 else end
        name, _, value = body[at:end].partition(b"=")
        names.append(name)
        values.append(value)
        at = end + 1
        data = _DATA_OF_LENGTH.get(name)
        if data is None or fault is not None:
            continue
        head = data + b"="
        end = at + len(head) + int(value) if is_count(value) else size
        if body[at : at + len(head)] != head or end >= size or (body + SOH)[end : end + 1] != SOH:
            fault = Rejection(SessionRejectReason.FORMAT_INCORRECT, name)
            continue
        names.append(data)
        values.append(body[at + len(head) : end])
        at = end + 1
    return names, values, fault


def _empty(names: Sequence[bytes], values: Sequence[bytes]) -> Rejection:
    return Rejection(SessionRejectReason.NO_VALUE, names[values.index(b"")])


def _refused(tag: int, value: bytes) -> Rejection:
    form = CHECKS[FIELDS[tag].type](value)
    return Rejection(SessionRejectReason.VALUE_INCORRECT if form else SessionRejectReason.FORMAT_INCORRECT, b"%d" % tag)

"""Structure of messages: whether the fields are allowed, complete and in order, and which group they are in.

The structure depends on the MsgType and on the sequence of tags alone, its *shape*. Programs send few shapes, so the
reader checks a shape once and keeps the result: a `MessageShape` has the faults, the checks of values that remain for
each message, and the recipe of its groups. The order of the checks is that of the fields; missing fields come last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from levelcast.market.fix.dictionary import FIELDS, HEADER_LAYOUT, LAYOUTS, NAMES, TRAILER_LAYOUT, Layout
from levelcast.market.fix.reasons import Rejection, SessionRejectReason
from levelcast.market.fix.values import CHECKS, Check, any_text

MSG_SEQ_NUM = 34
BEGIN_STRING, BODY_LENGTH, CHECK_SUM, MSG_TYPE = 8, 9, 10, 35
_FRAMING = frozenset({BEGIN_STRING, BODY_LENGTH, CHECK_SUM})
"""Fields that the framing takes off; one of them inside a message is a repetition."""

TAG_OF_NAME: dict[bytes, int] = {b"%d" % tag: tag for tag in FIELDS}


class Place(NamedTuple):
    """A field of a recipe: its tag, its position, and the recipes of the entries if it is the count of a group."""

    tag: int
    at: int
    entries: tuple[tuple[Place, ...], ...] | None = None


class ValueCheck(NamedTuple):
    at: int
    check: Check
    tag: int


class CountCheck(NamedTuple):
    at: int
    entries: int


@dataclass(slots=True)
class MessageShape:
    type: bytes
    tags: tuple[int, ...] = ()
    """Of all fields, in order. Only valid for a shape without a rejection."""
    recipe: tuple[Place, ...] | None = None
    """None if the message has no group."""
    checks: tuple[ValueCheck, ...] = ()
    counts: tuple[CountCheck, ...] = ()
    header: dict[int, int] = field(default_factory=dict)
    """Index of the first occurrence of every header field, for messages with a fault too."""
    seq_index: int = -1
    rejection: Rejection | None = None


class _Fault(Exception):
    def __init__(self, reason: SessionRejectReason, index: int, tag: int = 0) -> None:
        super().__init__(reason)
        self.reason, self.index, self.tag = reason, index, tag


def value_check(tag: int) -> Check:
    """Return the check of a field's values: its type's form, and its list of values if it has one."""
    entry = FIELDS[tag]
    if not entry.values:
        return CHECKS[entry.type]
    if entry.type == "MultipleValueString":
        return lambda value: entry.values.issuperset(value.split(b" "))
    return entry.values.__contains__


VALUE_CHECKS: dict[int, Check] = {tag: value_check(tag) for tag in FIELDS}


def describe(kind: bytes, names: Sequence[bytes]) -> MessageShape:
    """Return the shape of a message, with its first structural fault. The first name is that of MsgType."""
    shape = MessageShape(kind)
    header = HEADER_LAYOUT.members
    for index, name in enumerate(names):
        tag = TAG_OF_NAME.get(name)
        if tag is not None and tag in header and tag not in _FRAMING:
            shape.header.setdefault(tag, index)
    shape.seq_index = shape.header.get(MSG_SEQ_NUM, -1)
    if kind and kind not in NAMES:
        shape.rejection = Rejection(SessionRejectReason.INVALID_TYPE)
        return shape
    try:
        _Walk(shape, names).message(LAYOUTS.get(kind))
    except _Fault as fault:
        shape.rejection = Rejection(fault.reason, b"%d" % fault.tag if fault.tag else _tag_text(names[fault.index]))
    return shape


def _tag_text(name: bytes) -> bytes:
    """Return the tag of a rejection, which must be an integer; empty if it is not one."""
    digits = name[1:] if name[:1] == b"-" else name
    return name if digits.isdigit() and len(digits) <= 9 else b""


Members = Mapping[int, Layout | None]


class _Walk:
    """One pass over the tags of a message."""

    def __init__(self, shape: MessageShape, names: Sequence[bytes]) -> None:
        self.shape = shape
        self.tags: list[int] = []
        self.unknown: int | None = None
        for index, name in enumerate(names):
            tag = TAG_OF_NAME.get(name)
            if tag is None:
                self.unknown = index
                break
            self.tags.append(tag)
        self.counts: list[CountCheck] = []

    def message(self, body: Layout | None) -> None:
        """Walk through header, body and trailer. Without a layout any field may be in the body, in any number."""
        seen: set[int] = set(_FRAMING)
        recipe: list[Place] = []
        at, section = 0, 0
        sections: list[Members] = [HEADER_LAYOUT.members, body.members if body else {}, TRAILER_LAYOUT.members]
        while at < len(self.tags):
            tag = self.tags[at]
            section = self._section(at, section, sections, free=body is None)
            if tag in seen and (body or section != 1):
                raise _Fault(SessionRejectReason.REPEATED, at)
            seen.add(tag)
            place, at = self._field(at, sections[section].get(tag), sections[section])
            recipe.append(place)
        if self.unknown is not None:
            raise _Fault(SessionRejectReason.INVALID_TAG, self.unknown)
        for layout in (HEADER_LAYOUT, body):
            self._complete(layout, seen)
        self._finish(recipe)

    def _section(self, at: int, last: int, sections: list[Members], free: bool) -> int:
        """Return the section of a field, which may not be before the section of the last one."""
        tag = self.tags[at]
        section = next((index for index, members in enumerate(sections) if tag in members), 1 if free else -1)
        if section < 0:
            raise _Fault(SessionRejectReason.NOT_DEFINED_FOR_TYPE, at)
        if section < last:
            raise _Fault(SessionRejectReason.OUT_OF_ORDER, at)
        return section

    def _field(self, at: int, group: Layout | None, outer: Members) -> tuple[Place, int]:
        if group is None:
            return Place(self.tags[at], at), at + 1
        return self._group(at, group, outer)

    def _group(self, at: int, layout: Layout, outer: Members) -> tuple[Place, int]:
        """Return the place of a group and the index after it."""
        tags, count_at = self.tags, at
        entries: list[tuple[Place, ...]] = []
        at += 1
        while at < len(tags) and tags[at] == layout.first:
            entry, at = self._entry(at, layout, outer)
            entries.append(entry)
        if not entries and at < len(tags) and tags[at] in layout.members and tags[at] not in outer:
            raise _Fault(SessionRejectReason.GROUP_ORDER, at)
        self.counts.append(CountCheck(count_at, len(entries)))
        return Place(tags[count_at], count_at, tuple(entries)), at

    def _entry(self, at: int, layout: Layout, outer: Members) -> tuple[tuple[Place, ...], int]:
        """Return the fields of one entry, which are in the layout's order, and the index after them."""
        order = {tag: rank for rank, tag in enumerate(layout.members)}
        places: list[Place] = []
        last = -1
        while at < len(self.tags) and (rank := order.get(self.tags[at], -1)) >= 0:
            tag = self.tags[at]
            if rank <= last:
                if tag == layout.first or tag in outer:
                    break
                repeated = any(place.tag == tag for place in places)
                raise _Fault(SessionRejectReason.REPEATED if repeated else SessionRejectReason.GROUP_ORDER, at)
            last = rank
            place, at = self._field(at, layout.members[tag], layout.members)
            places.append(place)
        self._complete(layout, {place.tag for place in places})
        return tuple(places), at

    def _complete(self, layout: Layout | None, seen: set[int]) -> None:
        for tag in layout.required if layout else ():
            if tag not in seen:
                raise _Fault(SessionRejectReason.REQUIRED_MISSING, 0, tag)

    def _finish(self, recipe: list[Place]) -> None:
        shape = self.shape
        shape.tags = tuple(self.tags)
        shape.counts = tuple(self.counts)
        shape.recipe = tuple(recipe) if self.counts else None
        shape.checks = tuple(
            ValueCheck(index, VALUE_CHECKS[tag], tag)
            for index, tag in enumerate(self.tags)
            if index and VALUE_CHECKS[tag] is not any_text
        )

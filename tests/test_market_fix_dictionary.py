"""The tables have every field of FIX 4.4, and each layout has the fields that a message of its type needs."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable

import pytest

from levelcast.market.fix.dictionary import (
    DATA_OF_LENGTH,
    FIELDS,
    HEADER_LAYOUT,
    LAYOUTS,
    NAMES,
    SESSION_TYPES,
    TAGS,
    TRAILER_LAYOUT,
    Layout,
)
from levelcast.market.fix.shape import VALUE_CHECKS
from levelcast.market.fix.value_table import ALLOWED_VALUES
from levelcast.market.fix.values import CHECKS

RENAMED = {"HaltReasonChar"}
"""By versions after 4.4."""


def test_every_field_has_a_tag_of_its_own_and_a_known_type() -> None:
    assert len(FIELDS) == len(TAGS) == 912
    assert max(FIELDS) == 956
    assert {field.type for field in FIELDS.values()} == CHECKS.keys()


def test_names_and_tags_are_those_of_a_dissector(require_tool: Callable[[str], str]) -> None:
    lines = subprocess.run([require_tool("tshark"), "-G", "fields"], capture_output=True, text=True, check=True).stdout
    theirs = {(int(tag), name) for name, tag in re.findall(r"^F\t(\w+) \((\d+)\)\tfix\.\1\t", lines, re.MULTILINE)}
    assert len(theirs) > 1_000
    ours = {(field.tag, field.name) for field in FIELDS.values() if field.name not in RENAMED}
    assert ours <= theirs


def test_allowed_values_have_the_form_of_their_type() -> None:
    rows = re.findall(r"^(\w+):", ALLOWED_VALUES, re.MULTILINE)
    assert len(rows) == len(set(rows)) > 200
    for name in rows:
        field = FIELDS[TAGS[name]]
        for value in field.values:
            assert field.type == "MultipleValueString" or CHECKS[field.type](value), (name, value)
            assert VALUE_CHECKS[field.tag](value)


def groups_of(layout: Layout) -> list[tuple[int, Layout]]:
    found = [(tag, group) for tag, group in layout.members.items() if group is not None]
    return found + [inner for _, group in found for inner in groups_of(group)]


@pytest.mark.parametrize("code", sorted(LAYOUTS))
def test_layout_has_groups_behind_counts_and_known_required_fields(code: bytes) -> None:
    layout = LAYOUTS[code]
    assert layout.name == NAMES[code]
    groups = groups_of(layout)
    counts = {tag for tag, _ in groups}
    assert counts == {tag for tag in all_tags(layout) if FIELDS[tag].type == "NumInGroup"}
    for _, group in groups:
        assert group.members
        assert set(group.required) <= group.members.keys()
    assert set(layout.required) <= layout.members.keys()
    assert not layout.members.keys() & (HEADER_LAYOUT.members.keys() | TRAILER_LAYOUT.members.keys())


def all_tags(layout: Layout) -> set[int]:
    return set(layout.members).union(*(all_tags(group) for group in layout.members.values() if group is not None))


def test_layouts_cover_the_session_and_order_entry() -> None:
    assert len(NAMES) == 93
    orders = {b"D", b"F", b"G", b"q", b"r", b"H", b"AF", b"8", b"9", b"j"}
    market = {b"x", b"y", b"e", b"f", b"AN", b"AO", b"AP", b"V", b"W", b"X", b"Y"}
    assert LAYOUTS.keys() >= SESSION_TYPES | orders | market
    assert LAYOUTS.keys() <= NAMES.keys()


def test_required_fields_of_an_order() -> None:
    assert {FIELDS[tag].name for tag in LAYOUTS[b"D"].required} == {"ClOrdID", "Side", "TransactTime", "OrdType"}


def test_length_fields_name_their_data() -> None:
    assert len(DATA_OF_LENGTH) == 16
    for length, data in DATA_OF_LENGTH.items():
        assert (FIELDS[length].type, FIELDS[data].type) == ("Length", "data")

"""What the writer makes, the reader and an independent reader return; it refuses values that would break a message."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levelcast.market.fix.dictionary import DATA_OF_LENGTH, FIELDS, HEADER_LAYOUT, LAYOUTS, Field, Layout
from levelcast.market.fix.framing import FixFrame, Framer
from levelcast.market.fix.reader import Fields, Reader
from levelcast.market.fix.values import time_text
from levelcast.market.fix.writer import HeadWriter, encode_fields, seal
from tests.fix_parts import START, sum_of

TEXT = st.binary(min_size=1, max_size=12).filter(lambda value: b"\x01" not in value)
FORMS: dict[str, st.SearchStrategy[bytes]] = {
    "char": TEXT.map(lambda value: value[:1]),
    "Boolean": st.sampled_from([b"Y", b"N"]),
    "Country": st.just(b"US"),
    "Currency": st.just(b"USD"),
    "LocalMktDate": st.just(b"20260105"),
    "MonthYear": st.just(b"202601"),
    "UTCDateOnly": st.just(b"20260105"),
    "UTCTimeOnly": st.just(b"12:00:00"),
    "UTCTimestamp": st.integers(0, 2**61).map(time_text),
    "MultipleValueString": st.just(b"G 6"),
    **dict.fromkeys(("int", "SeqNum", "Length"), st.integers(0, 10**9).map(lambda number: b"%d" % number)),
    **dict.fromkeys(
        ("Amt", "float", "Percentage", "Price", "PriceOffset", "Qty"),
        st.decimals(-(10**6), 10**6, places=4).map(lambda number: str(number).encode()),
    ),
}
SKIPPED = DATA_OF_LENGTH.keys() | set(DATA_OF_LENGTH.values())


def value_of(field: Field) -> st.SearchStrategy[bytes]:
    if field.values:
        return st.sampled_from(sorted(field.values))
    return FORMS.get(field.type, TEXT)


@st.composite
def fields_of(draw: Callable, layout: Layout, entry: bool = False) -> Fields:
    """Draw the required and some other fields of a layout, in its order."""
    chosen = draw(st.sets(st.sampled_from(sorted(layout.members)), max_size=8))
    wanted = (set(layout.required) | chosen | ({layout.first} if entry else set())) - SKIPPED
    fields: Fields = {}
    for tag, group in layout.members.items():
        if tag in wanted:
            entries = st.lists(fields_of(group, entry=True), max_size=3) if group is not None else None
            fields[tag] = draw(entries if entries is not None else value_of(FIELDS[tag]))
    return fields


def frame_of(data: bytes) -> FixFrame:
    framer = Framer()
    framer.feed(data)
    frame = framer.next()
    assert isinstance(frame, FixFrame)
    assert framer.held == 0
    return frame


@pytest.mark.parametrize("kind", sorted(LAYOUTS))
@settings(max_examples=20)
@given(data=st.data())
def test_written_message_is_read_back(kind: bytes, data: st.DataObject) -> None:
    fields = data.draw(fields_of(LAYOUTS[kind]))
    written = HeadWriter(b"A", b"B").message(kind, 7, time_text(START), encode_fields(fields.items()))
    message = Reader().read(frame_of(written))
    assert message.rejection is None
    body = {tag: value for tag, value in message.fields.items() if tag not in HEADER_LAYOUT.members}
    assert body == fields
    assert (message.type, message.seq, message.raw) == (kind, 7, written)


def pairs_of(fields: Fields) -> list[tuple[bytes, bytes]]:
    pairs: list[tuple[bytes, bytes]] = []
    for tag, value in fields.items():
        if isinstance(value, list):
            pairs.append((b"%d" % tag, b"%d" % len(value)))
            pairs += [pair for entry in value for pair in pairs_of(entry)]
        else:
            pairs.append((b"%d" % tag, value))
    return pairs


@given(data=st.data())
def test_independent_reader_reads_what_is_written(
    data: st.DataObject, require_module: Callable[[str], ModuleType]
) -> None:
    simplefix = require_module("simplefix")
    kind = data.draw(st.sampled_from(sorted(LAYOUTS)))
    fields = data.draw(fields_of(LAYOUTS[kind]))
    written = HeadWriter(b"A", b"B").message(kind, 7, time_text(START), encode_fields(fields.items()))
    parser = simplefix.FixParser()
    parser.append_buffer(written)
    theirs = parser.get_message()
    head = [(b"35", kind), (b"34", b"7"), (b"49", b"A"), (b"52", time_text(START)), (b"56", b"B")]
    assert [(tag, value) for tag, value in theirs.pairs[2:-1]] == head + pairs_of(fields)
    assert theirs.encode(raw=True) == written


def test_optional_head_fields_are_in_the_order_of_their_tags() -> None:
    data = HeadWriter(b"A%d", b"B").message_with(b"8", 3, b"T", b"37=1\x01", ((122, b"O"), (43, b"Y"), (97, b"Y")))
    assert data.split(b"\x01", 2)[2].startswith(
        b"35=8\x0134=3\x0143=Y\x0149=A%d\x0152=T\x0156=B\x0197=Y\x01122=O\x0137=1\x01"
    )
    assert HeadWriter(b"A%d", b"B%").message(b"8", 3, b"T", b"37=1\x01").count(b"49=A%d\x0152=T\x0156=B%\x01") == 1


def test_length_and_checksum_are_those_of_the_specification() -> None:
    data = seal(b"35=0\x0134=1\x01")
    assert data.startswith(b"8=FIX.4.4\x019=10\x01")
    assert data.endswith(b"10=%03d\x01" % sum_of(data[:-7]))


@pytest.mark.parametrize("value", [b"", b"a\x01b"])
def test_value_that_breaks_a_message_is_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match="field 58"):
        encode_fields([(58, value)])
    assert encode_fields([(354, b"3"), (355, b"a\x01b")]) == b"354=3\x01355=a\x01b\x01"

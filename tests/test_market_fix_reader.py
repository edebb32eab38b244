"""The reader returns the fields of a valid message, and names tag and reason of the first fault of another one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelcast.market.fix.dictionary import FIELDS, LAYOUTS
from levelcast.market.fix.framing import FixFrame, Framer
from levelcast.market.fix.reader import MAX_SHAPES, Message, Reader
from levelcast.market.fix.reasons import Rejection, SessionRejectReason
from levelcast.market.fix.shape import describe
from tests.fix_parts import whole

HEAD = "34=2|49=A|52=20260105-12:00:00|56=B|"
ORDER = "11=A1|21=1|38=100|40=1|54=1|55=IBM|60=20260105-12:00:00|"
R = SessionRejectReason


def read(fields: str, reader: Reader | None = None) -> Message:
    framer = Framer()
    framer.feed(whole("8=FIX.4.4|" + fields))
    frame = framer.next()
    assert isinstance(frame, FixFrame)
    return (reader or Reader()).read(frame)


def test_fields_of_an_order() -> None:
    message = read("35=D|" + HEAD + ORDER)
    assert message.rejection is None
    assert (message.type, message.seq, message.has_layout) == (b"D", 2, True)
    assert message.get(11) == b"A1"
    assert message.get(44) == b""
    assert list(message.fields) == [35, 34, 49, 52, 56, 11, 21, 38, 40, 54, 55, 60]


def test_groups_in_groups() -> None:
    parties = "453=2|448=X|452=1|802=2|523=a|803=1|523=b|448=Y|447=D|"
    message = read("35=D|" + HEAD + ORDER + parties)
    assert message.rejection is None
    first, second = message.group(453)
    assert first == {448: b"X", 452: b"1", 802: [{523: b"a", 803: b"1"}, {523: b"b"}]}
    assert second == {448: b"Y", 447: b"D"}
    assert message.get(453) == b"2"
    assert message.group(11) == []


def test_count_of_zero_is_a_group_without_entries() -> None:
    assert read("35=D|" + HEAD + ORDER + "453=0|").group(453) == []


def test_field_after_a_group_belongs_to_the_message() -> None:
    message = read("35=D|" + HEAD + "386=1|336=PRE|" + ORDER)
    assert message.rejection is None
    assert message.get(55) == b"IBM"


def test_data_may_contain_the_delimiter() -> None:
    message = read("35=D|" + HEAD + ORDER + "354=5|355=a|b=c|58=x|")
    assert message.rejection is None
    assert message.get(355) == b"a\x01b=c"
    assert message.get(58) == b"x"


@pytest.mark.parametrize("wrong", ["354=4|355=a|b=c|", "354=99|355=abc|", "354=3|58=abc|", "354=x|355=abc|"])
def test_data_without_its_length_is_refused(wrong: str) -> None:
    message = read("35=D|" + HEAD + ORDER + wrong)
    assert message.rejection == Rejection(R.FORMAT_INCORRECT, b"354")


@pytest.mark.parametrize(
    ("fields", "reason", "tag"),
    [
        ("35=D|" + HEAD + ORDER + "999=x|", R.INVALID_TAG, b"999"),
        ("35=D|" + HEAD + ORDER + "-1=x|", R.INVALID_TAG, b"-1"),
        ("35=D|" + HEAD + ORDER + "055=x|", R.INVALID_TAG, b"055"),
        ("35=D|" + HEAD + ORDER + "garbled|", R.INVALID_TAG, b""),
        ("35=D|" + HEAD + ORDER + "5000=x|", R.INVALID_TAG, b"5000"),
        ("35=D|" + HEAD + ORDER.replace("54=1|", ""), R.REQUIRED_MISSING, b"54"),
        ("35=D|" + HEAD.replace("56=B|", "") + ORDER, R.REQUIRED_MISSING, b"56"),
        ("35=0|" + HEAD + "55=IBM|", R.NOT_DEFINED_FOR_TYPE, b"55"),
        ("35=D|" + HEAD + ORDER.replace("55=IBM", "55="), R.NO_VALUE, b"55"),
        ("35=D|" + HEAD + ORDER.replace("55=IBM", "55"), R.NO_VALUE, b"55"),
        ("35=|" + HEAD, R.NO_VALUE, b"35"),
        ("35=D|" + HEAD + ORDER.replace("54=1", "54=Z"), R.VALUE_INCORRECT, b"54"),
        ("35=D|" + HEAD + ORDER + "18=G x|", R.VALUE_INCORRECT, b"18"),
        ("35=D|" + HEAD + ORDER.replace("38=100", "38=+100"), R.FORMAT_INCORRECT, b"38"),
        ("35=D|" + HEAD + ORDER + "126=20040415|", R.FORMAT_INCORRECT, b"126"),
        ("35=*|" + HEAD, R.INVALID_TYPE, b""),
        ("35=D|" + HEAD + ORDER + "40=2|", R.REPEATED, b"40"),
        ("35=D|34=2|" + HEAD + ORDER, R.REPEATED, b"34"),
        ("35=D|" + ORDER + HEAD, R.OUT_OF_ORDER, b"34"),
        ("35=D|" + HEAD + "93=1|89=x|" + ORDER, R.OUT_OF_ORDER, b"11"),
        ("35=D|" + HEAD + ORDER + "453=1|447=D|448=X|", R.GROUP_ORDER, b"447"),
        ("35=D|" + HEAD + ORDER + "453=1|448=X|452=1|447=D|", R.GROUP_ORDER, b"447"),
        ("35=D|" + HEAD + ORDER + "453=1|448=X|447=D|447=D|", R.REPEATED, b"447"),
        ("35=D|" + HEAD + ORDER + "453=2|448=X|", R.GROUP_COUNT, b"453"),
        ("35=D|" + HEAD + ORDER + "453=1|448=X|448=Y|", R.GROUP_COUNT, b"453"),
        ("35=D|" + HEAD + ORDER + "453=1|448=X|802=2|523=a|", R.GROUP_COUNT, b"802"),
        ("35=D|" + HEAD + ORDER + "453=-1|448=X|", R.FORMAT_INCORRECT, b"453"),
        ("35=W|" + HEAD + "55=IBM|268=1|270=5|", R.GROUP_ORDER, b"270"),
        ("35=W|" + HEAD + "55=IBM|", R.REQUIRED_MISSING, b"268"),
        ("35=X|" + HEAD + "268=1|270=5|279=0|", R.GROUP_ORDER, b"270"),
        ("35=AP|" + HEAD + "721=1|711=1|311=U|", R.REQUIRED_MISSING, b"732"),
    ],
)
def test_first_fault_is_named(fields: str, reason: SessionRejectReason, tag: bytes) -> None:
    message = read(fields)
    assert message.rejection is not None
    assert (message.rejection.reason, message.rejection.tag) == (reason, tag)
    if "34=2" in fields and reason is not R.REPEATED:
        assert message.seq == 2
    reader = Reader()
    assert [read(fields, reader).rejection for _ in range(2)] == [message.rejection] * 2


@pytest.mark.parametrize("tag", [8, 9, 10])
def test_field_of_the_framing_inside_a_message_is_repeated(tag: int) -> None:
    names = [b"35", b"34", b"49", b"52", b"56", b"%d" % tag]
    assert describe(b"0", names).rejection == Rejection(R.REPEATED, b"%d" % tag)


def test_type_without_a_layout_keeps_its_fields() -> None:
    message = read("35=E|" + HEAD + "66=L|73=2|11=a|11=b|")
    assert message.rejection is None
    assert not message.has_layout


@pytest.mark.parametrize("seq", ["", "x", "-1", "1234567890123456789"])
def test_number_that_is_none(seq: str) -> None:
    assert read("35=0|" + HEAD.replace("34=2", f"34={seq}")).seq is None


def test_kept_shapes_are_limited() -> None:
    reader = Reader()
    tags = [tag for tag in LAYOUTS[b"8"].members if FIELDS[tag].type == "String"]
    for tag in [*tags, *tags]:
        read(f"35=8|{HEAD}{tag}=x|", reader)
    assert len(tags) > 20
    for number in range(3 * MAX_SHAPES):
        read(f"35=0|{HEAD}{7000 + number}=x|", reader)
    assert len(reader._shapes) <= MAX_SHAPES


@given(st.lists(st.sampled_from(sorted(FIELDS)), max_size=30), st.sampled_from(sorted(LAYOUTS)))
def test_any_sequence_of_tags_has_a_shape(tags: list[int], kind: bytes) -> None:
    shape = describe(kind, [b"35", *(b"%d" % tag for tag in tags)])
    assert shape.rejection is not None or len(shape.tags) == len(tags) + 1


@given(st.binary(max_size=200), st.sampled_from(["D", "8", "V", "A", "E", "?"]))
def test_any_bytes_in_a_frame_are_read(body: bytes, kind: str) -> None:
    data = b"35=%b\x01" % kind.encode() + b"34=2\x01" + body
    message = Reader().read(FixFrame(b"FIX.4.4", data, data))
    assert message.type == kind.encode()

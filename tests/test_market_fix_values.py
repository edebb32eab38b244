"""Checks accept the forms of their types and nothing else; times are exact."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelcast.market.fix.values import CHECKS, time_ns, time_text

S = 1_000_000_000
GOOD = {
    "int": "0 -1 007 999999999999999999",
    "Length": "0 12",
    "SeqNum": "1 000005",
    "NumInGroup": "0 3",
    "Price": "1 1.5 -0.25 .5 5. 002000.00",
    "Boolean": "Y N",
    "char": "A 1 =",
    "Currency": "USD",
    "Country": "US",
    "MonthYear": "202601 20260131 202601w5",
    "LocalMktDate": "20240229",
    "UTCTimeOnly": "00:00:00 23:59:60 12:00:00.123",
    "UTCTimestamp": "20260105-12:00:00 20260105-12:00:00.123 20260105-12:00:00.123456 20260105-12:00:00.123456789",
    "Exchange": "XNYS N",
}
BAD = {
    "int": "+1 1.0 x - 1- 1234567890123456789 ²",
    "Length": "-1 1.0",
    "SeqNum": "-1 x",
    "NumInGroup": "-1",
    "Price": "+200.00 1e5 . - 1.2.3 nan 1,5 --1",
    "Boolean": "y 1 YN",
    "char": "AB",
    "Currency": "usd US USDT",
    "Country": "usa us",
    "MonthYear": "202613 20260230 202601w6 2026 20261",
    "LocalMktDate": "20260229 2026-1-1 20260100",
    "UTCTimeOnly": "24:00:00 12:60:00 12:00 12:00:00.1",
    "UTCTimestamp": "20040415 20260105-12:00 20260105 20260105-12:00:00. 20260105-12:00:00.12 20260105T12:00:00",
}


@pytest.mark.parametrize(
    ("kind", "value"), [(kind, value) for kind, values in GOOD.items() for value in values.split()]
)
def test_form_of_a_type_is_accepted(kind: str, value: str) -> None:
    assert CHECKS[kind](value.encode())


@pytest.mark.parametrize(("kind", "value"), [(kind, value) for kind, values in BAD.items() for value in values.split()])
def test_other_form_is_refused(kind: str, value: str) -> None:
    assert not CHECKS[kind](value.encode())


def test_words_have_one_space_between() -> None:
    assert CHECKS["MultipleValueString"](b"G 6")
    assert not CHECKS["MultipleValueString"](b"G  6")
    assert not CHECKS["MultipleValueString"](b" G")


@given(st.integers(0, 4_102_444_800 * S))
def test_time_is_written_and_read_to_the_millisecond(now: int) -> None:
    text = time_text(now)
    assert time_ns(text) == now // 1_000_000 * 1_000_000
    moment = datetime.fromtimestamp(now // S, UTC)
    assert text == moment.strftime("%Y%m%d-%H:%M:%S.").encode() + b"%03d" % (now // 1_000_000 % 1_000)


@given(st.binary(max_size=30))
def test_any_bytes_are_checked_without_an_error(value: bytes) -> None:
    for check in CHECKS.values():
        check(value)
    assert time_ns(value) is None or len(value) >= 17

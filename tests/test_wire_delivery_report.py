"""The report of a subscriber: one encoding, and nothing but `Malformed` for any other bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelcast.wire.delivery_report import (
    REPORT_BYTES,
    DeliveryReport,
    decode_delivery_report,
    encode_delivery_report,
)
from levelcast.wire.header import Malformed, Reason
from levelcast.wire.mold import HEADER_SIZE

US = 1_000
U32 = 2**32 - 1
micros = st.integers(0, U32).map(lambda number: number * US)
reports = st.builds(
    lambda delays, *rest: DeliveryReport(*rest[:4], *sorted(delays), *rest[4:]),
    st.tuples(micros, micros, micros),
    st.integers(0, 2**64 - 1),
    micros,
    st.integers(0, U32),
    st.integers(0, U32),
    micros,
    micros,
)
ONE = DeliveryReport(7, 25_000 * US, 100, 3, 1_000 * US, 2_000 * US, 3_000 * US, 10 * US, 0)


@given(reports)
def test_every_report_survives_the_wire(report: DeliveryReport) -> None:
    content = encode_delivery_report(report)
    assert len(content) == REPORT_BYTES
    assert decode_delivery_report(content) == report


@given(st.binary(max_size=64))
def test_other_bytes_are_malformed_or_a_report(content: bytes) -> None:
    try:
        report = decode_delivery_report(content)
    except Malformed:
        return
    assert encode_delivery_report(report) == content


def test_values_beyond_the_fields_become_the_largest() -> None:
    report = decode_delivery_report(encode_delivery_report(ONE._replace(bound_ns=10**15, late=10**12, early_ns=-5)))
    assert (report.bound_ns, report.late, report.early_ns) == (U32 * US, U32, 0)


@pytest.mark.parametrize(
    ("at", "value", "reason"),
    [
        (0, b"X", Reason.BAD_MAGIC),
        (4, b"\2", Reason.UNKNOWN_VERSION),
        (6, b"\1", Reason.BAD_FIELD),
        (28, b"\xff", Reason.BAD_FIELD),  # p50 above p99
    ],
)
def test_each_wrong_field_has_its_reason(at: int, value: bytes, reason: Reason) -> None:
    content = encode_delivery_report(ONE)
    with pytest.raises(Malformed) as caught:
        decode_delivery_report(content[:at] + value + content[at + 1 :])
    assert caught.value.reason is reason


def test_a_report_is_not_a_request() -> None:
    assert REPORT_BYTES != HEADER_SIZE

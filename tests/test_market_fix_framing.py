"""A stream is divided into messages, however it is cut; what is garbled is ignored and named; the buffer is bounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelcast.market.fix.framing import CHECKSUM_SIZE, FixFrame, Framer, Garbled, Oversized, checksum
from levelcast.market.fix.writer import seal
from tests.fix_parts import whole

GOOD = seal(b"35=0\x0134=2\x0149=A\x0152=20260105-12:00:00\x0156=B\x01")


def found(data: bytes, limit: int = 1_000) -> list[FixFrame | Garbled | Oversized]:
    framer = Framer(limit)
    framer.feed(data)
    results = []
    while (item := framer.next()) is not None:
        results.append(item)
    return results


def frames(data: bytes) -> list[bytes]:
    return [item.raw for item in found(data) if isinstance(item, FixFrame)]


@given(st.binary(max_size=2_000))
def test_checksum_is_the_sum_of_the_bytes(data: bytes) -> None:
    assert checksum(data) == sum(data) % 256


def test_checksum_of_high_bytes() -> None:
    assert checksum(b"\xff" * 5_000) == 255 * 5_000 % 256


def test_frame_has_its_parts() -> None:
    (frame,) = found(GOOD)
    assert frame == FixFrame(b"FIX.4.4", GOOD[15:-8], GOOD)


@given(st.lists(st.integers(1, 40), max_size=40))
def test_cuts_of_the_stream_do_not_matter(sizes: list[int]) -> None:
    data, framer, seen = GOOD * 5, Framer(), []
    at = 0
    for size in [*sizes, len(data)]:
        framer.feed(data[at : at + size])
        at += size
        while (item := framer.next()) is not None:
            seen.append(item)
    assert [item.raw for item in seen if isinstance(item, FixFrame)] == [GOOD] * 5
    assert framer.held == 0


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (whole("8=FIX.4.4|35=0|34=2|10=256|"), "wrong CheckSum"),
        (whole("8=FIX.4.4|35=0|34=2|10=0|"), "wrong BodyLength or CheckSum"),
        (whole("8=FIX.4.4|9=3|35=0|34=2|"), "wrong BodyLength or CheckSum"),
        (whole("8=FIX.4.4|9=x|35=0|34=2|"), "BodyLength is not the second field or not a length"),
        (b"8=FIX.4.4\x0135=0\x019=5\x0134=2\x0110=000\x01", "BodyLength is not the second field or not a length"),
        (whole("8=FIX.4.4|34=2|35=0|"), "MsgType is not the third field"),
        (b"8=FIX" + b"x" * 40 + b"\x01", "BeginString and BodyLength are too long"),
        (b"GET / HTTP/1.1\r\n\r\n", "bytes before BeginString"),
    ],
)
def test_garbled_message_is_named_and_ignored(data: bytes, reason: str) -> None:
    results = found(data + GOOD)
    assert next(item for item in results if isinstance(item, Garbled)).reason == reason
    assert frames(data + GOOD)[-1:] == [GOOD]


def test_length_that_is_too_large_takes_the_next_message_along() -> None:
    wrong = whole("8=FIX.4.4|9=20|35=0|34=2|")
    assert frames(wrong + GOOD) == []
    assert frames(wrong + GOOD + GOOD) == [GOOD]


def test_oversized_message_ends_the_stream() -> None:
    assert found(b"8=FIX.4.4\x019=1001\x01") == [Oversized(1001, 1_000)]
    framer = Framer(10)
    framer.feed(GOOD)
    assert isinstance(framer.next(), Oversized)
    framer.feed(GOOD)
    assert framer.next() is None
    assert framer.held == 0


def test_beginning_of_a_message_is_kept() -> None:
    for size in range(1, len(GOOD)):
        framer = Framer()
        framer.feed(GOOD[:size])
        assert framer.next() is None
        framer.feed(GOOD[size:])
        assert isinstance(framer.next(), FixFrame)


@given(
    st.lists(
        st.one_of(st.binary(max_size=60), st.sampled_from([b"8=FIX.4.4\x01", b"9=12\x01", b"10=", GOOD])), max_size=40
    )
)
def test_any_bytes_are_divided_within_the_limit(parts: list[bytes]) -> None:
    framer, limit = Framer(200), 200
    total = consumed = 0
    for part in parts:
        framer.feed(part)
        total += len(part)
        while (item := framer.next()) is not None:
            if isinstance(item, Oversized):
                return
            consumed += len(item.raw) if isinstance(item, FixFrame) else item.size
            if isinstance(item, FixFrame):
                assert checksum(item.raw[:-CHECKSUM_SIZE]) == int(item.raw[-4:-1])
        assert framer.held <= limit + 32 + CHECKSUM_SIZE
        assert consumed + framer.held == total

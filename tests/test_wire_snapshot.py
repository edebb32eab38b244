"""The snapshot: one encoding, and nothing but `Malformed` for any other bytes."""

from __future__ import annotations

from zlib import crc32

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from levelcast.wire.header import Malformed, Reason
from levelcast.wire.mold import session_name
from levelcast.wire.snapshot import (
    HEADER_SIZE,
    MAX_SNAPSHOT,
    Position,
    Snapshot,
    decode_snapshot,
    encode_snapshot,
    snapshot_size,
)
from tests.edge_parts import ALPHA, BETA, KINDS, payloads, some_trades

U64 = 2**64 - 1
names = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=10).map(session_name)
positions = st.dictionaries(names, st.integers(1, U64), max_size=5).map(
    lambda found: tuple(Position(*each) for each in sorted(found.items()))
)
snapshots = st.builds(
    Snapshot,
    stripe=st.integers(0, 65_535),
    next_global=st.integers(1, U64),
    complete_ns=st.integers(0, U64),
    timestamp_ns=st.integers(0, U64),
    sessions=positions,
    records=st.one_of(st.just(b""), payloads(8)),
)
ONE = Snapshot(0, 7, 100, 99, (Position(ALPHA, 5), Position(BETA, 6)), some_trades(2) + KINDS[4])


def sealed(body: bytes) -> bytes:
    return body + crc32(body).to_bytes(4, "little")


@given(snapshots)
@example(Snapshot(0, 1, 0, 0, (), b""))
def test_every_snapshot_survives_the_wire(snapshot: Snapshot) -> None:
    content = encode_snapshot(snapshot)
    assert decode_snapshot(content) == snapshot
    assert snapshot_size(content[:HEADER_SIZE]) == len(content)


@given(snapshots, st.data())
def test_damage_is_noticed(snapshot: Snapshot, data: st.DataObject) -> None:
    content = encode_snapshot(snapshot)
    at = data.draw(st.integers(0, len(content) - 1))
    damaged = bytearray(content)
    damaged[at] ^= 1 << data.draw(st.integers(0, 7))
    for bad in (bytes(damaged), content[:at], content + b"\0"):
        with pytest.raises(Malformed):
            decode_snapshot(bad)


@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_are_read_or_refused(tail: bytes, seal: bool) -> None:
    """A fuzzer does not guess a checksum or a size, so half of the examples have true ones."""
    content = b"LVLCSNAP\1\0" + tail
    if seal and len(content) >= HEADER_SIZE:
        content = sealed(content[:12] + (len(content) + 4).to_bytes(4, "little") + content[16:])
    try:
        snapshot = decode_snapshot(content)
    except Malformed:
        return
    assert encode_snapshot(snapshot) == content


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", Reason.TOO_SHORT),
        (b"LVLCTAPE" + encode_snapshot(ONE)[8:], Reason.BAD_MAGIC),
        (b"LVLCSNAP\2" + encode_snapshot(ONE)[9:], Reason.UNKNOWN_VERSION),
        (sealed(encode_snapshot(ONE)[:-5]), Reason.WRONG_LENGTH),
        (encode_snapshot(ONE)[:-1] + b"\0", Reason.BROKEN_SEAL),
        (sealed(encode_snapshot(ONE)[:-5] + b"\xff"), None),
        (sealed(encode_snapshot(ONE)[:16] + bytes(8) + encode_snapshot(ONE)[24:-4]), Reason.BAD_FIELD),
    ],
)
def test_why_a_snapshot_is_refused(content: bytes, reason: Reason | None) -> None:
    if reason is None:  # the last byte of a record is nobody's business here
        assert decode_snapshot(content).sessions == ONE.sessions
        return
    with pytest.raises(Malformed) as caught:
        decode_snapshot(content)
    assert caught.value.reason is reason


@pytest.mark.parametrize(
    "wrong",
    [
        ONE._replace(sessions=tuple(reversed(ONE.sessions))),
        ONE._replace(sessions=(Position(ALPHA, 0),)),
        ONE._replace(sessions=(Position(b"\xff" * 10, 1),)),
        ONE._replace(next_global=0),
    ],
)
def test_what_no_customer_accepts_is_not_sent(wrong: Snapshot) -> None:
    with pytest.raises(Malformed):
        encode_snapshot(wrong)


def test_a_size_that_nobody_can_mean_is_refused_by_the_header() -> None:
    head = bytearray(encode_snapshot(ONE)[:HEADER_SIZE])
    head[12:16] = (MAX_SNAPSHOT + 1).to_bytes(4, "little")
    with pytest.raises(Malformed):
        snapshot_size(bytes(head))


def test_records_fill_their_place() -> None:
    content = encode_snapshot(ONE._replace(records=some_trades(1)[:-4]))
    with pytest.raises(Malformed):
        decode_snapshot(content)

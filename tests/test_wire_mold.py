"""MoldUDP64: every packet survives the wire, tshark reads it, everything else is rejected with a reason."""

from __future__ import annotations

import json
import re
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelcast import records
from levelcast.records import uniform_size
from levelcast.wire import mold
from levelcast.wire.header import Malformed, Reason
from levelcast.wire.mold import EdgePacket, EndOfSession, Heartbeat, RetransmitRequest
from tests.edge_parts import ALPHA, BETA, KINDS, each_record, payloads, pcap, some_trades

PORT = 31_001

names = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=10).filter(
    lambda text: not text.startswith(" ")
)
sessions = names.map(mold.session_name)
sequences = st.integers(1, 2**64 - 1)
low_sequences = st.integers(1, 2**60)


def as_packet(session: bytes, sequence: int, payload: bytes) -> EdgePacket:
    return EdgePacket(session, sequence, len(each_record(payload)), uniform_size(payload), payload)


def by_hand(session: bytes, sequence: int, blocks: list[bytes]) -> bytes:
    body = b"".join(struct.pack(">H", len(block)) + block for block in blocks)
    return struct.pack(">10sQH", session, sequence, len(blocks)) + body


# -- there and back ---------------------------------------------------------------------------------------


@given(sessions, low_sequences, payloads())
def test_records_there_and_back(session: bytes, sequence: int, payload: bytes) -> None:
    packet = as_packet(session, sequence, payload)
    datagram = mold.encode(packet)
    assert datagram == by_hand(session, sequence, each_record(payload))
    assert mold.decode(datagram) == mold.decode(memoryview(datagram)) == packet


@given(sessions, sequences, st.integers(1, 0xFFFF))
def test_the_packets_without_records_there_and_back(session: bytes, sequence: int, count: int) -> None:
    for message in (Heartbeat(session, sequence), EndOfSession(session, sequence)):
        datagram = mold.encode(message)
        assert len(datagram) == 20
        assert mold.decode(datagram) == message
    assert mold.decode_request(mold.encode(RetransmitRequest(session, sequence, count))) == RetransmitRequest(
        session, sequence, count
    )


@given(sessions, low_sequences, payloads(120), st.integers(mold.MIN_PACKET_BYTES, 9_000))
def test_a_payload_is_cut_into_packets_that_fit(
    session: bytes, sequence: int, payload: bytes, packet_bytes: int
) -> None:
    packets = mold.encode_payload(session, sequence, payload, packet_bytes)
    at, found = sequence, []
    for number, datagram in enumerate(packets):
        packet = mold.decode(datagram)
        assert isinstance(packet, EdgePacket)
        assert len(datagram) <= packet_bytes
        assert (packet.session, packet.sequence) == (session, at)
        at += packet.records
        found.append(packet.payload)
        if number + 1 < len(packets):  # the next record would not have fitted
            following = mold.decode(packets[number + 1])
            assert isinstance(following, EdgePacket)
            assert len(datagram) + 2 + len(each_record(following.payload)[0]) > packet_bytes
    assert b"".join(found) == payload


@given(payloads(), st.data())
def test_a_cut_packet_holds_the_records_in_between(payload: bytes, data: st.DataObject) -> None:
    packet = as_packet(ALPHA, 100, payload)
    skip = data.draw(st.integers(0, packet.records - 1))
    keep = data.draw(st.integers(1, packet.records))
    part = mold.cut(packet, skip, keep)
    assert part == as_packet(ALPHA, 100 + skip, b"".join(each_record(payload)[skip : skip + keep]))
    assert mold.cut(packet, 0) is packet


def test_a_record_array_decodes_to_itself() -> None:
    batch = np.frombuffer(some_trades(20), records.TRADE)
    (datagram,) = mold.encode_payload(ALPHA, 1, batch.tobytes())
    packet = mold.decode(datagram)
    assert isinstance(packet, EdgePacket)
    assert packet.size == records.TRADE.itemsize
    assert np.array_equal(np.frombuffer(packet.payload, records.TRADE), batch)


def test_no_records_are_no_packets() -> None:
    assert mold.encode_payload(ALPHA, 1, b"") == []


# -- what is rejected -------------------------------------------------------------------------------------

TRADE = KINDS[0]
GOOD = by_hand(ALPHA, 7, [TRADE, TRADE])


@pytest.mark.parametrize(
    ("datagram", "reason"),
    [
        (b"", Reason.TOO_SHORT),
        (GOOD[:19], Reason.TOO_SHORT),
        (GOOD[:20], Reason.TRUNCATED_BODY),
        (GOOD[:21], Reason.TRUNCATED_BODY),
        (GOOD[:-1], Reason.TRUNCATED_BODY),
        (GOOD + b"\0", Reason.TRAILING_BYTES),
        (GOOD + b"\0\0", Reason.TRAILING_BYTES),
        (GOOD[:18] + b"\0\3" + GOOD[20:], Reason.TRUNCATED_BODY),
        (GOOD[:18] + b"\0\1" + GOOD[20:], Reason.TRAILING_BYTES),
        (GOOD[:18] + b"\0\0" + GOOD[20:], Reason.TRAILING_BYTES),
        (GOOD[:18] + b"\xff\xff" + GOOD[20:], Reason.TRAILING_BYTES),
        (by_hand(b"ALPHA\0\0\0\0\0", 7, [TRADE]), Reason.BAD_FIELD),
        (by_hand("ALPHÄ    ".encode(), 7, [TRADE]), Reason.BAD_FIELD),
        (by_hand(b" ALPHA    ", 7, [TRADE]), Reason.BAD_FIELD),
        (by_hand(ALPHA, 0, [TRADE]), Reason.BAD_FIELD),
        (by_hand(ALPHA, 0, []), Reason.BAD_FIELD),
        (by_hand(ALPHA, 2**64 - 1, [TRADE, TRADE]), Reason.BAD_FIELD),
        (by_hand(ALPHA, 7, [b""]), Reason.TRUNCATED_BODY),
        (by_hand(ALPHA, 7, [TRADE, b"", TRADE]), Reason.BAD_FIELD),
        (by_hand(ALPHA, 7, [TRADE[:-4]]), Reason.BAD_FIELD),
        (by_hand(ALPHA, 7, [TRADE + TRADE]), Reason.BAD_FIELD),
        (by_hand(ALPHA, 7, [TRADE, TRADE + b"\0\0\0\0"]), Reason.BAD_FIELD),
        (by_hand(ALPHA, 7, [bytes(64)]), Reason.BAD_FIELD),
        (by_hand(ALPHA, 7, [TRADE + b"\0\0"] * 2), Reason.BAD_FIELD),
        (by_hand(ALPHA, 7, [TRADE + bytes(1024)] * 2), Reason.BAD_FIELD),
        (GOOD[:86] + b"\0\x41" + GOOD[88:], Reason.TRUNCATED_BODY),  # the second length lies, nothing else
        (GOOD[:86] + b"\1\x40" + GOOD[88:], Reason.TRUNCATED_BODY),
        (GOOD[:86] + b"\0\x3c" + GOOD[88:], Reason.BAD_FIELD),
        (by_hand(ALPHA, 7, [TRADE] * 1_000), Reason.WRONG_LENGTH),
    ],
)
def test_malformed_packets_say_why(datagram: bytes, reason: Reason) -> None:
    with pytest.raises(Malformed) as caught:
        mold.decode(datagram)
    assert caught.value.reason is reason


@pytest.mark.parametrize(
    ("datagram", "reason"),
    [
        (b"", Reason.TOO_SHORT),
        (GOOD, Reason.TRAILING_BYTES),
        (by_hand(ALPHA, 7, []), Reason.BAD_FIELD),  # asks for nothing
        (by_hand(ALPHA, 0, [TRADE])[:20], Reason.BAD_FIELD),
        (by_hand(bytes(10), 1, [TRADE])[:20], Reason.BAD_FIELD),
    ],
)
def test_malformed_requests_say_why(datagram: bytes, reason: Reason) -> None:
    with pytest.raises(Malformed) as caught:
        mold.decode_request(datagram)
    assert caught.value.reason is reason


@pytest.mark.parametrize(
    "message",
    [
        Heartbeat(b"short", 1),
        Heartbeat(ALPHA, 0),
        EndOfSession(ALPHA, 2**64),
        RetransmitRequest(ALPHA, 1, 0),
        RetransmitRequest(ALPHA, 1, 0x10000),
        EdgePacket(ALPHA, 1, 2, 64, TRADE),
        EdgePacket(ALPHA, 1, 1, 0, TRADE),
        EdgePacket(ALPHA, 1, 0, 0, b""),
        EdgePacket(ALPHA, 1, 1, 0, TRADE[:-1]),
        EdgePacket(ALPHA, 1, 1, 0, bytes(64)),
        EdgePacket(ALPHA, 2**64 - 1, 2, 64, TRADE * 2),
        EdgePacket(ALPHA, 1, 1_000, 64, TRADE * 1_000),
    ],
)
def test_no_packet_can_say_it(message: mold.Downstream | RetransmitRequest) -> None:
    with pytest.raises(Malformed):
        mold.encode(message)


@given(st.binary(max_size=200))
def test_any_bytes_decode_or_are_malformed(datagram: bytes) -> None:
    for read in (mold.decode, mold.decode_request):
        try:
            message: Any = read(datagram)
        except Malformed:
            continue
        assert mold.encode(message) == datagram


@given(payloads(12), st.data())
def test_a_changed_byte_decodes_to_its_one_encoding_or_is_malformed(payload: bytes, data: st.DataObject) -> None:
    datagram = bytearray(mold.encode(as_packet(ALPHA, 7, payload)))
    datagram[data.draw(st.integers(0, len(datagram) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        message = mold.decode(bytes(datagram))
    except Malformed:
        return
    assert mold.encode(message) == datagram


@pytest.mark.parametrize("text", ["", " ", "ELEVEN-CHAR", "TAB\t", "BÖRSE", " A", "A\n"])
def test_names_that_no_session_can_have(text: str) -> None:
    with pytest.raises(ValueError, match="not a session name"):
        mold.session_name(text)


# -- an independent reader --------------------------------------------------------------------------------


def test_tshark_reads_the_packets(require_tool: Callable[[str], str], tmp_path: Path) -> None:
    tshark = require_tool("tshark")
    mixed = b"".join(KINDS) + some_trades(3)
    sent = [
        *mold.encode_payload(ALPHA, 1, some_trades(50)),
        *mold.encode_payload(BETA, 2**40, mixed),
        mold.encode(Heartbeat(ALPHA, 51)),
        mold.encode(EndOfSession(ALPHA, 51)),
    ]
    capture = tmp_path / "edge.pcap"
    capture.write_bytes(pcap(sent, PORT))
    command = [tshark, "-r", str(capture), "-d", f"udp.port=={PORT},moldudp64", "-T", "json", "--no-duplicate-keys"]
    shown = subprocess.run(command, capture_output=True, check=True, timeout=100, text=True).stdout
    frames = [frame["_source"]["layers"] for frame in json.loads(shown)]
    assert len(frames) == len(sent)
    assert "malformed" not in shown.lower()
    # It notes, as a mere comment (0x100000), that 20 bytes with a count could be a request: an end of session is.
    assert set(re.findall(r'"_ws.expert.severity": "(\d+)"', shown)) <= {str(0x100000)}
    assert ".invalid" not in shown
    for datagram, layers in zip(sent, frames, strict=True):
        session, sequence, count = struct.unpack_from(">10sQH", datagram)
        seen = layers["moldudp64"]
        assert seen["moldudp64.session"].ljust(10) == session.decode()
        assert int(seen["moldudp64.sequence"], 0) == sequence
        assert int(seen["moldudp64.count"], 0) == count
        blocks = seen.get("moldudp64.msgblock", [])
        lengths = [int(block["moldudp64.msglen"], 0) for block in (blocks if isinstance(blocks, list) else [blocks])]
        message = mold.decode(datagram)
        expected = [len(record) for record in each_record(message.payload)] if isinstance(message, EdgePacket) else []
        assert lengths == expected

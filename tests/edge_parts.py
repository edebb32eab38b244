"""What the tests of the edge share: payloads to draw, and packets as a capture file."""

from __future__ import annotations

import struct
from collections.abc import Iterable

import numpy as np
from hypothesis import strategies as st

from levelcast import records
from levelcast.wire.mold import session_name

ALPHA, BETA, GAMMA = (session_name(name) for name in ("ALPHA", "BETA-2", "GAMMA-0003"))

_MAKERS = (records.trades, records.quotes, records.statuses, records.system_messages, records.instruments)
_LONGEST = records.trades(1).tobytes() + bytes(records.MAX_RECORD_BYTES - 64)
_BARE = records.trades(1).tobytes()[:48]
KINDS: tuple[bytes, ...] = (
    *(make(1).tobytes() for make in _MAKERS),
    bytes([12]) + _BARE[1:],
    bytes([255]) + _LONGEST[1:],
)


def with_ids(payload_parts: Iterable[tuple[bytes, int, int]]) -> bytes:
    """Records with a floor and an instrument each; `ts_event` numbers them, so that no two are equal."""
    return b"".join(
        record[:2] + struct.pack("<HIQ", floor, instrument, number) + record[16:]
        for number, (record, floor, instrument) in enumerate(payload_parts)
    )


def payloads(max_size: int = 60, instruments: int = 8) -> st.SearchStrategy[bytes]:
    """Records of one kind, or mixed."""
    ids = st.integers(0, instruments)

    def of(kinds: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
        return st.lists(st.tuples(kinds, st.integers(0, 3), ids), min_size=1, max_size=max_size).map(with_ids)

    return st.one_of(of(st.sampled_from(KINDS)), *(of(st.just(kind)) for kind in KINDS[:2]))


def some_trades(count: int, instruments: int = 1, seed: int = 0) -> bytes:
    batch = records.trades(count)
    batch["trade_id"] = np.arange(count)
    batch["publisher_id"] = 1
    batch["instrument_id"] = np.random.default_rng(seed).integers(1, instruments + 1, count)
    return batch.tobytes()


def each_record(payload: bytes) -> list[bytes]:
    """One after the other, the slow way."""
    found, at = [], 0
    while at < len(payload):
        found.append(payload[at : at + payload[at] * 4])
        at += payload[at] * 4
    return found


def pcap(datagrams: Iterable[bytes], port: int) -> bytes:
    """A classic capture file of Ethernet frames, each with one UDP datagram to 239.192.75.1:`port`."""
    out = [struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65_535, 1)]
    for number, datagram in enumerate(datagrams):
        udp = struct.pack(">HHHH", 40_000, port, 8 + len(datagram), 0) + datagram
        addresses = bytes((127, 0, 0, 1)) + bytes((239, 192, 75, 1))
        ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(udp), number, 0, 1, 17, 0) + addresses
        total = sum(struct.unpack(">10H", ip))
        total = (total & 0xFFFF) + (total >> 16)
        ip = ip[:10] + struct.pack(">H", ~total & 0xFFFF) + ip[12:]
        frame = bytes.fromhex("01005e404b01 020000000001 0800") + ip + udp
        out.append(struct.pack("<IIII", number, 0, len(frame), len(frame)) + frame)
    return b"".join(out)

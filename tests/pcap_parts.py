"""Captures made by tests: payloads in TCP segments of one connection."""

from __future__ import annotations

import struct
from collections.abc import Sequence

_GLOBAL = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65_535, 101)
"""Little-endian, microseconds, raw IP."""


def tcp_capture(payloads: Sequence[bytes], port: int) -> bytes:
    """Return a capture in which a server at `port` sends each payload in a segment of its own."""
    out = [_GLOBAL]
    sequence = 1
    for number, payload in enumerate(payloads):
        tcp = struct.pack(">HHIIBBHHH", port, 50_000, sequence, 1, 5 << 4, 0x18, 65_535, 0, 0)
        size = 20 + len(tcp) + len(payload)
        head = struct.pack(
            ">BBHHHBBH4s4s", 0x45, 0, size, number, 0, 64, 6, 0, bytes((127, 0, 0, 1)), bytes((127, 0, 0, 1))
        )
        words = sum(struct.unpack(">10H", head))
        words = (words & 0xFFFF) + (words >> 16)
        check = ~((words & 0xFFFF) + (words >> 16)) & 0xFFFF
        packet = head[:10] + struct.pack(">H", check) + head[12:] + tcp + payload
        out.append(struct.pack("<IIII", 1 + number // 1_000, number % 1_000, len(packet), len(packet)) + packet)
        sequence += len(payload)
    return b"".join(out)

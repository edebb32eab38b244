"""UDP payloads out of captures: classic pcap of either byte order, in micro- or nanoseconds, Ethernet with its tags.

A capture of a feed is read packet by packet; what is in a packet is for the feed's reader to find.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from levelcast.market.events import open_capture
from levelcast.market.rows import TradeFileError

CHUNK_BYTES = 8 << 20
_MAGICS = {
    b"\xd4\xc3\xb2\xa1": ("<", 1000),
    b"\xa1\xb2\xc3\xd4": (">", 1000),
    b"\x4d\x3c\xb2\xa1": ("<", 1),
    b"\xa1\xb2\x3c\x4d": (">", 1),
}
_PCAPNG = b"\x0a\x0d\x0d\x0a"
_ETHERNET, _IPV4, _TAGS, _UDP = 1, 0x0800, (0x8100, 0x88A8), 17
_SECOND_NS = 1_000_000_000


class Payload(NamedTuple):
    """What one packet carried; or why it is nothing that could be read."""

    number: int
    """Of the packet in the capture, from 1."""
    captured_ns: int
    start: int
    end: int
    """Where the payload is in the piece of the capture that it came with."""
    fault: str | None = None


def pieces(path: Path) -> Iterator[tuple[bytes, list[Payload]]]:
    """The capture piece by piece, each with the payloads in it. Raises TradeFileError if it is no capture."""
    with open_capture(path) as stream:
        head = stream.read(24)
        if head[:4] == _PCAPNG:
            raise TradeFileError(f"{path}: is a capture in pcapng: convert it (editcap -F pcap)")
        if len(head) < 24 or head[:4] not in _MAGICS:
            raise TradeFileError(f"{path}: is no capture: name a file that begins with pcap's header")
        order, unit_ns = _MAGICS[head[:4]]
        (link,) = struct.unpack(order + "I", head[20:24])
        if link & 0xFFFF != _ETHERNET:
            raise TradeFileError(f"{path}: its link type is {link & 0xFFFF}, and only Ethernet (1) can be read")
        record = struct.Struct(order + "IIII")
        number, rest = 1, b""
        while True:
            read = stream.read(CHUNK_BYTES)
            content = rest + read
            found, at = _packets(content, record, unit_ns, number)
            number += len(found)
            if not read and at < len(content):
                fault = "the capture ends in the middle of this packet: fetch it again"
                found.append(Payload(number, 0, at, len(content), fault))
                at = len(content)
            if found:
                yield content, found
            rest = content[at:]
            if not read:
                return


def _packets(content: bytes, record: struct.Struct, unit_ns: int, number: int) -> tuple[list[Payload], int]:
    found: list[Payload] = []
    at, end = 0, len(content)
    while at + 16 <= end:
        seconds, fraction, captured, sent = record.unpack_from(content, at)
        if at + 16 + captured > end:
            break
        start, stop = at + 16, at + 16 + captured
        payload = _payload(content, start, stop)
        time_ns = seconds * _SECOND_NS + fraction * unit_ns
        if captured < sent:
            payload = f"only {captured} of its {sent} bytes were captured: capture whole packets"
        if isinstance(payload, str):
            found.append(Payload(number, time_ns, start, stop, payload))
        else:
            found.append(Payload(number, time_ns, *payload))
        number += 1
        at = stop
    return found, at


def _payload(content: bytes, start: int, end: int) -> tuple[int, int] | str:
    """Where the UDP payload of an Ethernet frame is, or why there is none."""
    at = start + 12
    kind = int.from_bytes(content[at : at + 2])
    while kind in _TAGS:
        at += 4
        kind = int.from_bytes(content[at : at + 2])
    ip = at + 2
    if kind != _IPV4 or ip + 20 > end:
        return "is no IPv4 packet"
    udp = ip + (content[ip] & 15) * 4
    if content[ip + 9] != _UDP or udp + 8 > end:
        return "is no UDP packet"
    size = int.from_bytes(content[udp + 4 : udp + 6])
    if size < 8 or udp + size > end:
        return "its UDP length is wrong"
    return udp + 8, udp + size

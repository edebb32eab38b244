"""Extract UDP payloads from captures: pcap and pcapng of either byte order and any resolution, Ethernet with tags.

A capture of a feed is read packet by packet; the feed's reader decodes the payload.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from levelcast.formats.columns import TradeFileError
from levelcast.formats.event_batches import open_capture
from levelcast.formats.messages import pieces_of

CHUNK_BYTES = 8 << 20
_MAGICS = {
    b"\xd4\xc3\xb2\xa1": ("<", 1000),
    b"\xa1\xb2\xc3\xd4": (">", 1000),
    b"\x4d\x3c\xb2\xa1": ("<", 1),
    b"\xa1\xb2\x3c\x4d": (">", 1),
}
_PCAPNG = b"\x0a\x0d\x0d\x0a"
_SECTION, _INTERFACE, _PACKET = 0x0A0D0D0A, 1, 6
_ORDERS = {b"\x4d\x3c\x2b\x1a": "<", b"\x1a\x2b\x3c\x4d": ">"}
_RESOLUTION = 9
"""The option of an interface with the resolution of its times."""
_ETHERNET, _IPV4, _TAGS, _UDP = 1, 0x0800, (0x8100, 0x88A8), 17
_SECOND_NS = 1_000_000_000


class Payload(NamedTuple):
    """The payload of one packet, or the reason why it could not be read."""

    number: int
    """Number of the packet in the capture, from 1."""
    captured_ns: int
    start: int
    end: int
    """End of the payload in its piece of the capture."""
    fault: str | None = None


def pieces(path: Path) -> Iterator[tuple[bytes, list[Payload]]]:
    """Yield the capture in pieces, each with its payloads. Raise TradeFileError if it is not a capture."""
    with open_capture(path) as stream:
        rest = stream.read(24)
        packets: _Classic | _Blocks
        if rest[:4] == _PCAPNG:
            packets = _Blocks(path)
        elif len(rest) == 24 and rest[:4] in _MAGICS:
            packets, rest = _Classic(path, rest), b""
        else:
            raise TradeFileError(f"{path}: not a capture; specify a file that begins with the header of pcap or pcapng")
        for content, found, left in pieces_of(stream, CHUNK_BYTES, packets.of, rest):
            if left:
                fault = "the capture ends in the middle of this packet; fetch it again"
                found.append(Payload(packets.number, 0, len(content) - left, len(content), fault))
            if found:
                yield content, found


def _check_link(path: Path, link: int) -> None:
    if link != _ETHERNET:
        raise TradeFileError(f"{path}: link type {link} is not supported, only Ethernet (1)")


class _Classic:
    """Packets of a pcap: a header, then packets, each preceded by its time and lengths."""

    def __init__(self, path: Path, head: bytes) -> None:
        order, self._unit_ns = _MAGICS[head[:4]]
        (link,) = struct.unpack(order + "I", head[20:24])
        _check_link(path, link & 0xFFFF)
        self._record = struct.Struct(order + "IIII")
        self.number = 1
        """Number of the next packet."""

    def of(self, content: bytes) -> tuple[list[Payload], int]:
        """Return the payloads of complete packets, and their end offset."""
        found: list[Payload] = []
        at, end = 0, len(content)
        while at + 16 <= end:
            seconds, fraction, captured, sent = self._record.unpack_from(content, at)
            if at + 16 + captured > end:
                break
            time_ns = seconds * _SECOND_NS + fraction * self._unit_ns
            found.append(_packet(content, self.number, time_ns, at + 16, captured, sent))
            self.number += 1
            at += 16 + captured
        return found, at


class _Blocks:
    """Packets of a pcapng: blocks. Only sections, interfaces and (enhanced) packets are used."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._order = "<"
        self._ticks: list[int] = []
        """Ticks per second of each interface's times."""
        self.number = 1

    def of(self, content: bytes) -> tuple[list[Payload], int]:
        found: list[Payload] = []
        at, end = 0, len(content)
        while at + 12 <= end:
            if content[at : at + 4] == _PCAPNG:
                self._order = _ORDERS.get(content[at + 8 : at + 12], self._order)
            kind, size = struct.unpack_from(self._order + "II", content, at)
            if size < 12 or size % 4:
                raise TradeFileError(
                    f"{self._path}: a block has {size} bytes before packet {self.number:,}; fetch it again"
                )
            if at + size > end:
                break
            if kind == _SECTION:
                self._ticks = []
            elif kind == _INTERFACE:
                self._interface(content[at + 8 : at + size - 4])
            elif kind == _PACKET:
                interface, high, low, captured, sent = struct.unpack_from(self._order + "IIIII", content, at + 8)
                if interface >= len(self._ticks) or captured > size - 32:
                    fault = "the sizes in its block are inconsistent"
                    found.append(Payload(self.number, 0, at, at + size, fault))
                else:
                    time_ns = ((high << 32) + low) * _SECOND_NS // self._ticks[interface]
                    found.append(_packet(content, self.number, time_ns, at + 28, captured, sent))
                self.number += 1
            at += size
        return found, at

    def _interface(self, body: bytes) -> None:
        (link,) = struct.unpack_from(self._order + "H", body)
        _check_link(self._path, link)
        ticks, at = 1_000_000, 8
        while at + 4 <= len(body):
            option, size = struct.unpack_from(self._order + "HH", body, at)
            if option == _RESOLUTION and size:
                power = body[at + 4]
                ticks = 2 ** (power & 0x7F) if power & 0x80 else 10**power
            at += 4 + (size + 3) // 4 * 4
        self._ticks.append(ticks)


def _packet(content: bytes, number: int, time_ns: int, start: int, captured: int, sent: int) -> Payload:
    payload = _payload(content, start, start + captured)
    if captured < sent:
        payload = f"only {captured} of its {sent} bytes were captured; capture complete packets"
    if isinstance(payload, str):
        return Payload(number, time_ns, start, start + captured, payload)
    return Payload(number, time_ns, *payload)


def _payload(content: bytes, start: int, end: int) -> tuple[int, int] | str:
    """Return start and end of the UDP payload of an Ethernet frame, or the reason why it has none."""
    at = start + 12
    kind = int.from_bytes(content[at : at + 2])
    while kind in _TAGS:
        at += 4
        kind = int.from_bytes(content[at : at + 2])
    ip = at + 2
    if kind != _IPV4 or ip + 20 > end:
        return "is not an IPv4 packet"
    udp = ip + (content[ip] & 15) * 4
    if content[ip + 9] != _UDP or udp + 8 > end:
        return "is not a UDP packet"
    size = int.from_bytes(content[udp + 4 : udp + 6])
    if size < 8 or udp + size > end:
        return "its UDP length is wrong"
    return udp + 8, udp + size

"""Packets and the `Data` that carry them.

A `Data` consists of the datagrams of consecutive packets, back to back, as their source sealed them. The header of each
states its length, so a `Data` can be cut between any two packets and joined with the next one; nodes in between need
not decode it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from struct import error as struct_error
from typing import Protocol, TypeVar

from levelcast import native
from levelcast.native.layout import DATA_BODY as BODY
from levelcast.native.layout import KIND_DATA, LENGTH_AT, SEAL_SIZE_AT
from levelcast.wire.header import HEADER_SIZE, MAX_DATAGRAM, Malformed, Reason, bad_field, seal_datagram
from levelcast.wire.messages import Data, Packet
from levelcast.wire.seal import CRC32, MAX_SEAL_SIZE

_Item = TypeVar("_Item")

DATA_OVERHEAD = HEADER_SIZE + BODY.size + CRC32.size
"""Size of a packet's datagram without its records."""
MAX_TOGETHER = 1 << 20
"""Maximum size in bytes of one value, which is journaled or sent in one operation."""
MAX_REPAIR_BYTES = MAX_DATAGRAM - (HEADER_SIZE + 4 + MAX_SEAL_SIZE)
"""The space for the items of one Repair, whatever seals it."""
MAX_PAYLOAD = MAX_REPAIR_BYTES - (HEADER_SIZE + BODY.size + MAX_SEAL_SIZE)
"""Bytes of records in a packet: it fits a Repair or a CatchUpPackets, whatever seals these."""


def check_packet(number: int, records: int, size: int) -> None:
    """Check the fields of a packet; raises `Malformed` for values that are not allowed."""
    # A record has at least one byte, so a count above the payload's size is wrong; so is a payload without records.
    if number < 1 or records > size or size > MAX_PAYLOAD or (size and not records):
        bad_field("data")


def seal(packet: Packet, domain: int) -> Data:
    """Return one packet as its source sends it."""
    source, incarnation, number, records, payload = packet
    check_packet(number, records, len(payload))
    try:
        body = BODY.pack(incarnation, number, records) + payload
        return Data(source, incarnation, number, number, seal_datagram(KIND_DATA, domain, source, 0, body))
    except struct_error as error:
        raise Malformed(Reason.BAD_FIELD, f"packet: {error}") from None


def seal_all(
    payload: bytes | memoryview, packet_bytes: int, most: int, domain: int, source: int, incarnation: int, first: int
) -> tuple[Data | None, int, int]:
    """Seal the records of `payload` in packets of at most `packet_bytes`: at most `most` packets, `MAX_TOGETHER` bytes.

    Returns the value, and the number of records and of bytes of `payload` in it. None if the first record does not
    fit, or is not a record.
    """
    most = min(most, max(1, MAX_TOGETHER // packet_bytes))
    sealed, packets, records, taken = native.seal_packets(
        payload, packet_bytes, most, domain, source, incarnation, first
    )
    return (Data(source, incarnation, first, first + packets - 1, sealed) if packets else None), records, taken


class PacketSealer(Protocol):
    """The seal of a source's packets: an object that a source gets, so that it never has a key."""

    @property
    def overhead(self) -> int:
        """Size of a packet's datagram without its records."""

    def seal(self, packet: Packet) -> Data:
        """Return one packet as its source sends it."""

    def seal_all(
        self, payload: bytes | memoryview, packet_bytes: int, most: int, source: int, incarnation: int, first: int
    ) -> tuple[Data | None, int, int]:
        """Seal records in packets, as the function `seal_all`."""

    def renewed(self, data: Data, now: int) -> Data:
        """Return packets that were sealed before with a seal that receivers accept at `now`: the same, if theirs is."""


class CrcSealer:
    """Seal packets with a CRC-32, in networks without keys."""

    overhead = DATA_OVERHEAD

    def __init__(self, domain: int) -> None:
        self._domain = domain

    def seal(self, packet: Packet) -> Data:
        return seal(packet, self._domain)

    def seal_all(
        self, payload: bytes | memoryview, packet_bytes: int, most: int, source: int, incarnation: int, first: int
    ) -> tuple[Data | None, int, int]:
        return seal_all(payload, packet_bytes, most, self._domain, source, incarnation, first)

    def renewed(self, data: Data, now: int) -> Data:
        return data


def open_packets(data: Data) -> list[Packet]:
    """Return the packets of a value one by one. Its seals were checked when it was received."""
    packets: list[Packet] = []
    source, incarnation, first, last, sealed = data
    at = 0
    for number in range(first, last + 1):
        size = int.from_bytes(sealed[at + LENGTH_AT : at + LENGTH_AT + 4], "little")
        records = int.from_bytes(sealed[at + HEADER_SIZE + 16 : at + HEADER_SIZE + 20], "little")
        payload = sealed[at + HEADER_SIZE + BODY.size : at + size - sealed[at + SEAL_SIZE_AT]]
        packets.append(Packet(source, incarnation, number, records, payload))
        at += size
    if at != len(sealed):
        raise Malformed(Reason.WRONG_LENGTH, f"{data.last - data.first + 1} packets in {len(sealed)} bytes")
    return packets


def cut(data: Data, first: int, last: int) -> Data:
    """Return packets `first` to `last` of a value that contains them."""
    if first == data.first and last == data.last:
        return data
    assert data.first <= first <= last <= data.last
    sealed = native.cut(data.sealed, first - data.first, last - first + 1)
    return Data(data.source, data.incarnation, first, last, sealed)


def singles(data: Data) -> list[Data]:
    """Return a value for each packet."""
    if data.first == data.last:
        return [data]
    return [cut(data, number, number) for number in range(data.first, data.last + 1)]


def join(values: Iterable[Data]) -> list[Data]:
    """Join consecutive values into one, keeping the order."""
    joined: list[list[Data]] = []
    size = 0
    for data in values:
        size += len(data.sealed)
        if joined:
            before = joined[-1][-1]
            if before[:2] == data[:2] and before.last + 1 == data.first and size <= MAX_TOGETHER:
                joined[-1].append(data)
                continue
        joined.append([data])
        size = len(data.sealed)
    return [each[0] if len(each) == 1 else _together(each) for each in joined]


def fit_datagrams(
    items: Iterable[_Item], size_of: Callable[[_Item], int], most: int, most_bytes: int
) -> Iterator[tuple[_Item, ...]]:
    """Yield items in groups of at most `most`, each of which fits a datagram."""
    group: list[_Item] = []
    left = most_bytes
    for item in items:
        size = size_of(item)
        if group and (len(group) == most or size > left):
            yield tuple(group)
            group, left = [], most_bytes
        group.append(item)
        left -= size
    if group:
        yield tuple(group)


def _together(pieces: list[Data]) -> Data:
    return pieces[0]._replace(last=pieces[-1].last, sealed=b"".join([piece.sealed for piece in pieces]))

"""Packets and the `Data` that carry them.

A `Data` is the datagrams of packets that follow one another, back to back, as their source sealed them. Each says in
its header how long it is, so a `Data` can be cut between any two packets and joined with the one behind it; nothing
in between has to look into it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from struct import error as struct_error
from typing import TypeVar

from levelcast import native
from levelcast.native.layout import DATA_BODY as BODY
from levelcast.native.layout import KIND_DATA, LENGTH_AT, SEAL_SIZE_AT
from levelcast.wire.header import HEADER_SIZE, MAX_DATAGRAM, Malformed, Reason, bad_field, seal_datagram
from levelcast.wire.messages import Data, Packet
from levelcast.wire.seal import CRC32, MAX_SEAL_SIZE

_Item = TypeVar("_Item")

DATA_OVERHEAD = HEADER_SIZE + BODY.size + CRC32.size
"""What a packet's datagram has besides its records."""
MAX_TOGETHER = 1 << 20
"""The most bytes that are kept as one value: what is journaled, or sent, at once."""
MAX_REPAIR_BYTES = MAX_DATAGRAM - (HEADER_SIZE + 4 + MAX_SEAL_SIZE)
"""The space for the items of one Repair, whatever seals it."""
MAX_PAYLOAD = MAX_REPAIR_BYTES - (HEADER_SIZE + BODY.size + MAX_SEAL_SIZE)
"""Bytes of records in a packet: it fits a Repair or a CatchUpPackets, whatever seals these."""


def check_packet(number: int, records: int, size: int) -> None:
    """What a packet may say; `Malformed` for anything else."""
    # A record has at least one byte, so a count above the payload's size lies; so does a payload of none.
    if number < 1 or records > size or size > MAX_PAYLOAD or (size and not records):
        bad_field("data")


def seal(packet: Packet, stripe: int) -> Data:
    """One packet as its source sends it."""
    source, incarnation, number, records, payload = packet
    check_packet(number, records, len(payload))
    try:
        body = BODY.pack(incarnation, number, records) + payload
        return Data(source, incarnation, number, number, seal_datagram(KIND_DATA, stripe, source, 0, body))
    except struct_error as error:
        raise Malformed(Reason.BAD_FIELD, f"packet: {error}") from None


def seal_all(
    payload: bytes | memoryview, packet_bytes: int, most: int, stripe: int, source: int, incarnation: int, first: int
) -> tuple[Data | None, int, int]:
    """The records of `payload` in packets of at most `packet_bytes`, `most` of them and `MAX_TOGETHER` bytes.

    Returns the value, how many records and how many bytes of `payload` are in it. None if the first record does not
    fit, or is none.
    """
    most = min(most, max(1, MAX_TOGETHER // packet_bytes))
    sealed, packets, records, taken = native.seal_packets(
        payload, packet_bytes, most, stripe, source, incarnation, first
    )
    return (Data(source, incarnation, first, first + packets - 1, sealed) if packets else None), records, taken


def open_packets(data: Data) -> list[Packet]:
    """What a value says, packet by packet. Its seals were checked when it came."""
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
    """Packets `first` to `last` of a value that has them."""
    if first == data.first and last == data.last:
        return data
    assert data.first <= first <= last <= data.last
    sealed = native.cut(data.sealed, first - data.first, last - first + 1)
    return Data(data.source, data.incarnation, first, last, sealed)


def singles(data: Data) -> list[Data]:
    """A value for each packet."""
    if data.first == data.last:
        return [data]
    return [cut(data, number, number) for number in range(data.first, data.last + 1)]


def join(values: Iterable[Data]) -> list[Data]:
    """Neighbours that follow one another as one value, the order kept."""
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
    """Items in groups of at most `most`, each of which fits a datagram."""
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

"""Between the packets of a frame and its bytes on the tape.

A floor sends records with `sequence` = `ts_recv` = 0; on the tape they have both (`levelcast.records`, rule 5). The
chain hash is over what the floor sent, so a tape that is checked, or served to another member, is un-stamped first:
the two fields go back to 0. That is only the truth if they *were* 0, and only whole records of known types may be on
a DBN tape: `packet_fault` says what is wrong with any other packet, and a receiver must drop it before the ring
hears of it. A frame with such a packet is refused whole.

Most frames are records of one type and size, and are handled at once; else each packet is, if it is so; else each
record.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from levelcast.records import RECORD_TYPES, BadRecords, RecordType, count_records, split, stamp_into
from levelcast.ring.order import Frame
from levelcast.tape.files import TapeError
from levelcast.wire.messages import Data

_BY_RTYPE = {kind.rtype: kind for kind in RECORD_TYPES}
_WORD_BYTES = 4


def packet_fault(packet: Data) -> str | None:
    """Why a packet cannot go to the tape; None for a good one. A receiver asks before it takes a packet in."""
    try:
        found = count_records(packet.payload)
    except BadRecords as error:
        return str(error)
    if found != packet.records:
        return f"{found} records where the packet says {packet.records}"
    if _is_stamped(np.frombuffer(packet.payload, np.uint8)):
        return "a record has a sequence or a receive time already"
    return None


def frame_bytes(frame: Frame) -> bytearray:
    """The stamped records of a frame, as they stand on the tape."""
    content = bytearray().join(packet.payload for packet in frame.packets)
    octets = np.frombuffer(content, np.uint8)
    size = _uniform_size(octets)
    if size is None or any(len(packet.payload) != packet.records * size for packet in frame.packets):
        for packet in frame.packets:
            if fault := packet_fault(packet):
                name = f"packet {packet.number} of source {packet.source} in slot {frame.slot}"
                raise TapeError(f"{name} cannot go to a tape: {fault}")
    elif _is_stamped(octets):
        raise TapeError(f"the frame of slot {frame.slot} has records with a sequence or a receive time already")
    if size is not None:
        stamp_into(content, frame.first_sequence, frame.timestamp_ns)
        return content
    at, sequence, view = 0, frame.first_sequence, memoryview(content)
    for packet in frame.packets:
        stamp_into(view[at : at + len(packet.payload)], sequence, frame.timestamp_ns)
        at, sequence = at + len(packet.payload), sequence + packet.records
    return content


def unstamp_into(content: bytearray, packet_sizes: Sequence[int]) -> None:
    """Set the stamped fields of a frame's records back to 0; BadRecords if they are no records."""
    octets = np.frombuffer(content, np.uint8)
    if _uniform_size(octets) is not None:
        _clear(octets)
        return
    at = 0
    for size in packet_sizes:
        _clear(octets[at : at + size])
        at += size


def _clear(octets: npt.NDArray[np.uint8]) -> None:
    for field in _stamped_fields(octets):
        field[:] = 0


def _is_stamped(octets: npt.NDArray[np.uint8]) -> bool:
    return any(bool(field.any()) for field in _stamped_fields(octets))


def _stamped_fields(octets: npt.NDArray[np.uint8]) -> Iterable[npt.NDArray[np.uint8]]:
    """The bytes of the stamped fields, as views: of all records at once, or of each run of like ones."""
    size = _uniform_size(octets)
    if size is not None:
        for first, last in _stamped_bytes(int(octets[1])):
            yield octets.reshape(-1, size)[:, first:last]
        return
    at = 0
    for batch in split(octets.data):
        for _ in range(len(batch.records)):  # `split` hides the sizes of records without a tail
            for first, last in _stamped_bytes(batch.kind.rtype):
                yield octets[at + first : at + last]
            at += int(octets[at]) * _WORD_BYTES


def _uniform_size(octets: npt.NDArray[np.uint8]) -> int | None:
    """The size of each record, if all are of one known type and one size."""
    if len(octets) < _WORD_BYTES:
        return None
    size = int(octets[0]) * _WORD_BYTES
    kind = _BY_RTYPE.get(int(octets[1]))
    if kind is None or size < kind.base_size or len(octets) % size:
        return None
    heads = octets.reshape(-1, size)
    return size if bool((heads[:, :2] == heads[0, :2]).all()) else None


@lru_cache(maxsize=64)
def _stamped_bytes(rtype: int) -> tuple[tuple[int, int], ...]:
    """First byte and end of each stamped field of a type."""
    kind: RecordType = _BY_RTYPE[rtype]
    places = ((kind.sequence_offset, 4), (kind.ts_recv_offset, 8))
    return tuple((offset, offset + size) for offset, size in places if offset is not None)

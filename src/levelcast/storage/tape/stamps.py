"""Between the packets of a frame and its bytes on the tape.

A floor sends records with `sequence` = `ts_recv` = 0; on the tape they have both (`levelcast.records`, rule 5). The
chain hash is over what the floor sent, so a tape that is checked, or served to another member, is un-stamped first:
the two fields go back to 0. That is only the truth if they *were* 0, and only whole records of known types may be on
a DBN tape: `packet_fault` says what is wrong with any other packet, and a receiver must drop it before the ring
hears of it. A frame with such a packet is refused whole.
"""

from __future__ import annotations

from levelcast import native
from levelcast.protocol.history import Frame
from levelcast.records import BadRecords, count_records
from levelcast.storage.append_file import TapeError
from levelcast.wire.messages import Packet


def packet_fault(packet: Packet) -> str | None:
    """Why a packet cannot go to the tape; None for a good one. A receiver asks before it takes a packet in."""
    if native.count_fresh(packet.payload) == packet.records:
        return None
    try:
        found = count_records(packet.payload)
    except BadRecords as error:
        return str(error)
    if found != packet.records:
        return f"{found} records where the packet says {packet.records}"
    return "a record has a sequence or a receive time already"


def frame_bytes(frame: Frame) -> bytearray:
    """The stamped records of a frame, as they stand on the tape."""
    content = native.stamped(frame.table, frame.content, frame.first_sequence, frame.timestamp_ns)
    if content is not None:
        return content
    for packet in frame.packets:
        if fault := packet_fault(packet):
            name = f"packet {packet.number} of source {packet.source} in slot {frame.slot}"
            raise TapeError(f"{name} cannot go to a tape: {fault}")
    raise AssertionError("the kernel refused a frame without a fault")


def unstamp_into(content: bytearray) -> None:
    """Set the stamped fields of a frame's records back to 0; BadRecords if they are no records."""
    if native.unstamp(content) < 0:
        count_records(content)

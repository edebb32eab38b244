"""Convert between the packets of a frame and its bytes on the tape.

A floor sends records with `sequence` = `ts_recv` = 0; on the tape they have both (`levelcast.records`, rule 5). The
chain hash is over the records as sent. So a tape that is checked, or served to another member, is un-stamped first: the
two fields are reset to 0. This is correct only if they *were* 0, and only complete records of known types may be on a
DBN tape. `packet_fault` reports the error of any other packet, which a receiver must drop before it sends it to the
ring. A frame with such a packet is refused completely.
"""

from __future__ import annotations

from levelcast import native
from levelcast.protocol.history import Frame
from levelcast.records import BadRecords, count_records
from levelcast.storage.append_file import TapeError
from levelcast.wire.messages import Packet


def packet_fault(packet: Packet) -> str | None:
    """Return the reason why a packet cannot be on the tape, or None. A receiver checks this before it accepts one."""
    if native.count_fresh(packet.payload) == packet.records:
        return None
    try:
        found = count_records(packet.payload)
    except BadRecords as error:
        return str(error)
    if found != packet.records:
        return f"{found} records, but the packet states {packet.records}"
    return "a record already has a sequence or a receive time"


def frame_bytes(frame: Frame) -> bytearray:
    """Return the stamped records of a frame, as they are on the tape."""
    content = native.stamped(frame.table, frame.content, frame.first_sequence, frame.timestamp_ns)
    if content is not None:
        return content
    for packet in frame.packets:
        if fault := packet_fault(packet):
            name = f"packet {packet.number} of source {packet.source} in slot {frame.slot}"
            raise TapeError(f"{name} cannot be written to a tape: {fault}")
    raise AssertionError("native code refused a frame without a fault")


def unstamp_into(content: bytearray) -> None:
    """Reset the stamped fields of a frame's records to 0; raise BadRecords if they are not records."""
    if native.unstamp(content) < 0:
        count_records(content)

"""The watermark (rule 15): "this session is complete up to T", as one record in the session.

It is a DBN system message with the code that DBN defines for this: 4, end of interval, *all records have been published
for the given timestamp*. Its text is human-readable, its tail is for programs:

    ts_event   T: every record of the session with `ts_recv` <= T is before this one, and none is after it
    msg        levelcast complete to 1700000000100000000
    tail       next_sequence u64: the stripe's global sequence after everything up to T, all 64 bits of it
               stripe u16, reserved u16
               hold u32, hold before u32 (in units of `HOLD_UNIT_NS`), from u64: the hold time Δ_A (rule W9)

Δ_A is that of the last timing record up to T: records with `ts_recv` >= from have the hold time `hold`, reached from
`hold before` as in `levelcast.protocol.pace`. Without a timing record, from is 0 and both are the ring's hold time. So
a subscriber that joins late knows the release time of each record. A hold of 0 is not known.

It is a message of the session, and not a packet of another kind or a session of its own, for three reasons:

- A feed handler without support for watermarks sees one more record in the sequence, of a type that DBN readers
  know and skip. Bytes after a heartbeat break the framing; a second session on the group breaks handlers that
  expect one.
- Its position in the sequence is its meaning. A lost watermark is a gap like any other and is requested again; one that
  overtakes its records cannot be used too early.
- A record has only the low 32 bits of the global sequence; here a subscriber that joined late finds the others.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from levelcast.records import SYSTEM, UNDEF_TIMESTAMP, encode_system, open_system, record_places

CODE_END_OF_INTERVAL = 4

_TAIL = struct.Struct("<QHHIIQ")
WATERMARK_TEXT = b"levelcast complete to "
WATERMARK_BYTES = SYSTEM.itemsize + _TAIL.size
HOLD_UNIT_NS = 1_000
_MAX_HOLD = 2**32 - 1


class Holds(NamedTuple):
    """The hold time Δ_A, and the last change of it."""

    hold_ns: int = 0
    """0: not known."""
    before_ns: int = 0
    from_ns: int = 0
    """The timestamp of the first slot with `hold_ns`, or on the way to it; 0: no change."""


UNKNOWN_HOLDS = Holds()


class Watermark(NamedTuple):
    complete_ns: int
    next_sequence: int
    stripe: int
    holds: Holds = UNKNOWN_HOLDS
    """In units of `HOLD_UNIT_NS`, rounded up: no record is delivered early."""


def encode_watermark(watermark: Watermark) -> bytes:
    complete_ns, next_sequence, stripe, (hold_ns, before_ns, from_ns) = watermark
    text = WATERMARK_TEXT + str(complete_ns).encode()
    assert 0 <= complete_ns < UNDEF_TIMESTAMP
    hold, before = (min(-(-ns // HOLD_UNIT_NS), _MAX_HOLD) for ns in (hold_ns, before_ns))
    tail = _TAIL.pack(next_sequence, stripe, 0, hold, before, from_ns)
    return encode_system(text, tail, ts_event=complete_ns, code=CODE_END_OF_INTERVAL)


def decode_watermark(record: bytes) -> Watermark | None:
    """Return the watermark in a payload of this one record; None for any other bytes."""
    opened = open_system(record, WATERMARK_TEXT, _TAIL) if len(record) == WATERMARK_BYTES else None
    if opened is None or opened[0] == UNDEF_TIMESTAMP:
        return None
    complete_ns, tail = opened
    next_sequence, stripe, _, hold, before, from_ns = _TAIL.unpack(tail)
    holds = Holds(hold * HOLD_UNIT_NS, before * HOLD_UNIT_NS, from_ns)
    watermark = Watermark(complete_ns, next_sequence, stripe, holds)
    return watermark if encode_watermark(watermark) == record else None


def last_watermark(payload: bytes, size: int) -> Watermark | None:
    """Return the last watermark among the records of `payload`, which all have `size`, or 0 when they differ."""
    if size not in (0, WATERMARK_BYTES) or payload.rfind(WATERMARK_TEXT) < 0:
        return None
    offsets, sizes = record_places(payload)
    for offset in reversed(offsets[sizes == WATERMARK_BYTES].tolist()):
        if watermark := decode_watermark(payload[offset : offset + WATERMARK_BYTES]):
            return watermark
    return None

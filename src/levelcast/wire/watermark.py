"""The watermark (rule 15): "this session is complete up to T", as one record in the session.

It is a DBN system message, whose code DBN itself has for this: 4, end of interval, *all records have been published
for the given timestamp*. Its text is for people, its tail for programs:

    ts_event   T: every record of the session with `ts_recv` <= T has come before this one, and none comes after
    msg        levelcast complete to 1700000000100000000
    tail       next_sequence u64: the stripe's global sequence after everything up to T, all 64 bits of it
               stripe u16, reserved u16

Why a message of the session, and not a packet of another kind or a session of its own:

- A feed handler that never heard of watermarks sees one more record in the sequence, of a type that DBN readers
  know and skip. Bytes after a heartbeat break the framing; a second session on the group breaks handlers that
  expect one.
- Its place in the sequence is its meaning. A lost watermark is a gap like any other and is asked for; one that
  overtakes the records it speaks of cannot be believed too early.
- A record has only the low 32 bits of the global sequence; here a customer that joined late finds the others.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from levelcast.records import RTYPE_SYSTEM, SYSTEM, UNDEF_TIMESTAMP, WORD_BYTES
from levelcast.wire import mold

CODE_END_OF_INTERVAL = 4

_RECORD = struct.Struct("<BBHIQ303sBQHH")
WATERMARK_TEXT = b"levelcast complete to "
_TEXT_AT = 16
WATERMARK_BYTES = _RECORD.size
assert SYSTEM.itemsize + 12 == WATERMARK_BYTES
assert WATERMARK_BYTES % WORD_BYTES == 0


class Watermark(NamedTuple):
    complete_ns: int
    next_sequence: int
    stripe: int


def encode_watermark(watermark: Watermark) -> bytes:
    complete_ns, next_sequence, stripe = watermark
    text = WATERMARK_TEXT + str(complete_ns).encode()
    words = WATERMARK_BYTES // WORD_BYTES
    assert 0 <= complete_ns < UNDEF_TIMESTAMP
    return _RECORD.pack(words, RTYPE_SYSTEM, 0, 0, complete_ns, text, CODE_END_OF_INTERVAL, next_sequence, stripe, 0)


def decode_watermark(record: bytes) -> Watermark | None:
    """The watermark in a payload of this one record; None for any other bytes."""
    if len(record) != WATERMARK_BYTES or record[1] != RTYPE_SYSTEM or not record.startswith(WATERMARK_TEXT, _TEXT_AT):
        return None
    _, _, _, _, complete_ns, _, _, next_sequence, stripe, _ = _RECORD.unpack(record)
    if complete_ns == UNDEF_TIMESTAMP:
        return None
    watermark = Watermark(complete_ns, next_sequence, stripe)
    return watermark if encode_watermark(watermark) == record else None


def last_watermark(payload: bytes, size: int) -> Watermark | None:
    """The last watermark among the records of `payload`, which all have `size`, or 0 when they differ."""
    if size not in (0, WATERMARK_BYTES) or payload.rfind(WATERMARK_TEXT) < 0:
        return None
    offsets, sizes = mold.record_places(payload)
    for offset in reversed(offsets[sizes == WATERMARK_BYTES].tolist()):
        if watermark := decode_watermark(payload[offset : offset + WATERMARK_BYTES]):
            return watermark
    return None

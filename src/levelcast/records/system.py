"""Encode and decode Levelcast's own messages: DBN system messages with a tail.

Every reader of the tape reads or skips them. The text is human-readable and starts with words that identify the kind of
message; the tail is for programs, filled up with zeros to a 4-byte word. Each kind has one encoding: its decoder
encodes what it found and compares.
"""

from __future__ import annotations

import struct

from levelcast.records.codes import MAX_RECORD_BYTES, RTYPE_SYSTEM, UNDEF_TIMESTAMP, WORD_BYTES

__all__ = ["MAX_SYSTEM_TAIL", "MAX_SYSTEM_TEXT", "encode_system", "open_system"]

_SYSTEM = struct.Struct("<BBHIQ303sB")  # length, rtype, publisher_id, instrument_id, ts_event, msg, code
_TIME_AT = 8
_TEXT_AT = 16
_NO_CODE = 0xFF

MAX_SYSTEM_TEXT = 302
"""The last byte of 303 is the NUL."""
MAX_SYSTEM_TAIL = MAX_RECORD_BYTES - _SYSTEM.size


def encode_system(
    text: bytes, tail: bytes, *, source: int = 0, ts_event: int = UNDEF_TIMESTAMP, code: int = _NO_CODE
) -> bytes:
    """Return the record; `struct.error` for a number outside its range."""
    tail += bytes(-len(tail) % WORD_BYTES)
    words = (_SYSTEM.size + len(tail)) // WORD_BYTES
    return _SYSTEM.pack(words, RTYPE_SYSTEM, source, 0, ts_event, text, code) + tail


def open_system(record: bytes, text_start: bytes, tail: struct.Struct) -> tuple[int, bytes] | None:
    """Return `ts_event` and the tail of a system message with this text and at least this tail, else None."""
    if len(record) < _SYSTEM.size + tail.size or record[1] != RTYPE_SYSTEM:
        return None
    if not record.startswith(text_start, _TEXT_AT):
        return None
    return int.from_bytes(record[_TIME_AT:_TEXT_AT], "little"), bytes(record[_SYSTEM.size :])

"""Messages in a stream of bytes: length, checksum and the first three fields.

A message is `8=BeginString|9=BodyLength|35=…|10=CheckSum|`, where `|` is the delimiter SOH. It is garbled, and
ignored, if one of the first three fields is not in its place, or length or checksum is wrong (FIX 4.4, "garbled
message"). What is ignored with it:

- With a readable BodyLength, everything up to the end of the first CheckSum at or after the stated end. So a message
  with a length that is too small is ignored alone, and one with a length that is too large takes its successor with
  it. The gap in the numbers brings both back.
- Without one, everything up to the next `8=FIX`.

The buffer holds at most one message of the limit. A message whose stated length is above the limit ends the stream.
"""

from __future__ import annotations

from typing import NamedTuple
from zlib import adler32

SOH = b"\x01"
CHECKSUM_SIZE = 7
"""`10=123|`"""
DEFAULT_MAX_MESSAGE = 16_384
_MAX_HEAD = 32
"""Bytes of BeginString and BodyLength with their delimiters."""
_MAX_LENGTH_DIGITS = 9
_CHUNK = 256
"""Bytes whose sum is below the modulus of Adler-32 (65,521), so that its low half is one more than their sum."""


class FixFrame(NamedTuple):
    begin: bytes
    """BeginString."""
    body: bytes
    """The fields from MsgType to the last before the CheckSum, without the delimiter after that."""
    raw: bytes


class Garbled(NamedTuple):
    reason: str
    size: int


class Oversized(NamedTuple):
    length: int
    limit: int


class FramingError(Exception):
    """A fault of the next bytes, with the number of bytes to ignore."""

    def __init__(self, reason: str, size: int) -> None:
        super().__init__(reason)
        self.reason, self.size = reason, size


def checksum(data: bytes) -> int:
    """Return the sum of all bytes modulo 256. Adler-32 adds them up 20 times faster than `sum`."""
    if len(data) <= _CHUNK:
        return (adler32(data) - 1) & 0xFF
    total = 0
    for at in range(0, len(data), _CHUNK):
        total += (adler32(data[at : at + _CHUNK]) & 0xFFFF) - 1
    return total & 0xFF


class Framer:
    """Divide a stream into messages. After an `Oversized` it ignores all input."""

    def __init__(self, max_message: int = DEFAULT_MAX_MESSAGE) -> None:
        self.max_message = max_message
        self._buffer = b""
        self._at = 0
        self._closed = False

    @property
    def held(self) -> int:
        """Bytes that no message has taken yet."""
        return len(self._buffer) - self._at

    def feed(self, data: bytes) -> None:
        """Add bytes of the stream."""
        if not self._closed:
            self._buffer = self._buffer[self._at :] + data
            self._at = 0

    def next(self) -> FixFrame | Garbled | Oversized | None:
        """Return the next message, or the bytes that are ignored instead of one; None if more bytes are needed."""
        if self._at >= len(self._buffer):
            return None
        try:
            found = self._message(self._buffer, self._at)
        except FramingError as error:
            self._at += error.size
            return Garbled(error.reason, error.size)
        if isinstance(found, FixFrame):
            self._at += len(found.raw)
        elif isinstance(found, Oversized):
            self._buffer, self._at, self._closed = b"", 0, True
        return found

    def _message(self, buffer: bytes, at: int) -> FixFrame | Oversized | None:
        """Return the message at a position, or None if more bytes are needed."""
        if buffer[at : at + 5] != b"8=FIX":
            self._skip(buffer, at)
            return None
        begin_end = buffer.find(SOH, at, at + _MAX_HEAD)
        length_end = buffer.find(SOH, begin_end + 1, at + _MAX_HEAD) if begin_end >= 0 else -1
        if length_end < 0:
            if len(buffer) - at < _MAX_HEAD:
                return None
            raise FramingError("BeginString and BodyLength are too long", self._next_start(buffer, at))
        digits = buffer[begin_end + 3 : length_end]
        if buffer[begin_end + 1 : begin_end + 3] != b"9=" or not digits.isdigit() or len(digits) > _MAX_LENGTH_DIGITS:
            raise FramingError("BodyLength is not the second field or not a length", self._next_start(buffer, at))
        length, start = int(digits), length_end + 1
        if length > self.max_message:
            return Oversized(length, self.max_message)
        end = start + length
        if len(buffer) < end + CHECKSUM_SIZE:
            return None
        if buffer[end - 1 : end + 3] != b"\x0110=" or buffer[end + 6 : end + 7] != SOH:
            self._ignore(buffer, at, end)
            return None
        if buffer[start : start + 3] != b"35=":
            raise FramingError("MsgType is not the third field", end + CHECKSUM_SIZE - at)
        stated = buffer[end + 3 : end + 6]
        if not stated.isdigit() or checksum(buffer[at:end]) != int(stated):
            raise FramingError("wrong CheckSum", end + CHECKSUM_SIZE - at)
        return FixFrame(buffer[at + 2 : begin_end], buffer[start : end - 1], buffer[at : end + CHECKSUM_SIZE])

    def _ignore(self, buffer: bytes, at: int, end: int) -> None:
        """Raise for a message without a CheckSum at its stated end, once the end of its CheckSum is known."""
        limit = at + self.max_message + _MAX_HEAD + CHECKSUM_SIZE
        checksum_at = buffer.find(b"\x0110=", end - 1, limit)
        last = buffer.find(SOH, checksum_at + 4, limit) if checksum_at >= 0 else -1
        if last >= 0:
            raise FramingError("wrong BodyLength or CheckSum", last + 1 - at)
        if len(buffer) > limit:
            raise FramingError("no CheckSum", self._next_start(buffer, at))

    def _skip(self, buffer: bytes, at: int) -> None:
        """Raise for bytes before the next message, unless they can be the beginning of one."""
        head = buffer[at : at + 5]
        if b"8=FIX".startswith(head):
            return
        raise FramingError("bytes before BeginString", self._next_start(buffer, at))

    def _next_start(self, buffer: bytes, at: int) -> int:
        """Return the number of bytes up to the next possible beginning of a message."""
        found = buffer.find(b"8=FIX", at + 1)
        if found >= 0:
            return found - at
        size = len(buffer) - at
        return next((size - n for n in range(4, 0, -1) if n < size and buffer.endswith(b"8=FIX"[:n])), size)

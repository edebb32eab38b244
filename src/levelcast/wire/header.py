"""What all core datagrams have in common: the header, the seal, and the parts that bodies are made of.

All numbers are little-endian. Every datagram starts with the same 24 bytes:

    offset  type  field
    0       2s    magic "LC"
    2       u8    version, 1
    3       u8    kind
    4       u16   stripe
    6       u16   sender: the node that speaks, see the table in `levelcast.wire.codec`
    8       u64   generation; 0 in kinds that have none
    16      u32   length of the whole datagram
    20      u8    kind of seal: 1 is a CRC-32 (zlib's) of everything before it
    21      u8    length of the seal: so many bytes at the end of the datagram, 4 with kind 1
    22      u16   reserved, 0

The body follows, and then the seal. UDP's own 16-bit checksum lets one damaged datagram in 65,536 pass, and a
token with one wrong bit would be a lie that every receiver believes; CRC-32 finds every burst of up to 32
bits. It keeps out accidents, not liars: a keyed seal will be another kind.

The seal is checked before the kind, the reserved bytes and the body are looked at, so what was damaged on its
way and what its sender got wrong are rejected for different reasons.
"""

from __future__ import annotations

import enum
from struct import Struct
from typing import Any, Generic, NoReturn, TypeVar

from levelcast.native import crc32

__all__ = [
    "COUNT",
    "HEADER_SIZE",
    "KIND_AT",
    "LENGTH_AT",
    "MAX_DATAGRAM",
    "SEAL_SIZE",
    "STRIPE_AT",
    "Malformed",
    "Packed",
    "Reason",
    "bad_field",
    "new_tuple",
    "open_datagram",
    "pack_bytes",
    "seal_datagram",
    "unpack_bytes",
    "unpack_count",
]

MAX_DATAGRAM = 65_507
"""The largest UDP payload over IPv4."""

COUNT = Struct("<I")

_HEADER = Struct("<2sBBHHQIBBH")
_MAGIC = b"LC"
_VERSION = 1
_CRC32 = Struct("<I")
_SEAL_CRC32 = 1

HEADER_SIZE = _HEADER.size
KIND_AT = 3
STRIPE_AT = 4
LENGTH_AT = 16
SEAL_SIZE = _CRC32.size

# The per-packet path: a named tuple's own constructor is a Python function around this call.
new_tuple = tuple.__new__


class Reason(enum.Enum):
    """Why a datagram was rejected."""

    TOO_SHORT = "too short"
    BAD_MAGIC = "bad magic"
    UNKNOWN_VERSION = "unknown version"
    UNKNOWN_KIND = "unknown kind"
    WRONG_LENGTH = "wrong length"
    TRUNCATED_BODY = "truncated body"
    TRAILING_BYTES = "trailing bytes"
    BAD_FIELD = "bad field"
    UNKNOWN_SEAL = "unknown seal"
    BROKEN_SEAL = "broken seal"
    WRONG_STRIPE = "wrong stripe"


class Malformed(ValueError):
    """Bytes that are no datagram of ours, or a message that no datagram can carry."""

    def __init__(self, reason: Reason, detail: str = "") -> None:
        super().__init__(f"{reason.value}: {detail}" if detail else reason.value)
        self.reason = reason


def bad_field(what: str) -> NoReturn:
    raise Malformed(Reason.BAD_FIELD, what)


def seal_datagram(kind: int, stripe: int, sender: int, generation: int, body: bytes) -> bytes:
    """The header, the body and their seal."""
    length = HEADER_SIZE + len(body) + SEAL_SIZE
    if length > MAX_DATAGRAM:
        raise Malformed(Reason.WRONG_LENGTH, f"{length} bytes do not fit a datagram")
    head = _HEADER.pack(_MAGIC, _VERSION, kind, stripe, sender, generation, length, _SEAL_CRC32, SEAL_SIZE, 0)
    return b"".join((head, body, _CRC32.pack(crc32(body, crc32(head)))))


def open_datagram(datagram: bytes) -> tuple[int, int, int, int, bytes]:
    """Kind, stripe, sender and generation, and the datagram without its seal, which holds."""
    size = len(datagram)
    if size < HEADER_SIZE + SEAL_SIZE:
        raise Malformed(Reason.TOO_SHORT)
    if size > MAX_DATAGRAM:
        raise Malformed(Reason.WRONG_LENGTH)
    magic, version, kind, stripe, sender, generation, length, seal_kind, seal_size, reserved = _HEADER.unpack_from(
        datagram
    )
    if magic != _MAGIC:
        raise Malformed(Reason.BAD_MAGIC)
    if version != _VERSION:
        raise Malformed(Reason.UNKNOWN_VERSION)
    if length != size:
        raise Malformed(Reason.WRONG_LENGTH)
    if seal_kind != _SEAL_CRC32 or seal_size != SEAL_SIZE:
        raise Malformed(Reason.UNKNOWN_SEAL)
    # A copy without the seal, so that the end of the bytes is the end of the body for everything that reads.
    unsealed = datagram[:-SEAL_SIZE]
    if _CRC32.pack(crc32(unsealed)) != datagram[-SEAL_SIZE:]:
        raise Malformed(Reason.BROKEN_SEAL)
    if reserved:
        bad_field("header")
    return kind, stripe, sender, generation, unsealed


# ---------------------------------------------------------------------------------------------------------
# Parts of a body. Each `unpack` takes an unsealed datagram and where the part starts.

_Row = TypeVar("_Row", bound=tuple[Any, ...])


class Packed(Generic[_Row]):
    """A counted array of fixed-width rows."""

    def __init__(self, layout: str, row: type[_Row], limit: int) -> None:
        self._layout = Struct(layout)
        self._row = row
        self._limit = limit

    def pack(self, rows: tuple[_Row, ...]) -> bytes:
        if len(rows) > self._limit:
            bad_field(f"{len(rows)} rows of {self._row.__name__}, {self._limit} at most")
        pack = self._layout.pack
        return COUNT.pack(len(rows)) + b"".join([pack(*row) for row in rows])

    def unpack(self, datagram: bytes, at: int) -> tuple[tuple[_Row, ...], int]:
        """The rows, and where they end."""
        (count,) = COUNT.unpack_from(datagram, at)
        at += 4
        if not count:
            return (), at
        # The limit comes first: a hostile count must not even be multiplied into a slice.
        if count > self._limit:
            bad_field("count")
        layout = self._layout
        end = at + count * layout.size
        if end > len(datagram):
            raise Malformed(Reason.TRUNCATED_BODY)
        row = self._row
        return tuple([new_tuple(row, values) for values in layout.iter_unpack(datagram[at:end])]), end


def unpack_count(datagram: bytes, at: int, limit: int) -> int:
    count: int = COUNT.unpack_from(datagram, at)[0]
    if count > limit:
        bad_field("count")
    return count


def pack_bytes(value: bytes, limit: int) -> bytes:
    if len(value) > limit:
        bad_field(f"{len(value)} bytes, {limit} at most")
    return bytes((len(value),)) + value


def unpack_bytes(datagram: bytes, at: int, limit: int) -> tuple[bytes, int]:
    """The bytes, and where they end."""
    if at >= len(datagram):
        raise Malformed(Reason.TRUNCATED_BODY)
    size = datagram[at]
    if size > limit:
        bad_field("length")
    end = at + 1 + size
    if end > len(datagram):
        raise Malformed(Reason.TRUNCATED_BODY)
    return datagram[at + 1 : end], end

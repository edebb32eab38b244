"""The header and the seal that all core datagrams have.

All numbers are little-endian. Every datagram starts with the same 24 bytes:

    offset  type  field
    0       2s    magic "LC"
    2       u8    version, 1
    3       u8    kind
    4       u16   stripe
    6       u16   sender: the node that speaks, see the table in `levelcast.wire.codec`
    8       u64   generation; 0 in kinds that have none
    16      u32   length of the whole datagram
    20      u8    kind of seal (`levelcast.wire.seal`): 1 is a CRC-32 of everything before it
    21      u8    size of the seal: that many bytes at the end of the datagram, 4 with kind 1
    22      u16   reserved, 0

The body follows, and then the seal. The seal is checked before the kind, the reserved bytes and the body, so that
damage on the way and mistakes of the sender are rejected for different reasons.
"""

from __future__ import annotations

import enum
from struct import Struct
from typing import NoReturn

from levelcast.native.layout import (
    HEADER,
    KIND_AT,
    LENGTH_AT,
    MAGIC,
    SEAL_KIND_AT,
    SEAL_SIZE_AT,
    SENDER_AT,
    STRIPE_AT,
    VERSION,
)
from levelcast.wire.seal import CRC32, SEALS, Seal

__all__ = [
    "HEADER_SIZE",
    "KIND_AT",
    "LENGTH_AT",
    "MAX_DATAGRAM",
    "SEAL_KIND_AT",
    "SEAL_SIZE_AT",
    "STRIPE_AT",
    "Malformed",
    "Reason",
    "bad_field",
    "new_tuple",
    "open_datagram",
    "seal_datagram",
    "sender_of",
]

MAX_DATAGRAM = 65_507
"""The largest UDP payload over IPv4."""
HEADER_SIZE = HEADER.size

_U16 = Struct("<H")

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


def seal_datagram(kind: int, stripe: int, sender: int, generation: int, body: bytes, seal: Seal = CRC32) -> bytes:
    """Return the header, the body and their seal."""
    length = HEADER_SIZE + len(body) + seal.size
    if length > MAX_DATAGRAM:
        raise Malformed(Reason.WRONG_LENGTH, f"{length} bytes do not fit a datagram")
    head = HEADER.pack(MAGIC, VERSION, kind, stripe, sender, generation, length, seal.kind, seal.size, 0)
    return b"".join((head, body, seal.make(head, body)))


def open_datagram(datagram: bytes) -> tuple[int, int, int, int, bytes]:
    """Return kind, stripe, sender, generation, and the datagram without its seal, which holds."""
    size = len(datagram)
    if size < HEADER_SIZE:
        raise Malformed(Reason.TOO_SHORT)
    if size > MAX_DATAGRAM:
        raise Malformed(Reason.WRONG_LENGTH)
    magic, version, kind, stripe, sender, generation, length, seal_kind, seal_size, reserved = HEADER.unpack_from(
        datagram
    )
    if magic != MAGIC:
        raise Malformed(Reason.BAD_MAGIC)
    if version != VERSION:
        raise Malformed(Reason.UNKNOWN_VERSION)
    if length != size:
        raise Malformed(Reason.WRONG_LENGTH)
    seal = SEALS.get(seal_kind)
    if seal is None or seal_size != seal.size:
        raise Malformed(Reason.UNKNOWN_SEAL)
    end = size - seal_size
    if end < HEADER_SIZE:
        raise Malformed(Reason.TOO_SHORT)
    # A copy without the seal, so that the end of the bytes is the end of the body for everything that reads.
    unsealed = datagram[:end]
    if not seal.holds(unsealed, datagram[end:]):
        raise Malformed(Reason.BROKEN_SEAL)
    if reserved:
        bad_field("header")
    return kind, stripe, sender, generation, unsealed


def sender_of(datagram: bytes) -> int | None:
    """Return the node that a datagram names as its sender; None if it is too short to name one."""
    if len(datagram) < SENDER_AT + _U16.size:
        return None
    sender: int = _U16.unpack_from(datagram, SENDER_AT)[0]
    return sender

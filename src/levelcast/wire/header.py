"""The header and the seal that all core datagrams have.

All numbers are little-endian. Every datagram starts with the same 32 bytes, version 2 of the header:

    offset  type  field
    0       2s    magic "LC"
    2       u8    version, 2
    3       u8    kind
    4       u16   stripe
    6       u16   sender: the node that sent this datagram and sealed it; of an item in a Repair, its author
    8       u64   generation; 0 in kinds that have none; of a Data with seal kind 2, the salt of its source's process
    16      u32   length of the complete datagram
    20      u8    kind of seal (`levelcast.wire.seal`): 1 is a CRC-32 of everything before it; 2, 3 and 5 have keys
    21      u8    size of the seal: that many bytes at the end of the datagram, 4 with kind 1
    22      u16   key epoch of the seal; 0 with kind 1, which has no key
    24      u64   network identifier: the network file's `[network] id`

The body follows, and then the seal. The seal is checked before the kind, epoch, network and body, so that damage in
transit and errors of the sender are rejected for different reasons. Magic, version and kind stay in bytes 0 to 3 in
every version. Version 1 had no epoch and no network identifier (24 bytes); its datagrams are rejected for that reason.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from struct import Struct
from typing import NoReturn

from levelcast.native.layout import (
    HEADER,
    KIND_AT,
    MAGIC,
    NETWORK_AT,
    SENDER_AT,
    STRIPE_AT,
    STRIPE_BITS,
    STRIPE_MASK,
    VERSION,
)
from levelcast.wire.seal import CRC32, SEALS, Seal

MAX_DATAGRAM = 65_507
"""The largest UDP payload over IPv4."""
HEADER_SIZE = HEADER.size

_MAGIC_AND_VERSION = MAGIC + bytes((VERSION,))
_U16 = Struct("<H")
_U64 = Struct("<Q")

# The per-packet path: a named tuple's own constructor is a Python function around this call.
new_tuple = tuple.__new__


class Reason(enum.Enum):
    """Reasons for which a datagram is rejected."""

    TOO_SHORT = "too short"
    BAD_MAGIC = "bad magic"
    VERSION_1 = "version 1"
    UNKNOWN_VERSION = "unknown version"
    UNKNOWN_KIND = "unknown kind"
    WRONG_LENGTH = "wrong length"
    TRUNCATED_BODY = "truncated body"
    TRAILING_BYTES = "trailing bytes"
    BAD_FIELD = "bad field"
    UNKNOWN_SEAL = "unknown seal"
    BROKEN_SEAL = "broken seal"
    WRONG_NETWORK = "wrong network"
    WRONG_STRIPE = "wrong stripe"
    UNKNOWN_KEY = "unknown key"
    REVOKED = "revoked sender"
    STALE = "stale"
    REPLAYED = "replayed"
    WRONG_ROLE = "wrong role"
    BAD_SIGNATURE = "bad signature"
    TOO_MANY = "too many to check"


class Malformed(ValueError):
    """Bytes that are not a datagram of this protocol, or a message that no datagram can carry."""

    def __init__(self, reason: Reason, detail: str = "") -> None:
        super().__init__(f"{reason.value}: {detail}" if detail else reason.value)
        self.reason = reason
        self._detail = detail

    def __reduce__(self) -> tuple[type[Malformed], tuple[Reason, str]]:
        # A worker process passes it on; without this, the other process cannot read it, and waits.
        return type(self), (self.reason, self._detail)


def bad_field(what: str) -> NoReturn:
    raise Malformed(Reason.BAD_FIELD, what)


def domain_of(network: int, stripe: int) -> int:
    """Return the domain of datagrams: one stripe of one network, both in one number."""
    return network << STRIPE_BITS | stripe


def split_domain(domain: int) -> tuple[int, int]:
    """Return the network identifier and the stripe of a domain."""
    return domain >> STRIPE_BITS, domain & STRIPE_MASK


def seal_datagram(kind: int, domain: int, sender: int, generation: int, body: bytes, seal: Seal = CRC32) -> bytes:
    """Return the header, the body and their seal."""
    network, stripe = split_domain(domain)
    length = HEADER_SIZE + len(body) + seal.size
    if length > MAX_DATAGRAM:
        raise Malformed(Reason.WRONG_LENGTH, f"{length} bytes do not fit a datagram")
    head = HEADER.pack(
        MAGIC, VERSION, kind, stripe, sender, generation, length, seal.kind, seal.size, seal.epoch, network
    )
    return b"".join((head, body, seal.make(head, body)))


def reseal(datagram: bytes, seal: Seal) -> bytes:
    """Return a complete datagram with another seal instead of its own."""
    _, _, kind, stripe, sender, generation, _, _, old_size, _, network = HEADER.unpack_from(datagram)
    body = datagram[HEADER_SIZE : len(datagram) - old_size]
    return seal_datagram(kind, domain_of(network, stripe), sender, generation, body, seal)


def open_datagram(datagram: bytes, seals: Mapping[int, Seal] = SEALS) -> tuple[int, int, int, int, bytes]:
    """Return kind, domain, sender, generation, and the datagram without its seal, which holds."""
    size = len(datagram)
    if datagram[:3] != _MAGIC_AND_VERSION:
        raise _not_this_version(datagram)
    if size < HEADER_SIZE:
        raise Malformed(Reason.TOO_SHORT)
    _, _, kind, stripe, sender, generation, length, seal_kind, seal_size, epoch, network = HEADER.unpack_from(datagram)
    if length != size or size > MAX_DATAGRAM:
        raise Malformed(Reason.WRONG_LENGTH)
    seal = seals.get(seal_kind)
    if seal is None or seal_size != seal.size:
        raise Malformed(Reason.UNKNOWN_SEAL)
    end = size - seal_size
    if end < HEADER_SIZE:
        raise Malformed(Reason.TOO_SHORT)
    # A copy without the seal, so that the end of the bytes is the end of the body for everything that reads.
    unsealed = datagram[:end]
    if not seal.holds(unsealed, datagram[end:]):
        raise Malformed(Reason.BROKEN_SEAL)
    if epoch and seal is CRC32:
        bad_field("key epoch of a seal without a key")
    return kind, domain_of(network, stripe), sender, generation, unsealed


def _not_this_version(datagram: bytes) -> Malformed:
    """Return the error for wrong first bytes; datagrams of older versions may be shorter than this version's header."""
    if len(datagram) <= KIND_AT:
        return Malformed(Reason.TOO_SHORT)
    if datagram[:2] != MAGIC:
        return Malformed(Reason.BAD_MAGIC)
    if datagram[2] == 1:
        return Malformed(Reason.VERSION_1, "its sender runs an older Levelcast with header version 1")
    return Malformed(Reason.UNKNOWN_VERSION, f"{datagram[2]}")


def domain_in(datagram: bytes) -> int:
    """Return the domain of a complete datagram."""
    (stripe,), (network,) = _U16.unpack_from(datagram, STRIPE_AT), _U64.unpack_from(datagram, NETWORK_AT)
    return domain_of(network, stripe)


def wrong_domain(found: int, domain: int) -> Reason | None:
    """Return why a datagram of the domain `found` is not for nodes of `domain`; None if it is."""
    if found == domain:
        return None
    return Reason.WRONG_STRIPE if found >> STRIPE_BITS == domain >> STRIPE_BITS else Reason.WRONG_NETWORK


def sender_of(datagram: bytes) -> int | None:
    """Return the node that a datagram names as its sender; None if it is too short to name one."""
    if len(datagram) < SENDER_AT + _U16.size:
        return None
    sender: int = _U16.unpack_from(datagram, SENDER_AT)[0]
    return sender

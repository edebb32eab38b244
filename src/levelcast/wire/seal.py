"""Seals: the bytes at the end of a core datagram that show whether the rest is as its author sent it.

A seal has a kind and a size, and the header of each datagram states both, so that all other code can find the end of a
body without knowing the kind. CRC-32 is kind 1, with 4 bytes. UDP's own 16-bit checksum misses one damaged datagram in
65,536, and every receiver would accept a token with one wrong bit; CRC-32 finds every burst of up to 32 bits. It
detects accidents and no forgery. The keyed seals are those of packets (2, `levelcast.native.pure_seal`), of control
messages (3) and of beats (5, both in `levelcast.keys`).
"""

from __future__ import annotations

from functools import cache
from typing import Final, Protocol

from levelcast.native import crc32
from levelcast.native.layout import AES_GCM_KIND, AES_GCM_SIZE, CRC32_KIND, CRC32_SIZE


class Seal(Protocol):
    """One kind of seal."""

    @property
    def kind(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def epoch(self) -> int:
        """Epoch of the key; 0 without one."""

    def make(self, head: bytes, body: bytes) -> bytes:
        """Return the seal over a header and a body, `size` bytes."""

    def holds(self, content: bytes, seal: bytes) -> bool:
        """Return whether `seal` is the one over `content`, a header and a body."""


class Crc32:
    """Zlib's CRC-32, little-endian."""

    kind: Final = CRC32_KIND
    size: Final = CRC32_SIZE
    epoch: Final = 0

    def make(self, head: bytes, body: bytes) -> bytes:
        return crc32(body, crc32(head)).to_bytes(CRC32_SIZE, "little")

    def holds(self, content: bytes, seal: bytes) -> bool:
        return crc32(content) == int.from_bytes(seal, "little")


CONTROL_KIND, CONTROL_SIZE = 3, 98
"""Time u64, address 4 bytes, port u16, two key epochs u16, Ed25519 signature of the sender, MAC (K10, K11)."""
BEAT_KIND = 5
"""Time u64, and for each receiver its id u16 and 8 bytes of MAC."""


class CheckedSeal:
    """A keyed seal that was checked before: of a message that is read from the own journal, or was just verified."""

    epoch: Final = 0

    def __init__(self, kind: int, size: int) -> None:
        self.kind, self.size = kind, size

    def make(self, head: bytes, body: bytes) -> bytes:
        raise ValueError("a seal that was checked before is not made")

    def holds(self, content: bytes, seal: bytes) -> bool:
        return True


CRC32 = Crc32()
SEALS: dict[int, Seal] = {CRC32.kind: CRC32}
"""The kinds of seal that a node without keys can check."""
CHECKED: dict[int, Seal] = {
    CRC32.kind: CRC32,
    AES_GCM_KIND: CheckedSeal(AES_GCM_KIND, AES_GCM_SIZE),
    CONTROL_KIND: CheckedSeal(CONTROL_KIND, CONTROL_SIZE),
}
"""The seals of datagrams that were verified before (K8): a journal stays readable after its keys have ended."""


@cache
def checked_beats(size: int) -> dict[int, Seal]:
    """Return the seals with which a beat is decoded that was verified before; the size of its seal varies."""
    return {BEAT_KIND: CheckedSeal(BEAT_KIND, size)}


MAX_SEAL_SIZE = 128
"""Maximum size in bytes of a seal of any kind: an item of a Repair must fit whatever seals the Repair."""

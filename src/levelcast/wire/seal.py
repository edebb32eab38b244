"""Seals: the bytes at the end of a core datagram that show whether the rest is as its author sent it.

A seal has a kind and a size, and the header of each datagram states both, so that all other code can find the end of a
body without knowing the kind. CRC-32 is kind 1, with 4 bytes. UDP's own 16-bit checksum misses one damaged datagram in
65,536, and every receiver would accept a token with one wrong bit; CRC-32 finds every burst of up to 32 bits. It
detects accidents and no forgery. Keyed seals will be other kinds.
"""

from __future__ import annotations

from typing import Final, Protocol

from levelcast.native import crc32
from levelcast.native.layout import CRC32_KIND, CRC32_SIZE


class Seal(Protocol):
    """One kind of seal."""

    @property
    def kind(self) -> int: ...

    @property
    def size(self) -> int: ...

    def make(self, head: bytes, body: bytes) -> bytes:
        """Return the seal over a header and a body, `size` bytes."""

    def holds(self, content: bytes, seal: bytes) -> bool:
        """Return whether `seal` is the one over `content`, a header and a body."""


class Crc32:
    """Zlib's CRC-32, little-endian."""

    kind: Final = CRC32_KIND
    size: Final = CRC32_SIZE

    def make(self, head: bytes, body: bytes) -> bytes:
        return crc32(body, crc32(head)).to_bytes(CRC32_SIZE, "little")

    def holds(self, content: bytes, seal: bytes) -> bool:
        return crc32(content) == int.from_bytes(seal, "little")


CRC32 = Crc32()
SEALS: dict[int, Seal] = {CRC32.kind: CRC32}
"""The kinds of seal that a node can check."""
MAX_SEAL_SIZE = 128
"""Maximum size in bytes of a seal of any kind: an item of a Repair must fit whatever seals the Repair."""

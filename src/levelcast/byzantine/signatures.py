"""Signatures as small interfaces, so that real and simulated keys are exchangeable.

A signer belongs to one member. A verifier has the public keys of all members. `KeyedHash` is for the simulator: all
keys follow from one secret, and nodes that have only their own signer cannot sign for others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from blake3 import blake3

from levelcast.wire.chain_codec import SIGNATURE_SIZE


class Signer(Protocol):
    """The private key of one member."""

    def sign(self, content: bytes) -> bytes:
        """Return the signature over `content`."""


class Verifier(Protocol):
    """The public keys of all members."""

    def holds(self, member: int, content: bytes, signature: bytes) -> bool:
        """Return whether `signature` is that of `member` over `content`; False for an unknown member."""


class KeyedHash:
    """Keyed BLAKE3 instead of a signature: deterministic and cheap, for simulations only."""

    def __init__(self, member: int, secret: bytes = b"simulated keys") -> None:
        self._key = blake3(secret + member.to_bytes(8, "little")).digest()

    def sign(self, content: bytes) -> bytes:
        return blake3(content, key=self._key).digest(length=SIGNATURE_SIZE)


class KeyedHashVerifier:
    """The verifier of `KeyedHash` signatures."""

    def __init__(self, members: tuple[int, ...], secret: bytes = b"simulated keys") -> None:
        self._signers = {member: KeyedHash(member, secret) for member in members}

    def holds(self, member: int, content: bytes, signature: bytes) -> bool:
        signer = self._signers.get(member)
        return signer is not None and signer.sign(content) == signature


class RecentVerifier:
    """A verifier that remembers its last results, so that a pool of threads can verify before the protocol asks."""

    def __init__(self, inner: Verifier, limit: int = 4_096) -> None:
        self._inner = inner
        self._limit = limit
        self._known: dict[tuple[int, bytes, bytes], bool] = {}

    def check(self, member: int, content: bytes, signature: bytes) -> bool:
        """Verify without what is remembered: for other threads."""
        return self._inner.holds(member, content, signature)

    def learn(self, member: int, content: bytes, signature: bytes, *, holds: bool) -> None:
        """Remember a result."""
        if len(self._known) >= self._limit:
            self._known.pop(next(iter(self._known)))
        self._known[member, content, signature] = holds

    def holds(self, member: int, content: bytes, signature: bytes) -> bool:
        found = self._known.get((member, content, signature))
        if found is None:
            found = self.check(member, content, signature)
            self.learn(member, content, signature, holds=found)
        return found


def only_members(keys: Mapping[int, bytes], members: tuple[int, ...]) -> None:
    """Raise ValueError, with one reason, unless `keys` has exactly one key for each member, and none twice."""
    for member in members:
        if member not in keys:
            raise ValueError(f"member {member} has no key; add its public key")
    owner: dict[bytes, int] = {}
    for member, key in keys.items():
        if member not in members:
            raise ValueError(f"key of {member}, which is not a member; remove it")
        if key in owner:
            raise ValueError(f"members {owner[key]} and {member} have the same key; each needs its own")
        owner[key] = member

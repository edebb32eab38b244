"""Ed25519 signatures (RFC 8032) with `cryptography`, for real processes."""

from __future__ import annotations

from collections.abc import Mapping

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from levelcast.byzantine.signatures import only_members

KEY_SIZE = 32


class Ed25519Signer:
    """A signer with a private key of 32 bytes."""

    def __init__(self, private: bytes) -> None:
        if len(private) != KEY_SIZE:
            raise ValueError(f"private key of {len(private)} bytes; an Ed25519 key has {KEY_SIZE}")
        self._key = Ed25519PrivateKey.from_private_bytes(private)

    @property
    def public(self) -> bytes:
        """The public key, 32 bytes."""
        return self._key.public_key().public_bytes_raw()

    def sign(self, content: bytes) -> bytes:
        return self._key.sign(content)


class Ed25519Verifier:
    """A verifier with one public key per member."""

    def __init__(self, keys: Mapping[int, bytes]) -> None:
        only_members(keys, tuple(keys))
        for member, key in keys.items():
            if len(key) != KEY_SIZE:
                raise ValueError(f"public key of member {member} has {len(key)} bytes; an Ed25519 key has {KEY_SIZE}")
        self._keys = {member: Ed25519PublicKey.from_public_bytes(key) for member, key in keys.items()}

    def holds(self, member: int, content: bytes, signature: bytes) -> bool:
        key = self._keys.get(member)
        if key is None:
            return False
        try:
            key.verify(signature, content)
        except InvalidSignature:
            return False
        return True

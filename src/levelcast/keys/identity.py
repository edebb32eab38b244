"""The identity of a node, of the operator or of the authority: one key that signs and one that opens envelopes.

An envelope is HPKE in base mode (RFC 9180) with X25519, HKDF-SHA-256 and AES-256-GCM. HPKE does not show who sealed it:
only the authority's signature of the statement makes its content believable.
"""

from __future__ import annotations

import base64
import json
from binascii import Error as Base64Error
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from levelcast.keys.files import check_directory, create_directory, read_private, write_private
from levelcast.keys.secret import KeysError, Secret

CIPHER = "AES-256-GCM"
SIGN, OPEN = "ed25519", "x25519"
PUBLIC_KIND = "levelcast public keys"
_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)
_SIZE = 32


@dataclass(frozen=True, slots=True)
class PublicIdentity:
    """Public keys of a holder."""

    name: str
    sign: bytes
    open: bytes

    @property
    def sign_text(self) -> str:
        return key_text(SIGN, self.sign)

    @property
    def open_text(self) -> str:
        return key_text(OPEN, self.open)

    def verifies(self, signature: bytes, content: bytes) -> bool:
        """Return whether the holder has signed the content."""
        return verifies(self.sign, signature, content)

    def seal(self, content: Secret, purpose: bytes) -> bytes:
        """Return an envelope that only this holder can open, for the same purpose."""
        return _SUITE.encrypt(content.reveal(), X25519PublicKey.from_public_bytes(self.open), purpose)


class Identity:
    """Both private keys of a holder."""

    def __init__(self, name: str, sign: Ed25519PrivateKey, opens: X25519PrivateKey) -> None:
        self._sign = sign
        self._open = opens
        self.public = PublicIdentity(name, sign.public_key().public_bytes_raw(), opens.public_key().public_bytes_raw())

    def __repr__(self) -> str:
        return f"<private keys of {self.public.name}>"

    @property
    def name(self) -> str:
        return self.public.name

    def sign(self, content: bytes) -> bytes:
        """Return the 64-byte signature of the content."""
        return self._sign.sign(content)

    def open(self, envelope: bytes, purpose: bytes) -> Secret | None:
        """Return the content of an envelope; None if it is for another holder or purpose, or damaged."""
        try:
            return Secret(_SUITE.decrypt(envelope, self._open, purpose))
        except (InvalidTag, ValueError):
            return None

    def agree(self, other: PublicIdentity) -> Secret:
        """Return the value that only the two holders can compute."""
        try:
            return Secret(self._open.exchange(X25519PublicKey.from_public_bytes(other.open)))
        except ValueError:
            raise KeysError(f"{other.name}: its public key {OPEN} is not valid; admit the node again") from None

    @classmethod
    def new(cls, name: str) -> Identity:
        """Return an identity with random keys."""
        return cls(name, Ed25519PrivateKey.generate(), X25519PrivateKey.generate())

    @classmethod
    def load(cls, directory: Path, name: str, secret: Secret | None) -> Identity:
        """Read the identity of a holder from a directory of keys."""
        check_directory(directory)
        sign, opens = (read_private(path, secret) for path in key_files(directory, name))
        if not isinstance(sign, Ed25519PrivateKey) or not isinstance(opens, X25519PrivateKey):
            wrong = key_files(directory, name)[0 if not isinstance(sign, Ed25519PrivateKey) else 1]
            raise KeysError(f"{wrong}: the key is of another kind than the name of the file states; restore the file")
        return cls(name, sign, opens)

    def save(self, directory: Path, secret: Secret | None) -> None:
        """Write both keys to new files."""
        create_directory(directory)
        sign, opens = key_files(directory, self.name)
        for path in (sign, opens):
            if path.exists():
                raise KeysError(f"{path}: private key already exists; remove it first if it is no longer needed")
        write_private(sign, self._sign, secret)
        write_private(opens, self._open, secret)


def key_files(directory: Path, name: str) -> tuple[Path, Path]:
    """Return the files of the key that signs and of the key that opens."""
    return directory / f"{name}.{SIGN}.pem", directory / f"{name}.{OPEN}.pem"


def verifies(key: bytes, signature: bytes, content: bytes) -> bool:
    """Return whether a signature over the content is valid for a public key."""
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, content)
    except (InvalidSignature, ValueError):
        return False
    return True


def key_text(algorithm: str, key: bytes) -> str:
    """Return a public key as text: the algorithm and base64.

    >>> key_text("ed25519", bytes(32))
    'ed25519:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA='
    """
    return f"{algorithm}:{base64.b64encode(key).decode()}"


def read_key(text: object, algorithm: str, where: str) -> bytes:
    """Return the bytes of a public key."""
    kind, _, encoded = text.partition(":") if isinstance(text, str) else ("", "", "")
    try:
        key = base64.b64decode(encoded, validate=True)
    except (Base64Error, ValueError):
        key = b""
    if kind != algorithm or len(key) != _SIZE:
        raise KeysError(f'{where}: not a public key of the form "{algorithm}:BASE64" with 32 bytes')
    return key


def public_text(identity: PublicIdentity) -> str:
    """Return the file with which a node on another machine requests admission."""
    found = {"kind": PUBLIC_KIND, "name": identity.name, "open": identity.open_text, "sign": identity.sign_text}
    return json.dumps(found, indent=1, sort_keys=True) + "\n"


def read_public(text: str, where: str) -> PublicIdentity:
    """Return the public keys of such a file."""
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or found.get("kind") != PUBLIC_KIND or not isinstance(found.get("name"), str):
        raise KeysError(f"{where}: not a file of public keys; create one with `levelcast keys node`")
    name = found["name"]
    return PublicIdentity(name, read_key(found.get("sign"), SIGN, where), read_key(found.get("open"), OPEN, where))

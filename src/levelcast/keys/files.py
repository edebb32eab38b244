"""Read and write private keys: PEM files (PKCS#8) that only their owner can read.

A key file has mode 0600 in a directory with mode 0700, and both belong to the user of the process; all others are
refused. A passphrase comes from LEVELCAST_PASSPHRASE or from the systemd credential `levelcast-passphrase`, never from
the command line, which other users of the machine can read.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from levelcast.keys.secret import KeysError, Secret

PASSPHRASE = "LEVELCAST_PASSPHRASE"
CREDENTIAL = "levelcast-passphrase"
FILE_MODE, DIRECTORY_MODE = 0o600, 0o700
_OTHERS = 0o077
_MOST_BYTES = 65_536

PrivateKey = Ed25519PrivateKey | X25519PrivateKey


def passphrase(environment: Mapping[str, str] = os.environ) -> Secret | None:
    """Return the passphrase of the environment, or of the systemd credential; None if there is neither."""
    if text := environment.get(PASSPHRASE):
        return Secret(text.encode())
    directory = environment.get("CREDENTIALS_DIRECTORY")
    path = Path(directory) / CREDENTIAL if directory else None
    if path is None or not path.exists():
        return None
    content = path.read_bytes().rstrip(b"\r\n")
    return Secret(content) if content else None


def create_directory(directory: Path) -> None:
    """Create a directory for private keys, or check an existing one."""
    directory.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
    check_directory(directory)


def check_directory(directory: Path) -> None:
    """Refuse a directory that other users can enter."""
    try:
        found = directory.stat()
    except FileNotFoundError:
        raise KeysError(
            f"{directory}: directory of keys not found; create it with `levelcast keys init` or "
            "`levelcast keys node`, or set LEVELCAST_KEYS to its path"
        ) from None
    if not stat.S_ISDIR(found.st_mode):
        raise KeysError(f"{directory}: not a directory; pass the directory of keys")
    _check_owner(directory, found, DIRECTORY_MODE)


def write_private(path: Path, key: PrivateKey, secret: Secret | None) -> None:
    """Write a key to a new file."""
    protection = NoEncryption() if secret is None else BestAvailableEncryption(secret.reveal())
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, protection)
    try:
        file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, FILE_MODE)
    except FileExistsError:
        raise KeysError(f"{path}: private key already exists; remove it first if it is no longer needed") from None
    with os.fdopen(file, "wb") as opened:
        opened.write(text)
        opened.flush()
        os.fsync(opened.fileno())


def read_private(path: Path, secret: Secret | None) -> PrivateKey:
    """Return the Ed25519 or X25519 key of a file."""
    check_directory(path.parent)
    text = _read_checked(path)
    encrypted = b"ENCRYPTED" in text
    if encrypted and secret is None:
        raise KeysError(f"{path}: the private key has a passphrase; set {PASSPHRASE}, or the credential {CREDENTIAL}")
    try:
        key = load_pem_private_key(text, secret.reveal() if secret is not None and encrypted else None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        # Without the cause: its text or its frames could contain the passphrase.
        reason = "the passphrase is wrong, or the file is damaged" if encrypted else "not a private key in PEM form"
        raise KeysError(f"{path}: {reason}; restore the file, or create a new key") from None
    if not isinstance(key, Ed25519PrivateKey | X25519PrivateKey):
        raise KeysError(f"{path}: the key is of another algorithm; it must be Ed25519 or X25519")
    return key


def _read_checked(path: Path) -> bytes:
    """Return the content of a file that only its owner can read; the open file is checked, not its name."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise KeysError(
            f"{path}: private key not found; create it with `levelcast keys node`, or copy it here"
        ) from None
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            raise KeysError(f"{path}: not a file; pass a private key in PEM form")
        _check_owner(path, found, FILE_MODE)
        return os.read(file, _MOST_BYTES)
    finally:
        os.close(file)


def _check_owner(path: Path, found: os.stat_result, mode: int) -> None:
    if found.st_uid != os.geteuid():
        raise KeysError(f"{path}: belongs to another user; run `chown $USER {path}`, or start as its owner")
    if stat.S_IMODE(found.st_mode) & _OTHERS:
        is_mode = stat.S_IMODE(found.st_mode)
        raise KeysError(f"{path}: other users can read it (mode {is_mode:04o}); run `chmod {mode:o} {path}`")

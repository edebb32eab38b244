"""Private keys are files of one user, and every reason to refuse one is one sentence with what to do."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from levelcast.keys.files import check_directory, create_directory, passphrase, read_private, write_private
from levelcast.keys.secret import KeysError, Secret


@pytest.fixture
def path(tmp_path: Path) -> Path:
    create_directory(tmp_path / "keys")
    return tmp_path / "keys" / "tokyo-1.ed25519.pem"


@pytest.mark.parametrize("secret", [None, Secret(b"a passphrase")])
def test_a_key_is_written_with_mode_0600_and_read_again(path: Path, secret: Secret | None) -> None:
    key = Ed25519PrivateKey.generate()
    write_private(path, key, secret)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    found = read_private(path, secret)
    assert isinstance(found, Ed25519PrivateKey)
    assert found.private_bytes_raw() == key.private_bytes_raw()


def test_openssl_reads_the_file(path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    write_private(path, Ed25519PrivateKey.generate(), Secret(b"a passphrase"))
    command = ["openssl", "pkey", "-in", str(path), "-passin", "pass:a passphrase", "-noout", "-text"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "ED25519 Private-Key" in done.stdout


def test_a_key_is_never_overwritten(path: Path) -> None:
    write_private(path, Ed25519PrivateKey.generate(), None)
    with pytest.raises(KeysError, match="already exists; remove it first"):
        write_private(path, Ed25519PrivateKey.generate(), None)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o601, 0o777])
def test_a_file_that_others_can_read_is_refused(path: Path, mode: int) -> None:
    write_private(path, Ed25519PrivateKey.generate(), None)
    path.chmod(mode)
    with pytest.raises(KeysError, match=f"other users can read it \\(mode {mode:04o}\\); run `chmod 600 "):
        read_private(path, None)


def test_a_directory_that_others_can_enter_is_refused(path: Path) -> None:
    write_private(path, Ed25519PrivateKey.generate(), None)
    path.parent.chmod(0o755)
    with pytest.raises(KeysError, match="mode 0755\\); run `chmod 700 "):
        read_private(path, None)
    with pytest.raises(KeysError, match="run `chmod 700 "):
        create_directory(path.parent)


def test_a_file_of_another_user_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_private(path, Ed25519PrivateKey.generate(), None)
    monkeypatch.setattr("levelcast.keys.files.os.geteuid", lambda: os.getuid() + 1)
    with pytest.raises(KeysError, match="belongs to another user; run `chown"):
        read_private(path, None)


def _missing(path: Path) -> None:
    pass


def _a_directory(path: Path) -> None:
    path.mkdir(mode=0o700)


def _not_pem(path: Path) -> None:
    path.write_bytes(b"nothing")
    path.chmod(0o600)


def _other_algorithm(path: Path) -> None:
    key = generate_private_key(SECP256R1())
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    path.chmod(0o600)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (_missing, "private key not found; create it with `levelcast keys node`"),
        (_a_directory, "not a file; pass a private key in PEM form"),
        (_not_pem, "not a private key in PEM form; restore the file"),
        (_other_algorithm, "must be Ed25519 or X25519"),
    ],
)
def test_what_is_no_key_is_refused(path: Path, make: Callable[[Path], None], says: str) -> None:
    make(path)
    with pytest.raises(KeysError, match=says) as raised:
        read_private(path, None)
    assert str(raised.value).startswith(str(path))


def test_a_missing_and_a_wrong_passphrase(path: Path) -> None:
    write_private(path, Ed25519PrivateKey.generate(), Secret(b"a passphrase"))
    with pytest.raises(KeysError, match="has a passphrase; set LEVELCAST_PASSPHRASE"):
        read_private(path, None)
    with pytest.raises(KeysError, match="the passphrase is wrong") as raised:
        read_private(path, Secret(b"not this one"))
    assert "not this one" not in str(raised.value)
    assert raised.value.__cause__ is None


def test_a_missing_directory_and_a_file_in_its_place(tmp_path: Path) -> None:
    with pytest.raises(KeysError, match="directory of keys not found; create it with `levelcast keys init`"):
        check_directory(tmp_path / "none")
    (tmp_path / "file").touch()
    with pytest.raises(KeysError, match="not a directory"):
        check_directory(tmp_path / "file")


def test_a_passphrase_comes_from_the_environment_or_a_credential(tmp_path: Path) -> None:
    assert passphrase({}) is None
    assert passphrase({"CREDENTIALS_DIRECTORY": str(tmp_path)}) is None
    (tmp_path / "levelcast-passphrase").write_bytes(b"of systemd\n")
    assert passphrase({"CREDENTIALS_DIRECTORY": str(tmp_path)}) == Secret(b"of systemd")
    both = {"CREDENTIALS_DIRECTORY": str(tmp_path), "LEVELCAST_PASSPHRASE": "of the shell"}
    assert passphrase(both) == Secret(b"of the shell")

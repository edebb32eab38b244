"""`levelcast certify --sign` and `--signers`: receivers sign what their own tapes have."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from levelcast.cli.main import app
from levelcast.cli.tape import certify
from tests.network_parts import NODES, SITES
from tests.test_storage_tape_certificate import receiver

RUN = CliRunner()
NAMES = ("a-1", "b-1", "c-1")


class Signing:
    """Three receivers, a network with keys, and a certificate."""

    def __init__(self, folder: Path) -> None:
        self.network = folder / "network.toml"
        links = '[links]\ndelay = "10ms"\n[timing]\nslot = "5ms"\n'
        floor = '[[floor]]\nname = "XONE"\npublisher = 1\nsite = "a"\nsymbols = ["S"]\n'
        text = '[network]\nname = "signing"\n' + links + SITES + NODES + floor
        self.network.write_text(text, encoding="utf-8")
        self.receivers = [receiver(folder / name) for name in NAMES]
        self.file = folder / "day.certificate"
        self.done("certify", *self.receivers, "-o", self.file)
        self.done("keys", "init", "--all", "--network", self.network)

    def run(self, *arguments: object) -> tuple[int, str]:
        result = RUN.invoke(app, list(map(str, arguments)))
        assert result.exception is None or isinstance(result.exception, SystemExit)
        return result.exit_code, result.output

    def done(self, *arguments: object) -> str:
        code, output = self.run(*arguments)
        assert code == 0, output
        return output

    def sign(self, place: int) -> tuple[int, str]:
        return self.run("certify", "--sign", self.file, self.receivers[place], "--network", self.network)

    def check(self, signers: int) -> tuple[int, str]:
        tape = self.receivers[0]
        return self.run("certify", "--check", self.file, "--signers", signers, tape, "--network", self.network)


@pytest.fixture
def signing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Signing:
    for name in ("LEVELCAST_KEYS", "LEVELCAST_PASSPHRASE", "CREDENTIALS_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(certify, "protect_process", lambda: None)
    monkeypatch.setattr("levelcast.cli.keys.command.protect_process", lambda: None)
    return Signing(tmp_path)


def test_signatures_are_counted(signing: Signing) -> None:
    code, output = signing.check(1)
    assert code == 1
    assert "is signed by 0 of its receivers, but --signers is 1" in output
    for place in (1, 0, 1):
        code, output = signing.sign(place)
        assert code == 0, output
        assert f"signed by {NAMES[place]}, whose tape has 60 of its frames" in output
    code, output = signing.check(2)
    assert code == 0, output
    assert "Signed by a-1, b-1." in output
    assert "CERTIFIED in 60 frames" in output
    assert signing.check(3)[0] == 1


def test_without_the_statement_keys_have_no_place(signing: Signing) -> None:
    signing.sign(0)
    output = signing.done("certify", "--check", signing.file, signing.receivers[0])
    assert "Signed with unknown keys, in the names of a-1." in output


def test_a_revoked_receiver_does_not_count(signing: Signing) -> None:
    signing.sign(0)
    signing.done("keys", "revoke", "--name", "a-1", "--network", signing.network)
    assert signing.check(1)[0] == 1


def test_a_receiver_signs_only_what_its_own_tape_has(signing: Signing, tmp_path: Path) -> None:
    for path in (signing.receivers[0] / "tape").iterdir():
        content = bytearray(path.read_bytes())
        if len(content) > 1_000:
            content[len(content) // 2] ^= 1
            path.write_bytes(bytes(content))
    before = signing.file.read_bytes()
    code, output = signing.sign(0)
    assert code == 1
    assert "NOT CERTIFIED" in output
    assert signing.file.read_bytes() == before
    other = receiver(tmp_path / "d-1")
    code, output = signing.run("certify", "--sign", signing.file, other, "--network", signing.network)
    assert code == 1
    assert "d-1 is not a receiver of" in output


def test_a_receiver_without_its_private_key_cannot_sign(signing: Signing) -> None:
    (signing.network.parent / "keys" / "c-1.ed25519.pem").unlink()
    code, output = signing.sign(2)
    assert code == 2
    assert "private key not found" in output
    assert output.count("\n") == 1


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda found: found["signatures"][0].update(signature="00"), "the signature of a-1 does not match"),
        (lambda found: found["signatures"][0].update(signature="x"), "damaged certificate"),
        (lambda found: found["signatures"].append({}), "damaged certificate"),
        (lambda found: found.update(signatures={}), "damaged certificate"),
        (lambda found: found["signatures"].append(found["signatures"][0]), "a-1 has signed twice"),
    ],
)
def test_changed_signatures_are_found(signing: Signing, edit: Callable[[object], None], says: str) -> None:
    signing.sign(0)
    found = json.loads(signing.file.read_text(encoding="utf-8"))
    edit(found)
    signing.file.write_text(json.dumps(found), encoding="utf-8")
    code, output = signing.check(1)
    assert code in (1, 2)
    assert says in output


def test_options_that_do_not_belong_together(signing: Signing) -> None:
    for arguments, says in (
        (("--signers", 1, signing.receivers[0], "-o", signing.file), "--signers needs --check"),
        (("--sign", signing.file, *signing.receivers), "pass the directory of one receiver"),
        (("--sign", signing.file, "--check", signing.file, signing.receivers[0]), "or --sign FILE"),
        ((signing.receivers[0],), "or --sign FILE"),
    ):
        code, output = signing.run("certify", *arguments)
        assert code == 2
        assert says in output


def test_openssl_verifies_a_signature(signing: Signing, tmp_path: Path, require_tool: Callable[[str], str]) -> None:
    from levelcast.storage.tape.certificate import signed_bytes

    signing.sign(0)
    found = json.loads(signing.file.read_text(encoding="utf-8"))
    (entry,) = found["signatures"]
    files = {name: tmp_path / name for name in ("content", "signature", "key")}
    files["content"].write_bytes(signed_bytes(found))
    files["signature"].write_bytes(bytes.fromhex(entry["signature"]))
    prefix = bytes.fromhex("302a300506032b6570032100")  # SubjectPublicKeyInfo of Ed25519
    files["key"].write_bytes(prefix + bytes.fromhex(entry["key"]))
    command = [require_tool("openssl"), "pkeyutl", "-verify", "-rawin", "-pubin", "-keyform", "DER"]
    command += ["-inkey", str(files["key"]), "-in", str(files["content"]), "-sigfile", str(files["signature"])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

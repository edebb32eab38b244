"""`levelcast keys`, as an operator meets it."""

from __future__ import annotations

import json
import os
import re
import stat
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from levelcast.cli import main
from levelcast.cli.keys import command
from levelcast.keys.identity import Identity
from levelcast.keys.keyring import open_keyring
from levelcast.keys.seen import newest_number
from levelcast.keys.statement import KeyStatement, read_statement
from levelcast.network import load_network
from tests.test_network import SMALL

runner = CliRunner()


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LEVELCAST_KEYS", "LEVELCAST_PASSPHRASE", "CREDENTIALS_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(command, "protect_process", lambda: None)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "network.toml"
    path.write_text(SMALL, encoding="utf-8")
    return path


def run(file: Path, *arguments: object) -> tuple[int, str]:
    result = runner.invoke(main.app, ["keys", *map(str, arguments), "--network", str(file)])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.output


def done(file: Path, *arguments: object) -> str:
    code, output = run(file, *arguments)
    assert code == 0, output
    return output


def statement_of(file: Path) -> KeyStatement:
    network = load_network(file)
    assert network.keys is not None
    return read_statement(Path(network.keys.statement), network.keys.authority, network.id, None)


def node_names(file: Path) -> tuple[str, ...]:
    return load_network(file).node_names


def test_init_creates_everything_for_one_machine(file: Path) -> None:
    before = file.read_text(encoding="utf-8")
    names = node_names(file)
    output = done(file, "init", "--all")
    assert file.read_text(encoding="utf-8").startswith(before)
    assert f"for {len(names)} of {len(names)} nodes" in output
    found = statement_of(file)
    assert {each.name for each in found.holders} == {*names, "operator", "authority"}
    for name in names:
        open_keyring(Identity.load(file.parent / "keys", name, None), found)
    for path in (file.parent / "keys").glob("*.pem"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert done(file, "check").startswith("Statement 1 and the keys on this machine are valid.")


def test_nodes_on_other_machines_are_admitted_by_their_public_keys(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "levelcast keys node --name NAME" in done(file, "init")
    name = node_names(file)[0]
    code, output = run(file, "check")
    assert code == 1
    assert f"{name}: has no keys; run `levelcast keys node --name {name}` on its machine" in output
    monkeypatch.setenv("LEVELCAST_KEYS", str(tmp_path / "machine"))
    assert f"levelcast keys node --admit {name}.public.json" in done(file, "node", "--name", name)
    assert statement_of(file).holder(name) is None
    monkeypatch.delenv("LEVELCAST_KEYS")
    done(file, "node", "--admit", tmp_path / "machine" / f"{name}.public.json")
    open_keyring(Identity.load(tmp_path / "machine", name, None), statement_of(file))
    assert not (file.parent / "keys" / f"{name}.ed25519.pem").exists()


def test_a_passphrase_encrypts_every_private_key(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEVELCAST_PASSPHRASE", "correct horse")
    done(file, "init", "--all")
    assert all(b"ENCRYPTED" in path.read_bytes() for path in (file.parent / "keys").glob("*.pem"))
    done(file, "rotate")
    monkeypatch.delenv("LEVELCAST_PASSPHRASE")
    code, output = run(file, "rotate")
    assert (code, output.count("\n")) == (2, 1)
    assert "the private key has a passphrase; set LEVELCAST_PASSPHRASE" in output
    monkeypatch.setenv("LEVELCAST_PASSPHRASE", "battery staple")
    code, output = run(file, "rotate")
    assert code == 2
    assert "the passphrase is wrong" in output
    assert "battery staple" not in output


def test_rotation_and_revocation_make_newer_statements(file: Path) -> None:
    done(file, "init", "--all")
    name = node_names(file)[0]
    assert "Epoch 2 begins in " in done(file, "rotate", "--in", "20s")
    assert f"{name}: revoked; epoch 3 has begun without it" in done(file, "revoke", "--name", name, "--grace", "5s")
    found = statement_of(file)
    assert (found.number, [each.number for each in found.epochs]) == (3, [1, 3])
    assert newest_number(file.parent / "keys", "authority") == 3
    code, output = run(file, "check")
    assert code == 1
    assert f"{name}: has been revoked" in output
    listed = json.loads(done(file, "list", "--json"))
    assert [(each["epoch"], each["state"]) for each in listed["epochs"]] == [(1, "before"), (3, "current")]
    assert [each["name"] for each in listed["revoked"]] == [name]
    assert f"Revoked: {name}" in done(file, "list")


def test_list_shows_public_keys_only(file: Path) -> None:
    done(file, "init", "--all")
    output = done(file, "list", "--json") + done(file, "list")
    for path in (file.parent / "keys").glob("*.pem"):
        for line in path.read_text(encoding="utf-8").splitlines()[1:-1]:
            assert line not in output


def test_an_older_statement_is_reported(file: Path) -> None:
    done(file, "init", "--all")
    path = file.with_name("network.keys.json")
    old = path.read_bytes()
    done(file, "rotate")
    path.write_bytes(old)
    code, output = run(file, "check")
    assert code == 1
    assert "authority: has accepted statement 2, newer than 1" in output


def test_a_statement_that_is_too_old_or_expires_soon(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done(file, "init", "--all", "--valid", "20d")
    now = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now + 8 * 86_400 * 10**9)
    code, output = run(file, "check")
    assert code == 1
    assert "The statement expires in 12.0 days" in output
    assert "The newest epoch is 8.0 days old, above 7 days" in output
    monkeypatch.setattr(time, "time_ns", lambda: now + 21 * 86_400 * 10**9)
    code, output = run(file, "check")
    assert code == 2
    assert "the statement expired" in output
    done(file, "rotate")
    monkeypatch.setattr(time, "time_ns", lambda: now - 3_600 * 10**9)
    code, output = run(file, "check")
    assert code == 2
    assert re.search(r"the first epoch begins 3,(600|599)\.\d s after", output)
    assert "after this machine's clock; set the clock" in output


def test_a_node_that_changed_in_the_network_file(file: Path) -> None:
    done(file, "init", "--all")
    name = load_network(file).floors[0].name
    file.write_text(file.read_text(encoding="utf-8").replace(f'"{name}"', '"XNEW"'), encoding="utf-8")
    code, output = run(file, "check")
    assert code == 1
    assert f"{name}: not in the network file; run `levelcast keys revoke --name {name}`" in output
    assert "XNEW: has no keys" in output


def _one_sentence(file: Path, says: str, *arguments: object) -> None:
    before = {path: path.read_bytes() for path in file.parent.rglob("*") if path.is_file()}
    code, output = run(file, *arguments)
    assert code == 2
    assert says in output
    assert output.count("\n") == 1
    assert before == {path: path.read_bytes() for path in file.parent.rglob("*") if path.is_file()}, "it began halfway"


def test_bad_input_is_one_sentence_and_changes_nothing(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _one_sentence(file, "the network file has no [keys] table; create keys with `levelcast keys init`", "check")
    _one_sentence(file, '--valid: "soon" is not a time', "init", "--valid", "soon")
    done(file, "init", "--all")
    _one_sentence(file, "already has a [keys] table", "init")
    _one_sentence(file, "nobody: not a node of the network file", "node", "--name", "nobody")
    _one_sentence(file, "private key already exists", "node", "--name", node_names(file)[0])
    _one_sentence(file, "pass either --name or --admit", "node")
    _one_sentence(file, "nobody: not a node of the statement", "revoke", "--name", "nobody")
    _one_sentence(file, '--in: "1" is not a time from 1s', "rotate", "--in", "1")
    _one_sentence(file, "not a file of public keys", "node", "--admit", file)
    key = file.parent / "keys" / "authority.ed25519.pem"
    key.chmod(0o644)
    _one_sentence(file, "other users can read it (mode 0644)", "rotate")
    key.chmod(0o600)
    os.environ["LEVELCAST_KEYS"] = str(file.parent / "nowhere")
    _one_sentence(file, "directory of keys not found", "rotate")
    del os.environ["LEVELCAST_KEYS"]
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace('name = "small"', 'name = "other"'), encoding="utf-8")
    _one_sentence(file, "the statement is of network", "check")
    file.write_text(text, encoding="utf-8")
    path = file.with_name("network.keys.json")
    path.write_bytes(path.read_bytes().replace(b'"number":1', b'"number":2'))
    _one_sentence(file, "signature does not match; the file was changed", "check")


def test_a_node_gets_no_keys_if_the_authority_cannot_admit_it(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEVELCAST_PASSPHRASE", "correct horse")
    done(file, "init")
    monkeypatch.delenv("LEVELCAST_PASSPHRASE")
    _one_sentence(file, "the private key has a passphrase", "node", "--name", node_names(file)[0])


def test_a_node_named_operator_has_no_place(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    name = node_names(file)[0]
    file.write_text(text.replace(f'name = "{name}"', 'name = "operator"'), encoding="utf-8")
    _one_sentence(file, "operator: a node cannot have this name in a network with keys", "init", "--all")

"""A statement is believed only if the network's authority signed it for this network, and it has not expired (K3)."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from levelcast.keys.secret import KeysError
from levelcast.keys.statement import KeyStatement, canonical, parse_statement, read_statement, statement_text
from tests.keys_parts import NETWORK, NOW, KeyedNetwork, S

KEYED = KeyedNetwork()
AUTHORITY = KEYED.authority.public.sign_text


def parse(content: bytes, now_ns: int | None = NOW, network: int = NETWORK, authority: str = AUTHORITY) -> KeyStatement:
    return parse_statement(content, authority, network, now_ns, "file")


def signed(**body: Any) -> bytes:
    """Return a statement with other values, signed by the authority."""
    found = json.loads(KEYED.content)
    found["body"] |= body
    signature = KEYED.authority.sign(b"levelcast statement v1\0" + canonical(found["body"]))
    return canonical(found | {"signature": base64.b64encode(signature).decode()})


def test_a_statement_is_read_as_it_was_written() -> None:
    found = parse(KEYED.content)
    assert found == KEYED.statement
    assert statement_text(found, KEYED.authority).encode() == KEYED.content


def test_a_statement_has_no_secret() -> None:
    core = KEYED.keyring("tokyo-1").epochs[1].core
    assert core is not None
    assert core.reveal().hex().encode() not in KEYED.content
    assert base64.b64encode(core.reveal()) not in KEYED.content


def _edited(edit: Callable[[dict[str, Any]], None]) -> bytes:
    found = json.loads(KEYED.content)
    edit(found)
    return json.dumps(found).encode()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b"[]", "not a statement of keys"),
        (b'{"kind": "levelcast certificate"}', "not a statement of keys"),
        (_edited(lambda found: found.pop("signature")), "the statement is not signed"),
        (_edited(lambda found: found.update(signature="*")), "the statement is not signed"),
        (_edited(lambda found: found.pop("authority")), "signed by another authority"),
        (_edited(lambda found: found["body"].update(number=9)), "signature does not match; the file was changed"),
        (_edited(lambda found: found.update(body=[])), "signature does not match"),
        (_edited(lambda found: found["body"].update(more="\ud800")), "signature does not match"),
        (KeyedNetwork().content, "signed by another authority"),
        (signed(cipher="DES"), "unknown cipher 'DES', only AES-256-GCM is supported; update Levelcast"),
        (signed(version=2), "format version 2 is not supported"),
        (signed(epochs=[]), "the statement has no epoch"),
        (signed(epochs=[{}]), "damaged statement"),
        (signed(number="1"), "damaged statement"),
        (signed(nodes=[{"name": 1}]), "damaged statement"),
        (signed(nodes=json.loads(KEYED.content)["body"]["nodes"] * 2), "the same name twice"),
    ],
)
def test_bad_statements_are_one_sentence(content: bytes, says: str) -> None:
    with pytest.raises(KeysError) as raised:
        parse(content)
    assert says in str(raised.value)
    assert str(raised.value).startswith("file: ")
    assert "\n" not in str(raised.value)


def test_a_statement_of_another_network() -> None:
    with pytest.raises(KeysError, match="is of network 0123456789abcdef, but the network file is of 0000000000000005"):
        parse(KEYED.content, network=5)


def test_an_expired_statement() -> None:
    expires_ns = KEYED.statement.expires_s * S
    assert parse(KEYED.content, expires_ns - 1).number == 1
    with pytest.raises(KeysError, match=r"the statement expired 0\.0 h ago"):
        parse(KEYED.content, expires_ns)
    assert parse(KEYED.content, None).number == 1


def test_a_clock_before_the_first_epoch() -> None:
    found = parse(KEYED.content)
    assert found.epoch_at(NOW).number == 1
    with pytest.raises(KeysError, match=r"the first epoch begins 5\.0 s after this machine's clock; set the clock"):
        found.epoch_at(NOW - 5 * S)


def test_any_changed_byte_is_found() -> None:
    content = bytearray(KEYED.content)
    body = slice(KEYED.content.index(b'"body"'), KEYED.content.index(b'"kind"'))
    for at in range(body.start, body.stop, 7):
        changed = bytearray(content)
        changed[at] ^= 1
        with pytest.raises(KeysError):
            parse(bytes(changed))


def test_holders_by_role() -> None:
    found = parse(KEYED.content)
    assert [each.name for each in found.of_role("receiver")] == ["tokyo-1", "london-1", "oslo-1"]
    assert found.holder("nobody") is None


def test_a_missing_file_and_one_that_is_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "network.keys.json"
    with pytest.raises(KeysError, match="statement of keys not found; create it with `levelcast keys init`"):
        read_statement(path, AUTHORITY, NETWORK, NOW)
    path.write_bytes(KEYED.content)
    assert read_statement(path, AUTHORITY, NETWORK, NOW).number == 1
    monkeypatch.setattr("levelcast.keys.statement.MOST_BYTES", 100)
    with pytest.raises(KeysError, match="larger than 100 bytes"):
        read_statement(path, AUTHORITY, NETWORK, NOW)


def test_the_order_of_holders_does_not_decide_which_is_believed() -> None:
    swapped = replace(KEYED.statement, holders=tuple(reversed(KEYED.statement.holders)))
    assert parse(statement_text(swapped, KEYED.authority).encode()).of_role("floor") == KEYED.statement.of_role("floor")


def test_subprocess_of_another_python_reads_the_same(tmp_path: Path) -> None:
    """The canonical form does not depend on hash seeds."""
    code = (
        "import sys, json; from levelcast.keys.statement import canonical; "
        "sys.stdout.buffer.write(canonical(json.load(sys.stdin)))"
    )
    done = subprocess.run([sys.executable, "-c", code], input=KEYED.content, capture_output=True, check=True)
    assert done.stdout + b"\n" == KEYED.content

"""Identities sign, open envelopes and agree on keys; texts of public keys are read strictly."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from levelcast.keys.identity import Identity, key_files, public_text, read_key, read_public
from levelcast.keys.secret import KeysError, Secret

ONE, TWO = Identity.new("one"), Identity.new("two")


def test_only_the_holder_signs() -> None:
    signature = ONE.sign(b"content")
    assert len(signature) == 64
    assert ONE.public.verifies(signature, b"content")
    assert not ONE.public.verifies(signature, b"other content")
    assert not TWO.public.verifies(signature, b"content")
    assert not ONE.public.verifies(b"short", b"content")


def test_only_the_holder_opens_an_envelope_and_only_for_its_purpose() -> None:
    envelope = ONE.public.seal(Secret(b"key"), b"purpose")
    assert ONE.open(envelope, b"purpose") == Secret(b"key")
    assert ONE.open(envelope, b"another purpose") is None
    assert TWO.open(envelope, b"purpose") is None
    assert ONE.open(envelope[:-1], b"purpose") is None
    assert ONE.open(b"", b"purpose") is None
    assert b"key" not in envelope


def test_two_holders_agree_on_a_value_that_a_third_cannot_compute() -> None:
    assert ONE.agree(TWO.public) == TWO.agree(ONE.public)
    assert ONE.agree(TWO.public) != Identity.new("three").agree(TWO.public)


def test_a_public_key_of_low_order_is_refused() -> None:
    bad = read_public(
        json.dumps(
            {
                "kind": "levelcast public keys",
                "name": "bad",
                "sign": ONE.public.sign_text,
                "open": "x25519:" + "A" * 43 + "=",
            }
        ),
        "file",
    )
    with pytest.raises(KeysError, match="bad: its public key x25519 is not valid"):
        ONE.agree(bad)


def test_keys_are_stored_and_loaded(tmp_path: Path) -> None:
    directory = tmp_path / "keys"
    ONE.save(directory, Secret(b"a passphrase"))
    assert Identity.load(directory, "one", Secret(b"a passphrase")).public == ONE.public
    with pytest.raises(KeysError, match="already exists"):
        ONE.save(directory, None)


def test_exchanged_files_are_refused(tmp_path: Path) -> None:
    directory = tmp_path / "keys"
    ONE.save(directory, None)
    sign, opens = key_files(directory, "one")
    sign.write_bytes(opens.read_bytes())
    with pytest.raises(KeysError, match="of another kind than the name of the file states"):
        Identity.load(directory, "one", None)


def test_no_form_of_an_identity_has_private_keys() -> None:
    assert repr(ONE) == "<private keys of one>"


def test_public_files_are_read_again_and_others_are_refused() -> None:
    assert read_public(public_text(ONE.public), "file") == ONE.public
    for text in ("", "[]", "{}", '{"kind": "levelcast public keys"}', "[" * 100_000):
        with pytest.raises(KeysError, match="file: not a file of public keys"):
            read_public(text, "file")


@pytest.mark.parametrize(
    "text", [None, 5, "", "ed25519", "ed25519:", "x25519:" + "A" * 44, "ed25519:AAAA", "ed25519:*"]
)
def test_bad_texts_of_keys(text: object) -> None:
    with pytest.raises(KeysError, match='here: not a public key of the form "ed25519:BASE64"'):
        read_key(text, "ed25519", "here")

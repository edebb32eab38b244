"""Signatures under a certificate count only with the key that the statement has for a receiver."""

from __future__ import annotations

import pytest

from levelcast.keys.certificates import find_signers, sign_certificate
from levelcast.keys.identity import Identity
from levelcast.keys.secret import KeysError
from tests.keys_parts import KeyedNetwork

KEYED = KeyedNetwork()
CONTENT = b'{"statement": 1}'


def test_receivers_sign_and_a_second_signature_replaces_the_first() -> None:
    signatures = sign_certificate(KEYED.identities["tokyo-1"], CONTENT, [])
    signatures = sign_certificate(KEYED.identities["london-1"], CONTENT, signatures)
    signatures = sign_certificate(KEYED.identities["tokyo-1"], CONTENT, signatures)
    assert [each["receiver"] for each in signatures] == ["london-1", "tokyo-1"]
    found = find_signers(CONTENT, signatures, KEYED.statement)
    assert (found.placed, found.unplaced) == (("london-1", "tokyo-1"), ())
    assert find_signers(CONTENT, signatures, None).unplaced == ("london-1", "tokyo-1")


def test_a_stranger_with_the_name_of_a_receiver_and_a_node_of_another_role_are_not_placed() -> None:
    signatures = sign_certificate(Identity.new("tokyo-1"), CONTENT, [])
    signatures = sign_certificate(KEYED.identities["XTKS"], CONTENT, signatures)
    found = find_signers(CONTENT, signatures, KEYED.statement)
    assert (found.placed, found.unplaced) == ((), ("XTKS", "tokyo-1"))


def test_wrong_signatures_are_named() -> None:
    (entry,) = sign_certificate(KEYED.identities["tokyo-1"], CONTENT, [])
    for signatures, says in (
        ([entry | {"signature": "00" * 64}], "the signature of tokyo-1 does not match"),
        ([entry | {"key": ""}], "the signature of tokyo-1 does not match"),
        ([entry | {"algorithm": "rsa"}], "of an unknown algorithm"),
        ([entry, entry], "tokyo-1 has signed twice"),
    ):
        with pytest.raises(KeysError, match=says):
            find_signers(CONTENT, signatures, KEYED.statement)
    with pytest.raises(KeysError, match="does not match"):
        find_signers(CONTENT + b" ", [entry], KEYED.statement)

"""A keyring is opened only by its node, and envelopes cannot be moved between nodes, epochs or roles."""

from __future__ import annotations

from dataclasses import replace

import pytest

from levelcast.keys.authority import rotate
from levelcast.keys.identity import Identity
from levelcast.keys.keyring import open_keyring
from levelcast.keys.secret import KeysError
from tests.keys_parts import NOW, KeyedNetwork


@pytest.fixture
def keyed() -> KeyedNetwork:
    return KeyedNetwork()


def test_a_stranger_is_not_in_the_statement(keyed: KeyedNetwork) -> None:
    with pytest.raises(KeysError, match="mallory is not in the statement; admit it"):
        open_keyring(Identity.new("mallory"), keyed.statement)


def test_a_stranger_with_a_known_name_has_other_keys(keyed: KeyedNetwork) -> None:
    with pytest.raises(KeysError, match="lists other public keys of tokyo-1"):
        open_keyring(Identity.new("tokyo-1"), keyed.statement)


@pytest.mark.parametrize("move", ["name", "epoch", "role"])
def test_an_envelope_cannot_be_moved(keyed: KeyedNetwork, move: str) -> None:
    keyed.statement = statement = rotate(keyed.statement, NOW, 0)
    one, two = statement.epochs
    if move == "name":
        one = replace(one, envelopes=one.envelopes | {"tokyo-1": one.envelopes["london-1"]})
    elif move == "epoch":
        one = replace(one, envelopes=one.envelopes | {"tokyo-1": two.envelopes["tokyo-1"]})
    else:
        holders = tuple(
            replace(each, role="secondary") if each.name == "tokyo-1" else each for each in statement.holders
        )
        statement = replace(statement, holders=holders)
    moved = replace(statement, epochs=(one, two))
    with pytest.raises(KeysError, match="the envelope of tokyo-1 for epoch 1 cannot be opened with its key"):
        open_keyring(keyed.identities["tokyo-1"], moved)


def test_beat_keys_are_those_of_two_nodes(keyed: KeyedNetwork) -> None:
    tokyo, london, oslo = (keyed.keyring(name) for name in ("tokyo-1", "london-1", "oslo-1"))
    epoch = tokyo.epochs[1]
    there = tokyo.beat_key(epoch, tokyo.own, london.own)
    assert there == london.beat_key(epoch, tokyo.own, london.own)
    assert there != tokyo.beat_key(epoch, london.own, tokyo.own)
    assert there != oslo.beat_key(epoch, oslo.own, london.own)


def test_no_form_of_a_keyring_has_keys(keyed: KeyedNetwork) -> None:
    ring = keyed.keyring("tokyo-1")
    core = ring.epochs[1].core
    assert core is not None
    shown = repr(ring) + repr(ring.epochs)
    assert "tokyo-1" in shown
    assert core.reveal().hex() not in shown
    assert repr(core.reveal()) not in shown

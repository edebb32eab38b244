"""The authority admits, rotates and revokes; a removed node gets nothing of a later epoch (K1, K2)."""

from __future__ import annotations

import pytest

from levelcast.keys.authority import admit, revoke, rotate
from levelcast.keys.identity import Identity
from levelcast.keys.keyring import open_keyring
from levelcast.keys.secret import KeysError
from levelcast.keys.statement import Holder
from tests.keys_parts import NOW, KeyedNetwork, S

HOUR = 3_600 * S
DAY = 24 * HOUR


@pytest.fixture
def keyed() -> KeyedNetwork:
    return KeyedNetwork()


def test_each_role_gets_its_keys_and_no_more(keyed: KeyedNetwork) -> None:
    receiver, floor, server = (keyed.keyring(name).epochs[1] for name in ("tokyo-1", "XTKS", "reform"))
    assert receiver.core is not None
    assert receiver.own_source is None
    assert (floor.core, server.core, server.own_source) == (None, None, None)
    assert keyed.keyring("osaka-1").epochs[1].core == receiver.core
    assert receiver.control == floor.control == server.control
    assert keyed.keyring("XTKS").source_key(1, 1) == keyed.keyring("tokyo-1").source_key(1, 1)
    assert keyed.keyring("operator").source_key(1, 0) == keyed.keyring("tokyo-1").source_key(1, 0)
    assert keyed.keyring("XTKS").source_key(1, 2) is None
    assert keyed.keyring("reform").source_key(1, 1) is None


def test_a_rotation_begins_later_with_unrelated_keys(keyed: KeyedNetwork) -> None:
    before = keyed.statement
    keyed.statement = rotate(before, NOW, 3_600)
    assert keyed.statement.number == before.number + 1
    assert [each.from_ns for each in keyed.statement.epochs] == [NOW, NOW + HOUR]
    ring = keyed.keyring("tokyo-1")
    assert ring.epochs[1].core != ring.epochs[2].core
    assert (ring.current(NOW).number, ring.current(NOW + HOUR).number) == (1, 2)
    assert keyed.parsed() == keyed.statement


def test_the_epoch_before_is_accepted_for_an_hour(keyed: KeyedNetwork) -> None:
    keyed.statement = rotate(keyed.statement, NOW, 10)
    ring, end = keyed.keyring("tokyo-1"), NOW + 10 * S + HOUR
    assert ring.accepted(1, end - 1) is ring.epochs[1]
    assert ring.accepted(1, end) is None
    assert ring.accepts_packets(1, 1, end - 1)
    assert not ring.accepts_packets(1, 1, end)
    assert ring.accepts_packets(2, 1, NOW), "the clock of its sender may be ahead"
    assert ring.accepted(3, NOW) is None


def test_epochs_never_begin_in_the_wrong_order(keyed: KeyedNetwork) -> None:
    for _ in range(3):
        keyed.statement = rotate(keyed.statement, NOW, 0)
    begins = [each.from_ns for each in keyed.statement.epochs]
    assert begins == sorted(set(begins))


def test_a_revoked_floor_is_refused_immediately_and_its_ordered_packets_can_still_be_read(keyed: KeyedNetwork) -> None:
    old = keyed.statement
    keyed.statement = revoke(old, "XTKS", NOW + S)
    ring = keyed.keyring("tokyo-1")
    assert not ring.accepts_packets(1, 1, NOW + S)
    assert ring.accepts_packets(1, 2, NOW + S), "another floor goes on in the old epoch"
    assert ring.source_key(1, 1) is not None
    with pytest.raises(KeysError, match="XTKS has been revoked"):
        keyed.keyring("XTKS")
    assert all("XTKS" not in each.envelopes for each in keyed.statement.epochs)


def test_after_the_revocation_of_a_receiver_old_packets_are_accepted_only_for_the_grace(keyed: KeyedNetwork) -> None:
    keyed.statement = revoke(keyed.statement, "oslo-1", NOW + S, grace_s=2)
    ring = keyed.keyring("tokyo-1")
    assert ring.accepts_packets(1, 1, NOW + 3 * S - 1)
    assert not ring.accepts_packets(1, 1, NOW + 3 * S)
    assert ring.accepted(1, NOW + 3 * S) is not None, "signed messages name their sender, so their epoch goes on"
    assert ring.current(NOW + S).number == 2
    assert keyed.parsed() == keyed.statement


def test_a_revocation_drops_epochs_that_have_not_begun_because_the_node_has_their_keys(keyed: KeyedNetwork) -> None:
    keyed.statement = rotate(keyed.statement, NOW, 3_600)
    keyed.statement = revoke(keyed.statement, "oslo-1", NOW + S)
    assert [(each.number, each.from_ns) for each in keyed.statement.epochs] == [(1, NOW), (3, NOW + S)]


def test_a_second_revocation_does_not_lengthen_the_grace_of_the_first(keyed: KeyedNetwork) -> None:
    keyed.statement = revoke(keyed.statement, "oslo-1", NOW, grace_s=2)
    keyed.statement = revoke(keyed.statement, "london-1", NOW + S, grace_s=60)
    assert keyed.statement.epochs[0].until_ns == NOW + 2 * S
    assert keyed.statement.epochs[1].until_ns == NOW + 61 * S


def test_a_node_is_admitted_to_the_epochs_that_exist(keyed: KeyedNetwork) -> None:
    keyed.statement = rotate(keyed.statement, NOW, 3_600)
    new = Identity.new("paris-1")
    keyed.statement = admit(keyed.authority, keyed.statement, Holder(104, "receiver", new.public), NOW, 1_000)
    ring = open_keyring(new, keyed.parsed())
    assert ring.epochs[1].core == keyed.keyring("tokyo-1").epochs[1].core
    assert ring.epochs[2].core == keyed.keyring("tokyo-1").epochs[2].core
    assert keyed.statement.expires_s == NOW // S + 1_000


def test_new_keys_of_a_node_replace_its_old_ones_and_end_its_revocation(keyed: KeyedNetwork) -> None:
    keyed.statement = revoke(keyed.statement, "XTKS", NOW)
    again = Identity.new("XTKS")
    keyed.statement = admit(keyed.authority, keyed.statement, Holder(1, "floor", again.public), NOW, 1_000)
    assert keyed.statement.revoked == ()
    assert open_keyring(again, keyed.statement).source_key(2, 1) is not None
    with pytest.raises(KeysError, match="lists other public keys of XTKS"):
        keyed.keyring("XTKS")


def test_an_id_belongs_to_one_node(keyed: KeyedNetwork) -> None:
    with pytest.raises(KeysError, match="paris-1: its id 101 is that of tokyo-1"):
        admit(keyed.authority, keyed.statement, Holder(101, "receiver", Identity.new("paris-1").public), NOW, 1_000)


@pytest.mark.parametrize("name", ["nobody", "operator", "authority"])
def test_only_nodes_are_revoked(keyed: KeyedNetwork, name: str) -> None:
    with pytest.raises(KeysError, match=f"{name}: not a node of the statement; its nodes are tokyo-1"):
        revoke(keyed.statement, name, NOW)


def test_an_authority_with_other_keys_cannot_admit(keyed: KeyedNetwork) -> None:
    other = Identity.new("authority")
    with pytest.raises(KeysError, match="the authority's own envelope of epoch 1 cannot be opened"):
        admit(other, keyed.statement, Holder(104, "receiver", Identity.new("paris-1").public), NOW, 1_000)


def test_epochs_that_ended_long_ago_leave_the_statement(keyed: KeyedNetwork) -> None:
    keyed.statement = rotate(keyed.statement, NOW, 0)
    later = rotate(keyed.statement, NOW + 6 * DAY, 0)
    assert [each.number for each in later.epochs] == [1, 2, 3]
    assert [each.number for each in rotate(later, NOW + 8 * DAY, 0).epochs] == [2, 3, 4]

"""A beat is believed only from its sender, by each receiver separately."""

from __future__ import annotations

import pytest

from levelcast.keys.authority import admit, revoke, rotate
from levelcast.keys.beat_macs import PER_DATAGRAM, BeatSeal, BeatSender, BeatVerifier
from levelcast.keys.identity import Identity
from levelcast.keys.statement import Holder
from levelcast.native.layout import SEAL_SIZE_AT
from levelcast.wire.codec import decode, encode
from levelcast.wire.header import Reason, domain_of
from levelcast.wire.messages import Beat, Claim, Probe
from levelcast.wire.seal import checked_beats
from tests.keys_parts import NETWORK, NOW, KeyedNetwork, S

DOMAIN = domain_of(NETWORK, 0)
LATER = NOW + S
BEAT = Beat(101, 1, (Claim(4, 5), Claim(6, 7)), 3, NOW)
DATAGRAM = encode(BEAT, DOMAIN)


@pytest.fixture
def keyed() -> KeyedNetwork:
    return KeyedNetwork()


def sender(keyed: KeyedNetwork, name: str = "tokyo-1") -> BeatSender:
    keyring = keyed.keyring(name)
    return BeatSender(keyring, keyring.current(NOW))


def verifier(keyed: KeyedNetwork, name: str = "london-1") -> BeatVerifier:
    return BeatVerifier(keyed.keyring(name), NOW)


def test_every_receiver_verifies_a_beat(keyed: KeyedNetwork) -> None:
    (sealed,) = sender(keyed).seal(DATAGRAM, LATER)
    for name in ("london-1", "oslo-1", "osaka-1"):
        found = verifier(keyed, name).check(sealed, LATER)
        assert isinstance(found, Holder)
        assert found.name == "tokyo-1"
    assert decode(sealed, checked_beats(sealed[SEAL_SIZE_AT])) == (DOMAIN, BEAT)


def test_every_flipped_byte_outside_the_macs_of_others_is_found(keyed: KeyedNetwork) -> None:
    (sealed,) = sender(keyed).seal(DATAGRAM, LATER)
    reads = verifier(keyed)
    macs = len(sealed) - sealed[SEAL_SIZE_AT] + 8
    own = sealed.index((102).to_bytes(2, "little"), macs)
    for at in (*range(macs), *range(own, own + 10)):
        changed = bytearray(sealed)
        changed[at] ^= 1
        assert not isinstance(reads.check(bytes(changed), LATER), Holder)
    assert isinstance(reads.check(sealed, LATER), Holder)


def test_another_member_cannot_beat_for_this_one(keyed: KeyedNetwork) -> None:
    """It has the control key and a key with the receiver, and still not the key of the pair."""
    (sealed,) = sender(keyed, "oslo-1").seal(DATAGRAM, LATER)
    assert verifier(keyed).check(sealed, LATER) is Reason.BROKEN_SEAL


def test_only_members_beat(keyed: KeyedNetwork) -> None:
    for name, own in (("osaka-1", 301), ("XTKS", 1)):
        (sealed,) = sender(keyed, name).seal(encode(BEAT._replace(sender=own), DOMAIN), LATER)
        assert verifier(keyed).check(sealed, LATER) is Reason.UNKNOWN_KEY


def test_a_replay_is_refused_and_another_order_is_not(keyed: KeyedNetwork) -> None:
    beats = sender(keyed)
    (one,), (two,) = beats.seal(DATAGRAM, LATER), beats.seal(DATAGRAM, LATER)
    reads = verifier(keyed)
    assert isinstance(reads.check(two, LATER), Holder)
    assert isinstance(reads.check(one, LATER), Holder)
    assert reads.check(one, LATER) is Reason.REPLAYED
    assert reads.check(two, LATER + 10 * S) is Reason.STALE


@pytest.mark.parametrize("datagram", [b"", b"LC", bytes(99), DATAGRAM, encode(Probe(101, 1, NOW), DOMAIN)])
def test_what_has_no_macs_is_refused(keyed: KeyedNetwork, datagram: bytes) -> None:
    assert verifier(keyed).check(datagram, LATER) is Reason.UNKNOWN_SEAL


@pytest.mark.parametrize("size", [0, 7, 9, 17, 255])
def test_a_wrong_size_of_the_seal_is_harmless(keyed: KeyedNetwork, size: int) -> None:
    (sealed,) = sender(keyed).seal(DATAGRAM, LATER)
    changed = bytearray(sealed)
    changed[SEAL_SIZE_AT] = size
    assert not isinstance(verifier(keyed).check(bytes(changed), LATER), Holder)


def test_a_large_ring_sends_a_beat_in_several_datagrams() -> None:
    names = {f"r{each}": (1_000 + each, "receiver") for each in range(60)}
    keyed = KeyedNetwork(extra=names)
    parts = sender(keyed).seal(DATAGRAM, LATER)
    assert len(parts) == -(-(len(names) + 3) // PER_DATAGRAM)
    assert max(map(len, parts)) < 400
    for name in ("london-1", "r0", "r30", "r59"):
        reads = verifier(keyed, name)
        found = [reads.check(each, LATER) for each in parts]
        assert sum(isinstance(each, Holder) for each in found) == 1
        assert found.count(None) == len(parts) - 1, "the others are not for this receiver"


def test_nodes_with_different_statements_understand_each_other(keyed: KeyedNetwork) -> None:
    old = verifier(keyed)
    new = Identity.new("accra-1")
    keyed.statement = admit(keyed.authority, keyed.statement, Holder(5, "receiver", new.public), NOW, 10_000)
    (sealed,) = sender(keyed).seal(DATAGRAM, LATER)
    assert isinstance(old.check(sealed, LATER), Holder)


def test_epochs_and_revocation(keyed: KeyedNetwork) -> None:
    (old,) = sender(keyed).seal(DATAGRAM, LATER)
    keyed.statement = rotate(keyed.statement, NOW, 1)
    keyring = keyed.keyring("tokyo-1")
    (new,) = BeatSender(keyring, keyring.epochs[2]).seal(DATAGRAM, LATER + 1)
    reads = verifier(keyed)
    assert isinstance(reads.check(old, LATER), Holder)
    assert isinstance(reads.check(new, LATER), Holder)
    assert verifier(keyed).check(old, NOW + 4_000 * S) is Reason.UNKNOWN_KEY
    keyed.statement = revoke(keyed.statement, "tokyo-1", NOW)
    reads.use(keyed.keyring("london-1"))
    assert reads.check(new, LATER) is Reason.REVOKED


def test_the_seal_alone_verifies_nothing() -> None:
    with pytest.raises(ValueError, match="BeatVerifier"):
        BeatSeal(1, ()).holds(b"", b"")

"""Control messages are believed only from the node, role and time that they state (K11 to K16)."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from levelcast.keys import control
from levelcast.keys.authority import revoke, rotate
from levelcast.keys.control import (
    MOST_KNOWN,
    MOST_OF_ADDRESS,
    MOST_OLD,
    MOST_SIGNATURES,
    REVOKED_WITHIN_NS,
    ControlSeal,
    ControlVerifier,
    Verified,
    address_bytes,
    address_text,
)
from levelcast.keys.replay import FRESH_NS
from levelcast.wire.codec import decode, encode
from levelcast.wire.header import Malformed, Reason, domain_of
from levelcast.wire.messages import Fault, Invite, Message, Probe, Request, Ring, Token
from levelcast.wire.seal import CHECKED, CRC32
from tests.keys_parts import NETWORK, NOW, KeyedNetwork, S
from tests.ring_parts import make_ring

DOMAIN = domain_of(NETWORK, 0)
LATER = NOW + S
TOKEN = Token(1, 5, NOW, 101, 4, 64, (), ())
FAULT = Fault(101, 1, 1, 1, 1, 5, 0)


@pytest.fixture
def keyed() -> KeyedNetwork:
    return KeyedNetwork()


@pytest.fixture
def verifier(keyed: KeyedNetwork) -> ControlVerifier:
    return ControlVerifier(keyed.keyring("london-1"), NOW)


def sealer(keyed: KeyedNetwork, name: str, address: tuple[str, int] | None = None) -> ControlSeal:
    keyring = keyed.keyring(name)
    return ControlSeal(keyring.identity, keyring.current(NOW), address)


def signed(keyed: KeyedNetwork, name: str, message: Message, at: int = LATER) -> bytes:
    return sealer(keyed, name).sign(encode(message, DOMAIN), at)


def test_a_signed_message_is_read_and_names_its_sender(keyed: KeyedNetwork, verifier: ControlVerifier) -> None:
    datagram = sealer(keyed, "tokyo-1", ("10.0.0.7", 30_001)).sign(encode(FAULT, DOMAIN), LATER)
    assert len(datagram) == len(encode(FAULT, DOMAIN)) - CRC32.size + 98
    found = verifier.check(datagram, LATER)
    assert isinstance(found, Verified)
    assert (found.sender.name, found.address, found.sent_ns) == ("tokyo-1", ("10.0.0.7", 30_001), LATER)
    assert decode(datagram, CHECKED) == (DOMAIN, FAULT)
    with pytest.raises(Malformed, match="unknown seal"):
        decode(datagram)


def test_every_flipped_byte_is_refused_and_only_those_behind_the_mac_cost_a_signature(
    keyed: KeyedNetwork, verifier: ControlVerifier
) -> None:
    datagram = signed(keyed, "tokyo-1", FAULT)
    with patch.object(control, "_is_signed", side_effect=AssertionError):
        for at in range(len(datagram)):
            changed = bytearray(datagram)
            changed[at] ^= 1
            assert isinstance(verifier.check(bytes(changed), LATER), Reason)
    assert isinstance(verifier.check(datagram, LATER), Verified)


@pytest.mark.parametrize("datagram", [b"", b"LC", bytes(200), encode(FAULT, DOMAIN)])
def test_what_has_no_control_seal_is_refused(verifier: ControlVerifier, datagram: bytes) -> None:
    assert verifier.check(datagram, LATER) is Reason.UNKNOWN_SEAL
    assert verifier.check_item(datagram) is Reason.UNKNOWN_SEAL


def test_a_node_cannot_sign_as_another_one(keyed: KeyedNetwork, verifier: ControlVerifier) -> None:
    """A floor has the control key, so its MAC is right."""
    assert verifier.check(signed(keyed, "XTKS", TOKEN), LATER) is Reason.BAD_SIGNATURE
    assert verifier.check(signed(keyed, "oslo-1", TOKEN), LATER) is Reason.BAD_SIGNATURE
    assert isinstance(verifier.check(signed(keyed, "tokyo-1", TOKEN), LATER), Verified)


def test_a_stranger_is_refused_by_the_mac(keyed: KeyedNetwork, verifier: ControlVerifier) -> None:
    with patch.object(control, "_is_signed", side_effect=AssertionError):
        assert verifier.check(signed(KeyedNetwork(), "tokyo-1", TOKEN), LATER) is Reason.BROKEN_SEAL


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("XTKS", Token(1, 5, NOW, 1, 4, 64, (), ())),
        ("XTKS", Fault(1, 1, 1, 1, 1, 5, 0)),
        ("XTKS", Request(1, 1, 0, (1,), ())),
        ("tokyo-1", Invite(2, 101)),
        ("reform", Token(1, 5, NOW, 201, 4, 64, (), ())),
        ("osaka-1", Fault(301, 1, 1, 1, 1, 5, 0)),
        ("osaka-1", Token(1, 5, NOW, 301, 4, 64, (), ())),
    ],
)
def test_a_node_speaks_only_for_its_role(
    keyed: KeyedNetwork, verifier: ControlVerifier, name: str, message: Message
) -> None:
    with patch.object(control, "_is_signed", side_effect=AssertionError):
        assert verifier.check(signed(keyed, name, message), LATER) is Reason.WRONG_ROLE


def test_a_sender_that_the_statement_lacks_has_no_role(keyed: KeyedNetwork, verifier: ControlVerifier) -> None:
    assert verifier.check(signed(keyed, "tokyo-1", Fault(999, 1, 1, 1, 1, 5, 0)), LATER) is Reason.WRONG_ROLE


def test_a_replay_has_no_effect_and_other_orders_do(keyed: KeyedNetwork, verifier: ControlVerifier) -> None:
    seal = sealer(keyed, "tokyo-1")
    one, two = (seal.sign(encode(FAULT, DOMAIN), LATER) for _ in range(2))
    assert one != two, "the stamp rises in the same nanosecond"
    assert isinstance(verifier.check(two, LATER), Verified)
    assert isinstance(verifier.check(one, LATER), Verified), "over a second path"
    assert verifier.check(one, LATER) is Reason.REPLAYED
    assert verifier.check(two, LATER) is Reason.REPLAYED
    assert verifier.check(one, LATER + 2 * FRESH_NS) is Reason.STALE
    restarted = ControlVerifier(keyed.keyring("london-1"), LATER + S)
    assert restarted.check(one, LATER + S) is Reason.STALE


def test_an_invitation_from_before_a_restart_is_stale(keyed: KeyedNetwork) -> None:
    datagram = signed(keyed, "reform", Invite(2, 201), NOW - 1)
    assert ControlVerifier(keyed.keyring("london-1"), NOW).check(datagram, NOW) is Reason.STALE


def test_a_refused_message_does_not_use_up_a_stamp(keyed: KeyedNetwork, verifier: ControlVerifier) -> None:
    """A forger with the control key cannot burn the stamps of a sender."""
    seal = sealer(keyed, "XTKS")
    assert verifier.check(seal.sign(encode(FAULT, DOMAIN), LATER), LATER) is Reason.BAD_SIGNATURE
    assert isinstance(verifier.check(signed(keyed, "tokyo-1", FAULT), LATER), Verified)


def test_a_repeated_token_is_accepted_without_a_check(keyed: KeyedNetwork, verifier: ControlVerifier) -> None:
    datagram = signed(keyed, "tokyo-1", TOKEN)
    assert isinstance(verifier.check(datagram, LATER), Verified)
    with patch.object(control, "_is_signed", side_effect=AssertionError):
        again = verifier.check(datagram, LATER + 2 * FRESH_NS)
        assert isinstance(again, Verified)
        assert again.repeated
        assert again.address is None, "an old address is not learned again"
        item = verifier.check_item(datagram)
        assert isinstance(item, Verified)
        assert item.repeated


def test_an_item_of_a_repair_needs_its_authors_signature_only(keyed: KeyedNetwork, verifier: ControlVerifier) -> None:
    datagram = signed(keyed, "tokyo-1", TOKEN)
    without_mac = datagram[:-1] + bytes((datagram[-1] ^ 1,))
    found = verifier.check_item(without_mac)
    assert isinstance(found, Verified)
    assert (found.sender.name, found.address) == ("tokyo-1", None)
    assert verifier.check_item(signed(keyed, "oslo-1", TOKEN)) is Reason.BAD_SIGNATURE
    assert verifier.check_item(signed(keyed, "tokyo-1", FAULT)) is Reason.UNKNOWN_SEAL, "no Repair carries it"
    ring = make_ring()._replace(server=101, sealed=b"")
    assert isinstance(ring, Ring)
    assert verifier.check_item(signed(keyed, "tokyo-1", ring)) is Reason.WRONG_ROLE


def test_epochs_of_control_messages(keyed: KeyedNetwork) -> None:
    old = signed(keyed, "tokyo-1", FAULT)
    keyed.statement = rotate(keyed.statement, NOW, 1)
    verifier = ControlVerifier(keyed.keyring("london-1"), NOW)
    keyring = keyed.keyring("tokyo-1")
    seal = ControlSeal(keyring.identity, keyring.epochs[1])
    seal.use(keyring.epochs[2])
    assert isinstance(verifier.check(seal.sign(encode(FAULT, DOMAIN), LATER + 1), LATER), Verified)
    assert isinstance(verifier.check(old, LATER), Verified)
    late = NOW + 3_700 * S
    assert verifier.check(old, late) is Reason.UNKNOWN_KEY
    unknown = old[:22] + b"\x09\x00" + old[24:]
    assert verifier.check(unknown, LATER) is Reason.UNKNOWN_KEY


def test_a_revoked_node_is_refused_at_once_whatever_the_epoch(keyed: KeyedNetwork, verifier: ControlVerifier) -> None:
    token, fault = signed(keyed, "tokyo-1", TOKEN), signed(keyed, "tokyo-1", FAULT)
    later = signed(keyed, "tokyo-1", TOKEN, LATER + REVOKED_WITHIN_NS)
    assert isinstance(verifier.check(token, LATER), Verified)
    keyed.statement = revoke(keyed.statement, "tokyo-1", NOW)
    verifier.use(keyed.keyring("london-1"))
    assert verifier.check(fault, LATER) is Reason.REVOKED
    assert verifier.check(token, LATER) is Reason.REVOKED, "the cache of known ones is cleared"
    assert isinstance(verifier.check_item(token), Verified), "what it has ordered before stays ordered"
    assert verifier.check_item(later) is Reason.REVOKED


def test_the_windows_survive_a_new_statement(keyed: KeyedNetwork, verifier: ControlVerifier) -> None:
    datagram = signed(keyed, "tokyo-1", FAULT)
    assert isinstance(verifier.check(datagram, LATER), Verified)
    keyed.statement = rotate(keyed.statement, NOW, 1)
    verifier.use(keyed.keyring("london-1"))
    assert verifier.check(datagram, LATER) is Reason.REPLAYED


def test_the_signatures_of_a_turn_are_bounded(keyed: KeyedNetwork, verifier: ControlVerifier) -> None:
    seal = sealer(keyed, "tokyo-1")
    requests = [seal.sign(encode(FAULT, DOMAIN), LATER) for _ in range(MOST_SIGNATURES + 2 * MOST_OF_ADDRESS)]
    of_one = [verifier.check(each, LATER, ("10.0.0.1", 1)) for each in requests[: MOST_OF_ADDRESS + 1]]
    assert of_one[-1] is Reason.TOO_MANY
    assert all(isinstance(each, Verified) for each in of_one[:-1])
    found = [verifier.check(each, LATER, number) for number, each in enumerate(requests[MOST_OF_ADDRESS + 1 :])]
    assert sum(isinstance(each, Verified) for each in found) == MOST_SIGNATURES - MOST_OF_ADDRESS
    verifier.begin_turn()
    assert isinstance(verifier.check(requests[-1], LATER, ("10.0.0.1", 1)), Verified)


def test_recorded_old_tokens_cost_a_stranger_more_than_the_node(keyed: KeyedNetwork, verifier: ControlVerifier) -> None:
    tokens = [signed(keyed, "tokyo-1", TOKEN._replace(slot=slot, sealed=b"")) for slot in range(1, 4 * MOST_OLD)]
    now = LATER + 2 * FRESH_NS
    found = [verifier.check(each, now, number) for number, each in enumerate(tokens)]
    assert sum(isinstance(each, Verified) for each in found) == MOST_OLD
    assert set(found[MOST_OLD:]) == {Reason.TOO_MANY}
    fresh = signed(keyed, "tokyo-1", TOKEN._replace(slot=99, sealed=b""), now)
    assert isinstance(verifier.check(fresh, now), Verified)


def test_the_memory_of_known_datagrams_is_bounded(keyed: KeyedNetwork, verifier: ControlVerifier) -> None:
    first = signed(keyed, "tokyo-1", TOKEN)
    verifier.check(first, LATER)
    seal = sealer(keyed, "tokyo-1")
    with patch.object(control, "_is_signed", return_value=True):
        for slot in range(10, 10 + MOST_KNOWN):
            verifier.begin_turn()
            verifier.check(seal.sign(encode(TOKEN._replace(slot=slot, sealed=b""), DOMAIN), LATER), LATER)
    assert len(verifier._known) == MOST_KNOWN
    assert first not in verifier._known


def test_a_probe_of_a_floor_is_answered(keyed: KeyedNetwork, verifier: ControlVerifier) -> None:
    assert isinstance(verifier.check(signed(keyed, "XTKS", Probe(1, 2, NOW)), LATER), Verified)


def test_the_seal_alone_verifies_nothing(keyed: KeyedNetwork) -> None:
    with pytest.raises(ValueError, match="ControlVerifier"):
        sealer(keyed, "tokyo-1").holds(b"", b"")


def test_addresses() -> None:
    assert address_text(address_bytes("10.0.200.7")) == "10.0.200.7"

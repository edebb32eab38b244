"""The keys of one process at work: the epochs in use, what is sealed again, and what statuses show (K10)."""

from __future__ import annotations

import pytest

from levelcast.keys.authority import revoke, rotate
from levelcast.keys.core_security import HEARD_NS, REVIEW_NS, SETTLE_NS, CoreSecurity
from levelcast.keys.packets import SealedPackets, SealedSource
from levelcast.keys.process import new_salt
from levelcast.keys.replay import FRESH_NS, next_stamp
from levelcast.protocol.effects import Persist, Send
from levelcast.protocol.journal_image import JournalImage
from levelcast.records import trades
from levelcast.ring.source import Source
from levelcast.wire.header import Malformed, domain_of
from levelcast.wire.messages import CONTROL_SOURCE, Data, Message, Packet, Probe, Token
from levelcast.wire.packets import seal
from tests.keys_parts import NETWORK, NOW, ROLES, KeyedNetwork, S
from tests.ring_parts import make_config

DOMAIN = domain_of(NETWORK, 0)
MEMBERS = tuple(node for node, role in ROLES.values() if role == "receiver")
PAYLOAD = trades(3).tobytes()


@pytest.fixture
def keyed() -> KeyedNetwork:
    return KeyedNetwork()


def node(keyed: KeyedNetwork, name: str, now: int = NOW) -> CoreSecurity:
    made = CoreSecurity(keyed.keyring(name), DOMAIN, now, new_salt, ("127.0.0.1", ROLES[name][0]))
    if name in ROLES and ROLES[name][1] == "receiver":
        made.ring = lambda: MEMBERS
    return made


def token_of(name: str, slot: int = 1) -> Token:
    return Token(1, slot, NOW, ROLES[name][0], 0, 64, (), ())


def tell(sender: CoreSecurity, hearers: list[CoreSecurity], now: int, message: Message | None = None) -> None:
    """Send a token, or another message, to others."""
    name = sender.keyring.own.name
    for each in (sender, *hearers):
        each.begin_turn(now)
    signed = sender.author(token_of(name, now % 10**9 + 1), now) if message is None else message
    for datagram in sender.seal(signed):
        for each in hearers:
            each.open(datagram, ("127.0.0.1", 1))


def settle(members: list[CoreSecurity], others: list[CoreSecurity], now: int) -> int:
    """Let every member say twice what it holds; return the time after it."""
    for _ in range(2):
        for each in members:
            now += 2 * REVIEW_NS
            tell(each, [other for other in (*members, *others) if other is not each], now)
    for each in (*members, *others):
        each.begin_turn(now + 2 * REVIEW_NS)
    return now + 2 * REVIEW_NS


def epoch_of(floor: CoreSecurity) -> int:
    assert floor.sealer is not None
    return floor.sealer.epoch


def test_a_source_moves_when_all_members_hold_the_key(keyed: KeyedNetwork) -> None:
    members = [node(keyed, name) for name in ("tokyo-1", "london-1", "oslo-1")]
    floor = node(keyed, "XTKS")
    keyed.statement = rotate(keyed.statement, NOW, 1)
    for each, name in zip(members[:2], ("tokyo-1", "london-1"), strict=True):
        each.use(keyed.keyring(name))
    floor.use(keyed.keyring("XTKS"))
    now = settle(members, [floor], NOW + 2 * S)
    assert epoch_of(floor) == 1, "oslo-1 does not hold the key"
    members[2].use(keyed.keyring("oslo-1"))
    assert epoch_of(floor) == 1, "and has not said so yet"
    settle(members, [floor], now)
    assert epoch_of(floor) == 2


def test_not_before_the_epoch_begins(keyed: KeyedNetwork) -> None:
    keyed.statement = rotate(keyed.statement, NOW, 60)
    members, floor = [node(keyed, name) for name in ("tokyo-1", "london-1", "oslo-1")], node(keyed, "XTKS")
    now = settle(members, [floor], NOW + S)
    assert [each.status()["epoch_of_all"] for each in members] == [2, 2, 2]
    assert epoch_of(floor) == 1
    floor.begin_turn(NOW + 61 * S)
    assert (now < NOW + 60 * S, epoch_of(floor)) == (True, 2)


def test_a_secondary_without_the_key_holds_up_its_primary_while_it_is_heard(keyed: KeyedNetwork) -> None:
    secondary = node(keyed, "osaka-1")
    keyed.statement = rotate(keyed.statement, NOW, 1)
    primary = node(keyed, "tokyo-1")
    primary.ring = lambda: (ROLES["tokyo-1"][0],)
    tell(secondary, [primary], NOW + 2 * S, Probe(ROLES["osaka-1"][0], 1, NOW))
    primary.begin_turn(NOW + 3 * S)
    assert primary.status()["epoch_of_all"] == 1
    primary.begin_turn(NOW + 3 * S + HEARD_NS)
    assert primary.status()["epoch_of_all"] == 2


def test_a_revoked_member_holds_up_nobody(keyed: KeyedNetwork) -> None:
    members, floor = [node(keyed, name) for name in ("tokyo-1", "london-1", "oslo-1")], node(keyed, "XTKS")
    keyed.statement = revoke(keyed.statement, "oslo-1", NOW + S, 10)
    for each in (*members[:2], floor):
        each.use(keyed.keyring(each.keyring.own.name))
    settle(members[:2], [floor], NOW + 2 * S)
    assert epoch_of(floor) == 2


def test_without_confirmations_a_source_moves_when_the_epoch_before_ends(keyed: KeyedNetwork) -> None:
    floor = node(keyed, "XTKS")
    keyed.statement = revoke(keyed.statement, "oslo-1", NOW + S, 10)
    floor.use(keyed.keyring("XTKS"))
    for after_s, epoch in ((2, 1), (8, 1), (11, 2)):
        floor.begin_turn(NOW + after_s * S)
        assert epoch_of(floor) == epoch


def test_messages_move_later_so_that_nodes_without_the_statement_still_read_them(keyed: KeyedNetwork) -> None:
    behind = node(keyed, "london-1")
    keyed.statement = revoke(keyed.statement, "XLON", NOW + S)
    ahead = node(keyed, "tokyo-1")
    tell(ahead, [behind], NOW + 2 * S)
    with pytest.raises(Malformed, match="unknown key"):
        tell(ahead, [behind], NOW + 2 * S + SETTLE_NS)


def test_packets_of_an_ended_epoch_are_sealed_again_with_their_numbers(keyed: KeyedNetwork) -> None:
    """Otherwise a floor that was down for longer, or that waits for a ring, could never publish again."""
    floor, config = node(keyed, "XTKS"), make_config(credit=100)
    source = Source(config, ROLES["XTKS"][0], 1, JournalImage(1), NOW, floor.sealer)
    journal = JournalImage(1)
    for effect in source.submit_together([(PAYLOAD, 3), (PAYLOAD, 3)], NOW):
        if isinstance(effect, Persist):
            journal.apply(effect.entry)
    keyed.statement = rotate(keyed.statement, NOW, 1)
    receiver = SealedPackets(keyed.keyring("tokyo-1"), DOMAIN)
    floor.use(keyed.keyring("XTKS"))
    late = NOW + 2 * 3_600 * S
    floor.begin_turn(late)
    (resent,) = [each for each in source.step((), late) if isinstance(each, Send)]
    restarted = Source(config, ROLES["XTKS"][0], 1, journal, late, node(keyed, "XTKS", late).sealer)
    (again,) = [each for each in restarted.step((), late) if isinstance(each, Send)]
    datas = []
    for effect in (resent, again):
        assert isinstance(effect.message, Data)
        assert effect.message[:4] == (ROLES["XTKS"][0], 1, 1, 2)
        assert isinstance(receiver.check(effect.message.sealed, late), Data)
        assert receiver.assemble([effect.message])[1] == PAYLOAD * 2
        datas.append(effect.message.sealed)
    assert datas[0] != datas[1], "another salt"


def test_packets_from_before_the_keys_are_sealed_when_the_floor_starts(keyed: KeyedNetwork) -> None:
    plain = seal(Packet(ROLES["XTKS"][0], 1, 1, 3, PAYLOAD), DOMAIN)
    sealer = node(keyed, "XTKS").sealer
    assert sealer is not None
    renewed = sealer.renewed(plain, NOW)
    assert SealedPackets(keyed.keyring("tokyo-1"), DOMAIN).check(renewed.sealed, NOW) == renewed
    assert sealer.renewed(renewed, NOW) is renewed


def test_a_receiver_sends_timing_records_as_the_operator(keyed: KeyedNetwork) -> None:
    made = node(keyed, "tokyo-1").seal_packet(Packet(CONTROL_SOURCE, 1, 1, 3, PAYLOAD))
    assert SealedPackets(keyed.keyring("london-1"), DOMAIN).check(made.sealed, NOW) == made
    assert SealedSource(keyed.keyring("operator"), DOMAIN, 1, 1).overhead == len(made.sealed) - len(PAYLOAD)


def test_stamps_rise_but_do_not_stay_ahead_of_a_clock_that_was_set_back() -> None:
    assert next_stamp(NOW, NOW) == NOW + 1
    assert next_stamp(NOW + S, NOW) == NOW + S + 1
    assert next_stamp(NOW + FRESH_NS, NOW) == NOW


def test_statuses_and_representations_have_no_key(keyed: KeyedNetwork) -> None:
    floor = node(keyed, "XTKS")
    base = floor.keyring.source_key(1, ROLES["XTKS"][0])
    assert base is not None
    for shown in (repr(floor), repr(vars(floor)), repr(floor.status()), repr(vars(floor.sealer))):
        assert base.reveal().hex() not in shown
        assert repr(base.reveal()) not in shown

"""Attacks on a receiver with keys over real sockets, by multicast and without (K5 to K16; MS §6).

Each attack has no effect, and has one as soon as its defence is removed: so each test fails without the defence.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest

from levelcast import native
from levelcast.keys import beat_macs, control, core_security
from levelcast.keys.authority import revoke
from levelcast.keys.control import ControlSeal, ControlVerifier
from levelcast.keys.core_security import CoreSecurity
from levelcast.keys.packets import SealedPackets, SealedSource
from levelcast.keys.process import new_salt
from levelcast.keys.replay import SenderWindow
from levelcast.native.layout import KIND_AT, KIND_DATA, NETWORK_AT, SENDER_AT, STRIPE_AT
from levelcast.native.pure_core import datagram_places
from levelcast.overlay.duplicates import RecentMessages
from levelcast.overlay.fanout import Fanout, OverlayNode
from levelcast.protocol.effects import GROUP, Effect
from levelcast.protocol.machine import Machine
from levelcast.records import trades
from levelcast.runtime.driver import Driver
from levelcast.runtime.overlay_sockets import OverlaySockets
from levelcast.runtime.sockets import LOOPBACK, RECEIVERS, Address, CoreSockets
from levelcast.storage.node_store import NodeStore
from levelcast.wire.codec import decode, encode
from levelcast.wire.header import domain_of
from levelcast.wire.messages import (
    Beat,
    CatchUp,
    Claim,
    Data,
    Fault,
    Invite,
    Message,
    Packet,
    Probe,
    Repair,
    Ring,
    Token,
)
from levelcast.wire.packets import seal as seal_with_crc
from tests.keys_parts import NETWORK, ROLES, KeyedNetwork
from tests.ring_parts import make_ring
from tests.test_runtime_overlay_sockets import free_port

DOMAIN = domain_of(NETWORK, 0)
ADDRESS = f"239.192.{os.getpid() >> 8 & 255}.{os.getpid() & 255}"
"""A group of this process: tests of one network run in parallel processes."""
VICTIM, MEMBER, FLOOR, OTHER_FLOOR = "london-1", "tokyo-1", "XTKS", "XLON"
KINDS = {
    "receiver": "receiver",
    "secondary": "secondary",
    "reformation": "server",
    "floor": "floor",
    "operator": "guest",
}
PAYLOAD = trades(3).tobytes()
TOKEN = Token(1, 5, 1_800_000_000_000_000_000, ROLES[MEMBER][0], 4, 64, (), ())


class Records(Machine):
    """A machine that keeps what it is given."""

    def __init__(self) -> None:
        self.wake_ns = None
        self.got: list[Message] = []

    def step(self, batch: Iterable[Message], now: int, *, clock_trusted: bool = True) -> list[Effect]:
        self.got += batch
        return []


class Peer(NamedTuple):
    """The sockets and the keys of one node, or of an attacker that has its keys."""

    sockets: Any
    security: CoreSecurity

    def seal(self, message: Message) -> bytes:
        """Return an own message, as a node with these keys sends it."""
        self.security.begin_turn(time.time_ns())
        if isinstance(message, Token | Ring):
            return self.security.author(message, time.time_ns()).sealed
        return self.security.seal(message)[0]


class Stage:
    """A receiver under attack, and sockets of everybody else."""

    def __init__(self, transport: str, opened: ExitStack) -> None:
        self.keyed = KeyedNetwork(now_ns=time.time_ns() - 20_000_000_000)
        self.transport = transport
        nodes = [OverlayNode(node, name, KINDS[role]) for name, (node, role) in ROLES.items()]  # type: ignore[arg-type]
        self._port = free_port(3 * len(nodes))
        ports = {each.node: self._port + 3 * place for place, each in enumerate(nodes)}
        self._sockets: dict[str, Any] = {}
        for name, (node, role) in ROLES.items():
            hears = role in ("receiver", "secondary")
            if transport == "multicast":
                sockets: Any = CoreSockets(ADDRESS, self._port, hears_data=hears)
            else:
                peers = {each: (LOOPBACK, port) for each, port in ports.items() if each != node}
                fanout = Fanout(node, nodes, (), lambda one, other: float(one != other), 10**12, 10**12)
                sockets = OverlaySockets((LOOPBACK, ports[node]), peers, fanout, RecentMessages(), hears_data=hears)
            opened.callback(sockets.close)
            self._sockets[name] = sockets
        self.machine = Records()
        self.security = self.peer(VICTIM).security
        sockets = self._sockets[VICTIM]
        sockets.drain_packets = self.security.packets.drain_packets
        overlay = sockets if isinstance(sockets, OverlaySockets) else None
        self.driver = Driver(
            ROLES[VICTIM][0], DOMAIN, self.machine, sockets, NodeStore(), overlay=overlay, security=self.security
        )

    def peer(self, name: str) -> Peer:
        sockets = self._sockets[name]
        return Peer(sockets, CoreSecurity(self.keyed.keyring(name), DOMAIN, time.time_ns(), new_salt, sockets.address))

    def send(self, datagram: bytes, sender: str = "oslo-1") -> None:
        """Send bytes from the socket of a node: whoever is on the network can send from its address."""
        to = RECEIVERS if datagram[KIND_AT : KIND_AT + 1] == bytes([KIND_DATA]) else GROUP
        if to == GROUP and self.transport == "unicast":
            to = ROLES[VICTIM][0]
        self._sockets[sender].send(to, [datagram])

    def heard(self) -> list[Message]:
        """Return what has reached the receiver's protocol class since the last call."""
        self.machine.got.clear()
        while self.driver.sockets.wait(0.03)[0]:
            self.driver.turn()
        self.driver.turn()
        return list(self.machine.got)

    def learned(self, name: str) -> Address | None:
        """Return the address that the receiver has learned of a node."""
        peers: dict[int, Address] = getattr(self.driver.sockets, "peers", {})
        return peers.get(ROLES[name][0])

    def train(self, name: str = FLOOR, first: int = 1, source: int | None = None) -> list[bytes]:
        """Return packets of a floor."""
        sealer = SealedSource(self.keyed.keyring(name), DOMAIN, new_salt(), 1)
        data, _, _ = sealer.seal_all(PAYLOAD, 140, 9, source or ROLES[name][0], 1, first)
        assert data is not None
        return [data.sealed[at:end] for at, end in datagram_places(data.sealed)]


@pytest.fixture(params=["multicast", "unicast"])
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    with ExitStack() as opened:
        yield Stage(request.param, opened)


def with_bytes(datagram: bytes, at: int, value: int, size: int = 2) -> bytes:
    return datagram[:at] + value.to_bytes(size, "little") + datagram[at + size :]


# -- attacks: each returns whether it had an effect ----------------------------------------------------------


def token_of_a_stranger(stage: Stage) -> bool:
    stage.send(encode(TOKEN, DOMAIN))
    return TOKEN in stage.heard()


def token_signed_by_a_floor(stage: Stage) -> bool:
    """The floor has the control key, so the MAC is right, and it signs in the name of a member."""
    stage.send(stage.peer(FLOOR).seal(TOKEN), FLOOR)
    return TOKEN in stage.heard()


def token_with_a_wrong_mac(stage: Stage) -> bool:
    signed = stage.peer(MEMBER).seal(TOKEN)
    stage.send(signed[:-1] + bytes([signed[-1] ^ 1]))
    return TOKEN in stage.heard()


def token_of_a_floor_as_itself(stage: Stage) -> bool:
    own = TOKEN._replace(owner=ROLES[FLOOR][0])
    stage.send(stage.peer(FLOOR).seal(own), FLOOR)
    return own in stage.heard()


def catch_up_of_a_floor(stage: Stage) -> bool:
    forged = CatchUp(ROLES[FLOOR][0], 4, 5, bytes(32), bytes(32), ())
    stage.send(stage.peer(FLOOR).seal(forged), FLOOR)
    return forged in stage.heard()


def token_of_a_revoked_member(stage: Stage) -> bool:
    signed = stage.peer(MEMBER).seal(TOKEN)
    stage.keyed.statement = revoke(stage.keyed.statement, MEMBER, time.time_ns())
    stage.security.use(stage.keyed.keyring(VICTIM))
    stage.send(signed, MEMBER)
    return TOKEN in stage.heard()


def recorded_request(message: Message, sender: str) -> Callable[[Stage], bool]:
    def replay(stage: Stage) -> bool:
        signed = stage.peer(sender).seal(message)
        stage.send(signed, sender)
        assert stage.heard() == [message]
        stage.send(signed)
        return message in stage.heard()

    return replay


def message_from_before_the_start(stage: Stage) -> bool:
    peer = stage.peer(MEMBER)
    fault = Fault(ROLES[MEMBER][0], 1, 1, 1, 1, 5, 0)
    seal = ControlSeal(stage.keyed.identities[MEMBER], peer.security.keyring.epochs[1])
    stage.send(seal.sign(encode(fault, DOMAIN), time.time_ns() - 3_000_000_000), MEMBER)
    return fault in stage.heard()


def own_message_reflected(stage: Stage) -> bool:
    stage.security.begin_turn(time.time_ns())
    probe = stage.security.seal(Probe(ROLES[VICTIM][0], 1, 5))[0]
    stage.send(probe)
    stage.heard()
    return stage.driver.counters.namesakes > 0


def address_of_a_packet(stage: Stage) -> bool:
    stage.send(stage.train()[0], FLOOR)
    assert len(stage.heard()) == 1
    return stage.learned(FLOOR) is not None


def address_of_a_stranger(stage: Stage) -> bool:
    """A stranger that sends a member's own message first, from its own address."""
    peer = stage.peer(MEMBER)
    stage.send(peer.seal(TOKEN))
    assert stage.heard() == [TOKEN]
    return stage.learned(MEMBER) not in (None, peer.sockets.address)


def address_by_replay(stage: Stage) -> bool:
    """A token of the member from before it moved, after one from its new address."""
    now, keyring = time.time_ns(), stage.keyed.keyring(MEMBER)
    places = ((LOOPBACK, 4_001), (LOOPBACK, 4_002))
    old, new = (ControlSeal(keyring.identity, keyring.epochs[1], place) for place in places)
    stage.send(new.sign(encode(TOKEN, DOMAIN), now))
    stage.heard()
    stage.send(old.sign(encode(TOKEN._replace(slot=4), DOMAIN), now - 1_000_000))
    stage.heard()
    return stage.learned(MEMBER) == places[0]


def packet_with_a_crc(stage: Stage) -> bool:
    plain = seal_with_crc(Packet(ROLES[FLOOR][0], 1, 1, 3, PAYLOAD), DOMAIN)
    stage.send(plain.sealed)
    return any(isinstance(each, Data) for each in stage.heard())


def packet_of_another_floor(stage: Stage) -> bool:
    """A floor that sends its own packet in the name of another one."""
    stage.send(with_bytes(stage.train(OTHER_FLOOR)[0], SENDER_AT, ROLES[FLOOR][0]), OTHER_FLOOR)
    return any(isinstance(each, Data) for each in stage.heard())


def operators_packet_of_a_floor(stage: Stage) -> bool:
    stage.send(with_bytes(stage.train(FLOOR)[0], SENDER_AT, 0), FLOOR)
    return any(isinstance(each, Data) for each in stage.heard())


def changed_packet(at: int, value: int, size: int = 2) -> Callable[[Stage], bool]:
    """A packet that arrived, and again with another value in its header: the key is known by then."""

    def change(stage: Stage) -> bool:
        good, other = stage.train()[:2]
        stage.send(good, FLOOR)
        assert len(stage.heard()) == 1
        stage.send(with_bytes(other, at, value, size))
        return any(isinstance(each, Data) for each in stage.heard())

    return change


def packet_of_a_revoked_floor(stage: Stage) -> bool:
    """Its key is known, so that the compiled drain opens the packet."""
    first, second = stage.train()[:2]
    stage.send(first, FLOOR)
    assert len(stage.heard()) == 1
    stage.keyed.statement = revoke(stage.keyed.statement, FLOOR, time.time_ns())
    stage.security.use(stage.keyed.keyring(VICTIM))
    stage.send(second, FLOOR)
    return any(isinstance(each, Data) for each in stage.heard())


def beat_of_a_floor(stage: Stage) -> bool:
    """A floor has the control key of beats, but not the key of the pair."""
    beat = Beat(ROLES[MEMBER][0], 1, (Claim(5, 4),), 1, TOKEN.timestamp_ns, None, None)
    keyring = stage.keyed.keyring(FLOOR)
    sender = beat_macs.BeatSender(keyring, keyring.epochs[1])
    stage.send(sender.seal(encode(beat, DOMAIN), time.time_ns())[0], FLOOR)
    return beat in stage.heard()


def forged_item_of_a_repair(stage: Stage) -> bool:
    """A reformation server, which may pass on tokens, signs one in the name of a member."""
    server = stage.peer("reform")
    forged = server.security.author(TOKEN, time.time_ns())
    stage.send(server.seal(Repair(ROLES["reform"][0], (forged,))), "reform")
    return any(isinstance(each, Repair) and each.items for each in stage.heard())


def many_forged_items(stage: Stage) -> bool:
    """A Repair with a thousand bogus tokens: the number of signatures that it makes the receiver check."""
    server = stage.peer("reform")
    tokens = [server.security.author(TOKEN._replace(slot=slot), time.time_ns()) for slot in range(1, 200)]
    stage.send(server.seal(Repair(ROLES["reform"][0], tuple(tokens))), "reform")
    stage.heard()
    return stage.driver.counters.malformed["bad signature"] > 64


def many_bad_signatures(stage: Stage) -> bool:
    """Datagrams with the right MAC and a wrong signature, all of one address, in one turn."""
    floor = stage.peer(FLOOR)
    for slot in range(1, 40):
        stage.send(floor.seal(TOKEN._replace(slot=slot)), FLOOR)
    time.sleep(0.05)
    stage.heard()
    return stage.driver.counters.malformed["bad signature"] > 8


# -- the defences, and how each is removed -------------------------------------------------------------------


def without(target: object, name: str, replacement: object) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setattr(target, name, replacement)


def _trusting_open(self: CoreSecurity, datagram: bytes, source: Address) -> object:
    return core_security.Opened(self.domain, decode(datagram).message, source)


def _unchecked(self: SealedPackets, sealed: bytes, now_ns: int, *, named: bool = False) -> Data:
    source = int.from_bytes(sealed[SENDER_AT : SENDER_AT + 2], "little")
    number = int.from_bytes(sealed[40:48], "little")
    return Data(source, 1, number, number, sealed)


def _no_check_of_packets(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SealedPackets, "check", _unchecked)
    patch.setattr("levelcast.runtime.sockets.MAX_DRAIN_BYTES", 1 << 20)


def _no_drain_in_c(patch: pytest.MonkeyPatch) -> None:
    """Packets are opened neither by the compiled drain nor by `check`, and belong to every domain."""
    _no_check_of_packets(patch)
    patch.setattr(core_security, "wrong_domain", lambda found, domain: None)
    plain = property(lambda self: native.drain_packets, lambda self, value: None)
    for sockets in (CoreSockets, OverlaySockets):
        patch.setattr(sockets, "drain_packets", plain, raising=False)


def _keep_the_revoked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CoreSecurity, "use", lambda self, keyring: None)


def _learn_arrivals(patch: pytest.MonkeyPatch) -> None:
    def open_datagram(self: Driver, datagram: bytes, source: Address) -> object:
        assert self._security is not None
        opened = self._security.open(datagram, source)
        return None if opened is None else (opened.domain, opened.message, source)

    patch.setattr(Driver, "_open", open_datagram)


def _learn_sources_of_packets(patch: pytest.MonkeyPatch) -> None:
    def accepts(self: CoreSecurity, data: Data) -> bool:
        return True

    original = Driver._decode

    def decode_arrivals(self: Driver, arrivals: Iterable[Any]) -> list[Message]:
        arrivals = list(arrivals)
        for content, source, _ in arrivals:
            if isinstance(content, Data) or content[KIND_AT] == KIND_DATA:
                self._learn(ROLES[FLOOR][0], source)
        return original(self, arrivals)

    patch.setattr(CoreSecurity, "accepts", accepts)
    patch.setattr(Driver, "_decode", decode_arrivals)


def _newest_is_any(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CoreSecurity, "_newest_address", lambda self, verified: verified.address)


FAULT = Fault(ROLES[MEMBER][0], 1, 1, 1, 1, 5, 0)
INVITE = Invite(7, ROLES["reform"][0])
NO_WINDOW = without(SenderWindow, "refusal", lambda self, sent_ns, now_ns: None)
NO_SIGNATURES = without(control, "_is_signed", lambda datagram, holder: True)
NO_ROLES = without(control, "may_send", lambda kind, role: True)
NO_MACS = without(control, "compare_digest", lambda one, other: True)
NO_BUDGET = without(ControlVerifier, "_may_verify", lambda self, source, *, is_old=False: True)

Attack = Callable[[Stage], bool]
ATTACKS: dict[str, tuple[Attack, Callable[[pytest.MonkeyPatch], None]]] = {
    "token of a stranger": (token_of_a_stranger, without(CoreSecurity, "open", _trusting_open)),
    "token signed by a floor": (token_signed_by_a_floor, NO_SIGNATURES),
    "token with a wrong MAC": (token_with_a_wrong_mac, NO_MACS),
    "token of a floor as itself": (token_of_a_floor_as_itself, NO_ROLES),
    "catch-up of a floor": (catch_up_of_a_floor, NO_ROLES),
    "token of a revoked member": (token_of_a_revoked_member, _keep_the_revoked),
    "replayed fault": (recorded_request(FAULT, MEMBER), NO_WINDOW),
    "replayed invitation": (recorded_request(INVITE, "reform"), NO_WINDOW),
    "message from before the start": (message_from_before_the_start, NO_WINDOW),
    "packet with a CRC": (packet_with_a_crc, _no_check_of_packets),
    "packet of another floor": (packet_of_another_floor, _no_check_of_packets),
    "packet of the operator by a floor": (operators_packet_of_a_floor, _no_check_of_packets),
    "renumbered packet": (changed_packet(40, 9, 8), _no_drain_in_c),
    "packet of another stripe": (changed_packet(STRIPE_AT, 1), _no_drain_in_c),
    "packet of another network": (changed_packet(NETWORK_AT, 1), _no_drain_in_c),
    "packet with another record": (changed_packet(60, 1), _no_drain_in_c),
    "packet of a revoked floor": (packet_of_a_revoked_floor, _keep_the_revoked),
    "packet of a revoked floor, opened in C": (
        packet_of_a_revoked_floor,
        without(SealedPackets, "accepts", lambda self, data, now_ns: True),
    ),
    "beat of a floor": (beat_of_a_floor, without(beat_macs, "compare_digest", lambda one, other: True)),
    "forged item of a Repair": (forged_item_of_a_repair, NO_SIGNATURES),
    "many forged items": (many_forged_items, NO_BUDGET),
    "many bad signatures": (many_bad_signatures, NO_BUDGET),
}
MULTICAST_ATTACKS: dict[str, tuple[Attack, Callable[[pytest.MonkeyPatch], None]]] = {
    "own message reflected": (
        own_message_reflected,
        without(CoreSecurity, "_is_own", lambda self, verified: False),
    ),
    "address of a packet": (address_of_a_packet, _learn_sources_of_packets),
    "address of a stranger": (address_of_a_stranger, _learn_arrivals),
    "address by replay": (address_by_replay, _newest_is_any),
}
"""Without multicast, no address is learned from any datagram."""


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_has_no_effect_unless_its_defence_is_removed(
    name: str, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    attack, remove = ATTACKS[name]
    assert not attack(stage)
    with ExitStack() as opened:
        remove(monkeypatch)
        assert attack(Stage(stage.transport, opened)), "the test cannot fail: the defence does nothing"


@pytest.mark.parametrize("name", MULTICAST_ATTACKS)
def test_an_attack_on_addresses_has_no_effect_unless_its_defence_is_removed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    attack, remove = MULTICAST_ATTACKS[name]
    with ExitStack() as opened:
        assert not attack(Stage("multicast", opened))
    with ExitStack() as opened:
        remove(monkeypatch)
        assert attack(Stage("multicast", opened)), "the test cannot fail: the defence does nothing"


def test_honest_nodes_are_heard(stage: Stage) -> None:
    """So that no attack fails only because nothing arrives."""
    peer = stage.peer(MEMBER)
    beat = Beat(ROLES[MEMBER][0], 1, (Claim(5, 4),), 1, TOKEN.timestamp_ns, None, None)
    train = stage.train()
    for datagram in (peer.seal(TOKEN), peer.seal(FAULT), peer.seal(beat)):
        stage.send(datagram, MEMBER)
    assert stage.heard() == [TOKEN, FAULT, beat]
    for datagram in train:
        stage.send(datagram, FLOOR)
    found = [each for each in stage.heard() if isinstance(each, Data)]
    assert [each.first for each in found] == [1, 2, 3]
    assert b"".join(each.sealed for each in found) == b"".join(train)
    assert stage.security.assemble(found)[1] == PAYLOAD
    ring = replace_server(make_ring(), ROLES["reform"][0])
    token = peer.security.author(TOKEN._replace(slot=6), time.time_ns())
    held = Data(ROLES[FLOOR][0], 1, 1, 1, train[0])
    stage.send(stage.peer("reform").seal(Repair(ROLES["reform"][0], (token, held))), "reform")
    (repair,) = stage.heard()
    assert isinstance(repair, Repair)
    assert repair.items == (token, held)
    assert [item.sealed for item in repair.items] == [token.sealed, held.sealed]
    stage.send(stage.peer("reform").seal(ring), "reform")
    assert stage.heard() == [ring]
    assert not stage.driver.counters.malformed


def replace_server(ring: Ring, server: int) -> Ring:
    return ring._replace(server=server, sealed=b"")

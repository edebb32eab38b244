"""Scenarios `ring-secured` and `receivers-secured`: the same histories with keys, and with intruders (K4 to K16).

Everything is that of `ring` and `receivers`, and every message is sealed (`levelcast.sim.engine.secured_world`). Beside
the other faults,

- a stranger repeats recorded datagrams, changes some of their bytes, and sends packets in the name of others;
- a floor that is not part of the history signs messages of members, servers and secondaries, and messages of its own;
- the keys are rotated in the middle, and then the floor that lies is revoked, in half of the histories also a floor
  that does not. Each node loads the statements at another time, some after their epoch has begun.

A forged datagram that a node accepts, and a message that it accepts twice, break the history.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import ClassVar, cast

from levelcast.keys.beat_macs import BeatSender
from levelcast.keys.control import ControlSeal
from levelcast.keys.statement import FLOOR, OPERATOR, RECEIVER, REFORMATION, SECONDARY
from levelcast.native.layout import KIND_AT, SEAL_SIZE_AT, SENDER_AT
from levelcast.protocol.config import StripeConfig
from levelcast.sim.check.ring import PacketId
from levelcast.sim.engine.network import VirtualNetwork
from levelcast.sim.engine.secured_world import Arriving, SecuredNode, SecuredWorld, SimAuthority
from levelcast.sim.engine.world import START_NS, SimNode, World
from levelcast.sim.faults import MS
from levelcast.sim.scenarios.receivers import ReceiversHistory
from levelcast.sim.scenarios.ring import RingHistory
from levelcast.wire.codec import encode
from levelcast.wire.header import split_domain
from levelcast.wire.messages import CONTROL_SOURCE, Beat, Data, Message, Token
from levelcast.wire.token_codec import KIND_BEAT

LIAR = 299
"""The floor that lies. It is in the statement, and sends nothing else."""
KEPT = 64
"""Recorded datagrams."""
SHARE = 0.03
"""Share of datagrams after which an intruder sends one."""
LATEST_NS = 400 * MS
"""Delay of a repetition, and of a statement on its way to a node."""


class Intruders:
    """A stranger that records and repeats, and a floor that signs what it may not. They have their own generator."""

    def __init__(self, world: SecuredWorld, seed: int) -> None:
        self._world = world
        self._rng = Random(f"intruders {seed}")
        self._recorded: list[tuple[bytes, list[int]]] = []
        keyring = world.authority.newest.keyring(world.authority.identities[LIAR])
        assert keyring is not None
        self._identity, self._keys = keyring.identity, keyring.epochs[1]
        self._beats = BeatSender(keyring, self._keys)

    def overhear(self, sender: SimNode, receivers: list[int], message: Message, datagram: bytes) -> None:
        """Record a datagram, and now and then send something."""
        rng = self._rng
        if rng.random() >= SHARE or not receivers:
            return
        if len(self._recorded) < KEPT:
            self._recorded.append((datagram, receivers))
        else:
            self._recorded[rng.randrange(KEPT)] = datagram, receivers
        choice = rng.randrange(5)
        if choice <= 1:
            again, its_receivers = rng.choice(self._recorded)
            self._send(again, its_receivers, forged=False)
        elif choice == 2:
            self._send(self._changed(datagram), receivers, forged=True)
        elif isinstance(message, Data):
            spoofed = rng.choice(
                [each for each in (CONTROL_SOURCE, message.source + 1, LIAR) if each != message.source]
            )
            self._send(datagram[:SENDER_AT] + spoofed.to_bytes(2, "little") + datagram[SENDER_AT + 2 :], receivers)
        else:
            self._send(self._signed(message, as_itself=choice == 3), receivers)

    def _send(self, datagram: bytes, receivers: list[int], *, forged: bool = True) -> None:
        found = cast(Message, Arriving(datagram, LIAR, forged))
        for node in receivers:
            self._world.bring(self._world.now + self._rng.randint(1, LATEST_NS), self._world.nodes[node], found)

    def _changed(self, datagram: bytes) -> bytes:
        # The MACs of other receivers are no part of what a receiver checks of a beat.
        others = datagram[SEAL_SIZE_AT] - 8 if datagram[KIND_AT] == KIND_BEAT else 0
        at = self._rng.randrange(len(datagram) - others)
        return datagram[:at] + bytes([datagram[at] ^ 1 << self._rng.randrange(8)]) + datagram[at + 1 :]

    def _signed(self, message: Message, *, as_itself: bool) -> bytes:
        """Return a message that the floor signs: another one than was sent, of its author or its own."""
        now = self._world.now
        if isinstance(message, Token):
            message = message._replace(have=message.have + 3, sealed=b"")
        elif message[-1] and isinstance(message[-1], bytes):
            message = cast(Message, message._replace(sealed=b""))  # type: ignore[call-arg]
        datagram = encode(message, self._world.config.domain)
        if as_itself:
            datagram = datagram[:SENDER_AT] + LIAR.to_bytes(2, "little") + datagram[SENDER_AT + 2 :]
        if isinstance(message, Beat):
            return self._rng.choice(self._beats.seal(datagram, now))
        return ControlSeal(self._identity, self._keys).sign(datagram, now + self._rng.randrange(1_000))


class Secured(RingHistory):
    """Additions of both scenarios to the history of a seed."""

    WORLD: ClassVar[type[World]] = SecuredWorld
    NODE: ClassVar[type[SimNode]] = SecuredNode
    REAL: ClassVar[bool] = False
    """Signatures are Ed25519."""

    world: SecuredWorld

    def _make_world(self, config: StripeConfig, network: VirtualNetwork) -> World:
        world = super()._make_world(config, network)
        assert isinstance(world, SecuredWorld)
        world.reached = {}
        world.salts = Random(f"salts {self.seed}")
        roles = {
            **dict.fromkeys((*self._member_ids, *self._spare_ids), RECEIVER),
            **dict.fromkeys(self._homes, SECONDARY),
            **dict.fromkeys(self._server_ids, REFORMATION),
            **dict.fromkeys((*self._source_ids, LIAR), FLOOR),
            CONTROL_SOURCE: OPERATOR,
        }
        rng = Random(f"keys {self.seed}")
        world.authority = SimAuthority(split_domain(config.domain)[0], roles, rng, START_NS, real=self.REAL)
        world.on_datagram = Intruders(world, self.seed).overhear
        self._keys_rng = rng
        self._revoked: set[int] = set()
        return world

    def _build_nodes(self) -> None:
        super()._build_nodes()
        self.checker.open_packets = self.world.clear
        self.checker.renews = True

    def begin(self) -> int:
        end_ns = super().begin()
        rng, middle_ns = self._keys_rng, START_NS + self.fault_ns // 2
        self.world.at(middle_ns, lambda: self._rotate(rng.randint(0, LATEST_NS)))
        self.world.at(middle_ns + LATEST_NS, lambda: self._revoke(LIAR))
        if len(self._source_ids) > 1 and rng.random() < 0.5:
            self.world.at(middle_ns + 2 * LATEST_NS, lambda: self._revoke(rng.choice(self._source_ids)))
        return max(end_ns, middle_ns + 3 * LATEST_NS)

    def _rotate(self, ahead_ns: int) -> None:
        self.world.authority.rotate(self.world.now, self.world.now + ahead_ns)
        self._announce()

    def _revoke(self, node: int) -> None:
        self._revoked.add(node)
        self.world.authority.revoke(node, self.world.now)
        self._announce()

    def _announce(self) -> None:
        number = len(self.world.authority.statements)
        self.world.trace(LIAR, "statement", number)
        self.world.announce({node: self._keys_rng.randint(0, LATEST_NS) for node in self.world.nodes})

    def _living(self) -> list[PacketId]:
        """Return packets that must be released everywhere: of a revoked floor, only those that are witnessed."""
        witnessed = set(self._witnessed())
        return [key for key in super()._living() if key[0] not in self._revoked or key in witnessed]


class SecuredRingHistory(Secured):
    """History of one seed of the scenario `ring`, with keys."""


class SecuredReceiversHistory(Secured, ReceiversHistory):
    """History of one seed of the scenario `receivers`, with keys, in one stripe."""

    def _second_stripe(self, seed: int) -> None:
        return None


class RealRingHistory(SecuredRingHistory):
    """The same with Ed25519 and X25519."""

    REAL = True


class RealReceiversHistory(SecuredReceiversHistory):
    """The same with Ed25519 and X25519."""

    REAL = True


SECURED: dict[str, Callable[[int], RingHistory]] = {
    "ring-secured": SecuredRingHistory,
    "receivers-secured": SecuredReceiversHistory,
    "ring-signed": RealRingHistory,
    "receivers-signed": RealReceiversHistory,
}
"""By scenario: builds a history from a seed."""

"""Simulate nodes with keys: every message is sealed by its sender and opened by each receiver when it arrives.

The nodes use `levelcast.keys.core_security`, as over sockets. Keys of epochs, packets (AES-256-GCM), MACs and windows
are the real ones. Signatures and the agreement of two identities are keyed hashes (`HashIdentity`), because Ed25519
takes most of the time of a history; `Identity` replaces them in some histories.

Nodes load a statement when it reaches them, each at another time; a crashed one when it starts again.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from hmac import compare_digest
from random import Random
from typing import Any, NamedTuple, cast

from levelcast.keys.core_security import CoreSecurity
from levelcast.keys.derive import control_key, source_key
from levelcast.keys.identity import Identity, PublicIdentity
from levelcast.keys.keyring import EpochKeys, Keyring
from levelcast.keys.packets import SealedPackets
from levelcast.keys.roles import is_authored
from levelcast.keys.secret import Secret
from levelcast.keys.statement import HOLD_CORE_SECRET, HOLD_SOURCE_KEY, Epoch, Holder, KeyStatement, Revoked
from levelcast.native.layout import KIND_AT, KIND_DATA
from levelcast.native.pure_seal import Opener
from levelcast.sim.check.ring import InvariantBroken
from levelcast.sim.engine.world import SimNode, World
from levelcast.wire.header import Malformed
from levelcast.wire.messages import Data, Message, Packet
from levelcast.wire.packets import open_packets, singles

ACCEPTED_NS = 2_000_000_000
"""Time for which an epoch is accepted after the next one has begun; an hour in reality."""
SETTLE_NS = 400_000_000
"""As `core_security.SETTLE_NS`, for histories of a few seconds."""


class HashPublic(PublicIdentity):
    """Public keys whose signatures are keyed hashes: only `HashIdentity` may use `sign` as the key."""

    __slots__ = ()

    def verifies(self, signature: bytes, content: bytes) -> bool:
        return compare_digest(signature, _hash(self.sign, content))


class HashIdentity:
    """The interface of an `Identity`, with keyed hashes instead of Ed25519 and X25519."""

    def __init__(self, name: str, rng: Random) -> None:
        self.public = HashPublic(name, rng.randbytes(32), rng.randbytes(32))

    @property
    def name(self) -> str:
        return self.public.name

    def sign(self, content: bytes) -> bytes:
        return _hash(self.public.sign, content)

    def agree(self, other: PublicIdentity) -> Secret:
        one, another = sorted((self.public.open, other.open))
        return Secret(_hash(one, another)[:32])


def _hash(key: bytes, content: bytes) -> bytes:
    return blake2b(content, key=key, digest_size=64).digest()


class SimStatement(NamedTuple):
    """A statement, and the core secrets of its epochs."""

    statement: KeyStatement
    cores: dict[int, Secret]

    def keyring(self, identity: Identity) -> Keyring | None:
        """Return the keys of a holder; None for one that is revoked."""
        statement = self.statement
        own = statement.holder(identity.name)
        if own is None:
            return None
        ordered = sorted(statement.epochs, key=lambda each: each.number)
        ends = [*(each.from_ns + ACCEPTED_NS for each in ordered[1:]), None]
        epochs = {}
        for each, end in zip(ordered, ends, strict=True):
            core = self.cores[each.number]
            until = end if each.until_ns is None or end is None else min(end, each.until_ns)
            epochs[each.number] = EpochKeys(
                each.number,
                each.from_ns,
                end,
                until,
                control_key(core, statement.network),
                core if own.role in HOLD_CORE_SECRET else None,
                source_key(core, statement.network, own.id) if own.role in HOLD_SOURCE_KEY else None,
            )
        return Keyring(identity, statement, own, epochs)


class SimAuthority:
    """The authority of a history: its statements, oldest first."""

    def __init__(self, network: int, roles: dict[int, str], rng: Random, now: int, *, real: bool) -> None:
        self._rng = rng
        self.identities: dict[int, Identity] = {}
        holders = []
        for node, role in roles.items():
            name = f"{role} {node}"
            made = Identity.new(name) if real else cast(Identity, HashIdentity(name, rng))
            self.identities[node] = made
            holders.append(Holder(node, role, made.public))
        epoch = Epoch(1, now - 60_000_000_000, {})
        statement = KeyStatement(network, 1, now // 10**9, 2**40, tuple(holders), (epoch,))
        self.statements = [SimStatement(statement, {1: self._new_core()})]

    def _new_core(self) -> Secret:
        return Secret(self._rng.randbytes(32))

    @property
    def newest(self) -> SimStatement:
        return self.statements[-1]

    def rotate(self, now: int, from_ns: int) -> None:
        """Make a statement with a new epoch from `from_ns`."""
        self._add(now, from_ns, self.newest.statement.holders, self.newest.statement.revoked)

    def revoke(self, node: int, now: int) -> None:
        """Make a statement without a node, and with an epoch from now."""
        before = self.newest.statement
        (gone,) = (each for each in before.holders if each.id == node)
        holders = tuple(each for each in before.holders if each.id != node)
        self._add(now, now, holders, (*before.revoked, Revoked(gone.name, node, gone.role)))

    def _add(self, now: int, from_ns: int, holders: tuple[Holder, ...], revoked: tuple[Revoked, ...]) -> None:
        before, cores = self.newest
        number = max(cores) + 1
        from_ns = max(from_ns, *(each.from_ns + 1 for each in before.epochs))
        epochs = (*before.epochs, Epoch(number, from_ns, {}))
        made = KeyStatement(before.network, before.number + 1, now // 10**9, 2**40, holders, epochs, revoked)
        self.statements.append(SimStatement(made, cores | {number: self._new_core()}))


class AnyRecords(Opener):
    """Opens packets whose payloads need not be records."""

    def _has_records(self, clear: bytes, records: int) -> bool:
        return True


class Arriving(NamedTuple):
    """A datagram on its way to a node."""

    datagram: bytes
    sender: int
    forged: bool = False
    """No holder of the right key has made it."""


class SecuredNode(SimNode):
    """A node that opens what arrives, and loads statements."""

    world: SecuredWorld

    def start(self) -> None:
        """Start a process: with new windows and a new salt, and the newest statement that has reached it."""
        self.security = self.world.secure(self)
        self._accepted: set[bytes] = set()
        super().start()
        if self.machine is not None:
            self.security.wants = self.machine.wants
            ring = getattr(type(self.machine), "ring_members", None)
            if ring is not None:
                machine = self.machine
                self.security.ring = lambda: machine.ring_members  # type: ignore[attr-defined]

    def load(self, statement: SimStatement) -> None:
        """Use a statement that has reached the node."""
        if self.security is None or not self.up:
            return
        keyring = statement.keyring(self.world.authority.identities[self.id])
        newer = statement.statement.number > self.security.keyring.statement.number
        if keyring is not None and newer:
            self.security.begin_turn(self.local_ns)
            self.security.use(keyring)

    def arrive(self, *messages: Message) -> None:
        if self.machine is None or self.security is None:
            return
        self.security.begin_turn(self.local_ns)
        opened = [found for each in messages if (found := self._open(cast(Arriving, each))) is not None]
        if opened:
            super().arrive(*opened)

    def _open(self, arriving: Arriving) -> Message | None:
        """Return the message of a datagram that the node accepts."""
        assert self.security is not None
        datagram = arriving.datagram
        try:
            opened = self.security.open(datagram, ("", arriving.sender))
        except Malformed as malformed:
            self.malformed[malformed.reason.value] += 1
            return None
        self.malformed.update(self.security.rejected)
        self.security.rejected.clear()
        if opened is None:
            return None
        if arriving.forged:
            raise InvariantBroken("K5, K11", f"{self.name} accepts a forged {type(opened.message).__name__}")
        kind = datagram[KIND_AT]
        if kind != KIND_DATA and not is_authored(kind):
            if datagram in self._accepted:
                raise InvariantBroken("K12", f"{self.name} accepts a {type(opened.message).__name__} twice")
            self._accepted.add(datagram)
        return opened.message if type(opened.message) in self.listens else None


class SecuredWorld(World):
    """A world in which every datagram is sealed. `authority` is set before the first node starts."""

    authority: SimAuthority
    salts: Random
    on_datagram: Callable[[SimNode, list[int], Message, bytes], None]
    """Called with every datagram that is sent."""
    reached: dict[int, int]
    """Number of statements that have reached each node."""

    def secure(self, node: SimNode) -> CoreSecurity:
        """Return the keys of a process that starts now."""
        identity = self.authority.identities[node.id]
        known = self.authority.statements[: self.reached.get(node.id, 1)]
        keyring = next(found for each in reversed(known) if (found := each.keyring(identity)) is not None)
        domain, now = self.config.domain, node.local_ns
        packets = SealedPackets(keyring, domain, cast(Any, AnyRecords()))
        return CoreSecurity(
            keyring, domain, now, lambda: self.salts.getrandbits(64), settle_ns=SETTLE_NS, packets=packets
        )

    def announce(self, delays_ns: dict[int, int]) -> None:
        """Let the newest statement reach each node after a delay."""
        number, statement = len(self.authority.statements), self.authority.newest

        def reach(node: SecuredNode) -> Callable[[], None]:
            def load() -> None:
                self.reached[node.id] = max(self.reached.get(node.id, 1), number)
                node.load(statement)

            return load

        for node in self.nodes.values():
            assert isinstance(node, SecuredNode)
            self.after(delays_ns[node.id], reach(node))

    def clear(self, data: Data) -> list[Packet]:
        """Return the packets of a source in clear text, for the checker."""
        newest = self.authority.newest
        reader = next(each for each in newest.statement.holders if each.role in HOLD_CORE_SECRET)
        keyring = newest.keyring(self.authority.identities[reader.id])
        assert keyring is not None
        sealed = SealedPackets(keyring, self.config.domain, cast(Any, AnyRecords()))
        found = open_packets(data)
        return [
            each._replace(payload=sealed.assemble([single])[1])
            for each, single in zip(found, singles(data), strict=True)
        ]

    def send(self, sender: SimNode, to: int, message: Message) -> None:
        """Put a message on the network as its sender seals it."""
        assert sender.security is not None
        receivers = self._receivers_of(sender, to, message)
        self.trace(sender.id, "sends", (to, message))
        sender.security.begin_turn(sender.local_ns)
        trains = singles(message) if isinstance(message, Data) else [message]
        for datagram in (each for part in trains for each in sender.security.seal(part)):
            self.on_datagram(sender, receivers, message, datagram)
            for copy in self.network.copies(sender.id, receivers, datagram):
                found = Arriving(copy.damaged or datagram, sender.id)
                self.bring(self.now + copy.delay_ns, self.nodes[copy.to], cast(Message, found))

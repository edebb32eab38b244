"""Groups with epochs and senders outside, without a network: steps of 5 ms, and a test decides who receives what."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from levelcast.byzantine.config import ChainConfig
from levelcast.byzantine.digests import cite
from levelcast.byzantine.epochs import EpochMachine, EpochMember
from levelcast.byzantine.image import ChainImage, EpochsImage
from levelcast.byzantine.member import ChainMember
from levelcast.byzantine.outside import OutsideSender
from levelcast.byzantine.signatures import KeyedHash, KeyedHashVerifier
from levelcast.byzantine.turns import BySlot
from levelcast.protocol.effects import GROUP, ChainDeliver, Effect, Record, Send, ServeDelivered
from levelcast.sim.chain.plan import key_of, verifier_of
from levelcast.wire.chain_codec import epoch_bytes
from levelcast.wire.chain_messages import ChainMessage, ChainSuccession, Citation, EpochRecord, EpochVote
from levelcast.wire.messages import Message, Repair

STEP_NS = 5_000_000
BASE = ChainConfig((1, 2, 3, 4), patience_ns=200_000_000, grace_ns=20_000_000, request_ns=40_000_000)


def record(epoch: int, members: Iterable[int], outside: Iterable[int] = ()) -> EpochRecord:
    return EpochRecord(epoch, tuple(map(key_of, members)), tuple(map(key_of, outside)))


def vote(member: int, about: EpochRecord) -> EpochVote:
    return EpochVote(member, KeyedHash(member).sign(epoch_bytes(about, BASE.domain)))


def succession(about: EpochRecord, *members: int) -> ChainSuccession:
    return ChainSuccession(members[0], about.epoch - 1, about, tuple(vote(member, about) for member in members))


class EpochStage:
    """Nodes of a group; those in `absent` exist and do not run."""

    def __init__(
        self, first: EpochRecord, nodes: Iterable[int], absent: Iterable[int] = (), linger_ns: int = 10**12
    ) -> None:
        self.first, self.linger_ns = first, linger_ns
        self.now = 0
        self.images = {node: EpochsImage() for node in nodes}
        self.packets: dict[int, list[tuple[int, int, bytes]]] = {node: [] for node in nodes}
        """Per node, what its application has received: (epoch, sender, packet)."""
        self.passes: Callable[[int, int, Message], bool] = lambda sender, to, message: True
        self.log: dict[Citation, ChainMessage] = {}
        """Every message, for members that serve what they have delivered (C-9)."""
        self.sent: list[tuple[int, Message]] = []
        self._under_way: list[tuple[int, Message]] = []
        self.nodes = {node: self.make(node) for node in nodes if node not in set(absent)}

    def make(self, node: int) -> EpochMember:
        return EpochMember(
            self.first, BASE, node, KeyedHash(node), verifier_of, self.images[node], self.now, self._part,
            linger_ns=self.linger_ns,
        )  # fmt: skip

    def _part(self, epochs: EpochMember, config: ChainConfig, image: ChainImage, now: int) -> EpochMachine:
        me, verifier = epochs.me, KeyedHashVerifier(config.senders)
        if me in config.outside:
            return OutsideSender(config, me, KeyedHash(me), verifier, image, now)
        return ChainMember(
            config, me, KeyedHash(me), verifier, image, now,
            lambda after: BySlot(config, me, now, start_ns=0, slot_ns=STEP_NS, after_slot=after),
        )  # fmt: skip

    def run(self, steps: int) -> None:
        """Deliver what is under way, and step every node, this many times."""
        for _ in range(steps):
            self.now += STEP_NS
            arrived, self._under_way = self._under_way, []
            for node, machine in list(self.nodes.items()):
                self.done(node, machine.step([message for to, message in arrived if to == node], self.now))

    def give(self, node: int, *messages: Message) -> list[Effect]:
        effects = self.nodes[node].step(messages, self.now)
        self.done(node, effects)
        return effects

    def done(self, node: int, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Record):
                self.images[node].apply(effect.entry)
            elif isinstance(effect, ChainDeliver):
                epoch, row = effect.message.epoch, effect.row
                self.images[node].deliver(epoch, row)
                self.packets[node] += [(epoch, row.sender, packet) for packet in effect.packets]
            elif isinstance(effect, ServeDelivered):
                items = tuple(self.log[each] for each in effect.versions if each in self.log)
                self._under_way.append((effect.to, Repair(node, items)))
            elif isinstance(effect, Send):
                if isinstance(effect.message, ChainMessage):
                    message = effect.message
                    self.log[cite(message.header, BASE.domain, message.epoch)] = message
                self.sent.append((node, effect.message))
                to = [each for each in self.nodes if each != node] if effect.to == GROUP else [effect.to]
                self._under_way += [(each, effect.message) for each in to if self.passes(node, each, effect.message)]

"""Members of chain multicast without a network: a test decides who receives what, and when."""

from __future__ import annotations

from collections.abc import Iterable

from levelcast.byzantine.config import ChainConfig, Reading
from levelcast.byzantine.digests import Author, cite
from levelcast.byzantine.image import ChainImage
from levelcast.byzantine.multicast import ChainMulticast
from levelcast.byzantine.signatures import KeyedHash, KeyedHashVerifier
from levelcast.protocol.effects import GROUP, ChainDeliver, Effect, Record, Send
from levelcast.sim.chain.liars import Liar
from levelcast.sim.engine.network import Weather
from levelcast.sim.scenarios.chain import ChainHistory, GroupSize
from levelcast.wire.chain_codec import pack_content, unpack_content
from levelcast.wire.chain_messages import ChainContent, ChainEvidence, ChainMessage, Citation

L = 1_000
"""Time-out of C-6 and C-7 in these groups."""


class ScriptedGroup:
    """Members 1 to n; those in `liars` have a key and no protocol."""

    def __init__(
        self,
        n: int = 4,
        liars: Iterable[int] = (4,),
        reading: Reading = Reading.SETTLED,
        outside: tuple[int, ...] = (),
    ) -> None:
        members = tuple(range(1, n + 1))
        self.config = ChainConfig(members, outside, patience_ns=L, grace_ns=1, request_ns=10, reading=reading)
        self.verifier = KeyedHashVerifier(self.config.senders)
        self.now = 0
        self.images = {member: ChainImage() for member in members}
        self.delivered: dict[int, list[tuple[int, int, tuple[bytes, ...]]]] = {member: [] for member in members}
        self.evidence: list[ChainEvidence] = []
        self.members = {member: self._make(member) for member in members if member not in set(liars)}

    def _make(self, member: int) -> ChainMulticast:
        return ChainMulticast(self.config, member, KeyedHash(member), self.verifier, self.images[member], self.now)

    def restart(self, member: int) -> None:
        self.members[member] = self._make(member)

    def cite(self, message: ChainMessage) -> Citation:
        return cite(message.header, self.config.domain, self.config.epoch)

    # -- sending -------------------------------------------------------------------------------------------

    def mcast(self, member: int, *packets: bytes) -> ChainMessage:
        """C-sign and C-mcast: the message is sent, and nobody else receives it."""
        chain, effects = self.members[member], list[Effect]()
        chain.mcast(chain.sign(0, packets, self.now), self.now, effects)
        return self.done(member, effects)[-1]

    def resend(self, member: int) -> list[ChainMessage]:
        """C-6."""
        effects: list[Effect] = []
        self.members[member].resend(self.now, effects)
        return self.done(member, effects)

    def lie(self, member: int, seq: int, *packets: bytes, acks: Iterable[ChainMessage] = ()) -> ChainMessage:
        """A signed message of a liar."""
        author = Author(member, self.config.domain, self.config.epoch, KeyedHash(member))
        content = pack_content(ChainContent((0,) * len(self.config.senders), (), packets))
        return author.message(seq, 0, content, [self.cite(each) for each in acks])

    def lie_outside(
        self, sender: int, seq: int, *packets: bytes, slot: int = 0, acks: Iterable[Citation] = ()
    ) -> ChainMessage:
        """A signed message of a sender outside the group."""
        author = Author(sender, self.config.domain, self.config.epoch, KeyedHash(sender))
        return author.message(seq, slot, pack_content(ChainContent((), (), packets)), acks)

    # -- receiving -----------------------------------------------------------------------------------------

    def give(self, member: int, *messages: ChainMessage) -> None:
        for message in messages:
            chain, ref = self.members[member], self.cite(message)
            node = chain.graph.nodes.get(ref)
            if (node is None or node.message is None) and not chain.ledger.is_settled(ref):
                self.done(member, chain.receive(ref, message, unpack_content(message.content), self.now))

    def give_all(self, *messages: ChainMessage) -> None:
        for member in self.members:
            self.give(member, *messages)

    def done(self, member: int, effects: list[Effect]) -> list[ChainMessage]:
        """Do the effects; return the messages that are sent to the group."""
        sent = []
        for effect in effects:
            if isinstance(effect, Record):
                self.images[member].apply(effect.entry)
            elif isinstance(effect, ChainDeliver):
                self.images[member].delivered.append(effect.row)
                self.delivered[member].append((effect.row.sender, effect.row.seq, effect.packets))
            elif isinstance(effect, Send) and isinstance(effect.message, ChainEvidence):
                self.evidence.append(effect.message)
            elif isinstance(effect, Send) and effect.to == GROUP and isinstance(effect.message, ChainMessage):
                sent.append(effect.message)
        return sent

    def rounds(self, count: int, *, without: Iterable[int] = ()) -> int:
        """Let all members send and receive for some rounds of L/2; return the number of messages sent by C-6."""
        resent = 0
        for _ in range(count):
            self.now += L // 2
            for member in self.members:
                if member in without:
                    continue
                again = self.resend(member)
                resent += len(again)
                self.give_all(*again)
                self.give_all(self.mcast(member))
        return resent

    def payloads(self, member: int, sender: int) -> list[tuple[bytes, ...]]:
        return [packets for by, _, packets in self.delivered[member] if by == sender]

    def acks(self, message: ChainMessage) -> set[Citation]:
        return set(message.header.acks)


class CalmHistory(ChainHistory):
    START_SPREAD_NS = 0
    EXTRAS = False
    """Four members by slots of 5 ms on a network without loss; one of them has a given style."""

    def __init__(self, style: type[Liar], lasting_ns: int = 1_200_000_000) -> None:
        self.STYLES = {"given": style}  # type: ignore[misc]
        super().__init__(self.seed_by_slot(), GroupSize(4, 1))
        self.world.network.weather = Weather()
        self.world.network.delay_ns = dict.fromkeys(self.world.network.delay_ns, 3_000_000)
        self.calm, self.crash_share, self.fault_ns, self.verify_ns = True, 0.0, lasting_ns, 0

    @staticmethod
    def seed_by_slot() -> int:
        """Return a seed whose turns are slots of 5 ms."""
        for seed in range(1_000):
            history = ChainHistory(seed)
            if not history.by_turn and history.slot_ns == 5_000_000:
                return seed
        raise AssertionError("no such seed")

    def resent(self) -> int:
        """Run, and return the number of messages that C-6 sent again."""
        return self.run().resent

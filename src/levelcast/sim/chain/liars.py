"""Members that lie, up to f of them together, as classes that wrap or replace a member.

| style | behaviour |
|---|---|
| silent | sends nothing |
| two-faced | runs the honest protocol towards each part of the group, with other payloads; all two-faced members use the same parts |
| versions | signs another version of each own message for each receiver, all with the same B (MR figure 2) |
| withholding | sends each own message to one member only, and answers no request |
| late | sends everything late, sometimes after L |
| unseen | acknowledges digests that it has only seen cited, and digests of nothing |
| forger | changes contents of others' messages, signs as others, replays, sends false evidence and statements |
| thin | acknowledges almost nothing |
| mute | states that it has delivered nothing |
| flood | sends undeliverable messages: far ahead, in many versions, with unknown digests, oversized |
| boaster | states deliveries that never happened |
| hoarder | states nothing, and fills the window with large messages that can never be delivered |
"""  # noqa: E501

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import ClassVar

from levelcast.byzantine.config import ChainConfig
from levelcast.byzantine.digests import Author, cite
from levelcast.byzantine.epochs import EpochMember
from levelcast.byzantine.member import ChainMember
from levelcast.byzantine.outside import OutsideSender
from levelcast.byzantine.signatures import KeyedHash, Signer
from levelcast.protocol.effects import GROUP, Effect, Send
from levelcast.protocol.machine import Machine
from levelcast.wire.chain_codec import epoch_bytes, pack_content, unpack_content
from levelcast.wire.chain_messages import (
    ChainContent,
    ChainEvidence,
    ChainMessage,
    ChainRequest,
    ChainStatement,
    ChainSuccession,
    Citation,
    DeliveredRow,
    EpochRecord,
    EpochVote,
    PriorPlace,
)
from levelcast.wire.codec import seal_message
from levelcast.wire.messages import Message, Repair

MakeMember = Callable[[], ChainMember]


class Liar(Machine):
    """A member whose messages are changed before they are sent."""

    LISTENS = ChainMember.LISTENS

    def __init__(
        self, config: ChainConfig, me: int, make: MakeMember, rng: Random, signer: Signer | None = None
    ) -> None:
        """`signer` has the key of a real process."""
        self.config, self.me, self.rng = config, me, rng
        self.member = make()
        self.author = Author(me, config.domain, config.epoch, signer or KeyedHash(me))
        self.others = [each for each in config.members if each != me]
        self.wake_ns: int | None = self.member.wake_ns

    def submit(self, packets: Iterable[bytes]) -> None:
        self.member.submit(packets)

    def step(self, batch: Iterable[Message], now: int, *, clock_trusted: bool = True) -> list[Effect]:
        batch = list(batch)
        effects: list[Effect] = []
        for effect in self.member.step(batch, now):
            effects += self.distort(effect, now)
        effects += self.invent(batch, now)
        self.wake_ns = self.member.wake_ns
        return effects

    def distort(self, effect: Effect, now: int) -> Iterable[Effect]:
        """Return what is done instead of an effect."""
        if not isinstance(effect, Send) or not isinstance(effect.message, ChainMessage) or effect.to != GROUP:
            return (effect,)
        return self.own(effect.message, now) if effect.message.header.sender == self.me else (effect,)

    def own(self, message: ChainMessage, now: int) -> Iterable[Effect]:
        """Return what is sent instead of an own message."""
        return (Send(GROUP, message),)

    def invent(self, batch: list[Message], now: int) -> Iterable[Effect]:
        """Return what is sent besides."""
        return ()

    def signed(
        self,
        message: ChainMessage,
        *,
        packets: tuple[bytes, ...] | None = None,
        acks: Iterable[Citation] | None = None,
        delivered: tuple[int, ...] | None = None,
        seq: int | None = None,
    ) -> ChainMessage:
        """Return another version of an own message, with a valid signature."""
        content = unpack_content(message.content)
        if packets is not None:
            content = content._replace(packets=packets)
        if delivered is not None:
            content = content._replace(delivered=delivered)
        header = message.header
        chosen = header.acks if acks is None else sorted(set(acks))
        return self.author.message(seq or header.seq, header.slot, pack_content(content), chosen)


class Silent(Liar):
    def distort(self, effect: Effect, now: int) -> Iterable[Effect]:
        return () if isinstance(effect, Send) else (effect,)


class TwoFaced(Liar):
    """One honest member per part of the group, all with the same key."""

    PARTS: ClassVar[int] = 2

    def __init__(
        self, config: ChainConfig, me: int, make: MakeMember, rng: Random, signer: Signer | None = None
    ) -> None:
        super().__init__(config, me, make, rng, signer)
        self.faces = [self.member, *(make() for _ in range(self.PARTS - 1))]
        parts = self.PARTS

        def part(face: int) -> list[int]:
            return [each for index, each in enumerate(sorted(config.members)) if index % parts == face and each != me]

        self.sees = [part(face) for face in range(parts)]

    def submit(self, packets: Iterable[bytes]) -> None:
        packets = list(packets)
        for number, face in enumerate(self.faces):
            face.submit([b"face %d " % number + packet for packet in packets])

    def step(self, batch: Iterable[Message], now: int, *, clock_trusted: bool = True) -> list[Effect]:
        batch = list(batch)
        effects: list[Effect] = []
        for number, (face, sees) in enumerate(zip(self.faces, self.sees, strict=True)):
            if number and self.rng.random() < 0.3:
                face.submit([b"face %d alone" % number])
            for effect in face.step(batch, now):
                if isinstance(effect, Send) and effect.to == GROUP:
                    effects += [Send(to, effect.message) for to in sees]
                elif not isinstance(effect, Send) or effect.to in sees:
                    effects.append(effect)
        self.wake_ns = min((face.wake_ns for face in self.faces if face.wake_ns is not None), default=None)
        return effects


class ThreeFaced(TwoFaced):
    PARTS: ClassVar[int] = 3


class Versions(Liar):
    def own(self, message: ChainMessage, now: int) -> Iterable[Effect]:
        for number, to in enumerate(self.others):
            yield Send(to, self.signed(message, packets=(b"version %d" % (number % 3),)))


class Withholding(Liar):
    def own(self, message: ChainMessage, now: int) -> Iterable[Effect]:
        return (Send(self.rng.choice(self.others), message),)

    def distort(self, effect: Effect, now: int) -> Iterable[Effect]:
        if isinstance(effect, Send) and isinstance(effect.message, Repair | ChainStatement):
            return ()
        return super().distort(effect, now)


class Late(Liar):
    def __init__(
        self, config: ChainConfig, me: int, make: MakeMember, rng: Random, signer: Signer | None = None
    ) -> None:
        super().__init__(config, me, make, rng, signer)
        self._held: list[tuple[int, int, Effect]] = []
        self._number = 0

    def distort(self, effect: Effect, now: int) -> Iterable[Effect]:
        if not isinstance(effect, Send):
            return (effect,)
        self._number += 1
        late_ns = int(self.config.patience_ns * self.rng.choice((0.2, 0.5, 1.0, 1.5)))
        heapq.heappush(self._held, (now + late_ns, self._number, effect))
        return ()

    def step(self, batch: Iterable[Message], now: int, *, clock_trusted: bool = True) -> list[Effect]:
        effects = super().step(batch, now)
        while self._held and self._held[0][0] <= now:
            effects.append(heapq.heappop(self._held)[2])
        if self._held:
            self.wake_ns = min(self._held[0][0], self.wake_ns or self._held[0][0])
        return effects


class Unseen(Liar):
    def own(self, message: ChainMessage, now: int) -> Iterable[Effect]:
        rng = self.rng
        extra = [
            Citation(rng.choice(self.others), self._next_seq(), rng.randbytes(32)) for _ in range(rng.randint(0, 2))
        ]
        unknown = list(self.member.chain.graph.unknown)
        extra += rng.sample(unknown, min(len(unknown), 2))
        shadows = [node.ref for node in self.member.chain.graph.nodes.values() if node.message and not node.direct]
        extra += rng.sample(shadows, min(len(shadows), 2))
        return (Send(GROUP, self.signed(message, acks=[*message.header.acks, *extra])),)

    def _next_seq(self) -> int:
        return max(self.member.chain.ledger.vector) + self.rng.randint(1, 3)


class Forger(Liar):
    def __init__(
        self, config: ChainConfig, me: int, make: MakeMember, rng: Random, signer: Signer | None = None
    ) -> None:
        super().__init__(config, me, make, rng, signer)
        self._seen: list[ChainMessage] = []

    def invent(self, batch: list[Message], now: int) -> Iterable[Effect]:
        self._seen += [each for each in batch if isinstance(each, ChainMessage)][:4]
        del self._seen[:-40]
        if not self._seen or self.rng.random() > 0.3:
            return ()
        message = self.rng.choice(self._seen)
        return (Send(self.rng.choice((GROUP, *self.others)), self.rng.choice(FORGERIES)(self, message)),)


def _other_content(liar: Liar, message: ChainMessage) -> Message:
    content = pack_content(unpack_content(message.content)._replace(packets=(b"forged",)))
    return Repair(liar.me, (_sealed(liar, message._replace(content=content)),))


def _signed_as_other(liar: Liar, message: ChainMessage) -> Message:
    victim = message.header.sender
    forged = Author(victim, liar.config.domain, liar.config.epoch, KeyedHash(liar.me))
    return Repair(liar.me, (forged.message(message.header.seq + 1, message.header.slot, message.content, ()),))


def _replayed(liar: Liar, message: ChainMessage) -> Message:
    return message if message.header.sender == liar.me else Repair(liar.me, (message,))


def _other_epoch(liar: Liar, message: ChainMessage) -> Message:
    return Repair(liar.me, (_sealed(liar, message._replace(epoch=message.epoch + 1)),))


def _false_evidence(liar: Liar, message: ChainMessage) -> Message:
    other = message.header._replace(content_digest=liar.rng.randbytes(32))
    return ChainEvidence(liar.me, liar.config.epoch, message.header, liar.rng.choice((other, message.header)))


def _false_statement(liar: Liar, message: ChainMessage) -> Message:
    return false_statement(liar)


def _sealed(liar: Liar, message: ChainMessage) -> ChainMessage:
    return seal_message(message._replace(sealed=b""), liar.config.domain)


def false_statement(liar: Liar) -> ChainStatement:
    """Return a statement about deliveries that never happened."""
    vector = liar.member.chain.ledger.vector
    rows = [
        DeliveredRow(member, count + 1, liar.rng.randbytes(32), liar.rng.randbytes(32))
        for member, count in zip(liar.config.senders, vector, strict=True)
    ]
    return liar.author.statement(rows)


FORGERIES = (_other_content, _signed_as_other, _replayed, _other_epoch, _false_evidence, _false_statement)


class Thin(Liar):
    def own(self, message: ChainMessage, now: int) -> Iterable[Effect]:
        acks = message.header.acks
        return (Send(GROUP, self.signed(message, acks=self.rng.sample(acks, min(len(acks), 1)))),)


class Mute(Liar):
    def own(self, message: ChainMessage, now: int) -> Iterable[Effect]:
        return (Send(GROUP, self.signed(message, delivered=(0,) * len(self.config.senders))),)


class Flood(Liar):
    EXTRA: ClassVar[int] = 3

    def own(self, message: ChainMessage, now: int) -> Iterable[Effect]:
        rng = self.rng
        yield Send(GROUP, message)
        for _ in range(self.EXTRA):
            seq = message.header.seq + rng.randint(0, self.config.window + 5)
            acks = [Citation(rng.choice(self.others), rng.randint(1, seq), rng.randbytes(32)) for _ in range(3)]
            packets = (rng.randbytes(rng.choice((10, 1_000, 20_000))),)
            yield Send(rng.choice((GROUP, *self.others)), self.signed(message, packets=packets, acks=acks, seq=seq))


class Hoarder(Liar):
    """States nothing, and sends as much as may be: every number of the window but the next one, in full size.

    Each cites other versions of its own numbers, which it sends to whoever asks: `Flood` is convicted, this is not.
    """

    CITED: ClassVar[int] = 40
    BYTES: ClassVar[int] = 40_000

    def own(self, message: ChainMessage, now: int) -> Iterable[Effect]:
        rng = self.rng
        first = self.member.chain.ledger.count(self.me) + 2
        yield Send(GROUP, self.signed(message, delivered=(0,) * len(self.config.senders)))
        seq = first + rng.randint(self.config.window // 2, self.config.window - 2)
        cited = [Citation(self.me, rng.randint(first, seq), rng.randbytes(32)) for _ in range(self.CITED)]
        packets = (rng.randbytes(self.BYTES),)
        yield Send(GROUP, self.signed(message, packets=packets, acks=cited, seq=seq))


class Boaster(Liar):
    """States deliveries that never happened, in vectors and in statements; answers requests with false statements."""

    def own(self, message: ChainMessage, now: int) -> Iterable[Effect]:
        vector = unpack_content(message.content).delivered
        higher = tuple(count + self.rng.randint(0, 5) for count in vector)
        return (Send(GROUP, self.signed(message, delivered=higher)),)

    def invent(self, batch: list[Message], now: int) -> Iterable[Effect]:
        return [
            Send(each.sender, self._invented(each)) for each in batch if isinstance(each, ChainRequest) and each.pull
        ]

    def _invented(self, request: ChainRequest) -> Message:
        """Return a statement about an own version of what the other member lacks, and send that version before."""
        if self.rng.random() < 0.5 or len(request.delivered) != len(self.config.senders):
            return false_statement(self)
        index = self.config.senders.index(self.me)
        content = pack_content(unpack_content(self._content())._replace(packets=(b"invented",)))
        message = self.author.message(request.delivered[index] + 1, 0, content, ())
        ref = cite(message.header, self.config.domain, self.config.epoch)
        row = DeliveredRow(*ref, message.header.content_digest)
        return self.rng.choice((self.author.statement([row]), Repair(self.me, (message,))))

    def _content(self) -> bytes:
        return pack_content(ChainContent(self.member.chain.ledger.vector, (), ()))


class ForkingMember(EpochMember):
    """Votes for every record that it sees, and for one of its own, each towards a part of the group (rule E-2)."""

    def propose(self, record: EpochRecord) -> bool:
        if not super().propose(record):
            return False
        other = record._replace(members=record.members[1:] + record.members[:1])
        for number, each in enumerate(self.records[self.epoch].members):
            if number % 2 and each.node != self.me:
                vote = EpochVote(self.me, self._signer.sign(epoch_bytes(other, self._base.domain)))
                self._outbox.append(Send(each.node, ChainSuccession(self.me, self.epoch, other, (vote,))))
        return True


class OutsideLiar(Machine):
    """A sender outside the group that lies: two versions, one member only, a gap, acknowledgements, no such prior."""

    LISTENS = OutsideSender.LISTENS

    def __init__(self, config: ChainConfig, sender: OutsideSender, rng: Random) -> None:
        self.config, self.member, self.rng = config, sender, rng
        self._author = Author(sender.me, config.domain, config.epoch, KeyedHash(sender.me))
        self._lie = rng.choice((self._two_versions, self._to_one, self._gap, self._cites, self._names_nothing))
        self.wake_ns: int | None = sender.wake_ns

    def submit(self, packets: Iterable[bytes]) -> None:
        self.member.submit(packets)

    def step(self, batch: Iterable[Message], now: int, *, clock_trusted: bool = True) -> list[Effect]:
        effects: list[Effect] = []
        for effect in self.member.step(batch, now):
            if isinstance(effect, Send) and isinstance(effect.message, ChainMessage):
                effects += self._lie(effect.message)
            else:
                effects.append(effect)
        self.wake_ns = self.member.wake_ns
        return effects

    def _two_versions(self, message: ChainMessage) -> Iterable[Effect]:
        other = pack_content(unpack_content(message.content)._replace(packets=(b"another",)))
        second = self._author.message(message.header.seq, 0, other, ())
        for number, member in enumerate(self.config.members):
            yield Send(member, second if number % 2 else message)

    def _to_one(self, message: ChainMessage) -> Iterable[Effect]:
        yield Send(self.rng.choice(self.config.members), message)

    def _gap(self, message: ChainMessage) -> Iterable[Effect]:
        if message.header.seq != 2:
            yield Send(GROUP, message)

    def _cites(self, message: ChainMessage) -> Iterable[Effect]:
        yield Send(GROUP, message)
        cited = [Citation(self.rng.choice(self.config.members), self.rng.randint(1, 9), self.rng.randbytes(32))]
        yield Send(GROUP, self._author.message(message.header.seq + 1, 0, message.content, cited))

    def _names_nothing(self, message: ChainMessage) -> Iterable[Effect]:
        """Name a message of the epoch before that does not exist."""
        content = unpack_content(message.content)
        prior = PriorPlace(max(1, self.config.epoch - 1), 1_000_000)
        false = pack_content(content._replace(prior=prior, proofs=()))
        yield Send(GROUP, self._author.message(message.header.seq, 0, false, ()))


STYLES: Mapping[str, type[Liar]] = {
    "silent": Silent,
    "two-faced": TwoFaced,
    "three-faced": ThreeFaced,
    "versions": Versions,
    "withholding": Withholding,
    "late": Late,
    "unseen": Unseen,
    "forger": Forger,
    "thin": Thin,
    "mute": Mute,
    "flood": Flood,
    "boaster": Boaster,
    "hoarder": Hoarder,
}

"""Chain multicast (MR §4.2, §4.3): rules C-1 to C-7. Each has one function or class, which names it.

| rule | where | deviation from MR, reason, history in `tests/test_byzantine_histories.py` |
|---|---|---|
| C-1 | `ChainMulticast.sign` | fixes number, slot, payload and B and signs them together; MR signs B alone, so whoever relays a message can change its payload (B4) |
| C-2 | `ChainMulticast.mcast` | own header and acknowledged messages are journaled first (J1) |
| C-3.1 | `ChainMulticast.receive` | the first version is direct whoever brings it; a liar could send to one member only, which then waits for C-6 each time (B4). A conflicting version is a shadow, and evidence (C-8, `conviction.py`) |
| C-3.2, C-3.3 | `graph.py`, `fetch.py` | cited messages are fetched until they come (B9) |
| C-3.4 | `ChainMulticast.acknowledgements` | (iii) with M̂ for MR's M, as its example shows. Nothing stale or of a convicted sender is acknowledged (B3), and nothing after a gap (B14) |
| C-4.1 | `ChainMulticast.advance` | a candidate acknowledges only *settled* messages (`graph.py`: B1, B2) |
| C-4.2 | `fetch.py` | members that lack a message request it, instead of everybody sending it after a time-out |
| C-5 | `member.py` | |
| C-6 | `ChainMulticast.resend` | always without acknowledgements. MR sends what κ holds, which may have been prepared for the next turn: not a candidate, and two versions with B (B7) |
| C-7 | `ChainMulticast.overdue` | with the next own message; MR's extra message each makes n messages that are undelivered in turn |
| C-8, C-9, C-10 | `conviction.py`, `catchup.py`, `ledger.py` and `ChainMulticast.collect` | not in MR |
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from levelcast.byzantine.config import ChainConfig, Reading
from levelcast.byzantine.conviction import Convictions
from levelcast.byzantine.digests import Author, cite, conflict
from levelcast.byzantine.graph import Graph, VersionNode
from levelcast.byzantine.image import ChainImage
from levelcast.byzantine.ledger import ChainLedger
from levelcast.byzantine.signatures import Signer, Verifier
from levelcast.protocol.effects import GROUP, ChainDeliver, ChainDirect, Effect, Record, Send
from levelcast.wire.chain_codec import MAX_ACKS, pack_content, unpack_content
from levelcast.wire.chain_messages import ChainContent, ChainMessage, Citation, DeliveredRow, PriorPlace


class Prepared(NamedTuple):
    """κ: a signed message that has not been sent (C-1)."""

    message: ChainMessage
    content: ChainContent
    ready_ns: int
    """Time at which the signature is complete."""


class Opening(NamedTuple):
    """Prior message that the first message of a sender in an epoch names (rule E-4 in `epochs.py`)."""

    prior: PriorPlace = PriorPlace()
    proofs: tuple[bytes, ...] = ()


class EpochRules(Protocol):
    """Rules about the first message of an epoch, which need the epochs before (`levelcast.byzantine.epochs`)."""

    def opening(self, epoch: int) -> Opening | None:
        """Return what the first own message names, None if that is not proved yet."""

    def is_proved(self, sender: int, prior: PriorPlace, proofs: tuple[bytes, ...]) -> bool:
        """Return whether the proofs show that what a first message names is delivered."""

    def is_after(self, sender: int, prior: PriorPlace) -> bool:
        """Return whether what a first message names is delivered here."""


class OnlyEpoch:
    """The rules of a group that has no other epochs."""

    def opening(self, epoch: int) -> Opening | None:
        return Opening()

    def is_proved(self, sender: int, prior: PriorPlace, proofs: tuple[bytes, ...]) -> bool:
        return prior == PriorPlace() and not proofs

    def is_after(self, sender: int, prior: PriorPlace) -> bool:
        return True


@dataclass(slots=True)
class Counts:
    """Counts of rare actions."""

    sent: int = 0
    delivered: int = 0
    resent: int = 0
    """By C-6."""
    acknowledged_late: int = 0
    """By C-7."""
    fetched: int = 0
    """Messages that were requested before they arrived."""
    caught_up: int = 0
    """Delivered by C-9."""
    shadows: int = 0
    """Conflicting versions received."""


@dataclass(slots=True)
class Own:
    """An own message that is not delivered."""

    node: VersionNode
    message: ChainMessage
    sent_ns: int
    resent: bool = False
    versions: list[ChainMessage] = field(default_factory=list)


class ChainMulticast:
    """The state of chain multicast at one member."""

    def __init__(
        self, config: ChainConfig, me: int, signer: Signer, verifier: Verifier, image: ChainImage, now: int
    ) -> None:
        self.config, self.me = config, me
        self.ledger = ChainLedger(config.senders)
        self.graph = Graph(config, self.ledger)
        self.convictions = Convictions(config, me, verifier)
        self.author = Author(me, config.domain, config.epoch, signer)
        self.counts = Counts()
        self.epochs: EpochRules = OnlyEpoch()
        self.claims: dict[int, tuple[int, ...]] = {}
        """Per member, the highest vector {c_i} that it has stated."""
        self.highest = (0,) * len(config.senders)
        """The elementwise maximum of all these vectors."""
        self.own: dict[int, Own] = {}
        self.seq = 0
        """Number of the last own message."""
        self.open: dict[Citation, VersionNode] = {}
        """Direct versions that are not delivered."""
        self.stated: dict[tuple[int, int], bytes] = {}
        """D(m) of messages that f + 1 members state as delivered and that are not delivered here (C-9)."""
        self._acknowledged: set[Citation] = set()
        """Undelivered messages in the B of an own message."""
        self._journaled: set[Citation] = set()
        self._restore(image, now)

    def _restore(self, image: ChainImage, now: int) -> None:
        self.ledger.restore(image.delivered, [*image.delivered, *image.settled])
        self.seq = self.ledger.count(self.me)
        for message in image.direct:
            ref = cite(message.header, self.config.domain, self.config.epoch)
            self._journaled.add(ref)
            if self.ledger.is_settled(ref):
                continue
            node = self._insert(ref, message, now, self._clash(message))
            if ref.sender == self.me:
                self._note_own(node, message, now)
        self.counts = Counts()

    # -- C-1 and C-2: signing and sending ------------------------------------------------------------------

    def may_send(self, now: int) -> bool:
        """Return whether a new message fits the window of the others.

        The first half of the window is free. The second half is for messages that C-7 needs: a group that was cut off
        has used its free numbers, and only new acknowledgements deliver what waits. While nothing is delivered, C-7
        needs two messages of each sender at most, and the half has `2n`.
        """
        undelivered = self.seq - self.ledger.count(self.me)
        if undelivered < self.config.free:
            return True
        return undelivered < self.config.window and any(self.is_next(ref) for ref in self.overdue(now))

    def is_next(self, ref: Citation) -> bool:
        """Return whether a version is of the next message to deliver from its sender."""
        return ref.seq == self.ledger.count(ref.sender) + 1

    def sign(self, slot: int, packets: tuple[bytes, ...], now: int, opening: Opening | None = None) -> Prepared:
        """C-1: close the batch; number, slot, payload and B are fixed and signed together."""
        first = opening or Opening()
        content = ChainContent(self.ledger.vector, self.convictions.members, packets, *first)
        overdue = self.overdue(now)
        acks = dict.fromkeys([*overdue, *self.acknowledgements()])
        self.counts.acknowledged_late += len(overdue)
        message = self.author.message(self.seq + 1, slot, pack_content(content), list(acks)[:MAX_ACKS])
        return Prepared(message, content, now + self.config.sign_ns)

    def mcast(self, prepared: Prepared, now: int, effects: list[Effect]) -> None:
        """C-2: journal the message and what it acknowledges, and send it to all."""
        message = prepared.message
        self.seq = message.header.seq
        self._journal_acknowledged(message, effects)
        self._acknowledged.update(message.header.acks)
        self._send_own(message, prepared.content, now, effects)
        self.counts.sent += 1

    def _journal_acknowledged(self, message: ChainMessage, effects: list[Effect]) -> None:
        for ack in message.header.acks:
            node = self.graph.nodes.get(ack)
            if node is None:
                continue
            for each in self.graph.below(node, lambda child: child.ref not in self._journaled):
                if each.message is not None and each.direct and each.ref not in self._journaled:
                    self._journaled.add(each.ref)
                    effects.append(Record(ChainDirect(each.message)))

    def _send_own(self, message: ChainMessage, content: ChainContent | None, now: int, effects: list[Effect]) -> None:
        ref = cite(message.header, self.config.domain, self.config.epoch)
        self._journaled.add(ref)
        effects += [Record(ChainDirect(message)), Send(GROUP, message)]
        node = self._insert(ref, message, now, self._clash(message))
        node.content = content
        self._note_own(node, message, now)
        self.advance(effects)

    def _note_own(self, node: VersionNode, message: ChainMessage, now: int) -> None:
        seq = message.header.seq
        self.seq = max(self.seq, seq)
        if seq <= self.ledger.count(self.me):
            return
        known = self.own.get(seq)
        if known is None:
            self.own[seq] = Own(node, message, now, versions=[message])
        else:
            known.resent = True
            known.versions.append(message)

    # -- C-3: receiving and acknowledging ------------------------------------------------------------------

    def receive(
        self, ref: Citation, message: ChainMessage, content: ChainContent, now: int, *, pulled: bool = False
    ) -> list[Effect]:
        """C-3: accept a message whose signature holds, whoever has brought it; `pulled`: as part of chains (C-4.2)."""
        effects: list[Effect] = []
        if ref.sender in self.config.members:
            self._note_claim(ref.sender, content)
        node = self.graph.nodes.get(ref)
        wanted = (node is not None and not node.unwanted) or self.is_stated(message)
        clash = self._clash(message)
        if clash is not None:
            self.counts.shadows += 1
            self.convictions.convict(clash.header, message.header, effects)
        if clash is None or keeps_shadow(wanted or pulled):
            self.counts.fetched += wanted
            self._insert(ref, message, now, clash).content = content
        self.advance(effects)
        return effects

    def is_stated(self, message: ChainMessage) -> bool:
        """Return whether f + 1 members state that they have delivered this payload (C-9)."""
        header = message.header
        return self.stated.get((header.sender, header.seq)) == header.content_digest

    def _note_claim(self, member: int, content: ChainContent) -> None:
        self.highest = tuple(map(max, self.highest, content.delivered))
        known = self.claims.get(member)
        self.claims[member] = content.delivered if known is None else tuple(map(max, known, content.delivered))
        self.convictions.note_named(content.convicted, member)

    def _clash(self, message: ChainMessage) -> ChainMessage | None:
        """Return a direct version that conflicts with a message."""
        header = message.header
        for node in self.graph.places.get((header.sender, header.seq), ()):
            if node.direct and node.message is not None and conflict(node.message.header, header):
                return node.message
        return None

    def _insert(self, ref: Citation, message: ChainMessage, now: int, clash: ChainMessage | None) -> VersionNode:
        direct = ref.seq > self.ledger.count(ref.sender) and becomes_direct(clash)
        node = self.graph.insert(ref, message, direct=direct, now=now)
        if direct:
            self.open[ref] = node
        return node

    def acknowledgements(self) -> list[Citation]:
        """C-3.4: return B, the digests of M̂ with (i) M̂ direct and undelivered, (ii) everything reachable from it
        acknowledgeable, (iii) no M″ with (i) and (ii) that acknowledges it."""
        good: dict[Citation, VersionNode] = {}
        bad: set[Citation] = set()
        for ref, node in self.open.items():
            reach = list(self.graph.below(node, lambda child: child.ref not in good))
            if all(each.ref not in bad and self.may_acknowledge(each) for each in reach):
                good[ref] = node
            else:
                bad.add(ref)
        covered = {child.ref for node in good.values() for child in node.children}
        return [ref for ref in good if ref not in covered]

    def may_acknowledge(self, node: VersionNode) -> bool:
        """Return whether a version is delivered, or direct and not stale or of a convicted member (C-3.4 ii)."""
        if self.graph.is_delivered(node):
            return True
        return is_direct(node) and not is_stale(node) and not self.is_convicted(node) and self.follows(node)

    def follows(self, node: VersionNode) -> bool:
        """Return whether all messages of its sender before a version are delivered or direct (not in MR).

        A liar that leaves out a number could else make every message of the others wait for C-6 (history B14).
        """
        sender, seq, _ = node.ref
        before = range(self.ledger.counts[sender] + 1, seq)
        return not before or all(
            any(each.direct for each in self.graph.versions((sender, number))) for number in before
        )

    def is_convicted(self, node: VersionNode) -> bool:
        """Return whether C-8 forbids to acknowledge a version."""
        return node.ref.sender in self.convictions

    # -- C-4.1: delivery -----------------------------------------------------------------------------------

    def advance(self, effects: list[Effect]) -> None:
        """C-4.1: deliver every candidate that has a delivering set and the next number of its sender."""
        graph, counts, progress = self.graph, self.ledger.counts, True
        while progress:
            progress = False
            for sender, count in counts.items():
                for node in graph.places.get((sender, count + 1), ()):
                    if not graph.is_candidate(node):
                        continue
                    if graph.has_delivering_set(node) and self.is_after(node):
                        self.deliver(node, effects)
                        progress = True
                        break

    def is_after(self, node: VersionNode) -> bool:
        """E-5: return whether a first message of an epoch comes after the one of an epoch before that it names."""
        if node.ref.seq != 1 or node.message is None:
            return True
        return self.epochs.is_after(node.ref.sender, unpack_content(node.message.content).prior)

    def deliver(self, node: VersionNode, effects: list[Effect], stated: DeliveredRow | None = None) -> None:
        """Deliver a version, C-deliver in MR; `stated` is the delivery that f + 1 members have stated (C-9)."""
        message = node.message
        if message is None:
            return
        row = stated or DeliveredRow(*node.ref, message.header.content_digest)
        self.ledger.deliver(row)
        content = node.content or unpack_content(message.content)
        effects.append(ChainDeliver(message, row, content.packets, stated is not None))
        self.counts.delivered += 1
        if node.ref.sender == self.me:
            self.own.pop(node.ref.seq, None)
        for version in self.graph.versions((row.sender, row.seq)):
            if self.open.pop(version.ref, None) is not None:
                self._acknowledged.discard(version.ref)
        self.graph.delivered(node)

    def not_journaled(self, rows: Iterable[DeliveredRow]) -> tuple[ChainMessage, ...]:
        """Return the versions of these rows that are held and not in the journal; they are from now on."""
        nodes = [self.graph.nodes.get(Citation(*row[:3])) for row in rows]
        found = [node for node in nodes if node is not None and node.ref not in self._journaled]
        self._journaled.update(node.ref for node in found)
        return tuple(node.message for node in found if node.message is not None)

    # -- C-6 and C-7: messages that wait -------------------------------------------------------------------

    def resend(self, now: int, effects: list[Effect]) -> None:
        """C-6: send own messages that are not candidates once more, without acknowledgements.

        At once if one waits for a convicted member, else after L. What it waited for is stale for as long as it is
        undelivered.
        """
        for own in list(self.own.values()):
            if own.resent or not own.node.waiting:
                continue
            if now - own.sent_ns >= self.config.patience_ns or self._waits_for_convicted(own.node):
                for blocking in list(self.graph.lowest_blocking(own.node)):
                    blocking.stale = True
                header = own.message.header
                again = self.author.message(header.seq, header.slot, own.message.content, self.acks_of_resent())
                self.counts.resent += 1
                self._send_own(again, None, now, effects)

    def acks_of_resent(self) -> list[Citation]:
        """Return B = ⊥, whatever κ holds (C-6)."""
        return []

    def _waits_for_convicted(self, node: VersionNode) -> bool:
        if not self.convictions.proofs:
            return False
        below = self.graph.below(node)
        return any(self.is_convicted(each) and not self.graph.is_delivered(each) for each in below)

    def overdue(self, now: int) -> list[Citation]:
        """C-7: return direct candidates that are not delivered for L and were never acknowledged directly."""
        latest = now - self.config.patience_ns
        return [
            ref
            for ref, node in self.open.items()
            if node.since_ns <= latest
            and not node.waiting
            and ref not in self._acknowledged
            and not self.is_convicted(node)
            and self.follows(node)
        ]

    # -- C-10: garbage -------------------------------------------------------------------------------------

    def collect(self) -> None:
        """C-10: drop what is delivered here and, as they state, at Q members, once nothing below it is needed.

        A version may be the top of a chain that others need for something below it, so it stays as long as that does
        (MR §4.3 ii). Of versions that are delivered but will never be settled, the last W of each member stay.
        """
        if self.config.reading is not Reading.SETTLED:
            return
        senders, nodes = self.config.senders, self.graph.nodes
        floors = {each: min(self.stable(at), self.ledger.count(each)) for at, each in enumerate(senders)}
        left: dict[int, list[VersionNode]] = {sender: [] for sender in senders}
        for node in sorted(nodes.values(), key=lambda each: each.order):
            sender, seq, _ = node.ref
            if node.message is None or seq > floors[sender]:
                continue
            if not node.done:
                left[sender].append(node)
            elif not any(child.ref in nodes for child in node.children):
                self.graph.drop(node)
        for unsettled in left.values():
            for node in unsettled[: -self.config.window]:
                self.graph.drop(node)

    def stable(self, index: int) -> int:
        """Return the number up to which Q members state that they have delivered a sender's messages."""
        stated = [self.ledger.count(self.config.senders[index])]
        stated += [claim[index] for member, claim in self.claims.items() if member != self.me]
        stated += [0] * (self.config.n - len(stated))
        return sorted(stated, reverse=True)[self.config.quorum - 1]


def is_direct(node: VersionNode) -> bool:
    """Return whether a version is direct: not a shadow."""
    return node.direct


def is_stale(node: VersionNode) -> bool:
    """Return whether an own message waited for this version in vain until C-6."""
    return node.stale


def becomes_direct(clash: ChainMessage | None) -> bool:
    """C-3.1: return whether a message becomes direct, given a direct version that conflicts with it."""
    return clash is None


def keeps_shadow(wanted: bool) -> bool:
    """Return whether a conflicting version is kept: if somebody cites it, because chains need it (C-3.1)."""
    return wanted

"""A member of a group: chain multicast with turns, as a protocol class without I/O (MR §4, §5).

A driver may verify signatures of what `screen` lets pass before it delivers a message, on other threads, with the same
`RecentVerifier`; the step then finds the result.

C-5: every own slot has a message, empty if the queue is (MR: after a time-out). A member whose window is full sends its
last message again instead.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import ClassVar

from levelcast.byzantine.catchup import StatedDeliveries
from levelcast.byzantine.config import ChainConfig
from levelcast.byzantine.digests import digest, statement_holds
from levelcast.byzantine.fetch import Fetcher
from levelcast.byzantine.graph import VersionNode
from levelcast.byzantine.image import ChainImage
from levelcast.byzantine.multicast import ChainMulticast, EpochRules, Opening, Prepared
from levelcast.byzantine.packets import MAX_QUEUED, dequeue
from levelcast.byzantine.refusal import ChainRefusal
from levelcast.byzantine.rest import EpochRest
from levelcast.byzantine.signatures import Signer, Verifier
from levelcast.byzantine.turns import SendingTurns
from levelcast.protocol.effects import GROUP, ChainDeliver, ChainSettled, Effect, Record, Send
from levelcast.protocol.machine import Machine
from levelcast.wire.chain_codec import signed_bytes, unpack_content
from levelcast.wire.chain_messages import (
    ChainContent,
    ChainEvidence,
    ChainHeader,
    ChainMessage,
    ChainRequest,
    ChainStatement,
    Citation,
    PriorPlace,
)
from levelcast.wire.header import Malformed
from levelcast.wire.messages import Message, Repair


class ChainMember(Machine):
    """One member of a group."""

    LISTENS: ClassVar[frozenset[type]] = frozenset({ChainMessage, ChainRequest, ChainEvidence, ChainStatement, Repair})

    def __init__(
        self,
        config: ChainConfig,
        me: int,
        signer: Signer,
        verifier: Verifier,
        image: ChainImage,
        now: int,
        make_turns: Callable[[int], SendingTurns],
    ) -> None:
        """`make_turns` gets the number of the last own slot."""
        self.config = config
        self.me = me
        self.chain = ChainMulticast(config, me, signer, verifier, image, now)
        self.refused: Counter[ChainRefusal] = Counter()
        last_slot = max((m.header.slot for m in image.direct if m.header.sender == me), default=0)
        self.turns = make_turns(last_slot)
        self._verifier = verifier
        self._fetcher = Fetcher(self.chain)
        self._catch_up = StatedDeliveries(self.chain)
        self._queue: deque[bytes] = deque()
        self._prepared: Prepared | None = None
        self._again = 0
        self._signed: tuple[ChainHeader, bytes, Citation] | None = None
        self._rest = EpochRest(self.chain)
        self._answered: dict[int, int] = {}
        self.wake_ns: int | None = now

    # -- the application -----------------------------------------------------------------------------------

    @property
    def room(self) -> int:
        """Number of packets that the queue accepts."""
        return MAX_QUEUED - len(self._queue)

    def submit(self, packets: Iterable[bytes]) -> None:
        """Queue packets (MR §5 rule 1: R-mcast). The caller checks `room` first."""
        self._queue.extend(packets)

    # -- epochs --------------------------------------------------------------------------------------------

    @property
    def member(self) -> ChainMember:
        """This member: a liar of a simulation has one."""
        return self

    def follow(self, epochs: EpochRules) -> None:
        """Use rules about first messages of an epoch that know the epochs before."""
        self.chain.epochs = epochs

    def close(self, now: int) -> int:
        """Put no more packets into this epoch; return the number up to which own messages have packets (E-4)."""
        last = self.chain.seq + (self._prepared is not None)
        self._rest.close(now, last)
        return last

    def take_queue(self) -> list[bytes]:
        """Remove and return the packets that are in no message."""
        queue = list(self._queue)
        self._queue.clear()
        return queue

    def proofs(self, last: int, max_bytes: int) -> tuple[bytes, ...]:
        """Return messages of f + 1 members that state the delivery of an own message, none if there are too few."""
        return self._rest.proofs(last, max_bytes)

    def has_rested(self, now: int, linger_ns: int) -> bool:
        """E-6: return whether Q members have stated for `linger_ns` what is delivered here."""
        return self._rest.has_rested(now, linger_ns)

    @property
    def seq(self) -> int:
        """Number of the last own message."""
        return self.chain.seq

    def count(self, sender: int) -> int:
        """Return the number of messages delivered from a sender."""
        return self.chain.ledger.count(sender)

    @property
    def vector(self) -> tuple[int, ...]:
        return self.chain.ledger.vector

    # -- steps ---------------------------------------------------------------------------------------------

    def step(self, batch: Iterable[Message], now: int, *, clock_trusted: bool = True) -> list[Effect]:
        effects: list[Effect] = []
        for message in batch:
            self._on_message(message, now, effects)
        self.turns.tick(now)
        self.chain.resend(now, effects)
        self._take_turns(now, effects)
        effects += self._fetcher.requests(now)
        self._catch_up.advance(now, effects)
        self._settled(effects)
        self._rest.note(effects, now)
        self._schedule(now)
        return effects

    def _on_message(self, message: Message, now: int, effects: list[Effect]) -> None:
        if isinstance(message, ChainMessage):
            self._on_chain(message, now, effects)
        elif isinstance(message, Repair):
            for item in message.items:
                if isinstance(item, ChainMessage):
                    self._on_chain(item, now, effects, message.sender)
        elif isinstance(message, ChainRequest):
            self._on_request(message, now, effects)
        elif isinstance(message, ChainEvidence):
            self._on_evidence(message, effects)
        elif isinstance(message, ChainStatement):
            self._on_statement(message, now, effects)

    # -- messages ------------------------------------------------------------------------------------------

    def signed(self, header: ChainHeader) -> tuple[bytes, Citation]:
        """Return what the signature of a header covers, and its citation; the last one is remembered."""
        known = self._signed
        if known is None or known[0] is not header:
            content = signed_bytes(header, self.config.domain, self.config.epoch)
            known = self._signed = header, content, Citation(header.sender, header.seq, digest(content))
        return known[1:]

    def screen(self, message: ChainMessage) -> ChainRefusal | None:
        """Return why a message needs no verification, the cheapest reasons first; None if it does."""
        header, config, chain = message.header, self.config, self.chain
        if message.epoch != config.epoch:
            return ChainRefusal.EPOCH
        if header.sender in config.outside:
            if not is_from_outside(header):
                return ChainRefusal.OUTSIDE
        elif header.sender not in config.members:
            return ChainRefusal.STRANGER
        elif header.slot and (header.slot - 1) % config.n != config.index(header.sender):
            return ChainRefusal.SLOT
        counts = chain.ledger.counts
        for ack in header.acks:
            if ack.sender not in counts:
                return ChainRefusal.STRANGER
        if header.seq > counts[header.sender] + config.window:
            return ChainRefusal.AHEAD
        _, ref = self.signed(header)
        node = chain.graph.nodes.get(ref)
        if (node is not None and node.message is not None) or chain.ledger.is_settled(ref):
            return ChainRefusal.KNOWN
        if not is_looked_at(node):
            if header.sender == self.me:
                return ChainRefusal.OWN
            old = header.seq <= chain.ledger.count(header.sender)
            lied = header.sender in chain.convictions and self._has_version(header.sender, header.seq)
            if (old or lied) and not chain.is_stated(message):
                return ChainRefusal.UNWANTED
        if not is_content_signed(message):
            return ChainRefusal.DIGEST
        return None

    def _has_version(self, sender: int, seq: int) -> bool:
        return any(node.message is not None for node in self.chain.graph.versions((sender, seq)))

    def _on_chain(self, message: ChainMessage, now: int, effects: list[Effect], by: int | None = None) -> None:
        config, header = self.config, message.header
        refusal = self.screen(message)
        pulled = refusal is ChainRefusal.UNWANTED and by is not None and self._fetcher.accepts_from(by)
        if pulled:
            refusal = None if is_content_signed(message) else ChainRefusal.DIGEST
        content = None if refusal else self._content(message)
        if refusal is None and content is None:
            refusal = ChainRefusal.CONTENT
        signed, ref = self.signed(header)
        if refusal is None and not signature_holds(self._verifier, header, signed):
            refusal = ChainRefusal.SIGNATURE
        if refusal is None and content is not None and not self._is_proved(header, content):
            refusal = ChainRefusal.PRIOR
        if refusal is not None or content is None:
            self.refused[refusal or ChainRefusal.CONTENT] += 1
            if refusal is ChainRefusal.AHEAD:
                self._fetcher.note_beyond(header.sender)
            return
        effects += self.chain.receive(ref, message, content, now, pulled=pulled)
        if header.sender in config.members:
            self._rest.heard(message)
            self.turns.heard(header.sender, header.slot, now)
        # A turn begins with the message before it: the own one is signed from the graph of that moment (MR §5).
        self._take_turns(now, effects)

    def _content(self, message: ChainMessage) -> ChainContent | None:
        """Return the content of a message; None if it does not fit this group, at all members alike."""
        try:
            content = unpack_content(message.content)
        except Malformed:
            return None
        config = self.config
        if message.header.sender in config.outside:
            return None if content.delivered or content.convicted else content
        if len(content.delivered) != len(config.senders) or not set(content.convicted) <= set(config.senders):
            return None
        return content

    def _is_proved(self, header: ChainHeader, content: ChainContent) -> bool:
        """E-4: return whether what a message names of an epoch before is proved, and named by a first message."""
        if header.seq != 1:
            return content.prior == PriorPlace() and not content.proofs
        return self.chain.epochs.is_proved(header.sender, content.prior, content.proofs)

    def _on_request(self, request: ChainRequest, now: int, effects: list[Effect]) -> None:
        if request.epoch != self.config.epoch:
            self.refused[ChainRefusal.EPOCH] += 1
        elif request.sender not in self.config.members or request.sender == self.me:
            self.refused[ChainRefusal.STRANGER] += 1
        elif len(request.delivered) != len(self.config.senders):
            self.refused[ChainRefusal.VECTOR] += 1
        elif now - self._answered.get(request.sender, now - self.config.request_ns) < self.config.request_ns // 8:
            self.refused[ChainRefusal.TOO_OFTEN] += 1
        else:
            self._answered[request.sender] = now
            effects += self._fetcher.answer(request)

    def _on_evidence(self, evidence: ChainEvidence, effects: list[Effect]) -> None:
        refusal = self.chain.convictions.refusal(evidence)
        if refusal is None:
            self.chain.convictions.convict(evidence.first, evidence.second, effects)
        else:
            self.refused[refusal] += 1

    def _on_statement(self, statement: ChainStatement, now: int, effects: list[Effect]) -> None:
        if statement.epoch != self.config.epoch:
            self.refused[ChainRefusal.EPOCH] += 1
        elif statement.sender not in self.config.members:
            self.refused[ChainRefusal.STRANGER] += 1
        elif not statement_holds(statement, self.config.domain, self._verifier):
            self.refused[ChainRefusal.SIGNATURE] += 1
        else:
            effects += self._catch_up.note(statement, now)

    # -- turns ---------------------------------------------------------------------------------------------

    def _take_turns(self, now: int, effects: list[Effect]) -> None:
        """Sign and send as the turns have it (MR §5 rules 3 and 4)."""
        if not sends_without_packets() and not self._queue and self._prepared is None:
            return
        if self._rest.skips(now):
            if self.turns.sends(now):
                self.turns.sent(now)
            return
        if self._prepared is None and self.turns.signs(now) and self.chain.may_send(now):
            opening = self.chain.epochs.opening(self.config.epoch) if not self.chain.seq else Opening()
            if opening is not None:
                self.chain.collect()
                self._prepared = self.chain.sign(self.turns.slot, dequeue(self._queue), now, opening)
        if not self.turns.sends(now):
            return
        prepared = self._prepared
        if prepared is None:
            self._send_last_again(effects)
            self.turns.sent(now)
        elif now >= prepared.ready_ns:
            self._prepared = None
            self.chain.mcast(prepared, now, effects)
            self._rest.sent(prepared.message, now)
            self.turns.sent(now)

    def _send_last_again(self, effects: list[Effect]) -> None:
        """C-5 without room in the window: send the undelivered own messages once more, in turn: some may be lost."""
        versions = [version for own in self.chain.own.values() for version in own.versions]
        if versions:
            self._again += 1
            effects.append(Send(GROUP, versions[self._again % len(versions)]))

    # -- the end of a step ---------------------------------------------------------------------------------

    def _settled(self, effects: list[Effect]) -> None:
        """Journal the versions that are settled besides those that were delivered (C-10)."""
        fresh = self.chain.ledger.take_fresh()
        if not fresh:
            return
        delivered = {effect.row[:3] for effect in effects if isinstance(effect, ChainDeliver)}
        fresh = [row for row in fresh if row[:3] not in delivered]
        if fresh:
            effects.append(Record(ChainSettled(self.config.epoch, tuple(fresh), self.chain.not_journaled(fresh))))

    def _schedule(self, now: int) -> None:
        config = self.config
        wake_ns = self.turns.wake_ns()
        if wake_ns <= now:
            wake_ns = now + config.patience_ns
        if self._prepared is not None and now < self._prepared.ready_ns < wake_ns:
            wake_ns = self._prepared.ready_ns
        if self._fetcher.busy:
            wake_ns = min(wake_ns, now + config.grace_ns)
        for own in self.chain.own.values():
            if not own.resent and now < own.sent_ns + config.patience_ns < wake_ns:
                wake_ns = own.sent_ns + config.patience_ns
        self.wake_ns = wake_ns


def is_looked_at(node: VersionNode | None) -> bool:
    """Return whether a message is cited here: then it is needed, even a second version of what is delivered (C-10)."""
    return node is not None


def signature_holds(verifier: Verifier, header: ChainHeader, signed: bytes) -> bool:
    """Return whether the signature of a header is its sender's (C-1)."""
    return verifier.holds(header.sender, signed, header.signature)


def is_from_outside(header: ChainHeader) -> bool:
    """Return whether a header is one of a sender outside the group: without acknowledgements and slot (MR §3)."""
    return not header.acks and not header.slot


def is_content_signed(message: ChainMessage) -> bool:
    """Return whether the content is the one whose digest is signed (C-1)."""
    return digest(message.content) == message.header.content_digest


def sends_without_packets() -> bool:
    """Return whether an own slot has a message if the queue is empty (C-5)."""
    return True

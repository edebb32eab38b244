"""A sender outside the group (MR §3): its signed messages are nodes of the graph without acknowledgements.

It sends to all members, and keeps a message until f + 1 members state in their vectors that they have delivered it: one
of them is honest, so all honest members deliver it. Until then it sends the message again, because the network may have
lost it; a member that has received it serves the others. Its signature adds nothing to a delivering set. Number and
payload of a message are fixed and journaled before it is sent (C-2), C-3.1 and C-8 convict a sender of two versions.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from typing import ClassVar

from levelcast.byzantine.config import ChainConfig
from levelcast.byzantine.digests import Author, cite, digest, header_holds
from levelcast.byzantine.image import ChainImage
from levelcast.byzantine.multicast import EpochRules, OnlyEpoch, Opening
from levelcast.byzantine.packets import MAX_QUEUED, dequeue
from levelcast.byzantine.refusal import ChainRefusal
from levelcast.byzantine.signatures import Signer, Verifier
from levelcast.protocol.effects import GROUP, ChainDirect, Effect, Record, Send
from levelcast.protocol.machine import Machine
from levelcast.wire.chain_codec import pack_content, unpack_content
from levelcast.wire.chain_messages import ChainContent, ChainMessage, ChainRequest
from levelcast.wire.header import Malformed
from levelcast.wire.messages import Message, Repair

MAX_AGAIN = 8
"""Maximum number of messages that are sent again at a time: the oldest ones, which the others wait for."""


class OutsideSender(Machine):
    """One sender outside the group."""

    LISTENS: ClassVar[frozenset[type]] = frozenset({ChainMessage, ChainRequest})

    def __init__(
        self, config: ChainConfig, me: int, signer: Signer, verifier: Verifier, image: ChainImage, now: int
    ) -> None:
        self.config, self.me = config, me
        self.refused: Counter[ChainRefusal] = Counter()
        self._author = Author(me, config.domain, config.epoch, signer)
        self._verifier = verifier
        self._at = config.senders.index(me)
        self._stated = dict.fromkeys(config.members, 0)
        """Per member, the number up to which it states that it has delivered messages of this sender."""
        self._queue: deque[bytes] = deque()
        self._held = {message.header.seq: message for message in image.direct if message.header.sender == me}
        self.seq = max(self._held, default=0)
        """Number of the last message."""
        self.sent_again = 0
        self._epochs: EpochRules = OnlyEpoch()
        self._latest: dict[int, ChainMessage] = {}
        """Per member, a message without packets that states the delivery of everything of this sender."""
        self._closed = False
        self._rested_ns: int | None = None
        self._again_ns = now
        self.wake_ns: int | None = now

    @property
    def room(self) -> int:
        """Number of packets that the queue accepts."""
        return MAX_QUEUED - len(self._queue)

    @property
    def confirmed(self) -> int:
        """Number up to which all honest members deliver the messages: f + 1 members state that they have."""
        return sorted(self._stated.values(), reverse=True)[self.config.f]

    def submit(self, packets: Iterable[bytes]) -> None:
        """Queue packets. The caller checks `room` first."""
        self._queue.extend(packets)

    # -- epochs --------------------------------------------------------------------------------------------

    @property
    def member(self) -> OutsideSender:
        return self

    def follow(self, epochs: EpochRules) -> None:
        """Use rules about first messages of an epoch that know the epochs before."""
        self._epochs = epochs

    def close(self, now: int) -> int:
        """Send nothing new in this epoch; return the number of the last message (E-4)."""
        self._closed = True
        return self.seq

    def take_queue(self) -> list[bytes]:
        """Remove and return the packets that are in no message."""
        queue = list(self._queue)
        self._queue.clear()
        return queue

    def proofs(self, last: int, max_bytes: int) -> tuple[bytes, ...]:
        """E-4: return messages of f + 1 members whose vectors state the delivery of the own message `last`."""
        found = [message.sealed for _, message in sorted(self._latest.items()) if len(message.sealed) <= max_bytes]
        return tuple(found[: self.config.f + 1]) if len(found) > self.config.f else ()

    def has_rested(self, now: int, linger_ns: int) -> bool:
        """E-6: return whether everything has been confirmed for `linger_ns`."""
        return self._rested_ns is not None and now - self._rested_ns >= linger_ns

    def count(self, sender: int) -> int:
        """Return 0: nothing is delivered here."""
        return 0

    @property
    def vector(self) -> tuple[int, ...]:
        return (0,) * len(self.config.senders)

    # -- steps ---------------------------------------------------------------------------------------------

    def step(self, batch: Iterable[Message], now: int, *, clock_trusted: bool = True) -> list[Effect]:
        effects: list[Effect] = []
        for message in batch:
            if isinstance(message, ChainMessage):
                self._on_chain(message)
            elif isinstance(message, ChainRequest):
                self._on_request(message, effects)
        for seq in [seq for seq in self._held if seq <= self.confirmed]:
            del self._held[seq]
        self._send_again(now, effects)
        while self._queue and self.seq - self.confirmed < self.config.free:
            opening = self._epochs.opening(self.config.epoch) if not self.seq else Opening()
            if opening is None:
                break
            self._send(opening, effects)
        if self._closed and self.confirmed >= self.seq:
            self._rested_ns = now if self._rested_ns is None else self._rested_ns
        self.wake_ns = self._again_ns if self._held or self._queue else None
        return effects

    def _send(self, opening: Opening, effects: list[Effect]) -> None:
        content = pack_content(ChainContent((), (), dequeue(self._queue), *opening))
        self.seq += 1
        message = self._held[self.seq] = self._author.message(self.seq, 0, content, ())
        effects += [Record(ChainDirect(message)), Send(GROUP, message)]

    def _send_again(self, now: int, effects: list[Effect]) -> None:
        if now < self._again_ns:
            return
        self._again_ns = now + self.config.patience_ns
        again = [self._held[seq] for seq in sorted(self._held)[:MAX_AGAIN]]
        self.sent_again += len(again)
        effects += [Send(GROUP, message) for message in again]

    def _on_chain(self, message: ChainMessage) -> None:
        """Note what a member states about deliveries; a signature is checked only if that is new."""
        header, config = message.header, self.config
        if message.epoch != config.epoch:
            self.refused[ChainRefusal.EPOCH] += 1
            return
        if header.sender not in config.members:
            self.refused[ChainRefusal.STRANGER] += 1
            return
        try:
            delivered = unpack_content(message.content).delivered
        except Malformed:
            delivered = ()
        if len(delivered) != len(config.senders):
            self.refused[ChainRefusal.CONTENT] += 1
        elif delivered[self._at] > self._stated[header.sender] or self._is_proof(message, delivered):
            if digest(message.content) != header.content_digest:
                self.refused[ChainRefusal.DIGEST] += 1
            elif not header_holds(header, config.domain, config.epoch, self._verifier):
                self.refused[ChainRefusal.SIGNATURE] += 1
            else:
                self._stated[header.sender] = max(delivered[self._at], self._stated[header.sender])
                if self._is_proof(message, delivered):
                    self._latest[header.sender] = message

    def _is_proof(self, message: ChainMessage, delivered: tuple[int, ...]) -> bool:
        """Return whether a message is a proof for the next epoch (E-4): one of each member is kept."""
        if not self._closed or message.header.sender in self._latest or delivered[self._at] < self.seq:
            return False
        return not unpack_content(message.content).packets

    def _on_request(self, request: ChainRequest, effects: list[Effect]) -> None:
        """Answer with what is still held."""
        wanted = {ref.seq: ref for ref in request.wanted if ref.sender == self.me}
        if request.epoch != self.config.epoch or request.sender not in self.config.members:
            self.refused[ChainRefusal.STRANGER] += 1
            return
        items = [self._held[seq] for seq in sorted(wanted) if seq in self._held][:MAX_AGAIN]
        held = [item for item in items if cite(item.header, self.config.domain, item.epoch) == wanted[item.header.seq]]
        effects += [Send(request.sender, Repair(self.me, (item,))) for item in held]

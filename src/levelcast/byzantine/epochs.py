"""Epochs: the set of a group is fixed while it runs (MR §2); an epoch record starts the next group (not in MR).

| rule | content | history |
|---|---|---|
| E-1 | a record is in force with signatures of Q members of the old set. Two sets of Q have an honest member in common | E1 |
| E-2 | an honest member signs one successor of an epoch; it journals the signature before it sends it | E1 |
| E-3 | the next group has its own numbers, set, keys and quorum. Messages of the old one stay deliverable with its own | E2 |
| E-4 | a sender puts no packets into the old epoch after the record is in force. Its first message of an epoch names its last message with packets of an epoch before, with messages of f + 1 members of that epoch whose vectors cover it: one of them is honest, so all honest members deliver it | E3 |
| E-5 | whoever was a member of that epoch delivers the first message after the one that it names | E4 |
| E-6 | an old epoch goes on, with one message per L when all is delivered, and ends when Q members state what is delivered here and `linger_ns` have passed. Its digests end with it (C-10) | E5 |

Without the proof of E-4 a liar could name a message that does not exist: members of the old set would wait for it for
ever, and members that are new would not. Epochs have no common cut: that is agreement (MR §3).
"""  # noqa: E501

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import ClassVar, Protocol

from levelcast.byzantine.config import ChainConfig
from levelcast.byzantine.digests import digest, header_holds
from levelcast.byzantine.image import ChainImage, EpochsImage
from levelcast.byzantine.member import ChainMember
from levelcast.byzantine.multicast import EpochRules, Opening
from levelcast.byzantine.packets import MAX_QUEUED
from levelcast.byzantine.refusal import ChainRefusal
from levelcast.byzantine.signatures import Signer, Verifier
from levelcast.protocol.effects import GROUP, Effect, EpochBegun, EpochEnded, EpochSigned, Record, Send
from levelcast.protocol.machine import Machine
from levelcast.wire.chain_codec import epoch_bytes, unpack_content
from levelcast.wire.chain_messages import (
    ChainEvidence,
    ChainMessage,
    ChainRequest,
    ChainStatement,
    ChainSuccession,
    EpochRecord,
    EpochVote,
    PriorPlace,
)
from levelcast.wire.codec import decode
from levelcast.wire.header import Malformed
from levelcast.wire.messages import Message, Repair

MAX_PROOF_BYTES = 4_000
"""Maximum size in bytes of a message that proves a delivery: one without packets."""
DEFAULT_LINGER_NS = 600_000_000_000


class EpochPart(Machine, Protocol):
    """A member or a sender outside the group, in one epoch."""

    @property
    def room(self) -> int: ...

    @property
    def seq(self) -> int: ...

    @property
    def vector(self) -> tuple[int, ...]: ...

    def count(self, sender: int) -> int: ...

    def follow(self, epochs: EpochRules) -> None: ...

    def close(self, now: int) -> int: ...

    def take_queue(self) -> list[bytes]: ...

    def proofs(self, last: int, max_bytes: int) -> tuple[bytes, ...]: ...

    def has_rested(self, now: int, linger_ns: int) -> bool: ...


class EpochMachine(Machine, Protocol):
    """A part in one epoch, or what replaces it in a simulation."""

    @property
    def member(self) -> EpochPart: ...

    def submit(self, packets: Iterable[bytes]) -> None: ...


MakeMachine = Callable[["EpochMember", ChainConfig, ChainImage, int], EpochMachine]
"""Returns the machine of one epoch."""


class EpochMember(Machine):
    """One member, in all epochs that are not over."""

    LISTENS: ClassVar[frozenset[type]] = ChainMember.LISTENS | {ChainSuccession}

    def __init__(
        self,
        first: EpochRecord,
        base: ChainConfig,
        me: int,
        signer: Signer,
        verifier_of: Callable[[EpochRecord], Verifier],
        image: EpochsImage,
        now: int,
        make: MakeMachine,
        linger_ns: int = DEFAULT_LINGER_NS,
    ) -> None:
        """`base` has the settings that all epochs share; `first` is the set that the configuration names."""
        self.me, self._base, self._signer, self._verifier_of, self._make = me, base, signer, verifier_of, make
        self._linger_ns = linger_ns
        self.records = {first.epoch: first}
        self.verifiers = {first.epoch: verifier_of(first)}
        self.machines: dict[int, EpochMachine] = {}
        """Members of the epochs that are not over, by epoch."""
        self.successions: dict[int, ChainSuccession] = {}
        """Records in force, by the epoch that they end."""
        self.refused: dict[ChainRefusal, int] = {}
        self._ended: dict[int, tuple[int, ...]] = dict(image.ended)
        self._signed = {epoch: entry for epoch, entry in image.signed.items() if epoch >= first.epoch}
        self._votes: dict[int, dict[int, tuple[EpochRecord, EpochVote]]] = {}
        """Per epoch, the first vote of each of its members."""
        self._last: dict[int, int] = {}
        self._outbox: list[Effect] = []
        self._announce_ns = now
        self._answered: dict[int, int] = {}
        self._waiting: deque[bytes] = deque()
        """Packets submitted before this member takes part in an epoch."""
        self.wake_ns: int | None = now
        for begun in image.begun:
            self._put_in_force(begun.succession, begun.last)
        for epoch in sorted(self.records):
            self._start(epoch, image.chain(epoch), now)
            if epoch in self.successions and epoch in self.machines:
                self.machines[epoch].member.close(now)
        for signed in self._signed.values():
            self._count(signed.record, signed.vote)

    # -- the application -----------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The last epoch that has begun."""
        return max(self.records)

    @property
    def member(self) -> EpochPart | None:
        """The part of this node in the last epoch; None if it has none."""
        machine = self.machines.get(self.epoch)
        return machine.member if machine is not None else None

    @property
    def room(self) -> int:
        """Number of packets that the queue accepts; 0 if this node is not in the set."""
        if self.member is not None:
            return self.member.room
        return 0 if self.machines else MAX_QUEUED - len(self._waiting)

    def submit(self, packets: Iterable[bytes]) -> None:
        """Queue packets. The caller checks `room` first."""
        machine = self.machines.get(self.epoch)
        if machine is not None:
            machine.submit(packets)
        else:
            self._waiting.extend(packets)

    def propose(self, record: EpochRecord) -> bool:
        """E-2: sign `record` as the successor of the last epoch; return False if another one is signed already."""
        epoch = self.epoch
        if (
            record.epoch != epoch + 1
            or self.me not in self._members(epoch)
            or not may_sign(self._signed, epoch, record)
        ):
            return False
        if epoch not in self._signed or self._signed[epoch].record != record:
            vote = EpochVote(self.me, self._signer.sign(epoch_bytes(record, self._base.domain)))
            self._signed[epoch] = EpochSigned(record, vote)
            self._outbox.append(Record(self._signed[epoch]))
            self._votes.setdefault(epoch, {})[self.me] = (record, vote)
            self._announce_ns = 0
        return True

    # -- steps ---------------------------------------------------------------------------------------------

    def step(self, batch: Iterable[Message], now: int, *, clock_trusted: bool = True) -> list[Effect]:
        effects, self._outbox = self._outbox, []
        routed: dict[int, list[Message]] = {}
        for message in batch:
            self._route(message, now, routed, effects)
        self._decide(now, effects)
        for epoch in sorted(self.machines):  # old ones first: what they deliver may open the next one (E-5)
            effects += self.machines[epoch].step(routed.get(epoch, ()), now)
        self._announce(now, effects)
        self._end(now, effects)
        wakes = [each.wake_ns for each in self.machines.values() if each.wake_ns is not None]
        self.wake_ns = min([*wakes, self._announce_ns, now + self._base.patience_ns])
        return effects

    def _route(self, message: Message, now: int, routed: dict[int, list[Message]], effects: list[Effect]) -> None:
        if isinstance(message, ChainSuccession):
            self._on_succession(message)
        elif isinstance(message, Repair):
            parts: dict[int, list[ChainMessage]] = {}
            for item in message.items:
                if isinstance(item, ChainMessage):
                    parts.setdefault(item.epoch, []).append(item)
            for epoch, items in parts.items():
                routed.setdefault(epoch, []).append(Repair(message.sender, tuple(items)))
        elif isinstance(message, ChainMessage | ChainRequest | ChainEvidence | ChainStatement):
            routed.setdefault(message.epoch, []).append(message)
            sender = message.header.sender if isinstance(message, ChainMessage) else message.sender
            self._inform(sender, message.epoch, now, effects)

    def _inform(self, node: int, epoch: int, now: int, effects: list[Effect]) -> None:
        """Send the succession of an epoch to a node that still takes part in it, at most once per L."""
        known = self.successions.get(epoch)
        if known is None or now - self._answered.get(node, 0) < self._base.patience_ns:
            return
        self._answered[node] = now
        effects.append(Send(node, known))

    # -- E-1: successions ----------------------------------------------------------------------------------

    def _on_succession(self, message: ChainSuccession) -> None:
        if message.epoch not in self.records:
            self._refuse(ChainRefusal.EPOCH)
        elif message.epoch in self.successions:
            self._refuse(ChainRefusal.KNOWN)
        elif any(vote.member not in self._members(message.epoch) for vote in message.votes):
            self._refuse(ChainRefusal.STRANGER)
        elif not all(self._holds(message.record, vote) for vote in message.votes):
            self._refuse(ChainRefusal.SIGNATURE)
        else:
            for vote in message.votes:
                self._count(message.record, vote)
            if len(message.votes) >= self._quorum(message.epoch):  # votes for another record must not hide these
                self._votes[message.epoch] = {vote.member: (message.record, vote) for vote in message.votes}

    def _refuse(self, reason: ChainRefusal) -> None:
        self.refused[reason] = self.refused.get(reason, 0) + 1

    def _holds(self, record: EpochRecord, vote: EpochVote) -> bool:
        known = self._votes.get(record.epoch - 1, {}).get(vote.member)
        if known == (record, vote):
            return True
        content = epoch_bytes(record, self._base.domain)
        return self.verifiers[record.epoch - 1].holds(vote.member, content, vote.signature)

    def _count(self, record: EpochRecord, vote: EpochVote) -> None:
        self._votes.setdefault(record.epoch - 1, {}).setdefault(vote.member, (record, vote))

    def _members(self, epoch: int) -> tuple[int, ...]:
        return tuple(each.node for each in self.records[epoch].members)

    def _quorum(self, epoch: int) -> int:
        n = len(self.records[epoch].members)
        return n - (n - 1) // 3

    def _decide(self, now: int, effects: list[Effect]) -> None:
        """E-1: put a record with Q votes in force."""
        epoch = self.epoch
        votes = self._votes.get(epoch, {})
        for record in {record for record, _ in votes.values()}:
            for_it = sorted(vote for each, vote in votes.values() if each == record)
            if not is_in_force(len(for_it), self._quorum(epoch)):
                continue
            succession = ChainSuccession(self.me, epoch, record, tuple(for_it))
            old = self.machines.get(epoch)
            last = old.member.close(now) if old is not None else 0
            effects.append(Record(EpochBegun(succession, last)))
            self._put_in_force(succession, last)
            self._start(record.epoch, ChainImage(), now)
            new = self.machines.get(record.epoch)
            if new is not None:
                new.submit(old.member.take_queue() if old is not None else [])
                new.submit(self._waiting)
                self._waiting.clear()
            self._announce_ns = now
            return

    def _put_in_force(self, succession: ChainSuccession, last: int) -> None:
        epoch, record = succession.epoch, succession.record
        self.successions[epoch] = succession
        self._last[epoch] = last
        self.records[record.epoch] = record
        self.verifiers[record.epoch] = self._verifier_of(record)
        self._votes.pop(epoch, None)

    def _start(self, epoch: int, image: ChainImage, now: int) -> None:
        if self.me not in self.records[epoch].keys or epoch in self._ended:
            return
        config = self.config_of(self.records[epoch])
        machine = self._make(self, config, image, now)
        machine.member.follow(self)
        self.machines[epoch] = machine

    def config_of(self, record: EpochRecord) -> ChainConfig:
        """Return the configuration of an epoch."""
        members = tuple(each.node for each in record.members)
        outside = tuple(each.node for each in record.outside)
        window = max(self._base.window, 4 * len(members))
        return replace(self._base, members=members, outside=outside, epoch=record.epoch, window=window)

    def _announce(self, now: int, effects: list[Effect]) -> None:
        """Send own votes, and records in force for as long as their old epoch is not over; a node that waits asks."""
        if now < self._announce_ns:
            return
        self._announce_ns = now + self._base.patience_ns
        epoch = self.epoch
        votes = self._votes.get(epoch, {})
        for record in sorted({record for record, _ in votes.values()}):
            own = tuple(sorted(vote for each, vote in votes.values() if each == record))
            effects.append(Send(GROUP, ChainSuccession(self.me, epoch, record, own)))
        effects += [Send(GROUP, self.successions[old]) for old in self.machines if old in self.successions]
        if epoch not in self.machines:
            effects.append(Send(GROUP, ChainRequest(self.me, epoch, (), (), (), pull=True)))

    # -- E-4 and E-5: the first message of an epoch -----------------------------------------------------------

    def opening(self, epoch: int) -> Opening | None:
        """E-4: return what the first own message of an epoch names; None if that is not proved yet."""
        for before in sorted((each for each in self._last if each < epoch), reverse=True):
            last = self._last[before]
            if not last:
                continue
            machine = self.machines.get(before)
            if machine is None:
                return None
            proofs = machine.member.proofs(last, MAX_PROOF_BYTES)
            return Opening(PriorPlace(before, last), proofs) if proofs else None
        return Opening(PriorPlace(), ())

    def is_proved(self, sender: int, prior: PriorPlace, proofs: tuple[bytes, ...]) -> bool:
        """E-4: return whether f + 1 members of an epoch before state the delivery of what a first message names."""
        if not prior.seq:
            return not proofs and not prior.epoch
        record = self.records.get(prior.epoch)
        if record is None or sender not in record.keys:
            return False
        config = self.config_of(record)
        if len(proofs) != config.f + 1:
            return False
        states = [self._states(config, sender, prior.seq, proof) for proof in proofs]
        return None not in states and len(set(states)) == len(states)

    def _states(self, config: ChainConfig, sender: int, seq: int, proof: bytes) -> int | None:
        """Return the member that states in `proof` that it has delivered a message, None for anything else."""
        if len(proof) > MAX_PROOF_BYTES:
            return None
        try:
            domain, message = decode(proof)
            content = unpack_content(message.content) if isinstance(message, ChainMessage) else None
        except Malformed:
            return None
        if not isinstance(message, ChainMessage) or content is None:
            return None
        header = message.header
        if domain != config.domain or message.epoch != config.epoch or header.sender not in config.members:
            return None
        if len(content.delivered) != len(config.senders) or content.delivered[config.senders.index(sender)] < seq:
            return None
        if digest(message.content) != header.content_digest:
            return None
        holds = header_holds(header, config.domain, config.epoch, self.verifiers[config.epoch])
        return header.sender if holds else None

    def is_after(self, sender: int, prior: PriorPlace) -> bool:
        """E-5: return whether what a first message names is delivered here, if this node was in that epoch."""
        machine = self.machines.get(prior.epoch)
        if not prior.seq or machine is None or self.me not in self._members(prior.epoch) or not is_ordered_by_epoch():
            return True  # the epoch is over here, or this node was never in it
        return machine.member.count(sender) >= prior.seq

    # -- E-6: the end of an epoch -----------------------------------------------------------------------------

    def _end(self, now: int, effects: list[Effect]) -> None:
        for epoch in [epoch for epoch in self.machines if epoch in self.successions]:
            if not self.machines[epoch].member.has_rested(now, self._linger_ns) or self._needs(epoch):
                continue
            vector = self.machines.pop(epoch).member.vector
            self._ended[epoch] = vector
            effects.append(Record(EpochEnded(epoch, vector)))

    def _needs(self, epoch: int) -> bool:
        """Return whether the own first message of a later epoch still needs proofs of this one."""
        later = [each for each in self.machines if each > epoch]
        return bool(self._last.get(epoch)) and any(not self.machines[each].member.seq for each in later)


def may_sign(signed: dict[int, EpochSigned], epoch: int, record: EpochRecord) -> bool:
    """E-2: return whether a member may sign a record as the successor of an epoch."""
    return epoch not in signed or signed[epoch].record == record


def is_ordered_by_epoch() -> bool:
    """E-5: return whether the first message of an epoch waits for the one that it names."""
    return True


def is_in_force(votes: int, quorum: int) -> bool:
    """E-1: return whether these votes put a record in force."""
    return votes >= quorum

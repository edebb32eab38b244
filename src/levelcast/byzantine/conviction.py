"""C-8 (not in MR): two conflicting signed headers convict their sender.

Evidence is multicast once, and later messages name the convicted: who lacks the evidence requests it. Nothing
undelivered of a convicted member is acknowledged any more. What has a delivering set is delivered all the same, because
others may have delivered it. Without this rule the member that holds the minority's version cites it in every later
message, and each of them costs a time-out (history B3).
"""

from __future__ import annotations

from levelcast.byzantine.config import ChainConfig
from levelcast.byzantine.digests import conflict, header_holds
from levelcast.byzantine.refusal import ChainRefusal
from levelcast.byzantine.signatures import Verifier
from levelcast.protocol.effects import GROUP, Effect, Send
from levelcast.wire.chain_messages import ChainEvidence, ChainHeader


class Convictions:
    """Members that are proved to lie, with the proof."""

    def __init__(self, config: ChainConfig, me: int, verifier: Verifier) -> None:
        self._config, self._me, self._verifier = config, me, verifier
        self.proofs: dict[int, tuple[ChainHeader, ChainHeader]] = {}
        self.named: dict[int, int] = {}
        """Members named as convicted without evidence here, and the member that named them first."""

    def __contains__(self, member: int) -> bool:
        return member in self.proofs

    @property
    def members(self) -> tuple[int, ...]:
        return tuple(sorted(self.proofs))

    def convict(self, first: ChainHeader, second: ChainHeader, effects: list[Effect]) -> None:
        """Convict the sender of two conflicting headers whose signatures hold; multicast the evidence once."""
        if first.sender not in self.proofs:
            self.proofs[first.sender] = (first, second)
            self.named.pop(first.sender, None)
            effects.append(Send(GROUP, self.evidence(first.sender)))

    def evidence(self, member: int) -> ChainEvidence:
        """Return the evidence against a convicted member."""
        return ChainEvidence(self._me, self._config.epoch, *self.proofs[member])

    def note_named(self, members: tuple[int, ...], by: int) -> None:
        """Note convictions that another member names."""
        for member in members:
            if member not in self.proofs:
                self.named.setdefault(member, by)

    def refusal(self, evidence: ChainEvidence) -> ChainRefusal | None:
        """Return why evidence proves nothing new here, None if it does."""
        first, second = evidence.first, evidence.second
        if evidence.epoch != self._config.epoch:
            return ChainRefusal.EPOCH
        if first.sender not in self._config.senders:
            return ChainRefusal.STRANGER
        if (first.sender, first.seq) != (second.sender, second.seq) or not conflict(first, second):
            return ChainRefusal.EVIDENCE
        if first.sender in self.proofs:
            return ChainRefusal.KNOWN
        config = self._config
        if not all(header_holds(each, config.domain, config.epoch, self._verifier) for each in (first, second)):
            return ChainRefusal.SIGNATURE
        return None

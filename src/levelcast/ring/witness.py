"""Count the claims of this generation (rule 8), which determine when a slot is released (rule 7).

A slot is witnessed when enough members have claimed `have` >= slot *in this generation*. A member's `have` counts only
once it has caught up to t_g - 1: before that it refers to another history. There are two ways to claim:

| claims in | ring      | a late slot is released at                                                    |
|-----------|-----------|-------------------------------------------------------------------------------|
| tokens    | lockstep  | timestamp of the completing token + δ_N + k_r·τ_r (`TokenWitness`)            |
| beats     | pipelined | w-th smallest of said_j + H_j (`levelcast.ring.beat_witness`)                 |

- The *completing token* of a slot is the first one, in slot order, that completes the count. Every receiver that holds
  the tokens finds the same one, so a late release is late to the same time everywhere.
- w = 1 is the paper's ticker: the slot owner is the witness, and the slot waits for no other member. With any number
  below a majority a reformation may void slots that a receiver has released (`guarantees`).

Tokens are read in slot order without gaps. A receiver that skipped slots by catching up from a tape starts after
them: members repeat their `have` in every token.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from levelcast.protocol.config import Witnesses
from levelcast.protocol.history import MembershipChange
from levelcast.ring.quorum import majority, witnessed_by_majority
from levelcast.ring.schedule import Schedule
from levelcast.wire.messages import Beat, MemberLife, Token

Records = Sequence[MembershipChange]


class Due(NamedTuple):
    """When all receivers know that a slot is witnessed. Both times are equal, unless claims may have been lost here."""

    earliest_ns: int
    latest_ns: int

    @property
    def certain(self) -> bool:
        return self.earliest_ns == self.latest_ns


AT_ONCE = Due(0, 0)


class Count:
    """The number of claims that a slot of one generation needs."""

    def __init__(self, schedule: Schedule, witnesses: Witnesses, standing: int) -> None:
        self._schedule = schedule
        self._witnesses = witnesses
        self._standing = standing

    def is_complete(self, slot: int, records: Records, witnessed: int, claimed: Collection[int]) -> bool:
        """Return whether these members are enough; every slot up to `witnessed` is witnessed."""
        if self._witnesses == 1:
            return True
        if isinstance(self._witnesses, int):
            if len(claimed) < self._witnesses:
                return False
            if self._witnesses < majority(records[-1].membership):
                return True  # weaker than a majority, by choice: a reformation may void released slots

        def has(life: MemberLife, _: int) -> bool:
            return self._counts(life, claimed)

        if not witnessed_by_majority(slot, records, witnessed, self._standing, has):
            return False
        return self._witnesses != "all" or all(member in claimed for member in self._schedule.members)

    def _counts(self, life: MemberLife, claimed: Collection[int]) -> bool:
        """Return whether a primary of the configured set has claimed, with the life in that set (rule 12)."""
        return life.member in claimed and self._schedule.lives.get(life.member) == life


class Witness(Protocol):
    """Claims of one generation, and the highest slot that they witness."""

    witnessed: int
    """Every slot up to this one is witnessed."""

    def read(self, tokens: Mapping[int, Token]) -> None:
        """Read the tokens that follow those read before."""

    def hear(self, beat: Beat) -> None:
        """Note the claims of a beat of this generation."""

    def advance(self, have: int, records: Records) -> int:
        """Count the slots up to `have` that are witnessed now, and return the highest."""

    def inherit(self, before: Witness) -> None:
        """Keep the slots that an earlier generation has witnessed: its claims were true, and no ring can void them."""

    def due(self, slot: int) -> Due:
        """Return when all receivers know that this slot is witnessed."""

    def forget(self, slot: int) -> None:
        """Drop what is known about a released slot."""

    def skip_to(self, slot: int) -> None:
        """Treat slots up to `slot` as witnessed: they are from a tape."""

    def claim_of(self, member: int) -> int:
        """Return the highest `have` that counts for this member; -1 before its first."""

    def stable(self) -> int:
        """Return the highest slot that every member of the ring has (rule 9)."""


class TokenWitness(Witness):
    """Claims in tokens.

    Tokens wait in a queue until the next slot to be witnessed is held here too. The configured set at that slot is
    known only then, and the completing token must not depend on this receiver's lag.
    """

    def __init__(self, schedule: Schedule, count: Count, read_upto: int, witnessed: int, hear_ns: int = 0) -> None:
        self._schedule = schedule
        self._count = count
        self._hear_ns = hear_ns
        self._counted: dict[int, int] = {}
        self._latest: dict[int, int] = {}
        self._waiting: deque[Token] = deque()
        self._counted_upto = (0, 0)
        self._settled: tuple[int, int, MembershipChange] | None = None
        """The witnessed slot, the held slot and the set at the time when all claims were counted."""
        self._completing: dict[int, tuple[int, int]] = {}
        self.read_upto = max(read_upto, schedule.start_slot - 1)
        """Tokens of this generation are read up to this slot."""
        self.witnessed = witnessed

    def read(self, tokens: Mapping[int, Token]) -> None:
        while (token := tokens.get(self.read_upto + 1)) is not None:
            assert token.generation == self._schedule.generation
            self.read_upto = token.slot
            if claim_counts(token.have, self._schedule):
                self._waiting.append(token)
                if token.have > self._latest.get(token.owner, -1):
                    self._latest[token.owner] = token.have

    def hear(self, beat: Beat) -> None:
        """Ignore it: in this ring tokens claim."""

    def advance(self, have: int, records: Records) -> int:
        if not self._waiting and self._settled == (self.witnessed, have, records[-1]):
            return self.witnessed  # no new claim since
        while self.witnessed < have:
            slot = self.witnessed + 1
            claimed = {member for member, claim in self._counted.items() if claim >= slot}
            if self._count.is_complete(slot, records, self.witnessed, claimed):
                self.witnessed += 1
                self._completing[self.witnessed] = max(self._counted_upto, (self.witnessed, 0))
            elif self._waiting:
                token = self._waiting.popleft()
                self._counted_upto = (token.slot, token.timestamp_ns)
                if token.have > self._counted.get(token.owner, -1):
                    self._counted[token.owner] = token.have
            else:
                break
        self._settled = (self.witnessed, have, records[-1])
        return self.witnessed

    def inherit(self, before: Witness) -> None:
        witnessed = min(before.witnessed, self._schedule.start_slot - 1)
        if witnessed > self.witnessed:
            for slot in range(self.witnessed + 1, witnessed + 1):
                self._completing[slot] = (slot, max(0, before.due(slot).latest_ns - self._hear_ns))
            self.witnessed = witnessed

    def due(self, slot: int) -> Due:
        completing_ns = self._completing.get(slot, (slot, 0))[1]
        return Due(completing_ns + self._hear_ns, completing_ns + self._hear_ns)

    def forget(self, slot: int) -> None:
        self._completing.pop(slot, None)

    def skip_to(self, slot: int) -> None:
        self.read_upto = max(self.read_upto, slot)
        self.witnessed = max(self.witnessed, slot)

    def claim_of(self, member: int) -> int:
        return self._latest.get(member, -1)

    def stable(self) -> int:
        return min(self._latest.get(member, -1) for member in self._schedule.members)


def claim_counts(have: int, schedule: Schedule) -> bool:
    """Return whether a member's `have` counts: only once it has caught up to t_g - 1 (rule 8)."""
    return have >= schedule.start_slot - 1


def guarantees(witnesses: Witnesses, members: int) -> bool:
    """Return whether a witnessed slot survives every reformation: only if a majority of the configured set has it."""
    return not isinstance(witnesses, int) or witnesses > members // 2

"""Count the claims in the tokens of this generation (rule 8), which determine when a slot is released (rule 7).

- A slot is witnessed when enough members have sent tokens *of this generation* with have >= slot. A member's
  `have` counts only once it has caught up to t_g - 1: before that it refers to another history.
- The *completing token* of a slot is the first one, in slot order, that completes the count. Every receiver that holds
  the tokens finds the same one, so a late release is late to the same time everywhere: completing token's timestamp +
  δ_N + k_r·τ_r.
- w = 1 is the paper's ticker: the slot owner is the witness, and the slot waits for no other member. With any number
  below a majority a reformation may void slots that a receiver has released (`guarantees`).

Tokens are read in slot order without gaps. A receiver that skipped slots by catching up from a tape starts after
them: members repeat their `have` in every token.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from levelcast.protocol.config import Witnesses
from levelcast.protocol.history import MembershipChange
from levelcast.ring.quorum import majority, witnessed_by_majority
from levelcast.ring.schedule import Schedule
from levelcast.wire.messages import MemberLife, Token


class Witness:
    """Claims of one generation, and the highest slot that they witness.

    Tokens wait in a queue until the next slot to be witnessed is held here too. The configured set at that slot is
    known only then, and the completing token must not depend on this receiver's lag.
    """

    def __init__(
        self, schedule: Schedule, witnesses: Witnesses, read_upto: int, witnessed: int, standing: int = 0
    ) -> None:
        self._schedule = schedule
        self._witnesses = witnesses
        self._counted: dict[int, int] = {}
        self._latest: dict[int, int] = {}
        self._waiting: deque[Token] = deque()
        self._counted_upto = (0, 0)
        self._settled: tuple[int, int, MembershipChange] | None = None
        """The witnessed slot, the held slot and the set at the time when all claims were counted."""
        self._standing = standing
        self._completing: dict[int, tuple[int, int]] = {}
        self.read_upto = max(read_upto, schedule.start_slot - 1)
        """Tokens of this generation are read up to this slot."""
        self.witnessed = witnessed
        """Every slot up to this one is witnessed."""

    def read(self, token: Token) -> None:
        """Read the next token in slot order."""
        assert token.slot == self.read_upto + 1
        assert token.generation == self._schedule.generation
        self.read_upto = token.slot
        if claim_counts(token, self._schedule):
            self._waiting.append(token)
            if token.have > self._latest.get(token.owner, -1):
                self._latest[token.owner] = token.have

    def advance(self, have: int, records: Sequence[MembershipChange]) -> int:
        """Count the slots up to `have` that are witnessed now, and return the highest."""
        if not self._waiting and self._settled == (self.witnessed, have, records[-1]):
            return self.witnessed  # no new claim since
        while self.witnessed < have:
            if self._is_witnessed(self.witnessed + 1, records):
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
        """Keep the slots that an earlier generation has witnessed: its claims were true, and no ring can void them."""
        witnessed = min(before.witnessed, self._schedule.start_slot - 1)
        if witnessed > self.witnessed:
            self.witnessed = witnessed
            self._completing.update(before._completing)

    def completing_ns(self, slot: int) -> int:
        """Return the timestamp of the token that completed the witness of `slot`; 0 if the slot needed none."""
        return self._completing.get(slot, (slot, 0))[1]

    def forget(self, slot: int) -> None:
        self._completing.pop(slot, None)

    def skip_to(self, slot: int) -> None:
        """Treat slots up to `slot` as witnessed: they are from a tape, and their tokens will not be read."""
        self.read_upto = max(self.read_upto, slot)
        self.witnessed = max(self.witnessed, slot)

    def claim_of(self, member: int) -> int:
        """Return the highest `have` that counts for this member; -1 before its first."""
        return self._latest.get(member, -1)

    def stable(self) -> int:
        """Return the highest slot that every member of the ring has (rule 9)."""
        return min(self._latest.get(member, -1) for member in self._schedule.members)

    def _is_witnessed(self, slot: int, records: Sequence[MembershipChange]) -> bool:
        if self._witnesses == 1:
            return True
        if isinstance(self._witnesses, int):
            if sum(have >= slot for have in self._counted.values()) < self._witnesses:
                return False
            if self._witnesses < majority(records[-1].membership):
                return True  # weaker than a majority, by choice: a reformation may void released slots
        if not witnessed_by_majority(slot, records, self.witnessed, self._standing, self._has):
            return False
        if self._witnesses != "all":
            return True
        return all(self._counted.get(member, -1) >= slot for member in self._schedule.members)

    def _has(self, life: MemberLife, slot: int) -> bool:
        return self._schedule.lives.get(life.member) == life and self._counted.get(life.member, -1) >= slot


def claim_counts(token: Token, schedule: Schedule) -> bool:
    """Return whether a member's `have` counts: only once it has caught up to t_g - 1 (rule 8)."""
    return token.have >= schedule.start_slot - 1


def guarantees(witnesses: Witnesses, members: int) -> bool:
    """Return whether a witnessed slot survives every reformation: only if a majority of the configured set has it."""
    return not isinstance(witnesses, int) or witnesses > members // 2

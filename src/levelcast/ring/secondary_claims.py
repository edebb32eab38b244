"""Claims of a primary's secondaries, and the time for which each may delay the primary's claim (rule 11, MS §4.1).

A primary's token claims the lowest `have` of its group, so that the witness of rule 8 covers the complete tree. A
secondary counts

- from its first group token on, and while it is in the group that the primary has received;
- with its claim in the primary's ring. A secondary that follows an older ring has not caught up to t_g - 1, and while
  it counts the primary does not claim that either: this is rule 8's condition, one layer down. A secondary that
  follows a newer ring than its primary does not count;
- until it has lacked a slot for `patience_ns`. Then it is left out of the minimum, whether it has failed, is
  disconnected or is slow. It counts again when it has caught up.

A secondary that has a group of its own covers it with the same code: it sends the lowest `have` of that group. The
layers above wait longer for each layer below. Otherwise a failure in the lowest layer would exclude every node in
between.

| ring with | a secondary reports | patience |
|-----------|---------------------|----------|
| tokens    | every τ_r           | R to recover a slot, and δ_N + k_r·τ_r for each layer: a term of Δ_A (rule 6) |
| beats     | every β             | while the primary's claim is in time for Δ_A (`StripeConfig.patience_ns`) |

So a ring whose secondaries all fail is never late because of them. The claim stays true for the primary itself: it is
at most its own `have`. A primary that restarts may claim less than before, because a secondary counts again. Receivers
that have heard different claims agree all the same: with beats, each of them is in time for Δ_A.
"""

from __future__ import annotations

from levelcast.ring.schedule import Schedule
from levelcast.ring.status import SecondaryClaim
from levelcast.wire.messages import Group, GroupToken


class SecondaryClaims:
    """The group of one primary, as it knows it. It is not journaled: secondaries repeat their claims every τ_r."""

    def __init__(self, patience_ns: int) -> None:
        self.patience_ns = patience_ns
        self._said: dict[int, GroupToken] = {}
        self.group: Group | None = None

    def said(self, secondary: int) -> GroupToken | None:
        """Return the last group token of this secondary, while it is in the group."""
        return self._said.get(secondary)

    def hear(self, token: GroupToken) -> Group | None:
        """Store a secondary's group token; return the group, if the sender does not know it yet."""
        group = self.group
        outdated = group if group is not None and token.group < group.number else None
        known = self._said.get(token.sender)
        if (outdated is None or token.sender in outdated.members) and (known is None or known.turn_ns < token.turn_ns):
            self._said[token.sender] = token
        return outdated

    def take(self, group: Group) -> None:
        """Store the new group from the servers: nodes that are no longer in it do not count."""
        if self.group is None or group.number > self.group.number:
            self.group = group
            self._said = {sender: token for sender, token in self._said.items() if sender in group.members}

    def lowest(self, have: int, schedule: Schedule, now: int) -> int:
        """Return the claim of a token with `have`: at most that of any secondary that counts at `now` (rule 11)."""
        return min([have, *(claim for claim in self.counted(schedule, now).values() if claim is not None)])

    def counted(self, schedule: Schedule, now: int) -> dict[int, int | None]:
        """Return the slot that counts for each secondary in this ring at `now`; None if it does not count."""
        return {sender: self._claim(token, schedule, now) for sender, token in self._said.items()}

    def status(self, schedule: Schedule | None, now: int) -> dict[int, SecondaryClaim]:
        """Return the claims of all secondaries in the group or with a group token, by id."""
        counted = self.counted(schedule, now) if schedule is not None else {}
        members = self.group.members if self.group is not None else ()
        found = {}
        for member in sorted({*members, *counted}):
            token = self._said.get(member)
            found[member] = SecondaryClaim(token.have if token is not None else None, counted.get(member) is not None)
        return found

    def _claim(self, token: GroupToken, schedule: Schedule, now: int) -> int | None:
        if token.generation > schedule.generation:
            return None
        have = token.have
        if token.generation < schedule.generation:
            have = min(have, max(0, schedule.start_slot - 2))
        lacks_ns = max(schedule.time_of(have + 1), schedule.time_of(schedule.start_slot))
        return have if holds(lacks_ns, now, self.patience_ns) else None


def holds(lacks_ns: int, now: int, patience_ns: int) -> bool:
    """Return whether a node that lacks a slot of time `lacks_ns` may still delay its primary's claim (rule 11)."""
    return now <= lacks_ns + patience_ns

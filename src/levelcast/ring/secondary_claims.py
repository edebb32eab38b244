"""What a primary knows of its secondaries, and how long each may hold it up (rule 11, MS §4.1).

A primary's token claims the lowest `have` of its group, so that the witness of rule 8 covers the whole tree. A
secondary counts

- from its first group token on, and while the group that the primary was told of has it;
- with what it says about the ring that the primary is in. One that follows an older ring has not caught up to t_g - 1,
  and while it counts the primary does not claim that either: it is rule 8's own condition, one layer down. One that
  follows a newer ring than its primary does not count;
- until it has lacked a slot for R + δ_N + k_r·τ_r: R to recover it, and k_r of its turns, one every τ_r, to say so.
  Then it leaves the minimum, whether it is dead, cut off or slow, and counts again when it has caught up.

A secondary that has a group of its own covers it with the same code: what it says is the lowest of that group. Those
above it wait longer, δ_N + k_r·τ_r for each layer below, or one that dies at the bottom would drop everybody between.

So a secondary holds no slot longer than that, which is the term that Δ_A has for each layer (rule 6), and a ring whose
secondaries all die is never late for it. What a primary claims stays true for itself: it claims its own `have` at most.
"""

from __future__ import annotations

from levelcast.ring.schedule import Schedule
from levelcast.ring.status import SecondaryClaim
from levelcast.timing.rules import Timing
from levelcast.timing.secondary import patience_ns
from levelcast.wire.messages import Group, GroupToken


class SecondaryClaims:
    """The group of one primary, as it knows it. Nothing of it is journaled: secondaries say it again every τ_r."""

    def __init__(self, timing: Timing, layers: int = 1) -> None:
        self._patience_ns = patience_ns(timing, layers)
        self._said: dict[int, GroupToken] = {}
        self._doubted: dict[int, GroupToken] = {}
        self.group: Group | None = None

    def said(self, secondary: int) -> GroupToken | None:
        """The last that this secondary said, while it is one of the group."""
        return self._said.get(secondary)

    def hear(self, token: GroupToken) -> Group | None:
        """Take in what a secondary says; the group, if the sender does not know it yet."""
        group = self.group
        outdated = group if group is not None and token.group < group.number else None
        if (outdated is None or token.sender in outdated.members) and self._is_news(token):
            self._said[token.sender] = token
        return outdated

    def _is_news(self, token: GroupToken) -> bool:
        """Whether it was said later than what is known.

        Turns are numbered by the size of the group, so they are compared within one group only. The higher group is the
        later one, unless its secondary goes on speaking in a lower one: after a restart it and the server that gave it
        the group may not know the number that was in use.
        """
        known, doubted = self._said.get(token.sender), self._doubted.get(token.sender)
        if known is None or known.group < token.group:
            return True
        if known.group == token.group:
            return known.turn < token.turn
        self._doubted[token.sender] = token
        return doubted is not None and doubted.group == token.group and doubted.turn < token.turn

    def take(self, group: Group) -> None:
        """The servers have formed the group anew: those that are no longer in it do not count."""
        if self.group is None or group.number > self.group.number:
            self.group = group
            self._said = {sender: token for sender, token in self._said.items() if sender in group.members}

    def lowest(self, have: int, schedule: Schedule, now: int) -> int:
        """What a token claims of `have`: no more than any secondary that counts in this ring at `now` (rule 11)."""
        return min([have, *(claim for claim in self.counted(schedule, now).values() if claim is not None)])

    def counted(self, schedule: Schedule, now: int) -> dict[int, int | None]:
        """What each secondary counts with in this ring at `now`; None if it does not."""
        return {sender: self._claim(token, schedule, now) for sender, token in self._said.items()}

    def status(self, schedule: Schedule | None, now: int) -> dict[int, SecondaryClaim]:
        """Every secondary of the group, or that has sent a group token, by its id."""
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
        return have if holds(lacks_ns, now, self._patience_ns) else None


def holds(lacks_ns: int, now: int, patience_ns: int) -> bool:
    """Whether one that lacks a slot of time `lacks_ns` may still hold its primary's claim (rule 11)."""
    return now <= lacks_ns + patience_ns

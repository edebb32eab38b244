"""Turns of a group of secondaries: by the clock, each secondary once in τ_r (rule 11)."""

from __future__ import annotations

from levelcast.timing.rules import Timing


class Turns:
    """Times at which each secondary of a group sends: by the clock, each once in τ_r (rule 11)."""

    def __init__(self, timing: Timing, members: tuple[int, ...]) -> None:
        self._members = members
        self._slot_ns = max(1, timing.request_ns // len(members))

    def next_of(self, member: int, now: int) -> tuple[int, int]:
        """Return the first turn of `member` after `now`, and its time."""
        n = len(self._members)
        turn = now // self._slot_ns + 1
        turn += (self._members.index(member) - turn) % n
        return turn, turn * self._slot_ns

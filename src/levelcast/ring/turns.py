"""Turns of a group of secondaries: by the clock, each secondary once in a round (rule 11)."""

from __future__ import annotations


class Turns:
    """Times at which each secondary of a group sends: n turns in a round, in the order of the members.

    Rounds begin at `start_ns`, that of the ring: so the time from a turn to the next beat is the same in every round.
    """

    def __init__(self, round_ns: int, members: tuple[int, ...], start_ns: int = 0) -> None:
        self._round_ns = round_ns
        self._place_ns = {member: start_ns + place * round_ns // len(members) for place, member in enumerate(members)}

    def next_of(self, member: int, now: int) -> int:
        """Return the time of the first turn of `member` after `now`."""
        place_ns = self._place_ns[member]
        return ((now - place_ns) // self._round_ns + 1) * self._round_ns + place_ns

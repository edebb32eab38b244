"""Choose the groups that a subscriber's line carries (MS §4.4: 56 kbit/s one group, 1.5 Mbit/s 25, 45 Mbit/s 800)."""

from __future__ import annotations

from collections.abc import Collection


class LineRoom:
    """The groups of each plan that fit on a line of `rate` bytes/s; a group needs `group_rate` bytes/s.

    Stripes share groups. Plans of different stripes belong together if they have the same number.
    """

    def __init__(self, rate: int, group_rate: int) -> None:
        self._most = rate // group_rate
        self._taken: dict[int, set[int]] = {}

    def fitting(self, number: int, groups: Collection[int]) -> set[int]:
        """Return those of a stripe's groups that fit with the groups that other stripes have in plan `number`."""
        taken = self._taken.setdefault(number, set())
        for group in sorted(set(groups) - taken):
            if len(taken) < self._most:
                taken.add(group)
        for old in [each for each in self._taken if each < number - 1]:
            del self._taken[old]
        return taken & set(groups)

    def carries(self, number: int, group: int) -> bool:
        """Return whether the line carries a group of plan `number`, or has room for it."""
        taken = self._taken.get(number, ())
        return group in taken or len(taken) < self._most

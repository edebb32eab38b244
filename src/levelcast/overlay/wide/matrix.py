"""Delay and loss between the processes of a wide-area group, and what follows from them: subgroups, nearest holders.

All processes of a group have the same matrix, so that each knows which process forwards, coordinates and repairs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import combinations, permutations

from levelcast.timing.replication import repair_time

NEAR_NS = 25_000_000
"""Largest delay between two processes of one subgroup, unless the configuration has another one."""


class PathMatrix:
    """One-way delay and loss of one copy, by (sender, receiver)."""

    def __init__(self, delay_ns: Mapping[tuple[int, int], int], loss: Mapping[tuple[int, int], float]) -> None:
        self.processes = tuple(sorted({process for pair in delay_ns for process in pair}))
        self._delay_ns = dict(delay_ns)
        self._loss = dict(loss)

    def delay_ns(self, sender: int, receiver: int) -> int:
        return 0 if sender == receiver else self._delay_ns[sender, receiver]

    def loss(self, sender: int, receiver: int) -> float:
        return self._loss.get((sender, receiver), 0.0)

    def unknown_pair(self) -> tuple[int, int] | None:
        """Return a pair of processes without a path; None if all have one."""
        return next((pair for pair in permutations(self.processes, 2) if pair not in self._delay_ns), None)

    def round_trip_ns(self, a: int, b: int) -> int:
        return self.delay_ns(a, b) + self.delay_ns(b, a)

    @property
    def longest_ns(self) -> int:
        """Return the largest one-way delay."""
        return max(self._delay_ns.values(), default=0)

    def repair_ns(self, holder: int, receiver: int) -> float:
        """Return the expected time of a repair: the least one is nearest (TT §4.2, corrected)."""
        mean = (self.loss(holder, receiver) + self.loss(receiver, holder)) / 2
        return repair_time(self.round_trip_ns(holder, receiver) / 2, min(mean, 0.99))

    def nearest(self, receiver: int, holders: Iterable[int]) -> list[int]:
        """Return holders from nearest to farthest."""
        return sorted(holders, key=lambda holder: (self.repair_ns(holder, receiver), holder))

    def subgroups(self, near_ns: int = NEAR_NS) -> tuple[tuple[int, ...], ...]:
        """Return disjoint subgroups with their processes in order of succession as coordinator.

        Complete linkage: the two nearest subgroups are joined while no two processes of them are farther apart than
        `near_ns`. The coordinator has the least total delay to its subgroup, then to all others.
        """
        groups = [frozenset({process}) for process in self.processes]
        while len(groups) > 1:
            apart, a, b = min(
                ((self._apart_ns(a, b), a, b) for a, b in combinations(groups, 2)),
                key=lambda found: (found[0], min(found[1]), min(found[2])),
            )
            if apart > near_ns:
                break
            groups = [group for group in groups if group not in (a, b)] + [a | b]
        return tuple(sorted((self._succession(group) for group in groups), key=min))

    def _apart_ns(self, a: Collection[int], b: Collection[int]) -> int:
        return max(max(self.delay_ns(x, y), self.delay_ns(y, x)) for x in a for y in b)

    def _succession(self, group: Collection[int]) -> tuple[int, ...]:
        def order(process: int) -> tuple[int, int, int]:
            inside = sum(self.round_trip_ns(process, other) for other in group)
            return inside, sum(self.round_trip_ns(process, other) for other in self.processes), process

        return tuple(sorted(group, key=order))

"""Causal delivery by direct predecessors (TT §4.1).

A matrix of counters is n² and does not fit a datagram for 50 processes. Instead each message names its direct
predecessors, for each of them the processes to which that constraint still applies (causal barriers): those for which
no message between the two has it already. A process delivers a message when it has delivered all predecessors that were
sent to it.

Predecessors that are *closed* are left out: the source has stated that they, and all before them, are received by all
of their destinations, so that none of them can be waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from levelcast.overlay.wide import clauses
from levelcast.wire.wide_messages import WideData, WideId, WidePredecessor


class Barrier(NamedTuple):
    """A predecessor, and the processes that must deliver it before what follows."""

    view: int
    members: frozenset[int]


def everybody(data: WideData) -> frozenset[int]:
    """Return the source and the destinations of a message."""
    return frozenset((*data.members, data.source))


def members_of(predecessor: WidePredecessor, data: WideData) -> frozenset[int]:
    """Return the processes to which a predecessor of a message applies."""
    return frozenset(predecessor.members) if predecessor.members else everybody(data)


class CausalHistory:
    """Barriers of the messages that a process has sent and delivered: the predecessors of its next one."""

    def __init__(self) -> None:
        self._barriers: dict[WideId, Barrier] = {}

    def __len__(self) -> int:
        return len(self._barriers)

    def predecessors(self, members: Iterable[int], source: int) -> tuple[WidePredecessor, ...]:
        """Return the predecessors of a message of this process to `members`."""
        own = frozenset((*members, source))
        return tuple(
            WidePredecessor(each, barrier.view, () if barrier.members == own else tuple(sorted(barrier.members)))
            for each, barrier in sorted(self._barriers.items())
        )

    def add(self, data: WideData) -> None:
        """Record a message that was sent or delivered here: it takes the place of its predecessors."""
        own = everybody(data)
        for predecessor in data.predecessors:
            self._merge(predecessor, members_of(predecessor, data))
            self._reduce(predecessor.id, own)
        for each in [each for each in self._barriers if each[:2] == data.id[:2] and each.number < data.number]:
            self._reduce(each, own)
        self._barriers[data.id] = Barrier(data.view, own)

    def forget(self, is_closed: Callable[[WideId], bool]) -> None:
        """Drop closed messages."""
        for each in [each for each in self._barriers if is_closed(each)]:
            del self._barriers[each]

    def _merge(self, predecessor: WidePredecessor, members: frozenset[int]) -> None:
        known = self._barriers.get(predecessor.id)
        self._barriers[predecessor.id] = Barrier(
            predecessor.view, known.members & members if known is not None else clauses.carried(members)
        )

    def _reduce(self, each: WideId, by: frozenset[int]) -> None:
        barrier = self._barriers[each]
        left = barrier.members - by
        if left:
            self._barriers[each] = Barrier(barrier.view, left)
        else:
            del self._barriers[each]


class CausalQueue:
    """Received messages that wait for their predecessors."""

    def __init__(self, is_satisfied: Callable[[WidePredecessor, WideData], bool]) -> None:
        self._is_satisfied = is_satisfied
        self.waiting: dict[WideId, WideData] = {}

    def add(self, data: WideData) -> None:
        self.waiting[data.id] = data

    def ready(self) -> WideData | None:
        """Return a message that can be delivered now, and remove it; None if there is none."""
        for each, data in self.waiting.items():
            if all(self._is_satisfied(predecessor, data) for predecessor in data.predecessors):
                del self.waiting[each]
                return data
        return None

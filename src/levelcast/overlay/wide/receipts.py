"""Messages that a process has received and delivered, and floors: numbers below which nothing needs to be remembered.

`settled` of a source: all of its messages up to this number are received by all of their destinations. `closed`: all
messages before them in causal order are, too, so that none of them waits anywhere.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import NamedTuple

from levelcast.overlay.wide import clauses
from levelcast.wire.wide_messages import WideContent, WideData, WideId, WidePredecessor

Life = tuple[int, int]
"""A source and its life."""


class ReceiptFloor(NamedTuple):
    settled: int = 0
    closed: int = 0


class Receipts:
    """Receipts of one process, and what its view says about messages that are still to come."""

    def __init__(self, process: int) -> None:
        self.process = process
        self.life = 0
        """0: not a member yet."""
        self.number = 0
        """Number of the last own message."""
        self.lives: dict[int, int] = {}
        """Life of each member."""
        self.orphans: frozenset[WideId] = frozenset()
        """Messages of former members that members hold."""
        self.received: dict[Life, set[int]] = defaultdict(set)
        self.delivered: dict[Life, set[int]] = defaultdict(set)
        self.floors: dict[Life, ReceiptFloor] = defaultdict(ReceiptFloor)
        self._marks: dict[Life, int] = {}
        """Last message of each member in the views before."""
        self._own_open: dict[int, tuple[WidePredecessor, ...]] = {}
        """Own messages that are not closed, with their predecessors."""

    def enter(self, content: WideContent) -> None:
        """Begin with a new view, which has this process."""
        self.lives = {member.process: member.life for member in content.members}
        self.life = self.lives[self.process]
        self.orphans = frozenset(content.orphans)
        self._marks = {(member.process, member.life): member.number for member in content.members}

    @property
    def own(self) -> ReceiptFloor:
        return self.floors[self.process, self.life]

    def is_expected(self, each: WideId) -> bool:
        """Return whether a message may still be received: its source is a member, or members hold it."""
        return self.lives.get(each.source) == each.life or each in self.orphans

    def has_received(self, each: WideId) -> bool:
        """Return whether a message was received here, or sent from here."""
        life = each[:2]
        if life == (self.process, self.life):
            return each.number <= self.number
        return each.number in self.received[life] or each.number <= self.floors[life].closed

    def is_delivered(self, each: WideId) -> bool:
        """Return whether a message was delivered here or sent from here, unless it waits here."""
        life = each[:2]
        return each.source == self.process or each.number in self.delivered[life] or each.number <= self.floors[life][1]

    def is_lost(self, each: WideId) -> bool:
        """Return whether a message that was not received will never be, and nobody waits for what was before it."""
        if self.is_expected(each) or each.number in self.received[each[:2]] or not clauses.skips_lost():
            return False
        return self._all_before_view_settled() or not clauses.waits_for_lost()

    def note_sent(self, data: WideData) -> None:
        self._own_open[data.number] = data.predecessors

    def note_delivered(self, each: WideId) -> None:
        if each.number > self.floors[each[:2]].closed:
            self.delivered[each[:2]].add(each.number)

    # -- floors -------------------------------------------------------------------------------------------

    def advance(self, unsettled: Collection[WideId]) -> None:
        """Find up to where the own messages are received everywhere, and closed."""
        settled, closed = self.own
        while settled < self.number and WideId(self.process, self.life, settled + 1) not in unsettled:
            settled += 1
        while closed < settled:
            before = all(self.is_closed(each.id, unsettled) for each in self._own_open[closed + 1])
            if not clauses.closes(before):
                break
            closed += 1
            del self._own_open[closed]
            self.floors[self.process, self.life] = ReceiptFloor(settled, closed)
        self.floors[self.process, self.life] = ReceiptFloor(settled, closed)

    def is_closed(self, each: WideId, unsettled: Collection[WideId]) -> bool:
        """Return whether a message, and all before it, are received by all that will ever receive them."""
        life = each[:2]
        if life == (self.process, self.life) or self.lives.get(each.source) == each.life:
            return each.number <= self.floors[life].closed
        if each in self.orphans and (each in unsettled or each.number not in self.received[life]):
            return False
        return self._all_before_view_settled()

    def _all_before_view_settled(self) -> bool:
        """Return whether all messages of members from the views before are received by their destinations."""
        return all(self.floors[life].settled >= number for life, number in self._marks.items())

    def raise_floor(self, life: Life, view: int, floor: ReceiptFloor, waiting: Mapping[WideId, WideData]) -> bool:
        """Note the floor that a source states; forget what is closed. Return whether it is new."""
        if self.lives.get(life[0]) != life[1] or view < life[1]:
            return False
        known = self.floors[life]
        if floor.settled <= known.settled and floor.closed <= known.closed:
            return False
        found = ReceiptFloor(max(floor.settled, known.settled), max(floor.closed, known.closed))
        self.floors[life] = found
        kept = {each.number for each in waiting if each[:2] == life}
        for numbers in (self.received[life], self.delivered[life]):
            numbers -= {each for each in numbers if each <= found.closed and each not in kept}
        return True

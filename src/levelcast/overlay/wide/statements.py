"""Collect the statements of a process, and send them together: at once, deferred, or on a message (TT §4.1)."""

from __future__ import annotations

from collections.abc import Callable, Collection

from levelcast.wire.wide_messages import WideId, WideStatement

MAX_EARLY = 4_096
"""Maximum number of messages of which statements are kept that arrived before the message."""
MAX_RIDING = 64
"""Maximum number of statements that ride on one message."""
MAX_TOGETHER = 72
"""Maximum number of statements in one datagram of their own, which is not fragmented then."""


class EarlyStatements:
    """Statements about messages that have not arrived: the way of a statement may be the shorter one."""

    def __init__(self) -> None:
        self._kept: dict[WideId, list[tuple[int, int]]] = {}

    def add(self, each: WideId, sender: int, scope: int) -> None:
        if len(self._kept) < MAX_EARLY:
            self._kept.setdefault(each, []).append((sender, scope))

    def take(self, each: WideId) -> list[tuple[int, int]]:
        """Return the statements about a message as process and scope, and remove them."""
        return self._kept.pop(each, [])

    def forget(self, is_over: Callable[[WideId], bool]) -> None:
        for each in [each for each in self._kept if is_over(each)]:
            del self._kept[each]


class StatementOutbox:
    """Statements that are to be sent, by receiver; a later statement about a message includes an earlier one."""

    def __init__(self, defer_ns: int) -> None:
        self._defer_ns = defer_ns
        self._pending: dict[int, dict[WideId, WideStatement]] = {}
        self._due_ns: dict[int, int] = {}

    @property
    def wake_ns(self) -> int | None:
        """Return the time at which statements are due."""
        return min(self._due_ns.values(), default=None)

    def add(self, to: int, statement: WideStatement, now: int) -> None:
        """Add a statement: questions and their answers do not wait."""
        pending = self._pending.setdefault(to, {})
        known = pending.get(statement.id)
        if known is not None:
            asks, wants = known.asks or statement.asks, known.wants or statement.wants
            statement = WideStatement(statement.id, max(known.scope, statement.scope), asks, wants)
        pending[statement.id] = statement
        self._due_ns.setdefault(to, now + self._defer_ns)

    def hurry(self, to: int, now: int) -> None:
        """Send the statements to a process now."""
        if to in self._due_ns:
            self._due_ns[to] = now

    def drop(self, to: int) -> None:
        """Discard the statements to a process that is no member any more."""
        self._pending.pop(to, None)
        self._due_ns.pop(to, None)

    def take_due(self, now: int) -> list[tuple[int, tuple[WideStatement, ...]]]:
        """Return the statements that are due, by receiver, and remove them."""
        due = sorted(to for to, at_ns in self._due_ns.items() if at_ns <= now)
        found = []
        for to in due:
            del self._due_ns[to]
            found.append((to, tuple(self._pending.pop(to).values())))
        return found

    def take_riding(self, members: Collection[int]) -> tuple[WideStatement, ...]:
        """Return the statements that ride on a message to `members`, and remove them for these receivers."""
        if not self._defer_ns:
            return ()
        riding: dict[WideId, WideStatement] = {}
        for to in sorted(self._pending.keys() & set(members)):
            for each, statement in list(self._pending[to].items()):
                if statement.asks or statement.wants or (each not in riding and len(riding) == MAX_RIDING):
                    continue
                if riding.setdefault(each, statement) == statement:
                    del self._pending[to][each]
            if not self._pending[to]:
                self.drop(to)
        return tuple(riding.values())

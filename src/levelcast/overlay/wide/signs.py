"""Signs of life between members: when each was heard, and when something was sent to it."""

from __future__ import annotations

from collections.abc import Iterable

from levelcast.overlay.wide.config import GroupConfig


class Signs:
    """Times of the last messages from and to each member."""

    def __init__(self, config: GroupConfig, process: int) -> None:
        self._config, self._process = config, process
        self._heard_ns: dict[int, int] = {}
        self._sent_ns: dict[int, int] = {}
        self._view_sent_ns: dict[int, int] = {}

    def enter(self, members: Iterable[int], now: int) -> None:
        """Begin with a new view: every member has the full time."""
        self._heard_ns = dict.fromkeys(members, now)

    def hear(self, sender: int, now: int) -> None:
        self._heard_ns[sender] = now

    def sent(self, to: int, now: int) -> None:
        self._sent_ns[to] = now

    def due(self, members: Iterable[int], now: int) -> list[int]:
        """Return the members that need a sign of life."""
        every_ns = self._config.alive_ns
        return [each for each in members if each != self._process and now >= self._sent_ns.get(each, 0) + every_ns]

    def suspects(self, members: Iterable[int], now: int) -> frozenset[int]:
        """Return the members that were not heard for too long."""
        since_ns = now - self._config.suspect_ns
        return frozenset(each for each in members if each != self._process and self._heard_ns[each] < since_ns)

    def may_send_view(self, to: int, now: int) -> bool:
        """Return whether a process with another view may be told of it: once per exchange."""
        if now < self._view_sent_ns.get(to, 0) + self._config.exchange_ns:
            return False
        self._view_sent_ns[to] = now
        return True

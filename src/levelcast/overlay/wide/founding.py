"""Form the first view of a group whose processes start at different times (TT §2, GM).

A process that starts requests to be a member. The *founder* is the first process of the configuration. When it has
recent requests of all others, it sends the first view, which names their incarnations.

- A member sends no such request, so the founder forms no second group beside a running one: it joins that instead.
- A view names incarnations, so a process that was started again never takes part as the one that it was.
- The founder ignores requests in its first exchange. By then all messages of its earlier life have arrived.
"""

from __future__ import annotations

from levelcast.overlay.wide.config import GroupConfig
from levelcast.wire.wide_messages import WideContent, WideMember, WideRequest

RECENT = 4
"""Number of exchanges for which a request counts: each process repeats its request after one."""


class Founding:
    """Requests of the processes of a group that has no view yet, at one of them."""

    def __init__(self, config: GroupConfig, process: int, incarnation: int, now: int) -> None:
        self._config, self._process, self._incarnation = config, process, incarnation
        self._from_ns = now + config.exchange_ns
        self._heard: dict[int, tuple[int, int]] = {}
        """Incarnation and time of the last request of each process."""

    def hear(self, request: WideRequest, now: int) -> None:
        """Note a request of a process that is in no view."""
        if now < self._from_ns or request.leaves or request.view:
            return
        known, _ = self._heard.get(request.sender, (0, 0))
        if request.incarnation >= known:
            self._heard[request.sender] = request.incarnation, now

    def missing(self, now: int) -> tuple[int, ...]:
        """Return the processes without a recent request."""
        since_ns = now - RECENT * self._config.exchange_ns
        others = (each for each in sorted(self._config.members) if each != self._process)
        return tuple(each for each in others if each not in self._heard or self._heard[each][1] < since_ns)

    def content(self, now: int) -> WideContent | None:
        """Return the first view, at the founder when all others have requested it; None before."""
        members = sorted(self._config.members)
        if self._process != members[0] or self.missing(now):
            return None
        incarnations = {each: incarnation for each, (incarnation, _) in self._heard.items()}
        incarnations[self._process] = self._incarnation
        return WideContent(tuple(WideMember(each, 1, incarnations[each], 0) for each in members), ())

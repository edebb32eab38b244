"""A receiver that serves secondaries reports those that have stopped (rule 11, MS §4.3).

The secondaries of a group detect the failure of one of them by its missing turns. That does not suffice for the lines
of regions: in a group of one nobody would notice, and all of a group may fail at once. The node that serves the group
receives every turn, so it reports to the servers each member of which it has received none for k_r rounds.
"""

from __future__ import annotations

from levelcast.timing.rules import Timing
from levelcast.timing.secondary import silent_after_ns
from levelcast.wire.messages import Group, GroupRequest


class GroupWatch:
    """When the secondaries of one receiver were last received, sans I/O."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._group: Group | None = None
        self._heard_ns: dict[int, int] = {}
        self._report_ns: dict[int, int] = {}

    def take(self, group: Group, now: int) -> None:
        """Expect the members of a new group."""
        if self._group is None or group.number > self._group.number:
            self._group = group
            self._report_ns = {}
            self._heard_ns = dict.fromkeys(group.members, now)

    def hear(self, secondary: int, now: int) -> None:
        """Note that a secondary has sent a group token."""
        if secondary in self._heard_ns:
            self._heard_ns[secondary] = now
            self._report_ns.pop(secondary, None)

    def forgive(self, now: int) -> None:
        """Begin again: this receiver cannot judge by its clock."""
        self._heard_ns = dict.fromkeys(self._heard_ns, now)

    def due(self, now: int) -> list[GroupRequest]:
        """Return the reports that are due, each every τ_r until another group is received."""
        group, found = self._group, []
        for secondary in self._heard_ns if group is not None else ():
            if now >= self._due_ns(secondary):
                assert group is not None
                self._report_ns[secondary] = now + self._timing.request_ns
                found.append(GroupRequest(group.primary, 0, group.number, group.primary, secondary))
        return found

    @property
    def wake_ns(self) -> int | None:
        """Time of the next report, if no group token is received before."""
        return min(map(self._due_ns, self._heard_ns), default=None)

    def _due_ns(self, secondary: int) -> int:
        silent_ns = self._heard_ns[secondary] + silent_after_ns(self._timing)
        return max(silent_ns, self._report_ns.get(secondary, 0))

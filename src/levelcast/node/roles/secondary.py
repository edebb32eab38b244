"""The role of a secondary receiver, which a primary serves (`levelcast.ring.secondary`, rule 11)."""

from __future__ import annotations

from typing import get_args

from levelcast.network.roles import SECONDARY
from levelcast.node.roles.base import Names, Status, name_of
from levelcast.node.roles.releasing import ReleasingRole
from levelcast.ring.secondary import Secondary, Standing
from levelcast.ring.status import SecondaryStatus
from levelcast.runtime.driver import Counters


class SecondaryRole(ReleasingRole):
    """A secondary receiver."""

    KIND = SECONDARY
    STATE = ("state", get_args(Standing))
    MACHINE = Secondary
    machine: Secondary

    def status(self, counters: Counters, names: Names, now: int) -> Status:
        said = self.machine.status(now)
        return self._listener_line(said.standing, said.listener, counters) | service_line(said, names)


def service_line(said: SecondaryStatus, names: Names) -> Status:
    """Return the primary that serves a secondary, and the group in which it sends in turn."""
    group = said.group
    return {
        "home": name_of(said.home, names),
        "primary": name_of(said.primary, names),
        "suspect": name_of(said.suspect, names),
        "group": None
        if group is None
        else {"number": group.number >> 32, "members": [name_of(member, names) for member in group.members]},
    }

"""The role of a primary receiver: a member of the ring, with a tape and an edge (`levelcast.ring.member`)."""

from __future__ import annotations

from typing import get_args

from levelcast.network.roles import RECEIVER
from levelcast.node.roles.base import Names, Status, name_of
from levelcast.node.roles.releasing import ReleasingRole
from levelcast.ring.member import Member
from levelcast.ring.member_state import State
from levelcast.ring.status import MemberStatus
from levelcast.runtime.driver import Counters


class ReceiverRole(ReleasingRole):
    """A primary receiver."""

    KIND = RECEIVER
    STATE = ("state", get_args(State))
    MACHINE = Member
    machine: Member

    def status(self, counters: Counters, names: Names, now: int) -> Status:
        said = self.machine.status(now)
        line = self._listener_line(said.state, said.listener, counters)
        return line | {"group": covered_group(said, names)} if self._setup.config.homes else line


def covered_group(said: MemberStatus, names: Names) -> Status:
    """Return the group that a primary's tokens cover (rule 11): each secondary's position, and whether it counts."""
    have = said.listener.have
    members = {
        name_of(secondary, names): {
            "have": claim.have,
            "lag": max(0, have - claim.have) if claim.have is not None else None,
            "counts": claim.counts,
        }
        for secondary, claim in said.secondaries.items()
    }
    return {"number": said.group_number >> 32, "members": members}

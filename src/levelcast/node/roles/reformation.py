"""The role of a reformation server, which also forms groups where a stripe has secondaries (rules 11, 12)."""

from __future__ import annotations

from typing import get_args

from levelcast.network.roles import REFORMATION
from levelcast.node.metrics import Metric
from levelcast.node.roles.base import Names, NodeSetup, Role, Status, name_of
from levelcast.ring.group_server import ReformationAndGroupServer
from levelcast.ring.reformation_server import Phase, ReformationServer
from levelcast.ring.status import GroupServerStatus
from levelcast.runtime.driver import Counters
from levelcast.storage.node_store import JournalStore


class ReformationRole(Role):
    """A reformation server."""

    KIND = REFORMATION
    METRICS = (
        Metric("rings_formed", "rings_formed_total", "Rings formed by the server."),
        Metric("groups_formed", "groups_formed_total", "Groups of secondaries formed by the server."),
    )
    STATE = ("phase", get_args(Phase))
    machine: ReformationServer
    store: JournalStore

    def __init__(self, setup: NodeSetup) -> None:
        self.store, image = setup.journal()
        server = ReformationAndGroupServer if setup.config.homes else ReformationServer
        self.machine = server(setup.config, setup.place.id, image, setup.now, setup.security)

    def status(self, counters: Counters, names: Names, now: int) -> Status:
        said = self.machine.status(now)
        line: Status = {"phase": said.phase, "rings_formed": said.rings_formed}
        return line | groups_line(said.groups, names) if said.groups is not None else line

    def details(self, known: Status, now: int) -> Status:
        return {"life": self.machine.life}


def groups_line(said: GroupServerStatus, names: Names) -> Status:
    """Return the last group of each primary that the server formed or received."""
    groups = {
        name_of(primary, names): [name_of(member, names) for member in members]
        for primary, members in said.groups.items()
    }
    return {"groups": groups, "groups_formed": said.groups_formed, "group_phase": said.phase}

"""What nodes tell of the second layer (rule 11): secondaries of their primary, others of the groups that they know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from levelcast.ring.group_server import ReformationAndGroupServer
from levelcast.ring.listener import Listener
from levelcast.ring.secondary import Secondary

Names = Mapping[int, str]
"""What nodes are called, by their ids."""
Status = dict[str, Any]


def of_secondary(machine: Secondary, names: Names) -> Status:
    """Its state in the table of `levelcast.ring.secondary`, who serves it, and who takes turns with it."""
    group = machine.group
    return {
        "state": machine.standing,
        "home": _name(machine.config.homes.get(machine.member, 0), names),
        "primary": _name(machine.primary or 0, names),
        "suspect": _name(machine.suspect, names),
        "group": None
        if group is None
        else {"number": group.number >> 32, "members": [_name(member, names) for member in group.members]},
    }


def of_primary(machine: Listener, names: Names, now: int) -> Status:
    """The group that its tokens cover: how far each secondary is, and whether it counts or has left the minimum."""
    cover = machine.claims
    counted = cover.counted(machine.schedule, now) if machine.schedule is not None else {}
    members = cover.group.members if cover.group is not None else ()
    told = {}
    for member in sorted({*members, *counted}):
        said = cover.said(member)
        told[_name(member, names)] = {
            "have": said.have if said is not None else None,
            "lag": max(0, machine.have - said.have) if said is not None else None,
            "counts": counted.get(member) is not None,
        }
    return {"group": {"number": cover.group.number >> 32 if cover.group is not None else 0, "members": told}}


def of_server(machine: ReformationAndGroupServer, names: Names) -> Status:
    """The last group of each primary that it formed or heard of."""
    keeper = machine.keeper
    groups = {
        _name(primary, names): [_name(member, names) for member in group.members]
        for primary, group in sorted(keeper.groups.items())
        if group.members
    }
    return {"groups": groups, "groups_formed": keeper.groups_formed, "group_phase": keeper.phase}


def _name(node: int, names: Names) -> str | None:
    """Nobody (0) has no name; a node that the file does not name is told by its id."""
    return names.get(node, str(node)) if node else None

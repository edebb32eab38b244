"""Define the roles of nodes in the network file; `levelcast.node.roles` binds behaviour to each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RoleKind:
    """A role: its name in the network file and in status JSON, and its part in the protocol."""

    name: str
    in_ring: bool = False
    """It is a primary: it sends tokens, and the configured set has its life."""
    releases: bool = False
    """It has a tape and release times: a receiver of either layer."""
    forms_rings: bool = False
    publishes: bool = False

    def probes(self, other: RoleKind) -> bool:
        """Return whether its nodes probe those of `other`. Floors send nothing to each other."""
        return not (self.publishes and other.publishes)


RECEIVER = RoleKind("receiver", in_ring=True, releases=True)
REFORMATION = RoleKind("reformation", forms_rings=True)
FLOOR = RoleKind("floor", publishes=True)
SECONDARY = RoleKind("secondary", releases=True)

ROLES = (RECEIVER, REFORMATION, FLOOR, SECONDARY)
"""The order determines the status ports: append, never insert."""
ROLE_NAMED = {role.name: role for role in ROLES}

"""Roles of nodes: for each, a module with its protocol class, files, services, status and metrics.

`ROLES` binds a class to each `levelcast.network.roles.RoleKind`. A new role is a kind there and a module here.
"""

from __future__ import annotations

from levelcast.node.roles.base import Role
from levelcast.node.roles.floor import FloorRole
from levelcast.node.roles.receiver import ReceiverRole
from levelcast.node.roles.reformation import ReformationRole
from levelcast.node.roles.secondary import SecondaryRole

ROLES: dict[str, type[Role]] = {
    role.KIND.name: role for role in (ReceiverRole, ReformationRole, FloorRole, SecondaryRole)
}
"""Class of each role, by the role's name."""

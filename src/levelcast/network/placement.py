"""Placement: the role, site and stripe of every node of a network."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches

from levelcast.errors import NetError
from levelcast.network.model import Floor, Link, Network
from levelcast.network.roles import ROLES, RoleKind


@dataclass(frozen=True, slots=True)
class Placement:
    """The identity of a node in one stripe, from the network file."""

    name: str
    id: int
    role: RoleKind
    site: str
    stripe: str
    part: str
    """Name of this part of the node, and its path below the data directory."""
    floor: Floor | None = None


def places(network: Network, stripe: int | str = 0) -> list[Placement]:
    """Return every node of a stripe, role by role; a floor is in one stripe only."""
    found = network.stripe(stripe).name
    nodes = ((node, role) for role in ROLES for node in network.nodes_of(role))
    return [
        Placement(
            node.name,
            node.id,
            role,
            node.site,
            found,
            part_of(network, node.name, found),
            node if isinstance(node, Floor) else None,
        )
        for node, role in nodes
        if not isinstance(node, Floor) or node.stripe == found
    ]


def all_places(network: Network) -> list[Placement]:
    """Return every part of every node, stripe by stripe."""
    return [place for stripe in network.stripes for place in places(network, stripe.name)]


def part_of(network: Network, name: str, stripe: str) -> str:
    """Return the name of a node's part in a stripe: the node's name if there is only one stripe."""
    return name if len(network.stripes) == 1 else f"{stripe}/{name}"


def place_of(network: Network, name: str, stripe: str | None = None) -> Placement:
    """Return the node of that name, or its part in a stripe; by default the first stripe for a receiver or server.

    STRIPE/NAME specifies both. Raise NetError if it is unknown.
    """
    if stripe is None and "/" in name:
        stripe, _, name = name.partition("/")
    if stripe is not None and all(known.name != stripe for known in network.stripes):
        known = ", ".join(each.name for each in network.stripes)
        raise NetError(f'stripe "{stripe}" not found in the network file; choose one of {known}')
    everywhere = all_places(network)
    found = [place for place in everywhere if place.name == name]
    if not found:
        known = " or ".join(get_close_matches(name, network.node_names, 2))
        hint = f"did you mean {known}?" if known else f"choose one of {', '.join(network.node_names)}"
        raise NetError(f'node "{name}" not found in the network file; {hint}')
    for place in found:
        if stripe in (None, place.stripe):
            return place
    raise NetError(f"{name} sends on stripe {found[0].stripe}, not on {stripe}")


def links_to(network: Network, here: Placement) -> dict[int, Link | None]:
    """Return the links over which a node receives from the others."""
    links: dict[int, Link | None] = {}
    for other in places(network, here.stripe):
        try:
            links[other.id] = network.link(here.site, other.site)
        except KeyError:  # two floors need no link between them
            links[other.id] = None
    return links


def probed_by(network: Network, here: Placement) -> list[int]:
    """Return the nodes that a node probes."""
    others = (place for place in places(network, here.stripe) if place.id != here.id)
    return [place.id for place in others if here.role.probes(place.role)]

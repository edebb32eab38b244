"""Set up a wide-area group from the network file: protocol, matrix of delay and loss, addresses."""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from itertools import permutations

from levelcast.errors import NetError
from levelcast.network import Network
from levelcast.network.addresses import core_addresses
from levelcast.network.model import NodeAddress, ReceiverNode, SecondaryNode
from levelcast.overlay.wide.choices import WIDE_PROTOCOLS, Choices, CopiesBy
from levelcast.overlay.wide.config import MS, GroupConfig
from levelcast.overlay.wide.matrix import NEAR_NS, PathMatrix
from levelcast.runtime.overlay_sockets import resolve
from levelcast.runtime.sockets import Address
from levelcast.wire.wide_codec import MAX_WIDE_MEMBERS

ALIVE_NS = 250 * MS
"""Interval of signs of life of real processes."""
MARGIN_NS = 20 * MS
"""Time after which a confirmation is overdue, beyond the delays and twice the largest jitter."""
ALLOWED_LOSS = 0.001
"""Probability that all copies to a receiver are lost, for the protocols with copies."""
MAX_PORT = 65_535


def protocol_choices(protocol: str, copies: str | None = None) -> Choices:
    """Return a protocol by its name, with other `copies` if they are given; raise NetError for an unknown one."""
    choices = WIDE_PROTOCOLS.get(protocol)
    if choices is None:
        near = get_close_matches(protocol.upper(), WIDE_PROTOCOLS, 1)
        hint = f"did you mean {near[0]}?" if near else f"use one of {', '.join(WIDE_PROTOCOLS)}"
        raise NetError(f'protocol "{protocol}" not found; {hint}')
    if copies is None:
        return choices
    if copies not in tuple(CopiesBy):
        raise NetError(f'copies "{copies}" not found; use one of {", ".join(CopiesBy)}')
    return choices._replace(copies=CopiesBy(copies))


def group_members(network: Network) -> tuple[ReceiverNode | SecondaryNode, ...]:
    """Return the processes of the group: all receivers; raise NetError if they are too few or too many."""
    members = network.releasing
    if not 2 <= len(members) <= MAX_WIDE_MEMBERS:
        raise NetError(f"a group has 2 to {MAX_WIDE_MEMBERS} receivers, not {len(members)}; change the network file")
    return members


def group_matrix(network: Network) -> PathMatrix:
    """Return delay and loss between the receivers; raise NetError if two of them have no link."""
    delays, losses = {}, {}
    for a, b in permutations(group_members(network), 2):
        try:
            link = network.link(a.site, b.site)
        except KeyError:
            why = f"[links] has no link between {a.site} and {b.site}; add the pair, or a default delay"
            raise NetError(why) from None
        delays[a.id, b.id], losses[a.id, b.id] = link.delay_ns, link.loss_ratio
    return PathMatrix(delays, losses)


def largest_jitter_ns(network: Network) -> int:
    """Return the largest jitter of a link between two receivers."""
    pairs = permutations(group_members(network), 2)
    return max((network.link(a.site, b.site).jitter_ns for a, b in pairs), default=0)


def group_config(
    network: Network,
    choices: Choices,
    *,
    near_ns: int = NEAR_NS,
    defer_ns: int = 0,
    spacing_ns: int = 0,
    alive_ns: int = ALIVE_NS,
    allowed_loss: float = ALLOWED_LOSS,
) -> GroupConfig:
    """Return the configuration of the group of all receivers."""
    if (fault := choices.fault()) is not None:
        raise NetError(fault)
    return GroupConfig(
        choices,
        group_matrix(network),
        tuple(sorted(each.id for each in group_members(network))),
        margin_ns=MARGIN_NS + 2 * largest_jitter_ns(network),
        defer_ns=defer_ns,
        spacing_ns=spacing_ns,
        alive_ns=alive_ns,
        near_ns=near_ns,
        allowed_loss=allowed_loss,
    )


def group_network(network: Network, port: int | None) -> Network:
    """Return the network with other ports: the first receiver has `port`, each further one the next."""
    if port is None:
        return network
    members = group_members(network)
    if not 0 < port <= MAX_PORT - len(members):
        raise NetError(f"port {port} does not leave {len(members)} ports up to {MAX_PORT}; use a lower one")
    moved = dict(network.addresses)
    for place, member in enumerate(members):
        given = moved.get(member.name)
        moved[member.name] = replace(given, port=port + place) if given is not None else NodeAddress(port=port + place)
    return replace(network, addresses=moved)


def group_addresses(network: Network, member: ReceiverNode | SecondaryNode) -> tuple[Address, dict[int, Address]]:
    """Return the own address of a receiver, and those of the others as seen from it."""
    addresses = core_addresses(network)
    peers = {}
    for each in group_members(network):
        if each.id != member.id:
            host = addresses[each.id].seen_from(same_site=each.site == member.site)
            peers[each.id] = (resolve(host), addresses[each.id].port)
    own = addresses[member.id]
    return (resolve(own.bind), own.port), peers

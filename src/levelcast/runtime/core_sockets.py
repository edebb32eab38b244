"""Open the sockets of a node in the core of a network, by its transport."""

from __future__ import annotations

from levelcast.errors import NetError
from levelcast.network import Network
from levelcast.network.addresses import core_addresses, large_sites, operator_address, ports_on_loopback, site_group
from levelcast.network.packet_routes import packet_routes
from levelcast.network.placement import places
from levelcast.network.roles import FLOOR, RECEIVER, REFORMATION, SECONDARY, RoleKind
from levelcast.overlay.detours import Detours
from levelcast.overlay.duplicates import KEEP_NS, RecentMessages
from levelcast.overlay.fanout import Fanout, Kind, OverlayNode
from levelcast.runtime.overlay_sockets import OverlaySockets, resolve
from levelcast.runtime.sockets import LOOPBACK, Address, CoreSockets, udp, usable
from levelcast.timing.copies import NOTHING
from levelcast.wire.messages import CONTROL_SOURCE

LIVE_NS = 1_000_000_000
"""Minimum time after which a node that sends nothing counts as silent."""
FIRST_FREE_PORT, LAST_FREE_PORT = 10_000, 32_000
"""Ports to try on loopback, below those that the kernel assigns to programs."""
_KINDS: dict[RoleKind, Kind] = {RECEIVER: "receiver", SECONDARY: "secondary", REFORMATION: "server", FLOOR: "floor"}
NO_OPERATOR = "operator of [core] is missing; set the address of the machine on which this command runs"

AnySockets = CoreSockets | OverlaySockets


def open_core(
    network: Network, stripe: int | str, node: int, interface: str = LOOPBACK, *, hears_data: bool = False
) -> AnySockets:
    """Return the sockets of a node, or of the operator (`CONTROL_SOURCE`), in one stripe."""
    if network.transport == "multicast":
        group = network.core_group(stripe)
        with usable(interface):
            return CoreSockets(group.address, group.port, interface, hears_data=hears_data, ttl=group.ttl or 1)
    fanout = core_fanout(network, stripe, node)
    sites = {place.id: place.site for place in places(network, stripe)}
    addresses = core_addresses(network, stripe)
    operator = operator_address(network)
    if operator is not None:
        addresses[CONTROL_SOURCE] = operator
    elif node == CONTROL_SOURCE:
        raise NetError(NO_OPERATOR)
    peers: dict[int, Address] = {}
    for each, address in addresses.items():
        same_site = each in sites and sites[each] == sites.get(node)
        peers[each] = resolve(address.seen_from(same_site=same_site)), address.port
    del peers[node]
    own = addresses[node]
    site = site_group(network, stripe, sites[node]) if node in sites else None
    timing = network.timing(stripe)
    return OverlaySockets(
        (resolve(own.bind), own.port),
        peers,
        fanout,
        RecentMessages(min(KEEP_NS, timing.resend_ns // 4)),
        detours=core_detours(network, stripe, node) if hears_data else None,
        site_group=None if site is None else (site.address, site.port),
        interface="" if interface == LOOPBACK else interface,
        hears_data=hears_data,
    )


def core_fanout(network: Network, stripe: int | str, node: int) -> Fanout:
    """Return the decisions of where a node's messages go."""
    nodes = [OverlayNode(place.id, place.site, _KINDS[place.role]) for place in places(network, stripe)]
    if operator_address(network) is not None:
        nodes.append(OverlayNode(CONTROL_SOURCE, "", "guest"))
    large = large_sites(network) if network.transport == "sites" else ()
    timing = network.timing(stripe)
    live_ns = max(LIVE_NS, 3 * len(network.receivers) * timing.slot_ns)
    trees = {floor: tree.children() for floor, tree in packet_routes(network, stripe).items()}
    return Fanout(node, nodes, large, network.distance_ns, live_ns, max(live_ns, 3 * timing.resend_ns), trees)


def core_detours(network: Network, stripe: int | str, node: int) -> Detours:
    """Return the detours that a receiver may be."""
    everywhere = places(network, stripe)
    receivers = {place.site: place.id for place in reversed(everywhere) if place.role is RECEIVER}
    floors = {place.id: receivers[place.site] for place in everywhere if place.floor and place.site in receivers}
    releasing = frozenset(place.id for place in everywhere if place.role.releases)
    copies = dict(network.stripe(stripe).rules.copies)
    second = frozenset(place.id for place in everywhere if copies.get(place.name, NOTHING).second_path)
    return Detours(node, releasing, floors, shorter=network.detours, second=second)


def runs_on_one_machine(sockets: AnySockets, interface: str) -> bool:
    """Return whether no other machine can take part: the node is on the loopback interface."""
    return sockets.address[0].startswith("127.") if isinstance(sockets, OverlaySockets) else interface == LOOPBACK


def free_loopback_port(network: Network) -> int:
    """Return the first of the ports that all nodes of a network can use on loopback: that of the file if they are free.

    Raise NetError if no such ports are found.
    """
    count, wanted = ports_on_loopback(network), network.core.port
    first: int
    for first in (wanted, *range(FIRST_FREE_PORT, LAST_FREE_PORT - count, count)):
        if all(_is_free(port) for port in range(first, first + count)):
            return first
    raise NetError(f"no {count} consecutive UDP ports are free on {LOOPBACK}; stop other programs")


def _is_free(port: int) -> bool:
    with udp() as trial:
        try:
            trial.bind((LOOPBACK, port))
        except OSError:
            return False
    return True

"""Addresses of nodes in a core without multicast: from the file, or on loopback with ports by position.

A node has four ports per stripe, in this order: control, packets, packets that it forwards, and the edge. The edge
uses its port, for UDP and TCP, if it serves subscribers without multicast. Nodes of other sites use a node's `host`,
nodes of its own site its `bind` address. The operator, from whose address commands change a running network, comes
after the last node.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from levelcast.network.model import PORTS_PER_STRIPE, MulticastGroup, Network, NodeAddress
from levelcast.network.placement import all_places, places

LOCAL_HOST = "127.0.0.1"
PORTS_PER_NODE = 4
EDGE_CHANNEL = 3
ANY_HOST = "0.0.0.0"
LARGE_SITE = 3
"""Receivers of one stripe from which on a site uses multicast, with the transport "sites" (O4)."""


@dataclass(frozen=True, slots=True)
class CoreAddress:
    """The address of a node's part in one stripe."""

    host: str
    bind: str
    port: int

    def seen_from(self, *, same_site: bool) -> str:
        """Return the host by which a node of the same or of another site reaches this one."""
        return self.bind if same_site and self.bind != ANY_HOST else self.host


class AddressClash(NamedTuple):
    """Two nodes with one address."""

    first: str
    second: str
    host: str
    port: int


def core_addresses(network: Network, stripe: int | str = 0) -> dict[int, CoreAddress]:
    """Return the addresses of all nodes of a stripe, by id."""
    found = network.stripe(stripe)
    position = {place.part: index for index, place in enumerate(all_places(network))}
    addresses = {}
    for place in places(network, stripe):
        given = network.addresses.get(place.name, NodeAddress())
        port = network.core.port + PORTS_PER_NODE * position[place.part]
        if given.port is not None:
            port = given.port + (0 if place.floor is not None else PORTS_PER_NODE * found.index)
        host = given.host or given.bind or LOCAL_HOST
        addresses[place.id] = CoreAddress(host, given.bind or host, port)
    return addresses


def edge_addresses(network: Network, group: MulticastGroup) -> list[tuple[str, int]]:
    """Return host and port of the receivers that send to an edge group, in all stripes, for subscribers by unicast."""
    senders = {each.name for each in network.releasing if group.region in (None, network.region_of(each.name))}
    found: list[tuple[str, int]] = []
    for stripe in network.stripes:
        addresses = core_addresses(network, stripe.name)
        chosen = [addresses[place.id] for place in places(network, stripe.name) if place.name in senders]
        found += [(address.host, address.port + EDGE_CHANNEL) for address in chosen]
    return found


def operator_address(network: Network) -> CoreAddress | None:
    """Return the address from which commands change a running network; None if the file needs one and has none."""
    host = network.operator or (None if any(each.host for each in network.addresses.values()) else LOCAL_HOST)
    if host is None:
        return None
    return CoreAddress(host, host, network.core.port + PORTS_PER_NODE * len(all_places(network)))


def ports_on_loopback(network: Network) -> int:
    """Return the number of ports from `port` of [core] on that all nodes and the operator use on one machine."""
    return PORTS_PER_NODE * (len(all_places(network)) + 1)


def on_loopback(network: Network, port: int) -> Network:
    """Return the network with all nodes on loopback, with ports from this one on."""
    return replace(network, addresses={}, operator=None, core=replace(network.core, port=port))


def large_sites(network: Network) -> tuple[str, ...]:
    """Return the sites that use multicast with the transport "sites", in the file's order."""
    count: dict[str, int] = {}
    for receiver in network.releasing:
        count[receiver.site] = count.get(receiver.site, 0) + 1
    return tuple(site.name for site in network.sites if count.get(site.name, 0) >= LARGE_SITE)


def site_group(network: Network, stripe: int | str, site: str) -> MulticastGroup | None:
    """Return the multicast group of a site with the transport "sites"; None for a site that needs none.

    Each site has its own ports, so that several sites can be on one machine.
    """
    large = large_sites(network)
    if network.transport != "sites" or site not in large:
        return None
    group = network.core_group(stripe)
    return replace(group, port=group.port + PORTS_PER_STRIPE * len(network.stripes) * large.index(site))


def address_clashes(network: Network) -> Iterator[AddressClash]:
    """Yield pairs of nodes with a common address: by host, or by own address within a site."""
    taken: dict[tuple[str, str, int], str] = {}
    for stripe in network.stripes:
        addresses = core_addresses(network, stripe.name)
        for place in places(network, stripe.name):
            address = addresses[place.id]
            for where, host in (("", address.host), (place.site, address.seen_from(same_site=True))):
                for port in range(address.port, address.port + PORTS_PER_NODE):
                    first = taken.setdefault((where, host, port), place.part)
                    if first != place.part:
                        names = (first.rpartition("/")[2], place.name)
                        yield AddressClash(*names, host, port)
                        break
                else:
                    continue
                break

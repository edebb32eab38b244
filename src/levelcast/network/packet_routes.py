"""Routes of packets where nodes have uplinks: the trees of all floors, from the file alone (O2).

The copies of a node are its uplink over the rate of a floor, which `rate` of [core] states, with the factor of
`redundancy`. A node without an uplink has room for all. Secondaries send nothing to other sites, so they pass on
nothing. All nodes have the same file, so all know the same trees.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from levelcast.timing.packet_tree import PacketTree, packet_trees

if TYPE_CHECKING:
    from levelcast.network.model import Network


def packet_routes(network: Network, stripe: int | str = 0) -> Mapping[int, PacketTree]:
    """Return the tree of each floor of a stripe; none without uplinks. Raise NoTreeError if they fit none."""
    if not network.uplinks:
        return {}
    sites = {each.id: each.site for each in (*network.releasing, *network.floors)}
    receivers = [each.id for each in network.releasing]
    everywhere = len(receivers) * max(1, len(network.floors))
    room = dict.fromkeys((each.id for each in network.secondaries), 0)
    names = [(each.id, each.name) for each in network.receivers] + [(each.id, each.name) for each in network.floors]
    for node, node_name in names:
        uplink = network.uplinks.get(node_name)
        room[node] = everywhere if uplink is None else copies_within(network, uplink)
    trees = packet_trees(
        [floor.id for floor in network.floors],
        receivers,
        room,
        lambda one, other: network.distance_ns(sites[one], sites[other]),
    )
    name = network.stripe(stripe).name
    return {floor.id: trees[floor.id] for floor in network.floors if floor.stripe == name}


def copies_within(network: Network, uplink_bytes: int) -> int:
    """Return the number of copies of a floor's packets for which an uplink has room."""
    rate = network.carriage.rate_bytes or 1
    factor = max(stripe.rules.redundancy for stripe in network.stripes)
    return int(uplink_bytes / (rate * factor))

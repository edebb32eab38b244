"""Lines of regions and their receivers, from the network file (MS §4.1, §4.3).

A region has lines, `[[edge.group]]`s with `line = "a"`, `"b"`; a subscriber joins them all and uses the first copy.

1. Every line has one receiver at a time, so two sources do not send to one address. A reformation server assigns it
   (`levelcast.ring.line_server`). While a line moves, two receivers may send to it: they send the same numbered bytes.
2. Each line of a region has a *preferred* receiver: the first line has the first in the order of preference, the second
   line the second. The order starts with receivers at sites of the region, one of each site before a second one of the
   same site. The others follow by the delay of the links, nearest first.
3. `levelcast.protocol.lines` assigns lines by this order to operable receivers.
4. The primaries of the current ring are operable, and the secondaries of all groups.

Every receiver of a region sends to its groups without a line, regardless of which receivers are operable.

**Scope.** The `ttl` of a group reaches the subscribers of its region from a site of the region. A receiver of another
region that has the line adds the routers to the nearest site of the region, if the links have `hops` (`scope_ttl`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from math import inf
from typing import TYPE_CHECKING

from levelcast.protocol.lines import RegionLines
from levelcast.protocol.lines import holders as assign_lines

if TYPE_CHECKING:
    from levelcast.network.model import MulticastGroup, Network, ReceiverNode, SecondaryNode

MOST_TTL = 255

__all__ = ["LineAssignment", "holders", "preference", "region_lines", "scope_ttl", "share_of_line", "warnings"]


def preference(network: Network, region: str | None) -> list[str]:
    """Return all receivers in a region's order of preference (rule 2)."""
    sites = [site.name for site in network.sites if region in (None, site.region)]
    met: Counter[str] = Counter()

    def key(receiver: ReceiverNode | SecondaryNode) -> tuple[bool, int, float]:
        if receiver.site in sites:
            met[receiver.site] += 1
            return False, met[receiver.site], 0
        return True, 0, min((network.distance_ns(receiver.site, site) for site in sites), default=inf)

    return [receiver.name for receiver in sorted(network.releasing, key=key)]


def region_lines(network: Network) -> list[RegionLines[str]]:
    """Return the lines of each region by name, and its order of preference."""
    regions = dict.fromkeys(group.region for group in network.edge.groups if group.line is not None)
    found = []
    for region in regions:
        lines = sorted((group.line or "", group.name) for group in network.edge.groups if _is_line_of(group, region))
        found.append(RegionLines(tuple(name for _, name in lines), tuple(preference(network, region))))
    return found


def holders(network: Network, operable: Collection[str]) -> dict[str, str]:
    """Return the receiver of each edge group that is a line, by name; empty if no receiver is operable."""
    return assign_lines(region_lines(network), operable)


def scope_ttl(network: Network, receiver: str, group: MulticastGroup) -> int:
    """Return the hop limit of packets that a receiver sends to a group (MS §4.3)."""
    ttl = network.edge.ttl if group.ttl is None else group.ttl
    if group.region in (None, network.region_of(receiver)):
        return ttl
    here = next(each.site for each in network.releasing if each.name == receiver)
    region = (site.name for site in network.sites if site.region == group.region)
    links = (network.links.between(here, site) for site in region if network.links is not None)
    hops = min((link.hops for link in links if link is not None and link.hops is not None), default=0)
    return min(ttl + hops, MOST_TTL)


def share_of_line(network: Network, group: MulticastGroup) -> int:
    """Return the bytes/s that one receiver may send to a group with a rate.

    A group with `line` has one sender. Every receiver of the region sends to a group without: each has an equal share.
    """
    assert group.rate_bytes is not None
    if group.line is not None:
        return group.rate_bytes
    senders = sum(group.region in (None, network.region_of(each.name)) for each in network.releasing)
    return group.rate_bytes // max(1, senders)


def _is_line_of(group: MulticastGroup, region: str | None) -> bool:
    return group.line is not None and group.region == region


class LineAssignment:
    """The groups to which one receiver sends."""

    def __init__(self, network: Network, receiver: str) -> None:
        self._steady = tuple(group for group in network.edge_groups_of(receiver) if group.line is None)
        self._lines = {group.name: group for group in network.edge.groups if group.line is not None}

    def __bool__(self) -> bool:
        """Return whether the receiver has groups, or may be assigned some."""
        return bool(self._lines or self._steady)

    def groups(self, lines: Collection[str]) -> tuple[MulticastGroup, ...]:
        """Return the groups to send to while these lines are assigned to the receiver."""
        return self._steady + tuple(group for name, group in self._lines.items() if name in lines)


def warnings(network: Network) -> Iterator[str]:
    """Yield a warning for each region that depends on one receiver, also if it sends both lines."""
    everybody = [receiver.name for receiver in network.releasing]
    held = holders(network, everybody)
    region_of = {site.name: site.region for site in network.sites}
    for region in dict.fromkeys(group.region for group in network.edge.groups):
        senders = {held[group.name] for group in network.edge.groups if _is_line_of(group, region)}
        if any(group.line is None and group.region in (None, region) for group in network.edge.groups):
            senders |= {each.name for each in network.releasing if region in (None, region_of[each.site])}
        if len(senders) == 1 and len(everybody) > 1:
            where = f'Region "{region}" is' if region is not None else "Subscribers are"
            yield (
                f"{where} covered by one receiver, {senders.pop()}: while it is down, subscribers receive nothing. "
                'Define two groups for the region, with line = "a" and line = "b".'
            )

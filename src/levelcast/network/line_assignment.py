"""Assign each line of a region to a receiver (MS §4.1, §4.3), from the network and the operable receivers.

A region has lines, `[[edge.group]]`s with `line = "a"`, `"b"`; a subscriber joins them all and uses the first copy.

1. Every line has one receiver at a time, so two sources never send to one address. Receivers in the same ring compute
   the same assignment without negotiation. While a ring is being replaced, two receivers may send, or none: they would
   send the same numbered bytes.
2. Each line of a region has a *preferred* receiver: the first line has the first in the order of preference, the second
   line the second. The order starts with receivers at sites of the region, one of each site before a second one of the
   same site. The others follow by the delay of the links, nearest first.
3. A line stays at its preferred receiver while that is operable. Otherwise it is assigned to the first operable
   receiver in that order that has no line and is preferred for none; failing that, to one that has a line. So a line
   at its preferred receiver stays there when other receivers fail or return.
4. The primaries of the current ring are operable, and every secondary that is not reported as down.

Every receiver of a region sends to its groups without a line, regardless of which receivers are operable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from levelcast.network.model import MulticastGroup, Network, ReceiverNode, SecondaryNode

__all__ = ["LineAssignment", "holders", "preference", "share_of_line", "warnings"]


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


def holders(network: Network, operable: Collection[str]) -> dict[str, str]:
    """Return the receiver of each edge group that is a line, by name; empty if no receiver is operable."""
    found: dict[str, str] = {}
    regions = dict.fromkeys(group.region for group in network.edge.groups if group.line is not None)
    for region in regions:
        lines = sorted((group.line or "", group.name) for group in network.edge.groups if _is_line_of(group, region))
        order = preference(network, region)
        homes = {name: order[number % len(order)] for number, (_, name) in enumerate(lines)}
        able = [name for name in order if name in operable]
        spare = [name for name in able if name not in homes.values()]
        used = [home for home in homes.values() if home in operable]
        for _, name in lines:
            home = homes[name]
            if home in operable:
                found[name] = home
            elif able:
                found[name] = spare.pop(0) if spare else min(able, key=used.count)
                used.append(found[name])
    return found


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
    """The groups to which one receiver sends in each ring."""

    def __init__(self, network: Network, receiver: str) -> None:
        self._network = network
        self._receiver = receiver
        self._names = {each.id: each.name for each in network.receivers}
        self._secondaries = tuple(each.name for each in network.secondaries)
        self._steady = tuple(group for group in network.edge_groups_of(receiver) if group.line is None)
        self._has_lines = any(group.line is not None for group in network.edge.groups)

    def __bool__(self) -> bool:
        """Return whether the receiver has groups, or may have some in another ring."""
        return self._has_lines or bool(self._steady)

    def groups(self, members: Collection[int], down: Collection[str] = ()) -> tuple[MulticastGroup, ...]:
        """Return the groups to send to while these primaries are in the ring; without a ring, no lines."""
        if not self._has_lines or not members:
            return self._steady
        operable = {self._names[member] for member in members if member in self._names}
        operable |= {name for name in self._secondaries if name not in down}
        held = holders(self._network, operable)
        mine = tuple(group for group in self._network.edge.groups if held.get(group.name) == self._receiver)
        return self._steady + mine


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

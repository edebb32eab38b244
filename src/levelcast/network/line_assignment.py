"""Which receiver sends to which line of a region (MS §4.1, §4.3): a function of the network and of who is operable.

A region has lines, `[[edge.group]]`s with `line = "a"`, `"b"`; a customer joins them all and takes what comes first.

1. Every line has one receiver at a time, so two sources never send to one address. Those who are in the same ring
   compute the same: nothing is negotiated. While a ring is being replaced two may send, or none: they would send the
   same numbered bytes.
2. Each line of a region has a *home*: its receivers in the order of preference, the first line the first, the second
   the second. Preferred are receivers at sites of the region, one of each site before a second one of the same; then
   the others, from the nearest by the delay of the links.
3. A line stays at its home as long as that is operable. Otherwise the first operable receiver in that order takes it
   which is no line's home and has no line yet; failing that, one that has a line already. So whoever fails or
   returns, a line that is at its home stays there.
4. Operable are the primaries of the current ring, and every secondary that is not said to be down.

Groups without a line are sent to by every receiver of their region, whoever is operable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from levelcast.network.model import MulticastGroup, Network, ReceiverNode, SecondaryNode

__all__ = ["LineAssignment", "holders", "preference", "warnings"]


def preference(network: Network, region: str | None) -> list[str]:
    """All receivers, from the one that a region would have first (rule 2)."""
    sites = [site.name for site in network.sites if region in (None, site.region)]
    met: Counter[str] = Counter()

    def key(receiver: ReceiverNode | SecondaryNode) -> tuple[bool, int, float]:
        if receiver.site in sites:
            met[receiver.site] += 1
            return False, met[receiver.site], 0
        return True, 0, min((network.distance_ns(receiver.site, site) for site in sites), default=inf)

    return [receiver.name for receiver in sorted(network.releasing, key=key)]


def holders(network: Network, operable: Collection[str]) -> dict[str, str]:
    """The receiver of each edge group that is a line, by their names; none while nobody is operable."""
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


def _is_line_of(group: MulticastGroup, region: str | None) -> bool:
    return group.line is not None and group.region == region


class LineAssignment:
    """What one receiver sends to, as rings come and go."""

    def __init__(self, network: Network, receiver: str) -> None:
        self._network = network
        self._receiver = receiver
        self._names = {each.id: each.name for each in network.receivers}
        self._secondaries = tuple(each.name for each in network.secondaries)
        self._steady = tuple(group for group in network.edge_groups_of(receiver) if group.line is None)
        self._has_lines = any(group.line is not None for group in network.edge.groups)

    def __bool__(self) -> bool:
        """Whether there is, or may be, anything to send to."""
        return self._has_lines or bool(self._steady)

    def groups(self, members: Collection[int], down: Collection[str] = ()) -> tuple[MulticastGroup, ...]:
        """The groups to send to, when these primaries are in the ring; without a ring no line is sent to."""
        if not self._has_lines or not members:
            return self._steady
        operable = {self._names[member] for member in members if member in self._names}
        operable |= {name for name in self._secondaries if name not in down}
        held = holders(self._network, operable)
        mine = tuple(group for group in self._network.edge.groups if held.get(group.name) == self._receiver)
        return self._steady + mine


def warnings(network: Network) -> Iterator[str]:
    """Regions whose customers hear from one receiver only, or two lines that come from one."""
    everybody = [receiver.name for receiver in network.releasing]
    held = holders(network, everybody)
    region_of = {site.name: site.region for site in network.sites}
    for region in dict.fromkeys(group.region for group in network.edge.groups):
        senders = {held[group.name] for group in network.edge.groups if _is_line_of(group, region)}
        if any(group.line is None and group.region in (None, region) for group in network.edge.groups):
            senders |= {each.name for each in network.releasing if region in (None, region_of[each.site])}
        if len(senders) == 1 and len(everybody) > 1:
            where = f'Region "{region}" is' if region is not None else "Customers are"
            yield (
                f"{where} covered by one receiver, {senders.pop()}: while it is down, customers hear nothing. "
                'Give the region two groups with line = "a" and line = "b".'
            )

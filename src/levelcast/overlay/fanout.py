"""Decide to which nodes a message of the core goes where the network has no multicast (sans I/O; TT, O1 to O4).

- Control goes to each node directly (O1), and only to the roles that use it.
- Packets go to each receiver directly. With the transport "sites", a *large* site (three or more receivers of the
  stripe) gets two copies, for two forwarders that multicast them there (O4). Its nodes multicast to their own site.
- A floor with a receiver at its site sends its packets to that one, the coordinator, and to the two nearest primaries
  of other sites. The coordinator sends them to the rest (O3). A floor alone, or with a silent coordinator, sends
  to all itself.
- Where uplinks are too small for that, a floor's packets take a tree (O2, `levelcast.timing.packet_tree`). A node sends
  to the children of a child that is silent, too, even beyond its uplink.

Which node forwards is decided by the sender, from the messages that it has received: a primary that it has heard
lately, else a secondary (which sends nothing to other sites), else a silent primary. The packets for a forwarder go to
a port of their own, so that it knows its duty from the arrival alone; the author of the packets determines where it
sends them. So no message needs an envelope, and a forwarder passes on the bytes that the author has sealed.

Deviation from TT: the coordinator and the forwarders are not agreed upon. Two senders may use different ones, and every
node that gets packets to forward does so; copies that this causes are dropped (`levelcast.overlay.duplicates`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal, NamedTuple

from levelcast.wire.codec import KIND_REPAIR
from levelcast.wire.token_codec import KIND_BEAT, KIND_REQUEST, KIND_TOKEN

OWN_SITE = -4
"""Destination of a multicast within the sender's site."""
FORWARDERS = 2
"""Copies of packets to a large site (O4)."""
NEAREST = 2
"""Primaries of other sites to which a floor sends beside its coordinator (O3)."""
CONTROL, DATA, FORWARD = 0, 1, 2
"""Channels of a node, each with a port: control, packets, packets that it is to forward."""

Kind = Literal["receiver", "secondary", "server", "floor", "guest"]


class OverlayNode(NamedTuple):
    """One node of the stripe."""

    node: int
    site: str
    kind: Kind
    """A guest, such as an operator's command, gets messages only while it sends some."""

    @property
    def receives(self) -> bool:
        return self.kind in ("receiver", "secondary")


class Hop(NamedTuple):
    """One copy: to a node or to `OWN_SITE`, on a channel."""

    to: int
    channel: int


_RECEIVERS: frozenset[Kind] = frozenset({"receiver", "secondary"})
_ALL: frozenset[Kind] = _RECEIVERS | {"server", "floor", "guest"}
_USED_BY: dict[int, frozenset[Kind]] = {
    KIND_BEAT: _RECEIVERS,
    KIND_REQUEST: _RECEIVERS,
    KIND_REPAIR: _RECEIVERS,
    KIND_TOKEN: _RECEIVERS | {"floor", "guest"},
}
"""The roles that a kind of message to the group is for; other kinds are for all."""


def used_by(kind: int) -> frozenset[Kind]:
    """Return the roles that a kind of message to the group is for."""
    return _USED_BY.get(kind, _ALL)


class Fanout:
    """The destinations of one node's messages."""

    def __init__(
        self,
        here: int,
        nodes: Sequence[OverlayNode],
        large_sites: Collection[str],
        distance: Callable[[str, str], float],
        live_ns: int,
        guest_ns: int,
        trees: Mapping[int, Mapping[int, tuple[int, ...]]] | None = None,
    ) -> None:
        """`large_sites` have multicast; `distance` is between two sites; `trees` has the children of nodes, by floor.

        A node is silent after `live_ns`. A guest gets messages for `guest_ns`, longer than the time after which it
        sends again.
        """
        self.here = here
        self._nodes = {each.node: each for each in nodes}
        self._large = frozenset(large_sites)
        self._distance = distance
        self._live_ns = live_ns
        self._guest_ns = guest_ns
        self._trees = trees or {}
        self._heard_ns: dict[int, int] = {}
        self._own = self._nodes[here]
        self._others = [each for each in nodes if each.node != here]
        self.site_mates = tuple(each.node for each in self._others if each.site == self._own.site)
        """The other nodes of the own site."""
        self._order = {each.node: place for place, each in enumerate(nodes)}
        self._hops: dict[frozenset[Kind], tuple[Hop, ...]] = {}
        self._served = {each.node: frozenset(self._nearest(each)) for each in nodes if each.kind == "floor"}
        """By floor: the primaries of other sites to which it sends itself, beside its coordinator."""

    def hear(self, node: int, now: int) -> None:
        """Note that a message of a node has arrived, from it or over others."""
        self._heard_ns[node] = now

    def is_live(self, node: int, now: int) -> bool:
        """Return whether a message of the node has arrived lately."""
        return self._heard_within(node, self._live_ns, now)

    def _heard_within(self, node: int, limit_ns: int, now: int) -> bool:
        heard_ns = self._heard_ns.get(node)
        return heard_ns is not None and now - heard_ns < limit_ns

    # -- control ------------------------------------------------------------------------------------------

    def control(self, audience: frozenset[Kind], now: int) -> tuple[Hop, ...]:
        """Return the destinations of a message to the group, for these roles (O1)."""
        hops = self._hops.get(audience)
        if hops is None:
            hops = self._hops[audience] = tuple(self._control(audience - {"guest"}))
        if "guest" in audience:
            return (*hops, *self._to_guests(now))
        return hops

    def _to_guests(self, now: int) -> list[Hop]:
        guests = (each.node for each in self._others if each.kind == "guest")
        return [Hop(guest, CONTROL) for guest in guests if self._heard_within(guest, self._guest_ns, now)]

    def _control(self, audience: frozenset[Kind]) -> list[Hop]:
        chosen = [each for each in self._others if each.kind in audience]
        inside = self._own.site in self._large and any(each.site == self._own.site for each in chosen)
        hops = [Hop(OWN_SITE, CONTROL)] if inside else []
        return hops + [Hop(each.node, CONTROL) for each in chosen if not inside or each.site != self._own.site]

    def servers(self) -> tuple[Hop, ...]:
        """Return the destinations of a message to all reformation servers."""
        return tuple(Hop(each.node, CONTROL) for each in self._others if each.kind == "server")

    # -- packets ------------------------------------------------------------------------------------------

    def packets(self, now: int) -> list[Hop]:
        """Return the destinations of packets that this node sends as their source (O2, O3, O4)."""
        if self.here in self._trees:
            return self._down(self._trees[self.here], self.here, now)
        if self._own.kind == "floor" and (coordinator := self._coordinator(now)) is not None:
            return [Hop(coordinator, FORWARD), *(self._entry(node) for node in sorted(self._served[self.here]))]
        return self._to_all(now, frozenset())

    def forwarded(self, source: int, now: int) -> list[Hop]:
        """Return the destinations of a source's packets that arrived here to be forwarded."""
        author = self._nodes.get(source)
        if not self._own.receives:
            return []
        if source in self._trees:
            return self._down(self._trees[source], self.here, now)
        if author is not None and author.kind == "floor" and author.site == self._own.site:
            return self._to_all(now, self._served[source])
        return [Hop(OWN_SITE, DATA)] if self._own.site in self._large else []

    def _down(self, tree: Mapping[int, tuple[int, ...]], node: int, now: int) -> list[Hop]:
        """Return the hops to the children of a node, and to those of a child that is silent."""
        hops: list[Hop] = []
        for child in tree.get(node, ()):
            if child in tree and not self.is_live(child, now):
                hops += [Hop(child, DATA), *self._down(tree, child, now)]
            else:
                hops.append(Hop(child, FORWARD if child in tree else DATA))
        return hops

    def _coordinator(self, now: int) -> int | None:
        """Return the first primary of the own site that is not silent."""
        mine = [each.node for each in self._others if each.kind == "receiver" and each.site == self._own.site]
        return next((node for node in mine if self.is_live(node, now)), None)

    def _nearest(self, floor: OverlayNode) -> list[int]:
        """Return the nearest primaries of other sites: the same at all nodes, from the file alone."""
        others = [each for each in self._nodes.values() if each.kind == "receiver" and each.site != floor.site]
        others.sort(key=lambda each: (self._distance(floor.site, each.site), self._order[each.node]))
        return [each.node for each in others[:NEAREST]]

    def _entry(self, node: int) -> Hop:
        """Return the hop to a receiver of another site, which multicasts the packets if its site is large."""
        return Hop(node, FORWARD if self._nodes[node].site in self._large else DATA)

    def _to_all(self, now: int, served: frozenset[int]) -> list[Hop]:
        """Return the destinations that reach all receivers but those that are `served` already."""
        hops: list[Hop] = []
        large: dict[str, list[OverlayNode]] = {}
        for each in self._others:
            if not each.receives:
                continue
            if each.site in self._large:
                large.setdefault(each.site, []).append(each)
            elif each.node not in served:
                hops.append(Hop(each.node, DATA))
        for site, receivers in large.items():
            if site == self._own.site:
                hops.append(Hop(OWN_SITE, DATA))
                continue
            receivers.sort(key=lambda each: (self._rank(each, now), self._order[each.node]))
            chosen = [each.node for each in receivers if each.node not in served]
            copies = FORWARDERS - sum(each.node in served for each in receivers)
            hops += [Hop(node, FORWARD) for node in chosen[: max(0, copies)]]
        return hops

    def _rank(self, node: OverlayNode, now: int) -> int:
        """Return how late a receiver is chosen as a forwarder. A secondary sends nothing to other sites."""
        if node.kind == "secondary":
            return 1
        return 0 if self.is_live(node.node, now) else 2

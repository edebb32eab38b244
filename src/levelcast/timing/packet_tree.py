"""Trees for packets: each node sends at most as many copies as its uplink has room for (TT, O2).

A source sends to all receivers itself while it has room. Otherwise the tree grows from it by the receiver that the
packets reach soonest, over any node with room. A receiver without room is taken only while room for the others is
left, so a tree is found whenever there is one. Several sources use the room of the receivers together; if the soonest
trees do not fit, each source uses its own room first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

RELAY_NS = 500_000
"""Time in which a node passes a packet on."""
Delay = Callable[[int, int], float]


class PacketTree(NamedTuple):
    """The way of a source's packets to the receivers."""

    root: int
    parents: Mapping[int, int]
    """By receiver: the node that sends to it."""

    def children(self) -> dict[int, tuple[int, ...]]:
        """Return the receivers that each node sends to."""
        found: dict[int, tuple[int, ...]] = {}
        for receiver, parent in self.parents.items():
            found[parent] = (*found.get(parent, ()), receiver)
        return found

    def path(self, receiver: int) -> list[tuple[int, int]]:
        """Return the hops from the root to a receiver."""
        hops = [(self.parents[receiver], receiver)]
        while hops[0][0] != self.root:
            hops.insert(0, (self.parents[hops[0][0]], hops[0][0]))
        return hops


class NoTreeError(ValueError):
    """The room of all nodes is not enough for the packets of a source."""

    def __init__(self, root: int, needed: int, room: int) -> None:
        super().__init__(f"source {root} needs {needed} copies, and there is room for {room}")
        self.root, self.needed, self.room = root, needed, room


def packet_trees(
    roots: Sequence[int], receivers: Sequence[int], room: Mapping[int, int], delay_ns: Delay
) -> dict[int, PacketTree]:
    """Return a tree for each source; `room` is the number of copies that a node can send, of all sources together."""
    try:
        return _grow_all(roots, receivers, dict(room), delay_ns, root_first=False)
    except NoTreeError:
        return _grow_all(roots, receivers, dict(room), delay_ns, root_first=True)


def _grow_all(
    roots: Sequence[int], receivers: Sequence[int], room: dict[int, int], delay_ns: Delay, *, root_first: bool
) -> dict[int, PacketTree]:
    return {root: _Growth(root, receivers, room, delay_ns, root_first=root_first).grow() for root in roots}


class _Growth:
    """The growth of one tree; it takes its copies from the room of the nodes."""

    def __init__(
        self, root: int, receivers: Sequence[int], room: dict[int, int], delay_ns: Delay, *, root_first: bool
    ) -> None:
        self._root, self._room, self._delay_ns = root, room, delay_ns
        self._left = list(receivers)
        self._only_root = root_first or room[root] >= len(receivers)
        self._at_ns = {root: 0.0}
        self._parents: dict[int, int] = {}
        self._best: dict[int, tuple[float, int]] = {}
        """By receiver that is left: the soonest arrival, and the parent."""

    def grow(self) -> PacketTree:
        needed = len(self._left)
        available = sum(self._room[node] for node in {self._root, *self._left})
        self._offer(self._root)
        while self._left:
            chosen = self._next()
            if chosen is None:
                raise NoTreeError(self._root, needed, available)
            self._attach(chosen)
        return PacketTree(self._root, self._parents)

    def _next(self) -> int | None:
        """Return the receiver that is reached soonest, if room for the others is left after it."""
        free = sum(self._room[node] for node in self._at_ns)
        is_last = len(self._left) == 1
        able = [each for each in self._left if each in self._best and (is_last or free - 1 + self._room[each] > 0)]
        return min(able, key=lambda each: (self._best[each][0], each), default=None)

    def _attach(self, receiver: int) -> None:
        self._at_ns[receiver], parent = self._best.pop(receiver)
        self._left.remove(receiver)
        self._parents[receiver] = parent
        self._room[parent] -= 1
        if not self._room[parent]:
            if parent == self._root and self._only_root:
                self._only_root = False
                self._best.clear()
            for each in [each for each, (_, best) in self._best.items() if best == parent]:
                del self._best[each]
            for node in self._at_ns:
                self._offer(node)
        self._offer(receiver)

    def _offer(self, node: int) -> None:
        """Offer a node with room as a parent to the receivers that are left."""
        if not self._room[node] or (self._only_root and node != self._root):
            return
        sent_ns = self._at_ns[node] + (RELAY_NS if node != self._root else 0)
        for each in self._left:
            found = sent_ns + self._delay_ns(node, each), node
            if each not in self._best or found < self._best[each]:
                self._best[each] = found

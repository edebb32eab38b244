"""The graph of messages and acknowledgements (MR §4.1): chains as bit masks, candidates, settled versions.

C-3.2, C-3.3: a node is a version of a message, known by its content or only by a citation. Acknowledgements pass down
every edge: `chains` has the bit of each member from which an acknowledgement chain leads to the version. A delivering
set is a mask with Q bits.

*Settled* (not in MR): its payload is delivered and everything that it acknowledges is settled. A candidate is a message
that acknowledges nothing but settled versions. MR says "delivered", of which `Reading` has two interpretations that
fail: histories B1 and B2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from levelcast.byzantine.config import ChainConfig, Reading
from levelcast.byzantine.ledger import ChainLedger
from levelcast.wire.chain_messages import ChainContent, ChainMessage, Citation

NODE_BYTES = 800
"""Size in bytes of a version without its content: the object, its lists and its entries in dictionaries."""
Place = tuple[int, int]
"""(sender, number)."""


class VersionNode:
    """One version of a message."""

    __slots__ = (
        "chains",
        "children",
        "cited_ns",
        "content",
        "direct",
        "done",
        "message",
        "order",
        "parents",
        "ref",
        "since_ns",
        "stale",
        "this_delivered",
        "unwanted",
        "waiting",
    )

    def __init__(self, ref: Citation, now: int) -> None:
        self.ref = ref
        self.message: ChainMessage | None = None
        self.content: ChainContent | None = None
        """The decoded content of a received message, until it is delivered."""
        self.direct = False
        """It is the first version seen here, or does not conflict with that one."""
        self.chains = 0
        self.children: list[VersionNode] = []
        self.parents: list[VersionNode] = []
        self.waiting = 0
        """Number of versions that it acknowledges and that are not settled."""
        self.done = False
        """Settled, or what another reading takes for it."""
        self.this_delivered = False
        """This very version was delivered."""
        self.stale = False
        self.unwanted = False
        """Only authors that cite more versions of its place than an honest one cite it (C-10)."""
        self.cited_ns = now
        self.since_ns = now
        """Time at which its content arrived."""
        self.order = 0


class Graph:
    """All versions that are not settled, and those that are but whose content is still held."""

    def __init__(self, config: ChainConfig, ledger: ChainLedger) -> None:
        self._config = config
        self._ledger = ledger
        self._bit = {member: 1 << index for index, member in enumerate(config.members)}
        self.nodes: dict[Citation, VersionNode] = {}
        self.places: dict[Place, list[VersionNode]] = {}
        self._cited_by: dict[Place, dict[int, set[Citation]]] = {}
        """Per place, the versions that the messages of each author cite."""
        self.unknown: dict[Citation, VersionNode] = {}
        """Versions that are cited and whose content is not held, in the order of their first citation."""
        self._inserted = 0

    def signers(self, node: VersionNode) -> list[int]:
        """Return the members from which a chain leads to a version."""
        return [member for member, bit in self._bit.items() if node.chains & bit]

    def has_delivering_set(self, node: VersionNode) -> bool:
        """Return whether there are chains from Q members (MR §4.2)."""
        return node.chains.bit_count() >= self._config.quorum

    def is_delivered(self, node: VersionNode) -> bool:
        """Return whether the payload of a version is delivered."""
        if node.message is None or node.ref.seq > self._ledger.count(node.ref.sender):
            return False
        return self._ledger.content_digest(node.ref.sender, node.ref.seq) == node.message.header.content_digest

    def is_candidate(self, node: VersionNode) -> bool:
        return node.message is not None and not node.waiting

    def versions(self, place: Place) -> list[VersionNode]:
        return self.places.get(place, [])

    def cited(self, ref: Citation, now: int, by: int | None = None) -> VersionNode:
        """Return the node of a citation, a new one if necessary; `by` is the author of the message that cites it."""
        node = self.nodes.get(ref)
        if node is not None and not node.unwanted:
            return node
        wanted = by is None or self._may_cite(by, ref)
        if node is None:
            node = self.nodes[ref] = VersionNode(ref, now)
            self.places.setdefault((ref.sender, ref.seq), []).append(node)
        node.unwanted = not wanted
        if wanted and node.message is None:
            self.unknown[ref] = node
        return node

    def _may_cite(self, author: int, ref: Citation) -> bool:
        """C-10: return whether a citation makes its version wanted; an honest member cites two of a place at most."""
        versions = self._cited_by.setdefault((ref.sender, ref.seq), {}).setdefault(author, set())
        if ref not in versions and has_cited_enough(len(versions)):
            return False
        versions.add(ref)
        return True

    def insert(self, ref: Citation, message: ChainMessage, *, direct: bool, now: int) -> VersionNode:
        """Add the content of a version, and pass its acknowledgements down (C-3.2, C-3.3)."""
        node = self.cited(ref, now)
        self.unknown.pop(ref, None)
        self._inserted += 1
        node.message, node.direct, node.since_ns, node.order = message, direct, now, self._inserted
        for ack in message.header.acks:
            if is_settled_for(self._ledger, ack):
                continue
            child = self.cited(ack, now, ref.sender)
            child.parents.append(node)
            node.children.append(child)
            node.waiting += not child.done
        self._pass_down(node, node.chains | self._own_bit(ref.sender), node.children)
        if ref.seq <= self._ledger.count(ref.sender):
            self._settle_from([node])
        return node

    def _own_bit(self, sender: int) -> int:
        """Return what the signature of a sender adds to chains: nothing, outside the group (MR §3)."""
        return self._bit.get(sender, 0)

    def _pass_down(self, node: VersionNode, mask: int, children: Iterable[VersionNode]) -> None:
        todo = [(child, mask) for child in children]
        while todo:
            child, mask = todo.pop()
            if mask & ~child.chains:
                child.chains |= mask
                if child.children:
                    below = child.chains | self._own_bit(child.ref.sender)
                    todo += [(each, below) for each in child.children]

    def delivered(self, node: VersionNode) -> None:
        """Settle what the delivery of a version settles."""
        node.this_delivered = True
        node.content = None
        self._settle_from(list(self.versions((node.ref.sender, node.ref.seq))))

    def settle(self, ref: Citation, now: int) -> None:
        """Take a version as settled because f + 1 members state it (C-9)."""
        self._ledger.settle(ref)
        node = self.nodes.get(ref)
        if node is not None and not node.done:
            self._mark_done(node)
            self._settle_from(list(node.parents))

    def _settle_from(self, todo: list[VersionNode]) -> None:
        while todo:
            node = todo.pop()
            if not node.done and becomes_done(self, node):
                self._mark_done(node)
                todo += node.parents

    def _mark_done(self, node: VersionNode) -> None:
        node.done = True
        self.unknown.pop(node.ref, None)
        for parent in node.parents:
            parent.waiting -= 1
        if self._config.reading is Reading.SETTLED:
            self._ledger.settle(node.ref)

    def reading(self) -> Reading:
        return self._config.reading

    def drop(self, node: VersionNode) -> None:
        """Forget the content of a version (C-10)."""
        self.nodes.pop(node.ref, None)
        self.unknown.pop(node.ref, None)
        place = (node.ref.sender, node.ref.seq)
        left = [each for each in self.versions(place) if each is not node]
        if left:
            self.places[place] = left
        else:
            self.places.pop(place, None)
            self._cited_by.pop(place, None)
        for child in node.children:
            if node in child.parents:
                child.parents.remove(node)
            if not child.parents and child.message is None and child.ref in self.nodes:
                self.drop(child)  # nothing that is held cites it any more
        node.children = []

    def lowest_blocking(self, node: VersionNode) -> Iterator[VersionNode]:
        """Yield the undelivered versions below one that wait for nothing below themselves."""
        for each in self.below(node):
            if each is not node and not self.is_delivered(each) and (each.message is None or not each.waiting):
                yield each

    def below(self, node: VersionNode, enters: Callable[[VersionNode], bool] = lambda _: True) -> Iterator[VersionNode]:
        """Yield a version and everything that it acknowledges and that is not settled; →* of MR §4.2."""
        seen = {node.ref}
        todo = [node]
        while todo:
            each = todo.pop()
            yield each
            for child in each.children:
                if child.ref not in seen and enters(child) and not (child.done and self._is_closed()):
                    seen.add(child.ref)
                    todo.append(child)

    def _is_closed(self) -> bool:
        """Return whether a settled version has nothing unsettled below it: true in no other reading."""
        return self._config.reading is Reading.SETTLED

    @property
    def held_bytes(self) -> int:
        """Size in bytes of everything held, an estimate for what is not content: `ChainConfig.memory_bound`."""
        return self.content_bytes + NODE_BYTES * len(self.nodes)

    @property
    def content_bytes(self) -> int:
        """Size in bytes of all messages held."""
        return sum(len(node.message.sealed) for node in self.nodes.values() if node.message is not None)


def has_cited_enough(versions: int) -> bool:
    """Return whether an author has cited as many versions of a place as an honest one: with B, and without (C-6)."""
    return versions >= 2


def is_settled_for(ledger: ChainLedger, ref: Citation) -> bool:
    """Return whether an old citation means a settled version (C-10): its digest stays for that."""
    return ledger.is_settled(ref)


def becomes_done(graph: Graph, node: VersionNode) -> bool:
    """Return whether a version counts as settled, in the configured reading."""
    reading = graph.reading()
    if reading is Reading.THIS_MESSAGE:
        return node.this_delivered
    if reading is Reading.BY_PAYLOAD:
        return graph.is_delivered(node)
    return graph.is_delivered(node) and not node.waiting

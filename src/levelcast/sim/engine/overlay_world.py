"""World without multicast between sites: messages take the hops that the overlay decides (`levelcast.overlay.fanout`).

Every copy between two nodes is delayed and lost on its own. A node drops repeated copies and forwards packets on
arrival, as the sockets of the overlay do. What it knows of other nodes and of recent messages is memory: a crash loses
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import NamedTuple

from levelcast.native.layout import KIND_AT
from levelcast.overlay.duplicates import RecentMessages
from levelcast.overlay.fanout import FORWARD, OWN_SITE, Fanout, Hop, OverlayNode, used_by
from levelcast.protocol.config import StripeConfig
from levelcast.protocol.effects import GROUP, SERVERS
from levelcast.sim.engine.network import Copy, VirtualNetwork
from levelcast.sim.engine.world import SideWorld, SimNode, World
from levelcast.wire.codec import encode
from levelcast.wire.messages import Data, Message, Token
from levelcast.wire.packets import singles

LIVE_NS = 200_000_000
"""Time after which a node counts as silent: short, so that histories have silent nodes."""


class Arrived(NamedTuple):
    """A message with the node that sent this copy, which is not always its author."""

    sender: int
    forward: bool
    message: Message


class OverlaySimNode(SimNode):
    """Host of a protocol class behind the sockets of the overlay."""

    fanout: Fanout
    recent: RecentMessages

    def start(self) -> None:
        world = self.world
        assert isinstance(world, OverlaySends)
        self.fanout = world.make_fanout(self.id)
        self.recent = RecentMessages(max(1, world.config.timing.resend_ns // 4))
        super().start()

    def arrive(self, *messages: Message | Arrived) -> None:
        """Drop repeated copies, forward packets, and process the rest."""
        if self.machine is None:
            return
        if self.world.now < self.paused_until_ns:
            self.world.at(self.paused_until_ns, lambda: self.arrive(*messages))
            return
        new: list[Message] = []
        for message in messages:
            new += self._take(message) if isinstance(message, Arrived) else [message]
        if new:
            super().arrive(*new)

    def _take(self, arrived: Arrived) -> Sequence[Message]:
        now, message = self.world.now, arrived.message
        self.fanout.hear(arrived.sender, now)
        if isinstance(message, Token):
            return [] if self.recent.is_repeated(message.sealed, now) else [message]
        if not isinstance(message, Data):
            return [message]
        self.fanout.hear(message.source, now)
        parts = self.recent.new_parts(message, now)
        if arrived.forward:
            hops = self.fanout.forwarded(message.source, now)
            world = self.world
            assert isinstance(world, OverlaySends)
            for part in parts:
                world.carry(self, hops, part)
        return parts


class OverlaySends(World):
    """A world whose nodes send without multicast, each by its own `Fanout`."""

    make_fanout: Callable[[int], Fanout]
    """Returns the decisions of a node that starts; set by the history."""
    _sender = 0
    _forward = False

    def send(self, sender: SimNode, to: int, message: Message) -> None:
        """Send copies of a message over the hops that the overlay decides."""
        assert isinstance(sender, OverlaySimNode)
        if isinstance(message, Data) and to == GROUP:
            hops: Iterable[Hop] = sender.fanout.packets(self.now)
        elif to == GROUP:
            kind = encode(message, self.config.domain)[KIND_AT]
            hops = sender.fanout.control(used_by(kind), self.now)
        elif to == SERVERS:
            hops = sender.fanout.servers()
        else:
            hops = (Hop(to, 0),)
        self.trace(sender.id, "sends", (to, message))
        self.carry(sender, hops, message)

    def carry(self, sender: SimNode, hops: Iterable[Hop], message: Message) -> None:
        """Carry a message over hops; the adversary may stop a sender between two of them."""
        kind, chosen = type(message), list(hops)
        if self.partial_multicast is not None and len(chosen) > 1:
            reached = set(self.partial_multicast(sender, message, [hop.to for hop in chosen]))
            chosen = [hop for hop in chosen if hop.to in reached]
        for hop in chosen:
            receivers = [hop.to]
            if hop.to == OWN_SITE:
                assert isinstance(sender, OverlaySimNode)
                receivers = [node for node in sender.fanout.site_mates if kind in self.nodes[node].listens]
            elif kind not in self.nodes[hop.to].listens:
                continue
            self._sender, self._forward = sender.id, hop.channel == FORWARD
            if isinstance(message, Data) and message.first < message.last:
                self._carry_train(sender, receivers, singles(message))
                continue
            for copy, received in self._copies(sender, receivers, message):
                self._deliver(copy, received)

    def _deliver(self, copy: Copy, message: Message) -> None:
        super()._deliver(copy, Arrived(self._sender, self._forward, message))  # type: ignore[arg-type]


class OverlayWorld(OverlaySends):
    """World of the only stripe, or of the first one."""


class OverlaySideWorld(OverlaySends, SideWorld):
    """World of another stripe."""

    def __init__(self, main: World, config: StripeConfig, network: VirtualNetwork, rng: Random) -> None:
        SideWorld.__init__(self, main, config, network, rng)


def fanout_maker(
    nodes: Sequence[OverlayNode], large: frozenset[str], distance: Callable[[str, str], float], guest_ns: int
) -> Callable[[int], Fanout]:
    """Return what makes the decisions of a node that starts."""
    return lambda node: Fanout(node, nodes, large, distance, LIVE_NS, guest_ns)

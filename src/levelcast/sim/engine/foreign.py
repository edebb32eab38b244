"""Simulate another network on the same multicast group, with the same node ids: its datagrams reach every node.

Its messages are this network's messages with other contents, sealed with another network identifier. A node that
accepted one would order, release or promise something that its own network never sent.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from levelcast.wire.codec import decode_batch, encode
from levelcast.wire.header import domain_of, split_domain
from levelcast.wire.messages import Data, Group, LineHolders, Message, Repair, Ring, Token
from levelcast.wire.packets import open_packets, seal

SHARE = 0.1
"""Share of this network's messages that have a counterpart in the other network."""
LATEST_NS = 50_000_000
CLAIMED_SLOTS = 3
"""Slots that a foreign token claims beyond those of its counterpart."""


class ForeignNetwork:
    """The other network. It has its own random generator, so that a history without it is otherwise the same."""

    def __init__(self, domain: int, seed: int) -> None:
        network, stripe = split_domain(domain)
        self._rng = Random(f"foreign network {seed}")
        self._domain = domain
        self._foreign = domain_of(network + 1, stripe)
        self.is_there = self._rng.random() < 0.4
        self.rejected = 0
        """Copies of its datagrams that nodes rejected."""

    def overhear(self, message: Message, nodes: int, deliver: Callable[[int, Message], None]) -> None:
        """Send a counterpart of `message` to `nodes` nodes; `deliver` gets the delay and what a node accepts of it."""
        if not self.is_there or self._rng.random() >= SHARE:
            return
        accepted, reasons = decode_batch((self._counterpart(message),), self._domain)
        self.rejected += nodes * sum(reasons.values())
        for each in accepted:
            deliver(self._rng.randint(1, LATEST_NS), each)

    def _counterpart(self, message: Message) -> bytes:
        if isinstance(message, Repair) and message.items:
            message = message.items[0]
        if isinstance(message, Data):
            (packet,) = open_packets(message)
            return seal(packet._replace(payload=bytes(reversed(packet.payload))), self._foreign).sealed
        if isinstance(message, Token):
            claim = min(message.slot, message.have + CLAIMED_SLOTS)
            message = message._replace(runs=(), witnessed=(), have=claim, sealed=b"")
        elif isinstance(message, Ring | Group | LineHolders):
            message = message._replace(sealed=b"")
        return encode(message, self._foreign)

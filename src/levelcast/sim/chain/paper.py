"""The runs of MR §5: members that transmit in T, verify in U and sign in S, without faults.

As in the paper, messages without acknowledgements carry no signature, so they cost no U; turns count from 0.
"""

from __future__ import annotations

from random import Random

from levelcast.byzantine.config import ChainConfig
from levelcast.byzantine.digests import cite
from levelcast.byzantine.member import ChainMember
from levelcast.byzantine.signatures import KeyedHash, KeyedHashVerifier
from levelcast.byzantine.turns import ByTurn, SendingTurns
from levelcast.protocol.effects import GROUP, ChainDeliver, Effect, Send
from levelcast.protocol.machine import Machine
from levelcast.sim.chain.nodes import ChainNode, carrier
from levelcast.sim.engine.network import VirtualNetwork
from levelcast.sim.engine.world import START_NS, SimNode, World
from levelcast.wire.chain_messages import ChainMessage, Citation


class PaperRun:
    """One run."""

    def __init__(self, n: int, hops: int, transmit_ns: int, verify_ns: int) -> None:
        members = tuple(range(1, n + 1))
        self._timeout_ns = 1_000 * transmit_ns
        self._hops = hops
        self.config = ChainConfig(
            members,
            domain=carrier().domain,
            patience_ns=self._timeout_ns,
            sign_ns=hops * transmit_ns,
            window=max(64, 4 * n),
        )
        delays = {(a, b): transmit_ns for a in members for b in members if a != b}
        self.world = World(carrier(), 0, VirtualNetwork(Random(0), delays), Random(0))
        self.world.watchers.append(self)
        self._verifier = KeyedHashVerifier(members)
        self.messages: dict[int, ChainMessage] = {}
        """By turn, from 0."""
        self._turn_of: dict[Citation, int] = {}
        self._sent_ns: dict[int, int] = {}
        self._delivered_ns: dict[tuple[int, int], int] = {}
        for member in members:
            node = ChainNode(self.world, member, self._start, lambda m: verify_ns if m.header.acks else 0)
            self.world.nodes[member] = node
            self.world.at(START_NS, node.start)

    def _start(self, node: SimNode) -> Machine:
        def turns(after: int) -> SendingTurns:
            timeout_ns, hops = self._timeout_ns, self._hops
            return ByTurn(self.config, node.id, START_NS, hops=hops, timeout_ns=timeout_ns, after_slot=after)

        image = node.image.chain(1) if isinstance(node, ChainNode) else None
        assert image is not None
        return ChainMember(self.config, node.id, KeyedHash(node.id), self._verifier, image, START_NS, turns)

    def on_effect(self, node: SimNode, effect: Effect) -> None:
        """Record messages and deliveries."""
        if isinstance(effect, Send) and effect.to == GROUP and isinstance(effect.message, ChainMessage):
            turn = effect.message.header.slot - 1
            self.messages.setdefault(turn, effect.message)
            self._turn_of[cite(effect.message.header, self.config.domain, self.config.epoch)] = turn
            self._sent_ns.setdefault(turn, self.world.now)
        elif isinstance(effect, ChainDeliver):
            self._delivered_ns.setdefault((effect.message.header.slot - 1, node.id - 1), self.world.now)

    def until_turn(self, turn: int) -> None:
        """Run until the message of a turn is sent."""
        self.world.run(START_NS + self._timeout_ns, lambda: turn in self.messages)

    def acknowledged(self, turn: int) -> tuple[int, ...]:
        """Return the turns whose messages the message of a turn acknowledges."""
        return tuple(sorted(self._turn_of[ack] for ack in self.messages[turn].header.acks))

    def sender(self, turn: int) -> int:
        """Return the sender of a turn's message, from 0."""
        return self.messages[turn].header.sender - 1

    def delivery_ns(self, turn: int, member: int) -> int:
        """Return the time from sending a turn's message to its delivery at a member."""
        never_ns = 1 << 62
        return self._delivered_ns.get((turn, member), never_ns) - self._sent_ns[turn]

"""Rate and latency of a group with given S, U and T, with or without liars, without loss and crashes."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from statistics import median
from typing import NamedTuple

from levelcast.byzantine.config import ChainConfig
from levelcast.byzantine.member import ChainMember
from levelcast.byzantine.signatures import KeyedHash, KeyedHashVerifier
from levelcast.byzantine.turns import BySlot, ByTurn, SendingTurns
from levelcast.protocol.effects import GROUP, ChainDeliver, Effect, Send
from levelcast.protocol.machine import Machine
from levelcast.sim.chain.liars import STYLES, Liar
from levelcast.sim.chain.nodes import ChainNode, carrier
from levelcast.sim.engine.network import VirtualNetwork
from levelcast.sim.engine.world import START_NS, SimNode, World
from levelcast.wire.chain_messages import ChainMessage


class GroupTiming(NamedTuple):
    """S, U and T in nanoseconds, and the length of a slot; 0: turns by number."""

    sign_ns: int
    verify_ns: int
    transmit_ns: int
    slot_ns: int = 0


class RateResult(NamedTuple):
    """What honest members delivered of honest members."""

    messages_per_s: float
    latency_ns: int
    """Median time from the multicast of a message to its delivery at all honest members; 0: none was delivered."""
    resent: int
    """Messages sent again by C-6."""
    slowest: int
    """The member before whose turns the group waited longest."""


class RateRun:
    """One run of a group; the last f members lie if there is a style."""

    def __init__(self, n: int, timing: GroupTiming, style: str | None = None) -> None:
        self.timing, self._style = timing, style
        members = tuple(range(1, n + 1))
        turn_ns = timing.slot_ns or timing.transmit_ns + timing.verify_ns
        self.config = ChainConfig(
            members,
            domain=carrier().domain,
            patience_ns=4 * n * turn_ns + 20 * timing.transmit_ns,
            grace_ns=2 * turn_ns,
            request_ns=6 * turn_ns,
            sign_ns=timing.sign_ns,
            window=max(64, 16 * n),
        )
        self.liars = frozenset(members[n - self.config.f :]) if style is not None else frozenset()
        self._honest = [member for member in members if member not in self.liars]
        delays = {(a, b): timing.transmit_ns for a in members for b in members if a != b}
        self.world = World(carrier(), 0, VirtualNetwork(Random(0), delays), Random(0))
        self.world.watchers.append(self)
        self._verifier = KeyedHashVerifier(members)
        self._sent_ns: dict[tuple[int, int], int] = {}
        self._left: dict[tuple[int, int], int] = {}
        self._latencies: list[int] = []
        self._waited = dict.fromkeys(members, 0)
        self._last_sent_ns = START_NS
        self.honest_members: list[ChainMember] = []
        for member in members:
            node = ChainNode(self.world, member, self._start, lambda _: timing.verify_ns)
            self.world.nodes[member] = node
            self.world.at(START_NS, node.start)

    def _start(self, node: SimNode) -> Machine:
        assert isinstance(node, ChainNode)
        image = node.image.chain(1)

        def honest() -> ChainMember:
            made = ChainMember(
                self.config, node.id, KeyedHash(node.id), self._verifier, image, START_NS, self._turns(node.id)
            )
            if node.id not in self.liars:
                self.honest_members.append(made)
            return made

        if node.id in self.liars and self._style is not None:
            liar: Liar = STYLES[self._style](self.config, node.id, honest, Random(node.id))
            return liar
        return honest()

    def _turns(self, member: int) -> Callable[[int], SendingTurns]:
        def make(after: int) -> SendingTurns:
            slot_ns = self.timing.slot_ns
            if slot_ns:
                return BySlot(self.config, member, START_NS, start_ns=START_NS, slot_ns=slot_ns, after_slot=after)
            hops = (
                -(-self.timing.sign_ns // self.timing.transmit_ns)
                if 2 * self.timing.sign_ns >= self.timing.transmit_ns
                else 0
            )
            timeout_ns = 10 * (self.timing.transmit_ns + self.timing.verify_ns)
            return ByTurn(self.config, member, START_NS, hops=hops, timeout_ns=timeout_ns, after_slot=after)

        return make

    def on_effect(self, node: SimNode, effect: Effect) -> None:
        """Record when messages are sent and delivered."""
        if isinstance(effect, Send) and effect.to == GROUP and isinstance(effect.message, ChainMessage):
            self._note_sent(node.id, effect.message)
        elif isinstance(effect, ChainDeliver) and node.id not in self.liars:
            place = effect.row.sender, effect.row.seq
            if place in self._left:
                self._left[place] -= 1
                if not self._left[place]:
                    self._latencies.append(self.world.now - self._sent_ns[place])

    def _note_sent(self, node: int, message: ChainMessage) -> None:
        place = message.header.sender, message.header.seq
        if node in self.liars or place in self._sent_ns or message.header.sender != node:
            return
        now, before = self.world.now, (message.header.slot - 2) % self.config.n + 1
        self._waited[before] += max(0, now - self._last_sent_ns)
        self._last_sent_ns = now
        self._sent_ns[place] = now
        self._left[place] = len(self._honest)

    def run(self, rotations: int) -> RateResult:
        """Run for some rotations of honest turns."""
        turn_ns = self.timing.slot_ns or self.timing.transmit_ns + self.timing.verify_ns
        lasting_ns = rotations * self.config.n * turn_ns
        self.world.run(START_NS + lasting_ns)
        latency = int(median(self._latencies)) if self._latencies else 0
        slowest = max(self._waited, key=lambda member: self._waited[member])
        resent = sum(member.chain.counts.resent for member in self.honest_members)
        return RateResult(len(self._latencies) * 1e9 / lasting_ns, latency, resent, slowest)

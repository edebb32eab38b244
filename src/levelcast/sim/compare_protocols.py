"""Compare the timed token with the original event-driven RMP under the same load, without faults (MS §2.1, §5).

The paper replaces the event-driven token by a timed one and states the costs and benefits. A `ProtocolRecorder`
measures either protocol in the same virtual network:

| measure          | definition |
|------------------|----|
| control messages | tokens or acknowledgements, their repeats, confirms, requests; a multicast counts once |
| retransmissions  | repairs, and packets that a source sends again |
| time to detect   | from the first sending of a token or packet until a receiver that lost it requests it |
| ready            | from a token's timestamp until a receiver holds it and all before it |
| late             | fraction of (slot with packets, receiver) not ready by timestamp + a hold time |
| spread           | between the first and the last receiver to release a slot: each at the hold time, or when ready |

Timed runs need one witness here (w = 1), like the paper's ticker: a slot is ready as soon as it is held.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal, TypedDict, Unpack

from levelcast.protocol.config import StripeConfig
from levelcast.protocol.effects import Effect, Send
from levelcast.protocol.events import FaultReported, Placed, RmpFault, Witnessed
from levelcast.protocol.machine import Machine
from levelcast.ring.rmp import RmpReceiver, RmpSource
from levelcast.sim.engine.network import VirtualNetwork
from levelcast.sim.engine.world import START_NS, SimNode, World
from levelcast.sim.scenarios.steady import MS, PAYLOAD, Roles, SteadyWorld, steady_world
from levelcast.timing.nack_sets import NackSets
from levelcast.timing.rules import Mode, Timing
from levelcast.wire.messages import Data, GroupToken, Repair, Request, Token
from levelcast.wire.packets import singles

Protocol = Literal["timed", "rmp"]
PROTOCOLS: tuple[Protocol, ...] = ("timed", "rmp")

CONTROL = ("token", "token again", "confirm", "request")
AGAIN = ("repair", "data again")
PacketId = tuple[int, int, int]


@dataclass(slots=True)
class ProtocolFigures:
    """Results of one run, or the sum over several runs. Times in ns."""

    protocol: Protocol
    members: int
    loss: float
    load: float
    """Submitted packets/s, total of all sources."""
    timing: Timing
    packets: int = 0
    acknowledged: int = 0
    """Packets that were acknowledged during the load phase."""
    sent: Counter[str] = field(default_factory=Counter)
    """Messages sent during the load phase, by the names in `CONTROL` and `AGAIN`."""
    detect_token_ns: list[int] = field(default_factory=list)
    detect_data_ns: list[int] = field(default_factory=list)
    wait_ns: list[int] = field(default_factory=list)
    """Time from submit to the timestamp of the acknowledging token."""
    ready_ns: list[tuple[int, ...]] = field(default_factory=list)
    """One tuple per slot with packets, with one value per receiver."""
    waiting_most: int = 0
    """Maximum number of packets of one source that waited for an acknowledgement or a witness."""
    faults: int = 0

    @property
    def control(self) -> int:
        return sum(self.sent[name] for name in CONTROL)

    @property
    def control_per_packet(self) -> float:
        """Control messages per acknowledged packet, both during the load phase."""
        return self.control / max(self.acknowledged, 1)

    def late_share(self, hold_ns: int) -> float:
        """Return the fraction of (slot, receiver) pairs that are not ready by the hold time."""
        times = [ready for slot in self.ready_ns for ready in slot]
        return sum(ready > hold_ns for ready in times) / max(len(times), 1)

    def spreads_ns(self, hold_ns: int) -> list[int]:
        """Return the time between the first and the last release of each slot, sorted in ascending order."""
        return sorted(max(max(slot), hold_ns) - max(min(slot), hold_ns) for slot in self.ready_ns)

    def add(self, other: ProtocolFigures) -> None:
        for name in ("detect_token_ns", "detect_data_ns", "wait_ns", "ready_ns"):
            getattr(self, name).extend(getattr(other, name))
        self.sent.update(other.sent)
        for name in ("packets", "acknowledged", "faults"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.waiting_most = max(self.waiting_most, other.waiting_most)


class ProtocolRecorder:
    """Watcher that counts messages and measures delays of either protocol."""

    def __init__(self, world: World, members: Iterable[int], figures: ProtocolFigures) -> None:
        self.figures = figures
        self._world = world
        self._members = frozenset(members)
        self._first_ns: dict[int | PacketId, int] = {}
        self._submitted_ns: dict[PacketId, int] = {}
        self._asked: set[tuple[int, int | PacketId]] = set()
        self._tokens: dict[int, Token] = {}
        self._ready: dict[int, dict[int, int]] = {}
        self._upto: dict[int, int] = {}
        self.counting = False
        self.first_fault_ns: int | None = None

    def note_submit(self, packet: PacketId) -> None:
        """Record that a packet was passed to its source, which may send it later."""
        self._submitted_ns[packet] = self._world.now

    def on_effect(self, node: SimNode, effect: Effect) -> None:
        if isinstance(effect, Send):
            name = self._note_sent(node, effect)
            if self.counting and name is not None:
                self.figures.sent[name] += 1
        elif isinstance(effect, Placed | Witnessed) and node.id in self._members:
            self._note_ready(node, effect.slot)
        elif isinstance(effect, FaultReported | RmpFault) and self.counting:
            self.figures.faults += 1
            self.first_fault_ns = self.first_fault_ns or self._world.now

    def _note_sent(self, node: SimNode, send: Send) -> str | None:
        now, message = self._world.now, send.message
        if isinstance(message, Token):
            if message.slot in self._tokens:
                return "token again"
            self._first_ns[message.slot] = now
            self._tokens[message.slot] = message
            self._note_waits(message)
            return "token"
        if isinstance(message, Data):
            again = False
            for packet in singles(message):
                key = packet[:3]
                again = key in self._first_ns
                self._first_ns.setdefault(key, now)
                self._submitted_ns.setdefault(key, now)
            return "data again" if again else None
        if isinstance(message, Request):
            self._note_asked(node, message)
            return "request"
        if isinstance(message, Repair):
            return "repair"
        return "confirm" if isinstance(message, GroupToken) else None

    def _note_waits(self, token: Token) -> None:
        for run in token.runs:
            for number in range(run.first, run.last + 1):
                submitted_ns = self._submitted_ns.pop((run.source, run.incarnation, number), None)
                if submitted_ns is not None:
                    self.figures.wait_ns.append(token.timestamp_ns - submitted_ns)
                    self.figures.acknowledged += self.counting

    def _note_asked(self, node: SimNode, request: Request) -> None:
        packets = [(r.source, r.incarnation, n) for r in request.packets for n in range(r.first, r.last + 1)]
        figures = self.figures
        for wanted, into in ((request.slots, figures.detect_token_ns), (packets, figures.detect_data_ns)):
            for key in wanted:
                first_ns = self._first_ns.get(key)
                if first_ns is not None and (node.id, key) not in self._asked:
                    self._asked.add((node.id, key))
                    into.append(self._world.now - first_ns)

    def _note_ready(self, node: SimNode, upto: int) -> None:
        for slot in range(self._upto.get(node.id, upto - 1) + 1, upto + 1):
            token = self._tokens.get(slot)
            if token is not None and token.runs:
                self._ready.setdefault(slot, {})[node.id] = self._world.now - token.timestamp_ns
        self._upto[node.id] = upto

    def ready_ns(self) -> list[tuple[int, ...]]:
        """Return the times of the slots that are ready at every receiver."""
        return [tuple(times.values()) for times in self._ready.values() if len(times) == len(self._members)]


class RmpWorld(SteadyWorld):
    """World that runs the event-driven protocol instead of the ring: no servers; the first member starts the token."""

    idle_ns: int | None = None
    ledger: ProtocolRecorder | None = None

    def __init__(
        self, config: StripeConfig, roles: Roles, network: VirtualNetwork, seed: int, gap_ns: int, clock_error_ns: int
    ) -> None:
        at_once = replace(config, timing=replace(config.timing, hold_ns=0))
        super().__init__(at_once, replace(roles, servers=()), network, seed, gap_ns, clock_error_ns)

    def _start_receiver(self, node: SimNode) -> Machine:
        return RmpReceiver(self.config, node.id, node.local_ns, self.idle_ns)

    def _start_source(self, node: SimNode) -> Machine:
        return RmpSource(self.config, node.id)

    def form(self) -> None:
        self._start_all()
        self.world.run(START_NS + 10 * MS)

    def _submit(self, node: SimNode) -> None:
        source = node.machine
        assert isinstance(source, RmpSource)
        self._numbers[node.id] += 1
        number = self._numbers[node.id]
        if self.ledger is not None:
            self.ledger.note_submit((node.id, 1, number))
        node.perform(source.submit(PAYLOAD.pack(node.id, number), 1, node.local_ns))
        self.unwitnessed_most = max(self.unwitnessed_most, source.waiting)

    def drain(self) -> None:
        """Keep the token circulating so that receivers detect loss of the last acknowledgements (MS §2.1).

        Each packet that waits at a source needs one token pass, so draining after an overload lasts long.
        """
        for node in self.world.nodes.values():
            if isinstance(node.machine, RmpReceiver):
                node.machine.idle_ns = self.timing.request_ns
                node.step(())
        passes = sum(self._waiting(source) for source in self.roles.sources)
        deadline_ns = self.world.now + self.bound_ns + passes * self.timing.request_ns
        while self.world.now < deadline_ns and not self._all_released():
            self.world.run(self.world.now + self.bound_ns // 8, self._all_released)
        super().drain()

    def _waiting(self, source: int) -> int:
        machine = self.world.nodes[source].machine
        return machine.waiting if isinstance(machine, RmpSource) else 0

    def _all_released(self) -> bool:
        return not any(self._waiting(source) for source in self.roles.sources) and super()._all_released()


class RingSettings(TypedDict, total=False):
    """Settings of a run that `steady_world` also accepts, with the same defaults."""

    seed: int
    mode: Mode
    slot_ns: int | None
    nack: NackSets | None
    branch_of: dict[int, int] | None
    branch_loss: float


class SteadySettings(RingSettings, total=False):
    """Settings of a run, with the defaults of `_prepare`."""

    members: int
    loss: float
    load: float
    sources: int
    idle_ns: int | None


def run_steady(
    protocol: Protocol, *, lasting_ns: int = 20_000 * MS, **settings: Unpack[SteadySettings]
) -> ProtocolFigures:
    """Run one protocol under load and check the invariants of both: one order, no loss, duplicate or invention.

    >>> run_steady("timed", members=3, loss=0.0, load=50, lasting_ns=1_000 * MS).sent
    Counter({'token': 50})
    """
    world, ledger = _prepare(protocol, **settings)
    world.form()
    ledger.counting = True
    world.load(lasting_ns)
    ledger.counting = False
    world.drain()
    figures = ledger.figures
    figures.packets, figures.waiting_most = len(world.checker.submitted), world.unwitnessed_most
    figures.ready_ns = ledger.ready_ns()
    return figures


def time_to_fault_ns(
    protocol: Protocol, *, limit_ns: int = 60_000 * MS, **settings: Unpack[SteadySettings]
) -> int | None:
    """Return the time from a member's crash to the first fault report; None if no node reports one by the limit."""
    world, ledger = _prepare(protocol, **settings)
    world.form()
    moment_ns = world.world.now + world.rng.randint(500 * MS, 1_500 * MS)
    victim = world.world.nodes[world.rng.choice(world.roles.members)]

    def die() -> None:
        victim.crash()
        ledger.counting = True

    world.world.at(moment_ns, die)
    world.load(moment_ns - world.world.now + limit_ns, until=lambda: ledger.first_fault_ns is not None)
    return ledger.first_fault_ns - moment_ns if ledger.first_fault_ns is not None else None


def _prepare(
    protocol: Protocol,
    members: int = 10,
    loss: float = 0.01,
    load: float = 20.0,
    sources: int = 10,
    idle_ns: int | None = None,
    **ring: Unpack[RingSettings],
) -> tuple[SteadyWorld, ProtocolRecorder]:
    build = RmpWorld if protocol == "rmp" else SteadyWorld
    gap_ns = int(sources / load * 1e9)
    world = steady_world(
        members, loss, witnesses=1, sources=sources, gap_ns=gap_ns, credit=1024, as_in_paper=True, build=build, **ring
    )
    figures = ProtocolFigures(protocol, members, loss, load, world.timing)
    ledger = ProtocolRecorder(world.world, world.roles.members, figures)
    world.world.watchers.append(ledger)
    if isinstance(world, RmpWorld):
        world.idle_ns, world.ledger = idle_ns, ledger
    return world, ledger

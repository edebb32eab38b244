"""Virtual time and the simulated nodes.

One `World` is one history: the same seed gives the same events, bit for bit. Nodes host the protocol classes that also
run over sockets. A node performs effects in sequence and may be killed between any two of them. This tests every rule
that requires a journal entry before another effect.

Everything that could differ between two runs is drawn from the one seeded generator, in event order.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import TYPE_CHECKING, NamedTuple, Protocol

from levelcast.protocol.clock import ClockGuard
from levelcast.protocol.config import StripeConfig
from levelcast.protocol.effects import GROUP, SERVERS, Effect, Forget, Persist, Release, Send, ServeTape
from levelcast.protocol.events import Event, Voided
from levelcast.protocol.machine import EVERY_KIND, Machine
from levelcast.sim.engine.disk import Disk
from levelcast.sim.engine.foreign import ForeignNetwork
from levelcast.sim.engine.network import Copy, VirtualNetwork
from levelcast.wire.codec import decode_batch, encode
from levelcast.wire.messages import Data, Message
from levelcast.wire.packets import join, singles

if TYPE_CHECKING:
    from levelcast.keys.core_security import CoreSecurity

START_NS = 1_700_000_000_000_000_000
"""Virtual time begins at a plausible wall-clock time, so that unit mistakes show."""
TRACE_LENGTH = 6000
SLOW_BATCH = 8
MAX_EVENTS = 400_000
"""Far above the events of any history: detects a node that wakes in an endless loop."""


class Watcher(Protocol):
    """Observer of a history: a checker, the adversary, a recorder or a log."""

    def on_effect(self, node: SimNode, effect: Effect) -> None: ...


class TraceLine(NamedTuple):
    """One line of the trace."""

    at_ns: int
    node: int
    what: str
    about: object


class Alarm:
    """Timer with one pending time: an earlier time replaces a later one."""

    def __init__(self, world: World, action: Callable[[], None]) -> None:
        self._world = world
        self._action = action
        self.at_ns: int | None = None

    def set(self, at_ns: int) -> None:
        now = self._world.now
        if self.at_ns is None or at_ns < self.at_ns or self.at_ns < now:
            self.at_ns = max(at_ns, now)
            self._world.at(self.at_ns, self._ring)

    def _ring(self) -> None:
        if self.at_ns == self._world.now:
            self.at_ns = None
            self._action()


class SimNode:
    """Host of one protocol class: disk, clock, inbox, start and crash."""

    def __init__(
        self,
        world: World,
        node: int,
        name: str,
        start: Callable[[SimNode], Machine],
        disk: Disk,
        listens: frozenset[type] = EVERY_KIND,
    ) -> None:
        self.world = world
        self.id = node
        self.name = name
        self.disk = disk
        self.machine: Machine | None = None
        self.listens = listens
        self.clock_offset_ns = 0
        self._nominal_offset_ns = 0
        self.service_ns = 0
        """Processing time of a slow node per batch; 0 for a node that keeps up."""
        self.paused_until_ns = 0
        self.malformed: Counter[str] = Counter()
        self.security: CoreSecurity | None = None
        """Its keys at work, in a scenario with keys (`levelcast.sim.engine.secured_world`)."""
        self.crashes = 0
        self._start = start
        self._guard: ClockGuard | None = None
        self._alarm = Alarm(world, self._wake)
        self._control: deque[Message] = deque()
        self._data: deque[Data] = deque()
        self._serving = False

    @property
    def up(self) -> bool:
        return self.machine is not None

    @property
    def local_ns(self) -> int:
        return self.world.now + self.clock_offset_ns

    def set_clock(self, offset_ns: int) -> None:
        """Set the clock as the time daemon keeps it; a later change of `clock_offset_ns` is a step."""
        self.clock_offset_ns = self._nominal_offset_ns = offset_ns

    def start(self) -> None:
        """Start the process from the state on its disk."""
        assert self.machine is None
        now = self.world.now
        self._guard = ClockGuard(now + self._nominal_offset_ns, now, self.world.clock_tolerance_ns)
        self.machine = self._start(self)
        self.world.trace(self.id, "starts", "")
        self._schedule_wake()

    def crash(self) -> None:
        """Crash like kill -9: memory and inbox are lost, the disk stays."""
        self.crashes += 1
        self._end("crashes")

    def stop(self) -> None:
        """End a planned stop. The disk is the same as after a crash: nothing is written at the end."""
        self._end("stops")

    def _end(self, how: str) -> None:
        self.machine = None
        self._alarm.at_ns = None
        self._control.clear()
        self._data.clear()
        self.world.trace(self.id, how, "")

    # -- the inbox ----------------------------------------------------------------------------------------

    def arrive(self, *messages: Message) -> None:
        """Process messages that a driver reads from its socket in one batch, or queue them if the node is busy."""
        if self.machine is None:
            return
        if self.service_ns == 0 and self.world.now >= self.paused_until_ns and not self._serving:
            self.step(messages)
            return
        # Control before data in every queue (rule 17).
        for message in messages:
            if isinstance(message, Data):
                self._data.append(message)
            else:
                self._control.append(message)
        if not self._serving:
            self._serving = True
            self.world.at(max(self.world.now + self.service_ns, self.paused_until_ns), self._serve)

    def _serve(self) -> None:
        if self.machine is None:
            self._serving = False
            return
        if self.world.now < self.paused_until_ns:
            self.world.at(self.paused_until_ns, self._serve)
            return
        batch = [self._control.popleft() for _ in range(min(SLOW_BATCH, len(self._control)))]
        batch += join([self._data.popleft() for _ in range(min(SLOW_BATCH - len(batch), len(self._data)))])
        self._serving = bool(self._control or self._data)
        if self._serving:
            self.world.at(self.world.now + self.service_ns, self._serve)
        self.step(batch)

    # -- steps and effects --------------------------------------------------------------------------------

    def step(self, batch: Sequence[Message]) -> None:
        machine, guard = self.machine, self._guard
        if machine is None or guard is None:
            return
        local = self.local_ns
        self.perform(machine.step(batch, local, clock_trusted=guard.check(local, self.world.now)))

    def perform(self, effects: list[Effect]) -> None:
        """Perform effects in order; stop if the node is killed."""
        machine = self.machine
        for effect in effects:
            self._perform(effect)
            for watcher in self.world.watchers:
                watcher.on_effect(self, effect)
            if self.machine is not machine:
                return
        self._schedule_wake()

    def _perform(self, effect: Effect) -> None:
        if isinstance(effect, Persist):
            self.disk.journal.apply(effect.entry)
        elif isinstance(effect, Send):
            self.world.send(self, effect.to, effect.message)
        elif isinstance(effect, Release):
            self.disk.tape.append(effect.frame)
        elif isinstance(effect, Forget):
            self.disk.journal.forget(effect.slot, effect.places)
        elif isinstance(effect, ServeTape):
            for message in self.disk.tape.serve(self.id, effect, self.world.config.credit):
                self.world.send(self, effect.to, message)
        elif isinstance(effect, Event):
            self.world.note_event(self.id, effect)

    # -- timers -------------------------------------------------------------------------------------------

    def _schedule_wake(self) -> None:
        machine = self.machine
        if machine is None or machine.wake_ns is None:
            return
        at = max(machine.wake_ns - self.clock_offset_ns, self.world.now)
        if grain_ns := self.world.grain_ns:
            at = -(-at // grain_ns) * grain_ns
        self._alarm.set(at)

    def _wake(self) -> None:
        wake_ns = self.machine.wake_ns if self.machine is not None else None
        if self.world.now < self.paused_until_ns:
            self._alarm.set(self.paused_until_ns)
        elif wake_ns is not None and wake_ns <= self.local_ns:
            self.step(())
        else:
            self._schedule_wake()


class World:
    """World of one history: time, nodes, network and watchers."""

    def __init__(self, config: StripeConfig, seed: int, network: VirtualNetwork, rng: Random) -> None:
        self.config = config
        self.seed = seed
        self.now = START_NS
        self.rng = rng
        self.network = network
        self.nodes: dict[int, SimNode] = {}
        self.servers: tuple[int, ...] = ()
        self.watchers: list[Watcher] = []
        self.clock_tolerance_ns = 5_000_000
        self.grain_ns = 0
        """If not 0, nodes poll socket and clock at this interval: all messages since then form one batch."""
        self.events = 0
        self.report_counts: Counter[str] = Counter()
        self.voided_slots = 0
        self.trace_lines: deque[TraceLine] = deque(maxlen=TRACE_LENGTH)
        self.partial_multicast: Callable[[SimNode, Message, list[int]], list[int]] | None = None
        """Called by `send`: returns the nodes that a multicast reaches; set by the adversary."""
        self.foreign: ForeignNetwork | None = None
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._arrivals: list[tuple[int, int, SimNode, Message]] = []
        self._sequence = 0
        self._encoded: tuple[Message, bytes, Message] | None = None
        """The last message, encoded and decoded again: it is often sent to several nodes in turn."""

    def at(self, when: int, action: Callable[[], None]) -> None:
        """Run `action` at virtual time `when`."""
        self._sequence += 1
        heapq.heappush(self._heap, (when, self._sequence, action))

    def after(self, delay_ns: int, action: Callable[[], None]) -> None:
        self.at(self.now + delay_ns, action)

    def trace(self, node: int, what: str, about: object) -> None:
        self.trace_lines.append(TraceLine(self.now, node, what, about))

    def note_event(self, node: int, event: Event) -> None:
        self.report_counts[event.KIND] += 1
        if isinstance(event, Voided):
            self.voided_slots += event.count
        self.trace(node, event.KIND, event)

    def send(self, sender: SimNode, to: int, message: Message) -> None:
        """Put a message on the network as bytes."""
        receivers = self._receivers_of(sender, to, message)
        self.trace(sender.id, "sends", (to, message))
        if isinstance(message, Data) and message.first < message.last:
            self._carry_train(sender, receivers, singles(message))
            return
        for copy, received in self._copies(sender, receivers, message):
            self._deliver(copy, received)

    def _receivers_of(self, sender: SimNode, to: int, message: Message) -> list[int]:
        """Return the nodes to which a message goes."""
        if to == GROUP:
            kind = type(message)
            receivers = [node.id for node in self.nodes.values() if kind in node.listens and node is not sender]
        elif to == SERVERS:
            receivers = [node for node in self.servers if node != sender.id]
        else:
            receivers = [to]
        if self.partial_multicast is not None and len(receivers) > 1:
            receivers = self.partial_multicast(sender, message, receivers)
        return receivers

    def _carry_train(self, sender: SimNode, receivers: list[int], packets: list[Data]) -> None:
        """Send packets of one train: each may be lost, and the remaining ones arrive together."""
        arriving: dict[int, list[tuple[Copy, Data]]] = {}
        for packet in packets:
            for copy, received in self._copies(sender, receivers, packet):
                if isinstance(received, Data) and copy.damaged is None:
                    arriving.setdefault(copy.to, []).append((copy, received))
                else:
                    self._deliver(copy, received)
        for copies in arriving.values():
            for data in join(received for _, received in copies):
                self._deliver(copies[0][0], data)

    def _copies(self, sender: SimNode, receivers: list[int], message: Message) -> Iterator[tuple[Copy, Message]]:
        """Yield the copies of a message that arrive, decoded; damaged ones are usually rejected."""
        domain = self.config.domain
        if self._encoded is None or self._encoded[0] is not message:
            datagram = encode(message, domain)
            (received,), _ = decode_batch((datagram,), domain)
            self._encoded = (message, datagram, received)
            if self.foreign is not None:
                self._overhear(self.foreign, sender, message)
        _, datagram, received = self._encoded
        for copy in self.network.copies(sender.id, receivers, datagram):
            if copy.damaged is None:
                yield copy, received
            else:
                survivors, reasons = decode_batch((copy.damaged,), domain)
                self.nodes[copy.to].malformed.update(reason.value for reason in reasons)
                for survivor in survivors:
                    yield copy, survivor

    def _overhear(self, foreign: ForeignNetwork, sender: SimNode, message: Message) -> None:
        """Let the other network send its counterpart of a message to every node that listens to such messages."""
        hearing = [node for node in self.nodes.values() if type(message) in node.listens and node is not sender]

        def deliver(delay_ns: int, accepted: Message) -> None:
            for node in hearing:
                self.bring(self.now + delay_ns, node, accepted)

        foreign.overhear(message, len(hearing), deliver)

    def _deliver(self, copy: Copy, message: Message) -> None:
        self.bring(self.now + copy.delay_ns, self.nodes[copy.to], message)

    def bring(self, when: int, node: SimNode, message: Message) -> None:
        """Schedule the arrival of a message at virtual time `when`."""
        if grain_ns := self.grain_ns:
            when = -(-when // grain_ns) * grain_ns
        self._sequence += 1
        heapq.heappush(self._arrivals, (when, self._sequence, node, message))

    def _arrive_together(self, node: SimNode, message: Message) -> None:
        """Deliver all messages of the current time, one batch per node."""
        batches: dict[SimNode, list[Message]] = {node: [message]}
        arrivals = self._arrivals
        while arrivals and arrivals[0][0] == self.now:
            _, _, node, message = heapq.heappop(arrivals)
            self.events += 1
            batches.setdefault(node, []).append(message)
        for node, messages in batches.items():
            node.arrive(*messages)

    def run(self, until_ns: int, done: Callable[[], bool] | None = None) -> None:
        """Advance time to `until_ns`, or until `done` returns True (called every 64 events)."""
        heap, arrivals = self._heap, self._arrivals
        limit = self.events + MAX_EVENTS
        look = (self.events | 63) + 1
        pop = heapq.heappop
        while heap or arrivals:
            if arrivals and (not heap or arrivals[0][:2] < heap[0][:2]):
                if arrivals[0][0] > until_ns:
                    break
                self.now, _, node, message = pop(arrivals)
                self.events += 1
                if self.grain_ns:
                    self._arrive_together(node, message)
                else:
                    node.arrive(message)
            else:
                if heap[0][0] > until_ns:
                    break
                self.now, _, action = pop(heap)
                self.events += 1
                action()
            if self.events >= look:
                look = (self.events | 63) + 1
                assert self.events < limit, "a node wakes in an endless loop"
                if done is not None and done():
                    return
        self.now = max(self.now, until_ns)


class SideWorld(World):
    """World of another ring in the time of `main`: own nodes, network and watchers, common events and trace."""

    def __init__(self, main: World, config: StripeConfig, network: VirtualNetwork, rng: Random) -> None:
        self._main = main
        super().__init__(config, main.seed, network, rng)
        self.grain_ns = main.grain_ns
        self.trace_lines = main.trace_lines

    @property
    def now(self) -> int:
        return self._main.now

    @now.setter
    def now(self, now: int) -> None:
        """Do nothing: the main world keeps the time."""

    def at(self, when: int, action: Callable[[], None]) -> None:
        self._main.at(when, action)

    def _deliver(self, copy: Copy, message: Message) -> None:
        self._main.bring(self.now + copy.delay_ns, self.nodes[copy.to], message)

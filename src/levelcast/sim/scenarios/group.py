"""Scenario `group`: a wide-area group under loss, duplication, reordering, crashes, joins and leaves.

The seed draws the protocol with its four choices, 3 to 7 processes in clusters, delays that differ by direction, the
losses, the deferral and spacing, and messages to all or to subsets, some of them in several packets. Faults:

- a process crashes, at random or right after it has sent a message or a statement, coordinators more often than others;
  it returns as a new life, or never;
- a process is isolated for a time, and may be removed while it runs;
- processes join and leave.

In some histories the processes have no view at their start, and form the first one.

A majority of the view always runs. After the faults everything must be received and known to be, within `BOUND_NS`.
"""

from __future__ import annotations

from random import Random

from levelcast.overlay.wide.choices import WIDE_PROTOCOLS, Choices, CopiesBy, DeliveryPath, RepairBy
from levelcast.overlay.wide.config import GroupConfig
from levelcast.overlay.wide.matrix import PathMatrix
from levelcast.overlay.wide.process import GroupProcess
from levelcast.protocol.config import StripeConfig
from levelcast.protocol.effects import Effect, Send, WideInstall
from levelcast.protocol.machine import Machine
from levelcast.sim.check.ring import InvariantBroken, what_broke
from levelcast.sim.check.wide import WideChecker
from levelcast.sim.engine.disk import Disk
from levelcast.sim.engine.network import VirtualNetwork, Weather
from levelcast.sim.engine.world import START_NS, SimNode, World
from levelcast.sim.scenarios.ring import Outcome
from levelcast.timing.rules import Timing
from levelcast.wire.messages import MemberLife, Membership
from levelcast.wire.wide_messages import WideConfirm, WideData, WideRelay

MS = 1_000_000
BOUND_NS = 30_000 * MS
LOOK_NS = 20 * MS
PACKET_BYTES = 16
MAX_SENT = 60
"""Maximum number of application messages of a history."""
IDLE = Timing("pipelined", 10 * MS, 10 * MS, 10 * MS, 3, 10 * MS, 10 * MS, 10 * MS, 10 * MS, 10 * MS, 10 * MS)
"""A world wants a timing; no process of a group has one."""


class GroupHistory:
    """History of one seed: build and run it."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = rng = Random(f"group {seed}")
        self._ids = list(range(1, rng.choice((3, 4, 4, 5, 6, 7)) + 1))
        self._spares = [len(self._ids) + 1 + each for each in range(rng.choice((0, 0, 1, 2)))]
        self.name, self.config = self._draw_config()
        processes = [*self._ids, *self._spares]
        delays = {(a, b): self.config.matrix.delay_ns(a, b) for a in processes for b in processes if a != b}
        self._founds = Random(f"founding {seed}").random() < 0.3
        self.faulty = rng.random() < 0.8
        """Processes fail, join and leave."""
        self._storm = Weather(
            loss=rng.choice((0.0, 0.02, 0.1, 0.25)),
            duplicate=rng.choice((0.0, 0.05, 0.2)),
            jitter_ns=rng.choice((0, 1, 5)) * MS,
            outlier=rng.choice((0.0, 0.02, 0.1)),
            outlier_ns=100 * MS,
            corrupt=rng.choice((0.0, 0.01)),
        )
        network = VirtualNetwork(rng, delays, {}, self._storm)
        stripe = StripeConfig(0, IDLE, 1, Membership(0, (MemberLife(1, 1),)), ())
        self.world = World(stripe, seed, network, rng)
        choices = self.config.choices
        agrees = choices.repair is RepairBy.NEAREST and choices != WIDE_PROTOCOLS["N"]._replace(copies=choices.copies)
        self.checker = WideChecker(self.world, agrees=agrees)
        self.world.watchers += [self.checker, self]
        for process in processes:
            self._add(process, stripe)
        self._incarnations = dict.fromkeys(processes, 0)
        self._fault_ns = rng.randint(500, 2_500) * MS
        self._strikes = rng.choice((0, 0, 1, 2)) if self.faulty else 0
        self._messages = self._crashes = self._leaves = self._views = 0
        self._done_ns = 0

    def _draw_config(self) -> tuple[str, GroupConfig]:
        rng = self.rng
        name = rng.choice(sorted(WIDE_PROTOCOLS))
        choices = WIDE_PROTOCOLS[name]
        if choices.copies is CopiesBy.NONE and rng.random() < 0.3:
            choices = choices._replace(copies=CopiesBy.FORWARDED)
        if choices.delivery is DeliveryPath.NESTED and rng.random() < 0.2:
            choices = choices._replace(repair=RepairBy.SENDER)
        processes = [*self._ids, *self._spares]
        places = {each: rng.choice((0, 0, 30, 80)) for each in processes}
        pairs = [(a, b) for a in processes for b in processes if a != b]
        delays = {(a, b): int((abs(places[a] - places[b]) + rng.uniform(1, 8)) * MS) for a, b in pairs}
        losses = {pair: rng.choice((0.0, 0.05, 0.2)) for pair in pairs}
        config = GroupConfig(
            choices,
            PathMatrix(delays, losses),
            tuple(self._ids),
            margin_ns=10 * MS,
            defer_ns=rng.choice((0, 0, 5, 25)) * MS,
            spacing_ns=rng.choice((0, 0, 8)) * MS,
            alive_ns=rng.choice((30, 60)) * MS,
            window=8,
            packet_bytes=PACKET_BYTES,
            near_ns=10 * MS,
            allowed_loss=0.03,
            forwarders=rng.choice((1, 2)),
        )
        return show_choices(name, choices), config

    def _add(self, process: int, stripe: StripeConfig) -> None:
        node = SimNode(self.world, process, f"process {process}", self._start, Disk(stripe, 1), GroupProcess.LISTENS)
        node.set_clock(self.rng.randint(-500, 500) * MS)
        self.world.nodes[process] = node

    def _start(self, node: SimNode) -> Machine:
        founds = self._founds and node.id not in self._spares
        joins = self._incarnations[node.id] > 0 or node.id in self._spares or founds
        incarnation = self._incarnations[node.id]
        self._incarnations[node.id] += 1
        if node.id in self._spares:
            incarnation += 1
        return GroupProcess(self.config, node.id, node.local_ns, incarnation=incarnation, joins=joins, founds=founds)

    # -- faults -------------------------------------------------------------------------------------------

    def on_effect(self, node: SimNode, effect: Effect) -> None:
        """Crash a process right after it has sent something, and note removals."""
        if isinstance(effect, WideInstall):
            self._views = max(self._views, effect.view)
            if node.id not in effect.members:
                self.world.after(self.rng.randint(5, 200) * MS, lambda: self._return(node))
        elif (
            self._strikes
            and isinstance(effect, Send)
            and isinstance(effect.message, WideData | WideRelay | WideConfirm)
        ):
            odds = 0.01 if isinstance(effect.message, WideConfirm) else 0.04
            if self._during_faults() and self.rng.random() < odds * (2 if self._coordinates(node) else 1):
                self._strikes -= 1
                self._crash(node)

    def _during_faults(self) -> bool:
        return self.faulty and self.world.now < START_NS + self._fault_ns

    def _coordinates(self, node: SimNode) -> bool:
        return any(group[0] == node.id for group in self.config.subgroups)

    def _may_lose(self, node: SimNode) -> bool:
        """Return whether a majority of each member's view runs without a node."""
        running = {each.id for each in self._running() if each is not node}
        views = [machine.members for machine in self.checker.stayed().values()]
        return all(2 * len(running & set(view)) > len(view) for view in views)

    def _running(self) -> list[SimNode]:
        """Return the nodes that run as members, and are not isolated."""
        side_of = self.world.network.side_of
        return [
            node
            for node in self.world.nodes.values()
            if isinstance(machine := node.machine, GroupProcess)
            and machine.life
            and not machine.removed
            and not machine.leaving
            and not side_of.get(node.id)
        ]

    def _crash(self, node: SimNode) -> None:
        if not isinstance(node.machine, GroupProcess) or not node.machine.life or not self._may_lose(node):
            return
        self.checker.failed.add(self.checker.life_of(node))
        self._crashes += 1
        node.crash()
        if self.rng.random() < 0.6:
            self.world.after(self.rng.randint(20, 1_500) * MS, lambda: self._return(node))

    def _return(self, node: SimNode) -> None:
        """Start a process again, as a new life, unless it runs."""
        machine = node.machine
        if isinstance(machine, GroupProcess) and not machine.removed:
            return
        if node.up:
            node.stop()
        node.start()

    def _isolate(self, node: SimNode) -> None:
        if self._may_lose(node) and node.up:
            self.world.network.side_of[node.id] = node.id
            self.world.after(self.rng.randint(50, 1_200) * MS, lambda: self._reconnect(node))

    def _reconnect(self, node: SimNode) -> None:
        self.world.network.side_of.pop(node.id, None)

    def _leave(self, node: SimNode) -> None:
        machine = node.machine
        if isinstance(machine, GroupProcess) and machine.life and len(machine.members) > 2 and self._may_lose(node):
            self._leaves += 1
            machine.leave()

    def _plan_faults(self) -> None:
        rng = self.rng
        if not self.faulty:
            return
        for spare in self._spares:
            self.world.at(START_NS + rng.randint(100, self._fault_ns // MS) * MS, self.world.nodes[spare].start)
        for _ in range(rng.choice((0, 1, 1, 2, 3))):
            at = START_NS + rng.randint(50 * MS, self._fault_ns)
            action = rng.choice((self._crash, self._crash, self._isolate, self._leave))
            coordinators = [group[0] for group in self.config.subgroups if group[0] in self._ids]
            target = rng.choice(coordinators if coordinators and rng.random() < 0.5 else self._ids)
            self.world.at(at, lambda action=action, target=target: action(self.world.nodes[target]))  # type: ignore[misc]

    # -- workload -----------------------------------------------------------------------------------------

    def _submit(self, node: SimNode, gap_ns: int) -> None:
        if self.world.now > START_NS + self._fault_ns + 100 * MS or self._messages >= MAX_SENT:
            return
        rng, machine = self.rng, node.machine
        if isinstance(machine, GroupProcess) and machine.room:
            others = [each for each in machine.members if each != node.id]
            some = rng.sample(others, rng.randint(1, len(others))) if others and rng.random() < 0.5 else None
            if others:
                payload = rng.randbytes(rng.choice((0, 5, 5, 16, 40)))
                if self.config.packets(payload) <= machine.room:
                    self._messages += 1
                    node.perform(machine.submit(payload, node.local_ns, some))
        self.world.after(int(rng.expovariate(1.0) * gap_ns) + MS, lambda: self._submit(node, gap_ns))

    # -- running ------------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        world, rng = self.world, self.rng
        broken: str | None = None
        try:
            for process in self._ids:
                world.at(START_NS + rng.randint(0, 20) * MS, world.nodes[process].start)
            gap_ns = rng.choice((30, 80, 200)) * MS * len(self._ids)
            for node in world.nodes.values():
                world.at(START_NS + 25 * MS, lambda node=node: self._submit(node, gap_ns))  # type: ignore[misc]
            self._plan_faults()
            world.run(START_NS + self._fault_ns)
            self._end_faults()
            self._finish()
            self.checker.check_end()
        except AssertionError as error:
            broken = what_broke(error)
        return self._outcome(broken)

    def _end_faults(self) -> None:
        weather, network = self._storm, self.world.network
        network.side_of.clear()
        network.weather = Weather(loss=min(weather.loss, 0.1), jitter_ns=weather.jitter_ns)

    def _finish(self) -> None:
        """Run until everything is received and known to be, and for a while after that."""
        world = self.world
        until_ns = world.now + BOUND_NS
        world.run(world.now + 120 * MS)
        while not self.checker.is_complete():
            if world.now >= until_ns:
                self.checker.check_end()
                raise InvariantBroken("receipt", f"not complete after {BOUND_NS / 1e9:.0f} s: {self._state()}")
            world.run(world.now + LOOK_NS)
        self._done_ns = world.now
        world.run(world.now + 200 * MS)

    def _state(self) -> str:
        return "; ".join(
            f"process {process} in view {machine.generation} of {machine.members}, {len(machine.entries)} messages"
            for (process, _), machine in self.checker.stayed().items()
        )

    def _outcome(self, broken: str | None) -> Outcome:
        world = self.world
        return Outcome(
            seed=self.seed,
            broken=broken,
            events=world.events,
            datagrams=world.network.sent,
            simulated_ns=world.now - START_NS,
            packets=len(self.checker.sent),
            delivered=self.checker.deliveries,
            reformations=max(self._views - 1, 0),
            crashes=self._crashes,
            planned_stops=self._leaves,
            lost=self.checker.lost,
            malformed=sum(sum(node.malformed.values()) for node in world.nodes.values()),
            liveness_ns=max(self._done_ns - START_NS - self._fault_ns, 0),
            bound_ns=BOUND_NS,
            mode=self.name,
            members=len(self._ids),
        )


def show_choices(name: str, choices: Choices) -> str:
    """Return the name of a protocol, with what differs from it."""
    extra = [] if choices == WIDE_PROTOCOLS[name] else [choices.repair.value, choices.copies.value]
    return " ".join([name, *extra])

"""Scenario `chain`: chain multicast (MR) with turns, among members of which up to f lie.

A seed draws styles of the liars, turns by number or by slot, delays, loss, verification time, load, cut links,
crashes between any two effects, and restarts; senders outside the group, some of which lie; and changes of epoch, with
members that leave and join, and sometimes with two records of which one can be in force at most. Faults last for some
time. Then everything that honest members have multicast, and everything that any of them has delivered, must be
delivered by all honest members within a bound. Loss continues, and the liars lie on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from random import Random
from typing import ClassVar, NamedTuple

from levelcast.byzantine.config import ChainConfig, Reading
from levelcast.byzantine.epochs import EpochMachine, EpochMember
from levelcast.byzantine.image import ChainImage
from levelcast.byzantine.member import ChainMember
from levelcast.byzantine.multicast import Counts
from levelcast.byzantine.outside import OutsideSender
from levelcast.byzantine.signatures import KeyedHash, KeyedHashVerifier
from levelcast.byzantine.turns import BySlot, ByTurn, SendingTurns
from levelcast.protocol.effects import ChainDeliver, Effect, EpochBegun, Record, Send
from levelcast.protocol.machine import Machine
from levelcast.sim.chain.liars import STYLES, ForkingMember, Liar, OutsideLiar
from levelcast.sim.chain.nodes import ChainNode, carrier
from levelcast.sim.chain.plan import GroupPlan, verifier_of
from levelcast.sim.check.chain import ChainChecker
from levelcast.sim.check.epochs import EpochChecker
from levelcast.sim.check.ring import InvariantBroken, what_broke
from levelcast.sim.engine.network import VirtualNetwork, Weather
from levelcast.sim.engine.world import START_NS, SimNode, World
from levelcast.sim.scenarios.ring import Outcome
from levelcast.wire.chain_messages import EpochRecord

MS = 1_000_000
NETWORK = 7
MEMBERS = 4
"""Default number of members."""
BOUND = 40
"""Limit of the time to deliver everything, in units of L."""


class GroupSize(NamedTuple):
    """Size of the group: members, and liars among them; None: as many as may lie, f."""

    members: int = MEMBERS
    liars: int | None = None


class ChainHistory:
    """History of one seed: build and run it."""

    READING: ClassVar[Reading] = Reading.SETTLED
    START_SPREAD_NS: ClassVar[int] = 30 * MS
    STYLES: ClassVar[Mapping[str, type[Liar]]] = STYLES
    EXTRAS: ClassVar[bool] = True
    """There are senders outside the group and changes of epoch."""

    def __init__(self, seed: int, group: GroupSize | None = None) -> None:
        """`group` without a number of liars has f, the most that may lie."""
        self.seed = seed
        self.rng = rng = Random(seed)
        group = group or GroupSize()
        members = tuple(range(1, group.members + 1))
        self.slot_ns = int(rng.choice((5, 10, 20)) * MS)
        self.by_turn = rng.random() < 0.4
        delays = {(a, b): int(rng.uniform(1, 15) * MS) for a in members for b in members if a != b}
        weather = Weather(loss=rng.choice((0.0, 0.01, 0.05)), jitter_ns=rng.choice((1, 5, 20)) * MS)
        self.config = self._make_config(members)
        network = VirtualNetwork(rng, delays, weather=weather)
        self.world = World(carrier(NETWORK), seed, network, rng)
        count = self.config.f if group.liars is None else group.liars
        self.liars = frozenset(rng.sample(members, count))
        self.styles = {liar: rng.choice(list(self.STYLES)) for liar in sorted(self.liars)}
        self.verify_ns = rng.choice((0, 0, MS // 10, MS))
        self.plan = GroupPlan(Random(f"{seed} plan"), members, self.liars, extras=self.EXTRAS)
        self.outside_liars = self.plan.outside_liars
        self.first = self.plan.records[0]
        self.honest = frozenset(self.plan.nodes) - self.liars - self.outside_liars
        self.checkers: dict[int, ChainChecker] = {}
        self.epoch_checker = EpochChecker(self.honest)
        self._check_epoch(self.first)
        self.checker = self.checkers[1]
        self.world.watchers += [self.epoch_checker, self]
        for a in self.plan.nodes:
            for b in self.plan.nodes:
                if a != b and (a, b) not in delays:
                    delays[a, b] = int(self.plan.rng.uniform(1, 15) * MS)
        self.nodes = {node: self._add(node) for node in self.plan.nodes}
        self.calm = rng.random() < 0.1
        """No crashes and no cut links."""
        self.crash_share = 0.0 if self.calm else rng.choice((0.0, 0.001, 0.004))
        self.fault_ns = int(rng.uniform(300, 1_500) * MS)
        self.packets = 0
        self.faults_over = False
        self._lives: list[ChainMember] = []
        self._kinds: Counter[str] = Counter()

    def _make_config(self, members: tuple[int, ...]) -> ChainConfig:
        rotation_ns = len(members) * (self.slot_ns if not self.by_turn else 20 * MS)
        return ChainConfig(
            members,
            domain=carrier(NETWORK).domain,
            patience_ns=4 * rotation_ns + 100 * MS,
            grace_ns=25 * MS,
            request_ns=50 * MS,
            window=self.rng.choice((4, 8)) * len(members),
            sign_ns=self.rng.choice((0, MS)),
            reading=self.READING,
        )

    # -- nodes ---------------------------------------------------------------------------------------------

    def _add(self, member: int) -> ChainNode:
        node = ChainNode(self.world, member, self._start, lambda _: self.verify_ns)
        node.after_step = self._after_step
        self.world.nodes[member] = node
        return node

    def _after_step(self, node: ChainNode) -> None:
        for checker in self.checkers.values():
            checker.after_step(node)

    def _check_epoch(self, record: EpochRecord) -> None:
        """Check an epoch from now on."""
        members = {each.node for each in record.members} & self.honest
        outside = {each.node for each in record.outside} & self.honest
        checker = ChainChecker(self.world, members, domain=self.config.domain, epoch=record.epoch, outside=outside)
        self.checkers[record.epoch] = checker
        self.world.watchers.insert(0, checker)

    def _member(self, node: ChainNode, config: ChainConfig, image: ChainImage, now: int) -> ChainMember:
        verifier = KeyedHashVerifier(config.senders)
        turns = self._turns_of(config, node.id, now)
        made = ChainMember(config, node.id, KeyedHash(node.id), verifier, image, now, turns)
        self._lives.append(made)
        return made

    def _turns_of(self, config: ChainConfig, member: int, now: int) -> Callable[[int], SendingTurns]:
        slot_ns = self.slot_ns

        def make(after_slot: int) -> SendingTurns:
            if self.by_turn:
                return ByTurn(config, member, now, hops=1, timeout_ns=40 * MS, after_slot=after_slot)
            return BySlot(config, member, now, start_ns=START_NS, slot_ns=slot_ns, after_slot=after_slot)

        return make

    def _start(self, node: SimNode) -> Machine:
        assert isinstance(node, ChainNode)
        cls = ForkingMember if node.id in self.liars else EpochMember
        return cls(
            self.first, self.config, node.id, KeyedHash(node.id), verifier_of, node.image, node.local_ns, self._part
        )

    def _part(self, epochs: EpochMember, config: ChainConfig, image: ChainImage, now: int) -> EpochMachine:
        """Return the machine of one epoch at a node, honest or not."""
        node = self.nodes[epochs.me]
        rng = Random(f"{self.seed} {node.id}")
        if node.id in config.outside:
            made = OutsideSender(config, node.id, KeyedHash(node.id), KeyedHashVerifier(config.senders), image, now)
            return made if node.id in self.honest else OutsideLiar(config, made, rng)
        style = self.styles.get(node.id)
        if style is None:
            return self._member(node, config, image, now)
        return self.STYLES[style](config, node.id, lambda: self._member(node, config, image, now), rng)

    # -- faults and load -----------------------------------------------------------------------------------

    def on_effect(self, node: SimNode, effect: Effect) -> None:
        """Crash honest members after single effects, as often as the seed has it."""
        if isinstance(effect, Send):
            self._kinds[type(effect.message).__name__] += 1
        if isinstance(effect, Record) and isinstance(effect.entry, EpochBegun) and node.id in self.honest:
            record = effect.entry.succession.record
            if record.epoch not in self.checkers:
                self._check_epoch(record)
        if self.faults_over or node.id not in self.honest or not isinstance(effect, Record | Send | ChainDeliver):
            return
        if self.crash_share and self.rng.random() < self.crash_share:
            node.crash()
            self.world.after(int(self.rng.uniform(5, 400) * MS), lambda: self._restart(node))

    def _restart(self, node: SimNode) -> None:
        if not node.up:
            node.start()

    def _cut(self) -> None:
        """Cut some links in one direction for some time."""
        rng, network = self.rng, self.world.network
        pairs = rng.sample(sorted(network.delay_ns), rng.randint(1, len(network.delay_ns) // 2))
        network.cut.update(pairs)
        self.world.after(int(rng.uniform(20, 500) * MS), lambda: network.cut.difference_update(pairs))

    def _load(self, node: ChainNode, gap_ns: int, end_ns: int) -> None:
        def tick() -> None:
            machine = node.machine
            if isinstance(machine, EpochMember) and machine.machines:
                self.packets += 1
                machine.submit([b"%d from %d" % (self.packets, node.id)])
            if self.world.now < end_ns:
                self.world.after(int(self.rng.expovariate(1.0) * gap_ns) + 1, tick)

        self.world.after(self.rng.randint(0, gap_ns), tick)

    def _propose(self, record: EpochRecord, node: ChainNode) -> None:
        """Propose a record at a node until an epoch begins: the operator repeats it after a crash."""
        machine = node.machine
        if record.epoch in self.checkers:
            return
        if isinstance(machine, EpochMember):
            machine.propose(record)
            if machine.wake_ns is not None:
                node.step(())
        self.world.after(100 * MS, lambda: self._propose(record, node))

    # -- running -------------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        broken: str | None = None
        try:
            self.run_checked()
        except AssertionError as error:
            broken = what_broke(error)
        return self._outcome(broken)

    def run_checked(self) -> None:
        """Run, and raise InvariantBroken if a guarantee is violated."""
        world, rng = self.world, self.rng
        end_ns = START_NS + self.fault_ns
        for node in self.nodes.values():
            world.at(START_NS + rng.randint(0, self.START_SPREAD_NS), node.start)
            self._load(node, rng.choice((10, 40)) * MS, end_ns)
        for at_ns, node_id, record in self.plan.proposals(self.fault_ns):
            node = self.nodes[node_id]
            world.at(START_NS + at_ns, lambda record=record, node=node: self._propose(record, node))  # type: ignore[misc]
        if not self.calm:
            for _ in range(rng.randint(0, 4)):
                world.at(START_NS + rng.randint(0, self.fault_ns), self._cut)
        world.run(end_ns)
        self.faults_over = True
        world.network.cut.clear()
        for node in self.nodes.values():
            self._restart(node)
        targets = {epoch: checker.target() for epoch, checker in self.checkers.items()}
        self.bound_ns = BOUND * self.config.patience_ns
        world.run(end_ns + self.bound_ns, lambda: not self._lacking(targets))
        lacking = self._lacking(targets)
        if lacking:
            raise InvariantBroken("validity", f"after {self.bound_ns / 1e9:.1f} s {lacking[0]} ({len(lacking)} in all)")
        self.liveness_ns = world.now - end_ns
        for checker in self.checkers.values():
            checker.check_nothing_unseen()

    def _lacking(self, targets: Mapping[int, dict[int, int]]) -> list[str]:
        return [
            f"in epoch {epoch} {what}"
            for epoch, target in targets.items()
            for what in self.checkers[epoch].lacking(target)
        ]

    bound_ns = 0
    liveness_ns = 0

    def _outcome(self, broken: str | None) -> Outcome:
        counts = Counts()
        honest = [member for member in self._lives if member.me not in self.liars]
        for name in ("resent", "acknowledged_late", "fetched", "caught_up", "shadows"):
            setattr(counts, name, sum(getattr(member.chain.counts, name) for member in honest))
        return Outcome(
            seed=self.seed,
            broken=broken,
            events=self.world.events,
            datagrams=self.world.network.sent,
            simulated_ns=self.world.now - START_NS,
            packets=self.packets,
            delivered=sum(checker.deliveries for checker in self.checkers.values()),
            from_outside=self.epoch_checker.from_outside,
            epochs=len(self.checkers) - 1,
            orders_across_epochs=self.epoch_checker.ordered,
            crashes=sum(node.crashes for node in self.nodes.values()),
            malformed=sum(sum(node.malformed.values()) for node in self.nodes.values()),
            fetched=counts.fetched,
            resent=counts.resent,
            acknowledged_late=counts.acknowledged_late,
            stated=counts.caught_up,
            shadows=counts.shadows,
            convictions=sum(len(self._convictions(node)) for node in self.nodes.values()),
            refused=sum(sum(member.refused.values()) for member in honest),
            liveness_ns=self.liveness_ns,
            bound_ns=self.bound_ns,
            mode="by turn" if self.by_turn else "by slot",
            members=len(self.first.members),
        )

    def _convictions(self, node: ChainNode) -> tuple[int, ...]:
        members = [node.member_of(epoch) for epoch in self.checkers]
        return tuple(each for member in members if member is not None for each in member.chain.convictions.members)

"""Scenario `ring`: one stripe's primaries, reformation servers and sources, with all faults.

The seed draws everything: 3 to 5 primaries, possibly spare ones, mode and witness, delays, the workload and the
adversary's parameters. Faults continue for a few seconds of virtual time and then stop. All packets of sources that
kept their journal must then be released at every operable receiver within the bound implied by the timing.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import ClassVar, TypeVar

from levelcast.protocol.config import StripeConfig
from levelcast.protocol.machine import Machine
from levelcast.ring.member import Member
from levelcast.ring.secondary import Secondary
from levelcast.ring.source import Source
from levelcast.sim.check.ring import InvariantBroken, PacketId, what_broke
from levelcast.sim.engine.disk import Disk
from levelcast.sim.engine.foreign import ForeignNetwork
from levelcast.sim.engine.network import VirtualNetwork, Weather
from levelcast.sim.engine.world import START_NS, SimNode, World
from levelcast.sim.faults import MS, Adversary
from levelcast.sim.planned_stops import PlannedStops
from levelcast.sim.scenarios.base import SimulatedRing
from levelcast.sim.timing_changes import TimingChanges
from levelcast.timing.derive import Given, Path, Shape, derive
from levelcast.timing.nack_sets import NackSets
from levelcast.timing.rules import Mode, liveness_bound_ns
from levelcast.wire.membership import encode_membership
from levelcast.wire.messages import CONTROL_SOURCE, MemberLife, Membership

FIRST_SERVER = 101
FIRST_SOURCE = 201
CLOCK_ERROR_NS = 1 * MS
LAST_SUBMIT_NS = 60 * MS
"""Time of the last submit after the last fault."""
Option = TypeVar("Option")
_PAYLOAD = struct.Struct("<HQQ")


@dataclass(slots=True, kw_only=True)
class HistoryCounts:
    """Counts of events in one history, or the sum over several, to show that a run was not vacuous."""

    events: int = 0
    datagrams: int = 0
    simulated_ns: int = 0
    packets: int = 0
    releases: int = 0
    late_releases: int = 0
    reformations: int = 0
    voided_slots: int = 0
    crashes: int = 0
    disks_lost: int = 0
    membership_changes: int = 0
    caught_up_by_frames: int = 0
    strikes: int = 0
    malformed: int = 0
    planned_stops: int = 0
    timing_changes: int = 0
    foreign: int = 0
    """Datagrams of another network that nodes rejected."""
    secondaries: int = 0
    groups: int = 0
    layers: int = 0
    stripes: int = 0
    plans: int = 0
    customers: int = 0
    delivered: int = 0
    requests: int = 0
    lost: int = 0
    merged: int = 0
    fetched: int = 0
    """Messages of chain multicast that arrived after a request."""
    resent: int = 0
    """Messages sent again without acknowledgements (C-6)."""
    acknowledged_late: int = 0
    """Messages acknowledged by C-7."""
    stated: int = 0
    """Messages delivered because f + 1 members state that they have delivered them (C-9)."""
    shadows: int = 0
    """Conflicting versions received by honest members."""
    convictions: int = 0
    refused: int = 0
    """Messages refused by honest members."""
    orders: int = 0
    """Orders in the fair sequence."""
    late_orders: int = 0
    """Those that came after their bucket was closed (E6)."""
    refused_orders: int = 0
    from_outside: int = 0
    """Messages of senders outside the group that honest members delivered."""
    epochs: int = 0
    """Epochs of chain multicast that began after the first one."""
    orders_across_epochs: int = 0
    """Deliveries of a first message of an epoch that names one of an epoch before."""


@dataclass(slots=True)
class Outcome(HistoryCounts):
    """Result of one history."""

    seed: int
    broken: str | None = None
    liveness_ns: int = 0
    bound_ns: int = 0
    mode: str = ""
    members: int = 0
    trace: list[str] = field(default_factory=list)


DrawSets = Callable[[int, list[int]], NackSets]
"""Draws sets of receivers that send requests in turn, from the seed and the members, with its own generator."""


class RingHistory(SimulatedRing):
    """History of one seed: build and run it."""

    WORLD: ClassVar[type[World]] = World
    CLOCK_PARTS: ClassVar[int] = 2
    ID_BASE: ClassVar[int] = 0
    """Offset of all ids except the operator's, so that two stripes in one history have different ids."""
    STRIPE: ClassVar[int] = 0
    SIZES: ClassVar[tuple[tuple[int, ...], ...]] = (3, 3, 4, 5), (0, 0, 0, 1, 2), (2, 3, 4)
    """Numbers of primaries, spare primaries, and sources."""
    SLOTS_MS: ClassVar[tuple[int, ...]] = (5, 10, 20, 30)
    """Slot lengths in pipelined mode; lockstep determines its own."""
    FAULTS_S: ClassVar[dict[Mode, tuple[float, float]]] = {"lockstep": (4, 9), "pipelined": (0.8, 3)}
    """Minimum and maximum duration of the faults."""
    PUNCTUAL_NS: ClassVar[int] = 1 * MS
    UNDISTURBED_SHARE: ClassVar[float] = 0.1

    def __init__(self, seed: int, draw_sets: DrawSets | None = None) -> None:
        self.seed = seed
        rng = Random(seed)
        members, spares, sources = (draw(rng, each) for each in self.SIZES)
        base = self.ID_BASE
        self._member_ids = list(range(base + 1, base + members + 1))
        self._spare_ids = list(range(base + members + 1, base + members + 1 + spares))
        self._server_ids = [base + FIRST_SERVER, base + FIRST_SERVER + 1]
        self._source_ids = list(range(base + FIRST_SOURCE, base + FIRST_SOURCE + sources))
        self._homes: dict[int, int] = {}
        self.layers = 0
        self._draw_secondaries(rng)
        config = self._make_config(rng, draw_sets(seed, self._member_ids) if draw_sets is not None else None)
        nodes = [*self._member_ids, *self._spare_ids, *self._server_ids, *self._source_ids, CONTROL_SOURCE]
        nodes += self._homes
        delays = {(a, b): int(rng.uniform(1, 8) * MS) for a in nodes for b in nodes if a != b}  # asymmetric on purpose
        config = self._with_pace(rng, config, delays)
        self.undisturbed = rng.random() < self.UNDISTURBED_SHARE
        """No faults and no loss: every receiver must release every slot at the common time, late or not."""
        calm = Weather(loss=0.0 if self.undisturbed else rng.choice((0.0, 0.01, 0.02)), jitter_ns=1 * MS)
        network = VirtualNetwork(rng, delays, {node: rng.randint(0, 2) for node in nodes}, calm)
        super().__init__(self._make_world(config, network), CLOCK_ERROR_NS)
        self.world.foreign = self._foreign = ForeignNetwork(config.domain, seed)
        self._planned_stops = PlannedStops(self.world, seed, self._start_again)
        self._timing_changes = TimingChanges(self.world, seed, self._submit_timing)
        self._measured = Random(f"measured {seed}")
        self._measures = self._measured.random() < 0.3
        """Receivers are told delays that they have measured, right or wrong."""
        self._lost_lives: set[MemberLife] = set()
        self._wanted: list[Membership] = []
        self._configured = config.membership
        self._control_packets = 0
        self._change_number = 0
        """Number of the operator's packet with the pending change."""
        self._gone: set[int] = set()
        """Nodes that are not restarted."""
        self.disks_lost = 0
        self._build_nodes()
        self.faults_begin_ns = START_NS + 20 * MS
        self.fault_ns = int(rng.uniform(*self.FAULTS_S[config.timing.mode]) * 1000 * MS)
        self.adversary = self._make_adversary()
        if self.undisturbed:
            self.world.partial_multicast = None
        self.world.watchers.append(self.adversary)
        self.bound_ns = liveness_bound_ns(config.timing, members, len(self._server_ids))
        self.liveness_ns = 0

    def _make_world(self, config: StripeConfig, network: VirtualNetwork) -> World:
        return self.WORLD(config, self.seed, network, network.rng)

    def _draw_secondaries(self, rng: Random) -> None:
        """Draw the assigned primaries of secondaries, in a scenario with secondaries (`sim.scenarios.receivers`)."""

    def customers(self) -> list[int]:
        """Return the ids of subscribers; [] in a scenario without them."""
        return []

    def _make_adversary(self, clocks: list[SimNode] | None = None) -> Adversary:
        targets = [node for node in self.world.nodes.values() if node.id != CONTROL_SOURCE]
        strikes = self.rng.choice((0, 2, 5, 10))
        return Adversary(self, targets, 0 if self.undisturbed else strikes, clocks, only=False)

    def _make_config(self, rng: Random, nack: NackSets | None) -> StripeConfig:
        mode: Mode = "lockstep" if rng.random() < 0.2 else "pipelined"
        slot_ns = None if mode == "lockstep" else rng.choice(self.SLOTS_MS) * MS
        members, sets = len(self._member_ids), nack.count if nack is not None else 1
        shape = Shape(mode, slot_ns, members // 2 + 1, members, 2, self.layers, sets)
        path = Path(delay_ns=10 * MS, loss_ratio=0.02, clock_error_ns=CLOCK_ERROR_NS, process_ns=2 * MS)
        return StripeConfig(
            stripe=self.STRIPE,
            timing=derive(path, shape, Given(attempts=3)).timing,
            witnesses=rng.choice(("majority",) * 16 + ("all", "all", members // 2 + 1, members)),
            membership=Membership(0, tuple(MemberLife(member, 1) for member in self._member_ids)),
            servers=tuple(self._server_ids),
            credit=rng.choice((4, 16, 64)),
            punctual_ns=self.PUNCTUAL_NS,
            homes=self._homes,
            nack=nack,
        )

    def _with_pace(self, rng: Random, config: StripeConfig, delays: dict[tuple[int, int], int]) -> StripeConfig:
        """Draw a hold time, often too short for the network, and the interval of beats; give the pairs' delays."""
        if config.timing.mode == "lockstep":
            return config
        hold_ns = int(config.timing.hold_ns * rng.choice((0.05, 0.2, 0.5, 1.0)))
        timing = replace(config.timing, hold_ns=hold_ns, beat_ns=rng.choice((5, 10, 20)) * MS)
        known = {pair: delay_ns + 1 * MS for pair, delay_ns in delays.items()}
        return replace(config, timing=timing, delays=known, clock_error_ns=CLOCK_ERROR_NS, reorder_ns=1 * MS)

    def _build_nodes(self) -> None:
        members = (*self._member_ids, *self._spare_ids)
        self.receivers = [self._add(node, f"receiver {node}", self._start_receiver, Member.LISTENS) for node in members]
        for server in self._server_ids:
            self._add(server, f"server {server}", self._start_server, self.SERVER.LISTENS)
        for source in (*self._source_ids, CONTROL_SOURCE):
            self._add(source, f"source {source}", self._start_source, Source.LISTENS)
        self.operator = self.world.nodes[CONTROL_SOURCE]
        self.secondaries = [
            self._add(node, f"secondary {node}", self._start_secondary, Secondary.LISTENS) for node in self._homes
        ]

    def _start_receiver(self, node: SimNode) -> Machine:
        return self._with_delays(super()._start_receiver(node))

    def _start_secondary(self, node: SimNode) -> Machine:
        return self._with_delays(super()._start_secondary(node))

    def _with_delays(self, machine: Machine) -> Machine:
        if self._measures:
            rng, longest_ns = self._measured, 2 * self.config.timing.late_ns
            known = [member for member in self._member_ids if rng.random() < 0.8]
            machine.learn_delays({member: rng.randint(-CLOCK_ERROR_NS, longest_ns) for member in known})
        return machine

    # -- actions of the adversary -------------------------------------------------------------------------

    def down_for(self, node: SimNode, delay_ns: int, *, wipe: bool) -> None:
        node.crash()
        if wipe:
            self._wipe(node)

        self.world.after(delay_ns, lambda: self._start_again(node))

    def _start_again(self, node: SimNode) -> None:
        if not node.up and node.id not in self._gone:
            node.start()

    def _wipe(self, node: SimNode) -> None:
        """Replace the disk: new life, new incarnation, empty tape."""
        self.disks_lost += 1
        lost = life_of(node)
        node.disk = Disk(self.config, lost.life + 1)
        self.world.trace(node.id, "loses its disk", f"life {lost.life + 1}")
        if lost in self._configured.members:
            self._lost_lives.add(lost)
            self._want(tuple(life_of(node) if life == lost else life for life in self._configured.members))

    def may_wipe(self, node: SimNode) -> bool:
        if node not in self.receivers:
            return node.id != CONTROL_SOURCE  # the operator's own journal has the pending change
        if self._lost_lives or self._wanted or len(self._configured.members) < 3:
            return False
        others = [other for other in self._operable() if other is not node and self._knows_set_to_stand(other)]
        return len(others) >= len(self._configured.members) // 2 + 1

    def _knows_set_to_stand(self, node: SimNode) -> bool:
        machine = node.machine
        if not isinstance(machine, Member):
            return False
        record = machine.history.tip.records[-1]
        return record.membership.version == self._configured.version and record.slot <= machine.witnessed

    def change_membership(self) -> None:
        """Replace some members by others, as many as the spares allow."""
        if self._wanted or self._lost_lives:
            return
        members = list(self._configured.members)
        inside = {life.member for life in members}
        outsiders = [life_of(node) for node in self.receivers if node.id not in inside]
        self.rng.shuffle(outsiders)
        for newcomer in outsiders[: self.rng.randint(1, 2)]:
            members[self.rng.randrange(len(members))] = newcomer
        if outsiders:
            self._want(tuple(sorted(set(members))))

    def _want(self, members: tuple[MemberLife, ...]) -> None:
        self._wanted.append(Membership(self._configured.version + 1, members))
        self.world.after(int(self.rng.uniform(1, 200) * MS), self._operate)

    def _operate(self) -> None:
        """Act as the operator: one change at a time, each only after the previous one is witnessed (rule 12)."""
        if not self._wanted:
            return
        node, source, wanted = self.operator, self.operator.machine, self._wanted[0]
        if isinstance(source, Source):
            if wanted.version != self._configured.version:
                if source.room:  # timing records may have used the credit
                    self._configured = wanted
                    self._control_packets += 1
                    self._change_number = self._control_packets
                    self.world.trace(CONTROL_SOURCE, "membership changes", wanted)
                    node.perform(source.submit(encode_membership(wanted), 1, node.local_ns))
            elif source.witnessed >= self._change_number:
                self._wanted.pop(0)
                self._lost_lives &= set(wanted.members)
                self.world.trace(CONTROL_SOURCE, "membership stands", wanted)
                self._operate()
                return
        self.world.after(20 * MS, self._operate)

    def _submit_timing(self, record: bytes) -> bool:
        """Send a timing record as the operator, without waiting for the change before it."""
        node, source = self.operator, self.operator.machine
        if not isinstance(source, Source) or not source.room:
            return False
        self._control_packets += 1
        self.world.trace(CONTROL_SOURCE, "timing changes", "")
        node.perform(source.submit(record, 1, node.local_ns))
        return True

    # -- the workload -------------------------------------------------------------------------------------

    def _submit(self, node: SimNode, together: int) -> None:
        source = node.machine
        if isinstance(source, Source) and source.room and self.world.now >= node.paused_until_ns:
            packets = [self._packet(node, source) for _ in range(min(together, source.room))]
            node.perform(source.submit_together(packets, node.local_ns))

    def _packet(self, node: SimNode, source: Source) -> tuple[bytes, int]:
        """Return a unique payload, and its number of records."""
        return _PAYLOAD.pack(node.id, source.incarnation, self.rng.getrandbits(63)), 1

    def _workload(self, node: SimNode, mean_gap_ns: int, end_ns: int) -> None:
        def tick() -> None:
            together, times = self.rng.choice(((1, 1), (1, 1), (1, 2), (1, 6), (2, 1), (5, 1), (3, 2)))
            for _ in range(times):
                self._submit(node, together)
            if self.world.now < end_ns:
                self.world.after(int(self.rng.expovariate(1.0) * mean_gap_ns) + 1, tick)

        self.world.after(self.rng.randint(0, mean_gap_ns), tick)

    # -- running ------------------------------------------------------------------------------------------

    def begin(self) -> int:
        """Schedule starts, workload and faults; return when the faults end."""
        world, rng = self.world, self.rng
        nodes = list(world.nodes.values())
        rng.shuffle(nodes)
        for node in nodes:
            world.at(START_NS + rng.randint(0, 30 * MS), node.start)
        end_ns = START_NS + self.fault_ns
        gap_ns = int(rng.choice((15, 40, 100)) * MS)
        for source in self._source_ids:
            self._workload(world.nodes[source], gap_ns, end_ns + 50 * MS)
        if self.undisturbed:
            return end_ns
        self.adversary.plan(self.faults_begin_ns, end_ns, rng.randint(0, 9))
        stoppable = [node for node in (*self.receivers, *self.secondaries) if node in self.adversary.targets]
        self._planned_stops.plan(stoppable, self.faults_begin_ns, end_ns)
        self._timing_changes.plan(self.receivers, self.faults_begin_ns, end_ns)
        return end_ns

    def run(self) -> Outcome:
        broken: str | None = None
        try:
            self.world.run(self.begin())
            self._end_faults()
            self._check_liveness(self.world.now)
            self._check_end()
        except AssertionError as error:
            broken = what_broke(error)
        return self._outcome(broken)

    def _check_end(self) -> None:
        self.checker.check_end([*self.receivers, *self.secondaries], 2 * MS)
        if self.undisturbed:
            self.checker.check_nobody_late_alone()
        self.checker.check_no_loss(self._releasing(), self._witnessed())

    def _end_faults(self) -> None:
        for node in self.world.nodes.values():
            if not node.up:
                node.start()

    def _operable(self) -> list[SimNode]:
        """Return the running receivers that are in the configured set with their current life."""
        members = set(self._configured.members)
        return [node for node in self.receivers if node.up and life_of(node) in members]

    def _releasing(self) -> list[SimNode]:
        """Return all receivers that must release everything."""
        return [*self._operable(), *(node for node in self.secondaries if node.up)]

    def _check_liveness(self, faults_end_ns: int) -> None:
        """Check that all packets of sources that kept their journal are released everywhere, within the bound."""
        last_submit_ns = faults_end_ns + LAST_SUBMIT_NS
        self.world.run(last_submit_ns)
        longer_ns = self._timing_changes.longest_ns - self.config.timing.hold_ns
        self.bound_ns += 2 * longer_ns  # Δ_A is a term of it twice
        self.world.run(last_submit_ns + self.bound_ns, self._all_released)
        if not self._all_released():
            stuck = self._what_is_stuck()
            raise InvariantBroken("liveness", f"packets not released after {self.bound_ns / 1e9:.2f} s: {stuck}")
        self.liveness_ns = self.world.now - faults_end_ns

    def _all_released(self) -> bool:
        if self._wanted or self._planned_stops.under_way:
            return False
        living = self._living()
        return all(not self.checker.missing_from(node, living) for node in self._releasing())

    def _what_is_stuck(self) -> str:
        living = self._living()
        lines = [f"operator waits for {self._wanted[0]}"] if self._wanted else []
        lacking = [(node.name, len(self.checker.missing_from(node, living))) for node in self._releasing()]
        return "; ".join([*lines, *(f"{name} lacks {missing}" for name, missing in lacking if missing)])

    def _living(self) -> list[PacketId]:
        """Return packets of sources that still have their journal."""
        lives = {node.id: node.disk.journal.life for node in self.world.nodes.values()}
        return [key for key in self.checker.submitted if key[1] == lives[key[0]]]

    def _witnessed(self) -> list[PacketId]:
        witnessed: list[PacketId] = []
        for source in (*self._source_ids, CONTROL_SOURCE):
            machine = self.world.nodes[source].machine
            if isinstance(machine, Source):
                witnessed += [(source, machine.incarnation, n) for n in range(1, machine.witnessed + 1)]
        return witnessed

    def _outcome(self, broken: str | None) -> Outcome:
        world, checker = self.world, self.checker
        reports = world.report_counts
        return Outcome(
            seed=self.seed,
            broken=broken,
            events=world.events,
            datagrams=world.network.sent,
            simulated_ns=world.now - START_NS,
            packets=len(checker.submitted),
            releases=checker.releases,
            late_releases=checker.late_releases,
            reformations=reports["forms"],
            voided_slots=world.voided_slots,
            crashes=sum(node.crashes for node in world.nodes.values()),
            disks_lost=self.disks_lost,
            membership_changes=self._configured.version,
            caught_up_by_frames=reports["caught-up"],
            strikes=self.adversary.strikes,
            stripes=1,
            malformed=sum(sum(node.malformed.values()) for node in world.nodes.values()),
            planned_stops=self._planned_stops.stops,
            timing_changes=self._timing_changes.sent,
            foreign=self._foreign.rejected,
            liveness_ns=self.liveness_ns,
            bound_ns=self.bound_ns,
            mode=self.config.timing.mode,
            members=len(self._member_ids),
        )


def draw(rng: Random, options: Sequence[Option]) -> Option:
    """Choose one of several options; a single one does not advance the generator."""
    return rng.choice(options) if len(options) > 1 else options[0]


def life_of(node: SimNode) -> MemberLife:
    """Return a receiver's id with the life of its disk."""
    return MemberLife(node.id, node.disk.journal.life)

"""Run a ring without faults: any number of members and any loss, or the network of a network file.

The other scenarios search for histories that violate an invariant; this one measures cost and latency of normal
operation. A run has three phases: `form` (until every member is in one ring), `load` (sources send for a given time)
and `drain` (until everything is released everywhere). The checkers watch all phases, so no metric is based on a
run that violates an invariant.

Times are true time, not a node's clock. A latency is the time from the source's submit to a receiver's release, with
one sample per packet and receiver.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from levelcast.network import Network
from levelcast.network.stripe_config import ring_config
from levelcast.protocol.config import StripeConfig, Witnesses
from levelcast.protocol.effects import Effect, Release, Send
from levelcast.protocol.events import Witnessed
from levelcast.ring.listener import Listener
from levelcast.ring.member import Member
from levelcast.ring.source import Source
from levelcast.sim.check.ring import Checker
from levelcast.sim.engine.network import VirtualNetwork, Weather
from levelcast.sim.engine.world import START_NS, SimNode, World
from levelcast.sim.scenarios.base import SimulatedRing, link_network
from levelcast.timing.derive import Path, Shape, derive
from levelcast.timing.nack_sets import NackSets
from levelcast.timing.rules import Mode, Timing, liveness_bound_ns
from levelcast.wire.messages import MemberLife, Membership, Request

MS = 1_000_000
DELAY_NS, JITTER_NS = 10 * MS, 1 * MS
"""Delay and jitter between any two nodes of `steady_world`."""
SLICE_NS = 500 * MS
"""The load runs in slices of this length, so that long runs stay below the world's limit of events."""
FIRST_SERVER = 101
FIRST_SOURCE = 201
PAYLOAD = struct.Struct("<HQ54x")
"""64 bytes, the length of one trade record."""


class Samples:
    """Watcher that records latencies and counts."""

    def __init__(self, world: World, checker: Checker) -> None:
        self._world = world
        self._submitted_at = checker.submitted_at
        self._seen_upto: dict[int, int] = {}
        self.latency_ns = array("q")
        """Time from submit to release, per packet and receiver."""
        self.wait_ns = array("q")
        """Time from submit to the timestamp of the acknowledging token, per packet and receiver."""
        self.ready_ns = array("q")
        """Time from timestamp until a slot is held and witnessed, per slot and receiver: the required hold time."""
        self.late = 0
        """Packet releases after timestamp + Δ_A, as the receivers count them (rule 7)."""
        self.late_slots: set[int] = set()
        self.requests = 0

    def on_effect(self, node: SimNode, effect: Effect) -> None:
        if isinstance(effect, Send):
            self.requests += isinstance(effect.message, Request)
        elif isinstance(effect, Release):
            self._note_release(effect)
        elif isinstance(effect, Witnessed):
            self._note_ready(node, effect.slot)

    def _note_release(self, release: Release) -> None:
        now = self._world.now
        frame = release.frame
        for packet in frame.packets:
            submitted = self._submitted_at[packet[:3]]
            self.latency_ns.append(now - submitted)
            self.wait_ns.append(frame.timestamp_ns - submitted)
        if release.late:
            self.late += len(frame.packets)
            self.late_slots.add(frame.slot)

    def _note_ready(self, node: SimNode, upto: int) -> None:
        machine = node.machine
        assert isinstance(machine, Listener)
        for slot in range(self._seen_upto.get(node.id, upto - 1) + 1, upto + 1):
            ordered = machine.history.get(slot)
            if ordered is not None:
                self.ready_ns.append(self._world.now - ordered.timestamp_ns)
        self._seen_upto[node.id] = upto


@dataclass(frozen=True, slots=True)
class Roles:
    """Node ids of a deployment, members in ring order."""

    members: tuple[int, ...]
    servers: tuple[int, ...]
    sources: tuple[int, ...]

    @property
    def nodes(self) -> tuple[int, ...]:
        return (*self.members, *self.servers, *self.sources)


class SteadyWorld(SimulatedRing):
    """One ring and its sources, without faults."""

    def __init__(
        self, config: StripeConfig, roles: Roles, network: VirtualNetwork, seed: int, gap_ns: int, clock_error_ns: int
    ) -> None:
        super().__init__(World(config, seed, network, network.rng), clock_error_ns)
        self.roles = roles
        self.samples = Samples(self.world, self.checker)
        self.world.watchers.append(self.samples)
        self.refused = 0
        """Number of packets that a source could not submit for lack of credit (rule 10)."""
        self.unwitnessed_most = 0
        """Maximum number of unwitnessed packets of a source: the credit that this load needs."""
        self._gap_ns = gap_ns
        self._numbers = dict.fromkeys(roles.sources, 0)
        for ids, name, start in (
            (roles.members, "receiver", self._start_receiver),
            (roles.servers, "server", self._start_server),
            (roles.sources, "source", self._start_source),
        ):
            for node in ids:
                self._add(node, f"{name} {node}", start)

    @property
    def timing(self) -> Timing:
        return self.config.timing

    @property
    def receivers(self) -> list[Member]:
        machines = [self.world.nodes[member].machine for member in self.roles.members]
        return [machine for machine in machines if isinstance(machine, Member)]

    @property
    def bound_ns(self) -> int:
        return liveness_bound_ns(self.timing, len(self.roles.members), len(self.roles.servers))

    # -- the three phases ---------------------------------------------------------------------------------

    def form(self) -> None:
        """Start every node and wait until all members are in one ring that has released its first round."""
        self._start_all()
        self.world.run(START_NS + self.bound_ns, self._formed)
        assert self._formed(), "the ring did not form within the liveness bound"

    def _start_all(self) -> None:
        for node in self.world.nodes.values():
            self.world.at(START_NS + self.rng.randint(0, 10 * MS), node.start)

    def _formed(self) -> bool:
        members = len(self.roles.members)
        return len(self.receivers) == members and all(
            receiver.active and len(receiver.ring_members) == members and receiver.released >= members
            for receiver in self.receivers
        )

    def load(self, lasting_ns: int, until: Callable[[], bool] | None = None) -> None:
        """Submit packets at random times, one per source and `gap_ns` on average; stop early if `until` is True."""
        end_ns = self.world.now + lasting_ns
        for source in self.roles.sources:
            self._submit_until(self.world.nodes[source], end_ns)
        while self.world.now < end_ns and not (until is not None and until()):
            self.world.run(min(end_ns, self.world.now + SLICE_NS), until)

    def _submit_until(self, node: SimNode, end_ns: int) -> None:
        def tick() -> None:
            self._submit(node)
            self._submit_until(node, end_ns)

        when = self.world.now + int(self.rng.expovariate(1.0) * self._gap_ns) + 1
        if when <= end_ns:
            self.world.at(when, tick)

    def _submit(self, node: SimNode) -> None:
        source = node.machine
        assert isinstance(source, Source)
        if not source.room:
            self.refused += 1
            return
        self._numbers[node.id] += 1
        node.perform(source.submit(PAYLOAD.pack(node.id, self._numbers[node.id]), 1, node.local_ns))
        self.unwitnessed_most = max(self.unwitnessed_most, source.unwitnessed)

    def drain(self) -> None:
        """Run until everything is released everywhere, and check the invariants of the end."""
        self.world.run(self.world.now + self.bound_ns, self._all_released)
        assert self._all_released(), "not everything was released within the liveness bound"
        nodes = [self.world.nodes[member] for member in self.roles.members]
        self.checker.check_end(nodes, 2 * MS)
        self.checker.check_no_loss(nodes, self.checker.submitted)

    def _all_released(self) -> bool:
        packets = self.checker.submitted
        return all(not self.checker.missing_from(self.world.nodes[member], packets) for member in self.roles.members)


def steady_world(
    members: int,
    loss: float,
    *,
    seed: int = 1,
    mode: Mode = "pipelined",
    slot_ns: int | None = 20 * MS,
    witnesses: Witnesses = "majority",
    sources: int = 3,
    gap_ns: int = 50 * MS,
    credit: int = 256,
    branch_of: dict[int, int] | None = None,
    branch_loss: float = 0.0,
    nack: NackSets | None = None,
    as_in_paper: bool = False,
    build: type[SteadyWorld] = SteadyWorld,
) -> SteadyWorld:
    """Build a ring with this number of members and the same delay and loss between all nodes.

    Multicasts are also lost at the branches of a tree, for all members below (MS §3.9): `branch_of` gives the branch
    of each member, `branch_loss` the loss ratio. `nack` divides members into sets that send requests in turn (MS §5.2).
    With `as_in_paper`, claims and requests are those of the paper in either mode.

    >>> ring = steady_world(3, 0.01)
    >>> ring.form()
    >>> ring.load(1_000_000_000)
    >>> ring.drain()
    >>> ring.samples.late, len(ring.samples.latency_ns) == 3 * len(ring.checker.submitted)
    (0, True)
    """
    rng = Random(seed)
    roles = Roles(
        tuple(range(1, members + 1)),
        (FIRST_SERVER, FIRST_SERVER + 1),
        tuple(range(FIRST_SOURCE, FIRST_SOURCE + sources)),
    )
    worst_ns = DELAY_NS + JITTER_NS
    all_loss = 1.0 - (1.0 - loss) * (1.0 - branch_loss)
    path = Path(worst_ns, all_loss, clock_error_ns=MS // 2, process_ns=MS, reach_ns=worst_ns)
    delays = {(a, b): DELAY_NS for a in roles.nodes for b in roles.nodes if a != b}
    weather = Weather(loss=loss, branch_loss=branch_loss, jitter_ns=JITTER_NS)
    network = VirtualNetwork(rng, delays, branch_of or {}, weather)
    timing = _timing(path, roles, mode, slot_ns, witnesses, nack)
    config = StripeConfig(
        stripe=0,
        timing=replace(timing, beat_ns=0) if as_in_paper else timing,
        as_in_paper=as_in_paper,
        witnesses=witnesses,
        membership=Membership(0, tuple(MemberLife(member, 1) for member in roles.members)),
        servers=roles.servers,
        credit=credit,
        nack=nack,
    )
    return build(config, roles, network, seed, gap_ns, path.clock_error_ns)


def steady_network(
    network: Network,
    *,
    seed: int = 1,
    mode: Mode = "pipelined",
    slot_ns: int | None = 50 * MS,
    witnesses: Witnesses = "majority",
    gap_ns: int = 200 * MS,
    credit: int = 1024,
    change: Callable[[Timing], Timing] | None = None,
) -> SteadyWorld:
    """Build the ring of a network file with its links, but with this mode, slot and witness, and rule 6's hold time.

    `change` returns another timing.
    """
    roles = Roles(
        tuple(receiver.id for receiver in network.receivers),
        tuple(server.id for server in network.reformation),
        tuple(floor.id for floor in network.floors),
    )
    path = network.path()
    timing = _timing(path, roles, mode, slot_ns, witnesses)
    if change is not None:
        timing = change(timing)
    config = replace(ring_config(network), timing=timing, witnesses=witnesses, credit=credit, nack=None)
    virtual = link_network(network, network.floors, Random(seed))
    return SteadyWorld(config, roles, virtual, seed, gap_ns, path.clock_error_ns)


def _timing(
    path: Path, roles: Roles, mode: Mode, slot_ns: int | None, witnesses: Witnesses, nack: NackSets | None = None
) -> Timing:
    members, sets = len(roles.members), nack.count if nack is not None else 1
    needed = members // 2 + 1 if witnesses == "majority" else members if witnesses == "all" else witnesses
    shape = Shape(mode, None if mode == "lockstep" else slot_ns, needed, members, len(roles.servers), nack_sets=sets)
    return derive(path, shape).timing

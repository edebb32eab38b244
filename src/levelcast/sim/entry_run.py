"""A run of order entry on the ring's own classes, without faults, to compare with the model (`sim.bulk.entry`).

A ring of five, gateways in all cities as sources, 1 % loss, and clocks wrong by a constant of each node. In each city
one trader reacts to every release, after the same time less an advantage of its city. Gateways stamp with
`GatewayStamper`; two members compute the sequence with `FairEntry`. Lateness of releases and ways to the stamp are
drawn as in the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

import numpy as np
import numpy.typing as npt

from levelcast.market.fair.fair_order import FairEntry
from levelcast.market.fair.stamps import GatewayStamper
from levelcast.market.fair.stripes import entry_frame
from levelcast.protocol.config import StripeConfig
from levelcast.protocol.effects import Effect, Release
from levelcast.records import RecordArray, orders
from levelcast.ring.source import Source
from levelcast.sim.bulk.entry import LATE_MEDIAN_MS, LATE_P99_MS, NORMAL_P99, REACTION_MS, STAMP_NOISE_MS, EntryModel
from levelcast.sim.engine.network import VirtualNetwork, Weather
from levelcast.sim.engine.world import SimNode
from levelcast.sim.scenarios.steady import Roles, SteadyWorld
from levelcast.timing.derive import Path, Shape, derive
from levelcast.timing.entry import EntryGiven, EntryPath, derive_entry
from levelcast.wire.entry_change import EntryRules, encode_entry_rules
from levelcast.wire.messages import CONTROL_SOURCE, MemberLife, Membership

MS = 1_000_000
FIRST_GATEWAY = 301
SERVERS = (101, 102)
CLOCK_ERROR_NS = 1 * MS
START_NS = 1_000 * MS
"""From the first record to the first stamps, after the hold time."""
SLICE_NS = 500 * MS


@dataclass(frozen=True, slots=True)
class EntryRun:
    """Result: for each release the place of each city's order in the sequence, and the time until it was closed."""

    places: npt.NDArray[np.int64]
    """Release, city."""
    closing_ms: npt.NDArray[np.float64]
    late: int
    refused: int
    same: bool
    """Both members computed the same sequence."""

    def first_chance(self, one: int, other: int) -> float:
        return float((self.places[:, one] < self.places[:, other]).mean())


class EntryWorld(SteadyWorld):
    """A ring with gateways and traders."""

    def prepare(self, model: EntryModel, faster_ms: Sequence[float], rules: EntryRules, seed: int) -> None:
        self.model, self._faster_ms, self._rules = model, faster_ms, rules
        self._random = Random(f"traders {seed}")
        self._stampers = [
            GatewayStamper(FIRST_GATEWAY + city, self.timing.slot_ns, rules.late_cap_ns) for city in range(model.cities)
        ]
        for stamper in self._stampers:
            stamper.learn([rules], rules.from_ns)
        self.entries = {member: FairEntry() for member in self.roles.members[:2]}
        self.sequences: dict[int, list[RecordArray]] = {member: [] for member in self.entries}
        self.closed_ms: list[float] = []
        self.late = self.refused = 0
        self.reacted: set[int] = set()
        self.most = 0
        """Number of releases to which traders react."""
        self.world.watchers.append(self)

    def on_effect(self, node: SimNode, effect: Effect) -> None:
        if not isinstance(effect, Release):
            return
        frame = effect.frame
        if node.id in self.entries:
            batch = self.entries[node.id].frame(entry_frame(frame))
            if len(batch.orders):
                self.sequences[node.id].append(batch.orders)
            if node.id == self.roles.members[0]:
                self.late += int(batch.late.sum())
                self.refused += len(batch.refused)
                self.closed_ms += ((frame.timestamp_ns - batch.orders["ts_event"].astype(np.int64)) / MS).tolist()
        started = effect.scheduled_ns > self._rules.from_ns + self.timing.slot_ns
        if started and frame.slot not in self.reacted and len(self.reacted) < self.most:
            self.reacted.add(frame.slot)
            for city in range(self.model.cities):
                self._react(city, frame.slot, effect.scheduled_ns)

    def _react(self, city: int, slot: int, scheduled_ns: int) -> None:
        """Let the trader of a city react to a release, which is late at this site by a time of its own."""
        rng = self._random
        sigma = float(np.log(LATE_P99_MS / LATE_MEDIAN_MS)) / NORMAL_P99
        late_ns = int(LATE_MEDIAN_MS * rng.lognormvariate(0.0, sigma) * MS)
        systematic = self.model.stamp_error_ms * city / (self.model.cities - 1)
        path_ms = systematic + rng.expovariate(1.0 / STAMP_NOISE_MS)
        received_ns = scheduled_ns + late_ns + int((REACTION_MS - self._faster_ms[city] + path_ms) * MS)
        self._stampers[city].released((0, slot), scheduled_ns, scheduled_ns + late_ns)
        node = self.world.nodes[FIRST_GATEWAY + city]

        def send() -> None:
            command = orders(1)
            command["account"], command["price"] = city + 1, slot
            self._submit_records(node, self._stampers[city].stamped(command, np.array([received_ns]), node.local_ns))

        self.world.at(max(self.world.now, received_ns - node.clock_offset_ns), send)

    def _submit_records(self, node: SimNode, records: RecordArray) -> None:
        source = node.machine
        assert isinstance(source, Source)
        assert source.room, "the credit is too small for this run"
        node.perform(source.submit(records.tobytes(), len(records), node.local_ns))

    def beat(self, city: int) -> None:
        """Show the clock of a gateway from now on, once in a slot without orders."""
        node, stamper = self.world.nodes[FIRST_GATEWAY + city], self._stampers[city]
        now = node.local_ns
        if now >= stamper.wake_ns and now >= self._rules.from_ns:
            self._submit_records(node, stamper.beat(now, now))
        self.world.at(max(self.world.now + MS, stamper.wake_ns - node.clock_offset_ns), partial(self.beat, city))

    def start_entry(self) -> None:
        """Send the first rules as the operator."""
        node = self.world.nodes[CONTROL_SOURCE]
        source = node.machine
        assert isinstance(source, Source)
        node.perform(source.submit(encode_entry_rules(self._rules), 1, node.local_ns))
        for city in range(self.model.cities):
            self.world.after(self._random.randrange(self.timing.slot_ns), partial(self.beat, city))


def run_entry(
    model: EntryModel, releases: int, *, slot_ns: int = 50 * MS, faster_ms: Sequence[float] = (), seed: int = 1
) -> EntryRun:
    """Run until every order that reacts to one of these releases is in the sequence."""
    world = _build(model, slot_ns, seed)
    given = EntryGiven(stamp_error_ns=int(model.stamp_error_ms * MS), late_cap_ns=int(model.cap_ms * MS))
    entry = derive_entry(world.timing, EntryPath(2 * int(model.cap_ms * MS) + 1, "", 5, CLOCK_ERROR_NS), given)
    world.form()
    rules = EntryRules(
        version=1,
        from_ns=world.world.now + entry.hold_ns + START_NS,
        quantum_ns=entry.quantum_ns,
        close_ns=entry.close_ns,
        late_cap_ns=entry.late_cap_ns,
        ahead_ns=entry.ahead_ns,
        epoch_ns=entry.epoch_ns,
        hold_ns=entry.hold_ns,
        gateways=tuple(range(FIRST_GATEWAY, FIRST_GATEWAY + model.cities)),
    )
    world.prepare(model, faster_ms or [0.0] * model.cities, rules, seed)
    world.most = releases
    world.start_entry()
    wanted = releases * model.cities
    limit_ns = world.world.now + 4 * entry.hold_ns + START_NS + 2 * releases * slot_ns
    while len(world.closed_ms) < wanted and world.world.now < limit_ns:
        world.world.run(world.world.now + SLICE_NS)
    world.world.run(world.world.now + SLICE_NS)
    one, other = (np.concatenate(sequence) for sequence in world.sequences.values())
    same = min(len(one), len(other))
    return EntryRun(
        _places(one, model.cities), np.array(world.closed_ms), world.late, world.refused,
        bool(same >= wanted and one[:same].tobytes() == other[:same].tobytes()),
    )  # fmt: skip


def _places(sequence: RecordArray, cities: int) -> npt.NDArray[np.int64]:
    slots, rows, counts = np.unique(sequence["price"], return_inverse=True, return_counts=True)
    places = np.zeros((len(slots), cities), np.int64)
    places[rows, sequence["account"].astype(np.int64) - 1] = np.arange(len(sequence))
    complete: npt.NDArray[np.int64] = places[counts == cities]
    return complete


def _build(model: EntryModel, slot_ns: int, seed: int) -> EntryWorld:
    members = tuple(range(1, len(model.ring) + 1))
    gateways = tuple(range(FIRST_GATEWAY, FIRST_GATEWAY + model.cities))
    roles = Roles(members, SERVERS, (*gateways, CONTROL_SOURCE))
    city_of = dict(zip(members, model.ring, strict=True)) | dict.fromkeys((*SERVERS, CONTROL_SOURCE), model.ring[0])
    city_of |= {gateway: city for city, gateway in enumerate(gateways)}
    delay_ms, jitter_ms = model.delays.delay_ms, model.delays.jitter_ms
    delays = {
        (a, b): max(50_000, int(delay_ms[city_of[a], city_of[b]] * MS)) for a in city_of for b in city_of if a != b
    }
    jitter_ns = int(np.median(jitter_ms) * MS)
    ring = np.ix_(model.ring, model.ring)
    longest_ns = int(delay_ms[ring].max() * MS) + jitter_ns
    reach_ns = int(delay_ms[:, list(model.ring)].max() * MS) + jitter_ns
    loss = float(model.loss.max())
    path = Path(longest_ns, loss, clock_error_ns=CLOCK_ERROR_NS, process_ns=MS, reach_ns=reach_ns)
    timing = derive(path, Shape("pipelined", slot_ns, len(members) // 2 + 1, len(members), len(SERVERS))).timing
    config = StripeConfig(
        stripe=0,
        timing=timing,
        witnesses="majority",
        membership=Membership(0, tuple(MemberLife(member, 1) for member in members)),
        servers=SERVERS,
        credit=1024,
    )
    network = VirtualNetwork(Random(seed), delays, {}, Weather(loss=loss, jitter_ns=jitter_ns))
    return EntryWorld(config, roles, network, seed, slot_ns, CLOCK_ERROR_NS)

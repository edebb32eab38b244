"""The exact simulator beside the bulk one: a small ring with secondaries over the same links, with the same timing."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from random import Random

import numpy as np

from levelcast.network import Link
from levelcast.network.regions.delays import Delays
from levelcast.protocol.config import StripeConfig
from levelcast.protocol.effects import GROUP, Effect, Release, Send
from levelcast.ring.group_server import ReformationAndGroupServer
from levelcast.ring.secondary import Secondary
from levelcast.sim.bulk.core import BulkCore, CoreRun
from levelcast.sim.bulk.paths import Core, Times
from levelcast.sim.engine.network import LinkNetwork
from levelcast.sim.engine.world import SimNode
from levelcast.sim.scenarios.steady import FIRST_SERVER, FIRST_SOURCE, MS, Roles, SteadyWorld
from levelcast.timing.derive import Given, Path, Shape, derive
from levelcast.timing.rules import Timing
from levelcast.wire.messages import MemberLife, Membership, Repair, Request

FIRST_SECONDARY = 301


@dataclass(frozen=True, slots=True)
class Small:
    """A small case: every node in a city of its own."""

    primaries: int
    secondaries: int
    """Below each primary."""
    loss: float
    hold_ms: float | None = None
    """The hold time; None: that of rule 6. With less, some releases are late."""
    sources: int = 3
    slot_ms: int = 20
    gap_ms: int = 120
    below: int = 0
    """Below each of the secondaries, in a third layer."""

    @property
    def receivers(self) -> int:
        return self.primaries * (1 + self.secondaries * (1 + self.below))

    def delays(self) -> Delays:
        """10 to 40 ms one way, 4 ms of jitter."""
        cities = self.receivers + self.sources + 2
        rng = np.random.default_rng(11)
        places = rng.uniform(0, 1, (cities, 2))
        apart = np.hypot(*(places[:, None] - places[None]).transpose(2, 0, 1))
        ones = np.ones((cities, cities))
        return Delays(tuple(map(str, range(cities))), 10 + 20 * apart, 4 * ones, self.loss * ones)

    def timing(self) -> Timing:
        delays = self.delays()
        longest_ns = int(delays.quantile_ms.max() * MS)
        path = Path(longest_ns, self.loss, clock_error_ns=MS // 2, process_ns=MS, reach_ns=longest_ns)
        shape = Shape(
            "pipelined", self.slot_ms * MS, self.primaries // 2 + 1, self.primaries, 2, len(homes_below(self)) - 1
        )
        hold_ns = int(self.hold_ms * MS) if self.hold_ms is not None else None
        return derive(path, shape, Given(hold_ns=hold_ns)).timing


class Asked:
    """A watcher that counts requests by whom they are sent to, and releases."""

    def __init__(self) -> None:
        self.on = False
        self.requests: Counter[int] = Counter()
        self.counted: Counter[int] = Counter()
        """Those while sources were sending."""
        self.releases: dict[int, list[bool]] = {}
        self.answers: Counter[str] = Counter()

    def on_effect(self, node: SimNode, effect: Effect) -> None:
        if self.on and isinstance(effect, Send) and type(effect.message) is Repair:
            self.answers["all" if effect.to == GROUP else "one"] += 1
        if self.on and isinstance(effect, Send) and type(effect.message) is Request:
            self.requests[effect.to] += 1
        elif self.on and isinstance(effect, Release):
            self.releases.setdefault(node.id, []).append(effect.late)


class Layered(SteadyWorld):
    """A ring with secondaries, and nothing that fails."""

    SERVER = ReformationAndGroupServer

    def __init__(self, config: StripeConfig, roles: Roles, network: LinkNetwork, seed: int, gap_ns: int) -> None:
        super().__init__(config, roles, network, seed, gap_ns, MS // 2)
        self.asked = Asked()
        self.world.watchers.append(self.asked)
        for secondary in config.homes:
            self._add(secondary, f"secondary {secondary}", self._start_secondary, Secondary.LISTENS)

    def _formed(self) -> bool:
        machines = [self.world.nodes[secondary].machine for secondary in self.config.homes]
        return super()._formed() and all(
            isinstance(machine, Secondary) and machine.standing == "FOLLOWS" and machine.released > 0
            for machine in machines
        )


def roles_of(small: Small) -> Roles:
    members = tuple(range(1, small.primaries + 1))
    sources = tuple(range(FIRST_SOURCE, FIRST_SOURCE + small.sources))
    return Roles(members, (FIRST_SERVER, FIRST_SERVER + 1), sources)


def homes_below(small: Small) -> list[list[int]]:
    """The home of each receiver, by its place, layer by layer; a primary is its own."""
    homes = [list(range(small.primaries))]
    for group in filter(None, (small.secondaries, small.below)):
        first = sum(map(len, homes[:-1]))
        homes.append([first + place for place in range(len(homes[-1])) for _ in range(group)])
    return homes


def homes_of(small: Small) -> dict[int, int]:
    ids = [*roles_of(small).members, *range(FIRST_SECONDARY, FIRST_SECONDARY + small.receivers - small.primaries)]
    below = [home for layer in homes_below(small)[1:] for home in layer]
    return {secondary: ids[home] for secondary, home in zip(ids[small.primaries :], below, strict=True)}


def links_of(small: Small) -> dict[tuple[int, int], Link]:
    roles, delays = roles_of(small), small.delays()
    nodes = [*roles.members, *homes_of(small), *roles.sources, *roles.servers]
    return {
        (a, b): Link(int(delays.delay_ms[i, k] * MS), int(delays.jitter_ms[i, k] * MS), float(delays.loss[i, k]))
        for i, a in enumerate(nodes)
        for k, b in enumerate(nodes)
        if a != b
    }


def config_of(small: Small) -> StripeConfig:
    """The configuration of the ring, with what `levelcast.network.stripe_config` takes from links."""
    roles, homes, links = roles_of(small), homes_of(small), links_of(small)

    def nearest(member: int) -> tuple[int, ...]:
        others = [each for each in roles.members if each != member]
        return tuple(sorted(others, key=lambda each: links[member, each].delay_ns + links[each, member].delay_ns))

    return StripeConfig(
        stripe=0,
        timing=small.timing(),
        witnesses="majority",
        membership=Membership(0, tuple(MemberLife(member, 1) for member in roles.members)),
        servers=roles.servers,
        credit=256,
        nearness={member: nearest(member) for member in roles.members},
        delays={pair: link.quantile_ns for pair, link in links.items() if pair[1] in (*roles.members, *homes)},
        clock_error_ns=MS // 2,
        reorder_ns=max(link.jitter_ns for link in links.values()),
        homes=homes,
    )


def exact(small: Small, seed: int, lasting_ns: int) -> Layered:
    """Run the protocol itself."""
    network = LinkNetwork(Random(seed), {}, links=links_of(small))
    ring = Layered(config_of(small), roles_of(small), network, seed, small.gap_ms * MS)
    ring.form()
    ring.asked.on = True
    ring.samples.ready_ns = type(ring.samples.ready_ns)("q")
    ring.load(lasting_ns)
    ring.asked.counted = ring.asked.requests.copy()
    ring.drain()
    return ring


def core_of(small: Small, clock_ms: Times | None = None) -> Core:
    """The same ring for the bulk simulation, with clocks that are right unless they are given."""
    receivers = small.receivers
    home = np.concatenate(homes_below(small))
    return Core(
        small.delays(),
        np.arange(receivers),
        home,
        np.arange(receivers, receivers + small.sources),
        small.timing(),
        small.primaries // 2 + 1,
        np.zeros(receivers) if clock_ms is None else clock_ms,
        0.5,
    )


def bulk(small: Small, seed: int, slots: int) -> CoreRun:
    """Run it in bulk."""
    clock_ms = np.random.default_rng(seed + 1_000).uniform(-0.5, 0.5, small.receivers)
    return BulkCore(core_of(small, clock_ms), seed).run(slots, small.gap_ms, warm=50)

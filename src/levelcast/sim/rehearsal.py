"""Simulate the deployment of a network file with a site failure, and measure it.

- `Deployment` puts the receivers, reformation servers and floors of one stripe into a `World`: every pair of
  nodes has the delay, jitter and loss of the link between their sites, every clock is wrong by up to the
  file's clock error, and members send requests to their nearest neighbours first.
- `Rehearsal` waits for a ring, opens the floors, kills a site just before its slot, restarts it with its disk, closes
  the floors and runs until every trade is on every tape or the liveness bound has passed.
- `RehearsalRecorder` measures in true time, which only a simulation knows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from levelcast.network import Link, Links, Network
from levelcast.network.stripe_config import ring_config
from levelcast.protocol.effects import Effect, Persist, Release, Send
from levelcast.protocol.events import RingEntered
from levelcast.records import TRADE
from levelcast.ring.member import Member
from levelcast.sim.check.ring import what_broke
from levelcast.sim.engine.world import START_NS, SimNode, Watcher, World
from levelcast.sim.floors import RehearsalVerdict, SimFloor, Trading, judge
from levelcast.sim.scenarios.base import SimulatedRing, link_network
from levelcast.units import quantile
from levelcast.wire.messages import Data, Request, Token
from levelcast.wire.packets import singles

STEP_NS = 50_000_000
WANDER_EVERY_NS, WANDER_NS = 200_000_000, 30_000
"""Interval and maximum size of clock changes: well within what a kernel slews."""
SLACK_NS = 1_000_000
"""Tolerance, beyond the clocks' error, for the spread of on-time releases of a slot."""


def with_loss(network: Network, loss_ratio: float) -> Network:
    """Return the network with this loss between any two sites; its timing is derived again."""
    network = network.with_holds(dict.fromkeys(stripe.name for stripe in network.stripes))
    if network.links is None:
        return replace(network, links=Links({}, Link(0, 0, loss_ratio)))
    pairs, default = network.links.pairs, network.links.default
    lossy = {(a, b): link if a == b else replace(link, loss_ratio=loss_ratio) for (a, b), link in pairs.items()}
    return replace(network, links=Links(lossy, default and replace(default, loss_ratio=loss_ratio)))


class Deployment(SimulatedRing):
    """Nodes of one stripe of a network, in their own world."""

    def __init__(self, network: Network, seed: int, stripe: int | str = 0) -> None:
        self.network = network
        self.stripe = network.stripe(stripe)
        self.seed = seed
        floors = [floor for floor in network.floors if floor.stripe == self.stripe.name]
        self.city_of = {site.name: site.city or site.name for site in network.sites}
        rng = Random(f"levelcast deployment {seed}")
        world = World(ring_config(network, stripe), seed, link_network(network, floors, rng), rng)
        super().__init__(world, self.stripe.rules.clock_error_ns)
        self.receivers = [
            self._add(each.id, self._receiver_name(each.name, each.site), self._start_receiver)
            for each in network.receivers
        ]
        self.servers = [
            self._add(each.id, f"the server in {self.city_of[each.site]}", self._start_server)
            for each in network.reformation
        ]
        self.feeds = [
            SimFloor(self._add(floor.id, floor.name, self._start_source), Trading(floor, seed)) for floor in floors
        ]

    def _receiver_name(self, name: str, site: str) -> str:
        alone = sum(receiver.site == site for receiver in self.network.receivers) == 1
        return self.city_of[site] if alone else name

    def start(self) -> None:
        """Start every node within a few milliseconds, and schedule clock drift."""
        world = self.world
        for node in world.nodes.values():
            world.at(world.now + world.rng.randint(0, 30_000_000), node.start)
        world.after(WANDER_EVERY_NS, self._wander)

    def _wander(self) -> None:
        """Drift all clocks, within the file's clock error of true time."""
        error_ns = self.clock_error_ns
        for node in self.world.nodes.values():
            step_ns = self.world.rng.randint(-WANDER_NS, WANDER_NS)
            node.clock_offset_ns = min(max(node.clock_offset_ns + step_ns, -error_ns), error_ns)
        self.world.after(WANDER_EVERY_NS, self._wander)

    def receivers_at(self, name: str) -> list[SimNode]:
        """Return the receivers of a site, by its name or city, or the receiver of that name; [] if unknown."""
        wanted = name.casefold()
        return [
            node
            for node, receiver in zip(self.receivers, self.network.receivers, strict=True)
            if wanted in {t.casefold() for t in (receiver.name, receiver.site, self.city_of[receiver.site])}
        ]


# -- measurement ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class RehearsalFigures:
    """Metrics of one receiver."""

    packets: int = 0
    records: int = 0
    late: int = 0
    """Records that were released after timestamp + Δ_A."""
    requests: int = 0
    repaired: int = 0
    """Requested tokens and packets that then arrived."""
    rings: int = 0
    latencies_ns: list[npt.NDArray[np.int64]] = field(default_factory=list)
    wanted: set[int | tuple[int, int, int]] = field(default_factory=set)

    def latency_ns(self, share: float) -> int:
        """Return a quantile (`share`) of the true time from a floor's trade to its release."""
        return int(quantile(np.concatenate(self.latencies_ns), share)) if self.latencies_ns else 0


class RehearsalRecorder:
    """Watcher that counts and measures the actions of each receiver."""

    def __init__(self, deployment: Deployment) -> None:
        self._world = deployment.world
        self.of = {node.id: RehearsalFigures() for node in deployment.receivers}
        self._clock_offset_ns: dict[tuple[int, int, int], int] = {}
        self.on_time: dict[int, dict[int, int]] = {}
        """slot -> receiver -> true time of release, for releases that were not late."""

    def on_effect(self, node: SimNode, effect: Effect) -> None:
        figures = self.of.get(node.id)
        if figures is None:
            if isinstance(effect, Send) and isinstance(effect.message, Data):
                for packet in singles(effect.message):
                    self._clock_offset_ns.setdefault(packet[:3], node.clock_offset_ns)
        elif isinstance(effect, Release):
            self._note_release(node, figures, effect)
        elif isinstance(effect, Send) and isinstance(effect.message, Request):
            figures.requests += 1
            figures.wanted.update(effect.message.slots)
            for source, incarnation, first, last in effect.message.packets:
                figures.wanted.update((source, incarnation, number) for number in range(first, last + 1))
        elif isinstance(effect, Persist) and isinstance(effect.entry, Token | Data):
            entry = effect.entry
            came = [entry.slot] if isinstance(entry, Token) else [packet[:3] for packet in singles(entry)]
            figures.repaired += len(figures.wanted.intersection(came))
            figures.wanted.difference_update(came)
        elif isinstance(effect, RingEntered):
            figures.rings += 1

    def _note_release(self, node: SimNode, figures: RehearsalFigures, release: Release) -> None:
        now = self._world.now
        for packet in release.frame.packets:
            events = np.frombuffer(packet.payload, TRADE)["ts_event"].astype(np.int64)
            figures.latencies_ns.append(now - (events - self._clock_offset_ns[packet[:3]]))
            figures.packets += 1
            figures.records += packet.records
            figures.late += packet.records if release.late else 0
        if not release.late:
            self.on_time.setdefault(release.frame.slot, {})[node.id] = now

    def spreads_ns(self) -> list[int]:
        """Return the spread of each slot that several receivers released on time."""
        return [max(t.values()) - min(t.values()) for t in self.on_time.values() if len(t) > 1]

    def behind_ns(self, node: int) -> list[int]:
        """Return this receiver's delay after the first release, for each slot that it released on time."""
        return [times[node] - min(times.values()) for times in self.on_time.values() if node in times]


# -- the run ----------------------------------------------------------------------------------------------

Moment = Literal["opened", "killed", "returned", "closed", "step"]


class RehearsalWatcher(Watcher, Protocol):
    """Watcher that also receives the actions of the rehearsal itself."""

    def on_event(self, event: Moment, nodes: Sequence[SimNode], slot: int) -> None: ...


class Rehearsal:
    """One run: a ring forms, the floors trade for `publish_ns`, a site fails and returns, all trades are released.

    `victims` are the receivers to kill: () for none, None for the owner of the next slot at the time of the kill.
    """

    def __init__(self, deployment: Deployment, publish_ns: int, victims: Sequence[SimNode] | None = None) -> None:
        self.deployment = deployment
        self.ledger = RehearsalRecorder(deployment)
        self.broken: str | None = None
        self.audience: RehearsalWatcher | None = None
        self._world = deployment.world
        self._publish_ns = publish_ns
        self._victims = victims
        self._close_ns: int | None = None
        self._kill_ns: int | None = None
        self._last_ns = 0
        """Time of the rehearsal's last action: the liveness bound starts here."""
        self._due = 0
        self._rings_before: dict[int, int] = {}
        """Number of rings that a killed member had entered before its restart."""
        self._world.watchers += [self.ledger, self]

    @property
    def calm_ns(self) -> int:
        """Trading time before a site is killed: until releases have begun, if the run is long enough."""
        timing = self.deployment.config.timing
        return min(timing.hold_ns + 20 * timing.slot_ns, self._publish_ns * 2 // 5)

    @property
    def down_ns(self) -> int:
        """Downtime of a site: until the others have re-formed and settled some of the slots it missed."""
        timing = self.deployment.config.timing
        return timing.hear_ns + timing.join_ns + timing.lead_ns + timing.hold_ns + 40 * timing.slot_ns

    @property
    def bound_ns(self) -> int:
        return sum(term.ns for term in self.deployment.network.liveness(self.deployment.stripe.name))

    def on_effect(self, node: SimNode, effect: Effect) -> None:
        """Open the floors at the first token; kill a site when the token before its own is sent."""
        if not isinstance(effect, Send) or not isinstance(effect.message, Token):
            return
        now = self._world.now
        if self._close_ns is None:
            self._open(now)
        if self._kill_ns is None or now < self._kill_ns or not isinstance(node.machine, Member):
            return
        members = node.machine.ring_members
        following = members[(members.index(node.id) + 1) % len(members)]
        victims = [self._world.nodes[following]] if self._victims is None else list(self._victims)
        if self._world.nodes[following] in victims:
            self._kill_ns = None
            slot, timing = effect.message.slot + 1, self.deployment.config.timing
            self._world.after(timing.slot_ns * 3 // 4, lambda: self._kill(victims, slot))

    def _open(self, now: int) -> None:
        self._close_ns = self._last_ns = now + self._publish_ns
        for feed in self.deployment.feeds:
            feed.open(self._close_ns)
        self._world.at(self._close_ns, lambda: self._tell("closed"))
        if self._victims != ():
            self._kill_ns = now + self.calm_ns
            self._due += 1
        self._tell("opened")

    def _kill(self, victims: list[SimNode], slot: int) -> None:
        for node in victims:
            node.crash()
        self._last_ns = max(self._last_ns, self._world.now + self.down_ns)
        self._world.after(self.down_ns, lambda: self._restart(victims))
        self._tell("killed", victims, slot)

    def _restart(self, victims: list[SimNode]) -> None:
        for node in victims:
            self._rings_before[node.id] = self.ledger.of[node.id].rings
            node.start()
        self._due -= 1
        self._tell("returned", victims)

    def _tell(self, event: Moment, nodes: Sequence[SimNode] = (), slot: int = 0) -> None:
        if self.audience is not None:
            self.audience.on_event(event, nodes, slot)

    def steps(self) -> Iterator[float]:
        """Run the rehearsal; yield the elapsed fraction of the expected time after each step."""
        world = self._world
        if self.audience is not None:
            world.watchers.append(self.audience)
        self.deployment.start()
        likely_ns = self._publish_ns + self.deployment.config.timing.hold_ns + 2_000_000_000
        if self._victims != ():
            likely_ns = max(likely_ns, self.calm_ns + self.down_ns + 6_000_000_000)
        try:
            while not self.done and (world.now - START_NS < self.bound_ns or world.now < self._last_ns + self.bound_ns):
                world.run(world.now + STEP_NS)
                self._tell("step")
                yield min((world.now - START_NS) / likely_ns, 1.0)
            self.deployment.checker.check_end(self.deployment.receivers, SLACK_NS)
        except AssertionError as error:
            self.broken = what_broke(error)

    @property
    def done(self) -> bool:
        """True once floors are closed, killed sites are back in a ring and every packet is on every tape."""
        if self._close_ns is None or self._world.now <= self._close_ns or self._due:
            return False
        feeds = self.deployment.feeds
        packets = sum(feed.packets for feed in feeds)
        return (
            not any(feed.waiting for feed in feeds)
            and all(figures.packets == packets for figures in self.ledger.of.values())
            and all(self.ledger.of[node].rings > rings for node, rings in self._rings_before.items())
        )

    def verdict(self) -> RehearsalVerdict:
        """Compare the tapes; an invariant that failed during the run counts as a problem too."""
        tapes = [(node.name, node.disk.tape.frames) for node in self.deployment.receivers]
        return judge(tapes, [feed.trading for feed in self.deployment.feeds], self.broken)

"""Scenario `clocks`: one receiver of a ring has a wrong clock, or seems to have one (C1 to C4; rule 13).

Each node has a clock of its own, with an error, and a monotonic clock. Receivers run the classes that measure paths and
judge the clock, as the driver does. The kind of error is the seed modulo the number of `KINDS`; the seed draws delays
that differ by direction, jitter, loss and the errors of the other clocks. Checked are

- that the node with the wrong clock falls silent within the kind's limit: it sends no token, beat or release after it;
- that nobody falls silent whose clock is within the stated error (false alarms);
- that the others release until the end, and all invariants of `levelcast.sim.check.ring`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Literal

from levelcast.overlay.clock_check import OFFSET_NS, ClockCheck
from levelcast.overlay.paths import Paths
from levelcast.overlay.probe import Prober
from levelcast.protocol.clock import DAY_NS, LEAP_MARGIN_NS
from levelcast.protocol.config import StripeConfig
from levelcast.protocol.effects import Effect, Release, Send
from levelcast.protocol.events import ClockDoubt, ClockDoubted
from levelcast.protocol.machine import EVERY_KIND, Machine
from levelcast.ring.member import Member
from levelcast.ring.reformation_server import ReformationServer
from levelcast.ring.source import Source
from levelcast.sim.check.ring import InvariantBroken, what_broke
from levelcast.sim.engine.network import VirtualNetwork, Weather
from levelcast.sim.engine.world import START_NS, SimNode
from levelcast.sim.scenarios.ring import Outcome
from levelcast.sim.scenarios.steady import FIRST_SERVER, FIRST_SOURCE, Roles, SteadyWorld
from levelcast.timing.derive import Given, Path, Shape, derive
from levelcast.wire.messages import Beat, Echo, MemberLife, Membership, Message, PathRow, Probe, Token

MS = 1_000_000
S = 1_000 * MS
CLOCK_ERROR_NS = 1 * MS
ASYMMETRY_NS = 3 * MS
LIMIT_NS = CLOCK_ERROR_NS + ASYMMETRY_NS
LONGEST_NS = 60 * MS
WRONG = 1
"""The member with the wrong clock, or with a detour."""
CUT_OFF = (1, 2, 3)
ERROR_AT_NS = 14 * S
"""When the clock goes wrong, unless it is wrong from the start: beats count by then."""
HEALED_NS = ERROR_AT_NS + 30 * S
DETOUR_NS, DETOUR_LASTS_NS = 30 * MS, 8 * S
VOUCH_NS = 8 * S
VOUCHED_NS = 400_000
"""A time source states this bound, this often."""
SLICE_NS = 5 * S
MEASURES = frozenset({Beat, Probe, Echo, PathRow})


@dataclass(frozen=True, slots=True)
class ClockFault:
    """A fault of a clock, and its required effect."""

    name: str
    lasting_s: float
    silent_s: float | None = None
    """Longest time from the error to the silence, 0: it never sends; None: nobody falls silent."""
    started_ns: int = 0
    stepped_ns: int = 0
    suspended_ns: int = 0
    drift_ppm: float = 0.0
    last_bound_ns: int | None = None
    """The last bound that the time source states; None: it continues."""
    paths_differ: float = 0.05
    """A path is longer than the way back, or shorter, by up to this fraction, each against their mean."""
    special: Literal["", "detour", "cut off", "leap", "smeared"] = ""
    members: int = 5

    @property
    def wrong_ns(self) -> int:
        """Return by how much releases may be wrong before any node can know."""
        lag_ns = OFFSET_NS + 6 * S if self.special != "cut off" else HEALED_NS
        return LIMIT_NS + self.suspended_ns + int(abs(self.drift_ppm) * lag_ns / 1e6) + 2 * CLOCK_ERROR_NS


KINDS = (
    ClockFault("right", 30),
    ClockFault("started 5 ms off", 15, 0, started_ns=5 * MS, paths_differ=0.01),
    ClockFault("started 20 ms off", 15, 0, started_ns=20 * MS),
    ClockFault("started 200 ms off", 15, 0, started_ns=-200 * MS),
    ClockFault("set 50 ms back", 20, 0.1, stepped_ns=-50 * MS),
    ClockFault("suspended for 1 s", 20, 3.0, suspended_ns=1 * S),
    ClockFault("drifts 100 ppm", 100, 85.0, drift_ppm=100.0),
    ClockFault("drifts 400 ppm", 50, 35.0, drift_ppm=-400.0),
    ClockFault("time source lost", 62, 46.0, last_bound_ns=100_000, drift_ppm=15.0),
    ClockFault("detour for 8 s", 35, special="detour"),
    ClockFault("cut off with two wrong ones", 65, 50.0, drift_ppm=400.0, special="cut off", members=7),
    ClockFault("leap second", 25, 20.0 - LEAP_MARGIN_NS / S + 0.6, special="leap"),
    ClockFault("leap second, smeared", 25, special="smeared"),
)
SMEARED_ALONE = ClockFault("smeared, the others not", 520, 505.0, drift_ppm=-11.6)
"""Not in the random search: 11.6 ppm take 345 s to 4 ms."""
SET_WHILE_RUNNING = tuple(ClockFault(f"set {ms} ms ahead", 35, 0.1, stepped_ns=ms * MS) for ms in (20, 200))


class ClockedNode(SimNode):
    """A receiver with a clock that may drift, and with what a driver measures."""

    def __init__(self, *arguments: object) -> None:
        self._base_ns = self._since_ns = self.suspended_ns = 0
        """`suspended_ns`: it did not run for this time, and its monotonic clock stood still, too."""
        self._drift_ppm = 0.0
        self.announces_leap = False
        self.vouches_ns: int | None = None
        """Bound that its time source states at each tick; None: it has none."""
        super().__init__(*arguments)  # type: ignore[arg-type]

    @property
    def clock_offset_ns(self) -> int:
        """Offset of its wall clock from the true time."""
        drift_ns = int((self.world.now - self._since_ns) * self._drift_ppm / 1e6) if self._drift_ppm else 0
        return self._base_ns + drift_ns - self.suspended_ns

    @clock_offset_ns.setter
    def clock_offset_ns(self, offset_ns: int) -> None:
        self._base_ns, self._since_ns = offset_ns + self.suspended_ns, self.world.now

    def drift(self, ppm: float) -> None:
        """Let the clock drift from now on."""
        self.clock_offset_ns += 0
        self._drift_ppm = ppm

    def suspend(self, lasting_ns: int) -> None:
        """Stop the machine that it runs on, with both clocks, like a virtual machine that is moved."""
        self.suspended_ns += lasting_ns
        self.paused_until_ns = self.world.now + lasting_ns

    @property
    def monotonic_ns(self) -> int:
        return self.world.now - self.suspended_ns

    def start(self) -> None:
        now, others = self.local_ns, sorted(self.world.nodes.keys() - {self.id})
        self._prober = Prober(self.id, others, None, now)
        self._paths = Paths(self.id, others, now)
        self.check = ClockCheck(self.id, self.world.config, self._prober, self._paths, now, self.monotonic_ns)
        super().start()
        self._tick()

    @property
    def trusted(self) -> bool:
        return self._guard is not None and self._guard.trusted and self.check.trusted

    def _tick(self) -> None:
        """Do what a driver does between the steps of the machine, if it is due."""
        if self.machine is None or self._guard is None:
            return
        if self.world.now < self.paused_until_ns:
            self.world.at(self.paused_until_ns, self._tick)
            return
        now, before = self.local_ns, self.trusted
        self._guard.check(now, self.monotonic_ns)
        if self.vouches_ns is not None:
            self.check.bound.vouch("chrony", self.vouches_ns, self.monotonic_ns)
        self.check.announce_leap(self.announces_leap, now)
        if now >= self._paths.wake_ns:
            self.perform(self._paths.step([], now))
        if now >= self.check.wake_ns:
            self.perform(self.check.step(now, self.monotonic_ns, was_set=not self._guard.trusted))
            self.machine.learn_clock(self.check.error_us, self.check.offset_us)
        if self.trusted is not before:
            self.step(())
        self.world.after(max(MS, min(self._paths.wake_ns, self.check.wake_ns) - self.local_ns), self._tick)

    def arrive(self, *messages: Message) -> None:
        if self.machine is None:
            return
        if self.world.now < self.paused_until_ns:
            self.world.at(self.paused_until_ns, lambda: self.arrive(*messages))
            return
        now = self.local_ns
        for message in messages:
            self._measure(message, now)
        if heard := [message for message in messages if type(message) in Member.LISTENS]:
            super().arrive(*heard)

    def _measure(self, message: Message, now: int) -> None:
        if isinstance(message, Probe | Echo):
            self.perform(self._prober.step([(message, now)], now))
        if isinstance(message, Beat):
            self._paths.hear_beat(message.sender, message.sequence, message.sent_ns, now)
            self.check.hear_beat(message)
        elif isinstance(message, Probe):
            self._paths.hear_probe(message.sender, message.number, message.sent_ns, now)
        elif isinstance(message, PathRow):
            self._paths.take([message], now)

    def step(self, batch: Sequence[Message]) -> None:
        machine, guard = self.machine, self._guard
        if machine is None or guard is None:
            return
        local = self.local_ns
        guard.check(local, self.monotonic_ns)
        self.perform(machine.step(batch, local, clock_trusted=self.trusted))


class Silence:
    """Watcher: who falls silent, and who sends and releases until when."""

    def __init__(self) -> None:
        self.doubted: dict[int, list[tuple[int, ClockDoubted]]] = {}
        self.sent_ns: dict[int, int] = {}
        """When each receiver has sent a token or beat, or has released, last."""
        self.first_sent_ns: dict[int, int] = {}
        self.releases: dict[int, int] = {}
        self.false_alarms: list[str] = []

    def on_effect(self, node: SimNode, effect: Effect) -> None:
        if not isinstance(node, ClockedNode):
            return
        now = node.world.now
        if isinstance(effect, Release):
            self.sent_ns[node.id] = now
            self.releases[node.id] = self.releases.get(node.id, 0) + 1
        elif isinstance(effect, Send) and isinstance(effect.message, Token | Beat):
            self.sent_ns[node.id] = now
            self.first_sent_ns.setdefault(node.id, now)
        elif isinstance(effect, ClockDoubted):
            self.doubted.setdefault(node.id, []).append((now, effect))
            measured = effect.doubt in (ClockDoubt.OFFSET, ClockDoubt.APART)
            if measured and abs(node.clock_offset_ns) <= CLOCK_ERROR_NS:
                self.false_alarms.append(f"{node.name}: {effect.doubt}, {effect.value_ns} ns")


class ClocksHistory(SteadyWorld):
    """One history of a kind of error."""

    def __init__(self, seed: int, kind: ClockFault | None = None) -> None:
        self.seed = seed
        self.kind = kind or KINDS[seed % len(KINDS)]
        rng = Random(f"clocks {seed}")
        config, roles, network = _build(rng, self.kind)
        super().__init__(config, roles, network, seed, 100 * MS, self.kind.wrong_ns)
        self.silence = Silence()
        self.world.watchers.append(self.silence)
        if self.kind.special in ("leap", "smeared"):
            self.world.now = (START_NS // DAY_NS + 1) * DAY_NS - 20 * S
        self.begin_ns = self.world.now
        self.wrong = () if self.kind.silent_s is None else self._who_is_wrong()
        """Receivers that have to fall silent."""
        self.trusted_late: list[int] = []
        """Those that still trust their clock when they have to be silent."""

    def _who_is_wrong(self) -> tuple[int, ...]:
        if self.kind.special == "cut off":
            return CUT_OFF[1:]
        return self.roles.members if self.kind.special == "leap" else (WRONG,)

    def _add(
        self,
        node: int,
        name: str,
        start: Callable[[SimNode], Machine],
        listens: frozenset[type] = EVERY_KIND,
        node_type: type[SimNode] | None = None,
    ) -> SimNode:
        if node in self.roles.members:
            listens, node_type = Member.LISTENS | MEASURES, ClockedNode
        else:
            listens = ReformationServer.LISTENS if node in self.roles.servers else Source.LISTENS
        added = super()._add(node, name, start, listens, node_type)
        added.set_clock(self.rng.randint(-CLOCK_ERROR_NS, CLOCK_ERROR_NS) // 2)
        return added

    def node(self, member: int) -> ClockedNode:
        found = self.world.nodes[member]
        assert isinstance(found, ClockedNode)
        return found

    # -- the errors ---------------------------------------------------------------------------------------

    def _plan(self) -> None:
        """Start the nodes and the load, and schedule what happens to the clocks."""
        kind, world, begin_ns = self.kind, self.world, self.begin_ns
        wrong = self.node(WRONG)
        nodes = [self.node(member) for member in self.roles.members]
        if kind.started_ns:
            wrong.set_clock(kind.started_ns)
        has_sources = self.rng.random() < 0.5 or kind.last_bound_ns is not None
        for node in nodes:
            node.vouches_ns = VOUCHED_NS if has_sources else None
            node.announces_leap = kind.special in ("leap", "smeared")
        for each in world.nodes.values():
            world.at(begin_ns + self.rng.randint(0, 30 * MS), each.start)
        for source in self.roles.sources:
            submit = partial(self._submit_until, world.nodes[source], begin_ns + int(kind.lasting_s * S))
            world.at(begin_ns + S, submit)
        world.at(begin_ns + ERROR_AT_NS, self._go_wrong)
        if kind.silent_s:
            world.at(self.wrong_from_ns + int(kind.silent_s * S), self._note_trust)
        if kind.special == "cut off":
            world.at(begin_ns + HEALED_NS, self._heal)
        if kind.special == "leap":
            for node in nodes:
                world.at(begin_ns + 20 * S, self._repeat_second(node))

    def _go_wrong(self) -> None:
        kind, wrong = self.kind, self.node(WRONG)
        if kind.stepped_ns:
            wrong.clock_offset_ns += kind.stepped_ns
        if kind.suspended_ns:
            wrong.suspend(kind.suspended_ns)
        if kind.last_bound_ns is not None:
            wrong.check.bound.vouch("chrony", kind.last_bound_ns, wrong.monotonic_ns)
            wrong.vouches_ns = None
        if kind.special == "cut off":
            self.world.network.side_of = dict.fromkeys(CUT_OFF, 1)
        if kind.special == "detour":
            self._detour(DETOUR_NS)
            self.world.after(DETOUR_LASTS_NS, lambda: self._detour(-DETOUR_NS))
        for member in self.wrong if kind.drift_ppm else ():
            self.node(member).drift(kind.drift_ppm)

    def _note_trust(self) -> None:
        self.trusted_late += [member for member in self.wrong if self.node(member).trusted]

    def _detour(self, longer_ns: int) -> None:
        """Lengthen the paths to one node, and not those from it."""
        delays = self.world.network.delay_ns
        for sender, receiver in delays:
            if receiver == WRONG:
                delays[sender, receiver] += longer_ns

    def _heal(self) -> None:
        self.world.network.side_of.clear()
        for member in self.wrong:
            self.node(member).drift(0.0)

    def _repeat_second(self, node: ClockedNode) -> Callable[[], None]:
        def step() -> None:
            node.clock_offset_ns -= 1 * S

        return step

    # -- running ------------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        broken: str | None = None
        try:
            self._plan()
            end_ns = self.begin_ns + int(self.kind.lasting_s * S)
            while self.world.now < end_ns:
                self.world.run(min(end_ns, self.world.now + SLICE_NS))
            self._check()
        except AssertionError as error:
            broken = what_broke(error)
        checker, world = self.checker, self.world
        return Outcome(
            seed=self.seed,
            broken=broken,
            events=world.events,
            datagrams=world.network.sent,
            simulated_ns=world.now - self.begin_ns,
            packets=len(checker.submitted),
            releases=checker.releases,
            late_releases=checker.late_releases,
            reformations=world.report_counts["forms"],
            stripes=1,
            mode=self.config.timing.mode,
            members=len(self.roles.members),
        )

    @property
    def wrong_from_ns(self) -> int:
        """The time from which the wrong clock is wrong, or drifts."""
        at_once = self.kind.started_ns or self.kind.special == "leap"
        return self.begin_ns + (0 if at_once else ERROR_AT_NS)

    def silent_after_s(self, member: int) -> float | None:
        """Return the time from the error to the last message or release; None: it has never sent."""
        sent_ns = self.silence.sent_ns.get(member)
        return None if sent_ns is None else max(0.0, (sent_ns - self.wrong_from_ns) / S)

    def _check(self) -> None:
        if self.silence.false_alarms:
            raise InvariantBroken("false alarm", "; ".join(self.silence.false_alarms))
        for member in self.wrong:
            self._check_wrong(member, self.kind.silent_s or 0.0)
        for member in self.roles.members:
            if member not in self.wrong:
                self._check_right(member)
        right = [self.world.nodes[member] for member in self.roles.members if member not in self.wrong]
        self.checker.check_end(right, 2 * MS)

    def _check_wrong(self, member: int, silent_s: float) -> None:
        if member in self.trusted_late:
            raise InvariantBroken("silence", f"receiver {member} trusts its clock {silent_s:.1f} s after it was wrong")
        after_s = self.silent_after_s(member)
        if after_s is not None and (after_s > silent_s or not silent_s):
            raise InvariantBroken("silence", f"receiver {member} sent until {after_s:.1f} s after its clock was wrong")

    def _check_right(self, member: int) -> None:
        silence = self.silence
        if member in silence.doubted:
            at_ns, event = silence.doubted[member][0]
            what = f"receiver {member} fell silent after {(at_ns - self.begin_ns) / S:.1f} s: {event}"
            raise InvariantBroken("false alarm", what)
        if self.world.now - silence.sent_ns.get(member, 0) > 3 * S or not silence.releases.get(member):
            raise InvariantBroken("liveness", f"receiver {member} does not send or release at the end")


def _build(rng: Random, kind: ClockFault) -> tuple[StripeConfig, Roles, VirtualNetwork]:
    """Draw a network with paths that differ by direction, and derive the timing of a ring from it."""
    roles = Roles(tuple(range(1, kind.members + 1)), (FIRST_SERVER, FIRST_SERVER + 1), (FIRST_SOURCE,))
    delays: dict[tuple[int, int], int] = {}
    for place, a in enumerate(roles.nodes):
        for b in roles.nodes[:place]:
            mean_ns, differs = rng.uniform(5 * MS, LONGEST_NS), rng.uniform(-kind.paths_differ, kind.paths_differ)
            delays[a, b], delays[b, a] = int(mean_ns * (1 + differs)), int(mean_ns * (1 - differs))
    jitter_ns, loss = 6 * MS, rng.choice((0.0, 0.01, 0.02))
    network = VirtualNetwork(rng, delays, {}, Weather(loss=loss, jitter_ns=jitter_ns))
    path = Path(70 * MS, 0.01, clock_error_ns=CLOCK_ERROR_NS, process_ns=MS, reach_ns=70 * MS)
    shape = Shape("pipelined", 50 * MS, kind.members // 2 + 1, kind.members, len(roles.servers))
    timing = derive(path, shape, Given(hold_ns=500 * MS)).timing
    config = StripeConfig(
        stripe=0,
        timing=replace(timing, hold_ns=500 * MS, beat_ns=50 * MS),
        witnesses="majority",
        membership=Membership(0, tuple(MemberLife(member, 1) for member in roles.members)),
        servers=roles.servers,
        clock_error_ns=CLOCK_ERROR_NS,
        asymmetry_ns=ASYMMETRY_NS,
        smeared=kind.special == "smeared",
    )
    return config, roles, network

"""Scenario `receivers`: primaries with secondaries, two reformation servers and sources, with all faults.

It is the scenario `ring` with secondaries in one to three layers below the primaries (rule 11, MS §4.1), with edges and
subscribers (`levelcast.sim.edges`), and in some histories a second stripe for the same subscribers. The adversary is
the same: crashes, lost disks, partitions, cut links, bad networks, pauses, slow nodes, wrong clocks. Every invariant of
the ring is checked at the secondaries too. In addition:

| invariant   | checked                 | condition |
|-------------|-------------------------|----------------|
| Own primary | at every request        | a secondary sends requests only to its assigned primary |
| Mute        | at everything sent      | a secondary sends no token, JOIN or fault; repairs only to lower layers |
| Cover       | at every token          | receivers below have everything that is claimed, unless they lag too far |
| Undisturbed | faults at secondaries   | no ring is formed, and no primary releases late |
| Liveness    | at the end              | every running secondary has released everything and has a primary in the |
|             |                         | ring that receives it, within the bound of the primaries plus |
|             |                         | `secondary_bound_ns` |
| Lines       | at the end              | every line of a region has one receiver, and every region two |

`TEMPERS` selects special faults: faults only at secondaries, over a network without other loss; a primary that fails
with the last fault for good, so that its secondaries must find another one; a subscriber's line that fails for good; or
receivers that hold lines, one at a time and without other faults: crashes and planned stops
(`levelcast.sim.line_kills`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import ClassVar

from levelcast.protocol.config import StripeConfig
from levelcast.protocol.effects import Effect, Release, Send
from levelcast.protocol.event_text import sentence
from levelcast.protocol.events import RingFormed
from levelcast.protocol.lines import RegionLines
from levelcast.protocol.machine import Machine
from levelcast.ring.group_server import ReformationAndGroupServer
from levelcast.ring.listener import Listener
from levelcast.ring.reformation_server import ReformationServer
from levelcast.ring.secondary import Secondary
from levelcast.ring.source import Source
from levelcast.sim.check.edge import Truth, draw_channel_plan, draw_instrument, draw_plan, one_session, trade
from levelcast.sim.check.ring import InvariantBroken
from levelcast.sim.edges import Crowd
from levelcast.sim.engine.network import VirtualNetwork
from levelcast.sim.engine.world import START_NS, SideWorld, SimNode, World
from levelcast.sim.faults import MS, Adversary
from levelcast.sim.line_kills import LineChecks
from levelcast.sim.scenarios.ring import LAST_SUBMIT_NS, DrawSets, Outcome, RingHistory, draw
from levelcast.timing.nack_sets import NackSets
from levelcast.timing.rules import Mode
from levelcast.timing.secondary import secondary_bound_ns, silent_after_ns
from levelcast.wire.channel_plan import Kind, PlanRecord, encode_record, part_records
from levelcast.wire.messages import (
    Beat,
    Group,
    GroupRequest,
    GroupToken,
    LineRequest,
    Message,
    Repair,
    Request,
    Ring,
    Token,
)

FIRST_SECONDARY = 301
SETTLED_AFTER_NS = 600 * MS
"""Time of the first fault if only secondaries have faults: the ring is complete by then."""

GRAINS_NS = (0, 2 * MS, 2 * MS, 2 * MS, 3 * MS)
"""Intervals at which nodes poll socket and clock; 0 for continuously. A batch costs little more than a message."""
STRIPES_SHARE = 1 / 5
"""Probability of a second stripe, in histories without plan changes."""
SHORT_HOLD_NS = 150 * MS
"""A hold time that suffices without loss: a repair, a beat and its delay."""
SECONDARIES = (0, 1, 1, 2)
MOST_IN_LAYER = (1, 2, 3, 4)

SAYS: tuple[type, ...] = (Request, GroupToken, GroupRequest, LineRequest)
"""Messages that a secondary may send, except to receivers below it."""
SERVES: tuple[type, ...] = (Repair, Ring, Group)
"""Messages that it may send to receivers below it, and to servers that request them."""


class ReceiversHistory(RingHistory):
    """History of one seed: build and run it."""

    SERVER: ClassVar[type[ReformationServer]] = ReformationAndGroupServer
    SIZES: ClassVar[tuple[tuple[int, ...], ...]] = (3, 3, 3, 3, 3, 4, 5), (0, 0, 0, 1), (1, 1, 2, 3)
    SLOTS_MS: ClassVar[tuple[int, ...]] = (5, 10, 10, 20, 20, 30, 30, 30)
    FAULTS_S: ClassVar[dict[Mode, tuple[float, float]]] = {"lockstep": (1.5, 4), "pipelined": (0.3, 1.0)}
    UNDISTURBED_SHARE: ClassVar[float] = 0.0
    PUNCTUAL_NS: ClassVar[int] = 3 * MS
    """Lateness up to which a release is on time, because nodes poll the clock at intervals."""
    SIDE_WORLD: ClassVar[type[SideWorld]] = SideWorld
    LAYERS: ClassVar[tuple[int, ...]] = (1, 1, 1, 1, 2, 2, 3)
    TEMPERS: ClassVar[tuple[str, ...]] = ("all", "all", "all", "secondaries", "widow", "line", "holders")
    PLANS: ClassVar[tuple[int, ...]] = (0, 0, 0, 0, 1, 2)
    """Number of plan changes; if not 0, subscribers follow the plans."""

    def __init__(self, seed: int, draw_sets: DrawSets | None = None, main: ReceiversHistory | None = None) -> None:
        self._main = main
        super().__init__(seed, draw_sets)
        self._new_plans = draw(self.rng, self.PLANS)
        self.plan = one_session(self.STRIPE) if self._new_plans else draw_plan(self.rng, self.STRIPE)
        self.crowd: Crowd = Crowd(self.world, self.rng, seed) if main is None else main.crowd
        self.world.watchers.insert(0, self.crowd)
        self.bound_ns += secondary_bound_ns(self.config.timing, len(self._server_ids), max(1, self.layers))
        self.bound_ns += self.line_checks.bound_ns + self.config.timing.hear_ns
        striped = main is None and not self._new_plans and self.rng.random() < STRIPES_SHARE
        self.beside = self._second_stripe(self.rng.getrandbits(48)) if striped else None

    def _second_stripe(self, seed: int) -> ReceiversHistory | None:
        return SecondStripe(seed, main=self)

    def _make_config(self, rng: Random, nack: NackSets | None) -> StripeConfig:
        """Add regions with two lines each; every region has its own order of preference (MS §4.3)."""
        config = super()._make_config(rng, nack)
        if self._main is not None:
            return config
        mine = Random(f"lines {self.seed}")
        receivers = [*self._member_ids, *self._homes]
        names = [(f"{region}-a", f"{region}-b") for region in ("west", "east")[: mine.choice((1, 2))]]
        lines = tuple(RegionLines(pair, tuple(mine.sample(receivers, len(receivers)))) for pair in names)
        return replace(config, lines=lines)

    def _make_world(self, config: StripeConfig, network: VirtualNetwork) -> World:
        if self._main is not None:
            return self.SIDE_WORLD(self._main.world, config, network, network.rng)
        world = super()._make_world(config, network)
        world.grain_ns = network.rng.choice(GRAINS_NS)
        return world

    def _draw_secondaries(self, rng: Random) -> None:
        """Draw the tree of secondaries: usually one layer, sometimes two or three (MS §4.1)."""
        self._temper = draw(rng, self.TEMPERS)
        above = self._member_ids
        self.layers = draw(rng, self.LAYERS)
        for _ in range(self.layers):
            homes = [home for home in above for _ in range(rng.choice(SECONDARIES))]
            homes = sorted(rng.sample(homes, min(len(homes), rng.choice(MOST_IN_LAYER))))
            first = FIRST_SECONDARY + len(self._homes)
            above = list(range(first, first + len(homes)))
            self._homes |= zip(above, homes, strict=True)

    def _with_pace(self, rng: Random, config: StripeConfig, delays: dict[tuple[int, int], int]) -> StripeConfig:
        """Draw a sufficient hold time if only secondaries have faults: primaries must then be on time."""
        found = super()._with_pace(rng, config, delays)
        if self._temper != "secondaries" or not found.timing.beat_ns:
            return found
        hold_ns = config.timing.hold_ns
        if found.timing.hold_ns < hold_ns:
            hold_ns = min(hold_ns, SHORT_HOLD_NS)
        return replace(found, timing=replace(found.timing, hold_ns=hold_ns))

    def _submit(self, node: SimNode, together: int) -> None:
        """Submit packets, but none after the last submit time: the end checks need a fixed set of packets."""
        if self.world.now <= START_NS + self.fault_ns + LAST_SUBMIT_NS:
            super()._submit(node, together)

    def _packet(self, node: SimNode, source: Source) -> tuple[bytes, int]:
        """Return the payload of one to three trades, and their number."""
        rng, stripe, now = self.rng, self.STRIPE, self.world.now
        count = rng.choice((1, 1, 2, 3))
        made = [trade(node.id, draw_instrument(rng, stripe), rng.getrandbits(62), now) for _ in range(count)]
        return b"".join(made), count

    def _start_receiver(self, node: SimNode) -> Machine:
        return self.crowd.started(node, super()._start_receiver(node))

    def _start_secondary(self, node: SimNode) -> Machine:
        return self.crowd.started(node, super()._start_secondary(node))

    def _make_adversary(self, clocks: list[SimNode] | None = None) -> Adversary:
        struck, settled_ns = self.secondaries, START_NS + SETTLED_AFTER_NS
        self.line_checks = LineChecks(self.world, self.lines, len(self._member_ids))
        only = self._temper == "secondaries" and bool(struck)
        counted = self.config.witnesses in ("majority", len(self._member_ids) // 2 + 1)
        self._watch = SecondaryChecker(self.world, set(self._homes), settled_ns if only else None, on_time=counted)
        self.world.watchers.append(self._watch)
        if self._temper == "holders":
            kills = Random(f"kills {self.seed}").choice((1, 2, 3))
            self.faults_begin_ns = START_NS + SETTLED_AFTER_NS + self.line_checks.bound_ns
            self.fault_ns = self.faults_begin_ns - START_NS + 4 * kills * self.line_checks.bound_ns
            self.world.at(self.faults_begin_ns, lambda: self._kill_holders(kills))
            return Adversary(self, [], 0, [], only=True)
        if not only:
            return super()._make_adversary([*self.receivers, *struck])
        self.world.network.weather.loss = 0.0
        self.fault_ns += SETTLED_AFTER_NS
        self.faults_begin_ns = settled_ns
        return Adversary(self, struck, self.rng.choice((2, 5, 10)), struck, only=True)

    def _kill_holders(self, kills: int) -> None:
        self.line_checks.look()
        rng = Random(f"kills {self.seed}")
        self.line_checks.kill_later(
            rng, kills, lambda node, down_ns: self.down_for(node, down_ns, wipe=False), self._planned_stops.stop
        )

    def customers(self) -> list[int]:
        return [customer.id for customer in self.crowd.customers]

    # -- subscribers and the second stripe ----------------------------------------------------------------

    @property
    def lines(self) -> list[SimNode]:
        """Receivers with edges that subscribers may use."""
        return [*self.receivers[: len(self._member_ids)], *self.secondaries]

    def begin(self) -> int:
        end_ns = super().begin()
        hold_ns = self.config.timing.hold_ns
        stripes = [(Truth(self.STRIPE, self.plan, self.checker, hold_ns), self.lines)]
        if self.beside is not None:
            self.beside.fault_ns = self.fault_ns
            self.beside.begin()
            hold_ns = self.beside.config.timing.hold_ns
            truth = Truth(self.beside.STRIPE, self.beside.plan, self.beside.checker, hold_ns)
            stripes.append((truth, self.beside.lines))
        if self._main is None:
            plans = self._new_plans > 0
            self.crowd.draw(stripes, self._source_ids, end_ns, plans=plans)
            self.crowd.begin()
            if plans:
                self.world.at(START_NS + self.rng.randint(0, self.fault_ns), self._send_plan)
        return end_ns

    def _send_plan(self) -> None:
        """Replace the plan by records in the sequence, as the operator does: its parts, then the swap."""
        plans = self.crowd.truths[0].plans
        plan = plans[len(plans) + 1] = draw_channel_plan(self.rng, self.STRIPE, len(plans) + 1)
        parts = part_records(plan, self.STRIPE)
        swap = encode_record(PlanRecord(Kind.SWAP, plan.number, len(parts), plan.digest, 0, self.STRIPE))

        def then() -> None:
            self._new_plans -= 1
            if self._new_plans:
                self.world.after(self.rng.randint(0, self.fault_ns // 2), self._send_plan)

        self._say([*parts, swap], then)

    def _say(self, records: list[bytes], then: Callable[[], None]) -> None:
        """Send the operator's records, each after the previous one is witnessed."""
        node, source = self.operator, self.operator.machine
        if isinstance(source, Source) and source.witnessed >= self._control_packets and source.room:
            if not records:
                then()
                return
            self._control_packets += 1
            node.perform(source.submit(records[0], 1, node.local_ns))
            records = records[1:]
        self.world.after(20 * MS, lambda: self._say(records, then))

    def _check_liveness(self, faults_end_ns: int) -> None:
        super()._check_liveness(faults_end_ns)
        releasing = {self.STRIPE: self._releasing()}
        if self.beside is not None:
            releasing[self.beside.STRIPE] = self.beside._releasing()
        crowd = self.crowd
        crowd.settle(releasing)
        self.world.run(self.world.now + crowd.bound_ns, lambda: crowd.lacking() is None)
        if (lacking := crowd.lacking()) is not None:
            raise InvariantBroken("no hole", f"{lacking}, {crowd.bound_ns / 1e9:.2f} s after the last release")

    def _check_end(self) -> None:
        super()._check_end()
        if self.beside is not None:
            self.beside._check_end()
        self.crowd.check_end()

    # -- the end ------------------------------------------------------------------------------------------

    def _end_faults(self) -> None:
        super()._end_faults()
        if self.beside is not None:
            self.beside._end_faults()
        if self._temper == "widow" and self._may_lose_a_primary():
            served = [node for node in self._operable() if node.id in self._homes.values() and self.may_wipe(node)]
            self._lose_one_for_good(served)
        if self._temper == "line":
            heard = [line.node for customer in self.crowd.customers for line in customer.lines]
            self._lose_one_for_good([node for node in heard if node in self.secondaries])

    def _lose_one_for_good(self, mortal: list[SimNode]) -> None:
        if mortal:
            node = self.rng.choice(mortal)
            self._gone.add(node.id)
            node.crash()

    def _may_lose_a_primary(self) -> bool:
        """Return False if a slot needs all members as witnesses by count: unlike "all", a count stays the same."""
        witnesses = self.config.witnesses
        return not isinstance(witnesses, int) or witnesses < len(self._configured.members)

    def _all_released(self) -> bool:
        if self._new_plans or (self.beside is not None and not self.beside._all_released()):
            return False
        if any(self._homeless(node) for node in self.secondaries) or not super()._all_released():
            return False
        return self.line_checks.unassigned() is None

    def _what_is_stuck(self) -> str:
        homeless = [line for node in self.secondaries if (line := self._homeless(node)) is not None]
        beside = [f"second stripe: {self.beside._what_is_stuck()}"] if self.beside is not None else []
        lines = [line] if (line := self.line_checks.unassigned()) is not None else []
        return "; ".join([*homeless, *lines, super()._what_is_stuck(), *beside])

    def _homeless(self, node: SimNode) -> str | None:
        """Return why a secondary has no primary in the current ring, or one that does not receive it; None if fine."""
        machine = node.machine
        if not isinstance(machine, Secondary):
            return None
        if machine.standing != "FOLLOWS":
            return f"{node.name} is {machine.standing}"
        home = self.world.nodes[machine.primary or 0].machine
        if not isinstance(home, Listener) or home.generation != machine.generation:
            return f"{node.name} has primary {machine.primary}, which is not in its ring"
        if not self._watch.is_heard(node, home):
            return f"{node.name} has primary {machine.primary}, which has not received its group token"
        return None

    def _outcome(self, broken: str | None) -> Outcome:
        customers = self.crowd.customers
        outcome = replace(
            super()._outcome(broken),
            secondaries=len(self.secondaries),
            groups=self.world.report_counts["forms-group"],
            layers=self.config.layers,
            stripes=1 if self.beside is None else 2,
            plans=sum(len(truth.plans) for truth in self.crowd.truths),
            customers=len(customers),
        )
        for name in ("delivered", "requests", "lost", "merged"):
            setattr(outcome, name, sum(getattr(customer, name) for customer in customers))
        return outcome


class SecondStripe(ReceiversHistory):
    """Second ring in the same history, with the same subscribers (rule 15). It has no secondaries."""

    ID_BASE: ClassVar[int] = 1000
    STRIPE: ClassVar[int] = 1
    SIZES: ClassVar[tuple[tuple[int, ...], ...]] = (3,), (0,), (1,)
    LAYERS: ClassVar[tuple[int, ...]] = (0,)
    TEMPERS: ClassVar[tuple[str, ...]] = ("all",)
    PLANS: ClassVar[tuple[int, ...]] = (0,)


class SecondaryChecker:
    """Watcher that checks the messages of secondaries and the claims made for them.

    The check of the cover has two exceptions that do not weaken it:

    - Only claims that count are checked. No member reads a token with a `have` below t_g - 1 (`Witness.read`), so no
      witness and no stable slot depends on it. A secondary's report below t_g - 1 keeps its primary's claim there too.
    - Reports of an earlier life are not checked against the primary. The secondary has lost its state with its disk,
      and no node can know that before the first message of the new life. From then on the new report counts. Safety
      does not depend on it: what is gone from the journals is on the tape of its primary (rule 9).
    """

    def __init__(
        self, world: World, secondaries: set[int], undisturbed_ns: int | None = None, *, on_time: bool = False
    ) -> None:
        self._world = world
        self._secondaries = secondaries
        self._layer_of = {node: world.config.layer_of(node) for node in secondaries}
        self._said: dict[tuple[int, int, int], tuple[int, int]] = {}
        """Life and time of each group token."""
        self._claimed: dict[tuple[SimNode, int], int] = {}
        """Highest claim of each member in each ring."""
        self._undisturbed_ns = undisturbed_ns
        """Only secondaries have faults from this time on: the primary ring must not be affected."""
        self._on_time = on_time

    def is_heard(self, node: SimNode, home: Listener) -> bool:
        """Return True if the primary's claim uses a recent report of this secondary."""
        said = home.claims.said(node.id)
        if said is None:
            return False
        life, at_ns = self._said[node.id, said.group, said.turn_ns]
        recent_ns = self._world.now - 2 * silent_after_ns(self._world.config.timing)
        return life == node.disk.journal.life and at_ns >= recent_ns

    def on_effect(self, node: SimNode, effect: Effect) -> None:
        if isinstance(effect, Send):
            if node.id in self._secondaries:
                self._check_said(node, effect.to, effect.message)
            elif isinstance(effect.message, Token | Beat):
                self._check_claim(node, effect.message)
        elif self._undisturbed_ns is not None and self._world.now >= self._undisturbed_ns:
            self._check_undisturbed(node, effect, self._undisturbed_ns)

    def _check_claim(self, node: SimNode, message: Token | Beat) -> None:
        """Check a claim when it is made: a repeated one was true for the secondaries that counted then."""
        have = message.have if isinstance(message, Token) else message.claims[-1].have
        if have > self._claimed.get((node, message.generation), -1):
            self._claimed[node, message.generation] = have
            self._check_cover(node, message.generation, have)

    def _check_said(self, node: SimNode, to: int, message: Message) -> None:
        if not isinstance(message, SAYS):
            below = self._layer_of.get(to, 0) > self._layer_of[node.id]
            if not (below or to in self._world.config.servers) or not isinstance(message, SERVES):
                raise InvariantBroken("mute", f"{node.name} sent a {type(message).__name__} to {to}")
        if isinstance(message, GroupToken):
            self._said[node.id, message.group, message.turn_ns] = (node.disk.journal.life, self._world.now)
            self._check_cover(node, message.generation, message.have)
        machine = node.machine
        if isinstance(message, Request) and isinstance(machine, Secondary) and to != machine.primary:
            raise InvariantBroken("own primary", f"{node.name} sent a request to {to}, not to {machine.primary}")

    def _check_cover(self, node: SimNode, generation: int, claimed: int) -> None:
        """Check that a claim covers every secondary of the group that has reported and is not lagging (rule 11)."""
        home = node.machine
        if not isinstance(home, Listener) or home.schedule is None:
            return
        schedule = home.schedule
        if claimed < schedule.start_slot - 1:
            return
        patience = home.claims.patience_ns
        before_ring = max(schedule.start_slot - 2, 0)  # upper limit for the have of a secondary in an older ring
        for secondary in self._secondaries:
            said, machine = home.claims.said(secondary), self._world.nodes[secondary].machine
            if said is None or not isinstance(machine, Secondary) or machine.primary != node.id:
                continue
            if max(said.generation, machine.generation) > generation:
                continue  # it follows a later ring
            if self._said[secondary, said.group, said.turn_ns][0] != machine.life:
                continue
            last_heard = said.have if said.generation == generation else min(said.have, before_ring)
            lacks_ns = max(schedule.time_of(last_heard + 1), schedule.time_of(schedule.start_slot))
            has = machine.have if machine.generation == generation else min(machine.have, before_ring)
            if node.local_ns <= lacks_ns + patience and has < claimed:
                raise InvariantBroken("cover", f"{node.name} claimed {claimed}, its secondary {secondary} has {has}")

    def _check_undisturbed(self, node: SimNode, effect: Effect, since_ns: int) -> None:
        if isinstance(effect, RingFormed):
            raise InvariantBroken("undisturbed", f"a ring was formed: {sentence(effect)}")
        if not isinstance(effect, Release) or not effect.late or node.id in self._secondaries:
            return
        if self._on_time and effect.frame.timestamp_ns >= since_ns:
            raise InvariantBroken("undisturbed", f"{node.name} released slot {effect.frame.slot} late")

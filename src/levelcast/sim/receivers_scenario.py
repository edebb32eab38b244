"""The scenario `receivers`: primaries with secondaries, two reformation servers and sources, under every fault.

It is the scenario `ring` with 0 to 3 secondaries below each primary (rule 11, MS §4.1), which the same adversary
strikes: crashes, lost disks, partitions, cut links, weather, pauses, slow nodes, wrong clocks. Every promise of the
ring is checked at the secondaries too. Besides:

| promise     | when                    | what must hold |
|-------------|-------------------------|----------------|
| Own primary | at every request        | a secondary asks nobody but its own primary |
| Mute        | at everything sent      | a secondary sends no token, JOIN, fault or repair: nobody can count it |
| Cover       | at every token          | what a primary claims, its secondaries have, but for those that lag too far |
| Undisturbed | if only they are struck | no ring is formed, and no primary releases late |
| Liveness    | at the end              | every living secondary has released everything, has a primary in the ring, |
|             |                         | within the bound of the primaries and `secondary_bound_ns` |

In one history of four the adversary strikes secondaries only, over a network that loses nothing else. In one of four a
primary dies with the last fault and stays dead: its secondaries must find another one.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import ClassVar

from levelcast.ring.config import RingConfig
from levelcast.ring.effects import Effect, Release, Report, Send
from levelcast.ring.machine import Machine
from levelcast.ring.receiver import Receiver
from levelcast.ring.secondary import Secondary
from levelcast.ring.secondary_server import NetworkServer, secondary_bound_ns
from levelcast.ring.witness import claim_counts
from levelcast.sim.adversary import MS, Adversary
from levelcast.sim.check import InvariantBroken
from levelcast.sim.network import Weather
from levelcast.sim.ring_scenario import Outcome, RingHistory
from levelcast.sim.world import START_NS, SimNode, World
from levelcast.wire.messages import CONTROL_SOURCE, GroupPlea, GroupToken, Message, Request, Token

FIRST_SECONDARY = 301
SETTLED_AFTER_NS = 1_000 * MS
"""When a history whose faults strike secondaries only begins with them: the ring is whole by then."""

SAYS: tuple[type, ...] = (Request, GroupToken, GroupPlea)
"""All that a secondary ever sends."""


class ReceiversHistory(RingHistory):
    """Builds and runs the history of one seed."""

    LAYERS: ClassVar[int] = 1

    def _draw_secondaries(self, rng: Random) -> list[int]:
        self._homes: dict[int, int] = {}
        for primary in self._member_ids:
            for _ in range(rng.choice((0, 1, 2, 3))):
                self._homes[FIRST_SECONDARY + len(self._homes)] = primary
        self._temper = rng.choice(("all", "all", "secondaries", "widow"))
        return list(self._homes)

    def _make_config(self, rng: Random, members: int) -> RingConfig:
        return replace(super()._make_config(rng, members), homes=self._homes)

    def _build_nodes(self) -> None:
        super()._build_nodes()
        self.secondaries = [
            self._add(node, f"secondary {node}", self._start_secondary, Secondary.LISTENS) for node in self._homes
        ]
        for server in self._server_ids:
            self.world.nodes[server].listens = NetworkServer.LISTENS

    def _start_server(self, node: SimNode) -> Machine:
        return NetworkServer(self.config, node.id, node.disk.journal, node.local_ns)

    def _start_secondary(self, node: SimNode) -> Machine:
        return Secondary(self.config, node.id, node.disk.journal, node.disk.tape.tip, node.local_ns)

    def _make_adversary(self, rng: Random, calm: Weather) -> Adversary:
        watch = SecondaryChecker(self.world, {node.id for node in self.secondaries})
        self.world.watchers.append(watch)
        if self._temper != "secondaries" or not self.secondaries:
            targets = [node for node in self.world.nodes.values() if node.id != CONTROL_SOURCE]
            clocks = [*self.receivers, *self.secondaries]
            return WholeTree(self, rng, targets, clocks, strikes=rng.choice((0, 2, 5, 10)), calm=calm)
        calm.loss = 0.0
        self.fault_ns += SETTLED_AFTER_NS
        counted = self.config.witnesses in ("majority", len(self._member_ids) // 2 + 1)
        watch.undisturbed_from(self.faults_begin_ns, on_time=counted)
        targets = self.secondaries
        return SecondariesOnly(self, rng, targets, targets, strikes=rng.choice((2, 5, 10)), calm=calm)

    @property
    def faults_begin_ns(self) -> int:
        only = self._temper == "secondaries" and self.secondaries
        return START_NS + SETTLED_AFTER_NS if only else super().faults_begin_ns

    def _make_bound_ns(self, members: int) -> int:
        return super()._make_bound_ns(members) + secondary_bound_ns(self.config.timing, len(self._server_ids))

    # -- the end ------------------------------------------------------------------------------------------

    def _end_faults(self) -> None:
        super()._end_faults()
        if self._temper == "widow" and self._may_lose_a_primary():
            served = [node for node in self._operable() if node.id in self._homes.values() and self.may_wipe(node)]
            if served:
                self.rng.choice(served).crash()

    def _may_lose_a_primary(self) -> bool:
        """Not if a slot needs as many witnesses as there are: a count, unlike "all", does not shrink with the ring."""
        witnesses = self.config.witnesses
        return not isinstance(witnesses, int) or witnesses < len(self._configured.members)

    def _releasing(self) -> list[SimNode]:
        return [*super()._releasing(), *(node for node in self.secondaries if node.up)]

    def _tapes(self) -> list[SimNode]:
        return [*super()._tapes(), *self.secondaries]

    def _all_released(self) -> bool:
        return not any(self._homeless(node) for node in self.secondaries) and super()._all_released()

    def _what_is_stuck(self) -> str:
        homeless = [line for node in self.secondaries if (line := self._homeless(node)) is not None]
        return "; ".join([*homeless, super()._what_is_stuck()])

    def _homeless(self, node: SimNode) -> str | None:
        """Why a secondary has no primary in the ring that stands, if it has none."""
        machine = node.machine
        if not isinstance(machine, Secondary):
            return None
        if machine.standing != "FOLLOWS":
            return f"{node.name} is {machine.standing}"
        primary = self.world.nodes[machine.primary or 0].machine
        if not isinstance(primary, Receiver) or primary.entered != machine.entered:
            return f"{node.name} has {machine.primary}, which is not in its ring"
        return None

    def _outcome(self, broken: str | None) -> Outcome:
        outcome = super()._outcome(broken)
        outcome.secondaries = len(self.secondaries)
        outcome.groups = self.world.report_counts["forms-group"]
        return outcome


class SecondaryChecker:
    """Watches what secondaries say, and what is claimed for them."""

    def __init__(self, world: World, secondaries: set[int]) -> None:
        self._world = world
        self._secondaries = secondaries
        timing = world.config.timing
        self._patience_ns = timing.recovery_ns + timing.hear_ns
        self._life_at: dict[tuple[int, int], int] = {}
        self._undisturbed_ns: int | None = None
        self._on_time = False

    def undisturbed_from(self, at_ns: int, *, on_time: bool) -> None:
        """Only secondaries are struck from then on: the primary ring must not notice."""
        self._undisturbed_ns = at_ns
        self._on_time = on_time

    def on_effect(self, node: SimNode, effect: Effect) -> None:
        if isinstance(effect, Send):
            if node.id in self._secondaries:
                self._check_said(node, effect.to, effect.message)
            elif type(effect.message) is Token:
                self._check_cover(node, effect.message)
        elif self._undisturbed_ns is not None and self._world.now >= self._undisturbed_ns:
            self._check_undisturbed(node, effect, self._undisturbed_ns)

    def _check_said(self, node: SimNode, to: int, message: Message) -> None:
        if not isinstance(message, SAYS):
            raise InvariantBroken("mute", f"{node.name} sent a {type(message).__name__}")
        if isinstance(message, GroupToken):
            self._life_at[node.id, message.turn] = node.disk.journal.life
        machine = node.machine
        if isinstance(message, Request) and isinstance(machine, Secondary) and to != machine.primary:
            raise InvariantBroken("own primary", f"{node.name} asked {to}, its primary is {machine.primary}")

    def _check_cover(self, node: SimNode, token: Token) -> None:
        """Rule 11: a claim that counts stands for every secondary that was heard of and is not too far behind."""
        primary = node.machine
        if not isinstance(primary, Receiver) or primary.schedule is None:
            return
        if not claim_counts(token, primary.schedule):
            return
        for secondary in self._secondaries:
            said, machine = primary.cover.said(secondary), self._world.nodes[secondary].machine
            if said is None or not isinstance(machine, Secondary) or machine.primary != node.id:
                continue
            if max(said.generation, machine.entered) > token.generation:
                continue  # it has gone on to another ring
            if self._life_at[secondary, said.turn] != machine.life:
                continue  # what it had went with its disk
            schedule = primary.schedule
            before_ring = max(schedule.start_slot - 2, 0)  # what one of an older ring may be taken to have at most
            last_heard = said.have if said.generation == token.generation else min(said.have, before_ring)
            lacks_ns = max(schedule.time_of(last_heard + 1), schedule.time_of(schedule.start_slot))
            has = machine.have if machine.entered == token.generation else min(machine.have, before_ring)
            if node.local_ns <= lacks_ns + self._patience_ns and has < token.have:
                raise InvariantBroken("cover", f"{node.name} claimed {token.have}, its secondary {secondary} has {has}")

    def _check_undisturbed(self, node: SimNode, effect: Effect, since_ns: int) -> None:
        if isinstance(effect, Report) and effect.kind == "forms":
            raise InvariantBroken("undisturbed", f"a ring was formed: {effect.detail}")
        if not isinstance(effect, Release) or not effect.late or node.id in self._secondaries:
            return
        if self._on_time and effect.frame.timestamp_ns >= since_ns:
            raise InvariantBroken("undisturbed", f"{node.name} released slot {effect.frame.slot} late")


class WholeTree(Adversary):
    """Strikes everybody; clocks of secondaries step too."""

    def __init__(
        self,
        field: RingHistory,
        rng: Random,
        targets: list[SimNode],
        clocks: list[SimNode],
        *,
        strikes: int,
        calm: Weather,
    ) -> None:
        super().__init__(field, rng, targets, strikes=strikes, calm=calm)
        self._may_step = clocks

    def _clocks(self) -> list[SimNode]:
        """Those that are right: two steps that nearly cancel leave an error that no node could notice (rule 13)."""
        wrong = {node.id for node, _ in self._wrong_clocks}
        return [node for node in self._may_step if node.id not in wrong]

    def _step_clock(self) -> None:
        if self._clocks():
            super()._step_clock()


class SecondariesOnly(WholeTree):
    """Strikes secondaries, and the links that end at one."""

    def _is_target(self, node: int) -> bool:
        return any(target.id == node for target in self._targets)

    def on_effect(self, node: SimNode, effect: Effect) -> None:
        if node in self._targets:
            super().on_effect(node, effect)

    def _reaches(self, sender: SimNode, message: Message, receivers: list[int]) -> list[int]:
        reached = set(super()._reaches(sender, message, receivers))
        return [node for node in receivers if node in reached or not self._is_target(node)]

    def _split(self) -> None:
        sides = {node.id: self._rng.randint(0, 1) for node in self._targets}
        self._world.network.side_of = sides
        self._world.trace(-1, "splits", [node for node, side in sides.items() if side])
        self._world.after(self._some_delay(), self._if_on(self._world.network.side_of.clear))

    def _cut_links(self) -> None:
        nodes = list(self._world.nodes)
        links: set[tuple[int, int]] = set()
        for _ in range(self._rng.randint(1, 6)):
            target, other = self._rng.choice(self._targets).id, self._rng.choice(nodes)
            links.add((target, other) if self._rng.random() < 0.5 else (other, target))
        self._world.network.cut = links
        self._world.trace(-1, "cuts", sorted(links))
        self._world.after(self._some_delay(), self._if_on(self._world.network.cut.clear))

    def _bad_weather(self) -> None:
        """Weather is over everybody."""

    def _change_membership(self) -> None:
        """The configured set is the primaries'."""

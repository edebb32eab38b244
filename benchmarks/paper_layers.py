"""MS §4.1: how many token passes find a dead receiver in one, two and three layers of rings.

Two ways to measure it:

- *The simulator*: 100 receivers as one ring of 100 `Receiver`s, and as ten primaries with nine `Secondary`s each. A
  receiver is killed right after its turn, and the passes of its ring are counted until somebody asks for its next token
  or reports it.
- *The schedule alone*, where full receivers would be too many or are not built (10,000 receivers, three layers): the
  rings of `benchmarks.layers.rings`, each with the turns of `levelcast.ring.turns.Turns`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from benchmarks.layers import passes_to_detect, passes_to_know, rings
from benchmarks.report import Cell, Figure, Table
from levelcast.protocol.effects import Effect, Send
from levelcast.protocol.events import FaultReported, Suspected
from levelcast.ring.group_server import ReformationAndGroupServer
from levelcast.ring.secondary import Secondary
from levelcast.ring.turns import Turns
from levelcast.sim.engine.network import VirtualNetwork
from levelcast.sim.engine.world import SimNode
from levelcast.sim.scenarios.steady import MS, Roles, SteadyWorld, steady_world
from levelcast.timing.derive import Path, Shape, derive
from levelcast.wire.messages import GroupToken, Request, Token

FIRST_SECONDARY = 301
SIZES = (100, 10_000)
LAYERS = (1, 2, 3)
DEATHS = 2_000


@dataclass(frozen=True, slots=True)
class Passes:
    """What so many receivers in so many layers came to, in token passes."""

    receivers: int
    layers: int
    ring: int
    """Members of the largest ring."""
    worst: int
    mean: float
    know: int
    """Until the ring at the top knows that everybody has a message."""

    @property
    def paper(self) -> float:
        """L_i = L_1^(1/i), not rounded."""
        return float(self.receivers ** (1 / self.layers))


def by_schedule(receivers: int, layers: int, deaths: int) -> Passes:
    """Count the turns, of 1 ms each, of whoever dies: right after its turn, and at any moment."""
    rng = Random(receivers * 10 + layers)
    tree = rings(receivers, layers)
    size = max(len(ring) for layer in tree for ring in layer)
    victims = [rng.choice(rng.choice(tree[-1])) for _ in range(deaths)]
    ring_of = {member: ring for ring in tree[-1] for member in ring}
    worst, total = 0, 0
    for victim in victims:
        ring = ring_of[victim]
        turns = Turns(len(ring) * MS, ring)
        at_ns = turns.next_of(victim, rng.randrange(10**12))
        worst = max(worst, (turns.next_of(victim, at_ns) - at_ns) // MS)
        moment = at_ns + rng.randrange(len(ring) * MS)
        total += turns.next_of(victim, moment) // MS - moment // MS
    return Passes(receivers, layers, size, worst, total / deaths, _passes_to_know(tree, rng.randrange(10**12)))


def _passes_to_know(tree: list[list[tuple[int, ...]]], start_ns: int) -> int:
    """Passes from when all have a message until the top ring knows it: heads claim what they heard from below."""
    may_claim: dict[int, int] = {}
    for layer in reversed(tree):
        for ring in layer:
            turns = Turns(len(ring) * MS, ring)
            known_ns = max(turns.next_of(member, may_claim.get(member, start_ns)) for member in ring)
            may_claim[ring[0]] = known_ns
    return -((start_ns - may_claim[tree[0][0][0]]) // MS)


# The simulator


@dataclass(frozen=True, slots=True)
class Detected:
    """A death in the simulator, in passes of the victim's ring."""

    what: str
    ring: int
    missed: float
    """Until the turn that it did not take."""
    asked: float
    """Until somebody asks for its token; of a secondary the same as reported."""
    reported: float
    rule: str


class Deathwatch:
    """Kills a node right after a message of one kind, and notes when somebody misses it."""

    def __init__(self, victim: SimNode, kind: type, slots: int) -> None:
        self._victim = victim
        self._kind = kind
        self._slots = slots
        self.died_ns: int | None = None
        self.asked_ns: int | None = None
        self.reported_ns: int | None = None
        self._next_slot = 0

    def on_effect(self, node: SimNode, effect: Effect) -> None:
        now = node.world.now
        if self.died_ns is None:
            if node is self._victim and isinstance(effect, Send) and isinstance(effect.message, self._kind):
                self.died_ns = now
                self._next_slot = effect.message.slot + self._slots if isinstance(effect.message, Token) else 0
                node.world.after(1, node.crash)  # behind the other effects of this step
        elif isinstance(effect, Send) and isinstance(effect.message, Request):
            if self._next_slot in effect.message.slots:
                self.asked_ns = self.asked_ns or now
        elif isinstance(effect, FaultReported | Suspected):
            found = (
                effect.slot == self._next_slot if isinstance(effect, FaultReported) else effect.node == self._victim.id
            )
            if found:
                self.reported_ns = self.reported_ns or now


class TwoLayers(SteadyWorld):
    """Primaries with secondaries below each, and nothing to send."""

    SERVER = ReformationAndGroupServer

    def form(self) -> None:
        self.clock_error_ns = 0
        self.secondaries = [
            self._add(node, f"secondary {node}", self._start_secondary, Secondary.LISTENS) for node in self.config.homes
        ]
        super().form()

    def _formed(self) -> bool:
        machines = [node.machine for node in self.secondaries]
        follow = all(isinstance(machine, Secondary) and machine.standing == "FOLLOWS" for machine in machines)
        return follow and super()._formed()


def two_layers(primaries: int, each: int, loss: float, seed: int) -> TwoLayers:
    """So many primaries with so many secondaries each; the ring's timing for one layer of them (rule 6)."""
    homes = {FIRST_SECONDARY + i: 1 + i // each for i in range(primaries * each)}
    plain = steady_world(primaries, loss, seed=seed, sources=1, witnesses=1)
    path = Path(11 * MS, loss, clock_error_ns=MS // 2, process_ns=MS, reach_ns=11 * MS)
    shape = Shape("pipelined", 20 * MS, 1, primaries, 2, layers=1)
    config = replace(plain.config, timing=derive(path, shape).timing, homes=homes)
    roles = Roles(plain.roles.members, plain.roles.servers, ())
    nodes = (*roles.nodes, *homes)
    delays = {(a, b): 10 * MS for a in nodes for b in nodes if a != b}
    network = VirtualNetwork(Random(seed), delays, {}, plain.world.network.weather)
    return TwoLayers(config, roles, network, seed, 10**12, path.clock_error_ns)


def in_simulator(*, quick: bool) -> list[Detected]:
    """100 receivers in one layer and in two; 16 in a quick run."""
    one, primaries, each = (16, 4, 3) if quick else (100, 10, 9)
    found = []
    ring = steady_world(one, 0.0, sources=1, witnesses=1, gap_ns=10**12)
    found.append(_kill(ring, ring.roles.members[one // 2], Token, one, ring.timing.slot_ns, f"one ring of {one}"))
    tree = two_layers(primaries, each, 0.0, 1)
    name = f"{primaries} primaries with {each} secondaries each"
    found.append(_kill(tree, 2, Token, primaries, tree.timing.slot_ns, f"{name}: a primary"))
    for loss in (0.0, 0.01):
        tree = two_layers(primaries, each, loss, 1)
        turn_ns = tree.timing.request_ns // each
        what = f"{name}: a secondary, k_r = {tree.timing.attempts}"
        found.append(_kill(tree, FIRST_SECONDARY + each, GroupToken, each, turn_ns, what))
    return found


def _kill(world: SteadyWorld, victim: int, kind: type, members: int, turn_ns: int, what: str) -> Detected:
    world.form()
    watch = Deathwatch(world.world.nodes[victim], kind, members)
    world.world.watchers.append(watch)
    limit_ns = world.world.now + (members + 2) * turn_ns + 20 * world.timing.recovery_ns
    while world.world.now < limit_ns and watch.reported_ns is None:
        world.world.run(world.world.now + 100 * MS, lambda: watch.reported_ns is not None)
    assert watch.died_ns is not None, "the victim never had a turn"
    assert watch.reported_ns is not None, "no node reported the failure"
    reported = (watch.reported_ns - watch.died_ns) / turn_ns
    asked = (watch.asked_ns - watch.died_ns) / turn_ns if watch.asked_ns is not None else reported
    rule = "δ_N + k_r·τ_r after the missed turn" if kind is Token else "k_r + 1 rounds and δ_N after its last turn"
    return Detected(what, members, float(members), asked, reported, rule)


def figures(found: list[Passes]) -> list[Figure]:
    return [
        Figure(
            f"passes to miss a failed receiver, {one.receivers:,} in {one.layers} layer{'s' if one.layers > 1 else ''}",
            one.worst,
            "passes",
            "MS §4.1, L_1^(1/i)",
            one.paper,
        )
        for one in found
    ]


def tables(found: list[Passes], detected: list[Detected]) -> list[Table]:
    rows: list[tuple[Cell, ...]] = [
        (
            f"{one.receivers:,} in {one.layers}",
            one.paper,
            passes_to_detect(one.receivers, one.layers),
            one.worst,
            f"{one.worst / one.paper:.2f}",
            f"{one.mean:.1f}",
            passes_to_know(one.receivers, one.layers),
            one.know,
        )
        for one in found
    ]
    columns = ("receivers in layers", "L_1^(1/i)", "rounded up", "worst", "worst/L", "mean", "i·L_i", "all known")
    by_turns = Table(
        "token passes until a failed receiver is missed, and until all are known to have a message; turns alone",
        columns,
        rows,
    )
    seen: list[tuple[Cell, ...]] = [
        (one.what, one.ring, f"{one.asked:.1f}", f"{one.asked / one.ring:.2f}", f"{one.reported:.1f}", one.rule)
        for one in detected
    ]
    titles = ("a receiver fails right after its turn", "L", "requested", "of L", "reported", "reported by the rule at")
    return [by_turns, Table("the same in the simulator, in passes of the victim's ring", titles, seen)]

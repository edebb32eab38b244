"""Faults: at random moments, and just after the moments that matter.

A weak rule breaks when a node dies, or is cut off, just after it promised, acknowledged, witnessed or announced
something. So besides faults at random times the adversary watches the effects and strikes right behind the chosen
kinds of them: it kills the node between two effects, cuts it off, or lets a multicast reach only a few.

Every history has its own temper: which moments it likes, how often it strikes, how many strikes it has. After
`end` nothing new happens and everything is healed: what is sent must then be released within the bound.

A receiver's disk is lost only while no earlier loss is waiting for its replacement, and while a majority of others
knows the set to stand (the record that made it to be witnessed): a ring that loses the disks of a majority has lost
what it witnessed, or the knowledge of it, and no rule can bring that back.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Literal, Protocol

from levelcast.protocol.effects import Effect, Persist, Promise, Release, Send, ServerCounter
from levelcast.protocol.events import Voided, Witnessed
from levelcast.sim.engine.network import Weather
from levelcast.sim.engine.world import SimNode, World
from levelcast.wire.messages import Data, Fault, Invite, Join, Message, Ring, Token

MS = 1_000_000

Moment = Literal[
    "promise kept", "join sent", "ring kept", "ring sent", "invite sent", "counter kept",
    "own token kept", "token sent", "witnessed", "released", "data kept", "fault sent", "voided",
]  # fmt: skip
MOMENTS: tuple[Moment, ...] = Moment.__args__  # type: ignore[attr-defined]

COMMON: tuple[Moment, ...] = ("own token kept", "token sent", "witnessed", "released", "data kept")
"""Moments that come with every slot: striking at each would leave nothing else of the history."""


class Field(Protocol):
    """What the adversary may do to the deployment."""

    world: World
    receivers: list[SimNode]

    def down_for(self, node: SimNode, delay_ns: int, *, wipe: bool) -> None:
        """Kill a node and start it again later, perhaps on an empty disk."""

    def may_wipe(self, node: SimNode) -> bool:
        """Whether this node may lose its disk now."""

    def change_membership(self) -> None:
        """Ask the operator for some change of the configured set."""


class Adversary:
    """Strikes at one history."""

    def __init__(self, field: Field, rng: Random, targets: list[SimNode], *, strikes: int, calm: Weather) -> None:
        self._field = field
        self._world = field.world
        self._rng = rng
        self._targets = targets
        self._calm = calm
        self.strikes_left = strikes
        self.strikes = 0
        self._on = True
        self._wrong_clocks: list[tuple[SimNode, int]] = []
        liked = rng.sample(MOMENTS, rng.randint(2, 4))
        self._eager: dict[Moment, float] = {
            moment: rng.uniform(0.002, 0.03) if moment in COMMON else rng.uniform(0.05, 0.5) for moment in liked
        }
        self._disk_loss = rng.choice((0.0, 0.0, 0.1, 0.3))
        self._partial = rng.choice((0.0, 0.0, 0.02, 0.1))
        self._partial_control = rng.choice((0.0, 0.2, 0.5))
        self._world.partial_multicast = self._reaches

    # -- at random times ----------------------------------------------------------------------------------

    def plan(self, begin_ns: int, end_ns: int, count: int) -> None:
        """Faults at random times between `begin_ns` and `end_ns`; then heal."""
        actions: tuple[Callable[[], None], ...] = (
            self._kill_somebody, self._kill_somebody, self._kill_somebody, self._pause_somebody, self._split,
            self._split, self._cut_links, self._bad_weather, self._bad_weather, self._step_clock, self._slow_down,
            self._change_membership,
        )  # fmt: skip
        for _ in range(count):
            self._world.at(self._rng.randint(begin_ns, end_ns), self._if_on(self._rng.choice(actions)))
        self._world.at(end_ns, self.heal)

    def _if_on(self, action: Callable[[], None]) -> Callable[[], None]:
        def act() -> None:
            if self._on:
                action()

        return act

    def heal(self) -> None:
        """The end of all faults."""
        self._on = False
        world = self._world
        world.partial_multicast = None
        world.network.side_of.clear()
        world.network.cut.clear()
        world.network.weather = self._calm
        world.trace(-1, "heals", "")
        self._set_clocks_right()
        for node in self._targets:
            node.service_ns = 0
            node.paused_until_ns = min(node.paused_until_ns, world.now)

    # -- just after what matters --------------------------------------------------------------------------

    def on_effect(self, node: SimNode, effect: Effect) -> None:
        if not self._on or self.strikes_left <= 0 or node.machine is None:
            return
        moment = moment_of(effect, node.id)
        if moment is None:
            return
        chance = self._eager.get(moment)
        if chance is not None and self._rng.random() < chance:
            self._strike(node, moment)

    def _strike(self, node: SimNode, moment: Moment) -> None:
        self.strikes_left -= 1
        self.strikes += 1
        self._world.trace(node.id, "struck", moment)
        choice = self._rng.random()
        if choice < 0.6:
            self._kill(node)
        elif choice < 0.85:
            self._isolate(node)
        else:
            self._kill(self._rng.choice(self._targets))

    def _reaches(self, sender: SimNode, message: Message, receivers: list[int]) -> list[int]:
        """A multicast that only a few hear: dying switches and half-open groups."""
        kind = type(message)
        chance = self._partial_control if kind in (Ring, Invite) else self._partial if kind in (Token, Data) else 0.0
        if not chance or self._rng.random() >= chance:
            return receivers
        return self._rng.sample(receivers, self._rng.randint(0, max(1, len(receivers) // 2)))

    # -- the faults ---------------------------------------------------------------------------------------

    def _some_delay(self) -> int:
        return int(self._rng.choice((5, 40, 150, 600)) * MS * self._rng.uniform(0.5, 1.5))

    def _kill(self, node: SimNode) -> None:
        if node.up:
            wipe = self._rng.random() < self._disk_loss and self._field.may_wipe(node)
            self._field.down_for(node, self._some_delay(), wipe=wipe)

    def _kill_somebody(self) -> None:
        self._kill(self._rng.choice(self._targets))

    def _pause_somebody(self) -> None:
        node = self._rng.choice(self._targets)
        node.paused_until_ns = self._world.now + self._some_delay()
        self._world.trace(node.id, "paused", "")

    def _isolate(self, node: SimNode) -> None:
        self._world.network.side_of = {node.id: 1}
        self._world.trace(node.id, "isolated", "")
        self._world.after(self._some_delay(), self._if_on(self._world.network.side_of.clear))

    def _split(self) -> None:
        sides = {node: self._rng.randint(0, 1) for node in self._world.nodes}
        self._world.network.side_of = sides
        self._world.trace(-1, "splits", [node for node, side in sides.items() if side])
        self._world.after(self._some_delay(), self._if_on(self._world.network.side_of.clear))

    def _cut_links(self) -> None:
        nodes = list(self._world.nodes)
        links = {(self._rng.choice(nodes), self._rng.choice(nodes)) for _ in range(self._rng.randint(1, 6))}
        self._world.network.cut = links
        self._world.trace(-1, "cuts", sorted(links))
        self._world.after(self._some_delay(), self._if_on(self._world.network.cut.clear))

    def _bad_weather(self) -> None:
        rng = self._rng
        self._world.network.weather = Weather(
            loss=rng.choice((0.02, 0.1, 0.3)),
            branch_loss=rng.choice((0.0, 0.05, 0.2)),
            duplicate=rng.choice((0.0, 0.05)),
            corrupt=rng.choice((0.0, 0.02)),
            truncate=rng.choice((0.0, 0.01)),
            jitter_ns=rng.choice((1, 4, 10)) * MS,
            outlier=rng.choice((0.0, 0.02)),
            outlier_ns=400 * MS,
        )
        self._world.trace(-1, "weather", self._world.network.weather)

    def _step_clock(self) -> None:
        """A clock jumps and is set right again later."""
        node = self._rng.choice(self._clocks())
        step_ns = int(self._rng.choice((-1, 1)) * self._rng.uniform(10, 900) * MS)
        node.clock_offset_ns += step_ns
        self._wrong_clocks.append((node, step_ns))
        self._world.trace(node.id, "clock steps", step_ns)
        self._world.after(self._some_delay(), self._set_clocks_right)

    def _clocks(self) -> list[SimNode]:
        """Whose clocks may step."""
        return self._field.receivers

    def _set_clocks_right(self) -> None:
        for node, step_ns in self._wrong_clocks:
            node.clock_offset_ns -= step_ns
            self._world.trace(node.id, "clock set right", -step_ns)
            node.step(())
        self._wrong_clocks.clear()

    def _slow_down(self) -> None:
        node = self._rng.choice(self._targets)
        node.service_ns = int(self._rng.uniform(1, 12) * MS)
        self._world.trace(node.id, "slows down", node.service_ns)

        def speed_up() -> None:
            node.service_ns = 0

        self._world.after(self._some_delay(), speed_up)

    def _change_membership(self) -> None:
        self._field.change_membership()


def moment_of(effect: Effect, node: int) -> Moment | None:
    """The kind of moment that an effect is, if it is one that matters."""
    if type(effect) is Persist:
        entry = effect.entry
        kind = type(entry)
        if kind is Data:
            return "data kept"
        if isinstance(entry, Token):
            return "own token kept" if entry.owner == node else None
        if kind is Promise:
            return "promise kept"
        if kind is Ring:
            return "ring kept"
        return "counter kept" if kind is ServerCounter else None
    if type(effect) is Send:
        return _SENDS.get(type(effect.message))
    if isinstance(effect, Release):
        return "released"
    if isinstance(effect, Witnessed):
        return "witnessed"
    if isinstance(effect, Voided):
        return "voided"
    return None


_SENDS: dict[type, Moment] = {
    Token: "token sent",
    Join: "join sent",
    Ring: "ring sent",
    Invite: "invite sent",
    Fault: "fault sent",
}

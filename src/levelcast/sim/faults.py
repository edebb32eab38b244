"""Inject faults at random times and immediately after critical effects.

A weak rule breaks when a node crashes or is isolated just after it promised, acknowledged, witnessed or announced
something. The adversary therefore injects faults at random times, and also right after selected kinds of effects: it
kills the node between two effects, isolates it, or restricts a multicast to a few nodes.

Each history draws its own kinds of effects, fault rate and number of faults. After `heal` no new faults occur and all
faults are repaired: everything sent must then be released within the bound.

A receiver loses its disk only if no earlier loss waits for its replacement, and if a majority of the others knows that
the record of the current set is witnessed. A ring that loses the disks of a majority has lost what it witnessed, or
the knowledge of it, and no rule can restore that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from levelcast.protocol.effects import Effect, Persist, Promise, Release, Send, ServerCounter
from levelcast.protocol.events import Voided, Witnessed
from levelcast.sim.engine.network import Weather
from levelcast.sim.engine.world import SimNode
from levelcast.wire.messages import Data, Fault, Invite, Join, Message, Ring, Token

if TYPE_CHECKING:
    from levelcast.sim.scenarios.ring import RingHistory

MS = 1_000_000

Moment = Literal[
    "promise kept", "join sent", "ring kept", "ring sent", "invite sent", "counter kept",
    "own token kept", "token sent", "witnessed", "released", "data kept", "fault sent", "voided",
]  # fmt: skip
MOMENTS: tuple[Moment, ...] = Moment.__args__  # type: ignore[attr-defined]

COMMON: tuple[Moment, ...] = ("own token kept", "token sent", "witnessed", "released", "data kept")
"""Moments that occur in every slot: a fault at each of them would prevent all progress."""


class Adversary:
    """Inject faults into one history: into all `targets` and the links between nodes, or with `only` into the targets.

    Clocks of receivers may step; if `clocks` is set, only those step, one step at a time per clock. Two steps that
    nearly cancel would leave an error that no node can detect (rule 13).
    """

    def __init__(
        self, history: RingHistory, targets: list[SimNode], strikes: int, clocks: list[SimNode] | None, *, only: bool
    ) -> None:
        self._history = history
        self._world = history.world
        self._rng = rng = history.rng
        self.targets = targets
        self._calm = history.world.network.weather
        self._clocks = clocks
        self._only = only
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
        """Schedule faults at random times between `begin_ns` and `end_ns`, then their repair."""
        actions: tuple[Callable[[], None], ...] = (
            self._kill_somebody, self._kill_somebody, self._kill_somebody, self._pause_somebody, self._split,
            self._split, self._cut_links, self._bad_weather, self._bad_weather, self._step_clock, self._slow_down,
            self._change_membership,
        )  # fmt: skip
        for _ in range(count if self.targets else 0):
            self._world.at(self._rng.randint(begin_ns, end_ns), self._if_on(self._rng.choice(actions)))
        self._world.at(end_ns, self.heal)

    def _if_on(self, action: Callable[[], None]) -> Callable[[], None]:
        def act() -> None:
            if self._on:
                action()

        return act

    def heal(self) -> None:
        """End and repair all faults."""
        self._on = False
        world = self._world
        world.partial_multicast = None
        world.network.side_of.clear()
        world.network.cut.clear()
        world.network.weather = self._calm
        world.trace(-1, "heals", "")
        self._set_clocks_right()
        for node in self.targets:
            node.service_ns = 0
            node.paused_until_ns = min(node.paused_until_ns, world.now)

    # -- after critical effects ---------------------------------------------------------------------------

    def on_effect(self, node: SimNode, effect: Effect) -> None:
        if not self._on or self.strikes_left <= 0 or node.machine is None or (self._only and node not in self.targets):
            return
        moment = moment_of(effect, node.id)
        if moment in self._eager and self._rng.random() < self._eager[moment]:
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
            self._kill(self._rng.choice(self.targets))

    def _reaches(self, sender: SimNode, message: Message, receivers: list[int]) -> list[int]:
        """Restrict a multicast to a few receivers, as failing switches and half-joined groups do."""
        kind = type(message)
        chance = self._partial_control if kind in (Ring, Invite) else self._partial if kind in (Token, Data) else 0.0
        if not chance or self._rng.random() >= chance:
            return receivers
        reached = self._rng.sample(receivers, self._rng.randint(0, max(1, len(receivers) // 2)))
        if not self._only:
            return reached
        targets = {node.id for node in self.targets}
        return [node for node in receivers if node in reached or node not in targets]

    # -- the faults ---------------------------------------------------------------------------------------

    def _some_delay(self) -> int:
        return int(self._rng.choice((5, 40, 150, 600)) * MS * self._rng.uniform(0.5, 1.5))

    def _kill(self, node: SimNode) -> None:
        if node.up:
            wipe = self._rng.random() < self._disk_loss and self._history.may_wipe(node)
            self._history.down_for(node, self._some_delay(), wipe=wipe)

    def _kill_somebody(self) -> None:
        self._kill(self._rng.choice(self.targets))

    def _pause_somebody(self) -> None:
        node = self._rng.choice(self.targets)
        node.paused_until_ns = self._world.now + self._some_delay()
        self._world.trace(node.id, "paused", "")

    def _isolate(self, node: SimNode) -> None:
        self._world.network.side_of = {node.id: 1}
        self._for_some_time(node.id, "isolated", "", self._world.network.side_of.clear)

    def _for_some_time(self, node: int, what: str, about: object, undo: Callable[[], None]) -> None:
        self._world.trace(node, what, about)
        self._world.after(self._some_delay(), self._if_on(undo))

    def _split(self) -> None:
        """Partition the nodes; subscribers are on a side too, unless only the targets have faults."""
        struck = [node.id for node in self.targets] if self._only else list(self._world.nodes)
        sides = {node: self._rng.randint(0, 1) for node in struck}
        self._world.network.side_of = sides
        self._for_some_time(-1, "splits", [node for node, side in sides.items() if side], sides.clear)
        if not self._only:
            sides |= {customer: self._rng.randint(0, 1) for customer in self._history.customers()}

    def _cut_links(self) -> None:
        links = {self._some_link(list(self._world.nodes)) for _ in range(self._rng.randint(1, 6))}
        self._world.network.cut = links
        self._for_some_time(-1, "cuts", sorted(links), links.clear)

    def _some_link(self, nodes: list[int]) -> tuple[int, int]:
        rng = self._rng
        if not self._only:
            return rng.choice(nodes), rng.choice(nodes)
        target, other = rng.choice(self.targets).id, rng.choice(nodes)
        return (target, other) if rng.random() < 0.5 else (other, target)

    def _bad_weather(self) -> None:
        """Worsen loss, delay and damage for all nodes."""
        if self._only:
            return
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
        """Step a clock, and correct it later."""
        wrong = {node for node, _ in self._wrong_clocks}
        may_step = self._history.receivers if self._clocks is None else [n for n in self._clocks if n not in wrong]
        if not may_step:
            return
        node = self._rng.choice(may_step)
        step_ns = int(self._rng.choice((-1, 1)) * self._rng.uniform(10, 900) * MS)
        node.clock_offset_ns += step_ns
        self._wrong_clocks.append((node, step_ns))
        self._world.trace(node.id, "clock steps", step_ns)
        self._world.after(self._some_delay(), self._set_clocks_right)

    def _set_clocks_right(self) -> None:
        for node, step_ns in self._wrong_clocks:
            node.clock_offset_ns -= step_ns
            self._world.trace(node.id, "clock set right", -step_ns)
            node.step(())
        self._wrong_clocks.clear()

    def _slow_down(self) -> None:
        node = self._rng.choice(self.targets)
        node.service_ns = int(self._rng.uniform(1, 12) * MS)
        self._world.trace(node.id, "slows down", node.service_ns)
        self._world.after(self._some_delay(), lambda: setattr(node, "service_ns", 0))

    def _change_membership(self) -> None:
        """Change the configured set of primaries."""
        if not self._only:
            self._history.change_membership()


_ByKind = dict[type, Moment]
_KEPT: _ByKind = {Data: "data kept", Promise: "promise kept", Ring: "ring kept", ServerCounter: "counter kept"}
_SENT: _ByKind = {Token: "token sent", Join: "join sent", Ring: "ring sent", Invite: "invite sent", Fault: "fault sent"}
_DONE: _ByKind = {Release: "released", Witnessed: "witnessed", Voided: "voided"}


def moment_of(effect: Effect, node: int) -> Moment | None:
    """Return the kind of moment of an effect, or None if it is not critical."""
    if isinstance(effect, Send):
        return _SENT.get(type(effect.message))
    if not isinstance(effect, Persist):
        return _DONE.get(type(effect))
    if isinstance(effect.entry, Token):
        return "own token kept" if effect.entry.owner == node else None
    return _KEPT.get(type(effect.entry))

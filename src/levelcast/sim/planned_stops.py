"""Stop receivers as an operator does: each announces its leave, stops when it has left, and starts again.

A planned stop may meet every fault of the history: the node may crash while it leaves, its announcement may be lost,
and a majority may leave together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from levelcast.protocol.machine import LEAVE_LIMIT_NS, Machine
from levelcast.sim.engine.world import SimNode, World

MS = 1_000_000
LOOK_NS = 5 * MS
"""Interval at which a node looks whether it has left."""


class PlannedStops:
    """The planned stops of one history. They have their own random generator: a history without them is unchanged."""

    def __init__(self, world: World, seed: int, start: Callable[[SimNode], None]) -> None:
        self._rng = Random(f"planned stops {seed}")
        self._world = world
        self._start = start
        self._end_ns = 0
        self.happen = self._rng.random() < 0.3
        self.stops = 0
        """Planned stops that were begun."""
        self.under_way = 0
        """Nodes that have announced a stop and are not started again yet."""

    def plan(self, nodes: Sequence[SimNode], begin_ns: int, end_ns: int) -> None:
        """Schedule stops between these times. A node that has not left by then stops without an answer."""
        if not self.happen or not nodes:
            return
        self._end_ns = end_ns
        for _ in range(self._rng.randint(1, 6)):
            node = self._rng.choice(nodes)
            self._world.at(self._rng.randint(begin_ns, end_ns), lambda node=node: self._leave(node))  # type: ignore[misc]

    def _leave(self, node: SimNode) -> None:
        if self._world.now < self._end_ns:
            limit_ns = self._world.now + self._rng.choice((100 * MS, 600 * MS, LEAVE_LIMIT_NS))
            self.stop(node, min(limit_ns, self._end_ns))

    def stop(self, node: SimNode, limit_ns: int, stopped: Callable[[], None] = lambda: None) -> None:
        """Stop a node as planned, call `stopped`, and start it again. It stops at `limit_ns` at the latest."""
        machine = node.machine
        if machine is None:
            return
        self.stops += 1
        self.under_way += 1
        self._world.trace(node.id, "told to leave", "")
        machine.leave()
        if self._world.now >= node.paused_until_ns:
            node.step(())
        self._look(node, machine, limit_ns, stopped)

    def _look(self, node: SimNode, machine: Machine, limit_ns: int, stopped: Callable[[], None]) -> None:
        if node.machine is not machine:
            self.under_way -= 1  # it has crashed meanwhile
            return
        if not machine.has_left and self._world.now < limit_ns:
            self._world.after(LOOK_NS, lambda: self._look(node, machine, limit_ns, stopped))
            return
        node.stop()
        stopped()
        self._world.after(int(self._rng.uniform(5, 300) * MS), lambda: self._end(node))

    def _end(self, node: SimNode) -> None:
        self.under_way -= 1
        self._start(node)

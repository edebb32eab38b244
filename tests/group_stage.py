"""The stage of `tests.ring_stage` with secondary receivers: P and Q belong to A, U to B, and C has none."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from levelcast.protocol.machine import Machine
from levelcast.ring.group_server import ReformationAndGroupServer
from levelcast.ring.secondary import Secondary
from levelcast.sim.engine.world import SimNode
from levelcast.sim.scenarios.receivers import SecondaryChecker
from levelcast.timing.secondary import patience_ns, secondary_bound_ns
from levelcast.wire.messages import Fault
from tests.ring_stage import MS, SECONDARIES, SERVERS_BY_RANK, A, B, C, K, P, Q, S, Stage, StageError, U, X, Y, Z

EVERYBODY = frozenset({A, B, C, P, Q, U})


class GroupStage(Stage):
    """One history in the making."""

    HOMES: ClassVar[dict[int, int]] = {P: A, Q: A, U: B}
    LAYERS: ClassVar[int] = 1

    def __init__(self) -> None:
        super().__init__()
        for node in SECONDARIES:
            self._add(node, self._new_secondary)
        self.world.watchers.append(SecondaryChecker(self.world, set(SECONDARIES)))

    def _new_server(self, node: SimNode) -> Machine:
        return ReformationAndGroupServer(self.config, node.id, node.disk.journal, node.local_ns)

    def _new_secondary(self, node: SimNode) -> Machine:
        return Secondary(self.config, node.id, node.disk.journal, node.disk.tape.tip, node.local_ns)

    def begin(self) -> None:
        """A, B and C form generation 1; P, Q and U find their groups and follow it."""
        self.lose(Fault)
        self.start(A, B, C, S, Z, X, Y, K, P, Q, U)
        self.reform(S, {A, B, C}, announce_to=EVERYBODY)
        self.until(lambda: all(self.secondary(node).standing == "FOLLOWS" for node in SECONDARIES))
        self.until(lambda: min(self.have(node) for node in EVERYBODY) >= 3)
        self.until(lambda: all(self.receiver(self.HOMES[node]).claims.said(node) is not None for node in SECONDARIES))

    def secondary(self, node: int) -> Secondary:
        machine = self.world.nodes[node].machine
        if not isinstance(machine, Secondary):
            raise StageError(f"{node} is not a running secondary")
        return machine

    @property
    def patience_ms(self) -> float:
        """How long a secondary may hold its primary's claims."""
        return patience_ns(self.config.timing, self.LAYERS) / MS

    def soon(self, condition: Callable[[], bool], within_ms: float) -> None:
        """Wait for what must come within a time."""
        limit_ns = self.world.now + int(within_ms * MS)
        while not condition() and self.world.now < limit_ns:
            self.world.pass_moment(limit_ns)
        assert condition(), f"not within {within_ms:.0f} ms:\n{self.story()}"

    def _bound_ns(self) -> int:
        return super()._bound_ns() + secondary_bound_ns(self.config.timing, len(SERVERS_BY_RANK), self.LAYERS)

    def _operable(self) -> list[SimNode]:
        secondaries = [self.world.nodes[node] for node in SECONDARIES]
        return [node for node in (*super()._operable(), *secondaries) if node.up]

    def end(self) -> None:
        super().end()
        self.checker.check_end([self.world.nodes[node] for node in SECONDARIES], 2 * MS)


class LayerStage(GroupStage):
    """Two layers: P belongs to A, Q and U to P."""

    HOMES: ClassVar[dict[int, int]] = {P: A, Q: P, U: P}
    LAYERS: ClassVar[int] = 2

"""Change the hold time, the beat interval and the cut-offs as an operator does: by records of the sequence (rule W9).

A change may meet every fault of the history: its slot may be voided, or ordered too late to count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

from levelcast.protocol.timing_record import timing_record
from levelcast.ring.listener import Listener
from levelcast.sim.engine.world import SimNode, World
from levelcast.wire.messages import Cutoff, Pace
from levelcast.wire.pace_change import encode_pace_change

MS = 1_000_000


class TimingChanges:
    """The changes of one history. They have their own random generator: a history without them is unchanged."""

    def __init__(self, world: World, seed: int, submit: Callable[[bytes], bool]) -> None:
        """`submit` sends a record as the operator, and returns whether it could."""
        self._rng = Random(f"timing changes {seed}")
        self._world = world
        self._submit = submit
        self.happen = world.config.timing.beat_ns > 0 and self._rng.random() < 0.3
        self.sent = 0
        self.longest_ns = world.config.timing.hold_ns
        """The longest hold time of the history."""

    def plan(self, receivers: Iterable[SimNode], begin_ns: int, end_ns: int) -> None:
        if self.happen:
            nodes = list(receivers)
            for _ in range(self._rng.randint(1, 5)):
                self._world.at(self._rng.randint(begin_ns, end_ns), lambda: self._change(nodes))

    def _change(self, nodes: Iterable[SimNode]) -> None:
        machines = [node.machine for node in nodes if isinstance(node.machine, Listener)]
        paces = max(
            (each.history.tip.paces for each in machines), key=lambda each: [p.version for p in each], default=[]
        )
        config, rng, now = self._world.config, self._rng, self._world.now
        before_ns = paces[-1].pace.hold_ns if paces else config.timing.hold_ns
        hold_ns = int(before_ns * rng.choice((0.5, 0.8, 1.0, 1.3, 2.0)))
        factor = rng.choice((0.7, 1.0, 1.5))
        members = sorted(life.member for life in config.membership.members)
        cutoffs = tuple(Cutoff(member, int(config.cutoff_ns(member) * factor)) for member in members)
        pace = Pace(before_ns, rng.choice((5, 10, 20, 50)) * MS, cutoffs)
        version = paces[-1].version if paces else 0
        change = timing_record(version, pace, hold_ns, now, margin_ns=rng.choice((20, 100, 500)) * MS)
        if self._submit(encode_pace_change(change)):
            self.sent += 1
            self.longest_ns = max(self.longest_ns, change.pace.hold_ns)

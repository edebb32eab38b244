"""Kill or stop receivers that hold lines, and check that every region keeps two sources (MS §4.3).

| invariant   | checked          | condition |
|-------------|------------------|----------------|
| Two sources | every 5 ms, and  | a region has fewer than two sources for `line_bound_ns` at most |
| Never none  | at planned stops | a region has a source at every time, while two receivers run |
| One address | the same         | the same two receivers send to a line for `overlap_bound_ns` at most |
| No gap      | the same         | a line is without a receiver only after its receiver has crashed |

The checks at intervals apply to histories of the temper `holders`, in which one receiver is down at a time and nothing
else fails. In all histories `unassigned` must be None at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from random import Random

from levelcast.protocol.lines import RegionLines
from levelcast.protocol.machine import LEAVE_LIMIT_NS, Machine
from levelcast.ring.listener import Listener
from levelcast.sim.check.ring import InvariantBroken
from levelcast.sim.engine.world import SimNode, World
from levelcast.timing.lines import line_bound_ns, overlap_bound_ns

MS = 1_000_000
LOOK_NS = 5 * MS
STOPS_SHARE = 1 / 3
"""Probability of a planned stop instead of a crash."""
POLL_NS = 3 * MS
"""Largest interval at which nodes poll their sockets, for each message of the bound."""


class LineChecks:
    """The sources of every region of one history."""

    def __init__(self, world: World, receivers: list[SimNode], members: int) -> None:
        self._world = world
        self._receivers = receivers
        timing, servers = world.config.timing, len(world.config.servers)
        self.bound_ns = line_bound_ns(timing, members, servers) + 4 * POLL_NS + 2 * LOOK_NS
        self._overlap_ns = overlap_bound_ns(timing) + 2 * POLL_NS + 2 * LOOK_NS
        self._short_since: dict[RegionLines[int], int] = {}
        self._double_since: dict[str, dict[tuple[int, int], int]] = {}
        """For each line, the pairs of receivers that send to it, and since when."""
        self._last: dict[str, list[tuple[SimNode, Machine | None]]] = {}
        """The processes that sent to each line when it was checked last."""
        self.kills = 0
        self.longest_short_ns = 0

    def senders(self, line: str) -> list[SimNode]:
        """Return the running receivers that send to a line."""
        return [node for node in self._receivers if line in self._lines_of(node)]

    def _lines_of(self, node: SimNode) -> tuple[str, ...]:
        machine = node.machine
        return machine.lines(node.local_ns) if node.up and isinstance(machine, Listener) else ()

    def unassigned(self) -> str | None:
        """Return a line that does not have one receiver, or a region with one source although two receivers run."""
        for region in self._world.config.lines:
            found = {line: self.senders(line) for line in region.lines}
            for line, nodes in found.items():
                if len(nodes) != 1:
                    return f"line {line} has {len(nodes)} receivers"
            if len({node.id for nodes in found.values() for node in nodes}) < 2:
                return f"lines {', '.join(region.lines)} have one receiver"
        return None

    # -- kills and checks at intervals --------------------------------------------------------------------

    def look(self) -> None:
        """Check every region now, and again after an interval."""
        self.check()
        self._world.after(LOOK_NS, self.look)

    def check(self) -> None:
        """Check every region now."""
        now = self._world.now
        for region in self._world.config.lines:
            sources = {node.id for line in region.lines for node in self.senders(line)}
            if not sources:
                raise InvariantBroken("never none", f"no receiver sends to {', '.join(region.lines)}")
            if len(sources) >= 2:
                self._short_since.pop(region, None)
                continue
            short_ns = now - self._short_since.setdefault(region, now)
            self.longest_short_ns = max(self.longest_short_ns, short_ns)
            if short_ns > self.bound_ns:
                detail = f"{', '.join(region.lines)} have one source for {short_ns / 1e9:.3f} s"
                raise InvariantBroken("two sources", f"{detail}; the bound is {self.bound_ns / 1e9:.3f} s")
        for line in (line for region in self._world.config.lines for line in region.lines):
            self._check_line(line, self.senders(line))

    def _check_line(self, line: str, senders: list[SimNode]) -> None:
        now = self._world.now
        before = self._double_since.get(line, {})
        pairs = combinations((node.id for node in senders), 2)
        self._double_since[line] = since = {pair: before.get(pair, now) for pair in pairs}
        if since and now - min(since.values()) > self._overlap_ns:
            raise InvariantBroken("one address", f"two receivers send to {line} for {self._overlap_ns / 1e9:.3f} s")
        for node, machine in self._last.get(line, ()) if not senders else ():
            if node.machine is machine or (machine is not None and machine.has_left):
                raise InvariantBroken("no gap", f"{node.name} has given up {line}, and no receiver sends to it")
        self._last[line] = [(node, node.machine) for node in senders]

    def kill_later(
        self,
        rng: Random,
        kills: int,
        down: Callable[[SimNode, int], None],
        stop: Callable[[SimNode, int, Callable[[], None]], None],
    ) -> None:
        """Kill or stop a receiver that holds a line, when each region has two sources; then the next one."""
        if not kills:
            return
        if all(node.up for node in self._receivers) and self.unassigned() is None:
            lines = [line for region in self._world.config.lines for line in region.lines]
            (node,) = self.senders(rng.choice(lines))
            kills -= 1
            if rng.random() < STOPS_SHARE:
                stop(node, self._world.now + LEAVE_LIMIT_NS, self.check)
            else:
                self.kills += 1
                down(node, rng.choice((1, 2)) * self.bound_ns)
        self._world.after(self.bound_ns, lambda: self.kill_later(rng, kills, down, stop))

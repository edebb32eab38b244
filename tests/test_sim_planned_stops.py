"""Planned stops (MS §4.3): a receiver that announces its leave causes no fault, and the others are hardly late."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from levelcast.network import FiveCities, five_cities, parse_network
from levelcast.protocol.effects import Effect, Release
from levelcast.protocol.events import FaultReported
from levelcast.protocol.machine import LEAVE_LIMIT_NS
from levelcast.ring.member import Member
from levelcast.sim.engine.world import SimNode
from levelcast.sim.rehearsal import SLACK_NS, Deployment
from levelcast.sim.run import first_failing_seed, run_seeds
from levelcast.wire.messages import FaultReason

MS = 1_000_000
SECOND = 1000 * MS


class Rolling:
    """Five cities under load, in which receivers stop one after the other and start again."""

    def __init__(self, cities: FiveCities = FiveCities(), seed: int = 1) -> None:  # noqa: B008
        self.deployment = Deployment(parse_network(five_cities(cities)), seed)
        self.world = self.deployment.world
        self.world.watchers.append(self)
        self.faults: Counter[str] = Counter()
        self.slots: dict[int, dict[int, int]] = {}
        """Receiver -> slot -> timestamp, of all releases."""
        self.late: list[tuple[int, int, int]] = []
        """Receiver, instant by Δ_A and lateness of late releases."""
        self.outside: list[tuple[int, int, int]] = []
        """Receiver, when it announced its leave, and when it was in a ring again."""
        self.deployment.start()
        self.world.run(self.world.now + 5 * SECOND)
        for feed in self.deployment.feeds:
            feed.open(self.world.now + 3600 * SECOND)

    def on_effect(self, node: SimNode, effect: Effect) -> None:
        if isinstance(effect, FaultReported):
            self.faults[FaultReason.NAMES[effect.reason]] += 1
        elif isinstance(effect, Release):
            self.slots.setdefault(node.id, {})[effect.frame.slot] = effect.frame.timestamp_ns
            if effect.late:
                due_ns = effect.frame.timestamp_ns + self.deployment.config.timing.hold_ns
                self.late.append((node.id, due_ns, self.world.now - due_ns))

    def run(self, ns: int) -> None:
        self.world.run(self.world.now + ns)

    def leave(self, node: SimNode) -> int:
        """Let a receiver leave, start it again after half a second, and run; return how long it took to leave."""
        machine, began = node.machine, self.world.now
        assert isinstance(machine, Member)
        machine.leave()
        node.step(())
        while not machine.has_left and self.world.now - began < LEAVE_LIMIT_NS:
            self.run(5 * MS)
        node.stop()
        stopped = self.world.now
        self.run(500 * MS)
        node.start()
        while node.id not in self.ring() and self.world.now - stopped < LEAVE_LIMIT_NS:
            self.run(5 * MS)
        self.outside.append((node.id, began, self.world.now + SLACK_NS))
        return stopped - began

    def late_while_running(self) -> list[int]:
        """Lateness of late releases of receivers that were in a ring at the instant by Δ_A."""
        return [
            late_ns
            for node, due_ns, late_ns in self.late
            if not any(left == node and begin <= due_ns <= end for left, begin, end in self.outside)
        ]

    def ring(self) -> set[int]:
        """The members of the newest ring."""
        machines = [node.machine for node in self.deployment.receivers if isinstance(node.machine, Member)]
        newest = max(machines, key=lambda machine: machine.generation)
        return set(newest.ring_members)

    def largest_gap_ns(self) -> int:
        """The longest time between two slots that follow each other on the tape of a receiver that kept running."""
        times = np.array(sorted({stamp for slots in self.slots.values() for stamp in slots.values()}))
        return int(np.diff(times).max())


@pytest.mark.parametrize("hold", ["derived", "6400ms"])
def test_a_rolling_restart_reports_no_fault_and_delays_nothing_for_long(hold: str) -> None:
    """With the hold time of rule 6, which is longer than a reformation, nothing is late at receivers that run."""
    rolling = Rolling(FiveCities() if hold == "derived" else FiveCities(hold=hold))
    lead_ns = rolling.deployment.config.timing.lead_ns
    rolling.run(2 * SECOND)
    rolling.faults.clear()
    for node in rolling.deployment.receivers:
        assert rolling.leave(node) < 2 * lead_ns
        rolling.run(2 * SECOND)
        assert len(rolling.ring()) == 5
    assert set(rolling.faults) <= {FaultReason.NAMES[FaultReason.OUTSIDE], FaultReason.NAMES[FaultReason.MEMBERSHIP]}
    assert rolling.largest_gap_ns() <= 2 * lead_ns
    late = rolling.late_while_running()
    assert max(late) <= 2 * lead_ns if hold == "derived" else not late
    assert rolling.late
    rolling.deployment.checker.check_end(rolling.deployment.receivers, SLACK_NS)


BREAKS = {"leaver-not-counted": "witness kept"}
"""What breaks first in the random search, clause by clause."""


@pytest.mark.parametrize("name", BREAKS)
def test_random_search_finds_a_clause_that_is_taken_out(name: str) -> None:
    found = first_failing_seed("ring", name, range(120, 130))
    assert found is not None
    assert (found.broken or "").split(":")[0] == BREAKS[name]


def test_a_member_without_a_server_leaves_without_an_answer() -> None:
    rolling = Rolling()
    for server in rolling.deployment.servers:
        server.stop()
    assert rolling.leave(rolling.deployment.receivers[0]) >= LEAVE_LIMIT_NS


def test_some_histories_have_planned_stops() -> None:
    stops = [outcome.planned_stops for outcome in run_seeds("ring", range(100, 110))]
    assert sum(stops) > 5
    assert 0 in stops

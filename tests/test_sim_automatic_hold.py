"""The hold time of a simulated ring follows its delays: they double, and later halve (rule W10)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from levelcast.overlay.hold_feedback import FeedbackRules
from levelcast.protocol.config import StripeConfig
from levelcast.sim.automatic_hold import AutomaticHold
from levelcast.sim.engine.network import VirtualNetwork
from levelcast.sim.scenarios.steady import Roles, SteadyWorld, steady_world

MS = 1_000_000
SECOND = 1_000 * MS
SLOT_NS = 20 * MS
HOLD_NS = 45 * MS


class ShortHold(SteadyWorld):
    """A ring that starts with a hold time for its delays, not with that of rule 6."""

    def __init__(
        self, config: StripeConfig, roles: Roles, network: VirtualNetwork, seed: int, gap_ns: int, clock_error_ns: int
    ) -> None:
        config = replace(config, timing=replace(config.timing, hold_ns=HOLD_NS))
        super().__init__(config, roles, network, seed, gap_ns, clock_error_ns)


def follow(
    lengthen_s: int, shorten_s: int, calm_s: int, slow_s: int, fast_s: int, loss: float = 0.0
) -> list[list[int]]:
    """Run with the delays, with twice the delays, and with the delays again; return the hold times of each phase."""
    ring = steady_world(3, loss, slot_ns=SLOT_NS, sources=1, gap_ns=50 * MS, build=ShortHold)
    ring.form()
    rules = FeedbackRules(1e-5, lengthen_s * SECOND, shorten_s * SECOND, 2 * SLOT_NS, 2 * SECOND)
    automatic = AutomaticHold(ring.world, rules)
    automatic.start(ring.world.nodes[member] for member in ring.roles.members)
    phases: list[list[int]] = []
    seen = 0
    delays = ring.world.network.delay_ns
    for lasting_s, factor in ((calm_s, 1.0), (slow_s, 2.0), (fast_s, 0.5)):
        for pair in delays:
            delays[pair] = int(delays[pair] * factor)
        ring.load(lasting_s * SECOND)
        phases.append([each.hold_ns for each in automatic.chosen[seen:]])
        seen = len(automatic.chosen)
    ring.drain()  # with the checks: the same order and times at all, nothing lost, nothing twice
    in_force = {receiver.hold_ns(ring.world.now) for receiver in ring.receivers}
    assert in_force == {[HOLD_NS, *(hold for phase in phases for hold in phase)][-1]}
    return phases


def check(phases: list[list[int]]) -> None:
    calm, slow, fast = phases
    before = [HOLD_NS, *calm][-1]
    assert slow
    assert before < slow[0] <= 2 * before
    assert all(hold > slow[0] for hold in slow[1:])
    assert fast
    assert fast == sorted(fast, reverse=True)
    assert fast[0] == pytest.approx(0.9 * slow[-1], rel=0.01) or fast[0] > 0.9 * slow[-1]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_it_follows_delays_within_seconds_if_the_file_says_so() -> None:
    check(follow(5, 30, 12, 20, 50))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_another_member_decides_after_the_first_one_failed() -> None:
    ring = steady_world(3, 0.01, slot_ns=SLOT_NS, sources=1, gap_ns=50 * MS, build=ShortHold)
    ring.form()
    automatic = AutomaticHold(ring.world, FeedbackRules(1e-3, 5 * SECOND, 30 * SECOND, 2 * SLOT_NS, 2 * SECOND))
    automatic.start(ring.world.nodes[member] for member in ring.roles.members)
    ring.load(12 * SECOND)
    first = ring.world.nodes[ring.receivers[0].ring_members[0]]
    before = len(automatic.chosen)
    delays = ring.world.network.delay_ns
    for pair in delays:
        delays[pair] *= 2
    first.crash()
    ring.load(30 * SECOND)
    assert len(automatic.chosen) > before
    assert first.id not in automatic.deciders[before:]
    first.start()
    ring.load(20 * SECOND)
    ring.drain()  # with the checks: the same order and times at all, nothing lost, nothing twice
    assert {receiver.hold_ns(ring.world.now) for receiver in ring.receivers} == {automatic.chosen[-1].hold_ns}


@pytest.mark.campaign
@pytest.mark.timeout(3600)
def test_it_follows_delays_with_a_minute_and_ten_minutes(capsys: pytest.CaptureFixture[str]) -> None:
    phases = follow(60, 600, 120, 240, 1_500)
    with capsys.disabled():
        print(f"\nhold times in ms: {[[hold / 1e6 for hold in phase] for phase in phases]}", flush=True)
    check(phases)

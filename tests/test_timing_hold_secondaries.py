"""The hold time of a ring with secondaries (W12): the protocol itself is on time with it, and late with less."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from levelcast.sim.bulk.paths import Indexes, Times
from levelcast.sim.scenarios.steady import MS
from levelcast.timing.hold import count_slots, derive_hold
from levelcast.timing.hold_bound import BoundInput, bound_hold_ns
from levelcast.timing.hold_rules import HoldInput, HoldRules
from tests.bulk_parts import Small, exact

LAYERS = Small(5, 2, 0.05, gap_ms=60)
SLOTS = 120_000


def group_of(small: Small) -> HoldInput:
    """The small case for the model: primaries first, then the secondaries of each."""
    delays, receivers = small.delays(), small.receivers
    nodes, sources = np.arange(receivers), np.arange(receivers, receivers + small.sources)

    def matrix(senders: Indexes, values: Times) -> Times:
        found = values[np.ix_(senders, nodes)].copy()
        if senders is nodes:
            np.fill_diagonal(found, 0.0)
        return found

    return HoldInput(
        matrix(nodes, delays.delay_ms),
        matrix(nodes, delays.jitter_ms),
        matrix(nodes, delays.loss),
        matrix(sources, delays.delay_ms),
        matrix(sources, delays.jitter_ms),
        matrix(sources, delays.loss),
        slot_ms=small.slot_ms,
        packets=1,
        process_ms=1.0,
        clock_error_ms=0.5,
        late_target=1e-3,
        homes=tuple(np.repeat(np.arange(small.primaries), small.secondaries).tolist()),
    )


def late_in_the_protocol(hold_ms: float) -> float:
    """Return the share of late releases of the receiver with most."""
    ring = exact(replace(LAYERS, hold_ms=hold_ms), 1, 15_000 * MS)
    releases = ring.asked.releases.values()
    assert len(releases) == LAYERS.receivers
    assert min(map(len, releases)) > 400
    return max(float(np.mean(late)) for late in releases)


def test_the_protocol_is_as_late_as_the_model_and_on_time_with_the_derived_hold_time() -> None:
    derived = derive_hold(group_of(LAYERS), slots=SLOTS)
    assert derived.worst.name == "member 10", "a secondary that is far from its primary"
    assert derived.worst.asked == (("member 2", 73),)
    short_ms = 90
    assert 0.5 < derived.late_share(short_ms) / late_in_the_protocol(short_ms) < 2.0
    assert late_in_the_protocol(derived.hold_ms) <= 0.005


@pytest.mark.parametrize("loss", [0.01, 0.05])
def test_the_protocol_holds_slots_when_the_model_does(loss: float) -> None:
    """The tolerances are those of the bulk simulation (docs/world.md)."""
    small = Small(5, 0, loss, gap_ms=60)
    ready = np.concatenate([np.asarray(exact(small, seed, 12_000 * MS).samples.ready_ns) / MS for seed in (1, 2)])
    counts = count_slots(replace(group_of(small), rules=HoldRules(common_time=False)), 60_000, 1)
    needed = counts.needed.sum(axis=0)
    for share, tolerance in ((0.1, 0.06), (0.5, 0.06), (0.9, 0.06), (0.99, 0.15)):
        assert counts.quantile_ms(needed, 1 - share) == pytest.approx(np.quantile(ready, share), rel=tolerance)


def test_secondaries_do_not_change_what_primaries_need() -> None:
    """They add the paths to them to H_j, and nothing else: no primary waits for a secondary."""
    layered = derive_hold(group_of(LAYERS), slots=SLOTS)
    alone = derive_hold(group_of(Small(5, 0, 0.05, gap_ms=60)), slots=SLOTS)
    held = {each.name: each.held_ms for each in layered.receivers}
    for each in alone.receivers:
        assert abs(held[each.name] - each.held_ms) <= 0.25 * each.held_ms


def test_the_bound_covers_secondaries() -> None:
    group = group_of(LAYERS)

    def whole(matrix: Times, unit: float) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(round(value * unit) for value in row) for row in matrix.tolist())

    bound = BoundInput(
        whole(group.delay_ms, MS),
        whole(group.jitter_ms, MS),
        whole(group.loss, 1e9),
        whole(group.source_delay_ms, MS),
        whole(group.source_jitter_ms, MS),
        whole(group.source_loss, 1e9),
        slot_ns=20 * MS,
        witnesses=3,
        packets=1,
        process_ns=MS,
        clock_error_ns=MS // 2,
        target_ppb=1_000_000,
        homes=group.homes,
    )
    rule_6_ns = round(group.rule_6_ms * 1e6)
    derived_ns = derive_hold(group, slots=SLOTS).hold_ms * MS
    alone_ns = bound_hold_ns(replace(bound, homes=(), **_primaries(bound)), rule_6_ns)
    assert derived_ns < bound_hold_ns(bound, rule_6_ns) < rule_6_ns
    assert alone_ns < bound_hold_ns(bound, rule_6_ns)


def _primaries(bound: BoundInput) -> dict[str, Any]:
    square = ("delay_ns", "jitter_ns", "loss_ppb")
    names = (*square, "source_delay_ns", "source_jitter_ns", "source_loss_ppb")
    return {
        name: tuple(tuple(row[:5]) for row in (getattr(bound, name)[:5] if name in square else getattr(bound, name)))
        for name in names
    }

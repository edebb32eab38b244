"""Order entry on the ring's own classes, without faults, agrees with the model."""

from __future__ import annotations

import numpy as np

from benchmarks.fair_entry import model
from levelcast.sim.bulk.cities import made_up_cities
from levelcast.sim.entry_run import run_entry


def test_the_faster_trader_wins_and_nothing_is_late() -> None:
    world = model(made_up_cities(6)[0])
    world = type(world)(world.delays, (0, 1, 2), 0, world.loss, cap_ms=world.cap_ms)
    faster = [6.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    found = run_entry(world, 30, faster_ms=faster)
    assert len(found.places) == 30
    assert found.same
    assert (found.late, found.refused) == (0, 0)
    assert all(found.first_chance(0, other) == 1.0 for other in range(1, 6)), "6 ms are more than a bucket of 5 ms"
    assert 0.2 < found.first_chance(1, 2) < 0.8
    assert 0 < float(np.median(found.closing_ms)) < 500

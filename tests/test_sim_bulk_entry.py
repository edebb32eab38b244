"""The model of order entry: rules differ as their definition says, and E2, E5 and E7 are necessary."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks.fair_entry import model
from levelcast.sim.bulk import entry as model_of
from levelcast.sim.bulk.cities import made_up_cities

WORLD = model(made_up_cities(20)[0])
RELEASES = 3_000


def worst(rule: model_of.Rule, faster_ms: float = 0.0) -> model_of.FirstChances:
    return model_of.chances(WORLD, {"": rule}, (faster_ms,), RELEASES, 1)["", faster_ms]


def test_the_default_is_fair_and_direct_entry_is_not() -> None:
    assert worst(model_of.fair(5.0)).worst < 0.51
    assert worst(model_of.direct).worst > 0.9
    assert worst(model_of.portal).worst > 0.8


def test_the_chance_follows_the_quantum() -> None:
    """With stamps of equal truth the chance with an advantage a is 1/2 + a/2q (E7)."""
    exact = replace(WORLD, stamp_error_ms=0.0)
    for advantage, quantum in ((1.0, 5.0), (2.5, 5.0), (0.5, 1.0)):
        found = model_of.chances(exact, {"": model_of.fair(quantum)}, (advantage,), 20_000, 2)["", advantage]
        away = ~np.eye(WORLD.cities, dtype=bool)
        assert abs(float(found.chance[away].mean()) - (0.5 + advantage / (2 * quantum))) < 0.01


def test_without_the_correction_late_releases_decide() -> None:
    quantum = 0.0
    late = model_of.window_by_stamp(quantum)
    assert worst(late, 0.1).least < 0.75 < worst(model_of.fair(quantum), 0.1).least


def test_long_slots_make_speed_worthless_and_short_ones_the_distance_decisive() -> None:
    assert worst(model_of.by_slot(4000.0)).worst < 0.55
    assert worst(model_of.by_slot(4000.0), 100.0).least < 0.55
    assert worst(model_of.by_slot(5.0)).worst > 0.95


def test_the_slot_of_an_order_is_the_first_of_a_site_that_has_it() -> None:
    rng = np.random.default_rng(3)
    draws = model_of.draw(WORLD, 50, rng, np.zeros((1, WORLD.cities)))
    found = model_of.slots(WORLD, draws, 0.0, 50.0)
    sent = model_of.sent_ms(draws, 0.0)
    members = len(WORLD.ring)
    for release in range(50):
        for city in range(0, WORLD.cities, 7):
            phase = draws.uniform[release] * 50.0 * members
            slot = next(
                slot
                for slot in range(10_000)
                if slot * 50.0 - phase >= sent[release, city] + draws.transit_ms[release, city, slot % members] - 1e-6
            )
            assert slot == found[release, city]


def test_copies_and_cities_gain_nothing_with_the_rule_and_much_without() -> None:
    for copies in (2, 10):
        with_rule, without = model_of.copies_chance(copies, 4_000, 4)
        assert abs(with_rule - 0.5) < 0.04
        assert without > copies / (copies + 1) - 0.05
        assert model_of.connections_chance(copies, 5.0, 20_000, 5) < 0.52
        assert model_of.connections_chance(copies, 0.0, 20_000, 5) > copies / (copies + 1) - 0.05
    others, alone = range(19), 19
    assert model_of.cities_chance(WORLD, model_of.fair(5.0), others, alone, RELEASES, 6) < 0.52
    assert model_of.cities_chance(WORLD, model_of.fair(0.0), others, alone, RELEASES, 6) > 0.9


def test_a_late_site_gains_less_than_its_distance_only_with_the_cap() -> None:
    nearest = float(WORLD.delays.delay_ms[~np.eye(20, dtype=bool)].min())
    assert model_of.late_site_gain_ms(50.0, nearest, WORLD.cap_ms) < 0
    assert model_of.late_site_gain_ms(50.0, nearest, np.inf) > 40


def test_closing_takes_longer_than_the_first_token() -> None:
    named, closed = model_of.closing_ms(WORLD, 5.0, 50.0, 500, 7)
    assert (named >= 0).all()
    assert float(np.median(closed)) > float(np.median(named))

"""Claims in bulk are those of the beats, and a slot is due when the cut-offs of enough claims are over."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from levelcast.sim.bulk.claims import BulkClaims, _covered_ms
from levelcast.sim.bulk.paths import Core, SitePaths
from levelcast.sim.scenarios.steady import MS
from tests.bulk_parts import Small, config_of, core_of

RING = Small(5, 0, 0.0)
LAYERS = Small(5, 2, 0.0)
BEAT_MS = RING.timing().beat_ns / MS


def claims_of(core: Core) -> BulkClaims:
    return BulkClaims(SitePaths(core, np.random.default_rng(1)))


def test_the_cut_offs_are_those_of_the_ring() -> None:
    for small in (RING, LAYERS):
        config = config_of(small)
        expected = [config.cutoff_ns(member + 1) / MS for member in range(5)]
        assert claims_of(core_of(small)).cutoff_ms == pytest.approx(expected, abs=0.01)


def test_a_member_claims_in_its_first_beat_after_it_has_a_slot() -> None:
    """Beat b of member j is at b·β + j/5·β; a clock that is ahead sends it earlier."""
    have = np.full((1, 5), 2.25 * BEAT_MS, np.float32)
    core = replace(core_of(RING), clock_ms=np.array([0.0, 0.0, 0.0, 0.0, -BEAT_MS]))
    said = claims_of(core).said(have, np.array([1_000 * BEAT_MS]))
    assert said[0] == pytest.approx([beat * BEAT_MS for beat in (1003.0, 1003.2, 1002.4, 1002.6, 1001.8)])


def test_a_secondary_delays_the_claim_of_its_primary_until_its_report_but_not_for_ever() -> None:
    have = np.full((2, 15), 50.0, np.float32)
    have[0, 6] = 180.0
    have[1, 8] = np.float32(1e6)
    times = np.array([0.0, 20.0])
    said = claims_of(core_of(LAYERS)).said(have, times) - times[:, None]
    timing = LAYERS.timing()
    usual_ms = 50.0 + (timing.late_ns + 2 * timing.beat_ns) / MS
    config = config_of(LAYERS)
    patience_ms = config.patience_ns(2, config.pace(range(1, 6))) / MS
    assert 180.0 < said[0, 0] < 130.0 + usual_ms < patience_ms
    assert 0 <= said[1, 1] - patience_ms < timing.beat_ns / MS
    assert (said[0, 1:] < usual_ms).all()


def test_a_secondary_does_not_make_the_claim_of_its_primary_late() -> None:
    small = replace(LAYERS, hold_ms=150.0)
    have = np.full((1, 15), 20.0, np.float32)
    have[0, 8] = np.float32(1e6)
    claims = claims_of(core_of(small))
    config = config_of(small)
    patience = [config.patience_ns(member, config.pace(range(1, 6))) / MS for member in range(1, 6)]
    assert claims.patience_ms == pytest.approx(patience, abs=0.01)
    said = claims.said(have, np.array([1_000.0]))[0] - 1_000.0
    assert said[1] + claims.cutoff_ms[1] == pytest.approx(150.0, abs=BEAT_MS)
    assert (said + claims.cutoff_ms <= 150.0).all()


def test_a_lagging_secondary_delays_no_later_slot_until_it_reports() -> None:
    own = np.array([10.0, 30.0, 50.0, 70.0, 90.0])
    reported = np.array([12.0, 75.0, 76.0, 77.0, 110.0])
    lagging = np.array([40.0, 60.0, 80.0, 100.0, 120.0])
    assert _covered_ms(own, reported, lagging).tolist() == [12.0, 60.0, 60.0, 70.0, 110.0]


def test_a_slot_is_due_for_all_at_the_third_cut_off_and_known_before() -> None:
    claims = claims_of(core_of(RING))
    said = np.array([[0.0, 500.0, 30.0, 10.0, 900.0]])
    (heard,) = claims.heard(said)
    assert heard.instant_ms == pytest.approx(sorted(said[0] + claims.cutoff_ms)[2])
    assert (heard.due_ms == heard.instant_ms).all()
    assert (heard.known_ms < heard.instant_ms).all()
    assert heard.known_ms[2] < heard.known_ms[4], "it hears its own beat at once"


def test_the_next_beat_is_after_a_time_and_never_at_it() -> None:
    claims = claims_of(core_of(RING))
    members = np.array([0, 0, 1, 4])
    found = claims.next_beat_ms(members, BEAT_MS * np.array([0.0, 6.5, 6.1, 6.9]))
    assert found == pytest.approx(BEAT_MS * np.array([1.0, 7.0, 6.2, 7.8]))


def test_one_that_hears_nothing_in_time_is_late_alone() -> None:
    """With a fifth of the beats lost and a cut-off for none, some know the third claim only after the instant."""
    core = core_of(RING)
    lossy = replace(core, delays=core.delays.with_loss(0.2))
    said = np.arange(0.0, 40_000.0, 20.0)[:, None] + np.zeros(5)
    heard = list(claims_of(lossy).heard(said))
    alone = np.array([each.due_ms > each.instant_ms for each in heard])
    assert 0 < alone.mean() < 0.5
    assert all((each.due_ms >= each.known_ms).all() for each in heard)


def test_with_one_witness_a_slot_waits_for_no_beat() -> None:
    core = replace(core_of(RING), witnesses=1)
    (heard,) = claims_of(core).heard(np.array([[900.0] * 5]))
    assert heard.instant_ms == -np.inf
    assert (heard.known_ms == -np.inf).all()

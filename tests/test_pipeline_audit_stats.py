"""The statistics of the audits against known values, and their rates of error against what they promise."""

from __future__ import annotations

import numpy as np
import pytest

from levelcast.pipeline.audit.stats import (
    batched,
    design_effect,
    effect,
    histogram,
    holm,
    normal_quantile,
    quantile,
    t_quantile,
    t_tail,
    wilson,
)


def test_students_tails_are_those_of_the_tables() -> None:
    for df, tail, t in ((1, 0.05, 6.313752), (5, 0.025, 2.570582), (10, 0.001, 4.143700), (30, 0.0005, 3.645959)):
        assert t_tail(t, df) == pytest.approx(tail, rel=1e-5)
        assert t_quantile(tail, df) == pytest.approx(t, rel=1e-5)
        assert t_tail(-t, df) == pytest.approx(1 - tail, rel=1e-5)
    assert t_tail(0.0, 7) == pytest.approx(0.5)
    assert t_tail(float("inf"), 3) == 0.0
    assert normal_quantile(0.025) == pytest.approx(1.959964, rel=1e-6)


def test_holm_corrects_step_by_step() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []


def test_wilson_is_that_of_the_books() -> None:
    share = wilson(10, 100, 0.05)
    assert (share.low, share.high) == pytest.approx((0.05523, 0.17437), abs=1e-5)
    assert wilson(0, 100, 0.05).low == 0.0
    assert wilson(10, 100, 0.05, design=4.0).high > share.high
    assert wilson(10, 100, 0.05, design=4.0).low < share.low


def test_bursts_make_a_share_less_sure() -> None:
    counts = np.full(50, 100)
    even = np.full(50, 5)
    burst = np.where(np.arange(50) < 5, 50, 0)
    assert design_effect(even, counts) == 1.0
    assert design_effect(burst, counts) > 10


def test_neighbours_that_are_alike_are_put_together() -> None:
    rng = np.random.default_rng(1)
    noise = rng.normal(size=64)
    assert len(batched(noise * 10, np.full(64, 10))[0]) == 64
    slow = np.repeat(rng.normal(size=16), 4)
    means, counts = batched(slow * 10, np.full(64, 10))
    assert len(means) <= 32
    assert counts.sum() == 640


def ar1(rng: np.random.Generator, n: int, phi: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    noise = rng.normal(size=n) * np.sqrt(1 - phi * phi)
    out = np.empty(n)
    out[0] = rng.normal()
    for i in range(1, n):
        out[i] = phi * out[i - 1] + noise[i]
    return out


@pytest.mark.parametrize("phi", [0.0, 0.9])
def test_at_the_threshold_itself_the_level_is_kept(phi: float) -> None:
    """The hardest clean case: the truth lies exactly on the threshold. 5 % may be called beyond it."""
    rng = np.random.default_rng(2)
    found = 0
    for _ in range(400):
        values = 1.0 + ar1(rng, 64 * 40, phi)
        sums = values.reshape(64, -1).sum(axis=1)
        told = effect(sums, np.full(64, 40), 1.0, 0.05)
        assert told is not None
        found += told.p < 0.05
    assert found / 400 < 0.085  # 5 % and three standard errors


def test_an_effect_has_its_interval_and_nothing_is_said_of_too_little() -> None:
    rng = np.random.default_rng(3)
    sums = (3.0 + rng.normal(size=64)) * 10
    told = effect(sums, np.full(64, 10), 1.0, 0.001)
    assert told is not None
    assert told.low < 3.0 < told.high
    assert told.p < 1e-6
    assert effect(sums[:7], np.full(7, 10), 1.0, 0.001) is None


def test_quantiles_of_a_histogram_are_within_six_percent() -> None:
    rng = np.random.default_rng(4)
    values = rng.lognormal(10, 1.5, 20_000)
    bins = histogram(values[:9_000]) + histogram(values[9_000:])
    for share in (0.5, 0.99, 0.999):
        assert quantile(bins, share) == pytest.approx(float(np.quantile(values, share)), rel=0.07)
    assert quantile(histogram(-values), 0.5) == pytest.approx(-float(np.median(values)), rel=0.07)
    assert quantile(histogram(np.zeros(3)), 0.5) == 0.0
    assert quantile(histogram(np.zeros(0)), 0.5) == 0.0

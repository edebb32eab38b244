"""Statistics for the audits, as functions of arrays.

- Consecutive measurements are not independent: a slow minute slows all of its slots. So a mean is judged by the means
  of *batches*, and neighbouring batches are merged until they are no longer correlated.
- A difference is a finding only if it exceeds, with confidence, a threshold that matters in practice. The
  hypothesis tested is |μ| ≤ δ, not μ = 0.
- With many tests, some are positive by chance: Holm's correction bounds the chance of one false finding among all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

LEAST_BATCHES = 8
"""Fewer means do not give an estimate of their variance."""
_PER_DECADE = 40
_EDGES = np.concatenate(([0.0, 1.0], 10 ** (np.arange(1, 14 * _PER_DECADE + 1) / _PER_DECADE)))
BOUNDS: Floats = np.concatenate((-_EDGES[:0:-1], _EDGES))
"""Lower bounds of the histogram bins: 6 % apart, on both sides of 0."""


# -- Student's t ------------------------------------------------------------------------------------------


def t_tail(t: float, df: int) -> float:
    """Return P(T > t) of Student's distribution."""
    if math.isinf(t):
        return 0.0 if t > 0 else 1.0
    half = 0.5 * _beta_ratio(df / (df + t * t), df / 2, 0.5)
    return half if t > 0 else 1.0 - half


def t_quantile(tail: float, df: int) -> float:
    """Return the t that is exceeded with this probability, below a half."""
    low, high = 0.0, 1.0
    while t_tail(high, df) > tail:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if t_tail(middle, df) > tail else (low, middle)
    return high


def normal_quantile(tail: float) -> float:
    """Return the z that is exceeded with this probability, below a half."""
    return -NormalDist().inv_cdf(tail)


def _beta_ratio(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function, by its continued fraction."""
    if x <= 0.0 or x >= 1.0:
        return 0.0 if x <= 0.0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1.0 - _beta_ratio(1.0 - x, b, a)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    tiny = 1e-300
    fraction, c, d = 1.0, 1.0, 0.0
    for i in range(500):
        m = i // 2
        if i == 0:
            step = 1.0
        elif i % 2 == 0:
            step = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        else:
            step = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d = 1.0 / (1.0 + step * d or tiny)
        c = 1.0 + step / (c or tiny)
        fraction *= c * d
        if abs(1.0 - c * d) < 1e-15:
            break
    return front * (fraction - 1.0) / a


# -- means ------------------------------------------------------------------------------------------------


class Effect(NamedTuple):
    """A mean, its confidence interval, and its p value if the true mean is at most the threshold."""

    mean: float
    low: float
    high: float
    p: float
    batches: int


def batched(sums: Floats, counts: Counts) -> tuple[Floats, Counts]:
    """Merge windows in pairs until neighbouring means are no longer correlated; return the means and the counts."""
    kept = counts > 0
    sums, counts = sums[kept], counts[kept]
    while len(sums) >= 2 * LEAST_BATCHES:
        means = sums / counts
        if _alike(means) <= 2 / math.sqrt(len(means)):
            break
        even = len(sums) // 2 * 2
        sums, counts = (each[:even].reshape(-1, 2).sum(axis=1) for each in (sums, counts))
    return sums / np.maximum(counts, 1), counts


def _alike(means: Floats) -> float:
    """Return the autocorrelation of neighbours."""
    around = means - means.mean()
    total = float(around @ around)
    return float(around[1:] @ around[:-1]) / total if total > 0 else 0.0


def effect(sums: Floats, counts: Counts, threshold: float, level: float) -> Effect | None:
    """Test if a mean exceeds ±threshold; return None with too little data. `level` applies to the interval."""
    means, weights = batched(sums, counts)
    if len(means) < LEAST_BATCHES:
        return None
    mean = float(np.average(means, weights=weights))
    # Batches of unequal size are weighted by their size, so their effective number is smaller.
    shares = weights / weights.sum()
    spread = float(np.sqrt((shares**2 * (means - mean) ** 2).sum() * len(means) / (len(means) - 1)))
    # The remaining correlation of neighbours makes the mean less certain than independent batches would.
    left = min(0.5, max(0.0, _alike(means) + 1 / len(means)))
    spread *= math.sqrt((1 + left) / (1 - left))
    df = max(LEAST_BATCHES - 2, math.floor((len(means) - 1) * (1 - left) / (1 + left)))
    if spread == 0.0:
        return Effect(mean, mean, mean, 0.0 if abs(mean) > threshold else 1.0, len(means))
    p = t_tail((abs(mean) - threshold) / spread, df) + t_tail((abs(mean) + threshold) / spread, df)
    wide = t_quantile(level / 2, df) * spread
    return Effect(mean, mean - wide, mean + wide, min(1.0, p), len(means))


def holm(ps: Sequence[float]) -> list[float]:
    """Return each p value corrected for all of them: below the level, it is a finding."""
    order = sorted(range(len(ps)), key=lambda i: ps[i])
    adjusted = [1.0] * len(ps)
    worst = 0.0
    for rank, i in enumerate(order):
        worst = max(worst, min(1.0, ps[i] * (len(ps) - rank)))
        adjusted[i] = worst
    return adjusted


class Share(NamedTuple):
    """A fraction with Wilson's interval."""

    value: float
    low: float
    high: float


def wilson(hits: int, of: int, level: float, design: float = 1.0) -> Share:
    """Return Wilson's score interval. `design` is the ratio of cases to independent cases."""
    if not of:
        return Share(0.0, 0.0, 1.0)
    n, share, z = of / max(1.0, design), hits / of, normal_quantile(level / 2)
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    wide = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return Share(share, max(0.0, middle - wide) if hits else 0.0, min(1.0, middle + wide) if hits < of else 1.0)


def design_effect(hits: Counts, counts: Counts) -> float:
    """Return how much more the fraction varies between windows than for independent cases: late releases are bursty."""
    kept = counts > 0
    hits, counts = hits[kept], counts[kept]
    if len(hits) < 2 or not 0 < hits.sum() < counts.sum():
        return 1.0
    share = hits.sum() / counts.sum()
    expected = counts * share * (1 - share)
    return max(1.0, float(((hits - counts * share) ** 2).sum() / expected.sum()))


# -- histograms -------------------------------------------------------------------------------------------


def histogram(values: npt.NDArray[Any]) -> Counts:
    """Return the number of values in each bin; histograms add up over tasks."""
    return np.bincount(np.searchsorted(BOUNDS, values, "right"), minlength=len(BOUNDS) + 1).astype(np.int64)


def no_bins() -> Counts:
    """Return an empty histogram."""
    return np.zeros(len(BOUNDS) + 1, np.int64)


def add_fields(mine: object, its: object, names: Iterable[str]) -> None:
    """Add the arrays of one task's measures to those of another; skip fields that either of them lacks."""
    for name in names:
        one, other = getattr(mine, name), getattr(its, name)
        if one is not None and other is not None:
            setattr(mine, name, one + other)


def quantile(bins: Counts, share: float) -> float:
    """Return the value that this fraction of the values does not exceed, to within 6 %."""
    total = int(bins.sum())
    if not total:
        return 0.0
    place = int(np.searchsorted(np.cumsum(bins), min(total, math.floor(share * total) + 1)))
    return float(BOUNDS[min(max(place - 1, 0), len(BOUNDS) - 1)])

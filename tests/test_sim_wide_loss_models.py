"""TT's measurements, reproduced: Table 1, the text of Figure 1, continuous against discrete copies in bursts."""

from __future__ import annotations

import math
from random import Random
from statistics import fmean, stdev

import pytest

from levelcast.sim.wide.loss_models import MEASURED_PATHS, MS, BurstLoss, lost_share, received_share
from levelcast.timing.replication import lost_with_outages

MESSAGES = 5_000
TABLE_1 = {"tu": (99.08, 99.96, 99.96), "ucla": (89.74, 99.16, 99.84), "des": (88.36, 98.20, 99.84)}
"""Received messages in percent, with 1, 2 and 3 copies."""


def band(probability: float, share: float = 0.99) -> tuple[int, int]:
    """The least and the largest of 5,000 messages that are lost, with equal tails outside."""
    tail, term, below = (1 - share) / 2, (1 - probability) ** MESSAGES, 0.0
    low = None
    for lost in range(MESSAGES + 1):
        if lost:
            term *= (MESSAGES - lost + 1) / lost * probability / (1 - probability)
        below += term
        if low is None and below > tail:
            low = lost
        if below >= 1 - tail:
            assert low is not None
            return low, lost
    raise AssertionError("no band")


@pytest.mark.parametrize("copies", [1, 2, 3])
@pytest.mark.parametrize("site", TABLE_1)
def test_table_1_is_inside_the_bands_of_the_simulated_network(site: str, copies: int) -> None:
    path = MEASURED_PATHS[site]
    low, high = band(lost_with_outages(path.loss, copies, path.outage))
    printed = round(MESSAGES * (1 - TABLE_1[site][copies - 1] / 100))
    simulated = round(MESSAGES * (1 - received_share(path, copies, MESSAGES, Random(f"{site} {copies}"))))
    assert low <= printed <= high
    assert low <= simulated <= high


def test_without_outages_table_1_is_outside_at_tu() -> None:
    _, high = band(lost_with_outages(MEASURED_PATHS["tu"].loss, 3, 0.0))
    assert round(MESSAGES * (1 - TABLE_1["tu"][2] / 100)) > high


def test_text_of_figure_1() -> None:
    rng = Random(1)
    delays = {
        site: [delay for _ in range(MESSAGES) for delay in path.delays_ms(1, rng)]
        for site, path in MEASURED_PATHS.items()
    }
    within = sum(120 <= delay <= 150 for delay in delays["ucla"]) / MESSAGES
    assert 0.27 < within < 0.33
    assert 235 < fmean(delays["des"]) < 245
    assert 57 < fmean(delays["tu"]) < 63
    near, middle, far = (delays[site] for site in ("tu", "ucla", "des"))
    assert len(near) > len(middle) > len(far)
    assert stdev(near) < stdev(middle) < stdev(far)


def both_lost(loss: float, burst_ms: float, spacing_ms: float) -> float:
    """The probability that both of two copies are lost: the second is in the same bad spell, or in another one."""
    return loss * (loss + (1 - loss) * math.exp(-spacing_ms / burst_ms / (1 - loss)))


@pytest.mark.parametrize(
    ("burst_ms", "spacing_ms", "expected"),
    [(5, 0, 1.0e-2), (5, 10, 1.4e-3), (5, 25, 1.6e-4), (20, 10, 6.1e-3), (20, 25, 2.9e-3), (100, 100, 3.7e-3)],
)
def test_two_copies_in_bursts(burst_ms: float, spacing_ms: float, expected: float) -> None:
    assert both_lost(0.01, burst_ms, spacing_ms) == pytest.approx(expected, rel=0.06)
    messages, every_ns = 60_000, int(40 * burst_ms * MS)
    found = lost_share(BurstLoss(0.01, burst_ms * MS, Random(3)), 2, int(spacing_ms * MS), messages, every_ns)
    assert abs(found - expected) < 4.5 * math.sqrt(expected / messages) + 0.06 * expected


def test_discrete_copies_help_in_bursts_and_continuous_ones_do_not() -> None:
    def share(copies: int, spacing_ms: int) -> float:
        return lost_share(BurstLoss(0.05, 20 * MS, Random(7)), copies, spacing_ms * MS, 30_000, 600 * MS)

    single = share(1, 0)
    assert share(3, 0) > 0.8 * single
    assert share(2, 80) < 0.15 * single  # four mean bursts apart
    assert share(3, 80) < share(2, 80)

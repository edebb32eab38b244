"""The benchmark of `levelcast publish`: it runs the commands, and attributes the time to its causes."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.publish import CASES, HERE, Code, PublishCase, Published, compare, head_of, limits, network_of, report
from levelcast.network import parse_network
from levelcast.network.stripe_config import ring_config


def test_the_differences_between_cases_are_attributed() -> None:
    rates = {"no loss": 1_000_000.0, "delays": 250_000.0, "loss": 100_000.0, "loss, credit": 50_000.0}
    assert limits("this", rates) == [
        "this: delay and loss added in the driver: 3.00 of 20.00 µs per trade",
        "this: repair: 6.00 of 20.00 µs per trade",
        "this: credit of 64 instead of 1024: 10.00 of 20.00 µs per trade",
    ]
    assert limits("this", {"no loss": 1.0}) == []


def test_two_versions_are_compared_by_their_best_rounds() -> None:
    codes = [Code("this", HERE), Code("before", HERE)]
    rounds = {"this": [(1.0, 0.2), (0.5, 0.4)], "before": [(2.0, 2.0), (4.0, 3.0)]}
    found = {
        name: [Published(1_000_000, seconds, cpu_s, 1.0) for seconds, cpu_s in each] for name, each in rounds.items()
    }
    result = report({"no loss": found}, codes)
    assert [(each.name, each.against, round(each.ratio, 6)) for each in result.figures] == [
        ("CPU, no loss", "target", 0.2),
        ("rate, no loss", "before", 4.0),
        ("CPU, no loss", "before", 0.1),
    ]


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_each_case_has_its_credit_and_a_status_service(case: PublishCase) -> None:
    network = parse_network(network_of(case))
    assert ring_config(network).credit == case.credit
    assert network.status is not None


@pytest.mark.slow
def test_a_part_of_the_day_is_published_and_timed(data_dir: Path, tmp_path: Path) -> None:
    folder = tmp_path / "head"
    head_of(data_dir / "us_equities_tick_20131007", folder, 1_000)
    codes = [Code("this", HERE)]
    (one,) = compare(codes, CASES[:1], folder, 1)["no loss"]["this"]
    assert one.trades == 4_000
    assert one.rate > 100
    assert 0 < one.cpu_s < 30

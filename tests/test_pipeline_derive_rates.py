"""Message rates, their exponential and the interest of users, on a handful of rows."""

from __future__ import annotations

import math
from datetime import date
from typing import Any

import pytest

from levelcast.pipeline.derive.rates import by_symbol, interest, rate_fit, rates
from levelcast.pipeline.lake.tables import INTEREST, RATE_FIT, RATES
from tests.spark_parts import spark

__all__ = ["spark"]

pytestmark = pytest.mark.timeout(300)

DAY = date(2026, 11, 16)
T0 = 1_794_787_200_000_000_000
S = 1_000_000_000


def records(spark: Any, counts: dict[str, int], at_s: int = 0) -> Any:
    rows = [
        (DAY, symbol, T0 + (at_s * S) + n, None, None, None) for symbol, count in counts.items() for n in range(count)
    ]
    return spark.createDataFrame(
        rows, "day date, symbol string, ts_recv long, venue string, publisher_id int, instrument_id long"
    )


def test_messages_by_symbol_and_time_of_day(spark: Any) -> None:
    rows = records(spark, {"A": 30, "B": 1}).union(records(spark, {"A": 60}, at_s=659))
    found = {(row.symbol, row.start_s): (row.messages, row.rate) for row in RATES.shape(rates(rows)).collect()}
    assert found == {("A", 0): (30, 0.1), ("A", 600): (60, 0.2), ("B", 0): (1, 1 / 300)}
    total = {row.symbol: row.rate for row in by_symbol(rates(rows)).collect()}
    assert total == {"A": 90 / 900, "B": 1 / 900}


def test_an_exponential_is_found_again(spark: Any) -> None:
    decay = 5.0
    counts = {f"S{rank:02}": round(20_000 * math.exp(-rank / decay)) for rank in range(25)}
    symbols = [(DAY, symbol, 0, 300, count) for symbol, count in counts.items()]
    rows = spark.createDataFrame(symbols, "day date, symbol string, start_s int, seconds int, messages long")
    (fit,) = RATE_FIT.shape(rate_fit(rows)).collect()
    assert fit.decay == pytest.approx(decay, rel=0.01)
    assert fit.scale == pytest.approx(20_000 / 300, rel=0.01)
    assert fit.r2 > 0.999
    assert (fit.symbols, fit.top_symbols, fit.messages) == (25, 3, sum(counts.values()))
    assert fit.top_share == pytest.approx(sum(sorted(counts.values())[-3:]) / sum(counts.values()))


def test_equal_rates_and_a_single_symbol_have_no_decay(spark: Any) -> None:
    (fit,) = rate_fit(rates(records(spark, {"A": 5, "B": 5}))).collect()
    assert fit.decay is None
    (fit,) = rate_fit(rates(records(spark, {"A": 5}))).collect()
    assert (fit.decay, fit.top_share) == (None, 1.0)


def test_interest_pairs_have_the_rate_of_their_flow(spark: Any) -> None:
    subscriptions = spark.createDataFrame(
        [("u", "A"), ("u", "A"), ("v", "A"), ("v", "ZZZ")], "user string, flow string"
    )
    found = INTEREST.shape(interest(subscriptions, rates(records(spark, {"A": 30, "B": 1})))).collect()
    assert sorted((row.user, row.flow, row.rate) for row in found) == [("u", "A", 0.1), ("v", "A", 0.1)]

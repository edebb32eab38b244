"""Bars, last prices and venue shares on a handful of rows, by functions from DataFrame to DataFrame."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from levelcast.pipeline.derive import bars as made
from levelcast.pipeline.derive.corrections import AVERAGE_PRICE, ODD_LOT, sets_price, settled
from levelcast.pipeline.lake.tables import BARS, LAST_PRICES, TRADES, VENUE_SHARE
from tests.spark_parts import spark

__all__ = ["spark"]

pytestmark = pytest.mark.timeout(300)

DAY = date(2026, 11, 16)
T0 = 1_794_787_200_000_000_000  # 2026-11-16 00:00 UTC
S = 1_000_000_000


def trade(sequence: int, ns: int, price: int, size: int = 100, **more: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "stripe": 0, "sequence": sequence, "ts_recv": T0 + ns, "ts_event": T0 + ns, "venue": "XNYS", "symbol": "A",
        "action": "T", "price": price, "size": size, "condition": 0, "trade_id": sequence, "day": DAY,
    }  # fmt: skip
    return row | more


def table(spark: Any, *rows: dict[str, Any]) -> Any:
    return spark.createDataFrame([tuple(row.get(name) for name in TRADES.names) for row in rows], TRADES.ddl)


def bars_of(spark: Any, *rows: dict[str, Any]) -> dict[tuple[str, str, str, int], dict[str, Any]]:
    found = BARS.shape(made.bars(table(spark, *rows))).collect()
    return {(row.variant, row.interval, row.venue, (row.start_ns - T0) // S): row.asDict() for row in found}


def test_open_and_close_follow_the_sequence_and_not_the_floors_clock(spark: Any) -> None:
    found = bars_of(
        spark,
        trade(1, 0, 50, ts_event=T0 + 900),
        trade(2, 1, 70, ts_event=T0 + 100),
        trade(3, 2, 40, ts_event=T0 + 500),
        trade(4, 2, 60, ts_event=T0),
    )
    bar = found["all", "1s", "XNYS", 0]
    assert [bar[name] for name in ("open", "high", "low", "close")] == [50, 70, 40, 60]
    assert (bar["volume"], bar["trades"], bar["vwap"], bar["notional"]) == (400, 4, 55, 22_000)
    assert found["all", "1d", "ALL", 0]["close"] == 60


def test_across_stripes_the_order_is_timestamp_stripe_sequence(spark: Any) -> None:
    found = bars_of(
        spark,
        trade(9, 5, 10, stripe=1, venue="XTKS"),
        trade(1, 5, 20, stripe=0),
        trade(2, 7, 30, stripe=0),
        trade(10, 7, 40, stripe=1, venue="XTKS"),
    )
    bar = found["all", "1m", "ALL", 0]
    assert (bar["open"], bar["close"]) == (20, 40)
    assert found["all", "1m", "XTKS", 0]["open"] == 10


def test_intervals_and_venues_add_up(spark: Any) -> None:
    found = bars_of(
        spark,
        trade(1, 0, 10),
        trade(2, 59 * S, 20, 50, venue="XNAS"),
        trade(3, 60 * S, 30),
        trade(4, 61 * S, 5, symbol="B"),
    )
    assert {key[3] for key in found if key[:3] == ("all", "1m", "XNYS")} == {0, 60}
    assert [key for key in found if key[:2] == ("all", "1d")]
    assert len(found) == 16 * 2
    bar = found["all", "1m", "ALL", 0]
    assert (bar["volume"], bar["vwap"], bar["trades"]) == (150, 2000 // 150, 2)


def test_sums_of_price_times_size_are_wider_than_64_bits(spark: Any) -> None:
    price, size = 9 * 10**18, 4 * 10**9
    bar = bars_of(spark, *(trade(n, 0, price, size) for n in range(1, 11)))["all", "1d", "ALL", 0]
    assert bar["notional"] == 10 * price * size
    assert bar["vwap"] == price


def test_sums_are_exact_whatever_the_price_and_the_size(spark: Any) -> None:
    prices = [0, 1, -1, 2**63 - 1, -(2**63), 123_456_789_012_345, -123_456_789_012_345]
    sizes = [2**32 - 1, 1, 65_537, 4_000_000_000]
    rows = [trade(n, 0, price, size, symbol=f"{price}") for price in prices for n, size in enumerate(sizes, 1)]
    found = made.bars(table(spark, *rows), ["1m"]).filter("variant = 'all' and venue = 'ALL'").collect()
    assert {int(row.symbol): (row.volume, row.notional, row.vwap) for row in found} == {
        price: (sum(sizes), price * sum(sizes), price) for price in prices
    }


def test_a_size_that_does_not_fit_is_an_error_and_not_a_wrong_sum(spark: Any) -> None:
    with pytest.raises(Exception, match="ARITHMETIC_OVERFLOW"):
        made.bars(table(spark, trade(1, 0, 2**62, 2**40)), ["1m"]).collect()


def test_one_interval_is_the_same_alone_and_among_others(spark: Any) -> None:
    rows = table(spark, *(trade(n, n * 7 * S, 10 * n % 7, stripe=n % 2, venue=f"V{n % 3}") for n in range(1, 40)))
    every = {tuple(row) for row in BARS.shape(made.bars(rows)).collect()}
    apart = [{tuple(row) for row in BARS.shape(made.bars(rows, [name])).collect()} for name in made.INTERVALS]
    assert every == set().union(*apart)
    assert len(every) == sum(map(len, apart))


def test_files_of_one_stripe_make_the_same_bars(spark: Any, tmp_path: Path) -> None:
    rows = table(spark, *(trade(n, -n * S + 90 * S, 10 * n % 7, venue=f"V{n % 3}") for n in range(1, 40)))
    rows.write.partitionBy("stripe").parquet(str(tmp_path / "one"))
    rows.withColumn("stripe", rows["sequence"] % 2).write.partitionBy("stripe").parquet(str(tmp_path / "two"))
    one, two = (spark.read.schema(TRADES.ddl).parquet(str(tmp_path / name)) for name in ("one", "two"))
    assert [made.of_one_stripe(each) for each in (one, two, rows)] == [True, False, False]
    found, expected = ({tuple(row) for row in BARS.shape(made.bars(each)).collect()} for each in (one, rows))
    assert found == expected


def test_busts_and_corrections_are_applied(spark: Any) -> None:
    rows = (
        trade(1, 0, 10, trade_id=7),
        trade(2, 1, 99, trade_id=8),
        trade(3, 2, 30, trade_id=9),
        trade(4, 3, 30, trade_id=9, venue="XNAS"),  # another floor's trade of the same number
        trade(5, 5 * S, 99, trade_id=8, action="C"),
        trade(6, 6 * S, 12, 50, trade_id=7, action="M"),
        trade(7, 7 * S, 11, 60, trade_id=7, action="M"),
        trade(8, 8 * S, 1, trade_id=1000, action="C"),  # of nothing that is here
    )
    found = bars_of(spark, *rows)
    bar = found["all", "1s", "XNYS", 0]
    assert (bar["open"], bar["high"], bar["close"], bar["volume"], bar["trades"]) == (11, 30, 30, 160, 2)
    assert not any(key[3] >= 5 for key in found if key[1] == "1s")
    assert settled(table(spark, *rows)).count() == 3


def test_a_trade_after_the_bust_of_its_number_stands(spark: Any) -> None:
    rows = table(spark, trade(1, 0, 10, trade_id=7, action="C"), trade(2, 1, 20, trade_id=7))
    assert [row.sequence for row in settled(rows).collect()] == [2]


def test_conditions_that_set_no_price_are_left_out_of_the_priced_bars(spark: Any) -> None:
    found = bars_of(spark, trade(1, 0, 10), trade(2, 1, 99, condition=AVERAGE_PRICE), trade(3, 2, 1, condition=ODD_LOT))
    assert (found["all", "1s", "ALL", 0]["high"], found["all", "1s", "ALL", 0]["trades"]) == (99, 3)
    assert (found["priced", "1s", "ALL", 0]["high"], found["priced", "1s", "ALL", 0]["trades"]) == (10, 1)
    assert table(spark, trade(1, 0, 10, condition=None)).filter(sets_price()).count() == 1


def test_a_bar_is_complete_when_the_tape_has_come_to_its_end(spark: Any) -> None:
    rows = made.bars(table(spark, trade(1, 0, 10), trade(2, S, 20))).filter("variant = 'all' and venue = 'ALL'")
    assert {row.start_ns - T0 for row in made.complete(rows, T0 + S).collect()} == {0}
    assert made.complete(rows, T0 + S - 1).count() == 0
    assert made.complete(rows, T0 + 86_400 * S).count() == 4


def test_last_price_of_each_venue_and_of_all(spark: Any) -> None:
    rows = table(
        spark, trade(1, 0, 10), trade(2, 5, 20, venue="XNAS"), trade(3, 5, 30, stripe=1, venue="XTKS"), trade(4, 1, 40)
    )
    found = {row.venue: (row.price, row.stripe) for row in LAST_PRICES.shape(made.last_prices(rows)).collect()}
    assert found == {"XNYS": (40, 0), "XNAS": (20, 0), "XTKS": (30, 1), "ALL": (30, 1)}


def test_venue_shares(spark: Any) -> None:
    rows = table(spark, trade(1, 0, 10, 100), trade(2, 1, 20, 300, venue="XNAS"), trade(3, 2, 5, 400, symbol="B"))
    found = {(row.symbol, row.venue): row for row in VENUE_SHARE.shape(made.venue_share(rows)).collect()}
    assert (found["A", "XNAS"].trades, found["A", "XNAS"].volume_share) == (1, 0.75)
    assert found["ALL", "XNYS"].volume == 500
    assert found["ALL", "XNYS"].notional == 3000
    assert found["ALL", "XNYS"].trade_share == pytest.approx(2 / 3)


def test_what_no_definition_has_named_has_its_number(spark: Any) -> None:
    found = bars_of(spark, trade(1, 0, 10, venue=None, publisher_id=4), trade(2, 0, 10, venue=None))
    assert {key[2] for key in found} == {"#4", "UNKNOWN", "ALL"}
    rows = made.parts(settled(table(spark, trade(1, 0, 10, symbol=None, instrument_id=9))), ["1s"]).collect()
    assert [row.symbol for row in rows] == ["#9"]
    assert bars_of(spark, trade(1, 0, 10) | {"price": None}) == {}  # quarantine has it

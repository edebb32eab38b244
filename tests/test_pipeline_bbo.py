"""The best bid and offer, and trades through it, on a handful of rows."""

from __future__ import annotations

from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from levelcast.pipeline import bbo as made
from levelcast.pipeline.settle import SWEEP
from levelcast.pipeline.tables import QUOTES, TRADES
from tests.spark_parts import spark

__all__ = ["spark"]

pytestmark = pytest.mark.timeout(300)

DAY = date(2026, 11, 16)


def quote(
    sequence: int, venue: str, bid: int | None, ask: int | None, side: str = "N", size: int = 1, **more: Any
) -> Any:
    row = {
        "stripe": 0, "sequence": sequence, "ts_recv": sequence, "venue": venue, "symbol": "A", "side": side,
        "bid_px": bid, "ask_px": ask, "bid_sz": size, "ask_sz": size, "day": DAY,
    }  # fmt: skip
    return row | more


def trade(sequence: int, venue: str, price: int, **more: Any) -> Any:
    row = {
        "stripe": 0, "sequence": sequence, "ts_recv": sequence, "venue": venue, "symbol": "A", "action": "T",
        "price": price, "size": 10, "condition": 0, "trade_id": sequence, "day": DAY,
    }  # fmt: skip
    return row | more


def frame(spark: Any, table: Any, rows: list[Any]) -> Any:
    return spark.createDataFrame([tuple(row.get(name) for name in table.names) for row in rows], table.ddl)


QUOTED = [
    quote(1, "X", 100, 110),
    quote(2, "Y", 101, 112, size=3),
    quote(3, "X", 101, 0, side="B", size=5),  # its offer stands
    quote(4, "Y", None, 105),  # no bid any more
    quote(5, "Z", 105, 120),
    quote(6, "Z", 107, None, side="B"),
    quote(7, "X", 0, 0, side="N", size=0),
]


def test_best_of_all_venues_after_every_quote(spark: Any) -> None:
    found = made.bbo(frame(spark, QUOTES, QUOTED)).orderBy("sequence").collect()
    seen = [(row.best_bid, row.best_bid_size, row.best_ask, row.best_ask_size, row.state) for row in found]
    assert seen == [
        (100, 1, 110, 1, "normal"),
        (101, 3, 110, 1, "normal"),
        (101, 8, 110, 1, "normal"),
        (101, 5, 105, 1, "normal"),
        (105, 1, 105, 1, "locked"),
        (107, 1, 105, 1, "crossed"),
        (107, 1, 105, 1, "crossed"),
    ]
    assert [(row.venue_bid, row.venue_ask) for row in found[2:4]] == [(101, 110), (None, 105)]
    assert (found[6].venue_bid, found[6].venue_bid_size) == (None, None)


def test_symbols_and_days_begin_with_an_empty_market(spark: Any) -> None:
    rows = [
        quote(1, "X", 100, 110),
        quote(2, "X", 5, None, side="B", symbol="B"),
        quote(3, "X", 6, None, "B", day=date(2026, 11, 17)),
    ]
    found = {row.sequence: row for row in made.bbo(frame(spark, QUOTES, rows)).collect()}
    assert [found[n].state for n in (1, 2, 3)] == ["normal", "one-sided", "one-sided"]


def test_trades_through_another_venues_quote(spark: Any) -> None:
    quotes = [quote(1, "X", 100, 110), quote(3, "Y", 102, 108), quote(9, "X", 200, 210)]
    trades = [
        trade(2, "Y", 99),  # X bids 100
        trade(4, "Y", 101),  # only its own bid is better
        trade(5, "X", 101, condition=SWEEP),  # Y bids 102
        trade(6, "Z", 109),  # Y offers at 108
        trade(7, "Z", 105),
        trade(8, "Z", 50, trade_id=70),  # busted
        trade(10, "Z", 50, trade_id=70, action="C"),
    ]
    found = (
        made.trade_throughs(frame(spark, TRADES, trades), frame(spark, QUOTES, quotes)).orderBy("sequence").collect()
    )
    seen = [(row.sequence, row.side, row.better_venue, row.better_price, row.by, row.exempt) for row in found]
    assert seen == [(2, "B", "X", 100, 1, False), (5, "B", "Y", 102, 1, True), (6, "A", "Y", 108, 1, False)]


def test_a_market_goes_on_from_batch_to_batch() -> None:
    schema = pa.schema(
        [("day", pa.date32()), *((n, pa.string()) for n in ("symbol", "venue", "side")), ("is_trade", pa.bool_())]
        + [
            (n, pa.int64())
            for n in ("ts_recv", "stripe", "sequence", "ts_event", "bid_px", "bid_sz", "ask_px", "ask_sz")
        ]
    )
    whole = pa.Table.from_pylist([{**row, "is_trade": False} for row in QUOTED], schema=schema)

    def run(size: int) -> Any:
        pieces = list(whole.combine_chunks().to_batches(max_chunksize=size))
        return pa.Table.from_batches(list(made.follow(iter(pieces), made.best_rows))).to_pylist()

    assert run(1) == run(3) == run(100)
    assert len(run(1)) == len(QUOTED)


def test_quotes_of_the_whole_market_take_each_others_place() -> None:
    names = ["X", "Y"]
    rows = [(0, 100, True), (1, 98, True), (0, 0, False), (1, 99, True)]  # venue, bid, whether it tells one
    for size in (1, 4):
        market = made.Market(consolidated=True)
        best: list[int] = []
        for start in range(0, len(rows), size):
            part = rows[start : start + size]
            venue, bid = np.array([each[0] for each in part]), np.array([each[1] for each in part])
            says, none = np.array([each[2] for each in part]), np.zeros(len(part), bool)
            told = made.Told(says, bid, np.full(len(part), 7), none, bid, bid)
            book = market.advance(venue, names, told)
            best += book.bid.max(axis=0).tolist()
            assert book.bid_size.max(axis=0).tolist() == [7] * len(part)
        assert best == [100, 98, 98, 99]

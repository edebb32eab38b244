"""The best bid and offer, and trades through it, on a handful of rows."""

from __future__ import annotations

from datetime import date
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from levelcast.pipeline.derive import bbo as made
from levelcast.pipeline.derive.corrections import SWEEP
from levelcast.pipeline.lake.tables import QUOTES, TRADES
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
            told = [made.QuoteSide(says, bid, np.full(len(part), 7)), made.QuoteSide(none, bid, bid)]
            book = market.advance(venue, names, told)
            best += book.bid.max(axis=0).tolist()
            assert book.bid_size.max(axis=0).tolist() == [7] * len(part)
        assert best == [100, 98, 98, 99]


def market(count: int, seed: int) -> list[Any]:
    """Quotes of one symbol on a few venues, one-sided and empty ones among them, 1 s apart, some at the same time."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        bid = int(rng.integers(95, 105))
        rows.append(
            quote(
                number + 1,
                "XYZ"[rng.integers(3)],
                None if rng.random() < 0.1 else bid,
                None if rng.random() < 0.1 else bid + int(rng.integers(-1, 4)),
                side="NBA"[rng.integers(3)],
                size=int(rng.integers(0, 4)),
                ts_recv=(number // 3) * 1_000_000_000,
                stripe=int(rng.integers(2)),
            )
        )
    return rows


@pytest.mark.parametrize("consolidated", [False, True])
def test_a_large_symbol_cut_by_time_has_the_rows_that_it_has_in_one_piece(spark: Any, consolidated: bool) -> None:
    quotes = market(400, 1) + [quote(n, "X", 1, 2, symbol="B") for n in range(900, 905)]
    trades = [trade(n, "XYZ"[n % 3], 94 + n % 13, ts_recv=(n // 3) * 1_000_000_000) for n in range(1000, 1300)]
    trades = [each | {"ts_recv": (each["sequence"] - 1000) // 3 * 10**9} for each in trades]
    quoted, traded = frame(spark, QUOTES, quotes), frame(spark, TRADES, trades)
    cuts = made.find_cuts(quoted.selectExpr("*"), 50)
    assert max(chunk for _, _, _, chunk in cuts) >= 4
    assert {symbol for _, symbol, _, _ in cuts} == {"A"}

    def rows(found: Any) -> list[Any]:
        return sorted(map(tuple, found.collect()), key=repr)

    whole = rows(made.bbo(quoted, consolidated))
    assert rows(made.bbo(quoted, consolidated, chunk_rows=50)) == whole
    assert len(whole) == len(quotes)
    through = rows(made.trade_throughs(traded, quoted, consolidated=consolidated))
    assert through
    assert rows(made.trade_throughs(traded, quoted, consolidated=consolidated, chunk_rows=70)) == through


def test_the_market_before_a_chunk_goes_on_over_chunks_without_a_quote() -> None:
    def last(chunk: int, venue: str, side: int, sequence: int, price: int) -> Any:
        return SimpleNamespace(day=1, symbol="A", chunk=chunk, venue=venue, side=side, ts_recv=sequence, stripe=0,
                               sequence=sequence, price=price, size=7)  # fmt: skip

    told = [last(0, "X", 0, 1, 100), last(0, "Y", 0, 2, 101), last(3, "X", 0, 9, 99), last(0, "X", 1, 3, 110)]
    starts = made.starts_of(told, consolidated=False)
    whole = [("X", [100, 7, 110, 7]), ("Y", [101, 7, made.NO_ASK, 0])]
    assert [starts[1, "A", chunk] for chunk in range(5)] == [
        [], whole, whole, whole, [("X", [99, 7, 110, 7]), ("Y", [101, 7, made.NO_ASK, 0])],
    ]  # fmt: skip
    best = dict(made.starts_of(told, consolidated=True)[1, "A", 4])
    assert best == {"X": [99, 7, 110, 7], "Y": [made.NO_BID, 0, made.NO_ASK, 0]}

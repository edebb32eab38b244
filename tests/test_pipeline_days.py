"""Two real days through the pipeline, against calculations that share nothing with it: plain Python over the files.

Bars, venue shares and rates of all trades, the best bid and offer of IBM and BAC, and trades through a better quote.
"""

from __future__ import annotations

import csv
import gzip
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import date
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from levelcast.formats.lean import VENUES
from tests.spark_parts import spark

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from levelcast.pipeline.derive import bbo
from levelcast.pipeline.derive.bars import INTERVALS
from levelcast.pipeline.input import load as input_load
from levelcast.pipeline.jobs.refresh import refresh
from levelcast.pipeline.lake.lake import Lake

__all__ = ["spark"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

DAYS = {"2013-10-07": 388_417, "2013-10-08": 654_140}
QUOTES = 585_922
EDT_NS = 4 * 3600 * 10**9
UTC_MIDNIGHT_MS = 20 * 3600 * 1000


class Trade(NamedTuple):
    ns: int
    symbol: str
    venue: str
    price: int
    size: int
    condition: int


def folder(data_dir: Path, day: str) -> Path:
    return data_dir / f"us_equities_tick_{day.replace('-', '')}"


def lines(path: Path) -> Iterator[list[str]]:
    with gzip.open(path, "rt", encoding="ascii") as file:
        yield from csv.reader(file)


def midnight_ns(day: str) -> int:
    return (date.fromisoformat(day) - date(1970, 1, 1)).days * 86_400 * 10**9 + EDT_NS


@cache
def trades_of(path: Path, day: str) -> list[Trade]:
    """Every trade of a day; of one symbol they are in the file's order."""
    begin = midnight_ns(day)
    return [
        Trade(
            begin + int(ms) * 10**6,
            file.name.split("_")[0].upper(),
            VENUES[venue],
            int(price) * 10**5,
            int(size),
            int(condition, 16),
        )
        for file in sorted(path.glob("*_trade.csv.gz"))
        for ms, price, size, venue, condition, _ in lines(file)
    ]


@pytest.fixture(scope="module", params=["2013-10-07", pytest.param("2013-10-08", marks=pytest.mark.campaign)])
def day(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def lake(spark: Any, data_dir: Path, day: str, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """What `levelcast pipeline run --format lean` makes of a day."""
    lake = Lake.create(tmp_path_factory.mktemp("day") / "lake")
    input_load.load(spark, lake, [folder(data_dir, day)], "lean", date.fromisoformat(day), None, lambda _: None)
    refresh(spark, lake, consolidated=True)
    return lake


def test_every_row_is_taken(lake: Lake, day: str) -> None:
    rows = {state.name: state.rows for state in lake.states()}
    quotes = QUOTES if day == "2013-10-07" else 0
    assert rows["trades"] == DAYS[day]
    assert rows.get("quotes", 0) == rows.get("bbo", 0) == quotes
    assert rows["tape"] == DAYS[day] + quotes
    assert rows.get("quarantine", 0) == 0


def bars_by_hand(trades: list[Trade], seconds: int) -> dict[tuple[str, str, int], tuple[int, ...]]:
    """Open, high, low, close, volume, price times size, count. The file's order decides: a symbol has one file."""
    found: dict[tuple[str, str, int], list[int]] = {}
    for trade in trades:
        start = trade.ns // (seconds * 10**9) * seconds * 10**9
        for venue in (trade.venue, "ALL"):
            bar = found.get((trade.symbol, venue, start))
            if bar is None:
                found[trade.symbol, venue, start] = [*[trade.price] * 4, trade.size, trade.price * trade.size, 1]
                continue
            bar[1], bar[2], bar[3] = max(bar[1], trade.price), min(bar[2], trade.price), trade.price
            bar[4] += trade.size
            bar[5] += trade.price * trade.size
            bar[6] += 1
    return {key: tuple(bar) for key, bar in found.items()}


@pytest.mark.parametrize(("interval", "seconds"), INTERVALS.items())
def test_bars(lake: Lake, data_dir: Path, day: str, interval: str, seconds: int) -> None:
    rows = lake.arrow("bars", where=[("interval", "=", interval), ("variant", "=", "all")]).to_pylist()
    found = {
        (row["symbol"], row["venue"], row["start_ns"]): (
            *(row[name] for name in ("open", "high", "low", "close", "volume")), int(row["notional"]), row["trades"]
        )
        for row in rows
    }  # fmt: skip
    expected = bars_by_hand(trades_of(folder(data_dir, day), day), seconds)
    assert len(rows) == len(found)
    assert found == expected
    assert all(row["vwap"] == int(row["notional"]) // row["volume"] for row in rows if row["volume"])
    assert sum(row["trades"] for row in rows if row["venue"] == "ALL") == DAYS[day]
    if interval == "1d":
        assert max(bar[5] for bar in expected.values()) > 2**63  # SPY's price times size


def test_priced_bars_leave_out_conditions(lake: Lake, data_dir: Path, day: str) -> None:
    rows = lake.arrow("bars", where=[("interval", "=", "1d"), ("variant", "=", "priced")]).to_pylist()
    bits = (1, 2, 3, 9, 10, 11, 13, 14, 18, 20, 22, 24, 25, 26, 31)
    without = sum(1 << bit for bit in bits)
    trades = [each for each in trades_of(folder(data_dir, day), day) if not each.condition & without]
    found = {
        (row["symbol"], row["venue"], row["start_ns"]): tuple(
            row[n] for n in ("open", "high", "low", "close", "volume")
        )
        for row in rows
    }
    assert found == {key: bar[:5] for key, bar in bars_by_hand(trades, 86_400).items()}


def test_venue_shares(lake: Lake, data_dir: Path, day: str) -> None:
    expected: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    for trade in trades_of(folder(data_dir, day), day):
        for symbol in (trade.symbol, "ALL"):
            each = expected[symbol, trade.venue]
            each[0] += 1
            each[1] += trade.size
            each[2] += trade.price * trade.size
    rows = lake.arrow("venue_share").to_pylist()
    found = {(row["symbol"], row["venue"]): [row["trades"], row["volume"], int(row["notional"])] for row in rows}
    assert found == dict(expected)
    for row in rows:
        total = sum(each[1] for (symbol, _), each in expected.items() if symbol == row["symbol"])
        assert row["volume_share"] == row["volume"] / total


def test_rates(lake: Lake, data_dir: Path, day: str) -> None:
    """Of all messages: trades, and on the first day quotes."""
    path, begin = folder(data_dir, day), midnight_ns(day)
    expected = Counter((trade.symbol, trade.ns // 10**9 % 86_400 // 300 * 300) for trade in trades_of(path, day))
    for file in path.glob("*_quote.csv.gz"):
        symbol = file.name.split("_")[0].upper()
        expected.update((symbol, (begin + int(row[0]) * 10**6) // 10**9 % 86_400 // 300 * 300) for row in lines(file))
    rows = lake.arrow("rates").to_pylist()
    assert {(row["symbol"], row["start_s"]): row["messages"] for row in rows} == expected
    totals = Counter[str]()
    for (symbol, _), count in expected.items():
        totals[symbol] += count
    fits = lake.arrow("rate_fit").to_pylist()  # the last messages, at 20:00 in New York, are on the next day UTC
    assert sum(fit["messages"] for fit in fits) == sum(totals.values())
    assert max(fits, key=lambda fit: fit["messages"])["symbols"] == 4


def test_last_prices(lake: Lake, data_dir: Path, day: str) -> None:
    expected: dict[tuple[str, str], tuple[int, int]] = {}
    for trade in trades_of(folder(data_dir, day), day):
        for venue in (trade.venue, "ALL"):
            expected[trade.symbol, venue] = (trade.price, trade.size)
    rows = lake.arrow("last_prices").to_pylist()
    assert {(row["symbol"], row["venue"]): (row["price"], row["size"]) for row in rows} == expected


# -- quotes of 7 October ----------------------------------------------------------------------------------


def market_by_hand(path: Path) -> Iterator[tuple[str, Any]]:
    """Quotes and trades of IBM and BAC by time; at the same millisecond by the order of the files' names.

    The files tell the best of the whole market, one side a row: as each venue's own best, 99 % of the regular session
    would be crossed. A day of the tables begins at midnight UTC with an empty market.

    Yields the symbol with (best bid, its size, best offer, its size) for a quote, "through" for a trade that is one.
    """
    for symbol in ("BAC", "IBM"):
        events = []
        for rank, kind in enumerate(("quote", "trade")):
            for number, row in enumerate(lines(path / f"{symbol.lower()}_{kind}.csv.gz")):
                events.append((int(row[0]), rank, number, row))
        events.sort(key=lambda event: event[:3])
        best: dict[str, tuple[int, int, str] | None] = {"B": None, "A": None}
        day_over = False
        for ms, rank, _, row in events:
            if ms >= UTC_MIDNIGHT_MS and not day_over:
                best, day_over = {"B": None, "A": None}, True
            if rank == 0:
                _, bid, bid_size, ask, ask_size, venue, *_ = row
                if int(bid):
                    best["B"] = (int(bid), int(bid_size), venue)
                if int(ask):
                    best["A"] = (int(ask), int(ask_size), venue)
                yield symbol, tuple(each[n] if each is not None else None for each in best.values() for n in (0, 1))
                continue
            price, venue = int(row[1]), row[3]
            for side, worse in (("B", lambda a, b: a < b), ("A", lambda a, b: a > b)):
                there = best[side]
                if there is not None and there[2] != venue and worse(price, there[0]):
                    yield "through", (symbol, ms, VENUES[venue], price, int(row[2]), side, there[0])
                    break


def test_best_quotes_and_trades_through_them(lake: Lake, data_dir: Path, day: str) -> None:
    if day != "2013-10-07":
        pytest.skip("there are no quotes of this day")
    expected: dict[str, list[Any]] = defaultdict(list)
    for kind, value in market_by_hand(folder(data_dir, day)):
        expected[kind].append(value)
    assert sum(len(expected[symbol]) for symbol in ("IBM", "BAC")) == QUOTES

    names = ("best_bid", "best_bid_size", "best_ask", "best_ask_size")
    for symbol in ("BAC", "IBM"):
        rows = lake.arrow("bbo", where=[("symbol", "=", symbol)], columns=["sequence", *names]).to_pylist()
        found = [tuple(row[name] for name in names) for row in sorted(rows, key=lambda row: row["sequence"])]
        assert found == [
            (scaled(bid), bid_size, scaled(ask), ask_size) for bid, bid_size, ask, ask_size in expected[symbol]
        ]

    begin = midnight_ns(day)
    by_hand = Counter(
        (symbol, begin + ms * 10**6, venue, price * 10**5, size, side, better * 10**5)
        for symbol, ms, venue, price, size, side, better in expected["through"]
    )
    columns = ("symbol", "ts_event", "venue", "price", "size", "side", "better_price")
    rows = [row for row in lake.arrow("trade_throughs").to_pylist() if row["symbol"] in ("IBM", "BAC")]
    assert Counter(tuple(row[name] for name in columns) for row in rows) == by_hand
    assert by_hand


@pytest.mark.campaign
@pytest.mark.parametrize("consolidated", [True, False])
def test_the_day_cut_by_time_gives_the_same_rows(spark: Any, lake: Lake, day: str, consolidated: bool) -> None:
    if day != "2013-10-07":
        pytest.skip("there are no quotes of this day")
    quotes, trades = lake.read(spark, "quotes"), lake.read(spark, "trades")
    for make in (partial(bbo.bbo, quotes), partial(bbo.trade_throughs, trades, quotes)):
        made = [make(consolidated=consolidated, chunk_rows=rows) for rows in (1 << 40, 20_000)]
        sums = [rows.selectExpr("count(*)", "bit_xor(xxhash64(*))").collect()[0] for rows in made]
        assert sums[0] == sums[1]
        assert sums[0][0] > 0
    assert len({(cut[1], cut[3]) for cut in bbo.find_cuts(quotes, 20_000)}) >= 20


def scaled(value: int | None) -> int | None:
    return None if value is None else value * 10**5

"""Compute the best bid and offer of every venue and of all, and trades through a better quote.

Quotes and trades of a symbol are processed in one pass in the tape's order (timestamp, stripe, sequence). The state
of a pass is one quote per venue, so it accepts batch after batch and a symbol may have any number of rows. Within a
batch, numpy carries each venue's quote forward along the rows; the best is the maximum of them.

A symbol may have the majority of a day's rows, which would be a single worker's job. So the day of a large symbol is
split by time into chunks of about `CHUNK_ROWS`. A first pass over its quotes finds the last quote of each venue in
each chunk, in any order and next to the data. From these the driver computes the market at the start of each chunk.
Then the chunks are processed in parallel like symbols. Without large symbols there is one pass.

A quote with side B or A updates that side only, and the other stays; N updates both. A side without a price, or with
the size 0, is empty. A day (UTC) begins with an empty market.

Some sources (LEAN's files) report the best of the complete market and its venue, not each venue's own best. Such a
quote replaces those of all venues on that side (`consolidated`); a venue's own quote is valid only while it is best.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from levelcast.extras import arrow
from levelcast.pipeline.derive.corrections import THROUGH_ALLOWED, named, settled
from levelcast.pipeline.lake.tables import BBO, TRADE_THROUGHS, Table
from levelcast.pipeline.session import is_connected

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

NO_BID, NO_ASK = -(2**63), 2**63 - 1
_EMPTY = (NO_BID, NO_ASK)
_ROWS = 8192
CHUNK_ROWS = 1_000_000
"""A symbol's day with more rows than this is split."""
UNIT_NS = 10_000_000_000
"""Chunk boundaries are multiples of this length."""
_LEAST_BYTES = 8
"""Minimum size of a row in a file: small input is not counted first."""
CHUNK = "_chunk"
_LAST = (
    "day int, symbol string, chunk int, venue string, side int, ts_recv long, stripe int, sequence long, price long, "
    "size long"
)
_COMMON = ("day", "symbol", "ts_recv", "stripe", "sequence", "ts_event", "venue")
_QUOTE = ("side", "bid_px", "bid_sz", "ask_px", "ask_sz")
_TRADE = ("price", "size", "condition")


def bbo(quotes: DataFrame, consolidated: bool = False, chunk_rows: int = CHUNK_ROWS) -> DataFrame:
    """Return the table `bbo` of rows of `quotes`: a row for every quote."""
    events = named(quotes).select(*_COMMON, *_QUOTE)
    return _pass(events.withColumn("is_trade", f.lit(False)), BBO, best_rows, consolidated, chunk_rows)


def trade_throughs(
    trades: DataFrame, quotes: DataFrame, consolidated: bool = False, chunk_rows: int = CHUNK_ROWS
) -> DataFrame:
    """Return the table `trade_throughs`: settled trades at a worse price than another venue's quote."""
    quoted = named(quotes).select(*_COMMON, *_QUOTE)
    traded = settled(trades).filter("price is not null").select(*_COMMON, *_TRADE)
    events = (
        quoted.withColumn("is_trade", f.lit(False))
        .unionByName(traded.withColumn("is_trade", f.lit(True)), allowMissingColumns=True)
    )  # fmt: skip
    return _pass(events, TRADE_THROUGHS, through_rows, consolidated, chunk_rows)


def _pass(
    events: DataFrame, table: Table, rows: Callable[[Market, Any], Any], consolidated: bool, chunk_rows: int
) -> DataFrame:
    """Process each symbol's day in order with `rows`."""
    order = ("day", "symbol", "ts_recv", "stripe", "sequence")
    cuts = find_cuts(events, chunk_rows)
    starts: Starts = {}
    if cuts:
        schema = f"day date, symbol string, unit long, {CHUNK} int"
        units = f.broadcast(events.sparkSession.createDataFrame(cuts, schema))
        keys = ["day", "symbol", "unit"]
        placed = events.withColumn("unit", f.expr(f"ts_recv div {UNIT_NS}"))
        large = placed.filter(~f.col("is_trade")).join(units, keys).drop("unit")
        starts = starts_of(large.mapInArrow(last_quotes, _LAST).collect(), consolidated)
        placed = placed.join(units, keys, "left").drop("unit").fillna(0, [CHUNK])
        chunks = len({(day, symbol, chunk) for day, symbol, _, chunk in cuts})
        spread = placed.repartition(max(2 * chunks, _partitions(events)), "day", "symbol", CHUNK)
    else:
        spread = events.repartition("day", "symbol")

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        return follow(batches, rows, consolidated, starts)

    return spread.sortWithinPartitions(*order).mapInArrow(run, table.ddl)


# -- large symbols ----------------------------------------------------------------------------------------


def find_cuts(events: DataFrame, chunk_rows: int) -> list[tuple[Any, str, int, int]]:
    """Return day, symbol, unit of time and number of the chunk, for all units of large symbols."""
    if _bytes(events) < chunk_rows * _LEAST_BYTES:
        return []
    totals = events.groupBy("day", "symbol").count().filter(f.col("count") > chunk_rows).select("day", "symbol")
    large = totals.collect()
    if not large:
        return []
    known = f.broadcast(events.sparkSession.createDataFrame(large, "day date, symbol string"))
    unit = f.expr(f"ts_recv div {UNIT_NS}").alias("unit")
    counted = events.join(known, ["day", "symbol"]).groupBy("day", "symbol", unit).count().collect()
    cuts, seen = [], dict.fromkeys(((row.day, row.symbol) for row in counted), 0)
    for row in sorted(counted, key=lambda row: (row.day, row.symbol, row.unit)):
        cuts.append((row.day, row.symbol, row.unit, seen[row.day, row.symbol] // chunk_rows))
        seen[row.day, row.symbol] += row["count"]
    return cuts


def _bytes(events: DataFrame) -> int:
    """Return Spark's estimate of the input size: that of the files, if it is read from files. Spark Connect does not
    tell it, so the rows are counted."""
    if is_connected(events.sparkSession):
        return 2**63
    return int(str(events._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))


def _partitions(events: DataFrame) -> int:
    return int(events.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)


def last_quotes(batches: Iterator[Any]) -> Iterator[Any]:
    """Yield the last quote of each day, symbol, chunk, venue and side (0 bid, 1 offer), of rows in any order."""
    pa = arrow()
    last: dict[tuple[int, str, int, str, int], tuple[int, ...]] = {}
    for batch in batches:
        at = [_numbers(batch, name, 0) for name in ("ts_recv", "stripe", "sequence")]
        days = np.asarray(batch.column("day").cast(pa.int32()).to_numpy(zero_copy_only=False), np.int64)
        chunks = _numbers(batch, CHUNK, 0)
        words = [batch.column(name).dictionary_encode() for name in ("symbol", "venue")]
        symbols, venues = (each.indices.to_numpy(zero_copy_only=False).astype(np.int64) for each in words)
        names = [each.dictionary.to_pylist() for each in words]
        keys, group = np.unique(np.stack([days, symbols, chunks, venues]), axis=1, return_inverse=True)
        group, order = np.ravel(group), np.lexsort((at[2], at[1], at[0]))[::-1]
        for side, (says, price, size) in enumerate(_told(batch)):
            heard = order[says[order]]
            found, first = np.unique(group[heard], return_index=True)
            for number, row in zip(found.tolist(), heard[first].tolist(), strict=True):
                day, symbol, chunk, venue = keys[:, number].tolist()
                key = (day, str(names[0][symbol]), chunk, str(names[1][venue]), side)
                now = (*(int(each[row]) for each in at), int(price[row]), int(size[row]))
                if key not in last or last[key][:3] < now[:3]:
                    last[key] = now
    columns = list(zip(*((*key, *value) for key, value in last.items()), strict=True))
    kinds = (pa.int32(), pa.string(), pa.int32(), pa.string(), pa.int32(), pa.int64(), pa.int32(), *[pa.int64()] * 3)
    if columns:
        arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, names=[each.split()[0] for each in _LAST.split(", ")])


Key = tuple[int, str, int]
Starts = dict[Key, list[tuple[str, list[int]]]]
"""By day, symbol and chunk: each venue with its bid, its size, its offer and its size."""


def starts_of(last: Iterable[Any], consolidated: bool) -> Starts:
    """Return the market before each chunk, from the last quotes of all chunks."""
    ends: dict[tuple[int, str], dict[int, list[Any]]] = {}
    for row in last:
        ends.setdefault((row.day, row.symbol), {}).setdefault(row.chunk, []).append(row)
    starts: Starts = {}
    for (day, symbol), chunks in ends.items():
        market: dict[str, list[int]] = {}
        for chunk in range(max(chunks) + 2):
            starts[day, symbol, chunk] = [(venue, list(quote)) for venue, quote in market.items()]
            for row in sorted(chunks.get(chunk, ()), key=lambda row: (row.ts_recv, row.stripe, row.sequence)):
                if consolidated:
                    for quote in market.values():
                        quote[2 * row.side : 2 * row.side + 2] = [_EMPTY[row.side], 0]
                mine = market.setdefault(row.venue, [NO_BID, 0, NO_ASK, 0])
                mine[2 * row.side : 2 * row.side + 2] = [row.price, row.size]
    return starts


# -- the pass ---------------------------------------------------------------------------------------------


def follow(
    batches: Iterator[Any],
    rows: Callable[[Market, Any], Any],
    consolidated: bool = False,
    starts: Starts | None = None,
) -> Iterator[Any]:
    """Apply `rows` to each stretch of one day and symbol, or of a chunk of it. A new one begins with its market in
    `starts`, or with an empty one."""
    now: Key | None = None
    market = Market(consolidated)
    for batch in batches:
        for start in range(0, batch.num_rows, _ROWS):
            piece = batch.slice(start, _ROWS)
            for begin, end, key in _stretches(piece):
                if key != now:
                    now, market = key, Market(consolidated)
                    for venue, quote in (starts or {}).get(key, ()):
                        market.names.append(venue)
                        market.quotes.append(list(quote))
                yield rows(market, piece.slice(begin, end - begin))


def _stretches(batch: Any) -> Iterator[tuple[int, int, Key]]:
    symbols = batch.column("symbol").dictionary_encode()
    codes = symbols.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    days = batch.column("day").cast(arrow().int32()).to_numpy(zero_copy_only=False).astype(np.int64)
    chunks = _numbers(batch, CHUNK, 0) if CHUNK in batch.schema.names else np.zeros(batch.num_rows, np.int64)
    edges = np.flatnonzero((np.diff(codes) != 0) | (np.diff(days) != 0) | (np.diff(chunks) != 0)) + 1
    bounds = [0, *edges.tolist(), batch.num_rows]
    for begin, end in itertools.pairwise(bounds):
        if end > begin:
            yield begin, end, (int(days[begin]), symbols.dictionary[int(codes[begin])].as_py(), int(chunks[begin]))


@dataclass(slots=True)
class Market:
    """The quotes of a symbol: for each venue bid, its size, offer, its size."""

    consolidated: bool = False
    names: list[str] = field(default_factory=list)
    quotes: list[list[int]] = field(default_factory=list)

    def advance(self, venue: Ints, names: list[str], told: Sequence[QuoteSide]) -> Book:
        """Return every venue's quote after each row."""
        for name in names:
            if name not in self.names:
                self.names.append(name)
                self.quotes.append([NO_BID, 0, NO_ASK, 0])
        place = np.array([self.names.index(name) for name in names], np.int64)
        at = place[venue] if len(names) else venue
        count = len(at)
        book = Book(list(self.names), at, *(np.empty((len(self.names), count), np.int64) for _ in range(4)))
        for v, last in enumerate(self.quotes):
            mine = at == v
            for column, (says, price, size) in enumerate(told):
                heard = says if self.consolidated else says & mine
                source = np.maximum.accumulate(np.where(heard, np.arange(count), -1))
                carried, own = source >= 0, mine[source]
                filled_price = np.where(carried, np.where(own, price[source], _EMPTY[column]), last[2 * column])
                filled_size = np.where(carried, np.where(own, size[source], 0), last[2 * column + 1])
                book.parts[2 * column][v], book.parts[2 * column + 1][v] = filled_price, filled_size
                if count:
                    last[2 * column], last[2 * column + 1] = int(filled_price[-1]), int(filled_size[-1])
        return book


class QuoteSide(NamedTuple):
    """Bids or offers of the rows; an empty side has the price that loses to every other."""

    says: Bools
    price: Ints
    size: Ints


@dataclass(frozen=True, slots=True)
class Book:
    """Quotes by venue and row."""

    names: list[str]
    at: Ints
    """Venue of each row."""
    bid: Ints
    bid_size: Ints
    ask: Ints
    ask_size: Ints

    @property
    def parts(self) -> tuple[Ints, Ints, Ints, Ints]:
        return self.bid, self.bid_size, self.ask, self.ask_size


def _numbers(batch: Any, name: str, missing: int) -> Ints:
    column = batch.column(name)
    return np.asarray(column.fill_null(missing).to_numpy(zero_copy_only=False), np.int64)


def _told(batch: Any) -> list[QuoteSide]:
    """Return bids and offers."""
    side = batch.column("side").fill_null("N").to_numpy(zero_copy_only=False)
    quote = ~batch.column("is_trade").to_numpy(zero_copy_only=False).astype(bool)
    told = []
    for name, other, empty in (("bid", "A", NO_BID), ("ask", "B", NO_ASK)):
        size = _numbers(batch, f"{name}_sz", 0)
        told.append(
            QuoteSide(quote & (side != other), np.where(size > 0, _numbers(batch, f"{name}_px", empty), empty), size)
        )
    return told


def _advance(market: Market, batch: Any) -> Book:
    venues = batch.column("venue").dictionary_encode()
    codes = venues.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return market.advance(codes, [str(name) for name in venues.dictionary.to_pylist()], _told(batch))


def best_rows(market: Market, batch: Any) -> Any:
    """Return rows of `bbo`."""
    pa = arrow()
    book = _advance(market, batch)
    rows = np.arange(len(book.at))
    best_bid, best_ask = book.bid.max(axis=0), book.ask.min(axis=0)
    bid_total = np.where(book.bid == best_bid, book.bid_size, 0).sum(axis=0)
    ask_total = np.where(book.ask == best_ask, book.ask_size, 0).sum(axis=0)
    no_bid, no_ask = best_bid == NO_BID, best_ask == NO_ASK
    state = np.select(
        [no_bid & no_ask, no_bid | no_ask, best_bid == best_ask, best_bid > best_ask],
        ["empty", "one-sided", "locked", "crossed"],
        "normal",
    )
    made = {"state": pa.array(state.tolist(), pa.string())}
    for name, price, size, empty in (
        ("venue_bid", book.bid[book.at, rows], book.bid_size[book.at, rows], NO_BID),
        ("venue_ask", book.ask[book.at, rows], book.ask_size[book.at, rows], NO_ASK),
        ("best_bid", best_bid, bid_total, NO_BID),
        ("best_ask", best_ask, ask_total, NO_ASK),
    ):
        made[name], made[f"{name}_size"] = (pa.array(each, mask=price == empty) for each in (price, size))
    return _shaped(BBO, batch, made)


def through_rows(market: Market, batch: Any) -> Any:
    """Return rows of `trade_throughs`."""
    pa = arrow()
    book = _advance(market, batch)
    is_trade = batch.column("is_trade").to_numpy(zero_copy_only=False).astype(bool)
    index = np.flatnonzero(is_trade)
    price, own = _numbers(batch, "price", 0)[index], book.at[index]
    others = np.arange(len(book.names))[:, None] != own[None, :]
    bids = np.where(others, book.bid[:, index], NO_BID)
    asks = np.where(others, book.ask[:, index], NO_ASK)
    below, above = price < bids.max(axis=0, initial=NO_BID), price > asks.min(axis=0, initial=NO_ASK)
    hit = np.flatnonzero(below | above)
    index, price, below, bids, asks = index[hit], price[hit], below[hit], bids[:, hit], asks[:, hit]
    by_name = np.argsort(np.array(book.names, object)) if book.names else np.zeros(0, np.int64)
    best = np.where(below, bids.max(axis=0, initial=NO_BID), asks.min(axis=0, initial=NO_ASK))
    showing = np.where(below, bids, asks)[by_name] == best
    venue = by_name[showing.argmax(axis=0)] if len(hit) else np.zeros(0, np.int64)
    condition = _numbers(batch, "condition", 0)[index]
    made = {
        "side": pa.array(np.where(below, "B", "A").tolist(), pa.string()),
        "better_venue": pa.array([book.names[int(v)] for v in venue], pa.string()),
        "better_price": pa.array(best),
        "by": pa.array(np.abs(best - price)),
        "exempt": pa.array((condition & THROUGH_ALLOWED) != 0),
    }
    return _shaped(TRADE_THROUGHS, batch.take(pa.array(index)), made)


def _shaped(table: Table, batch: Any, made: dict[str, Any]) -> Any:
    schema = table.arrow_schema()
    columns = [
        (made[name] if name in made else batch.column(name)).cast(schema.field(name).type) for name in schema.names
    ]
    return arrow().RecordBatch.from_arrays(columns, schema=schema)

"""Compute bars, last prices and venue shares from trades: functions from DataFrame to DataFrame.

Bars are computed in stages. The first computes *parts* next to the trades: one row of every symbol, venue and stripe
in each of the shortest requested intervals. One symbol may have the majority of a day's trades, and its parts are
spread over all workers. They use 64-bit numbers only, so Spark aggregates by hash, in generated code; sums of price
times size, which need more bits, are three such numbers (`_LIMBS`). The next stages combine parts into longer ones.
The last combines stripes, and venues to `ALL`; one worker gets all parts of a symbol and interval, which are few.

The order is that of the tape: within a stripe the sequence, across stripes (timestamp, stripe, sequence), rule 15. A
bar's time is `ts_recv`, the tape's time: a bar is complete when the tape has reached its end, and no late trade can
follow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from levelcast.pipeline.derive.corrections import ALL, NO_PRICE, sets_price, settled

SECOND_NS = 1_000_000_000
INTERVALS = {"1s": 1, "1m": 60, "1d": 86_400}
VARIANTS = ("all", "priced")
_LIMBS = ("sum_0", "sum_32", "sum_64")
"""Sums of price times size, by their bits from 0, 32 and 64."""
_STRIPE_BITS = 16


def bars(trades: DataFrame, intervals: Sequence[str] = tuple(INTERVALS), mask: int = NO_PRICE) -> DataFrame:
    """Return the table `bars` of rows of `trades`: of all trades, and of those that set a price, in one pass."""
    return roll_up(parts(settled(trades), intervals, mask), intervals, one_stripe=of_one_stripe(trades))


def of_one_stripe(trades: DataFrame) -> bool:
    """Return True if all rows are of one stripe, by the folders of their files; other rows may have many stripes."""
    folders = {part for file in trades.inputFiles() for part in file.split("/") if part.startswith("stripe=")}
    return len(folders) == 1


def parts(trades: DataFrame, intervals: Sequence[str], mask: int | None = None) -> DataFrame:
    """Run the first stage: aggregate settled trades of each of the shortest intervals, by symbol, venue and stripe.

    With a `mask` of sale conditions, trades that set a price are separate (`priced`); it is null without.
    """
    step = math.gcd(*(INTERVALS[name] for name in intervals))
    priced = f.lit(None).cast("boolean") if mask is None else sets_price(mask)
    good = trades.filter("price is not null")
    start = f.expr(f"ts_recv div {step * SECOND_NS} * {step}").alias("start")
    return good.groupBy("day", "symbol", "venue", "stripe", start, priced.alias("priced")).agg(
        f.min("sequence").alias("first"),
        f.max("sequence").alias("last"),
        f.min_by("ts_recv", "sequence").alias("first_ns"),
        f.max_by("ts_recv", "sequence").alias("last_ns"),
        f.min_by("price", "sequence").alias("open"),
        f.max_by("price", "sequence").alias("close"),
        f.max("price").alias("high"),
        f.min("price").alias("low"),
        f.sum("size").alias("volume"),
        *(f.sum(limb).alias(name) for name, limb in zip(_LIMBS, limbs(), strict=True)),
        f.count("*").alias("trades"),
    )


def limbs() -> tuple[Column, Column, Column]:
    """Return price times size, of up to 96 bits, as three numbers: the low 32 bits, the next 32, and the signed rest.

    A price has 64 bits with its sign and a size 32 (`levelcast.records`). The products of 16 bits of the price with the
    size, carries included, are below 2^49, and that of its upper half is below 2^63 in magnitude. So each number is
    exact, and so are sums of 2^31 of them. On overflow, Spark raises an error instead of a wrong sum.
    """
    price, size, bits = f.col("price"), f.col("size"), 0xFFFF
    first = price.bitwiseAND(bits) * size
    second = f.shiftright(price, 16).bitwiseAND(bits) * size + f.shiftright(first, 16)
    third = f.shiftright(price, 32) * size + f.shiftright(second, 16)
    low = f.shiftleft(second.bitwiseAND(bits), 16).bitwiseOR(first.bitwiseAND(bits))
    return low, third.bitwiseAND(0xFFFFFFFF), f.shiftright(third, 32)


def notional() -> Column:
    """Return the sum of price times size: one day of SPY exceeds 64 bits."""
    low, middle, top = (f.sum(limb) for limb in limbs())
    return _whole(low, middle, top)


def _whole(low: Column, middle: Column, top: Column) -> Column:
    def times(number: Column, power: int) -> Column:
        return number.cast("decimal(19,0)") * f.lit(str(1 << power)).cast(f"decimal({len(str(1 << power))},0)")

    return (times(top, 64) + times(middle, 32) + low.cast("decimal(19,0)")).cast("decimal(38,0)")


def roll_up(rows: DataFrame, intervals: Sequence[str] = tuple(INTERVALS), *, one_stripe: bool = False) -> DataFrame:
    """Run the later stages: intervals of parts, by venue and for all, of all trades and of those that set a price.

    With `one_stripe` the sequence alone is the order, which saves a stage.
    """
    lengths = sorted((INTERVALS[name], name) for name in intervals)
    shared = lengths[min(1, len(lengths) - 1)][0]
    # The shortest parts are the largest set. They move once: all parts of the next longer interval go together.
    rows = rows.withColumn("group", f.col("start") - f.col("start") % shared).repartition("day", "symbol", "group")
    made = []
    for length, name in lengths:
        if length > shared:
            rows = rows.withColumn("group", f.col("start") - f.col("start") % length)
        if length > lengths[0][0]:
            rows = _longer(rows)
        made.append(_merged(rows, name, one_stripe))
    return reduce(lambda one, other: one.unionByName(other), made)


def _longer(rows: DataFrame) -> DataFrame:
    """Combine all parts of a group into one."""
    return (
        rows.groupBy("day", "symbol", "venue", "stripe", "group", "priced")
        .agg(*_in_sequence(), *_sums())
        .withColumn("start", f.col("group"))
    )


def _merged(rows: DataFrame, interval: str, one_stripe: bool) -> DataFrame:
    """Return bars of parts of their length: venues and stripes combined."""
    spread = rows.withColumn("venue", f.explode(f.array(f.col("venue"), f.lit(ALL)))).withColumn(
        "variant", f.explode(f.when(f.col("priced"), _words(VARIANTS)).otherwise(_words(VARIANTS[:1])))
    )
    keys = ["day", "symbol", "group", "start", "venue", "variant"]
    if one_stripe:
        first, last = f.col("first"), f.col("last")
    else:
        spread = spread.groupBy(*keys, "stripe").agg(*_in_sequence(), *_sums())
        first, last = _place("first_ns"), _place("last_ns")
    found = spread.groupBy(*keys).agg(
        f.min_by("open", first).alias("open"), f.max_by("close", last).alias("close"), *_sums()
    )
    return found.select(
        "day", "symbol", "venue", "variant", f.lit(interval).alias("interval"),
        (f.col("start") * SECOND_NS).alias("start_ns"), "open", "high", "low", "close", "volume", "trades",
        _whole(*map(f.col, _LIMBS)).alias("notional"),
    ).withColumn("vwap", vwap())  # fmt: skip


def _place(at: str) -> Column:
    """Return (timestamp, stripe) as one number: a bar has less than 2^47 ns, and a stripe 16 bits (`wire.parts`)."""
    return f.shiftleft(f.col(at) - f.col("start") * SECOND_NS, _STRIPE_BITS) + f.col("stripe")


def _in_sequence() -> list[Column]:
    return [
        f.min("first").alias("first"),
        f.max("last").alias("last"),
        f.min_by("first_ns", "first").alias("first_ns"),
        f.max_by("last_ns", "last").alias("last_ns"),
        f.min_by("open", "first").alias("open"),
        f.max_by("close", "last").alias("close"),
    ]


def _sums() -> list[Column]:
    added = [f.sum(name).alias(name) for name in ("volume", *_LIMBS, "trades")]
    return [f.max("high").alias("high"), f.min("low").alias("low"), *added]


def _words(words: Sequence[str]) -> Column:
    return f.array(*(f.lit(word) for word in words))


def vwap() -> Column:
    """Return the vwap, rounded towards zero: exact integers, without floating-point error."""
    return f.expr("case when volume > 0 then cast(notional div volume as bigint) end")


def complete(rows: DataFrame, upto_ns: int) -> DataFrame:
    """Return the bars that are final when the tape is complete up to this time."""
    lengths = f.create_map(*(f.lit(each) for name, length in INTERVALS.items() for each in (name, length * SECOND_NS)))
    return rows.filter(f.col("start_ns") + lengths[f.col("interval")] <= f.lit(upto_ns))


def last_prices(trades: DataFrame) -> DataFrame:
    """Return the last trade of each symbol and venue, and of all venues."""
    good = settled(trades).filter("price is not null")
    by_stripe = good.groupBy("day", "symbol", "venue", "stripe").agg(
        f.max("sequence").alias("sequence"),
        *(f.max_by(name, "sequence").alias(name) for name in ("ts_recv", "price", "size")),
    )
    found = f.max_by(
        f.struct("price", "size", "ts_recv", "stripe", "sequence"), f.struct("ts_recv", "stripe", "sequence")
    )
    spread = by_stripe.withColumn("venue", f.explode(f.array(f.col("venue"), f.lit(ALL))))
    return spread.groupBy("day", "symbol", "venue").agg(found.alias("_")).select("day", "symbol", "venue", "_.*")


def venue_share(trades: DataFrame) -> DataFrame:
    """Return the fraction of each venue in a symbol's day, and in the total of the day."""
    parts = (
        settled(trades)
        .filter("price is not null")
        .groupBy("day", "symbol", "venue")
        .agg(f.count("*").alias("trades"), f.sum("size").alias("volume"), notional().alias("notional"))
    )
    sums = [f.sum(name).alias(name) for name in ("trades", "volume", "notional")]
    spread = parts.withColumn("symbol", f.explode(f.array(f.col("symbol"), f.lit(ALL))))
    day = Window.partitionBy("day", "symbol")
    return (
        spread.groupBy("day", "symbol", "venue")
        .agg(*sums)
        .withColumn("trade_share", f.col("trades") / f.sum("trades").over(day))
        .withColumn("volume_share", f.try_divide(f.col("volume"), f.sum("volume").over(day)))
    )

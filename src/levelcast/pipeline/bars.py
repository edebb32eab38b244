"""Bars, last prices and venue shares from trades: functions from DataFrame to DataFrame.

Bars are made in two stages. The first makes one row of every second, symbol, venue and stripe, where the trades are:
one symbol may have most of a day, and its seconds are spread over all workers. Numbers alone go into it, so Spark
aggregates by hash. The second stage rolls those rows up to intervals, and venues to `ALL`.

The order is that of the tape: within a stripe the sequence, across stripes (timestamp, stripe, sequence), rule 15. A
bar's time is `ts_recv`, the tape's: in it a bar is complete when the tape has come to its end, and no late trade can
follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from levelcast.pipeline.settle import ALL, NO_PRICE, sets_price, settled

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SECOND_NS = 1_000_000_000
INTERVALS = {"1s": 1, "1m": 60, "1d": 86_400}
VARIANTS = ("all", "priced")


def bars(trades: DataFrame, intervals: Sequence[str] = tuple(INTERVALS), mask: int = NO_PRICE) -> DataFrame:
    """The table `bars` of rows of `trades`: of all of them, and of those that set a price, in one pass."""
    return roll_up(seconds(settled(trades), mask), intervals)


def seconds(trades: DataFrame, mask: int | None = None) -> DataFrame:
    """The first stage: what happened in each second, by symbol, venue and stripe. The trades are settled.

    With a `mask` of sale conditions, those that set a price apart from the others (`priced`); it is null without.
    """
    from pyspark.sql import functions as f

    priced = f.lit(None).cast("boolean") if mask is None else sets_price(mask)
    good = trades.filter("price is not null")
    second = f.expr(f"ts_recv div {SECOND_NS}").alias("second")
    return good.groupBy("day", "symbol", "venue", "stripe", second, priced.alias("priced")).agg(
        f.min("sequence").alias("first"),
        f.max("sequence").alias("last"),
        f.min_by("ts_recv", "sequence").alias("first_ns"),
        f.max_by("ts_recv", "sequence").alias("last_ns"),
        f.min_by("price", "sequence").alias("open"),
        f.max("price").alias("high"),
        f.min("price").alias("low"),
        f.max_by("price", "sequence").alias("close"),
        f.sum("size").alias("volume"),
        notional().alias("notional"),
        f.count("*").alias("trades"),
    )


def notional() -> Column:
    """The sum of price times size: one day of SPY has more than 64 bits of it."""
    from pyspark.sql import functions as f

    product = f.col("price").cast("decimal(19,0)") * f.col("size").cast("decimal(10,0)")
    return f.sum(product).cast("decimal(38,0)")


def roll_up(parts: DataFrame, intervals: Sequence[str] = tuple(INTERVALS)) -> DataFrame:
    """The second stage: intervals of seconds, of each venue and of all, of all trades and of those that set a price."""
    from pyspark.sql import functions as f

    lengths = f.create_map(*(f.lit(each) for name in intervals for each in (name, INTERVALS[name])))
    spread = (
        parts.withColumn("venue", f.explode(f.array(f.col("venue"), f.lit(ALL))))
        .withColumn("variant", f.explode(f.when(f.col("priced"), _words(VARIANTS)).otherwise(_words(VARIANTS[:1]))))
        .withColumn("interval", f.explode(_words(intervals)))
        .withColumn("start_ns", (f.col("second") - f.col("second") % lengths[f.col("interval")]) * SECOND_NS)
    )
    sums = [
        f.max("high").alias("high"),
        f.min("low").alias("low"),
        f.sum("volume").cast("long").alias("volume"),
        f.sum("notional").cast("decimal(38,0)").alias("notional"),
        f.sum("trades").cast("long").alias("trades"),
    ]
    keys = ["day", "symbol", "venue", "variant", "interval", "start_ns"]
    by_stripe = spread.groupBy(*keys, "stripe").agg(
        f.min("first").alias("first"),
        f.max("last").alias("last"),
        f.min_by("first_ns", "first").alias("first_ns"),
        f.max_by("last_ns", "last").alias("last_ns"),
        f.min_by("open", "first").alias("open"),
        f.max_by("close", "last").alias("close"),
        *sums,
    )
    return (
        by_stripe.groupBy(*keys)
        .agg(
            f.min_by("open", f.struct("first_ns", "stripe", "first")).alias("open"),
            f.max_by("close", f.struct("last_ns", "stripe", "last")).alias("close"),
            *sums,
        )
        .withColumn("vwap", vwap())
    )


def _words(words: Sequence[str]) -> Column:
    from pyspark.sql import functions as f

    return f.array(*(f.lit(word) for word in words))


def vwap() -> Column:
    """Rounded down (towards zero): exact whole numbers, and no trade's price is left out of it by a half."""
    from pyspark.sql import functions as f

    return f.expr("case when volume > 0 then cast(notional div volume as bigint) end")


def complete(rows: DataFrame, upto_ns: int) -> DataFrame:
    """Bars that nothing can be added to, when the tape is complete up to this time."""
    from pyspark.sql import functions as f

    lengths = f.create_map(*(f.lit(each) for name, length in INTERVALS.items() for each in (name, length * SECOND_NS)))
    return rows.filter(f.col("start_ns") + lengths[f.col("interval")] <= f.lit(upto_ns))


def last_prices(trades: DataFrame) -> DataFrame:
    """The last trade of each symbol and venue, and of all venues."""
    from pyspark.sql import functions as f

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
    """What part each venue has of a symbol's day, and of the whole day."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

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

"""Compute message rates by symbol and time of day, their inequality (TH §5.1), and the planner's input."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from levelcast.pipeline.derive.corrections import named

SECONDS = 300
DAY_S = 86_400


def rates(records: DataFrame, seconds: int = SECONDS) -> DataFrame:
    """Count messages of each symbol in intervals of the day, from rows of `tape` or of any table of records."""
    start = f.expr(f"cast((ts_recv div 1000000000) % {DAY_S} div {seconds} * {seconds} as int)")
    return (
        named(records.filter("symbol is not null or instrument_id is not null"))
        .groupBy("day", "symbol", start.alias("start_s"))
        .agg(f.count("*").alias("messages"))
        .withColumn("seconds", f.lit(seconds))
        .withColumn("rate", f.col("messages") / f.lit(seconds))
    )


def by_symbol(rows: DataFrame) -> DataFrame:
    """Return the rate of each symbol over the active part of the day, from rows of `rates`."""
    day = Window.partitionBy("day")
    return (
        rows.withColumn("span", f.max(f.col("start_s") + f.col("seconds")).over(day) - f.min("start_s").over(day))
        .groupBy("day", "symbol")
        .agg(f.sum("messages").alias("messages"), f.max("span").alias("span"))
        .withColumn("rate", f.col("messages") / f.col("span"))
    )


def rate_fit(rows: DataFrame) -> DataFrame:
    """Fit each day's rates as an exponential of the rank; add the fraction of the busiest tenth. Rows of `rates`.

    A straight line through the logarithms: rate = scale · exp(-rank / decay), the busiest symbol has rank 0.
    """
    day = Window.partitionBy("day")
    busiest = day.orderBy(f.desc("messages"), "symbol")
    ranked = (
        by_symbol(rows)
        .withColumn("rank", f.row_number().over(busiest) - 1)
        .withColumn("top", f.col("rank") < f.ceil(f.count("*").over(day) / 10))
        .withColumn("log", f.log("rate"))
    )
    top = f.col("top").cast("long")
    fit = ranked.groupBy("day").agg(
        f.count("*").alias("symbols"),
        f.sum("messages").alias("messages"),
        f.regr_slope("log", "rank").alias("slope"),
        f.regr_intercept("log", "rank").alias("intercept"),
        f.regr_r2("log", "rank").alias("r2"),
        f.sum(top).alias("top_symbols"),
        (f.sum(f.col("messages") * top) / f.sum("messages")).alias("top_share"),
    )
    return fit.withColumns(
        {
            "decay": f.when(f.col("slope") < 0, -1 / f.col("slope")),
            "scale": f.exp(f.col("intercept")),
        }
    ).drop("slope", "intercept")


def interest(subscriptions: DataFrame, rows: DataFrame) -> DataFrame:
    """Return pairs of user and flow with the flow's rate on each day; flows without a message that day are omitted."""
    flows = by_symbol(rows).select("day", f.col("symbol").alias("flow"), "rate")
    return subscriptions.select("user", "flow").distinct().join(flows, "flow")

"""Rows that contradict themselves: kept apart with the reason, and counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

REASONS = {
    "ts_recv <= 0": "it has no time",
    "sequence < 0 or stripe < 0": "its place in the order is negative",
    "kind = 'trade' and (action is null or action not in ('T', 'C', 'M'))": "a trade's action is none of T, C and M",
    "kind = 'trade' and action in ('T', 'M') and price is null": "a trade without a price",
    "kind = 'trade' and size is null": "a trade without a size",
    "kind = 'trade' and action in ('C', 'M') and coalesce(trade_id, 0) = 0": (
        "a bust or correction that names no trade"
    ),
    "kind in ('trade', 'quote', 'order') and side is not null and side not in ('A', 'B', 'N')": (
        "a side that is none of A, B and N"
    ),
    "kind = 'quote' and (bid_sz < 0 or ask_sz < 0)": "a quote of a negative size",
}
"""Conditions on rows of `tape`, each with the sentence for it; the first that holds counts."""


def reason() -> Column:
    """Why a row cannot be taken; null for a good one."""
    from pyspark.sql import functions as f

    cases = [f.when(f.expr(condition), f.lit(sentence)) for condition, sentence in REASONS.items()]
    return f.coalesce(*cases)


def good(rows: DataFrame) -> DataFrame:
    """The rows that can be taken."""
    return rows.filter(reason().isNull())


def bad(rows: DataFrame, source: str) -> DataFrame:
    """The others, as rows of the table `quarantine`."""
    from pyspark.sql import functions as f

    return rows.filter(reason().isNotNull()).select(
        f.lit(source).alias("source"),
        f.col("sequence").alias("position"),
        "stripe",
        reason().alias("reason"),
        f.to_json(f.struct(*rows.columns)).alias("raw"),
        "day",
    )

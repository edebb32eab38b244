"""Apply busts and corrections to trades, and select the trades that set a price.

Rows are those of the table `trades`. A bust (C) or a correction (M) names its trade by floor and `trade_id` (rule 7 of
`levelcast.records`) within the same day: floors may restart their numbers every day. The last one counts, and a
corrected trade keeps its position in the order.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

# The bits of a sale condition in LEAN's files, and so on a tape that was published from them.
CASH, NEXT_DAY, SELLER, SWEEP = 1 << 1, 1 << 2, 1 << 3, 1 << 5
OPENING, CLOSING, REOPENING, DERIVATIVE = 1 << 6, 1 << 7, 1 << 8, 1 << 9
FORM_T, SOLD, STOPPED, EXTENDED, OUT_OF_SEQUENCE = 1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14
STOCK_OPTION, AVERAGE_PRICE, CROSS, PRICE_VARIATION = 1 << 18, 1 << 20, 1 << 21, 1 << 22
OFFICIAL_CLOSE, PRIOR_PRICE, OFFICIAL_OPEN, EXEMPT, ODD_LOT = 1 << 24, 1 << 25, 1 << 26, 1 << 29, 1 << 31

NO_PRICE = (
    CASH | NEXT_DAY | SELLER | DERIVATIVE | FORM_T | SOLD | EXTENDED | OUT_OF_SEQUENCE | STOCK_OPTION | AVERAGE_PRICE
    | PRICE_VARIATION | OFFICIAL_CLOSE | PRIOR_PRICE | OFFICIAL_OPEN | ODD_LOT
)  # fmt: skip
"""Conditions under which the consolidated tapes do not use a trade as the last price."""

THROUGH_ALLOWED = (
    CASH | NEXT_DAY | SELLER | SWEEP | OPENING | CLOSING | REOPENING | DERIVATIVE | FORM_T | STOPPED | EXTENDED | CROSS
    | STOCK_OPTION | AVERAGE_PRICE | PRIOR_PRICE | OFFICIAL_CLOSE | OFFICIAL_OPEN | EXEMPT
)  # fmt: skip
"""Conditions under which a trade may be made through another venue's quote."""

UNKNOWN = "UNKNOWN"
ALL = "ALL"


def named(rows: DataFrame) -> DataFrame:
    """Return the rows with a venue and a symbol in each: numbers replace names that no definition provides."""

    def number(column: str) -> Column:
        return f.concat(f.lit("#"), f.col(column).cast("string"))

    return rows.withColumns(
        {
            "venue": f.coalesce(f.col("venue"), number("publisher_id"), f.lit(UNKNOWN)),
            "symbol": f.coalesce(f.col("symbol"), number("instrument_id"), f.lit(UNKNOWN)),
        }
    )


def settled(trades: DataFrame) -> DataFrame:
    """Return only trades, each after its last bust or correction; named.

    Busts and corrections are few, so they are broadcast to every worker and the trades do not move.
    """
    rows = named(trades)
    changes = (
        rows.filter(f.col("action").isin("C", "M"))
        .groupBy("day", "venue", "trade_id")
        .agg(
            f.max("sequence").alias("_at"),
            f.max_by(f.struct("action", "price", "size", "condition"), "sequence").alias("_new"),
        )
    )
    joined = rows.filter(f.col("action") == "T").join(f.broadcast(changes), ["day", "venue", "trade_id"], "left")
    changed = f.col("_at").isNotNull() & (f.col("_at") > f.col("sequence"))
    new = {
        name: f.when(changed, f.col(f"_new.{name}")).otherwise(f.col(name)) for name in ("price", "size", "condition")
    }
    kept = joined.filter(~changed | (f.col("_new.action") == "M"))
    return kept.withColumns(new).drop("_at", "_new").select(*trades.columns)


def sets_price(mask: int = NO_PRICE) -> Column:
    """Return True for a trade with a sale condition without any bit of `mask`."""
    return f.coalesce(f.col("condition"), f.lit(0)).bitwiseAND(f.lit(mask)) == 0

"""Rows that contradict themselves: kept apart with the reason, and counted.

The rules stand here twice: as conditions of Spark (`REASONS`), and for Arrow's batches (`reasons_of`), which the tapes
go by. A test holds the two against each other.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

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


# -- the same of Arrow's batches --------------------------------------------------------------------------


def reasons_of(rows: pa.RecordBatch) -> pa.Array | None:
    """Why each row of `tape` cannot be taken, null for a good one; None if all are good."""
    found = None
    for condition, sentence in zip(_conditions(rows), REASONS.values(), strict=True):
        holds = pc.fill_null(condition, False)
        if pc.any(holds).as_py():
            here = pc.if_else(holds, pa.scalar(sentence, pa.string()), pa.scalar(None, pa.string()))
            found = here if found is None else pc.coalesce(found, here)
    return found


def _conditions(rows: pa.RecordBatch) -> Iterator[Any]:
    """In the order of `REASONS`. They may be null, as in SQL."""
    of = rows.column

    def one_of(column: str, *values: str) -> Any:
        found = pc.is_in(of(column), pa.array(values, pa.string()))
        return pc.if_else(pc.is_valid(of(column)), found, pa.scalar(None, pa.bool_()))

    trade, quote = pc.equal(of("kind"), "trade"), pc.equal(of("kind"), "quote")
    yield pc.less_equal(of("ts_recv"), 0)
    yield pc.or_kleene(pc.less(of("sequence"), 0), pc.less(of("stripe"), 0))
    yield pc.and_(trade, pc.invert(pc.is_in(of("action"), pa.array(["T", "C", "M"], pa.string()))))
    yield pc.and_kleene(pc.and_kleene(trade, one_of("action", "T", "M")), pc.is_null(of("price")))
    yield pc.and_(trade, pc.is_null(of("size")))
    unnamed = pc.equal(pc.coalesce(of("trade_id"), pa.scalar(0, pa.int64())), 0)
    yield pc.and_kleene(pc.and_kleene(trade, one_of("action", "C", "M")), unnamed)
    yield pc.and_kleene(one_of("kind", "trade", "quote", "order"), pc.invert(one_of("side", "A", "B", "N")))
    yield pc.and_kleene(quote, pc.or_kleene(pc.less(of("bid_sz"), 0), pc.less(of("ask_sz"), 0)))


def bad_of(rows: pa.RecordBatch, reasons: pa.Array, source: str) -> pa.RecordBatch:
    """The rows with a reason, as rows of the table `quarantine`."""
    bad = pc.is_valid(reasons)
    rows, reasons = rows.filter(bad), reasons.filter(bad)
    return pa.RecordBatch.from_pydict(
        {
            "source": pa.array([source] * rows.num_rows, pa.string()),
            "position": rows.column("sequence"),
            "stripe": rows.column("stripe"),
            "reason": reasons,
            "raw": pa.array([_as_json(row) for row in rows.to_pylist()], pa.string()),
            "day": rows.column("day"),
        }
    )


def _as_json(row: dict[str, Any]) -> str:
    """As Spark's `to_json` has it: without what is null."""
    told = {
        name: value.isoformat() if isinstance(value, date) else value
        for name, value in row.items()
        if value is not None
    }
    return json.dumps(told, ensure_ascii=False, separators=(",", ":"))

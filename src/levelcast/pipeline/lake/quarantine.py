"""Separate contradictory rows from valid ones, with the reason.

`RULES` is the only list of rules. A `Condition` gives each as SQL, for Spark, and as an Arrow function, for tapes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from functools import partial, reduce
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f


class Condition(NamedTuple):
    """A condition on rows of `tape`; null where a column that it needs is null, as in SQL."""

    sql: str
    arrow: Callable[[pa.RecordBatch], Any]


def _is_null(column: str) -> Condition:
    return Condition(f"{column} is null", lambda rows: pc.is_null(rows.column(column)))


def _below(column: str, limit: int) -> Condition:
    return Condition(f"{column} < {limit}", lambda rows: pc.less(rows.column(column), limit))


def _is(column: str, value: int | str) -> Condition:
    return Condition(f"{column} = {value!r}", lambda rows: pc.equal(rows.column(column), value))


def _joined(word: str, join: Callable[[Any, Any], Any], *conditions: Condition) -> Condition:
    sql = f" {word} ".join(f"({each.sql})" for each in conditions)
    return Condition(sql, lambda rows: reduce(join, (each.arrow(rows) for each in conditions)))


_either = partial(_joined, "or", pc.or_kleene)
_all = partial(_joined, "and", pc.and_kleene)


def _one_of(column: str, *values: str) -> Condition:
    def arrow(rows: pa.RecordBatch) -> Any:
        found = pc.is_in(rows.column(column), pa.array(values, pa.string()))
        return pc.if_else(pc.is_valid(rows.column(column)), found, pa.scalar(None, pa.bool_()))

    return Condition(f"{column} in ({', '.join(map(repr, values))})", arrow)


def _not(condition: Condition) -> Condition:
    return Condition(f"not ({condition.sql})", lambda rows: pc.invert(condition.arrow(rows)))


_TRADE, _QUOTE = _is("kind", "trade"), _is("kind", "quote")
_PRICED, _NAMING = _one_of("action", "T", "M"), _one_of("action", "C", "M")

RULES = (
    (_below("ts_recv", 1), "no time"),
    (_either(_below("sequence", 0), _below("stripe", 0)), "negative position in the order"),
    (
        _all(_TRADE, _either(_is_null("action"), _not(_one_of("action", "T", "C", "M")))),
        "a trade with an action other than T, C and M",
    ),
    (_all(_TRADE, _PRICED, _is_null("price")), "a trade without a price"),
    (_all(_TRADE, _is_null("size")), "a trade without a size"),
    (
        _all(_TRADE, _NAMING, _either(_is_null("trade_id"), _is("trade_id", 0))),
        "a bust or correction that names no trade",
    ),
    (
        _all(_one_of("kind", "trade", "quote", "order"), _not(_one_of("side", "A", "B", "N"))),
        "a side other than A, B and N",
    ),
    (_all(_QUOTE, _either(_below("bid_sz", 0), _below("ask_sz", 0))), "a quote with a negative size"),
)
"""Conditions, each with its message; the first that holds counts."""


def reason() -> Column:
    """Return the reason for refusing a row, as a column; null for a valid row."""
    return f.coalesce(*(f.when(f.expr(condition.sql), f.lit(sentence)) for condition, sentence in RULES))


def good(rows: DataFrame) -> DataFrame:
    """Return the valid rows."""
    return rows.filter(reason().isNull())


def bad(rows: DataFrame, source: Column) -> DataFrame:
    """Return the refused rows, as rows of the table `quarantine`."""
    return rows.filter(reason().isNotNull()).select(
        source.alias("source"),
        f.col("sequence").alias("position"),
        "stripe",
        reason().alias("reason"),
        f.to_json(f.struct(*(name for name in rows.columns if name != "file"))).alias("raw"),
        "day",
    )


# -- the same for Arrow batches ----------------------------------------------------------------------------


def reasons_of(rows: pa.RecordBatch) -> pa.Array | None:
    """Return the reason for refusing each row of `tape`, null for a valid one; None if all are valid."""
    found = None
    for condition, sentence in RULES:
        holds = pc.fill_null(condition.arrow(rows), False)
        if pc.any(holds).as_py():
            here = pc.if_else(holds, pa.scalar(sentence, pa.string()), pa.scalar(None, pa.string()))
            found = here if found is None else pc.coalesce(found, here)
    return found


def bad_of(rows: pa.RecordBatch, reasons: pa.Array, source: str) -> pa.RecordBatch:
    """Return the rows with a reason, as rows of the table `quarantine`."""
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
    """Return a row as JSON, without null values, like Spark's `to_json`."""
    told = {name: value for name, value in row.items() if value is not None}
    return json.dumps(told, ensure_ascii=False, separators=(",", ":"), default=date.isoformat)

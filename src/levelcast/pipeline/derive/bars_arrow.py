"""Compute the bars that a stream closes with every batch, with Arrow.

A stream closes a few seconds of bars at a time. For so few rows, a Spark query spends more time on planning and code
generation than on the data. So one task reads the files of trades with these seconds and writes the file of their
bars. Longer bars are computed from complete shorter ones. A test compares all of it with
`levelcast.pipeline.derive.bars`.

Trades are used unchanged. After a bust or correction, the stream uses Spark instead
(`levelcast.pipeline.derive.corrections`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as parquet
from pyspark.sql import SparkSession

from levelcast.pipeline.derive.bars import INTERVALS, SECOND_NS, VARIANTS
from levelcast.pipeline.derive.corrections import ALL, UNKNOWN
from levelcast.pipeline.input import tape_to_tables
from levelcast.pipeline.lake.files import File
from levelcast.pipeline.lake.tables import BARS
from levelcast.pipeline.session import on_spark

OF_TRADES = (
    "sequence", "ts_recv", "publisher_id", "venue", "instrument_id", "symbol", "action", "price", "size", "condition",
)  # fmt: skip
_WIDE = pa.decimal128(19, 0)
_PRODUCT = pa.decimal128(38, 0)
_SUMS = [("high", "max"), ("low", "min"), ("volume", "sum"), ("notional", "sum"), ("trades", "sum")]
_DAY_S = INTERVALS["1d"]


def file_seconds(
    spark: SparkSession,
    trades: Sequence[tuple[int, str]],
    begin_ns: int,
    end_ns: int,
    mask: int,
    stage: Path,
    name: str,
) -> list[File]:
    """Write the bars of seconds from files of trades, each with its stripe, as files under `stage`."""

    def made() -> pa.Table:
        parts = []
        for stripe, path in trades:
            found = _read(path, OF_TRADES, "ts_recv", begin_ns, end_ns)
            parts.append(found.append_column("stripe", pa.repeat(pa.scalar(stripe, pa.int32()), found.num_rows)))
        return seconds(pa.concat_tables(parts), mask)

    return _in_a_task(spark, made, stage, name)


def file_longer(
    spark: SparkSession, shorter: Sequence[str], interval: str, begin_ns: int, end_ns: int, stage: Path, name: str
) -> list[File]:
    """Write bars of an interval from files of bars, as files under `stage`."""
    names = [each for each in BARS.names if each != "day"]

    def made() -> pa.Table:
        return longer(pa.concat_tables(_read(path, names, "start_ns", begin_ns, end_ns) for path in shorter), interval)

    return _in_a_task(spark, made, stage, name)


def _in_a_task(spark: SparkSession, made: Callable[[], pa.Table], stage: Path, name: str) -> list[File]:
    def work(order: tape_to_tables.Order) -> list[File]:
        with tape_to_tables.Files(order) as files:
            for batch in made().combine_chunks().to_batches():
                for day in tape_to_tables.days_of(batch):
                    files.write(BARS, day)
        return files.done.get(BARS.name, [])

    (files,) = on_spark(spark, work, [tape_to_tables.Order({BARS.name: str(stage)}, name, {}, "")])
    return files


def _read(path: str, columns: Sequence[str], by: str, begin_ns: int, end_ns: int) -> pa.Table:
    """Return the rows of a file in a time range. The file is almost sorted by time: other row groups are skipped."""
    file = parquet.ParquetFile(path)
    place = file.schema_arrow.get_field_index(by)
    groups = []
    for number in range(file.num_row_groups):
        known = file.metadata.row_group(number).column(place).statistics
        if known is None or not known.has_min_max or (known.min < end_ns and known.max >= begin_ns):
            groups.append(number)
    found = file.read_row_groups(groups, columns=[*columns], use_threads=False)
    at = found[by]
    return found.filter(pc.and_(pc.greater_equal(at, begin_ns), pc.less(at, end_ns)))


# -- from tables to tables --------------------------------------------------------------------------------


def seconds(trades: pa.Table, mask: int) -> pa.Table:
    """Return the bars of one second, by venue and for all, of all trades and of those that set a price.

    The order is (timestamp, stripe, sequence), rule 15; within a stripe that is the order of the sequence.
    """
    trades = trades.filter(pc.and_(pc.equal(trades["action"], "T"), pc.is_valid(trades["price"])))
    if len(pc.unique(trades["stripe"])) > 1:
        trades = trades.sort_by([(name, "ascending") for name in ("ts_recv", "stripe", "sequence")])
    else:
        trades = trades.sort_by("sequence")
    size = pc.coalesce(trades["size"], pa.scalar(0, pa.int64()))
    rows = pa.table(
        {
            "symbol": _named(trades, "symbol", "instrument_id"),
            "venue": _named(trades, "venue", "publisher_id"),
            "start_ns": pc.multiply(pc.divide(trades["ts_recv"], SECOND_NS), SECOND_NS),
            "open": trades["price"],
            "high": trades["price"],
            "low": trades["price"],
            "close": trades["price"],
            "volume": size,
            "notional": pc.multiply(trades["price"].cast(_WIDE), size.cast(_WIDE).cast(pa.decimal128(18, 0))),
            "trades": pa.repeat(pa.scalar(1, pa.int64()), trades.num_rows),
        }
    )
    condition = pc.coalesce(trades["condition"], pa.scalar(0, pa.int64()))
    priced = pc.equal(pc.bit_wise_and(condition, mask), 0)
    chosen = {VARIANTS[0]: _both(rows)}
    chosen[VARIANTS[1]] = chosen[VARIANTS[0]] if pc.all(priced).as_py() else _both(rows.filter(priced))
    parts = [table.append_column("variant", _word(name, table)) for name, table in chosen.items()]
    return _shaped(pa.concat_tables(parts), "1s")


def longer(rows: pa.Table, interval: str) -> pa.Table:
    """Return bars of an interval from the complete ones of the next shorter interval among these rows."""
    shorter = [*INTERVALS][[*INTERVALS].index(interval) - 1]
    rows = rows.filter(pc.equal(rows["interval"], shorter)).sort_by("start_ns")
    length = INTERVALS[interval] * SECOND_NS
    start = pc.multiply(pc.divide(rows["start_ns"], length), length)
    rows = rows.set_column(rows.schema.get_field_index("start_ns"), "start_ns", start)
    return _shaped(_grouped(rows, ["symbol", "venue", "variant", "start_ns"]), interval)


def _both(rows: pa.Table) -> pa.Table:
    """Aggregate by venue, and over all venues."""
    by_venue = _grouped(rows, ["symbol", "venue", "start_ns"])
    if len(pc.unique(rows["venue"])) == 1:
        together = by_venue.drop_columns(["venue"])
    else:
        together = _grouped(rows, ["symbol", "start_ns"])
    return pa.concat_tables(
        [by_venue, together.append_column("venue", _word(ALL, together)).select(by_venue.schema.names)]
    )


def _grouped(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Aggregate rows by key; they are sorted, so the first of a group is its opening."""
    wanted = [("open", "first"), ("close", "last"), *_SUMS]
    found = rows.group_by([*keys], use_threads=False).aggregate(wanted)
    found = found.rename_columns({f"{name}_{how}": name for name, how in wanted})
    notional = found.schema.get_field_index("notional")
    return found.set_column(notional, "notional", found["notional"].cast(_PRODUCT))


def _shaped(rows: pa.Table, interval: str) -> pa.Table:
    """Return rows of the table `bars`, in its order."""
    volume, notional = rows["volume"].to_pylist(), rows["notional"].to_pylist()
    more = {
        "interval": _word(interval, rows),
        "vwap": pa.array([_quotient(n, v) for n, v in zip(notional, volume, strict=True)], pa.int64()),
        "day": pc.divide(rows["start_ns"], _DAY_S * SECOND_NS).cast(pa.int32()).cast(pa.date32()),
    }
    for name, column in more.items():
        rows = rows.append_column(name, column)
    return rows.select(BARS.names).cast(BARS.arrow_schema()).sort_by([(name, "ascending") for name in BARS.order])


def _quotient(notional: Any, volume: int) -> int | None:
    """Divide, rounded towards zero as SQL's `div`."""
    if volume <= 0:
        return None
    whole = abs(int(notional)) // volume
    return whole if notional >= 0 else -whole


def _word(word: str, rows: pa.Table) -> pa.Array:
    return pa.repeat(pa.scalar(word, pa.string()), rows.num_rows)


def _named(rows: pa.Table, name: str, number: str) -> Any:
    """Return the name of each row, or its number if no definition has named it."""
    if not rows[name].null_count:
        return rows[name]
    numbered = pc.binary_join_element_wise("#", rows[number].cast(pa.string()), "")
    return pc.coalesce(rows[name], numbered, pa.scalar(UNKNOWN, pa.string()))

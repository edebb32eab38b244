"""Captures and files of a day in Spark, in the same schema as a tape.

    rows = read_input(spark, ["us_equities_tick_20131007"], "lean", day=date(2013, 10, 7))

`read_both` also gives the rows that could not be read, with the schema of `QUARANTINE`: they are the caller's to keep.
Both come from one table, `Input.both`, so whoever wants to read the files once keeps that. The readers themselves are
`levelcast.formats.captures`; each of its tasks is read where Spark puts it, and only the names of files travel there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from levelcast.formats.captures import FORMATS as CAPTURES
from levelcast.formats.captures import CaptureBatch, NumberedEvents, Task, TradeFileError, read_task, tasks_of
from levelcast.formats.columns import Coded
from levelcast.pipeline.lake.schema import NAMES, RecordRows, Words, arrow_schema, spark_schema, to_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS = ("tape", *CAPTURES)
QUARANTINE = ("source", "position", "reason", "raw")
"""The file; the row's number in it from 1 (of a capture, the packet's); why it was refused; the row itself."""
BATCH_ROWS = 1 << 16
_REFUSED = tuple(f"refused_{name}" for name in QUARANTINE)
_TYPES = (pa.string(), pa.int64(), pa.string(), pa.string())


@dataclass(frozen=True, slots=True)
class Input:
    """What was read: `rows` in the schema of a tape, and what was `quarantine`d; `both` is the one table of the two."""

    rows: DataFrame
    quarantine: DataFrame
    both: DataFrame

    @classmethod
    def of(cls, both: DataFrame) -> Input:
        from pyspark.sql import functions as f

        refused = f.col(_REFUSED[0]).isNotNull()
        columns = [name for name in both.columns if name not in _REFUSED]
        bad = [f.col(name).alias(short) for name, short in zip(_REFUSED, QUARANTINE, strict=True)]
        return cls(both.where(~refused).select(*columns), both.where(refused).select(*bad), both)


def read_input(
    spark: SparkSession,
    paths: Sequence[str | PathLike[str]],
    format: str,
    day: date | None = None,
    *,
    venue: str | None = None,
    columns: Sequence[str] | None = None,
) -> DataFrame:
    """The rows of tapes (`tape`), or of files of another format. Raises TradeFileError before anything runs."""
    return read_both(spark, paths, format, day, venue=venue, columns=columns).rows


def read_both(
    spark: SparkSession,
    paths: Sequence[str | PathLike[str]],
    format: str,
    day: date | None = None,
    *,
    venue: str | None = None,
    columns: Sequence[str] | None = None,
) -> Input:
    """The rows and the refused ones. `day` is for formats that do not say it, `venue` for trades without one."""
    if format == "tape":
        return Input.of(_with_nothing_refused(_tapes(spark, paths, columns)))
    if format not in CAPTURES:
        raise TradeFileError(f'there is no format "{format}": the formats are {", ".join(FORMATS)}')
    tasks = tasks_of([Path(path).absolute() for path in paths], format, day=day, venue=venue)
    names = arrow_schema(columns).names

    def read(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from task_rows(tasks[number], names)

    numbers = spark.range(0, len(tasks), 1, numPartitions=len(tasks))
    return Input.of(numbers.mapInArrow(read, _both_schema(names)))


def _tapes(spark: SparkSession, paths: Sequence[str | PathLike[str]], columns: Sequence[str] | None) -> DataFrame:
    from levelcast.pipeline.input.tape_source import FORMAT, register

    register(spark)
    first, *others = [str(Path(path).absolute()) for path in paths]
    reader = spark.read.format(FORMAT)
    if others:
        reader = reader.option("receivers", ",".join(others))
    if columns is not None:
        reader = reader.option("columns", ",".join(columns))
    return reader.load(first)


def _with_nothing_refused(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    types = ("string", "bigint", "string", "string")
    return rows.select("*", *(f.lit(None).cast(kind).alias(name) for name, kind in zip(_REFUSED, types, strict=True)))


def _both_schema(names: Sequence[str]) -> Any:
    """All columns may be null here: a refused row has none of a tape's."""
    from pyspark.sql.types import LongType, StringType, StructField, StructType

    types = (StringType(), LongType(), StringType(), StringType())
    fields = [StructField(each.name, each.dataType, True) for each in spark_schema(names)]
    return StructType(fields + [StructField(name, kind, True) for name, kind in zip(_REFUSED, types, strict=True)])


# -- where the files are ----------------------------------------------------------------------------------


def task_rows(task: Task, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of a task, those that were refused among them, as Arrow batches for `Input.both`."""
    fields = [pa.field(each.name, each.type) for each in arrow_schema(names)]
    schema = pa.schema(fields + [pa.field(name, kind) for name, kind in zip(_REFUSED, _TYPES, strict=True)])
    for batch in read_task(task):
        for rows in rows_of(batch.placed, names):
            nothing = [pa.nulls(rows.num_rows, kind) for kind in _TYPES]
            yield pa.RecordBatch.from_arrays([*rows.columns, *nothing], schema=schema)
        if batch.refused:
            bad = quarantined(batch)
            nothing = [pa.nulls(bad.num_rows, each.type) for each in fields]
            yield pa.RecordBatch.from_arrays([*nothing, *bad.columns], schema=schema)


def rows_of(placed: Sequence[NumberedEvents], columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Events as rows of the schema, by sequence."""
    parts = [
        RecordRows(
            events.records,
            sequence,
            ts_recv=events.ts_recv,
            symbol=_words(events.symbols),
            venue=_words(events.venues),
            extra=events.extra,
        )
        for events, sequence in placed
    ]
    whole = to_arrow(parts, columns=columns or NAMES)
    for start in range(0, whole.num_rows, BATCH_ROWS):
        yield whole.slice(start, BATCH_ROWS)


def _words(coded: Coded | None) -> Words | None:
    return None if coded is None else Words(coded.codes, coded.names)


def quarantined(batch: CaptureBatch) -> pa.RecordBatch:
    """The refused rows of a batch, with the columns of `QUARANTINE`."""
    columns = [[batch.path] * len(batch.refused), *map(list, zip(*batch.refused, strict=True))]
    arrays = [pa.array(values, kind) for values, kind in zip(columns, _TYPES, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=list(QUARANTINE))

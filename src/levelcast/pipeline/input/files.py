"""Read captures and files of a day in Spark, in the same schema as a tape.

    rows = read_both(spark, ["us_equities_tick_20131007"], "lean", day=date(2013, 10, 7)).rows

It also returns the rows that could not be read, with the schema of `QUARANTINE`, for the caller to store.
Both are parts of one table, `Input.both`; persist it to read the files only once. The readers themselves are
`levelcast.formats.captures`. Spark schedules each of its tasks, and only the names of files are sent to the workers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from os import PathLike
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from levelcast.formats.captures import FORMATS as CAPTURES
from levelcast.formats.captures import CaptureBatch, NumberedEvents, Task, TradeFileError, read_task, tasks_of
from levelcast.pipeline.lake.schema import NAMES, RecordRows, arrow_schema, to_arrow
from levelcast.pipeline.session import parallelism

FORMATS = ("tape", *CAPTURES)
QUARANTINE = ("source", "position", "reason", "raw")
"""The file; the row's number in it from 1 (in a capture, the packet's); the reason for refusal; the row itself."""
BATCH_ROWS = 1 << 16
SHARE_BYTES = 16 << 20
"""Bytes of a file, decompressed, that are worth a task."""
_REFUSED = tuple(f"refused_{name}" for name in QUARANTINE)
_TYPES = (pa.string(), pa.int64(), pa.string(), pa.string())


@dataclass(frozen=True, slots=True)
class Input:
    """Result of a read: `rows` in the schema of a tape, and `quarantine`; `both` is the one table of the two."""

    rows: DataFrame
    quarantine: DataFrame
    both: DataFrame

    @classmethod
    def of(cls, both: DataFrame) -> Input:
        refused = f.col(_REFUSED[0]).isNotNull()
        columns = [name for name in both.columns if name not in _REFUSED]
        bad = [f.col(name).alias(short) for name, short in zip(_REFUSED, QUARANTINE, strict=True)]
        return cls(both.where(~refused).select(*columns), both.where(refused).select(*bad), both)


def read_both(
    spark: SparkSession,
    paths: Sequence[str | PathLike[str]],
    format: str,
    day: date | None = None,
    *,
    venue: str | None = None,
    columns: Sequence[str] | None = None,
) -> Input:
    """Return the rows of tapes (`tape`) or of files of another format, and the refused ones. `day` is for formats
    without a date, `venue` for trades without one. Raises TradeFileError before anything runs."""
    if format == "tape":
        rows = read_tapes(spark, paths, {} if columns is None else {"columns": ",".join(columns)})
        types = ("string", "bigint", "string", "string")
        nothing = (f.lit(None).cast(kind).alias(name) for name, kind in zip(_REFUSED, types, strict=True))
        return Input.of(rows.select("*", *nothing))
    if format not in CAPTURES:
        raise TradeFileError(f'unknown format "{format}"; the formats are {", ".join(FORMATS)}')
    tasks = tasks_of([Path(path).absolute() for path in paths], format, day=day, venue=venue)
    return read_tasks(spark, tasks, columns)


def read_tasks(spark: SparkSession, tasks: Sequence[Task], columns: Sequence[str] | None = None) -> Input:
    """Return the rows of files and the refused ones. A large file is read by several tasks of Spark, if there are not
    enough files for its cores: each decodes the file, and passes on its share of the rows. Passing rows to Java takes
    most of the time, so this needs no index of the file, and works for compressed files and for stateful formats."""
    names = arrow_schema(columns).names
    most = -(-2 * parallelism(spark) // len(tasks))
    sizes = [sum(Path(path).stat().st_size * _packing(path) for path in task.paths) for task in tasks]
    shares = [max(1, min(most, size // SHARE_BYTES)) for size in sizes]
    units = [(task, share, count) for task, count in zip(tasks, shares, strict=True) for share in range(count)]

    def read(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                task, share, count = units[number]
                yield from task_rows(task, names, share, count)

    numbers = spark.range(0, len(units), 1, numPartitions=len(units))
    return Input.of(numbers.mapInArrow(read, from_arrow_schema(_both_schema(names))))


def _packing(path: str) -> int:
    """Return the usual ratio of a file's content to its size."""
    return 5 if path.endswith((".gz", ".zst")) else 1


def read_tapes(
    spark: SparkSession,
    paths: Sequence[str | PathLike[str]],
    options: Mapping[str, str | int],
    *,
    stream: bool = False,
) -> DataFrame:
    """Read tapes through the data source: the first of the paths, and the others for what that one lacks."""
    from levelcast.pipeline.input.tape_source import FORMAT, register

    register(spark)
    first, *others = (str(Path(path).absolute()) for path in paths)
    more = {"receivers": ",".join(others)} if others else {}
    reader = spark.readStream if stream else spark.read
    return reader.format(FORMAT).options(**options, **more).load(first)


def _both_schema(names: Sequence[str]) -> pa.Schema:
    """Return the schema of both parts. All columns are nullable: a refused row has none of a tape's."""
    fields = [(each.name, each.type) for each in arrow_schema(names)]
    return pa.schema(fields + list(zip(_REFUSED, _TYPES, strict=True)))


# -- on the workers ---------------------------------------------------------------------------------------


def task_rows(task: Task, names: Sequence[str], share: int = 0, shares: int = 1) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task, including the refused ones, as Arrow batches for `Input.both`: every batch, or a share
    of them."""
    schema = _both_schema(names)
    turn = 0
    for batch in read_task(task):
        for rows in rows_of(batch.placed, names):
            turn += 1
            if turn % shares == share:
                nothing = [pa.nulls(rows.num_rows, kind) for kind in _TYPES]
                yield pa.RecordBatch.from_arrays([*rows.columns, *nothing], schema=schema)
        if batch.refused and share == 0:
            bad = quarantined(batch)
            nothing = [pa.nulls(bad.num_rows, schema.field(name).type) for name in names]
            yield pa.RecordBatch.from_arrays([*nothing, *bad.columns], schema=schema)


def rows_of(placed: Sequence[NumberedEvents], columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Yield events as rows of the schema, by sequence."""
    parts = [
        RecordRows(
            events.records,
            sequence,
            ts_recv=events.ts_recv,
            symbol=events.symbols,
            venue=events.venues,
            extra=events.extra,
        )
        for events, sequence in placed
    ]
    whole = to_arrow(parts, columns=columns or NAMES)
    for start in range(0, whole.num_rows, BATCH_ROWS):
        yield whole.slice(start, BATCH_ROWS)


def quarantined(batch: CaptureBatch) -> pa.RecordBatch:
    """Return the refused rows of a batch, with the columns of `QUARANTINE`."""
    columns = [[batch.path] * len(batch.refused), *map(list, zip(*batch.refused, strict=True))]
    arrays = [pa.array(values, kind) for values, kind in zip(columns, _TYPES, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=list(QUARANTINE))

"""Write ranges of tapes to the files of a lake, in Spark tasks.

A batch of tapes is a table of ranges (`rows` = `pieces` of the data source). Each of its tasks reads its range,
converts it to Arrow columns once, and writes them to the Parquet files of `tape`, `trades`, `quotes`, `orders` and
`quarantine`. Tasks return only the list of files, so no record is transferred to Java. The tables get the same rows as
from the DataFrame functions in `levelcast.pipeline.jobs.load`; a test compares the two.

A task may run twice, or be killed and run again: its files have unique names, and files that no finished task reported
are ignored.
"""

from __future__ import annotations

import pickle
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as parquet
from pyspark.sql import DataFrame

from levelcast.pipeline.input.tape_rows import rows
from levelcast.pipeline.input.tapes import Definitions, Piece
from levelcast.pipeline.lake import quarantine
from levelcast.pipeline.lake.files import File, describe
from levelcast.pipeline.lake.tables import ORDERS, QUARANTINE, QUOTES, TABLES, TAPE, TRADES, Table

OF_KIND = {"trade": TRADES, "quote": QUOTES, "order": ORDERS}
FILED = (TAPE.name, *(table.name for table in OF_KIND.values()), QUARANTINE.name)
ROWS_PER_GROUP = 1 << 17
_AMENDING = pa.array(["C", "M"], pa.string())
_STRINGS = {
    table.name: [column.name for column in table.columns if column.type == "string"] for table in TABLES.values()
}


@dataclass(frozen=True, slots=True)
class Order:
    """Parameters of every task of a batch."""

    stages: Mapping[str, str]
    """Folder of each table."""
    attempt: str
    known: Mapping[str, Mapping[int, int]]
    """For each table, the last loaded sequence of each stripe."""
    source: str
    unsound: bool = False
    """Load frames that do not match their hash."""


@dataclass(slots=True)
class Filed:
    """Result of a task: its range, and its files by table."""

    stripe: int
    start: int
    stop: int
    files: dict[str, list[File]] = field(default_factory=dict)
    amended: Counter[str] = field(default_factory=Counter)
    """Busts and corrections added to `trades`, by day."""


def file_pieces(pieces: DataFrame, order: Order) -> list[Filed]:
    """Run the tasks, one for each partition of `pieces`; return their results by stripe and sequence."""

    def work(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for row in batch.to_pylist():
                names = Definitions.from_json(row.pop("names"))
                piece = Piece(**row | {"tapes": tuple(row["tapes"])})
                filed = pickle.dumps(file_piece(piece, names, order))
                yield pa.RecordBatch.from_pydict({"filed": pa.array([filed], pa.binary())})

    filed = [pickle.loads(row.filed) for row in pieces.mapInArrow(work, "filed binary").collect()]
    return sorted(filed, key=lambda each: (each.stripe, each.start))


def file_piece(piece: Piece, names: Definitions, order: Order) -> Filed:
    """Write the records of a range after the last loaded sequence of each table, as files."""
    known = {table: stripes.get(piece.stripe, 0) for table, stripes in order.known.items()}
    done = Filed(piece.stripe, piece.start, piece.stop)
    start = max(piece.start, known[TAPE.name] + 1)
    if start >= piece.stop:
        return done
    with Files(order) as files:
        for batch in rows(piece._replace(start=start), names, batch_rows=ROWS_PER_GROUP, unsound=order.unsound):
            for day in days_of(batch):
                _file_day(day, known, order.source, files, done)
    done.files = files.done
    return done


def _file_day(rows: pa.RecordBatch, known: Mapping[str, int], source: str, files: Files, done: Filed) -> None:
    """Write rows of one day to their tables."""
    files.write(TAPE, rows)
    reasons = quarantine.reasons_of(rows)
    good = rows
    if reasons is not None:
        good = rows.filter(pc.is_null(reasons))
        bad = quarantine.bad_of(rows, reasons, source)
        files.write(QUARANTINE, _behind(bad, "position", known[QUARANTINE.name]))
    for kind, table in OF_KIND.items():
        chosen = pc.equal(good.column("kind"), kind)
        count = pc.sum(chosen).as_py() or 0
        if count:
            part = good if count == good.num_rows else good.filter(chosen)
            part = _behind(part, "sequence", known[table.name])
            files.write(table, part)
            if table is TRADES and part.num_rows:
                changes = pc.sum(pc.is_in(part.column("action"), _AMENDING)).as_py() or 0
                if changes:
                    done.amended[str(part.column("day")[0].as_py())] += changes


def _behind(rows: pa.RecordBatch, column: str, known: int) -> pa.RecordBatch:
    places = rows.column(column)
    if not rows.num_rows or pc.min(places).as_py() > known:
        return rows
    return rows.filter(pc.greater(places, known))


def days_of(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the rows of each day separately; usually there is only one."""
    days = pc.unique(rows.column("day"))
    for day in days:
        yield rows if len(days) == 1 else rows.filter(pc.equal(rows.column("day"), day))


class Files:
    """The open files of a task: one for each table and partition, created for its first row."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._name = f"{order.attempt}-{uuid.uuid4().hex[:12]}.parquet"
        self._open: dict[Path, tuple[Table, parquet.ParquetWriter, list[Any]]] = {}
        self.done: dict[str, list[File]] = {}

    def __enter__(self) -> Files:
        return self

    def __exit__(self, failed: object, *_: object) -> None:
        for path, (table, writer, footers) in self._open.items():
            writer.close()
            if failed is None:
                file = describe(path, Path(self._order.stages[table.name]), footers[0])
                self.done.setdefault(table.name, []).append(file)

    def write(self, table: Table, rows: pa.RecordBatch) -> None:
        if not rows.num_rows:
            return
        folders = [f"{name}={rows.column(name)[0].as_py()}" for name in table.partition]
        path = Path(self._order.stages[table.name], *folders, self._name)
        schema = _stored(table)
        if path not in self._open:
            path.parent.mkdir(parents=True, exist_ok=True)
            footers: list[Any] = []
            writer = parquet.ParquetWriter(
                path,
                schema,
                compression="zstd",
                compression_level=1,
                use_dictionary=[name for name in _STRINGS[table.name] if name in schema.names],
                store_schema=False,
                metadata_collector=footers,
            )
            self._open[path] = table, writer, footers
        columns = [rows.column(name) for name in schema.names]
        self._open[path][1].write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))


def _stored(table: Table) -> pa.Schema:
    """Return the schema of a file, without the partition columns in its folder name."""
    return pa.schema([each for each in table.arrow_schema() if each.name not in table.partition])

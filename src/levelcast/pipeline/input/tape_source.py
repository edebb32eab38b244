"""The Spark data source `levelcast`: tapes as rows of the schema, as a batch or as a stream.

    from levelcast.pipeline import register

    register(spark)
    spark.read.format("levelcast").load("data/tokyo-1")
    spark.readStream.format("levelcast").option("receivers", "data/london-1,data/paris-1").load("data/tokyo-1")

The path is a tape's directory, a node's, or one with many nodes in it. Each stripe in it is read once, from the first
tape that has the requested range. The options are `OPTIONS`. Spark's interface does not pass the columns of a query to
a Python source, so specify them with `columns`, or by a schema. It would pass filters to a batch reader, but stores the
reader with the filters of one query and uses it for the next query on the same DataFrame, which then lacks rows. So
select by options: `days`, `stripe`, `from` and `to` skip segments and frames, `symbols`, `venues` and `kinds` skip
records before the transfer to Java.

A stream's offset is, for each stripe, the next sequence, with the slot and the time up to which it is complete. All
receivers' tapes are equal, so it is valid for each of them: the stream continues with any directory that still has a
tape.

With the option `rows` = `pieces`, a row is a range of a tape instead of a record (`tapes.Piece`), with the names in it
as JSON. A job that reads the tapes in its own tasks thus uses the planning, offsets and limits of this module, and
no record is transferred to Java.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import date
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from levelcast.errors import UserError
from levelcast.network import NetworkError, SymbolDirectory, load_network
from levelcast.pipeline.input.tape_rows import BATCH_ROWS, rows
from levelcast.pipeline.input.tapes import (
    ALL,
    Definitions,
    Piece,
    StripeEnd,
    StripeTapes,
    Tapes,
    TapeSelection,
    end_of_batch,
    split_pieces,
)
from levelcast.pipeline.lake.schema import DAY_NS, NAMES, SchemaError, arrow_schema, spark_schema
from levelcast.storage.append_file import TapeError

try:  # Spark 4.2 and newer: limits of a batch, and Trigger.AvailableNow
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxFiles,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ImportError as missing:
    raise ImportError("the data source levelcast needs Spark 4.2 or newer: pip install 'levelcast[spark]'") from missing

FORMAT = "levelcast"

OPTIONS = {
    "path": "directory of a tape, of a node, or of many nodes",
    "receivers": "more such directories, separated by commas: they serve what the first one lacks",
    "stripe": "only this stripe",
    "from": "first sequence (of every stripe); default: the oldest available",
    "to": "last sequence; not for a stream",
    "days": "only this day (UTC) as 2026-11-18, or days as 2026-11-16..2026-11-18; not for a stream",
    "symbols": "only records of these symbols, separated by commas",
    "venues": "only records of these venues, separated by commas",
    "kinds": "only records of these kinds, separated by commas: trade, quote, order",
    "columns": "columns to read, separated by commas",
    "network": "network file with the names of symbols and venues; default: the tape's own definitions",
    "rowsperbatch": f"rows in an Arrow batch, about {BATCH_ROWS:,}",
    "recordsperpartition": "records in a partition; default: a segment",
    "maxrecordsperbatch": "maximum records in a batch of a stream, rounded to complete frames",
    "maxsegmentsperbatch": "maximum segments in a batch of a stream",
    "rows": "records, or pieces: one row per range of a tape, with the names in it",
    "unsound": "true: do not check frames by their hash",
}

Offset = dict[str, dict[str, int]]


class OptionError(UserError):
    """Invalid value of an option of the source."""


def register(spark: SparkSession) -> None:
    """Register `format("levelcast")` with a session."""
    spark.dataSource.register(LevelcastSource)


class LevelcastSource(DataSource):
    """Data source for `format("levelcast")`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        asked = SourceOptions(self.options)
        asked.tapes(strict=False)  # raises errors here, before anything runs
        return from_arrow_schema(_PIECES) if asked.pieces else spark_schema(asked.columns)

    def reader(self, schema: StructType) -> TapeBatchReader:
        return TapeBatchReader(SourceOptions(self.options), schema)

    def streamReader(self, schema: StructType) -> TapeStreamReader:  # noqa: N802 - Spark's name
        return TapeStreamReader(SourceOptions(self.options), schema)


class SourceOptions:
    """The validated options."""

    def __init__(self, options: Mapping[str, str]) -> None:
        given = {name.lower(): value for name, value in options.items()}
        unknown = sorted(set(given) - set(OPTIONS))
        if unknown:
            raise OptionError(f"unknown option {unknown[0]!r}; the options are {', '.join(OPTIONS)}")
        if not given.get("path") and not given.get("receivers"):
            raise OptionError('no directory of a tape; use load("data/tokyo-1")')
        self.directories = [*filter(None, [given.get("path")]), *_split(given.get("receivers"))]
        self.columns = _split(given["columns"]) if "columns" in given else None
        self.stripe = _number(given, "stripe", 0)
        self.first = _number(given, "from", 1)
        self.last = _number(given, "to", 1)
        self.days = [_day(each) for each in given["days"].split("..", 1)] if "days" in given else []
        self.wanted = TapeSelection(
            symbols=_names(given, "symbols"), venues=_names(given, "venues"), kinds=_names(given, "kinds")
        )
        if self.days:
            begin, end = ((each - date(1970, 1, 1)).days * DAY_NS for each in (self.days[0], self.days[-1]))
            self.wanted = replace(self.wanted, ts_recv=ALL.within(begin, end + DAY_NS - 1))
        self.rows_per_batch = _number(given, "rowsperbatch", 1) or BATCH_ROWS
        self.records_per_partition = _number(given, "recordsperpartition", 1)
        self.most_records = _number(given, "maxrecordsperbatch", 1)
        self.most_segments = _number(given, "maxsegmentsperbatch", 1)
        self.network = given.get("network")
        self.pieces = given.get("rows", "records") == "pieces"
        if given.get("rows", "records") not in ("records", "pieces"):
            raise OptionError(f"option rows: {given['rows']!r} is neither records nor pieces")
        self.unsound = given.get("unsound", "false").lower() == "true"
        if self.most_records and self.most_segments:
            raise OptionError("maxRecordsPerBatch and maxSegmentsPerBatch exclude each other; set one of them")

    def tapes(self, *, strict: bool = True) -> Tapes:
        paths = [_local(each) for each in self.directories]
        return Tapes(paths, stripe=self.stripe, strict=strict, unsound=self.unsound)

    def given_names(self) -> Definitions | None:
        """Return the names in the network file."""
        if self.network is None:
            return None
        try:
            directory = SymbolDirectory(load_network(_local(self.network)))
        except NetworkError as error:
            raise OptionError(f"network: {error}") from None
        symbols = {number: symbol for symbol, number in directory.symbols.items()}
        return Definitions(symbols, {floor.publisher: floor.name for floor in directory.floors})


def _split(text: str | None) -> list[str]:
    return [part for each in (text or "").split(",") if (part := each.strip())]


def _names(given: Mapping[str, str], option: str) -> frozenset[str] | None:
    return frozenset(_split(given[option])) if option in given else None


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text.strip())
    except ValueError:
        raise OptionError(f"option days: {text!r} is not a day like 2026-11-18") from None


def _local(path: str) -> Path:
    return Path(path.removeprefix("file://").removeprefix("file:"))


def _number(given: Mapping[str, str], name: str, least: int) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    if not text.strip().isdecimal() or int(text) < least:
        raise OptionError(f"option {name}: {text!r} is not an integer of at least {least}")
    return int(text)


_PIECES = pa.schema(
    [
        pa.field("stripe", pa.int32(), False),
        pa.field("tapes", pa.list_(pa.field("element", pa.string(), False)), False),
        *(pa.field(name, pa.int64(), False) for name in ("segment", "start", "stop")),
        pa.field("names", pa.string(), False),
    ]
)


def _expected(asked: SourceOptions, schema: StructType) -> pa.Schema:
    if not asked.pieces:
        return _arrow(schema)
    if schema.names != _PIECES.names:
        raise SchemaError(f"rows = pieces has the columns {', '.join(_PIECES.names)} only")
    return _PIECES


def _arrow(schema: StructType) -> pa.Schema:
    """Return Spark's schema of the batches; the caller's own schema may have fewer columns in another order."""
    ours = {each.name: each.dataType for each in spark_schema()}
    for each in schema:
        if each.name not in ours:
            raise SchemaError(f"unknown column {each.name!r}; the columns are {', '.join(NAMES)}")
        if each.dataType != ours[each.name]:
            kind = ours[each.name].simpleString()
            raise SchemaError(f"column {each.name} is {kind}, not {each.dataType.simpleString()}")
    types = arrow_schema()
    return pa.schema([pa.field(each.name, types.field(each.name).type, each.nullable) for each in schema])


class TapePartition(InputPartition):
    """A piece of a tape, and the names in it."""

    def __init__(self, piece: Piece, names: Definitions) -> None:
        super().__init__(piece)
        self.names = names


class _Reading:
    """Common part of both readers, run on the workers."""

    def __init__(self, asked: SourceOptions, schema: StructType) -> None:
        self._asked = asked
        self._schema = _expected(asked, schema)
        self._wanted = wanted = asked.wanted
        named = wanted.symbols is not None or wanted.venues is not None
        self._named = named or asked.pieces or bool({"symbol", "venue"} & set(schema.names))

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, TapePartition):
            return  # Spark's placeholder for no partitions
        if self._asked.pieces:
            told = partition.value._asdict() | {"names": partition.names.as_json()}
            yield pa.RecordBatch.from_pylist([told], schema=self._schema)
            return
        names, most = self._schema.names, self._asked.rows_per_batch
        found = rows(
            partition.value,
            partition.names,
            wanted=self._wanted,
            columns=names,
            batch_rows=most,
            unsound=self._asked.unsound,
        )
        for batch in found:
            yield pa.RecordBatch.from_arrays([batch.column(name) for name in names], schema=self._schema)

    def _partitions(self, pieces: Iterable[Piece], names: Definitions) -> list[TapePartition]:
        if self._asked.records_per_partition:
            pieces = split_pieces(pieces, self._asked.records_per_partition)
        return [TapePartition(piece, names) for piece in pieces]


# -- batch ------------------------------------------------------------------------------------------------


class TapeBatchReader(_Reading, DataSourceReader):
    """Read all records that are on the tapes when the query is planned."""

    def partitions(self) -> Sequence[TapePartition]:
        stripes = self._asked.tapes().stripes
        if all(stripe.end.sequence == stripe.start.sequence for stripe in stripes.values()):
            raise TapeError(f"{', '.join(self._asked.directories)}: the tape is empty; nothing has been released yet")
        names = self._asked.given_names()
        known = names or Definitions()
        pieces: list[Piece] = []
        for number, stripe in stripes.items():
            start = self._asked.first or stripe.start.sequence
            stop = min(stripe.end.sequence, (self._asked.last or stripe.end.sequence) + 1)
            wanted = self._wanted.sequence
            if not self._wanted.stripe.meets(number, number) or start >= stop:
                continue
            if names is None and self._named:
                found = stripe.definitions(stripe.start.sequence, stop)
                known.learn(found.symbols, found.venues)
            pieces += _useful(stripe, max(start, wanted.low), min(stop, wanted.high + 1), self._wanted)
        return self._partitions(pieces, known)


def _useful(stripe: StripeTapes, start: int, stop: int, wanted: TapeSelection) -> list[Piece]:
    """Return the pieces that may match the selection, by slot and time of their segments."""
    heads = {head.first_sequence: head for tape in stripe.tapes for head in tape.heads}
    edges = sorted(heads)
    following = {edge: heads[after] for edge, after in pairwise(edges)}
    end = stripe.end
    kept = []
    for piece in stripe.pieces(start, stop) if start < stop else []:
        head, after = heads[piece.segment], following.get(piece.segment)
        last_slot = after.after_slot if after else end.slot
        last_ns = (after.first_ns or end.timestamp_ns) if after else end.timestamp_ns
        if wanted.slot.meets(head.after_slot + 1, last_slot) and wanted.ts_recv.meets(head.first_ns, last_ns):
            kept.append(piece)
    return kept


# -- stream -----------------------------------------------------------------------------------------------


class TapeStreamReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Read new records of the tapes, batch by batch."""

    def __init__(self, asked: SourceOptions, schema: StructType) -> None:
        super().__init__(asked, schema)
        if asked.last is not None:
            raise OptionError("option `to` is not supported for a stream; use it for a batch")
        if asked.days:
            raise OptionError("option `days` is not supported for a stream; use it for a batch")
        self._tapes: Tapes | None = None
        self._target: dict[int, StripeEnd] | None = None
        self._names = asked.given_names() if self._named else Definitions()
        self._learned: Definitions = Definitions()
        self._learned_upto: dict[int, int] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Send only the attributes that `read` needs to the workers."""
        return self.__dict__ | {"_tapes": None, "_target": None, "_names": None, "_learned": None, "_learned_upto": {}}

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        return offset_of({number: self._first(stripe) for number, stripe in self._stripes().items()})

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        stripes = self._stripes()
        before = marks_of(start)
        lost = sorted(set(before) - set(stripes))
        if lost:
            where = ", ".join(self._asked.directories)
            raise TapeError(f"{where}: the tape of stripe {lost[0]} is gone; pass a receiver that has one")
        starts = {number: before.get(number, self._first(stripe)) for number, stripe in stripes.items()}
        ends = {number: max(starts[number], self._end(stripe)) for number, stripe in stripes.items()}
        if isinstance(limit, ReadMaxFiles):
            ends = {
                number: stripe.after_segments(starts[number].sequence, ends[number], limit.max_files)
                for number, stripe in stripes.items()
            }
        elif isinstance(limit, ReadMaxRows):
            sequences = {number: mark.sequence for number, mark in starts.items()}
            ends = starts | end_of_batch(stripes, sequences, ends, limit.max_rows)
        return offset_of(ends)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        if self._asked.most_records:
            return ReadMaxRows(self._asked.most_records)
        if self._asked.most_segments:
            return ReadMaxFiles(self._asked.most_segments)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._target = {number: stripe.end for number, stripe in self._stripes().items()}

    def reportLatestOffset(self) -> Offset:  # noqa: N802 - Spark's name
        return offset_of({number: stripe.end for number, stripe in self._stripes().items()})

    def partitions(self, start: Offset, end: Offset) -> Sequence[TapePartition]:
        stripes = self._stripes()
        before, after = marks_of(start), marks_of(end)
        pieces: list[Piece] = []
        for number, mark in after.items():
            stripe = stripes.get(number)
            if stripe is None:
                raise TapeError(f"{', '.join(self._asked.directories)}: the tape of stripe {number} is gone")
            first = before.get(number, self._first(stripe)).sequence
            if first < mark.sequence:
                pieces += stripe.pieces(first, mark.sequence)
        return self._partitions(pieces, self._definitions(stripes, after))

    def _first(self, stripe: StripeTapes) -> StripeEnd:
        return stripe.start if self._asked.first is None else StripeEnd(self._asked.first, 0, 0)

    def _end(self, stripe: StripeTapes) -> StripeEnd:
        """Return the current end of the stream."""
        return stripe.end if self._target is None else min(stripe.end, self._target.get(stripe.number, stripe.start))

    def _stripes(self) -> dict[int, StripeTapes]:
        if self._tapes is None:
            self._tapes = self._asked.tapes(strict=False)
        else:
            self._tapes.refresh()
        return self._tapes.stripes

    def _definitions(self, stripes: Mapping[int, StripeTapes], ends: Mapping[int, StripeEnd]) -> Definitions:
        """Return the names in the records up to here; each record is searched once."""
        if self._names is not None:
            return self._names
        for number, mark in ends.items():
            stripe = stripes[number]
            start = max(self._learned_upto.get(number, 0), stripe.start.sequence)
            if start < mark.sequence:
                found = stripe.definitions(start, mark.sequence)
                self._learned.learn(found.symbols, found.venues)
            self._learned_upto[number] = mark.sequence
        return self._learned


def offset_of(marks: Mapping[int, StripeEnd]) -> Offset:
    return {str(number): mark._asdict() for number, mark in sorted(marks.items())}


def marks_of(offset: Mapping[str, Mapping[str, int]] | str) -> dict[int, StripeEnd]:
    """Return the end of each stripe from an offset of a stream or its progress (`lastProgress.sources[0].endOffset`).

    The batches up to there contain everything up to a mark's slot: a window that ends before it is complete.
    """
    read = json.loads(offset) if isinstance(offset, str) else offset
    return {int(number): StripeEnd(**mark) for number, mark in read.items()}


def complete_upto(rows: DataFrame) -> DataFrame:
    """Return, for each stripe of a batch of a stream, the end of the complete tape: `slot`, `ts_recv`, and the next
    `sequence`. A batch ends with a complete frame, so all records of these slots are in it or before it."""
    last = f.max(f.struct("sequence", "slot", "ts_recv")).alias("last")
    ends = rows.groupBy("stripe").agg(last)
    return ends.select("stripe", (f.col("last.sequence") + 1).alias("sequence"), "last.slot", "last.ts_recv")


_RAISED = re.compile(r"^(levelcast(?:\.\w+)*)\.(\w+): (.+)$", re.MULTILINE)
"""The last line of a traceback: module, class and text of an exception of this package."""


def sentence_of(error: BaseException) -> str | None:
    """Return the text of the last `UserError` in Spark's report of an error in a worker; None if it contains none."""
    for module, name, text in reversed(_RAISED.findall(str(error))):
        with suppress(ImportError):
            found = vars(import_module(module)).get(name)
            if isinstance(found, type) and issubclass(found, UserError):
                return str(text).strip()
    return None

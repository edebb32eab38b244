"""Arrange the records of a tape as a table, block by block: the columns of `tape cat`, CSV and Parquet files."""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterator
from itertools import islice
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from levelcast.extras import arrow
from levelcast.records import PRICE_DECIMALS, UNDEF_PRICE, UNDEF_TIMESTAMP, RecordArray, RecordType
from levelcast.storage.tape.blocks import RecordBlock, TapeBlocks
from levelcast.storage.tape.index import Ints
from levelcast.storage.tape.reader import TapeReader

COLUMNS = (
    "seq", "ts_event", "ts_recv", "type", "floor", "instrument_id", "price", "size", "action", "side", "condition",
    "trade_id", "venue_sequence",
)  # fmt: skip
"""Columns of the table; fields that a record type does not have are empty."""
_RENAMED = {"floor": "publisher_id"}
_TEXTS = ("type", "action", "side")
_TIMES = ("ts_event", "ts_recv")
_ONE = 10**PRICE_DECIMALS

Column = np.ma.MaskedArray[Any, Any]
Table = dict[str, Column]


def tables(reader: TapeReader, from_sequence: int = 1, symbols: Collection[int] | None = None) -> Iterator[Table]:
    """Yield the chosen records in order, prices as integers of 1e-9."""
    for block in TapeBlocks(reader, from_sequence):
        parts = [(at, part) for at, part in _parts(block, from_sequence, symbols) if len(at)]
        if len(parts) == 1:
            yield parts[0][1]
        elif parts:
            order = np.argsort(np.concatenate([at for at, _ in parts]))
            yield {name: _joined([part[name] for _, part in parts], order) for name in COLUMNS}


def _parts(block: RecordBlock, from_sequence: int, symbols: Collection[int] | None) -> Iterator[tuple[Ints, Table]]:
    for kind, at, records in block.by_type():
        sequences = at + block.first_sequence
        chosen = sequences >= from_sequence
        if symbols:
            chosen &= np.isin(records["instrument_id"], list(symbols))
        if not chosen.all():
            sequences, records = sequences[chosen], records[chosen]
        yield sequences, {name: _column(name, kind, sequences, records) for name in COLUMNS}


def _column(name: str, kind: RecordType, sequences: Ints, records: RecordArray) -> Column:
    count = len(records)
    if name == "seq":
        return np.ma.array(sequences.astype(np.uint64))
    if name == "type":
        return np.ma.array(np.full(count, kind.name, object))
    field = _RENAMED.get(name, name)
    number = np.int64 if name == "price" else np.uint64
    if field not in (kind.dtype.names or ()):
        return np.ma.array(np.zeros(count, object if name in _TEXTS else number), mask=True)
    values = records[field]
    if name in _TEXTS:
        return np.ma.array(_texts(values))
    converted = np.ma.array(values.astype(number))
    if name in _TIMES or name == "price":
        converted[values == (UNDEF_PRICE if name == "price" else UNDEF_TIMESTAMP)] = np.ma.masked
    return converted


def _joined(columns: list[Column], order: Ints) -> Column:
    values = np.concatenate([column.data for column in columns])
    missing = np.concatenate([np.ma.getmaskarray(column) for column in columns])
    return np.ma.array(values[order], mask=missing[order])


def _texts(values: npt.NDArray[Any]) -> npt.NDArray[np.object_]:
    """Return letters, and numbers where a type has a number in this field, as text."""
    found, at = np.unique(values, return_inverse=True)
    names = [each.decode("utf-8", "replace") if isinstance(each, bytes) else str(each) for each in found.tolist()]
    texts: npt.NDArray[np.object_] = np.array(names, object)[at]
    return texts


def write_csv(file: IO[str], rows: Iterator[Table], count: int | None = None) -> int:
    """Write a table with a header, at most `count` rows, prices as decimals; return the number of rows."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    written = 0
    for table in rows:
        left = None if count is None else count - written
        lines = list(islice(zip(*(_printed(name, table[name]) for name in COLUMNS), strict=True), left))
        writer.writerows(lines)
        written += len(lines)
        if written == count:
            break
    return written


def _printed(name: str, column: Column) -> list[Any]:
    values: list[Any] = column.tolist()
    if name == "price":
        return ["" if value is None else price_text(value) for value in values]
    return values  # csv writes None as nothing


def price_text(price: int) -> str:
    """Return a price in 1e-9 as a decimal number with all nine decimals."""
    whole, rest = divmod(abs(price), _ONE)
    return f"{'-' if price < 0 else ''}{whole}.{rest:0{PRICE_DECIMALS}}"


def write_parquet(path: str, rows: Iterator[Table]) -> int:
    """Write a Parquet file, prices as integers of 1e-9 for exact computation; return the number of rows."""
    pa, parquet = arrow(), arrow("pyarrow.parquet")
    types = {"price": pa.int64(), **dict.fromkeys(_TEXTS, pa.string())}
    schema = pa.schema([(name, types.get(name, pa.uint64())) for name in COLUMNS])
    written = 0
    with parquet.ParquetWriter(path, schema) as writer:
        for table in rows:
            arrays = [pa.array(table[name], schema.field(name).type) for name in COLUMNS]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
            written += len(table["seq"])
    return written

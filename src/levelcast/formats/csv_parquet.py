"""Read trades from CSV and Parquet: `ts_event, symbol, price, size`, and optionally `floor, condition, trade_id`.

Other columns are ignored. Everything in a CSV is read as text and converted here. So a price is never converted to a
float, and the message about a bad field has its row and line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from levelcast.extras import arrow
from levelcast.formats.columns import (
    LARGEST_U32,
    Coded,
    Places,
    Rows,
    TradeFileError,
    decimal,
    prices,
    refusing,
    times,
    whole_numbers,
)
from levelcast.formats.event_batches import Chunk, Converter, Events, Noted, RefusedRow, open_capture, salvage, shown
from levelcast.records import UNDEF_TIMESTAMP, RecordArray, trades

REQUIRED = ("ts_event", "symbol", "price", "size")
OPTIONAL = ("floor", "condition", "trade_id")
BLOCK_BYTES = 4 << 20
"""Maximum bytes of a CSV in memory at a time."""
BATCH_ROWS = 1 << 16


def read_rows(
    rows_of: Callable[[Path], Iterator[tuple[Any, Rows]]], path: Path, places: Places
) -> Iterator[tuple[RecordArray, bool]]:
    """Yield batches of the trades that `rows_of` reads, and whether they have their own trade ids."""
    with refusing(path):
        for batch, rows in rows_of(path):
            yield _trades(batch, rows, places)


def csv_rows(path: Path, names: tuple[str, ...] | None = None) -> Iterator[tuple[Any, Rows]]:
    """Yield batches of the rows of a CSV (`csv_batches`) with their positions."""
    first, line = 1, partial(line_of, path, 1 if names is None else 0)
    for batch in csv_batches(path, names):
        yield batch, Rows(path, first, line_of=line)
        first += batch.num_rows


def parquet_rows(path: Path) -> Iterator[tuple[Any, Rows]]:
    """Yield batches of the rows of a Parquet file with their positions."""
    first = 1
    with arrow("pyarrow.parquet").ParquetFile(path) as file:
        names = _columns(path, file.schema_arrow.names)
        for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=names):
            yield batch, Rows(path, first)
            first += batch.num_rows


def csv_batches(
    path: Path, names: tuple[str, ...] | None = None, skip: Callable[[Any], None] | None = None
) -> Iterator[Any]:
    """Yield the rows of a CSV as texts, in blocks; without `names` the first line has them. A row with too many or too
    few columns is an error, or is passed to `skip` and omitted."""
    pa, csv = arrow(), arrow("pyarrow.csv")
    refused: list[Any] = []

    def refuse(row: Any) -> str:
        if skip is not None:
            skip(row)
            return "skip"
        refused.append(row)
        return "error"

    with pa.input_stream(str(path), compression="gzip" if path.suffix == ".gz" else None) as stream:
        try:
            wanted = list(names) if names is not None else _columns(path, header_names(path))
            reader = csv.open_csv(
                stream,
                read_options=csv.ReadOptions(use_threads=False, block_size=BLOCK_BYTES, column_names=names),
                parse_options=csv.ParseOptions(invalid_row_handler=refuse),
                convert_options=csv.ConvertOptions(
                    column_types=dict.fromkeys(wanted, pa.string()),
                    include_columns=wanted,
                    strings_can_be_null=False,
                ),
            )
            yield from reader
        except pa.ArrowInvalid as error:
            if refused:
                _refuse_row(path, refused[0], 0 if names is not None else 1)
            if "Empty CSV file" not in str(error):
                raise


# -- reading files with some bad rows ----------------------------------------------------------------------


def csv_events(path: Path, venue: str | None = None) -> Iterator[Chunk]:
    """Yield the trades of a CSV, and the rows that are not trades."""
    return csv_chunks(path, None, partial(_events, Noted(venue)))


def parquet_events(path: Path, venue: str | None = None) -> Iterator[Chunk]:
    """Yield the trades of a Parquet file, and the rows that are not trades."""
    with refusing(path):
        for batch, rows in parquet_rows(path):
            yield salvage(batch, rows, partial(_events, Noted(venue)))


def _events(places: Noted, batch: Any, rows: Rows) -> list[Events]:
    records, _ = _trades(batch, rows, places)
    return [Events(records, rows.places(len(records)), places.symbols, places.floors)]


def csv_chunks(path: Path, names: tuple[str, ...] | None, convert: Converter) -> Iterator[Chunk]:
    """Convert the complete rows of a CSV with `convert`, with their positions among all rows; refuse the
    others."""
    header_lines = 1 if names is None else 0
    before: list[int] = []  # number of good rows before each omitted one
    refused: list[RefusedRow] = []

    def skip(row: Any) -> None:
        place = row.number - header_lines
        before.append(place - 1 - len(before))
        refused.append(RefusedRow(place, _wrong_width(row), shown(row.text)))

    good = 0
    with refusing(path):
        for batch in csv_batches(path, names, skip):
            numbers = np.arange(good + 1, good + 1 + batch.num_rows)
            places = numbers + np.searchsorted(np.array(before, np.int64), numbers)
            good += batch.num_rows
            chunk = salvage(batch, Rows(path, 0, kept=places), convert)
            yield Chunk(chunk.events, refused + chunk.refused)
            refused.clear()
    if refused:
        yield Chunk([], refused)


def _wrong_width(row: Any) -> str:
    return f"has {row.actual_columns} columns instead of {row.expected_columns}; complete it or remove the row"


def _refuse_row(path: Path, row: Any, header_lines: int) -> None:
    number = row.number - header_lines
    Rows(path, number, line_of=partial(line_of, path, header_lines)).fail(0, _wrong_width(row))


def header_names(path: Path) -> list[str]:
    """Return the names in the first line of a CSV."""
    with open_capture(path) as file:
        line = next((line for line in iter(file.readline, b"") if line.strip()), b"")
    return [name.strip('"') for name in line.decode("utf-8-sig", "replace").strip("\r\n").split(",")]


def line_of(path: Path, header_lines: int, row: int) -> int:
    """Return the line of a row; empty lines are not rows. It is only used for errors."""
    with open_capture(path) as file:
        filled = (number for number, line in enumerate(file, 1) if line.strip(b"\r\n"))
        return next(islice(filled, row + header_lines - 1, None), 0)


def _columns(path: Path, found: list[str]) -> list[str]:
    for name in REQUIRED:
        if name not in found:
            there = ", ".join(found[:12]) or "none"
            hint = "; for a file of LEAN pass --format lean and --date" if "_trade.csv" in path.name else ""
            raise TradeFileError(
                f"{path}: column {name} not found (columns: {there[:120]}); required columns: {', '.join(REQUIRED)}; "
                f"optional columns: {', '.join(OPTIONAL)}{hint}"
            )
    return [name for name in (*REQUIRED, *OPTIONAL) if name in found]


def _trades(batch: Any, rows: Rows, places: Places) -> tuple[RecordArray, bool]:
    """Convert one batch of rows to trades; omit rows of other floors if the caller has specified one."""
    names = batch.schema.names
    if "floor" in names:
        floors = Coded.of(batch.column("floor"), "floor", rows)
    elif places.only is not None:
        floors = Coded.same(places.only.name, batch.num_rows)
    else:
        raise TradeFileError(f"{rows.path}: column floor not found; add it, or specify the floor with --floor")
    symbols = Coded.of(batch.column("symbol"), "symbol", rows)
    records = trades(batch.num_rows)
    records["ts_event"] = times(batch.column("ts_event"), rows)
    records["price"] = prices(batch.column("price"), rows)
    records["size"] = whole_numbers(batch.column("size"), "size", rows, LARGEST_U32)
    if "condition" in names:
        condition = Coded.of(_filled(batch.column("condition")), "condition", rows)
        problem = f"condition {{}} is not an integer from 0 to {LARGEST_U32:,}"
        records["condition"] = condition.parsed(lambda text: decimal(text or "0"), rows, problem)
    if "trade_id" in names:
        records["trade_id"] = whole_numbers(batch.column("trade_id"), "trade_id", rows, UNDEF_TIMESTAMP)
    kept = places.pick(floors)
    if kept is not None:
        records, floors, symbols, rows = records[kept], floors.only(kept), symbols.only(kept), rows.keeping(kept)
    records["publisher_id"], records["instrument_id"] = places.numbers(floors, symbols, rows)
    return records, "trade_id" in names


def _filled(column: Any) -> Any:
    """Replace missing conditions by 0."""
    return column.fill_null("" if arrow().types.is_string(column.type) else 0)

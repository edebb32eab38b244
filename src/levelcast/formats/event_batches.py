"""Define the output of readers: records of one type each, with values for which the record type has no field.

A publisher needs a complete file or none (`levelcast.formats.trade_files`). An analysis of a day needs all readable
rows, and a report of the others. So readers here yield *chunks*: events, and the refused rows with position and reason.
A row's position counts from 1 in its file, including refused rows, so it does not depend on other errors in the file.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from levelcast.formats.columns import Coded, Ints, Places, RowError, Rows
from levelcast.network import Floor
from levelcast.records import RecordArray

RAW_SHOWN = 400


@dataclass(frozen=True, slots=True)
class Events:
    """Records of one type. `publisher_id` and `instrument_id` are the source's own, or 0."""

    records: RecordArray
    place: Ints
    """Position of each record in the file, from 1; increasing."""
    symbols: Coded | None = None
    venues: Coded | None = None
    ts_recv: npt.NDArray[np.uint64] | None = None
    """Capture time, if the record type has no field for it."""
    extra: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    """Columns of the pipeline's schema for which the record type has no field; masked where the value is missing."""


class RefusedRow(NamedTuple):
    """A row that could not be read."""

    position: int
    reason: str
    raw: str
    """The row itself, as text or hexadecimal, truncated to `RAW_SHOWN` characters."""


class Chunk(NamedTuple):
    """Part of a file."""

    events: list[Events]
    refused: list[RefusedRow]


def shown(raw: bytes | str) -> str:
    text = raw if isinstance(raw, str) else raw.hex()
    return text[:RAW_SHOWN]


class Noted(Places):
    """Accept every floor and symbol, and record those of the last batch: for reading without a network file."""

    def __init__(self, venue: str | None = None) -> None:
        self.directory = SimpleNamespace(symbols={}, floors=())  # type: ignore[assignment]
        self.network = "the network file"
        self.only = Floor(venue, 0, 0, "", "", ()) if venue is not None else None
        self.floors: Coded = Coded.same("", 0)
        self.symbols: Coded = Coded.same("", 0)

    def pick(self, floors: Coded) -> Ints | None:
        return None

    def numbers(self, floors: Coded, symbols: Coded, rows: Rows) -> tuple[Ints, Ints]:
        self.floors, self.symbols = floors, symbols
        none = np.zeros(len(floors.codes), np.int64)
        return none, none


def open_capture(path: Path) -> IO[bytes]:
    """Open a file of bytes; decompress it if its name ends so."""
    if path.suffix == ".gz":
        return cast(IO[bytes], gzip.GzipFile(path))
    return path.open("rb")


Converter = Callable[[Any, Rows], list[Events]]


def salvage(batch: Any, rows: Rows, convert: Converter) -> Chunk:
    """Convert a batch of rows with `convert`; on failure divide it in halves, down to the row that is refused."""
    count = batch.num_rows
    if not count:
        return Chunk([], [])
    try:
        return Chunk(convert(batch, rows), [])
    except RowError as error:
        if count == 1:
            raw = ",".join("" if value is None else str(value) for value in batch.to_pylist()[0].values())
            return Chunk([], [RefusedRow(rows.place(0), error.sentence, shown(raw))])
    middle = count // 2
    one = salvage(batch.slice(0, middle), rows.part(0, middle), convert)
    other = salvage(batch.slice(middle), rows.part(middle, count), convert)
    return Chunk(one.events + other.events, one.refused + other.refused)

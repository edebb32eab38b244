"""What a reader of captures and files gives: records of one type each, with what the bytes of a record do not say.

Whoever publishes wants a file whole or not at all (`levelcast.formats.trade_files`); whoever looks back at a day wants
what can be read, and to be told of the rest. So readers here give *chunks*: events, and the rows that were refused with
their place and the reason. A row's place counts from 1 in its file, refused rows included, so it is the same whatever
else is wrong with the file.
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
    """Where each stands in the file, from 1; increasing."""
    symbols: Coded | None = None
    venues: Coded | None = None
    ts_recv: npt.NDArray[np.uint64] | None = None
    """When it was captured, where the record type has no field for it."""
    extra: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    """Columns of the pipeline's schema that the record type has no field for; masked where there is no value."""


class RefusedRow(NamedTuple):
    """A row that could not be read."""

    position: int
    reason: str
    raw: str
    """The row itself, as text or hexadecimal, cut at `RAW_SHOWN` characters."""


class Chunk(NamedTuple):
    """Some of a file."""

    events: list[Events]
    refused: list[RefusedRow]


def shown(raw: bytes | str) -> str:
    text = raw if isinstance(raw, str) else raw.hex()
    return text[:RAW_SHOWN]


class Noted(Places):
    """Takes every floor and symbol, and remembers which ones the last batch had: for reading without a network file."""

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
    """A file of bytes, unpacked where its name says that it is packed."""
    if path.suffix == ".gz":
        return cast(IO[bytes], gzip.GzipFile(path))
    return path.open("rb")


Converter = Callable[[Any, Rows], list[Events]]


def salvage(batch: Any, rows: Rows, convert: Converter) -> Chunk:
    """What `convert` takes of a batch of rows; where it fails, of the halves of it, down to the row that is refused."""
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

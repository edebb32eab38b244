"""Read captures and files of a day as events in one order, in any format.

 format    | files                                                | output                        | order          |
|-----------|------------------------------------------------------|-------------------------------|----------------|
| `dbn`     | `.dbn`, `.dbn.zst`                                   | all records of a tape's types | the file's     |
| `csv`     | `.csv`, `.csv.gz` with a header                      | trades                        | the file's     |
| `parquet` | `.parquet`                                           | trades                        | the file's     |
| `lean`    | `<symbol>_trade.csv[.gz]`, `<symbol>_quote.csv[.gz]` | trades, quotes                | the file's     |
| `lobster` | `<symbol>_<date>_..._message_<n>.csv[.gz]`           | orders, trades, quotes        | the file's     |
| `itch`    | NASDAQ's own layout, also `.gz`                      | orders, trades, statuses      | the file's     |
| `iex`     | pcap or pcapng of IEX-TP, also `.gz`                 | price levels, trades, status  | the capture's  |

- Work is divided into *tasks*, which may be read on any machine: one per file, and one per LOBSTER file with its
  orderbook.
- A row's `sequence` is its position in its file; each further file begins `FILE_STEP` later. A refused row has a
  position too, so it leaves a gap and later rows keep their numbers. A file's rows are numbered alike whatever other
  files are read with it, so nothing merges the files of a day: their times do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from levelcast.formats.columns import Ints, TradeFileError, named_files
from levelcast.formats.csv_parquet import csv_events, parquet_events
from levelcast.formats.dbn_events import dbn_events
from levelcast.formats.event_batches import Chunk, Events, RefusedRow
from levelcast.formats.iex import iex_events
from levelcast.formats.itch import itch_events
from levelcast.formats.lean import lean_event_files, lean_events
from levelcast.formats.lobster import lobster_events, lobster_files

__all__ = ["FILE_STEP", "FORMATS", "CaptureBatch", "NumberedEvents", "Task", "TradeFileError", "read_task", "tasks_of"]

FILE_STEP = 1 << 40
FORMATS = ("dbn", "csv", "parquet", "lean", "lobster", "itch", "iex")
_ENDS = {
    "dbn": (".dbn", ".dbn.zst"),
    "csv": (".csv", ".csv.gz"),
    "parquet": (".parquet",),
    "itch": ("ITCH50", "ITCH50.gz", ".itch", ".itch.gz"),
    "iex": (".pcap", ".pcap.gz", ".pcapng", ".pcapng.gz"),
}
"""File name endings that are read from a directory. A file that is specified is read with any name."""
_NEED_A_DAY = ("lean", "itch")
_OF_A_VENUE = {"dbn": dbn_events, "csv": csv_events, "parquet": parquet_events}


@dataclass(frozen=True, slots=True)
class Task:
    """Files to be read in sequence; small, so that it can be sent to the reading process."""

    format: str
    paths: tuple[str, ...]
    first: int = 0
    """Offset that is added to their sequences."""
    day: date | None = None
    venue: str | None = None


class NumberedEvents(NamedTuple):
    """Events with their sequence."""

    events: Events
    sequence: Ints


class CaptureBatch(NamedTuple):
    """Part of a task, from one file."""

    path: str
    placed: list[NumberedEvents]
    refused: list[RefusedRow]


def tasks_of(
    paths: Sequence[str | PathLike[str]], format: str, *, day: date | None = None, venue: str | None = None
) -> list[Task]:
    """Return the tasks to read. Raise TradeFileError; only the names of the files are checked."""
    if format not in FORMATS:
        raise TradeFileError(f'unknown format "{format}"; the formats are {", ".join(FORMATS)}')
    if format in _NEED_A_DAY and day is None:
        raise TradeFileError(f"files of format {format} do not contain their date; specify it, such as 2013-10-07")
    given = [Path(path) for path in paths]
    if not given:
        raise TradeFileError("nothing to read; specify a file or a directory")
    for path in given:
        if not path.exists():
            raise TradeFileError(f"{path}: file or directory not found; specify another one")
    groups: list[tuple[str, ...]]
    if format == "lean":
        groups = [(str(path),) for path in lean_event_files(given)]
    elif format == "lobster":
        groups = [tuple(str(each) for each in pair if each is not None) for pair in lobster_files(given)]
    else:
        missing = f"no file of format {format} ({', '.join(_ENDS[format])}) found in it"
        groups = [(str(path),) for path in named_files(given, _ENDS[format], missing)]
    return [Task(format, group, number * FILE_STEP, day, venue) for number, group in enumerate(groups)]


def read_task(task: Task) -> Iterator[CaptureBatch]:
    """Yield the events of a task in batches, and the refused rows."""
    for chunk in _chunks(task):
        placed = [NumberedEvents(events, task.first + events.place) for events in chunk.events if len(events.records)]
        yield CaptureBatch(task.paths[0], placed, chunk.refused)


def _chunks(task: Task) -> Iterator[Chunk]:
    path = Path(task.paths[0])
    if task.format in _OF_A_VENUE:
        return _OF_A_VENUE[task.format](path, task.venue)
    if task.format == "lobster":
        return lobster_events(path, *map(Path, task.paths[1:]))
    if task.format == "iex":
        return iex_events(path)
    assert task.day is not None
    return lean_events(path, task.day) if task.format == "lean" else itch_events(path, task.day)

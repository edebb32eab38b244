"""Read trades from files for publication: in file order, numbered per floor, with the directory's ids.

| format    | files                                     | floor of a row                                    |
|-----------|-------------------------------------------|---------------------------------------------------|
 `dbn`     | `.dbn`, `.dbn.zst`                        | its `publisher_id`, or the specified one          |
 `parquet` | `.parquet`                                | column `floor`, or the specified one              |
 `csv`     | `.csv`, `.csv.gz`                         | column `floor`, or the specified one              |
| `lean`    | `<symbol>_trade.csv.gz`, or a directory   | its venue letter                                  |

- A batch is an array of trades (`levelcast.records.TRADE`): `publisher_id` is the floor, `instrument_id` the symbol.
- If rows have a floor and the caller specifies one, rows of other floors are omitted. For a DBN file, the specified
  floor replaces its publishers.
- `venue_sequence` counts each floor's trades from 1, and so does `trade_id` if the file has none.
- Files are read in the order given; those of LEAN are merged by time.
- A few megabytes are in memory at a time. An error is raised at its row, after the batches before it. To refuse a bad
  file before the publication begins, read everything first (`survey`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from os import PathLike
from pathlib import Path

import numpy as np

from levelcast.formats.columns import Places, TradeFileError
from levelcast.formats.csv_parquet import csv_rows, parquet_rows, read_rows
from levelcast.formats.dbn import read_dbn
from levelcast.formats.lean import lean_files, read_lean
from levelcast.network import SymbolDirectory
from levelcast.records import RecordArray

__all__ = ["FORMATS", "Survey", "TradeFileError", "open_trades", "survey"]

Batches = Iterator[tuple[RecordArray, bool]]

_READERS: dict[str, Callable[[Path, Places], Batches]] = {
    "dbn": read_dbn,
    "parquet": partial(read_rows, parquet_rows),
    "csv": partial(read_rows, csv_rows),
}
_ENDS = {".dbn": "dbn", ".dbn.zst": "dbn", ".parquet": "parquet", ".csv": "csv", ".csv.gz": "csv"}
FORMATS = (*_READERS, "lean")


def open_trades(
    paths: Sequence[str | PathLike[str]],
    directory: SymbolDirectory,
    *,
    format: str | None = None,
    floor: str | None = None,
    day: date | None = None,
    network: str = "the network file",
) -> Iterator[RecordArray]:
    """Yield the trades of files in batches. Raise TradeFileError; `network` is the network file's name in messages.

    >>> from levelcast.network import five_cities, parse_network
    >>> trades = open_trades(["trades.csv"], Directory(parse_network(five_cities())), floor="XNYS")
    """
    places = Places(directory, floor, network)
    chosen = [Path(path) for path in paths]
    if format is not None and format not in FORMATS:
        raise TradeFileError(f'unknown format "{format}"; the formats are {", ".join(FORMATS)}')
    return _numbered(read_batches(chosen, format, day, places))


def read_batches(paths: Sequence[Path], format: str | None, day: date | None, places: Places) -> Batches:
    if format == "lean":
        if day is None:
            raise TradeFileError("files of LEAN do not contain their date; specify it, such as --date 2013-10-07")
        yield from read_lean(lean_files(paths), day, places)
        return
    for path in paths:
        if path.is_dir():
            raise TradeFileError(f"{path}: is a directory; specify its files, or pass --format lean")
        yield from _READERS[format or _format_of(path)](path, places)


def _format_of(path: Path) -> str:
    for end, format in _ENDS.items():
        if path.name.endswith(end):
            return format
    raise TradeFileError(f"{path}: its name does not show the format; pass --format {', '.join(FORMATS)}")


def _numbered(batches: Batches) -> Iterator[RecordArray]:
    counts: Counter[int] = Counter()
    for records, has_ids in batches:
        if not len(records):
            continue
        for publisher in np.unique(records["publisher_id"]).tolist():
            mine = np.flatnonzero(records["publisher_id"] == publisher)
            numbers = np.arange(counts[publisher] + 1, counts[publisher] + 1 + len(mine), dtype=np.uint64)
            counts[publisher] += len(mine)
            records["venue_sequence"][mine] = numbers.astype(np.uint32)
            if not has_ids:
                records["trade_id"][mine] = numbers
        yield records


@dataclass(slots=True)
class Survey:
    """Statistics of a planned publication."""

    records: int = 0
    by_floor: Counter[int] = field(default_factory=Counter)
    """Number of trades of each publisher."""
    by_symbol: Counter[int] = field(default_factory=Counter)
    """Number of trades of each instrument."""
    backwards: int = 0
    """Trades with an earlier time than the floor's previous trade; they keep their position."""
    first_ns: int = 0
    last_ns: int = 0
    _latest: dict[int, int] = field(default_factory=dict)

    def add(self, records: RecordArray) -> None:
        times = records["ts_event"]
        self.first_ns = int(times.min()) if not self.records else min(self.first_ns, int(times.min()))
        self.last_ns = max(self.last_ns, int(times.max()))
        self.records += len(records)
        for publisher in np.unique(records["publisher_id"]).tolist():
            mine = times[records["publisher_id"] == publisher]
            before = np.concatenate(([np.uint64(self._latest.get(publisher, 0))], mine[:-1]))
            self.backwards += int((mine < before).sum())
            self._latest[publisher] = int(mine[-1])
            self.by_floor[publisher] += len(mine)
        for instrument, count in zip(*np.unique(records["instrument_id"], return_counts=True), strict=True):
            self.by_symbol[int(instrument)] += int(count)


def survey(batches: Iterable[RecordArray]) -> Survey:
    """Read everything once: a file that cannot be published is refused before anything is sent."""
    found = Survey()
    for records in batches:
        found.add(records)
    return found

"""Trades of LEAN's tick files: one symbol a file, `<symbol>_trade.csv` or `.csv.gz`, without a header.

    time_ms, price, shares, venue, condition, suspicious

- `time_ms` counts from midnight in New York, so the day has to be told; `price` is in 1/10,000 dollar; `condition` is
  hexadecimal; a trade that the vendor marked as suspicious gets DBN's flag for what the publisher has to say.
- A venue is a letter. `VENUES` has the market code of each: those are the names of the floors.
- Several files are merged by time. There is no sequence number: rows of the same millisecond keep the order of the
  files as they were given, and within a file nothing ever changes places, even where its times run backwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import numpy.typing as npt

from levelcast.market.rows import (
    LARGEST_U32,
    Coded,
    Places,
    Rows,
    TradeFileError,
    decimal,
    hexadecimal,
    refusing,
    whole_numbers,
)
from levelcast.market.tables import csv_batches, line_of
from levelcast.records import FLAG_PUBLISHER_SPECIFIC, RecordArray, trades

VENUES = {
    "B": "XBOS",
    "C": "XCIS",
    "D": "FINR",  # reports of what was traded off the exchanges
    "J": "EDGA",
    "K": "EDGX",
    "M": "XCHI",
    "N": "XNYS",
    "P": "ARCX",
    "Q": "XNAS",
    "W": "CBSX",
    "X": "XPSX",
    "Y": "BATY",
    "Z": "BATS",
}
COLUMNS = ("time_ms", "price", "shares", "venue", "condition", "suspicious")
_NAME_ENDS = ("_trade.csv.gz", "_trade.csv")
_ZONE = "America/New_York"
_DAY_MS = 86_400_000
_HOUR_MS = 3_600_000
_PRICE_UNIT = 100_000
"""1/10,000 dollar in units of 1e-9."""
_LARGEST_PRICE = (2**63 - 2) // _PRICE_UNIT


def lean_files(paths: Sequence[Path]) -> list[Path]:
    """The trade files among `paths`; of a directory all of them, by name."""
    files: list[Path] = []
    for path in paths:
        if not path.is_dir():
            files.append(path)
            continue
        found = sorted(each for each in path.iterdir() if each.name.endswith(_NAME_ENDS))
        if not found:
            raise TradeFileError(f"{path}: there is no file <symbol>_trade.csv.gz in this directory: name the files")
        files += found
    return files


def read_lean(paths: Sequence[Path], day: date, places: Places) -> Iterator[tuple[RecordArray, bool]]:
    """Batches of trades of all files, merged by time."""
    clock = _Clock(day)
    for records in merge([_read(path, clock, places) for path in paths]):
        yield records, False


class _Clock:
    """From the time of day in New York to nanoseconds UTC. Its clocks change at a full hour."""

    def __init__(self, day: date) -> None:
        try:
            zone = ZoneInfo(_ZONE)
        except ZoneInfoNotFoundError:
            raise TradeFileError(f"there is no time zone {_ZONE} on this machine: pip install tzdata") from None
        hours = [datetime(day.year, day.month, day.day, hour, tzinfo=zone) for hour in range(24)]
        offsets = [(hour.utcoffset() or timedelta()) // timedelta(milliseconds=1) for hour in hours]
        self._offset_ms = np.array(offsets, np.int64)
        self._midnight_ms = (day - date(1970, 1, 1)).days * _DAY_MS

    def utc_ns(self, time_ms: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
        utc_ms = self._midnight_ms + time_ms - self._offset_ms[time_ms // _HOUR_MS]
        return utc_ms.astype(np.uint64) * np.uint64(1_000_000)


def _read(path: Path, clock: _Clock, places: Places) -> Iterator[RecordArray]:
    symbol = next((path.name.removesuffix(end) for end in _NAME_ENDS if path.name.endswith(end)), "").upper()
    if not symbol:
        raise TradeFileError(f"{path}: its name does not say the symbol: call it <symbol>_trade.csv.gz")
    first = 1
    with refusing(path):
        for batch in csv_batches(path, COLUMNS):
            rows = Rows(path, first, line_of=partial(line_of, path, 0))
            first += batch.num_rows
            yield _trades(batch, symbol, rows, clock, places)


def _trades(batch: Any, symbol: str, rows: Rows, clock: _Clock, places: Places) -> RecordArray:
    venues = Coded.of(batch.column("venue"), "venue", rows)
    time_ms = whole_numbers(batch.column("time_ms"), "time_ms", rows, _DAY_MS - 1).astype(np.int64)
    price = whole_numbers(batch.column("price"), "price", rows, _LARGEST_PRICE).astype(np.int64)
    condition = Coded.of(batch.column("condition"), "condition", rows)
    suspicious = Coded.of(batch.column("suspicious"), "suspicious", rows)
    records = trades(batch.num_rows)
    records["ts_event"] = clock.utc_ns(time_ms)
    records["price"] = price * _PRICE_UNIT
    records["size"] = whole_numbers(batch.column("shares"), "shares", rows, LARGEST_U32)
    records["condition"] = condition.parsed(hexadecimal, rows, "condition {} is not hexadecimal")
    marked = suspicious.parsed(decimal, rows, "suspicious {} is neither 0 nor 1", largest=1)
    records["flags"] = np.where(marked == 1, FLAG_PUBLISHER_SPECIFIC, 0)
    floors = Coded(venues.codes, [VENUES.get(letter, letter) for letter in venues.names])
    for code, letter in enumerate(venues.names):
        if letter not in VENUES:
            rows.fail(venues.first(code), f"there is no venue {letter!r}: the letters are {', '.join(VENUES)}")
    kept = places.pick(floors)
    if kept is not None:
        records, floors, rows = records[kept], floors.only(kept), rows.keeping(kept)
    publishers, instruments = places.numbers(floors, Coded.same(symbol, len(records)), rows)
    records["publisher_id"], records["instrument_id"] = publishers, instruments
    return records


def merge(streams: Sequence[Iterator[RecordArray]]) -> Iterator[RecordArray]:
    """Streams of trades merged by time, each in its own order, with a batch or so of each in memory.

    A stream's key is the latest time so far, so that it never overtakes itself. A batch goes out as far as no stream
    can still bring something that belongs before.
    """
    held: list[_Held] = [_Held(stream) for stream in streams]
    while True:
        for each in held:
            each.fill()
        open_ends = [each.last for each in held if not each.ended]
        limit = min(open_ends, default=None)
        parts = [each.take(limit) for each in held]
        keys = np.concatenate([key for key, _ in parts]) if parts else np.zeros(0, np.uint64)
        if len(keys):
            yield np.concatenate([records for _, records in parts])[np.argsort(keys, kind="stable")]
        if limit is None:
            return
        for each in held:
            if not each.ended and each.last == limit:
                each.fetch()


class _Held:
    """What has been read of one stream and not yet gone out."""

    def __init__(self, stream: Iterator[RecordArray]) -> None:
        self.ended = False
        self.last = 0
        """The latest time that was read."""
        self._stream = stream
        self._keys: npt.NDArray[np.uint64] = np.zeros(0, np.uint64)
        self._records: RecordArray = trades(0)

    def fill(self) -> None:
        """Have something, or be at the end."""
        while not len(self._keys) and not self.ended:
            self.fetch()

    def fetch(self) -> None:
        batch = next(self._stream, None)
        if batch is None:
            self.ended = True
        elif len(batch):
            keys = np.maximum.accumulate(np.maximum(batch["ts_event"], np.uint64(self.last)))
            self.last = int(keys[-1])
            self._keys = np.concatenate((self._keys, keys))
            self._records = np.concatenate((self._records, batch))

    def take(self, limit: int | None) -> tuple[npt.NDArray[np.uint64], RecordArray]:
        """Everything before `limit`; all of it if there is none. More may still come at the limit itself."""
        end = len(self._keys) if limit is None else int(np.searchsorted(self._keys, np.uint64(limit), "left"))
        taken = self._keys[:end], self._records[:end]
        self._keys, self._records = self._keys[end:], self._records[end:]
        return taken

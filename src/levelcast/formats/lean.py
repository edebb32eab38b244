"""Read trades and quotes of LEAN's tick files: one symbol per file, without a header.

    <symbol>_trade.csv[.gz]   time_ms, price, shares, venue, condition, suspicious
    <symbol>_quote.csv[.gz]   time_ms, bid, bid_shares, ask, ask_shares, venue, condition, suspicious

Only trades are published (`read_lean`); `lean_events` yields both.

- `time_ms` counts from midnight in New York, so the caller must specify the day; `price` is in 1/10,000 dollar;
  `condition` is hexadecimal. A trade that the vendor marked as suspicious gets DBN's flag for remarks of the publisher.
- A quote has one side and 0 on the other: `side` has the side, and `price` and `size` repeat its values.
- A venue is a letter. `VENUES` has the market code of each: these are the names of the floors.
- To be published, several files are merged by time. They have no sequence number: rows of the same millisecond keep the
  order of the files as given, and rows within a file always keep their order, even if its times run backwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from levelcast.formats.columns import (
    LARGEST_U32,
    Coded,
    Places,
    Rows,
    TradeFileError,
    decimal,
    hexadecimal,
    named_files,
    refusing,
    whole_numbers,
)
from levelcast.formats.csv_parquet import csv_chunks, csv_rows
from levelcast.formats.event_batches import Chunk, Events, Noted
from levelcast.formats.new_york_time import NewYorkClock
from levelcast.records import RecordArray, codes, quotes, trades

VENUES = {
    "B": "XBOS",
    "C": "XCIS",
    "D": "FINR",  # reports of trades off the exchanges
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
QUOTE_COLUMNS = ("time_ms", "bid", "bid_shares", "ask", "ask_shares", "venue", "condition", "suspicious")
_NAME_ENDS = ("_trade.csv.gz", "_trade.csv")
_QUOTE_ENDS = ("_quote.csv.gz", "_quote.csv")
_DAY_MS = 86_400_000
_MS = 1_000_000
_PRICE_UNIT = 100_000
"""1/10,000 dollar in units of 1e-9."""
_LARGEST_PRICE = (2**63 - 2) // _PRICE_UNIT


def lean_files(paths: Sequence[Path]) -> list[Path]:
    """Return the trade files among `paths` and in directories, sorted by name."""
    missing = "no file <symbol>_trade.csv.gz found in this directory; specify the files"
    return named_files(paths, _NAME_ENDS, missing)


def read_lean(paths: Sequence[Path], day: date, places: Places) -> Iterator[tuple[RecordArray, bool]]:
    """Yield batches of trades of all files, merged by time."""
    clock = NewYorkClock(day)
    for records in merge([_read(path, clock, places) for path in paths]):
        yield records, False


def _read(path: Path, clock: NewYorkClock, places: Places) -> Iterator[RecordArray]:
    symbol = next((path.name.removesuffix(end) for end in _NAME_ENDS if path.name.endswith(end)), "").upper()
    if not symbol:
        raise TradeFileError(f"{path}: its name does not contain the symbol; rename it to <symbol>_trade.csv.gz")
    with refusing(path):
        for batch, rows in csv_rows(path, COLUMNS):
            yield _trades(batch, symbol, rows, clock, places)


def _trades(batch: Any, symbol: str, rows: Rows, clock: NewYorkClock, places: Places) -> RecordArray:
    records = trades(batch.num_rows)
    _fill_common(records, batch, rows, clock)
    records["price"] = _prices(batch, "price", rows)
    records["size"] = whole_numbers(batch.column("shares"), "shares", rows, LARGEST_U32)
    floors = _venues(batch, rows)
    kept = places.pick(floors)
    if kept is not None:
        records, floors, rows = records[kept], floors.only(kept), rows.keeping(kept)
    records["publisher_id"], records["instrument_id"] = places.numbers(floors, Coded.same(symbol, len(records)), rows)
    return records


def _fill_common(records: RecordArray, batch: Any, rows: Rows, clock: NewYorkClock) -> None:
    """Set time, condition and flags."""
    time_ms = whole_numbers(batch.column("time_ms"), "time_ms", rows, _DAY_MS - 1).astype(np.int64)
    records["ts_event"] = clock.utc_ns(time_ms * _MS)
    condition = Coded.of(batch.column("condition"), "condition", rows)
    records["condition"] = condition.parsed(hexadecimal, rows, "condition {} is not hexadecimal")
    suspicious = Coded.of(batch.column("suspicious"), "suspicious", rows)
    marked = suspicious.parsed(decimal, rows, "suspicious {} is neither 0 nor 1", largest=1)
    records["flags"] = np.where(marked == 1, codes.FLAG_PUBLISHER_SPECIFIC, 0)


def _prices(batch: Any, name: str, rows: Rows) -> npt.NDArray[np.int64]:
    return whole_numbers(batch.column(name), name, rows, _LARGEST_PRICE).astype(np.int64) * _PRICE_UNIT


# -- trades and quotes, without refused rows ---------------------------------------------------------------


def lean_event_files(paths: Sequence[Path]) -> list[Path]:
    """Return the files of trades and quotes among `paths` and in directories, sorted by name."""
    missing = "no file <symbol>_trade.csv.gz or <symbol>_quote.csv.gz found in it"
    return named_files(paths, _NAME_ENDS + _QUOTE_ENDS, missing)


def symbol_and_kind(path: Path) -> tuple[str, str]:
    """Return what the name of a file tells: the symbol, and trade or quote. Raise TradeFileError if it does not."""
    end = next((each for each in _NAME_ENDS + _QUOTE_ENDS if path.name.endswith(each)), None)
    if end is None or path.name == end:
        raise TradeFileError(
            f"{path}: its name does not show its content; rename it to <symbol>_trade.csv.gz or _quote.csv.gz"
        )
    return path.name.removesuffix(end).upper(), "trade" if end in _NAME_ENDS else "quote"


def lean_events(path: Path, day: date) -> Iterator[Chunk]:
    """Yield the trades or quotes of one file, and the refused rows."""
    (symbol, kind), clock, places = symbol_and_kind(path), NewYorkClock(day), Noted()
    make, names = (_trades, COLUMNS) if kind == "trade" else (_quotes, QUOTE_COLUMNS)

    def convert(part: Any, rows: Rows) -> list[Events]:
        records = make(part, symbol, rows, clock, places)
        return [Events(records, rows.places(len(records)), places.symbols, places.floors)]

    return csv_chunks(path, names, convert)


def _quotes(batch: Any, symbol: str, rows: Rows, clock: NewYorkClock, places: Places) -> RecordArray:
    records = quotes(batch.num_rows)
    _fill_common(records, batch, rows, clock)
    told = []
    for name in ("bid", "ask"):
        price, shares = _prices(batch, name, rows), f"{name}_shares"
        records[f"{name}_px_00"] = np.where(price == 0, codes.UNDEF_PRICE, price)
        records[f"{name}_sz_00"] = whole_numbers(batch.column(shares), shares, rows, LARGEST_U32)
        told.append(price > 0)
    records["side"] = np.where(told[0] == told[1], codes.SIDE_NONE, np.where(told[0], codes.SIDE_BID, codes.SIDE_ASK))
    for side, name in ((codes.SIDE_BID, "bid"), (codes.SIDE_ASK, "ask")):
        mine = records["side"] == side
        records["price"][mine], records["size"][mine] = records[f"{name}_px_00"][mine], records[f"{name}_sz_00"][mine]
    floors = _venues(batch, rows)
    records["publisher_id"], records["instrument_id"] = places.numbers(floors, Coded.same(symbol, len(records)), rows)
    return records


def _venues(batch: Any, rows: Rows) -> Coded:
    venues = Coded.of(batch.column("venue"), "venue", rows)
    for code, letter in enumerate(venues.names):
        if letter not in VENUES:
            rows.fail(venues.first(code), f"unknown venue {letter!r}; the letters are {', '.join(VENUES)}")
    return Coded(venues.codes, [VENUES[letter] for letter in venues.names])


def merge(streams: Sequence[Iterator[RecordArray]]) -> Iterator[RecordArray]:
    """Merge streams of trades by time, each in its own order, with about one batch of each in memory.

    A stream's key is the latest time so far, so that its order never changes. Rows are yielded when no stream can
    yield an earlier one.
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
    """Rows of one stream that were read and not yet yielded."""

    def __init__(self, stream: Iterator[RecordArray]) -> None:
        self.ended = False
        self.last = 0
        """The latest time that was read."""
        self._stream = stream
        self._keys: npt.NDArray[np.uint64] = np.zeros(0, np.uint64)
        self._records: RecordArray = trades(0)

    def fill(self) -> None:
        """Read until there is a row, or the stream ends."""
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
        """Remove and return the rows before `limit`, or all without one. More may follow at the limit itself."""
        end = len(self._keys) if limit is None else int(np.searchsorted(self._keys, np.uint64(limit), "left"))
        taken = self._keys[:end], self._records[:end]
        self._keys, self._records = self._keys[end:], self._records[end:]
        return taken

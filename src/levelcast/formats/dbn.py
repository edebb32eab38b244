"""Read trades from DBN files of versions 1 to 3, including our own tapes: `TradeMsg` with or without our tail.

- The symbol of an id is that of the latest definition or mapping record before the trade, or else of the mappings in
  the file's header. In a tape of Levelcast, an id without any of them is the directory's own.
- `publisher_id` is the floor, unless the caller specifies one: publishers of foreign files are not floors here. In a
  file of `levelcast tape export`, it is Databento's for the floor's name, or 32768 + the floor.
- Records of other types are skipped. Runs of records of one type are processed in one batch.
- The ring sets `ts_recv` and `sequence`: they are reset to 0 (`levelcast.records`, rule 5).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
import numpy.typing as npt

from levelcast.extras import arrow
from levelcast.formats.columns import Coded, Places, Rows, TradeFileError, refusing
from levelcast.formats.messages import pieces_of
from levelcast.formats.new_york_time import DAY_NS
from levelcast.records import (
    INSTRUMENT,
    PRIVATE_PUBLISHERS,
    TRADE,
    RecordArray,
    codes,
    record_ends,
    trades,
    venue_of_publisher,
)
from levelcast.records import runs as record_runs

CHUNK_BYTES = 4 << 20
_PREFIX = struct.Struct("<3sBI")
_FIXED_V1 = struct.Struct("<16sHQQQQBBB47x")
_FIXED = struct.Struct("<16sHQQQBBBH53x")
_U32 = struct.Struct("<I")
_DATES = struct.Struct("<II")
_ID_AT, _NAMES_AT = 4, 16
_BARE_BYTES = 48
"""Size of a trade without our tail."""
_LENGTH_V1 = 22

Bytes = npt.NDArray[np.uint8]


class Interval(NamedTuple):
    """The symbol of an id from one day to another."""

    start_ns: int
    end_ns: int
    symbol: str


@dataclass(slots=True)
class Header:
    """Content of a file's metadata."""

    version: int
    dataset: str
    symbol_bytes: int
    ids: dict[int, list[Interval]] = field(default_factory=dict)


def read_dbn(path: Path, places: Places) -> Iterator[tuple[RecordArray, bool]]:
    """Yield batches of trades, and whether they have their own trade ids."""
    with refusing(path), open_file(path) as stream:
        header = read_header(path, stream)
        symbols = Symbols(header, places)
        number = 1
        for chunk in chunks(path, stream):
            for first, run in runs(path, chunk, number):
                kind = int(run[0, 1])
                if kind == codes.RTYPE_TRADE:
                    yield _trades(run, Rows(path, first, "record"), symbols, places)
                elif kind in (codes.RTYPE_INSTRUMENT, codes.RTYPE_MAPPING):
                    symbols.note(run)
                number = first + len(run)


def open_file(path: Path) -> IO[bytes]:
    if path.suffix != ".zst":
        return path.open("rb")
    stream: IO[bytes] = arrow().input_stream(str(path), compression="zstd")
    return stream


# -- the header -------------------------------------------------------------------------------------------


def read_header(path: Path, stream: IO[bytes]) -> Header:
    prefix = stream.read(_PREFIX.size)
    if len(prefix) < _PREFIX.size or not prefix.startswith(b"DBN"):
        raise TradeFileError(f"{path}: not a DBN file; specify a file that begins with DBN's header")
    _, version, size = _PREFIX.unpack(prefix)
    if not 1 <= version <= codes.DBN_VERSION:
        raise TradeFileError(f"{path}: DBN version {version} is not supported; convert it to 1-{codes.DBN_VERSION}")
    body = stream.read(size)
    try:
        if len(body) < size:
            raise struct.error
        return _parse_header(version, body)
    except (struct.error, ValueError, IndexError):
        raise TradeFileError(f"{path}: its DBN header is damaged; fetch the file again") from None


def _parse_header(version: int, body: bytes) -> Header:
    if version == 1:
        dataset, _, _, _, _, _, stype_in, _, _ = _FIXED_V1.unpack_from(body)
        length, at = _LENGTH_V1, _FIXED_V1.size
    else:
        dataset, _, _, _, _, stype_in, _, _, length = _FIXED.unpack_from(body)
        at = _FIXED.size
    header = Header(version, _text(dataset), length)
    (definition,) = _U32.unpack_from(body, at)
    at += _U32.size + definition
    for _ in range(3):  # the requested symbols, those found in part, and those not found
        (count,) = _U32.unpack_from(body, at)
        at += _U32.size + count * length
    (count,) = _U32.unpack_from(body, at)
    at += _U32.size
    for _ in range(count):
        at = _parse_mapping(header, body, at, by_id=stype_in == codes.STYPE_INSTRUMENT_ID)
    return header


def _parse_mapping(header: Header, body: bytes, at: int, *, by_id: bool) -> int:
    """Parse one name with its symbols or ids by date range; return the end offset."""
    length = header.symbol_bytes
    name = _text(body[at : at + length])
    (count,) = _U32.unpack_from(body, at + length)
    at += length + _U32.size
    for _ in range(count):
        start, end = _DATES.unpack_from(body, at)
        other = _text(body[at + _DATES.size : at + _DATES.size + length])
        at += _DATES.size + length
        number, symbol = (name, other) if by_id else (other, name)
        if number.isdigit() and symbol:
            header.ids.setdefault(int(number), []).append(Interval(_day_ns(start), _day_ns(end), symbol))
    return at


def _day_ns(number: int) -> int:
    """Return the start of a date such as 20131007."""
    return (date(number // 10_000, number // 100 % 100, number % 100) - date(1970, 1, 1)).days * DAY_NS


def _text(field_bytes: bytes) -> str:
    return bytes(field_bytes).split(b"\0", 1)[0].decode("utf-8")


# -- records ----------------------------------------------------------------------------------------------


def chunks(path: Path, stream: IO[bytes]) -> Iterator[Bytes]:
    """Yield the file after its header, in pieces that end with a record."""
    for content, end, left in pieces_of(stream, CHUNK_BYTES, _whole_records):
        if end:
            yield np.frombuffer(content, np.uint8, end)
        if left:
            raise TradeFileError(f"{path}: ends in the middle of a record; fetch the file again")


def _whole_records(content: bytes) -> tuple[int, int]:
    ends = record_ends(content)
    end = int(ends[-1]) if len(ends) else 0
    return end, end


def runs(path: Path, chunk: Bytes, number: int) -> Iterator[tuple[int, Bytes]]:
    """Yield each run as rows of bytes, with the number of its first record."""
    for first, at, count, size, _ in record_runs(chunk.data):
        if size < _NAMES_AT:
            raise TradeFileError(
                f"{path}: record {number + first:,}: has {size} bytes, less than a header; fetch the file again"
            )
        yield number + first, chunk[at : at + count * size].reshape(count, size)


class Symbols:
    """The symbol of each id, according to the file up to the current record."""

    def __init__(self, header: Header, places: Places) -> None:
        self._header = header
        self.exported = header.dataset == codes.TRADES_DATASET
        """Whether `levelcast tape export` has written the file."""
        self._known: dict[int, str] = {}
        self._own = {number: symbol for symbol, number in places.directory.symbols.items()}
        if header.dataset != codes.DATASET:
            self._own = {}

    def note(self, run: Bytes) -> None:
        """Record the symbols of definitions or mappings."""
        for record in run:
            raw = record.tobytes()
            (number,) = _U32.unpack_from(raw, _ID_AT)
            symbol = self._defined(raw) if raw[1] == codes.RTYPE_INSTRUMENT else self._mapped(raw, number)
            if symbol:
                self._known[number] = symbol

    def _defined(self, raw: bytes) -> str:
        assert INSTRUMENT.fields is not None
        at = int(INSTRUMENT.fields["raw_symbol"][1]) if self._header.version == codes.DBN_VERSION else 200
        return _text(raw[at : at + self._header.symbol_bytes])

    def _mapped(self, raw: bytes, number: int) -> str:
        """Return the name of the id: the outgoing name, unless that is the id again."""
        length, extra = self._header.symbol_bytes, int(self._header.version > 1)  # name types exist since version 2
        start = _NAMES_AT + extra
        incoming = _text(raw[start : start + length])
        outgoing = _text(raw[start + length + extra : start + 2 * length + extra])
        return incoming if outgoing in ("", str(number)) else outgoing

    def of(self, number: int, day: int) -> str | None:
        """Return the symbol of an id on a day since 1970."""
        if number in self._known:
            return self._known[number]
        for interval in self._header.ids.get(number, ()):
            if interval.start_ns <= day * DAY_NS < interval.end_ns:
                return interval.symbol
        return self._own.get(number)

    def coded(self, numbers: npt.NDArray[np.uint32], times: npt.NDArray[np.uint64]) -> Coded:
        """Return the symbol of the id in each row on its day; the symbol of an id may depend on the day."""
        keys = np.empty(len(numbers), np.dtype([("id", np.uint32), ("day", np.uint32)]))
        keys["id"], keys["day"] = numbers, times // DAY_NS
        found, at = np.unique(keys, return_inverse=True)
        return Coded.named(at, [self.of(number, day) or "" for number, day in found.tolist()])


def _trades(run: Bytes, rows: Rows, symbols: Symbols, places: Places) -> tuple[RecordArray, bool]:
    count, size = run.shape
    if size < _BARE_BYTES:
        rows.fail(0, f"a trade of {size} bytes is shorter than {_BARE_BYTES}; fetch the file again")
    records = trades(count)
    taken = TRADE.itemsize if size >= TRADE.itemsize else _BARE_BYTES
    records.view(np.uint8).reshape(count, TRADE.itemsize)[:, 1:taken] = run[:, 1:taken]
    received = records["ts_recv"]
    # Ids are assigned by the day of receipt.
    times = np.where((received == 0) | (received == codes.UNDEF_TIMESTAMP), records["ts_event"], received)
    records["sequence"] = records["ts_recv"] = records["ts_in_delta"] = 0
    unpriced = records["price"] == codes.UNDEF_PRICE
    if unpriced.any():
        rows.fail(int(unpriced.argmax()), "the trade has no price; correct it or remove the record")
    floors = _floors(records["publisher_id"], rows, places, exported=symbols.exported)
    coded = _symbols(records, times, rows, symbols)
    records["publisher_id"], records["instrument_id"] = places.numbers(floors, coded, rows)
    return records, taken == TRADE.itemsize


def _floors(publishers: npt.NDArray[np.uint16], rows: Rows, places: Places, *, exported: bool) -> Coded:
    if places.only is not None:
        return Coded.same(places.only.name, len(publishers))
    found, first, at = np.unique(publishers, return_index=True, return_inverse=True)
    names = []
    for publisher, index in zip(found.tolist(), first.tolist(), strict=True):
        try:
            names.append(_floor_name(publisher, places, exported=exported))
        except KeyError:
            rows.fail(index, f"publisher {publisher} is not a floor of {places.network}; specify it with --floor")
    return Coded(at.astype(np.int64), names)


def _floor_name(publisher: int, places: Places, *, exported: bool) -> str:
    """Return the name of a floor; KeyError if the network does not have it."""
    if exported and (venue := venue_of_publisher(publisher)):
        return places.directory.floor(venue).name
    number = publisher % PRIVATE_PUBLISHERS if exported else publisher
    return places.directory.floor_of(number).name


def _symbols(records: RecordArray, times: npt.NDArray[np.uint64], rows: Rows, symbols: Symbols) -> Coded:
    """Return each record's symbol at its time; refuse a record without one."""
    coded = symbols.coded(records["instrument_id"], times)
    if (unknown := coded.codes < 0).any():
        index = int(unknown.argmax())
        number = records["instrument_id"][index]
        rows.fail(index, f"instrument {number} has no symbol in this file; add its definition before the trade")
    return coded

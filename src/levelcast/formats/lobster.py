"""Read LOBSTER's files of one symbol and day: order events, and the book after each. No header, New York time.

    SYMBOL_2012-06-21_34200000_57600000_message_10.csv     seconds, type, order id, shares, price, direction
    SYMBOL_2012-06-21_34200000_57600000_orderbook_10.csv   ask price, ask shares, bid price, bid shares, per level

| type of message                  | record                                                                        |
|----------------------------------|-------------------------------------------------------------------------------|
| 1 new                            | order, action A                                                               |
 2 partial cancel, 3 deletion     | order, action C; the size is what is removed                                  |
| 4, 5 execution, visible, hidden  | trade; the side is the aggressor's, `direction` is the resting order's         |
| 6 cross                          | trade without a side                                                          |
| 7 halt                           | status, by its price: -1 halt, 0 quotes only, 1 trading                       |

A row of the orderbook becomes a quote of its best level with the time of its message. With an orderbook, row r of
the messages has position 2r - 1 and its quote 2r. A price is in 1/10,000 dollar.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from levelcast.extras import arrow
from levelcast.formats.columns import (
    LARGEST_U32,
    Coded,
    Ints,
    Rows,
    TradeFileError,
    halves_of,
    matches,
    refuse_first,
    refusing,
    whole_numbers,
)
from levelcast.formats.csv_parquet import csv_batches, csv_chunks
from levelcast.formats.event_batches import Chunk, Events, RefusedRow
from levelcast.formats.new_york_time import DAY_NS, NewYorkClock
from levelcast.records import RecordArray, StatusAction, codes, orders, quotes, statuses, trades

VENUE = "XNAS"
COLUMNS = ("seconds", "type", "order_id", "shares", "price", "direction")
_NAME = re.compile(r"([^_]+)_(\d{4}-\d{2}-\d{2})_.*?(message|orderbook)_(\d+)\.csv(?:\.gz)?")
_PRICE_UNIT = 100_000
_NO_LEVEL = 9_999_999_999
_LARGEST = 2**63 - 1
_STOPS = [int(StatusAction.HALT), int(StatusAction.QUOTING)]


def lobster_files(paths: list[Path]) -> list[tuple[Path, Path | None]]:
    """Return each file of messages with its orderbook, if it exists; those of a directory sorted by name."""
    given: list[Path] = []
    for path in paths:
        given += sorted(each for each in path.iterdir() if _NAME.fullmatch(each.name)) if path.is_dir() else [path]
    books = {path.name: path for path in given if "_orderbook_" in path.name}
    pairs: list[tuple[Path, Path | None]] = []
    for path in given:
        if "_orderbook_" in path.name:
            continue
        if _NAME.fullmatch(path.name) is None:
            raise TradeFileError(
                f"{path}: not a LOBSTER file name, such as SYMBOL_2012-06-21_..._message_10.csv; rename the file"
            )
        name = path.name.replace("_message_", "_orderbook_")
        beside = path.with_name(name)
        pairs.append((path, books.pop(name, beside if beside.exists() else None)))
    if books:
        raise TradeFileError(f"{next(iter(books.values()))}: file of messages not found for this orderbook")
    if not pairs:
        raise TradeFileError(f"{paths[0] if paths else 'LOBSTER'}: no file of messages found; specify one")
    return pairs


def lobster_events(messages: Path, book: Path | None = None) -> Iterator[Chunk]:
    """Yield the events of a file, the quotes of its orderbook, and the refused rows."""
    found = _NAME.fullmatch(messages.name)
    assert found is not None
    symbol, clock = found[1], NewYorkClock(date.fromisoformat(found[2]))
    stride = 1 if book is None else 2
    known: list[tuple[Ints, npt.NDArray[np.uint64]]] = [(np.zeros(0, np.int64), np.zeros(0, np.uint64))]

    def convert(part: Any, rows: Rows) -> list[Events]:
        times, made = _messages(part, rows, symbol, clock, stride)
        known.append((rows.places(part.num_rows), times))
        return made

    yield from csv_chunks(messages, COLUMNS, convert)
    if book is not None:
        yield from _book(book, symbol, *(np.concatenate(each) for each in zip(*known, strict=True)))


def _messages(
    part: Any, rows: Rows, symbol: str, clock: NewYorkClock, stride: int
) -> tuple[npt.NDArray[np.uint64], list[Events]]:
    """Return the times of all rows, and the events of each kind."""
    since = _seconds(part.column("seconds"), rows)
    types = Coded.of(part.column("type"), "type", rows).parsed(int, rows, "type {} is not 1 to 7", largest=7)
    ids = whole_numbers(part.column("order_id"), "order_id", rows, _LARGEST)
    shares = whole_numbers(part.column("shares"), "shares", rows, LARGEST_U32)
    price = _signed(part.column("price"), "price", rows)
    direction = _signed(part.column("direction"), "direction", rows)
    wrong = (types < 1) | (np.abs(direction) != 1) | ((types != 7) & (price <= 0))
    if wrong.any():
        why = "type, price or direction has a value that LOBSTER does not use; correct the row"
        rows.fail(int(wrong.argmax()), why)
    times = clock.utc_ns(since)
    place = rows.places(len(times)) * stride - (stride - 1)
    side = np.where(direction > 0, codes.SIDE_BID, codes.SIDE_ASK)
    out: list[Events] = []

    def add(mine: npt.NDArray[np.bool_], records: RecordArray, **extra: npt.NDArray[Any]) -> None:
        records["ts_event"] = times[mine]
        count = len(records)
        out.append(Events(records, place[mine], Coded.same(symbol, count), Coded.same(VENUE, count), extra=extra))

    mine = types <= 3
    made = orders(int(mine.sum()))
    made["order_id"], made["size"], made["side"] = ids[mine], shares[mine], side[mine]
    made["price"] = price[mine] * _PRICE_UNIT
    made["action"] = np.where(types[mine] == 1, codes.ACTION_ADD, codes.ACTION_CANCEL)
    add(mine, made)
    mine = (types >= 4) & (types <= 6)
    made = trades(int(mine.sum()))
    made["price"], made["size"] = price[mine] * _PRICE_UNIT, shares[mine]
    against = np.where(direction[mine] > 0, codes.SIDE_ASK, codes.SIDE_BID)
    made["side"] = np.where(types[mine] == 6, codes.SIDE_NONE, against)
    add(mine, made, order_id=np.ma.array(ids[mine].astype(np.int64), mask=ids[mine] == 0))
    mine = types == 7
    made = statuses(int(mine.sum()))
    made["action"] = np.select([price[mine] == -1, price[mine] == 0], _STOPS, int(StatusAction.TRADING))
    add(mine, made)
    return times, out


def _seconds(column: Any, rows: Rows) -> Ints:
    """Return nanoseconds since midnight. More digits, from floating-point conversions, are rounded."""
    pa, pc = arrow(), arrow("pyarrow.compute")
    _check(column, r"^[0-9]{1,5}(\.[0-9]{1,15})?$", rows, "seconds {!r} is not a time of day")
    fine = pc.round(pc.cast(column, pa.decimal128(38, 15)), ndigits=9)
    since = np.ascontiguousarray(halves_of(pc.cast(fine, pa.decimal128(38, 9)))[:, 0])
    if (late := since >= DAY_NS).any():
        rows.fail(int(late.argmax()), "seconds is after the end of the day; correct it or remove the row")
    return since


def _signed(column: Any, name: str, rows: Rows) -> Ints:
    """Return integers that may be negative."""
    pa, pc = arrow(), arrow("pyarrow.compute")
    _check(column, "^-?[0-9]{1,18}$", rows, name + " {!r} is not an integer")
    return np.asarray(pc.cast(column, pa.int64()).to_numpy(zero_copy_only=False))


def _check(column: Any, pattern: str, rows: Rows, problem: str) -> None:
    def refuse(value: object, index: int) -> NoReturn:
        rows.fail(index, f"{problem.format(value)}; correct it or remove the row")

    refuse_first(~matches(column, pattern), column, refuse)


def _book(path: Path, symbol: str, places: Ints, times: npt.NDArray[np.uint64]) -> Iterator[Chunk]:
    found = _NAME.fullmatch(path.name)
    assert found is not None
    names = ("ask_px", "ask_sz", "bid_px", "bid_sz", *(f"_{i}" for i in range(4 * int(found[4]) - 4)))

    def convert(part: Any, rows: Rows) -> list[Events]:
        place = rows.places(part.num_rows)
        at = np.minimum(np.searchsorted(places, place), max(len(places) - 1, 0))
        missing = np.flatnonzero(places[at] != place) if len(places) else np.arange(min(len(place), 1))
        if len(missing):
            rows.fail(int(missing[0]), "the message of this row could not be read; correct that row first")
        records = quotes(len(place))
        records["ts_event"] = times[at]
        for name in ("bid", "ask"):
            price = _signed(part.column(f"{name}_px"), f"{name} price", rows)
            records[f"{name}_px_00"] = np.where(np.abs(price) == _NO_LEVEL, codes.UNDEF_PRICE, price * _PRICE_UNIT)
            records[f"{name}_sz_00"] = whole_numbers(part.column(f"{name}_sz"), f"{name} shares", rows, LARGEST_U32)
        return [Events(records, place * 2, Coded.same(symbol, len(place)), Coded.same(VENUE, len(place)))]

    for events, refused in csv_chunks(path, names, convert):
        yield Chunk(events, [RefusedRow(row, f"orderbook: {why}", raw) for row, why, raw in refused])


def lobster_levels(path: Path) -> npt.NDArray[np.int64]:
    """Return the published book after each event: shape (rows, levels, 4), the four columns of a level in 1e-9."""
    found = _NAME.fullmatch(path.name)
    if found is None or found[3] != "orderbook":
        raise TradeFileError(f"{path}: not a LOBSTER orderbook, such as SYMBOL_2012-06-21_..._orderbook_10.csv")
    levels = int(found[4])
    names = tuple(f"{name}_{level}" for level in range(levels) for name in ("ask_px", "ask_sz", "bid_px", "bid_sz"))
    parts = [np.zeros((0, levels, 4), np.int64)]
    with refusing(path):
        for batch in csv_batches(path, names):
            rows = Rows(path, 1)
            columns = [_signed(batch.column(name), name, rows) for name in names]
            parts.append(np.stack(columns, axis=1).reshape(-1, levels, 4))
    made = np.concatenate(parts)
    for column in (0, 2):
        price = made[:, :, column]
        made[:, :, column] = np.where(np.abs(price) == _NO_LEVEL, codes.UNDEF_PRICE, price * _PRICE_UNIT)
    return made

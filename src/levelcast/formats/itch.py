"""Read files of NASDAQ TotalView-ITCH 5.0: a big-endian u16 length, then one message, repeated.

One message is one record; its position in the file is also its venue sequence.

| message            | record                                                                                          |
|--------------------|-------------------------------------------------------------------------------------------------|
| A, F               | order, action A                                                                                 |
 X, D               | order, action C; the size is what is removed                                                    |
| U                  | order, action M, under its new id; `original_client_order_id` is the one that it replaces       |
| E, C               | trade at the order's price, or at the message's; the side is the aggressor's                    |
| P, Q               | trade of hidden orders, of a cross; no side. A cross of no shares is a status, CROSS            |
| B                  | trade, action C: the match number is broken                                                     |
| R                  | instrument                                                                                      |
| S, H, h, Y         | status                                                                                          |
| all others         | system, with the message in hexadecimal as its text                                             |

- `instrument_id` is the stock locate. A symbol is known from the first message that has both; other messages use it.
  For a file that begins in the middle of a day, symbol, side and price are known only from the messages in the file.
- `condition` of a trade is 0, the ASCII code of a cross's type, or that of N for a C that is not to be printed.
- Messages have nanoseconds since midnight in New York: the caller must specify the day.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from levelcast.formats.columns import Coded, Ints, refusing
from levelcast.formats.event_batches import Chunk, Events, RefusedRow, open_capture, shown
from levelcast.formats.messages import DAY_EVENTS, actions_of, by_type, layouts, pieces_of
from levelcast.formats.new_york_time import NewYorkClock
from levelcast.records import RecordArray, StatusAction, codes, instruments, orders, statuses, system_messages, trades

VENUE = "XNAS"
CHUNK_BYTES = 16 << 20
_PRICE_UNIT = 100_000
_HEAD = "type S1, locate >u2, tracking >u2, time_high >u2, time_low >u4"
_FIELDS = {
    b"S": (12, "code S1"),
    b"R": (39, "stock S8"),
    b"H": (25, "stock S8, code S1"),
    b"Y": (20, "stock S8, code S1"),
    b"h": (21, "stock S8, market S1, code S1"),
    b"A": (36, "ref >u8, side S1, shares >u4, stock S8, price >u4"),
    b"F": (40, "ref >u8, side S1, shares >u4, stock S8, price >u4"),
    b"E": (31, "ref >u8, shares >u4, match >u8"),
    b"C": (36, "ref >u8, shares >u4, match >u8, printable S1, price >u4"),
    b"X": (23, "ref >u8, shares >u4"),
    b"D": (19, "ref >u8"),
    b"U": (35, "old >u8, ref >u8, shares >u4, price >u4"),
    b"P": (44, "ref >u8, side S1, shares >u4, stock S8, price >u4, match >u8"),
    b"Q": (40, "shares >u8, stock S8, price >u4, match >u8, cross S1"),
    b"B": (19, "match >u8"),
    b"I": (50, "paired >u8, imbalance >u8, direction S1, stock S8"),
    b"N": (20, "stock S8"),
    b"L": (26, "mpid S4, stock S8"),
    b"K": (28, "stock S8"),
    b"J": (35, "stock S8"),
    b"O": (48, "stock S8"),
    b"V": (35, ""),
    b"W": (12, ""),
}
"""Each type's length, and its fields after the common ones."""
_DTYPES = layouts(_HEAD, _FIELDS)
_HALT, _TRADING = StatusAction.HALT, StatusAction.TRADING
_STATUS = {
    b"H": {b"H": _HALT, b"P": StatusAction.PAUSE, b"Q": StatusAction.QUOTING, b"T": _TRADING},
    b"h": {b"H": _HALT, b"T": _TRADING},
    b"S": {**DAY_EVENTS, b"Q": _TRADING},
}
"""Meaning of the code of a message, by type."""
_ORDER_ACTIONS = {b"X": codes.ACTION_CANCEL, b"D": codes.ACTION_CANCEL, b"U": codes.ACTION_MODIFY}
_EMPTY_CROSS = b"Q of no shares"
_OPPOSITE = {codes.SIDE_BID: codes.SIDE_ASK, codes.SIDE_ASK: codes.SIDE_BID}


def itch_events(path: Path, day: date) -> Iterator[Chunk]:
    """Yield the messages of a file, and the refused bytes."""
    book, clock = _Book(), NewYorkClock(day)
    number = 1
    with refusing(path), open_capture(path) as stream:
        for content, starts, left in pieces_of(stream, CHUNK_BYTES, _starts):
            if starts:
                yield _chunk(content, np.array(starts, np.int64), number, book, clock)
            number += len(starts)
            if left:
                why = "the file ends in the middle of a message; fetch it again"
                yield Chunk([], [RefusedRow(number, why, shown(content[-left:]))])


def _starts(content: bytes) -> tuple[list[int], int]:
    """Return the start of each message (after its length), and the end of the last complete one."""
    starts: list[int] = []
    add = starts.append
    at, end = 0, len(content)
    while at + 2 <= end:
        following = at + 2 + (content[at] << 8) + content[at + 1]
        if following > end:
            break
        add(at + 2)
        at = following
    return starts, at


def _chunk(content: bytes, starts: Ints, number: int, book: _Book, clock: NewYorkClock) -> Chunk:
    octets = np.frombuffer(content, np.uint8)
    sizes = (octets[starts - 2].astype(np.int64) << 8) + octets[starts - 1]
    by_index, bad = by_type(content, starts, sizes, _DTYPES)
    found = {kind: (at + number, messages) for kind, (at, messages) in by_index.items()}
    refused = []
    for each in bad:
        raw = content[int(starts[each]) : int(starts[each] + sizes[each])]
        why = f"{raw[:1]!r} with {len(raw)} bytes is not a message of ITCH 5.0; correct the file or remove the message"
        refused.append(RefusedRow(number + each, why, shown(raw)))
    if b"Q" in found:
        at, crosses = found.pop(b"Q")
        traded = crosses["shares"] > 0
        for kind, mine in ((b"Q", traded), (_EMPTY_CROSS, ~traded)):
            if mine.any():
                found[kind] = at[mine], crosses[mine]
    book.learn(found)
    return Chunk([_events(kind, *found[kind], book, clock) for kind in found], refused)


# -- orders that other messages refer to ------------------------------------------------------------------


class _Book:
    """Price and side of the orders seen, and the symbols of the locates. A message that ends an order removes it."""

    def __init__(self) -> None:
        self.symbols: dict[int, str] = {}
        self.refs: npt.NDArray[np.uint64] = np.zeros(0, np.uint64)
        self.prices: Ints = np.zeros(0, np.int64)
        self.sides: npt.NDArray[np.bytes_] = np.zeros(0, "S1")
        self.shares: Ints = np.zeros(0, np.int64)
        self._gone: npt.NDArray[np.uint64] = np.zeros(0, np.uint64)

    def learn(self, found: dict[bytes, tuple[Ints, RecordArray]]) -> None:
        """Add the orders of a chunk; remove those that ended in the previous chunk."""
        kept = ~np.isin(self.refs, self._gone) & (self.shares > 0)
        refs, prices, sides, shares = [self.refs[kept]], [self.prices[kept]], [self.sides[kept]], [self.shares[kept]]
        for _, messages in found.values():
            if "stock" in (messages.dtype.names or ()):
                self._name(messages)
        for kind in (b"A", b"F", b"U"):
            if kind in found:
                new = found[kind][1]
                refs.append(new["ref"].astype(np.uint64))
                prices.append(new["price"].astype(np.int64) * _PRICE_UNIT)
                shares.append(new["shares"].astype(np.int64))
                sides.append(np.full(len(new), b"") if kind == b"U" else _side(new["side"]))
        order = np.argsort(np.concatenate(refs), kind="stable")
        self.refs, self.prices = np.concatenate(refs)[order], np.concatenate(prices)[order]
        self.sides, self.shares = np.concatenate(sides).astype("S1")[order], np.concatenate(shares)[order]
        if b"U" in found:
            self._inherit(found[b"U"][1])
        for kind in (b"E", b"C", b"X"):
            if kind in found:
                at, known = self.find(found[kind][1]["ref"])
                np.subtract.at(self.shares, at[known], found[kind][1]["shares"].astype(np.int64)[known])
        ended = [
            found[kind][1][name].astype(np.uint64) for kind, name in ((b"D", "ref"), (b"U", "old")) if kind in found
        ]
        self._gone = np.concatenate([np.zeros(0, np.uint64), *ended])

    def _name(self, messages: RecordArray) -> None:
        locates, first = np.unique(messages["locate"], return_index=True)
        for locate, at in zip(locates.tolist(), first.tolist(), strict=True):
            self.symbols.setdefault(locate, _stock(messages["stock"][at]))

    def _inherit(self, replaced: RecordArray) -> None:
        """Copy the side of a replaced order to the new one; the replaced order may have replaced a third."""
        new, _ = self.find(replaced["ref"])
        old, known = self.find(replaced["old"])
        while True:
            before = self.sides[new]
            after = np.where(known, self.sides[old], codes.SIDE_NONE)
            self.sides[new] = np.where(before == b"", after, before)
            if bool((self.sides[new] == before).all()):
                break
        self.sides[self.sides == b""] = codes.SIDE_NONE

    def find(self, refs: npt.NDArray[Any]) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """Return the index of each order, and whether it is known."""
        if not len(self.refs):
            return np.zeros(len(refs), np.int64), np.zeros(len(refs), bool)
        wanted = refs.astype(np.uint64)
        at = np.minimum(np.searchsorted(self.refs, wanted), len(self.refs) - 1)
        return at, self.refs[at] == wanted

    def side_of(self, refs: npt.NDArray[Any]) -> npt.NDArray[np.bytes_]:
        at, known = self.find(refs)
        return (
            np.where(known, self.sides[at], codes.SIDE_NONE) if len(self.sides) else np.full(len(refs), codes.SIDE_NONE)
        )

    def price_of(self, refs: npt.NDArray[Any]) -> Ints:
        at, known = self.find(refs)
        return (
            np.where(known, self.prices[at], codes.UNDEF_PRICE)
            if len(self.prices)
            else np.full(len(refs), codes.UNDEF_PRICE)
        )


def _side(letters: npt.NDArray[Any]) -> npt.NDArray[np.bytes_]:
    return np.where(letters == b"B", codes.SIDE_BID, np.where(letters == b"S", codes.SIDE_ASK, codes.SIDE_NONE))


def _stock(field: bytes) -> str:
    return bytes(field).decode("ascii", "replace").strip()


# -- messages as records ----------------------------------------------------------------------------------


def _events(kind: bytes, place: Ints, messages: RecordArray, book: _Book, clock: NewYorkClock) -> Events:
    extra: dict[str, npt.NDArray[Any]] = {}
    if kind in b"AFXDU":
        records = _orders(kind, messages, book)
        extra["venue_sequence"] = place
    elif kind in b"ECPQB":
        records = _trades(kind, messages, book)
        records["venue_sequence"] = place & 0xFFFFFFFF
        if kind in b"EC":
            extra["order_id"] = messages["ref"].astype(np.uint64).view(np.int64)
    elif kind == b"R":
        records = instruments(len(messages))
        records["raw_symbol"] = np.char.strip(messages["stock"].astype("S8"))
        records["exchange"] = VENUE.encode()
    elif kind == _EMPTY_CROSS:
        records = statuses(len(messages))
        records["action"] = StatusAction.CROSS
    elif kind in b"SHhY":
        records = _statuses(kind, messages)
    else:
        records = system_messages(len(messages))
        records["msg"] = [b"ITCH " + kind + b" " + message.tobytes()[11:].hex().encode() for message in messages]
    records["instrument_id"] = messages["locate"]
    since_midnight = (messages["time_high"].astype(np.int64) << 32) + messages["time_low"]
    records["ts_event"] = clock.utc_ns(since_midnight)
    locates, at = np.unique(messages["locate"], return_inverse=True)
    symbols = Coded.named(at, [book.symbols.get(locate, "") for locate in locates.tolist()])
    return Events(records, place, symbols, Coded.same(VENUE, len(records)), extra=extra)


def _orders(kind: bytes, messages: RecordArray, book: _Book) -> RecordArray:
    records = orders(len(messages))
    records["order_id"] = messages["ref"]
    records["action"] = _ORDER_ACTIONS.get(kind, codes.ACTION_ADD)
    records["side"] = _side(messages["side"]) if kind in b"AF" else book.side_of(messages["ref"])
    if kind in b"AFU":
        records["price"] = messages["price"].astype(np.int64) * _PRICE_UNIT
    else:
        records["price"] = book.price_of(messages["ref"])
    if kind == b"D":
        at, known = book.find(messages["ref"])
        records["size"] = np.where(known, np.maximum(book.shares[at], 0), 0) if len(book.shares) else 0
    else:
        records["size"] = messages["shares"]
    if kind == b"U":
        records["original_client_order_id"] = messages["old"]
    return records


def _trades(kind: bytes, messages: RecordArray, book: _Book) -> RecordArray:
    records = trades(len(messages))
    records["trade_id"] = messages["match"]
    if kind == b"B":
        records["action"] = codes.ACTION_BUST
        return records
    records["size"] = np.minimum(messages["shares"], 2**32 - 1)
    if kind in b"EC":
        resting = book.side_of(messages["ref"])
        records["side"] = np.select([resting == side for side in _OPPOSITE], list(_OPPOSITE.values()), codes.SIDE_NONE)
    if kind == b"E":
        records["price"] = book.price_of(messages["ref"])
    else:
        records["price"] = messages["price"].astype(np.int64) * _PRICE_UNIT
    if kind == b"Q":
        records["condition"] = messages["cross"].astype("S1").view(np.uint8)
    elif kind == b"C":
        records["condition"] = np.where(messages["printable"] == b"N", ord("N"), 0)
    return records


def _statuses(kind: bytes, messages: RecordArray) -> RecordArray:
    records = statuses(len(messages))
    told = messages["code"]
    if kind == b"Y":
        records["action"] = StatusAction.SSR_CHANGE
        records["is_short_sell_restricted"] = np.where(told == b"0", b"N", b"Y")
        return records
    records["action"] = actions_of(told, _STATUS[kind])
    if kind in b"Hh":
        records["is_trading"] = np.where(told == b"T", b"Y", b"N")
    return records

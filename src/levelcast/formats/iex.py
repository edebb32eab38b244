"""IEX DEEP 1.0 out of captures (`levelcast.formats.pcap`): IEX-TP segments of messages, little-endian.

One message is one record. A refused row's position is the number of its packet.

| message       | record                                                                                             |
|---------------|----------------------------------------------------------------------------------------------------|
| 8, 5          | order with `FLAG_MBP`: the new total of a price level, action M, or C when nothing is left;        |
|               | `FLAG_LAST` when the event is complete                                                             |
| T             | trade; `condition` is the byte of its sale condition flags                                         |
| B             | trade, action C: the trade id is broken                                                            |
| D             | instrument                                                                                         |
| S, H, O, P, E | status                                                                                             |
| others        | system, with the message in hexadecimal as its text                                                |

`ts_recv` is the time of the capture, `venue_sequence` the sequence of the session. That falls back to 1 where the
session was started again; the order of the capture is the order of the rows.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from levelcast.formats.columns import Coded, Ints, refusing
from levelcast.formats.event_batches import Chunk, Events, RefusedRow, shown
from levelcast.formats.pcap import Payload, pieces
from levelcast.records import (
    ACTION_BUST,
    ACTION_CANCEL,
    ACTION_MODIFY,
    FLAG_LAST,
    FLAG_MBP,
    SIDE_ASK,
    SIDE_BID,
    RecordArray,
    StatusAction,
    instruments,
    orders,
    statuses,
    system_messages,
    trades,
)

VENUE = "IEXG"
_SEGMENT = struct.Struct("<BBHIIHHQQQ")
_DEEP = 0x8004
_PRICE_UNIT = 100_000
_HEAD = "type S1, flags u1, ts <u8"
_FIELDS = {
    b"S": (10, ""),
    b"D": (31, "symbol S8, lot <u4, price <i8, tier u1"),
    b"H": (22, "symbol S8, reason S4"),
    b"O": (18, "symbol S8"),
    b"P": (19, "symbol S8, detail S1"),
    b"E": (18, "symbol S8"),
    b"8": (30, "symbol S8, size <u4, price <i8"),
    b"5": (30, "symbol S8, size <u4, price <i8"),
    b"T": (38, "symbol S8, size <u4, price <i8, id <u8"),
    b"B": (38, "symbol S8, size <u4, price <i8, id <u8"),
    b"X": (26, "symbol S8, price <i8"),
    b"I": (18, "symbol S8"),
    b"A": (80, "symbol S8, rest V62"),
}
_DTYPES = {
    kind: np.dtype([tuple(item.split()) for item in f"{_HEAD}, {fields}".strip(", ").split(", ")])
    for kind, (_, fields) in _FIELDS.items()
}
assert all(_DTYPES[kind].itemsize == size for kind, (size, _) in _FIELDS.items())

_HALT, _TRADING, _NO = StatusAction.HALT, StatusAction.TRADING, StatusAction.NONE
_STATUS = {
    b"S": {
        "O": StatusAction.PRE_OPEN,
        "S": StatusAction.PRE_OPEN,
        "R": _TRADING,
        "M": StatusAction.CLOSE,
        "E": StatusAction.POST_CLOSE,
        "C": StatusAction.NOT_AVAILABLE_FOR_TRADING,
    },
    b"H": {"H": _HALT, "O": StatusAction.QUOTING, "P": StatusAction.PAUSE, "T": _TRADING},
    b"O": {"O": _HALT, "N": _TRADING},
    b"E": {"O": StatusAction.CROSS, "C": StatusAction.CLOSE},
}
"""What the code of a message means, by type."""


def iex_events(path: Path) -> Iterator[Chunk]:
    """The messages of a capture, and the packets and messages that could not be read."""
    place = 1
    with refusing(path):
        for content, payloads in pieces(path):
            walk = _Walk(content)
            for payload in payloads:
                walk.segment(payload)
            yield walk.chunk(place)
            place += len(walk.starts)


class _Walk:
    """The messages of a piece of the capture: where each is, and what its segment says of it."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.starts: list[int] = []
        self.sizes: list[int] = []
        self.packets: list[int] = []
        self.refused: list[RefusedRow] = []
        self._counts: list[int] = []
        self._captured: list[int] = []
        self._sequences: list[int] = []

    def segment(self, payload: Payload) -> None:
        """One IEX-TP segment; one without messages is a heartbeat."""
        number, captured_ns, start, end, fault = payload
        if fault is None and end - start < _SEGMENT.size:
            fault = "is shorter than an IEX-TP header"
        if fault is not None:
            self._refuse(number, fault, start, end)
            return
        version, _, protocol, _, _, size, count, _, sequence, _ = _SEGMENT.unpack_from(self.content, start)
        at, stop = start + _SEGMENT.size, start + _SEGMENT.size + size
        if version != 1 or protocol != _DEEP:
            self._refuse(number, f"is IEX-TP version {version}, protocol {protocol:#06x}, not DEEP 1.0", start, end)
            return
        content, found = self.content, 0
        while found < count and at + 2 <= min(stop, end):
            length = content[at] + (content[at + 1] << 8)
            if at + 2 + length > min(stop, end):
                break
            self.starts.append(at + 2)
            self.sizes.append(length)
            at += 2 + length
            found += 1
        if found:
            self.packets += [number] * found
            self._counts.append(found)
            self._captured.append(captured_ns)
            self._sequences.append(sequence)
        if found < count or stop > end:
            self._refuse(number, f"has {found} whole messages where its header says {count}", start, end)

    def _refuse(self, packet: int, why: str, start: int, end: int) -> None:
        self.refused.append(RefusedRow(packet, f"packet {packet:,}: {why}", shown(self.content[start:end])))

    def chunk(self, first: int) -> Chunk:
        counts = np.array(self._counts, np.int64)
        starts, sizes = np.array(self.starts, np.int64), np.array(self.sizes, np.int64)
        captured = np.repeat(np.array(self._captured, np.uint64), counts)
        within = np.arange(len(starts)) - np.repeat(np.cumsum(counts) - counts, counts)
        sequence = np.repeat(np.array(self._sequences, np.int64), counts) + within
        octets = np.frombuffer(self.content, np.uint8)
        kinds = np.where(sizes > 0, octets[np.minimum(starts, len(octets) - 1)], 0) if len(starts) else sizes
        place = np.arange(first, first + len(starts))
        good = np.zeros(len(starts), bool)
        events = []
        for kind, dtype in _DTYPES.items():
            at = np.flatnonzero((kinds == kind[0]) & (sizes == dtype.itemsize))
            if len(at):
                good[at] = True
                rows = np.ascontiguousarray(octets[starts[at][:, None] + np.arange(dtype.itemsize)])
                messages = rows.view(dtype).reshape(len(at))
                events.append(_events(kind, messages, place[at], captured[at], sequence[at]))
        for bad in np.flatnonzero(~good).tolist():
            start, size = self.starts[bad], self.sizes[bad]
            kind = self.content[start : start + 1]
            self._refuse(
                self.packets[bad], f"{kind!r} with {size} bytes is no message of DEEP 1.0", start, start + size
            )
        return Chunk(events, self.refused)


def _events(
    kind: bytes, messages: RecordArray, place: Ints, captured: npt.NDArray[np.uint64], sequence: Ints
) -> Events:
    extra: dict[str, npt.NDArray[Any]] = {}
    if kind in b"85":
        records = orders(len(messages))
        records["price"], records["size"] = messages["price"] * _PRICE_UNIT, messages["size"]
        records["side"] = SIDE_BID if kind == b"8" else SIDE_ASK
        records["action"] = np.where(messages["size"] == 0, ACTION_CANCEL, ACTION_MODIFY)
        records["flags"] = np.where(messages["flags"] & 1, FLAG_MBP | FLAG_LAST, FLAG_MBP)
        extra["venue_sequence"] = sequence
    elif kind in b"TB":
        records = trades(len(messages))
        records["price"], records["size"] = messages["price"] * _PRICE_UNIT, messages["size"]
        records["trade_id"], records["condition"] = messages["id"], messages["flags"]
        records["venue_sequence"] = sequence & 0xFFFFFFFF
        if kind == b"B":
            records["action"] = ACTION_BUST
    elif kind == b"D":
        records = instruments(len(messages))
        records["raw_symbol"] = np.char.strip(messages["symbol"])
        records["exchange"] = VENUE.encode()
    elif kind == b"P":
        records = statuses(len(messages))
        records["action"] = StatusAction.SSR_CHANGE
        records["is_short_sell_restricted"] = np.where(messages["flags"] == 0, b"N", b"Y")
    elif kind in b"SHOE":
        records = statuses(len(messages))
        codes = _STATUS[kind]
        told = [messages["flags"] == ord(code) for code in codes]
        records["action"] = np.select(told, [int(each) for each in codes.values()], int(_NO))
        if kind in b"HO":
            records["is_trading"] = np.where(records["action"] == int(_TRADING), b"Y", b"N")
    else:
        records = system_messages(len(messages))
        records["msg"] = [b"IEX " + kind + b" " + message.tobytes()[1:].hex().encode() for message in messages]
    records["ts_event"] = messages["ts"]
    venues = Coded.same(VENUE, len(records))
    symbols = None
    if "symbol" in (messages.dtype.names or ()):
        found, codes_of = np.unique(messages["symbol"], return_inverse=True)
        symbols = Coded(codes_of.astype(np.int64), [name.decode("ascii", "replace").strip() for name in found.tolist()])
    return Events(records, place, symbols, venues, captured, extra)

"""Read IEX DEEP 1.0 from captures (`levelcast.formats.pcap`): IEX-TP segments of messages, little-endian.

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

`ts_recv` is the time of the capture, `venue_sequence` the sequence of the session. That starts again at 1 when the
session was restarted; the order of the capture is the order of the rows.
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
from levelcast.formats.messages import DAY_EVENTS, actions_of, by_type, layouts
from levelcast.formats.pcap import Payload, pieces
from levelcast.records import RecordArray, StatusAction, codes, instruments, orders, statuses, system_messages, trades

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
    b"A": (80, "symbol S8"),
}
_DTYPES = layouts(_HEAD, _FIELDS)

_HALT, _TRADING = StatusAction.HALT, StatusAction.TRADING
_STATUS = {
    b"S": {**DAY_EVENTS, b"R": _TRADING},
    b"H": {b"H": _HALT, b"O": StatusAction.QUOTING, b"P": StatusAction.PAUSE, b"T": _TRADING},
    b"O": {b"O": _HALT, b"N": _TRADING},
    b"E": {b"O": StatusAction.CROSS, b"C": StatusAction.CLOSE},
}
"""Meaning of the code of a message, by type."""


def iex_events(path: Path) -> Iterator[Chunk]:
    """Yield the messages of a capture, and the packets and messages that could not be read."""
    place = 1
    with refusing(path):
        for content, payloads in pieces(path):
            walk = _Walk(content)
            for payload in payloads:
                walk.segment(payload)
            yield walk.chunk(place)
            place += len(walk.starts)


class _Walk:
    """The messages of a piece of the capture: the position of each, and the values of its segment."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.starts: list[int] = []
        self.sizes: list[int] = []
        self.packets: list[int] = []
        self.refused: list[RefusedRow] = []
        self._segments: list[tuple[int, int, int]] = []
        """For each segment with messages: their count, the capture time, the first sequence."""

    def segment(self, payload: Payload) -> None:
        """Parse one IEX-TP segment; one without messages is a heartbeat."""
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
            self._segments.append((found, captured_ns, sequence))
        if found < count or stop > end:
            self._refuse(number, f"has {found} complete messages, but its header states {count}", start, end)

    def _refuse(self, packet: int, why: str, start: int, end: int) -> None:
        self.refused.append(RefusedRow(packet, f"packet {packet:,}: {why}", shown(self.content[start:end])))

    def chunk(self, first: int) -> Chunk:
        counts, captured_ns, sequences = np.array(self._segments, np.uint64).reshape(-1, 3).T.astype(np.int64)
        starts, sizes = np.array(self.starts, np.int64), np.array(self.sizes, np.int64)
        captured = np.repeat(captured_ns.astype(np.uint64), counts)
        within = np.arange(len(starts)) - np.repeat(np.cumsum(counts) - counts, counts)
        sequence = np.repeat(sequences, counts) + within
        place = np.arange(first, first + len(starts))
        found, bad = by_type(self.content, starts, sizes, _DTYPES)
        for each in bad:
            start, size = self.starts[each], self.sizes[each]
            why = f"{self.content[start : start + 1]!r} with {size} bytes is not a message of DEEP 1.0"
            self._refuse(self.packets[each], why, start, start + size)
        return Chunk(
            [_events(kind, told, place[at], captured[at], sequence[at]) for kind, (at, told) in found.items()],
            self.refused,
        )


def _events(
    kind: bytes, messages: RecordArray, place: Ints, captured: npt.NDArray[np.uint64], sequence: Ints
) -> Events:
    extra: dict[str, npt.NDArray[Any]] = {}
    if kind in b"85":
        records = orders(len(messages))
        records["price"], records["size"] = messages["price"] * _PRICE_UNIT, messages["size"]
        records["side"] = codes.SIDE_BID if kind == b"8" else codes.SIDE_ASK
        records["action"] = np.where(messages["size"] == 0, codes.ACTION_CANCEL, codes.ACTION_MODIFY)
        records["flags"] = np.where(messages["flags"] & 1, codes.FLAG_MBP | codes.FLAG_LAST, codes.FLAG_MBP)
        extra["venue_sequence"] = sequence
    elif kind in b"TB":
        records = trades(len(messages))
        records["price"], records["size"] = messages["price"] * _PRICE_UNIT, messages["size"]
        records["trade_id"], records["condition"] = messages["id"], messages["flags"]
        records["venue_sequence"] = sequence & 0xFFFFFFFF
        if kind == b"B":
            records["action"] = codes.ACTION_BUST
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
        records["action"] = actions_of(messages["flags"].view("S1"), _STATUS[kind])
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

"""Public part of a floor's events as records: orders without owners (MBO), trades, definitions and statuses (M13).

The order feed follows DBN: A adds an order, M changes it, C takes a size away from it, T and F report a trade and
change no book. So a book builder of others rebuilds the engine's book from A, M and C. A trade is T and C for the
aggressor, F and C for the resting order. Stops that wait are not shown before they are triggered. The last record of a
frame has the flag of DBN for it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from levelcast.market.public_events import PublicFeed
from levelcast.native.book_codes import EventKind
from levelcast.records import (
    BY_RTYPE,
    RTYPE_INSTRUMENT,
    RTYPE_ORDER,
    WORD_BYTES,
    RecordArray,
    split,
    statuses,
    trades,
)

F_LAST = 128
"""DBN: the last record of an event."""
_ORDER = BY_RTYPE[RTYPE_ORDER]
_BLANK = _ORDER.blank[list(_ORDER.base_dtype.names or ())].astype(_ORDER.base_dtype)
_ACTIONS = {
    EventKind.ACCEPTED: b"A", EventKind.TRIGGERED: b"A", EventKind.REPLACED: b"M", EventKind.CANCELLED: b"C",
    EventKind.EXPIRED: b"C", EventKind.TRADE: b"T", EventKind.FILL: b"F",
}  # fmt: skip
_ACTION_OF = np.zeros(256, "S1")
for _kind, _action in _ACTIONS.items():
    _ACTION_OF[_kind] = _action
_TRADED = np.isin(np.arange(256), [int(EventKind.TRADE), int(EventKind.FILL)])
_OF_ORDERS = _ACTION_OF != b""
_OF_ORDERS[int(EventKind.WAITING)] = True


class PublicRecords(NamedTuple):
    """Records of a frame for the two feeds, with nothing between them."""

    orders: bytes
    trades: bytes


class PublicRecorder:
    """Convert the events of each frame; it is fed all frames from the first one on."""

    def __init__(self, publisher: int) -> None:
        self.publisher = publisher
        self._feed = PublicFeed()
        self._hidden: set[int] = set()
        """Stops that wait."""

    def take(self, payload: bytes, timestamp_ns: int, events: RecordArray) -> PublicRecords:
        """Return the records of a frame: `payload` has its definitions, if there are any."""
        definitions = _definitions(payload)
        public = self._feed.take(events)
        common = definitions + self._statuses(public, timestamp_ns)
        return PublicRecords(common + self._orders(public, timestamp_ns), common + self._trades(public, timestamp_ns))

    def _orders(self, events: RecordArray, timestamp_ns: int) -> bytes:
        events = self._without_hidden(events[_OF_ORDERS[events["kind"]]])
        if not len(events):
            return b""
        traded = _TRADED[events["kind"]]
        counts = 1 + traded
        rows = events.repeat(counts) if traded.any() else events
        made = _BLANK.repeat(len(rows))
        made["length"] = _ORDER.base_size // WORD_BYTES
        made["publisher_id"], made["ts_event"] = self.publisher, timestamp_ns
        for name in ("instrument_id", "order_id", "price", "size", "side"):
            made[name] = rows[name]
        made["action"] = _ACTION_OF[rows["kind"]]
        ends = np.cumsum(counts) - 1
        made["action"][ends[traded]] = b"C"
        made["flags"][-1] |= F_LAST
        return made.tobytes()

    def _without_hidden(self, events: RecordArray) -> RecordArray:
        """Leave out stops that wait, and their cancels."""
        waiting = events["kind"] == EventKind.WAITING
        if not self._hidden and not waiting.any():
            return events
        kept = np.ones(len(events), bool)
        for at, event in enumerate(events):
            number, kind = int(event["order_id"]), int(event["kind"])
            if kind == EventKind.WAITING:
                self._hidden.add(number)
            elif number in self._hidden and kind == EventKind.TRIGGERED:
                self._hidden.discard(number)
            kept[at] = number not in self._hidden
            if number in self._hidden and not event["left"] and kind != EventKind.WAITING:
                self._hidden.discard(number)
        return events[kept]

    def _trades(self, events: RecordArray, timestamp_ns: int) -> bytes:
        done = events[(events["kind"] == EventKind.TRADE) | (events["kind"] == EventKind.BUSTED)]
        if not len(done):
            return b""
        made = trades(len(done))
        made["publisher_id"], made["ts_event"] = self.publisher, timestamp_ns
        made["flags"] = F_LAST
        for name in ("instrument_id", "price", "size", "side"):
            made[name] = done[name]
        busts = done["kind"] == EventKind.BUSTED
        made["trade_id"] = np.where(busts, done["order_id"], done["trade_id"])
        made["action"] = np.where(busts, b"C", b"T")
        made["side"][busts] = b"N"
        made["venue_sequence"] = made["trade_id"] & 0xFFFFFFFF
        return made.tobytes()

    def _statuses(self, events: RecordArray, timestamp_ns: int) -> bytes:
        phases = events[events["kind"] == EventKind.PHASE]
        if not len(phases):
            return b""
        made = statuses(len(phases))
        made["publisher_id"], made["ts_event"] = self.publisher, timestamp_ns
        made["instrument_id"], made["action"] = phases["instrument_id"], phases["flags"]
        return made.tobytes()


def _definitions(payload: bytes) -> bytes:
    if RTYPE_INSTRUMENT not in payload:
        return b""
    return b"".join(batch.records.tobytes() for batch in split(payload) if batch.kind.rtype == RTYPE_INSTRUMENT)

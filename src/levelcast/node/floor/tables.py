"""Tables of each order's life as Parquet files that DuckDB, Spark and pandas read: `orders` and `fills`.

`orders` has a row for each event of an order, `fills` one for each side of each trade. They are a function of the tape:
a file's name ends in the number of its last event, and a restarted floor continues after the last one. A file is
visible when it is complete.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from levelcast.extras import arrow
from levelcast.market.entry.listing import InstrumentList
from levelcast.native.book_codes import BookReason, EventKind
from levelcast.records import RecordArray

FLUSH_ROWS = 100_000
FLUSH_NS = 60 * 10**9
_FILE = re.compile(r"events-(\d+)-(\d+)\.parquet")
_KINDS = {
    EventKind.ACCEPTED: "accepted", EventKind.WAITING: "waiting", EventKind.CANCELLED: "cancelled",
    EventKind.EXPIRED: "expired", EventKind.REPLACED: "replaced", EventKind.TRIGGERED: "triggered",
    EventKind.REJECTED: "rejected", EventKind.TRADE: "fill", EventKind.FILL: "fill",
}  # fmt: skip
_OF_ORDERS = np.zeros(256, bool)
_OF_ORDERS[[int(kind) for kind in _KINDS]] = True
_SIDES = {b"B": "buy", b"A": "sell", b"N": "none"}


class OrderTables:
    def __init__(self, directory: Path, listing: InstrumentList) -> None:
        arrow("pyarrow.parquet")  # a missing package is an error now, not with the first file
        self._orders, self._fills = directory / "orders", directory / "fills"
        for each in (self._orders, self._fills):
            each.mkdir(parents=True, exist_ok=True)
            for unfinished in each.glob("*.new"):
                unfinished.unlink()
        self._listing = listing
        self._written = max((_last(path) for path in self._orders.iterdir()), default=0)
        """Number of the last event in the files."""
        self._parts: list[tuple[int, int, RecordArray]] = []
        """First event, time and events of each frame that is not in a file yet."""
        self._rows = 0
        self._since_ns = 0
        self._last = self._written

    def add(self, first_event: int, timestamp_ns: int, events: RecordArray, now: int) -> None:
        """Add the events of a frame."""
        if not len(events):
            return
        last = first_event + len(events) - 1
        if last <= self._written:
            return
        if not self._parts:
            self._since_ns = now
        self._parts.append((first_event, timestamp_ns, events))
        self._rows += len(events)
        self._last = last

    @property
    def is_full(self) -> bool:
        """There are enough rows for a file."""
        return self._rows >= FLUSH_ROWS

    @property
    def wake_ns(self) -> int | None:
        """Time of the next `flush`."""
        return self._since_ns + FLUSH_NS if self._parts else None

    def flush(self) -> None:
        """Write the files of the events so far."""
        if not self._parts:
            return
        events = np.concatenate([each for _, _, each in self._parts])
        numbers = np.concatenate([np.arange(first, first + len(each)) for first, _, each in self._parts])
        times = np.concatenate([np.full(len(each), at, np.int64) for _, at, each in self._parts])
        name = f"events-{int(numbers[0]):020d}-{self._last:020d}.parquet"
        fills = (events["kind"] == EventKind.TRADE) | (events["kind"] == EventKind.FILL)
        self._write(self._fills / name, self._fill_columns(events[fills], numbers[fills], times[fills]))
        mine = _OF_ORDERS[events["kind"]]
        self._write(self._orders / name, self._order_columns(events[mine], numbers[mine], times[mine]))
        self._written, self._parts, self._rows = self._last, [], 0

    def _write(self, path: Path, columns: dict[str, object]) -> None:
        unfinished = path.with_suffix(".new")
        arrow("pyarrow.parquet").write_table(arrow().table(columns), unfinished)
        unfinished.rename(path)

    def _common(self, events: RecordArray, numbers: np.ndarray, times: np.ndarray) -> dict[str, object]:
        pa = arrow()
        names = {number: listed.symbol.decode() for number, listed in self._listing.by_id.items()}
        return {
            "event": pa.array(numbers.astype(np.uint64)),
            "time": pa.array(times, pa.timestamp("ns", "UTC")),
            "symbol": _named(events["instrument_id"], names),
            "account": pa.array(events["account"]),
            "client_order_id": pa.array(events["client_order_id"]),
            "order_id": pa.array(events["order_id"]),
            "side": _named(events["side"], _SIDES),
            "price": pa.array(events["price"] / 1e9),
            "size": pa.array(events["size"]),
            "left": pa.array(events["left"]),
        }

    def _order_columns(self, events: RecordArray, numbers: np.ndarray, times: np.ndarray) -> dict[str, object]:
        reasons = {int(reason): reason.name.lower() for reason in BookReason}
        return self._common(events, numbers, times) | {
            "kind": _named(events["kind"], {int(kind): name for kind, name in _KINDS.items()}),
            "reason": _named(events["reason"], reasons),
        }

    def _fill_columns(self, events: RecordArray, numbers: np.ndarray, times: np.ndarray) -> dict[str, object]:
        pa = arrow()
        return self._common(events, numbers, times) | {
            "trade_id": pa.array(events["trade_id"]),
            "aggressor": pa.array((events["kind"] == EventKind.TRADE) & (events["flags"] & 2 == 0)),
            "auction": pa.array(events["flags"] & 2 != 0),
        }


def _named(values: np.ndarray, names: dict[int, str] | dict[bytes, str]) -> object:
    """Return a column of names, as a dictionary column."""
    pa = arrow()
    found, indices = np.unique(values, return_inverse=True)
    texts = [names.get(key, "unknown") for key in found.tolist()]
    return pa.DictionaryArray.from_arrays(pa.array(indices.astype(np.int32)), pa.array(texts, pa.string()))


def _last(path: Path) -> int:
    match = _FILE.fullmatch(path.name)
    return int(match[2]) if match else 0

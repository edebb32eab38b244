"""Read order events of Bitstamp, as ob-analytics records them: a CSV with a header.

    id,timestamp,exchange.timestamp,price,volume,action,direction

Times are milliseconds since 1970, prices US dollars, volumes 1e-8 BTC that are left. `created` is a new order,
`changed` a partial fill, `deleted` with volume 0 the last fill, and with a volume left a cancel.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from levelcast.formats.columns import Coded, Rows, TradeFileError, prices, refusing, whole_numbers
from levelcast.formats.csv_parquet import csv_batches, header_names
from levelcast.records import RecordArray

SYMBOL = "BTCUSD"
EVENT_ROW: np.dtype[np.void] = np.dtype(
    [("ts_event", "<u8"), ("id", "<u8"), ("price", "<i8"), ("volume", "<i8"), ("action", "S7"), ("side", "S1")]
)
COLUMNS = ("id", "timestamp", "exchange.timestamp", "price", "volume", "action", "direction")
_ACTIONS = {"created": b"created", "changed": b"changed", "deleted": b"deleted"}
_SIDES = {"bid": b"B", "ask": b"A"}
_MS = 1_000_000
_LARGEST = 2**62


def bitstamp_events(path: Path) -> RecordArray:
    """Return all rows of a file."""
    parts = [np.zeros(0, EVENT_ROW)]
    with refusing(path):
        if (names := header_names(path)) != [""] and tuple(names) != COLUMNS:
            raise TradeFileError(f"{path}: the header is not {','.join(COLUMNS)}; use Bitstamp's order events")
        for number, batch in enumerate(csv_batches(path, COLUMNS)):
            parts.append(_rows(path, batch.slice(0 if number else 1), sum(map(len, parts))))
    found = np.concatenate(parts)
    if not len(found):
        raise TradeFileError(f"{path}: no order events found; check the format")
    return found


def _rows(path: Path, batch: Any, before: int) -> RecordArray:
    rows = Rows(path, before + 1)
    made = np.zeros(batch.num_rows, EVENT_ROW)
    made["id"] = whole_numbers(batch.column("id"), "id", rows, _LARGEST)
    made["ts_event"] = whole_numbers(batch.column("timestamp"), "timestamp", rows, _LARGEST // _MS) * np.uint64(_MS)
    made["price"] = prices(batch.column("price"), rows)
    made["volume"] = whole_numbers(batch.column("volume"), "volume", rows, _LARGEST)
    made["action"] = _coded(batch, "action", _ACTIONS, rows)
    made["side"] = _coded(batch, "direction", _SIDES, rows)
    return made


def _coded(batch: Any, name: str, codes: dict[str, bytes], rows: Rows) -> np.ndarray[Any, Any]:
    coded = Coded.of(batch.column(name), name, rows)
    for number, text in enumerate(coded.names):
        if text not in codes:
            rows.fail(coded.first(number), f"{name} {text!r} is not one of {', '.join(codes)}; correct the row")
    return np.array([codes[text] for text in coded.names] or [b""])[coded.codes]

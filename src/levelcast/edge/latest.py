"""The last record of each instrument on each floor: what a snapshot tells of the time before it.

- Kept are the last trade (of action T: a bust or a correction is no price), quote, status, definition and mapping of
  each (instrument, floor). Orders and system messages pass.
- A record is kept in its type's own size: a bare DBN record gets its tail, a longer tail is cut off.
- The order is by type, instrument and floor, so that all receivers' snapshots at one place are the same bytes.

Work is per frame: the records of a frame are found and written by numpy, none of them in Python.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from levelcast import records
from levelcast.records import RecordArray, RecordType

__all__ = ["Latest"]

_FLOOR_BITS = np.uint64(16)
_KEPT = (
    records.RTYPE_TRADE,
    records.RTYPE_QUOTE,
    records.RTYPE_STATUS,
    records.RTYPE_INSTRUMENT,
    records.RTYPE_MAPPING,
)

Keys = npt.NDArray[np.uint64]


class _Table:
    """The last records of one type, in the order of their keys."""

    def __init__(self, kind: RecordType) -> None:
        self.kind = kind
        self.keys: Keys = np.empty(0, np.uint64)
        self.rows: RecordArray = np.empty(0, np.dtype((np.void, kind.dtype.itemsize)))

    def update(self, batch: RecordArray) -> None:
        if self.kind.rtype == records.RTYPE_TRADE:
            is_trade = batch["action"] == records.ACTION_TRADE
            if not is_trade.all():
                batch = batch[is_trade]
        if not len(batch):
            return
        keys = batch["instrument_id"].astype(np.uint64) << _FLOOR_BITS | batch["publisher_id"]
        keys, from_end = np.unique(keys[::-1], return_index=True)
        rows = self._whole(batch, len(batch) - 1 - from_end)
        places = np.searchsorted(self.keys, keys)
        known = np.zeros(len(keys), np.bool_)
        if len(self.keys):
            known = self.keys[places.clip(max=len(self.keys) - 1)] == keys
        self.rows[places[known]] = rows[known]
        if not known.all():
            self._add(keys[~known], rows[~known])

    def _whole(self, batch: RecordArray, chosen: npt.NDArray[np.intp]) -> RecordArray:
        """Some records as so many bytes each."""
        dtype = self.kind.dtype
        if batch.dtype.itemsize == dtype.itemsize:
            found: RecordArray = batch.view(self.rows.dtype)[chosen]
            return found
        whole = np.empty(len(chosen), dtype)
        for name in dtype.names or ():
            whole[name] = batch[name][chosen]
        whole["length"] = dtype.itemsize // records.WORD_BYTES
        return whole.view(self.rows.dtype)

    def _add(self, keys: Keys, rows: RecordArray) -> None:
        keys = np.concatenate((self.keys, keys))
        order = keys.argsort(kind="stable")
        self.keys, self.rows = keys[order], np.concatenate((self.rows, rows))[order]


class Latest:
    """One stripe's last records.

    >>> batch = records.trades(3)
    >>> batch["instrument_id"] = [7, 8, 7]
    >>> batch["price"] = [1, 2, 3]
    >>> latest = Latest()
    >>> latest.update(batch.tobytes())
    >>> records.split(latest.payload())[0].records["price"].tolist()
    [3, 2]
    """

    def __init__(self) -> None:
        by_rtype = {kind.rtype: kind for kind in records.RECORD_TYPES}
        self._tables = {rtype: _Table(by_rtype[rtype]) for rtype in _KEPT}

    def __len__(self) -> int:
        return sum(len(table.keys) for table in self._tables.values())

    def update(self, payload: records.Payload) -> None:
        """Take in the records of a frame, or of a snapshot: later ones count."""
        if not payload:
            return
        for batch in records.split(payload):
            table = self._tables.get(batch.kind.rtype)
            if table is not None:
                table.update(batch.records)

    def payload(self) -> bytes:
        """All of them, for a snapshot."""
        return b"".join(table.rows.tobytes() for table in self._tables.values())

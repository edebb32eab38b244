"""The last record of each instrument on each floor: what a snapshot tells of the time before it.

- Kept are the last trade (of action T: a bust or a correction is no price), quote, status, definition and mapping of
  each (instrument, floor). Orders and system messages pass.
- A record is kept in its type's own size: a bare DBN record gets its tail, a longer tail is cut off.
- The order is by type, instrument and floor, so that all receivers' snapshots at one place are the same bytes.

`levelcast.native` keeps them: a frame's records are looked up in a table, and only the last of each is copied.
"""

from __future__ import annotations

from levelcast import native, records
from levelcast.records import RecordType


def _kind(kind: RecordType) -> tuple[int, int, bytes, int, int]:
    """A type as the kernel wants it: of trades, those whose action is T."""
    where, what = -1, 0
    if kind.rtype == records.RTYPE_TRADE:
        fields = kind.dtype.fields
        assert fields is not None
        where, what = fields["action"][1], ord(records.ACTION_TRADE)
    return kind.rtype, kind.base_size, kind.blank.tobytes(), where, what


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
        self._kept = native.LastRecords(tuple(_kind(records.BY_RTYPE[rtype]) for rtype in records.STATE_RTYPES))

    def __len__(self) -> int:
        return len(self._kept)

    def update(self, payload: records.Payload) -> None:
        """Take in the records of a frame, or of a snapshot: later ones count."""
        if not self._kept.update(payload):
            records.count_records(payload)  # which says what is wrong

    def payload(self) -> bytes:
        """All of them, for a snapshot."""
        return self._kept.payload()

"""Keep the last record of each instrument on each floor, for snapshots.

- It keeps the last trade (action T only: a bust or correction has no price), quote, status, definition and mapping of
  each (instrument, floor). Orders and system messages are ignored.
- A record is stored in its type's own size: a bare DBN record gets its tail, a longer tail is truncated.
- Records are sorted by type, instrument and floor, so all receivers' snapshots at one position are identical.

`levelcast.native` stores them: it looks up a frame's records in a table and copies only the last of each.
"""

from __future__ import annotations

from levelcast import native, records
from levelcast.records import RecordType


def _kind(kind: RecordType) -> tuple[int, int, bytes, int, int]:
    """Return a type in the form that `levelcast.native` expects: of trades, those with action T."""
    where, what = -1, 0
    if kind.rtype == records.RTYPE_TRADE:
        fields = kind.dtype.fields
        assert fields is not None
        where, what = fields["action"][1], ord(records.ACTION_TRADE)
    return kind.rtype, kind.base_size, kind.blank.tobytes(), where, what


class Latest:
    """The last records of one stripe.

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
        """Add the records of a frame or of a snapshot; later records replace earlier ones."""
        if not self._kept.update(payload):
            records.count_records(payload)  # raises the error with its reason

    def payload(self) -> bytes:
        """Return all kept records, for a snapshot."""
        return self._kept.payload()

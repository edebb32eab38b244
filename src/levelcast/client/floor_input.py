"""Accept records for one floor: check them, and fill its queue up to its capacity. Used by both publishers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from levelcast.client.packet_queue import PacketQueue
from levelcast.client.source_loop import SourceLoop
from levelcast.errors import NetError
from levelcast.network import Floor, SymbolDirectory
from levelcast.records import RECORD_TYPES, RTYPE_INSTRUMENT, RecordArray

_KINDS = {kind.rtype: kind for kind in RECORD_TYPES}
_HEADS = {
    kind: np.dtype({"names": ["head"], "formats": ["<u8"], "itemsize": kind.dtype.itemsize}) for kind in RECORD_TYPES
}
"""Length, type, publisher and instrument of a record as one number."""
_TABLE_IDS = 1 << 20
"""Up to this id, a lookup table marks the ids of a floor."""


class FloorInput:
    """Accept the records of one floor; `capacity` is the number of records that its queue holds."""

    def __init__(
        self, floor: Floor, directory: SymbolDirectory, queue: PacketQueue, loop: SourceLoop, capacity: int
    ) -> None:
        self.floor = floor
        self.queue = queue
        self.loop = loop
        self.closed = False
        self._capacity = capacity
        self._ids = np.array(sorted(directory.ids_of(floor).values()), np.uint32)
        self._is_known = np.zeros(min(int(self._ids[-1]), _TABLE_IDS) + 2, np.bool_)
        self._is_known[self._ids[self._ids <= _TABLE_IDS]] = True

    @property
    def room(self) -> int:
        return max(0, self._capacity - self.queue.waiting)

    @property
    def settled(self) -> bool:
        return not self.queue.waiting and not self.queue.source.unwitnessed

    def check(self) -> None:
        """Raise the error that stopped the floor, if any."""
        if self.closed:
            raise NetError(f"the publisher of {self.floor.name} is closed")
        if self.loop.error is not None:
            raise self.loop.error
        if self.queue.source.superseded:
            raise NetError(
                f"another process has published as {self.floor.name} with a higher incarnation; receivers now ignore "
                "this publisher"
            )

    def put(self, records: RecordArray, first: int) -> int:
        """Queue records from `first` on, up to the capacity; return the end position."""
        self.check()
        with self.loop.changed:
            count = min(self.room, len(records) - first)
            is_awake = self.queue.wake_ns is not None
            if count:
                self.queue.put(records[first : first + count])
        if count and not is_awake:
            self.loop.wake()
        return first + count

    def checked(self, records: RecordArray) -> RecordArray:
        """Return records that are valid for this floor, else raise ValueError: receivers would drop the packet."""
        if not len(records):
            return records
        kind = _KINDS.get(int(records["rtype"][0])) if records.dtype.names else None
        if kind is None or records.dtype != kind.dtype:
            raise ValueError("not an array of levelcast.records; create it with trades(n), quotes(n) ...")
        words = kind.dtype.itemsize // 4
        heads = np.ascontiguousarray(records.view(_HEADS[kind])["head"])
        if (heads.view(np.uint32)[::2] != (words | kind.rtype << 8 | self.floor.publisher << 16)).any():
            if np.any(records["length"] != words) or np.any(records["rtype"] != kind.rtype):
                raise ValueError("a record's length or rtype differs from that of its array")
            raise ValueError(f"a record's publisher_id is not {self.floor.publisher}, the id of {self.floor.name}")
        for name in ("sequence", "ts_recv"):
            if name in (kind.dtype.names or ()) and records[name].any():
                raise ValueError(f"a record already has a {name}; leave it 0, the ring stamps it on release")
        if kind.rtype != RTYPE_INSTRUMENT and not self._knows(heads.view(np.uint32)[1::2]):
            raise ValueError(
                f"a record's instrument_id is not a symbol of {self.floor.name}; use ids from "
                "levelcast.network.SymbolDirectory"
            )
        return records

    def _knows(self, ids: npt.NDArray[np.uint32]) -> bool:
        """Return whether all ids are symbols of the floor."""
        if self._is_known.take(ids, mode="clip").all():
            return True
        return int(self._ids[-1]) > _TABLE_IDS and bool(np.isin(ids, self._ids).all())


class FloorCounts:
    """Floor statistics of both publishers."""

    _input: FloorInput

    @property
    def room(self) -> int:
        """Number of records that `publish` accepts now without waiting."""
        return self._input.room

    @property
    def waiting(self) -> int:
        """Accepted records that are not yet in a packet: they wait for credit (rule 10)."""
        return self._input.queue.waiting

    @property
    def unwitnessed(self) -> int:
        """Packets that were sent and are not yet witnessed."""
        return self._input.queue.source.unwitnessed

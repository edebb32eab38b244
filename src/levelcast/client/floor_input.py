"""Accept records for one floor: check them, and fill its queue as far as there is room. Used by both publishers."""

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
"""Up to this id, a table says which ids are a floor's."""


class FloorInput:
    """The entrance of one floor; `capacity` is the number of records that its queue holds."""

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
        """Raise what has ended the floor, if something has."""
        if self.closed:
            raise NetError(f"the publisher of {self.floor.name} is closed")
        if self.loop.error is not None:
            raise self.loop.error
        if self.queue.source.superseded:
            raise NetError(
                f"another process publishes as {self.floor.name}, or has, in a newer incarnation: what this one sends "
                "is not heard any more"
            )

    def put(self, records: RecordArray, first: int) -> int:
        """Queue records from `first` on, as far as there is room; up to which."""
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
        """Return records that may go on this floor's tape, else raise ValueError: a receiver would drop the packet."""
        if not len(records):
            return records
        kind = _KINDS.get(int(records["rtype"][0])) if records.dtype.names else None
        if kind is None or records.dtype != kind.dtype:
            raise ValueError("these are no records of levelcast.records: make them with trades(n), quotes(n) ...")
        words = kind.dtype.itemsize // 4
        heads = np.ascontiguousarray(records.view(_HEADS[kind])["head"])
        if (heads.view(np.uint32)[::2] != (words | kind.rtype << 8 | self.floor.publisher << 16)).any():
            if np.any(records["length"] != words) or np.any(records["rtype"] != kind.rtype):
                raise ValueError("a record has another length or rtype than its array")
            raise ValueError(f"a record's publisher_id is not {self.floor.publisher}, that of {self.floor.name}")
        for name in ("sequence", "ts_recv"):
            if name in (kind.dtype.names or ()) and records[name].any():
                raise ValueError(f"a record has a {name} already: the ring stamps it on release")
        if kind.rtype != RTYPE_INSTRUMENT and not self._knows(heads.view(np.uint32)[1::2]):
            raise ValueError(
                f"a record's instrument_id is no symbol of {self.floor.name}: take ids from "
                "levelcast.network.SymbolDirectory"
            )
        return records

    def _knows(self, ids: npt.NDArray[np.uint32]) -> bool:
        """Tell whether all ids are symbols of the floor."""
        if self._is_known.take(ids, mode="clip").all():
            return True
        return int(self._ids[-1]) > _TABLE_IDS and bool(np.isin(ids, self._ids).all())


class FloorFigures:
    """What both publishers tell of their floor."""

    _input: FloorInput

    @property
    def room(self) -> int:
        """Records that `publish` takes now without waiting."""
        return self._input.room

    @property
    def waiting(self) -> int:
        """Records that `publish` has taken and that are in no packet yet: they wait for credit (rule 10)."""
        return self._input.queue.waiting

    @property
    def unwitnessed(self) -> int:
        """Packets that were sent and are not yet safe."""
        return self._input.queue.source.unwitnessed

"""Collect a subscriber's statistics of one line: messages received, messages received first, arrival times of slots.

A line is a group that it has joined. Several lines carry the same numbered messages (MS §4.1). The statistics compare
their speed and completeness, at a cost of a few operations per train of packets.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

from levelcast import records
from levelcast.wire.mold import END_OF_SESSION, HEADER_SIZE, LENGTH_SIZE, Block

__all__ = ["LineCounts", "LineStats"]

_HEADER = struct.Struct(">10sQH")
_TS_RECV_AT = {kind.rtype: kind.ts_recv_offset for kind in records.RECORD_TYPES if kind.ts_recv_offset is not None}
_TIME = struct.Struct("<Q")


@dataclass(slots=True)
class LineCounts:
    packets: int = 0
    messages: int = 0
    first: int = 0
    """Messages received on this line before any other."""
    missing: int = 0
    """Messages not received on this line, between the first and the last received."""

    @property
    def share_first(self) -> float:
        return self.first / self.messages if self.messages else 0.0


class LineStats:
    """Statistics of one group; with `arrivals`, records the arrival time of the first byte of each slot."""

    def __init__(self, name: str, *, arrivals: bool = False) -> None:
        self.name = name
        self.counts = LineCounts()
        self.arrivals: dict[int, int] = {}
        """Arrival time of each slot (`ts_recv` of its records), by the wall clock."""
        self._notes = arrivals
        self._tops: dict[bytes, int] = {}
        """One past the highest message of each session."""

    def take(self, item: bytes | Block, now_ns: int, max_sessions: int) -> int:
        """Count a packet, or a block of several; return its stated number of messages. It may be malformed."""
        if type(item) is Block:
            session, sequence, count, size, payload, packets = item
            rtype = payload[1]
        else:
            assert isinstance(item, bytes)
            if len(item) <= HEADER_SIZE + LENGTH_SIZE + 1:
                return 0
            session, sequence, count = _HEADER.unpack_from(item)
            if count in (0, END_OF_SESSION):
                return 0
            size, payload, packets = 0, item[HEADER_SIZE + LENGTH_SIZE :], 1
            rtype = payload[1]
        counts = self.counts
        counts.packets += packets
        counts.messages += count
        top = self._tops.get(session)
        if top is None and len(self._tops) >= max_sessions:
            return count
        end = sequence + count
        if top is None or sequence >= top:
            counts.missing += 0 if top is None else sequence - top
            self._tops[session] = end
        elif end > top:
            self._tops[session] = end
        else:
            counts.missing = max(0, counts.missing - count)  # late or duplicate
        if self._notes and (at := _TS_RECV_AT.get(rtype)) is not None:
            self._note(payload, size, count, rtype, at, now_ns)
        return count

    def _note(self, payload: bytes, size: int, count: int, rtype: int, at: int, now_ns: int) -> None:
        """Record arrival times: a packet has records of one slot, a block may have several slots in order."""
        if not size:
            if len(payload) >= at + _TIME.size:
                self.arrivals.setdefault(_TIME.unpack_from(payload, at)[0], now_ns)
            return
        rows = np.frombuffer(payload, np.uint8).reshape(count, size)
        times = rows[rows[:, 1] == rtype, at : at + _TIME.size].copy().view("<u8")[:, 0]
        for slot_ns in times[np.concatenate(([True], times[1:] != times[:-1]))].tolist():
            self.arrivals.setdefault(slot_ns, now_ns)

"""Implement the grade *latest only* for one session: its holes, and the records of a hole that arrive out of date.

Guarantees for prices (`levelcast.edge.server.last_records`: the last trade of action T, quote, status, definition and
mapping of each instrument on each floor):

- An older price is never delivered after a newer one of the same instrument, floor and type.
- The newest price delivered is the newest of the session, unless it was in a hole that was given up (`Lost`).

Rules:

1. A record after a hole is delivered immediately. Waiting for the hole would delay the newest price, and could save at
   best an older one.
2. The content of a hole is unknown, so it is requested a limited number of times. When it arrives, or a packet that was
   only reordered, records that a newer one replaces are dropped and counted as superseded. The others are delivered,
   each under its own sequence, which is lower than sequences delivered before.
3. A hole that cannot matter is not requested. The caller may specify the prices that it needs of a session (`expect`).
   When each of them has arrived after the hole, the content of the hole is out of date.
4. A record that no newer record replaces (a bust or a correction, an order, a system message) is always delivered.
5. Everything up to a watermark is complete when no earlier hole is open.

Only records delivered while a hole is open can supersede records in the hole: all earlier ones have lower sequences. So
a subscriber without losses has no extra cost, and no Python code runs per record.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from levelcast import records
from levelcast.records import record_places
from levelcast.wire import mold
from levelcast.wire.mold import EdgePacket
from levelcast.wire.watermark import Watermark

MAX_HOLES = 256
"""Maximum number of holes; above it, the oldest is given up."""
MAX_KEYS = 1 << 20
"""Maximum number of instruments and floors; above it, all holes are given up and the table is cleared."""
_MAX_MARKS = 256

Keys = npt.NDArray[np.uint64]
_NO_KEY = np.uint64(2**64 - 1)
_IS_KEPT = np.isin(np.arange(256), records.STATE_RTYPES)


assert records.TRADE.fields is not None
_ACTION_AT: int = records.TRADE.fields["action"][1]


@dataclass(slots=True)
class Hole:
    """Missing messages, from `first` to `end` - 1."""

    first: int
    end: int
    ask_ns: int
    attempts: int = 0


class PacketOutcome(NamedTuple):
    """Result for a packet: the parts to deliver, and how many of its messages were new, and how many out of date."""

    packets: list[EdgePacket]
    new: int
    superseded: int


class LatestOnly:
    """One session."""

    def __init__(self) -> None:
        self.holes: list[Hole] = []
        """In order, all below the highest message received."""
        self.tail: Hole | None = None
        """Messages that are announced but not received, after the highest message received."""
        self._keys: Keys = np.empty(0, np.uint64)
        """Sorted; `_sequences` has the newest sequence of each that was delivered while a hole was open."""
        self._sequences: Keys = np.empty(0, np.uint64)
        self._expected: Keys | None = None
        self._marks: deque[tuple[int, Watermark]] = deque(maxlen=_MAX_MARKS)

    @property
    def next_ns(self) -> int | None:
        times = [hole.ask_ns for hole in self.holes]
        if self.tail is not None:
            times.append(self.tail.ask_ns)
        return min(times, default=None)

    @property
    def is_full(self) -> bool:
        """Return whether the oldest hole has to be given up."""
        return len(self.holes) > MAX_HOLES or bool(self.holes and len(self._keys) > MAX_KEYS)

    def expect(self, prices: Iterable[tuple[int, int]]) -> None:
        """Set the floors and instruments of the only trades that the subscriber needs of this session."""
        pairs = np.array(list(prices), np.uint64).reshape(-1, 2)
        kind = np.uint64(records.RTYPE_TRADE << 48)
        self._expected = np.unique(kind | pairs[:, 0] << np.uint64(32) | pairs[:, 1])

    def is_covered(self, hole: Hole) -> bool:
        """Return whether every expected price has arrived after the hole."""
        if self._expected is None:
            return False
        return bool((self._newest(self._expected) >= np.uint64(hole.end)).all())

    # -- packets ------------------------------------------------------------------------------------------

    def wants(self, first: int, end: int) -> bool:
        """Return whether some of these messages are missing."""
        place = bisect_right(self.holes, first, key=lambda hole: hole.end)
        return place < len(self.holes) and self.holes[place].first < end

    def place(self, packet: EdgePacket, following: int, ask_ns: int) -> PacketOutcome:
        """Add a packet; `following` is the highest sequence so far plus one. Request a new hole at `ask_ns`."""
        found: list[EdgePacket] = []
        new = superseded = 0
        for first, end in self._fill(packet.sequence, packet.sequence + packet.records, ask_ns):
            piece = mold.cut(packet, first - packet.sequence, end - first)
            fresh = self._fresh(piece)
            new += piece.records
            superseded += piece.records - sum(each.records for each in fresh)
            found += fresh
        end = packet.sequence + packet.records
        if end > following:
            if packet.sequence > following:
                waited = self.tail if self.tail is not None else Hole(0, 0, ask_ns)
                self.holes.append(Hole(following, packet.sequence, min(ask_ns, waited.ask_ns), waited.attempts))
            piece = mold.cut(packet, max(0, following - packet.sequence))
            new += piece.records
            if self.holes:
                self._enter(_keys_of(piece), piece.sequence)
            found.append(piece)
        return PacketOutcome(found, new, superseded)

    def _fill(self, first: int, end: int, ask_ns: int) -> list[tuple[int, int]]:
        """Return the parts of holes that these messages fill. The rest of a hole is requested when no more arrives."""
        holes = self.holes
        start = bisect_right(holes, first, key=lambda hole: hole.end)
        stop, parts, left = start, [], []
        while stop < len(holes) and holes[stop].first < end:
            hole = holes[stop]
            begin, finish = max(first, hole.first), min(end, hole.end)
            parts.append((begin, finish))
            again_ns = min(hole.ask_ns, ask_ns)
            left += [Hole(*each, again_ns) for each in ((hole.first, begin), (finish, hole.end)) if each[0] < each[1]]
            stop += 1
        holes[start:stop] = left
        return parts

    def _fresh(self, piece: EdgePacket) -> list[EdgePacket]:
        """Return the records of a hole that no newer record replaces, in runs."""
        keys = _keys_of(piece)
        sequences = np.arange(piece.records, dtype=np.uint64) + np.uint64(piece.sequence)
        kept = self._newest(keys) < sequences
        if self.holes:
            self._enter(np.where(kept, keys, _NO_KEY), piece.sequence)
        if kept.all():
            return [piece]
        edges = np.flatnonzero(np.diff(np.concatenate(([False], kept, [False])))).reshape(-1, 2)
        return [mold.cut(piece, start, end - start) for start, end in edges.tolist()]

    # -- the table ----------------------------------------------------------------------------------------

    def _newest(self, keys: Keys) -> Keys:
        """Return the sequence of the newest record of each key, 0 if unknown."""
        if not len(self._keys):
            return np.zeros(len(keys), np.uint64)
        places = np.searchsorted(self._keys, keys).clip(max=len(self._keys) - 1)
        return np.where(self._keys[places] == keys, self._sequences[places], np.uint64(0))

    def _enter(self, keys: Keys, first: int) -> None:
        """Record keys as delivered, from `first` on; each is newer than the known record of its key."""
        wanted = keys != _NO_KEY
        sequences = np.flatnonzero(wanted).astype(np.uint64) + np.uint64(first)
        keys = keys[wanted]
        merged = np.union1d(self._keys, keys) if not np.isin(keys, self._keys).all() else self._keys
        if len(merged) > len(self._keys):
            newest = np.zeros(len(merged), np.uint64)
            newest[np.searchsorted(merged, self._keys)] = self._sequences
            self._keys, self._sequences = merged, newest
        # If a key occurs several times, the last one counts.
        self._sequences[np.searchsorted(self._keys, keys)] = sequences

    def forget(self) -> None:
        """Clear a table with too many keys; called when no hole is open, because it is not needed then."""
        if len(self._keys) > MAX_KEYS:
            self._keys, self._sequences = np.empty(0, np.uint64), np.empty(0, np.uint64)

    # -- watermarks ---------------------------------------------------------------------------------------

    def mark(self, sequence: int, watermark: Watermark) -> None:
        """Record a watermark that was delivered with the records from `sequence` on."""
        self._marks.append((sequence, watermark))

    def complete(self) -> Watermark | None:
        """Return the last new watermark without an open hole before it."""
        upto = self.holes[0].first if self.holes else None
        reached = [each for each in self._marks if upto is None or each[0] < upto]
        if not reached:
            return None
        self._marks = deque((each for each in self._marks if each not in reached), maxlen=_MAX_MARKS)
        return max(reached, key=lambda each: each[1].complete_ns)[1]


def _keys_of(packet: EdgePacket) -> Keys:
    """Return type, floor and instrument of each record; `_NO_KEY` if no newer record replaces an older one."""
    content = np.frombuffer(packet.payload, np.uint8)
    words = np.frombuffer(packet.payload, "<u4")
    if packet.size:
        offsets = np.arange(0, len(content), packet.size)
    else:
        offsets, _ = record_places(packet.payload)
    heads = words[offsets // records.WORD_BYTES].astype(np.uint64)
    rtypes = heads >> np.uint64(8) & np.uint64(0xFF)
    instruments = words[offsets // records.WORD_BYTES + 1].astype(np.uint64)
    keys = rtypes << np.uint64(48) | heads >> np.uint64(16) << np.uint64(32) | instruments
    is_price = _IS_KEPT[rtypes.astype(np.intp)]
    trades = np.flatnonzero(rtypes == records.RTYPE_TRADE)
    is_price[trades] = content[offsets[trades] + _ACTION_AT] == ord(records.ACTION_TRADE)
    return np.where(is_price, keys, _NO_KEY)

"""Merge the frames of several order stripes into one sequence before order entry (E9, rule 15).

The order across stripes is (timestamp, stripe). A frame is passed on when every other stripe is complete up to its
timestamp: it has released a later frame, or its receiver states a watermark (`Releases.complete_upto_ns`). Sequence
numbers of the result count the records of all stripes, and its chain hash covers all of their frames, so a single
stripe and several ones are the same to `FairEntry`. Each gateway sends on one stripe.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

import blake3

from levelcast.market.fair.fair_order import EntryFrame
from levelcast.protocol.history import PACKET_ROW, Frame


def entry_frame(frame: Frame) -> EntryFrame:
    """Return the frame of a ring as order entry reads it."""
    rows = tuple((source, records) for source, _, _, records, _ in PACKET_ROW.iter_unpack(frame.table))
    last = frame.first_sequence + frame.records - 1
    return EntryFrame(last, frame.timestamp_ns, frame.chain, frame.content, rows)


class StripeMerge:
    """Frames of several stripes, waiting for the slowest stripe."""

    def __init__(self, stripes: Iterable[int]) -> None:
        self.complete_ns = dict.fromkeys(stripes, -1)
        """By stripe: everything with a timestamp up to this one is here."""
        self._frames: list[tuple[int, int, EntryFrame]] = []
        self._before = dict.fromkeys(self.complete_ns, 0)
        self._sequence = 0
        self._chain = bytes(32)

    def add(self, stripe: int, frame: EntryFrame) -> None:
        """Add a frame of a stripe, in the order of that stripe."""
        if frame.timestamp_ns <= self.complete_ns[stripe]:
            raise ValueError(f"stripe {stripe}: frame {frame.sequence} is not after the frames before it")
        self.complete_ns[stripe] = frame.timestamp_ns
        heapq.heappush(self._frames, (frame.timestamp_ns, stripe, frame))

    def complete(self, stripe: int, upto_ns: int) -> None:
        """Note that all frames of a stripe with timestamps up to `upto_ns` have been added."""
        self.complete_ns[stripe] = max(self.complete_ns[stripe], upto_ns)

    def take(self) -> list[EntryFrame]:
        """Return the frames whose place is final, in order."""
        final_ns = min(self.complete_ns.values())
        taken = []
        while self._frames and self._frames[0][0] <= final_ns:
            _, stripe, frame = heapq.heappop(self._frames)
            self._sequence += frame.sequence - self._before[stripe]
            self._before[stripe] = frame.sequence
            self._chain = blake3.blake3(self._chain + frame.chain).digest()
            taken.append(frame._replace(sequence=self._sequence, chain=self._chain))
        return taken

"""The retransmit server: keep sent packets for a while, and answer requests for missing ones.

- The store of a session has the last `store_bytes` of packets sent, unchanged: the packets of one slot are one piece,
  removed as one. Only an answer reads its content. The store begins at the start of the oldest piece.
- The answer to a request is ordinary downstream packets, unicast, from the first requested message that is still in the
  store. Messages are in order, as many per packet as fit, so several small packets are resent as one full packet.
- A request is answered with at most `reply_packets` packets. The subscriber requests the rest after these have arrived.
  So a request for 65,535 messages does not delay other subscribers, and a forged one sends a victim no more than that.
- If the store has none of the requested messages, it sends no answer: MoldUDP64 does not define one. The counts
  distinguish messages that have left the store from messages not sent yet.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from struct import Struct

import numpy as np
import numpy.typing as npt

from levelcast.edge.server.packetizer import Outgoing
from levelcast.wire import mold
from levelcast.wire.header import Malformed, Reason

_END = Struct("<I")

Numbers = npt.NDArray[np.uint32]
_GONE = (memoryview(b""), np.empty(0, np.uint32))


@dataclass(frozen=True, slots=True)
class RetransmitConfig:
    store_bytes: int = 64 * 2**20
    """Bytes of packets kept for each session."""
    packet_bytes: int = mold.DEFAULT_PACKET_BYTES
    reply_packets: int = 8

    def __post_init__(self) -> None:
        if not mold.MIN_PACKET_BYTES <= self.packet_bytes <= 65_507:
            raise ValueError(f"packet_bytes must be {mold.MIN_PACKET_BYTES} to 65,507, not {self.packet_bytes}")
        if self.store_bytes < self.packet_bytes or self.reply_packets < 1:
            raise ValueError("store_bytes must be at least packet_bytes, and reply_packets at least 1")


@dataclass(slots=True)
class RetransmitCounts:
    """Results of requests. Each request is in exactly one of the first six counts."""

    whole: int = 0
    """Answered with all requested messages."""
    partly: int = 0
    """Answered in part: the rest has left the store, was not sent yet, or exceeds one answer."""
    gone: int = 0
    """Not answered: all requested messages have left the store."""
    ahead: int = 0
    """Not answered: none of the requested messages has been sent."""
    unknown: int = 0
    """Not answered: unknown session."""
    malformed: Counter[Reason] = field(default_factory=Counter)
    messages: int = 0
    packets: int = 0


@dataclass(slots=True, eq=False)
class _Store:
    """The last packets of one session, contiguous: run i begins at `firsts[i]`."""

    next: int
    firsts: list[int] = field(default_factory=list)
    runs: list[tuple[memoryview, Numbers]] = field(default_factory=list)
    """Packets back to back, and the end offset of each."""
    head: int = 0
    """Runs below this index have been removed; they are deleted from the lists from time to time."""
    size: int = 0

    @property
    def start(self) -> int:
        return self.firsts[self.head] if self.head < len(self.firsts) else self.next

    def append(self, out: Outgoing, limit_bytes: int) -> None:
        self.firsts.append(out.sequence)
        self.runs.append((memoryview(out.buffer), np.frombuffer(out.ends, "<u4")))
        self.next = out.sequence + out.records
        self.size += len(out.buffer)
        while self.size > limit_bytes and self.head < len(self.runs) - 1:
            self.size -= len(self.runs[self.head][0])
            self.runs[self.head] = _GONE
            self.head += 1
        if self.size > limit_bytes:
            self._cut_last(limit_bytes)
        if self.head > 1_024 and self.head * 2 > len(self.firsts):
            del self.firsts[: self.head], self.runs[: self.head]
            self.head = 0

    def _cut_last(self, limit_bytes: int) -> None:
        """Keep only the last packets of a run that exceeds the limit."""
        buffer, ends = self.runs[-1]
        first = int(np.searchsorted(ends, len(buffer) - limit_bytes)) + 1
        start = int(ends[first - 1])
        kept = bytes(buffer[start:])
        self.firsts[-1] = _sequence_at(kept, 0) if kept else self.next
        self.runs[-1] = (memoryview(kept), ends[first:] - np.uint32(start))
        self.size = len(kept)

    def packets_from(self, sequence: int) -> Iterator[tuple[int, int, memoryview]]:
        """Yield first sequence, sequence after the last, and blocks of each packet, from that of `sequence` on."""
        index = bisect_right(self.firsts, sequence, lo=self.head) - 1
        for buffer, ends in self.runs[index:]:
            places = [0, *ends.tolist()]
            number = bisect_right(places[:-1], sequence, key=lambda at: _sequence_at(buffer, at)) - 1
            for start, end in pairwise(places[max(number, 0) :]):
                _, first, count = mold.HEADER.unpack_from(buffer, start)
                yield first, first + count, buffer[start + mold.HEADER_SIZE : end]


def _sequence_at(buffer: bytes | memoryview, at: int) -> int:
    found: int = mold.HEADER.unpack_from(buffer, at)[1]
    return found


class Retransmitter:
    """Answer requests for the packets passed to `keep`."""

    def __init__(self, config: RetransmitConfig | None = None) -> None:
        self.config = config or RetransmitConfig()
        self.counts = RetransmitCounts()
        self._stores: dict[bytes, _Store] = {}

    def keep(self, sent: Iterable[Outgoing]) -> None:
        """Store sent packets. If the sequence of a session jumps (restarted edge), begin a new store."""
        for out in sent:
            if not out.records:
                continue
            store = self._stores.get(out.session)
            if store is None or store.next != out.sequence:
                store = self._stores[out.session] = _Store(out.sequence)
            store.append(out, self.config.store_bytes)

    def forget(self, session: bytes) -> None:
        """Delete the store of a session that has ended."""
        self._stores.pop(session, None)

    def held(self, session: bytes) -> tuple[int, int] | None:
        """Return the first sequence in the store and the one after the last; None for an unknown session."""
        store = self._stores.get(session)
        return (store.start, store.next) if store is not None else None

    def answer(self, datagram: bytes | memoryview) -> Outgoing | None:
        """Return the packets to send back to the requesting socket; None for an invalid request, which is counted."""
        request = self.open(datagram)
        return None if request is None else self.give(request)

    def open(self, datagram: bytes | memoryview) -> mold.RetransmitRequest | None:
        """Decode a request; count an invalid one."""
        try:
            return mold.decode_request(datagram)
        except Malformed as malformed:
            self.counts.malformed[malformed.reason] += 1
            return None

    def give(self, request: mold.RetransmitRequest) -> Outgoing | None:
        """Return and count the answer to a request; None if the store has none of it."""
        counts = self.counts
        store = self._stores.get(request.session)
        if store is None:
            counts.unknown += 1
            return None
        answer = self.find(request)
        if answer is None:
            if request.sequence < store.start:
                counts.gone += 1
            else:
                counts.ahead += 1
            return None
        if answer.records == request.messages:
            counts.whole += 1
        else:
            counts.partly += 1
        counts.messages += answer.records
        counts.packets += answer.packets
        return answer

    def find(self, request: mold.RetransmitRequest) -> Outgoing | None:
        """Return the part of a request that the store has, without counting."""
        session, sequence, wanted = request
        store = self._stores.get(session)
        if store is None:
            return None
        first, end = max(sequence, store.start), min(sequence + wanted, store.next)
        return self._answer(session, store, first, end) if first < end else None

    def _answer(self, session: bytes, store: _Store, first: int, end: int) -> Outgoing:
        room = self.config.packet_bytes - mold.HEADER_SIZE
        buffer, ends = bytearray(), bytearray()
        parts: list[memoryview] = []
        used, start, at = 0, first, first

        def finish() -> None:
            nonlocal buffer, ends
            buffer += b"".join((mold.header(session, start, at - start), *parts))
            ends += _END.pack(len(buffer))

        for begin, stop, blocks in store.packets_from(first):
            if begin < at or stop > end:
                blocks = _some_blocks(blocks, at - begin, min(stop, end) - begin)
            if parts and (used + len(blocks) > room or min(stop, end) - start > mold.MAX_COUNT):
                finish()
                if len(ends) == self.config.reply_packets * _END.size:
                    parts = []
                    break
                parts, used, start = [], 0, at
            parts.append(blocks)
            used += len(blocks)
            at = min(stop, end)
            if at == end:
                break
        if parts:
            finish()
        return Outgoing(session, first, at - first, bytes(buffer), bytes(ends))


def _some_blocks(blocks: memoryview, first: int, last: int) -> memoryview:
    """Return blocks `first` to `last` - 1 of a packet, with their lengths."""
    at = start = 0
    for number in range(last):
        if number == first:
            start = at
        at += mold.LENGTH_SIZE + (blocks[at] << 8 | blocks[at + 1])
    return blocks[start:at]

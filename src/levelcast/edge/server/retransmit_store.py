"""The retransmit server: what was sent is kept for a while, and whoever missed some of it asks.

- The store of a session is the last so many bytes of packets sent, kept as they were sent: what a slot released is one
  piece, and leaves as one. Only an answer looks into it. The store begins where the oldest piece begins.
- The answer to a request is ordinary downstream packets, unicast: from the first message wanted that is still
  there, in order, as many to a packet as fit, so that a run of small packets comes back as a few full ones.
- A request is answered with at most `reply_packets` packets. The customer asks for the rest when these have come:
  so a request for 65,535 messages does not hold up the others, and a forged one brings a victim no more than that.
- Where nothing of what is wanted is there, there is no answer: MoldUDP64 has no word for it. The counts say whether
  it is gone already or was not sent yet.
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
    """Packets kept for each session."""
    packet_bytes: int = mold.DEFAULT_PACKET_BYTES
    reply_packets: int = 8

    def __post_init__(self) -> None:
        if not mold.MIN_PACKET_BYTES <= self.packet_bytes <= 65_507:
            raise ValueError(f"packets have {mold.MIN_PACKET_BYTES} to 65,507 bytes, not {self.packet_bytes}")
        if self.store_bytes < self.packet_bytes or self.reply_packets < 1:
            raise ValueError("a store holds at least one packet, and an answer has at least one")


@dataclass(slots=True)
class RetransmitCounts:
    """How requests fared. Each is in exactly one of the first six."""

    whole: int = 0
    """Answered with everything that was wanted."""
    partly: int = 0
    """Answered, but something was gone, not sent yet, or too much for one answer."""
    gone: int = 0
    """Not answered: all of it has left the store."""
    ahead: int = 0
    """Not answered: none of it has been sent."""
    unknown: int = 0
    """Not answered: no such session here."""
    malformed: Counter[Reason] = field(default_factory=Counter)
    messages: int = 0
    packets: int = 0


@dataclass(slots=True, eq=False)
class _Store:
    """The last packets of one session, contiguous: run i of them begins at `firsts[i]`."""

    next: int
    firsts: list[int] = field(default_factory=list)
    runs: list[tuple[memoryview, Numbers]] = field(default_factory=list)
    """Packets back to back, and where each of them ends."""
    head: int = 0
    """Runs below this index have left; they are cut off the lists now and then."""
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
        """One run is too much: the last packets of it that fit are kept."""
        buffer, ends = self.runs[-1]
        first = int(np.searchsorted(ends, len(buffer) - limit_bytes)) + 1
        start = int(ends[first - 1])
        kept = bytes(buffer[start:])
        self.firsts[-1] = _sequence_at(kept, 0) if kept else self.next
        self.runs[-1] = (memoryview(kept), ends[first:] - np.uint32(start))
        self.size = len(kept)

    def packets_from(self, sequence: int) -> Iterator[tuple[int, int, memoryview]]:
        """First sequence, the one after the last, and the blocks of each packet, from that of `sequence` on."""
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
    """Answers requests for the sessions of which it is shown the packets."""

    def __init__(self, config: RetransmitConfig | None = None) -> None:
        self.config = config or RetransmitConfig()
        self.counts = RetransmitCounts()
        self._stores: dict[bytes, _Store] = {}

    def keep(self, sent: Iterable[Outgoing]) -> None:
        """Remember packets that were sent. A session that jumps (an edge that started anew) begins a new store."""
        for out in sent:
            if not out.records:
                continue
            store = self._stores.get(out.session)
            if store is None or store.next != out.sequence:
                store = self._stores[out.session] = _Store(out.sequence)
            store.append(out, self.config.store_bytes)

    def forget(self, session: bytes) -> None:
        """The session is over for everybody."""
        self._stores.pop(session, None)

    def held(self, session: bytes) -> tuple[int, int] | None:
        """The first sequence in the store and the one after the last; None for an unknown session."""
        store = self._stores.get(session)
        return (store.start, store.next) if store is not None else None

    def answer(self, datagram: bytes | memoryview) -> Outgoing | None:
        """The packets to send back to the socket that asked; None for a bad request, which is counted."""
        request = self.open(datagram)
        return None if request is None else self.give(request)

    def open(self, datagram: bytes | memoryview) -> mold.RetransmitRequest | None:
        """What is asked for; a bad request is counted."""
        try:
            return mold.decode_request(datagram)
        except Malformed as malformed:
            self.counts.malformed[malformed.reason] += 1
            return None

    def give(self, request: mold.RetransmitRequest) -> Outgoing | None:
        """The answer to a request, counted; None where there is nothing to answer with."""
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
        """What the store has of a request; nothing is counted."""
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
    """Blocks `first` to `last` - 1 of a packet, with their lengths."""
    at = start = 0
    for number in range(last):
        if number == first:
            start = at
        at += mold.LENGTH_SIZE + (blocks[at] << 8 | blocks[at + 1])
    return blocks[start:at]

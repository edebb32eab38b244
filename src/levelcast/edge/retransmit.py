"""The retransmit server: what was sent is kept for a while, and whoever missed some of it asks.

- The store of a session is the last so many bytes of packets sent. It begins where the oldest of them begins.
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
from collections.abc import Iterable
from dataclasses import dataclass, field

from levelcast.edge.gather import Outgoing
from levelcast.wire import mold

__all__ = ["RetransmitConfig", "RetransmitCounts", "Retransmitter"]


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
    malformed: Counter[mold.Reason] = field(default_factory=Counter)
    messages: int = 0
    packets: int = 0


class _Store:
    """The last packets of one session, contiguous: packet i begins at `firsts[i]`."""

    __slots__ = ("bytes", "firsts", "head", "next", "packets")

    def __init__(self, sequence: int) -> None:
        self.firsts: list[int] = []
        self.packets: list[bytes] = []
        self.head = 0
        """Packets below this index have left; they are cut off the lists now and then."""
        self.next = sequence
        self.bytes = 0

    @property
    def start(self) -> int:
        return self.firsts[self.head] if self.head < len(self.firsts) else self.next

    def append(self, packet: Outgoing, limit_bytes: int) -> None:
        self.firsts.append(packet.sequence)
        self.packets.append(packet.datagram)
        self.next = packet.sequence + packet.records
        self.bytes += len(packet.datagram)
        while self.bytes > limit_bytes:
            self.bytes -= len(self.packets[self.head])
            self.packets[self.head] = b""
            self.head += 1
        if self.head > 1_024 and self.head * 2 > len(self.firsts):
            del self.firsts[: self.head], self.packets[: self.head]
            self.head = 0

    def end_of(self, index: int) -> int:
        return self.firsts[index + 1] if index + 1 < len(self.firsts) else self.next


class Retransmitter:
    """Answers requests for the sessions of which it is shown the packets."""

    def __init__(self, config: RetransmitConfig | None = None) -> None:
        self.config = config or RetransmitConfig()
        self.counts = RetransmitCounts()
        self._stores: dict[bytes, _Store] = {}

    def keep(self, packets: Iterable[Outgoing]) -> None:
        """Remember packets that were sent. A session that jumps (an edge that started anew) begins a new store."""
        for packet in packets:
            if not packet.records:
                continue
            store = self._stores.get(packet.session)
            if store is None or store.next != packet.sequence:
                store = self._stores[packet.session] = _Store(packet.sequence)
            store.append(packet, self.config.store_bytes)

    def forget(self, session: bytes) -> None:
        """The session is over for everybody."""
        self._stores.pop(session, None)

    def held(self, session: bytes) -> tuple[int, int] | None:
        """The first sequence in the store and the one after the last; None for an unknown session."""
        store = self._stores.get(session)
        return (store.start, store.next) if store is not None else None

    def answer(self, datagram: bytes | memoryview) -> list[Outgoing]:
        """The packets to send back to the socket that asked; none for a bad request, which is counted."""
        counts = self.counts
        try:
            session, sequence, wanted = mold.decode_request(datagram)
        except mold.Malformed as malformed:
            counts.malformed[malformed.reason] += 1
            return []
        store = self._stores.get(session)
        if store is None:
            counts.unknown += 1
            return []
        first, end = max(sequence, store.start), min(sequence + wanted, store.next)
        if first >= end:
            if sequence < store.start:
                counts.gone += 1
            else:
                counts.ahead += 1
            return []
        replies = self._replies(session, store, first, end)
        sent = sum(reply.records for reply in replies)
        if sent == wanted:
            counts.whole += 1
        else:
            counts.partly += 1
        counts.messages += sent
        counts.packets += len(replies)
        return replies

    def _replies(self, session: bytes, store: _Store, first: int, end: int) -> list[Outgoing]:
        room = self.config.packet_bytes - mold.HEADER_SIZE
        replies: list[Outgoing] = []
        parts: list[memoryview] = []
        used, start, at = 0, first, first

        def finish() -> None:
            datagram = b"".join((mold.header(session, start, at - start), *parts))
            replies.append(Outgoing(session, start, at - start, datagram))

        index = bisect_right(store.firsts, first, lo=store.head) - 1
        while at < end:
            begin, stop = store.firsts[index], store.end_of(index)
            blocks = memoryview(store.packets[index])[mold.HEADER_SIZE :]
            if begin < at or stop > end:
                blocks = _some_blocks(blocks, at - begin, min(stop, end) - begin)
            if parts and (used + len(blocks) > room or min(stop, end) - start > mold.MAX_COUNT):
                finish()
                if len(replies) == self.config.reply_packets:
                    return replies
                parts, used, start = [], 0, at
            parts.append(blocks)
            used += len(blocks)
            at = min(stop, end)
            index += 1
        finish()
        return replies


def _some_blocks(blocks: memoryview, first: int, last: int) -> memoryview:
    """Blocks `first` to `last` - 1 of a packet, with their lengths."""
    at = start = 0
    for number in range(last):
        if number == first:
            start = at
        at += mold.LENGTH_SIZE + (blocks[at] << 8 | blocks[at + 1])
    return blocks[start:at]

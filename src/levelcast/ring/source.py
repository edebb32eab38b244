"""A source: numbers a floor's packets and sends them until they are witnessed (MS §2.1, §4.2; DESIGN rule 10).

| a packet is  | since                                   | the source                                      |
|--------------|-----------------------------------------|-------------------------------------------------|
| sent         | it was journaled and multicast          | resends it every `resend_ns`                    |
| acknowledged | a token named it in a run               | resends it if it is not witnessed within Δ_A + resend |
| witnessed    | a token marked it (or a later one)      | forgets it                                      |

- An acknowledgement alone can be lost with the slot owner that sent it, and a later `have` may belong to another
  history: the source drops a packet only after a mark (rule 10).
- At most W packets are unwitnessed; tokens carry W (credit).
- Packets are numbered from 1 in each incarnation. A source that has its journal continues in the same incarnation;
  one without starts a higher one and resends nothing.

Deviation from MS §2.1: a source does not decide that the ring is broken; the ring detects that by its own clock
(MS §5), so that floors need not be trusted with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import ClassVar, NamedTuple

from levelcast.protocol.config import StripeConfig
from levelcast.protocol.effects import GROUP, Effect, Persist, Send, SourceMark
from levelcast.protocol.events import Superseded
from levelcast.protocol.journal_image import JournalImage
from levelcast.protocol.machine import Machine
from levelcast.ring.copies import TrainCopies
from levelcast.ring.status import SourceStatus
from levelcast.wire.messages import Data, Message, Packet, Token
from levelcast.wire.packets import CrcSealer, PacketSealer, cut, join


class Unwitnessed(NamedTuple):
    """Packets that may have to be sent again, and the time of the next resend."""

    data: Data
    resend_ns: int


class Submitted(NamedTuple):
    """Result of submitting records to a source."""

    effects: list[Effect]
    last: int
    """The number of the last packet that was made."""
    records: int
    taken: int
    """Bytes of the payload in these packets."""


def _packets_of(journal: JournalImage, incarnation: int) -> list[Data]:
    return sorted(each for each in journal.packets.values() if each.incarnation == incarnation)


class Source(Machine):
    """One source of one stripe, sans I/O."""

    LISTENS: ClassVar[frozenset[type]] = frozenset({Token})

    def __init__(
        self,
        config: StripeConfig,
        source: int,
        incarnation: int,
        journal: JournalImage,
        now: int,
        sealer: PacketSealer | None = None,
    ) -> None:
        self.config = config
        self._sealer = sealer or CrcSealer(config.domain)
        self.timing = config.timing
        self.source = source
        self.incarnation = incarnation
        self.credit = config.credit
        self.superseded = False
        self.wake_ns: int | None = None
        """Not later than the first resend that is due: an acknowledgement may postpone that."""
        self._unwitnessed: deque[Unwitnessed] = deque()
        """In the order of their numbers, which have no gap."""
        self._witnessed = 0
        self._next = 1
        self._copies = TrainCopies(config)
        self._effects: list[Effect] = []
        if journal.mark is not None and journal.mark.incarnation == incarnation:
            self._witnessed = journal.mark.number
        kept = [self._sealer.renewed(each, now) for each in _packets_of(journal, incarnation)]
        self._unwitnessed.extend(
            Unwitnessed(data, now) for data in join(each for each in kept if each.first > self._witnessed)
        )
        self._next = (self._unwitnessed[-1].data.last if self._unwitnessed else self._witnessed) + 1
        self.wake_ns = now if self._unwitnessed else None

    @property
    def overhead(self) -> int:
        """Size of a packet's datagram without its records."""
        return self._sealer.overhead

    @property
    def unwitnessed(self) -> int:
        """Packets that were sent and are not yet witnessed."""
        return max(0, self._next - 1 - self._witnessed)

    @property
    def room(self) -> int:
        """Number of packets that may be submitted now: back-pressure for the caller."""
        return 0 if self.superseded else max(0, self.credit - self.unwitnessed)

    @property
    def witnessed(self) -> int:
        """Packets up to this number of this incarnation are witnessed."""
        return self._witnessed

    def status(self, now: int) -> SourceStatus:
        """Return the state of its packets."""
        return SourceStatus(self.incarnation, self.credit, self.witnessed, self.unwitnessed, self.superseded)

    def submit(self, payload: bytes, records: int, now: int) -> list[Effect]:
        """Number a packet, journal it and send it. The caller has checked `room`."""
        return self.submit_together([(payload, records)], now)

    def submit_together(self, packets: Sequence[tuple[bytes, int]], now: int) -> list[Effect]:
        """Submit several packets, each with its number of records: they are journaled and sent together."""
        assert self.room >= len(packets), "no credit: check `room` before submitting"
        sealed = [
            self._sealer.seal(Packet(self.source, self.incarnation, number, records, payload))
            for number, (payload, records) in enumerate(packets, self._next)
        ]
        return [effect for data in join(sealed) for effect in self._send(data, now)]

    def submit_all(self, payload: bytes | memoryview, packet_bytes: int, now: int) -> Submitted:
        """Submit records in as many full packets as credit allows, journaled and sent together."""
        data, records, taken = self._sealer.seal_all(
            payload, packet_bytes, self.room, self.source, self.incarnation, self._next
        )
        if data is None:
            return Submitted([], self._next - 1, 0, 0)
        return Submitted(self._send(data, now), data.last, records, taken)

    def _send(self, data: Data, now: int) -> list[Effect]:
        self._next = data.last + 1
        resend_ns = now + self.timing.resend_ns
        self._unwitnessed.append(Unwitnessed(data, resend_ns))
        self.wake_ns = resend_ns if self.wake_ns is None else min(self.wake_ns, resend_ns)
        return [Persist(data), Send(GROUP, data), *self._copies.after(data)]

    def step(self, batch: Iterable[Message], now: int, *, clock_trusted: bool = True) -> list[Effect]:
        """Handle tokens, resend packets that are due; set `wake_ns`."""
        self._effects = []
        for message in batch:
            if type(message) is Token:
                self._on_token(message, now)
        if not self._unwitnessed or self.superseded:
            self.wake_ns = None
        elif self.wake_ns is not None and self.wake_ns <= now:
            self._resend(now)
            self.wake_ns = min(waiting.resend_ns for waiting in self._unwitnessed)
        return self._effects

    def _on_token(self, token: Token, now: int) -> None:
        self.credit = token.credit
        for run in token.runs:
            if run.source == self.source:
                if run.incarnation == self.incarnation:
                    self._acknowledged(run.first, run.last, now)
                elif run.incarnation > self.incarnation and not self.superseded:
                    self.superseded = True
                    self._effects.append(Superseded(token.slot, run.incarnation))
        for mark in token.witnessed:
            if mark.source == self.source and mark.incarnation == self.incarnation and mark.number > self._witnessed:
                self._forget(mark.number)

    def _acknowledged(self, first: int, last: int, now: int) -> None:
        """Postpone the resend of acknowledged packets, which are not yet witnessed."""
        patience_ns = now + self.timing.hold_ns + self.timing.resend_ns
        left: deque[Unwitnessed] = deque()
        for data, resend_ns in self._unwitnessed:
            low, high = max(first, data.first), min(last, data.last)
            if low > high or resend_ns >= patience_ns:
                left.append(Unwitnessed(data, resend_ns))
                continue
            if data.first < low:
                left.append(Unwitnessed(cut(data, data.first, low - 1), resend_ns))
            left.append(Unwitnessed(cut(data, low, high), patience_ns))
            if high < data.last:
                left.append(Unwitnessed(cut(data, high + 1, data.last), resend_ns))
        self._unwitnessed = left

    def _forget(self, number: int) -> None:
        """Drop witnessed packets: they survive every reformation (rule 10)."""
        waiting = self._unwitnessed
        while waiting and waiting[0].data.last <= number:
            waiting.popleft()
        if waiting and waiting[0].data.first <= number:
            data, resend_ns = waiting[0]
            waiting[0] = Unwitnessed(cut(data, number + 1, data.last), resend_ns)
        self._witnessed = number
        self._effects.append(Persist(SourceMark(self.incarnation, number)))

    def _resend(self, now: int) -> None:
        again_ns = now + self.timing.resend_ns
        for place, (data, resend_ns) in enumerate(self._unwitnessed):
            if resend_ns <= now:
                data = self._sealer.renewed(data, now)
                self._unwitnessed[place] = Unwitnessed(data, again_ns)
                self._effects.append(Send(GROUP, data))

"""A source: a floor's packets on their way into the sequence (MS §2.1, §4.2; DESIGN rule 10).

| a packet is  | since                                   | the source                                      |
|--------------|-----------------------------------------|-------------------------------------------------|
| sent         | it was journaled and multicast          | resends it every `resend_ns`                    |
| acknowledged | a token named it in a run               | resends it if no witness comes within Δ_A + resend |
| witnessed    | a token marked it (or a later one)      | forgets it                                      |

- An acknowledgement alone can die with its site, and a later `have` may belong to another history: only a mark
  lets a packet go (rule 10).
- At most W packets are unwitnessed; W comes with the tokens (credit).
- Packets are numbered from 1 in each incarnation. A source that has its journal goes on in the same incarnation;
  one without takes a higher one and resends nothing.

Deviation from MS §2.1: a source does not decide that the ring is broken; the ring finds that out by its own clock
(MS §5), so that floors need not be trusted with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from levelcast.ring.config import RingConfig
from levelcast.ring.effects import GROUP, Effect, Persist, Report, Send, SourceMark
from levelcast.ring.journal import Journal
from levelcast.wire.messages import Data, Message, Token


@dataclass(slots=True)
class Unwitnessed:
    """A packet that may still have to be sent again."""

    packet: Data
    resend_ns: int


class Source:
    """One source of one stripe, sans I/O."""

    LISTENS: ClassVar[frozenset[type]] = frozenset({Token})

    def __init__(self, config: RingConfig, source: int, incarnation: int, journal: Journal, now: int) -> None:
        self.config = config
        self.timing = config.timing
        self.source = source
        self.incarnation = incarnation
        self.credit = config.credit
        self.superseded = False
        self.wake_ns: int | None = None
        self._unwitnessed: dict[int, Unwitnessed] = {}
        self._witnessed = 0
        self._next = 1
        self._effects: list[Effect] = []
        if journal.mark is not None and journal.mark.incarnation == incarnation:
            self._witnessed = journal.mark.number
            self._next = journal.mark.number + 1
        for packet in sorted(journal.packets.values()):
            if packet.incarnation == incarnation and packet.number > self._witnessed:
                self._unwitnessed[packet.number] = Unwitnessed(packet, now)
                self._next = packet.number + 1
        self.wake_ns = now if self._unwitnessed else None

    @property
    def unwitnessed(self) -> int:
        return len(self._unwitnessed)

    @property
    def room(self) -> int:
        """How many more packets may be submitted now: back-pressure that the caller can see."""
        return 0 if self.superseded else max(0, self.credit - len(self._unwitnessed))

    @property
    def witnessed(self) -> int:
        """Packets up to this number of this incarnation are safe."""
        return self._witnessed

    def submit(self, payload: bytes, records: int, now: int) -> list[Effect]:
        """Number a packet, journal it and send it. The caller has looked at `room`."""
        assert self.room > 0, "no credit: look at `room` before submitting"
        packet = Data(self.source, self.incarnation, self._next, records, payload)
        self._next += 1
        self._unwitnessed[packet.number] = Unwitnessed(packet, now + self.timing.resend_ns)
        self._schedule_wake()
        return [Persist(packet), Send(GROUP, packet)]

    def step(self, batch: Iterable[Message], now: int, *, clock_trusted: bool = True) -> list[Effect]:
        """Take in tokens, resend what is due; set `wake_ns`."""
        self._effects = []
        for message in batch:
            if type(message) is Token:
                self._on_token(message, now)
        if self.wake_ns is not None and self.wake_ns <= now and not self.superseded:
            self._resend(now)
        self._schedule_wake()
        return self._effects

    def _on_token(self, token: Token, now: int) -> None:
        self.credit = token.credit
        for run in token.runs:
            if run.source == self.source:
                if run.incarnation == self.incarnation:
                    self._acknowledged(run.first, run.last, token, now)
                elif run.incarnation > self.incarnation and not self.superseded:
                    self.superseded = True
                    self._effects.append(Report("superseded", token.slot, f"incarnation {run.incarnation} is newer"))
        for mark in token.witnessed:
            if mark.source == self.source and mark.incarnation == self.incarnation and mark.number > self._witnessed:
                self._forget(mark.number)

    def _acknowledged(self, first: int, last: int, token: Token, now: int) -> None:
        """Acknowledged, not yet safe: give the witness the time that it may take."""
        patience_ns = self.timing.hold_ns + self.timing.resend_ns
        for number in range(max(first, self._witnessed + 1), last + 1):
            waiting = self._unwitnessed.get(number)
            if waiting is not None:
                waiting.resend_ns = max(waiting.resend_ns, now + patience_ns)

    def _forget(self, number: int) -> None:
        """Witnessed: the packet survives every reformation, the source need not keep it (rule 10)."""
        for gone in range(self._witnessed + 1, number + 1):
            self._unwitnessed.pop(gone, None)
        self._witnessed = number
        self._effects.append(Persist(SourceMark(self.incarnation, number)))

    def _resend(self, now: int) -> None:
        for waiting in self._unwitnessed.values():
            if waiting.resend_ns <= now:
                waiting.resend_ns = now + self.timing.resend_ns
                self._effects.append(Send(GROUP, waiting.packet))

    def _schedule_wake(self) -> None:
        self.wake_ns = min((waiting.resend_ns for waiting in self._unwitnessed.values()), default=None)

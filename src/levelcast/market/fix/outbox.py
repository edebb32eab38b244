"""Outgoing messages of a session: numbers, heads, journal entries and resends.

A number is journaled before its message is sent. A resend sends the kept messages again with PossDupFlag and their
first SendingTime, and one gap fill for each run of numbers between them. It advances by a limited count of numbers in
a step, so that a request for a whole day holds nothing up.
"""

from __future__ import annotations

from collections.abc import Iterable

from levelcast.market.fix.config import SessionConfig
from levelcast.market.fix.effects import Effects, PersistEntry, SendBytes
from levelcast.market.fix.journal import Entry, HeadFields, Numbered, Sent, SessionImage
from levelcast.market.fix.values import time_text
from levelcast.market.fix.writer import HeadWriter

POSS_DUP, ORIG_SENDING_TIME = 43, 122


class Outbox:
    def __init__(self, config: SessionConfig, image: SessionImage) -> None:
        self.image = image
        self.last_sent_ns = 0
        self._head = HeadWriter(config.sender, config.target)
        self._batch = config.resend_batch
        self._kept_from = 0
        """Number of the first message that was kept, not sent, since the last session message; 0: none was."""
        self._resend: tuple[int, int] | None = None
        """First and last number still to be resent."""

    def persist(self, entry: Entry, effects: Effects) -> None:
        self.image.apply(entry)
        effects.append(PersistEntry(entry))

    def session_message(self, kind: bytes, body: bytes, now: int, effects: Effects) -> None:
        """Send a message that a resend replaces by a gap fill."""
        seq = self.image.next_out
        self._kept_from = 0
        self.persist(Numbered(seq), effects)
        effects.append(SendBytes(self._head.message(kind, seq, time_text(now), body)))
        self.last_sent_ns = now

    def message(
        self, kind: bytes, body: bytes, now: int, effects: Effects, *, cause: int, head: HeadFields, connected: bool
    ) -> None:
        """Keep a message for resends, and send it if there is a connection."""
        seq = self.image.next_out
        self.persist(Sent(seq, kind, body, now, cause, head), effects)
        if connected:
            self._send(seq, kind, body, now, effects, head)
        elif not self._kept_from:
            self._kept_from = seq

    def application_messages(
        self, messages: Iterable[tuple[bytes, bytes, int]], now: int, *, connected: bool
    ) -> list[tuple[Entry, bytes | None]]:
        """Number messages as `message` does; return their entries, and their bytes if there is a connection."""
        found: list[tuple[Entry, bytes | None]] = []
        image, encode, time, data = self.image, self._head.message, time_text(now), None
        seq = first = image.next_out
        for kind, body, cause in messages:
            entry = image.sent[seq] = Sent(seq, kind, body, now, cause)
            if cause > image.cause:
                image.cause = cause
            if connected:
                data = encode(kind, seq, time, body)
            found.append((entry, data))
            seq += 1
        image.next_out = seq
        if connected:
            self.last_sent_ns = now
        elif not self._kept_from and seq > first:
            self._kept_from = first
        return found

    def send_kept(self, now: int, effects: Effects) -> None:
        """Send the messages kept after the last session message, a Logon: nothing else would show the peer that gap."""
        first, self._kept_from = self._kept_from, 0
        for seq in range(first, self.image.next_out) if first else ():
            entry = self.image.sent[seq]
            self._send(seq, entry.type, entry.body, now, effects, entry.head)

    def _send(self, seq: int, kind: bytes, body: bytes, now: int, effects: Effects, head: HeadFields) -> None:
        if head:
            data = self._head.message_with(kind, seq, time_text(now), body, head)
        else:
            data = self._head.message(kind, seq, time_text(now), body)
        effects.append(SendBytes(data))
        self.last_sent_ns = now

    @property
    def resending(self) -> bool:
        return self._resend is not None

    def stop_resend(self) -> None:
        self._resend = None

    def resend(self, first: int, last: int) -> None:
        """Begin to resend a range; what is left of an earlier request stays part of it."""
        if self._resend is not None:
            first, last = min(first, self._resend[0]), max(last, self._resend[1])
        self._resend = (first, last)

    def continue_resend(self, now: int, effects: Effects) -> None:
        if self._resend is None:
            return
        first, last = self._resend
        upto = min(last, first + self._batch - 1)
        sent = self.image.sent
        gap = first
        for seq in range(first, upto + 1):
            entry = sent.get(seq)
            if entry is None:
                continue
            self._fill(gap, seq, now, effects)
            extra = ((POSS_DUP, b"Y"), (ORIG_SENDING_TIME, time_text(entry.sent_ns)), *entry.head)
            effects.append(SendBytes(self._head.message_with(entry.type, seq, time_text(now), entry.body, extra)))
            gap = seq + 1
        self._fill(gap, upto + 1, now, effects)
        self._resend = (upto + 1, last) if upto < last else None
        self.last_sent_ns = now

    def _fill(self, first: int, following: int, now: int, effects: Effects) -> None:
        """Send a gap fill for the numbers from the first up to the following one."""
        if first == following:
            return
        text = time_text(now)
        extra = ((POSS_DUP, b"Y"), (ORIG_SENDING_TIME, text))
        effects.append(SendBytes(self._head.message_with(b"4", first, text, b"36=%d\x01123=Y\x01" % following, extra)))

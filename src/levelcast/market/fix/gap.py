"""Messages that arrived before their turn: kept behind a gap, which is requested once and again after a time.

Count and bytes of the kept messages are limited. A message beyond the limits is not kept; when the gap before it is
closed, it is part of the next gap.
"""

from __future__ import annotations

from levelcast.market.fix.reader import Message


class Gap:
    def __init__(self, max_messages: int, max_bytes: int) -> None:
        self._max_messages, self._max_bytes = max_messages, max_bytes
        self._held: dict[int, Message | None] = {}
        """By number. None: already handled, only the number counts."""
        self._bytes = 0
        self.upto = 0
        """Last number of the gap that is requested; 0: none is."""
        self.seen = 0
        """Highest number that arrived before its turn."""
        self.changed_ns = 0
        """When the gap was requested or became smaller."""

    @property
    def requested(self) -> bool:
        return self.upto > 0

    @property
    def idle(self) -> bool:
        """Nothing is requested, and nothing is kept."""
        return not self.upto and not self._held

    def hold(self, seq: int, message: Message | None) -> None:
        """Keep a message, or a number alone, if there is room."""
        self.seen = max(self.seen, seq)
        size = len(message.raw) if message is not None else 0
        if seq not in self._held and len(self._held) < self._max_messages and self._bytes + size <= self._max_bytes:
            self._held[seq] = message
            self._bytes += size

    def holds(self, seq: int) -> bool:
        return seq in self._held

    def take(self, seq: int) -> Message | None:
        """Return a kept message, which is kept no longer."""
        message = self._held.pop(seq)
        self._bytes -= len(message.raw) if message is not None else 0
        return message

    def advance(self, expected: int, now: int) -> None:
        """Note that a higher number is expected now."""
        if self.upto:
            self.changed_ns = now
            if expected > self.upto:
                self.upto = 0
        if self._held:
            for seq in [seq for seq in self._held if seq < expected]:
                self.take(seq)

    def clear(self) -> None:
        self._held.clear()
        self._bytes = self.upto = self.seen = 0

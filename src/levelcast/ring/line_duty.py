"""The lines that a receiver sends to, by the newest assignment that it has received (MS §4.3).

- An assignment is a part of every RING, and a `LineHolders` after a change of the secondaries. The highest (generation,
  number) counts, a RING has number 0. So two servers need not agree, and an old message changes nothing.
- **Overlap.** A receiver starts to send to a new line as soon as it receives the assignment. It stops with a line that
  it has lost δ_N + k_r·τ_r later: every receiver has the assignment by then. So a line that moves between two running
  receivers is never without one. Meanwhile both send the same numbered bytes, and a subscriber drops the second copy.
- A ring without this receiver takes all its lines, with the same overlap. It ends early for a line of which the new
  receiver has sent a token in that ring: it has the RING. A planned stop waits for the end of the overlap.
- A receiver that has restarted may have missed an assignment. It has no line until it has received one, and requests it
  from the servers every τ_r. After k_r requests without an answer it uses that of the RING in its journal.
- In a stripe with secondaries a receiver requests the newest assignment at long intervals: it may have missed all
  announcements.
"""

from __future__ import annotations

from levelcast.timing.rules import Timing
from levelcast.wire.messages import LineHolders, LineRequest, Ring

CHECK_ASKS = 5
"""Number of `ask` intervals after which a receiver requests an assignment that it may have missed."""

Version = tuple[int, int]


class LineDuty:
    """The lines of one receiver, sans I/O."""

    def __init__(self, receiver: int, timing: Timing, *, secondaries: bool) -> None:
        self._receiver = receiver
        self._timing = timing
        self._secondaries = secondaries
        self.newest: LineHolders | None = None
        """The newest assignment, if it is not that of a RING."""
        self._version: Version = (0, 0)
        self._lines: tuple[str, ...] = ()
        self._until_ns: dict[str, int] = {}
        """Lines that it has lost, with the time at which it stops."""
        self._new: dict[str, int] = {}
        """In a ring without this receiver, the receiver of each line."""
        self._sending: set[int] = set()
        """Members of that ring that have sent a token in it."""
        self._journaled: Ring | None = None
        self._unanswered = 0
        self.ask_ns: int | None = None
        """Time of the next request."""

    def held(self, now: int) -> tuple[str, ...]:
        """Return the lines to send to."""
        if not self._until_ns:
            return self._lines
        return self._lines + tuple(line for line, until_ns in self._until_ns.items() if now < until_ns)

    def resume(self, ring: Ring) -> None:
        """Request the assignment after a restart in this ring."""
        self._journaled = ring
        self.ask_ns = 0

    def enter(self, ring: Ring, now: int) -> None:
        """Take over the assignment of a RING."""
        self._take((ring.generation, 0), ring.edges, now)

    def lose(self, generation: int, holders: tuple[tuple[int, str], ...], now: int) -> None:
        """Give up all lines: there is a ring of this generation without this receiver, with these receivers of lines.

        `holders` is empty if only a token of the ring has arrived.
        """
        if self._take((generation, 0), (), now):
            self._new, self._sending = {}, set()
        if generation == self._version[0] and holders:
            self._new = {line: node for node, line in holders}
            self._end_overlaps()

    def hear_token(self, generation: int, owner: int) -> None:
        """Note that a member of the ring without this receiver has entered it."""
        if generation == self._version[0] and self._until_ns:
            self._sending.add(owner)
            self._end_overlaps()

    def _end_overlaps(self) -> None:
        self._until_ns = {line: at for line, at in self._until_ns.items() if self._new.get(line) not in self._sending}

    def hear(self, message: LineHolders, now: int) -> None:
        """Take over an assignment, if it is newer than the known one."""
        if self._take((message.generation, message.number), message.holders, now):
            self.newest = message

    def due(self, now: int) -> LineRequest | None:
        """Return the request that is due."""
        if self.ask_ns is None or now < self.ask_ns:
            return None
        if self._journaled is None:
            self.ask_ns = now + CHECK_ASKS * self._timing.ask_ns
        elif self._unanswered < self._timing.attempts:
            self._unanswered += 1
            self.ask_ns = now + self._timing.request_ns
        else:
            self.enter(self._journaled, now)
            return None
        return LineRequest(self._receiver, *self._version)

    def wake_ns(self, now: int) -> int | None:
        """Return the time of the next request, or of the end of an overlap."""
        times = [until_ns for until_ns in self._until_ns.values() if until_ns > now]
        return min(times if self.ask_ns is None else [*times, self.ask_ns], default=None)

    def _is_newer(self, version: Version) -> bool:
        return version > self._version

    def _stop_ns(self, now: int) -> int:
        """Return the time at which it stops with a line that it loses now."""
        return now + self._timing.hear_ns

    def _take(self, version: Version, holders: tuple[tuple[int, str], ...], now: int) -> bool:
        if not self._is_newer(version):
            return False
        lines = tuple(line for node, line in holders if node == self._receiver)
        self._until_ns = {line: until_ns for line, until_ns in self._until_ns.items() if now < until_ns}
        self._until_ns |= dict.fromkeys(self._lines, self._stop_ns(now))
        self._until_ns = {line: until_ns for line, until_ns in self._until_ns.items() if line not in lines}
        self._version, self._lines = version, lines
        self._journaled = self.newest = None
        self.ask_ns = now + CHECK_ASKS * self._timing.ask_ns if self._secondaries else None
        return True

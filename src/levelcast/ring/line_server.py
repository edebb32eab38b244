"""A server's assignment of lines to receivers (MS §4.3), where a stripe has secondaries.

The assignment of a RING is a part of it. When a group of secondaries is formed anew, the server computes the assignment
with the same function (`levelcast.protocol.lines`) from the members of the ring and of all groups. If it differs from
the newest one, the server announces it k_r times to all, with the next number of this ring.

- **Two servers.** The one that has formed the group or ring announces at once. The other one has received the same
  groups: it announces by its rank later, unless the newest assignment is then its own result. Each does this once for
  each change that it learns, so two servers with different knowledge do not alternate. The higher number counts.
- **An assignment with old knowledge.** A server may have missed a group, and assign a line to a receiver that has
  failed. The replies to its `LineRequest` contain the group. It corrects its own assignment at once, while the former
  receiver still sends to the line (`levelcast.ring.line_duty`).
- **A restarted server**, and one that was disconnected, may not know the ring, the groups or the number in use. So it
  sends a `LineRequest` to all, k_r times, at its start and with each assignment. Receivers reply with what is newer:
  the ring, the group that they serve, the assignment. If the result differs, it announces again.
- A failed secondary is in no group, and a failed primary in no ring: so neither has a line longer than the bound of
  `levelcast.timing.lines`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from levelcast.protocol.config import StripeConfig
from levelcast.protocol.effects import GROUP, Effect, Send
from levelcast.protocol.events import LinesAssigned
from levelcast.protocol.lines import holders
from levelcast.protocol.retransmit import passed_on
from levelcast.protocol.seals import CrcSeals, NodeSeals
from levelcast.wire.messages import LineHolders, LineRequest, Message, Repair, Ring


def assigned(config: StripeConfig, operable: Collection[int]) -> tuple[tuple[int, str], ...]:
    """Return the receivers of all lines, as a RING and a `LineHolders` contain them."""
    return tuple((receiver, line) for line, receiver in holders(config.lines, operable).items())


class LineServer:
    """Assigns lines after a change of ring or groups, sans I/O."""

    def __init__(self, config: StripeConfig, server: int, life: int, now: int, seals: NodeSeals | None = None) -> None:
        self.config = config
        self._seals = seals or CrcSeals(config.domain)
        self.timing = config.timing
        self.server = server
        self.life = life
        self.newest: LineHolders | None = None
        """The newest assignment, that of a RING included."""
        self.wake_ns: int | None = now
        self._is_own = False
        """The newest assignment is of this server, or of the RING that it has formed."""
        self._rank = config.servers.index(server)
        self._operable: frozenset[int] = frozenset()
        self._check_ns: int | None = None
        """Time at which the newest assignment is compared with the own result."""
        self._says, self._say_ns = 0, 0
        self._asks, self._ask_ns = self.timing.attempts, now
        self._effects: list[Effect] = []

    def step(
        self, batch: Iterable[Message], ring: Ring | None, secondaries: Collection[int], now: int, *, formed: bool
    ) -> list[Effect]:
        """Handle `batch`; `formed`: this server has just formed the ring or a group."""
        self._effects = []
        for message in batch:
            if isinstance(message, LineHolders):
                self._learn(message)
            elif isinstance(message, LineRequest):
                self._on_request(message)
            elif isinstance(message, Repair):
                self._on_reply(message, now)
        if ring is not None:
            self._compare(ring, secondaries, now, formed=formed)
        self._say(ring, now)
        check_ns = self._check_ns if ring is not None else None
        times = [check_ns, self._say_ns if self._says else None, self._ask_ns if self._asks else None]
        self.wake_ns = min((at_ns for at_ns in times if at_ns is not None), default=None)
        return self._effects

    # -- what others know ---------------------------------------------------------------------------------

    def _learn(self, message: LineHolders) -> bool:
        """Store an assignment if it is newer than the known one."""
        if self.newest is not None and _version(message) <= _version(self.newest):
            return False
        self.newest = message
        self._is_own = False
        self._says = 0
        return True

    def _on_request(self, request: LineRequest) -> None:
        newest = self.newest
        if request.sender in self.config.servers or newest is None:
            return
        if _version(newest) > (request.generation, request.number):
            self._effects.append(Send(request.sender, passed_on(newest, self.server)))

    def _on_reply(self, repair: Repair, now: int) -> None:
        """Learn the assignment in use from a receiver; check it, because it may precede what this server knows."""
        for item in repair.items:
            if isinstance(item, LineHolders) and self._learn(item):
                self._check_ns = now

    # -- the assignment -----------------------------------------------------------------------------------

    def _compare(self, ring: Ring, secondaries: Collection[int], now: int, *, formed: bool) -> None:
        operable = frozenset(life.member for life in ring.members) | frozenset(secondaries)
        if self.newest is None or self.newest.generation < ring.generation:
            self.newest = self._seals.author(LineHolders(ring.generation, self.server, 0, ring.edges), now)
            self._is_own = formed
            self._says = 0
            self._operable = frozenset()
            if formed:
                self._request(now)
        if operable != self._operable:
            self._operable = operable
            self._check_ns = now if formed else self._check_after_change_ns(now)
        if self._check_ns is None or now < self._check_ns:
            return
        self._check_ns = None
        found = assigned(self.config, operable)
        if found != self.newest.holders and self.newest.generation == ring.generation:
            self._announce(found, self.newest, now)

    def _check_after_change_ns(self, now: int) -> int:
        """Return the time at which to compare after another server has formed the ring or group."""
        return now if self._is_own else now + (1 + self._rank) * self.timing.backoff_ns

    def _announce(self, found: tuple[tuple[int, str], ...], before: LineHolders, now: int) -> None:
        number = ((before.number >> 32) + 1) << 32 | self.server << 16 | self.life & 0xFFFF
        self.newest = self._seals.author(LineHolders(before.generation, self.server, number, found), now)
        self._is_own = True
        self._says, self._say_ns = self.timing.attempts, now
        members, lines = (node for node, _ in found), (line for _, line in found)
        self._effects.append(LinesAssigned(0, number, tuple(members), tuple(lines)))
        self._request(now)

    # -- announcements and requests -----------------------------------------------------------------------

    def _request(self, now: int) -> None:
        self._asks, self._ask_ns = self.timing.attempts, now

    def _say(self, ring: Ring | None, now: int) -> None:
        newest = self.newest
        if self._says and now >= self._say_ns and newest is not None:
            self._says, self._say_ns = self._says - 1, now + self.timing.request_ns
            self._effects.append(Send(GROUP, newest))
        if self._asks and now >= self._ask_ns:
            self._asks, self._ask_ns = self._asks - 1, now + self.timing.request_ns
            generation = ring.generation if ring is not None else 0
            number = newest.number if newest is not None and newest.generation == generation else 0
            self._effects.append(Send(GROUP, LineRequest(self.server, generation, number)))


def _version(message: LineHolders) -> tuple[int, int]:
    return message.generation, message.number

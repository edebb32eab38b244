"""Turns over chain multicast (MR §5): when a member signs, and when it sends.

`ByTurn` is the paper's flow control, rules 2 to 4. Deviations:

- Messages carry their turn number and count when their turn comes. As printed (rule 2), a message that overtakes
  another one is ignored, and its turn costs a time-out.
- Rule 3 signs when (i − sender) mod n *becomes equal to* S/T, which never happens if S/T ≥ n: nothing is ever signed.
  Here a member signs when the distance is at most min(S/T, n − 1), so also at the start, and with S/T = 0 right before
  it sends.
- An empty queue sends an empty message (rule 4 leaves it open; C-5).
- A member that was away continues with the turns that f + 1 members have reached: one of them is honest.

`BySlot` is for members with clocks (MS): slot u is at T_0 + u·τ and belongs to member u mod n. A silent member costs
its own slots only.
"""

from __future__ import annotations

from typing import Protocol

from levelcast.byzantine.config import ChainConfig


class SendingTurns(Protocol):
    """When one member signs and sends."""

    @property
    def slot(self) -> int:
        """Number of the own slot that is next."""

    def heard(self, sender: int, slot: int, now: int) -> None:
        """Note a message of another member."""

    def tick(self, now: int) -> None:
        """Note the time."""

    def signs(self, now: int) -> bool:
        """Return whether it is time to sign for the next own slot (C-1)."""

    def sends(self, now: int) -> bool:
        """Return whether it is time to send (C-2)."""

    def sent(self, now: int) -> None:
        """Note that the own slot is used."""

    def wake_ns(self) -> int:
        """Return the time of the next action without a message."""


class ByTurn:
    """Turns in order, each begun by the message of the turn before it."""

    def __init__(
        self, config: ChainConfig, me: int, now: int, *, hops: int, timeout_ns: int, after_slot: int = 0
    ) -> None:
        self._config = config
        self._index = config.members.index(me)
        self._hops = hops
        """S/T."""
        self._timeout_ns = timeout_ns
        self._used = after_slot
        """Number of the last own turn, from 1."""
        self._turn = 1
        """The turn that is awaited; turn t belongs to member (t − 1) mod n."""
        self._began_ns = now
        self._early: set[int] = set()
        """Later turns whose message has arrived."""
        self._latest = dict.fromkeys(config.members, 0)

    @property
    def slot(self) -> int:
        return self._next_own(max(self._turn, self._used + 1))

    def _next_own(self, turn: int) -> int:
        return turn + (self._index - (turn - 1)) % self._config.n

    def heard(self, sender: int, slot: int, now: int) -> None:
        self._latest[sender] = max(self._latest[sender], slot)
        if slot == self._turn or counts_when_its_turn_comes(slot, self._turn, self._config):
            self._early.add(slot)
        self._advance(now)

    def _advance(self, now: int) -> None:
        reached = sorted(self._latest.values(), reverse=True)[self._config.f]
        if reached > self._turn:
            self._move_to(reached, now)
        while self._turn in self._early:
            self._early.discard(self._turn)
            self._move_to(self._turn + 1, now)

    def _move_to(self, turn: int, now: int) -> None:
        self._turn, self._began_ns = turn, now
        self._early = {each for each in self._early if each >= turn}

    def tick(self, now: int) -> None:
        while now - self._began_ns >= self._timeout_ns:
            self._move_to(self._turn + 1, self._began_ns + self._timeout_ns)
            self._advance(self._began_ns)

    def signs(self, now: int) -> bool:
        return is_time_to_sign(self.slot - self._turn, self._hops, self._config.n)

    def sends(self, now: int) -> bool:
        return self.slot == self._turn

    def sent(self, now: int) -> None:
        self._used = self.slot
        self._early.add(self._used)
        self._advance(now)

    def wake_ns(self) -> int:
        return self._began_ns + self._timeout_ns


def is_time_to_sign(distance: int, hops: int, n: int) -> bool:
    """Return whether a member signs (MR §5 rule 3), `distance` turns before its own."""
    return distance <= min(hops, n - 1)


def counts_when_its_turn_comes(slot: int, turn: int, config: ChainConfig) -> bool:
    """Return whether the message of a later turn is noted; of two rotations at most, so that a liar fills nothing."""
    return turn < slot <= turn + 2 * config.n


class BySlot:
    """Slots by the clock."""

    def __init__(
        self, config: ChainConfig, me: int, now: int, *, start_ns: int, slot_ns: int, after_slot: int = 0
    ) -> None:
        self._index = config.members.index(me)
        self._n = config.n
        self._start_ns, self._slot_ns, self._sign_ns = start_ns, slot_ns, config.sign_ns
        self._next = self._own_from(max((now - start_ns) // slot_ns, after_slot) + 1)

    def _own_from(self, slot: int) -> int:
        slot = max(slot, 1)
        return slot + (self._index - (slot - 1)) % self._n

    @property
    def slot(self) -> int:
        return self._next

    def _time_ns(self) -> int:
        return self._start_ns + self._next * self._slot_ns

    def heard(self, sender: int, slot: int, now: int) -> None:
        """Do nothing: slots do not depend on messages."""

    def tick(self, now: int) -> None:
        """Do nothing: a slot that was missed is used late, and the ones after it are skipped."""

    def signs(self, now: int) -> bool:
        return now >= self._time_ns() - self._sign_ns

    def sends(self, now: int) -> bool:
        return now >= self._time_ns()

    def sent(self, now: int) -> None:
        self._next = self._own_from(max((now - self._start_ns) // self._slot_ns, self._next) + 1)

    def wake_ns(self) -> int:
        return self._time_ns() - self._sign_ns

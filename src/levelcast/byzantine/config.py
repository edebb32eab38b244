"""Configuration of a group for one epoch, and the numbers that follow from its size."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class Reading(Enum):
    """Readings of "delivered" in MR §4.2, where a candidate needs everything that it acknowledges delivered.

    A payload may exist in two versions (C-6), so the word is ambiguous. Only `SETTLED` is correct; the others exist for
    the tests that show them broken (histories B1 and B2 in `tests/test_byzantine_histories.py`).
    """

    SETTLED = "settled"
    """The payload is delivered, and everything that the version acknowledges is settled."""
    BY_PAYLOAD = "by payload"
    """The payload is delivered. Agreement breaks."""
    THIS_MESSAGE = "this message"
    """This very version was delivered. Members that delivered another version are stuck."""


@dataclass(frozen=True, slots=True)
class ChainConfig:
    """The group: the same at all members."""

    members: tuple[int, ...]
    """Node ids in the order of their turns."""
    outside: tuple[int, ...] = ()
    """Senders outside the group (MR §3): they send messages, and acknowledge none."""
    epoch: int = 1
    domain: int = 0
    patience_ns: int = 500_000_000
    """L: the time-out of C-6 and C-7, longer than an ordinary delivery."""
    grace_ns: int = 30_000_000
    """Time for which a cited message may still be under way before it is requested."""
    request_ns: int = 60_000_000
    """Time between two requests for one message; it doubles up to `REQUEST_DOUBLINGS` times."""
    window: int = 64
    """W: undelivered messages that a member keeps of another one; at least 4n."""
    sign_ns: int = 0
    """S, as modelled time; 0 in real processes, where signing takes its own time."""
    reading: Reading = Reading.SETTLED
    senders: tuple[int, ...] = field(init=False)
    """All that send messages, in the order of a vector {c_i}: members, then senders outside the group."""
    n: int = field(init=False)
    f: int = field(init=False)
    """Number of members that may lie: fewer than a third."""
    quorum: int = field(init=False)
    """Q = n − f = ⌈(2n + 1) / 3⌉ signers of a delivering set."""

    def __post_init__(self) -> None:
        if len(set(self.members)) != len(self.members) or not self.members:
            raise ValueError("a group needs members, each of them once")
        n = len(self.members)
        derived = {"senders": self.members + self.outside, "n": n, "f": (n - 1) // 3, "quorum": n - (n - 1) // 3}
        for name, value in derived.items():
            object.__setattr__(self, name, value)
        if len(set(self.senders)) != len(self.senders):
            raise ValueError("a sender outside the group is listed twice, or is a member; list each once")
        if self.window < 4 * self.n:
            raise ValueError(f"window {self.window} for {self.n} members; it must be at least {4 * self.n}")

    @property
    def free(self) -> int:
        """Number of undelivered messages of its own up to which a member sends without condition."""
        return self.window // 2

    def memory_bound(self, message_bytes: int, citations: int, node_bytes: int) -> int:
        """Return the maximum size in bytes of what a member holds beside the digests of C-10.

        Of each sender there are W undelivered numbers, at most W delivered ones that some of Q members have not stated,
        and at most W that are delivered and will never be settled. Of a number of an honest sender there are two
        versions (C-6), of a liar's two for each member that may cite them, and two more: the direct ones here. Each has
        at most `message_bytes` and `citations` versions below it that are known only by their digests.
        """
        honest, liars = len(self.senders) - self.f - len(self.outside), self.f + len(self.outside)
        versions = 3 * self.window * (2 * honest + (2 * self.n + 2) * liars)
        return versions * (message_bytes + (citations + 1) * node_bytes)

    def index(self, member: int) -> int | None:
        """Return the position of a member, or None for others."""
        return self.members.index(member) if member in self.members else None


REQUEST_DOUBLINGS = 4

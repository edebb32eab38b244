"""Messages of a wide-area group that this process does not know to be received by all, and when to ask or repair."""

from __future__ import annotations

from dataclasses import dataclass, field

from levelcast.overlay.wide.plan import MessagePlan
from levelcast.wire.wide_messages import WideData

MAX_BACKOFF = 4
"""Maximum factor by which the time between two repairs grows."""


@dataclass(slots=True)
class Watched:
    """A process whose statement about one message is awaited."""

    due_ns: int
    is_receipt: bool
    """It is not known to have received the message itself."""
    attempts: int = 0


@dataclass(slots=True)
class Entry:
    """A message that was sent or received here, and not known to be received by all."""

    data: WideData
    plan: MessagePlan
    sent_ns: int
    """The time at which its source is expected to have sent it."""
    kept: bool
    """The message itself is still here, so that it can be sent again."""
    known: set[int] = field(default_factory=set)
    """Destinations that are known to have received it."""
    reported: bool = False
    """The receipt in this process's subgroup was stated to the other coordinators."""
    watched: dict[int, Watched] = field(default_factory=dict)
    wake_ns: int = 0
    """The time of its earliest pending timer."""

    @property
    def unknown(self) -> frozenset[int]:
        return self.plan.destinations - self.known


def watch(entry: Entry, process: int, slack_ns: int) -> int | None:
    """Update the processes that are waited for; return the time at which the next one is overdue, None without one."""
    plan = entry.plan
    unknown = entry.unknown
    asked: dict[int, bool] = {}
    for each in unknown:
        peer = plan.asks(process, each)
        if peer is not None and peer != process:
            asked[peer] = asked.get(peer, False) or (peer in unknown and plan.repairs(process, peer))
    watched = entry.watched
    for peer in [peer for peer in watched if asked.get(peer) is not watched[peer].is_receipt]:
        del watched[peer]
    for peer, is_receipt in asked.items():
        if peer not in watched:
            stated_ns = plan.stated_ns(process, peer, is_receipt=is_receipt)
            watched[peer] = Watched(entry.sent_ns + stated_ns + slack_ns, is_receipt)
    return min((each.due_ns for each in watched.values()), default=None)


def backoff(attempts: int) -> float:
    """Return the factor of the time until the next attempt."""
    return min(1.5 ** max(attempts - 1, 0), MAX_BACKOFF)

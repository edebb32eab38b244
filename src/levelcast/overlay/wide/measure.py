"""Measure a wide-area group: delivery, reliable receipt, datagrams and buffers, in the simulator and in processes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from levelcast.units import quantile
from levelcast.wire.messages import Message
from levelcast.wire.wide_messages import WideConfirm, WideData, WideRelay

MS = 1_000_000


@dataclass(slots=True)
class MessageTimes:
    """Times of one packet, from its sending on."""

    source: int
    sent_ns: int
    members: tuple[int, ...]
    delivered_ns: dict[int, int] = field(default_factory=dict)
    known_ns: dict[int, int] = field(default_factory=dict)
    """The time at which a process knows that all have received it."""

    @property
    def is_delivered(self) -> bool:
        """Return whether all destinations have delivered it."""
        return set(self.members) <= self.delivered_ns.keys()

    @property
    def is_known(self) -> bool:
        """Return whether the source and all destinations know that all have received it."""
        return {*self.members, self.source} <= self.known_ns.keys()


class BufferMeter:
    """Messages that one process keeps, over time."""

    def __init__(self) -> None:
        self.kept_ns = 0
        """Time for which messages were kept, summed over the messages."""
        self.most = 0
        self._kept = self._since_ns = 0

    def set(self, kept: int, now: int) -> None:
        self.kept_ns += self._kept * (now - self._since_ns)
        self._kept, self._since_ns = kept, now
        self.most = max(self.most, kept)


class GroupFigures(NamedTuple):
    """Needs of the messages of a group; times are from the sending, in ms."""

    messages: int
    delivered_mean_ms: float
    """Mean over messages and destinations."""
    last_mean_ms: float
    """Until the last destination has delivered a message."""
    last_p99_ms: float
    sender_knows_ms: float
    all_know_ms: float
    """Until the source and all destinations know that all have received a message."""
    all_know_p99_ms: float
    data: float
    """Datagrams with a message, per message and destination."""
    statements: float
    """Other datagrams, per message and destination."""
    kept_s: float
    """Time for which a message is kept, summed over the processes that keep it."""
    kept_most: int
    """Largest number of messages that one process kept."""

    @property
    def datagrams(self) -> float:
        return self.data + self.statements


def figures_of(times: Collection[MessageTimes], sent: Mapping[str, int], meters: Iterable[BufferMeter]) -> GroupFigures:
    """Return the figures of messages that are all delivered and known to be received."""
    meters = list(meters)
    delivered = [(at - each.sent_ns) / MS for each in times for at in each.delivered_ns.values()]
    last = [(max(each.delivered_ns.values()) - each.sent_ns) / MS for each in times]
    everybody = [(max(each.known_ns.values()) - each.sent_ns) / MS for each in times]
    sender = [(each.known_ns[each.source] - each.sent_ns) / MS for each in times]
    destinations = sum(len(each.members) for each in times)
    return GroupFigures(
        len(times),
        _mean(delivered),
        _mean(last),
        float(quantile(last, 0.99)),
        _mean(sender),
        _mean(everybody),
        float(quantile(everybody, 0.99)),
        sent.get("data", 0) / destinations,
        sum(count for kind, count in sent.items() if kind != "data") / destinations,
        sum(each.kept_ns for each in meters) / 1e9 / len(times),
        max((each.most for each in meters), default=0),
    )


def _mean(values: Collection[float]) -> float:
    return sum(values) / len(values)


def kind_of(message: Message) -> str:
    """Return the kind of a datagram, as measurements count them."""
    if isinstance(message, WideData | WideRelay):
        return "data"
    return "statements" if isinstance(message, WideConfirm) else "views"

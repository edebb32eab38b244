"""Route retransmission requests (sans I/O): rate-limit each subscriber, then reply by unicast or multicast.

- Each subscriber has a token bucket for requests, which fills slowly. A subscriber that repeats large requests is
  refused ("too fast") before any lookup, and costs the others nothing else.
- Losses near the root of a multicast tree affect many subscribers (MS §5.1). The first request is answered by unicast
  without delay. When a second subscriber requests some of the same messages within `window_ns`, the answer is sent to
  the group. Later requests for the same messages get no separate answer, because it was already sent.
- Answers to the group have a token bucket in bytes. When it is empty, each subscriber is answered by unicast.
"""

from __future__ import annotations

import enum
from collections import OrderedDict, deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple

from levelcast.edge.server.packetizer import Outgoing
from levelcast.protocol.rate import RateLimit
from levelcast.wire import mold


@dataclass(frozen=True, slots=True)
class RequestPolicyConfig:
    requests_a_second: int = 2_000
    """Limit per subscriber: 2,000 answers of 8 full packets are 22 MB."""
    burst: int = 256
    window_ns: int = 5_000_000
    """Shorter than the time after which a subscriber repeats a request."""
    group_bytes_a_second: int = 8_000_000
    group_burst: int = 512 << 10
    max_customers: int = 4_096
    """Maximum number of buckets; the one with the oldest use is removed."""
    max_recent: int = 256


class Route(enum.Enum):
    CUSTOMER = "to the subscriber"
    GROUP = "to the group"
    NOBODY = "sent to the group already"


@dataclass(slots=True)
class RequestPolicyCounts:
    too_fast: int = 0
    """Requests refused because the subscriber's bucket was empty."""
    to_group: int = 0
    """Packets that answered several subscribers."""
    shared: int = 0
    """Requests served by such an answer."""


class _Recent(NamedTuple):
    at_ns: int
    session: bytes
    first: int
    end: int
    customer: Hashable
    to_group: bool


class RequestPolicy:
    """The request policy of one edge."""

    def __init__(self, config: RequestPolicyConfig | None = None, now: int = 0) -> None:
        self.config = config or RequestPolicyConfig()
        self.counts = RequestPolicyCounts()
        self._customers: OrderedDict[Hashable, RateLimit] = OrderedDict()
        self._group = RateLimit(self.config.group_bytes_a_second, self.config.group_burst, now)
        self._recent: deque[_Recent] = deque(maxlen=self.config.max_recent)

    def admit(self, customer: Hashable, now: int, may: bool = True) -> bool:
        """Return whether a subscriber may send a request now; `may` is the caller's own check. Count a refusal."""
        bucket = self._customers.get(customer)
        if bucket is None:
            bucket = self._customers[customer] = RateLimit(self.config.requests_a_second, self.config.burst, now)
            if len(self._customers) > self.config.max_customers:
                self._customers.popitem(last=False)
        else:
            self._customers.move_to_end(customer)
        if may and bucket.take(1, now):
            return True
        self.counts.too_fast += 1
        return False

    def route(self, customer: Hashable, request: mold.RetransmitRequest, now: int) -> Route:
        """Return the destination of the answer to a request; count a request that needs none."""
        recent = self._recent
        while recent and not 0 <= now - recent[0].at_ns < self.config.window_ns:
            recent.popleft()
        session, first, messages = request
        asked_by_another = False
        for other in recent:
            if other.session == session and other.first < first + messages and first < other.end:
                if other.to_group and other.first <= first:
                    self.counts.shared += 1
                    return Route.NOBODY
                asked_by_another |= not other.to_group and other.customer != customer
        return Route.GROUP if asked_by_another else Route.CUSTOMER

    def answered(self, customer: Hashable, answer: Outgoing, route: Route, now: int) -> Route:
        """Record an answer before it is sent; an answer to the group becomes unicast when the bucket is empty."""
        if route is Route.GROUP and not self._group.take(len(answer.buffer), now):
            route = Route.CUSTOMER
        to_group = route is Route.GROUP
        end = answer.sequence + answer.records
        self._recent.append(_Recent(now, answer.session, answer.sequence, end, customer, to_group))
        if to_group:
            self.counts.to_group += answer.packets
            self.counts.shared += 1
        return route

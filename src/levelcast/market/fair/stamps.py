"""The part of a gateway that fair entry needs (E1 to E4), sans I/O: release clock, stamps and beats.

This is the interface between fair entry and order entry by FIX, or by any other protocol: the gateway calls

- `released` for each release of a receiver at its site, with the scheduled and the real time;
- `stamped` with the orders that it has read and the kernel's receive time of the segment in which each ended. It gets
  the records in the order in which they must be submitted to its `Source`;
- `beat` when `wake_ns` is due, with the time up to which it has read its sockets: a beat states that no order with a
  lower stamp will follow;
- `learn` with the rules in force (`levelcast.market.fair.fair_order.FairEntry.eras`);
- `heard_order` when the receiver on its host accepts a packet with orders of another gateway.

A gateway beats once in a slot while there are orders, its own or others'. When none has come for 2Θ, it beats three
times in Θ, which keeps it in the set at a small part of the bytes. The first order after that waits for the beats of
gateways that have heard of it: its bucket closes later by the way from one gateway to the others, once.

After an order it beats when the bucket of the order is over, after at most 2q: otherwise the bucket would wait for a
clock until the next slot.

The release clock is the site's clock less how late the newest release came at this site, at most `late_cap`; it never
goes back. The error of the site's clock cancels: a site that is ahead releases too early and stamps too late by the
same time. Without the cap, a trader could listen at a punctual site and send through a late one: `late_cap` is below
the shortest way between two sites, so the message is always slower than what the correction gains.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from levelcast.market.fair.fair_order import BEAT
from levelcast.records import RecordArray, orders
from levelcast.wire.entry_change import EntryRules

KEPT_RELEASES = 256
LEAST_SETTLE_NS = 1_000_000
IDLE_BEATS = 3
"""Beats in Θ without orders: two may be lost."""
Times = npt.NDArray[np.int64]


class SiteRelease(NamedTuple):
    """The first release of a slot at a site."""

    released_ns: int
    scheduled_ns: int
    frame: tuple[int, int]
    """Stripe and slot."""

    @property
    def late_ns(self) -> int:
        return max(0, self.released_ns - self.scheduled_ns)


class ReleaseClock:
    """The clock of orders at a site (E2)."""

    def __init__(self, late_cap_ns: int) -> None:
        self.late_cap_ns = late_cap_ns
        self.last_ns = 0
        """The newest stamp."""
        self._releases: list[SiteRelease] = []

    def released(self, frame: tuple[int, int], scheduled_ns: int, released_ns: int) -> None:
        """Note a release; of two receivers at the site the earlier one counts."""
        for place, each in enumerate(self._releases):
            if each.frame == frame:
                if each.released_ns <= released_ns:
                    return
                del self._releases[place]
                break
        insort(self._releases, SiteRelease(released_ns, scheduled_ns, frame))
        del self._releases[:-KEPT_RELEASES]

    def corrections(self, received_ns: Times) -> Times:
        """Return how late the newest release before each time was, at most the cap."""
        at = np.array([each.released_ns for each in self._releases], np.int64)
        late = np.array([0, *(min(each.late_ns, self.late_cap_ns) for each in self._releases)], np.int64)
        result: Times = late[np.searchsorted(at, received_ns, side="right")]
        return result

    def correction(self, time_ns: int) -> int:
        place = bisect_right(self._releases, time_ns, key=lambda each: each.released_ns)
        return min(self._releases[place - 1].late_ns, self.late_cap_ns) if place else 0

    def stamps(self, received_ns: Times) -> tuple[Times, Times]:
        """Return stamps and corrections of times in rising order; stamps never go back."""
        corrections = self.corrections(received_ns)
        stamps: Times = np.maximum(np.maximum.accumulate(received_ns - corrections), self.last_ns)
        if len(stamps):
            self.last_ns = int(stamps[-1])
        return stamps, corrections


class GatewayStamper:
    """Release clock and beats of one gateway."""

    def __init__(self, gateway: int, beat_ns: int, late_cap_ns: int = 0) -> None:
        self.gateway = gateway
        self.clock = ReleaseClock(late_cap_ns)
        self.beat_ns = beat_ns
        self.wake_ns = 0
        """When the next beat is due."""
        self._close_ns = 0
        self._settle_ns = beat_ns
        """Time after an order by which its bucket is over."""
        self._ordered_ns = self._last_ns = 0
        """When an order was last stamped or heard of, and when the clock was last shown."""

    def learn(self, rules: Sequence[EntryRules], now: int) -> None:
        """Use the cap and the closing time of the rules that apply now."""
        applying = [each for each in rules if each.from_ns <= now]
        if applying:
            last = applying[-1]
            self.clock.late_cap_ns, self._close_ns = last.late_cap_ns, last.close_ns
            self._settle_ns = max(LEAST_SETTLE_NS, 2 * last.quantum_ns)

    def heard_order(self, now: int) -> None:
        """Note an order of another gateway: its bucket waits for this clock."""
        self._ordered_ns = now
        self.wake_ns = min(self.wake_ns, self._last_ns + self.beat_ns)

    def _next_beat(self, now: int) -> None:
        self._last_ns = now
        idle = is_idle(now - self._ordered_ns, self._close_ns)
        self.wake_ns = now + (max(self.beat_ns, self._close_ns // IDLE_BEATS) if idle else self.beat_ns)

    def released(self, frame: tuple[int, int], scheduled_ns: int, released_ns: int) -> None:
        self.clock.released(frame, scheduled_ns, released_ns)

    def stamped(self, commands: RecordArray, received_ns: Times, now: int) -> RecordArray:
        """Return the commands with their stamps, by receive time; those of one connection keep their order."""
        places = np.argsort(received_ns, kind="stable")
        records = commands[places]
        records["publisher_id"] = self.gateway
        records["ts_event"], records["ts_in_delta"] = self.clock.stamps(received_ns[places])
        if len(records):
            self._ordered_ns = self._last_ns = now
            self.wake_ns = now + min(self.beat_ns, self._settle_ns)
        return records

    def beat(self, read_ns: int, now: int) -> RecordArray:
        """Return a record with the clock; every order received up to `read_ns` has been stamped."""
        record = orders(1)
        record["action"], record["command"] = b"N", BEAT
        record["publisher_id"] = self.gateway
        record["ts_event"], record["ts_in_delta"] = self.clock.stamps(np.array([read_ns], np.int64))
        self._next_beat(now)
        return record


def is_idle(since_ns: int, close_ns: int) -> bool:
    """Return whether the last order is so long ago that its bucket is closed everywhere."""
    return close_ns > 0 and since_ns > 2 * close_ns

"""Requests and replies in the bulk simulation (rule 5).

| who | asks | simulated |
|---|---|---|
| primary | the slot owner and two helpers by nearness at once; for a gap only helpers | event by event, in time order |
| secondary | its primary | as arrays, attempt by attempt, layer by layer |

Replies to secondaries influence no receiver of their layer or above, so the primaries are simulated first. The reply to
a second primary within τ_r is multicast. Whom to ask, when first and how often is as in
`levelcast.protocol.repair_plan`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from levelcast.protocol.repair_plan import HELPERS, MOST_DOUBLED, PATIENT_AFTER, SECONDARY_DOUBLED, SHORTEST_NS
from levelcast.sim.bulk.paths import NS_PER_MS, Indexes, SitePaths, Times

MOST_ROUNDS = 400
"""Requests continue after a fault, but end after this many attempts."""


@dataclass(slots=True, kw_only=True)
class RequestCounts:
    """Requests and replies for measured slots."""

    sent_nacks: npt.NDArray[np.int64]
    """Requests sent by each receiver."""
    nacks: npt.NDArray[np.int64]
    """Requests that reached each receiver."""
    answers: int = 0
    answers_to_all: int = 0
    """Replies that were multicast because another receiver had sent the same request just before."""
    copies: int = 0
    """Copies of replies that are sent to receivers."""
    resent: int = 0
    """Packets that sources sent again, in the complete run."""
    nacks_peak: int = 0
    """Maximum number of first requests to one receiver for one token, or for its packets."""
    attempts_most: int = 0
    """Maximum number of attempts of one receiver for one item."""
    faults: int = 0
    """Items that a primary did not receive within k_r·τ_r: each would cause a reformation (rule 5)."""


@dataclass(slots=True)
class Item:
    """Token or packet: when each receiver has it, and the last requester and request time per primary (rule 5)."""

    has_ms: Times
    asked: dict[int, tuple[int, float]] = field(default_factory=dict)


class BulkRepair:
    """The requests of all receivers."""

    def __init__(self, paths: SitePaths) -> None:
        core = self.core = paths.core
        timing = core.timing
        self._paths = paths
        self._m, self._n = core.primaries, core.receivers
        self._layer_starts = core.layer_starts
        self._request_ms = timing.request_ns / NS_PER_MS
        self._give_up_ms = timing.attempts * self._request_ms
        self._late_ms = timing.late_ns / NS_PER_MS
        self._handling_ms = max(0.0, self._request_ms - 2 * self._late_ms)
        self.counts = RequestCounts(sent_nacks=np.zeros(self._n, np.int64), nacks=np.zeros(self._n, np.int64))
        self.counting = False
        members = np.arange(self._m)
        trips = paths.round_trip_ms(members[:, None], members[None, :])
        self._trips: list[list[float]] = trips.tolist()
        np.fill_diagonal(trips, -np.inf)
        self._near: list[list[int]] = np.argsort(trips, axis=1, kind="stable")[:, 1:].tolist()
        self._cities: list[int] = core.city[: self._m].tolist()
        self._first_again = np.maximum(
            paths.round_trip_ms(np.arange(self._n), core.home) + self._handling_ms, SHORTEST_NS / NS_PER_MS
        )
        """Interval of a secondary's requests."""
        self.nearest_ms: Times = np.array([row[near[0]] for row, near in zip(self._trips, self._near, strict=True)])
        """Shortest round trip of each primary."""

    def repair(self, items: list[Item], begin_ms: Times, owner: int | None, most: int = MOST_ROUNDS) -> None:
        """Request missing `items` from `begin_ms` on, up to `most` times, and update their arrival times."""
        missing = items[0].has_ms > begin_ms
        for item in items[1:]:
            missing |= item.has_ms > begin_ms
        wanting = np.flatnonzero(missing)
        if not len(wanting):
            return
        first = np.zeros(self._n, np.int64)
        _, primaries, *bounds = np.searchsorted(wanting, self._layer_starts).tolist()
        if primaries:
            self._ask_members(items, wanting[:primaries].tolist(), begin_ms, owner, most, first)
        for begin, end in pairwise([primaries, *bounds]):
            if begin < end:
                self._ask_primary(items, wanting[begin:end], begin_ms, most, first)
        if self.counting:
            self.counts.nacks_peak = max(self.counts.nacks_peak, int(first.max()))

    def count_faults(self, items: list[Item], begin_ms: Times, slot_ms: float) -> None:
        """Count the primaries that do not have `items` within k_r·τ_r after δ_N, and again after each k_r·τ_r."""
        if self.counting:
            has_ms = np.max([item.has_ms[: self._m] for item in items], axis=0)
            due_ms = np.maximum(begin_ms[: self._m], slot_ms + self._late_ms - self.core.clock_ms[: self._m])
            periods = np.floor((has_ms - due_ms) / self._give_up_ms)
            self.counts.faults += int(np.clip(periods, 0, MOST_ROUNDS).sum())

    # -- primaries ----------------------------------------------------------------------------------------

    def _ask_members(
        self,
        items: list[Item],
        wanting: list[int],
        begin_ms: Times,
        owner: int | None,
        most: int,
        first: npt.NDArray[np.int64],
    ) -> None:
        counts, cities = self.counts, self._cities
        due = [(float(begin_ms[member]), member, 0, -1, 0.0) for member in wanting]
        """Time, requester, attempt, the member that receives the request, and when it was sent; -1: it is due."""
        heapify(due)
        while due:
            now_ms, asker, attempt, asked, sent_ms = heappop(due)
            if asked >= 0:
                for item in items:
                    if item.has_ms[asker] > sent_ms and item.has_ms[asked] <= now_ms:
                        self._answer(item, asker, asked, now_ms)
                continue
            if all(item.has_ms[asker] <= now_ms for item in items):
                continue
            targets = self.targets(asker, owner, attempt)
            for target in targets:
                at_ms = self._paths.message(cities[asker], cities[target], now_ms)
                if at_ms < np.inf:
                    heappush(due, (at_ms, asker, attempt, target, now_ms))
                    if self.counting:
                        counts.nacks[target] += 1
                        first[target] += attempt == 0
            if self.counting:
                counts.sent_nacks[asker] += len(targets)
                counts.attempts_most = max(counts.attempts_most, attempt + 1)
            if attempt + 1 < most:
                heappush(due, (now_ms + self.again_ms(asker, targets, attempt), asker, attempt + 1, -1, 0.0))

    def targets(self, asker: int, owner: int | None, attempt: int) -> list[int]:
        """Return the members that an attempt goes to: the slot owner and the next two by nearness."""
        first = [owner] if owner is not None and owner != asker else []
        near = [member for member in self._near[asker] if member != owner]
        places = range(HELPERS * attempt, HELPERS * attempt + min(HELPERS, len(near)))
        return [*first, *(near[place % len(near)] for place in places)]

    def again_ms(self, asker: int, targets: list[int], attempt: int) -> float:
        """Return the time until the next attempt of a primary."""
        shortest_ms = min(self._trips[asker][target] for target in targets) + self._handling_ms
        return min(max(shortest_ms, SHORTEST_NS / NS_PER_MS) * self._longer(attempt), self._request_ms)

    def _longer(self, attempt: int, most_doubled: int = MOST_DOUBLED) -> int:
        """Return the factor of the interval after an attempt."""
        return 1 << min(max(0, attempt + 1 - PATIENT_AFTER), most_doubled)

    def _answer(self, item: Item, asker: int, asked: int, heard_ms: float) -> None:
        """Reply by unicast, or by multicast if another primary sent the same request within τ_r (rule 5)."""
        counts, has_ms = self.counts, item.has_ms
        last = item.asked.get(asked)
        item.asked[asked] = asker, heard_ms
        to_all = last is not None and last[0] != asker and abs(heard_ms - last[1]) <= self._request_ms
        if self.counting:
            counts.answers += 1
            counts.answers_to_all += to_all
            counts.copies += self._n - 1 if to_all else 1
        here = self._cities[asked]
        if not to_all:
            has_ms[asker] = min(has_ms[asker], self._paths.message(here, self._cities[asker], heard_ms))
            return
        missing = np.flatnonzero(has_ms > heard_ms)
        came = self._paths.unicast(np.array(here), self.core.city[missing], heard_ms)
        has_ms[missing] = np.minimum(has_ms[missing], came)

    # -- secondaries --------------------------------------------------------------------------------------

    def _ask_primary(
        self, items: list[Item], asking: Indexes, begin_ms: Times, most: int, first: npt.NDArray[np.int64]
    ) -> None:
        """Simulate the requests of one layer of secondaries: the times of the layer above are known by now."""
        counts, city = self.counts, self.core.city
        asked_ms = begin_ms[asking]
        for attempt in range(most):
            # A reply to the primaries may have been multicast.
            still = np.any([item.has_ms[asking] > asked_ms for item in items], axis=0)
            asking, asked_ms = asking[still], asked_ms[still]
            if not len(asking):
                return
            home = self.core.home[asking]
            heard_ms = self._paths.unicast(city[asking], city[home], asked_ms)
            if self.counting:
                counts.sent_nacks[asking] += 1
                got = np.bincount(home[np.isfinite(heard_ms)], minlength=self._n)
                counts.nacks += got
                counts.attempts_most = max(counts.attempts_most, attempt + 1)
                if attempt == 0:
                    first += got
            for item in items:
                has_ms = item.has_ms
                answered = (has_ms[asking] > asked_ms) & (has_ms[home] <= heard_ms) & np.isfinite(heard_ms)
                who, holder = asking[answered], home[answered]
                arrives = self._paths.unicast(city[holder], city[who], heard_ms[answered])
                has_ms[who] = np.minimum(has_ms[who], arrives)
                if self.counting:
                    counts.answers += len(who)
                    counts.copies += len(who)
            again_ms = self._first_again[asking] * self._longer(attempt, SECONDARY_DOUBLED)
            asked_ms = asked_ms + np.minimum(again_ms, self._request_ms)

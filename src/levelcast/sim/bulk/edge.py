"""Simulate subscribers in bulk: a million of them with two lines each, region by region, as arrays.

Every receiver sends the content of a slot at its own release time, as one packet to its group. A subscriber receives
from one receiver at each of its region's two sites and uses the first copy (MS §4.1). If both copies are lost, it
detects this by the next packet or watermark and waits for `reorder_ms`. Its grade determines the next step:

| grade | action |
|---|---|
| guaranteed | sends requests to the retransmit servers of its first and second line in turn until a reply arrives |
| latest only | the same, except for the fraction `superseded` of its gaps, for which newer prices have arrived |
| best effort | none: the packet is lost |

One request is one NACK. Not modelled: replies that are multicast to all subscribers with the same gap, processing time
of servers, and gaps of several packets, which one request covers. Multicast replies would save replies but few
requests, because all subscribers detect the loss of a packet at the same time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from levelcast.network.regions.delays import Delays
from levelcast.sim.bulk.core import CoreRun
from levelcast.sim.bulk.paths import Floats, Indexes, Times

Counts = npt.NDArray[np.int64]

BIN_MS = 0.1
EARLIEST_MS = -10.0
LATEST_MS = 4_000.0
BINS = int((LATEST_MS - EARLIEST_MS) / BIN_MS)
PLACE_BINS = int(LATEST_MS - EARLIEST_MS)
MOST_ROUNDS = 200
GUARANTEED, LATEST_ONLY, BEST_EFFORT = range(3)


@dataclass(frozen=True, slots=True)
class BulkSubscribers:
    """All subscribers, ordered by region: location, receivers of both lines and grade."""

    place: npt.NDArray[np.int32]
    first: npt.NDArray[np.int32]
    """Receiver of the nearer line."""
    second: npt.NDArray[np.int32]
    grade: npt.NDArray[np.int8]
    starts: Indexes
    """Index of the first subscriber of each region, and the total."""

    def __len__(self) -> int:
        return len(self.place)


@dataclass(frozen=True, slots=True)
class EdgeRules:
    """Rules of subscribers for gaps."""

    reorder_ms: float = 1.0
    watermark_ms: float = 100.0
    superseded: float = 0.5
    """Fraction of the gaps of *latest only* that newer prices close before a request."""
    branch_loss: float = 0.0
    """Probability that a line's packet is lost for all subscribers of a city, in addition to the loss of each copy."""
    two_lines: bool = True
    """False: subscribers have only the nearer line, to measure the benefit of the other one."""


@dataclass(slots=True)
class EdgeRun:
    """Measurements at the subscribers, in ms after timestamp + Δ_A."""

    slots: int
    arrivals: Counts
    """Histogram of the arrival times of packets at subscribers, by region (row); bins of 0.1 ms from `EARLIEST_MS`."""
    places: npt.NDArray[np.int32]
    """The same by city of the subscribers (row), in bins of 1 ms."""
    spread_ms: Times
    """Time from the first to the last subscriber in the world that receives a packet, by slot."""
    region_spread_ms: Times
    """The same within each region (row), by slot (column)."""
    nacks: Counts
    """Requests that reached each receiver."""
    asked: Counts
    """Requests sent, by slot."""
    first_line: int = 0
    second_line: int = 0
    repaired: int = 0
    lost: Counts = field(default_factory=lambda: np.zeros(3, np.int64))
    """Packets that never arrived, by grade."""
    slowest_ms: float = 0.0

    def quantile_ms(self, share: float, region: int | None = None) -> float:
        """Return a quantile (`share`) of the arrival times, for all subscribers or for one region."""
        counts = self.arrivals.sum(axis=0) if region is None else self.arrivals[region]
        return histogram_quantile(counts, share)

    def region_spreads_ms(self) -> list[float]:
        """Return the time between the 1 % and the 99 % quantile of arrivals, for each region with subscribers."""
        regions = np.flatnonzero(self.arrivals.any(axis=1)).tolist()
        return [self.quantile_ms(0.99, region) - self.quantile_ms(0.01, region) for region in regions]

    def bound_ms(self, share: float = 0.99) -> float:
        """Return the largest quantile (`share`) of the arrival times in a city: a bound that every city meets."""
        counts = self.places[self.places.any(axis=1)]
        passed = np.cumsum(counts, axis=1)
        bins = (passed >= share * passed[:, -1:]).argmax(axis=1)
        return float(EARLIEST_MS + bins.max(initial=0) + 1.0)

    def missed(self, bound_ms: float) -> npt.NDArray[np.float64]:
        """Return the fraction of packets that arrive after a bound, for each city; 0 for one without subscribers."""
        after = self.places[:, max(0, int(np.ceil(bound_ms - EARLIEST_MS))) :].sum(axis=1)
        found: npt.NDArray[np.float64] = after / np.maximum(self.places.sum(axis=1), 1)
        return found

    def together_quantile_ms(self, share: float, bound_ms: float, clock_ms: float) -> float:
        """Return a quantile of the times at which subscribers deliver with a bound, by clocks within `clock_ms`.

        A packet that arrives before the bound waits for it by the subscriber's clock. The errors of the clocks are
        uniform, and independent of the arrival.
        """
        counts = self.arrivals.sum(axis=0)
        at = int((bound_ms - EARLIEST_MS) / BIN_MS)
        reach = int(clock_ms / BIN_MS)
        delivered = counts.astype(np.float64)
        delivered[:at] = 0.0
        delivered[at - reach : at + reach + 1] += counts[:at].sum() / (2 * reach + 1)
        passed = np.cumsum(delivered)
        return EARLIEST_MS + BIN_MS * (int(np.searchsorted(passed, share * passed[-1])) + 0.5)


def histogram_quantile(counts: Counts, share: float) -> float:
    """Return a quantile of a histogram with bins from `EARLIEST_MS` on."""
    passed = np.cumsum(counts)
    if not passed[-1]:
        return 0.0
    return EARLIEST_MS + BIN_MS * (int(np.searchsorted(passed, share * passed[-1])) + 0.5)


@dataclass(slots=True)
class _Line:
    """One line of a region's subscribers: a copy arrives at release + `least` + chance·`more`, if chance >= `loss`."""

    receiver: npt.NDArray[np.int32]
    least: Floats
    more: Floats
    loss: Floats
    delay: Floats
    jitter: Floats


class BulkEdge:
    """Model of all subscribers and their lines."""

    def __init__(self, delays: Delays, city: Indexes, customers: BulkSubscribers, rules: EdgeRules, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self._delays, self._city, self._customers, self._rules = delays, city, customers, rules

    def run(
        self, core: CoreRun, hold_ms: float, slot_ms: float, follow: int, tell: Callable[[int, int], None] | None = None
    ) -> EdgeRun:
        """Simulate up to `follow` slots with packets, evenly spaced over those of the core's run."""
        sent = np.flatnonzero(core.packets > 0)
        chosen = np.unique(sent[np.linspace(0, len(sent) - 2, min(follow, len(sent) - 1)).astype(np.intp)])
        gaps = np.diff(sent) * slot_ms
        gap_ms = np.minimum(gaps[np.searchsorted(sent, chosen)], self._rules.watermark_ms)
        release = core.release[chosen] - np.float32(hold_ms)
        regions = len(self._customers.starts) - 1
        slots, arrivals = len(chosen), np.zeros((regions, BINS), np.int64)
        nacks, asked = np.zeros(len(self._city), np.int64), np.zeros(slots, np.int64)
        places = np.zeros((len(self._delays.names), PLACE_BINS), np.int32)
        run = EdgeRun(slots, arrivals, places, np.zeros(slots), np.zeros((regions, slots)), nacks, asked)
        soonest, latest = np.full(len(chosen), np.inf), np.full(len(chosen), -np.inf)
        for region in range(regions):
            part = slice(int(self._customers.starts[region]), int(self._customers.starts[region + 1]))
            lines = self._line(self._customers.first[part], part), self._line(self._customers.second[part], part)
            for number in range(len(chosen)) if part.stop > part.start else ():
                came = self._slot(run, number, part, lines, release[number], float(gap_ms[number]))
                there = came[np.isfinite(came)]
                low, high = float(there.min(initial=np.inf)), float(there.max(initial=-np.inf))
                run.region_spread_ms[region, number] = max(high - low, 0.0)
                soonest[number], latest[number] = min(soonest[number], low), max(latest[number], high)
                bins = ((there - EARLIEST_MS) / BIN_MS).astype(np.int32)
                run.arrivals[region] += np.bincount(np.clip(bins, 0, BINS - 1), minlength=BINS)
                self._add_places(run, part, came)
            if tell is not None:
                tell(region + 1, regions)
        run.spread_ms = latest - soonest
        run.slowest_ms = float(latest.max(initial=0.0))
        return run

    def _add_places(self, run: EdgeRun, part: slice, came: Floats) -> None:
        found = np.isfinite(came)
        bins = np.clip(came[found] - np.float32(EARLIEST_MS), 0, PLACE_BINS - 1).astype(np.int64)
        places, where = np.unique(self._customers.place[part][found], return_inverse=True)
        counts = np.bincount(where * PLACE_BINS + bins, minlength=len(places) * PLACE_BINS)
        run.places[places] += counts.reshape(len(places), PLACE_BINS).astype(np.int32)

    def _line(self, receiver: npt.NDArray[np.int32], part: slice) -> _Line:
        at, to = self._city[receiver], self._customers.place[part]
        delay, jitter, loss = (
            matrix[at, to].astype(np.float32)
            for matrix in (self._delays.delay_ms, self._delays.jitter_ms, self._delays.loss)
        )
        more = jitter / np.maximum(1.0 - loss, np.float32(1e-6))
        return _Line(receiver, delay - loss * more, more, loss, delay, jitter)

    def _slot(
        self, run: EdgeRun, number: int, part: slice, lines: tuple[_Line, _Line], release: Floats, gap_ms: float
    ) -> Floats:
        """Return when each subscriber of a region has the packet of one slot; inf if never."""
        first, second = (self._copy(line, release, part) for line in lines)
        came = np.minimum(first, second) if self._rules.two_lines else first
        both = np.flatnonzero(np.isinf(came))
        by_first = int(((first <= second) & np.isfinite(first)).sum())
        run.first_line += by_first
        run.second_line += len(came) - len(both) - by_first
        if len(both):
            self._gaps(run, number, part, lines, release, gap_ms, both, came)
        return came

    def _copy(self, line: _Line, release: Floats, part: slice) -> Floats:
        chance = self.rng.random(len(line.receiver), np.float32)
        came: Floats = release[line.receiver] + line.least + chance * line.more
        came[chance < line.loss] = np.inf
        if self._rules.branch_loss:
            gone = self.rng.random(len(self._delays.names)) < self._rules.branch_loss
            came[gone[self._customers.place[part]]] = np.inf
        return came

    def _gaps(
        self,
        run: EdgeRun,
        number: int,
        part: slice,
        lines: tuple[_Line, _Line],
        release: Floats,
        gap_ms: float,
        missing: Indexes,
        came: Floats,
    ) -> None:
        """Simulate the requests of subscribers that lost a packet on both lines."""
        rng, rules = self.rng, self._rules
        grade = self._customers.grade[part][missing]
        superseded = (grade == LATEST_ONLY) & (rng.random(len(missing)) < rules.superseded)
        asks = (grade != BEST_EFFORT) & ~superseded
        run.lost += np.bincount(grade[~asks], minlength=3)
        who = missing[asks]
        first, second = lines
        unseen = first.loss[who] * (second.loss[who] if rules.two_lines else 1.0)
        seen = rng.geometric(np.maximum(1.0 - unseen, 1e-3))
        way = first.delay[who] + first.jitter[who] * rng.random(len(who), np.float32)
        ask_ms = release[first.receiver[who]] + seen * gap_ms + way + rules.reorder_ms
        farther = np.maximum(first.delay[who] + first.jitter[who], second.delay[who] + second.jitter[who])
        retry_ms = 2.0 * (farther + 1.0)
        for attempt in range(MOST_ROUNDS):
            if not len(who):
                return
            line = lines[attempt % 2 if rules.two_lines else 0]
            run.asked[number] += len(who)
            heard = rng.random(len(who), np.float32) >= line.loss[who]
            run.nacks += np.bincount(line.receiver[who[heard]], minlength=len(run.nacks))
            answered = heard & (rng.random(len(who), np.float32) >= line.loss[who])
            there = who[answered]
            ways = 2.0 * line.delay[there] + line.jitter[there] * rng.random((2, len(there)), np.float32).sum(axis=0)
            came[there] = ask_ms[answered] + ways
            run.repaired += len(there)
            who, ask_ms, retry_ms = who[~answered], (ask_ms + retry_ms)[~answered], retry_ms[~answered]

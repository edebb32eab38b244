"""Measure the paths to this node from the numbered messages of others, and publish the result (TT §2).

A beat of a member, and a probe of a node that sends no beats, has a number that counts the sender's messages and the
time at which it was sent. So each one that arrives yields the one-way delay, by two clocks, and a gap in the numbers is
a loss in this direction. Nothing is sent for it.

- A message counts as lost when `REORDER` later ones have been sent. Until then it may still arrive.
- Messages that were lost in an outage of more than `OUTAGE_NS` are no loss: timing does not bridge it.
- Figures are kept per minute, as a histogram with buckets of `BUCKET_NS`. The live figures are those of the last
  `WINDOW` minutes. Histograms of several minutes, or nodes, are added without an error.
- Every node publishes its row once a second: the figures of the paths to it, and which of the last messages arrived.
  So every node knows the whole matrix, and how often it and another node miss the same message of a third.
- The least delay of the last seconds is published too: two nodes find the offset of their clocks with it
  (`levelcast.overlay.clock_check`).

The delay contains the offset of the two clocks, so it may be negative.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from levelcast.overlay.probe import SELECTED
from levelcast.protocol.effects import GROUP, Effect, Send
from levelcast.wire.codec import ARRIVED_BYTES, MAX_PATHS
from levelcast.wire.messages import NOTHING_RECENT, PathFigures, PathRow

BUCKET_NS = 100_000
MINUTE_NS = 60_000_000_000
WINDOW = 10
REORDER = 16
REMEMBERED = 8 * ARRIVED_BYTES
"""Messages of which it is known whether they arrived."""
OUTAGE_NS = 3_000_000_000
ROW_NS = 1_000_000_000
RECENT_NS = 2_500_000_000
"""An interval of the least delay: long enough for some hundred beats, short for a clock that drifts."""
ENOUGH = 1_000
"""Arrivals from which the quantile 0.999 is known."""
_ALL = (1 << REMEMBERED) - 1
_MOST_US = 2**31 - 1


class RecentLeast:
    """The least of the delays of the last `RECENT_NS` to 2·`RECENT_NS`."""

    __slots__ = ("_before", "_least", "_start_ns", "count")

    def __init__(self) -> None:
        self._start_ns = 0
        self._least: int | None = None
        self._before: int | None = None
        self.count = 0
        """Number of delays since the last time at which there was none."""

    def add(self, delay_ns: int, at_ns: int) -> None:
        self._turn(at_ns)
        self.count += 1
        if self._least is None or delay_ns < self._least:
            self._least = delay_ns

    def at(self, now: int) -> int | None:
        """Return the least delay; None if nothing has arrived lately."""
        self._turn(now)
        if self._before is None or (self._least is not None and self._least < self._before):
            return self._least
        return self._before

    def _turn(self, now: int) -> None:
        """Begin the next interval if it is time. A clock that is set back begins again."""
        passed_ns = now - self._start_ns
        if 0 <= passed_ns < RECENT_NS:
            return
        self._before = self._least if RECENT_NS <= passed_ns < 2 * RECENT_NS else None
        self._least = None
        self._start_ns = now
        if self._before is None:
            self.count = 0


@dataclass(slots=True)
class PathMinute:
    """Arrivals and losses of one peer's messages in one minute."""

    start_ns: int
    heard: int = 0
    lost: int = 0
    bursts: int = 0
    outages: int = 0
    least_ns: int | None = None
    delays: Counter[int] = field(default_factory=Counter)
    """Arrivals by delay in units of `BUCKET_NS`."""

    def add(self, other: PathMinute) -> None:
        self.heard += other.heard
        self.lost += other.lost
        self.bursts += other.bursts
        self.outages += other.outages
        if other.least_ns is not None:
            self.least_ns = other.least_ns if self.least_ns is None else min(self.least_ns, other.least_ns)
        self.delays.update(other.delays)

    def quantiles_ns(self, *shares: float) -> list[int]:
        """Return the delays that these shares of the arrivals do not exceed; the middle of a bucket each."""
        ordered = sorted(self.delays.items())
        found = []
        for share in shares:
            left = share * self.heard
            at = 0
            for bucket, count in ordered:
                at, left = bucket, left - count
                if left <= 0:
                    break
            found.append(at * BUCKET_NS + BUCKET_NS // 2)
        return found


class PathMeter:
    """The path from one peer to this node."""

    def __init__(self) -> None:
        self.minutes: deque[PathMinute] = deque()
        """The last minutes with an arrival, oldest first."""
        self.last = 0
        """Number of the newest message; 0: none."""
        self.last_ns = 0
        """When it was sent."""
        self.arrived = 0
        """The last messages, the newest in the lowest bit: 0 if it is missing. Those before the first one are 1."""
        self.recent = RecentLeast()

    def take(self, number: int, sent_ns: int, at_ns: int) -> bool:
        """Count the arrival of a message; return whether the numbers of the peer started again."""
        started = self.last == 0 or (number <= self.last and sent_ns > self.last_ns)
        minute = self._minute(at_ns)
        if started:
            self.arrived = _ALL
        elif number <= self.last:
            behind = self.last - number
            if behind >= REORDER or self.arrived >> behind & 1:
                return False  # it counts as lost, or is a second copy
            self.arrived |= 1 << behind
        else:
            self._advance(number - self.last, sent_ns, minute)
        if started or number > self.last:
            self.last, self.last_ns = number, sent_ns
        delay_ns = at_ns - sent_ns
        minute.heard += 1
        minute.delays[delay_ns // BUCKET_NS] += 1
        minute.least_ns = delay_ns if minute.least_ns is None else min(minute.least_ns, delay_ns)
        self.recent.add(delay_ns, at_ns)
        return started

    def _advance(self, steps: int, sent_ns: int, minute: PathMinute) -> None:
        """Continue with a message that is `steps` newer; count those that can no longer arrive in time as lost."""
        if sent_ns - self.last_ns > OUTAGE_NS:
            minute.outages += 1
            self.arrived = _ALL
            return
        for _ in range(min(steps, REMEMBERED)):
            self.arrived = self.arrived << 1 & _ALL
            if not self.arrived >> REORDER & 1:
                minute.lost += 1
                minute.bursts += self.arrived >> REORDER + 1 & 1
        minute.lost += max(0, steps - REMEMBERED)
        self.arrived |= 1

    def _minute(self, at_ns: int) -> PathMinute:
        start_ns = at_ns - at_ns % MINUTE_NS
        if not self.minutes or self.minutes[-1].start_ns < start_ns:
            self.minutes.append(PathMinute(start_ns))
            while self.minutes[0].start_ns <= start_ns - WINDOW * MINUTE_NS:
                self.minutes.popleft()
        return self.minutes[-1]

    def figures(self) -> PathMinute:
        """Return the sums over the last minutes."""
        total = PathMinute(self.minutes[0].start_ns if self.minutes else 0)
        for minute in self.minutes:
            total.add(minute)
        return total


class SharedLosses(NamedTuple):
    """Messages of one peer that this node and another one compared, and who missed them."""

    compared: int = 0
    here: int = 0
    there: int = 0
    both: int = 0


class HeardPath(NamedTuple):
    """A path of another node's row, and when it arrived."""

    at_ns: int
    figures: PathFigures


class Paths:
    """The paths to one node, and the rows of the others."""

    def __init__(self, node: int, peers: Collection[int], now: int) -> None:
        self.wake_ns = now + ROW_NS
        self.meters: dict[int, PathMeter] = {}
        self.rows: dict[int, dict[int, HeardPath]] = {}
        """Node -> peer -> the path from that peer to that node."""
        self.shared: dict[tuple[int, int], SharedLosses] = {}
        """(Sender, other node) -> what both have missed."""
        self._compared: dict[tuple[int, int], int] = {}
        self._beating: set[int] = set()
        self._node = node
        self._peers = frozenset(peers)

    def hear_beat(self, peer: int, number: int, sent_ns: int, at_ns: int) -> None:
        if peer not in self._beating:
            self._beating.add(peer)
            self.meters.pop(peer, None)  # its probes have other numbers
        self._take(peer, number, sent_ns, at_ns)

    def hear_probe(self, peer: int, number: int, sent_ns: int, at_ns: int) -> None:
        if peer not in self._beating and number < SELECTED:
            self._take(peer, number, sent_ns, at_ns)

    def _take(self, peer: int, number: int, sent_ns: int, at_ns: int) -> None:
        if peer not in self._peers:
            return
        meter = self.meters.get(peer)
        if meter is None:
            meter = self.meters[peer] = PathMeter()
        if meter.take(number, sent_ns, at_ns):
            for key in [key for key in self._compared if key[0] == peer]:
                del self._compared[key]

    def step(self, batch: Iterable[PathRow], now: int) -> list[Effect]:
        """Store the rows of others, and publish the own one if it is due."""
        self.take(batch, now)
        if now < self.wake_ns:
            return []
        self.wake_ns = now + ROW_NS
        paths = self.own_row(now)
        self.rows[self._node] = {path.peer: HeardPath(now, path) for path in paths}
        parts = (paths[first : first + MAX_PATHS] for first in range(0, len(paths), MAX_PATHS))
        return [Send(GROUP, PathRow(self._node, tuple(part))) for part in parts]

    def take(self, batch: Iterable[PathRow], now: int) -> None:
        """Store the rows of others."""
        for row in batch:
            if row.sender in self._peers:
                known = self.rows.setdefault(row.sender, {})
                for path in row.paths:
                    if path.peer in self._peers or path.peer == self._node:
                        known[path.peer] = HeardPath(now, path)
                        self._compare(row.sender, path)

    def own(self) -> dict[int, HeardPath]:
        """Return the own row as it was published last, by peer."""
        return self.rows.get(self._node, {})

    def own_row(self, now: int) -> list[PathFigures]:
        return [_figures(peer, meter, now) for peer, meter in sorted(self.meters.items())]

    def delays_ns(self, share: float) -> dict[int, int]:
        """Return this quantile of the delay from each peer of which it is known."""
        found = {}
        for peer, meter in self.meters.items():
            total = meter.figures()
            if total.heard >= ENOUGH:
                (found[peer],) = total.quantiles_ns(share)
        return found

    def _compare(self, other: int, path: PathFigures) -> None:
        """Count the messages of one peer that were missed here, there, or in both places."""
        meter = self.meters.get(path.peer)
        if meter is None:
            return
        key = path.peer, other
        newest = min(meter.last, path.last) - REORDER
        oldest = max(self._compared.get(key, 0), max(meter.last, path.last) - REMEMBERED)
        self._compared[key] = max(self._compared.get(key, 0), newest)
        arrived = int.from_bytes(path.arrived, "little")
        compared, here, there, both = self.shared.get(key, SharedLosses())
        for number in range(oldest + 1, newest + 1):
            missed_here = not meter.arrived >> meter.last - number & 1
            missed_there = not arrived >> path.last - number & 1
            compared, here, there = compared + 1, here + missed_here, there + missed_there
            both += missed_here and missed_there
        self.shared[key] = SharedLosses(compared, here, there, both)


def _figures(peer: int, meter: PathMeter, now: int) -> PathFigures:
    total = meter.figures()
    p50, p99, p999 = total.quantiles_ns(0.5, 0.99, 0.999)
    recent_ns = meter.recent.at(now)
    times_ns = (total.least_ns or 0, p50, p99, p999, recent_ns or 0)
    least, p50, p99, p999, recent = (max(-_MOST_US, min(ns // 1_000, _MOST_US)) for ns in times_ns)
    if recent_ns is None:
        recent = NOTHING_RECENT
    arrived = meter.arrived.to_bytes(ARRIVED_BYTES, "little")
    return PathFigures(peer, total.heard, total.lost, total.bursts, least, p50, p99, p999, meter.last, arrived, recent)


def loss_of(figures: PathFigures) -> float:
    """Return the share of messages that were lost."""
    sent = figures.heard + figures.lost
    return figures.lost / sent if sent else 0.0


def burst_length(figures: PathFigures) -> float:
    """Return the mean number of messages that are lost together; 0 without a loss."""
    return figures.lost / figures.bursts if figures.bursts else 0.0

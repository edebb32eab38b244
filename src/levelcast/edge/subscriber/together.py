"""Deliver records at their release time plus a common bound, sans I/O, so that all subscribers act at the same time.

A record with `ts_recv` T is released at T + Δ_A, at all receivers at once, and reaches a subscriber after the delay of
its line. Here it waits until T + Δ_A + bound by the subscriber's clock. Subscribers with the same bound therefore
receive it at the same time, if the bound exceeds their delays.

- Δ_A of each record follows from the watermarks, which state the last change of the hold time, and from the timing
  records, which precede the slots to which they apply (`levelcast.protocol.pace`). Records wait for the first
  watermark.
- A record that arrives after that time is delivered immediately, in order, and counted as late. Records whose time
  was before the start are not: they are history. Records without a timestamp, such as watermarks, are not counted.
- Records of a session stay in order, and so do records of several sessions with different times. A record without a
  timestamp has the time of the record before it. Watermarks, losses, ends and changes of the plan keep their place.
- With the grade *latest only* a record that fills a gap does not wait for later ones. But no record is delivered before
  one with a lower number that arrived first, even if a change of the hold time makes the later one due earlier.
- A report for the edge (`levelcast.wire.delivery_report`) has the delays of the slots, and how long after the bound
  they were delivered.
- A record cannot arrive before its release. If it does, one of the clocks is wrong: the longest such time is counted.
  No record waits longer than the bound and `MAX_EARLY_NS`, so a wrong clock does not stop delivery.

The work is per slot, not per record. `take` gets the effects of a `SessionReader` or `PlanFollower` and returns those
to perform now; `due` returns those whose time has come, and `next_ns` is the time of the next one, all by the wall
clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from levelcast.edge.subscriber.delivery import Complete, Deliver, Ended, Lost
from levelcast.edge.subscriber.plan_follower import Closed, Followed, Happening, Replaced
from levelcast.protocol.pace import KEPT, hold_at
from levelcast.records import group_by_type
from levelcast.wire import mold
from levelcast.wire.channel_plan import parse_session
from levelcast.wire.delivery_report import DeliveryReport
from levelcast.wire.messages import Pace, PaceChange
from levelcast.wire.mold import EdgePacket
from levelcast.wire.pace_change import pace_changes
from levelcast.wire.watermark import Holds, last_watermark

MAX_EARLY_NS = 1_000_000_000
PATIENCE_NS = 3_000_000_000
"""Wait for the first watermark at most so long: a few of the longest intervals in use."""
MAX_MEASURED = 20_000
"""Slots of one report at most: the last ones."""
_NOT_FIRST = 2
"""A version of changes here: of times before a change, only its `before_ns` is known."""


@dataclass(slots=True)
class TogetherCounts:
    records: int = 0
    """Records that waited for their time."""
    late: int = 0
    """Records that arrived after their time."""
    largest_late_ns: int = 0
    """The largest time by which a record was late."""
    largest_early_ns: int = 0
    """The largest time by which a record arrived before its release: an error of the clocks."""


@dataclass(slots=True)
class _Stripe:
    """The hold times of one stripe."""

    changes: list[PaceChange] = field(default_factory=list)
    waiting: list[Happening] = field(default_factory=list)
    """Effects that wait for the first watermark, or until `until_ns`."""
    until_ns: int = 0

    def learn(self, holds: Holds) -> None:
        """Add a change of the hold time; without one, the hold time of the ring."""
        changes = self.changes
        if changes and holds.from_ns == changes[0].from_ns:
            first = PaceChange(_NOT_FIRST, holds.from_ns, holds.before_ns, Pace(holds.hold_ns, 0, ()))
            changes[0] = first
        elif not changes or holds.from_ns > changes[-1].from_ns:
            new = PaceChange(_NOT_FIRST, holds.from_ns, holds.before_ns, Pace(holds.hold_ns, 0, ()))
            self.changes = [*changes[1 - KEPT :], new]

    def hold_ns(self, timestamp_ns: int) -> int:
        return hold_at(self.changes, timestamp_ns, 0)


@dataclass(slots=True)
class _Session:
    stripe: int
    timestamp_ns: int = 0
    """The timestamp of the last record."""
    due_ns: int = 0
    from_ns: int = 0
    """When it is followed: it does not overtake the sessions of the plan before."""
    waiting: list[tuple[int, int, int]] = field(default_factory=list)
    """Sequence, timestamp and due time of each batch that waits: *latest only*."""

    def behind_ns(self, effect: Deliver | Complete, now: int) -> int:
        """Return when the waiting batches are due that come before `effect`; 0 without any."""
        self.waiting = [each for each in self.waiting if each[2] > now]
        if isinstance(effect, Deliver):
            return max((due_ns for first, _, due_ns in self.waiting if first < effect.sequence), default=0)
        complete_ns = effect.watermark.complete_ns
        return max((due_ns for _, timestamp_ns, due_ns in self.waiting if timestamp_ns <= complete_ns), default=0)


class TogetherQueue:
    """The records of all sessions of a subscriber that wait for their time."""

    def __init__(self, bound_ns: int, *, in_order: bool = True) -> None:
        """Without `in_order` (latest only), records of a session do not wait for those that were read before them."""
        self.bound_ns = bound_ns
        self.counts = TogetherCounts()
        self._in_order = in_order
        self._stripes: dict[int, _Stripe] = {}
        self._sessions: dict[bytes, _Session] = {}
        self._heap: list[tuple[int, int, Happening]] = []
        self._number = 0
        self._last_due_ns = 0
        self._begun_ns: int | None = None
        """The first time at which the hold time was known."""
        self._reported = TogetherCounts()
        """The counts of the report before."""
        self._delays: deque[int] = deque(maxlen=MAX_MEASURED)
        self._errors: deque[int] = deque(maxlen=MAX_MEASURED)
        """Since the report before: from the release to the arrival, and from release + bound to the delivery."""

    def __len__(self) -> int:
        """Return the number of batches and other effects that wait."""
        return len(self._heap) + sum(len(stripe.waiting) for stripe in self._stripes.values())

    @property
    def next_ns(self) -> int | None:
        """Time at which `due` should be called."""
        times = [stripe.until_ns for stripe in self._stripes.values() if stripe.waiting]
        return min([*times, *(each[0] for each in self._heap[:1])], default=None)

    def position(self, session: bytes) -> int | None:
        """Return the first sequence of a session that waits; None if none does."""
        waiting = [each for _, _, each in self._heap if isinstance(each, Deliver)]
        waiting += [each for stripe in self._stripes.values() for each in stripe.waiting if isinstance(each, Deliver)]
        return min((each.sequence for each in waiting if each.session == session), default=None)

    def hold_ns(self, stripe: int, timestamp_ns: int) -> int | None:
        """Return Δ_A of a slot of a stripe; None before the first watermark."""
        known = self._stripes.get(stripe)
        return known.hold_ns(timestamp_ns) if known is not None and known.changes else None

    def follow(self, sessions: Iterable[bytes], stripe: int) -> None:
        """Note the stripe of sessions; by default it follows from their names."""
        for session in sessions:
            self._session(session).stripe = stripe

    def take(self, effects: Iterable[Happening], now: int) -> list[Happening]:
        """Return the effects to perform now, in order; the others wait."""
        out: list[Happening] = []
        passed: list[Happening] = []
        waited = self._number
        if self._last_due_ns > now + MAX_EARLY_NS + self.bound_ns:
            out = self._begin_again()
        for effect in effects:
            if isinstance(effect, Followed):
                self.follow(effect.sessions, effect.stripe)
            if isinstance(effect, Followed | Replaced):
                stripe = self._stripes.setdefault(effect.stripe, _Stripe())
            elif isinstance(effect, Deliver | Complete | Lost | Ended | Closed):
                self._learn(effect, now)
                stripe = self._stripe_of(effect.session)
            else:
                passed.append(effect)
                continue
            if stripe.changes or not (stripe.waiting or isinstance(effect, Deliver | Complete)):
                self._schedule(effect, stripe, now)
            else:
                stripe.until_ns = stripe.until_ns if stripe.waiting else now + PATIENCE_NS
                stripe.waiting.append(effect)
        return [*out, *self._pop(now, waited), *passed]

    def due(self, now: int) -> list[Happening]:
        """Return the effects whose time has come, in order."""
        for stripe in self._stripes.values():
            if stripe.waiting and stripe.until_ns <= now:  # no watermark follows: deliver them
                self._learned(stripe, [Holds()], now)
        return self._pop(now, self._number)

    def _pop(self, now: int, waited: int) -> list[Happening]:
        """Return the effects whose time has come. Those with a number up to `waited` were not late."""
        out = []
        while self._heap and self._heap[0][0] <= now:
            due_ns, number, effect = heappop(self._heap)
            out.append(effect)
            if number <= waited and isinstance(effect, Deliver):
                self._errors.append(now - due_ns)
        return out

    def report(self, subscriber: int) -> DeliveryReport:
        """Return the delays and counts since the report before."""
        counts, before = self.counts, self._reported
        p50_ns, p99_ns, max_ns = _quantiles_ns(self._delays, 0.5, 0.99, 1.0)
        (error_ns,) = _quantiles_ns(self._errors, 0.99)
        records, late = counts.records - before.records, counts.late - before.late
        self._reported = replace(counts)
        self._delays.clear()
        self._errors.clear()
        early_ns = counts.largest_early_ns
        return DeliveryReport(subscriber, self.bound_ns, records, late, p50_ns, p99_ns, max_ns, error_ns, early_ns)

    def _begin_again(self) -> list[Happening]:
        """Return everything that waits: the clock was set back."""
        out = self._pop(self._last_due_ns, 0)
        self._last_due_ns = 0
        for session in self._sessions.values():
            session.due_ns = session.from_ns = 0
            session.waiting.clear()
        return out

    # -- hold times ---------------------------------------------------------------------------------------

    def _session(self, name: bytes) -> _Session:
        found = self._sessions.get(name)
        if found is None:
            place = parse_session(name)
            found = self._sessions[name] = _Session(place.stripe if place is not None else 0)
        return found

    def _stripe_of(self, session: bytes) -> _Stripe:
        return self._stripes.setdefault(self._session(session).stripe, _Stripe())

    def _learn(self, effect: Deliver | Complete | Lost | Ended | Closed, now: int) -> None:
        """Learn the hold times that an effect states, and schedule what waited for them."""
        if isinstance(effect, Deliver):
            found = [Holds(each.pace.hold_ns, each.before_ns, each.from_ns) for each in pace_changes(effect.payload)]
            watermark = last_watermark(effect.payload, effect.size)
        else:
            found, watermark = [], effect.watermark if isinstance(effect, Complete) else None
        if watermark is not None and watermark.holds.hold_ns:  # the mark at the end of a plan has none
            found.append(watermark.holds)
        if not found:
            return
        self._learned(self._stripe_of(effect.session), found, now)

    def _learned(self, stripe: _Stripe, found: Iterable[Holds], now: int) -> None:
        for holds in found:
            stripe.learn(holds)
        if self._begun_ns is None:
            self._begun_ns = now
        waiting, stripe.waiting = stripe.waiting, []
        for each in waiting:
            self._schedule(each, stripe, now)

    # -- times --------------------------------------------------------------------------------------------

    def _schedule(self, effect: Happening, stripe: _Stripe, now: int) -> None:
        if isinstance(effect, Lost | Ended):
            self._push(self._session(effect.session).due_ns, effect)
            return
        if not isinstance(effect, Deliver | Complete):
            self._push(self._last_due_ns, effect)  # of several sessions: after all that wait
            if isinstance(effect, Followed):
                for name in effect.sessions:
                    self._session(name).from_ns = self._last_due_ns
            return
        session = self._session(effect.session)
        if isinstance(effect, Complete):
            timestamp_ns = effect.watermark.complete_ns
            self._push_next(session, self._due_ns(timestamp_ns, stripe, now), effect, timestamp_ns, now)
            return
        times, unknown = _timestamps(effect, session.timestamp_ns, follows=self._in_order)
        starts = [0, *(np.flatnonzero(np.diff(times)) + 1).tolist(), effect.records]
        session.timestamp_ns = int(times[-1])
        pieces: list[list[int]] = []  # due time, first record, one past the last
        for start, end in pairwise(starts):
            due_ns = self._due_ns(int(times[start]), stripe, now)
            known = end - start - int(np.count_nonzero(unknown[start:end]))
            if known:
                self._count(due_ns, int(times[start]), stripe, known, now)
            if pieces and (due_ns <= now or due_ns == pieces[-1][0]):
                pieces[-1][2] = end  # late, or of the same time: one batch
            else:
                pieces.append([due_ns, start, end])
        for due_ns, start, end in pieces:
            self._push_next(session, due_ns, _part(effect, start, end), int(times[start]), now)

    def _due_ns(self, timestamp_ns: int, stripe: _Stripe, now: int) -> int:
        return due_ns(timestamp_ns + stripe.hold_ns(timestamp_ns), self.bound_ns, now)

    def _count(self, due_ns: int, timestamp_ns: int, stripe: _Stripe, records: int, now: int) -> None:
        counts = self.counts
        delay_ns = now - timestamp_ns - stripe.hold_ns(timestamp_ns)
        counts.largest_early_ns = max(counts.largest_early_ns, -delay_ns)
        if due_ns >= now:
            counts.records += records
        elif self._begun_ns is not None and due_ns >= self._begun_ns:
            counts.late += records
            counts.largest_late_ns = max(counts.largest_late_ns, now - due_ns)
        else:
            return
        self._delays.append(delay_ns)

    def _push_next(
        self, session: _Session, due_ns: int, effect: Deliver | Complete, timestamp_ns: int, now: int
    ) -> None:
        """Add the next effect of a session, which does not overtake those before it."""
        before_ns = session.due_ns if self._in_order else session.behind_ns(effect, now)
        session.due_ns = max(due_ns, session.from_ns, before_ns)
        if not self._in_order and isinstance(effect, Deliver) and session.due_ns > now:
            session.waiting.append((effect.sequence, timestamp_ns, session.due_ns))
        self._push(session.due_ns, effect)

    def _push(self, due_ns: int, effect: Happening) -> None:
        self._last_due_ns = max(self._last_due_ns, due_ns)
        self._number += 1
        heappush(self._heap, (due_ns, self._number, effect))


def due_ns(release_ns: int, bound_ns: int, now: int) -> int:
    """Return when to deliver records that were released at a time and arrived now."""
    return min(release_ns, now + MAX_EARLY_NS) + bound_ns


def _quantiles_ns(times: Collection[int], *shares: float) -> list[int]:
    """Return quantiles of times, none below 0; 0 without times."""
    return [max(0, int(each)) for each in np.quantile([*times] or [0], shares)]


def _timestamps(
    deliver: Deliver, before_ns: int, *, follows: bool
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return the `ts_recv` of each record, and which have none: they have that of the record before.

    At the beginning that is `before_ns`, unless the batch fills a gap and so does not follow the records before it.
    """
    times = np.zeros(deliver.records, np.int64)
    for kind, numbers, rows in group_by_type(deliver.payload):
        if kind.ts_recv_offset is not None:
            times[numbers] = rows["ts_recv"].astype(np.int64)
    unknown = times <= 0  # also an undefined one
    if unknown.any():
        places = np.maximum.accumulate(np.where(unknown, -1, np.arange(len(times))))
        first_ns = before_ns if follows or unknown.all() else int(times[~unknown][0])
        times = np.where(places < 0, first_ns, times[places])
    return times, unknown


def _part(deliver: Deliver, start: int, end: int) -> Deliver:
    if (start, end) == (0, deliver.records):
        return deliver
    session, sequence, records, size, payload = deliver
    packet = mold.cut(EdgePacket(session, sequence, records, size, payload), start, end - start)
    return Deliver(session, packet.sequence, packet.records, packet.size, packet.payload)

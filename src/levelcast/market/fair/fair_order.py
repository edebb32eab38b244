"""The fair sequence of orders: a function of released frames (E4 to E8; MS §7.2).

    frames -> admit (E6) -> clocks of the gateways (E4) -> closed buckets -> turn and ticket (E5) -> commands in order

- **Admit.** An order, or a beat, shows its gateway's clock. It is refused if its gateway is not in the set at that
  time, if its stamp is below one that the gateway has shown or above the timestamp of its frame + `ahead`, or if its
  correction is above the cap. Packets of a gateway stay in order, so nothing older than its clock can follow.
- **Close.** A bucket is closed when all gateways in the set have shown a clock past its end, or Θ after its end. A
  gateway that let Θ pass leaves the set. It returns with its next current stamp; after repeated failures only when a
  pause is over, which doubles with each failure, so that a gateway that comes and goes cannot hold up the others.
- **Order.** Closed buckets in turn; in a bucket by (turn, ticket). An account's n-th order has turn n. Its ticket is a
  hash of the chain hash of the frame that closed the bucket, the bucket and the account. Copies get no second ticket.
- **Late.** An order of a closed bucket goes into the first open one, and is marked.

Other records (definitions, statuses, commands of the treasury) keep their place before the orders that their frame
closes. The engine applies `EntryBatch.payload` in place of the frame's.

Deviations from E4 and E6: a clock counts up to the timestamp of the frame that shows it, so that the phase of the epoch
is known. `ahead` covers two clocks that are wrong by their limit, and a token that is sent δ_N late: E6 allows one
clock error, and would refuse orders of honest gateways.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from levelcast.market.fair.eras import NEVER, ChainLog, EntryEra, Stamps, with_rules
from levelcast.records import ORDER, RTYPE_ORDER, RecordArray, orders, split
from levelcast.wire.entry_change import entry_changes
from levelcast.wire.messages import CONTROL_SOURCE

BEAT = b"H"
"""`command` of a record with which a gateway shows its clock."""
MOST_DOUBLINGS = 6
"""A pause is at most Θ·2^6."""
FORGIVEN = 16
"""Failures of a gateway are forgotten when it has been in the set for this many pauses."""
_NO_ACTION = b"N"
_LONGEST_NS = 2**62
_GOLDEN, _MIX_1, _MIX_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class EntryReason(IntEnum):
    """Reasons for which an order, or a beat, is refused (E6)."""

    NONE = 0
    UNKNOWN_GATEWAY = 1
    OTHER_SOURCE = 2
    GOES_BACK = 3
    FUTURE = 4
    CORRECTION = 5


REASON_TEXTS = {
    EntryReason.UNKNOWN_GATEWAY: "it is not in the set of gateways at that time; add it to the set, or stop it",
    EntryReason.OTHER_SOURCE: "another source sent it; give each gateway an id of its own",
    EntryReason.GOES_BACK: "its stamp is below one that the gateway has shown; check the clock of the gateway",
    EntryReason.FUTURE: "its stamp is after its token; check the clock of the gateway",
    EntryReason.CORRECTION: "its correction is outside 0 to the cap; check the release of the gateway",
}


class EntryFrame(NamedTuple):
    """A released frame, as far as order entry reads it."""

    sequence: int
    """Sequence of its last record."""
    timestamp_ns: int
    chain: bytes
    payload: bytes | memoryview
    sources: tuple[tuple[int, int], ...] | None = None
    """Source and number of records of each packet, in order; None: records state their source by `publisher_id`."""


class EntryBatch(NamedTuple):
    """Additions of one frame to the sequence of commands."""

    orders: RecordArray
    """Orders of the buckets that the frame closed, in fair order."""
    late: Mask
    """Those that came after their bucket was closed."""
    others: bytes
    """Records of the frame that are not from gateways."""
    refused: RecordArray
    reasons: npt.NDArray[np.uint8]
    """An `EntryReason` for each refused record."""
    closed_ns: int
    """All buckets that end up to here are closed."""
    left: tuple[int, ...] = ()
    """Gateways that left the set because they let Θ pass."""

    @property
    def payload(self) -> bytes:
        """The records that the engine applies for this frame."""
        return self.others + self.orders.tobytes()

    def alarms(self) -> Iterator[str]:
        """Yield one message for each gateway and reason of refusal, and for each gateway that left the set."""
        for reason in np.unique(self.reasons).tolist():
            gateways, counts = np.unique(self.refused["publisher_id"][self.reasons == reason], return_counts=True)
            for gateway, count in zip(gateways.tolist(), counts.tolist(), strict=True):
                records = "1 record" if count == 1 else f"{count} records"
                yield f"gateway {gateway}: {records} refused: {REASON_TEXTS[EntryReason(reason)]}"
        for gateway in self.left:
            yield f"gateway {gateway}: no clock within the closing time; it left the set and is no longer waited for"


@dataclass(slots=True)
class GatewayClock:
    """State of one gateway."""

    passed_ns: int
    """The highest clock that it has shown."""
    waited_for: bool = True
    """It is in the set: buckets wait for its clock."""
    failures: int = 0
    changed_ns: int = 0
    """Timestamp of the frame with which it left the set, or returned."""
    orders: int = 0
    late: int = 0
    refused: int = 0


class WaitingOrders(NamedTuple):
    """Orders of one frame whose buckets are open, in the order of the tape."""

    records: RecordArray
    stamps: Stamps
    places: Stamps
    """The stamp, or for a late order the start of the first bucket that was open."""
    arrivals: Ints
    late: Mask
    lowest_ns: int

    def part(self, chosen: Mask | npt.NDArray[np.intp]) -> WaitingOrders:
        places = self.places[chosen]
        lowest = int(places.min()) if len(places) else NEVER
        return WaitingOrders(
            self.records[chosen], self.stamps[chosen], places, self.arrivals[chosen], self.late[chosen], lowest
        )


class FairEntry:
    """The state of order entry after a frame."""

    def __init__(self) -> None:
        self.eras: list[EntryEra] = []
        self.gateways: dict[int, GatewayClock] = {}
        self.closed_ns = 0
        """Start of the first open bucket."""
        self.sequence = self.timestamp_ns = 0
        self.log = ChainLog()
        self.horizon_ns = 0
        """Up to here all gateways have shown their clocks, or Θ has passed."""
        self._waiting: list[WaitingOrders] = []
        self.arrivals = 0
        """Number of orders that were admitted."""

    @property
    def waiting(self) -> int:
        """Number of orders whose buckets are open."""
        return sum(len(each.records) for each in self._waiting)

    def frame(self, frame: EntryFrame) -> EntryBatch:
        """Apply the next frame; return the orders of the buckets that it closes."""
        if frame.sequence < self.sequence or frame.timestamp_ns < self.timestamp_ns:
            raise ValueError(f"frame {frame.sequence} is not after frame {self.sequence}")
        self.sequence, self.timestamp_ns = frame.sequence, frame.timestamp_ns
        self.log.append(frame.timestamp_ns, frame.chain)
        own, sources, others = _parts(frame)
        refused, reasons = self._admit(own, sources)
        left = self._update_set()
        closed = self._close(frame.chain)
        for rules in entry_changes(frame.payload) if _has_control(frame) else ():
            self._change(with_rules(self.eras, rules, frame.timestamp_ns))
        self._forget()
        return EntryBatch(*closed, others, refused, reasons, self.closed_ns, left)

    def waiting_orders(self) -> WaitingOrders:
        """Return the orders whose buckets are open, in the order of the tape."""
        parts = self._waiting or [_NONE_WAITING]
        return _together(parts).part(np.argsort(np.concatenate([each.arrivals for each in parts]), kind="stable"))

    def wait_for(self, waiting: WaitingOrders) -> None:
        """Add orders of a snapshot."""
        self._waiting.append(waiting)

    def _change(self, eras: list[EntryEra]) -> None:
        if eras is self.eras:
            return
        self.eras = eras
        for gateway in eras[-1].rules.gateways:
            if gateway not in self.gateways:
                self.gateways[gateway] = GatewayClock(eras[-1].from_ns, changed_ns=eras[-1].from_ns)
        if len(eras) == 1:
            self.closed_ns = self.horizon_ns = eras[0].from_ns

    # -- admission (E6) -----------------------------------------------------------------------------------

    def _admit(self, own: RecordArray, sources: Ints | None) -> tuple[RecordArray, npt.NDArray[np.uint8]]:
        """Take the records of gateways; return the refused ones with their reasons."""
        if not len(own):
            return own, np.zeros(0, np.uint8)
        stamps = np.minimum(own["ts_event"], np.uint64(_LONGEST_NS)).astype(np.int64)
        publishers = own["publisher_id"].astype(np.int64)
        reasons = self._first_reasons(own, stamps, publishers, sources)
        if reasons.any() or not self._rises(stamps, publishers):
            self._refuse_back(stamps, publishers, reasons)
        kept = (reasons == 0) & ~is_beat(own)
        if kept.any():
            self._take(own[kept], stamps[kept], publishers[kept])
        bad = reasons != 0
        return own[bad], reasons[bad]

    def _rises(self, stamps: Stamps, publishers: Ints) -> bool:
        """Advance the clocks if no gateway's stamps go back; return whether that is so."""
        places = np.argsort(publishers, kind="stable")
        stamps, publishers = stamps[places], publishers[places]
        ends = np.flatnonzero(np.append(publishers[1:] != publishers[:-1], True))
        clocks = [self.gateways[gateway] for gateway in publishers[ends].tolist()]
        shown = np.empty_like(stamps)
        shown[1:] = stamps[:-1]
        shown[np.append(0, ends[:-1] + 1)] = [clock.passed_ns for clock in clocks]
        if goes_back(stamps, shown).any():
            return False
        for clock, passed_ns in zip(clocks, np.maximum(shown, stamps)[ends].tolist(), strict=True):
            clock.passed_ns = passed_ns
        return True

    def _refuse_back(self, stamps: Stamps, publishers: Ints, reasons: npt.NDArray[np.uint8]) -> None:
        """Advance the clocks with the accepted stamps; add the reason for those that go back."""
        for gateway in np.unique(publishers).tolist():
            clock = self.gateways.get(gateway)
            if clock is None:
                continue
            mine = np.flatnonzero((publishers == gateway) & (reasons == 0))
            shown = np.maximum.accumulate(np.concatenate(([clock.passed_ns], stamps[mine])))
            reasons[mine[goes_back(stamps[mine], shown[:-1])]] = EntryReason.GOES_BACK
            clock.passed_ns = int(shown[-1])
            clock.refused += int(np.count_nonzero(reasons[publishers == gateway]))

    def _first_reasons(
        self, own: RecordArray, stamps: Stamps, publishers: Ints, sources: Ints | None
    ) -> npt.NDArray[np.uint8]:
        """Return the reasons that do not depend on earlier records of the same gateway."""
        reasons = np.full(len(own), EntryReason.UNKNOWN_GATEWAY, np.uint8)
        corrections, beats = own["ts_in_delta"], is_beat(own)
        for era in self.eras:
            # A gateway that the next era does not have shows with a beat that the last bucket of this one is over.
            within = (stamps >= era.from_ns) & ((stamps < era.until_ns) | beats)
            within &= np.isin(publishers, era.rules.gateways)
            reasons[within] = EntryReason.NONE
            beyond = exceeds_cap(corrections, era.rules.late_cap_ns)
            reasons[within & beyond] = EntryReason.CORRECTION
            future = is_future(stamps, self.timestamp_ns, era.rules.ahead_ns)
            reasons[within & future] = EntryReason.FUTURE
        if sources is not None:
            reasons[is_foreign(sources, publishers)] = EntryReason.OTHER_SOURCE
        return reasons

    def _take(self, records: RecordArray, stamps: Stamps, publishers: Ints) -> None:
        late = is_late(stamps, self.closed_ns)
        places = np.where(late, self.closed_ns, stamps)
        arrivals = np.arange(self.arrivals, self.arrivals + len(records))
        self.arrivals += len(records)
        self._waiting.append(WaitingOrders(records, stamps, places, arrivals, late, int(places.min())))
        for gateway, count in zip(*np.unique(publishers, return_counts=True), strict=True):
            clock = self.gateways[int(gateway)]
            clock.orders += int(count)
            clock.late += int(np.count_nonzero(late & (publishers == gateway)))

    # -- the set of gateways that are waited for (E4) ------------------------------------------------------

    def _update_set(self) -> tuple[int, ...]:
        """Remove gateways that let Θ pass, and readmit those that are current again; return those that left."""
        left: list[int] = []
        for gateway, close_ns in self._awaited().items():
            clock = self.gateways[gateway]
            limit_ns = self.timestamp_ns - close_ns
            current = not lets_pass(clock.passed_ns, limit_ns)
            if clock.waited_for and not current:
                clock.failures += 1
                clock.waited_for, clock.changed_ns = False, self.timestamp_ns
                left.append(gateway)
            elif not clock.waited_for and current and clock.passed_ns > limit_ns:
                if self.timestamp_ns >= clock.changed_ns + pause_ns(clock.failures, close_ns):
                    clock.waited_for, clock.changed_ns = True, self.timestamp_ns
            elif clock.failures and clock.waited_for:
                calm_ns = FORGIVEN * max(close_ns, pause_ns(clock.failures, close_ns))
                if self.timestamp_ns >= clock.changed_ns + calm_ns:
                    clock.failures = 0
        return tuple(left)

    def _awaited(self) -> dict[int, int]:
        """Return the gateways of the rules that apply, and of those before with open buckets, each with its Θ."""
        now = self._era_at(self.timestamp_ns)
        begun = [each for each in self.eras if each.from_ns <= self.timestamp_ns]
        eras = [each for each in begun if each is now or self.horizon_ns < each.until_ns]
        return {gateway: era.rules.close_ns for era in eras for gateway in era.rules.gateways}

    def _era_at(self, time_ns: int) -> EntryEra | None:
        return next((era for era in reversed(self.eras) if era.from_ns <= time_ns), None)

    def _horizon(self) -> int:
        """Return the time up to which all gateways have shown their clocks, or Θ has passed."""
        horizon_ns = self.horizon_ns
        for era in self.eras:
            if horizon_ns >= era.until_ns:
                continue
            passed = [self.gateways[each].passed_ns for each in era.rules.gateways if self.gateways[each].waited_for]
            heard_ns = min(shown_by_all(passed), self.timestamp_ns)
            heard_ns = max(heard_ns, timed_out(self.timestamp_ns, era.rules.close_ns))
            horizon_ns = min(max(horizon_ns, heard_ns), era.until_ns)
            if horizon_ns < era.until_ns:
                break
        return horizon_ns

    # -- closed buckets (E4, E5) ---------------------------------------------------------------------------

    def _close(self, chain: bytes) -> tuple[RecordArray, Mask]:
        """Close buckets; return their orders in fair order, and which of them are late."""
        before_ns, self.horizon_ns = self.horizon_ns, self._horizon()
        if self.horizon_ns == before_ns:
            return _NOTHING
        found: list[tuple[WaitingOrders, Stamps]] = []
        still: list[WaitingOrders] = []
        for chunk in self._waiting:
            if chunk.lowest_ns >= self.horizon_ns:
                still.append(chunk)
                continue
            ends = self._ends(chunk.places)
            done = ends <= self.horizon_ns
            if done.all():
                found.append((chunk, ends))
                continue
            still.append(chunk.part(~done))
            if done.any():
                found.append((chunk.part(done), ends[done]))
        self._waiting = still
        self.closed_ns = self._last_border()
        if not found:
            return _NOTHING
        closed = _together([each for each, _ in found])
        ends = np.concatenate([each for _, each in found])
        places = fair_order(ends, closed.records["account"], closed.stamps, closed.arrivals, chain)
        return closed.records[places], closed.late[places]

    def _ends(self, places: Stamps) -> Stamps:
        """Return the ends of buckets; `NEVER` if not known yet."""
        ends = np.full(len(places), NEVER, np.int64)
        for era in self.eras:
            here = (places >= era.from_ns) & (places < min(era.until_ns, self.horizon_ns))
            if here.all():
                return era.ends(places, self.log)
            if here.any():
                ends[here] = era.ends(places[here], self.log)
        return ends

    def _last_border(self) -> int:
        era = self._era_at(self.horizon_ns)
        return self.closed_ns if era is None else max(self.closed_ns, era.border_before(self.horizon_ns, self.log))

    def _forget(self) -> None:
        """Drop eras that no open bucket needs, and chain hashes of epochs that are over."""
        while len(self.eras) > 1 and self.eras[0].until_ns <= self.closed_ns:
            rules = self.eras.pop(0).rules
            for gateway in set(rules.gateways).difference(*(era.rules.gateways for era in self.eras)):
                del self.gateways[gateway]
        if self.eras:
            rules = self.eras[0].rules
            self.log.forget(self.closed_ns - rules.quantum_ns - 2 * rules.epoch_ns)


def _together(parts: Sequence[WaitingOrders]) -> WaitingOrders:
    return WaitingOrders(
        np.concatenate([each.records for each in parts]),
        np.concatenate([each.stamps for each in parts]),
        np.concatenate([each.places for each in parts]),
        np.concatenate([each.arrivals for each in parts]),
        np.concatenate([each.late for each in parts]),
        min(each.lowest_ns for each in parts),
    )


_NO_NUMBERS = np.zeros(0, np.int64)
_NOTHING: tuple[RecordArray, Mask] = (orders(0), np.zeros(0, np.bool_))
_NONE_WAITING = WaitingOrders(orders(0), _NO_NUMBERS, _NO_NUMBERS, _NO_NUMBERS, np.zeros(0, np.bool_), NEVER)


# -- the clauses, each a function of its own, so that a mutation can remove it ------------------------------


def is_beat(records: RecordArray) -> Mask:
    found: Mask = (records["action"] == _NO_ACTION) & (records["command"] == BEAT)
    return found


def is_foreign(sources: Ints, publishers: Ints) -> Mask:
    """Return which records another source has sent than the gateway that they name."""
    found: Mask = sources != publishers
    return found


def shown_by_all(passed: Sequence[int]) -> int:
    """Return the time that the clocks of all gateways have passed; 0 if no gateway is in the set."""
    return min(passed, default=0)


def lets_pass(passed_ns: int, limit_ns: int) -> bool:
    """Return whether a gateway has shown no clock within Θ, so that it leaves the set."""
    return passed_ns < limit_ns


def goes_back(stamps: Stamps, shown: Stamps) -> Mask:
    """Return which stamps are below one that their gateway has shown."""
    return stamps < shown


def is_future(stamps: Stamps, timestamp_ns: int, ahead_ns: int) -> Mask:
    """Return which stamps are later than their token by more than clocks explain."""
    return stamps > timestamp_ns + ahead_ns


def exceeds_cap(corrections: npt.NDArray[np.int32], cap_ns: int) -> Mask:
    """Return which corrections no late release explains."""
    return (corrections < 0) | (corrections > cap_ns)


def is_late(stamps: Stamps, closed_ns: int) -> Mask:
    """Return which stamps are in a closed bucket."""
    return stamps < closed_ns


def timed_out(timestamp_ns: int, close_ns: int) -> int:
    """Return the time up to which buckets are closed although not all gateways have shown their clocks."""
    return timestamp_ns - close_ns


def pause_ns(failures: int, close_ns: int) -> int:
    """Return how long a gateway stays outside the set after its last failure: 0, Θ, 2Θ, 4Θ, ..."""
    return 0 if failures < 2 else close_ns << min(failures - 2, MOST_DOUBLINGS)


def turns(ends: Stamps, accounts: npt.NDArray[np.uint64], stamps: Stamps, arrivals: Ints) -> Ints:
    """Return how many orders of the same account precede each one in its bucket, by stamp and packet order."""
    places = np.lexsort((arrivals, stamps, accounts, ends))
    sorted_ends, sorted_accounts = ends[places], accounts[places]
    starts = np.ones(len(places), np.bool_)
    starts[1:] = (sorted_ends[1:] != sorted_ends[:-1]) | (sorted_accounts[1:] != sorted_accounts[:-1])
    numbers = np.arange(len(places))
    result = np.empty(len(places), np.int64)
    result[places] = numbers - np.maximum.accumulate(np.where(starts, numbers, 0))
    return result


def tickets(accounts: npt.NDArray[np.uint64], ends: Stamps, seed: bytes) -> npt.NDArray[np.uint64]:
    """Return hash(seed, bucket, account) for each: two rounds of SplitMix64's finalizer, keyed by 128 bits of the seed.

    The end of the bucket is hashed too, so that two buckets that one frame closes have different tickets.
    """
    mixed = accounts.astype(np.uint64)
    for key, word in ((seed[:8], np.uint64(0)), (seed[8:16], ends.astype(np.uint64))):
        mixed = (mixed ^ np.uint64(int.from_bytes(key, "little")) ^ word) + np.uint64(_GOLDEN)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(_MIX_1)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(_MIX_2)
        mixed = mixed ^ (mixed >> np.uint64(31))
    return mixed


def fair_order(
    ends: Stamps, accounts: npt.NDArray[np.uint64], stamps: Stamps, arrivals: Ints, seed: bytes
) -> npt.NDArray[np.intp]:
    """Return the places of orders in fair order: by bucket, turn and ticket (E5)."""
    return np.lexsort((accounts, tickets(accounts, ends, seed), turns(ends, accounts, stamps, arrivals), ends))


# -- frames -------------------------------------------------------------------------------------------------


def _has_control(frame: EntryFrame) -> bool:
    return frame.sources is None or any(source == CONTROL_SOURCE for source, _ in frame.sources)


def _parts(frame: EntryFrame) -> tuple[RecordArray, Ints | None, bytes]:
    """Return the records for order entry, their sources if known, and all others as bytes."""
    batches = split(frame.payload)
    by_record = None
    if frame.sources is not None:
        ids, counts = ([row[place] for row in frame.sources] for place in (0, 1))
        by_record = np.repeat(np.array(ids, np.int64), counts)
    own: list[RecordArray] = []
    sources: list[Ints] = []
    others: list[bytes] = []
    for kind, first, records in batches:
        if kind.rtype != RTYPE_ORDER:
            others.append(records.tobytes())
            continue
        chosen = is_entry(records)
        if not chosen.all():
            others.append(records[~chosen].tobytes())
        own.append(records[chosen].astype(ORDER, copy=False))
        if by_record is not None:
            sources.append(by_record[first : first + len(records)][chosen])
    whole = np.concatenate(own) if own else orders(0)
    return whole, (np.concatenate(sources) if sources else None), b"".join(others)


def is_entry(records: RecordArray) -> Mask:
    """Return which order records are for order entry: all but the commands of the treasury."""
    found: Mask = (records["action"] != _NO_ACTION) | np.isin(records["command"], _FROM_GATEWAYS)
    return found


_FROM_GATEWAYS = np.array([b"H", b"C", b"U", b"E"])
"""Beats, claims, released claims and executions (O2, O3): all other records with action N are of the treasury."""

"""Simulate the core in bulk: thousands of receivers in layers as arrays, with the ring's timing rules.

The exact simulator runs the protocol's classes. This model applies its *rules* to arrays, slot by slot, so that 10,000
receivers need only seconds. It implements these rules of pipelined mode:

| rule | model |
|---|---|
| 1, 2 | slot t is at t·τ; its owner sends by its own clock; a token lists what the owner holds, in source order. A |
|   | second copy follows with the owner's next beat |
| 5 | a token is missing at slot time + delay of its owner, then its packets. A primary asks the slot owner and two |
|   | helpers by nearness at once, again after their shortest round trip; a secondary its primary, which replies if it |
|   | has them. A gap in a source's numbers is requested without a token. At most 128 slots are open at the same time |
|   | (`levelcast.sim.bulk.repair`) |
| 7, 8 | members claim in beats; a slot is released at timestamp + Δ_A, or late at the w-th smallest of said_j + H_j |
|   | (`levelcast.sim.bulk.claims`) |
| 10 | a source that misses its acknowledgement sends again |
| 11 | secondaries send `have` every β; a primary's beat claims the lowest of its group, without those that lag. So do |
|   | secondaries with a group of their own, layer by layer |

Not modelled: lockstep, NACK sets, faults and reformation (rule 12), credit, processing time and claims in tokens. A gap
of several packets counts as several requests. `tests/test_sim_bulk_core.py` compares the model with the exact simulator
on small rings.

Times are in ms. Unless stated otherwise they are schedule times; true time is that minus a node's clock error.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from levelcast.protocol.gaps import MOST_ATTEMPTS
from levelcast.protocol.loss import MAX_OPEN_SLOTS
from levelcast.sim.bulk.claims import BulkClaims
from levelcast.sim.bulk.paths import NS_PER_MS, Core, Flags, Floats, Indexes, SitePaths, Times
from levelcast.sim.bulk.repair import BulkRepair, Item, RequestCounts

PUNCTUAL_MS = 1.0
"""Same tolerance as `StripeConfig.punctual_ns`."""


@dataclass(slots=True)
class CoreRun(RequestCounts):
    """Results by slot (row) and receiver (column), in ms of true time after the slot's time."""

    slots: range
    """Measured slots, after the warm-up."""
    held: Floats
    """Time when the token, the packets it lists and all earlier slots are held."""
    ready: Floats
    """Time when the slot is held and witnessed."""
    release: Floats
    late: Flags
    packets: npt.NDArray[np.int64]
    """Number of packets in each slot."""
    wait_ms: Times
    """Time from a packet's sending to the slot that lists it, for each packet in `slots`."""
    instant_ms: Times
    """Time from each slot until all receivers know that it is witnessed: its common release time without Δ_A."""
    needed_ms: float
    """The least Δ_A with which no release of the run is late."""

    @property
    def on_time(self) -> float:
        """Fraction of releases at timestamp + Δ_A."""
        return 1.0 - float(self.late.mean()) if self.late.size else 1.0

    @property
    def packets_counted(self) -> int:
        return int(self.packets.sum())


@dataclass(slots=True)
class _Packets:
    """Packets of a run, in the order in which their sources sent them."""

    sent_ms: Times
    slot: Indexes
    """First slot that lists each packet; beyond the last slot if none does."""
    by_slot: dict[int, list[int]] = field(default_factory=dict)
    last_slot: list[int] = field(default_factory=list)
    arrivals: list[Floats] = field(default_factory=list)
    """Arrival of each packet at every receiver, relative to its sending."""
    gaps: list[tuple[Indexes, Times]] = field(default_factory=list)
    """Receivers that request each packet because a later one has arrived, and when."""
    named: dict[int, Item] = field(default_factory=dict)
    """Packets that a token has listed and a later one will list again."""


class _Arriving(NamedTuple):
    """A packet, and the receivers that a later one shows that it is missing, with the time of their requests."""

    item: Item
    who: Indexes
    gap_ms: Times


class BulkCore:
    """One run of the core."""

    def __init__(self, core: Core, seed: int) -> None:
        self.core = core
        timing = core.timing
        self.m = core.primaries
        self.n = core.receivers
        self.slot_ms = timing.slot_ns / NS_PER_MS
        self.late_ms = timing.late_ns / NS_PER_MS
        self.request_ms = timing.request_ns / NS_PER_MS
        self.hold_ms = timing.hold_ns / NS_PER_MS
        self.resend_ms = timing.resend_ns / NS_PER_MS
        self.rng = np.random.default_rng(seed)
        self._paths = SitePaths(core, self.rng)
        self._repair = BulkRepair(self._paths)
        self._claims = BulkClaims(self._paths)
        self._missing_ms = [self._paths.missing_after_ms(int(city)) - core.clock_ms for city in core.city[: self.m]]
        """True time after a slot of each primary from which its token is missing at each receiver."""

    def run(self, slots: int, gap_ms: float, *, warm: int, tell: Callable[[int, int], None] | None = None) -> CoreRun:
        """Run `slots` measured slots after `warm` others; each source sends one packet per `gap_ms` on average."""
        total = warm + slots
        packets = self._send_packets(total, gap_ms)
        held = np.empty((slots, self.n), np.float32)
        have_ms = np.full(self.n, -np.inf)
        recent = deque([have_ms] * MAX_OPEN_SLOTS)
        for slot in range(total):
            self._repair.counting = slot >= warm
            token_ms = self._token(slot, recent.popleft())
            whole_ms = self._named(slot, token_ms, packets)
            have_ms = np.maximum(have_ms, whole_ms)
            if slot >= warm:
                held[slot - warm] = have_ms - slot * self.slot_ms
            recent.append(have_ms)
            if tell is not None:
                tell(slot + 1, total)
        return self._outcome(held, packets, range(warm, total))

    # -- packets (rules 2, 5, 10) -------------------------------------------------------------------------

    def _send_packets(self, total: int, gap_ms: float) -> _Packets:
        sent = [self._sent_by_source(total * self.slot_ms, gap_ms) for _ in self.core.sources]
        count = sum(map(len, sent))
        packets = _Packets(np.concatenate(sent), np.full(count, total, np.intp))
        number = 0
        for source, times in zip(self.core.sources.tolist(), sent, strict=True):
            last_slot = 0
            for at_ms, (item, who, begin_ms) in zip(times.tolist(), self._arriving_from(source, times), strict=True):
                slots = self._name(source, at_ms, last_slot, total, item)
                last_slot = packets.slot[number] = slots[0]
                for slot in slots:
                    packets.by_slot.setdefault(slot, []).append(number)
                packets.last_slot.append(slots[-1])
                packets.arrivals.append((item.has_ms - at_ms).astype(np.float32))
                packets.gaps.append((who, begin_ms))
                number += 1
        return packets

    def _sent_by_source(self, lasting_ms: float, gap_ms: float) -> Times:
        sent: list[float] = []
        at_ms = self.rng.exponential(gap_ms)
        while at_ms < lasting_ms:
            sent.append(at_ms)
            at_ms += self.rng.exponential(gap_ms)
        return np.array(sent)

    def _arriving_from(self, city: int, sent: Times) -> list[_Arriving]:
        """Return the packets of a source as they arrive, and where a gap in their numbers reveals that one is lost."""
        arriving: list[_Arriving] = []
        later_ms = np.full(self.n, np.inf)
        for at_ms in sent[::-1].tolist():
            has_ms = self._paths.multicast(city, at_ms)
            begin_ms = later_ms + self._paths.reorder_ms
            who = np.flatnonzero(has_ms > begin_ms)
            arriving.append(_Arriving(Item(has_ms), who, begin_ms[who]))
            later_ms = np.minimum(later_ms, has_ms)
        return arriving[::-1]

    def _name(self, city: int, sent_ms: float, not_before: int, total: int, item: Item) -> list[int]:
        """Return the slots that list a packet, and update its arrival times by what the source resends.

        The first slot is that of the first owner that holds it, and not earlier than that of the packet before it.
        """
        arrives = item.has_ms
        again_ms = sent_ms + self.resend_ms
        slot = max(not_before, int(np.ceil(sent_ms / self.slot_ms)))
        while slot < total:
            site = slot % self.m
            site_ms = slot * self.slot_ms - self.core.clock_ms[site]
            if again_ms < site_ms:
                again_ms = self._resend(city, again_ms, arrives)
            if arrives[site] <= site_ms:
                break
            slot += 1
        slots = np.concatenate([[slot], self._named_again(slot, arrives)])
        sites, cities = self.core.city[slots % self.m], np.full(len(slots), city)
        heard_ms = np.min([self._paths.unicast(sites, cities, at_ms) for at_ms in self._token_times(slots)])
        until_ms = slot * self.slot_ms + self.core.timing.unwitnessed_ns(self.core.witnesses) / NS_PER_MS
        while again_ms < min(heard_ms, until_ms):
            again_ms = self._resend(city, again_ms, arrives)
        named: list[int] = slots.tolist()
        return named

    def _resend(self, city: int, at_ms: float, arrives: Times) -> float:
        """Multicast a packet again and update its arrival times. Return the time of the next repetition."""
        np.minimum(arrives, self._paths.multicast(city, at_ms), out=arrives)
        self._repair.counts.resent += 1
        return at_ms + self.resend_ms

    def _named_again(self, slot: int, arrives: Times) -> Indexes:
        """Return later slots whose owner holds a packet and does not know yet that `slot` lists it (rule 4). This is
        harmless, but a receiver that misses the packet sends requests for each slot."""
        city = self.core.city
        later = slot + np.arange(1, 2 + int((self.late_ms + self.request_ms) / self.slot_ms))
        site, sites = slot % self.m, later % self.m
        sent_ms = later * self.slot_ms - self.core.clock_ms[sites]
        knows_ms = slot * self.slot_ms + self._missing_ms[site][sites] + self._repair.nearest_ms[sites]
        for (at_ms,) in self._token_times(np.array([slot])):
            knows_ms = np.minimum(knows_ms, self._paths.unicast(np.array(city[site]), city[sites], at_ms))
        again: Indexes = later[(arrives[sites] <= sent_ms) & (knows_ms > sent_ms) & (sites != site)]
        return again

    # -- slots (rules 1, 2, 5) ----------------------------------------------------------------------------

    def _token_times(self, slots: Indexes) -> tuple[Times, Times]:
        """Return the true times of the tokens of these slots, and of their second copies after the next beat."""
        sites, at_ms = slots % self.m, slots.astype(np.float64) * self.slot_ms
        clock_ms = self.core.clock_ms[sites]
        return at_ms - clock_ms, self._claims.next_beat_ms(sites, at_ms) - clock_ms

    def _token(self, slot: int, opened_ms: Times) -> Times:
        """Return when each receiver has the token of a slot."""
        site, at_ms = slot % self.m, slot * self.slot_ms
        first, second = (
            self._paths.multicast(int(self.core.city[site]), sent_ms)
            for (sent_ms,) in self._token_times(np.array([slot]))
        )
        token = Item(np.minimum(first, second))
        token.has_ms[site] = at_ms - self.core.clock_ms[site]
        begin_ms = np.maximum(at_ms + self._missing_ms[site], opened_ms)
        self._repair.repair([token], begin_ms, site)
        self._repair.count_faults([token], begin_ms, at_ms)
        return token.has_ms

    def _named(self, slot: int, token_ms: Times, packets: _Packets) -> Times:
        """Return when each receiver has the token and all packets that it lists."""
        named = packets.by_slot.get(slot)
        if not named:
            return token_ms
        site, at_ms = slot % self.m, slot * self.slot_ms
        begin_ms = np.maximum(token_ms, at_ms + self._missing_ms[site])
        new = {number: self._arriving(packets, number) for number in named if number not in packets.named}
        for number, item in new.items():
            self._ask_for_gap(item, *packets.gaps[number], begin_ms, before=True)
        items = [new[number] if number in new else packets.named.pop(number) for number in named]
        self._repair.repair(items, begin_ms, site)
        for number, item in new.items():
            self._ask_for_gap(item, *packets.gaps[number], begin_ms, before=False)
        self._repair.count_faults(items, begin_ms, at_ms)
        whole_ms = token_ms.copy()
        for number, item in zip(named, items, strict=True):
            np.maximum(whole_ms, item.has_ms, out=whole_ms)
            if packets.last_slot[number] > slot:
                packets.named[number] = item
        return whole_ms

    def _ask_for_gap(self, item: Item, who: Indexes, gap_ms: Times, begin_ms: Times, *, before: bool) -> None:
        """Simulate the requests for a gap that begin before, or after, those for what the token lists."""
        mine = (gap_ms < begin_ms[who]) == before
        times = np.full(self.n, np.inf)
        times[who[mine]] = gap_ms[mine]
        self._repair.repair([item], times, None, MOST_ATTEMPTS)

    def _arriving(self, packets: _Packets, number: int) -> Item:
        came_ms, packets.arrivals[number] = packets.arrivals[number], np.empty(0, np.float32)
        return Item(packets.sent_ms[number] + came_ms.astype(np.float64))

    # -- release (rules 7, 8) -----------------------------------------------------------------------------

    def _outcome(self, held: Floats, packets: _Packets, counted: range) -> CoreRun:
        first, last = counted.start, counted.stop
        times = np.arange(first, last, dtype=np.float64) * self.slot_ms
        clock = self.core.clock_ms.astype(np.float32)
        ready, release = np.empty_like(held), np.empty_like(held)
        instant_ms = np.empty(len(times))
        needed_ms = 0.0
        before_ms = np.full(self.n, -np.inf)
        witnessed_ms = before_ms
        for row, heard in enumerate(self._claims.heard(self._claims.said(held, times))):
            # In order: no slot is witnessed or released before the slots that precede it.
            witnessed_ms = np.maximum(witnessed_ms, heard.known_ms)
            ready[row] = np.maximum(held[row], witnessed_ms - times[row])
            due_ms = np.maximum(times[row] + self.hold_ms, heard.due_ms) - clock
            before_ms = np.maximum(np.maximum(before_ms, due_ms), times[row] + ready[row])
            release[row] = before_ms - times[row]
            instant_ms[row] = heard.instant_ms - times[row]
            needed_ms = max(needed_ms, float((ready[row] + clock).max()), float(heard.due_ms.max() - times[row]))
        numbers = np.flatnonzero((packets.slot >= first) & (packets.slot < last))
        counts = self._repair.counts
        return CoreRun(
            slots=counted,
            held=held,
            ready=ready,
            release=release,
            late=release + clock > self.hold_ms + PUNCTUAL_MS,
            packets=np.bincount(packets.slot[numbers] - first, minlength=len(counted)),
            wait_ms=packets.slot[numbers] * self.slot_ms - packets.sent_ms[numbers],
            instant_ms=instant_ms,
            needed_ms=needed_ms,
            **{each.name: getattr(counts, each.name) for each in fields(RequestCounts)},
        )

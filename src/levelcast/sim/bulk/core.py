"""Simulate the core in bulk: thousands of receivers in two layers as arrays, with the ring's timing rules.

The exact simulator runs the protocol's classes. This model applies its *rules* to arrays, slot by slot, so that 10,000
receivers need only seconds. It implements these rules:

| rule | model |
|---|---|
| 1, 2 | slot t is at t·τ; its owner sends by its own clock; a token lists what the owner holds, in source order |
| 5 | a token missing at slot time + δ_N, then its packets, are requested every τ_r until they arrive. A primary |
|   | sends requests to the slot owner, then to the next members; a secondary to its primary, which replies if it has |
|   | them. The reply to a second request within τ_r is multicast. At most 128 slots are open at the same time |
| 7, 8 | witnessed by the first token in slot order with which w members claim it; released at timestamp + Δ_A or late |
| 10 | a source that misses its acknowledgement sends again |
| 11 | secondaries send `have` every τ_r; a primary's token claims the lowest of its group, without those that lag |

Not modelled: faults and reformation (rule 12), credit, and processing time. The claims in tokens do not influence the
choice of the next member for a request: it is the next one in ring order. `tests/test_sim_bulk_core.py` compares the
model with the exact simulator on small rings.

Times are in ms. Unless stated otherwise they are schedule times; true time is that minus a node's clock error.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, fields

import numpy as np
import numpy.typing as npt

from levelcast.network.regions.delays import Delays
from levelcast.protocol.loss import MAX_OPEN_SLOTS
from levelcast.timing.rules import Timing
from levelcast.timing.secondary import patience_ns

Floats = npt.NDArray[np.float32]
Times = npt.NDArray[np.float64]
Indexes = npt.NDArray[np.intp]
Flags = npt.NDArray[np.bool_]

NS_PER_MS = 1e6
MOST_ANSWERS = 64
"""Number of multicast replies of one round that are simulated, first ones first: more make no difference."""
MOST_ROUNDS = 400
"""Far above k_r: requests continue beyond k_r, but end after this many rounds."""
ROUNDING_MS = 0.01
"""Accuracy of times in single precision: a slot owner holds its own token when it sends it."""
PUNCTUAL_MS = 1.0
"""Same tolerance as `StripeConfig.punctual_ns`."""


@dataclass(frozen=True, slots=True)
class Core:
    """Location of all receivers. Receivers 0 to m − 1 are the primaries in ring order, with `home` = own index."""

    delays: Delays
    city: Indexes
    home: Indexes
    sources: Indexes
    """City of each source."""
    timing: Timing
    witnesses: int
    clock_ms: Times
    """Clock error of each receiver; positive if its clock is ahead."""
    branch_loss: float = 0.0
    """Probability that a multicast is lost for all receivers of a city (MS §3.9), added to the loss of each copy."""

    @property
    def receivers(self) -> int:
        return len(self.city)

    @property
    def primaries(self) -> int:
        return int((self.home == np.arange(len(self.home))).sum())


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
    """Maximum number of requests to one receiver in one round: for one token, or for its packets."""
    attempts_most: int = 0
    """Maximum number of requests of one receiver for one item."""
    faults: int = 0
    """Items that a primary did not receive after k_r requests: each would cause a reformation (rule 5)."""


@dataclass(slots=True)
class CoreRun(RequestCounts):
    """Results by slot (row) and receiver (column), in ms of true time after the slot's time."""

    slots: range
    """Measured slots: after the warm-up, and early enough to be witnessed before the end."""
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
    completing_ms: Times
    """Time from each slot to the token that completes its witness."""

    @property
    def on_time(self) -> float:
        """Fraction of releases at timestamp + Δ_A."""
        return 1.0 - float(self.late.mean()) if self.late.size else 1.0

    @property
    def packets_counted(self) -> int:
        return int(self.packets.sum())


@dataclass(slots=True)
class _Item:
    """Token or packet: when each receiver has it, and the last requester and request time per primary (rule 5)."""

    has_ms: Times
    asker: Indexes
    asked_ms: Times


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
    named: dict[int, _Item] = field(default_factory=dict)
    """Packets that a token has listed and a later one will list again."""


class BulkCore:
    """One run of the core."""

    def __init__(self, core: Core, seed: int) -> None:
        self.core = core
        self.rng = np.random.default_rng(seed)
        timing = core.timing
        self.m = core.primaries
        self.n = core.receivers
        self.slot_ms = timing.slot_ns / NS_PER_MS
        self.late_ms = timing.late_ns / NS_PER_MS
        self.request_ms = timing.request_ns / NS_PER_MS
        self.hold_ms = timing.hold_ns / NS_PER_MS
        self.hear_ms = timing.hear_ns / NS_PER_MS
        self.resend_ms = timing.resend_ns / NS_PER_MS
        self._rows: dict[int, tuple[Floats, Floats, Floats]] = {}
        """Delay, jitter and loss from a city to every receiver."""
        delays = core.delays
        self._delay, self._jitter, self._loss = (
            matrix.astype(np.float32) for matrix in (delays.delay_ms, delays.jitter_ms, delays.loss)
        )
        self._counts = RequestCounts(sent_nacks=np.zeros(self.n, np.int64), nacks=np.zeros(self.n, np.int64))
        self._counting = False

    # -- the network --------------------------------------------------------------------------------------

    def _multicast(self, city: int, at_ms: float) -> Times:
        """Return when a multicast reaches each receiver; inf if it is lost."""
        if city not in self._rows:
            to = self.core.city
            self._rows[city] = self._delay[city][to], self._jitter[city][to], self._loss[city][to]
        arrives = self._arrives(*self._rows[city], at_ms)
        if self.core.branch_loss:
            gone = self.rng.random(len(self._delay)) < self.core.branch_loss
            gone[city] = False
            arrives[gone[self.core.city]] = np.inf
        return arrives

    def _unicast(self, sender: Indexes, to: Indexes, at_ms: Times) -> Times:
        """Return when messages between cities arrive; inf for those that are lost."""
        return self._arrives(self._delay[sender, to], self._jitter[sender, to], self._loss[sender, to], at_ms)

    def _arrives(self, delay: Floats, jitter: Floats, loss: Floats, at_ms: float | Times) -> Times:
        """Return when messages over these links arrive; inf for lost ones. One draw decides both loss and jitter."""
        chance = self.rng.random(len(loss), np.float32)
        kept = (chance - loss) / np.maximum(1.0 - loss, 1e-6)
        arrives: Times = at_ms + delay + (jitter * kept).astype(np.float64)
        arrives[chance < loss] = np.inf
        return arrives

    # -- the run ------------------------------------------------------------------------------------------

    def run(self, slots: int, gap_ms: float, *, warm: int, tell: Callable[[int, int], None] | None = None) -> CoreRun:
        """Run `slots` measured slots after `warm` others; each source sends one packet per `gap_ms` on average."""
        behind = int(np.ceil((self.hold_ms + self.hear_ms) / self.slot_ms)) + 2 * self.m
        total = warm + slots + behind
        counted = range(warm, warm + slots)
        packets = self._send_packets((warm + slots) * self.slot_ms, gap_ms, total)
        held = np.empty((total, self.n), np.float32)
        read = np.empty((total, self.n), np.float32)
        have_ms = np.full(self.n, -np.inf)
        read_ms = np.full(self.n, -np.inf)
        recent = deque([have_ms] * MAX_OPEN_SLOTS)
        for slot in range(total):
            self._counting = slot in counted
            at_ms = slot * self.slot_ms
            token_ms = self._token(slot, recent.popleft())
            whole_ms = self._named(slot, token_ms, packets)
            have_ms = np.maximum(have_ms, whole_ms)
            read_ms = np.maximum(read_ms, token_ms)
            held[slot], read[slot] = have_ms - at_ms, read_ms - at_ms
            recent.append(have_ms)
            if tell is not None:
                tell(slot + 1, total)
        return self._outcome(held, read, packets, counted)

    def _send_packets(self, lasting_ms: float, gap_ms: float, total: int) -> _Packets:
        sent: list[tuple[int, float]] = []
        for source in range(len(self.core.sources)):
            at_ms = self.rng.exponential(gap_ms)
            while at_ms < lasting_ms:
                sent.append((source, at_ms))
                at_ms += self.rng.exponential(gap_ms)
        packets = _Packets(np.array([at_ms for _, at_ms in sent]), np.full(len(sent), total, np.intp))
        last_of: dict[int, int] = {}
        for number, (source, at_ms) in enumerate(sent):
            slots, arrives = self._name(source, at_ms, last_of.get(source, 0), total)
            last_of[source] = packets.slot[number] = slots[0]
            for slot in slots:
                packets.by_slot.setdefault(slot, []).append(number)
            packets.last_slot.append(slots[-1])
            packets.arrivals.append((arrives - at_ms).astype(np.float32))
        return packets

    def _name(self, source: int, sent_ms: float, not_before: int, total: int) -> tuple[list[int], Times]:
        """Return the slots that list a packet, and its arrival time at each receiver.

        The first slot is that of the first owner that holds it, and not earlier than that of the packet before it.
        """
        city = int(self.core.sources[source])
        arrives = self._multicast(city, sent_ms)
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
        heard_ms = self._unicast(sites, cities, slots * self.slot_ms).min()
        until_ms = slot * self.slot_ms + self.core.timing.unwitnessed_ns(self.core.witnesses) / NS_PER_MS
        while again_ms < min(heard_ms, until_ms):
            again_ms = self._resend(city, again_ms, arrives)
        return slots.tolist(), arrives

    def _resend(self, city: int, at_ms: float, arrives: Times) -> float:
        """Multicast a packet again and update its arrival times. Return the time of the next repetition."""
        np.minimum(arrives, self._multicast(city, at_ms), out=arrives)
        self._counts.resent += 1
        return at_ms + self.resend_ms

    def _named_again(self, slot: int, arrives: Times) -> Indexes:
        """Return later slots whose owner holds a packet and does not know yet that `slot` lists it (rule 4). This is
        harmless, but a receiver that misses the packet sends requests for each slot."""
        city = self.core.city
        later = slot + np.arange(1, 2 + int((self.late_ms + self.request_ms) / self.slot_ms))
        sites = later % self.m
        sent_ms = later * self.slot_ms - self.core.clock_ms[sites]
        here, named_ms = city[slot % self.m], slot * self.slot_ms
        knows_ms = self._unicast(np.full(len(later), here), city[sites], np.full(len(later), named_ms))
        knows_ms = np.minimum(knows_ms, named_ms + self.late_ms + 2 * self._delay[here, city[sites]])
        again: Indexes = later[(arrives[sites] <= sent_ms) & (knows_ms > sent_ms) & (sites != slot % self.m)]
        return again

    def _token(self, slot: int, opened_ms: Times) -> Times:
        """Return when each receiver has the token of a slot."""
        site = slot % self.m
        sent_ms = slot * self.slot_ms - self.core.clock_ms[site]
        arrives = self._multicast(int(self.core.city[site]), sent_ms)
        arrives[site] = sent_ms
        missed_ms = np.maximum(slot * self.slot_ms + self.late_ms - self.core.clock_ms, opened_ms)
        self._repair(slot, [self._item(arrives)], missed_ms)
        return arrives

    def _item(self, has_ms: Times) -> _Item:
        return _Item(has_ms, np.full(self.m, -1, np.intp), np.full(self.m, -np.inf))

    def _named(self, slot: int, token_ms: Times, packets: _Packets) -> Times:
        """Return when each receiver has the token and all packets that it lists."""
        named = packets.by_slot.get(slot)
        if not named:
            return token_ms
        items = [
            packets.named.pop(number) if number in packets.named else self._arriving(packets, number)
            for number in named
        ]
        begin_ms = np.maximum(token_ms, slot * self.slot_ms + self.late_ms - self.core.clock_ms)
        self._repair(slot, items, begin_ms)
        whole_ms = token_ms.copy()
        for number, item in zip(named, items, strict=True):
            np.maximum(whole_ms, item.has_ms, out=whole_ms)
            if packets.last_slot[number] > slot:
                packets.named[number] = item
        return whole_ms

    def _arriving(self, packets: _Packets, number: int) -> _Item:
        came_ms, packets.arrivals[number] = packets.arrivals[number], np.empty(0, np.float32)
        return self._item(packets.sent_ms[number] + came_ms.astype(np.float64))

    # -- repair (rule 5) ----------------------------------------------------------------------------------

    def _repair(self, slot: int, items: list[_Item], begin_ms: Times) -> None:
        """Request missing `items` every τ_r from `begin_ms` on, and update their arrival times."""
        counts = self._counts
        wanting = np.flatnonzero(np.any([item.has_ms > begin_ms for item in items], axis=0))
        for attempt in range(MOST_ROUNDS):
            if not len(wanting):
                return
            if self._counting:
                counts.attempts_most = max(counts.attempts_most, attempt + 1)
                if attempt and attempt % self.core.timing.attempts == 0:
                    counts.faults += int((wanting < self.m).sum())
            asked_ms = begin_ms[wanting] + attempt * self.request_ms
            self._ask(slot, attempt, wanting, asked_ms, items)
            next_ms = asked_ms + self.request_ms
            wanting = wanting[np.any([item.has_ms[wanting] > next_ms for item in items], axis=0)]

    def _ask(self, slot: int, attempt: int, asking: Indexes, asked_ms: Times, items: list[_Item]) -> None:
        """Simulate one round of requests and their replies."""
        counts, city = self._counts, self.core.city
        asked = self._whom(slot, attempt, asking)
        heard_ms = self._unicast(city[asking], city[asked], asked_ms)
        if self._counting:
            counts.sent_nacks[asking] += 1
            got = np.bincount(asked[np.isfinite(heard_ms)], minlength=self.n)
            counts.nacks += got
            counts.nacks_peak = max(counts.nacks_peak, int(got.max()))
        for item in items:
            has_ms = item.has_ms
            answered = (has_ms[asking] > asked_ms) & (has_ms[asked] <= heard_ms) & np.isfinite(heard_ms)
            if answered.any():
                self._answer(item, asking[answered], asked[answered], heard_ms[answered])

    def _whom(self, slot: int, attempt: int, asking: Indexes) -> Indexes:
        """Return the targets of requests: the slot owner, then the next members; for a secondary its primary."""
        site = np.full(len(asking), (slot + attempt) % self.m, np.intp)
        site[site == asking] = (slot + attempt + 1) % self.m
        return np.where(asking < self.m, site, self.core.home[asking])

    def _answer(self, item: _Item, asking: Indexes, asked: Indexes, heard_ms: Times) -> None:
        """Reply by unicast, or by multicast if another primary sent the same request within τ_r (rule 5)."""
        city, counts, has_ms = self.core.city, self._counts, item.has_ms
        order = np.lexsort((heard_ms, asked))
        asking, asked, heard_ms = asking[order], asked[order], heard_ms[order]
        first = np.ones(len(asked), bool)
        first[1:] = asked[1:] != asked[:-1]
        before, before_ms = np.roll(asking, 1), np.roll(heard_ms, 1)
        before[first], before_ms[first] = item.asker[asked[first]], item.asked_ms[asked[first]]
        to_all = (before >= 0) & (before != asking) & (np.abs(heard_ms - before_ms) <= self.request_ms)
        to_all &= (asking < self.m) & (before < self.m)
        last = np.roll(first, -1)
        item.asker[asked[last]], item.asked_ms[asked[last]] = asking[last], heard_ms[last]
        alone = ~to_all
        arrives = self._unicast(city[asked[alone]], city[asking[alone]], heard_ms[alone])
        has_ms[asking[alone]] = np.minimum(has_ms[asking[alone]], arrives)
        if self._counting:
            counts.answers += len(asking)
            counts.answers_to_all += int(to_all.sum())
            counts.copies += int(alone.sum()) + int(to_all.sum()) * (self.n - 1)
        if to_all.any():
            self._answer_all(has_ms, city[asked[to_all]], heard_ms[to_all])

    def _answer_all(self, has_ms: Times, city: Indexes, sent_ms: Times) -> None:
        """Multicast replies from `city`; only the first `MOST_ANSWERS` are simulated."""
        order = np.argsort(sent_ms, kind="stable")[:MOST_ANSWERS]
        city, sent_ms = city[order], sent_ms[order]
        missing = np.flatnonzero(has_ms > sent_ms[0])
        sender, to = np.repeat(city, len(missing)), np.tile(self.core.city[missing], len(city))
        came = self._unicast(sender, to, np.repeat(sent_ms, len(missing))).reshape(len(city), len(missing))
        has_ms[missing] = np.minimum(has_ms[missing], came.min(axis=0))

    # -- claims, witness, release (rules 7, 8, 11) --------------------------------------------------------

    def _outcome(self, held: Floats, read: Floats, packets: _Packets, counted: range) -> CoreRun:
        total = len(held)
        first, last = counted.start, counted.stop
        done = self._completing(self._claims(held))[first:last]
        times = np.arange(first, last) * self.slot_ms
        inside = np.minimum(done, total - 1)
        heard = read[inside] + ((inside * self.slot_ms - times)[:, None]).astype(np.float32)
        heard[done >= total] = np.inf
        ready = np.maximum(held[first:last], heard)
        clock = self.core.clock_ms.astype(np.float32)
        due = np.maximum(self.hold_ms, done * self.slot_ms + self.hear_ms - times).astype(np.float32)
        release = np.maximum(due[:, None] - clock, ready)
        # In order: no slot is released before the slots that precede it.
        for row in range(1, len(release)):
            np.maximum(release[row], release[row - 1] - np.float32(self.slot_ms), out=release[row])
        numbers = np.flatnonzero((packets.slot >= first) & (packets.slot < last))
        return CoreRun(
            slots=counted,
            held=held[first:last].copy(),
            ready=ready,
            release=release,
            late=release + clock > self.hold_ms + PUNCTUAL_MS,
            packets=np.bincount(packets.slot[numbers] - first, minlength=len(counted)),
            wait_ms=packets.slot[numbers] * self.slot_ms - packets.sent_ms[numbers],
            completing_ms=done * self.slot_ms - times,
            **{each.name: getattr(self._counts, each.name) for each in fields(RequestCounts)},
        )

    def _claims(self, held: Floats) -> Indexes:
        """Return `have` in the token of each slot: the lowest of the owner and of its secondaries' received reports."""
        total = len(held)
        claims = np.full(total, -1, np.intp)
        groups = [np.flatnonzero((self.core.home == site) & (np.arange(self.n) != site)) for site in range(self.m)]
        phases = [np.arange(len(group)) / max(len(group), 1) * self.request_ms for group in groups]
        heard = [np.full(len(group), -1, np.intp) for group in groups]
        begins: Times = np.arange(total, dtype=np.float64) * self.slot_ms
        for slot in range(total):
            site = slot % self.m
            now_ms = slot * self.slot_ms - self.core.clock_ms[site]
            last = max(claims[slot - self.m], -1) if slot >= self.m else -1
            claim = self._have_at(held, begins, np.array([site]), np.array([now_ms]), last, slot).item()
            group = groups[site]
            if len(group):
                said_ms = self._last_said(group, site, phases[site], now_ms)
                lowest = min(last, int(heard[site].min()))
                said = self._have_at(held, begins, group, said_ms, lowest, slot)
                heard[site] = np.maximum(heard[site], said)
                lacks_ms = (heard[site] + 1) * self.slot_ms
                counts = slot * self.slot_ms <= lacks_ms + patience_ns(self.core.timing) / NS_PER_MS
                claim = min(claim, int(heard[site][counts].min(initial=claim)))
            claims[slot] = max(claim, last)
        return claims

    def _last_said(self, group: Indexes, site: int, phase_ms: Times, now_ms: float) -> Times:
        """Return when each secondary sent the last `have` that has arrived by now: one per τ_r, some are lost."""
        city = self.core.city
        way = self._delay[city[group], city[site]] + self._jitter[city[group], city[site]] * self.rng.random(len(group))
        turn = np.floor((now_ms - way - phase_ms) / self.request_ms)
        loss = np.maximum(self._loss[city[group], city[site]], 1e-12)
        turn -= np.floor(np.log(1.0 - self.rng.random(len(group))) / np.log(loss))
        said: Times = turn * self.request_ms + phase_ms
        return said

    def _have_at(self, held: Floats, begins: Times, who: Indexes, at_ms: Times, above: int, slot: int) -> Indexes:
        """Return the highest slot up to which each of `who` holds everything at its time, searched above `above`."""
        window = slice(above + 1, slot + 1)
        has = held[window][:, who] + begins[window, None] <= at_ms + ROUNDING_MS
        # `held` covers all slots up to a slot, so the held slots are a prefix.
        found: Indexes = above + has.sum(axis=0)
        return found

    def _completing(self, claims: Indexes) -> Indexes:
        """Return the slot of the token that completes the witness of each slot; beyond the last if none does."""
        total = len(claims)
        counted = np.full(self.m, -1, np.intp)
        completing = np.full(total, total, np.intp)
        witnessed = -1
        need = self.core.witnesses
        for slot in range(total):
            counted[slot % self.m] = max(counted[slot % self.m], claims[slot])
            reached = slot if need <= 1 else int(np.partition(counted, self.m - need)[self.m - need])
            if reached > witnessed:
                completing[witnessed + 1 : reached + 1] = slot
                witnessed = reached
        return np.maximum(completing, np.arange(total))

"""The rules W1 to W7 once more, one event at a time in plain Python: what the vectorised model is compared with."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import numpy as np

from levelcast.timing.hold_copies import losses_of
from levelcast.timing.hold_draws import Draws
from levelcast.timing.hold_losses import (
    BEAT,
    GAP_ANSWER,
    GAP_REQUEST,
    PACKET_ANSWER,
    PACKET_REQUEST,
    TOKEN_ANSWER,
    TOKEN_DELAY,
    TOKEN_REQUEST,
    SlotBlock,
)
from levelcast.timing.hold_rules import MAX_ATTEMPTS, HoldInput


def small_group(members: int = 4, loss: float = 0.2, **values: Any) -> HoldInput:
    """A group with directed delays, so that a wrong direction shows."""
    place = np.arange(members)
    delay = 7.0 + 11.0 * np.abs(place[:, None] - place) ** 1.5 + 2.0 * (place[:, None] > place)
    np.fill_diagonal(delay, 0.0)
    apart = 1.0 - np.eye(members)
    given: dict[str, Any] = {
        "delay_ms": delay,
        "jitter_ms": 5.0 * apart,
        "loss": loss * apart,
        "source_delay_ms": delay[:2] + 3.0,
        "source_jitter_ms": np.full((2, members), 4.0),
        "source_loss": np.full((2, members), loss),
        "slot_ms": 20.0,
        "packets": 3,
        "process_ms": 1.0,
        "clock_error_ms": 0.5,
    }
    return HoldInput(**(given | values))


def times_by_events(group: HoldInput, draws: Draws, slots: int) -> tuple[np.ndarray, np.ndarray]:
    """Return when each receiver holds each slot with all before it, and when it is witnessed."""
    ring = EventRing(group, draws, slots)
    ring.run()
    return ring.held(), ring.witnessed()


class EventRing:
    """All members and sources, with one queue of events."""

    def __init__(self, group: HoldInput, draws: Draws, slots: int) -> None:
        self.group, self.draws, self.slots, self.m = group, draws, slots, group.members
        self.block = SlotBlock.make(group, draws, slots)
        self.losses = losses_of(self.block)
        self.each = self.losses.packets
        missing = self.losses.tokens()
        tokens = zip(*(column.tolist() for column in missing), strict=True)
        self.late_tokens = {(slot, member): arrival for slot, member, arrival in tokens}
        packets = zip(*(column.tolist() for column in self.losses.data()), strict=True)
        self.lost_packets = {(train, member, packet): rest for train, member, packet, *rest in packets}
        """With the arrival of another copy, and True if a parity shows the packet."""
        self.queue: list[tuple[float, int, Callable[[float], None]]] = []
        self.order = count()
        self.has: list[dict[Any, float]] = [{} for _ in range(self.m)]
        """Per member: tokens by slot and packets by (train, packet), with the time of arrival."""
        self.named: dict[int, int] = {}
        self.names: dict[int, list[int]] = {}
        self.asks_named: set[tuple[int, int]] = set()
        """(slot, member) whose packets are asked for by W2 now, which ends W3."""

    # -- tools

    def at(self, time: float, what: Callable[[float], None]) -> None:
        heapq.heappush(self.queue, (time, next(self.order), what))

    def pair(self, kind: int, number: int) -> tuple[float, float]:
        first, second = self.draws.pairs(kind, np.array([number]))
        return float(first[0]), float(second[0])

    def lost(self, sender: int, receiver: int, now: float, chance: float) -> bool:
        found = self.losses.lost(np.array([sender]), np.array([receiver]), np.array([now]), np.array([chance]))
        return bool(found[0])

    def travel(self, a: int, b: int, share: float) -> float:
        return float(self.group.delay_ms[a, b] + self.group.jitter_ms[a, b] * self.group.jitter_at(share))

    def receive(self, member: int, item: Any, now: float) -> None:
        if item not in self.has[member]:
            self.has[member][item] = now
            if isinstance(item, int):
                self.token_held(item, member, now)

    # -- what is sent

    def run(self) -> None:
        for slot in range(self.slots):
            self.at(slot * self.group.slot_ms, self.slot_event(slot))
        for train in range(self.slots):
            for member in range(self.m):
                self.at(self.train_arrival(train, member), self.train_event(train, member))
        while self.queue and self.queue[0][0] < self.slots * self.group.slot_ms + 30_000:
            now, _, what = heapq.heappop(self.queue)
            what(now)

    def train_arrival(self, train: int, member: int) -> float:
        source = self.block.source[train]
        wait = min(float(self.group.jitter_at(self.pair(TOKEN_DELAY, train * self.m + member)[1])), 1.0)
        sent = self.block.sent_ms[train]
        delay = self.group.source_delay_ms[source, member] + self.group.source_jitter_ms[source, member] * wait
        return float(sent + delay)

    def train_event(self, train: int, member: int) -> Callable[[float], None]:
        def arrives(now: float) -> None:
            came = [packet for packet in range(self.each) if (train, member, packet) not in self.lost_packets]
            for packet in came:
                self.receive(member, (train, packet), now)
            lost = {
                packet: self.lost_packets[train, member, packet] for packet in range(self.each) if packet not in came
            }
            for packet, (direct, _) in lost.items():
                if math.isfinite(direct):
                    self.at(direct, lambda then, packet=packet: self.receive(member, (train, packet), then))  # type: ignore[misc]
            last = max(came, default=0)
            gaps = [(train, packet) for packet, (_, shown) in lost.items() if packet < last or shown]
            if gaps and self.group.rules.gaps:  # W3
                guard = self.group.source_jitter_ms[self.block.source[train], member] + 2.0
                number = train * self.m + member

                def over() -> bool:
                    return (self.named.get(train, -1), member) in self.asks_named

                self.at(now + guard, lambda then: self.ask(then, member, None, number, gaps, 0, over))

        return arrives

    def slot_event(self, slot: int) -> Callable[[float], None]:
        owner = slot % self.m

        def sends(now: float) -> None:
            for train in range(min(self.slots, slot + 1)):
                if train in self.named or self.block.sent_ms[train] > now:
                    continue
                if all((train, packet) in self.has[owner] for packet in range(self.each)):
                    self.named[train] = slot
                    self.names.setdefault(slot, []).append(train)
            self.receive(owner, slot, now)
            for member in range(self.m):
                if member == owner:
                    continue
                share = self.pair(TOKEN_DELAY, slot * self.m + member)[0] * self.group.quantile
                arrival = self.late_tokens.get((slot, member), now + self.travel(owner, member, share))
                if math.isfinite(arrival):
                    self.at(arrival, lambda then, member=member: self.receive(member, slot, then))  # type: ignore[misc]
                number = slot * self.m + member
                late = now + self.lateness(owner, member)
                self.at(late, lambda then, i=member, n=number: self.ask(then, i, owner, n, [slot], 0))  # type: ignore[misc]

        return sends

    # -- W1, W2

    def lateness(self, owner: int, member: int) -> float:
        group = self.group
        everywhere = float((group.delay_ms + group.jitter_ms).max()) + 2.0 * group.clock_error_ms
        jitter = group.jitter_ms[owner, member] * group.jitter_at(group.quantile)
        own = float(group.delay_ms[owner, member] + jitter) + 2.0 * group.clock_error_ms + 2.0
        return min(own, everywhere) if group.rules.pair_lateness else everywhere

    def token_held(self, slot: int, member: int, now: float) -> None:
        owner = slot % self.m
        if member != owner:
            due = max(now, slot * self.group.slot_ms + self.lateness(owner, member))
            self.at(due, lambda then: self.ask_for_named(then, slot, member))

    def ask_for_named(self, now: float, slot: int, member: int) -> None:
        self.asks_named.add((slot, member))
        items = [(train, packet) for train in self.names.get(slot, []) for packet in range(self.each)]
        # Packets on their way are not lost; the model counts requests for them as unneeded.
        lost = [item for item in items if (item[0], member, item[1]) in self.lost_packets]
        self.ask(now, member, slot % self.m, slot * self.m + member, lost, 0)

    def asked(self, member: int, owner: int | None, attempt: int) -> list[int]:
        """Return the members that W2 or, without an owner, W3 asks."""
        trip = self.group.delay_ms + self.group.delay_ms.T
        others = sorted((other for other in range(self.m) if other != member), key=lambda other: trip[member, other])
        if owner is None:
            return others[:2]
        helpers = [other for other in others if other != owner]
        rules = self.group.rules
        if rules.at_once == 3:
            chosen = [owner] + [helpers[(2 * attempt + place) % len(helpers)] for place in (0, 1) if helpers]
        else:
            line = others if rules.nearest else [owner, *helpers]
            chosen = [line[(rules.at_once * attempt + place) % len(line)] for place in range(rules.at_once)]
        return sorted(set(chosen))

    def interval(self, member: int, asked: Sequence[int], attempt: int) -> float:
        group = self.group
        longest = 2.0 * (float((group.delay_ms + group.jitter_ms).max()) + 2.0 * group.clock_error_ms)
        longest += group.process_ms + group.transmit_ms
        if not group.rules.nearest:
            return longest
        there = group.delay_ms + group.jitter_ms
        shortest = min(float(there[member, other] + there[other, member]) for other in asked) + group.process_ms
        return min(max(shortest, 10.0) * 2.0 ** max(0, attempt - 2), longest)

    def ask(
        self,
        now: float,
        member: int,
        owner: int | None,
        number: int,
        items: Sequence[Any],
        attempt: int,
        over: Callable[[], bool] = lambda: False,
    ) -> None:
        wanted = [item for item in items if item not in self.has[member]]
        if not wanted or attempt >= MAX_ATTEMPTS or over():
            return
        is_token = isinstance(wanted[0], int)
        kinds = (TOKEN_REQUEST, TOKEN_ANSWER) if is_token else (PACKET_REQUEST, PACKET_ANSWER)
        if owner is None:
            kinds = (GAP_REQUEST, GAP_ANSWER)
        chosen = self.asked(member, owner, attempt)
        for other in chosen:
            code = attempt * self.m + other
            gone, share = self.pair(kinds[0], number * MAX_ATTEMPTS * self.m + code)
            if self.lost(member, other, now, gone):
                continue
            reached = now + self.travel(member, other, share)
            self.at(reached, lambda then, o=other, c=code: self.answer(then, member, o, wanted, number, kinds[1], c))  # type: ignore[misc]
        again = now + self.interval(member, chosen, attempt)
        self.at(again, lambda then: self.ask(then, member, owner, number, items, attempt + 1, over))

    def answer(
        self, now: float, member: int, other: int, wanted: Sequence[Any], request: int, kind: int, code: int
    ) -> None:
        for item in wanted:
            if item in self.has[other]:
                number = request if isinstance(item, int) else (item[0] * self.m + member) * self.each + item[1]
                gone, share = self.pair(kind, number * MAX_ATTEMPTS * self.m + code)
                sent = now + self.group.process_ms
                if not self.lost(other, member, sent, gone):
                    arrival = sent + self.travel(other, member, share)
                    self.at(arrival, lambda then, item=item: self.receive(member, item, then))  # type: ignore[misc]

    # -- results

    def held(self) -> np.ndarray:
        held = np.full((self.slots, self.m), -np.inf)
        for member in range(self.m):
            latest = -math.inf
            for slot in range(self.slots):
                named = [(train, packet) for train in self.names.get(slot, []) for packet in range(self.each)]
                latest = max(latest, *(self.has[member].get(item, math.inf) for item in [slot, *named]))
                held[slot, member] = latest
        return held

    def witnessed(self) -> np.ndarray:
        held, group, w = self.held(), self.group, self.group.needed
        if not group.rules.beats:
            return self.witnessed_by_tokens(held)
        beat_ms = group.beat_ms
        runs: dict[tuple[int, int, int], int] = {}
        for sender, member, beat, lost in zip(*(column.tolist() for column in self.losses.deaf()), strict=True):
            runs[sender, member, beat] = max(lost, runs.get((sender, member, beat), 0))
        quantile = group.delay_ms + group.jitter_ms * float(group.jitter_at(group.quantile)) + 2 * group.clock_error_ms
        found = np.full_like(held, np.inf)
        for slot in range(self.slots):
            for member in range(self.m):
                times = []
                for j in range(self.m):
                    if not math.isfinite(held[slot, j]):
                        times.append(math.inf)
                        continue
                    phase = j / self.m * beat_ms
                    beat = max(0, math.ceil((held[slot, j] - phase) / beat_ms))
                    said = beat * beat_ms + phase
                    if not group.rules.common_time:
                        times.append(said if j == member else self.first_beat(j, member, beat, said))
                        continue
                    late = runs.get((j, member, beat), 0) * beat_ms + quantile[j, member]
                    claim = max(quantile[j]) + 2.0
                    times.append(said + (max(claim, late) if (j, member, beat) in runs else claim))
                found[slot, member] = sorted(times)[w - 1]
        return found

    def first_beat(self, j: int, member: int, beat: int, said: float) -> float:
        while True:
            gone, share = self.pair(BEAT, (beat * self.m + j) * self.m + member)
            if not self.lost(j, member, said, gone):
                return said + self.travel(j, member, share)
            beat, said = beat + 1, said + self.group.beat_ms

    def witnessed_by_tokens(self, held: np.ndarray) -> np.ndarray:
        found = np.full_like(held, np.inf)
        for slot in range(self.slots):
            claims: set[int] = set()
            read = [-math.inf] * self.m
            for later in range(self.slots):
                read = [max(read[i], self.has[i].get(later, math.inf)) for i in range(self.m)]
                if held[slot, later % self.m] <= later * self.group.slot_ms:
                    claims.add(later % self.m)
                    if len(claims) == self.group.needed:
                        found[slot] = read
                        break
        return found

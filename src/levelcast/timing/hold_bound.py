"""Bound the hold time Δ_A without simulation, in integers alone, so that every machine computes the same value.

The bound is for losses that are independent of each other. It adds up, for each receiver, the chances that an item is
not held in time:

- Attempt n of W2 fails at a member that is asked if the request or the answer is lost, or if that member lacks the
  item. A member that lacks it counts as lacking it for ever; the owner never lacks it.
- A token is missing at q (W1), its packets from the arrival of the token, which may itself need a repair.
- A slot waits for all slots before it: the slot k places before may take k·τ longer.
- Claims (W7) are late if so many members hold the slot late that fewer than w claims are in time. One item may be
  missing at several members, which then cannot help each other. So here only the owner counts as a helper: then the
  members are late independently of each other.
- A secondary has a slot once its home has it and k requests to the home, each for a token and then for packets, were
  not all in vain. The k with the least chance counts.

Chances are integers in units of 10⁻¹⁸, rounded up. Gaps (W3) are ignored, which makes the bound larger.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from levelcast.timing.rules import beat_interval_ns

UNIT = 10**18
PER_BILLION = UNIT // 10**9
MS = 1_000_000
ATTEMPTS = 14
"""Attempts that the bound follows."""
NEGLIGIBLE = 1_000
"""A chance is not followed below the target divided by this."""
MOST_SLOTS = 10_000
"""A slot does not wait for more slots before it; where it might, it counts as late."""
LONGEST_MS = 2**17
"""No item is looked for longer."""
Matrix = Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class BoundInput:
    """A group in integers: times in ns, losses in parts per billion. Row = sender, column = receiver."""

    delay_ns: Matrix
    jitter_ns: Matrix
    loss_ppb: Matrix
    source_delay_ns: Matrix
    source_jitter_ns: Matrix
    source_loss_ppb: Matrix
    slot_ns: int
    witnesses: int
    packets: int = 6
    process_ns: int = 0
    transmit_ns: int = 0
    clock_error_ns: int = 0
    scheduling_ns: int = 0
    target_ppb: int = 10_000
    beat_ns: int = 0
    """β; 0: by W6."""
    homes: tuple[int, ...] = ()
    """Secondaries are the last receivers: the place of the one that each asks (rule 11)."""


def bound_hold_ns(group: BoundInput, rule_6_ns: int) -> int:
    """Return a hold time, in whole ms, with which no receiver is late in more than the target; at most rule 6's."""
    if 2 * max(map(max, (*group.loss_ppb, *group.source_loss_ppb))) > 10**9:
        return rule_6_ns
    bound = _Bound(group)
    added_ns = 2 * group.clock_error_ns + group.scheduling_ns
    low, high = 0, max(1, -(-rule_6_ns // MS))
    while low < high:
        middle = (low + high) // 2
        if bound.late_chance(middle * MS) <= bound.target:
            high = middle
        else:
            low = middle + 1
    return min(-(-(low * MS + added_ns) // MS) * MS, rule_6_ns)


def _times(one: int, other: int) -> int:
    """Multiply two chances, rounded up."""
    return -(-one * other // UNIT)


class _Repair:
    """The chance that an item is still missing so long after it was missed."""

    def __init__(self, finished_ns: list[int], chances: list[int]) -> None:
        self.finished_ns, self.chances = finished_ns, chances

    def missing(self, after_ns: int) -> int:
        """Return the chance after a time."""
        return UNIT if after_ns < 0 else self.chances[bisect_right(self.finished_ns, after_ns)]


class _Bound:
    def __init__(self, group: BoundInput) -> None:
        self.group = group
        self.n = n = len(group.delay_ns)
        self.m = m = n - len(group.homes)
        members, receivers = range(m), range(n)
        self.target = group.target_ppb * PER_BILLION
        self.quantile = [
            [
                0 if a == b else group.delay_ns[a][b] + group.jitter_ns[a][b] + 2 * group.clock_error_ns
                for b in receivers
            ]
            for a in receivers
        ]
        late_ns = max(map(max, self.quantile))
        self.request_ns = 2 * late_ns + group.process_ns + group.transmit_ns
        self.loss = [[group.loss_ppb[a][b] * PER_BILLION for b in receivers] for a in receivers]
        self.data_loss = [max(row[b] for row in group.source_loss_ppb) * PER_BILLION for b in receivers]
        self.direct = [[self._direct(i, s) for s in members] for i in receivers]
        worst = max(map(max, self.loss))
        losses, chance = 1, worst
        while chance > self.target:
            losses, chance = losses + 1, _times(chance, worst)
        self.deaf = _times(chance, worst)
        """Chance that a claim is lost more often in a row than W7 allows for."""
        self.beat_ns = group.beat_ns or beat_interval_ns(late_ns - 2 * group.clock_error_ns)
        self.claim_ns = [max(self.quantile[j]) + self.beat_ns * losses for j in members]
        self.tokens: dict[tuple[int, int], _Repair] = {}
        self.data: dict[tuple[int, int], _Repair] = {}
        self.by_owner: dict[tuple[int, int], _Repair] = {}
        for i in members:
            delay, others = group.delay_ns, [h for h in members if h != i]
            trips = {h: self._trip(i, h) for h in others}
            nearest = sorted(others, key=lambda h: (delay[i][h] + delay[h][i], h))
            for s in others:
                answers = self._answers(s, [h for h in nearest if h != s], trips)
                self.tokens[i, s] = self._repair(i, s, answers, self.loss[s])
                self.data[i, s] = self._repair(i, s, answers, self.data_loss)
                self.by_owner[i, s] = self._repair(i, s, [answer for answer in answers if answer[1] == s], ())
        self.settled_ns = {
            owner_only: [self._settled_ns(i, owner_only) for i in members] for owner_only in (False, True)
        }
        """Time after a slot at which what member i may still lack of it is negligible, whoever owns it."""

    def _direct(self, i: int, s: int) -> int:
        """Return the time after a slot of owner s by which member i has what is not lost.

        The owner names a packet at the earliest when it has arrived there itself.
        """
        group = self.group
        if i == s:
            return 0
        arrivals = zip(group.source_delay_ns, group.source_jitter_ns, strict=True)
        return max(self.quantile[s][i], *(delay[i] + jitter[i] - delay[s] for delay, jitter in arrivals))

    def _trip(self, i: int, h: int) -> int:
        group = self.group
        there = group.delay_ns[i][h] + group.jitter_ns[i][h]
        return there + group.delay_ns[h][i] + group.jitter_ns[h][i] + group.process_ns

    def _answers(self, s: int, helpers: list[int], trips: dict[int, int]) -> list[tuple[int, int]]:
        """Return when which member answers, by the attempts of W2 for an item of owner s."""
        at, answers = 0, []
        for attempt in range(ATTEMPTS):
            places = (2 * attempt, 2 * attempt + 1)
            asked = list(dict.fromkeys([s, *(helpers[place % len(helpers)] for place in places if helpers)]))
            answers += [(at + trips[h], h) for h in asked]
            interval = max(min(trips[h] for h in asked), 10 * MS)
            at += min(interval << max(0, attempt - 2), max(self.request_ns, interval))
        return sorted(answers)

    def _repair(self, i: int, s: int, answers: list[tuple[int, int]], lacks: Sequence[int]) -> _Repair:
        """Follow the answers to member i until the chance that none has brought the item is negligible."""
        failing: dict[int, int] = {}
        finished_ns, chances = [], [UNIT]
        for at, h in answers:
            failing[h] = _times(failing.get(h, UNIT), min(UNIT, self.loss[i][h] + self.loss[h][i]))
            chance = UNIT
            for other, failed in failing.items():
                chance = _times(chance, min(UNIT, failed + (0 if other == s else lacks[other])))
            finished_ns.append(at)
            chances.append(min(chance, chances[-1]))
            if chance * NEGLIGIBLE < self.target:
                break
        return _Repair(finished_ns, chances)

    def _slot_late(self, i: int, s: int, after_ns: int, owner_only: bool) -> int:
        """Return the chance that member i lacks the token of owner s, or its packets, so long after the slot."""
        if i == s:
            return 0
        tokens, others = (self.by_owner, self.by_owner) if owner_only else (self.tokens, self.data)
        token, data, lost = tokens[i, s], others[i, s], self.loss[s][i]
        packets = min(UNIT, self.group.packets * self.data_loss[i])
        if after_ns < self.direct[i][s]:
            return UNIT
        left_ns = after_ns - self.quantile[s][i]
        late = _times(lost, token.missing(left_ns)) + _times(packets, data.missing(left_ns))
        for finished, before in zip(token.finished_ns, token.chances, strict=False):
            chance = _times(_times(lost, before), packets)
            if finished > left_ns or chance * NEGLIGIBLE < self.target:
                break
            late += _times(chance, data.missing(left_ns - finished))
        return late

    def _settled_ns(self, i: int, owner_only: bool) -> int:
        def negligible(after_ns: int) -> bool:
            owners = range(self.m)
            return all(self._slot_late(i, s, after_ns, owner_only) * NEGLIGIBLE < self.target for s in owners)

        low, high = 0, 1
        while high < LONGEST_MS and not negligible(high * MS):
            low, high = high + 1, 2 * high
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if negligible(middle * MS) else (middle + 1, high)
        return low * MS

    def _held_late(self, i: int, s: int, after_ns: int, owner_only: bool = False) -> int:
        """Return the chance that member i lacks a slot of owner s or any slot before it."""
        if i >= self.m:
            return self._secondary_late(i, s, after_ns)
        late, before, settled_ns = 0, 0, self.settled_ns[owner_only][i]
        if after_ns < 0 or settled_ns - after_ns > MOST_SLOTS * self.group.slot_ns:
            return UNIT
        while late < UNIT and after_ns < settled_ns:
            late += self._slot_late(i, (s - before) % self.m, after_ns, owner_only)
            before, after_ns = before + 1, after_ns + self.group.slot_ns
        return min(late, UNIT)

    def _secondary_late(self, i: int, s: int, after_ns: int) -> int:
        """Return the same for a secondary, which asks its home alone."""
        home = self.group.homes[i - self.m]
        trip_ns = self._trip(i, home)
        again_ns = min(max(trip_ns, 10 * MS) << 2, max(self.request_ns, trip_ns))
        lost = max(row[i] for row in self.loss[: self.m]) + self.group.packets * self.data_loss[i]
        one = in_vain = min(UNIT, self.loss[i][home] + self.loss[home][i])
        least = UNIT
        for attempts in range(1, ATTEMPTS):
            at_home_ns = after_ns - 2 * (attempts * again_ns + trip_ns)
            if at_home_ns < 0:
                break
            late = self._held_late(home, s, at_home_ns)
            recent = 1 + 2 * (attempts * again_ns + trip_ns) // self.group.slot_ns  # slots that may still be repaired
            least = min(least, late + _times(2 * recent * lost, in_vain))
            in_vain = _times(in_vain, one)
        return least if after_ns >= self.direct[i][s] else UNIT

    def _claims_late(self, s: int, after_ns: int) -> int:
        """Return the chance that fewer than w claims of a slot of owner s are in time."""
        late = [UNIT]  # late[n]: chance of n late members
        for j in range(self.m):
            time_ns = after_ns - self.claim_ns[j] - self.beat_ns
            one = min(UNIT, self._held_late(j, s, time_ns, owner_only=True) + self.deaf)
            late = [_times(a, UNIT - one) + _times(b, one) for a, b in zip([*late, 0], [0, *late], strict=True)]
        return sum(late[self.m - self.group.witnesses + 1 :])

    def late_chance(self, hold_ns: int) -> int:
        """Return the chance of a late slot at the worst receiver."""
        members = range(self.m)
        claims = sum(self._claims_late(s, hold_ns) for s in members) // self.m
        if claims > self.target:
            return claims
        return claims + max(sum(self._held_late(i, s, hold_ns) for s in members) // self.m for i in range(self.n))

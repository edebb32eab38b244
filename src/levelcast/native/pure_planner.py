"""Pure-Python implementation of the compiled planner: test oracle, and fallback without a C compiler.

Both return the same bits: costs of targets are 32-bit floats computed in the same order, the probability of a target is
a power by squaring instead of `exp`, and random numbers are from splitmix64.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
Words = npt.NDArray[np.uint64]

_NEVER = np.float32(1e30)
"""The cost of a target that is not allowed."""
_MANY = 65_535
"""A user with this number of items in one cluster counts as a permanent user of it."""
_REACH = 16.0
_MASK = (1 << 64) - 1


def members(start: Longs, users: Ints, label: Ints, n_users: int, bits: Words, /) -> None:
    """Set in row c of `bits` the bits of all users of the items with label c; label -1 is in no row."""
    owner = np.repeat(label, np.diff(start))
    row, user = owner[owner >= 0], users[owner >= 0]
    np.bitwise_or.at(bits, (row, user // 64), np.uint64(1) << (user % 64).astype(np.uint64))


def merge_down(bits: Words, rate: Floats, group: Ints, n_users: int, n_groups: int, left: int, into: Ints, /) -> None:
    """Merge two clusters of one group at a time, the cheapest pair first, until `left` are left in all.

    Merging a and b costs θ_a·|C_b∖C_a| + θ_b·|C_a∖C_b|. `into[c]` becomes the lowest cluster that c is part of.
    """
    sets = [frozenset(np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist()) for row in bits]
    rates = [float(each) for each in rate]
    into[:] = np.arange(len(rates))
    alive = {g: [c for c in range(len(rates)) if group[c] == g] for g in range(n_groups)}
    partner: dict[int, int] = {}

    def cost(a: int, b: int) -> float:
        low, high = min(a, b), max(a, b)
        common = len(sets[low] & sets[high])
        exact = rates[low] * float(len(sets[high]) - common) + rates[high] * float(len(sets[low]) - common)
        return float(np.float32(exact))

    def find_partner(a: int) -> None:
        others = [b for b in alive[int(group[a])] if b != a]
        partner.pop(a, None)
        if others:
            partner[a] = min(others, key=lambda b: cost(a, b))

    for c in range(len(rates)):
        find_partner(c)
    for _ in range(len(rates) - left):
        if not partner:
            break
        chosen = min(partner, key=lambda c: (cost(c, partner[c]), c))
        a, b = sorted((chosen, partner.pop(chosen)))
        sets[a] |= sets[b]
        rates[a] += rates[b]
        into[into == b] = a
        alive[int(group[a])].remove(b)
        partner.pop(b, None)
        for c in alive[int(group[a])]:
            if c == a or partner[c] in (a, b):
                find_partner(c)
            elif cost(c, a) < cost(c, partner[c]):
                partner[c] = a


def anneal(
    start: Longs,
    users: Ints,
    rate: Floats,
    items: Ints,
    label: Ints,
    n_users: int,
    n_groups: int,
    slots: int,
    most: int,
    alpha: float,
    beta: float,
    temperatures: Floats,
    seed: int,
    session_cap: float,
    group_cap: float,
    apart_start: Longs,
    apart: Ints,
    home: Ints,
    weight: Ints,
    penalty: float,
    budget: int,
    /,
) -> int:
    """Visit all `items` once per temperature, in a new order each time, and assign each by the heat bath.

    Each group has `slots` slots for sessions: slot g·slots + j is in group g, and `label` is an item's slot, or -1 if
    it has none yet. At most `most` slots are in use at a time. An item is assigned to a slot with a probability ∝
    exp(−cost/temperature), where the cost of session b in group g is β·(8) with b and α·(8) with g, both as if the
    item had left. Of a group's empty slots only the first is a target. At temperature 0 the item is assigned to the
    cheapest slot, and stays in case of a tie (TH §4.2), and the run ends after a round without a move. With one group
    there is one level only. Items that are not in `items` are ignored.

    Not allowed are a session that would exceed `session_cap`, a group that would exceed `group_cap`, a session with
    one of the item's `apart` items and, once the items away from `home` weigh `budget`, any slot but `home`; leaving
    `home` costs `penalty` times the weight. An item may always keep its slot. Returns the number of items moved in the
    last round.
    """
    run = _Run(
        start, users, rate, label, n_users, n_groups, slots, most, np.float32(alpha), np.float32(beta), seed & _MASK,
        session_cap, group_cap, apart_start, apart, home, weight, np.float32(penalty), budget,
    )  # fmt: skip
    order, moves = [int(k) for k in items], 0
    for k in order:
        if label[k] >= 0:
            run.place(k, int(label[k]))
    for temperature in temperatures:
        moves = 0
        run.shuffle(order)
        for k in order:
            moves += run.visit(k, float(temperature))
        if moves == 0 and not temperature > 0:
            break
    return moves


class _Level:
    """Clusters of one level: the number of a cluster's items that each user wants, its users, its rate."""

    def __init__(self, n: int, n_users: int) -> None:
        self.count = np.zeros((n_users, n), np.uint16)
        self.size = np.zeros(n, np.float32)
        self.rate = np.zeros(n)
        self.members = np.zeros(n, np.int64)

    def add(self, to: int, users: Ints, rate: float) -> None:
        self.size[to] += np.float32(np.count_nonzero(self.count[users, to] == 0))
        self.count[users, to] += (self.count[users, to] < _MANY).astype(np.uint16)
        self.rate[to] += rate
        self.members[to] += 1

    def remove(self, at: int, users: Ints, rate: float) -> None:
        self.count[users, at] -= (self.count[users, at] < _MANY).astype(np.uint16)
        self.size[at] -= np.float32(np.count_nonzero(self.count[users, at] == 0))
        self.members[at] -= 1
        self.rate[at] = self.rate[at] - rate if self.members[at] else 0.0

    def distances(self, users: Ints, rate: float, factor: np.float32, own: int) -> Singles:
        """Return TH (8) for every cluster, weighted; for cluster `own` as if the item had left it."""
        common = (self.count[users] > 0).sum(axis=0).astype(np.float32)
        size, rates = self.size.copy(), self.rate.astype(np.float32)
        if own >= 0:
            alone = np.float32(np.count_nonzero(self.count[users, own] == 1))
            size[own], common[own] = size[own] - alone, np.float32(len(users)) - alone
            rates[own] = np.float32(self.rate[own] - rate)
        cost: Singles = factor * (np.float32(rate) * (size - common) + rates * (np.float32(len(users)) - common))
        if own >= 0 and self.members[own] == 1:
            cost[own] = 0.0
        return cost


@dataclass
class _Run:
    """The state of one call of `anneal`."""

    start: Longs
    users: Ints
    rate: Floats
    label: Ints
    n_users: int
    n_groups: int
    slots: int
    most: int
    alpha: np.float32
    beta: np.float32
    state: int
    session_cap: float
    group_cap: float
    apart_start: Longs
    apart: Ints
    home: Ints
    weight: Ints
    penalty: np.float32
    budget: int
    sessions: _Level = field(init=False)
    groups: _Level = field(init=False)

    def __post_init__(self) -> None:
        self.sessions = _Level(self.n_groups * self.slots, self.n_users)
        self.groups = _Level(self.n_groups, self.n_users)

    def random(self) -> int:
        self.state = z = (self.state + 0x9E3779B97F4A7C15) & _MASK
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return z ^ (z >> 31)

    def shuffle(self, order: list[int]) -> None:
        for i in range(len(order) - 1, 0, -1):
            j = ((self.random() >> 32) * (i + 1)) >> 32
            order[i], order[j] = order[j], order[i]

    def users_of(self, k: int) -> Ints:
        return self.users[self.start[k] : self.start[k + 1]]

    def away(self, k: int, slot: int) -> bool:
        return len(self.home) > 0 and self.home[k] >= 0 and bool(self.home[k] != slot)

    def place(self, k: int, slot: int) -> None:
        self.sessions.add(slot, self.users_of(k), float(self.rate[k]))
        self.groups.add(slot // self.slots, self.users_of(k), float(self.rate[k]))
        self.label[k] = slot
        self.budget -= int(self.weight[k]) if self.away(k, slot) else 0

    def lift(self, k: int) -> None:
        slot = int(self.label[k])
        self.sessions.remove(slot, self.users_of(k), float(self.rate[k]))
        self.groups.remove(slot // self.slots, self.users_of(k), float(self.rate[k]))
        self.budget += int(self.weight[k]) if self.away(k, slot) else 0

    def weigh(self, k: int, at: int) -> Singles:
        """Return the cost of every slot for item k, which is at slot `at`, or not assigned (-1)."""
        users, rate = self.users_of(k), float(self.rate[k])
        own = at // self.slots if at >= 0 else -1
        by_group = np.zeros(self.n_groups, np.float32)
        if self.n_groups > 1:
            by_group = self.groups.distances(users, rate, self.alpha, own)
            full = self.groups.rate + rate > self.group_cap
            by_group[full & (np.arange(self.n_groups) != own)] = _NEVER
        slot = np.arange(self.n_groups * self.slots)
        base = by_group[slot // self.slots]
        cost: Singles = self.sessions.distances(users, rate, self.beta, at) + base
        cost[(self.sessions.members == 0) | self._apart(k, at)] += _NEVER
        alone = at >= 0 and self.sessions.members[at] == 1
        if np.count_nonzero(self.sessions.members) - int(alone) < self.most:
            for g in range(self.n_groups):
                free = np.flatnonzero(self.sessions.members[g * self.slots : (g + 1) * self.slots] == 0)
                if len(free) and not (alone and g == own):
                    cost[g * self.slots + free[0]] = by_group[g]
        cost[(self.sessions.rate + rate > self.session_cap) & (slot != at)] = _NEVER
        if len(self.home) and self.home[k] >= 0:
            weight = int(self.weight[k])
            left = self.budget + (weight if at >= 0 and self.away(k, at) else 0)
            cost[slot != self.home[k]] += _NEVER if left < weight else self.penalty * np.float32(weight)
        return cost

    def _apart(self, k: int, at: int) -> npt.NDArray[np.bool_]:
        barred = np.zeros(self.n_groups * self.slots, bool)
        if len(self.apart_start):
            where = self.label[self.apart[self.apart_start[k] : self.apart_start[k + 1]]]
            barred[where[(where >= 0) & (where != at)]] = True
        return barred

    def choose(self, cost: Singles, temperature: float) -> int:
        """Return the first of the cheapest slots, or one by the heat bath; -1 if all are barred."""
        least = float(cost.min())
        if least >= _NEVER:
            return -1
        if not temperature > 0:
            return int(cost.argmin())
        near = np.flatnonzero(cost.astype(np.float64) <= least + _REACH * temperature)
        if len(near) == 1:
            return int(near[0])
        chance, total = [], 0.0
        for slot in near:
            w = 1.0 - (float(cost[slot]) - least) / temperature / 1024.0
            for _ in range(10):
                w *= w
            total += w
            chance.append(total)
        drawn = (self.random() >> 11) * 2.0**-53 * total
        return next((int(b) for b, upto in zip(near[:-1], chance[:-1], strict=True) if upto > drawn), int(near[-1]))

    def visit(self, k: int, temperature: float) -> int:
        at = int(self.label[k])
        cost = self.weigh(k, at)
        to = self.choose(cost, temperature)
        if to < 0 or to == at or (at >= 0 and not temperature > 0 and cost[to] >= cost[at]):
            return 0
        if at >= 0:
            self.lift(k)
        self.place(k, to)
        return 1

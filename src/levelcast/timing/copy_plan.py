"""Plan the copies of each receiver within a factor of the bytes sent, so that the hold time is least (W11, TT §4.3).

TT §4.1 chooses the number of copies of each path by its loss. Here the hold time of all follows from the receiver that
needs most (W8), so a copy is worth what it takes off that hold time. Two times decide it: when each receiver holds a
slot, which its own copies shorten, and when enough members have claimed it, which the copies of many shorten.
`plan_copies`

1. simulates *levels* of copies, each for all receivers, and notes both times of each receiver;
2. makes one plan for each level as the base of all (or of the members that claim first, if the bytes do not suffice for
   all): receivers that hold slots too late get the cheapest level that is enough, for the least common time that fits;
3. derives the hold time with the most promising plans, spends what is left on the receiver that needs most, while
   that helps, and tries a further token for all.

The cheapest of the plans within `LEAST_GAIN` of the best is chosen. That may be the empty one: nothing is sent that the
model does not show to be useful.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from levelcast.timing.copies import MAX_REDUNDANCY, NOTHING, Copies, CopyCost, cost_of
from levelcast.timing.hold import SEED, DerivedHold, Tell, count_slots, derive_hold, no_report, slots_for
from levelcast.timing.hold_rules import HoldInput

LEAST_GAIN = 0.01
"""Copies that take less than this part off the hold time are not sent."""
COMPARED_PLANS = 3
"""Plans whose hold time is derived, of those that promise most."""
ROUNDS = 2
"""How often the best plan is extended by what is left."""
LEVEL_PART = 4
"""Levels are compared by this part of the slots of a derivation. The same losses hit each level and plan."""

Plan = tuple[Copies, ...]


class Spent(NamedTuple):
    """The copies of one receiver, and the hold time that it needs without and with the plan."""

    name: str
    copies: Copies
    data_ratio: float
    """Bytes of its packets over those without copies."""
    before_ms: int
    after_ms: int

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.copies}, {self.data_ratio:.2f} times the bytes of its packets; "
            f"{self.before_ms} ms -> {self.after_ms} ms"
        )


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """The copies of all receivers, and the hold times without and with them."""

    copies: Plan
    """By receiver; all `NOTHING` if copies gain nothing."""
    hold: DerivedHold
    without: DerivedHold
    redundancy: float
    """The limit."""
    cost: CopyCost
    spent: tuple[Spent, ...]
    """The receivers that get copies, those that need most without them first."""

    @property
    def gain_ms(self) -> int:
        return self.without.hold_ms - self.hold.hold_ms


class _Level(NamedTuple):
    """A level of copies for all receivers, and the times that all but the late target of the slots keep."""

    copies: Copies
    held_ms: tuple[int, ...]
    witness_ms: int


def levels_for(packets: int) -> tuple[Copies, ...]:
    """Return the levels that the protocol can send for trains of so many packets, beginning with `NOTHING`."""
    each = sorted({packets, -(-packets // 2), 1}, reverse=True)
    return (NOTHING, *(Copies(0, parity) for parity in each))


def plan_copies(
    group: HoldInput,
    redundancy: float,
    tell: Tell = no_report,
    *,
    levels: Sequence[Copies] | None = None,
    slots: int | None = None,
) -> CopyPlan:
    """Return the plan with the least hold time within `redundancy`; raises ValueError if that is not 1 to 4.

    `levels` are the kinds of copies that may be used, by default those of the protocol.
    """
    if not 1.0 <= redundancy <= MAX_REDUNDANCY:
        raise ValueError(f"redundancy is {redundancy:g}; it must be 1 to {MAX_REDUNDANCY:g}")
    group = replace(group, copies=())
    whole = slots or slots_for(group)
    planner = _Planner(group, redundancy, whole, tell)
    copies, without = planner.compare(planner.nothing)
    hold = without
    if redundancy > 1.0:
        copies, hold = planner.best(levels if levels is not None else levels_for(group.packets))
    return CopyPlan(copies, hold, without, redundancy, planner.cost(copies), planner.spent(copies, hold, without))


class _Compared(NamedTuple):
    plan: Plan
    hold: DerivedHold


class _Planner:
    def __init__(self, group: HoldInput, redundancy: float, slots: int, tell: Tell) -> None:
        self.group, self.redundancy, self.slots, self.tell = group, redundancy, slots, tell
        self.nothing: Plan = (NOTHING,) * group.receivers
        self._derived: dict[Plan, DerivedHold] = {}

    def cost(self, copies: Plan) -> CopyCost:
        group = self.group
        return cost_of(copies, group.members, group.packets, group.slot_ms, group.beat_ms)

    def fits(self, copies: Plan) -> bool:
        """Return whether sources and members each stay within the factor."""
        cost = self.cost(copies)
        return max(cost.data, cost.control) <= self.redundancy + 1e-9

    def best(self, chosen: Sequence[Copies]) -> _Compared:
        """Return the cheapest plan of those with the least hold time."""
        tried = (self.try_level(level) for level in chosen)
        levels = sorted(tried, key=lambda level: self.cost((level.copies,) * self.group.receivers).total)
        plans = dict(self.plans(levels))
        least = min(plans.values(), default=0)
        order = sorted(plans, key=lambda plan: (max(plans[plan], (1.0 + LEAST_GAIN) * least), self.cost(plan).total))
        found = [self.compare(self.nothing), *(self.compare(plan) for plan in order[:COMPARED_PLANS])]
        best = self.cheapest(found)
        for _ in range(ROUNDS):
            more = self.extended(best, levels)
            if more is None:
                break
            found.append(self.compare(more))
            if self.cheapest(found) == best:
                break
            best = found[-1]
        found += [self.compare(plan) for plan in self.with_token(best.plan)]
        return self.cheapest(found)

    def compare(self, plan: Plan) -> _Compared:
        """Return the plan with its hold time."""
        if plan not in self._derived:
            self._derived[plan] = derive_hold(replace(self.group, copies=plan), self.tell, slots=self.slots)
        return _Compared(plan, self._derived[plan])

    def cheapest(self, found: Sequence[_Compared]) -> _Compared:
        """Return the plan with the lowest cost of those that are nearly the best."""
        limit_ms = (1.0 + LEAST_GAIN) * min(each.hold.hold_ms for each in found)
        near = [each for each in found if each.hold.hold_ms <= limit_ms]
        return min(near, key=lambda each: (self.cost(each.plan).total, each.hold.hold_ms))

    def try_level(self, level: Copies) -> _Level:
        """Simulate the level for all receivers."""
        group = replace(self.group, copies=(level,) * self.group.receivers)
        counts = count_slots(group, self.slots // LEVEL_PART, SEED, self.tell)
        held, witnessed = (
            [counts.quantile_ms(times[member], group.late_target) for member in range(group.receivers)]
            for times in (counts.held, counts.witnessed)
        )
        return _Level(level, tuple(held), max(witnessed))

    def plans(self, levels: Sequence[_Level]) -> Iterator[tuple[Plan, int]]:
        """Yield plans that fit, each with the hold time that it promises."""
        for base in levels:
            plan: Plan | None = (base.copies,) * self.group.receivers
            if not self.fits((base.copies,) * self.group.receivers):
                plan = self.for_first_claims(base.copies)
            if plan is None:
                continue
            times = sorted({ms for level in levels for ms in level.held_ms if ms >= base.witness_ms})
            for limit_ms in (base.witness_ms, *times):
                found = self.within(limit_ms, plan, levels)
                if found is not None:
                    if found != self.nothing:
                        yield found, limit_ms
                    break

    def for_first_claims(self, level: Copies) -> Plan | None:
        """Return a plan with this level for as many members as fit, and at least w, by the time of their claims."""
        group = self.group
        delay_ms = group.quantile_ms[: group.members, : group.members].mean(axis=0) + group.claim_ms
        plan = list(self.nothing)
        for place, member in enumerate(np.argsort(delay_ms, kind="stable").tolist()):
            plan[member] = level
            if not self.fits(tuple(plan)):
                plan[member] = NOTHING
                return tuple(plan) if place >= group.needed else None
        return tuple(plan)

    def within(self, limit_ms: int, plan: Plan, levels: Sequence[_Level]) -> Plan | None:
        """Return the plan with more copies for receivers that hold slots later; None if that does not fit."""
        held = {level.copies: level.held_ms for level in levels}
        found = list(plan)
        for member, copies in enumerate(plan):
            if held[copies][member] > limit_ms:
                enough = [level.copies for level in levels if level.held_ms[member] <= limit_ms]
                if not enough:
                    return None
                found[member] = enough[0]
        return tuple(found) if self.fits(tuple(found)) else None

    def extended(self, found: _Compared, levels: Sequence[_Level]) -> Plan | None:
        """Return the plan with the next level that helps the receiver with the largest need; None if there is none."""
        plan = found.plan
        member = [self.group.name(member) for member in range(self.group.receivers)].index(found.hold.worst.name)
        held = {level.copies: level.held_ms[member] for level in levels}
        for level in levels:
            if held[level.copies] < held[plan[member]]:
                more = (*plan[:member], level.copies, *plan[member + 1 :])
                if self.fits(more):
                    return more
        return None

    def with_token(self, plan: Plan) -> list[Plan]:
        """Return the plan with a further token for all, if that fits."""
        more = tuple(each._replace(tokens=each.tokens + 1) for each in plan)
        return [more] if self.fits(more) else []

    def spent(self, copies: Plan, hold: DerivedHold, without: DerivedHold) -> tuple[Spent, ...]:
        before = {each.name: each.hold_ms for each in without.receivers}
        after = {each.name: each.hold_ms for each in hold.receivers}
        rows = [
            Spent(name, each, 1.0 + each.data_ratio(self.group.packets), before[name], after[name])
            for name, each in zip(map(self.group.name, range(self.group.receivers)), copies, strict=True)
            if each != NOTHING
        ]
        return tuple(sorted(rows, key=lambda row: -row.before_ms))

"""Derive the hold time Δ_A from the model: the least with which the worst receiver keeps its late target (W8).

`derive_hold` simulates a fixed number of slots with a fixed seed and explains the result per receiver. Sampling error
counts against the hold time: at each receiver the one-sided upper 75 % limit of the late share must keep the target.
Slots that one event makes late are one run, and only runs are independent, so the limit is that of the runs.
`levelcast.timing.hold_bound` gives a bound without simulation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil, exp, lgamma, log, sqrt
from typing import Literal, NamedTuple

import numpy as np

from levelcast.timing.hold_counts import BINS_MS, CAUSE_MS, HoldCounts
from levelcast.timing.hold_draws import Draws
from levelcast.timing.hold_model import EDGE_MS, simulate
from levelcast.timing.hold_rules import HoldInput

SEED = 20_240
"""The seed of every derivation, so that all machines derive the same hold time."""
CONFIDENCE = 0.95
"""Of the intervals that are reported."""
DERIVED_CONFIDENCE = 0.75
"""Confidence that the late share keeps the target with the derived hold time. More would cost tens of ms: a longer
simulation, not a longer hold time, is the remedy for few samples.
"""
CELLS = 350_000
"""Slots times members of a block: its arrays fit the processor's cache."""
DERIVED_Z = 0.6745
"""The quantile of the normal distribution at `DERIVED_CONFIDENCE`."""
MAX_SLOTS = 4_000_000
FEW = 50
"""Up to this number of runs the interval is exact (Poisson), above it is Wilson's."""

Tell = Callable[[int, int], None]
"""Reports the blocks done, and all of them."""


def no_report(done: int, total: int) -> None:
    """Report nothing."""


class LateShare(NamedTuple):
    """The late slots of one receiver, with a 95 % interval of their share."""

    late: int
    slots: int
    low: float
    high: float

    @property
    def share(self) -> float:
        return self.late / self.slots

    def __str__(self) -> str:
        return f"{self.share:.1e} ({self.low:.1e} to {self.high:.1e})"


@dataclass(frozen=True, slots=True)
class ReceiverHold:
    """The hold time that one receiver needs, without clock error and allowances, and its parts."""

    name: str
    hold_ms: int
    decided_by: Literal["held", "witness"]
    held_ms: int
    """Time until the receiver holds all but the target of the slots."""
    witness_ms: int
    """The same for the claims of the witnesses."""
    owner: str
    """The slot owner whose slots are late most often."""
    item: Literal["token", "packets"]
    delay_ms: int
    """Time until the receiver misses a token of this owner."""
    asked: tuple[tuple[str, int], ...]
    """The members that it asks first, with their round trips in ms."""
    claim: str
    """The claim that completes the witnesses, in words."""

    @property
    def repair_ms(self) -> int:
        """Time of the repair, once the item is missed."""
        return max(0, self.held_ms - self.delay_ms)

    def __str__(self) -> str:
        if self.decided_by == "witness":
            return f"{self.name}, {self.hold_ms} ms: {self.claim}; it holds slots after {self.held_ms} ms"
        what = "a token from" if self.item == "token" else "packets that are named by"
        *others, last = (f"{name} ({trip} ms)" for name, trip in self.asked)
        asked = f"{', '.join(others)} and {last}" if others else last
        return (
            f"{self.name}, {self.hold_ms} ms: {self.delay_ms} ms until it misses {what} {self.owner}, "
            f"then it asks {asked}, and again: {self.repair_ms} ms; witnesses need {self.witness_ms} ms"
        )


@dataclass(frozen=True, slots=True)
class DerivedHold:
    """A hold time and its explanation."""

    hold_ms: int
    """Δ_A: the worst receiver's, the clock error and the allowance for scheduling, in whole ms."""
    receivers: tuple[ReceiverHold, ...]
    """The worst first."""
    slots: int
    seed: int
    late_target: float
    added_ms: int
    """2·clock error + scheduling."""
    requests_per_s: float
    """Requests sent by a receiver."""
    unneeded_per_s: float
    late_shares: tuple[float, ...] = field(repr=False)
    """Late share of the worst receiver by hold time in ms, without clock error and allowances."""

    def late_share(self, hold_ms: int) -> float:
        """Return the share of the releases of the worst receiver that are late with this hold time."""
        return self.late_shares[min(max(hold_ms - self.added_ms, 0), len(self.late_shares) - 1)]

    @property
    def worst(self) -> ReceiverHold:
        return self.receivers[0]


def derive_hold(group: HoldInput, tell: Tell = no_report, *, seed: int = SEED, slots: int | None = None) -> DerivedHold:
    """Return the least Δ_A for the late target at the worst receiver, with reasons.

    Raises ValueError if no hold time below `BINS_MS` keeps the target.
    """
    counts = count_slots(group, slots or slots_for(group), seed, tell)
    needed = [least_hold_ms(counts, member) for member in range(group.receivers)]
    order = sorted(range(group.receivers), key=lambda member: -needed[member])
    added_ms = ceil(2.0 * group.clock_error_ms + group.scheduling_ms - 1e-9)
    sent = counts.seconds * group.receivers
    return DerivedHold(
        hold_ms=max(needed) + added_ms,
        receivers=tuple(_explain(counts, member, needed[member]) for member in order),
        slots=counts.slots,
        seed=seed,
        late_target=group.late_target,
        added_ms=added_ms,
        requests_per_s=counts.requests / sent,
        unneeded_per_s=counts.unneeded / sent,
        late_shares=tuple(float(counts.late(hold_ms).max()) / counts.slots for hold_ms in range(max(needed) + 1)),
    )


def count_slots(group: HoldInput, slots: int, seed: int, tell: Tell = no_report) -> HoldCounts:
    """Simulate at least so many slots, in independent blocks."""
    edge = int(EDGE_MS / group.slot_ms) + 2 * group.members
    size = max(1 << (CELLS // group.receivers).bit_length() - 1, 8 * edge)
    total = ceil(slots / (size - 2 * edge))
    counts = HoldCounts(group)
    for block in range(total):
        counts.add(simulate(group, Draws(seed, block), size))
        tell(block + 1, total)
    return counts


def slots_for(group: HoldInput) -> int:
    """Return the slots of a derivation: about 2 s of one core for 5 members and 20 s for 21, never too few to judge."""
    packets = 1 if group.loss_kind.spell_ms else group.packets
    cost = 0.2 + 1.2 * (packets + 1) * float(max(group.loss.max(), group.source_loss.max()))
    affordable = int(400_000 * max(1.0, group.members / 10) / cost * group.members / group.receivers)
    return max(ceil(poisson_limits(0)[1] / group.late_target), min(affordable, MAX_SLOTS))


def late_share(counts: HoldCounts, member: int, hold_ms: int) -> LateShare:
    """Return the late slots of one receiver with a hold time that excludes clock error and allowances."""
    late, runs = _late_runs(counts, member, hold_ms)
    low, high = wilson_limits(runs, counts.slots) if runs > FEW else poisson_limits(runs, 0.025)
    scale = (late / runs if runs else 1.0) / (1 if runs > FEW else counts.slots)
    return LateShare(late, counts.slots, low * scale, high * scale)


def worst_late_share(counts: HoldCounts, hold_ms: int) -> tuple[int, LateShare]:
    """Return the receiver with most late slots, and its share."""
    member = int(np.argmax(counts.late(hold_ms)))
    return member, late_share(counts, member, hold_ms)


def least_hold_ms(counts: HoldCounts, member: int) -> int:
    """Return the least whole ms at which the upper limit of the receiver's late share keeps the target."""
    low, high = 0, BINS_MS - 2
    allowed = counts.group.late_target * counts.slots
    if not _upper_late(counts, member, high) <= allowed:
        raise ValueError(f"{counts.group.name(member)}: no hold time below {BINS_MS} ms keeps the late target")
    while low < high:
        middle = (low + high) // 2
        if _upper_late(counts, member, middle) <= allowed:
            high = middle
        else:
            low = middle + 1
    return low


def _late_runs(counts: HoldCounts, member: int, hold_ms: int) -> tuple[int, int]:
    late = int(counts.late(hold_ms)[member])
    return late, min(late, max(1, int(counts.runs[member, hold_ms])))


def _upper_late(counts: HoldCounts, member: int, hold_ms: int) -> float:
    late, runs = _late_runs(counts, member, hold_ms)
    if runs <= FEW:
        limit = poisson_limits(runs, 1.0 - DERIVED_CONFIDENCE)[1]
    else:
        limit = runs + DERIVED_Z * sqrt(runs) + DERIVED_Z**2
    return limit * (late / runs if runs else 1.0)


def poisson_limits(count: int, tail: float = 1.0 - CONFIDENCE) -> tuple[float, float]:
    """Return the means with which so few, and so many, events have the probability `tail` (exact).

    >>> [round(limit, 2) for limit in poisson_limits(0)], [round(limit, 2) for limit in poisson_limits(10, 0.025)]
    ([0.0, 3.0], [4.8, 18.39])
    """

    def below(mean: float, most: int) -> float:
        return sum(exp(n * log(mean) - mean - lgamma(n + 1)) for n in range(most + 1))

    def solve(most: int, chance: float) -> float:
        low, high = 1e-9, count + 10.0 * sqrt(count + 1.0) + 20.0
        for _ in range(60):
            middle = (low + high) / 2.0
            low, high = (middle, high) if below(middle, most) > chance else (low, middle)
        return high

    return (solve(count - 1, 1.0 - tail) if count else 0.0), solve(count, tail)


def wilson_limits(count: int, trials: int, z: float = 1.96) -> tuple[float, float]:
    """Return Wilson's interval of a share.

    >>> [round(limit, 4) for limit in wilson_limits(100, 10_000)]
    [0.0082, 0.0121]
    """
    share, spread = count / trials, z * z / trials
    middle = share + spread / 2.0
    width = z * sqrt(share * (1.0 - share) / trials + spread / (4.0 * trials))
    return (middle - width) / (1.0 + spread), (middle + width) / (1.0 + spread)


# -- explanation


def _explain(counts: HoldCounts, member: int, hold_ms: int) -> ReceiverHold:
    group, target = counts.group, counts.group.late_target
    held_ms = counts.quantile_ms(counts.held[member], target)
    witness_ms = counts.quantile_ms(counts.witnessed[member], target)
    causes = counts.causes[member]
    # The repairs that last longest; further down until there are enough to tell owners apart.
    reach = np.cumsum(causes.sum(axis=(0, 1))[::-1])[::-1]
    first = min(held_ms // CAUSE_MS, int(np.argmax(reach < 20)))
    tail = causes[:, :, first:].sum(axis=2)
    owner, kind = (int(place) for place in np.unravel_index(np.argmax(tail), tail.shape))
    if not tail.any():
        owner = int(np.argmax(group.lateness_ms[: group.members, member]))
    asked = group.ask_table.asked(0, np.array([member]), np.array([owner]))[0]
    trips = group.round_trip_ms[member]
    return ReceiverHold(
        name=group.name(member),
        hold_ms=hold_ms,
        decided_by="held" if held_ms >= witness_ms else "witness",
        held_ms=held_ms,
        witness_ms=witness_ms,
        owner=group.name(owner),
        item="token" if kind == 0 else "packets",
        delay_ms=round(float(group.lateness_ms[owner, member])),
        asked=tuple((group.name(other), round(float(trips[other]))) for other in asked.tolist() if other >= 0),
        claim=_claim(group, witness_ms),
    )


def _claim(group: HoldInput, witness_ms: int) -> str:
    """Explain the claim that completes the witnesses of the slowest owner's slots, if nothing is lost."""
    if not (group.rules.beats and group.rules.common_time):
        return f"{group.needed} of {group.members} members have claimed a slot after {witness_ms} ms"
    held = group.quantile_ms[: group.members, : group.members].copy()
    np.fill_diagonal(held, 0.0)
    times = held + group.beat_ms + group.claim_ms
    order = np.argsort(times, axis=1)[:, group.needed - 1]
    last = times[np.arange(group.members), order]
    owner = int(np.argmax(last))
    other = int(order[owner])
    repair = max(0, witness_ms - round(float(last[owner])))
    return (
        f"{group.needed} of {group.members} members must claim a slot: {group.name(other)} holds a slot of "
        f"{group.name(owner)} after {held[owner, other]:.0f} ms, claims it within {group.beat_ms:.0f} ms, and "
        f"{group.claim_ms[other]:.0f} ms later all have the claim; repair adds {repair} ms"
    )

"""Plan regions from delay and loss between receivers and subscribers (MS §4.1, §4.3).

A region is a pair of sites. Its receivers at the one site send line a, those at the other line b, and every subscriber
of the region listens to both: when a receiver or a site fails, the other line continues. A site is in one region only,
so that no receiver sends to groups of two regions.

- **Cost of a line** is the mean time until a subscriber has a packet: its delay, and for lost packets the time to
  detect the loss and to repeat requests until both request and reply arrive (`line_costs`). So loss is in ms too.
- **Cost of a region** to a subscriber is the cost of the nearer site's line plus half of the farther one's, which
  matters only when the nearer line has lost the packet.
- **Choice** (`choose_pairs`): pairs are added one by one, each time the pair with the largest improvement. Then one, or
  two neighbours together, are exchanged for others while that is an improvement. The objective is the mean over all
  subscribers plus a fraction of the maximum.
- **Assignment** (`assign`): each subscriber gets the cheapest region with free capacity. A region's capacity is `bound`
  times the mean, both in subscribers and in their losses (which cause requests). Subscribers with the largest
  additional cost in another region are assigned first. A city may be divided between regions.

Pure computation: no files, no clock, no random numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Indexes = npt.NDArray[np.intp]

SECOND = 0.5
"""Weight of the second line's cost."""
WORST = 0.1
"""Weight of the worst subscriber's cost, added to the mean."""
NEAREST = 8
"""With many sites, only pairs among this number of sites nearest to some subscriber are considered."""
FIRST_TRIES, FEW_REGIONS = 12, 12
"""When two of a few regions are exchanged, this number of first ones is tried, each with the best second one."""
ALL_PAIRS = 24
"""Up to this number of sites, every pair is considered."""


@dataclass(frozen=True, slots=True)
class Regions:
    """Assignment of subscribers to sites. Part i is `weight[i]` subscribers of city `customer[i]`, in `region[i]`."""

    sites: Indexes
    """The two sites of each region, as indexes of candidates; the one with more first lines is first."""
    customer: Indexes
    region: Indexes
    weight: Floats
    costs: Floats
    """Cost of a line from each candidate (row) to each subscriber city (column)."""

    def lines(self) -> tuple[Indexes, Indexes]:
        """Return the first and the second site of each part: the nearer and the farther one of its region."""
        pair = self.sites[self.region]
        swapped = self.costs[pair[:, 0], self.customer] > self.costs[pair[:, 1], self.customer]
        return np.where(swapped, pair[:, 1], pair[:, 0]), np.where(swapped, pair[:, 0], pair[:, 1])

    def load(self) -> Floats:
        """Return the number of subscribers of each region."""
        load: Floats = np.bincount(self.region, self.weight, len(self.sites)).astype(np.float64)
        return load


def line_costs(delay_ms: Floats, loss: Floats, notice_ms: float = 1.0) -> Floats:
    """Return the mean time until a subscriber has a packet.

    A lost packet is detected after `notice_ms`, and requested every round trip until request and reply arrive.

    >>> line_costs(np.array([[10.0, 10.0]]), np.array([[0.0, 0.1]])).round(2).tolist()
    [[10.0, 12.57]]
    """
    kept = np.maximum(1.0 - loss, 1e-3)
    costs: Floats = delay_ms + loss * (notice_ms + 2.0 * delay_ms / kept**2)
    return costs


def plan_regions(
    costs: Floats, weights: Floats, count: int, *, loss: Floats | None = None, bound: float = 2.0
) -> Regions:
    """Plan `count` regions for subscribers of `weights`, from candidates' `costs` (one row each).

    With `loss`, of the same shape, the losses of a region's subscribers are bounded as well as their number. Raise
    ValueError with a message for invalid numbers.
    """
    candidates, places = costs.shape
    if weights.shape != (places,) or not (weights >= 0).all() or not weights.sum() > 0:
        raise ValueError(f"{places} cities need {places} weights, all at least 0 and one above 0")
    if count < 1 or 2 * count > candidates:
        raise ValueError(f"{count} regions need {2 * count} sites, two each; only {candidates} given")
    if bound < 1.0:
        raise ValueError(f"a bound of {bound:g} times the mean load leaves subscribers without a region; use 1 or more")
    served = np.flatnonzero(weights > 0)
    pairs = choose_pairs(costs[:, served], weights[served], count)
    customer, region, weight = assign(costs, weights, pairs, loss=loss, bound=bound)
    plan = Regions(pairs, customer, region, weight, costs)
    first, _ = plan.lines()
    turn = np.zeros(count, bool)
    for number, (a, b) in enumerate(pairs):
        mine = region == number
        turn[number] = weight[mine & (first == b)].sum() > weight[mine & (first == a)].sum()
    pairs[turn] = pairs[turn, ::-1]
    return plan


def pair_costs(costs: Floats, pairs: Indexes) -> Floats:
    """Return the cost of a region of each pair (row) for each subscriber city (column)."""
    near, far = costs[pairs[:, 0]], costs[pairs[:, 1]]
    return np.minimum(near, far) + SECOND * np.maximum(near, far)


def score(best: Floats, weights: Floats) -> Floats:
    """Return the objective for each row of subscribers' costs: the weighted mean plus a fraction of the maximum."""
    scored: Floats = best @ (weights / weights.sum()) + WORST * best.max(axis=-1)
    return scored


def choose_pairs(costs: Floats, weights: Floats, count: int) -> Indexes:
    """Return the pairs of sites of `count` regions: greedy, then improved by exchange."""
    pairs = _pairs_to_look_at(costs)
    prices = pair_costs(costs, pairs)
    chosen: list[int] = []
    best = np.full(costs.shape[1], np.inf)
    while len(chosen) < count:
        free = ~_touching(pairs, pairs[chosen])
        if not free.any():  # the remaining sites are nearest to no subscriber
            rest = np.setdiff1d(np.arange(len(costs)), pairs[chosen])
            pairs = np.concatenate([pairs, np.array(list(combinations(rest.tolist(), 2)), np.intp)])
            prices = pair_costs(costs, pairs)
            continue
        new = _best_addition(prices, weights, best, free)
        chosen.append(new)
        best = np.minimum(best, prices[new])
    _improve(pairs, prices, weights, chosen)
    return pairs[sorted(chosen)]


def _best_addition(prices: Floats, weights: Floats, best: Floats, free: npt.NDArray[np.bool_]) -> int:
    rows = np.flatnonzero(free)
    return int(rows[score(np.minimum(prices[rows], best), weights).argmin()])


def _touching(pairs: Indexes, others: Indexes) -> npt.NDArray[np.bool_]:
    """Return a mask of the pairs that have a site of `others`."""
    used: npt.NDArray[np.bool_] = np.isin(pairs, others)
    return used[:, 0] | used[:, 1]


def _improve(pairs: Indexes, prices: Floats, weights: Floats, chosen: list[int]) -> None:
    """Exchange one region, then two neighbours together, while that is an improvement: two may need to swap sites."""
    current = float(score(prices[chosen].min(axis=0), weights))
    improved = True
    while improved:
        improved = False
        ones = [(place,) for place in range(len(chosen))]
        for taken in (*ones, *_neighbours(prices[chosen])):
            value, trial = _replaced(pairs, prices, weights, chosen, taken)
            if value < current - 1e-9:
                chosen[:], current, improved = trial, value, True


def _replaced(
    pairs: Indexes, prices: Floats, weights: Floats, chosen: list[int], taken: tuple[int, ...]
) -> tuple[float, list[int]]:
    """Return the best score with one or two regions replaced, and the regions of that choice."""
    kept = [pair for place, pair in enumerate(chosen) if place not in taken]
    best = prices[kept].min(axis=0) if kept else np.full(prices.shape[1], np.inf)
    rows = np.flatnonzero(~_touching(pairs, pairs[kept]))
    scores = score(np.minimum(prices[rows], best), weights)
    if len(taken) == 1:
        new = int(scores.argmin())
        return float(scores[new]), [*kept, int(rows[new])]
    found = float("inf"), chosen
    tries = FIRST_TRIES if len(chosen) <= FEW_REGIONS else 1
    for first in rows[np.argsort(scores, kind="stable")[:tries]].tolist():
        free = np.zeros(len(pairs), bool)
        free[rows] = True
        free &= ~_touching(pairs, pairs[first])
        if free.any():
            second = _best_addition(prices, weights, np.minimum(best, prices[first]), free)
            value = float(score(np.minimum(best, np.minimum(prices[first], prices[second])), weights))
            found = min(found, (value, [*kept, first, second]))
    return found


def _neighbours(prices: Floats) -> list[tuple[int, ...]]:
    """Return pairs of regions that are the best and the second or third best of some subscriber."""
    ranked = np.argsort(prices, axis=0, kind="stable")[:3]
    met = {(int(min(a, b)), int(max(a, b))) for a, *others in ranked.T for b in others}
    return sorted(met)


def _pairs_to_look_at(costs: Floats) -> Indexes:
    candidates = len(costs)
    if candidates <= ALL_PAIRS:
        return np.array(list(combinations(range(candidates), 2)), np.intp)
    nearest = np.sort(np.argsort(costs, axis=0, kind="stable")[:NEAREST], axis=0)
    return np.unique(np.concatenate([nearest[list(two)].T for two in combinations(range(NEAREST), 2)]), axis=0)


def assign(
    costs: Floats, weights: Floats, pairs: Indexes, *, loss: Floats | None = None, bound: float = 2.0
) -> tuple[Indexes, Indexes, Floats]:
    """Assign subscribers to regions within their capacity: return (city, region, subscribers) of each part."""
    prices = pair_costs(costs, pairs)
    lossy = (loss[pairs[:, 0]] + loss[pairs[:, 1]]) if loss is not None else np.zeros_like(prices)
    nearest = prices.argmin(axis=0)
    asked = (lossy[nearest, np.arange(len(weights))] * weights).sum()
    room = np.full(len(pairs), bound * weights.sum() / len(pairs))
    asking_room = np.full(len(pairs), bound * asked / len(pairs))
    ranked = np.sort(prices, axis=0)
    regret = ranked[1] - ranked[0] if len(pairs) > 1 else ranked[0]
    shares: list[tuple[int, int, float]] = []
    for place in np.lexsort((np.arange(len(weights)), -regret)):
        left = float(weights[place])
        preferred = np.argsort(prices[:, place], kind="stable")
        for region in preferred:
            if left <= 1e-9:
                break
            rate = lossy[region, place]
            fits = min(left, room[region], asking_room[region] / rate if rate > 0 else left)
            if fits > 1e-9:
                shares.append((int(place), int(region), float(fits)))
                room[region] -= fits
                asking_room[region] -= fits * rate
                left -= fits
        if left > 1e-9:  # losses exceed the capacity: still assign every subscriber
            shares.append((int(place), int(preferred[0]), left))
    placed = np.array(shares, dtype=[("place", np.intp), ("region", np.intp), ("weight", np.float64)])
    return placed["place"], placed["region"], placed["weight"]


def share_out(weights: Floats, total: int, least: int = 0) -> Indexes:
    """Divide the integer `total` in proportion to `weights`, at least `least` each (largest remainder).

    >>> share_out(np.array([5.0, 3.0, 0.1]), 10, 1).tolist()
    [5, 4, 1]
    """
    spare = total - least * len(weights)
    if spare < 0:
        raise ValueError(f"{total} cannot be divided so that each of {len(weights)} gets {least}")
    exact = weights / weights.sum() * spare
    whole = np.floor(exact).astype(np.intp)
    most = np.argsort(whole - exact, kind="stable")[: spare - int(whole.sum())]
    whole[most] += 1
    shared: Indexes = whole + least
    return shared


@dataclass(frozen=True, slots=True)
class RegionFacts:
    """Statistics of one region for its subscribers. Delays in ms, as quantiles over the subscribers."""

    sites: tuple[int, int]
    customers: float
    places: int
    first_median_ms: float
    first_worst_ms: float
    second_median_ms: float
    second_worst_ms: float
    loss: float
    """Loss of a line, as a mean over subscribers and both lines."""
    both_lost: float
    """Ratio of packets that a subscriber loses on both lines: the load of the retransmit servers."""


def describe(plan: Regions, delay_ms: Floats, loss: Floats) -> list[RegionFacts]:
    """Return the statistics of each region, from delay and loss between candidates (rows) and cities (columns)."""
    first, second = plan.lines()
    told = []
    for number, (a, b) in enumerate(plan.sites.tolist()):
        mine = np.flatnonzero(plan.region == number)
        place, weight = plan.customer[mine], plan.weight[mine]
        near, far = delay_ms[first[mine], place], delay_ms[second[mine], place]
        lost = np.stack([loss[first[mine], place], loss[second[mine], place]])
        share = weight / weight.sum() if len(mine) else weight
        told.append(
            RegionFacts(
                (a, b),
                float(weight.sum()),
                len(mine),
                _median(near, weight),
                float(near.max(initial=0.0)),
                _median(far, weight),
                float(far.max(initial=0.0)),
                float((lost.mean(axis=0) * share).sum()),
                float((lost.prod(axis=0) * share).sum()),
            )
        )
    return told


def _median(values: Floats, weights: Floats) -> float:
    if not len(values):
        return 0.0
    order = np.argsort(values, kind="stable")
    passed = np.cumsum(weights[order])
    return float(values[order[np.searchsorted(passed, passed[-1] / 2)]])


def within_reach(delay_ms: Floats, reach_ms: float) -> Indexes:
    """Return sites within `reach_ms` of each other: repeatedly remove the site that has the largest number beyond it.

    The maximum delay in the core determines the hold time (rule 6), so a few remote sites increase it for all.
    """
    apart = np.maximum(delay_ms, delay_ms.T) > reach_ms
    np.fill_diagonal(apart, False)
    kept = np.arange(len(delay_ms))
    while (over := apart[np.ix_(kept, kept)].sum(axis=1)).any():
        kept = np.delete(kept, over.argmax())
    return kept

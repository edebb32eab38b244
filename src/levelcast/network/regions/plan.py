"""Regions planned from delay and loss between receivers and customers (MS §4.1, §4.3).

A region is a pair of sites. Its receivers at the one site send line a, those at the other line b, and every customer of
the region listens to both: when a receiver or a whole site dies, the other line goes on. A site is in one region only,
so that no receiver sends two regions' groups.

- **Cost of a line** is the time until a customer has a packet on average: its delay, and for what is lost the time to
  notice and to ask until request and answer both come through (`line_costs`). So loss counts in milliseconds too.
- **Cost of a region** to a customer is its nearer site's line and half of the farther one's, which matters only when
  the nearer has lost the packet.
- **Choice** (`choose_pairs`): pairs are added one by one, each the one that helps most; then one, or two
  neighbours together, are exchanged for others as long as that helps. What is made small is the mean over all
  customers and a part of the worst.
- **Assignment** (`assign`): everybody to the cheapest region that has room. A region's room is `bound` times the mean,
  in customers and in what they lose (which is what they ask for). Those who would lose most by another region go first;
  a place may be divided between regions.

Numbers in, numbers out: no file, no clock, no chance.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Indexes = npt.NDArray[np.intp]

SECOND = 0.5
"""How much of the second line's cost counts."""
WORST = 0.1
"""How much of the worst customer's cost counts beside the mean."""
NEAREST = 8
"""With many sites, only pairs of two of some customer's nearest so many are looked at."""
FIRST_TRIES, FEW_REGIONS = 12, 12
"""When two of a few regions are exchanged, so many first ones are tried, each with the best second one."""
ALL_PAIRS = 24
"""Up to so many sites every pair is."""


@dataclass(frozen=True, slots=True)
class Regions:
    """Which sites cover which customers. Share i is `weight[i]` customers of place `customer[i]`, in `region[i]`."""

    sites: Indexes
    """The two sites of each region, as indexes of candidates; the one with more first lines comes first."""
    customer: Indexes
    region: Indexes
    weight: Floats
    costs: Floats
    """Of a line from each candidate (row) to each customer place (column)."""

    def lines(self) -> tuple[Indexes, Indexes]:
        """The first and the second site of each share: the nearer and the farther one of its region."""
        pair = self.sites[self.region]
        swapped = self.costs[pair[:, 0], self.customer] > self.costs[pair[:, 1], self.customer]
        return np.where(swapped, pair[:, 1], pair[:, 0]), np.where(swapped, pair[:, 0], pair[:, 1])

    def load(self) -> Floats:
        """Customers of each region."""
        load: Floats = np.bincount(self.region, self.weight, len(self.sites)).astype(np.float64)
        return load


def line_costs(delay_ms: Floats, loss: Floats, notice_ms: float = 1.0) -> Floats:
    """Until a customer has a packet, on average.

    One that is lost is missed after `notice_ms`, and asked for every round trip until request and answer come through.

    >>> line_costs(np.array([[10.0, 10.0]]), np.array([[0.0, 0.1]])).round(2).tolist()
    [[10.0, 12.57]]
    """
    kept = np.maximum(1.0 - loss, 1e-3)
    costs: Floats = delay_ms + loss * (notice_ms + 2.0 * delay_ms / kept**2)
    return costs


def plan_regions(
    costs: Floats, weights: Floats, count: int, *, loss: Floats | None = None, bound: float = 2.0
) -> Regions:
    """`count` regions for customers of `weights`, from candidates' `costs` (one row each).

    `loss`, of the same shape, bounds what a region's customers lose as well as their number. Raises ValueError, with a
    sentence, for numbers that cannot be.
    """
    candidates, places = costs.shape
    if weights.shape != (places,) or not (weights >= 0).all() or not weights.sum() > 0:
        raise ValueError(f"{places} places need as many weights, none below 0 and one above")
    if count < 1 or 2 * count > candidates:
        raise ValueError(f"{count} regions need {2 * count} sites, two each, and there are {candidates}")
    if bound < 1.0:
        raise ValueError(f"a bound of {bound:g} times the mean load leaves customers without a region: 1 or more")
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
    """What a region of each pair (row) costs each customer place (column)."""
    near, far = costs[pairs[:, 0]], costs[pairs[:, 1]]
    return np.minimum(near, far) + SECOND * np.maximum(near, far)


def score(best: Floats, weights: Floats) -> Floats:
    """What is made small, for each row of customers' costs: the weighted mean, and a part of the worst."""
    scored: Floats = best @ (weights / weights.sum()) + WORST * best.max(axis=-1)
    return scored


def choose_pairs(costs: Floats, weights: Floats, count: int) -> Indexes:
    """The pairs of sites of `count` regions: greedy, then improved by exchange."""
    pairs = _pairs_to_look_at(costs)
    prices = pair_costs(costs, pairs)
    chosen: list[int] = []
    best = np.full(costs.shape[1], np.inf)
    while len(chosen) < count:
        free = ~_touching(pairs, pairs[chosen])
        if not free.any():  # what is left are sites that are nobody's nearest
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
    """Which pairs have a site of `others`."""
    used: npt.NDArray[np.bool_] = np.isin(pairs, others)
    return used[:, 0] | used[:, 1]


def _improve(pairs: Indexes, prices: Floats, weights: Floats, chosen: list[int]) -> None:
    """Exchange one region, then two neighbours together, as long as that helps: two may have to swap their sites."""
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
    """The best score with one or two regions taken out and as many put in, and those that are chosen then."""
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
    """Pairs of regions that are the best and the second or third best of some customer."""
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
    """Customers to regions, within their room: (place, region, customers) of each share."""
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
        if left > 1e-9:  # what customers lose is more than there is room for: nobody is left without lines
            shares.append((int(place), int(preferred[0]), left))
    placed = np.array(shares, dtype=[("place", np.intp), ("region", np.intp), ("weight", np.float64)])
    return placed["place"], placed["region"], placed["weight"]


def share_out(weights: Floats, total: int, least: int = 0) -> Indexes:
    """`total` whole things in proportion to `weights`, at least `least` each (largest remainder).

    >>> share_out(np.array([5.0, 3.0, 0.1]), 10, 1).tolist()
    [5, 4, 1]
    """
    spare = total - least * len(weights)
    if spare < 0:
        raise ValueError(f"{total} cannot be shared out so that each of {len(weights)} gets {least}")
    exact = weights / weights.sum() * spare
    whole = np.floor(exact).astype(np.intp)
    most = np.argsort(whole - exact, kind="stable")[: spare - int(whole.sum())]
    whole[most] += 1
    shared: Indexes = whole + least
    return shared


@dataclass(frozen=True, slots=True)
class RegionFacts:
    """What one region is like for its customers. Delays in ms, as quantiles over the customers."""

    sites: tuple[int, int]
    customers: float
    places: int
    first_median_ms: float
    first_worst_ms: float
    second_median_ms: float
    second_worst_ms: float
    loss: float
    """Of a line, on average over customers and both lines."""
    both_lost: float
    """How often a customer misses a packet on both lines: what the retransmit servers are asked for."""


def describe(plan: Regions, delay_ms: Floats, loss: Floats) -> list[RegionFacts]:
    """The facts of each region, from delay and loss between candidates (rows) and places (columns)."""
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
    """Sites no two of which are farther apart than `reach_ms`: the one with most that are leaves, until none is.

    The longest delay in the core decides how long everything is held (rule 6), so a few sites at the end of the world
    cost everybody.
    """
    apart = np.maximum(delay_ms, delay_ms.T) > reach_ms
    np.fill_diagonal(apart, False)
    kept = np.arange(len(delay_ms))
    while (over := apart[np.ix_(kept, kept)].sum(axis=1)).any():
        kept = np.delete(kept, over.argmax())
    return kept

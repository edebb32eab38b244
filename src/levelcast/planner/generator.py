"""The benchmark of TH §5.1, with all its numbers as options, interpreted so that it reproduces the paper's facts.

- Interest in the markets is Zipf, p_i ∝ 1/i, and the sizes of the markets follow it (6828, 3414, … 683 of 20,000).
- A user follows two markets, drawn in sequence without replacement by p, and subscribes to round(1 %) of the symbols
  of each: at most 68 + 34 = 102, at least 7 + 8 = 15.
- Within a market interest falls exponentially with the symbol's rank, so that 10 % of the symbols hold 55 % of it; the
  symbols are drawn without replacement by it.
- A symbol's rate is q_i·exp(−c·x): x its relative rank, q_i the chance that a user follows market i.

The paper does not specify that rounding, the successive draws, and that a market's peak rate, not its sum, follows the
interest in it. Other interpretations miss its 10.1 (unicast) or its 2 % (goodput).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from levelcast.planner.model import Floats, Instance, Longs, PlanError, from_pairs


@dataclass(frozen=True, slots=True)
class Model:
    """The numbers of TH §5.1."""

    flows: int = 20_000
    users: int = 500
    markets: int = 10
    markets_per_user: int = 2
    share_taken: float = 0.01
    """Fraction of the symbols of each followed market that a user subscribes to."""
    head: float = 0.10
    head_share: float = 0.55
    """The first `head` of a market's symbols have the fraction `head_share` of its trades."""

    def __post_init__(self) -> None:
        if not 1 <= self.markets <= self.flows or self.users < 0:
            raise PlanError(
                f"{self.flows:,} flows in {self.markets:,} markets for {self.users:,} users are not possible; "
                "every market needs at least one flow"
            )
        if not 1 <= self.markets_per_user <= self.markets:
            raise PlanError(f"a user cannot follow {self.markets_per_user} of {self.markets} markets")
        if not (0 < self.share_taken <= 1 and 0 < self.head < self.head_share < 1):
            raise PlanError("fractions must be between 0 and 1, and head_share must exceed head")

    @property
    def decay(self) -> float:
        """c, from (1 − exp(−head·c)) / (1 − exp(−c)) = head_share."""
        low, high = 1e-9, 700.0
        for _ in range(200):
            c = (low + high) / 2
            low, high = (c, high) if math.expm1(-self.head * c) / math.expm1(-c) < self.head_share else (low, c)
        return low

    def market_sizes(self) -> Longs:
        """Return the number of symbols by market, proportional to the interest, at least one each, `flows` in total."""
        exact = self.flows * _zipf(self.markets)
        size = np.maximum(1, np.round(exact).astype(np.int64))
        while (off := self.flows - int(size.sum())) != 0:
            lack = np.where((size > 1) | (off > 0), (exact - size) * np.sign(off), -np.inf)
            size[np.argmax(lack)] += np.sign(off)
        return size


def generate(model: Model, seed: int) -> Instance:
    """Generate one instance: the same for the same model and seed."""
    random = np.random.default_rng(seed)
    size, c = model.market_sizes(), model.decay
    first = np.concatenate(([0], np.cumsum(size)))
    follows = _markets_of_users(model, random)
    take = np.maximum(1, np.floor(model.share_taken * size + 0.5).astype(np.int64))
    users, flows = [], []
    for user, markets in enumerate(follows):
        for market in markets:
            chosen = _draw(random, int(take[market]), int(size[market]), c)
            flows.append(chosen + first[market])
            users.append(np.full(len(chosen), user))
    chance = _chance_of_markets(_zipf(model.markets), model.markets_per_user)
    rates = np.concatenate([q * np.exp(-c * np.arange(n) / n) for q, n in zip(chance, size, strict=True)])
    empty = np.empty(0, np.int64)
    return from_pairs(rates, np.concatenate([empty, *users]), np.concatenate([empty, *flows]), model.users)


def _zipf(n: int) -> Floats:
    weight = 1.0 / np.arange(1, n + 1)
    return np.asarray(weight / weight.sum())


def _markets_of_users(model: Model, random: np.random.Generator) -> Longs:
    """Draw markets successively without replacement by p: the order of p_i / exponential."""
    race = _zipf(model.markets) / random.exponential(size=(model.users, model.markets))
    return np.argsort(-race, axis=1)[:, : model.markets_per_user]


def _draw(random: np.random.Generator, wanted: int, size: int, c: float) -> Longs:
    """Draw different symbols by weight exp(−c·rank/size): with replacement, then without repetitions."""
    if wanted >= size:
        return np.arange(size)
    found = np.empty(0, np.int64)
    while True:
        uniform = random.random(2 * wanted + 16)
        drawn = np.minimum((-np.log1p(uniform * math.expm1(-c)) / c * size).astype(np.int64), size - 1)
        found = np.concatenate([found, drawn])
        distinct, at = np.unique(found, return_index=True)
        if len(distinct) >= wanted:
            return found[np.sort(at)[:wanted]]


def _chance_of_markets(p: Floats, draws: int) -> Floats:
    """Return the chance of each market in `draws` successive draws; exact for two, by a fixed sample for more."""
    if draws == 1:
        return p
    if draws == 2:
        return np.asarray(p + p * ((p / (1 - p)).sum() - p / (1 - p))) if len(p) > 1 else np.ones(1)
    race = p / np.random.default_rng(0).exponential(size=(100_000, len(p)))
    among = np.argsort(-race, axis=1)[:, :draws]
    return np.bincount(among.ravel(), minlength=len(p)) / len(race)

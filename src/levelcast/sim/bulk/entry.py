"""A model of order entry between cities: who is first under each rule, without simulating packets (MS §7.2; E1 to E7).

One trader in each city reacts to the same release and sends one order through the gateway of a city. All times are in
ms. The model draws, for each release and city,

- the lateness of the release: lognormal, 0.13 ms at the median and 0.7 ms at the 99th percentile;
- the way from the trader to the stamp: the gateway's systematic *stamp error*, from 0 to e, and an exponential of 5 µs;
- the way of the packet to each site of the ring: delay and jitter of the pair, and the resend interval for each loss.

Clocks are wrong by a constant of each city. A site releases and stamps by its own clock, so the error cancels in a
stamp, but not in the true time of arrival. The result of a rule is one number per order, its *key*: the lower one is
first, and of equal ones each is first with a chance of one half. The phase of slots and buckets is random for each
release.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from levelcast.market.fair.fair_order import fair_order
from levelcast.network.regions.delays import Delays

Floats = npt.NDArray[np.float64]
LATE_MEDIAN_MS, LATE_P99_MS = 0.13, 0.7
NORMAL_P99 = 2.3263
STAMP_NOISE_MS = 0.005
CLOCK_ERROR_MS = 1.0
REACTION_MS = 5.0
RESENT_AT_MOST = 6


@dataclass(frozen=True, slots=True)
class EntryModel:
    """Cities, ring and numbers of fair entry."""

    delays: Delays
    ring: tuple[int, ...]
    """Cities of the members, in ring order."""
    exchange: int
    """City of the exchange for direct entry."""
    loss: Floats
    """Loss of a copy from each city."""
    stamp_error_ms: float = 0.05
    cap_ms: float = 1.0
    resend_ms: float = 400.0
    gateway_of: tuple[int, ...] = ()
    """City of the gateway of each trader; empty: its own."""
    line_loss: float = 0.0
    """Loss on the line of the first trader; a lost segment arrives `resend_ms` later."""

    @property
    def cities(self) -> int:
        return len(self.delays.names)


@dataclass(frozen=True, slots=True)
class EntryDraws:
    """One block of releases: rows are releases, columns cities. Times are without reactions."""

    late_ms: Floats
    stamp_path_ms: Floats
    """From the trader's order to the stamp."""
    clock_ms: Floats
    """Error of each city's clock (one row)."""
    transit_ms: Floats
    """From the gateway's sending to each member: release, city, member."""
    exchange_ms: Floats
    """From the trader to the exchange, for direct entry."""
    uniform: Floats
    """For the phases of slots and buckets, one number per release."""


def draw(model: EntryModel, releases: int, rng: np.random.Generator, clock_ms: Floats) -> EntryDraws:
    """Draw a block of releases."""
    cities = model.cities
    sigma = np.log(LATE_P99_MS / LATE_MEDIAN_MS) / NORMAL_P99
    late = LATE_MEDIAN_MS * np.exp(sigma * rng.standard_normal((releases, cities)))
    # Two gateways are a full stamp error apart, the others between them.
    systematic = np.linspace(0.0, model.stamp_error_ms, cities)
    path = systematic + rng.exponential(STAMP_NOISE_MS, (releases, cities))
    if model.gateway_of:
        homes = np.array(model.gateway_of)
        here = np.arange(cities)
        away = homes != here
        far = model.delays.delay_ms[here, homes] + rng.random((releases, cities)) * model.delays.jitter_ms[here, homes]
        path = path + np.where(away, far, 0.0)
    if model.line_loss:
        path[:, 0] += model.resend_ms * lost(rng, np.full((releases, 1), model.line_loss))[:, 0]
    from_cities = np.array(model.gateway_of) if model.gateway_of else np.arange(cities)
    to = np.array(model.ring)
    pairs = np.ix_(from_cities, to)
    chance = np.broadcast_to(model.loss[from_cities][:, None], (releases, cities, len(to)))
    transit = model.delays.delay_ms[pairs] + rng.random((releases, cities, len(to))) * model.delays.jitter_ms[pairs]
    transit += model.resend_ms * lost(rng, chance)
    own = np.arange(cities)
    direct = (
        model.delays.delay_ms[own, model.exchange]
        + rng.random((releases, cities)) * (model.delays.jitter_ms[own, model.exchange])
    )
    direct += model.resend_ms * lost(rng, np.broadcast_to(model.loss, (releases, cities)))
    return EntryDraws(late, path, clock_ms, transit, direct, rng.random(releases))


def lost(rng: np.random.Generator, chance: Floats) -> Floats:
    """Return how often each copy is lost before one arrives."""
    times = np.zeros(chance.shape)
    missing = rng.random(chance.shape) < chance
    for _ in range(RESENT_AT_MOST):
        if not missing.any():
            break
        times += missing
        missing &= rng.random(chance.shape) < chance
    return times


# -- rules: the key of each order, with a faster reaction of `faster_ms` ----------------------------------------

Rule = Callable[[EntryModel, EntryDraws, float], Floats]


def sent_ms(draws: EntryDraws, faster_ms: float) -> Floats:
    """Return the true time at which each order is at its gateway."""
    return draws.late_ms + REACTION_MS - faster_ms + draws.stamp_path_ms - draws.clock_ms


def direct(model: EntryModel, draws: EntryDraws, faster_ms: float) -> Floats:
    """Arrival at the exchange."""
    return sent_ms(draws, faster_ms) + draws.exchange_ms


def portal(model: EntryModel, draws: EntryDraws, faster_ms: float) -> Floats:
    """Arrival at the site that has the token: each of the ring for the same share of the time (MS §7.2)."""
    at = (draws.uniform * len(model.ring)).astype(np.intp)
    keys: Floats = sent_ms(draws, faster_ms) + np.take_along_axis(draws.transit_ms, at[:, None, None], axis=2)[:, :, 0]
    return keys


def slots(model: EntryModel, draws: EntryDraws, faster_ms: float, slot_ms: float) -> Floats:
    """Return the slot whose token names each order: the first of a site that has it."""
    members = len(model.ring)
    phase = draws.uniform[:, None] * slot_ms * members
    sent = sent_ms(draws, faster_ms)
    first = np.full(sent.shape, np.inf)
    for member in range(members):
        arrived = sent + draws.transit_ms[:, :, member] + phase
        turn = np.ceil((arrived / slot_ms - member) / members)
        np.minimum(first, turn * members + member, out=first)
    return first


def by_slot(slot_ms: float) -> Rule:
    """Order by the slot, and by a hash inside it (rule 3)."""
    return lambda model, draws, faster_ms: slots(model, draws, faster_ms, slot_ms)


def window_by_slot(slot_ms: float, window_ms: float) -> Rule:
    """Shuffle inside windows of the slots' timestamps."""

    def key(model: EntryModel, draws: EntryDraws, faster_ms: float) -> Floats:
        at = slots(model, draws, faster_ms, slot_ms) * slot_ms
        # The phase of windows is independent of that of slots.
        keys: Floats = np.floor(at / window_ms + draws.uniform[:, None] * 7919.0 % 1.0)
        return keys

    return key


def stamps_ms(model: EntryModel, draws: EntryDraws, faster_ms: float, *, corrected: bool) -> Floats:
    """Return stamps by the gateway's clock; `corrected`: less the lateness of the release (E2)."""
    exact = draws.late_ms + REACTION_MS - faster_ms + draws.stamp_path_ms
    return exact - correction(draws.late_ms, model.cap_ms) if corrected else exact


def correction(late_ms: Floats, cap_ms: float) -> Floats:
    """Return the correction of stamps for a late release, at most the cap."""
    return np.minimum(late_ms, cap_ms)


def buckets(stamps: Floats, quantum_ms: float, uniform: Floats) -> Floats:
    """Return the bucket of each stamp, with a random phase; q = 0: the stamp itself."""
    if not quantum_ms:
        return stamps
    keys: Floats = np.floor(stamps / quantum_ms + uniform[:, None])
    return keys


def window_by_stamp(window_ms: float) -> Rule:
    """Shuffle inside windows of stamps by the gateways' clocks; 0: synchronised stamps."""
    return lambda model, draws, faster_ms: buckets(
        stamps_ms(model, draws, faster_ms, corrected=False), window_ms, draws.uniform
    )


def fair(quantum_ms: float) -> Rule:
    """Release clock with buckets of q: the rule of Levelcast."""
    return lambda model, draws, faster_ms: buckets(
        stamps_ms(model, draws, faster_ms, corrected=True), quantum_ms, draws.uniform
    )


# -- chances ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class FirstChances:
    """Chance that the trader of the row is first, for every pair; its reaction is faster by a given time."""

    wins: Floats
    releases: int = 0

    @property
    def chance(self) -> Floats:
        return self.wins / self.releases

    @property
    def worst(self) -> float:
        """The largest chance over all pairs, for equal reactions."""
        return float(self._pairs().max())

    @property
    def least(self) -> float:
        """The chance of the faster trader, for the pair for which it is worst."""
        return float(self._pairs().min())

    @property
    def mean_deviation(self) -> float:
        return float(np.abs(self._pairs() - 0.5).mean())

    def _pairs(self) -> Floats:
        chance = self.chance
        pairs: Floats = chance[~np.eye(len(chance), dtype=bool)]
        return pairs

    def add(self, fast: Floats, slow: Floats) -> None:
        """Add a block: keys of all traders if they are the faster one, and if they are the other one."""
        for city in range(fast.shape[1]):
            mine = fast[:, city : city + 1]
            self.wins[city] += (mine < slow).sum(axis=0) + 0.5 * (mine == slow).sum(axis=0)
        self.releases += len(fast)


def chances(
    model: EntryModel,
    rules: dict[str, Rule],
    faster_ms: Sequence[float],
    releases: int,
    seed: int,
    block: int = 20_000,
) -> dict[tuple[str, float], FirstChances]:
    """Return the chances of each rule and advantage, all from the same releases."""
    rng = np.random.default_rng(seed)
    cities = model.cities
    clock = rng.uniform(-CLOCK_ERROR_MS, CLOCK_ERROR_MS, (1, cities))
    found = {(name, faster): FirstChances(np.zeros((cities, cities))) for name in rules for faster in faster_ms}
    for first in range(0, releases, block):
        draws = draw(model, min(block, releases - first), rng, clock)
        for name, rule in rules.items():
            slow = rule(model, draws, 0.0)
            for faster in faster_ms:
                found[name, faster].add(rule(model, draws, faster) if faster else slow, slow)
    return found


# -- attacks: the chance of one account that does more, against one order of another account --------------------


def first_chance(mine: Floats, other: Floats) -> float:
    """Return how often the lower key is mine; equal ones count as half."""
    return float((mine < other).mean() + 0.5 * (mine == other).mean())


def copies_chance(copies: int, draws: int, seed: int) -> tuple[float, float]:
    """Return the chance of an account with copies in a bucket, with a ticket per account (E5), and with one per order.

    The tickets are real: each draw is a bucket that a frame of its own closes.
    """
    rng = np.random.default_rng(seed)
    each = copies + 1
    ends = np.repeat(np.arange(draws, dtype=np.int64), each)
    accounts = np.tile(np.array([1] * copies + [2], np.uint64), draws)
    places = np.arange(draws * each)
    order = fair_order(ends, accounts, np.zeros(len(ends), np.int64), places, rng.bytes(32))
    by_account = float((accounts[order][::each] == 1).mean())
    per_order = np.lexsort((rng.random(len(ends)), ends))
    return by_account, float((accounts[per_order][::each] == 1).mean())


def connections_chance(connections: int, quantum_ms: float, draws: int, seed: int, path_ms: float = 0.05) -> float:
    """Return the chance of an account that sends one order down several connections, each with a path of its own."""
    rng = np.random.default_rng(seed)
    paths = rng.exponential(path_ms, (2, draws, connections + 1)).sum(axis=0)
    keys = buckets(paths, quantum_ms, rng.random(draws))
    return first_chance(keys[:, :-1].min(axis=1), keys[:, -1])


def cities_chance(model: EntryModel, rule: Rule, places: Sequence[int], other: int, releases: int, seed: int) -> float:
    """Return the chance of an account that sends the same order in several cities."""
    rng = np.random.default_rng(seed)
    clock = rng.uniform(-CLOCK_ERROR_MS, CLOCK_ERROR_MS, (1, model.cities))
    wins = 0.0
    for first in range(0, releases, 20_000):
        block = min(20_000, releases - first)
        keys = rule(model, draw(model, block, rng, clock), 0.0)
        wins += block * first_chance(keys[:, list(places)].min(axis=1), keys[:, other])
    return wins / releases


def late_site_gain_ms(late_ms: float, distance_ms: float, cap_ms: float) -> float:
    """Return what a trader gains who hears a punctual release and sends through a site that released late."""
    return min(late_ms, cap_ms) - distance_ms


# -- closing ----------------------------------------------------------------------------------------------------


def closing_ms(model: EntryModel, quantum_ms: float, slot_ms: float, orders: int, seed: int) -> tuple[Floats, Floats]:
    """Return the times from the stamp to the token that names each order, and to the token that closes its bucket (E4).

    Every gateway beats once in a slot, in a phase of its own. A bucket is closed by the token that names the last of
    the beats that pass its end.
    """
    rng = np.random.default_rng(seed)
    cities, members = model.cities, len(model.ring)
    pairs = np.ix_(np.arange(cities), np.array(model.ring))
    phase = rng.random((orders, 1)) * slot_ms * members

    def named(sent: Floats, chosen: npt.NDArray[np.intp] | slice) -> Floats:
        shape = (*sent.shape, members)
        delay, jitter = model.delays.delay_ms[pairs][chosen], model.delays.jitter_ms[pairs][chosen]
        loss = np.broadcast_to(model.loss[chosen][..., None], shape)
        arrived = sent[..., None] + delay + rng.random(shape) * jitter + model.resend_ms * lost(rng, loss)
        turns = np.ceil(((arrived + phase[..., None]) / slot_ms - np.arange(members)) / members)
        first: Floats = (turns * members + np.arange(members)).min(axis=2) * slot_ms - phase
        return first

    who = rng.integers(0, cities, (orders, 1))
    own = named(np.zeros((orders, 1)), who)[:, 0]
    end = rng.random((orders, 1)) * quantum_ms
    beats = end + rng.random((orders, cities)) * slot_ms + rng.uniform(-1, 1, (1, cities)) * CLOCK_ERROR_MS
    return own, named(beats, slice(None)).max(axis=1)

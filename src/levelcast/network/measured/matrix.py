"""The measured network: delay and loss between sites, and the best helpers of each.

`Hour` has both directions of each pair as one link, from rows of `network_matrix` (Spark) or of running nodes.

**Helpers** (TT §4.2, rule 5). A site s that misses a packet sends a request to one site after another, every τ_r. A
request to h succeeds with a_h = (1 − c_h)·(1 − p_h)²: h must have the packet, and request and reply must not be lost.
It then needs the round trip r_h. The expected time of an order is T = a_1·r_1 + (1 − a_1)·(τ_r + T of the rest); after
the last one it begins again. Exchanging two neighbours changes T by the sign of (r_i + τ_r/a_i) − (r_j + τ_r/a_j), so
the best order is by r_h + τ_r/a_h. (TT's δ·(1 + ε)/(1 − ε) is the same for repeated requests to one helper.)

**c_h**, the probability that h misses a packet that s misses, is the mean over the possible origins o of the packet,
weighted by p_os, the loss from o to s. If o is h itself, it is 0. Otherwise, with independent losses, it is p_oh. But
beats and probes go to all sites at the same time, so they show shared losses: of those lost from o to s, more are lost
to h too than chance explains (one-sided, 95 %, at least `LEAST_SHARED` losses). For beats that fraction replaces p_oh.
For probes it is one of round trips. With independent return paths both answer with the probability
(1 − p_os − p_oh + j)·(1 − p_os)·(1 − p_oh). This gives the joint loss j of the forward path; j / p_os replaces p_oh.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

CONFIDENCE_Z = 1.6449
"""One-sided 95 %."""
LEAST_SHARED = 20
HELPERS = 3
QUANTILES = {0.5: "p50_ns", 0.9: "p90_ns", 0.99: "p99_ns", 0.999: "p999_ns", 1.0: "max_ns"}

Pair = tuple[str, str]


class Way(NamedTuple):
    """Measurements between two sites: both directions as one link, as in the network file."""

    min_ns: int
    late_ns: int
    """The chosen quantile of the slower direction."""
    round_trip_ns: int
    loss_ratio: float | None
    """Measured one-way loss of the worse direction."""
    loss_upper: float | None
    answered: int
    tried: int
    lost: float


class Shared(NamedTuple):
    """Messages lost to one site that were sent to another too, and the number of those lost there."""

    tried: int
    both: int
    one_way: bool = False
    """They were numbered messages; otherwise probes, which are lost in either direction."""


class Hour:
    """The links between all sites in one hour, or in several: then each pair by its worst."""

    def __init__(
        self,
        rows: Iterable[Mapping[str, Any]],
        quantile: float,
        shared: Iterable[Mapping[str, Any]] = (),
        assumed_loss: float = 0.0,
        *,
        one_way: bool = False,
    ) -> None:
        """`one_way`: shared losses are of messages that were lost in one direction, not of probes."""
        self.quantile = quantile
        self.assumed_loss = assumed_loss
        """Loss of a pair without loss values."""
        self.start_ns = 0
        self.ways: dict[Pair, Way] = {}
        self._lost: dict[Pair, tuple[float, int]] = {}
        """Lost and tried messages by direction, one way."""
        column = QUANTILES[quantile]
        for row in rows:
            self.start_ns = max(self.start_ns, row["start_ns"])
            a, b = row["from_site"], row["to_site"]
            if row["tried"]:
                lost, tried = self._lost.get((a, b), (0.0, 0))
                self._lost[a, b] = lost + row["loss_ratio"] * row["tried"], tried + row["tried"]
            if row["answered"]:
                way = _way(row, column)
                known = self.ways.get((min(a, b), max(a, b)))
                self.ways[min(a, b), max(a, b)] = way if known is None else _worse(known, way)
        self._shared: dict[tuple[str, str, str], Shared] = {}
        for row in shared:
            key = row["from_site"], row["site"], row["helper"]
            before = self._shared.get(key, Shared(0, 0))
            self._shared[key] = Shared(before.tried + row["tried"], before.both + row["both"], one_way)
        self._origins: dict[str, list[str]] = {}
        for a, b in self._lost:
            if a != b:
                self._origins.setdefault(b, []).append(a)

    @property
    def sites(self) -> list[str]:
        return sorted({site for pair in self.ways for site in pair})

    def between(self, a: str, b: str) -> Way | None:
        return self.ways.get((min(a, b), max(a, b)))

    def loss_bound(self, way: Way) -> float:
        """Return the one-way loss that timing must tolerate."""
        return self.assumed_loss if way.loss_upper is None else way.loss_upper

    def loss(self, a: str, b: str) -> float:
        """Return the one-way loss from a to b; 0 without loss values."""
        lost, tried = self._lost.get((a, b), (0.0, 0))
        return lost / tried if tried else 0.0

    def missed(self, site: str, helper: str) -> tuple[float, int]:
        """Return the chance that the helper misses the same packet as the site, and the number of shared losses."""
        weights = {origin: self.loss(origin, site) for origin in self._origins.get(site, ())}
        if not any(weights.values()):
            weights = dict.fromkeys(weights, 1.0)
        missed, shown = 0.0, 0
        for origin, weight in weights.items():
            if origin == helper:
                continue
            shared = self._shared.get((origin, site, helper))
            shown += shared.tried if shared is not None else 0
            missed += weight * missed_too(weights[origin], self.loss(origin, helper), shared)
        return (missed / sum(weights.values()) if weights else 0.0), shown


def _way(row: Mapping[str, Any], column: str) -> Way:
    round_trip = row["round_trip_ns"] if row["round_trip_ns"] is not None else 2 * row["p50_ns"]
    counts = row["loss_ratio"], row["loss_upper"], row["answered"], row["tried"], row["lost"] or 0.0
    return Way(row["min_ns"], row[column], round_trip, *counts)


def _worse(one: Way, other: Way) -> Way:
    lossy = max(one, other, key=lambda way: -1.0 if way.loss_upper is None else way.loss_upper)
    return lossy._replace(
        min_ns=min(one.min_ns, other.min_ns),
        late_ns=max(one.late_ns, other.late_ns),
        round_trip_ns=max(one.round_trip_ns, other.round_trip_ns),
        answered=min(one.answered, other.answered),
    )


# -- helpers ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Helper:
    """Measures of one site as a helper for another."""

    site: str
    round_trip_ns: int
    loss_ratio: float
    missed: float
    shared: int
    answers: float
    expected_ns: float
    nearest: bool


def missed_too(lost_s: float, lost_h: float, shared: Shared | None) -> float:
    """Return the fraction of packets from one site lost to s that h misses, by their one-way losses and the probes."""
    if shared is None or shared.tried < LEAST_SHARED or not 0 < lost_s < 1 or lost_h >= 1:
        return lost_h
    round_s, round_h = (loss if shared.one_way else 1 - (1 - loss) ** 2 for loss in (lost_s, lost_h))
    by_chance = shared.tried * round_h
    if shared.both <= by_chance + CONFIDENCE_Z * math.sqrt(by_chance * (1 - round_h)):
        return lost_h
    if shared.one_way:
        return max(lost_h, shared.both / shared.tried)
    both_arrive = 1 - round_s - round_h + round_s * shared.both / shared.tried
    joint = both_arrive / ((1 - lost_s) * (1 - lost_h)) - 1 + lost_s + lost_h
    return min(1.0, max(lost_h, joint / lost_s))


def helpers_of(
    hour: Hour, site: str, candidates: Iterable[str], request_ns: int, most: int = HELPERS
) -> list[tuple[int, Helper]]:
    """Return the best of the measured candidates, and the nearest of all, each with its rank from 1."""
    asked = []
    for other in sorted(set(candidates) - {site}):
        way = hour.between(site, other)
        if way is None:
            continue
        loss = way.loss_ratio or 0.0
        missed, shown = hour.missed(site, other)
        answers = (1 - missed) * (1 - loss) ** 2
        asked.append(Helper(other, way.round_trip_ns, loss, missed, shown, answers, 0.0, False))
    asked.sort(key=lambda each: (_index(each, request_ns), each.round_trip_ns, each.site))
    nearest = min((helper.round_trip_ns for helper in asked), default=0)
    found = []
    for rank, each in enumerate(asked, 1):
        near = each.round_trip_ns == nearest
        if rank <= most or near:
            order = [each, *(other for other in asked if other is not each)]
            found.append((rank, replace(each, expected_ns=expected_ns(order, request_ns), nearest=near)))
    return found


def _index(helper: Helper, request_ns: int) -> float:
    """Return the sort key of the best order: r + τ_r / a."""
    return helper.round_trip_ns + request_ns / helper.answers if helper.answers > 0 else math.inf


def expected_ns(order: Sequence[Helper], request_ns: int) -> float:
    """Return the expected time to the repair with repeated requests in this order; infinite if none answers."""
    spent, open_ = 0.0, 1.0
    for place, helper in enumerate(order):
        spent += open_ * helper.answers * (place * request_ns + helper.round_trip_ns)
        open_ *= 1 - helper.answers
    if open_ >= 1.0:
        return math.inf
    # A failed round lasts as many intervals as there are helpers; then the next one begins.
    return (spent + open_ * len(order) * request_ns) / (1 - open_)

"""The network matrix: delay and loss between sites by the hour, the resulting timing, and the best helpers.

Two functions of rows of `probes` run on Spark: `network_matrix`, one row per direction and hour, and `shared_losses`,
the number of probes lost to one site that were lost to another as well. The results of an hour are small and are
computed on the driver: `Hour` (both directions of each pair as one link), `timing_of` (rule 6), `helpers_of`.

**Delay.** One way: by both clocks if a probe has it, else half of its round trip. Half of a round trip hides the
difference between the two directions, and the mean of two independent delays varies less than each.

**Loss.** A probe is lost in either direction: with a one-way loss p a fraction q = 1 − (1 − p)² is lost, so
p = 1 − √(1 − q). Timing uses the upper end of Wilson's interval (one-sided, 95 %): no loss among 60 probes does not
justify k_r = 1.

**Helpers** (TT §4.2, rule 5). A site s that misses a packet sends a request to one site after another, every τ_r. A
request to h succeeds with a_h = (1 − c_h)·(1 − p_h)²: h must have the packet, and request and reply must not be lost.
It then needs the round trip r_h. The expected time of an order is T = a_1·r_1 + (1 − a_1)·(τ_r + T of the rest); after
the last one it begins again. Exchanging two neighbours changes T by the sign of (r_i + τ_r/a_i) − (r_j + τ_r/a_j), so
the best order is by r_h + τ_r/a_h. (TT's δ·(1 + ε)/(1 − ε) is the same for repeated requests to one helper.)

**c_h**, the probability that h misses a packet that s misses, is the mean over the possible origins o of the packet,
weighted by p_os, the loss from o to s. If o is h itself, it is 0. Otherwise, with independent losses, it is p_oh. But
each probe goes to all sites at the same time, so the probes show shared losses: of those lost from o to s, more are
lost to h too than chance explains (one-sided, 95 %, at least `LEAST_SHARED` probes). That fraction is of round trips.
With independent return paths both answer with (1 − p_os − p_oh + j)·(1 − p_os)·(1 − p_oh). This gives the joint loss j
of the forward path, and j / p_os replaces p_oh.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from levelcast.pipeline.lake.tables import NETWORK_MATRIX

HOUR_NS = 3_600_000_000_000
DAY_NS = 24 * HOUR_NS
ENOUGH = 100
EXACT = 100_000
"""Up to this number of probes of a pair and hour, quantiles are exact; above, to a ten-thousandth of the rank."""
ACCURACY = 10_000
CONFIDENCE_Z = 1.6449
"""One-sided 95 %."""
LEAST_SHARED = 20
HELPERS = 3
QUANTILES = {0.5: "p50_ns", 0.9: "p90_ns", 0.99: "p99_ns", 0.999: "p999_ns", 1.0: "max_ns"}

Pair = tuple[str, str]


# -- on Spark ---------------------------------------------------------------------------------------------


def network_matrix(probes: DataFrame, *, exact: bool | None = None) -> DataFrame:
    """Return rows of `network_matrix`. The largest pair and hour decides if quantiles are exact, unless specified."""
    timed = _by_hour(probes).withColumn("delay_ns", f.expr("coalesce(one_way_ns, round_trip_ns div 2)"))
    keys = ("from_site", "to_site", "start_ns")
    if exact is None:
        largest = timed.groupBy(*keys).count().agg(f.max("count")).collect()[0][0]
        exact = (largest or 0) <= EXACT
    wanted = "array(0.5D, 0.9D, 0.99D, 0.999D)"
    how = f"percentile(delay_ns, {wanted})" if exact else f"percentile_approx(delay_ns, {wanted}, {ACCURACY})"
    found = (
        timed.groupBy(*keys)
        .agg(
            f.count("*").alias("probes"),
            f.count("delay_ns").alias("answered"),
            f.count("loss_ratio").alias("tried"),
            f.sum("loss_ratio").alias("lost"),
            f.min("delay_ns").alias("min_ns"),
            f.max("delay_ns").alias("max_ns"),
            f.expr(how).alias("at"),
            f.avg("round_trip_ns").alias("round_trip_ns"),
            f.expr("count(one_way_ns) = count(delay_ns) and count(delay_ns) > 0").alias("both_clocks"),
        )
        .withColumns({name: f.expr(f"ceil(at[{place}])") for place, name in enumerate([*QUANTILES.values()][:4])})
        .withColumn("share", f.expr("case when tried > 0 then lost / tried end"))
        .withColumn("loss_ratio", f.expr("1 - sqrt(1 - share)"))
        .withColumn("loss_upper", f.expr(f"case when tried > 0 then 1 - sqrt(1 - {_wilson('share', 'tried')}) end"))
        .withColumn("enough", f.col("answered") >= ENOUGH)
        .withColumn("day", f.expr(f"date_from_unix_date(cast(start_ns div {DAY_NS} as int))"))
    )
    return NETWORK_MATRIX.shape(found)


def shared_losses(probes: DataFrame) -> DataFrame:
    """Count, per hour and three sites, probes from one lost to `site` that went to `helper` too, and those lost there.

    Only lost probes are joined with the others of the same time, so the join is small if the loss is low.
    """
    told = _by_hour(probes).filter("loss_ratio is not null and from_site != to_site")
    lost = told.filter("loss_ratio >= 0.5").select("from_site", "at_ns", "start_ns", f.col("to_site").alias("site"))
    others = told.select("from_site", "at_ns", f.col("to_site").alias("helper"), f.col("loss_ratio").alias("too"))
    return (
        lost.join(others, ["from_site", "at_ns"])
        .filter("site != helper")
        .groupBy("start_ns", "from_site", "site", "helper")
        .agg(f.count("*").alias("tried"), f.sum(f.when(f.col("too") >= 0.5, 1).otherwise(0)).alias("both"))
    )


def _by_hour(probes: DataFrame) -> DataFrame:
    return probes.withColumn("start_ns", f.expr(f"at_ns div {HOUR_NS} * {HOUR_NS}"))


def _wilson(share: str, tried: str) -> str:
    """Return the upper end of Wilson's interval, in SQL."""
    z = CONFIDENCE_Z
    middle = f"({share} + {z * z / 2} / {tried})"
    width = f"{z} * sqrt({share} * (1 - {share}) / {tried} + {z * z / 4} / ({tried} * {tried}))"
    return f"least(1.0D, ({middle} + {width}) / (1 + {z * z} / {tried}))"


# -- an hour on the driver --------------------------------------------------------------------------------


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
    """Probes lost to one site that were sent to another too, and the number of those lost there."""

    tried: int
    both: int


class Hour:
    """The links between all sites in one hour, or in several: then each pair by its worst."""

    def __init__(
        self,
        rows: Iterable[Mapping[str, Any]],
        quantile: float,
        shared: Iterable[Mapping[str, Any]] = (),
        assumed_loss: float = 0.0,
    ) -> None:
        self.quantile = quantile
        self.assumed_loss = assumed_loss
        """Loss of a pair without loss values."""
        self.start_ns = 0
        self.ways: dict[Pair, Way] = {}
        self._lost: dict[Pair, tuple[float, int]] = {}
        """Lost and tried probes by direction."""
        column = QUANTILES[quantile]
        for row in rows:
            self.start_ns = max(self.start_ns, row["start_ns"])
            a, b = row["from_site"], row["to_site"]
            if row["tried"]:
                lost, tried = self._lost.get((a, b), (0.0, 0))
                self._lost[a, b] = lost + row["lost"], tried + row["tried"]
            if row["answered"]:
                way = _way(row, column)
                known = self.ways.get((min(a, b), max(a, b)))
                self.ways[min(a, b), max(a, b)] = way if known is None else _worse(known, way)
        self._shared: dict[tuple[str, str, str], Shared] = {}
        for row in shared:
            key = row["from_site"], row["site"], row["helper"]
            before = self._shared.get(key, Shared(0, 0))
            self._shared[key] = Shared(before.tried + row["tried"], before.both + row["both"])
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
        """Return the one-way loss of the probes from a to b; 0 without loss values."""
        lost, tried = self._lost.get((a, b), (0.0, 0))
        return 1.0 - math.sqrt(max(0.0, 1.0 - lost / tried)) if tried else 0.0

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
    round_s, round_h = (1 - (1 - loss) ** 2 for loss in (lost_s, lost_h))
    by_chance = shared.tried * round_h
    if shared.both <= by_chance + CONFIDENCE_Z * math.sqrt(by_chance * (1 - round_h)):
        return lost_h
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

"""The network matrix: delay and loss between sites by the hour, the timing that follows, and who helps whom best.

On Spark are two functions from rows of `probes`: `network_matrix`, one row a direction and hour, and `shared_losses`,
how often a probe that was lost on its way to one site was lost to another as well. What follows from an hour is small
and is made on the driver: `Hour` (both directions of each pair as one link), `timing_of` (rule 6), `helpers_of`.

**Delay.** One way: by both clocks where a probe tells it, else half of its round trip. Half of a round trip hides what
differs between the two ways, and of two independent delays the mean varies less than each.

**Loss.** A probe is lost there or back: with a one-way loss p a share 1 − (1 − p)² is lost, so p = 1 − √(1 − share).
Timing uses the upper end of Wilson's interval (one-sided, 95 %): no loss among 60 probes is no reason for k_r = 1.

**Helpers** (TT §4.2, rule 5). A site s that misses a packet asks one site after the other, every τ_r. Asking h works
with a_h = (1 − c_h)·(1 − p_h)²: h must hold the packet, and request and answer must not be lost. It then takes the
round trip r_h. The expected time of an order is T = a_1·r_1 + (1 − a_1)·(τ_r + T of the rest); after the last one it
begins again. Exchanging two neighbours changes T by the sign of (r_i + τ_r/a_i) − (r_j + τ_r/a_j), so the best order is
by r_h + τ_r/a_h. (TT's δ·(1 + ε)/(1 − ε) is the same idea for one helper that is asked until it answers.)

**c_h**, how often h misses what s misses: with independent losses the loss on the way to h. The same probe goes to all
sites at once, so where losses are shared the probes show it: of the probes lost to s, a share was lost to h too. That
share is of round trips; with independent ways back the both-arrived share is (1 − p_s − p_h + j)·(1 − p_s)·(1 − p_h),
which gives the joint loss j of the way there, and c = j / p_s. It counts where at least `LEAST_SHARED` probes tell it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from levelcast.pipeline.tables import NETWORK_MATRIX

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HOUR_NS = 3_600_000_000_000
DAY_NS = 24 * HOUR_NS
ENOUGH = 100
EXACT = 100_000
"""Up to so many probes of a pair and hour the quantiles are exact; above, to a ten-thousandth of the rank."""
ACCURACY = 10_000
CONFIDENCE_Z = 1.6449
"""One-sided 95 %."""
LEAST_SHARED = 20
HELPERS = 3
QUANTILES = {0.5: "p50_ns", 0.9: "p90_ns", 0.99: "p99_ns", 0.999: "p999_ns", 1.0: "max_ns"}

Pair = tuple[str, str]


# -- on Spark ---------------------------------------------------------------------------------------------


def network_matrix(probes: DataFrame, *, exact: bool | None = None) -> DataFrame:
    """Rows of `network_matrix`. Whether quantiles are exact is decided by the largest pair and hour, unless told."""
    from pyspark.sql import functions as f

    timed = _by_hour(probes).withColumn("delay_ns", f.expr("coalesce(one_way_ns, round_trip_ns div 2)"))
    keys = ("from_site", "to_site", "start_ns")
    if exact is None:
        largest = timed.groupBy(*keys).count().agg(f.max("count")).collect()[0][0]
        exact = (largest or 0) <= EXACT
    wanted = "array(0.5D, 0.9D, 0.99D, 0.999D)"
    how = f"percentile(delay_ns, {wanted})" if exact else f"percentile_approx(delay_ns, {wanted}, {ACCURACY})"
    share = f.expr("case when tried > 0 then lost / tried end")
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
        .withColumn("share", share)
        .withColumn("loss_ratio", f.expr("1 - sqrt(1 - share)"))
        .withColumn("loss_upper", f.expr(f"case when tried > 0 then 1 - sqrt(1 - {_wilson('share', 'tried')}) end"))
        .withColumn("enough", f.col("answered") >= ENOUGH)
        .withColumn("day", f.expr(f"date_from_unix_date(cast(start_ns div {DAY_NS} as int))"))
    )
    return NETWORK_MATRIX.shape(found)


def shared_losses(probes: DataFrame) -> DataFrame:
    """Per hour and two sites: probes lost to `site` that went to `helper` as well, and how many were lost there too."""
    from pyspark.sql import functions as f

    told = _by_hour(probes).filter("loss_ratio is not null and from_site != to_site")
    lost = told.filter("loss_ratio >= 0.5").select("from_site", "at_ns", "start_ns", f.col("to_site").alias("site"))
    others = told.select("from_site", "at_ns", f.col("to_site").alias("helper"), f.col("loss_ratio").alias("too"))
    return (
        lost.join(others, ["from_site", "at_ns"])
        .filter("site != helper")
        .groupBy("start_ns", "site", "helper")
        .agg(f.count("*").alias("tried"), f.sum(f.when(f.col("too") >= 0.5, 1).otherwise(0)).alias("both"))
    )


def _by_hour(probes: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    return probes.withColumn("start_ns", f.expr(f"at_ns div {HOUR_NS} * {HOUR_NS}"))


def _wilson(share: str, tried: str) -> str:
    """The upper end of Wilson's interval, in SQL."""
    z = CONFIDENCE_Z
    middle = f"({share} + {z * z / 2} / {tried})"
    width = f"{z} * sqrt({share} * (1 - {share}) / {tried} + {z * z / 4} / ({tried} * {tried}))"
    return f"least(1.0D, ({middle} + {width}) / (1 + {z * z} / {tried}))"


# -- an hour on the driver --------------------------------------------------------------------------------


class Way(NamedTuple):
    """What packets between two sites met: both directions as one link, as the network file has it."""

    min_ns: int
    late_ns: int
    """The chosen quantile of the slower direction."""
    round_trip_ns: int
    loss_ratio: float | None
    """One way, the worse direction, as measured."""
    loss_upper: float | None
    answered: int
    tried: int
    lost: float


class Shared(NamedTuple):
    """Probes lost to one site that were sent to another too, and how many of those were lost there."""

    tried: int
    both: int


class Hour:
    """The ways between all sites in one hour, or in several: then each pair by its worst."""

    def __init__(self, rows: Iterable[Mapping[str, Any]], quantile: float, shared: Iterable[Mapping[str, Any]] = ()):
        self.quantile = quantile
        self.start_ns = 0
        self.ways: dict[Pair, Way] = {}
        self._lost: dict[str, list[float]] = {}
        """Per site, lost and tried of the probes to it."""
        column = QUANTILES[quantile]
        for row in rows:
            self.start_ns = max(self.start_ns, row["start_ns"])
            a, b = row["from_site"], row["to_site"]
            if row["tried"] and a != b:
                total = self._lost.setdefault(b, [0.0, 0.0])
                total[0] += row["lost"]
                total[1] += row["tried"]
            if row["answered"]:
                way = _way(row, column)
                known = self.ways.get((min(a, b), max(a, b)))
                self.ways[min(a, b), max(a, b)] = way if known is None else _worse(known, way)
        self.shared: dict[Pair, Shared] = {}
        for row in shared:
            before = self.shared.get((row["site"], row["helper"]), Shared(0, 0))
            self.shared[row["site"], row["helper"]] = Shared(before.tried + row["tried"], before.both + row["both"])

    @property
    def sites(self) -> list[str]:
        return sorted({site for pair in self.ways for site in pair})

    def between(self, a: str, b: str) -> Way | None:
        return self.ways.get((min(a, b), max(a, b)))

    def loss_to(self, site: str) -> float:
        """One-way loss of the probes to a site, from everywhere; 0 if none tells."""
        lost, tried = self._lost.get(site, (0.0, 0.0))
        return 1.0 - math.sqrt(max(0.0, 1.0 - lost / tried)) if tried else 0.0


def _way(row: Mapping[str, Any], column: str) -> Way:
    round_trip = row["round_trip_ns"]
    return Way(
        row["min_ns"],
        row[column],
        round_trip if round_trip is not None else 2 * row["p50_ns"],
        row["loss_ratio"],
        row["loss_upper"],
        row["answered"],
        row["tried"],
        row["lost"] or 0.0,
    )


def _worse(one: Way, other: Way) -> Way:
    lossy = max(one, other, key=lambda way: -1.0 if way.loss_upper is None else way.loss_upper)
    return Way(
        min(one.min_ns, other.min_ns),
        max(one.late_ns, other.late_ns),
        max(one.round_trip_ns, other.round_trip_ns),
        lossy.loss_ratio,
        lossy.loss_upper,
        min(one.answered, other.answered),
        lossy.tried,
        lossy.lost,
    )


# -- helpers ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Helper:
    """What asking one site is like for another."""

    site: str
    round_trip_ns: int
    loss_ratio: float
    missed: float
    shared: int
    answers: float
    expected_ns: float
    nearest: bool


def missed_too(lost_s: float, lost_h: float, shared: Shared | None) -> float:
    """c: how often h misses what s misses on the way there, by their one-way losses and what the probes show."""
    if shared is None or shared.tried < LEAST_SHARED or not 0 < lost_s < 1 or lost_h >= 1:
        return lost_h
    round_s, round_h = (1 - (1 - loss) ** 2 for loss in (lost_s, lost_h))
    both_arrive = 1 - round_s - round_h + round_s * shared.both / shared.tried
    joint = both_arrive / ((1 - lost_s) * (1 - lost_h)) - 1 + lost_s + lost_h
    return min(1.0, max(lost_h, joint / lost_s))


def helpers_of(
    hour: Hour, site: str, candidates: Iterable[str], request_ns: int, most: int = HELPERS
) -> list[tuple[int, Helper]]:
    """The best of the candidates that were measured, and the nearest of all, each with its rank from 1."""
    asked = []
    for other in sorted(set(candidates) - {site}):
        way = hour.between(site, other)
        if way is None:
            continue
        shared = hour.shared.get((site, other))
        loss = way.loss_ratio or 0.0
        missed = missed_too(hour.loss_to(site), hour.loss_to(other), shared)
        answers = (1 - missed) * (1 - loss) ** 2
        told = shared.tried if shared is not None else 0
        asked.append(Helper(other, way.round_trip_ns, loss, missed, told, answers, 0.0, False))
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
    """By this the best order is sorted: r + τ_r / a."""
    return helper.round_trip_ns + request_ns / helper.answers if helper.answers > 0 else math.inf


def expected_ns(order: Sequence[Helper], request_ns: int) -> float:
    """The expected time to the repair when helpers are asked in this order, over and over; infinite if none answers."""
    spent, open_ = 0.0, 1.0
    for place, helper in enumerate(order):
        spent += open_ * helper.answers * (place * request_ns + helper.round_trip_ns)
        open_ *= 1 - helper.answers
    if open_ >= 1.0:
        return math.inf
    # A round that fails takes as many intervals as there are helpers, and then it is all as it was.
    return (spent + open_ * len(order) * request_ns) / (1 - open_)

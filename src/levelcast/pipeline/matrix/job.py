"""Compute the tables of the network matrix from a lake's probes, and choose the hour for the network file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import combinations
from typing import Any

from pyspark.sql import SparkSession

from levelcast.network import Link, Links, Network
from levelcast.network.fields import LONGEST_NS
from levelcast.pipeline.jobs.refresh import DAY_MARK, DerivedTable, stale_days
from levelcast.pipeline.lake.defaults import LakeError
from levelcast.pipeline.lake.lake import Lake
from levelcast.pipeline.lake.log import CommitMark
from levelcast.pipeline.lake.tables import NETWORK_HELPERS, NETWORK_TIMING, day_of
from levelcast.pipeline.matrix.tables import Helper, Hour, Pair, Way, helpers_of, network_matrix, shared_losses
from levelcast.timing.derive import Path, Shape, derive
from levelcast.timing.rules import LOSS_LIMIT, Timing

WORST, ALL = "worst", "all"
ASSUMED_LOSS = 0.01
SLOT_NS = 50_000_000
CLOCK_ERROR_NS, PROCESS_NS = 1_000_000, 5_000_000
"""Defaults of a network file, used for the timing without a network file."""
_NAMED = 5
_MATRIX = DerivedTable("network_matrix", ("probes",), network_matrix)


@dataclass(frozen=True, slots=True)
class Timed:
    """The timing of one stripe from one hour's matrix."""

    start_ns: int
    stripe: str
    slot_ns: int
    witnesses: int
    sites: int
    unmeasured: tuple[Pair, ...]
    """Pairs of the ring without a probe but with a link in the network file."""
    delay_between: str
    delay_ns: int
    loss_between: str
    loss_ratio: float
    timing: Timing | None
    """None if the loss is above one half: no k_r is large enough."""

    @property
    def hold_ns(self) -> float:
        return float("inf") if self.timing is None else self.timing.hold_ns


@dataclass(frozen=True, slots=True)
class MatrixResult:
    """The chosen hour, and remarks about it."""

    hour: Hour
    name: str
    timed: tuple[Timed, ...]
    helpers: dict[str, list[tuple[int, Helper]]]
    remarks: tuple[str, ...]
    hours: int


# -- the job ----------------------------------------------------------------------------------------------


def measure(
    spark: SparkSession,
    lake: Lake,
    network: Network | None,
    hour: str,
    quantile: float,
    assumed_loss: float = ASSUMED_LOSS,
) -> MatrixResult:
    """Update the tables from the probes, and choose the requested hour."""
    if not lake.has("probes"):
        raise LakeError(
            f"{lake.directory}: has no probes; run `levelcast pipeline load probes FILE --lake {lake.directory}`"
        )
    refresh(spark, lake)
    shared = [row.asDict() for row in shared_losses(lake.read(spark, "probes")).collect()]
    rows: list[dict[str, Any]] = lake.arrow("network_matrix").to_pylist()
    rows, remarks = of_network(rows, network)
    by_hour = hours_of(rows, shared, quantile, assumed_loss)
    timed = {start: _timings_if_all(network, each) for start, each in by_hour.items()}
    helpers = {start: all_helpers(network, each, timed[start]) for start, each in by_hour.items()}
    write_tables(spark, lake, network, quantile, timed, helpers)
    name, chosen = choose(hour, by_hour, timed, Hour(rows, quantile, shared, assumed_loss))
    times = timings(network, chosen)
    few = sorted({f"{a} and {b}" for (a, b), way in chosen.ways.items() if _too_few(way, quantile)})
    if few:
        need = _needed(quantile)
        remarks.append(
            f"{len(few)} of {len(chosen.ways)} pairs have fewer than {need} answered probes, so their quantile "
            f"{quantile:g} is about the maximum seen: {_listed(few)}"
        )
    untold = sum(way.loss_upper is None for way in chosen.ways.values())
    if untold:
        remarks.append(
            f"the probes of {untold} of {len(chosen.ways)} pairs have no loss value; {assumed_loss:g} is assumed"
        )
    if network is not None and times and times[0].unmeasured:
        listed = [f"{a} and {b}" for a, b in times[0].unmeasured]
        remarks.append(f"no probe between {_listed(listed)}: the network file's own links are used")
    return MatrixResult(chosen, name, times, all_helpers(network, chosen, times), tuple(remarks), len(by_hour))


def refresh(spark: SparkSession, lake: Lake) -> int:
    """Compute `network_matrix` for every day with new probes; return the number of days."""
    stale = stale_days(lake, _MATRIX)
    if stale:
        days = sorted(stale)
        made = _MATRIX.make(lake.read(spark, "probes", days=days))
        marks = [CommitMark(f"{DAY_MARK}{day}", newest) for day, newest in stale.items()]
        lake.replace("network_matrix", made.repartition("day"), days, marks)
    return len(stale)


def of_network(rows: list[dict[str, Any]], network: Network | None) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the rows between sites of the network, and a remark on the others."""
    if network is None:
        return rows, []
    known = {site.name for site in network.sites}
    met = {site for row in rows for site in (row["from_site"], row["to_site"])}
    strangers = sorted(met - known)
    if not met & known:
        raise LakeError(
            f"the probes are between {_listed(strangers)}, but the network file has none of these sites; its sites: "
            f"{_listed(sorted(known))}"
        )
    remarks = [f"the network file does not name {_listed(strangers)}: their probes are ignored"] if strangers else []
    return [row for row in rows if row["from_site"] in known and row["to_site"] in known], remarks


def hours_of(
    rows: Iterable[Mapping[str, Any]], shared: Iterable[Mapping[str, Any]], quantile: float, assumed_loss: float
) -> dict[int, Hour]:
    """Return the matrix of each hour with an answered probe."""
    by: dict[int, tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]] = {}
    for place, each in enumerate((rows, shared)):
        for row in each:
            by.setdefault(row["start_ns"], ([], []))[place].append(row)
    found = {start: Hour(of_hour, quantile, lost, assumed_loss) for start, (of_hour, lost) in sorted(by.items())}
    return {start: hour for start, hour in found.items() if hour.ways}


def choose(
    wanted: str, by_hour: Mapping[int, Hour], timed: Mapping[int, Sequence[Timed]], whole: Hour
) -> tuple[str, Hour]:
    """Return the requested hour: by its name, the one with the longest hold time, or each pair by its worst."""
    if not by_hour:
        raise LakeError("no probe of these sites was answered; nothing to measure")
    if wanted == ALL:
        return ALL, whole
    if wanted == WORST:
        start = max(by_hour, key=lambda each: (max((t.hold_ns for t in timed[each]), default=0.0), each))
        return hour_name(start), by_hour[start]
    names = {hour_name(start): start for start in by_hour}
    text = wanted.removesuffix("Z").removesuffix(":00")
    if text not in names:
        known = [*names]
        listed = _listed(known) if len(known) <= _NAMED else f"{len(known)} hours from {known[0]} to {known[-1]}"
        raise LakeError(f"no probes for the hour {wanted}; available: {listed} (UTC)")
    return text, by_hour[names[text]]


def hour_name(start_ns: int) -> str:
    return f"{datetime.fromtimestamp(start_ns // 1_000_000_000, UTC):%Y-%m-%dT%H}"


# -- timing and helpers -----------------------------------------------------------------------------------


def timings(network: Network | None, hour: Hour) -> tuple[Timed, ...]:
    """Return the timing of every stripe; without a network, of one receiver at every site."""
    if network is None:
        return (_timing_of_all(hour),)
    measured, unmeasured = measured_network(network, hour)
    found = []
    for stripe in network.stripes:
        path = measured.path(stripe.name)
        able = stripe.rules.attempts is not None or path.loss_ratio <= LOSS_LIMIT
        ring = stripe.rules.slot_ns or 0, network.witnesses(stripe.name), len(network.core_sites), unmeasured
        worst = path.delay_between, path.delay_ns, path.loss_between, path.loss_ratio
        timing = measured.timing(stripe.name) if able else None
        found.append(Timed(hour.start_ns, stripe.name, *ring, *worst, timing))
    return tuple(found)


def measured_network(network: Network, hour: Hour) -> tuple[Network, tuple[Pair, ...]]:
    """Return the network with the measured links and without the hold times of its file, and the unmeasured pairs."""
    links, unmeasured = _links(network, hour)
    without = network.with_holds(dict.fromkeys(stripe.name for stripe in network.stripes))
    return replace(without, links=links), unmeasured


def _timings_if_all(network: Network | None, hour: Hour) -> tuple[Timed, ...]:
    """Return no timing for an hour in which a pair of the network is missing; only a request for that hour fails."""
    try:
        return timings(network, hour)
    except LakeError:
        return ()


def _links(network: Network, hour: Hour) -> tuple[Links, tuple[Pair, ...]]:
    """Return the measured pairs as links, else the file's own. Raises LakeError for a pair with neither."""
    own = network.links
    fallback = own.default if own is not None else None
    pairs = dict(own.pairs) if own is not None else {}
    pairs |= {
        pair: Link(way.min_ns, max(0, way.late_ns - way.min_ns), hour.loss_bound(way))
        for pair, way in hour.ways.items()
    }
    core = sorted(network.core_sites)
    wanted = set(combinations(core, 2))
    wanted |= {(min(f.site, r), max(f.site, r)) for f in network.floors for r in core if f.site != r}
    unmeasured = tuple(sorted(pair for pair in wanted if pair not in hour.ways))
    nowhere = [f"{a} and {b}" for a, b in unmeasured if (a, b) not in pairs and fallback is None]
    if nowhere:
        when = "" if not hour.start_ns else f" in the hour {hour_name(hour.start_ns)}"
        raise LakeError(
            f"no probe between {_listed(nowhere)}{when}, and the network file has no link there; "
            "measure it, or add a pair to [links]"
        )
    return Links(pairs, fallback), unmeasured


def _timing_of_all(hour: Hour) -> Timed:
    sites = hour.sites
    slow = max(hour.ways, key=lambda pair: hour.ways[pair].late_ns)
    lossy = max(hour.ways, key=lambda pair: hour.loss_bound(hour.ways[pair]))
    loss = hour.loss_bound(hour.ways[lossy])
    delay = hour.ways[slow].late_ns
    witnesses = len(sites) // 2 + 1
    timing = None
    if loss <= LOSS_LIMIT:
        path = Path(delay, loss, CLOCK_ERROR_NS, 0, PROCESS_NS)
        timing = derive(path, Shape("pipelined", SLOT_NS, witnesses, max(2, len(sites)), 2)).timing
    return Timed(
        hour.start_ns, "main", SLOT_NS, witnesses, len(sites), (), _between(slow), delay, _between(lossy), loss, timing
    )


def _between(pair: Pair) -> str:
    return f"nodes of {pair[0]}" if pair[0] == pair[1] else f"{pair[0]} and {pair[1]}"


def all_helpers(network: Network | None, hour: Hour, timed: Sequence[Timed]) -> dict[str, list[tuple[int, Helper]]]:
    """Return, per site of receivers, the sites with the shortest repair times."""
    if network is None:
        asking = candidates = hour.sites
    else:
        candidates = sorted({receiver.site for receiver in network.receivers})
        asking = sorted({*candidates, *(each.site for each in network.secondaries)})
    # Cost of a failed attempt; without a timing, the longest round trip.
    usual = 2 * max(way.late_ns for way in hour.ways.values())
    request_ns = max((each.timing.request_ns if each.timing is not None else usual for each in timed), default=usual)
    found = {site: helpers_of(hour, site, candidates, request_ns) for site in asking}
    return {site: helpers for site, helpers in found.items() if helpers}


# -- tables -----------------------------------------------------------------------------------------------


def write_tables(
    spark: SparkSession,
    lake: Lake,
    network: Network | None,
    quantile: float,
    timed: Mapping[int, Sequence[Timed]],
    helpers: Mapping[int, Mapping[str, Sequence[tuple[int, Helper]]]],
) -> None:
    """Replace `network_timing` and `network_helpers` of all hours."""
    name = network.name or "network" if network is not None else None
    times = [
        (each.start_ns, name, each.stripe, quantile, each.sites, len(each.unmeasured), each.delay_between,
         each.delay_ns, each.loss_between, float(each.loss_ratio), each.slot_ns, each.witnesses,
         *((t.late_ns, t.request_ns, t.attempts, t.recovery_ns, t.hold_ns)
           if (t := each.timing) is not None else (None,) * 5), day_of(each.start_ns))
        for stripes in timed.values() for each in stripes
    ]  # fmt: skip
    asked = [
        (site, start, rank, each.site, each.round_trip_ns, float(each.loss_ratio), float(each.missed), each.shared,
         float(each.answers), int(min(each.expected_ns, LONGEST_NS)), each.nearest, day_of(start))
        for start, of_hour in helpers.items() for site, ranked in of_hour.items() for rank, each in ranked
    ]  # fmt: skip
    lake.replace("network_timing", spark.createDataFrame(times, NETWORK_TIMING.ddl).coalesce(1))
    lake.replace("network_helpers", spark.createDataFrame(asked, NETWORK_HELPERS.ddl).coalesce(1))


# -- the file ---------------------------------------------------------------------------------------------


def _needed(quantile: float) -> int:
    return max(1, round(1 / (1 - quantile))) if quantile < 1 else 1


def _too_few(way: Way, quantile: float) -> bool:
    return way.answered < _needed(quantile)


def _listed(names: Sequence[str]) -> str:
    """List the first few names, and the number of others."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more

"""Compute the tables of the network matrix from a lake's probes, and choose the hour for the network file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession

from levelcast.network import Network
from levelcast.network.fields import LONGEST_NS
from levelcast.network.measured.matrix import Helper, Hour, Way
from levelcast.network.measured.timing import (
    ALL,
    SHOWN_NAMES,
    MatrixResult,
    Timed,
    UnmeasuredError,
    all_helpers,
    hour_name,
    name_list,
    timings,
)
from levelcast.pipeline.jobs.refresh import DAY_MARK, DerivedTable, stale_days
from levelcast.pipeline.lake.defaults import LakeError
from levelcast.pipeline.lake.lake import Lake
from levelcast.pipeline.lake.log import CommitMark
from levelcast.pipeline.lake.tables import NETWORK_HELPERS, NETWORK_TIMING, day_of
from levelcast.pipeline.matrix.tables import network_matrix, shared_losses

WORST = "worst"
ASSUMED_LOSS = 0.01
_MATRIX = DerivedTable("network_matrix", ("probes", "paths"), network_matrix)


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
    if not lake.has("probes") and not lake.has("paths"):
        raise LakeError(
            f"{lake.directory}: has neither measured paths nor probes; run `levelcast pipeline load paths DATA --lake "
            f"{lake.directory}`, with the data directory of nodes"
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
            f"{quantile:g} is about the maximum seen: {name_list(few)}"
        )
    untold = sum(way.loss_upper is None for way in chosen.ways.values())
    if untold:
        remarks.append(
            f"the probes of {untold} of {len(chosen.ways)} pairs have no loss value; {assumed_loss:g} is assumed"
        )
    if network is not None and times and times[0].unmeasured:
        listed = [f"{a} and {b}" for a, b in times[0].unmeasured]
        remarks.append(f"no probe between {name_list(listed)}: the network file's own links are used")
    return MatrixResult(chosen, name, times, all_helpers(network, chosen, times), tuple(remarks), len(by_hour))


def refresh(spark: SparkSession, lake: Lake) -> int:
    """Compute `network_matrix` for every day with new probes or paths; return the number of days."""
    stale = stale_days(lake, _MATRIX, of_any=True)
    if stale:
        days = sorted(stale)
        made = _MATRIX.make(*(lake.read(spark, base, days=days) for base in _MATRIX.bases))
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
            f"the probes are between {name_list(strangers)}, but the network file has none of these sites; its sites: "
            f"{name_list(sorted(known))}"
        )
    remarks = [f"the network file does not name {name_list(strangers)}: their probes are ignored"] if strangers else []
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
        listed = name_list(known) if len(known) <= SHOWN_NAMES else f"{len(known)} hours from {known[0]} to {known[-1]}"
        raise LakeError(f"no probes for the hour {wanted}; available: {listed} (UTC)")
    return text, by_hour[names[text]]


def _timings_if_all(network: Network | None, hour: Hour) -> tuple[Timed, ...]:
    """Return no timing for an hour in which a pair of the network is missing; only a request for that hour fails."""
    try:
        return timings(network, hour)
    except UnmeasuredError:
        return ()


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


def _needed(quantile: float) -> int:
    return max(1, round(1 / (1 - quantile))) if quantile < 1 else 1


def _too_few(way: Way, quantile: float) -> bool:
    return way.answered < _needed(quantile)

"""The audit *timeliness*: measure the age of each floor's records at acknowledgement, by hour.

The age of a record is the frame's timestamp, the same at every receiver, minus `ts_event`, by the floor's clock. A
floor that sends trades late has a high fraction of old records. A floor with a fast clock has records from the
future. A few of those are not proof: a site that sends its token late acknowledges later arrivals with the slot's
time, and its clock may be as wrong as the floor's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np

from levelcast.pipeline.audit.base import Audit, AuditOptions, AuditTable, Finding, Job, Result
from levelcast.pipeline.audit.fairness import any_of
from levelcast.pipeline.audit.inputs import Inputs
from levelcast.pipeline.audit.stats import Counts, add_fields, design_effect, histogram, no_bins, quantile, wilson
from levelcast.pipeline.input.tapes import names_in
from levelcast.records.codes import RTYPE_INSTRUMENT, UNDEF_TIMESTAMP
from levelcast.storage.tape.directory import SegmentFile
from levelcast.storage.tape.index import read_index
from levelcast.storage.tape.segment import group_records

HOUR_NS = 3_600_000_000_000
MINUTE_NS = 60_000_000_000
MINUTES = 60


class Cell(NamedTuple):
    """One hour of one floor in one stripe."""

    stripe: int
    publisher: int
    hour: int
    """Hours since 1970."""


@dataclass(slots=True)
class Ages:
    """Ages of the records of a cell; they add up over tasks."""

    counts: Counts = field(default_factory=lambda: np.zeros(MINUTES, np.int64))
    old: Counts = field(default_factory=lambda: np.zeros(MINUTES, np.int64))
    bins: Counts = field(default_factory=no_bins)
    ahead: Counts = field(default_factory=lambda: np.zeros(MINUTES, np.int64))
    worst_ns: int = 0
    worst_record: int = 0
    """Sequence of the record that is furthest ahead."""
    oldest_ns: int = -(2**62)
    oldest_record: int = 0

    def add(self, other: Ages) -> None:
        add_fields(self, other, ("counts", "old", "bins", "ahead"))
        if other.worst_ns > self.worst_ns:
            self.worst_ns, self.worst_record = other.worst_ns, other.worst_record
        if other.oldest_ns > self.oldest_ns:
            self.oldest_ns, self.oldest_record = other.oldest_ns, other.oldest_record


class TimelinessTask(NamedTuple):
    """Input of one task."""

    stripe: int
    segment: SegmentFile
    old_ns: int
    ahead_ns: int


class AgesPart(NamedTuple):
    """Result of a task: ages, and the venues that definitions name."""

    ages: dict[Cell, Ages]
    venues: dict[int, str]


def ages_of(unit: TimelinessTask) -> AgesPart:
    """Return the ages of all records of one segment."""
    index = read_index(unit.segment.index_path)
    part = AgesPart({}, {})
    if not len(index.lines):
        return part
    begin = int(index.lines["at"][0])
    end = int(index.lines["at"][-1]) + int(index.lines["bytes"][-1])
    with unit.segment.data_path.open("rb") as file:
        file.seek(begin)
        content = memoryview(file.read(end - begin))
    counts = index.lines["records"].astype(np.int64)
    stamps = np.repeat(index.lines["timestamp"].astype(np.int64), counts)
    first = int(index.lines["sequence"][0])
    for kind, places, records in group_records(content, unit.segment.data_path):
        if kind.rtype == RTYPE_INSTRUMENT:
            part.venues.update(names_in(records, "publisher_id", "exchange"))
        event = np.ascontiguousarray(records["ts_event"])
        known = (event != UNDEF_TIMESTAMP) & (event > 0)
        publisher = np.ascontiguousarray(records["publisher_id"]).astype(np.int64)
        stamp = stamps[places]
        age = stamp - event.astype(np.int64)
        for number in np.flatnonzero(np.bincount(publisher[known])).tolist():
            mine = np.flatnonzero(known & (publisher == number))
            hours = stamp[mine] // HOUR_NS
            for hour in range(int(hours[0]), int(hours[-1]) + 1):
                chosen = mine if hours[0] == hours[-1] else mine[hours == hour]
                if len(chosen):
                    cell = Cell(unit.stripe, number, hour)
                    found = measure(age[chosen], stamp[chosen], first + places[chosen], unit.old_ns, unit.ahead_ns)
                    part.ages.setdefault(cell, Ages()).add(found)
    return part


def measure(age: Counts, stamp: Counts, sequence: Counts, old_ns: int, ahead_ns: int) -> Ages:
    """Return the ages of some records of one floor and hour."""
    minute = stamp % HOUR_NS // MINUTE_NS
    least, most = int(age.argmin()), int(age.argmax())
    return Ages(
        np.bincount(minute, minlength=MINUTES).astype(np.int64),
        np.bincount(minute[age > old_ns], minlength=MINUTES).astype(np.int64),
        histogram(age),
        np.bincount(minute[age < -ahead_ns], minlength=MINUTES).astype(np.int64),
        max(0, -int(age[least])),
        int(sequence[least]),
        int(age[most]),
        int(sequence[most]),
    )


def run(job: Job) -> Result:
    """Check every record of every stripe once, from any receiver's tape."""
    result = Result("timeliness")
    units = [
        TimelinessTask(stripe, segment, job.options.old_ns, job.options.ahead_ns)
        for stripe, tapes in job.inputs.stripes.items()
        for segment in any_of(tapes)
    ]
    ages: dict[Cell, Ages] = {}
    venues: dict[int, str] = {}
    for part in job.each("timeliness: ages of records", ages_of, units):
        venues.update(part.venues)
        for cell, its in part.ages.items():
            ages.setdefault(cell, Ages()).add(its)
    judge(result, dict(sorted(ages.items())), floors(job.inputs, venues), job.options)
    return result


def floors(inputs: Inputs, venues: Mapping[int, str]) -> dict[int, str]:
    """Return the names of floors: from the network file, else from the definitions on the tape."""
    known = {floor.publisher: floor.name for floor in inputs.network.floors} if inputs.network is not None else {}
    return {**venues, **known}


def judge(result: Result, ages: Mapping[Cell, Ages], names: Mapping[int, str], options: AuditOptions) -> None:
    """Add findings, statistics and the summary to the result."""
    rows: list[tuple[object, ...]] = []
    level = options.level / max(1, 2 * len(ages))
    for cell, its in ages.items():
        name, hour = names.get(cell.publisher, f"publisher {cell.publisher}"), _hour(cell.hour)
        total, old, ahead = (int(counts.sum()) for counts in (its.counts, its.old, its.ahead))
        share = wilson(old, total, level, design_effect(its.old, its.counts))
        early = wilson(ahead, total, level, design_effect(its.ahead, its.counts))
        quantiles = [quantile(its.bins, q) for q in (0.5, 0.9, 0.99)]
        rows.append((cell.stripe, name, hour, total, *quantiles, its.oldest_ns, share.value, ahead, its.worst_ns))
        if early.low > options.old_share:
            says = (
                f"in the hour of {hour} {early.value:.2%} of {total:,} records (lower bound {early.low:.2%}) were "
                f"dated more than {_s(options.ahead_ns)} after their acknowledgement, record {its.worst_record} by "
                f"{_s(its.worst_ns)} (limit {options.old_share:.2%})"
            )
            found = Finding("clock ahead", name, says, cell.stripe, record=its.worst_record, value=float(its.worst_ns))
            result.findings.append(found)
        if share.low > options.old_share:
            says = (
                f"in the hour of {hour} {share.value:.2%} of {total:,} records (lower bound {share.low:.2%}) were "
                f"older than {_s(options.old_ns)}, record {its.oldest_record} {_s(its.oldest_ns)} "
                f"(limit {options.old_share:.2%})"
            )
            found = Finding("old records", name, says, cell.stripe, record=its.oldest_record)
            result.findings.append(replace(found, **share._asdict()))
    columns = ("stripe", "floor", "hour", "records", "p50_ns", "p90_ns", "p99_ns", "max_ns", "old_share", "ahead")
    result.figures = [AuditTable("floors", (*columns, "most_ahead_ns"), rows)]
    result.looked_at = {"records": sum(int(its.counts.sum()) for its in ages.values()), "cells": len(ages)}
    result.sentence = _sentence(result, ages.values())


def _hour(hour: int) -> str:
    return datetime.fromtimestamp(hour * 3600, UTC).strftime("%Y-%m-%d %H:00 UTC")


def _s(ns: float) -> str:
    return f"{ns / 1e9:,.3f} s"


def _sentence(result: Result, ages: Iterable[Ages]) -> str:
    if result.findings:
        return result.first_finding("A floor was late")
    whole = sum((its.bins for its in ages), no_bins())
    return (
        f"Every floor was on time: 99 % of {result.looked_at['records']:,} records were acknowledged within "
        f"{_s(quantile(whole, 0.99))} of their trade."
    )


TIMELINESS = Audit("timeliness", "How old were the floors' records when the ring acknowledged them?", run)

"""Measure release logs for the audit *fairness*: input and result of each task, and their sum. Does not use Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from levelcast.pipeline.audit.inputs import Recorded
from levelcast.pipeline.audit.stats import BOUNDS, Counts, Floats, add_fields, histogram
from levelcast.records import RecordArray
from levelcast.storage.append_file import TapeError
from levelcast.storage.release_log import (
    RELEASE,
    SUFFIX,
    common_slots,
    first_entries,
    is_late,
    lateness_ns,
    read_entries,
    span_of,
    spreads_ns,
    subtract_token_delays,
)

WINDOWS = 64
"""Number of parts of the time range; similar neighbouring parts are merged again (`stats`)."""
ENTRIES_PER_TASK = 400_000


class LogUnit(NamedTuple):
    """A range of windows of one stripe, to be read from the logs of all receivers."""

    logs: tuple[tuple[str, tuple[str, ...]], ...]
    """Files of each receiver."""
    first_slot: int
    width: int
    """Number of slots in a window."""
    begin: int
    end: int
    """Windows from `begin` up to `end`."""
    early_ns: int


@dataclass(slots=True)
class ReleaseCounts:
    """Counts from the logs, by window and receiver; they add up over tasks."""

    receivers: tuple[str, ...]
    counts: Counts
    late: Counts
    compared: Counts
    """Slots that all receivers of the window released on time."""
    delays: Floats
    """Sums of the delays in those slots."""
    early: Counts
    """By receiver: number of early releases, the worst in ns, its slot, and the slot of the first one."""
    bins: Counts
    spread: Counts

    @classmethod
    def none(cls, receivers: Sequence[str]) -> ReleaseCounts:
        count, bins = len(receivers), len(BOUNDS) + 1
        shapes = ((WINDOWS, count), (WINDOWS, count), WINDOWS, (WINDOWS, count), (count, 4), (count, bins), bins)
        counts, late, compared, delays, *others = (np.zeros(shape, np.int64) for shape in shapes)
        return cls(tuple(receivers), counts, late, compared, delays.astype(np.float64), *others)

    def add(self, other: ReleaseCounts) -> None:
        add_fields(self, other, ("counts", "late", "compared", "delays", "bins", "spread"))
        for mine, its in zip(self.early, other.early, strict=True):
            if its[0]:
                if its[1] > mine[1]:
                    mine[1:3] = its[1:3]
                mine[3] = min(mine[3], its[3]) if mine[0] else its[3]
                mine[0] += its[0]


def log_units(tapes: Sequence[Recorded], early_ns: int) -> list[LogUnit]:
    """Split the logs of one stripe into tasks by slot; raise TapeError if a receiver has none."""
    logs: list[tuple[str, tuple[str, ...]]] = []
    entries, low, high = 0, 2**63 - 1, 0
    for tape in tapes:
        paths = [path for log in tape.logs for path in sorted(log.glob("*" + SUFFIX))]
        spans = [span for path in paths if (span := span_of(path)) is not None]
        if not spans:
            where = tape.directories[0].parent / "releases"
            what = "has no release" if paths else "not found"
            raise TapeError(
                f"{where}: release log of {tape.receiver} {what}; restore it, or exclude the receiver with "
                f"--without {tape.receiver}"
            )
        entries += sum(span[2] for span in spans)
        low, high = min(low, *(span[0] for span in spans)), max(high, *(span[1] for span in spans))
        logs.append((tape.receiver, tuple(map(str, paths))))
    width = -(-(high - low + 1) // WINDOWS)
    tasks = min(WINDOWS, -(-entries // ENTRIES_PER_TASK))
    edges = [WINDOWS * i // tasks for i in range(tasks + 1)]
    return [LogUnit(tuple(logs), low, width, begin, end, early_ns) for begin, end in pairwise(edges)]


def read_logs(unit: LogUnit) -> ReleaseCounts:
    """Run one task: read the entries of its slots from all logs."""
    low = unit.first_slot + unit.begin * unit.width
    high = unit.first_slot + unit.end * unit.width
    logs: dict[str, RecordArray] = {}
    for receiver, paths in unit.logs:
        parts = [np.zeros(0, RELEASE)]
        for path in map(Path, paths):
            span = span_of(path)
            if span is not None and span[0] < high and span[1] >= low:
                entries = read_entries(path)
                parts.append(entries[(entries["slot"] >= low) & (entries["slot"] < high)])
        logs[receiver] = np.concatenate(parts)
    return measure(subtract_token_delays(logs), unit.first_slot, unit.width, unit.early_ns)


def measure(logs: Mapping[str, RecordArray], first_slot: int, width: int, early_ns: int) -> ReleaseCounts:
    """Return the counts of some entries of all logs."""
    found = ReleaseCounts.none(list(logs))
    on_time: list[RecordArray] = []
    for number, log in enumerate(logs.values()):
        entries = first_entries(log)
        slots, delay, late = entries["slot"].astype(np.int64), lateness_ns(entries), is_late(entries)
        window = (slots - first_slot) // width
        found.counts[:, number] = np.bincount(window, minlength=WINDOWS)
        found.late[:, number] = np.bincount(window[late], minlength=WINDOWS)
        found.bins[number] = histogram(delay[~late])
        early = np.flatnonzero(delay < -early_ns)
        if len(early):
            worst = early[delay[early].argmin()]
            found.early[number] = len(early), -delay[worst], slots[worst], slots[early[0]]
        on_time.append(entries[~late])
    for part in np.flatnonzero(found.counts.sum(axis=1)).tolist():
        begin, end = first_slot + part * width, first_slot + (part + 1) * width
        _compare(found, part, [_within(each, begin, end) for each in on_time])
    return found


def _within(entries: RecordArray, begin: int, end: int) -> RecordArray:
    low, high = np.searchsorted(entries["slot"], np.array((begin, end), np.uint64))
    return entries[low:high]


def _compare(found: ReleaseCounts, window: int, entries: Sequence[RecordArray]) -> None:
    """Add the slots of a window that all receivers with a release in it released on time."""
    here = [number for number, each in enumerate(entries) if len(each)]
    rows = common_slots([entries[number] for number in here])
    if len(here) < 2 or not rows.shape[1]:
        return
    found.compared[window] = rows.shape[1]
    found.delays[window, here] = lateness_ns(rows).sum(axis=1)
    found.delays[window, [number for number in range(len(entries)) if number not in here]] = np.nan
    found.spread += histogram(spreads_ns(rows))

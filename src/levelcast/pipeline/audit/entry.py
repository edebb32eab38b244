"""The audit *entry*: recompute the sequence of orders from the tapes, and compare the gateways (E1 to E9).

The sequence is a function of the tape, so it is computed again with the rules on the tape: buckets, tickets and order.
The audit then reports

- refused records: a gateway with a wrong clock, an unknown gateway, a source that uses the id of another one;
- gateways that let Θ pass: they were down, cut off, or held their beats back;
- gateways of which more orders are late than allowed;
- the share of firsts: of the buckets with accounts of several gateways, a gateway should be first in as many as its
  accounts predict. The tickets are hashes, so a difference that chance does not explain is one that somebody made.

Figures by gateway: time from the stamp to the token's timestamp, orders, late ones, firsts and expected firsts. Without
the rules of order entry on the tapes there is nothing to check. The sequence depends on all frames before, so one task
reads the whole tape; several networks run in parallel.

The waits of gateways, compared with the delays of the network file, are part of the audit *fairness*.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from levelcast.market.fair.eras import ChainLog
from levelcast.market.fair.fair_order import REASON_TEXTS, EntryBatch, EntryFrame, EntryReason, FairEntry
from levelcast.market.fair.stripes import StripeMerge
from levelcast.pipeline.audit.base import Audit, AuditOptions, AuditTable, Finding, Job, Result
from levelcast.pipeline.audit.fairness import any_of
from levelcast.pipeline.audit.inputs import Inputs
from levelcast.pipeline.audit.stats import Counts, histogram, holm, no_bins, quantile, wilson
from levelcast.records import BadRecords
from levelcast.records.codes import RTYPE_ORDER
from levelcast.records.payload import split
from levelcast.storage.append_file import TapeError
from levelcast.storage.tape.directory import SegmentFile
from levelcast.storage.tape.index import PACKET, read_index
from levelcast.wire.entry_change import entry_changes

LEAST_CONTESTED = 100
"""Fewer contested buckets of a gateway say nothing about its share."""


class EntryTask(NamedTuple):
    """Input of the task: segments of every stripe, in order."""

    stripes: tuple[tuple[int, tuple[SegmentFile, ...]], ...]


@dataclass(slots=True)
class GatewayFigures:
    """Measured values of one gateway."""

    orders: int = 0
    late: int = 0
    left: int = 0
    refused: Counter[int] = field(default_factory=Counter)
    """By `EntryReason`."""
    waits: Counts = field(default_factory=no_bins)
    """From stamp to token, of orders and beats."""
    firsts: int = 0
    expected: float = 0.0
    variance: float = 0.0
    contested: int = 0

    @property
    def p(self) -> float:
        """Return the probability of a share that is as far from the expected one, by chance."""
        if self.contested < LEAST_CONTESTED or self.variance <= 0:
            return 1.0
        return 2 * NormalDist().cdf(-abs(self.firsts - self.expected) / self.variance**0.5)


@dataclass(slots=True)
class EntryPart:
    """Result of the task."""

    gateways: dict[int, GatewayFigures] = field(default_factory=dict)
    versions: int = 0
    """Versions of the rules that applied."""
    frames: int = 0
    buckets: int = 0
    waiting: int = 0
    """Orders whose buckets are open at the end of the tape."""

    def of(self, gateway: int) -> GatewayFigures:
        return self.gateways.setdefault(gateway, GatewayFigures())


def entry_of(unit: EntryTask) -> EntryPart:
    """Recompute the sequence of all tapes."""
    part, entry = EntryPart(), FairEntry()
    versions: set[int] = set()
    try:
        _recompute(unit, part, entry, versions)
    except BadRecords as error:
        raise TapeError(f"the sequence of orders cannot be recomputed: {error}; run the audit order first") from None
    part.versions, part.waiting = len(versions), entry.waiting
    return part


def _recompute(unit: EntryTask, part: EntryPart, entry: FairEntry, versions: set[int]) -> None:
    for frame in frames_of(unit):
        part.frames += 1
        if not entry.eras and not entry_changes(frame.payload):
            continue  # order entry has not started
        before = {gateway: clock.passed_ns for gateway, clock in entry.gateways.items()}
        batch = entry.frame(frame)
        versions |= {era.rules.version for era in entry.eras}
        _note_waits(part, frame, before)
        note_batch(part, batch, entry)


def frames_of(unit: EntryTask) -> Iterator[EntryFrame]:
    """Yield the frames of all stripes in one order."""
    if len(unit.stripes) == 1:
        yield from _frames_of(unit.stripes[0][1])
        return
    merge = StripeMerge(stripe for stripe, _ in unit.stripes)
    sources = {stripe: _frames_of(segments) for stripe, segments in unit.stripes}
    while sources:
        stripe = min(sources, key=lambda each: merge.complete_ns[each])
        frame = next(sources[stripe], None)
        if frame is None:
            del sources[stripe]
            merge.complete(stripe, 2**63 - 1)
        else:
            merge.add(stripe, frame)
        yield from merge.take()


def _frames_of(segments: tuple[SegmentFile, ...]) -> Iterator[EntryFrame]:
    for segment in segments:
        index = read_index(segment.index_path)
        with segment.data_path.open("rb") as file:
            for number, line in enumerate(index.lines):
                file.seek(int(line["at"]))
                content = file.read(int(line["bytes"]))
                rows = np.frombuffer(index.table(number), PACKET)
                sources = tuple(zip(rows["source"].tolist(), rows["records"].tolist(), strict=True))
                last = int(line["sequence"]) + int(line["records"]) - 1
                yield EntryFrame(last, int(line["timestamp"]), bytes(line["chain"]), content, sources)


def _note_waits(part: EntryPart, frame: EntryFrame, before: Mapping[int, int]) -> None:
    """Note the time from stamp to token of the records that advance a gateway's clock."""
    for batch in split(frame.payload):
        if batch.kind.rtype != RTYPE_ORDER:
            continue
        publishers = batch.records["publisher_id"]
        for gateway in np.unique(publishers).tolist():
            if gateway in before:
                stamps = batch.records["ts_event"][publishers == gateway]
                waits = frame.timestamp_ns - np.minimum(stamps, np.uint64(2**62)).astype(np.int64)
                part.of(gateway).waits += histogram(waits)


def note_batch(part: EntryPart, batch: EntryBatch, entry: FairEntry) -> None:
    """Note orders, refusals and firsts of a frame."""
    for gateway in batch.left:
        part.of(gateway).left += 1
    for gateway, reason in zip(batch.refused["publisher_id"].tolist(), batch.reasons.tolist(), strict=True):
        part.of(gateway).refused[reason] += 1
    if not len(batch.orders):
        return
    publishers = batch.orders["publisher_id"]
    for gateway, count in zip(*np.unique(publishers, return_counts=True), strict=True):
        part.of(int(gateway)).orders += int(count)
    for gateway in publishers[batch.late].tolist():
        part.of(gateway).late += 1
    stamps = batch.orders["ts_event"].astype(np.int64)
    on_time = ~batch.late
    if on_time.any():
        _note_firsts(part, _ends_of(entry, stamps[on_time]), batch.orders[on_time])


def _ends_of(entry: FairEntry, stamps: Counts) -> Counts:
    """Return the ends of the buckets of stamps, which are closed."""
    ends = np.zeros(len(stamps), np.int64)
    log: ChainLog = entry.log
    for era in entry.eras:
        here = (stamps >= era.from_ns) & (stamps < era.until_ns)
        if here.any():
            ends[here] = era.ends(stamps[here], log)
    return ends


def _note_firsts(part: EntryPart, ends: Counts, orders: np.ndarray[tuple[int], np.dtype[np.void]]) -> None:
    """Note which gateway is first in each bucket that has accounts of several gateways."""
    for end in np.unique(ends).tolist():
        mine = orders[ends == end]
        part.buckets += 1
        _, first_of = np.unique(mine["account"], return_index=True)
        accounts = mine["publisher_id"][np.sort(first_of)].tolist()  # the gateway of each account's first order
        if len(set(accounts)) < 2:
            continue
        for gateway, count in Counter(accounts).items():
            figures, chance = part.of(gateway), count / len(accounts)
            figures.contested += 1
            figures.expected += chance
            figures.variance += chance * (1 - chance)
        part.of(accounts[0]).firsts += 1


def run(job: Job) -> Result:
    """Recompute the sequence once, from any receiver's tapes."""
    result = Result("entry")
    stripes = tuple((stripe, tuple(any_of(tapes))) for stripe, tapes in job.inputs.stripes.items())
    (part,) = job.each("entry: recomputing the sequence of orders", entry_of, [EntryTask(stripes)])
    judge(result, part, names(job.inputs), job.options)
    return result


def names(inputs: Inputs) -> dict[int, str]:
    known = inputs.network.gateways if inputs.network is not None else ()
    return {gateway.id: gateway.name for gateway in known}


def judge(result: Result, part: EntryPart, known: Mapping[int, str], options: AuditOptions) -> None:
    """Add findings, figures and the summary to the result."""
    result.looked_at = {
        "frames": part.frames,
        "orders": sum(each.orders for each in part.gateways.values()),
        "buckets": part.buckets,
        "rules": part.versions,
    }
    if not part.versions:
        result.sentence = "There are no rules of order entry on the tapes, so there is no sequence of orders to check."
        return
    gateways = dict(sorted(part.gateways.items()))
    corrected = dict(zip(gateways, holm([each.p for each in gateways.values()]), strict=True))
    rows: list[tuple[object, ...]] = []
    for gateway, its in gateways.items():
        name = known.get(gateway, f"gateway {gateway}")
        result.findings += _findings(name, its, corrected[gateway], options)
        waits = [quantile(its.waits, share) for share in (0.01, 0.5, 0.99)]
        rows.append((name, its.orders, its.late, its.left, *waits, its.contested, its.firsts, round(its.expected, 1)))
    columns = ("gateway", "orders", "late", "left", "wait_p01_ns", "wait_p50_ns", "wait_p99_ns", "contested", "firsts")
    result.figures = [AuditTable("gateways", (*columns, "expected_firsts"), rows)]
    if part.waiting:
        result.remarks.append(f"{part.waiting} orders are in buckets that are open at the end of the tapes")
    result.sentence = _sentence(result, part)


def _findings(name: str, its: GatewayFigures, p: float, options: AuditOptions) -> Iterator[Finding]:
    for reason, count in sorted(its.refused.items()):
        records = "1 record was" if count == 1 else f"{count:,} records were"
        yield Finding("refused", name, f"{records} refused: {REASON_TEXTS[EntryReason(reason)]}", value=float(count))
    if its.left:
        times = "once" if its.left == 1 else f"{its.left} times"
        yield Finding("held back", name, f"it let the closing time pass {times} without showing a clock")
    share = wilson(its.late, its.orders, options.level) if its.orders else None
    if share is not None and share.low > options.late_share:
        says = f"{share.value:.2%} of {its.orders:,} orders came after their bucket was closed"
        says += f" (lower bound {share.low:.2%}, limit {options.late_share:.2%})"
        yield Finding("late orders", name, says, value=share.value, low=share.low, high=share.high)
    if p < options.level:
        says = f"it was first in {its.firsts:,} of {its.contested:,} contested buckets, expected {its.expected:,.0f}"
        yield Finding("share of firsts", name, says, value=its.firsts / its.contested, p=p)


def _sentence(result: Result, part: EntryPart) -> str:
    if result.findings:
        return result.first_finding("Order entry had faults")
    return (
        f"Order entry was fair: {result.looked_at['orders']:,} orders of {len(part.gateways)} gateways in "
        f"{part.buckets:,} buckets, none refused, and no gateway was first more often than chance explains."
    )


ENTRY_AUDIT = Audit("entry", "Is the sequence of orders that of the rules, and was any gateway wrong or favoured?", run)

"""The audit *fairness*: compare release times of receivers and waiting times of sources.

| question | hypothesis | statistic |
|---|---|---|
| (a) early | no receiver releases before the scheduled release time | every release, no statistic |
| (b) spread | – (descriptive) | first to last release of a slot, quantiles |
| (c) late | the fraction of late releases is at most p₀ | Wilson's interval, widened by the design effect of bursts |
| (d) receivers, regions | the mean difference to the others is at most δ | means of batches, Student's t, Holm |
| (e) sources, their regions | the mean wait beyond chance differs by at most δ_w | the same |

Each receiver reports release times by its own clock. This audit does not detect a wrong clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from levelcast.pipeline.audit.base import Audit, AuditTable, Finding, Job, Result
from levelcast.pipeline.audit.hypotheses import Test, named, release_tests, wait_tests
from levelcast.pipeline.audit.inputs import Inputs, Recorded
from levelcast.pipeline.audit.release_stats import WINDOWS, ReleaseCounts, log_units, read_logs
from levelcast.pipeline.audit.source_wait import Chance, Waits, Windows, chance_of, waits_of
from levelcast.pipeline.audit.stats import design_effect, no_bins, quantile, wilson
from levelcast.storage.tape.directory import SegmentFile
from levelcast.storage.tape.index import read_index

LONGEST_WAIT_NS = 60_000_000_000
"""A source with a longer median replays old records: their ts_event contains no information about waiting."""


@dataclass(slots=True)
class StripeMeasures:
    """Measurements of one stripe."""

    stripe: int
    releases: ReleaseCounts
    waits: dict[str, Waits] = field(default_factory=dict)
    chances: dict[str, Chance] = field(default_factory=dict)
    """Expected waiting times of the floors of the network file."""
    source_regions: dict[str, str] = field(default_factory=dict)
    wait_threshold: float = 0.0


def run(job: Job) -> Result:
    """Measure every stripe, and judge all of them together."""
    result = Result("fairness", remarks=list(job.inputs.remarks))
    measured = measured_of(job, result)
    regions = {each.receiver: each.region for tapes in job.inputs.stripes.values() for each in tapes if each.region}
    judge(result, measured, regions, job)
    return result


def measured_of(job: Job, result: Result) -> list[StripeMeasures]:
    """Measure every stripe; add a remark to the result for each check that is not possible."""
    return [_measure(job, result, stripe, tapes) for stripe, tapes in job.inputs.stripes.items()]


def judge(result: Result, measured: Sequence[StripeMeasures], regions: Mapping[str, str], job: Job) -> None:
    """Add findings, statistics and the summary to the result, from the measurements."""
    options = job.options
    tests: list[tuple[int, Test]] = []
    for each in measured:
        made = release_tests(each.releases, regions, options.threshold_ns, options.level)
        made += wait_tests(each.waits, each.source_regions, each.wait_threshold, options.level)
        tests += [(each.stripe, test) for test in made]
        result.findings += _early(each, options.early_ns)
        result.findings += _late(each, options.late_share, options.level)
    stripe_of = {id(test): stripe for stripe, test in tests}
    for test in named([test for _, test in tests], options.level):
        result.findings.append(_finding(stripe_of[id(test)], test, options.level))
    _figures(result, measured, tests, options.level)
    slots = sum(int(each.releases.compared.sum()) for each in measured)
    result.looked_at = {
        "slots": slots,
        "releases": sum(int(each.releases.counts.sum()) for each in measured),
        "packets": sum(int(waits.counts.sum()) for each in measured for waits in each.waits.values()),
        "tests": len(tests),
    }
    several = any(len(each.releases.receivers) > 1 for each in measured)
    if several and not any(test.kind in ("receiver", "region") for _, test in tests):
        result.remarks.append(f"too few slots ({slots:,}) to compare receivers by their means")
    if not several:
        result.remarks.append("only one receiver: no other receiver to compare its releases with")
    result.sentence = _sentence(result, measured, tests, options.level)


def _early(each: StripeMeasures, tolerance_ns: int) -> list[Finding]:
    found = []
    totals = each.releases.counts.sum(axis=0).tolist()
    told = zip(each.releases.receivers, each.releases.early.tolist(), totals, strict=True)
    for receiver, (count, worst, slot, first), total in told:
        if count:
            says = (
                f"released {count:,} of {total:,} slots more than {_ms(tolerance_ns)} before the scheduled time, first "
                f"in slot {first}, at most {_ms(worst)} early in slot {slot}"
            )
            found.append(Finding("released early", receiver, says, each.stripe, slot=first, value=float(-worst)))
    return found


def _late(each: StripeMeasures, allowed: float, level: float) -> list[Finding]:
    found = []
    count = len(each.releases.receivers)
    for number, receiver in enumerate(each.releases.receivers):
        late, counts = each.releases.late[:, number], each.releases.counts[:, number]
        share = wilson(int(late.sum()), int(counts.sum()), level / count, design_effect(late, counts))
        if share.low > allowed:
            says = f"{share.value:.2%} of its releases were late (lower bound {share.low:.2%}, limit {allowed:.2%})"
            found.append(Finding("late too often", receiver, says, each.stripe, **share._asdict()))
    return found


_WORDS = {
    "receiver": ("receiver late", "receiver ahead", "released on average {} {} than the others"),
    "region": ("region late", "region ahead", "its receivers ({members}) released on average {} {} than others"),
    "source": ("source served late", "source served early", "waited on average {} {} than expected and than others"),
    "source region": (
        "source region served late",
        "source region served early",
        "its sources ({members}) waited on average {} {} than expected and than other regions",
    ),
}  # fmt: skip


def _finding(stripe: int, test: Test, level: float) -> Finding:
    late, ahead, says = _WORDS[test.kind]
    how = "later" if test.kind in ("receiver", "region") else "longer"
    if test.side < 0:
        how = {"later": "earlier", "longer": "shorter"}[how]
    told = says.format(_ms(abs(test.effect.mean)), how, members=", ".join(test.members))
    value, low, high, p = _told(test)
    told += f" ({_ms(low)} to {_ms(high)} at level {level:g}; p = {p:.1e}, threshold {_ms(test.threshold)})"
    return Finding(late if test.side > 0 else ahead, test.subject, told, stripe, value=value, low=low, high=high, p=p)


def _ms(ns: float) -> str:
    return f"{ns / 1e6:,.3f} ms"


def _figures(
    result: Result, measured: Sequence[StripeMeasures], tests: Sequence[tuple[int, Test]], level: float
) -> None:
    rows: list[tuple[object, ...]] = []
    spread: list[tuple[object, ...]] = []
    waits: list[tuple[object, ...]] = []
    nothing = (None,) * 4
    for each in measured:
        by_name = {(test.kind, test.subject): test for stripe, test in tests if stripe == each.stripe}
        found = each.releases
        for number, receiver in enumerate(found.receivers):
            late, counts, bins = found.late[:, number], found.counts[:, number], found.bins[number]
            share = wilson(int(late.sum()), int(counts.sum()), level, design_effect(late, counts))
            test = by_name.get(("receiver", receiver))
            rows.append(
                (each.stripe, receiver, int(counts.sum()), int(found.early[number, 0]), int(late.sum()), share.value,
                 share.low, share.high, *(quantile(bins, q) for q in (0.5, 0.99, 1.0)),
                 *(_told(test) if test else nothing))
            )  # fmt: skip
        if found.spread.sum():
            spread.append(
                (each.stripe, int(found.spread.sum()), *(quantile(found.spread, q) for q in (0.5, 0.99, 0.999, 1.0)))
            )
        for source, its in each.waits.items():
            test = by_name.get(("source", source))
            mean = float(its.sums.sum() / max(1, its.counts.sum()))
            quantiles = [quantile(its.bins, q) for q in (0.5, 0.99)]
            chance = each.chances[source].mean_ns if source in each.chances else None
            waits.append(
                (
                    each.stripe,
                    source,
                    int(its.counts.sum()),
                    mean,
                    *quantiles,
                    chance,
                    *(_told(test) if test else nothing),
                )
            )
    effect_columns = ("difference_ns", "low_ns", "high_ns", "p")
    result.figures = [
        AuditTable(
            "receivers",
            ("stripe", "receiver", "releases", "early", "late", "late_share", "late_low", "late_high", "p50_ns",
             "p99_ns", "max_ns", *effect_columns),
            rows,
        ),
        AuditTable("spread", ("stripe", "slots", "p50_ns", "p99_ns", "p999_ns", "max_ns"), spread),
        AuditTable(
            "sources",
            ("stripe", "source", "packets", "mean_ns", "p50_ns", "p99_ns", "expected_ns", *effect_columns),
            waits,
        ),
    ]  # fmt: skip


def _told(test: Test) -> tuple[float, float, float, float]:
    return test.effect.mean, test.effect.low, test.effect.high, test.p


def _sentence(
    result: Result, measured: Sequence[StripeMeasures], tests: Sequence[tuple[int, Test]], level: float
) -> str:
    if result.findings:
        return result.first_finding("Treatment was not equal")
    spread = sum((each.releases.spread for each in measured), no_bins())
    wide = f", 99 % of slots within {_ms(quantile(spread, 0.99))} everywhere" if spread.sum() else ""
    return (
        "No receiver released early. No receiver, region or source was treated differently beyond what chance "
        f"explains, in {len(tests)} tests at level {level:g}{wide}."
    )


def _measure(job: Job, result: Result, stripe: int, tapes: Sequence[Recorded]) -> StripeMeasures:
    units = log_units(tapes, job.options.early_ns)
    releases = ReleaseCounts.none([tape.receiver for tape in tapes])
    for part in job.each(f"fairness: release logs of stripe {stripe}", read_logs, units):
        releases.add(part)
    measured = StripeMeasures(stripe, releases)
    _chances(job.inputs, result, measured, job.options.wait_threshold_ns)
    network = job.inputs.network
    ids = {source.name: source.id for source in network.sources} if network is not None else {}
    chances = {ids[name]: chance for name, chance in measured.chances.items()}
    segments = any_of(tapes)
    windows = span_of(segments)
    if windows is not None:
        work = partial(waits_of, windows=windows, chances=chances)
        for found in job.each(f"fairness: waiting, stripe {stripe}", work, segments):
            for source, its in found.items():
                name = job.inputs.floor_name(source)
                known = measured.waits.setdefault(name, its)
                if known is not its:
                    known.add(its)
    for name, its in measured.waits.items():
        if name in measured.chances and not abs(quantile(its.bins, 0.5)) < LONGEST_WAIT_NS:
            result.remarks.append(f"{name}: its records are older than a minute, so its waiting is not judged")
            its.beyond = None
    return measured


def any_of(tapes: Sequence[Recorded]) -> list[SegmentFile]:
    """Return every segment once, from any tape that has it: finished rather than growing."""
    found: dict[int, SegmentFile] = {}
    for tape in tapes:
        for segment in tape.segments:
            if segment.index_path.exists() and segment.data_path.exists():
                known = found.get(segment.first)
                if known is None or (known.active and not segment.active):
                    found[segment.first] = segment
    return [found[first] for first in sorted(found)]


def span_of(segments: Sequence[SegmentFile]) -> Windows | None:
    """Return the time range of the segments, from the first frame to the last."""
    times: list[int] = []
    for segment in (*segments[:1], *segments[-2:]):
        lines = read_index(segment.index_path).lines
        times += [int(lines["timestamp"][0]), int(lines["timestamp"][-1])] if len(lines) else []
    if not times:
        return None
    return Windows(min(times), (max(times) - min(times)) // WINDOWS + 1, WINDOWS)


def _chances(inputs: Inputs, result: Result, measured: StripeMeasures, threshold_ns: int | None) -> None:
    """Add the expected waits of every floor of the network file; without one, waits are descriptive only."""
    network = inputs.network
    if network is None:
        result.remarks.append("waiting times are not judged without --network: they are mostly network delay")
        return
    if network.links is None:
        result.remarks.append("waiting times are not judged: the network file has no [links] to compute them from")
        return
    timing, rules = network.timing(measured.stripe), network.stripe(measured.stripe).rules
    if timing.mode != "pipelined":
        result.remarks.append("waiting times are not judged in lockstep mode, where tokens have no fixed times")
        return
    sites = {site.name: site.region for site in network.sites}
    measured.wait_threshold = threshold_ns or timing.slot_ns / 10 + 2 * rules.clock_error_ns
    for source in network.sources:
        if source.stripe == network.stripe(measured.stripe).name:
            measured.chances[source.name] = chance_of(network, measured.stripe, source.site)
            measured.source_regions[source.name] = sites[source.site]


FAIRNESS = Audit("fairness", "Was any receiver or source served earlier or later than the others?", run)

"""The audit *order*: check that all receivers' tapes are equal, complete, and consistent with their hashes.

1. Hash every segment of every tape, one task each. Receivers' segments are the same files (rule 14), so equal hashes
   resolve the common case: only one of several equal segments is scanned.
2. In each different segment, hash every frame from its records and check every stamp, packet number and chain link
   (`scan`).
3. Compare segments that differ or are not valid, frame by frame and byte by byte (`explain`). The reference is the
   valid segment on the majority of tapes; without a majority, the finding names both sides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from levelcast.network.stripe_config import ring_config
from levelcast.pipeline.audit.base import Audit, Finding, Job, Result
from levelcast.pipeline.audit.inputs import Recorded
from levelcast.storage.append_file import TapeError
from levelcast.storage.tape.directory import SegmentFile
from levelcast.storage.tape.explain import SegmentDifference, alone, explain
from levelcast.storage.tape.index import read_index
from levelcast.storage.tape.segment_check import Digest, Scan, digest, scan

_KNOCK_ON = frozenset({"chain broken", "other borders"})
"""Faults that follow from an earlier fault."""


class SegmentPosition(NamedTuple):
    """A segment of a stripe, at any receiver."""

    stripe: int
    first: int


@dataclass(slots=True)
class Variant:
    """Tapes with the same segment, byte for byte."""

    tapes: list[tuple[Recorded, SegmentFile]]
    found: Scan
    votes: int
    """Number of tapes that agree, up to the shortest one."""

    @property
    def one(self) -> SegmentFile:
        return self.tapes[0][1]

    @property
    def sound(self) -> bool:
        return not self.found.faults

    @property
    def names(self) -> str:
        return ", ".join(tape.receiver for tape, _ in self.tapes)


def run(job: Job) -> Result:
    """Compare and check all tapes."""
    result = Result("order")
    variants = _variants(job)
    scans = {segment: variant.found for each in variants.values() for variant in each for _, segment in variant.tapes}
    found = _compare(job, variants)
    found += _links(job, scans)
    _rank(result, found)
    _count(job, result, variants)
    _tails(job, result, scans)
    _unlisted(job, result, scans)
    result.sentence = _sentence(job, result)
    return result


def _variants(job: Job) -> dict[SegmentPosition, list[Variant]]:
    """Hash every segment, then scan one of each variant."""
    having = [
        (SegmentPosition(stripe, segment.first), tape, segment)
        for stripe, tapes in job.inputs.stripes.items()
        for tape in tapes
        for segment in tape.segments
    ]
    finished = [segment for _, _, segment in having if not segment.active]
    hashed = job.each("order: hashing segments", partial(digest, data=job.options.bytes), finished)
    digests: dict[SegmentFile, Digest | None] = dict(zip(finished, hashed, strict=True))
    grouped: dict[tuple[SegmentPosition, object], list[tuple[Recorded, SegmentFile]]] = {}
    for place, tape, segment in having:
        # A segment that is growing or lacks a file never equals another.
        grouped.setdefault((place, digests.get(segment) or segment), []).append((tape, segment))
    chosen = [members[0][1] for members in grouped.values()]
    scans = job.each("order: checking frames", partial(scan, data=job.options.bytes), chosen)
    found: dict[SegmentPosition, list[Variant]] = {}
    for ((place, _), members), scanned in zip(grouped.items(), scans, strict=True):
        found.setdefault(place, []).append(Variant(members, scanned, len(members)))
    _vote(job, [each for each in found.values() if len(each) > 1 and any(variant.one.active for variant in each)])
    return dict(sorted(found.items()))


def _vote(job: Job, places: Sequence[Sequence[Variant]]) -> None:
    """Count votes. Growing segments differ in length: they agree if their chains agree where the shortest one ends."""
    units = [
        (variant.one, min(each.found.last_slot for each in variants)) for variants in places for variant in variants
    ]
    chains = iter(job.each("order: comparing chains", _chain_at, units))
    for variants in places:
        told = [next(chains) for _ in variants]
        for variant, chain in zip(variants, told, strict=True):
            variant.votes = sum(len(other.tapes) for other, its in zip(variants, told, strict=True) if its == chain)


def _chain_at(unit: tuple[SegmentFile, int]) -> bytes:
    """Return the chain hash after the last frame up to a slot."""
    segment, slot = unit
    try:
        index = read_index(segment.index_path)
    except (TapeError, OSError):
        return b""
    upto = int(np.searchsorted(index.lines["slot"], slot, "right"))
    return bytes(index.lines["chain"][upto - 1]) if upto else index.header.tip.chain


def reference(variants: Sequence[Variant]) -> Variant:
    """Return the reference of a segment: valid first, then the variant on the majority of tapes, then the longest."""
    return max(variants, key=lambda each: (each.sound, each.votes, not each.one.active, each.found.frames))


def _compare(job: Job, variants: dict[SegmentPosition, list[Variant]]) -> list[Finding]:
    """Return the faults of each segment that has several variants or is not valid."""
    pairs: list[tuple[SegmentPosition, Variant, Variant]] = []
    found: list[Finding] = []
    for place, each in variants.items():
        right = reference(each)
        if not right.sound:
            found += _alone(place, right)
        pairs += [(place, variant, right) for variant in each if variant is not right]
    units = [(variant.one, right.one) for _, variant, right in pairs]
    explained = job.each("order: comparing what differs", lambda pair: explain(*pair), units)
    for (place, variant, right), differences in zip(pairs, explained, strict=True):
        if not differences and not variant.sound:
            found += _alone(place, variant)
        undecided = variant.sound and right.sound and variant.votes == right.votes
        for difference in differences:
            found += _findings(place, variant, difference, right if undecided else None)
    return found


def _alone(place: SegmentPosition, variant: Variant) -> Iterator[Finding]:
    try:
        index = read_index(variant.one.index_path)
    except (TapeError, OSError):
        index = None
    for difference in alone(variant.found, index):
        yield from _findings(place, variant, difference, None)


def _findings(
    place: SegmentPosition, variant: Variant, told: SegmentDifference, undecided: Variant | None
) -> Iterator[Finding]:
    for tape, segment in variant.tapes:
        who, says = tape.receiver, told.says
        if undecided is not None:
            who = f"{tape.receiver} or {undecided.names}"
            says += "; no majority decides which of them is wrong"
        file = segment.index_path if told.in_index else segment.data_path
        at = told.slot, told.sequence, told.record, told.offset
        yield Finding(told.kind, who, says, place.stripe, str(file), place.first, *at)


def _links(job: Job, scans: dict[SegmentFile, Scan]) -> Iterator[Finding]:
    """Check that the segments of each tape are consecutive and have the same borders as the others."""
    for stripe, tapes in job.inputs.stripes.items():
        borders = Counter(segment.first for tape in tapes for segment in tape.segments)
        for tape in tapes:
            before: Scan | None = None
            for segment in tape.segments:
                found = scans[segment]
                yield from _link(stripe, tape, segment, before, found)
                if before is not None and borders[segment.first] == 1 and _others_pass(tapes, tape, segment.first):
                    says = f"a segment begins at sequence {segment.first}, and none of the others' does"
                    yield _at(stripe, tape, segment, "other borders", says)
                before = found


def _link(stripe: int, tape: Recorded, segment: SegmentFile, before: Scan | None, found: Scan) -> Iterator[Finding]:
    if before is None or any(fault.kind == "index damaged" for fault in before.faults):
        return
    if before.next_sequence != segment.first:
        upto = segment.first - 1
        kind = "missing segment" if before.next_sequence < segment.first else "duplicate"
        says = f"sequences {before.next_sequence} to {upto} are missing, before the segment of {segment.first}"
        if kind == "duplicate":
            says = f"sequences from {segment.first} on are duplicated"
        yield replace(_at(stripe, tape, segment, kind, says), sequence=min(before.next_sequence, segment.first))
    elif found.chain_before and before.chain != found.chain_before:
        yield _at(stripe, tape, segment, "chain broken", "the segment does not continue the previous segment's hash")


def _at(stripe: int, tape: Recorded, segment: SegmentFile, kind: str, says: str) -> Finding:
    path = str(segment.index_path)
    return Finding(kind, tape.receiver, says, stripe, path, segment.first, sequence=segment.first)


def _others_pass(tapes: Sequence[Recorded], tape: Recorded, sequence: int) -> bool:
    """Return True if another tape has the sequence in the middle of a segment."""
    return any(each.segments[0].first < sequence < each.segments[-1].first for each in tapes if each is not tape)


def _rank(result: Result, found: Sequence[Finding]) -> None:
    """Sort findings by position; turn those that follow from an earlier fault of the same tape into remarks."""
    ordered = sorted(found, key=lambda each: (each.stripe or 0, each.subject, each.sequence or each.segment or 0))
    faulty: dict[tuple[int | None, str], Finding] = {}
    follow: Counter[tuple[int | None, str]] = Counter()
    for each in ordered:
        key = (each.stripe, each.subject)
        if each.kind in _KNOCK_ON and key in faulty:
            follow[key] += 1
            continue
        faulty.setdefault(key, each)
        result.findings.append(each)
    for (stripe, subject), count in follow.items():
        result.remarks.append(
            f"{subject}, stripe {stripe}: {count} later segments have other hashes or borders, as follows from the "
            "first fault"
        )


def _count(job: Job, result: Result, variants: dict[SegmentPosition, list[Variant]]) -> None:
    scanned = [(variant.found, len(variant.tapes)) for each in variants.values() for variant in each]
    result.looked_at = {
        "tapes": sum(len(tapes) for tapes in job.inputs.stripes.values()),
        "segments": sum(times for _, times in scanned),
        "frames": sum(found.frames * times for found, times in scanned),
        "records": sum(found.records * times for found, times in scanned),
        "bytes": sum(found.size * times for found, times in scanned),
    }


def _tails(job: Job, result: Result, scans: dict[SegmentFile, Scan]) -> None:
    """Add remarks on tapes that begin later or end earlier. Retention and a growing tape are not faults."""
    for stripe, tapes in job.inputs.stripes.items():
        first = min(tape.segments[0].first for tape in tapes)
        ends = {tape.receiver: scans[tape.segments[-1]].next_sequence - 1 for tape in tapes}
        last = max(ends.values())
        for tape in tapes:
            who = f"{tape.receiver}, stripe {stripe}"
            if tape.segments[0].first > first:
                result.remarks.append(f"{who}: begins at sequence {tape.segments[0].first:,} after retention")
            if ends[tape.receiver] < last:
                why = "it may still grow" if tape.segments[-1].active else "a later segment is missing"
                result.remarks.append(
                    f"{who}: ends at sequence {ends[tape.receiver]:,}, {last - ends[tape.receiver]:,} records before "
                    f"the longest; not a fault in itself, {why}"
                )
            if torn := scans[tape.segments[-1]].torn:
                result.remarks.append(f"{who}: torn tail, {torn}: an unfinished or interrupted write, not released")


def _unlisted(job: Job, result: Result, scans: dict[SegmentFile, Scan]) -> None:
    """Name sources on the tapes that the network file does not have: a receiver's file lists them, or did."""
    network = job.inputs.network
    if network is None:
        return
    for stripe, tapes in job.inputs.stripes.items():
        found = {source for tape in tapes for segment in tape.segments for source in scans[segment].sources}
        unlisted = sorted(found - (ring_config(network, stripe).sources or found))
        result.remarks += [
            f"stripe {stripe}: source {source} is on the tapes and not in the network file" for source in unlisted
        ]


def _sentence(job: Job, result: Result) -> str:
    looked = result.looked_at
    if result.findings:
        first = result.findings[0]
        whose = ", ".join(dict.fromkeys(each.subject for each in result.findings))
        more = f" and {len(result.findings) - 1} more" if len(result.findings) > 1 else ""
        return f"The tapes differ: {first.kind} at {first.subject}, {first.says}{more} (on {whose})."
    how = "byte for byte, and every hash, stamp and link is right" if job.options.bytes else "by their indexes alone"
    tapes = f"{looked['tapes']} tapes are identical" if looked["tapes"] > 1 else "One tape is complete"
    return f"{tapes}, {how}: {looked['frames']:,} frames, {looked['records']:,} records in all."


ORDER = Audit("order", "Are all tapes identical, complete and consistent with their hashes?", run)

"""Test for differences: receivers and regions by release times, sources and their regions by waiting times.

Each test covers one hypothesis about one subject. All tests of an audit are corrected together. A fault is reported
once: for a region if all of its members are at fault, otherwise for the members.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from levelcast.pipeline.audit.release_stats import ReleaseCounts
from levelcast.pipeline.audit.source_wait import Waits, beyond_chance
from levelcast.pipeline.audit.stats import Counts, Effect, Floats, effect, holm


@dataclass(slots=True)
class Test:
    """One hypothesis: a subject against the others."""

    kind: str
    """receiver, region, source or source region"""
    subject: str
    members: tuple[str, ...]
    effect: Effect
    threshold: float
    p: float = 1.0
    """p value after correction for all tests."""

    def found(self, level: float) -> bool:
        return self.p < level and abs(self.effect.mean) > self.threshold

    @property
    def side(self) -> int:
        return 1 if self.effect.mean > 0 else -1


def lower_third(means: Floats) -> Floats:
    """Return the lower third of each row: an on-time value as long as a third of the members are on time."""
    ordered = np.sort(means, axis=1)  # missing values sort last
    known = (~np.isnan(means)).sum(axis=1)
    place = np.maximum(known - 1, 0) // 3
    chosen: Floats = ordered[np.arange(len(means)), place]
    return chosen


def middle(means: Floats) -> Floats:
    """Return the median of each row, or 0 (the expected value) with fewer than three values."""
    known = (~np.isnan(means)).sum(axis=1)
    found = np.zeros(len(means))
    enough = known >= 3
    found[enough] = np.nanmedian(means[enough], axis=1)
    return found


def release_tests(found: ReleaseCounts, regions: Mapping[str, str], threshold: float, level: float) -> list[Test]:
    """(d): test every receiver against the others, and every region against the other regions."""
    ready = found.compared > 0
    counts = found.compared[ready]
    sane = [number for number in range(len(found.receivers)) if not found.early[number, 0]]
    means = found.delays[ready][:, sane] / np.maximum(counts, 1)[:, None]
    names = [found.receivers[number] for number in sane]
    if not len(counts):
        return []
    tests: list[Test] = []
    for kind, groups in (
        ("receiver", {name: [i] for i, name in enumerate(names)}),
        ("region", _by_region(names, regions)),
    ):
        if len(groups) > 1:
            together = np.stack([_mean(means[:, places]) for places in groups.values()], axis=1)
            difference = together - lower_third(together)[:, None]
            number = np.broadcast_to(counts[:, None], difference.shape)
            tests += _tests(kind, groups, names, difference, number, threshold, level)
    return tests


def _by_region(names: Sequence[str], regions: Mapping[str, str]) -> dict[str, list[int]]:
    groups: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        if name in regions:
            groups.setdefault(regions[name], []).append(i)
    return groups


def _tests(
    kind: str,
    groups: Mapping[str, Sequence[int]],
    names: Sequence[str],
    difference: Floats,
    number: Counts,
    threshold: float,
    level: float,
) -> list[Test]:
    """Test each group (column): its difference to the others by window, with these counts of cases."""
    tests = []
    for column, (subject, places) in enumerate(groups.items()):
        known = ~np.isnan(difference[:, column])
        weights = number[known, column]
        told = effect(difference[known, column] * weights, weights, threshold, level)
        if told is not None:
            tests.append(Test(kind, subject, tuple(names[i] for i in places), told, threshold))
    return tests


def _mean(columns: Floats) -> Floats:
    known = ~np.isnan(columns)
    total = np.where(known, columns, 0.0).sum(axis=1)
    count = known.sum(axis=1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def wait_tests(
    waits: Mapping[str, Waits],
    regions: Mapping[str, str],
    threshold: float,
    level: float,
) -> list[Test]:
    """(e): test each source's wait beyond the expected wait against the others; the same for regions of sources."""
    names = [name for name in waits if name in regions and waits[name].beyond is not None]
    if not names:
        return []
    counts = np.stack([waits[name].counts for name in names], axis=1)
    sums = np.stack(beyond_chance([waits[name] for name in names]), axis=1)
    tests: list[Test] = []
    groups = _by_region(names, regions)
    kinds = [("source", {name: [i] for i, name in enumerate(names)})]
    if len(groups) > 1:
        kinds.append(("source region", groups))
    for kind, chosen in kinds:
        total, number = (
            np.stack([values[:, places].sum(axis=1) for places in chosen.values()], axis=1) for values in (sums, counts)
        )
        means = np.where(number > 0, total / np.maximum(number, 1), np.nan)
        tests += _tests(kind, chosen, names, means - middle(means)[:, None], number, threshold, level)
    return tests


def named(tests: Sequence[Test], level: float) -> list[Test]:
    """Correct all tests together. Report a fault once: for a region if all its members are at fault, else for them."""
    for test, p in zip(tests, holm([test.effect.p for test in tests]), strict=True):
        test.p = p
    found = [test for test in tests if test.found(level)]
    singles = {(test.kind, test.subject, test.side) for test in found}
    out: list[Test] = []
    folded: set[tuple[str, str, int]] = set()
    for test in found:
        if test.kind not in ("region", "source region"):
            continue
        kind = "receiver" if test.kind == "region" else "source"
        members = {(kind, name, test.side) for name in test.members}
        if len(members) > 1 and (members <= singles or not members & singles):
            out.append(test)
            folded |= members
    out += [
        test for test in found
        if test.kind in ("receiver", "source") and (test.kind, test.subject, test.side) not in folded
    ]  # fmt: skip
    return out

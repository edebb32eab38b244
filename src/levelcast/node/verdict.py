"""Evaluate a run: compare the tapes, and compute the release skew from the release logs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from levelcast.storage.append_file import TapeError
from levelcast.storage.release_log import Nanoseconds, common_slots, is_late, lateness_ns, read_releases, spreads_ns
from levelcast.storage.tape.compare import compare_checked, verify
from levelcast.units import quantiles


@dataclass(frozen=True, slots=True)
class ReceiverFigures:
    """Results from one receiver's directory. They exclude releases that a killed process did not log."""

    name: str
    records: int
    frames: int
    chain: str
    late: int
    """Records that were released after timestamp + Δ_A."""
    behind_ns: tuple[int, int, int]
    """Delay of releases after the scheduled time: median, p99, maximum."""


@dataclass(slots=True)
class ClusterVerdict:
    """Result of the comparison; `problems` is empty if the tapes are identical and valid."""

    receivers: list[ReceiverFigures] = field(default_factory=list)
    spread_ns: tuple[int, int, int] = (0, 0, 0)
    """From the first to the last receiver's release of a slot, over all slots: median, p99, maximum."""
    problems: list[str] = field(default_factory=list)

    @property
    def identical(self) -> bool:
        return not self.problems


def judge(data: Path, names: Sequence[str], problems: Sequence[str] = ()) -> ClusterVerdict:
    """Check the directories of the receivers; `problems` are added to those found."""
    verdict = ClusterVerdict(problems=list(problems))
    directories = [data / name for name in names]
    logs, checks = [], []
    try:
        for name, directory in zip(names, directories, strict=True):
            found = verify(directory)
            checks.append(found)
            if found.fault is not None:
                verdict.problems.append(f"the tape of {name} is not valid: {found.fault}")
            log = read_releases(directory / "releases")
            logs.append(log)
            late = is_late(log)
            behind = three_quantiles(lateness_ns(log))
            verdict.receivers.append(
                ReceiverFigures(
                    name, found.records, found.frames, found.chain.hex(), int(log["records"][late].sum()), behind
                )
            )
        for difference in compare_checked(checks):
            pair = f"the tapes of {difference.one.name} and {difference.other.name}"
            if difference.how:
                verdict.problems.append(f"{pair} differ from slot {difference.slot} on: {difference.how}")
            elif difference.remark:
                verdict.problems.append(f"{pair} have different lengths: {difference.remark}")
    except TapeError as error:
        verdict.problems.append(str(error))
    verdict.spread_ns = three_quantiles(spreads_ns(common_slots(logs)))
    return verdict


def three_quantiles(values: Nanoseconds) -> tuple[int, int, int]:
    """Return median, p99 and maximum; zeros without values."""
    median, p99, largest = map(int, quantiles(values, (0.5, 0.99, 1.0)))
    return median, p99, largest

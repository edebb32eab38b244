"""Evaluate a run: compare the tapes, and compute the release skew from the release logs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from levelcast.network.roles import FLOOR
from levelcast.node.cluster import Cluster
from levelcast.records import RTYPE_TRADE, TRADE, RecordArray
from levelcast.storage.append_file import TapeError
from levelcast.storage.release_log import (
    Nanoseconds,
    common_slots,
    first_entries,
    is_late,
    lateness_ns,
    read_together,
    scheduling_ns,
    spreads_ns,
)
from levelcast.storage.tape.compare import compare_checked, verify
from levelcast.storage.tape.directory import segment_files, tape_directory
from levelcast.storage.tape.reader import TapeReader
from levelcast.units import quantiles


@dataclass(frozen=True, slots=True)
class ReceiverFigures:
    """Results from one receiver's directory. They exclude releases that a killed process did not log."""

    name: str
    records: int
    frames: int
    chain: str
    late: int
    """Records that were late by protocol (`levelcast.runtime.lateness`)."""
    behind_ns: tuple[int, int, int]
    """Delay of releases after the scheduled time: median, p99, maximum."""
    delay_ns: tuple[int, int, int] = (0, 0, 0)
    """Scheduling delay: median, p99, maximum."""


@dataclass(slots=True)
class ClusterVerdict:
    """Result of the comparison; `problems` is empty if the tapes are identical and valid.

    `unfinished` has the reasons why a run was stopped before its end, such as nodes that started too slowly. The tapes
    of such a run may be short, which is not an error in them.
    """

    receivers: list[ReceiverFigures] = field(default_factory=list)
    spread_ns: tuple[int, int, int] = (0, 0, 0)
    """From the first to the last receiver's release of a slot, over all slots: median, p99, maximum."""
    latency_ns: tuple[int, int, int] | None = None
    """From a trade on its floor to its release, over all receivers: median, p99, maximum. None: floors not checked."""
    problems: list[str] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)

    @property
    def identical(self) -> bool:
        return not self.problems and not self.unfinished


@dataclass(frozen=True, slots=True)
class TapeTrades:
    """The trades on a tape, field by field."""

    slots: npt.NDArray[np.uint64]
    times_ns: Nanoseconds
    publishers: npt.NDArray[np.uint16]
    numbers: npt.NDArray[np.int64]
    """Each floor counts its trades from 1."""


def judge(
    data: Path, names: Sequence[str], problems: Sequence[str] = (), unfinished: Sequence[str] = ()
) -> ClusterVerdict:
    """Check the directories of the receivers; `problems` are added to those found.

    With reasons why the run is `unfinished`, missing and short tapes are further ones.
    """
    verdict = ClusterVerdict(problems=list(problems), unfinished=list(unfinished))
    short = verdict.unfinished if unfinished else verdict.problems
    if unfinished:
        verdict.unfinished += [f"{name} has no tape yet" for name in names if not has_tape(data / name)]
        names = [name for name in names if has_tape(data / name)]
        if not names:
            return verdict
    directories = [data / name for name in names]
    logs: dict[str, RecordArray] = {}
    checks = []
    try:
        logs = read_together({name: directory / "releases" for name, directory in zip(names, directories, strict=True)})
        for (name, log), directory in zip(logs.items(), directories, strict=True):
            found = verify(directory)
            checks.append(found)
            if found.fault is not None:
                verdict.problems.append(f"the tape of {name} is not valid: {found.fault}")
            late = int(log["records"][is_late(log)].sum())
            behind, delay = three_quantiles(lateness_ns(log)), three_quantiles(scheduling_ns(log))
            chain = found.chain.hex()
            verdict.receivers.append(ReceiverFigures(name, found.records, found.frames, chain, late, behind, delay))
        for difference in compare_checked(checks):
            pair = f"the tapes of {difference.one.name} and {difference.other.name}"
            if difference.how:
                verdict.problems.append(f"{pair} differ from slot {difference.slot} on: {difference.how}")
            elif difference.remark:
                short.append(f"{pair} have different lengths: {difference.remark}")
    except TapeError as error:
        verdict.problems.append(str(error))
    verdict.spread_ns = three_quantiles(spreads_ns(common_slots(list(logs.values()))))
    return verdict


def has_tape(directory: Path) -> bool:
    """Return whether a receiver has begun its tape and its release log."""
    tape = tape_directory(directory)
    return tape.is_dir() and bool(segment_files(tape)) and any((directory / "releases").glob("*"))


def three_quantiles(values: Nanoseconds) -> tuple[int, int, int]:
    """Return median, p99 and maximum; zeros without values."""
    median, p99, largest = map(int, quantiles(values, (0.5, 0.99, 1.0)))
    return median, p99, largest


def read_trades(directory: Path, time_field: str) -> TapeTrades:
    """Read the trades of a tape; `time_field` is the field with their time."""
    slots, times, publishers, numbers = [], [], [], []
    for frame in TapeReader(tape_directory(directory)).frames():
        for batch in frame.batches():
            if batch.kind.rtype == RTYPE_TRADE:
                records = batch.records
                slots.append(np.full(len(records), frame.line.slot, np.uint64))
                times.append(records[time_field].astype(np.int64))
                publishers.append(records["publisher_id"].copy())
                numbers.append(records["venue_sequence"].astype(np.int64))
    if not slots:
        nothing = np.zeros(0, np.int64)
        return TapeTrades(nothing.astype(np.uint64), nothing, nothing.astype(np.uint16), nothing)
    return TapeTrades(*(np.concatenate(parts) for parts in (slots, times, publishers, numbers)))


def latencies_ns(log: RecordArray, trades: TapeTrades) -> Nanoseconds:
    """Return the time from each trade with a release in the log to that release."""
    entries = first_entries(log)
    slots = entries["slot"]
    at = np.searchsorted(slots, trades.slots)
    known = at < len(slots)
    known[known] = slots[at[known]] == trades.slots[known]
    released = entries["released_ns"].astype(np.int64)
    latencies: Nanoseconds = released[at[known]] - trades.times_ns[known]
    return latencies


def floor_problem(numbers: npt.NDArray[np.int64], published: int, unsafe: int, *, restarted: bool) -> str:
    """Return an error in a floor's trades on the tape, found by their numbers; "" for none.

    `unsafe` trades may be missing: they are in packets that were not witnessed when the floor was stopped. A floor that
    was restarted skips numbers, and counts only the trades since then.
    """
    steps = np.diff(numbers)
    if np.any(steps == 0) or len(np.unique(numbers)) < len(numbers):
        return "has a trade on the tape twice"
    if np.any(steps < 0):
        return "has trades on the tape out of order"
    missing = published - len(numbers)
    if missing > unsafe:
        return f"has published {published:,} trades; {missing:,} of them are not on the tape"
    if not restarted and (missing < 0 or not np.array_equal(numbers, np.arange(1, len(numbers) + 1))):
        return "has trades on the tape that differ from those it published"
    return ""


def check_floors(cluster: Cluster, stripe: str, verdict: ClusterVerdict) -> None:
    """Add a problem unless the tape has the trades of its floors: each once, in order, and no others. Add the latency.

    A floor that had run before, or was restarted, has earlier trades on the tape.
    """
    floors = [member for member in cluster.of_role(FLOOR) if member.place.stripe == stripe]
    names = [member.place.part for member in cluster.releasing if member.place.stripe == stripe]
    if verdict.unfinished and not has_tape(cluster.data / names[0]):
        return
    try:
        trades = read_trades(cluster.data / names[0], "ts_event")
        logs = read_together(
            {name: cluster.data / name / "releases" for name in names if has_tape(cluster.data / name)}
        )
        verdict.latency_ns = three_quantiles(np.concatenate([latencies_ns(log, trades) for log in logs.values()]))
    except TapeError:
        return  # `judge` has reported it
    most = cluster.network.carriage.packet_bytes // TRADE.itemsize
    known = {floor.publisher: floor.name for floor in cluster.network.floors if floor.stripe == stripe}
    for publisher in sorted(set(np.unique(trades.publishers).tolist()) - set(known)):
        count = int(np.count_nonzero(trades.publishers == publisher))
        verdict.problems.append(f"the tape has {count:,} trades of publisher {publisher}, which the network file lacks")
    for member in floors:
        floor = member.place.floor
        assert floor is not None
        numbers = trades.numbers[trades.publishers == floor.publisher]
        published = member.status.get("published", 0)
        unsafe = published if verdict.unfinished else member.status.get("packets_unwitnessed", 0) * most
        earlier = member.resumed or member.kills > 0
        if problem := floor_problem(numbers, published, unsafe, restarted=earlier):
            verdict.problems.append(f"{floor.name} {problem}")

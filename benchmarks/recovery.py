"""What a fault did to the releases, from tapes and release logs alone: nothing here starts a process.

- An *era* is what one ring has put on the tape. Within an era timestamp − slot·τ is constant (rule 1), and each ring
  has its own start time, so the tape itself tells where a new ring began.
- A fault is *over* with the first release, at any receiver that it did not strike, of a slot of the next era.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from levelcast.records import RecordArray
from levelcast.storage.release_log import LATE
from levelcast.storage.tape.directory import tape_directory
from levelcast.storage.tape.reader import TapeReader
from levelcast.timing.rules import Timing

Numbers = npt.NDArray[np.int64]


def token_site(ring: Mapping[str, Any], now: int) -> int | None:
    """Whose slot it is at `now`, by the schedule in a receiver's status (rule 1); None before the first slot."""
    passed = (now - int(ring["start_ns"])) // int(ring["slot_ns"])
    members: Sequence[int] = ring["members"]
    return members[passed % len(members)] if passed >= 0 else None


# -- what the tape says ------------------------------------------------------------------------------------


class Era(NamedTuple):
    """The slots of one ring that carried records: the first of them and its timestamp."""

    first_slot: int
    first_ns: int


def eras_of(slots: Numbers, timestamps_ns: Numbers, slot_ns: int) -> list[Era]:
    """The eras of a tape with these frames, oldest first."""
    if not len(slots):
        return []
    begins = np.flatnonzero(np.diff(timestamps_ns - slots * slot_ns)) + 1
    return [Era(int(slots[i]), int(timestamps_ns[i])) for i in (0, *begins)]


@dataclass(slots=True)
class Content:
    """What a tape holds, in its order."""

    slots: Numbers
    timestamps_ns: Numbers
    packets: dict[int, Numbers]
    """By source: (incarnation, number) of its packets."""
    trade_ids: dict[int, Numbers]
    """By publisher."""
    records: int = 0


def read_content(directory: Path) -> Content:
    """Read a receiver's whole tape."""
    frames: list[tuple[int, int]] = []
    packets: dict[int, list[tuple[int, int]]] = {}
    trades: list[RecordArray] = []
    records = 0
    for frame in TapeReader(tape_directory(directory)).frames():
        frames.append((frame.line.slot, frame.line.timestamp_ns))
        records += frame.line.records
        for source, incarnation, number, *_ in frame.packets():
            packets.setdefault(source, []).append((incarnation, number))
        trades += [
            batch.records[["publisher_id", "trade_id"]].copy()
            for batch in frame.batches()
            if batch.kind.name == "trade"
        ]
    ids: dict[int, Numbers] = {}
    if trades:
        every = np.concatenate(trades)
        for publisher in np.unique(every["publisher_id"]).tolist():
            ids[publisher] = every["trade_id"][every["publisher_id"] == publisher].astype(np.int64)
    places = np.array(frames, np.int64).reshape(-1, 2)
    numbers = {source: np.array(each, np.int64) for source, each in packets.items()}
    return Content(places[:, 0], places[:, 1], numbers, ids, records)


@dataclass(frozen=True, slots=True)
class FloorClaim:
    """What a floor says of itself at its end."""

    name: str
    source: int
    publisher: int
    witnessed: int
    """Packets up to this number are witnessed to it."""
    unwitnessed: int
    """This many more were sent, and may be on the tape or not."""
    starts: int = 1


def floor_problems(content: Content, claim: FloorClaim) -> list[str]:
    """What is lost, doubled, invented or out of order of one floor's packets and trades; nothing if all is well."""
    packets = content.packets.get(claim.source, np.zeros((0, 2), np.int64))
    numbers = packets[:, 1]
    found = len(numbers)
    problems = []
    if len(np.unique(packets[:, 0])) > 1:
        problems.append(f"{claim.name} is on the tape in several incarnations, and it never lost its disk")
    if not np.array_equal(numbers, np.arange(1, found + 1)):
        at = int(np.flatnonzero(numbers != np.arange(1, found + 1))[0])
        problems.append(f"{claim.name}: where its packet {at + 1} should be, the tape has packet {numbers[at]}")
    if found < claim.witnessed:
        problems.append(f"{claim.name}: {claim.witnessed} packets are witnessed and {found} are on the tape")
    if found > claim.witnessed + claim.unwitnessed:
        sent = claim.witnessed + claim.unwitnessed
        problems.append(f"{claim.name}: {sent} packets were sent and {found} are on the tape")
    ids = content.trade_ids.get(claim.publisher, np.zeros(0, np.int64))
    steps = np.diff(ids, prepend=0)
    if np.any(steps < 1):
        problems.append(f"{claim.name}: trade {ids[int(np.argmax(steps < 1))]} is duplicated or out of order")
    # A floor that is started again leaves out the ids that its last packets may have used.
    if (jumps := int(np.count_nonzero(steps > 1))) >= claim.starts:
        problems.append(f"{claim.name}: trade ids jump {jumps} times in {claim.starts} starts")
    return problems


# -- what the release logs say -----------------------------------------------------------------------------


@dataclass(slots=True)
class Fault:
    """One fault: what was done to whom, when (wall clock), and when it was undone."""

    kind: str
    how: str
    name: str
    role: str
    at_ns: int
    undone_ns: int = 0
    start_ns: int = 0
    """From the end of the fault until a node that was started again said its first word."""
    over_ns: int | None = None
    """From the fault to the first release of a slot of the next ring; None if no ring followed."""
    silence_ns: int = 0
    """The longest that no receiver released anything meanwhile."""
    rings: int = 0
    """Rings that began between this fault and the next."""
    back_ns: int | None = None
    """From the end of the fault to the struck receiver's first release on time."""


Logs = Mapping[str, RecordArray]


def measure(faults: Sequence[Fault], eras: Sequence[Era], logs: Logs) -> None:
    """Fill in what each fault did, from the eras of the tape and the release logs of the receivers."""
    for i, fault in enumerate(faults):
        until_ns = faults[i + 1].at_ns if i + 1 < len(faults) else np.iinfo(np.int64).max
        rings = [era for era in eras if fault.at_ns < era.first_ns < until_ns]
        fault.rings = len(rings)
        others = [log for name, log in logs.items() if name != fault.name]
        if rings:
            _measure_recovery(fault, rings[0], others)
        if fault.name in logs:
            log = logs[fault.name]
            on_time = log["released_ns"][(log["flags"] & LATE == 0) & (log["released_ns"] > fault.undone_ns)]
            if len(on_time):
                fault.back_ns = int(on_time.min()) - fault.undone_ns


def _measure_recovery(fault: Fault, era: Era, others: Sequence[RecordArray]) -> None:
    instants = np.sort(np.concatenate([log["released_ns"] for log in others]).astype(np.int64))
    first = [log["released_ns"][log["slot"] >= era.first_slot] for log in others]
    over_ns = min((int(each.min()) for each in first if len(each)), default=None)
    if over_ns is None:
        return
    fault.over_ns = over_ns - fault.at_ns
    before = int(np.searchsorted(instants, fault.at_ns)) - 1
    gaps = np.diff(instants[max(before, 0) : int(np.searchsorted(instants, over_ns)) + 1])
    fault.silence_ns = int(gaps.max(initial=0))


def late_share(faults: Sequence[Fault], logs: Logs) -> tuple[float, float]:
    """The share of releases that were late: of all, and without those of a receiver that had been struck and was not
    back yet."""
    late = total = away_late = away_total = 0
    for name, log in logs.items():
        is_late = log["flags"] & LATE != 0
        away = np.zeros(len(log), bool)
        for fault in faults:
            if fault.name == name:
                end_ns = fault.undone_ns + (fault.back_ns or 0)
                away |= (log["released_ns"] >= fault.at_ns) & (log["released_ns"] < end_ns)
        late, total = late + int(is_late.sum()), total + len(log)
        away_late, away_total = away_late + int((is_late & away).sum()), away_total + int(away.sum())
    return late / max(total, 1), (late - away_late) / max(total - away_total, 1)


# -- what the timing implies -------------------------------------------------------------------------------


class Term(NamedTuple):
    """One wait between a fault and the first release of the next ring."""

    term: str
    ns: int
    rule: str


def implied(timing: Timing, members: int, *, at_token_site: bool) -> list[Term]:
    """The waits, one after the other, when a receiver dies and nothing is lost or slow. The first one is its mean."""
    round_ns = members * timing.slot_ns
    if at_token_site:
        slot = Term("its next slot", round_ns - timing.slot_ns // 2, "m·τ − τ/2: a fault within its slot, on average")
    else:
        slot = Term("its next slot", round_ns // 2, "m·τ/2: a fault at any time, on average")
    return [
        slot,
        Term("its token counts as missing", timing.late_ns, "δ_N (rule 5)"),
        Term(
            "requests without a reply",
            timing.attempts * timing.request_ns,
            "k_r·τ_r, then a fault is reported (rule 5)",
        ),
        Term("the others join", timing.join_ns, "T_join: the server waits for the failed receiver (rule 12)"),
        Term("the ring starts", timing.lead_ns, "lead until T_g (rule 12)"),
        Term("its first slot is held", timing.hold_ns, "Δ_A: recovery, w witnesses, their reception (rules 6, 7)"),
    ]

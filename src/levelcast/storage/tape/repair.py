"""Restore a damaged tape from the tape of another receiver, whose files are the same bytes.

- Valid segments stay as they are. Damaged and missing ones are taken from the other tape, which must be valid there and
  must continue the chain of the segments before. A tape that contradicts the intact frames of this one, or the
  checkpoint of its journal, is refused.
- The tape ends where it ended before: at the last slot of which its index, its data, its release log or its journal has
  a trace. The node itself requests later frames from the ring. Without a trace everything is taken.
- A file is written completely under a temporary name, on the device, before it gets its name. The damaged file keeps a
  second name, `NAME.damaged-1`. So a crash at any time leaves a tape that is damaged or restored, and loses nothing;
  the command may be repeated.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from levelcast.protocol.effects import Checkpoint
from levelcast.records import dbn_metadata
from levelcast.storage.append_file import (
    AppendFile,
    TapeError,
    keep_damaged,
    lock_directory,
    remove,
    remove_unfinished,
    sync_directory,
)
from levelcast.storage.journal.file import checkpoint_of
from levelcast.storage.release_log import SUFFIX as RELEASES
from levelcast.storage.release_log import read_file
from levelcast.storage.tape.compare import TapeCheck, verify
from levelcast.storage.tape.directory import (
    ACTIVE,
    DATA,
    INDEX,
    SegmentFile,
    list_segments,
    segment_files,
    segment_path,
    tape_directory,
)
from levelcast.storage.tape.index import Index, IndexEntry, intact_entries
from levelcast.storage.tape.segment_check import examine
from levelcast.storage.tape.start_check import damage_of, read_named_index
from levelcast.storage.tape.writer import finish_retention


@dataclass(slots=True)
class Repaired:
    """Result of a repair; `kept` has the new names of the damaged files by their old ones."""

    tape: Path
    other: Path
    restored: list[Path] = field(default_factory=list)
    kept: dict[Path, Path] = field(default_factory=dict)
    check: TapeCheck = field(default_factory=lambda: TapeCheck(Path()))


class _End(NamedTuple):
    """State of the order after a segment."""

    next_sequence: int
    slot: int
    chain: bytes


@dataclass(slots=True)
class _Plan:
    """The contents of the files to write, and the last end of the tape."""

    files: dict[Path, bytes] = field(default_factory=dict)
    segments: set[int] = field(default_factory=set)
    end: _End | None = None


def repair(directory: Path, other: Path) -> Repaired:
    """Restore the tape of a stopped receiver from another one's. Raise TapeError, and change nothing, if it cannot."""
    tape, source = _own_tape(directory), tape_directory(other)
    if tape.exists() and source.exists() and tape.samefile(source):
        raise TapeError(f"{other}: this is the tape to restore; pass the directory of another receiver with --from")
    theirs = {segment.first: segment for segment in list_segments(source)}
    tape.mkdir(exist_ok=True)
    lock = lock_directory(tape, "tape")
    try:
        finish_retention(tape)
        remove_unfinished(tape)
        plan = _Planner(tape, other, theirs).plan()
        done = Repaired(tape, source)
        _write(tape, plan, done)
    finally:
        os.close(lock)
    done.check = verify(tape, dbn=False)
    if done.check.fault is not None:
        raise TapeError(f"{tape} is still not valid: {done.check.fault}; repair it from another receiver")
    return done


def _own_tape(directory: Path) -> Path:
    """Return the tape in a node's directory, even if it is missing there."""
    if not directory.is_dir():
        raise TapeError(f"{directory}: directory not found; create it to copy a tape into it")
    return directory / "tape" if (directory / "journal").is_dir() else tape_directory(directory)


# -- planning ---------------------------------------------------------------------------------------------


class _Planner:
    """Walk along the chain, segment by segment, and choose between the own and the other tape."""

    def __init__(self, tape: Path, other: Path, theirs: dict[int, SegmentFile]) -> None:
        self._tape = tape
        self._other = other
        self._theirs = theirs
        self._own = segment_files(tape)
        self._node = tape.parent if tape.name == "tape" else None
        self._checkpoint = checkpoint_of(self._node / "journal") if self._node is not None else None
        self._had = self._last_slot()
        self._checked: dict[int, SegmentFile | None] = {}
        self._plan = _Plan()

    def plan(self) -> _Plan:
        """Return the files to write. Raise TapeError if the tapes contradict each other or something is missing."""
        first: int | None = min(self._own, default=min(self._theirs))
        while first is not None:
            mine = self._intact(first)
            end, is_full = self._keep(mine) if mine is not None else self._restore(first)
            self._plan.segments.add(first)
            self._plan.end = end
            first = self._following(end) if is_full else None
        self._check_end()
        return self._plan

    def _following(self, end: _End) -> int | None:
        """Return the next segment, if the tape has one or should have one."""
        following = end.next_sequence
        is_wanted = following in self._own or not self._reaches(end) or not self._has_a_trace
        return following if (following in self._theirs and is_wanted) or self._intact(following) else None

    @property
    def _has_a_trace(self) -> bool:
        return self._had is not None or self._checkpoint is not None

    def _reaches(self, end: _End) -> bool:
        """Return whether a tape with this end has everything that it had before."""
        needs = self._checkpoint
        if self._had is not None and end.slot < self._had:
            return False
        return needs is None or needs.slot <= end.slot or needs.chain == end.chain

    def _is_last(self, first: int) -> bool:
        return all(number <= first for number in self._own)

    def _intact(self, first: int) -> SegmentFile | None:
        """Return an own segment that may stay as it is; a growing one must also be complete."""
        if first not in self._checked:
            self._checked[first] = self._check(first)
        return self._checked[first]

    def _check(self, first: int) -> SegmentFile | None:
        suffixes = self._own.get(first, set())
        if suffixes not in ({DATA, INDEX}, {ACTIVE, INDEX}):
            return None
        segment = SegmentFile(str(self._tape), first, ACTIVE in suffixes)
        if damage_of(segment) is not None:
            return None
        if segment.active:
            index = read_named_index(segment)
            if not self._is_last(first) or examine(index, segment).torn or not self._reaches(_end_of(index)):
                return None
        return segment

    def _keep(self, segment: SegmentFile) -> tuple[_End, bool]:
        """Check that an intact own segment continues the chain, and that the other tape agrees with it."""
        index = read_named_index(segment)
        self._check_follows(index, segment.index_path)
        if (their := self._theirs.get(segment.first)) is not None:
            self._check_agrees(dict(_chains(index)), self._read(their))
        self._check_checkpoint(index)
        return _end_of(index), not segment.active

    def _restore(self, first: int) -> tuple[_End, bool]:
        """Add the files of a segment to the plan, from the other tape and from intact frames after its end."""
        their = self._theirs.get(first)
        if their is None:
            raise TapeError(self._missing(first))
        if (damage := damage_of(their)) is not None:
            raise TapeError(f"{damage}; the other tape is damaged too, pass another receiver with --from")
        theirs = self._read(their)
        self._check_follows(theirs, their.index_path)
        self._check_agrees({entry.slot: entry.chain for entry in self._own_entries(first)}, theirs)
        content = their.data_path.read_bytes()
        index, data = self._cut(first, theirs, content)
        index, data = self._extended(first, index, data)
        self._check_checkpoint(index)
        end, n = _end_of(index), theirs.header.records_per_segment
        is_full = (end.next_sequence - 1) // n > (first - 1) // n
        self._plan.files[segment_path(self._tape, first, INDEX)] = index.content
        self._plan.files[segment_path(self._tape, first, DATA if is_full else ACTIVE)] = data
        return end, is_full

    def _read(self, their: SegmentFile) -> Index:
        try:
            return read_named_index(their)
        except FileNotFoundError:
            raise TapeError(f"{their.index_path}: removed meanwhile; try again") from None

    def _cut(self, first: int, theirs: Index, content: bytes) -> tuple[Index, bytes]:
        """Return their segment up to the last frame that this tape had."""
        count = len(theirs.lines)
        if self._has_a_trace and self._is_last(first):
            upto = max(self._had or 0, self._checkpoint.slot if self._checkpoint is not None else 0)
            count = int(np.searchsorted(theirs.lines["slot"], upto, "right"))
            data = segment_path(self._tape, first, ACTIVE)
            if data.exists():  # frames whose records are there, if not their entries
                ends = theirs.lines["at"] + theirs.lines["bytes"]
                count = max(count, int(np.searchsorted(ends, data.stat().st_size, "right")))
        index = _first_entries(theirs, count)
        return index, content[: _data_end(index)]

    def _extended(self, first: int, index: Index, data: bytes) -> tuple[Index, bytes]:
        """Add own frames after the end of the other tape; they are valid if they continue its chain."""
        suffixes = self._own.get(first, set())
        if INDEX not in suffixes or len(suffixes) != 2:
            return index, data
        segment = SegmentFile(str(self._tape), first, ACTIVE in suffixes)
        try:
            mine = read_named_index(segment)
        except TapeError:
            return index, data
        at, end = len(index.lines), _end_of(index)
        if at >= len(mine.lines) or (mine.chains[at - 1] if at else mine.header.tip.chain) != end.chain:
            return index, data
        bad = [fault.frame for fault in examine(mine, segment).faults if at <= fault.frame < len(mine.lines)]
        mine = _first_entries(mine, min(bad, default=len(mine.lines)))
        return mine, data + segment.data_path.read_bytes()[len(data) : _data_end(mine)]

    # -- the end of the tape ------------------------------------------------------------------------------

    def _last_slot(self) -> int | None:
        """Return the last slot of which this tape or its release log has a trace."""
        found = []
        for first in sorted(self._own, reverse=True):
            if entries := self._own_entries(first):
                found.append(max(entry.slot for entry in entries))
                break
        if self._node is not None:
            for path in sorted((self._node / "releases").glob("*" + RELEASES), reverse=True):
                if slots := _logged(path):
                    found.append(max(slots))
                    break
        return max(found, default=None)

    def _own_entries(self, first: int) -> list[IndexEntry]:
        path = segment_path(self._tape, first, INDEX)
        return intact_entries(path.read_bytes()) if path.exists() else []

    # -- checks -------------------------------------------------------------------------------------------

    def _check_follows(self, index: Index, path: Path) -> None:
        tip, end = index.header.tip, self._plan.end
        if end is not None and (tip.next_sequence, tip.slot, tip.chain) != end:
            raise TapeError(
                f"{path}: does not continue the tape after sequence {end.next_sequence - 1}: {self._tape} and "
                f"{self._other} are different tapes, or one of them was rewritten; nothing was changed"
            )

    def _check_agrees(self, mine: dict[int, bytes], theirs: Index) -> None:
        """Check that intact frames of this tape, by slot, have the same chain hash on the other one."""
        for slot, chain in _chains(theirs):
            if mine.get(slot, chain) != chain:
                raise TapeError(
                    f"{self._other} contradicts {self._tape} at slot {slot}: they are different tapes; nothing was "
                    "changed; pass another receiver with --from"
                )

    def _check_checkpoint(self, index: Index) -> None:
        """Check that the tape is the one of which the journal has a checkpoint."""
        needs, before = self._checkpoint, index.header.tip
        end = _end_of(index)
        if needs is None or not before.slot <= needs.slot < end.slot:
            return
        count = int(np.searchsorted(index.lines["slot"], needs.slot, "right"))
        self._check_chain(needs, index.chains[count - 1] if count else before.chain)

    def _check_end(self) -> None:
        needs, end = self._checkpoint, self._plan.end
        if end is not None and not self._reaches(end):
            raise TapeError(self._too_short(end))
        if end is not None and needs is not None and needs.slot == end.slot:
            self._check_chain(needs, end.chain)

    def _check_chain(self, needs: Checkpoint, chain: bytes) -> None:
        if chain != needs.chain:
            raise TapeError(
                f"{self._other} is not a tape of this node's ring: it contradicts the journal at slot {needs.slot}; "
                "nothing was changed; pass another receiver with --from"
            )

    def _too_short(self, end: _End) -> str:
        return (
            f"{self._other} ends at slot {end.slot}, sequence {end.next_sequence - 1}, before {self._tape} did; "
            "nothing was changed; pass a receiver that has more with --from"
        )

    def _missing(self, first: int) -> str:
        later = min((number for number in self._own if number > first and self._intact(number)), default=None)
        without = f", or move the files before {later:016} elsewhere, then the tape begins there" if later else ""
        return (
            f"{self._other}: has no segment that begins with sequence {first}, which {self._tape} needs; nothing was "
            f"changed; pass a receiver that has it with --from{without}"
        )


def _chains(index: Index) -> Iterator[tuple[int, bytes]]:
    """Yield slot and chain hash of each frame."""
    return zip(index.lines["slot"].tolist(), index.chains, strict=True)


def _first_entries(index: Index, count: int) -> Index:
    """Return an index with only its first entries."""
    end = int(index.starts[count]) if count < len(index.lines) else index.end
    return Index(index.header, index.content[:end], index.lines[:count], index.starts[:count], end)


def _end_of(index: Index) -> _End:
    tip = index.header.tip
    if not len(index.lines):
        return _End(tip.next_sequence, tip.slot, tip.chain)
    return _End(index.next_sequence, int(index.lines["slot"][-1]), index.chains[-1])


def _data_end(index: Index) -> int:
    lines = index.lines
    return int(lines["at"][-1]) + int(lines["bytes"][-1]) if len(lines) else len(dbn_metadata())


def _logged(path: Path) -> list[int]:
    try:
        return [int(slot) for slot in read_file(path)["slot"]]
    except TapeError:
        return []


# -- writing ----------------------------------------------------------------------------------------------


def _write(tape: Path, plan: _Plan, done: Repaired) -> None:
    """Write the planned files that differ; keep the damaged ones under another name."""
    for path, content in sorted(plan.files.items()):
        if path.exists():
            if path.read_bytes() == content:
                continue
            done.kept[path] = keep_damaged(path)
        AppendFile.create(path, content, "power").close()
        done.restored.append(path)
    for first, suffixes in segment_files(tape).items():
        for suffix in suffixes:
            path = segment_path(tape, first, suffix)
            is_replaced = path not in plan.files and any(
                segment_path(tape, first, each) in plan.files for each in (DATA, ACTIVE)
            )
            if is_replaced or first not in plan.segments:
                done.kept[path] = keep_damaged(path)
                remove(path)
    sync_directory(tape)

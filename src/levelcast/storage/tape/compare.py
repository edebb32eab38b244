"""Verify a tape, and compare several (DESIGN §3, *Byte identity*).

- A tape is *valid* if its frames follow each other without a gap, every chain hash matches its records, and every
  segment's data are exactly its frames. A DBN reader (`databento-dbn`, where it is installed) must also read them.
- Two valid tapes are *identical* if the chain hashes of their common frames are equal: retention may have removed the
  beginning of one, and the other may be longer. After the first frame that differs, all later hashes differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np

from levelcast.protocol.history import Tip
from levelcast.records import dbn_metadata
from levelcast.storage.append_file import TapeError
from levelcast.storage.tape.directory import (
    DATA,
    INDEX,
    REMOVED,
    missing_records,
    segment_files,
    segment_path,
    tape_directory,
)
from levelcast.storage.tape.index import read_last
from levelcast.storage.tape.reader import TapeReader
from levelcast.storage.tape.segment import Segment, TapeFrame

DBN_BLOCK = 1 << 22


@dataclass(slots=True)
class TapeCheck:
    """Result of the check of one tape."""

    directory: Path
    segments: int = 0
    frames: int = 0
    records: int = 0
    first_sequence: int = 1
    next_sequence: int = 1
    slot: int = 0
    chain: bytes = b""
    dbn_segments: int | None = None
    """Number of segments that `databento-dbn` has read; None if it is not installed."""
    fault: str | None = None


def verify(directory: Path | str, *, dbn: bool = True) -> TapeCheck:
    """Check one tape, frame by frame; `fault` is the first error."""
    directory = Path(directory)
    verdict = TapeCheck(directory)
    tape = tape_directory(directory)
    try:
        reader = TapeReader(tape)
    except TapeError as error:
        if not _has_frames(tape):
            raise  # not a tape
        verdict.fault = str(error)
        return verdict
    module = dbn_module() if dbn else None
    if module is not None:
        verdict.dbn_segments = 0
    verdict.first_sequence = reader.segments[0].first_sequence
    tip = Tip()
    try:
        tip = reader.before
        for segment in reader.segments:
            _check_segment(segment, tip, verdict)
            verdict.segments += 1
            if module is not None and not segment.active:
                _check_dbn(segment, module)
                verdict.dbn_segments = (verdict.dbn_segments or 0) + 1
            segment.unload()
        _check_leftovers(tape)
    except TapeError as error:
        verdict.fault = str(error)
    verdict.next_sequence, verdict.slot, verdict.chain = tip.next_sequence, tip.slot, tip.chain
    return verdict


def _has_frames(tape: Path) -> bool:
    """Return whether a directory has parts of a tape with frames."""
    found = segment_files(tape) if tape.is_dir() else {}
    indexes = (segment_path(tape, first, INDEX) for first, suffixes in found.items() if INDEX in suffixes)
    return any(suffixes != {INDEX} for suffixes in found.values()) or any(read_last(path) for path in indexes)


def _check_leftovers(tape: Path) -> None:
    """Check that no segment at either end of the tape has lost its records."""
    for first, suffixes in segment_files(tape).items():
        index = segment_path(tape, first, INDEX)
        if suffixes == {INDEX} and index.exists() and not segment_path(tape, first, REMOVED).exists():
            with suppress(FileNotFoundError):  # retention is faster
                if read_last(index) is not None:
                    raise missing_records(tape, first, DATA)


def _check_segment(segment: Segment, tip: Tip, verdict: TapeCheck) -> None:
    before, end = segment.header.tip, len(dbn_metadata())
    if before.next_sequence != tip.next_sequence:
        raise TapeError(
            f"{segment.index_path}: sequences {tip.next_sequence} to {before.next_sequence - 1} are missing"
        )
    if before != tip:
        raise TapeError(f"{segment.index_path}: does not follow the previous segment")
    with segment.data_path.open("rb") as file:
        if file.read(end) != dbn_metadata():
            raise TapeError(f"{segment.data_path}: does not begin with the header of a Levelcast tape")
    for found in segment.frames():
        line = found.line
        if line.first_sequence != tip.next_sequence or line.slot <= tip.slot or line.at != end:
            raise TapeError(f"{found}: does not follow the previous frame")
        tip.append(found.frame())
        verdict.frames += 1
        verdict.records += line.records
        end += line.size
    segment.check_index()
    if not segment.active:
        for path, stop in ((segment.data_path, end), (segment.index_path, segment.index_end)):
            if (size := path.stat().st_size) != stop:
                raise TapeError(f"{path}: has {size} bytes, of which only {stop} belong to complete frames")


def dbn_module() -> ModuleType | None:
    """Return `databento_dbn`, if it is installed."""
    try:
        return import_module("databento_dbn")
    except ModuleNotFoundError:
        return None


def _check_dbn(segment: Segment, module: ModuleType) -> None:
    """Check that an independent reader finds the same number of records."""
    decoder, found = module.DBNDecoder(), 0
    try:
        with segment.data_path.open("rb") as file:
            while block := file.read(DBN_BLOCK):
                decoder.write(block)
                found += len(decoder.decode())
    except Exception as error:  # any error of the other library is a finding
        raise TapeError(f"{segment.data_path}: databento-dbn cannot read it: {error}") from error
    expected = segment.next_sequence - segment.first_sequence + 1  # the metadata counts as one record
    if found != expected:
        raise TapeError(f"{segment.data_path}: databento-dbn finds {found - 1} records, not {expected - 1}")


@dataclass(frozen=True, slots=True)
class TapeDifference:
    """The first frame that differs between two tapes; `how` describes it, and is empty if the tapes are identical."""

    one: Path
    other: Path
    common_frames: int
    how: str = ""
    slot: int = 0
    sequence: int = 0
    remark: str = ""
    not_compared: str = ""
    """Reason why the tapes were not compared; then nothing else is known."""

    @property
    def is_same(self) -> bool:
        return not self.how and not self.not_compared


def compare(directories: Sequence[Path | str]) -> list[TapeDifference]:
    """Compare each tape with the first one."""
    first, *others = [Path(directory) for directory in directories]
    return [compare_two(first, other) for other in others]


def compare_checked(checks: Sequence[TapeCheck]) -> list[TapeDifference]:
    """Compare each tape with the first one. A tape that is not valid is neither identical nor different."""
    first, *others = checks
    found = []
    for other in others:
        invalid = [str(check.directory) for check in (first, other) if check.fault is not None]
        if invalid:
            verb = "are" if len(invalid) > 1 else "is"
            why = f"{' and '.join(invalid)} {verb} not valid"
            found.append(TapeDifference(first.directory, other.directory, 0, not_compared=why))
        else:
            found.append(compare_two(first.directory, other.directory))
    return found


def compare_two(one: Path, other: Path) -> TapeDifference:
    readers = (TapeReader(tape_directory(one)), TapeReader(tape_directory(other)))
    from_sequence = max(reader.segments[0].first_sequence for reader in readers)
    common = 0
    mine, theirs = (reader.frames(from_sequence=from_sequence) for reader in readers)
    while True:
        a, b = next(mine, None), next(theirs, None)
        if a is None or b is None:
            break
        if a.line.chain != b.line.chain or a.chain_before != b.chain_before:
            where = min(a.line.first_sequence, b.line.first_sequence)
            return TapeDifference(one, other, common, _how(a, b), a.line.slot, where)
        common += 1
    remark = ""
    if a is not None or b is not None:
        shorter, reader = (other, readers[1]) if b is None else (one, readers[0])
        remark = f"{shorter} ends at sequence {reader.tip().next_sequence - 1}"
    if from_sequence > min(reader.segments[0].first_sequence for reader in readers):
        remark += f"{', and ' if remark else ''}only sequences from {from_sequence} on are in both"
    if not common and all(reader.tip().next_sequence > 1 for reader in readers):
        return TapeDifference(one, other, 0, "the tapes have no frame in common, so they cannot be compared")
    return TapeDifference(one, other, common, remark=remark)


def _how(a: TapeFrame, b: TapeFrame) -> str:
    """Describe the difference between two frames that should be identical."""
    for name in ("slot", "timestamp_ns", "first_sequence"):
        if (mine := getattr(a.line, name)) != (theirs := getattr(b.line, name)):
            return f"{name} {mine} and {theirs}"
    ours, others = a.packets(), b.packets()
    if ours != others:
        for number, (mine, theirs) in enumerate(zip(ours, others, strict=False), 1):
            if mine != theirs:
                return f"packet {number} of the frame is {_name(mine)} and {_name(theirs)}"
        return f"{len(ours)} and {len(others)} packets"
    mine_bytes, their_bytes = np.frombuffer(a.data(), np.uint8), np.frombuffer(b.data(), np.uint8)
    if len(mine_bytes) != len(their_bytes):
        return f"{len(mine_bytes)} and {len(their_bytes)} bytes of records"
    if len(unequal := np.flatnonzero(mine_bytes != their_bytes)):
        return _how_records(a, b, int(unequal[0]))
    return "the same records after another chain hash: the tapes differ before their first common frame"


def _name(packet: tuple[int, ...]) -> str:
    source, incarnation, number, records, size = packet
    return f"{source}/{incarnation}#{number} ({records} records, {size} bytes)"


def _how_records(a: TapeFrame, b: TapeFrame, at: int) -> str:
    """Describe the first field that differs, with its record."""
    for mine, theirs in zip(a.batches(), b.batches(), strict=False):
        if mine.kind is not theirs.kind or len(mine.records) != len(theirs.records):
            break
        for name in mine.kind.dtype.names or ():
            if len(unequal := np.flatnonzero(mine.records[name] != theirs.records[name])):
                i = int(unequal[0])
                sequence = a.line.first_sequence + mine.first + i
                return f"{name} of record {sequence} is {mine.records[name][i]} and {theirs.records[name][i]}"
    return f"byte {at} of its records"

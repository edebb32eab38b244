"""Check a tape before a node continues it, and distinguish a torn tail from damage. Nothing here changes a file.

- A *torn tail* is the rest of the last segment after its leading valid frames, if no valid frame and no intact index
  entry follows it, and the journal can supply the frames again: its checkpoint is not after the cut. An interrupted
  write leaves nothing else. A writer cuts it off and keeps it beside the tape.
- Everything else is damage. The tape is refused as it is, with the file, the byte and the next command.

The last segment, and finished segments up to `CHECKED_BYTES` before it, are checked completely. Of older segments only
the ends are checked: names, header and last entry of the index, size and first record of the data, and the chain from
segment to segment. A complete check at every start would delay it by several seconds per gigabyte; `levelcast tape
verify` makes one.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from levelcast.protocol.effects import Checkpoint
from levelcast.protocol.history import Tip
from levelcast.records import BY_RTYPE, dbn_metadata
from levelcast.storage.advice import repair_tape
from levelcast.storage.append_file import TapeError
from levelcast.storage.tape.directory import SegmentFile
from levelcast.storage.tape.index import Index, IndexEntry, IndexHeader, find_entry, read_index, read_last, read_start
from levelcast.storage.tape.segment import Segment
from levelcast.storage.tape.segment_check import Scan, SegmentFault, examine

CHECKED_BYTES = 64 << 20
"""Bytes of finished segments that a start checks completely: one segment of a million trades."""
_OF_THE_INDEX = frozenset({"index damaged", "gap", "duplicate"})


class Damage(NamedTuple):
    """The first damaged place of a segment."""

    path: Path
    at: int
    says: str

    def __str__(self) -> str:
        return f"{self.path}: damaged at byte {self.at:,}: {self.says}"


class Resume(NamedTuple):
    """Position at which a writer continues the last segment."""

    header: IndexHeader
    tip: Tip
    end_ns: int
    data_end: int
    index_end: int


def refused(tape: Path, why: object) -> TapeError:
    """Return the error for a tape that a node cannot continue."""
    return TapeError(f"{why}; nothing was changed; {repair_tape(tape)}")


def damage_of(segment: SegmentFile) -> Damage | None:
    """Check one segment completely. Bytes after the last frame of a growing segment are not damage."""
    try:
        index = read_named_index(segment)
    except TapeError as error:
        return Damage(segment.index_path, 0, _reason(error, segment.index_path))
    except FileNotFoundError:
        return Damage(segment.index_path, 0, "the index of this segment is missing")
    if not segment.data_path.exists():
        return Damage(segment.data_path, 0, "the records of this segment are missing")
    return _first_damage(index, examine(index, segment)) or _entry_damage(index, segment)


def _entry_damage(index: Index, segment: SegmentFile) -> Damage | None:
    """Return the position of a damaged entry that intact ones follow."""
    if index.end == len(index.content) or (later := find_entry(index.content, index.end + 1)) is None:
        return None
    return Damage(segment.index_path, index.end, f"the entry at byte {later:,} and others are intact")


def read_named_index(segment: SegmentFile) -> Index:
    """Read an index; raise TapeError if it does not belong to its file name."""
    index = read_index(segment.index_path)
    _check_name(segment, index.header.tip.next_sequence)
    return index


def _check_name(segment: SegmentFile, first: int) -> None:
    if first != segment.first:
        raise TapeError(f"{segment.index_path}: begins with sequence {first}, which does not match its file name")


def _reason(error: TapeError, path: Path) -> str:
    return str(error).removeprefix(f"{path}: ")


def _first_damage(index: Index, found: Scan) -> Damage | None:
    if not found.faults:
        return None
    # Bytes after the last frame may be only the consequence of a damaged index.
    return _place(index, found.segment, min(found.faults, key=lambda fault: (fault.kind == "torn tail", fault.frame)))


def _place(index: Index, segment: SegmentFile, fault: SegmentFault) -> Damage:
    in_index = fault.kind in _OF_THE_INDEX
    path = segment.index_path if in_index else segment.data_path
    if fault.kind == "torn tail":
        last = index.lines[-1:]
        return Damage(path, int(last["at"].sum() + last["bytes"].sum()) or len(dbn_metadata()), fault.says)
    if fault.frame < 0:
        return Damage(path, 0, fault.says)
    if fault.frame >= len(index.lines):
        return Damage(path, index.end, fault.says)
    line = index.lines[fault.frame]
    at = int(index.starts[fault.frame]) if in_index else int(line["at"])
    return Damage(path, at, f"{fault.says} (frame of slot {line['slot']}, sequence {line['sequence']})")


# -- the last segment -------------------------------------------------------------------------------------


def check_last(tape: Path, segment: SegmentFile, stripe: int, needs: Checkpoint | None) -> Resume:
    """Check the last segment completely; return where to continue it. `needs` is the checkpoint of the journal."""
    try:
        index = read_named_index(segment)
    except TapeError as error:
        raise refused(tape, error) from None
    if index.header.stripe != stripe:
        raise TapeError(f"{tape}: the tape is of stripe {index.header.stripe}, not {stripe}")
    found = examine(index, segment)
    valid = len(index.lines)
    if segment.active:
        valid = _valid_frames(tape, index, found)
    elif (damage := _first_damage(index, found)) is not None:
        raise refused(tape, damage)
    tip = Segment(tape, segment.first, active=segment.active).tip(valid)
    last = index.lines[valid - 1] if valid else None
    data_end = int(last["at"]) + int(last["bytes"]) if last is not None else len(dbn_metadata())
    index_end = int(index.starts[valid]) if valid < len(index.lines) else index.end
    if needs is not None and (fault := _checkpoint_fault(needs, tip, _chain_at(index, valid, needs.slot))):
        is_index = segment.data_path.stat().st_size > data_end and index_end == index.end  # entries are missing
        path, at = (segment.index_path, index_end) if is_index else (segment.data_path, data_end)
        raise refused(tape, Damage(path, at, fault))
    return Resume(index.header, tip, int(last["timestamp"]) if last is not None else 0, data_end, index_end)


def _valid_frames(tape: Path, index: Index, found: Scan) -> int:
    """Return the number of leading valid frames of the growing segment; raise TapeError unless the rest is torn."""
    count = len(index.lines)
    bad = {fault.frame for fault in found.faults if fault.frame >= 0}
    for fault in found.faults:
        if fault.kind == "cut short":
            bad |= set(range(fault.frame, count))
    starts_wrong = any(fault.frame < 0 for fault in found.faults)
    valid = 0 if starts_wrong else min(bad, default=count)
    if any(frame not in bad for frame in range(valid, count)):
        damage = _first_damage(index, found)
        raise refused(tape, f"{damage}, but later frames are intact")
    if (damage := _entry_damage(index, found.segment)) is not None:
        raise refused(tape, damage)
    return valid


def _chain_at(index: Index, frames: int, slot: int) -> bytes | None:
    """Return the chain hash after the last frame up to `slot`; None if that frame is in an earlier segment."""
    if slot < index.header.tip.slot:
        return None
    count = int(np.searchsorted(index.lines["slot"][:frames], slot, "right"))
    return bytes(index.lines["chain"][count - 1]) if count else index.header.tip.chain


def check_empty(tape: Path, first: Tip, needs: Checkpoint | None) -> None:
    """Check that the journal does not need frames of a tape that has none."""
    if needs is not None and (fault := _checkpoint_fault(needs, first, None)):
        raise refused(tape, f"{tape}: {fault}")


def _checkpoint_fault(needs: Checkpoint, tip: Tip, chain: bytes | None) -> str | None:
    """Return the reason why journal and tape do not belong together, or None."""
    if needs.slot > tip.slot:
        if needs.chain == tip.chain:
            return None  # only empty slots follow the last frame
        return (
            f"the journal needs a tape up to slot {needs.slot}, but the valid part of it ends at slot {tip.slot}, "
            f"sequence {tip.next_sequence - 1}"
        )
    if chain is not None and chain != needs.chain:
        return f"this is not the tape of the journal, they differ at slot {needs.slot}; move the tape elsewhere first"
    return None


# -- finished segments ------------------------------------------------------------------------------------


def check_finished(tape: Path, segments: list[SegmentFile]) -> None:
    """Check the segments before the last one: the newest completely, all by their ends. Raise TapeError."""
    end: IndexEntry | None = None
    for number, segment in enumerate(segments):
        try:
            header, _ = read_start(segment.index_path)
            _check_name(segment, header.tip.next_sequence)
        except TapeError as error:
            raise refused(tape, error) from None
        tip = header.tip
        if end is not None and (tip.next_sequence, tip.slot, tip.chain) != (end.next_sequence, end.slot, end.chain):
            raise refused(tape, f"{segment.index_path}: does not follow the previous segment")
        if number == len(segments) - 1:
            break
        end = read_last(segment.index_path)
        if (damage := _end_damage(segment, end)) is not None or end is None:
            raise refused(tape, damage)
    size = 0
    for segment in reversed(segments[:-1]):
        size += segment.data_path.stat().st_size
        if size > CHECKED_BYTES:
            return
        if (damage := damage_of(segment)) is not None:
            raise refused(tape, damage)


def _end_damage(segment: SegmentFile, last: IndexEntry | None) -> Damage | None:
    if last is None:
        size = segment.index_path.stat().st_size
        return Damage(segment.index_path, size, "the file does not end with an intact entry")
    size, end, head = segment.data_path.stat().st_size, last.at + last.size, len(dbn_metadata())
    if size != end:
        return Damage(segment.data_path, min(size, end), f"it has {size} bytes, but its index has frames up to {end}")
    with segment.data_path.open("rb") as file:
        start = file.read(head + 256)
    kind = BY_RTYPE.get(start[head + 1]) if len(start) > head + 1 else None
    if not start.startswith(dbn_metadata()) or kind is None:
        return Damage(segment.data_path, 0, "it does not begin with the header of a Levelcast tape and a record")
    if (offset := kind.sequence_offset) is not None:
        at = head + offset
        if start[at : at + 4] != (segment.first & 0xFFFFFFFF).to_bytes(4, "little"):
            return Damage(segment.data_path, at, f"its first record is not sequence {segment.first}")
    return None

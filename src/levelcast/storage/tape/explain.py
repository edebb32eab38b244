"""Explain the differences between a segment and its correct version: frame, record, byte, and kind of difference.

Both are read completely. Frames are joined by slot: a tape that was rewritten without one frame has other sequences and
hashes from there on, but the same slots. This module does not use Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from levelcast.records import BadRecords, record_places, split
from levelcast.storage.append_file import TapeError
from levelcast.storage.tape.directory import SegmentFile
from levelcast.storage.tape.index import Index, Ints, read_index
from levelcast.storage.tape.segment_check import Scan, bare, own_hashes, wrong_frames

MOST_NAMED = 100
"""Maximum number of faults of one segment that are listed individually."""


class SegmentDifference(NamedTuple):
    """One fault of a segment, with its position; fields are None if not applicable."""

    kind: str
    says: str
    slot: int | None = None
    sequence: int | None = None
    record: int | None = None
    offset: int | None = None
    in_index: bool = False


@dataclass(frozen=True, slots=True)
class Side:
    """A segment with its bytes."""

    index: Index
    content: bytes

    def frame_bytes(self, frame: int) -> bytes:
        return self.index.data_of(frame, self.content)

    def bare(self, frame: int) -> bytes:
        return bare(self.index, self.content, frame)

    def packets_and_records(self, frame: int) -> tuple[bytes, bytes]:
        return self.index.table(frame), self.bare(frame)


class Altered(NamedTuple):
    """A record that differs: its actual and its correct bytes, both un-stamped."""

    frame: int
    sequence: int
    at: int
    """Offset of its first byte in the file."""
    mine: bytes
    right: bytes
    changed: tuple[int, ...]
    """Offsets in the file of the bytes that differ, stamps included."""


def explain(mine: SegmentFile, right: SegmentFile) -> list[SegmentDifference]:
    """Return the faults of `mine`; `right` is the correct version."""
    try:
        good = Side(read_index(right.index_path), right.data_path.read_bytes())
    except (TapeError, OSError):
        return []
    try:
        content = mine.data_path.read_bytes()
    except FileNotFoundError:
        return [SegmentDifference("missing records", "its records are missing", sequence=mine.first)]
    try:
        index = read_index(mine.index_path)
    except FileNotFoundError:
        return [SegmentDifference("missing index", "its index is missing", sequence=mine.first)]
    except TapeError:
        return list(_index_bytes(mine.index_path.read_bytes(), good))
    bad = Side(index, content)
    if index.content == good.index.content:
        return _records(bad, good, growing=mine.active)[:MOST_NAMED]
    if not mine.active and index.end < len(index.content):
        found = list(_index_bytes(index.content, good))
        found += _records(Side(good.index, content), good, growing=False)
        return found[:MOST_NAMED]
    return _frames(bad, good, growing=mine.active)[:MOST_NAMED]


# -- the same index, other records ------------------------------------------------------------------------


def _records(bad: Side, good: Side, *, growing: bool) -> list[SegmentDifference]:
    """Compare records; both segments have the same index, so frames are at the same offsets."""
    found: list[SegmentDifference] = []
    whole = np.frombuffer(good.content, np.uint8)
    ours = np.frombuffer(bad.content, np.uint8)
    common = min(len(ours), len(whole))
    unequal = np.flatnonzero(ours[:common] != whole[:common])
    if len(ours) < _end(good.index):
        frame = int(np.searchsorted(_ends(good.index), len(ours), "right"))
        found.append(
            SegmentDifference("cut short", f"its records end at byte {len(ours):,} of {len(whole):,}",
                       *_place(good.index, frame), offset=len(ours))
        )  # fmt: skip
    elif len(ours) > len(whole) and not growing:
        found.append(
            SegmentDifference("torn tail", f"{len(ours) - len(whole)} bytes after its last frame", offset=len(whole))
        )
    begin = int(good.index.lines["at"][0]) if len(good.index.lines) else len(whole)
    if len(head := unequal[unequal < begin]):
        found.append(_bytes_of(bad.content, good.content, head.tolist()))
    unequal = unequal[unequal >= begin]
    frames = sorted(set((np.searchsorted(good.index.lines["at"], unequal, "right") - 1).tolist()))
    swapped, frames = _swapped_frames(bad, good, frames)
    found += swapped
    altered: list[Altered] = []
    for frame in frames[:MOST_NAMED]:
        records = _altered(bad, frame, good, frame, stamps=True)
        if records is None:  # the records have other boundaries: report the bytes
            at = int(good.index.lines["at"][frame])
            inside = unequal[(unequal >= at) & (unequal < _ends(good.index)[frame])]
            found.append(_bytes_of(bad.content, good.content, inside.tolist(), *_place(good.index, frame)))
        else:
            altered += records
    found += _swapped_records(good, altered)
    return sorted(found, key=lambda each: (each.sequence or 0, each.record or 0, each.offset or 0))


def _ends(index: Index) -> Ints:
    ends: Ints = (index.lines["at"] + index.lines["bytes"]).astype(np.int64)
    return ends


def _end(index: Index) -> int:
    return int(_ends(index)[-1]) if len(index.lines) else 0


def _place(index: Index, frame: int) -> tuple[int | None, int | None]:
    if frame >= len(index.lines):
        return None, None
    return int(index.lines["slot"][frame]), int(index.lines["sequence"][frame])


def _swapped_frames(bad: Side, good: Side, frames: Sequence[int]) -> tuple[list[SegmentDifference], list[int]]:
    """Return pairs of frames that are swapped, and the remaining frames."""
    found: list[SegmentDifference] = []
    left = list(frames)
    for one in frames:
        for other in (each for each in left if each > one and one in left):
            same_size = len(good.frame_bytes(one)) == len(good.frame_bytes(other))
            if other != one + 1 and not same_size:
                continue
            first, second = good.bare(one), good.bare(other)
            if same_size:
                is_swap = bad.bare(one) == second and bad.bare(other) == first
            else:
                at, end = int(good.index.lines["at"][one]), int(_ends(good.index)[other])
                is_swap = bad.content[at:end] == good.frame_bytes(other) + good.frame_bytes(one)
            if is_swap:
                slots = good.index.lines["slot"]
                says = f"the records of slots {slots[one]} and {slots[other]} are swapped"
                found.append(_told(good, one, "swapped frames", says))
                left = [each for each in left if each not in (one, other)]
                break
    return found, left


def _altered(bad: Side, a: int, good: Side, b: int, *, stamps: bool) -> list[Altered] | None:
    """Return the records that differ between two frames, with or without `stamps`; None if boundaries differ."""
    mine, right = bad.bare(a), good.bare(b)
    ours, theirs = (bad.frame_bytes(a), good.frame_bytes(b)) if stamps else (mine, right)
    sizes = _sizes(ours)
    if sizes is None or sizes != _sizes(theirs):
        return None
    line = bad.index.lines[a]
    found, at = [], 0
    for number, size in enumerate(sizes):
        end = at + size
        if ours[at:end] != theirs[at:end]:
            begin = int(line["at"]) + at
            changed = tuple(begin + i for i in range(size) if ours[at + i] != theirs[at + i])
            found.append(Altered(a, int(line["sequence"]) + number, begin, mine[at:end], right[at:end], changed))
        at = end
    return found


def _sizes(content: bytes) -> list[int] | None:
    """Return the size of each record; None if the last one is incomplete."""
    try:
        _, sizes = record_places(content)
        return list(map(int, sizes))
    except BadRecords:
        return None


def _swapped_records(good: Side, altered: Sequence[Altered]) -> Iterator[SegmentDifference]:
    """Yield pairs of records that are swapped; every other one has changed bytes."""
    done: set[int] = set()
    for i, one in enumerate(altered):
        if i in done:
            continue
        pair = next(
            (j for j in range(i + 1, len(altered))
             if j not in done and one.mine != one.right
             and altered[j].mine == one.right and one.mine == altered[j].right),
            None,
        )  # fmt: skip
        if pair is not None:
            done.add(pair)
            kind, at = "swapped records", one.at
            says = f"records {one.sequence} and {altered[pair].sequence} are swapped"
        else:
            kind, at = "changed bytes", one.changed[0]
            says = f"{_field(one)} of record {one.sequence} {_count(len(one.changed))}"
        yield SegmentDifference(kind, says, *_place(good.index, one.frame), one.sequence, at)


def _count(changed: int) -> str:
    return "has one changed byte" if changed == 1 else f"has {changed} changed bytes"


def _field(record: Altered) -> str:
    """Describe the first field that differs, with both values."""
    try:
        mine, right = split(record.mine)[0], split(record.right)[0]
    except (BadRecords, IndexError):
        return "a field"
    for name in right.kind.dtype.names or ():
        if mine.records.dtype == right.records.dtype and mine.records[name][0] != right.records[name][0]:
            return f"{name} ({right.records[name][0]} at the others, {mine.records[name][0]} here)"
    return "the stamp"


def _bytes_of(
    mine: bytes, right: bytes, at: Sequence[int], slot: int | None = None, sequence: int | None = None
) -> SegmentDifference:
    first = at[0]
    says = f"byte {first} is {mine[first]:#04x}, and {right[first]:#04x} at the others"
    if len(at) > 1:
        says += f"; {len(at)} bytes differ"
    return SegmentDifference("changed bytes", says, slot, sequence, offset=first)


# -- another index ----------------------------------------------------------------------------------------


def _index_bytes(mine: bytes, good: Side) -> Iterator[SegmentDifference]:
    """Compare an index that cannot be read to its end with the correct one, byte by byte."""
    right = good.index.content
    common = min(len(mine), len(right))
    unequal = np.flatnonzero(np.frombuffer(mine, np.uint8, common) != np.frombuffer(right, np.uint8, common)).tolist()
    first = unequal[0] if unequal else common
    frame = int(np.searchsorted(good.index.starts, first, "right")) - 1
    place = _place(good.index, frame) if frame >= 0 else (None, None)
    if not unequal:
        yield SegmentDifference(
            "cut short", f"its index ends at byte {len(mine)} of {len(right)}", *place, offset=common, in_index=True
        )
        return
    told = _bytes_of(mine, right, unequal, *place)
    yield told._replace(says="in its index " + told.says, in_index=True)


def _frames(bad: Side, good: Side, *, growing: bool) -> list[SegmentDifference]:
    """Compare two readable indexes that differ: find missing, duplicate, unknown and changed frames."""
    mine, right = bad.index.lines, good.index.lines
    slots, known = mine["slot"].astype(np.int64), right["slot"].astype(np.int64)
    found: list[SegmentDifference] = []
    values, first, counts = np.unique(slots, return_index=True, return_counts=True)
    for slot in values[counts > 1].tolist():
        again = int(np.flatnonzero(slots == slot)[1])
        found.append(_told(bad, again, "duplicate frame", f"the frame of slot {slot} is duplicated"))
    last = int(slots.max(initial=0))
    missing = np.flatnonzero(~np.isin(known, slots) & ((known < last) | (not growing)))
    for frame in missing.tolist():
        line = right[frame]
        upto = int(line["sequence"]) + int(line["records"]) - 1
        says = f"the frame of slot {line['slot']} is missing, sequences {line['sequence']} to {upto}"
        behind = int(np.searchsorted(slots, known[frame])) if len(slots) else 0
        offset = int(mine["at"][behind]) if behind < len(mine) else len(bad.content)
        found.append(
            SegmentDifference("missing frame", says, *_place(good.index, frame), int(line["sequence"]), offset)
        )
    found += _strange(bad, good, np.flatnonzero(~np.isin(slots, known)).tolist(), growing=growing)
    common = [(int(first[np.searchsorted(values, slot)]), frame) for frame, slot in enumerate(known.tolist())
              if slot in set(values.tolist())]  # fmt: skip
    found += _unequal(bad, good, common)
    if not found:
        found += _chain(bad, good, common)
    return sorted(found, key=lambda each: (each.sequence or 0, each.offset or 0))


def _told(side: Side, frame: int, kind: str, says: str) -> SegmentDifference:
    line = side.index.lines[frame]
    return SegmentDifference(kind, says, *_place(side.index, frame), int(line["sequence"]), int(line["at"]))


def _strange(bad: Side, good: Side, frames: Iterable[int], *, growing: bool) -> Iterator[SegmentDifference]:
    """Yield frames of slots that the others do not have; they may repeat the packets of another slot."""
    packets = {good.index.table(frame): frame for frame in range(len(good.index.lines))}
    newest = int(good.index.lines["slot"][-1]) if len(good.index.lines) else 0
    for frame in frames:
        slot = int(bad.index.lines["slot"][frame])
        twin = packets.get(bad.index.table(frame))
        if twin is not None:
            says = f"slot {slot} has the packets of slot {good.index.lines['slot'][twin]} again"
            yield _told(bad, frame, "duplicate frame", says)
        elif not growing or slot < newest:
            yield _told(bad, frame, "strange frame", f"no other tape has a frame of slot {slot}")


def _unequal(bad: Side, good: Side, common: Sequence[tuple[int, int]]) -> list[SegmentDifference]:
    """Return frames of the same slot with different content, regardless of the chain."""
    mine = own_hashes(bad.index, bad.content, [a for a, _ in common])
    right = own_hashes(good.index, good.content, [b for _, b in common])
    unequal = [(a, b) for a, b in common if mine[a] != right[b]]
    found: list[SegmentDifference] = []
    done: set[int] = set()
    for place, (a, b) in enumerate(unequal):
        if a in done:
            continue
        content, wanted = bad.packets_and_records(a), good.packets_and_records(b)
        for c, d in unequal[place + 1 :]:
            if content == good.packets_and_records(d) and bad.packets_and_records(c) == wanted:
                slots = good.index.lines["slot"]
                told = f"the frames of slots {slots[b]} and {slots[d]} are swapped"
                found.append(_told(bad, a, "swapped frames", told))
                done |= {a, c}
                break
        else:
            done.add(a)
            found += _inside(bad, good, a, b)
    return found


def _inside(bad: Side, good: Side, a: int, b: int) -> Iterator[SegmentDifference]:
    """Yield the differences between two frames of the same slot."""
    slot = bad.index.lines["slot"][a]
    if bad.index.table(a) != good.index.table(b):
        yield _told(bad, a, "changed packets", f"the packets of slot {slot} differ")
        return
    if bad.index.lines["timestamp"][a] != good.index.lines["timestamp"][b]:
        yield _told(bad, a, "changed packets", f"the timestamp of slot {slot} differs")
    altered = _altered(bad, a, good, b, stamps=False)
    if altered is not None:
        yield from _swapped_records(bad, altered)
    elif bad.bare(a) != good.bare(b):
        yield _told(bad, a, "changed bytes", f"the records of slot {slot} differ")


def _chain(bad: Side, good: Side, common: Sequence[tuple[int, int]]) -> Iterator[SegmentDifference]:
    """Yield the first fault of equal frames with another chain, or with other index entries."""
    for frame in wrong_frames(bad.index, bytearray(bad.content), together=False).hashes[:1]:
        yield _told(bad, frame, "chain broken", "its chain hash does not match its records and the previous frame")
        return
    for a, b in common:
        ours, theirs = bad.index.lines[a], good.index.lines[b]
        for name in ("sequence", "records", "at", "bytes", "chain"):
            if ours[name].tobytes() != theirs[name].tobytes():
                says = f"its index entry has another {'chain hash' if name == 'chain' else name}"
                told = _told(bad, a, "chain broken", says)
                yield told._replace(offset=int(bad.index.starts[a]), in_index=True)
                return
    if bad.index.header != good.index.header:
        says = "it does not continue from the same position as the others"
        yield SegmentDifference(
            "chain broken", says, sequence=bad.index.header.tip.next_sequence, offset=0, in_index=True
        )


def alone(scan: Scan, index: Index | None) -> list[SegmentDifference]:
    """Return the faults of a segment's own check, if there is nothing to compare it with."""
    found = []
    for kind, frame, says in scan.faults[:MOST_NAMED]:
        place: tuple[int | None, int | None] = (None, None)
        at = None
        if index is not None and 0 <= frame < len(index.lines):
            place, at = _place(index, frame), int(index.lines["at"][frame])
        found.append(SegmentDifference(kind, says, *place, offset=at))
    return found

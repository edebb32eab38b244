"""Check one segment of a tape: its index as arrays, its records by one pass of the compiled module.

`scan` checks one segment: every frame matches its hash, and frames, packets and stamps are consecutive. It works on
arrays; Python code runs per frame only to compute hashes. This module does not use Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from blake3 import blake3

from levelcast.native import stamped, unstamp
from levelcast.records import BY_RTYPE, dbn_metadata, runs
from levelcast.storage.append_file import TapeError
from levelcast.storage.tape.directory import SegmentFile
from levelcast.storage.tape.index import ENTRY, Index, Ints, Rows, read_index

_HEAD = np.dtype([("slot", "<u8"), ("timestamp", "<u8"), ("sequence", "<u8"), ("packets", "<u4")])
_BLOCK = 1 << 22
MOST_FAULTS = 1_000
"""Maximum number of faults reported for one segment."""


class SegmentFault(NamedTuple):
    """A fault of a segment by itself. `frame` counts from 0; -1 if it does not concern one frame."""

    kind: str
    frame: int
    says: str


@dataclass(slots=True)
class Scan:
    """Contents and faults of one segment."""

    segment: SegmentFile
    frames: int = 0
    records: int = 0
    size: int = 0
    first_slot: int = 0
    last_slot: int = 0
    next_sequence: int = 0
    chain_before: bytes = b""
    chain: bytes = b""
    sources: set[int] = field(default_factory=set)
    faults: list[SegmentFault] = field(default_factory=list)
    torn: str = ""
    """Description of the bytes that an unfinished write left after the last complete frame of the growing segment."""

    def fault(self, kind: str, frame: int, says: str) -> None:
        self.faults.append(SegmentFault(kind, frame, says))


class Digest(NamedTuple):
    """The digests of a segment's files; segments with equal digests are identical."""

    lines: bytes
    records: bytes
    size: int


def digest(segment: SegmentFile, *, data: bool = True) -> Digest | None:
    """Return the digests; None if a file is missing, which `scan` reports."""
    try:
        index, size = _digest_of(segment.index_path)
        records, more = _digest_of(segment.data_path) if data else (b"", 0)
    except FileNotFoundError:
        return None
    return Digest(index, records, size + more)


def _digest_of(path: Path) -> tuple[bytes, int]:
    made, size = blake3(), 0
    block = memoryview(bytearray(_BLOCK))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(block):
            made.update(block[:count])
            size += count
    return made.digest(), size


def scan(segment: SegmentFile, *, data: bool = True) -> Scan:
    """Check one segment: the index by itself and, with `data`, every record against it."""
    found = Scan(segment)
    try:
        index = read_index(segment.index_path)
    except FileNotFoundError:
        found.fault("missing index", -1, "its index is missing")
        return found
    except TapeError:
        found.fault("index damaged", -1, "the header of its index is damaged")
        return found
    _examine(index, found, data=data)
    del found.faults[MOST_FAULTS:]
    return found


def examine(index: Index, segment: SegmentFile) -> Scan:
    """Check one segment by its index, which was read already; report every fault."""
    found = Scan(segment)
    _examine(index, found, data=True)
    return found


def _examine(index: Index, found: Scan, *, data: bool) -> None:
    lines = index.lines
    found.frames = len(lines)
    found.records = int(lines["records"].sum())
    found.size = index.end
    found.chain_before = index.header.tip.chain
    found.next_sequence = index.next_sequence
    found.chain = bytes(lines["chain"][-1]) if len(lines) else found.chain_before
    if len(lines):
        found.first_slot, found.last_slot = int(lines["slot"][0]), int(lines["slot"][-1])
    _check_index(index, found.segment, found)
    if data:
        _check_data(index, found.segment, found)


def _check_index(index: Index, segment: SegmentFile, found: Scan) -> None:
    lines, tip = index.lines, index.header.tip
    left = len(index.content) - index.end
    if left and segment.active:
        found.torn = f"{left} bytes of an unfinished index entry"
    elif left:
        found.fault(
            "index damaged", len(lines), f"its index is damaged from byte {index.end} on, {left} bytes are lost"
        )
    if not len(lines):
        return
    sequence, records = lines["sequence"].astype(np.int64), lines["records"].astype(np.int64)
    slot, timestamp = lines["slot"].astype(np.int64), lines["timestamp"].astype(np.int64)
    due = np.concatenate(([tip.next_sequence], sequence[:-1] + records[:-1]))
    before = np.concatenate(([tip.slot], slot[:-1]))
    for frame in np.flatnonzero(slot <= before).tolist():
        found.fault("duplicate", frame, f"slot {slot[frame]} follows slot {before[frame]}")
    for frame in np.flatnonzero(sequence != due).tolist():
        kind = "gap" if sequence[frame] > due[frame] else "duplicate"
        found.fault(kind, frame, f"begins at sequence {sequence[frame]}, expected {due[frame]}")
    for frame in (np.flatnonzero(timestamp[1:] <= timestamp[:-1]) + 1).tolist():
        found.fault("index damaged", frame, "its timestamp is not later than that of the previous frame")
    at, size = lines["at"].astype(np.int64), lines["bytes"].astype(np.int64)
    expected = np.concatenate(([len(dbn_metadata())], at[:-1] + size[:-1]))
    for frame in np.flatnonzero(at != expected).tolist():
        found.fault("index damaged", frame, f"its bytes begin at {at[frame]}, not at {expected[frame]}")
    packets, frames = index.packets()
    for name in ("records", "bytes"):
        total = np.bincount(frames, packets[name], len(lines)).astype(np.int64)
        for frame in np.flatnonzero(total != lines[name].astype(np.int64)).tolist():
            found.fault("index damaged", frame, f"its packets do not match its {name}")
    _check_sources(index, packets, frames, found)


def _check_sources(index: Index, packets: Rows, frames: Ints, found: Scan) -> None:
    """Check that each source's packets are unique, in order and without a gap (DESIGN §3)."""
    found.sources = set(np.unique(packets["source"]).tolist())
    for source in sorted(found.sources):
        chosen = np.flatnonzero(packets["source"] == source)
        incarnation, number = (packets[name][chosen].astype(np.int64) for name in ("incarnation", "number"))
        place = index.header.tip.places.get(source)
        first = (place.incarnation, place.next) if place is not None else (int(incarnation[0]), 1)
        before = np.concatenate(([first[0]], incarnation[:-1]))
        due = np.where(incarnation == before, np.concatenate(([first[1]], number[:-1] + 1)), 1)
        for i in np.flatnonzero((number != due) | (incarnation < before)).tolist():
            again = bool(number[i] < due[i] or incarnation[i] < before[i])
            says = f"has packet {number[i]} of source {source}, expected {due[i]}"
            found.fault("duplicate" if again else "gap", int(frames[chosen[i]]), says)


def _check_data(index: Index, segment: SegmentFile, found: Scan) -> None:
    lines = index.lines
    try:
        content = bytearray(segment.data_path.read_bytes())
    except FileNotFoundError:
        found.fault("missing records", -1, "its records are missing")
        return
    found.size += len(content)
    head = len(dbn_metadata())
    if content[:head] != dbn_metadata():
        found.fault("changed bytes", -1, "does not begin with the header of a Levelcast tape")
    end = int(lines["at"][-1]) + int(lines["bytes"][-1]) if len(lines) else head
    if len(content) < end:
        found.fault(
            "cut short",
            int(np.searchsorted(lines["at"] + lines["bytes"], len(content), "right")),
            f"has {len(content)} bytes, but its index has frames up to byte {end}",
        )
    elif len(content) > end:
        says = f"{len(content) - end} bytes after its last frame"
        if segment.active:
            found.torn = ", and ".join(filter(None, (found.torn, says)))
        else:
            found.fault("torn tail", -1, f"has {says}")
    wrong = wrong_frames(index, content)
    if wrong.hashes:  # a changed length may have misled the single pass over all frames
        wrong = wrong_frames(index, bytearray(segment.data_path.read_bytes()), together=False)
    for frame in wrong.hashes:
        found.fault("changed bytes", frame, "its records do not match its chain hash")
    for frame in wrong.stamps:
        found.fault("changed bytes", frame, "the sequence or receive time of a record does not match its frame")


class Wrong(NamedTuple):
    """Frames with a wrong hash, and frames with only wrong stamps."""

    hashes: list[int]
    stamps: list[int]


def wrong_frames(index: Index, content: bytearray, *, together: bool = True) -> Wrong:
    """Hash every frame from its records; `content` is the complete file and is un-stamped in the process."""
    lines = index.lines
    head = len(dbn_metadata())
    stop = int(np.searchsorted(lines["at"] + lines["bytes"], len(content), "right"))
    lines = lines[:stop]
    if not len(lines):
        return Wrong([], [])
    end = int(lines["at"][-1]) + int(lines["bytes"][-1])
    view = memoryview(content)[head:end]
    suspicious = _stamps(lines, view) if together else None
    original = bytes(view) if suspicious is None else b""
    contiguous = together and unstamp(view) >= 0
    heads = np.zeros(len(lines), _HEAD)
    for name in _HEAD.names or ():
        heads[name] = lines[name]
    packed, chains = heads.tobytes(), index.chains
    tables = memoryview(index.content)
    table_at = (index.starts[:stop] + ENTRY.itemsize).tolist()
    table_end = (index.starts[:stop] + lines["size"]).tolist()
    at = (lines["at"].astype(np.int64) - head).tolist()
    upto = (lines["at"].astype(np.int64) - head + lines["bytes"].astype(np.int64)).tolist()
    wrong = Wrong([], [])
    before, each = index.header.tip.chain, _HEAD.itemsize
    join = b"".join
    for frame in range(stop):
        records: Any = view[at[frame] : upto[frame]]
        if not contiguous:
            records = bytearray(records)
            unstamp(records)
        table = tables[table_at[frame] : table_end[frame]]
        made = blake3(join((before, packed[frame * each : frame * each + each], table, records))).digest()
        before = chains[frame]
        if made != before:
            wrong.hashes.append(frame)
        elif suspicious is None:
            line = lines[frame]
            again = stamped(bytes(table), bytes(records), int(line["sequence"]), int(line["timestamp"]))
            if again is None or bytes(again) != original[at[frame] : upto[frame]]:
                wrong.stamps.append(frame)
    if suspicious is not None:
        wrong.stamps.extend(frame for frame in suspicious if frame not in set(wrong.hashes))
    return wrong


def _stamps(lines: Rows, view: memoryview) -> list[int] | None:
    """Return frames with a wrong stamp, in one pass, if all records are of one type and size; else None."""
    found = runs(view)
    kind = BY_RTYPE.get(found[0].rtype) if len(found) == 1 else None
    if kind is None or found[0].size != kind.dtype.itemsize or len(view) % found[0].size:
        return None
    if kind.sequence_offset is None or kind.ts_recv_offset is None:
        return None
    records = np.frombuffer(view, kind.dtype)
    if int(lines["records"].sum()) != len(records):
        return None
    counts = lines["records"].astype(np.int64)
    first = np.cumsum(counts) - counts
    place = np.arange(len(records)) - np.repeat(first, counts)
    sequence = (np.repeat(lines["sequence"], counts) + place.astype(np.uint64)).astype(np.uint32)
    bad = (records["sequence"] != sequence) | (records["ts_recv"] != np.repeat(lines["timestamp"], counts))
    if not bool(bad.any()):
        return []
    return sorted(set((np.searchsorted(first, np.flatnonzero(bad), "right") - 1).tolist()))


def own_hashes(index: Index, content: bytes, frames: Sequence[int]) -> dict[int, bytes]:
    """Return the hash of each frame without its chain: slot, timestamp, packets, un-stamped records."""
    found = {}
    for frame in frames:
        line = index.lines[frame]
        place = np.array([(line["slot"], line["timestamp"])], [("slot", "<u8"), ("timestamp", "<u8")]).tobytes()
        found[frame] = blake3(place + index.table(frame) + bare(index, content, frame)).digest()
    return found


def bare(index: Index, content: bytes, frame: int) -> bytes:
    """Return the records of a frame as the floors sent them."""
    records = bytearray(index.data_of(frame, content))
    unstamp(records)
    return bytes(records)

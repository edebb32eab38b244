"""Long tapes for the audits' benchmark, made fast: real segments and indexes, with the hashes that a receiver makes.

Records are made in arrays, a segment at a time. A frame is hashed one by one, as its hash needs the one before.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from blake3 import blake3

from benchmarks.audit_stage import Punctuality
from levelcast.native import crc32
from levelcast.protocol.history import MembershipChange, SourcePosition, Tip
from levelcast.records import dbn_metadata, trades
from levelcast.storage.release_log import ENTRIES_PER_FILE, RELEASE, SUFFIX, write_file
from levelcast.storage.tape.directory import DATA, INDEX, segment_path
from levelcast.storage.tape.index import ENTRY, PACKET, pack_header
from levelcast.wire.messages import MemberLife, Membership

RECORDS_PER_SEGMENT = 1_000_000
MEAN_RECORDS = 22
MOST_RECORDS = 900
PER_PACKET = 21
"""Trades in a datagram of 1,400 bytes."""
SOURCES = 13
SLOT_NS = 10_000_000
HOLD_NS = 500_000_000
T0 = 1_700_000_000_000_000_000
_HEAD = np.dtype([("slot", "<u8"), ("timestamp", "<u8"), ("sequence", "<u8"), ("packets", "<u4")])


def make_tape(directory: Path, records: int, seed: int = 1) -> npt.NDArray[np.int64]:
    """A tape of finished segments with at least so many trades; the slots of its frames."""
    directory.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    tip = Tip(records=[MembershipChange(0, Membership(0, tuple(MemberLife(i, 1) for i in range(101, 106))))])
    slots: list[npt.NDArray[np.int64]] = []
    while tip.next_sequence <= records:
        slots.append(_segment(directory, tip, rng))
    return np.concatenate(slots)


def _segment(directory: Path, tip: Tip, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """One segment behind the tip, which moves past it."""
    first = tip.next_sequence
    end = (first - 1) // RECORDS_PER_SEGMENT * RECORDS_PER_SEGMENT + RECORDS_PER_SEGMENT
    drawn = 1 + rng.exponential(MEAN_RECORDS - 1, (end - first + 1) // MEAN_RECORDS * 2 + 100).astype(np.int64)
    counts = np.minimum(drawn, MOST_RECORDS)
    counts = counts[: int(np.searchsorted(np.cumsum(counts), end - first + 1)) + 1]
    frames, total = len(counts), int(counts.sum())
    slots = tip.slot + 1 + np.arange(frames)
    stamps = (T0 + slots * SLOT_NS).astype(np.uint64)
    header = pack_header(0, RECORDS_PER_SEGMENT, tip)
    packets, of_frame = _packets(counts, tip, rng)
    batch = trades(total)
    which = np.repeat(np.arange(frames), counts)
    place = np.arange(total)
    batch["publisher_id"] = np.repeat(packets["source"], packets["records"])
    batch["instrument_id"] = rng.integers(1, 500, total)
    batch["price"] = rng.integers(10**9, 10**12, total)
    batch["size"] = rng.integers(1, 1000, total)
    batch["trade_id"] = first + place
    batch["ts_event"] = stamps[which] - rng.integers(1_000_000, 60_000_000, total).astype(np.uint64)
    bare = batch.tobytes()
    batch["sequence"] = (first + place).astype(np.uint32)
    batch["ts_recv"] = stamps[which]
    lines = np.zeros(frames, ENTRY)
    size = batch.dtype.itemsize
    starts = np.cumsum(counts) - counts
    per_frame = np.bincount(of_frame, minlength=frames)
    lines["size"] = ENTRY.itemsize + per_frame * PACKET.itemsize
    lines["slot"], lines["timestamp"], lines["sequence"] = slots, stamps, first + starts
    lines["records"], lines["packets"] = counts, per_frame
    lines["at"], lines["bytes"] = len(dbn_metadata()) + starts * size, counts * size
    entries = _chained(lines, packets.tobytes(), per_frame, memoryview(bare), starts * size, tip.chain)
    segment_path(directory, first, INDEX).write_bytes(header + b"".join(entries))
    with segment_path(directory, first, DATA).open("wb") as file:
        file.write(dbn_metadata())
        batch.tofile(file)
    tip.slot, tip.next_sequence, tip.chain = int(slots[-1]), first + total, bytes(lines["chain"][-1])
    return slots


def _packets(
    counts: npt.NDArray[np.int64], tip: Tip, rng: np.random.Generator
) -> tuple[npt.NDArray[np.void], npt.NDArray[np.int64]]:
    """The records of each frame in full packets and a last one, each of some source, numbered on."""
    per_frame = -(-counts // PER_PACKET)
    of_frame = np.repeat(np.arange(len(counts)), per_frame)
    packets = np.zeros(len(of_frame), PACKET)
    packets["source"] = 1 + rng.integers(0, SOURCES, len(packets))
    packets["incarnation"] = 1
    last = np.cumsum(per_frame) - 1
    packets["records"] = PER_PACKET
    packets["records"][last] = counts - (per_frame - 1) * PER_PACKET
    packets["bytes"] = packets["records"].astype(np.int64) * 64
    for source in range(1, SOURCES + 1):
        mine = np.flatnonzero(packets["source"] == source)
        start = tip.places[source].next if source in tip.places else 1
        packets["number"][mine] = start + np.arange(len(mine))
        if len(mine):
            tip.places[source] = SourcePosition(1, start + len(mine))
    return packets, of_frame


def _chained(
    lines: npt.NDArray[np.void],
    table: bytes,
    per_frame: npt.NDArray[np.int64],
    bare: memoryview,
    starts: npt.NDArray[np.int64],
    chain: bytes,
) -> list[bytes]:
    heads = np.zeros(len(lines), _HEAD)
    for name in _HEAD.names or ():
        heads[name] = lines[name]
    packed, each = heads.tobytes(), _HEAD.itemsize
    table_end = (np.cumsum(per_frame) * PACKET.itemsize).tolist()
    begin, end = starts.tolist(), (starts + lines["bytes"].astype(np.int64)).tolist()
    chains, tables, at = [], [], 0
    for frame in range(len(lines)):
        rows = table[at : table_end[frame]]
        at = table_end[frame]
        head = packed[frame * each : frame * each + each]
        chain = blake3(b"".join((chain, head, rows, bare[begin[frame] : end[frame]]))).digest()
        chains.append(chain)
        tables.append(rows)
    lines["chain"] = np.frombuffer(b"".join(chains), "V32")
    raw, size = lines.tobytes(), ENTRY.itemsize
    entries = []
    for frame, rows in enumerate(tables):
        body = raw[frame * size + 8 : frame * size + size] + rows
        entries.append(raw[frame * size : frame * size + 4] + crc32(body).to_bytes(4, "little") + body)
    return entries


def make_log(directory: Path, slots: npt.NDArray[np.int64], seed: int) -> None:
    """The release log of a receiver that released every frame."""
    directory.mkdir(parents=True)
    entries = np.zeros(len(slots), RELEASE)
    entries["slot"], entries["generation"], entries["records"] = slots, 1, MEAN_RECORDS
    entries["scheduled_ns"] = T0 + slots * SLOT_NS + HOLD_NS
    delays = Punctuality().delays(np.random.default_rng(seed), len(slots))
    entries["released_ns"] = entries["scheduled_ns"] + delays.astype(np.uint64)
    for number, first in enumerate(range(0, len(entries), ENTRIES_PER_FILE), 1):
        path = directory / f"{number:016}{SUFFIX}"
        write_file(path, entries[first : first + ENTRIES_PER_FILE])


def make_day(data: Path, records: int, names: Sequence[str]) -> int:
    """The same tape at every receiver, real copies, and a log at each; how many bytes it takes."""
    slots = make_tape(data / names[0] / "tape", records)
    for name in names[1:]:
        shutil.copytree(data / names[0] / "tape", data / name / "tape")
    for seed, name in enumerate(names):
        make_log(data / name / "releases", slots, seed)
    return sum(path.stat().st_size for path in data.rglob("*") if path.is_file())

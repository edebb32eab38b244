"""What a node waits for when it writes: the journal's commit, forget and roll, a frame on the tape, a segment removed,
and what it computes for every byte: the hash of the chain.

Everything is wall time of single calls, because that is what the ring waits, on the file system that holds `--out`. The
compared figure of a write is the same bytes written bare: one `pwrite`, with `power` one `fdatasync` behind it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from blake3 import blake3

from benchmarks.report import Cell, Figure, Options, Result, Table, tell
from levelcast.node.retention import Leaving
from levelcast.protocol.effects import Checkpoint
from levelcast.protocol.history import GENESIS, Frame, MembershipChange, Tip, make_frame
from levelcast.records import trades
from levelcast.storage.append_file import Durability, remove
from levelcast.storage.journal.file import SEGMENT_BYTES, JournalFile, initialise
from levelcast.storage.tape.stamps import frame_bytes
from levelcast.storage.tape.writer import TapeWriter
from levelcast.units import quantile
from levelcast.wire.codec import seal_message
from levelcast.wire.messages import Data, MemberLife, Membership, Packet, Run, Token
from levelcast.wire.packets import seal

DURABLE: tuple[Durability, ...] = ("process", "power")
COMMITS = {"process": 20_000, "power": 500}
FRAMES = {"process": 4_000, "power": 4_000}
QUICK = 20
"""A quick run does this many times less."""
RECORDS = 20
"""Trades in a packet: 1,280 bytes, which fits a datagram of 1,400."""
BATCH = 32
PACKETS = 10
"""Packets in a frame: 40,000 records a second in slots of 5 ms."""
SETTLE_SLOTS = 16
"""A checkpoint comes as often as the receiver makes one."""
TAPE_SEGMENT_BYTES = 64 << 20
SEGMENTS_REMOVED = 6
HASHED_BYTES, HASHES = 60_000, 2_000
FIRST = Tip(records=[MembershipChange(0, Membership(0, (MemberLife(1, 1),)))])

Times = list[float]


def run(options: Options) -> Result:
    """Measure everything with both durabilities."""
    result = Result("journal")
    options.out.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="journal-", dir=options.out) as folder:
        place = Path(folder)
        rows: list[tuple[Cell, ...]] = []
        for durable in DURABLE:
            tell(f"journal: {durable}")
            rows += _journal(result, place, durable, options)
            rows += _tape(result, place, durable, options)
        rows += _removal(place, options)
        rows += _hash(result, options)
        result.notes.append(f"File system: {_file_system(place)}.")
    result.tables.append(Table("one call, microseconds", ("call", "calls", "p50", "p99", "max"), rows))
    result.notes.append(
        f"A packet is {RECORDS} trades, a frame {PACKETS} packets. A segment of the journal has "
        f"{SEGMENT_BYTES >> 20} MiB, one of the tape {TAPE_SEGMENT_BYTES >> 20} MiB. A checkpoint and a forget "
        f"follow every {SETTLE_SLOTS} slots."
    )
    return result


def _hash(result: Result, options: Options) -> Iterator[tuple[Cell, ...]]:
    """The chain hash of a frame, and the usual one that it was chosen over (docs/dependencies.md)."""
    content, count = os.urandom(HASHED_BYTES), HASHES // (QUICK if options.quick else 1)
    chosen = [_timed(lambda: blake3(content).digest()) for _ in range(count)]
    usual = [_timed(lambda: sha256(content).digest()) for _ in range(count)]
    what = f"hash of {HASHED_BYTES:,} bytes"
    medians = [quantile(sorted(times), 0.5) for times in (chosen, usual)]
    result.figures.append(Figure(f"{what}, BLAKE3, p50", medians[0], "µs", "SHA-256", medians[1]))
    yield _row(f"{what}, BLAKE3", chosen)
    yield _row("  SHA-256", usual)


# -- the journal ------------------------------------------------------------------------------------------


def _journal(result: Result, place: Path, durable: Durability, options: Options) -> Iterator[tuple[Cell, ...]]:
    count = COMMITS[durable] // (QUICK if options.quick else 1)
    for size in (1, BATCH):
        name = f"journal, {size} packet{'s' if size > 1 else ''} a commit, {durable}"
        commits, rolls, forgets = _commits(place / f"journal-{durable}-{size}", durable, count // min(size, 4), size)
        bare = _bare(place / f"bare-{durable}-{size}", durable, size, len(commits))
        result.figures.append(_against_bare(name, commits, bare))
        yield _row(name, commits)
        yield _row("  the same bytes bare", bare)
        if rolls:
            yield _row("  commits that began a segment", rolls)
        yield _row("  forgets", forgets)


def _commits(directory: Path, durable: Durability, count: int, size: int) -> tuple[Times, Times, Times]:
    """Commits of `size` packets and their slot's token; of these the ones that rolled; forgets."""
    initialise(directory, 1, 0, durable)
    journal, _ = JournalFile.open(directory, durable=durable)
    commits, rolls, forgets = Times(), Times(), Times()
    number = 0
    for slot in range(1, count + 1):
        for packet in _packets(number, size):
            journal.append(packet)
        number += size
        journal.append(_token(slot, number - size + 1, number))
        before = journal._current
        took = _timed(journal.commit)
        (commits if journal._current == before else rolls).append(took)
        if slot % SETTLE_SLOTS == 0:
            journal.append(Checkpoint(slot, GENESIS))
            journal.commit()
            forgets.append(_timed(partial(journal.forget, slot, {1: (1, number + 1)})))
    journal.close()
    return commits, rolls, forgets


def _bare(path: Path, durable: Durability, size: int, count: int) -> Times:
    content = b"".join(packet.sealed for packet in _packets(0, size))
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    at, times = 0, Times()

    def write() -> None:
        os.pwrite(fd, content, at)
        if durable == "power":
            os.fdatasync(fd)

    for _ in range(count):
        times.append(_timed(write))
        at += len(content)
    os.close(fd)
    path.unlink()
    return times


def _packets(before: int, count: int) -> Iterable[Data]:
    payload = trades(RECORDS).tobytes()
    return [seal(Packet(1, 1, before + each, RECORDS, payload), 0) for each in range(1, count + 1)]


def _token(slot: int, first: int, last: int) -> Token:
    return seal_message(Token(1, slot, slot, 1, slot, 64, (Run(1, 1, first, last),), ()), 0)


# -- the tape ---------------------------------------------------------------------------------------------


def _tape(result: Result, place: Path, durable: Durability, options: Options) -> Iterator[tuple[Cell, ...]]:
    """Frames one by one; with `power` the tape is synced before each checkpoint (rule 9)."""
    count = FRAMES[durable] // (QUICK if options.quick else 1)
    writer = TapeWriter.open(place / f"tape-{durable}", FIRST, durable=durable)
    frames, syncs, size = Times(), Times(), 0
    for frame in _frames(count):
        content = frame_bytes(frame)
        size = len(content)
        frames.append(_timed(partial(writer.append, frame, content)))
        if durable == "power" and frame.slot % SETTLE_SLOTS == 0:
            syncs.append(_timed(writer.sync))
    writer.close()
    name = f"tape, a frame of {PACKETS * RECORDS} records, {durable}"
    bare = _bare(place / f"bare-tape-{durable}", "process", max(1, size // (RECORDS * 64)), len(frames))
    result.figures.append(_against_bare(name, frames, bare))
    yield _row(name, frames)
    yield _row("  the same bytes bare, process", bare)
    if syncs:
        yield _row("  syncs before a checkpoint", syncs)


def _frames(count: int) -> Iterator[Frame]:
    chain, sequence, number = GENESIS, 1, 0
    for slot in range(1, count + 1):
        packets = tuple(_packets(number, PACKETS))
        frame = make_frame(slot, slot, sequence, packets, chain)
        chain, sequence, number = frame.chain, sequence + PACKETS * RECORDS, number + PACKETS
        yield frame


# -- removal ----------------------------------------------------------------------------------------------


def _removal(place: Path, options: Options) -> Iterator[tuple[Cell, ...]]:
    """A segment of the tape removed in the loop, and as retention does it."""
    leaving = Leaving()
    ways: dict[str, Callable[[Path], None]] = {"in the loop": remove, "as retention does it": leaving.remove}
    size = TAPE_SEGMENT_BYTES // (QUICK if options.quick else 1)
    for name, way in ways.items():
        paths = [_written(place / f"segment-{each}", size) for each in range(SEGMENTS_REMOVED)]
        yield _row(f"a segment of the tape removed {name}", [_timed(partial(way, path)) for path in paths])
    leaving.close()


def _written(path: Path, size: int) -> Path:
    with path.open("wb") as file:
        for _ in range(size >> 20):
            file.write(bytes(1 << 20))
        file.flush()
        os.fsync(file.fileno())
    return path


# -- figures ----------------------------------------------------------------------------------------------


def _timed(call: Callable[[], object]) -> float:
    """Microseconds."""
    begun = time.perf_counter_ns()
    call()
    return (time.perf_counter_ns() - begun) / 1e3


def _row(name: str, times: Times) -> tuple[Cell, ...]:
    ordered = sorted(times)
    return name, len(ordered), *(quantile(ordered, share) for share in (0.5, 0.99, 1.0))


def _against_bare(name: str, times: Times, bare: Times) -> Figure:
    return Figure(f"{name}, p50", quantile(sorted(times), 0.5), "µs", "bare", quantile(sorted(bare), 0.5))


def _file_system(path: Path) -> str:
    """The type of the file system that a directory is on."""
    mounts = []
    try:
        for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines():
            _, where, kind, *_ = line.split()
            if path.resolve().is_relative_to(where):
                mounts.append((len(where), kind))
    except OSError:
        return "unknown"
    return max(mounts, default=(0, "unknown"))[1]

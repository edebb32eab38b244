"""Tapes of several receivers to audit, and `plant`: the faults that an audit must find and name."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from levelcast.protocol.history import Frame, chained
from levelcast.records import dbn_metadata
from levelcast.storage.release_log import Released, ReleaseLog
from levelcast.storage.tape.index import pack_frame, pack_header
from levelcast.storage.tape.reader import TapeReader
from levelcast.storage.tape.segment import Segment
from levelcast.storage.tape.stamps import frame_bytes
from levelcast.storage.tape.writer import TapeWriter
from tests.tape_parts import FIRST

NAMES = ("new-york-1", "london-1", "frankfurt-1", "tokyo-1", "sydney-1")
HOLD_NS = 100_000_000


def record(directory: Path, frames: Sequence[Frame], *, records_per_segment: int = 400) -> None:
    """A node's tape and its release log, every release 50 µs behind its instant."""
    writer = TapeWriter.open(directory / "tape", FIRST, records_per_segment=records_per_segment)
    writer.extend(frames)
    writer.close()
    log = ReleaseLog(directory / "releases")
    log.append(
        [Released(f.slot, 1, f.timestamp_ns + HOLD_NS, f.timestamp_ns + HOLD_NS + 50_000, f.records, False)
         for f in frames]
    )  # fmt: skip
    log.close()


def record_all(data: Path, frames: Sequence[Frame], names: Sequence[str] = NAMES, **more: int) -> list[Path]:
    """The same tape at every receiver."""
    record(data / names[0], frames, **more)
    for name in names[1:]:
        shutil.copytree(data / names[0], data / name)
    return [data / name for name in names]


# -- faults ---------------------------------------------------------------------------------------------


def segment_with(node: Path, slot: int) -> tuple[Segment, int]:
    """The segment that has a slot, and which of its frames that is."""
    for segment in TapeReader(node / "tape").segments:
        for number, line in enumerate(segment.lines):
            if line.slot == slot:
                return segment, number
    raise AssertionError(f"no slot {slot}")


def change_byte(path: Path, at: int) -> None:
    """One bit of one byte."""
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def rewrite(segment: Segment, edit: Callable[[list[Frame]], list[Frame]]) -> None:
    """The frames of a segment after `edit`, with lines that look right: only the chain can give it away."""
    frames = edit([each.frame() for each in segment.frames()])
    header = segment.header
    data, index = (
        bytearray(dbn_metadata()),
        bytearray(pack_header(header.stripe, header.records_per_segment, header.tip)),
    )
    for frame in frames:
        content = frame_bytes(frame)
        index += pack_frame(frame, len(data), len(content))
        data += content
    segment.data_path.write_bytes(data)
    segment.index_path.write_bytes(index)


def swap_bytes(segment: Segment, one: tuple[int, int], other: tuple[int, int]) -> None:
    """Two stretches (begin, end) of a segment's records change places, of the same length or side by side."""
    content = segment.data_path.read_bytes()
    (a, b), (c, d) = one, other
    assert b <= c
    segment.data_path.write_bytes(content[:a] + content[c:d] + content[b:c] + content[a:b] + content[d:])


def rechained(frames: Sequence[Frame]) -> list[Frame]:
    """The same packets with sequences and hashes made anew: a forger who knows the format."""
    made: list[Frame] = []
    for frame in frames:
        before = made[-1] if made else None
        chain = before.chain if before is not None else FIRST.chain
        sequence = before.first_sequence + before.records if before is not None else FIRST.next_sequence
        made.append(
            chained(
                frame.slot, frame.timestamp_ns, sequence, frame.records, frame.runs, frame.table, frame.content, chain
            )
        )
    return made


def shift_releases(node: Path, by_ns: int, *, share: float = 1.0) -> None:
    """Every release of a receiver so much later (or earlier) by its own log, or a share of them."""
    from levelcast.storage.release_log import read_file, write_file

    for path in sorted((node / "releases").glob("*.releases")):
        entries = read_file(path)
        chosen = np.random.default_rng(1).random(len(entries)) < share
        entries["released_ns"] = (entries["released_ns"].astype(np.int64) + by_ns * chosen).astype(np.uint64)
        write_file(path, entries)

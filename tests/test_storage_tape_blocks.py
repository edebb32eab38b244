"""Blocks have the records of the frames, to the end that the tape had, with few segments in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from levelcast.storage.append_file import TapeError
from levelcast.storage.tape.blocks import TapeBlocks
from levelcast.storage.tape.reader import TapeReader
from levelcast.storage.tape.writer import TapeWriter
from tests.tape_parts import FIRST, make_frames, tip_after

FRAMES = make_frames(120)
NEXT = tip_after(FRAMES).next_sequence


def write(folder: Path, upto: int = len(FRAMES)) -> TapeWriter:
    writer = TapeWriter.open(folder, FIRST, records_per_segment=40)
    writer.extend(FRAMES[:upto])
    return writer


@pytest.mark.parametrize("most", [1, 30, 10_000])
@pytest.mark.parametrize("start", [1, 2, 500, NEXT - 1, NEXT])
def test_blocks_are_the_frames_one_after_the_other(tmp_path: Path, most: int, start: int) -> None:
    write(tmp_path).close()
    reader = TapeReader(tmp_path)
    blocks = TapeBlocks(reader, start, most)
    assert blocks.stop == NEXT
    frames = list(reader.frames(from_sequence=start))
    assert b"".join(bytes(block.data) for block in blocks) == b"".join(bytes(frame.data()) for frame in frames)
    assert [block.first_sequence for block in blocks][:1] == [frame.line.first_sequence for frame in frames][:1]
    for block in blocks:
        found = sorted(number for _, numbers, _ in block.by_type() for number in numbers.tolist())
        assert found == list(range(len(found)))
        assert len(found) <= max(most, max(frame.records for frame in FRAMES))


def test_frames_that_are_added_later_are_not_read(tmp_path: Path) -> None:
    writer = write(tmp_path, 60)
    reader = TapeReader(tmp_path)
    blocks = TapeBlocks(reader)
    before = b"".join(bytes(block.data) for block in blocks)
    writer.extend(FRAMES[60:])
    reader.refresh()
    assert b"".join(bytes(block.data) for block in blocks) == before
    assert len(b"".join(bytes(block.data) for block in TapeBlocks(reader))) > len(before)
    writer.close()


def test_a_segment_that_is_removed_meanwhile_is_one_sentence(tmp_path: Path) -> None:
    write(tmp_path).close()
    blocks = TapeBlocks(TapeReader(tmp_path))
    gone = sorted(tmp_path.glob("*.dbn"))[3]
    gone.unlink()
    with pytest.raises(TapeError, match=f"{gone.name}: renamed or removed by the running node; run the command again"):
        list(blocks)


def mapped(folder: Path) -> int:
    """How many files of the tape this process has in memory, according to the kernel."""
    maps = Path("/proc/self/maps").read_text()
    return len({line.split()[-1] for line in maps.splitlines() if f"{folder}/" in line})


def test_few_segments_are_in_memory_at_a_time(tmp_path: Path) -> None:
    write(tmp_path).close()
    reader = TapeReader(tmp_path)
    assert len(reader.segments) > 12
    for _ in range(2):  # the second pass begins with the last segments loaded
        assert max(mapped(tmp_path) for _ in TapeBlocks(reader)) <= 6

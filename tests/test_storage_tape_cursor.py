"""Reading a tape from any frame on, in small steps, gives what the reader of whole tapes gives."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levelcast.storage.tape import cursor as module
from levelcast.storage.tape.cursor import Excerpt, NotOnTape, TapeCursor
from levelcast.storage.tape.directory import first_sequence_of
from levelcast.storage.tape.reader import TapeReader
from levelcast.storage.tape.writer import TapeWriter
from tests.tape_parts import FIRST, T0, make_frames

FRAMES = make_frames(120)


@pytest.fixture(scope="module")
def tape(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tape")
    writer = TapeWriter.open(directory, FIRST, records_per_segment=100)
    writer.extend(FRAMES)
    writer.close()
    assert len(TapeReader(directory).segments) > 5
    return directory


def everything(cursor: TapeCursor, most_bytes: int) -> list[Excerpt]:
    found: list[Excerpt] = []
    more = True
    while more:
        some, more = cursor.read(most_bytes, 7)
        assert sum(each.line.size for each in some) <= most_bytes or len(some) == 1
        assert len(some) <= 7
        found += some
    cursor.close()
    return found


@settings(max_examples=30, deadline=None)
@given(st.integers(0, len(FRAMES) - 1), st.sampled_from([1, 2_000, 10**6]))
def test_every_frame_from_any_place_on(tape: Path, first: int, most_bytes: int) -> None:
    slot = FRAMES[first - 1].slot if first else 0
    found = everything(TapeCursor(tape, slot, FRAMES[first].first_sequence), most_bytes)
    wanted = list(TapeReader(tape).frames(after_slot=slot))
    assert [(each.line.slot, each.content) for each in found] == [
        (each.line.slot, bytes(each.data())) for each in wanted
    ]


def test_the_place_is_looked_for_in_steps(tape: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "INDEX_PIECE", 200)
    last = [frame for frame in FRAMES if frame.first_sequence <= 100][-1]
    cursor = TapeCursor(tape, last.slot - 1, last.first_sequence)
    steps = 0
    while not (some := cursor.read(10**6, 1_000)[0]):
        steps += 1
    assert steps > 3
    assert some[0].line.slot == last.slot
    cursor.close()


def test_it_follows_a_writer_and_keeps_what_retention_takes(tmp_path: Path) -> None:
    writer = TapeWriter.open(tmp_path, FIRST, records_per_segment=100)
    writer.extend(FRAMES[:5])
    cursor = TapeCursor(tmp_path, 0, 1)
    found = [*cursor.read(10**6, 1_000)[0]]
    assert cursor.read(10**6, 1_000) == ([], False)
    writer.extend(FRAMES[5:12])
    while (some := cursor.read(10**6, 1_000))[1]:
        found += some[0]
    assert [each.line.slot for each in found] == [frame.slot for frame in FRAMES[:12]]
    cursor.close()
    cursor = TapeCursor(tmp_path, 0, 1)
    assert first_sequence_of(tmp_path) == 1
    writer.extend(FRAMES[12:])
    writer.retain(T0, max_bytes=1)
    assert cursor.read(1, 1_000)[0][0].line.slot == FRAMES[0].slot
    with pytest.raises(NotOnTape, match="begins after sequence 1"):
        TapeCursor(tmp_path, 0, 1)
    cursor.close()
    writer.close()

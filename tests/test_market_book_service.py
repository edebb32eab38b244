"""The service of past states: any sequence, the same bytes as a rebuild from the start, few frames read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from levelcast.market.book_service import BookService, SequenceNotHeld
from levelcast.market.engine import BookFrame, MatchingEngine
from levelcast.market.synthetic_orders import order_frames
from levelcast.records import count_records


class Tape:
    """Frames in memory, and how many of them were read."""

    def __init__(self, count: int) -> None:
        self.all: list[BookFrame] = []
        sequence = 0
        for at_ns, payload in order_frames(count, 2, seed=5):
            sequence += count_records(payload)
            self.all.append(BookFrame(sequence, at_ns, payload))
        self.end, self.read = len(self.all), 0

    def frames(self, after: int) -> Iterator[BookFrame]:
        for frame in self.all[: self.end]:
            if frame.sequence > after:
                self.read += 1
                yield frame

    def state(self, sequence: int) -> bytes:
        """Return the state at a sequence, from the first frame on."""
        engine = MatchingEngine()
        engine.frames(frame for frame in self.all if frame.sequence <= sequence)
        return engine.snapshot()


@pytest.mark.parametrize("kept", [2, 3, 16])
def test_state_at_any_sequence_is_that_of_a_rebuild(kept: int) -> None:
    tape = Tape(6_000)
    service = BookService(tape.frames, MatchingEngine(), interval=1_000, kept=kept)
    service.follow()
    last = tape.all[-1].sequence
    assert service.engine.snapshot() == tape.state(last)
    for sequence in (0, 1, 2, 1_499, 3_000, 3_001, 5_555, last - 1, last):
        assert service.snapshot_at(sequence) == tape.state(sequence), sequence


def test_state_in_the_past_reads_no_more_frames_than_an_interval() -> None:
    tape = Tape(6_000)
    service = BookService(tape.frames, MatchingEngine(), interval=1_000)
    service.follow()
    tape.read = 0
    service.at(tape.all[-5].sequence)
    assert tape.read <= 1_000 / 100 + 2


def test_late_joiner_continues_from_a_snapshot() -> None:
    tape = Tape(3_000)
    tape.end = 20
    service = BookService(tape.frames, MatchingEngine())
    service.follow()
    engine = MatchingEngine.restore(service.snapshot_at(tape.all[12].sequence))
    tape.end = len(tape.all)
    engine.frames(tape.frames(engine.sequence))
    service.follow()
    assert engine.snapshot() == service.engine.snapshot() == tape.state(tape.all[-1].sequence)
    joined = BookService(tape.frames, MatchingEngine.restore(tape.state(tape.all[5].sequence)))
    joined.follow()
    assert joined.snapshot_at(tape.all[9].sequence) == tape.state(tape.all[9].sequence)
    with pytest.raises(SequenceNotHeld, match="is before the first snapshot"):
        joined.at(tape.all[4].sequence)
    with pytest.raises(SequenceNotHeld, match="is after the end of the tape"):
        joined.at(tape.all[-1].sequence + 1)

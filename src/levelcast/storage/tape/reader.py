"""Read a tape: its frames from any slot or sequence on, while another process may write it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from levelcast.protocol.history import Tip
from levelcast.storage.advice import repair_tape
from levelcast.storage.append_file import TapeError
from levelcast.storage.tape.directory import SegmentFile
from levelcast.storage.tape.index import IndexEntry
from levelcast.storage.tape.segment import Segment, TapeFrame, open_segments
from levelcast.storage.tape.start_check import damage_of

_KEPT_IN_MEMORY = 4


class TapeReader:
    """A tape for reading. `refresh` loads frames that a writer has added since."""

    def __init__(self, directory: Path | str) -> None:
        self.directory = Path(directory)
        self.segments: list[Segment] = []
        self.refresh()

    def refresh(self) -> None:
        known = {segment.data_path: segment for segment in self.segments}
        self.segments = [known.get(each.data_path, each) for each in open_segments(self.directory)]
        for segment in self.segments:
            if segment.active:
                segment.refresh()

    @property
    def before(self) -> Tip:
        """The tip before the first frame that is still on the tape."""
        return self.segments[0].header.tip.copy()

    @property
    def stripe(self) -> int:
        return self.segments[0].header.stripe

    def tip(self) -> Tip:
        """Return the tip after the last frame, from the newest segment's index."""
        return self.segments[-1].tip()

    def frames(self, *, after_slot: int = 0, from_sequence: int = 1) -> Iterator[TapeFrame]:
        """Yield frames in order, with a slot above `after_slot` and with records from `from_sequence` on."""
        first = 0
        for number, segment in reversed(list(enumerate(self.segments))):
            first = number
            before = segment.header.tip
            if before.slot <= after_slot or before.next_sequence <= from_sequence:
                break
        for segment in self.segments[first:]:
            self._make_room(segment)
            self._begin(segment)
            for frame in segment.frames():
                if frame.line.slot > after_slot and frame.line.next_sequence > from_sequence:
                    yield frame

    def _begin(self, segment: Segment) -> None:
        """Prepare to yield the frames of a segment."""

    def chain_at(self, slot: int) -> bytes:
        """Return the chain hash after the last frame up to `slot`."""
        chain = self.segments[0].header.tip.chain
        for segment in reversed(self.segments):
            if segment.header.tip.slot <= slot:
                chain = segment.header.tip.chain
                for line in segment.lines:
                    if line.slot > slot:
                        break
                    chain = line.chain
                break
        return chain

    def _make_room(self, wanted: Segment) -> None:
        """Unload indexes except the last few, so that a long tape need not fit into memory."""
        loaded = [segment for segment in self.segments if segment.is_loaded and segment is not wanted]
        for segment in loaded[: max(0, len(loaded) - _KEPT_IN_MEMORY)]:
            segment.unload()


class CheckedReader(TapeReader):
    """A tape that yields only frames of valid segments; raises TapeError before the first frame of any other.

    A second pass does not check again what the first one has read.
    """

    def __init__(self, directory: Path | str) -> None:
        super().__init__(directory)
        self._end: IndexEntry | None = None
        self._checked: set[int] = set()

    def frames(self, *, after_slot: int = 0, from_sequence: int = 1) -> Iterator[TapeFrame]:
        self._end = None
        return super().frames(after_slot=after_slot, from_sequence=from_sequence)

    def _begin(self, segment: Segment) -> None:
        where, end = SegmentFile(str(self.directory), segment.first_sequence, segment.active), self._end
        if segment.first_sequence not in self._checked and (damage := damage_of(where)) is not None:
            raise self._refused(damage)
        self._checked.add(segment.first_sequence)
        tip = segment.header.tip
        if end is not None and (tip.next_sequence, tip.slot, tip.chain) != (end.next_sequence, end.slot, end.chain):
            raise self._refused(f"{segment.index_path}: does not follow the previous segment")
        self._end = segment.lines[-1] if segment.lines else self._end

    def _refused(self, why: object) -> TapeError:
        return TapeError(f"{why}; {repair_tape(self.directory)}, or read it as it is with --unsound")

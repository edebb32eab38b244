"""Read a tape: its frames from any slot or sequence on, while another process may write it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from levelcast.protocol.history import Tip
from levelcast.storage.append_file import TapeError
from levelcast.storage.tape.segment import Segment, TapeFrame, open_segments

_KEPT_IN_MEMORY = 4


class TapeReader:
    """A tape for reading. `refresh` loads frames that a writer has added since.

    With `check`, `frames` raises TapeError at the first frame whose records do not match its hash. A second pass does
    not check again what the first one has read.
    """

    def __init__(self, directory: Path | str, *, check: bool = False) -> None:
        self.directory = Path(directory)
        self._check = check
        self._checked_slot = 0
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
            for frame in segment.frames():
                if frame.line.slot > after_slot and frame.line.next_sequence > from_sequence:
                    if self._check and frame.line.slot > self._checked_slot:
                        _require_valid(frame)
                        self._checked_slot = frame.line.slot
                    yield frame

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


def _require_valid(frame: TapeFrame) -> None:
    try:
        frame.frame()
    except TapeError as error:
        raise TapeError(f"{error}; restore the tape from another receiver") from None

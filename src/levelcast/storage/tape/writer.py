"""Write the tape of one receiver: released frames in append-only segments, identical at every receiver (rule 14).

- A frame's records are written to the data first, and then its entry to the index. So a crash never leaves an entry
  without its records. `open` checks the tape (`start_check`), cuts off a torn tail and keeps it beside the tape, and
  refuses a tape that is damaged elsewhere without a change.
- A segment ends with the frame in which the sequence reaches a multiple of N, however many frames one call has: all
  receivers' segments have the same boundaries. It is then a complete DBN file and gets its final name.
- Retention removes complete segments from the oldest on, never the one that grows. The index of each begins with the
  state of the order (`Tip`), so the rest of the tape can always be continued. It renames the data first, so that a
  removal that was interrupted differs from a file that is missing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from levelcast.protocol.effects import Checkpoint
from levelcast.protocol.history import Frame, Tip
from levelcast.records import dbn_metadata
from levelcast.storage.append_file import (
    AppendFile,
    Durability,
    TapeError,
    cut_tail,
    cut_text,
    lock_directory,
    remove,
    remove_unfinished,
    rename,
)
from levelcast.storage.tape.directory import (
    ACTIVE,
    DATA,
    INDEX,
    REMOVED,
    SegmentFile,
    list_segments,
    missing_records,
    segment_files,
    segment_path,
)
from levelcast.storage.tape.index import last_timestamp, pack_frame, pack_header, read_start, unpack_header
from levelcast.storage.tape.segment import Segment
from levelcast.storage.tape.stamps import frame_bytes
from levelcast.storage.tape.start_check import check_empty, check_finished, check_last, refused

RECORDS_PER_SEGMENT = 1_000_000
"""Records per segment: 64 MB of trades."""


class Span(NamedTuple):
    """First slot and last time of a finished segment, for retention."""

    after_slot: int
    end_ns: int


class TapeWriter:
    """An open tape. One process writes it at a time; any number may read."""

    def __init__(self, directory: Path, stripe: int, records_per_segment: int, durable: Durability) -> None:
        self.directory = directory
        self.stripe = stripe
        self.records_per_segment = records_per_segment
        self.durable = durable
        self.tip = Tip()
        self.notices: list[str] = []
        """Descriptions of the torn tails that `open` has cut off."""
        self._first_sequence = 1
        self._per_this_segment = records_per_segment
        self._data: AppendFile | None = None
        self._index: AppendFile | None = None
        self._lock = -1
        self._finished: dict[int, int] = {}
        """Finished segments by their first sequence, oldest first, with their size in bytes."""
        self._spans: dict[int, Span] = {}
        self._after_slot = 0
        self._end_ns = 0

    @classmethod
    def open(
        cls,
        directory: Path | str,
        first: Tip,
        *,
        stripe: int = 0,
        records_per_segment: int = RECORDS_PER_SEGMENT,
        durable: Durability = "process",
        needs: Checkpoint | None = None,
    ) -> TapeWriter:
        """Continue a tape, or begin one: `first` is the tip before the first slot (`ring.receiver.first_tip`).

        `needs` is the checkpoint of the journal, which cannot supply frames up to it. Raise TapeError, and change
        nothing, if the tape is damaged or ends before that.
        """
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        writer = cls(directory, stripe, records_per_segment, durable)
        writer._lock = lock_directory(directory, "tape")
        try:
            finish_retention(directory)
            remove_unfinished(directory)
            if _remove_leftovers(directory):
                writer._go_on(_listed(directory), needs)
            else:
                check_empty(directory, first, needs)
                writer.tip = first.copy()
                writer._begin()
        except BaseException:
            writer.close()
            raise
        return writer

    def _go_on(self, segments: list[SegmentFile], needs: Checkpoint | None) -> None:
        """Check the tape, cut off a torn tail of its last segment, and continue from there."""
        check_finished(self.directory, segments)
        segment = segments[-1]
        resume = check_last(self.directory, segment, self.stripe, needs)
        self._finished = {
            each.first: each.index_path.stat().st_size + each.data_path.stat().st_size
            for each in segments
            if not each.active
        }
        self.tip, self._end_ns = resume.tip, resume.end_ns
        if not segment.active:
            self._begin()
            return
        self._first_sequence = segment.first
        self._after_slot = resume.header.tip.slot
        self._per_this_segment = resume.header.records_per_segment
        self._data = AppendFile.open(segment.data_path)
        self._index = AppendFile.open(segment.index_path)
        metadata = dbn_metadata()
        has_header = self._data.read(len(metadata), 0) == metadata
        for file, end in ((self._index, resume.index_end), (self._data, resume.data_end if has_header else 0)):
            if file.size > end and (kept := cut_tail(file, end, self.durable)) is not None:
                self.notices.append(cut_text(file.path, end, kept))
        if not has_header:
            self._data.append(metadata)
        if self._is_full(self.tip):
            self._roll()

    # -- writing ------------------------------------------------------------------------------------------

    def append(self, frame: Frame, content: bytearray | None = None) -> None:
        """Add one frame; `content` are its stamped records, if they exist already."""
        _check_follows(frame, self.tip)
        if self._data is None or self._index is None:
            self._begin()
        assert self._data is not None
        assert self._index is not None
        if content is None:
            content = frame_bytes(frame)
        before = self._data.size
        line = pack_frame(frame, before, len(content))
        self._data.append(content)
        try:
            self._index.append(line)
        except TapeError:
            self._data.truncate(before)
            raise
        self.tip = self.tip.copy()
        self.tip.append(frame)
        self._end_ns = frame.timestamp_ns
        if self._is_full(self.tip):
            self._roll()

    def extend(self, frames: Iterable[Frame]) -> None:
        """Add frames. After an error, `tip` is the end of the tape after a complete frame."""
        for frame in frames:
            self.append(frame)

    def sync(self) -> None:
        """Wait until the tape is on the device."""
        for file in (self._data, self._index):
            if file is not None:
                file.sync()

    def close(self) -> None:
        for file in (self._data, self._index):
            if file is not None:
                file.close()
        self._data = self._index = None
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    # -- segments -----------------------------------------------------------------------------------------

    @property
    def segments(self) -> int:
        return len(self._finished) + (self._data is not None)

    @property
    def size_bytes(self) -> int:
        """Total size of records and indexes of all segments."""
        growing = [file.size for file in (self._data, self._index) if file is not None]
        return sum(self._finished.values()) + sum(growing)

    def _is_full(self, tip: Tip) -> bool:
        """Return whether the segment is complete: by the sequence only, so all receivers have the same boundaries."""
        n = self._per_this_segment
        return (tip.next_sequence - 1) // n > (self._first_sequence - 1) // n

    def _begin(self) -> None:
        """Begin a new segment after the tip, index first: data without an index has no meaning."""
        self._first_sequence = self.tip.next_sequence
        self._after_slot = self.tip.slot
        self._per_this_segment = self.records_per_segment
        header = pack_header(self.stripe, self.records_per_segment, self.tip)
        index = AppendFile.create(self._path(INDEX), header, self.durable)
        try:
            self._data = AppendFile.create(self._path(ACTIVE), dbn_metadata(), self.durable)
        except (OSError, TapeError):
            index.close()
            raise
        self._index = index

    def _roll(self) -> None:
        """Complete the segment: give it its final name, and begin the next one now or at the next frame."""
        assert self._data is not None
        assert self._index is not None
        if self.durable == "power":
            self.sync()
        self._finished[self._first_sequence] = self._data.size + self._index.size
        self._spans[self._first_sequence] = Span(self._after_slot, self._end_ns)
        self._data.rename(self._path(DATA))
        self._data.close()
        self._index.close()
        self._data = self._index = None
        try:
            self._begin()
        except (OSError, TapeError):
            return  # the next frame tries again, and reports the error

    def _path(self, suffix: str) -> Path:
        return segment_path(self.directory, self._first_sequence, suffix)

    def retain(
        self,
        now_ns: int,
        *,
        max_bytes: int | None = None,
        max_age_ns: int | None = None,
        most: int | None = None,
        remove: Callable[[Path], None] = remove,
    ) -> int:
        """Remove the oldest segments while the tape is larger than `max_bytes`, and those that ended more than
        `max_age_ns` ago, `most` of them per call; return the slot up to which the tape was removed (0: nothing was)."""
        total = self.size_bytes
        oldest = list(self._finished)
        if self._data is None:
            oldest.pop()  # the newest segment is needed to continue the tape
        for first_sequence in oldest if most is None else oldest[:most]:
            segment = Segment(self.directory, first_sequence, active=False)
            span = self._span_of(segment)
            too_large = max_bytes is not None and total > max_bytes
            too_old = max_age_ns is not None and now_ns - span.end_ns > max_age_ns
            if not too_large and not too_old:
                return span.after_slot
            total -= self._finished.pop(first_sequence)
            leaving = segment_path(self.directory, first_sequence, REMOVED)
            rename(segment.data_path, leaving)
            remove(segment.index_path)
            remove(leaving)
            del self._spans[first_sequence]
        return self._first_slot()

    def _first_slot(self) -> int:
        """Return the slot before the tape's first segment."""
        first = next(iter(self._finished), None)
        if first is None:
            return self._after_slot
        return self._span_of(Segment(self.directory, first, active=False)).after_slot

    def _span_of(self, segment: Segment) -> Span:
        span = self._spans.get(segment.first_sequence)
        if span is None:
            content = segment.index_path.read_bytes()
            header = unpack_header(content, segment.index_path)
            span = Span(header.tip.slot, last_timestamp(content, header.size))
            self._spans[segment.first_sequence] = span
        return span


def _check_follows(frame: Frame, tip: Tip) -> None:
    if frame.slot <= tip.slot or frame.chain_before != tip.chain or frame.first_sequence != tip.next_sequence:
        raise TapeError(
            f"the frame of slot {frame.slot}, sequence {frame.first_sequence}, does not follow the tape, which is at "
            f"slot {tip.slot} and continues with sequence {tip.next_sequence}"
        )


def _listed(directory: Path) -> list[SegmentFile]:
    try:
        return list_segments(directory)
    except TapeError as error:
        raise refused(directory, error) from None


def finish_retention(directory: Path) -> None:
    """Finish the removal of segments that retention had begun."""
    for leaving in directory.glob("*" + REMOVED):
        index = leaving.with_name(leaving.name.removesuffix(REMOVED) + INDEX)
        if index.exists():
            remove(index)
        remove(leaving)


def _remove_leftovers(directory: Path) -> bool:
    """Remove the index of a segment that was about to begin; return False if no segment is left."""
    found = segment_files(directory)
    data = {first for first, suffixes in found.items() if suffixes != {INDEX}}
    for first_sequence in found.keys() - data:
        path = segment_path(directory, first_sequence, INDEX)
        just_begun = first_sequence > max(data, default=0) and (data or first_sequence == 1)
        try:
            is_empty = path.stat().st_size == read_start(path)[0].size
        except TapeError as error:
            raise refused(directory, error) from None
        if not just_begun or not is_empty:
            newest = first_sequence > max(data, default=0)
            raise refused(directory, missing_records(directory, first_sequence, ACTIVE if newest else DATA))
        remove(path)
    return bool(data)

"""Read tapes by stripe and sequence, from any receiver that has them. Does not use Spark.

- A stripe's tape is the same at every receiver, so a range of its sequence is read from any of them
  (`StripeTapes.pieces`): if retention has removed the start of one, or it is gone, another one is used.
- A frame is checked by its chain hash before it is read, unless the reader asks for an unsound tape. If one receiver's
  frame is damaged, that of another is used; if none is valid, nothing is read.
- A growing tape is read up to its last complete frame. Frames are released after they are on a tape, so everything up
  to the last frame's slot is available: `StripeEnd` is that position.
"""

from __future__ import annotations

import json
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from levelcast.records import RTYPE_INSTRUMENT, TRADE, RecordArray
from levelcast.storage.advice import repair_tape
from levelcast.storage.append_file import TapeError
from levelcast.storage.tape.directory import INDEX, find_tapes, foreign_files, list_segments, segment_path
from levelcast.storage.tape.index import IndexEntry, read_frames, read_start
from levelcast.storage.tape.segment import Segment, group_records

_TRIES = 5
_PAUSE_S = 0.02
_LAST = 2**63 - 1

Bytes = npt.NDArray[np.uint8]


class StripeEnd(NamedTuple):
    """The end of a stripe: the next sequence, and the slot and time up to which it is complete."""

    sequence: int
    slot: int
    timestamp_ns: int


class Head(NamedTuple):
    """Start of a segment, from the first bytes of its index."""

    first_sequence: int
    stripe: int
    after_slot: int
    first_ns: int
    """Time of its first frame; 0 while it is empty."""
    chain: bytes
    """Hash of its first frame, or while it is empty, of the one before."""
    active: bool


class Piece(NamedTuple):
    """Records `start` to `stop` (exclusive) of one segment, from the first of these tapes that still has it."""

    stripe: int
    tapes: tuple[str, ...]
    segment: int
    start: int
    stop: int


class Range(NamedTuple):
    """Range from `low` to `high`, both included."""

    low: int = 0
    high: int = _LAST

    def within(self, low: int, high: int) -> Range:
        return Range(max(self.low, low), min(self.high, high))

    def meets(self, low: int, high: int) -> bool:
        return self.low <= high and low <= self.high


ALL = Range()


@dataclass(frozen=True, slots=True)
class TapeSelection:
    """A reader's selection. The ranges skip complete segments and frames, the names skip records."""

    sequence: Range = ALL
    slot: Range = ALL
    ts_recv: Range = ALL
    stripe: Range = ALL
    symbols: frozenset[str] | None = None
    venues: frozenset[str] | None = None
    kinds: frozenset[str] | None = None

    def wants(self, line: IndexEntry) -> bool:
        return (
            self.slot.low <= line.slot <= self.slot.high
            and self.ts_recv.low <= line.timestamp_ns <= self.ts_recv.high
            and self.sequence.meets(line.first_sequence, line.next_sequence - 1)
        )


@dataclass(frozen=True, slots=True)
class Definitions:
    """Names from the definitions on a tape: the symbol of an instrument, the venue of a publisher."""

    symbols: dict[int, str] = field(default_factory=dict)
    venues: dict[int, str] = field(default_factory=dict)

    def learn(self, symbols: Mapping[int, str], venues: Mapping[int, str]) -> None:
        """Add names. A symbol keeps its id permanently, so the first definition stays."""
        for number, name in symbols.items():
            self.symbols.setdefault(number, name)
        for number, name in venues.items():
            self.venues.setdefault(number, name)

    def as_json(self) -> str:
        return json.dumps([self.symbols, self.venues], ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Definitions:
        symbols, venues = ({int(number): name for number, name in each.items()} for each in json.loads(text))
        return cls(symbols, venues)


class Tapes:
    """All tapes in some directories, by stripe. `refresh` finds new, grown and removed tapes."""

    def __init__(
        self,
        directories: Sequence[Path | str],
        *,
        stripe: int | None = None,
        strict: bool = True,
        unsound: bool = False,
    ) -> None:
        self._directories = [Path(each) for each in directories]
        self._stripe = stripe
        self._unsound = unsound
        self._strict = strict
        """Otherwise an unreadable tape is skipped as long as another one is available."""
        self._tapes: dict[Path, ReceiverTape] = {}
        self.stripes: dict[int, StripeTapes] = {}
        self.refresh()

    def refresh(self) -> None:
        refused: list[TapeError] = []
        found: dict[Path, ReceiverTape] = {}
        for directory in self._directories:
            try:
                paths = find_tapes(directory)
            except TapeError as error:
                refused.append(error)
                continue
            for path in paths:
                try:
                    found[path] = self._look_at(path)
                except TapeError as error:
                    refused.append(error)
        mine = [tape for tape in found.values() if self._stripe in (None, tape.stripe)]
        if refused and (self._strict or not mine):
            raise refused[0]
        if not mine:
            where = ", ".join(map(str, self._directories))
            raise TapeError(f"{where}: tape of stripe {self._stripe} not found")
        self._tapes = found
        numbers = sorted({tape.stripe for tape in mine})
        self.stripes = {number: self.stripes.get(number) or StripeTapes(number, self._unsound) for number in numbers}
        for number, stripe in self.stripes.items():
            stripe.tapes = [tape for tape in mine if tape.stripe == number]
            stripe.check()

    def _look_at(self, path: Path) -> ReceiverTape:
        tape = self._tapes.get(path)
        if tape is None:
            return ReceiverTape(path, self._unsound)
        tape.refresh()
        return tape


class ReceiverTape:
    """One receiver's tape. `refresh` adds new records, and drops those that retention has removed."""

    def __init__(self, directory: Path, unsound: bool = False) -> None:
        self.directory = directory
        self._unsound = unsound
        self.heads: list[Head] = []
        self.end = StripeEnd(0, 0, 0)
        """Position after the last complete frame."""
        self._newest: Segment | None = None
        self.refresh()

    @property
    def stripe(self) -> int:
        return self.heads[0].stripe

    def refresh(self) -> None:
        """Read the directory again. A segment may get its final name meanwhile, so a list with a gap is read once
        more."""
        for attempt in range(_TRIES):
            try:
                self._look()
                return
            except (TapeError, FileNotFoundError) as error:
                if attempt == _TRIES - 1:
                    if isinstance(error, TapeError):
                        raise
                    raise TapeError(f"{self.directory}: directory not found, or its files are being removed") from None
                time.sleep(_PAUSE_S)

    def _look(self) -> None:
        segments = list_segments(self.directory)
        for path in foreign_files(self.directory):
            raise TapeError(f"{path}: not a segment of this tape; move it elsewhere (read a DBN file with format dbn)")
        known = {head.first_sequence: head for head in self.heads}
        heads = []
        for _, number, active in segments:
            head = known.get(number)
            if head is None or head.active != active or not head.first_ns:
                head = _read_head(self.directory, number, active)
            heads.append(head)
        if len({head.stripe for head in heads}) > 1:
            raise TapeError(f"{self.directory}: has segments of several stripes; keep each tape in its own directory")
        last = heads[-1]
        newest = self._newest
        if newest is None or newest.first_sequence != last.first_sequence:
            newest = Segment(self.directory, last.first_sequence, active=last.active)
            _ = newest.header
        else:
            newest.refresh()
        if not self._unsound:
            newest.check_index()
        self.end = self._mark(heads, newest)
        self._newest, self.heads = newest, heads

    @property
    def start(self) -> StripeEnd:
        """Return the current start of the tape."""
        head = self.heads[0]
        return StripeEnd(head.first_sequence, head.after_slot, 0)

    def _mark(self, heads: list[Head], newest: Segment) -> StripeEnd:
        """Return the position after the last complete frame, which may be in the segment before."""
        if newest.lines:
            line = newest.lines[-1]
            return StripeEnd(line.next_sequence, line.slot, line.timestamp_ns)
        head = heads[-1]
        if self.end.sequence == head.first_sequence:
            return self.end
        before = Segment(self.directory, heads[-2].first_sequence, active=False).lines if len(heads) > 1 else []
        return StripeEnd(head.first_sequence, head.after_slot, before[-1].timestamp_ns if before else 0)

    def segment_of(self, sequence: int) -> Head | None:
        """Return the segment that contains, or will contain, a sequence."""
        at = bisect_right(self.heads, sequence, key=lambda head: head.first_sequence) - 1
        return self.heads[at] if at >= 0 else None

    def stop_of(self, head: Head) -> int:
        """Return the first sequence after a segment, at its current length."""
        at = self.heads.index(head)
        return self.heads[at + 1].first_sequence if at + 1 < len(self.heads) else self.end.sequence


def _read_head(directory: Path, number: int, active: bool) -> Head:
    path = segment_path(directory, number, INDEX)
    header, content = read_start(path)
    if header.tip.next_sequence != number:
        raise TapeError(f"{path}: its first sequence differs from its name")
    first = next(read_frames(content, header.size), None)
    first_ns, chain = (0, header.tip.chain) if first is None else (first.timestamp_ns, first.chain)
    return Head(number, header.stripe, header.tip.slot, first_ns, chain, active)


# -- one stripe, from all of its tapes --------------------------------------------------------------------


class StripeTapes:
    """The tapes of one stripe, in the order in which they are tried."""

    def __init__(self, number: int, unsound: bool = False) -> None:
        self.number = number
        self.tapes: list[ReceiverTape] = []
        self._unsound = unsound
        self._segments: dict[tuple[str, int], Segment] = {}

    def check(self) -> None:
        """Check that two tapes with the same stripe number are the same tape."""
        chains: dict[int, tuple[bytes, ReceiverTape]] = {}
        for tape in self.tapes:
            for head in (each for each in tape.heads if each.first_ns):
                chain, other = chains.setdefault(head.first_sequence, (head.chain, tape))
                if chain != head.chain:
                    raise TapeError(
                        f"{tape.directory} and {other.directory} are both of stripe {self.number} and differ at "
                        f"sequence {head.first_sequence:,}; they are of different networks, pass one of them"
                    )

    @property
    def start(self) -> StripeEnd:
        return min(tape.start for tape in self.tapes)

    @property
    def end(self) -> StripeEnd:
        return max(tape.end for tape in self.tapes)

    def pieces(self, start: int, stop: int) -> list[Piece]:
        """Return records `start` to `stop` (exclusive) by segment; raise TapeError if no tape has them any more."""
        found: list[Piece] = []
        at = start
        while at < stop:
            having = [(tape, head) for tape in self.tapes if (head := tape.segment_of(at)) and tape.stop_of(head) > at]
            if not having:
                raise TapeError(self._missing(at))
            tape, head = having[0]
            upto = min(stop, tape.stop_of(head))
            names = tuple(str(each.directory) for each, its in having if its.first_sequence == head.first_sequence)
            found.append(Piece(self.number, names, head.first_sequence, at, upto))
            at = upto
        return found

    def _missing(self, sequence: int) -> str:
        where = ", ".join(str(tape.directory) for tape in self.tapes)
        first = self.start.sequence
        if sequence < first:
            return (
                f"{where}: retention has removed sequence {sequence:,} of stripe {self.number}, which is still needed; "
                f"the oldest available is {first:,}; pass a receiver that still has it, or start again from there"
            )
        return f"{where}: no tape of stripe {self.number} has sequence {sequence:,}; pass a receiver that has it"

    def lines(self, start: int, stop: int) -> Iterator[IndexEntry]:
        """Yield the frames with records from `start` to `stop`, in order."""
        for piece in self.pieces(start, stop):
            lines = self._segment(piece).lines
            at = max(0, bisect_right(lines, piece.start, key=lambda line: line.first_sequence) - 1)
            for line in lines[at:]:
                if line.first_sequence >= piece.stop:
                    break
                yield line

    def after_segments(self, start: int, stop: StripeEnd, most: int) -> StripeEnd:
        """Return the end of `most` segments from `start` on, or `stop` if that is earlier."""
        pieces = self.pieces(start, stop.sequence)
        if len(pieces) <= most:
            return stop
        last = self._segment(pieces[most - 1]).lines[-1]
        return StripeEnd(last.next_sequence, last.slot, last.timestamp_ns)

    def _segment(self, piece: Piece) -> Segment:
        """Return a segment from a small cache. A grown segment is reopened, as it may have its final name now."""
        key = (piece.tapes[0], piece.segment)
        segment = self._segments.pop(key, None)
        if segment is None or segment.next_sequence < piece.stop:
            segment = open_segment(piece)
        self._segments[key] = segment
        while len(self._segments) > 2:
            del self._segments[next(iter(self._segments))]
        return segment

    def definitions(self, start: int, stop: int) -> Definitions:
        """Return the names in the definitions among these records."""
        found = Definitions()
        for piece in self.pieces(start, stop):
            segment = self._segment(piece)
            if any(_may_define(line) for line in segment.lines):
                segment = open_segment(piece, None if self._unsound else _may_define)
            for line in segment.lines:
                if line.next_sequence > piece.start and line.first_sequence < piece.stop:
                    found.learn(*_definitions_in(segment, line))
        return found


def every_frame(line: IndexEntry) -> bool:
    """Choose every frame of a piece to be checked."""
    return True


def open_segment(piece: Piece, checked: Callable[[IndexEntry], bool] | None = None) -> Segment:
    """Open the segment of a piece at the first tape that has it, with its records mapped: it may get its final name, or
    retention may remove it, at any time.

    With `checked`, the chosen frames of the piece must be valid; otherwise the next tape is used.
    """
    damage: TapeError | None = None
    for directory in map(Path, piece.tapes):
        for active in (True, False, True):
            segment = Segment(directory, piece.segment, active=active)
            try:
                if segment.data_path.exists() and segment.next_sequence >= piece.stop:
                    segment.data(segment.lines[-1])
                    if checked is not None:
                        _check_frames(segment, piece, checked)
                    return segment
            except FileNotFoundError:
                continue
            except TapeError as error:
                damage = damage or error
                break
    if damage is not None:
        where = repair_tape(Path(piece.tapes[0]))
        raise TapeError(f"{damage}; nothing was loaded; {where}, or load it as it is with --unsound")
    first = segment_path(Path(piece.tapes[0]), piece.segment, INDEX)
    raise TapeError(
        f"{first}: records {piece.start:,} to {piece.stop - 1:,} are missing; the file is truncated, or "
        "retention has removed it"
    )


def _check_frames(segment: Segment, piece: Piece, chosen: Callable[[IndexEntry], bool]) -> None:
    """Check the frames of a piece; raise TapeError for the first that is not valid."""
    for frame in segment.frames(
        max(0, bisect_right(segment.lines, piece.start, key=lambda line: line.first_sequence) - 1)
    ):
        if frame.line.first_sequence >= piece.stop:
            return
        if chosen(frame.line):
            frame.check()


def _may_define(line: IndexEntry) -> bool:
    """Return whether a frame may have definitions: a frame of 64 bytes per record contains trades."""
    return line.size != line.records * TRADE.itemsize


def _definitions_in(segment: Segment, line: IndexEntry) -> tuple[dict[int, str], dict[int, str]]:
    """Return symbols and venues. A packet of 64 bytes per record contains trades, so the majority is skipped."""
    symbols: dict[int, str] = {}
    venues: dict[int, str] = {}
    if not _may_define(line):
        return symbols, venues
    content, at = segment.data(line), 0
    for packet in segment.packets(line):
        part = content[at : at + packet.size]
        at += packet.size
        if packet.size == packet.records * TRADE.itemsize:
            continue
        for kind, _, records in group_records(part, segment.data_path):
            if kind.rtype == RTYPE_INSTRUMENT:
                symbols.update(names_in(records, "instrument_id", "raw_symbol"))
                venues.update(names_in(records, "publisher_id", "exchange"))
    return symbols, venues


def names_in(records: RecordArray, number: str, name: str) -> dict[int, str]:
    """Return the names in definitions, by number."""
    named = zip(records[number].tolist(), records[name].tolist(), strict=True)
    return {each: text.decode("utf-8", "replace") for each, text in named if text}


def end_of_batch(
    stripes: Mapping[int, StripeTapes], starts: Mapping[int, int], stops: Mapping[int, StripeEnd], most: int
) -> dict[int, StripeEnd]:
    """Return the end of a batch of at most `most` records, at complete frames: all stripes up to the same time (rule
    15), and at least one frame."""
    if sum(max(0, stops[number].sequence - starts[number]) for number in stripes) <= most:
        return dict(stops)

    def frames(number: int) -> Iterator[tuple[int, int, IndexEntry]]:
        stop = stops[number].sequence
        if starts[number] < stop:
            for line in stripes[number].lines(starts[number], stop):
                yield line.timestamp_ns, number, line

    ends: dict[int, StripeEnd] = {}
    taken = 0
    for timestamp_ns, number, line in merge(*(frames(number) for number in stripes)):
        added = line.next_sequence - max(line.first_sequence, starts[number])
        if ends and taken + added > most:
            break
        taken += added
        ends[number] = StripeEnd(line.next_sequence, line.slot, timestamp_ns)
    return ends


# -- from a piece to rows ---------------------------------------------------------------------------------


def split_pieces(pieces: Iterable[Piece], most: int) -> list[Piece]:
    """Split pieces into pieces of at most `most` records."""
    out: list[Piece] = []
    for piece in pieces:
        count = -(-(piece.stop - piece.start) // most)
        edges = [piece.start + (piece.stop - piece.start) * i // count for i in range(count + 1)]
        out += [piece._replace(start=low, stop=high) for low, high in pairwise(edges)]
    return out

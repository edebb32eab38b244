"""Manage the files of an edge: its saved state, its checkpoints, and the tape that it reads for retransmissions.

    DATA/NAME/edge/state          `levelcast.edge.server.feed`
    DATA/NAME/edge/state.before   the previous state
    DATA/NAME/edge/marks          `levelcast.edge.server.checkpoints`: slot u64, size u32, then the state

A start begins with `state.before` and replays the tape: this also fills the store for retransmissions, so that
subscribers can request packets that were sent before the restart. The file of checkpoints only saves time: entries
that do not match the tape are removed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from struct import Struct

from levelcast.edge.server.archive import Archive
from levelcast.edge.server.checkpoints import FeedCheckpoints, replay
from levelcast.edge.server.feed import Feed, decode_state, resume
from levelcast.storage.append_file import AppendFile, TapeError
from levelcast.storage.tape.cursor import TapeCursor
from levelcast.storage.tape.directory import first_sequence_of
from levelcast.storage.tape.reader import TapeReader
from levelcast.wire.header import Malformed

STATE = Path("edge") / "state"
CHECKPOINTS = Path("edge") / "marks"
_ENTRY = Struct("<QI")


class EdgeFiles:
    """The files of the edge at a receiver with the tape in `directory`; an `EdgeStorage`."""

    def __init__(self, directory: Path) -> None:
        self._tape = directory / "tape"
        self._state = directory / STATE
        self._state_before = self._state.with_name(f"{STATE.name}.before")
        self._path = directory / CHECKPOINTS
        self._file: AppendFile | None = None
        """File of checkpoints."""
        self._state.parent.mkdir(exist_ok=True)

    def restore(self, feed: Feed, segment_records: int) -> Archive:
        """Return the archive of a feed like `feed` at the end of the tape, from a state and the frames after it."""
        tape = TapeReader(self._tape)

        def chain_at(slot: int) -> bytes | None:
            return tape.chain_at(slot) if tape.before.slot <= slot <= tape.tip().slot else None

        found = resume(feed, self._states(), chain_at)
        if found is None and tape.before.next_sequence > 1:
            raise TapeError(
                f"{self._state}: file not found or not consistent with the tape, and the beginning of the tape is "
                "missing, so the numbers of packets are unknown; copy this file from another receiver"
            )
        feed = found or feed
        checkpoints = FeedCheckpoints(self, segment_records, self._open_checkpoints(tape))
        replay(feed, ((frame.line, frame.data()) for frame in tape.frames(after_slot=feed.slot)), checkpoints)
        return Archive(feed, checkpoints)

    # -- the state ----------------------------------------------------------------------------------------

    def _states(self) -> Iterator[bytes]:
        for path in (self._state_before, self._state):
            with suppress(FileNotFoundError):
                yield path.read_bytes()

    def save_state(self, content: bytes, *, keep_previous: bool) -> bool:
        """Write a state and keep the previous one; return False if writing fails."""
        try:
            if keep_previous:
                with suppress(FileNotFoundError):
                    self._state.rename(self._state_before)
            AppendFile.create(self._state, content).close()
        except (OSError, TapeError):  # not fatal: the tape has everything, only the next start is slower
            return False
        return True

    # -- the tape -----------------------------------------------------------------------------------------

    def read_from(self, slot: int, sequence: int) -> TapeCursor:
        return TapeCursor(self._tape, slot, sequence)

    def first_sequence(self) -> int | None:
        return first_sequence_of(self._tape)

    # -- checkpoints --------------------------------------------------------------------------------------

    def _open_checkpoints(self, tape: TapeReader) -> list[tuple[int, int]]:
        """Read slot and location of each entry. Remove entries of frames deleted by retention if they prevail."""
        with suppress(OSError, TapeError):
            found = self._entries(tape)
            kept = [each for each in found if each[0] >= tape.before.slot]
            if len(kept) >= len(found) / 2:
                return kept
            contents = [(slot, self.read(location)) for slot, location in kept]
            self.close()
            self._file = AppendFile.create(self._path, b"")
            return [(slot, at) for slot, content in contents if (at := self.append(slot, content)) is not None]
        return []

    def _entries(self, tape: TapeReader) -> list[tuple[int, int]]:
        """Read the entries that match the tape; remove the others."""
        file = self._file = AppendFile.open(self._path)
        upto_slot, at = tape.tip().slot, 0
        found: list[tuple[int, int]] = []
        while len(head := file.read(_ENTRY.size, at)) == _ENTRY.size:
            slot, size = _ENTRY.unpack(head)
            end = at + _ENTRY.size + size
            if end > file.size or slot > upto_slot or (found and slot <= found[-1][0]):
                break
            found.append((slot, at))
            at = end
        file.truncate(at)
        if found and not self._is_of(tape, found[-1][1]):
            file.truncate(0)
            return []
        return found

    def _is_of(self, tape: TapeReader, location: int) -> bool:
        try:
            state = decode_state(self.read(location))
        except Malformed:
            return False
        return tape.chain_at(state.slot) == state.chain

    def append(self, slot: int, checkpoint: bytes) -> int | None:
        try:
            if self._file is None:
                self._file = AppendFile.create(self._path, b"")
            location = self._file.size
            self._file.append(_ENTRY.pack(slot, len(checkpoint)), checkpoint)
        except (OSError, TapeError):
            return None
        return location

    def read(self, location: int) -> bytes:
        if self._file is None:
            raise TapeError(f"{self._path}: file is closed")
        head = self._file.read(_ENTRY.size, location)
        return self._file.read(_ENTRY.unpack(head)[1], location + _ENTRY.size) if len(head) == _ENTRY.size else b""

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

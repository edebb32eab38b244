"""Files of an edge: its saved state, its checkpoints, and the tape that it reads for retransmissions.

    DATA/NAME/edge/state          `levelcast.edge.server.feed`
    DATA/NAME/edge/state.before   the one saved before it
    DATA/NAME/edge/marks          checkpoints (`levelcast.edge.server.archive`): slot u64, size u32, then the state

A start begins with `state.before` and replays the tape: this also fills the store for retransmissions, so that
subscribers can request what was sent before the restart. The file of checkpoints only saves time: entries that do not
fit the tape are removed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from struct import Struct

from levelcast.edge.server.archive import Archive, FeedCheckpoints, replay
from levelcast.edge.server.feed import Feed, decode_state, resume
from levelcast.edge.server.packetizer import GatherConfig, SessionMap
from levelcast.edge.server.plan_switch import PlanLimits
from levelcast.edge.server.retransmit_store import RetransmitConfig
from levelcast.storage.append_file import AppendFile, TapeError
from levelcast.storage.tape.cursor import TapeCursor, first_sequence_of
from levelcast.storage.tape.segments import TapeReader
from levelcast.wire.header import Malformed

__all__ = ["CheckpointFile", "TapeDirectory", "open_archive", "restore", "save_state"]

STATE = Path("edge") / "state"
CHECKPOINTS = Path("edge") / "marks"
_ENTRY = Struct("<QI")


# -- the state --------------------------------------------------------------------------------------------


def restore(tape: TapeReader, path: Path, feed: Feed, checkpoints: FeedCheckpoints | None = None) -> Feed:
    """Return the feed at the end of a tape: from a state at `path` that fits the tape, and the frames after it."""

    def chain_at(slot: int) -> bytes | None:
        return tape.chain_at(slot) if tape.before.slot <= slot <= tape.tip().slot else None

    found = resume(feed, _states(path), chain_at)
    if found is None and tape.before.next_sequence > 1:
        raise TapeError(
            f"{path}: is not there or does not fit the tape, and the beginning of the tape is gone, so packets "
            "cannot be numbered as others number them: copy this file from another receiver"
        )
    feed = found or feed
    replay(feed, ((frame.line, frame.data()) for frame in tape.frames(after_slot=feed.slot)), checkpoints)
    return feed


def _states(path: Path) -> Iterator[bytes]:
    for each in (_before(path), path):
        with suppress(FileNotFoundError):
            yield each.read_bytes()


def _before(path: Path) -> Path:
    return path.with_name(f"{path.name}.before")


def save_state(path: Path, content: bytes, *, keep_previous: bool) -> bool:
    """Write a state, and keep the one before it; return False if the disk does not take it."""
    try:
        if keep_previous:
            with suppress(FileNotFoundError):
                path.rename(_before(path))
        AppendFile.create(path, content).close()
    except (OSError, TapeError):  # the tape has everything: only the next start takes longer
        return False
    return True


# -- the archive ------------------------------------------------------------------------------------------


class TapeDirectory:
    """The tape of a receiver, read while it is written."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def read_from(self, slot: int, sequence: int) -> TapeCursor:
        return TapeCursor(self._directory, slot, sequence)

    def first_sequence(self) -> int | None:
        return first_sequence_of(self._directory)


class CheckpointFile:
    """The file of checkpoints."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: AppendFile | None = None

    def open(self, tape: TapeReader) -> list[tuple[int, int]]:
        """Read slot and location of each entry. Entries of frames that retention has removed go when most are such."""
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
        """Read the entries that fit the tape; remove the others."""
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

    def append(self, slot: int, content: bytes) -> int | None:
        try:
            if self._file is None:
                self._file = AppendFile.create(self._path, b"")
            location = self._file.size
            self._file.append(_ENTRY.pack(slot, len(content)), content)
        except (OSError, TapeError):
            return None
        return location

    def read(self, location: int) -> bytes:
        if self._file is None:
            raise TapeError(f"{self._path}: is closed")
        head = self._file.read(_ENTRY.size, location)
        return self._file.read(_ENTRY.unpack(head)[1], location + _ENTRY.size) if len(head) == _ENTRY.size else b""

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def open_archive(
    directory: Path,
    plan: SessionMap,
    config: GatherConfig,
    retransmit: RetransmitConfig,
    limits: PlanLimits,
    segment_records: int,
) -> tuple[Feed, Archive]:
    """Return the feed of a receiver at the end of the tape in `directory`, and its archive."""
    tape = TapeReader(directory / "tape")
    file = CheckpointFile(directory / CHECKPOINTS)
    checkpoints = FeedCheckpoints(file, segment_records, file.open(tape))
    first = Feed(plan, tape.stripe, config, retransmit, limits=limits)
    feed = restore(tape, directory / STATE, first, checkpoints)
    return feed, Archive(feed, TapeDirectory(directory / "tape"), checkpoints)

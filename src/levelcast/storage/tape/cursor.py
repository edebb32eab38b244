"""Read frames of a tape from any position on, a little per call, while the same process writes it.

`TapeReader` reads a segment's complete index before it returns the first frame. A process with scheduled release times
cannot wait for that. Here one call reads one piece of the index or a few frames, with read-ahead by the kernel.

A segment that retention removes stays readable for readers that have it open.
"""

from __future__ import annotations

import os
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from levelcast.storage.append_file import TapeError
from levelcast.storage.tape.directory import ACTIVE, DATA, INDEX, segment_files, segment_path
from levelcast.storage.tape.index import IndexEntry, end_of, header_size, read_frames, unpack_header

INDEX_PIECE = 32 << 10
"""Bytes read at a time: a few hundred entries."""
_ENTRY_SIZE = Struct("<I")


class NotOnTape(TapeError):
    """The position is no longer on the tape, or never was."""


class Excerpt(NamedTuple):
    """A frame's index entry and its stamped records."""

    line: IndexEntry
    content: bytes


class TapeCursor:
    """Read the frames after `slot`; the first one has the record `sequence`. Raise `NotOnTape`."""

    def __init__(self, directory: Path, slot: int, sequence: int) -> None:
        self._directory = directory
        self._slot = slot
        self._index = self._data = -1
        found = [first for first in segment_files(directory) if first <= sequence]
        if not found:
            raise NotOnTape(f"{directory}: begins after sequence {sequence}")
        self._open(found[-1])

    def _open(self, first_sequence: int) -> None:
        self.close()
        try:
            self._index = os.open(segment_path(self._directory, first_sequence, INDEX), os.O_RDONLY)
            try:
                self._data = os.open(segment_path(self._directory, first_sequence, ACTIVE), os.O_RDONLY)
            except FileNotFoundError:  # the segment is complete, and has its final name
                self._data = os.open(segment_path(self._directory, first_sequence, DATA), os.O_RDONLY)
        except FileNotFoundError:
            self.close()
            raise NotOnTape(f"{self._directory}: the segment of sequence {first_sequence} was removed") from None
        content = os.pread(self._index, INDEX_PIECE, 0)
        if (size := header_size(content)) > len(content):
            content = os.pread(self._index, size, 0)
        header = unpack_header(content, segment_path(self._directory, first_sequence, INDEX))
        self._at = header.size
        self._following = first_sequence
        """The sequence after the last frame that was read; the next segment has this name."""
        self._first = first_sequence

    def read(self, most_bytes: int, most_frames: int) -> tuple[list[Excerpt], bool]:
        """Return the next frames, up to `most_bytes` but at least one frame, and False at the end of the tape.

        While the position is searched in the index, it returns no frames and True.
        """
        found: list[Excerpt] = []
        size = entries = end = 0
        for line in read_frames(self._piece(), 0):
            entries += 1
            if line.slot > self._slot:
                if found and (size + line.size > most_bytes or len(found) == most_frames):
                    break
                content = os.pread(self._data, line.size, line.at)
                if len(content) < line.size:
                    raise TapeError(f"{self._directory}: the records of slot {line.slot} are truncated")
                found.append(Excerpt(line, content))
                size += line.size
                self._slot = line.slot
            self._following = line.next_sequence
            end = self._at + end_of(line)
        if not entries:
            return found, self._next_segment()
        self._at = end
        if found:
            last = found[-1].line
            os.posix_fadvise(self._data, last.at + last.size, 2 * most_bytes, os.POSIX_FADV_WILLNEED)
        return found, True

    def _piece(self) -> bytes:
        """Return a piece of the index with at least its first entry complete."""
        content = os.pread(self._index, INDEX_PIECE, self._at)
        if len(content) >= _ENTRY_SIZE.size:
            (size,) = _ENTRY_SIZE.unpack_from(content)
            if size > len(content):
                content = os.pread(self._index, size, self._at)
        return content

    def _next_segment(self) -> bool:
        """Continue with the next segment, if it exists."""
        names = [segment_path(self._directory, self._following, suffix) for suffix in (ACTIVE, DATA)]
        if self._following == self._first or not any(path.exists() for path in names):
            return False
        self._open(self._following)
        return True

    def close(self) -> None:
        for fd in (self._index, self._data):
            if fd >= 0:
                os.close(fd)
        self._index = self._data = -1

"""List and find the files of tapes, and define their names.

    DIR/0000000000000001.dbn          records 1 to about N; a DBN file, its records with tails
    DIR/0000000000000001.idx          its frames (`levelcast.storage.tape.index`)
    DIR/0000000000100003.dbn.active   the segment that still grows; it has its index as well
    DIR/0000000000100003.idx

A segment is named by the sequence of its first record. A new one starts with its index, and retention renames its data
before it removes the index: readers ignore an index without records at either end of the tape.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from levelcast.storage.append_file import TapeError

DATA, ACTIVE, INDEX = ".dbn", ".dbn.active", ".idx"
REMOVED = ".dbn.removed"
"""Suffix of data that retention is removing; its index goes first."""
_DIGITS = 16
_NAME = re.compile(r"([0-9]{16})(\.dbn|\.dbn\.active|\.idx)")
_DEPTH = 3


class SegmentFile(NamedTuple):
    """One segment of one tape."""

    directory: str
    first: int
    active: bool

    @property
    def data_path(self) -> Path:
        """Path of the records; a segment that grew when it was listed may have its final name by now."""
        growing = segment_path(Path(self.directory), self.first, ACTIVE)
        return growing if self.active and growing.exists() else segment_path(Path(self.directory), self.first, DATA)

    @property
    def index_path(self) -> Path:
        return segment_path(Path(self.directory), self.first, INDEX)


def segment_path(directory: Path, first_sequence: int, suffix: str) -> Path:
    return directory / f"{first_sequence:0{_DIGITS}}{suffix}"


# -- one tape ---------------------------------------------------------------------------------------------


def segment_files(directory: Path) -> dict[int, set[str]]:
    """Return the suffixes of the files of each segment, by first sequence in order; ignore other files."""
    found: dict[int, set[str]] = {}
    for path in directory.iterdir():
        if parsed := _NAME.fullmatch(path.name):
            found.setdefault(int(parsed[1]), set()).add(parsed[2])
    return dict(sorted(found.items()))


def foreign_files(directory: Path) -> list[Path]:
    """Return the files that have the suffix of a tape file, but not its name."""
    return [
        path
        for path in directory.iterdir()
        if path.name.endswith((DATA, ACTIVE, INDEX)) and not _NAME.fullmatch(path.name)
    ]


def list_segments(directory: Path) -> list[SegmentFile]:
    """Return the segments in order; raise TapeError if the tape has none, or parts of one are missing."""
    _check_directory(directory)
    found = segment_files(directory)
    if not found:
        raise TapeError(f"{directory}: not a tape directory, no segment found; {_PASS}")
    whole = [first for first, suffixes in found.items() if suffixes != {INDEX}]
    if not whole:
        raise TapeError(f"{directory}: the tape is empty, nothing has been released to it yet")
    for first, suffixes in found.items():
        if INDEX not in suffixes:
            index = segment_path(directory, first, INDEX)
            raise TapeError(
                f"{segment_path(directory, first, min(suffixes))}: the index of this segment is missing ({index})"
            )
        if suffixes == {INDEX} and whole[0] < first < whole[-1]:
            raise missing_records(directory, first, DATA)
        if ACTIVE in suffixes and first < whole[-1]:
            raise TapeError(
                f"{segment_path(directory, first, ACTIVE)}: is still active although another segment follows it"
            )
    return [SegmentFile(str(directory), first, ACTIVE in found[first]) for first in whole]


def missing_records(directory: Path, first: int, suffix: str) -> TapeError:
    """Return the error for an index without its records."""
    records = segment_path(directory, first, suffix)
    return TapeError(f"{segment_path(directory, first, INDEX)}: the records of this segment are missing ({records})")


def first_sequence_of(directory: Path) -> int | None:
    """Return the sequence of the first record that is still on a tape; None without a tape."""
    return next(iter(segment_files(directory)), None) if directory.is_dir() else None


# -- finding tapes ----------------------------------------------------------------------------------------


def tape_directory(directory: Path) -> Path:
    """Return the tape in `directory`: itself, or the `tape` in a node's directory."""
    inner = directory / "tape"
    return inner if inner.is_dir() else directory


def find_tapes(directory: Path) -> list[Path]:
    """Return the tapes in a directory: itself, or those of the nodes in it, by name."""
    _check_directory(directory)
    found = list(_tapes_below(directory, _DEPTH))
    if not found and (directory.name == "tape" or empty_tapes(directory)):
        raise TapeError(f"{directory}: the tape is empty, nothing has been released to it yet")
    if not found:
        raise TapeError(f"{directory}: no tape found; specify the directory of a tape or a node, or a data directory")
    return found


def empty_tapes(directory: Path) -> list[Path]:
    """Return the tapes of nodes that were created but have no segment."""
    places = (directory / "tape", *sorted(directory.glob("*/tape")))
    return [place for place in places if place.is_dir() and not any(place.glob("*" + INDEX))]


def _tapes_below(directory: Path, depth: int) -> Iterator[Path]:
    if any(directory.glob("*" + INDEX)) or any(directory.glob("*" + ACTIVE)):
        yield directory
    elif depth:
        for below in sorted(each for each in directory.iterdir() if each.is_dir()):
            yield from _tapes_below(below, depth - 1)


def _check_directory(directory: Path) -> None:
    if not directory.is_dir():
        raise TapeError(f"{directory}: {'not a directory' if directory.exists() else 'directory not found'}; {_PASS}")


_PASS = "pass the directory of a receiver, such as data/tokyo-1, or of its tape"

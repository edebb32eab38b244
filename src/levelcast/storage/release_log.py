"""Keep and compare release logs: actual and scheduled release time of each frame at this receiver (rule 14).

The log differs between receivers, so it is stored next to the tape and not on it. A comparison of these logs measures
the fairness of the release.

    DIR/0000000000000001.releases   files of a fixed number of entries, numbered; the last one grows

    offset  type  field of a file's header (40 bytes, like an entry)
    0       8s    "LVLCRELS"
    8       u16   version, 1
    10      30s   zeros

Entries are `RELEASE`. If a slot is logged twice, after a restart, readers use its first entry. `open` removes an
incomplete entry at the end of the last file. Writes to the log are not synced: it survives a crash of the process, not
a power failure.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from struct import Struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from levelcast.records import RecordArray
from levelcast.storage.append_file import AppendFile, TapeError, check_version, remove, remove_unfinished

SUFFIX = ".releases"
ENTRIES_PER_FILE = 100_000
LATE = 1

Nanoseconds = npt.NDArray[np.int64]

RELEASE: np.dtype[np.void] = np.dtype(
    [("slot", "<u8"), ("generation", "<u8"), ("scheduled_ns", "<u8"), ("released_ns", "<u8"), ("records", "<u4"),
     ("flags", "<u4")]
)  # fmt: skip
"""One release: `flags` 1 is late, that is after timestamp + Δ_A (rule 7)."""

_ENTRY = Struct("<QQQQII")
assert _ENTRY.size == RELEASE.itemsize
_MAGIC, _VERSION = b"LVLCRELS", 1
_HEADER = (_MAGIC + _VERSION.to_bytes(2, "little")).ljust(RELEASE.itemsize, b"\0")


class Released(NamedTuple):
    """One release from the driver; `generation` is that of the receiver at the time."""

    slot: int
    generation: int
    scheduled_ns: int
    released_ns: int
    records: int
    late: bool


class ReleaseLog:
    """An open release log."""

    def __init__(self, directory: Path | str, entries_per_file: int = ENTRIES_PER_FILE) -> None:
        self.directory = Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        remove_unfinished(self.directory)
        self._entries_per_file = entries_per_file
        paths = _paths(self.directory)
        if not paths:
            self._file = AppendFile.create(_path(self.directory, 1), _HEADER)
            self._number = 1
            return
        self._number = int(paths[-1].name.removesuffix(SUFFIX))
        self._file = AppendFile.open(paths[-1])
        try:
            _check_header(paths[-1], self._file.read(len(_HEADER), 0))
        except TapeError:
            self._file.close()
            raise
        self._file.truncate(self._file.size - self._file.size % RELEASE.itemsize)

    def append(self, releases: Sequence[Released]) -> None:
        """Add releases with one write."""
        self._file.append(b"".join(_ENTRY.pack(*each[:5], LATE if each.late else 0) for each in releases))
        if self._file.size // RELEASE.itemsize > self._entries_per_file:
            self._roll()

    def _roll(self) -> None:
        following = AppendFile.create(_path(self.directory, self._number + 1), _HEADER)
        self._file.close()
        self._file = following
        self._number += 1

    def retain(self, upto_slot: int) -> None:
        """Remove files without entries above `upto_slot`; never the file that grows."""
        for path in _paths(self.directory)[:-1]:
            span = span_of(path)
            if span is not None and span[1] > upto_slot:
                return
            remove(path)

    def close(self) -> None:
        self._file.close()


def read_releases(directory: Path | str) -> RecordArray:
    """Return all entries, in the order in which they were written."""
    paths = _paths(Path(directory))
    if not paths:
        raise TapeError(f"{directory}: release log not found")
    return np.concatenate([read_file(path) for path in paths])


def read_file(path: Path) -> RecordArray:
    """Return the complete entries of one file of a log."""
    content = path.read_bytes()
    _check_header(path, content)
    return np.frombuffer(content, RELEASE, len(content) // RELEASE.itemsize - 1, len(_HEADER))


def span_of(path: Path) -> tuple[int, int, int] | None:
    """Return the first and the last slot of one file of a log and its number of entries; None if it has none."""
    count = path.stat().st_size // RELEASE.itemsize - 1
    if count < 1:
        return None
    with path.open("rb") as file:
        file.seek(RELEASE.itemsize)
        first = np.frombuffer(file.read(RELEASE.itemsize), RELEASE)
        file.seek(count * RELEASE.itemsize)
        last = np.frombuffer(file.read(RELEASE.itemsize), RELEASE)
    return int(first["slot"][0]), int(last["slot"][0]), count


# -- comparing logs ---------------------------------------------------------------------------------------


def first_entries(log: RecordArray) -> RecordArray:
    """Return one entry per slot, in the order of slots: the first one, since a restart may release a slot again."""
    _, first = np.unique(log["slot"], return_index=True)
    entries: RecordArray = log[first]
    return entries


def is_late(entries: RecordArray) -> npt.NDArray[np.bool_]:
    late: npt.NDArray[np.bool_] = (entries["flags"] & LATE) != 0
    return late


def lateness_ns(entries: RecordArray) -> Nanoseconds:
    """Return release minus scheduled release of each entry."""
    behind: Nanoseconds = entries["released_ns"].astype(np.int64) - entries["scheduled_ns"].astype(np.int64)
    return behind


def common_slots(logs: Sequence[RecordArray]) -> RecordArray:
    """Return the first entries of the slots that all logs have: one row for each log, one column for each slot."""
    firsts = [first_entries(log) for log in logs]
    if not firsts:
        return np.zeros((0, 0), RELEASE)
    common = firsts[0]["slot"]
    for log in firsts[1:]:
        common = np.intersect1d(common, log["slot"], assume_unique=True)
    return np.stack([log[np.searchsorted(log["slot"], common)] for log in firsts])


def spreads_ns(rows: RecordArray) -> Nanoseconds:
    """Return the time from the first to the last release of each slot of `common_slots`."""
    times = rows["released_ns"].astype(np.int64)
    spreads: Nanoseconds = times.max(axis=0, initial=0) - times.min(axis=0, initial=np.iinfo(np.int64).max)
    return spreads


def _check_header(path: Path, content: bytes) -> None:
    version = int.from_bytes(content[8:10], "little")
    if len(content) < len(_HEADER) or not content.startswith(_MAGIC):
        raise TapeError(f"{path}: not a Levelcast release log")
    check_version(path, version, _VERSION)


def _path(directory: Path, number: int) -> Path:
    return directory / f"{number:016}{SUFFIX}"


def _paths(directory: Path) -> list[Path]:
    return sorted(directory.glob("*" + SUFFIX))

"""Keep and compare release logs: scheduled, possible and actual release time of each frame at this receiver (rule 14).

The log differs between receivers, so it is stored next to the tape and not on it. A comparison of these logs measures
the fairness of the release.

    DIR/0000000000000001.releases           files of a fixed number of entries, numbered; the last one grows
    DIR/0000000000000001.releases.damaged   a file that the operator has put aside, because it was damaged

    offset  type  field of a file's header (48 bytes, like an entry)
    0       8s    "LVLCRELS"
    8       u16   version, 3
    16      u64   number of the file
    46      u16   CRC-16 of the bytes before

Entries are `RELEASE`. The upper half of `flags` is the CRC-16 (CCITT) of the bytes before it, continued from the file's
number; readers return 0 there. If a slot is logged twice, after a restart, readers use its first entry.
`levelcast.runtime.lateness` defines *late*, *ready* and *token delay*. An entry with the flag `TOKEN` is no release: it
is an own token that was sent after it was due, with the slot of the token. It is written after the next release.

Older versions are read: their header and entries have 40 bytes, without `ready_ns` (readers return 0). There, *late* is
any release more than 1 ms after timestamp + Δ_A. Version 1 has neither the number nor a CRC.

Writes to the log are not synced: it survives a crash of the process, not a power failure. `open` cuts off bad entries
after which no valid one follows, and keeps them beside the log. Any other damage is refused: no other receiver has this
log, so the operator decides to continue without it.
"""

from __future__ import annotations

from binascii import crc_hqx
from collections.abc import Mapping, Sequence
from pathlib import Path
from struct import Struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from levelcast.records import RecordArray
from levelcast.storage.advice import put_releases_aside
from levelcast.storage.append_file import (
    AppendFile,
    TapeError,
    check_version,
    cut_tail,
    cut_text,
    remove,
    remove_unfinished,
)
from levelcast.storage.journal.open_marker import LogEnd

SUFFIX = ".releases"
ASIDE = ".damaged"
"""Suffix of a file that was put aside; its number is not missing."""
ENTRIES_PER_FILE = 100_000
CHECKED_FILES = 8
"""Newest files whose entries a start checks; a file takes 40 ms."""
LATE = 1
"""Flag: late by protocol."""
MOVED = 2
"""Flag: the scheduled time is after timestamp + Δ_A (rule 7)."""
TOKEN = 4
"""Flag: an own token, due at `scheduled_ns` and sent at `released_ns`."""

Nanoseconds = npt.NDArray[np.int64]

RELEASE: np.dtype[np.void] = np.dtype(
    [("slot", "<u8"), ("generation", "<u8"), ("scheduled_ns", "<u8"), ("released_ns", "<u8"), ("ready_ns", "<u8"),
     ("records", "<u4"), ("flags", "<u4")]
)  # fmt: skip
"""One release; `flags` are `LATE`, `MOVED` and `TOKEN`."""
_OLD_RELEASE: np.dtype[np.void] = np.dtype(
    [(name, RELEASE[name]) for name in RELEASE.names or () if name != "ready_ns"]
)

_ENTRY = Struct("<QQQQQIHH")
_FIXED = Struct("<8sH6xQ22xH")
_OLD_FIXED = Struct("<8sH6xQ14xH")
assert _ENTRY.size == _FIXED.size == RELEASE.itemsize
assert _OLD_FIXED.size == _OLD_RELEASE.itemsize
_SIZE = RELEASE.itemsize
_CHECKED = _SIZE - 2
_MAGIC, _VERSION, _OLD_VERSION = b"LVLCRELS", 3, 2
_FIRST_HEADER = (_MAGIC + (1).to_bytes(2, "little")).ljust(_OLD_RELEASE.itemsize, b"\0")


class Released(NamedTuple):
    """One release from the driver; `generation` is that of the receiver at the time."""

    slot: int
    generation: int
    scheduled_ns: int
    released_ns: int
    records: int
    late: bool
    ready_ns: int = 0
    moved: bool = False


class TokenDelay(NamedTuple):
    """An own token that was sent after it was due."""

    slot: int
    generation: int
    due_ns: int
    sent_ns: int


class ReleaseLog:
    """An open release log."""

    def __init__(
        self, directory: Path | str, entries_per_file: int = ENTRIES_PER_FILE, closed: LogEnd | None = None
    ) -> None:
        """Continue a log, or begin one; `closed` is its end if it was closed in order. Raise TapeError."""
        self.directory = Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.notices: list[str] = []
        """Descriptions of the torn tails that were cut off."""
        self._entries_per_file = entries_per_file
        self._number = 0
        self._tokens: list[TokenDelay] = []
        """Delayed tokens since the last release. A file starts with a release, so that its first slot is the lowest."""
        aside = [_number_of(path.name.partition(SUFFIX)[0], path) for path in _aside(self.directory)]
        paths = _paths(self.directory)
        numbers = [_number_of(path.name.removesuffix(SUFFIX), path) for path in paths]
        _check_numbers(self.directory, [*numbers, *aside], closed)
        for path in paths[-CHECKED_FILES:-1]:
            _check(path, path.read_bytes(), may_be_torn=False)
        remove_unfinished(self.directory)
        newest = max([*numbers, *aside], default=0)
        if newest in numbers and (file := self._continued(paths[-1], newest, closed)) is not None:
            self._number, self._file = newest, file
        else:
            self._number, self._file = newest + 1, _new_file(self.directory, newest + 1)

    def _continued(self, path: Path, number: int, closed: LogEnd | None) -> AppendFile | None:
        """Open the last file and cut off a torn tail; None if it has an older format."""
        size = path.stat().st_size
        if closed is not None and closed.number == number and closed.size != size:
            at = min(size, closed.size)
            raise _damaged(path, at, f"it had {closed.size} bytes when it was closed, not {size}")
        file = AppendFile.open(path)
        try:
            content = file.read(size, 0)
            end = _check(path, content, may_be_torn=closed is None)
            if file.size > end and (kept := cut_tail(file, end)) is not None:
                self.notices.append(cut_text(path, end, kept))
            if not end:
                file.append(_header(number))
        except TapeError:
            file.close()
            raise
        if not end or _layout(content).itemsize == _SIZE:
            return file
        file.close()
        return None

    @property
    def end(self) -> LogEnd:
        return LogEnd(self._number, self._file.size)

    def append(self, releases: Sequence[Released]) -> None:
        """Add releases, and the delayed tokens before them, with one write."""
        seed = _seed(self._number)
        bodies = [
            _ENTRY.pack(*each[:4], each.ready_ns, each.records, LATE * each.late | MOVED * each.moved, 0)[:_CHECKED]
            for each in releases
        ]
        if releases:
            bodies += [_ENTRY.pack(*each, 0, 0, TOKEN, 0)[:_CHECKED] for each in self._tokens]
            self._tokens.clear()
        self._file.append(b"".join(body + crc_hqx(body, seed).to_bytes(2, "little") for body in bodies))
        if self._file.size // _SIZE > self._entries_per_file:
            self._roll()

    def note_token(self, delay: TokenDelay) -> None:
        """Add a delayed token after the next release."""
        self._tokens.append(delay)

    def _roll(self) -> None:
        following = _new_file(self.directory, self._number + 1)
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

    def sync(self) -> None:
        """Wait until the last file is on the device."""
        self._file.sync()

    def close(self) -> None:
        self._file.close()


def read_releases(directory: Path | str) -> RecordArray:
    """Return all releases of one receiver, in the order in which they were written."""
    return only_releases(_read_entries(directory))


def read_together(directories: Mapping[str, Path]) -> dict[str, RecordArray]:
    """Return the releases of several receivers, with the delays of their tokens subtracted."""
    return subtract_token_delays({name: _read_entries(directory) for name, directory in directories.items()})


def read_file(path: Path) -> RecordArray:
    """Return the releases of one file of a log, without a torn tail. Raise TapeError if it is damaged."""
    return only_releases(read_entries(path))


def read_entries(path: Path) -> RecordArray:
    """Return all entries of one file of a log, releases and tokens. Raise TapeError if it is damaged."""
    content = path.read_bytes()
    end = _check(path, content, may_be_torn=True)
    read = np.frombuffer(content[:end], _layout(content))[1:]
    entries = np.zeros(len(read), RELEASE)
    for name in read.dtype.names or ():
        entries[name] = read[name]
    entries["flags"] &= 0xFFFF
    return entries


def _read_entries(directory: Path | str) -> RecordArray:
    paths = _paths(Path(directory))
    if not paths:
        raise TapeError(f"{directory}: release log not found; restore it from a backup")
    return np.concatenate([read_entries(path) for path in paths])


def only_releases(entries: RecordArray) -> RecordArray:
    """Return the entries that are releases."""
    releases: RecordArray = entries[entries["flags"] & TOKEN == 0]
    return releases


def write_file(path: Path, entries: RecordArray) -> None:
    """Write a complete file of a log."""
    number = _number_of(path.name.removesuffix(SUFFIX), path)
    bodies = memoryview(entries.astype(RELEASE).tobytes())
    parts = [_header(number)]
    for at in range(0, len(bodies), _SIZE):
        body = bodies[at : at + _CHECKED]
        parts += [bytes(body), crc_hqx(body, _seed(number)).to_bytes(2, "little")]
    path.write_bytes(b"".join(parts))


def span_of(path: Path) -> tuple[int, int, int] | None:
    """Return the slots of the first and last release of one file of a log, and its number of entries; None if empty."""
    with path.open("rb") as file:
        layout = _layout(file.read(_SIZE))
        size = layout.itemsize
        count = path.stat().st_size // size - 1
        if count < 1:
            return None
        file.seek(size)
        first = last = np.frombuffer(file.read(size), layout)
        for at in range(count, 0, -1):
            file.seek(at * size)
            last = np.frombuffer(file.read(size), layout)
            if not last["flags"][0] & TOKEN:
                break
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
    """Return release minus scheduled release of each entry; of a release on time it is the scheduling delay."""
    behind: Nanoseconds = entries["released_ns"].astype(np.int64) - entries["scheduled_ns"].astype(np.int64)
    return behind


def scheduling_ns(entries: RecordArray) -> Nanoseconds:
    """Return the scheduling delay of each entry."""
    possible = np.maximum(entries["scheduled_ns"], entries["ready_ns"])
    delay: Nanoseconds = entries["released_ns"].astype(np.int64) - possible.astype(np.int64)
    return delay


def subtract_token_delays(logs: Mapping[str, RecordArray]) -> dict[str, RecordArray]:
    """Return the releases of all receivers; those that only delayed tokens made late are not late.

    A release may have waited for the tokens from its own slot on that were sent before it was ready. If it would have
    been ready at its instant without the largest of their delays, the protocol was on time.
    """
    tokens = np.concatenate([np.zeros(0, RELEASE), *(log[log["flags"] & TOKEN != 0] for log in logs.values())])
    releases = {name: only_releases(log).copy() for name, log in logs.items()}
    delays = lateness_ns(tokens)
    for log in releases.values() if len(tokens) else ():
        waited = log["ready_ns"].astype(np.int64) - log["scheduled_ns"].astype(np.int64)
        excusable = (log["flags"] & (LATE | MOVED) == LATE) & (waited > 0) & (waited <= delays.max())
        for at in np.flatnonzero(excusable).tolist():
            needed = (tokens["slot"] >= log["slot"][at]) & (tokens["released_ns"] <= log["ready_ns"][at])
            if delays[needed].max(initial=0) >= waited[at]:
                log["flags"][at] ^= LATE
    return releases


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


# -- files ------------------------------------------------------------------------------------------------


def _check(path: Path, content: bytes, *, may_be_torn: bool) -> int:
    """Return the end of the valid entries of a file; raise TapeError if anything but a torn tail follows it."""
    size = _layout(content).itemsize
    if len(content) < size and may_be_torn and _MAGIC.startswith(content[: len(_MAGIC)]):
        return 0
    number = _check_header(path, content)
    whole = len(content) // size * size
    bad = _bad_entries(content, number, whole) if number is not None else []
    end = bad[0] if bad else whole
    if end < len(content) and (not may_be_torn or end + len(bad) * size < whole):
        raise _damaged(path, end, "the entry has a wrong checksum" if bad else "the last entry is incomplete")
    return end


def _bad_entries(content: bytes, number: int, end: int) -> list[int]:
    """Return the offsets of the entries with a wrong checksum."""
    view, seed, layout = memoryview(content), _seed(number), _layout(content)
    size = layout.itemsize
    checks = np.frombuffer(content[:end], layout)["flags"] >> 16
    entries = zip(range(size, end, size), checks[1:].tolist(), strict=True)
    return [at for at, check in entries if crc_hqx(view[at : at + size - 2], seed) != check]


def _check_header(path: Path, content: bytes) -> int | None:
    """Return the number in the header; None for version 1, which has none. Raise TapeError for anything else."""
    if content.startswith(_FIRST_HEADER):
        return None
    size = _layout(content).itemsize
    if len(content) < size or not content.startswith(_MAGIC):
        raise _damaged(path, 0, "not a Levelcast release log")
    _, version, number, check = (_FIXED if size == _SIZE else _OLD_FIXED).unpack_from(content)
    if check != crc_hqx(content[: size - 2], 0):
        newer = f" (or of version {version}, but this Levelcast reads version {_VERSION})" if version > _VERSION else ""
        raise _damaged(path, 0, f"its header is damaged{newer}")
    if version != _OLD_VERSION:
        check_version(path, version, _VERSION)
    if path.name != _path(path.parent, number).name:
        raise _damaged(path, 16, f"it has the header of file {number}, which does not match its name")
    return int(number)


def _layout(content: bytes) -> np.dtype[np.void]:
    """Return the layout of the entries of a file, by the version in its header."""
    old = content.startswith(_MAGIC) and content[len(_MAGIC) : len(_MAGIC) + 2] in (b"\1\0", b"\2\0")
    return _OLD_RELEASE if old else RELEASE


def _check_numbers(directory: Path, numbers: list[int], closed: LogEnd | None) -> None:
    """Check that no file is missing between the first and the last one."""
    last = max([*numbers, closed.number if closed is not None else 0], default=0)
    for number in range(min(numbers, default=last), last + 1):
        if number and number not in numbers:
            path = _path(directory, number)
            raise TapeError(
                f"{path}: this file of the release log is missing; no other receiver has it, so start the node without "
                f"it: `touch {path}{ASIDE}`; certificates and audits then lack the release times in it"
            )


def _damaged(path: Path, at: int, says: str) -> TapeError:
    aside = path.with_name(path.name + ASIDE)
    while aside.exists():
        aside = aside.with_name(aside.name + "-again")
    return TapeError(f"{path}: damaged at byte {at:,}: {says}; nothing was changed; {put_releases_aside(path, aside)}")


def _new_file(directory: Path, number: int) -> AppendFile:
    return AppendFile.create(_path(directory, number), _header(number))


def _header(number: int) -> bytes:
    fixed = _FIXED.pack(_MAGIC, _VERSION, number, 0)[:_CHECKED]
    return fixed + crc_hqx(fixed, 0).to_bytes(2, "little")


def _seed(number: int) -> int:
    """Return the start of an entry's CRC: never 0, so that zeros are not an entry."""
    return number % 0xFFFF + 1


def _path(directory: Path, number: int) -> Path:
    return directory / f"{number:016}{SUFFIX}"


def _number_of(name: str, path: Path) -> int:
    if not name.isdecimal():
        raise TapeError(f"{path}: not a file of a release log; move it elsewhere")
    return int(name)


def _paths(directory: Path) -> list[Path]:
    return sorted(directory.glob("*" + SUFFIX))


def _aside(directory: Path) -> list[Path]:
    return sorted(directory.glob(f"*{SUFFIX}{ASIDE}*"))

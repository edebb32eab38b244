"""Files that only grow: every byte that this package puts on disk goes through here.

- `AppendFile.append` writes all of its bytes or none: after an error the file has its old end again.
- A new file appears under its name with its first bytes in it, or not at all (`create`).
- *Durability* is `process`, where what was written survives the death of the process because the kernel has it,
  or `power`, where it is on the device before the call returns.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from levelcast.errors import UserError

Durability = Literal["process", "power"]

NEW = ".new"
"""The suffix of a file that is not finished: whoever finds one may remove it."""

_MOST_PARTS = 1024
"""That one system call takes (IOV_MAX)."""


class TapeError(UserError):
    """What is wrong with a journal, a tape or a release log, in one sentence for a person."""


class AppendFile:
    """One open file and its end. Writes go to the end as this object knows it, so a failed one leaves no trace."""

    def __init__(self, path: Path, fd: int, size: int) -> None:
        self.path = path
        self.fd = fd
        self.size = size
        self._extent = size
        """Up to where there are bytes; behind `size` they are an earlier use's."""

    @classmethod
    def create(
        cls, path: Path, content: bytes, durable: Durability = "process", reuse: AppendFile | None = None
    ) -> AppendFile:
        """A new file with `content`, whole or not there; it takes the place of one with the same name.

        With `reuse` it is written over a retired one, whose old bytes stay behind `content` until they are overwritten
        too: to write where the kernel has pages already costs less than half.
        """
        if reuse is None:
            unfinished = path.with_name(path.name + NEW)
            file = cls(unfinished, os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644), 0)
        else:
            file, unfinished = reuse, reuse.path
            file.size = 0
        try:
            file.append(content)
            if durable == "power":
                file.sync()
            os.rename(unfinished, path)
        except (OSError, TapeError):
            os.close(file.fd)
            with suppress(OSError):
                os.unlink(unfinished)
            raise
        file.path = path
        if durable == "power":
            sync_directory(path.parent)
        return file

    @classmethod
    def open(cls, path: Path) -> AppendFile:
        fd = os.open(path, os.O_RDWR)
        return cls(path, fd, os.fstat(fd).st_size)

    def append(self, *contents: bytes | bytearray | memoryview) -> None:
        """Add `contents` at the end, one behind the other, all of it or nothing."""
        at = self.size
        try:
            for first in range(0, len(contents), _MOST_PARTS):
                parts = contents[first : first + _MOST_PARTS]
                wrote = os.pwritev(self.fd, parts, at)
                at += wrote
                if (missing := sum(map(len, parts)) - wrote) > 0:  # a disk that fills up takes a part first
                    view = memoryview(b"".join(parts))[-missing:]
                    while view:
                        wrote = os.pwrite(self.fd, view, at)
                        view, at = view[wrote:], at + wrote
        except OSError as error:
            with suppress(OSError):
                self.truncate(self.size)
            raise TapeError(_why_not_written(self.path, error)) from error
        self.size = at
        self._extent = max(self._extent, at)

    def truncate(self, size: int) -> None:
        os.ftruncate(self.fd, size)
        self.size = self._extent = size

    def finish(self) -> None:
        """Nothing more will be appended: let go of what an earlier use left behind the end."""
        if self._extent > self.size:
            self.truncate(self.size)

    def retire(self) -> None:
        """Nobody needs what is in it: take its name away, and keep it for `create`."""
        self.rename(self.path.with_name(self.path.name + NEW))

    def read(self, size: int, at: int) -> bytes:
        return os.pread(self.fd, size, at)

    def sync(self) -> None:
        """Wait until everything is on the device."""
        try:
            os.fdatasync(self.fd)
        except OSError as error:
            raise TapeError(f"{self.path}: the device did not take what was written ({error.strerror})") from error

    def rename(self, path: Path) -> None:
        os.rename(self.path, path)
        self.path = path

    def close(self) -> None:
        os.close(self.fd)


def _why_not_written(path: Path, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{path}: the disk is full, and nothing of this write is in the file: free some space and go on"
    return f"{path}: cannot write, and nothing of this write is in the file: {error.strerror}"


@contextmanager
def open_directory(directory: Path) -> Iterator[int]:
    """A descriptor of a directory, which is closed at the end."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield fd
    finally:
        os.close(fd)


def sync_directory(directory: Path) -> None:
    """Wait until the names in `directory` are on the device."""
    with open_directory(directory) as fd:
        os.fsync(fd)


def lock_directory(directory: Path, what: str) -> int:
    """Keep other processes from writing there for as long as the returned descriptor is open."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise TapeError(f"{directory}: another process is writing this {what}") from None
    return fd


def check_version(where: object, version: int, known: int) -> None:
    """A format of another version than this program's is not guessed at."""
    if version != known:
        other = "a newer" if version > known else "an older"
        raise TapeError(f"{where}: has version {version}, and this Levelcast reads version {known}: use {other} one")


def remove(path: Path) -> None:
    os.unlink(path)


def remove_unfinished(directory: Path) -> None:
    """Files whose creation did not end."""
    for path in directory.glob("*" + NEW):
        remove(path)

"""Write append-only files: this package writes every byte on disk with this module.

- `AppendFile.append` writes all of its bytes or none: after an error the file ends where it did before.
- `create` makes a new file visible under its name only with its first content.
- *Durability* is `process`: written bytes survive a crash of the process because they are in the kernel; or `power`:
  they are on the device before the call returns.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Literal

from levelcast.errors import UserError

Durability = Literal["process", "power"]

NEW = ".new"
"""Suffix of an unfinished file, which any process may remove."""

_MOST_PARTS = 1024
"""Maximum number of buffers per system call (IOV_MAX)."""


class TapeError(UserError):
    """Error in a journal, a tape or a release log, as a one-line message for the user."""


class AppendFile:
    """An open file and its end. Writes start at the end as this object knows it, so a failed write leaves no trace."""

    def __init__(self, path: Path, fd: int, size: int) -> None:
        self.path = path
        self.fd = fd
        self.size = size
        self._extent = size
        """End of the bytes in the file; those after `size` are left from an earlier use."""

    @classmethod
    def create(
        cls, path: Path, content: bytes, durable: Durability = "process", reuse: AppendFile | None = None
    ) -> AppendFile:
        """Create a file with `content`, complete or not at all; it replaces a file with the same name.

        With `reuse` it overwrites a retired file, and the old bytes after `content` stay until they are overwritten: a
        write to pages that the kernel already has costs less than half.
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
        """Append `contents` in sequence, all or nothing."""
        at = self.size
        try:
            for first in range(0, len(contents), _MOST_PARTS):
                parts = contents[first : first + _MOST_PARTS]
                wrote = os.pwritev(self.fd, parts, at)
                at += wrote
                if (missing := sum(map(len, parts)) - wrote) > 0:  # a disk that fills up accepts a part first
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
        """Remove the bytes that an earlier use left after the end; nothing more will be appended."""
        if self._extent > self.size:
            self.truncate(self.size)

    def retire(self) -> None:
        """Remove the name of a file that is not needed, and keep the file for `create`."""
        self.rename(self.path.with_name(self.path.name + NEW))

    def read(self, size: int, at: int) -> bytes:
        return os.pread(self.fd, size, at)

    def sync(self) -> None:
        """Wait until everything is on the device."""
        try:
            os.fdatasync(self.fd)
        except OSError as error:
            raise TapeError(f"{self.path}: cannot write to the device ({error.strerror})") from error

    def rename(self, path: Path) -> None:
        os.rename(self.path, path)
        self.path = path

    def close(self) -> None:
        os.close(self.fd)


def _why_not_written(path: Path, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{path}: the disk is full, nothing of this write is in the file; free disk space and try again"
    return f"{path}: cannot write, nothing of this write is in the file ({error.strerror})"


@contextmanager
def open_directory(directory: Path) -> Iterator[int]:
    """Open a directory and yield its descriptor; close it at the end."""
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
    """Prevent other processes from writing there while the returned descriptor is open."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise TapeError(
            f"{directory}: another process is writing this {what}; stop it, or use another directory"
        ) from None
    return fd


def check_version(where: object, version: int, known: int) -> None:
    """Reject a format of another version than this program's."""
    if version != known:
        other = "a newer" if version > known else "an older"
        raise TapeError(f"{where}: version {version}, but this Levelcast reads version {known}; use {other} Levelcast")


def cut_tail(file: AppendFile, end: int, durable: Durability = "process") -> Path | None:
    """Remove the bytes of a torn tail from byte `end` on; return the file beside it that keeps them."""
    tail = file.read(file.size - end, end)
    if not tail:
        return None
    kept = next(path for path in _torn_names(file.path, end) if not path.exists() or path.read_bytes() == tail)
    if not kept.exists():  # otherwise the process that kept it crashed before it cut the file
        AppendFile.create(kept, tail, durable).close()
    file.truncate(end)
    if durable == "power":
        file.sync()
    return kept


def _torn_names(path: Path, at: int) -> Iterator[Path]:
    name = f"{path.name}.torn-at-{at}"
    yield path.with_name(name)
    yield from (path.with_name(f"{name}-{number}") for number in count(2))


def keep_damaged(path: Path) -> Path:
    """Give a damaged file a second name beside the first, so that the first can be replaced; return it."""
    names = (path.with_name(f"{path.name}.damaged-{number}") for number in count(1))
    kept = next(name for name in names if not name.exists() or name.samefile(path))
    if not kept.exists():  # otherwise the process that named it crashed before it replaced the file
        os.link(path, kept)
    return kept


def cut_text(path: Path, end: int, kept: Path) -> str:
    """Describe a torn tail that was cut off."""
    return f"{path}: the last write was incomplete; removed the bytes from {end:,} on and kept them in {kept.name}"


def remove(path: Path) -> None:
    os.unlink(path)


def rename(path: Path, to: Path) -> None:
    os.rename(path, to)


def remove_unfinished(directory: Path) -> None:
    """Remove files that were not created completely."""
    for path in directory.glob("*" + NEW):
        remove(path)

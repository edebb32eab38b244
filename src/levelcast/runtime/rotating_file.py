"""Append lines to a file of limited size: PATH, and older parts as PATH.1 (newest) to PATH.KEEP.

Each line is one write to the kernel, so that a crash of the process loses none. If another program has moved or
removed the file, the next line begins a new one.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


class RotatingFile:
    """A file that is renamed when the next line would exceed `limit` bytes; `keep` renamed files remain."""

    def __init__(self, path: Path, limit: int, keep: int) -> None:
        self.path = path
        self._limit = limit
        self._keep = keep
        self._file: int | None = None

    def write(self, line: str) -> None:
        """Append a line. Raise OSError if it cannot be written; then nothing of it remains in the file."""
        content = f"{line}\n".encode("utf-8", "backslashreplace")
        size = self._size()
        if size and size + len(content) > self._limit:
            self._rotate()
            size = self._size()
        assert self._file is not None
        if os.write(self._file, content) < len(content):  # the disk is full
            os.ftruncate(self._file, size)
            os.write(self._file, content)  # raises the reason

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _size(self) -> int:
        """Open the file unless it is open, and return its size."""
        if self._file is not None:
            with suppress(FileNotFoundError):
                found, mine = os.stat(self.path), os.fstat(self._file)
                if (found.st_dev, found.st_ino) == (mine.st_dev, mine.st_ino):
                    return found.st_size
            self.close()
        self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        return os.fstat(self._file).st_size

    def _rotate(self) -> None:
        self.close()
        for number in range(self._keep, 0, -1):
            with suppress(FileNotFoundError):
                os.replace(self._numbered(number - 1), self._numbered(number))

    def _numbered(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}") if number else self.path

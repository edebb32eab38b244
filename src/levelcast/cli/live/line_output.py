"""Write lines to a pipe, file or terminal from the loop of a node, which a slow reader must not block.

A line is written at once if the reader has room for it, and otherwise later, in order. Only a status line that waits is
replaced by the next one. A reader that leaves `WAITING_BYTES` unread loses lines; their number is reported in order.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable

WAITING_BYTES = 16 << 20
CLOSING_S = 5.0
_TOGETHER = select.PIPE_BUF
"""A pipe that polls as writable accepts this many bytes without blocking (pipe(7))."""


class LineOutput:
    """Lines for one descriptor. `on_closed` is called once when its reader has gone; later lines are dropped."""

    def __init__(self, file: int, on_closed: Callable[[], None], lost_line: Callable[[int], str]) -> None:
        """`lost_line` returns the line that reports a number of lost lines."""
        self._file = file
        self._on_closed = on_closed
        self._lost_line = lost_line
        self._waiting = bytearray()
        self._status = b""
        """A complete line that the next status replaces; it follows everything that waits."""
        self._lost = 0
        self._closed = False
        self._poll = select.poll()
        self._poll.register(file, select.POLLOUT)

    def write(self, line: str) -> None:
        """Write a line now or later."""
        self._add(line)
        self.flush()

    def write_status(self, line: str) -> None:
        """Write a line that supersedes earlier ones of this kind."""
        self._status = _encoded(line)
        self.flush()

    def flush(self, wait_s: float = 0.0) -> bool:
        """Write what the reader accepts within a time; return whether everything is written."""
        deadline = time.monotonic() + wait_s
        while not self._closed:
            if not self._waiting:
                self._waiting, self._status = bytearray(self._status), b""
            if not self._waiting:
                return True
            if not self._poll.poll(max(0.0, deadline - time.monotonic()) * 1e3) or not self._write_some():
                return False
        return True

    def close(self) -> bool:
        """Wait until the reader has everything, at most `CLOSING_S`; return whether it has."""
        return self.flush(CLOSING_S) and not self._lost

    def _add(self, line: str) -> None:
        if self._closed:
            return
        if len(self._waiting) > WAITING_BYTES:
            self._lost += 1
            return
        if self._lost:
            lost, self._lost = self._lost, 0
            self._add(self._lost_line(lost))
        self._waiting += _encoded(line)

    def _write_some(self) -> bool:
        """Write one piece; return whether more may follow."""
        try:
            del self._waiting[: os.write(self._file, self._waiting[:_TOGETHER])]
            return True
        except BlockingIOError:  # the descriptor does not block, as the shell left it
            return False
        except BrokenPipeError:
            self._closed = True
            self._waiting.clear()
            self._on_closed()
        except OSError:  # a full disk, for example
            self._lost += self._waiting.count(b"\n")
            self._waiting.clear()
        return False


def _encoded(line: str) -> bytes:
    return f"{line}\n".encode("utf-8", "backslashreplace")

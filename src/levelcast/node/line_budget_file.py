"""Keep the budget of a line (`levelcast.edge.server.line_budget`) in a mapped file that a receiver's stripes share.

The file of a line is `DATA/.lines/RECEIVER/ADDRESS-PORT`. It is locked for each packet. A process that does not get the
lock tries again after `AGAIN_NS`. A lock ends with its process. No restart needs the file.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from mmap import mmap
from pathlib import Path

from levelcast.edge.server.line_budget import LineBudget, state_words
from levelcast.errors import NetError
from levelcast.network import MulticastGroup, Network
from levelcast.network.line_assignment import share_of_line
from levelcast.network.placement import part_of

AGAIN_NS = 1_000_000

_WORD = 8

__all__ = ["SharedLineBudget", "line_budgets"]


class SharedLineBudget(LineBudget):
    """A budget in a file."""

    def __init__(self, path: Path, rate: int, sender: int, senders: int) -> None:
        size = state_words(senders) * _WORD
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            os.posix_fallocate(self._file, 0, size)  # a write to a mapped page must not find the disk full
        except OSError as error:
            raise NetError(f"{path}: cannot write the line's budget: {error.strerror}; check its directory") from error
        self._map = mmap(self._file, size)
        super().__init__(rate, memoryview(self._map).cast("Q"), sender)

    def claim(self, size: int, now: int) -> int:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return now + AGAIN_NS
        try:
            return super().claim(size, now)
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        words, self._words = self._words, []
        if isinstance(words, memoryview):
            words.release()
            self._map.close()
            os.close(self._file)


def line_budgets(
    network: Network, receiver: str, stripe: str, directory: Path
) -> Callable[[MulticastGroup, int], LineBudget]:
    """Return a function that opens the budget of a group with a rate, by its range and number.

    `directory` is that of the receiver's part in the stripe.
    """
    data = directory.parents[part_of(network, receiver, stripe).count("/")]
    lines, sender = data / ".lines" / receiver, network.stripe(stripe).index

    def opened(group: MulticastGroup, number: int) -> LineBudget:
        path = lines / f"{group.at(number).address}-{group.port}"
        return SharedLineBudget(path, share_of_line(network, group), sender, len(network.stripes))

    return opened

"""Verify signatures of chain messages on other threads: `cryptography` releases the interpreter lock.

The loop hands over the messages of one turn together, and continues. When they are verified, the pool wakes the loop,
which gives them to the protocol; its `RecentVerifier` then knows the results.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import NamedTuple

from levelcast.byzantine.signatures import RecentVerifier
from levelcast.wire.messages import Message


class ToVerify(NamedTuple):
    """One signature to verify."""

    verifier: RecentVerifier
    member: int
    content: bytes
    signature: bytes
    source: tuple[str, int] | None = None
    """Address from which the author has sent the message itself."""


class VerifiedBatch(NamedTuple):
    """Messages with the results for their signatures, in the order of arrival."""

    messages: Sequence[Message]
    results: Sequence[tuple[ToVerify, bool]]


class VerifyPool:
    """Threads that verify; `fileno` becomes readable when batches are done."""

    def __init__(self, threads: int) -> None:
        self._tasks: SimpleQueue[tuple[Sequence[Message], Sequence[ToVerify]] | None] = SimpleQueue()
        self._done: deque[VerifiedBatch] = deque()
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._threads = [Thread(target=self._run, name=f"verify {number}", daemon=True) for number in range(threads)]
        for thread in self._threads:
            thread.start()

    @property
    def fileno(self) -> int:
        return self._read

    def put(self, messages: Sequence[Message], wanted: Sequence[ToVerify]) -> None:
        """Verify the signatures of a batch."""
        self._tasks.put((messages, wanted))

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            messages, wanted = task
            results = [(each, each.verifier.check(each.member, each.content, each.signature)) for each in wanted]
            self._done.append(VerifiedBatch(messages, results))
            self.wake()

    def wake(self) -> None:
        """Wake the loop, from any thread."""
        with suppress(BlockingIOError, OSError):  # it is awake already, or closed
            os.write(self._write, b"\0")

    def take(self) -> Iterable[VerifiedBatch]:
        """Return the batches that are done, and note their results."""
        with suppress(BlockingIOError):
            os.read(self._read, 4_096)
        taken = []
        while self._done:
            batch = self._done.popleft()
            for each, holds in batch.results:
                each.verifier.learn(each.member, each.content, each.signature, holds=holds)
            taken.append(batch)
        return taken

    def close(self) -> None:
        """End the threads."""
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            thread.join()
        os.close(self._read)
        os.close(self._write)


def default_threads() -> int:
    """Return the number of threads: one per core, at most four."""
    return min(4, os.cpu_count() or 1)

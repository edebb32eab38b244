"""Keep a receiver's tape within the network file's limits while the node runs.

One old segment is removed at a time. While the tape exceeds its limit, the next one follows soon; otherwise the tape is
checked every few seconds. The event loop unlinks a segment's file. A separate thread frees its blocks, which can block
for tens of milliseconds in the kernel, so that no release waits for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

from levelcast.network import Keeping
from levelcast.protocol.effects import Release
from levelcast.protocol.events import Event, RetentionFailed
from levelcast.protocol.machine import Machine
from levelcast.storage.append_file import TapeError
from levelcast.storage.receiver_store import ReceiverStore

EVERY_NS = 2_000_000_000
SOON_NS = 20_000_000
"""Delay of the next check if the ring is about to be due, or if more segments must be removed."""
GAP_NS = 1_000_000
"""Required idle time of the ring: a check of the tape needs less."""
PATIENCE_NS = 1_000_000_000
"""After this time a check runs even if the ring is not idle."""


class Retention:
    """A `levelcast.runtime.driver.Service` that removes old segments of the tape."""

    def __init__(
        self, store: ReceiverStore, keeping: Keeping, machine: Machine, now: int, report: Callable[[Event], None]
    ) -> None:
        self._store = store
        self._report = report
        self._keeping = keeping
        self._machine = machine
        self.filenos: Sequence[int] = ()
        self.wake_ns = self._due_ns = now
        self._leaving = Leaving()

    def step(self, ready: Collection[int], now: int) -> None:
        """Remove one segment if a check is due and the ring is idle."""
        if self._due_ns > now + EVERY_NS:  # the clock was set back
            self._due_ns = self.wake_ns = now + EVERY_NS
        if now < self.wake_ns:
            return
        ring_ns = self._machine.wake_ns
        if ring_ns is not None and ring_ns - now < GAP_NS and now - self._due_ns < PATIENCE_NS:
            self.wake_ns = now + SOON_NS
            return
        self._due_ns = self.wake_ns = now + EVERY_NS
        try:
            upto_slot = self._store.tape.retain(
                now,
                max_bytes=self._keeping.keep_bytes,
                max_age_ns=self._keeping.keep_age_ns,
                most=1,
                remove=self._leaving.remove,
            )
            self._store.releases.retain(upto_slot)
        except (OSError, TapeError) as error:  # not fatal to the ring: only the disk usage exceeds the limit
            self._report(RetentionFailed(0, str(error)))
            return
        if self._keeping.keep_bytes is not None and self._store.tape.size_bytes > self._keeping.keep_bytes:
            self._due_ns = self.wake_ns = now + SOON_NS

    def released(self, release: Release, content: bytes | bytearray, now: int) -> None:
        pass

    def close(self) -> None:
        self._leaving.close()


class Leaving:
    """Unlink files immediately, and free their blocks later in a thread."""

    def __init__(self) -> None:
        self._files: SimpleQueue[int] = SimpleQueue()
        self._thread: Thread | None = None

    def remove(self, path: Path) -> None:
        """Unlink a file. A process that has it open can still read it."""
        fd = os.open(path, os.O_RDONLY)
        try:
            os.unlink(path)
        finally:
            if self._thread is None:
                self._thread = Thread(target=self._free, name="retention", daemon=True)
                self._thread.start()
            self._files.put(fd)

    def close(self) -> None:
        """Wait until everything is freed."""
        if self._thread is not None:
            self._files.put(-1)
            self._thread.join()
            self._thread = None

    def _free(self) -> None:
        while (fd := self._files.get()) >= 0:
            os.close(fd)  # the last descriptor: this frees the blocks

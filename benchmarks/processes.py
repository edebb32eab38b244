"""What a process and all below it take. Spark works in Java below Python, and in Python below Java."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO, NamedTuple

import psutil

LOOK_S = 0.2


def family(*roots: int) -> list[psutil.Process]:
    """Processes by their numbers, each before those that it has started."""
    found = []
    for root in roots:
        with suppress(psutil.NoSuchProcess):
            first = psutil.Process(root)
            found += [first, *first.children(recursive=True)]
    return found


def cpu_s(*roots: int) -> float:
    """CPU time of processes and of all below them, those that have ended and were waited for included."""
    return sum(_of(each, lambda process: sum(process.cpu_times()[:4])) for each in family(*roots))


def memory_bytes(*roots: int) -> int:
    """What processes and all below them hold now; pages that they share count once."""
    return int(sum(_of(each, lambda process: process.memory_full_info().pss) for each in family(*roots)))


def _of(process: psutil.Process, figure: Callable[[psutil.Process], float]) -> float:
    try:
        return figure(process)
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return 0  # it has ended meanwhile


def kill_family(root: int) -> None:
    """SIGKILL to a process and to all below it: the parent first, so that it starts no new one."""
    for each in family(root):
        with suppress(psutil.NoSuchProcess):
            each.kill()


@dataclass(slots=True)
class Peak:
    """The most memory that was seen."""

    bytes: int = 0


@contextmanager
def peak_memory(root: int | None = None) -> Iterator[Peak]:
    """The most that a process, this one if none is named, and all below it hold at once while the block runs."""
    peak, over, number = Peak(), threading.Event(), root or os.getpid()

    def look() -> None:
        while True:
            peak.bytes = max(peak.bytes, memory_bytes(number))
            if over.wait(LOOK_S):
                return

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield peak
    finally:
        over.set()
        watcher.join()


class Ran(NamedTuple):
    """A command that has ended."""

    code: int
    seconds: float
    peak_bytes: int


def run_watched(
    command: Sequence[str],
    stdout: IO[bytes],
    stderr: IO[bytes] | int | None = None,
    env: Mapping[str, str] | None = None,
) -> Ran:
    """Run a command and watch the memory of its family."""
    begun = time.perf_counter()
    with subprocess.Popen(command, stdout=stdout, stderr=stderr, env=env) as process, peak_memory(process.pid) as peak:
        code = process.wait()
    return Ran(code, time.perf_counter() - begun, peak.bytes)

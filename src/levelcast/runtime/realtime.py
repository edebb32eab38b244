"""What a process can do to be on time: priority, timers without slack, memory kept, no garbage collection in between.

Each is asked for and none is needed: without the right to real-time priority a node is as correct and less punctual
(docs/operations.md says how to permit it).
"""

from __future__ import annotations

import ctypes
import gc
import os
from contextlib import suppress
from typing import Literal

Realtime = Literal["auto", "on", "off"]
PRIORITY = 10
"""Above every ordinary process, below the kernel's own threads."""
SPIN_NS = 100_000
"""With real-time priority the kernel wakes a sleeper well within this."""
_PR_SET_TIMERSLACK = 29
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 256 << 20


def take_realtime_priority() -> bool:
    """Run before every ordinary process (SCHED_FIFO); False where this is not permitted. Children do not inherit it."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(PRIORITY))
    except OSError:
        return False
    return True


def sharpen_timers() -> None:
    """Sleeps end when they should, not up to 50 µs later as Linux allows itself for ordinary processes."""
    with suppress(OSError, AttributeError):  # not Linux
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)


def keep_freed_memory() -> None:
    """What is freed stays with the process: asking the kernel for fresh pages costs more than filling them."""
    with suppress(OSError, AttributeError):  # not glibc
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        libc.mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)


def calm_garbage_collection() -> None:
    """The protocol's values form no cycles: what start-up has made is never looked at again, the rest seldom."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)

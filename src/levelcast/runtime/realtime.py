"""Reduce scheduling jitter: real-time priority, minimal timer slack, retained heap memory, rare garbage collection.

Each is optional: without permission for real-time priority a node is equally correct, but releases less punctually
(docs/operations.md describes how to permit it).
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
"""With real-time priority the kernel wakes a sleeping process well within this."""
_PR_SET_TIMERSLACK = 29
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 256 << 20


def take_realtime_priority() -> bool:
    """Run before every ordinary process (SCHED_FIFO); False if this is not permitted. Children do not inherit it."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(PRIORITY))
    except OSError:
        return False
    return True


def sharpen_timers() -> None:
    """Set the timer slack to 1 ns, instead of the 50 µs that Linux uses for ordinary processes."""
    with suppress(OSError, AttributeError):  # not Linux
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)


def keep_freed_memory() -> None:
    """Keep freed memory in the process: requesting new pages from the kernel costs more than filling them."""
    with suppress(OSError, AttributeError):  # not glibc
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        libc.mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)


def calm_garbage_collection() -> None:
    """Exclude start-up objects from garbage collection, and collect rarely: the protocol's values form no cycles."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)

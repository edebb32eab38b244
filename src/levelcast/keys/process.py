"""Keep the memory of a process with keys out of core dumps and debuggers."""

from __future__ import annotations

import ctypes
import resource
import secrets
from contextlib import suppress

_PR_SET_DUMPABLE = 4


def new_salt() -> int:
    """Return the salt of a process of a source: 64 random bits, so that no two processes have the same key (K5)."""
    return secrets.randbits(64)


def protect_process() -> None:
    """Forbid core dumps and attaching of debuggers to this process; needs no privileges. Swap should be encrypted."""
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)

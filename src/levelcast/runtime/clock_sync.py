"""What the kernel knows of its own clock: whether somebody keeps it synchronised, and how well (adjtimex(2)).

`chronyd`, `ntpd` and `phc2sys` (PTP) tell the kernel. Where none of them runs, or the call is not permitted, nothing is
known. It is for people to look at: the ring goes by the file's `clock_error`.
"""

from __future__ import annotations

import ctypes
from typing import NamedTuple

_STA_UNSYNC = 0x0040
_STA_NANO = 0x2000
_TIME_ERROR = 5


class _Timex(ctypes.Structure):
    """The beginning of `struct timex` of <sys/timex.h>, and room for the rest of it."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_long * 32),
    )


class KernelClock(NamedTuple):
    """The kernel's own opinion of its clock."""

    synchronised: bool
    offset_ns: int
    """What is still to be slewed away."""
    max_error_ns: int
    """The kernel counts it up from the last synchronisation on: a bound, and a pessimistic one."""
    estimated_error_ns: int


def kernel_clock() -> KernelClock | None:
    """Ask the kernel, which changes nothing and needs no right; None where it does not answer."""
    timex = _Timex()
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex))
    except (OSError, AttributeError):  # not Linux
        return None
    if state < 0:
        return None
    unit_ns = 1 if timex.status & _STA_NANO else 1000
    return KernelClock(
        state != _TIME_ERROR and not timex.status & _STA_UNSYNC,
        timex.offset * unit_ns,
        timex.maxerror * 1000,
        timex.esterror * 1000,
    )

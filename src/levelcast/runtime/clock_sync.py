"""Read the synchronisation state and the error estimates of the kernel's clock (adjtimex(2)).

`chronyd`, `ntpd` and `phc2sys` (PTP) set them. If none of them runs, or the call is not permitted, the state is
unknown. It is information for operators: the ring uses the file's `clock_error`.
"""

from __future__ import annotations

import ctypes
from typing import NamedTuple

_STA_UNSYNC = 0x0040
_STA_NANO = 0x2000
_TIME_ERROR = 5


class _Timex(ctypes.Structure):
    """The beginning of `struct timex` of <sys/timex.h>, padded to its full size."""

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
    """The kernel's estimates of its clock."""

    synchronised: bool
    offset_ns: int
    """Remaining offset to be slewed."""
    max_error_ns: int
    """A pessimistic bound, which grows from the last synchronisation on."""
    estimated_error_ns: int


def kernel_clock() -> KernelClock | None:
    """Query the kernel, which needs no privilege; return None if the call fails."""
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

"""Read the synchronisation state and the error estimates of the kernel's clock (adjtimex(2)), and find who sets it.

`chronyd`, `ntpd` and `phc2sys` (PTP) set them. If none of them runs, or the call is not permitted, the state is
unknown. `levelcast.runtime.clock_sources` reads them in a running node, and passes bounds and leap seconds to the clock
check.
"""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

_CLOCK_PROGRAMS = {
    "chronyd": "chronyd",
    "ntpd": "ntpd",
    "systemd-timesyn": "systemd-timesyncd",  # the kernel cuts names to 15 characters
    "phc2sys": "phc2sys",
    "ptp4l": "ptp4l",
}
_CHRONYC_LIMIT_S = 0.5

_STA_LEAP = 0x0010 | 0x0020
"""STA_INS and STA_DEL: a second will be inserted or deleted at the end of the UTC day."""
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
    leap: bool = False
    """A second will be inserted or deleted at the end of this UTC day."""


@cache
def _adjtimex() -> Callable[..., int] | None:
    try:
        found: Callable[..., int] = ctypes.CDLL(None, use_errno=True).adjtimex
    except (OSError, AttributeError):  # not Linux
        return None
    return found


def kernel_clock() -> KernelClock | None:
    """Query the kernel, which needs no privilege; return None if the call fails."""
    timex = _Timex()
    adjtimex = _adjtimex()
    if adjtimex is None:
        return None
    state = adjtimex(ctypes.byref(timex))
    if state < 0:
        return None
    unit_ns = 1 if timex.status & _STA_NANO else 1000
    return KernelClock(
        state != _TIME_ERROR and not timex.status & _STA_UNSYNC,
        timex.offset * unit_ns,
        timex.maxerror * 1000,
        timex.esterror * 1000,
        bool(timex.status & _STA_LEAP),
    )


class ChronyTracking(NamedTuple):
    """The time source of `chronyd`, and its estimates."""

    source: str
    stratum: int
    offset_ns: int
    max_error_ns: int
    """Offset, half of the delay to the reference clock, and the dispersion: a bound on the error."""
    leap: bool = False
    """A second will be inserted or deleted at the end of this UTC day."""


def chrony_tracking() -> ChronyTracking | None:
    """Query `chronyd`; return None if it does not run or has no source."""
    command = ["chronyc", "-c", "-n", "tracking"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_CHRONYC_LIMIT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_tracking(done.stdout)


def parse_tracking(text: str) -> ChronyTracking | None:
    """Parse a line of `chronyc -c tracking`.

    >>> parse_tracking("A29FC87B,162.159.200.123,4,1.7e9,-0.000002,0.0,0.0,1.0,0.0,0.1,0.004,0.001,64.5,Normal")
    ChronyTracking(source='162.159.200.123', stratum=4, offset_ns=-2000, max_error_ns=3002000, leap=False)
    """
    fields = text.strip().split(",")
    if len(fields) < 14 or fields[13] == "Not synchronised":
        return None
    try:
        stratum, (offset_s, delay_s, dispersion_s) = int(fields[2]), (float(fields[at]) for at in (4, 10, 11))
        error_ns = round((abs(offset_s) + delay_s / 2 + dispersion_s) * 1e9)
    except (ValueError, OverflowError):
        return None
    leap = fields[13] in ("Insert second", "Delete second")
    return ChronyTracking(fields[1] or fields[0], stratum, round(offset_s * 1e9), error_ns, leap)


def clock_programs(processes: Path = Path("/proc")) -> list[str]:
    """Return the running programs that set clocks. In a container those of the host are not visible."""
    found = set()
    for name in processes.glob("[0-9]*/comm"):
        try:
            found.add(_CLOCK_PROGRAMS.get(name.read_text(encoding="utf-8", errors="replace").strip()))
        except OSError:  # the process has exited
            continue
    return sorted(each for each in found if each is not None)

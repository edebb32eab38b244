"""Measure the CPU time that a run did not get: time stolen by the hypervisor, and time in which processes waited.

- *Stolen time*: a core of this virtual machine had work, and the hypervisor ran another machine on it. It is the eighth
  value of the first line of /proc/stat (proc_stat(5)).
- *CPU pressure*: at least one process was ready to run and waited for a core. It is `some` in /proc/pressure/cpu, which
  some kernels do not have.

Both count for the complete machine, and reading them needs no privilege. A value that the kernel does not supply is
None.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

STAT = Path("/proc/stat")
PRESSURE = Path("/proc/pressure/cpu")
STOLEN_MATTERS = 0.02
"""A stolen core is away for some milliseconds. So about this fraction of the releases is delayed by more than 1 ms, and
p99 shows it."""
PRESSURE_MATTERS = 0.5
"""The processes of a network wait for each other at times. During half of a run or more, cores are too few or busy."""
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class CpuTimes(NamedTuple):
    """CPU time of all cores since the machine was started."""

    busy_s: float
    idle_s: float
    """Includes the time in which a core had nothing to do but to wait for a disk."""
    stolen_s: float


class CpuCounters(NamedTuple):
    """The counters of the kernel at one time."""

    at_s: float
    times: CpuTimes | None
    waited_s: float | None
    """Time in which a process waited for a core."""


@dataclass(frozen=True, slots=True)
class CpuContention:
    """Stolen time and CPU pressure of an interval."""

    seconds: float = 0.0
    stolen_ratio: float | None = None
    """Fraction of the CPU time of all cores."""
    pressure_ratio: float | None = None
    """Fraction of the interval."""


class ContentionMeter:
    """Measure the contention of an interval, which starts when the meter is created or restarted."""

    def __init__(self) -> None:
        self._start = read_counters()

    def restart(self) -> None:
        self._start = read_counters()

    def measure(self) -> CpuContention:
        """Return the contention from the start until now."""
        return contention(self._start, read_counters())


def read_counters() -> CpuCounters:
    stat, pressure = _text(STAT), _text(PRESSURE)
    return CpuCounters(
        time.monotonic(),
        None if stat is None else parse_stat(stat),
        None if pressure is None else parse_pressure(pressure),
    )


def contention(before: CpuCounters, after: CpuCounters) -> CpuContention:
    """Return the contention between two readings."""
    stolen_ratio = pressure_ratio = None
    seconds = after.at_s - before.at_s
    if before.times is not None and after.times is not None:
        busy_s, idle_s, stolen_s = (max(0.0, b - a) for a, b in zip(before.times, after.times, strict=True))
        stolen_ratio = _ratio(stolen_s, busy_s + idle_s + stolen_s)
    if before.waited_s is not None and after.waited_s is not None:
        pressure_ratio = min(1.0, _ratio(after.waited_s - before.waited_s, seconds))
    return CpuContention(round(seconds, 3), stolen_ratio, pressure_ratio)


def parse_stat(text: str) -> CpuTimes:
    """Return the times in the first line of /proc/stat; the time of guests is part of the first two values.

    >>> parse_stat("cpu  100 0 50 900 7 1 2 40 0 0") == (153 / _TICKS_PER_S, 907 / _TICKS_PER_S, 40 / _TICKS_PER_S)
    True
    """
    first = text.partition("\n")[0].split()
    user, nice, system, idle, waiting, interrupt, soft_interrupt, stolen = map(int, first[1:9])
    busy = user + nice + system + interrupt + soft_interrupt
    return CpuTimes(busy / _TICKS_PER_S, (idle + waiting) / _TICKS_PER_S, stolen / _TICKS_PER_S)


def parse_pressure(text: str) -> float:
    """Return the seconds in which a process waited, from /proc/pressure/cpu.

    >>> parse_pressure("some avg10=1.00 avg60=2.00 avg300=3.00 total=2500000")
    2.5
    """
    return int(text.partition("\n")[0].rpartition("total=")[2]) / 1e6


def explain_contention(found: CpuContention, effect: str) -> list[str]:
    """Return one sentence for each value that matters, with its effect; none if the machine was not the reason."""
    stolen, pressure = found.stolen_ratio, found.pressure_ratio
    sentences = []
    if stolen is not None and stolen > STOLEN_MATTERS:
        lost = f"{100 * stolen:.0f} % of its CPU time to the hypervisor"
        sentences.append(f"The machine lost {lost} during this run, {effect}.")
    if pressure is not None and pressure > PRESSURE_MATTERS:
        sentences.append(f"Processes waited for a core during {100 * pressure:.0f} % of this run, {effect}.")
    return sentences


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii")
    except OSError:  # not Linux, or a kernel without this file
        return None


def _ratio(part: float, whole: float) -> float:
    return round(part / whole, 4) if whole > 0 else 0.0

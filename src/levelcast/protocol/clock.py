"""Check whether a node can trust its wall clock (rule 13: nothing is released while it cannot; C1, C2, C4).

- `ClockGuard` (C2) compares the wall clock with the monotonic one. Synchronisation slews the wall clock by a few
  hundred parts per million at most; anything faster is a step. The clock is then not trusted until the step is
  reverted, or until an operator has checked it and restarts the node.
- `ErrorBound` (C1) is E_i: the smallest bound of the error that a time source vouches for, growing since.
- `LeapSecond` (C4): the schedule is UTC, so a clock that repeats or omits a second is wrong for everyone at once.

Deviation from C1: the kernel's bound (`maxerror`) grows by 500 µs/s between two updates, far above what any clock
drifts, and `ntpd` over the internet starts it at tens of milliseconds. It lowers E_i, but no node falls silent for it
alone.
"""

from __future__ import annotations

from typing import NamedTuple

MAX_SLEW_PPM = 500
"""Maximum rate at which kernels slew clocks; a difference that grows faster is a step."""
FREE_RUNNING_PPM = 20
"""Rate at which a crystal drifts while no source corrects it."""
KERNEL = "kernel"
"""The source of which the bound is a ceiling only."""
DAY_NS = 86_400_000_000_000
LEAP_MARGIN_NS = 10_000_000_000
"""A node stops this long before a leap second."""


class ClockGuard:
    """Compares two clocks that should advance at the same rate."""

    def __init__(self, wall_ns: int, monotonic_ns: int, tolerance_ns: int) -> None:
        self._offset_ns = wall_ns - monotonic_ns
        self._checked_ns = monotonic_ns
        self._tolerance_ns = tolerance_ns
        self.trusted = True

    def check(self, wall_ns: int, monotonic_ns: int) -> bool:
        """Compare both clocks; return True while the wall clock can be trusted."""
        allowed_ns = (monotonic_ns - self._checked_ns) * MAX_SLEW_PPM // 1_000_000
        drift_ns = wall_ns - monotonic_ns - self._offset_ns
        self.trusted = abs(drift_ns) <= self._tolerance_ns + allowed_ns
        if not self.trusted:
            self._checked_ns = monotonic_ns  # a step stays a step as time passes
        elif allowed_ns > 0:
            self._checked_ns = monotonic_ns
            self._offset_ns += max(-allowed_ns, min(allowed_ns, drift_ns))
        return self.trusted


class Vouched(NamedTuple):
    """A bound of the error of the wall clock, and the source that vouches for it."""

    source: str
    bound_ns: int


class ErrorBound:
    """The smallest of the bounds that sources vouch for (E_i); each grows with `FREE_RUNNING_PPM` since."""

    def __init__(self) -> None:
        self._read: dict[str, tuple[int, int]] = {}
        """The last bound of each source, and when it was read."""

    def vouch(self, source: str, bound_ns: int, monotonic_ns: int) -> None:
        """Store what a source states now, in place of what it stated before."""
        self._read[source] = bound_ns, monotonic_ns

    def at(self, monotonic_ns: int) -> Vouched | None:
        """Return E_i; None if no source has ever vouched."""
        found = [
            Vouched(source, _grown(bound_ns, monotonic_ns - read_ns))
            for source, (bound_ns, read_ns) in self._read.items()
        ]
        return min(found, key=lambda each: each.bound_ns, default=None)

    def exceeds(self, limit_ns: int, monotonic_ns: int) -> bool:
        """Return whether a source other than the kernel has vouched, and E_i is above the limit (C2)."""
        found = self.at(monotonic_ns)
        return found is not None and self._read.keys() != {KERNEL} and found.bound_ns > limit_ns


def _grown(bound_ns: int, age_ns: int) -> int:
    return bound_ns + max(0, age_ns) * FREE_RUNNING_PPM // 1_000_000


class LeapSecond:
    """An announced leap second: at the end of the present UTC day. A smeared clock has none (C4)."""

    def __init__(self, *, smeared: bool) -> None:
        self.smeared = smeared
        self.at_ns: int | None = None
        self._reached = False

    def announce(self, announced: bool, now: int) -> bool:
        """Note what the kernel states; return whether a leap second is announced that was not known."""
        if self._reached:
            return False
        known, self.at_ns = self.at_ns, (now // DAY_NS + 1) * DAY_NS if announced else None
        return self.at_ns is not None and self.at_ns != known

    def refuses(self, now: int) -> bool:
        """Return whether the node must not run any more: from shortly before it until a restart."""
        self._reached |= self.at_ns is not None and now >= self.at_ns - LEAP_MARGIN_NS
        return self._reached and not self.smeared

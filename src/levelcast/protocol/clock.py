"""Whether a node can trust its wall clock (rule 13: nothing is released while it cannot).

The wall clock is compared with the monotonic one. Synchronisation slews the wall clock by a few hundred parts per
million at most; anything faster is a step, and the clock is not trusted until it is back where it was, or until the
node is started again by somebody who has looked.
"""

from __future__ import annotations

MAX_SLEW_PPM = 500
"""The rate at which kernels slew clocks at most; a difference that grows faster is a step."""


class ClockGuard:
    """Compares two clocks that should run alike."""

    def __init__(self, wall_ns: int, monotonic_ns: int, tolerance_ns: int) -> None:
        self._offset_ns = wall_ns - monotonic_ns
        self._checked_ns = monotonic_ns
        self._tolerance_ns = tolerance_ns
        self.trusted = True

    def check(self, wall_ns: int, monotonic_ns: int) -> bool:
        """Look at both clocks; True while the wall clock can be trusted."""
        allowed_ns = (monotonic_ns - self._checked_ns) * MAX_SLEW_PPM // 1_000_000
        drift_ns = wall_ns - monotonic_ns - self._offset_ns
        self.trusted = abs(drift_ns) <= self._tolerance_ns + allowed_ns
        if not self.trusted:
            self._checked_ns = monotonic_ns  # a step is not forgiven with time
        elif allowed_ns > 0:
            self._checked_ns = monotonic_ns
            self._offset_ns += max(-allowed_ns, min(allowed_ns, drift_ns))
        return self.trusted

"""Check whether a node can trust its wall clock (rule 13: nothing is released while it cannot).

The wall clock is compared with the monotonic one. Synchronisation slews the wall clock by a few hundred parts per
million at most; anything faster is a step. The clock is then not trusted until the step is reverted, or until an
operator has checked it and restarts the node.
"""

from __future__ import annotations

MAX_SLEW_PPM = 500
"""Maximum rate at which kernels slew clocks; a difference that grows faster is a step."""


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

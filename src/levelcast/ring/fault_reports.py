"""When a member goes to the reformation servers, and how often (MS §4.3; rule 12).

| plea                           | when                                          | again after |
|--------------------------------|-----------------------------------------------|-------------|
| TOKEN_MISSING, PACKET_MISSING  | k_r requests brought nothing                  | τ_r         |
| CONTRADICTION                  | k_r requests brought no token that fits       | τ_r         |
| STUCK                          | promised, and no RING came                    | T_join + lead + 2δ_N + τ_r |
| OUTSIDE                        | there is no ring, or one without this member  | ask         |
| MEMBERSHIP                     | the ring is not the configured set            | ask         |
| MEMBERSHIP, for another        | a configured life, not in the ring, pleads    | τ_r         |
| REFUSED                        | a RING with an impossible start time          | τ_r         |
"""

from __future__ import annotations

from levelcast.timing.rules import Timing


class FaultReports:
    """The timers of one member's pleas."""

    def __init__(self, timing: Timing, now: int) -> None:
        self._timing = timing
        self.outside = True
        """There is no ring, or one without this member."""
        self.ask_ns = now
        self.stuck_ns = now + self._stuck_after_ns
        self._fault_ns = 0

    @property
    def _stuck_after_ns(self) -> int:
        """How long a promise may stay without its RING before the servers hear of it."""
        timing = self._timing
        return timing.join_ns + timing.lead_ns + 2 * timing.late_ns + timing.request_ns

    def promised(self, now: int) -> None:
        """A promise was made: its RING should come soon."""
        self.stuck_ns = now + self._stuck_after_ns

    def hear_of_other_ring(self, now: int) -> None:
        """There is a ring without this member: ask at once to be let in."""
        if not self.outside:
            self.outside = True
            self.ask_ns = now

    def may_report(self, now: int) -> bool:
        """Whether a fault may be reported now; if so, the next one waits a request interval."""
        if now < self._fault_ns:
            return False
        self._fault_ns = now + self._timing.request_ns
        return True

    def is_stuck(self, now: int) -> bool:
        """Whether it is time to complain about a promise without its RING."""
        if now < self.stuck_ns:
            return False
        self.stuck_ns = now + self._stuck_after_ns
        return True

    def asks(self, now: int) -> bool:
        """Whether it is time to ask to be let in, or to have the set put right."""
        if now < self.ask_ns:
            return False
        self.ask_ns = now + self._timing.ask_ns
        return True

    def stay_silent(self, now: int) -> None:
        """While the clock cannot be trusted, a member does not ask for a ring that it could not keep."""
        self.ask_ns = max(self.ask_ns, now + self._timing.request_ns)
        self.stuck_ns = max(self.stuck_ns, self.ask_ns)

"""Schedule a member's fault reports and join requests to the reformation servers (MS §4.3; rule 12).

| reason                         | sent when                                          | repeated after |
|--------------------------------|----------------------------------------------------|----------------|
| TOKEN_MISSING, PACKET_MISSING  | k_r requests were not answered                     | τ_r            |
| CONTRADICTION                  | k_r requests returned no token that fits the order | τ_r            |
| STUCK                          | a promise was made, and no RING was received       | T_join + lead + 2δ_N + τ_r |
| OUTSIDE                        | no ring is known, or one without this member       | `ask`          |
| MEMBERSHIP                     | the members of the ring are not the configured set | `ask`          |
| MEMBERSHIP, for another        | a configured life outside the ring reports a fault | τ_r            |
| REFUSED                        | a RING has an impossible start time                | τ_r            |
| LEAVING                        | this member stops as planned, and is in the ring   | τ_r            |
"""

from __future__ import annotations

from levelcast.timing.rules import Timing


class FaultReports:
    """Timers of one member's fault reports and join requests."""

    def __init__(self, timing: Timing, now: int) -> None:
        self._timing = timing
        self.outside = True
        """No ring is known, or one without this member."""
        self.ask_ns = now
        self.stuck_ns = now + self._stuck_after_ns
        self.report_ns = 0
        """Earliest time of the next report."""

    @property
    def _stuck_after_ns(self) -> int:
        """Time after a promise at which a missing RING is reported to the servers."""
        timing = self._timing
        return timing.join_ns + timing.lead_ns + 2 * timing.late_ns + timing.request_ns

    def promised(self, now: int) -> None:
        """Start the timer for the RING that has to follow a promise."""
        self.stuck_ns = now + self._stuck_after_ns

    def hear_of_other_ring(self, now: int) -> None:
        """Note that a ring without this member exists, and send a join request immediately."""
        if not self.outside:
            self.outside = True
            self.ask_ns = now

    def may_report(self, now: int) -> bool:
        """Return whether a fault may be reported now; if so, block the next one for a request interval."""
        if now < self.report_ns:
            return False
        self.report_ns = now + self._timing.request_ns
        return True

    def is_stuck(self, now: int) -> bool:
        """Return whether a promise without its RING has to be reported now."""
        if now < self.stuck_ns:
            return False
        self.stuck_ns = now + self._stuck_after_ns
        return True

    def asks(self, now: int) -> bool:
        """Return whether a request to join, or to correct the members of the ring, is due."""
        if now < self.ask_ns:
            return False
        self.ask_ns = now + self._timing.ask_ns
        return True

    def stay_silent(self, now: int) -> None:
        """Delay join requests while the clock is not trusted: the member could not send on time in a ring."""
        self.ask_ns = max(self.ask_ns, now + self._timing.request_ns)
        self.stuck_ns = max(self.stuck_ns, self.ask_ns)

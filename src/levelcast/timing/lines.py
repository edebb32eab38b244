"""The time within which the line of a failed receiver moves to another one (MS §4.3), as sums of named waits.

Until then its region has one source less. The other line of the region does not depend on the failed receiver: so a
region has at least one source while one receiver fails at a time and two are left. Both sums are for one failure in a
network without other faults; loss is within the k_r attempts of each exchange.
"""

from __future__ import annotations

from levelcast.timing.rules import BoundTerm, Timing
from levelcast.timing.secondary import silent_after_ns


def primary_line_terms(timing: Timing, members: int, servers: int) -> list[BoundTerm]:
    """Return the terms for a primary: the RING without it assigns its lines."""
    exchange_ns = timing.attempts * timing.request_ns
    return [
        BoundTerm("the slot of the failed primary is due", members * timing.slot_ns, "m·τ (rule 1)"),
        BoundTerm("its token is found missing", timing.recovery_ns, "R (rule 6)"),
        BoundTerm("the report arrives", timing.hear_ns, "δ_N + k_r·τ_r (rule 5)"),
        BoundTerm(
            "servers back off in turn", _rest(2 * servers) * timing.backoff_ns, "(2·servers − 1)·backoff (rule 12)"
        ),
        BoundTerm("invitations are answered", 2 * exchange_ns, "2·k_r·τ_r (rule 12)"),
        BoundTerm("other members may join", timing.join_ns, "T_join (rule 12)"),
        BoundTerm("receivers have the RING with the lines", timing.hear_ns, "δ_N + k_r·τ_r: it is repeated (rule 12)"),
    ]


def secondary_line_terms(timing: Timing, servers: int) -> list[BoundTerm]:
    """Return the terms for a secondary: its group is formed without it, and a server assigns its lines."""
    exchange_ns = timing.attempts * timing.request_ns
    return [
        BoundTerm("its turns are missed", silent_after_ns(timing), "δ_N + (k_r + 1)·τ_r (rule 11)"),
        BoundTerm("the report arrives", timing.hear_ns, "δ_N + k_r·τ_r: it is repeated (rule 5)"),
        BoundTerm(
            "servers back off in turn",
            _rest(servers) * (timing.backoff_ns + exchange_ns),
            "(servers − 1)·(backoff + k_r·τ_r) (rule 11)",
        ),
        BoundTerm(
            "invitations to its group are answered",
            2 * exchange_ns + timing.request_ns,
            "(2·k_r + 1)·τ_r: after a group that is being formed (rule 11)",
        ),
        BoundTerm("receivers have the assignment", timing.hear_ns, "δ_N + k_r·τ_r: it is repeated (MS §4.3)"),
    ]


def line_bound_ns(timing: Timing, members: int, servers: int) -> int:
    """Return the longer one of the two sums."""
    primary = sum(term.ns for term in primary_line_terms(timing, members, servers))
    return max(primary, sum(term.ns for term in secondary_line_terms(timing, servers)))


def overlap_bound_ns(timing: Timing) -> int:
    """Return the longest time for which two running receivers send to one line: the announcement reaches one of them
    up to δ_N + k_r·τ_r before the other, which stops as long after that."""
    return 2 * timing.hear_ns


def _rest(count: int) -> int:
    return max(count - 1, 0)

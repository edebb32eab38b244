"""Bounds of groups of secondaries (rule 11)."""

from __future__ import annotations

from levelcast.timing.rules import REFORMATIONS, Timing


def secondary_bound_ns(timing: Timing, servers: int, layers: int = 1) -> int:
    """Return the additional time that secondaries may need after the last fault (see `liveness_bound_ns`).

    In each reformation of the ring a secondary may delay its primary's claims for `patience_ns`. Then groups are formed
    again: an inactive node is detected, reported at the next `ask`, servers back off in turn, gather and announce.
    The secondary catches up with its new primary. Groups are formed layer by layer.
    """
    exchange_ns = timing.attempts * timing.request_ns
    group_ns = (
        silent_after_ns(timing)
        + 2 * timing.ask_ns
        + max(servers - 1, 0) * (timing.backoff_ns + exchange_ns)
        + 2 * exchange_ns
        + timing.hear_ns
    )
    return REFORMATIONS * patience_ns(timing, layers) + layers * GROUP_REFORMATIONS * (group_ns + timing.recovery_ns)


def patience_ns(timing: Timing, layers: int = 1) -> int:
    """Return the time after a slot for which a secondary without it may delay the claim of a node `layers` above."""
    return timing.recovery_ns + layers * timing.hear_ns


def group_round_ns(timing: Timing, beat_ns: int, secondaries: int) -> int:
    """Return the time in which each secondary of a group reports once: β, longer in a large group, else τ_r.

    A primary receives at most one report in `TURN_NS`, whatever the size of its group.
    """
    return max(beat_ns, secondaries * TURN_NS) if beat_ns else timing.request_ns


def silent_after_ns(timing: Timing) -> int:
    """Return the time until a node that sends every τ_r counts as inactive: k_r rounds, one in progress, the delay."""
    return timing.hear_ns + timing.request_ns


TURN_NS = 1_000_000
GROUP_REFORMATIONS = 2
"""Maximum number of groups formed for a secondary after the last fault: the one in progress and its correction."""

"""Bounds of groups of secondaries (rule 11)."""

from __future__ import annotations

from levelcast.timing.rules import REFORMATIONS, Timing


def secondary_bound_ns(timing: Timing, servers: int, layers: int = 1) -> int:
    """How much longer than primaries secondaries may need after the last fault (see `liveness_bound_ns`).

    In each reformation of the ring a secondary may hold its primary's claims for the cover's patience. Then groups are
    formed anew: a silence is found, reported when it is time to ask, servers take their turns, gather and announce.
    With its new primary it catches up. Groups are formed layer after layer.
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
    """How long after a slot's time a secondary that lacks it may hold the claim of one with `layers` below it."""
    return timing.recovery_ns + layers * timing.hear_ns


def silent_after_ns(timing: Timing) -> int:
    """When one that speaks every τ_r counts as silent: k_r rounds, one that was under way, and the way here."""
    return timing.hear_ns + timing.request_ns


GROUP_REFORMATIONS = 2
"""How many groups may be formed for a secondary after the last fault: the one under way, and the one that mends it."""

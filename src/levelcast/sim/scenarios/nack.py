"""Scenario `nack`: the scenarios `ring` and `receivers` with NACK reduction (MS §5.2).

A seed draws the same history as in `ring` (even seeds) or `receivers` (odd seeds), and with a separate generator the
sets: even, tuned or by a tree. Every invariant of those scenarios must hold, with the hold time and the liveness bound
for the sets.
"""

from __future__ import annotations

from random import Random

from levelcast.sim.scenarios.receivers import ReceiversHistory
from levelcast.sim.scenarios.ring import RingHistory
from levelcast.timing.nack_sets import NackSets, even_sets, tree_sets, tuned_sets


def draw_sets(seed: int, members: list[int]) -> NackSets:
    """Draw two or more sets."""
    rng = Random(f"nack {seed}")
    kind = rng.choice(("even", "tuned", "tree"))
    if kind == "even":
        return even_sets(rng.randint(2, len(members)))
    if kind == "tuned":
        return tuned_sets([rng.randint(1, 2) for _ in range(rng.randint(2, 3))])
    branches = {member: str(rng.randint(0, 1)) for member in members}
    return tree_sets(branches)


def nack_history(seed: int) -> RingHistory:
    """Return a history of `ring` or `receivers` with sets."""
    return (ReceiversHistory if seed % 2 else RingHistory)(seed, draw_sets)

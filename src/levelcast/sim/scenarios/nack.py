"""The scenario `nack`: the scenarios `ring` and `receivers` with NACK reduction on (MS §5.2).

A seed draws what it draws in `ring` (even seeds) or `receivers` (odd ones), and with a generator of its own the sets:
even ones, tuned ones or those of a tree. Every promise of those scenarios must hold, with the hold time and the
liveness bound that go with the sets.
"""

from __future__ import annotations

from random import Random

from levelcast.sim.scenarios.receivers import ReceiversHistory
from levelcast.sim.scenarios.ring import RingHistory
from levelcast.timing.nack_sets import NackSets, even_sets, tree_sets, tuned_sets


def draw_sets(seed: int, members: list[int]) -> NackSets:
    """Two sets or more."""
    rng = Random(f"nack {seed}")
    kind = rng.choice(("even", "tuned", "tree"))
    if kind == "even":
        return even_sets(rng.randint(2, len(members)))
    if kind == "tuned":
        return tuned_sets([rng.randint(1, 2) for _ in range(rng.randint(2, 3))])
    branches = {member: str(rng.randint(0, 1)) for member in members}
    return tree_sets(branches)


def nack_history(seed: int) -> RingHistory:
    """`ring` with sets, or `receivers` with sets."""
    return (ReceiversHistory if seed % 2 else RingHistory)(seed, draw_sets)

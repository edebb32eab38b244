"""Seeds of the simulator that once found something: each must stay without a broken promise.

A change of the scenario makes another history of a seed, so this list is no substitute for the scripted
histories (`test_ring_histories`: F13 is what seed 3 found, F14 what seed 2003 did).

`levelcast sim --scenario ring --seeds 3..3 --trace` shows a history again.
"""

from __future__ import annotations

import pytest

from levelcast.sim.run import replay_command, run_seed

FOUND = [
    (
        "ring",
        3,
        "a ring of the new set could not witness the record of its own change: RING says whether it stands",
    ),
    ("ring", 9, "a damaged datagram passed for a whole one: datagrams carry a seal"),
    ("ring", 2003, "a member of an older ring took over frames of a later one"),
    ("ring", 1903, "a restarted member answered an INVITE before it had read its journal"),
    ("ring", 1000791, "a server that was away refused a replaced member for ever: members vouch for it"),
    ("ring", 2003981, "a ring was formed as soon as everybody of an outdated set had joined, again and again"),
    ("ring", 2011950, "the same, with a member that was always left out"),
    ("receivers", 12, "a plain count of witnesses does not shrink with the ring: no primary may stay dead then"),
    ("receivers", 50, "a secondary said what it had and lost its disk: its cover is checked by life"),
    ("receivers", 211, "two steps of a clock cancelled but for a millisecond: only clocks that are right are stepped"),
    ("receivers", 126, "a claim from before the ring's start is not counted, so nothing need stand for it"),
    ("receivers", 7010765, "a stripe that has released nothing yet has no watermark, and whoever merges it waits"),
    ("ring", 9066, "a RING's lineage left out what a member had no checkpoint of: it joined with less than it claimed"),
    ("ring", 5452, "after two lost disks the second replacement was never witnessed, and nothing released"),
]
"""Scenario, seed, and what it once found."""


@pytest.mark.parametrize(("scenario", "seed", "found"), FOUND, ids=[f"{name}-{seed}" for name, seed, _ in FOUND])
def test_seed_stays_mended(scenario: str, seed: int, found: str) -> None:
    outcome = run_seed(scenario, seed)
    assert outcome.broken is None, f"{found}; now: {outcome.broken}\n{replay_command(scenario, seed)}"

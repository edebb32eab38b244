"""Claims in beats and timing records (rules 7, 8, W9): what breaks in random histories without each clause."""

from __future__ import annotations

import pytest

from levelcast.sim.run import first_failing_seed

BREAKS = {
    "beat-of-any-ring": ("agreement", range(14, 16)),
    "beat-after-promise": ("witness kept", range(13, 15)),
    "beat-claims-too-much": ("claims kept", range(1, 3)),
    "late-release-unheard": ("simultaneity", range(46, 50)),
    "cutoff-differs": ("simultaneity", range(1)),
    "timing-record-at-once": ("known before", range(5, 6)),
    "hold-falls-at-once": ("due in order", range(2, 3)),
    "timing-record-at-one-member": ("never early", range(2, 3)),
    "timing-record-of-any-version": ("known before", range(13, 14)),
}
"""What breaks first in the random search, clause by clause, and the seeds to search."""


@pytest.mark.parametrize("name", BREAKS)
def test_random_search_finds_a_clause_that_is_taken_out(name: str) -> None:
    breaks, seeds = BREAKS[name]
    found = first_failing_seed("ring", name, seeds)
    assert found is not None
    assert (found.broken or "").split(":")[0] == breaks

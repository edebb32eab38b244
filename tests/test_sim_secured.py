"""Random histories with keys and intruders keep every guarantee, and fail without a clause of the keys (K4 to K14)."""

from __future__ import annotations

import pytest

from levelcast.sim.engine.secured_world import SecuredWorld
from levelcast.sim.run import SCENARIOS, first_failing_seed, run_seeds
from levelcast.sim.scenarios.secured import SecuredRingHistory

BREAKS = {
    "packet-unopened": "K5, K11",
    "signature-unchecked": "K5, K11",
    "any-role": "K5, K11",
    "no-window": "K12",
    "any-beat": "K5, K11",
}
"""What breaks first in the random search, clause by clause."""


@pytest.mark.parametrize("scenario", ["ring-secured", "receivers-secured"])
def test_random_histories_hold(scenario: str) -> None:
    outcomes = list(run_seeds(scenario, range(4)))
    assert [outcome.broken for outcome in outcomes] == [None] * len(outcomes)
    assert sum(outcome.releases for outcome in outcomes) > 300


@pytest.mark.parametrize("scenario", ["ring-signed", "receivers-signed"])
def test_a_history_with_real_signatures_holds(scenario: str) -> None:
    (outcome,) = run_seeds(scenario, range(1))
    assert outcome.broken is None


def test_a_seed_is_one_history() -> None:
    one, other = (SecuredRingHistory(3).run() for _ in range(2))
    assert one == other


def test_histories_have_rotations_revocations_repetitions_and_forgeries() -> None:
    refused: set[str] = set()
    for seed in range(3):
        history = SCENARIOS["ring-secured"](seed)
        assert history.run().broken is None
        world = history.world
        assert isinstance(world, SecuredWorld)
        assert len(world.authority.statements) >= 3
        for node in world.nodes.values():
            refused |= node.malformed.keys()
            assert node.security is not None
            if node.security.sealer is not None and world.authority.newest.statement.holder(f"floor {node.id}"):
                assert node.security.sealer.epoch > 1, "sources move to a new epoch"
    assert refused >= {"broken seal", "replayed", "wrong role", "bad signature", "revoked sender"}


@pytest.mark.parametrize("name", BREAKS)
def test_random_search_finds_a_clause_that_is_taken_out(name: str) -> None:
    found = first_failing_seed("ring-secured", name, range(6))
    assert found is not None
    assert (found.broken or "").split(":")[0] == BREAKS[name]

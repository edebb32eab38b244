"""Scenario `chain`: guarantees in random histories with members that lie, and clauses that they find missing."""

from __future__ import annotations

import pytest

from levelcast.sim.chain.liars import STYLES
from levelcast.sim.chain.mutations import CHAIN_MUTATIONS
from levelcast.sim.run import Summary, replay_command, run_seed, run_seeds
from levelcast.sim.scenarios.chain import ChainHistory, GroupSize

FIRST_SEED = 5_100_000
CHUNKS, SEEDS_PER_CHUNK = (3, 10) if __debug__ else (1, 5)

BREAKS = {
    "payload-settles": (4, "one payload"),
    "message-settles": (13, "validity"),
    "every-version-direct": (0, "one payload"),
    "shadows-acknowledged": (0, "lemma 1"),
    "quorum-less-one": (13, "agreement"),
    "no-resend": (0, "validity"),
    "resent-with-acknowledgements": (0, "honest"),
    "no-late-acknowledgement": (3, "validity"),
    "reserve-unused": (3, "validity"),
    "empty-queue-silent": (1, "validity"),
    "never-requested": (1, "validity"),
    "requested-once": (3, "validity"),
    "nothing-pulled": (13, "validity"),
    "one-statement-enough": (46, "validity"),
    "digests-discarded": (0, "validity"),
    "old-versions-refused": (45, "validity"),
    "acknowledged-not-journaled": (0, "lemma 1"),
    "fewer-votes": (22, "validity"),
    "epochs-unordered": (23, "order of epochs"),
}
"""Per clause, the seed from 0 on that reveals its removal, and the guarantee that it violates."""

NAMED = {
    "stale-acknowledged": "B3 in tests/test_byzantine_histories.py",
    "nobody-convicted": "B3 in tests/test_byzantine_histories.py",
    "gaps-acknowledged": "B14 in tests/test_byzantine_histories.py",
    "nothing-stated": "B13 in tests/test_byzantine_histories.py",
    "outsider-counts": "X1 in tests/test_byzantine_epochs.py",
    "outsider-acknowledges": "tests/test_byzantine_epochs.py",
    "second-successor": "E1 in tests/test_byzantine_epochs.py",
    "votes-unchecked": "tests/test_byzantine_epochs.py",
    "prior-unproved": "E3 in tests/test_byzantine_epochs.py",
    "citations-unlimited": "G1 in tests/test_byzantine_memory.py",
    "signature-unchecked": "tests/test_byzantine_member.py",
    "content-unsigned": "tests/test_byzantine_member.py",
    "statement-unchecked": "tests/test_byzantine_member.py",
}


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_guarantee_holds_beside_liars(chunk: int) -> None:
    first = FIRST_SEED + chunk * SEEDS_PER_CHUNK
    summary = Summary()
    for outcome in run_seeds("chain", range(first, first + SEEDS_PER_CHUNK)):
        assert outcome.broken is None, f"{outcome.broken}\n{replay_command('chain', outcome.seed)}"
        summary.add(outcome)
    assert summary.delivered > 50 * SEEDS_PER_CHUNK
    assert summary.refused > 0
    assert summary.fetched > 0
    assert summary.from_outside > 0
    assert summary.liveness_quantile(1.0) < 0.5


@pytest.mark.parametrize(("members", "seed"), [(7, FIRST_SEED), (10, FIRST_SEED)])
def test_larger_groups(members: int, seed: int) -> None:
    outcome = run_seed("chain", seed, group=GroupSize(members))
    assert outcome.broken is None
    assert outcome.members == members


@pytest.mark.parametrize("seed", [36, 37])
def test_more_liars_than_a_third_break_agreement(seed: int) -> None:
    outcome = run_seed("chain", seed, group=GroupSize(4, 2))
    assert str(outcome.broken).startswith("agreement")


@pytest.mark.parametrize("name", BREAKS)
def test_random_search_finds_the_missing_clause(name: str) -> None:
    seed, promise = BREAKS[name]
    outcome = run_seed("chain", seed, name)
    assert outcome.broken is not None
    assert outcome.broken.startswith(promise)


def test_every_clause_is_in_one_of_the_tables() -> None:
    assert BREAKS.keys() | NAMED.keys() == CHAIN_MUTATIONS.keys()
    assert not BREAKS.keys() & NAMED.keys()


def test_histories_have_changes_of_epoch_with_messages_in_flight() -> None:
    outcomes = list(run_seeds("chain", range(5, 30)))
    assert sum(outcome.epochs for outcome in outcomes) >= 5
    assert sum(outcome.orders_across_epochs for outcome in outcomes) >= 20


def test_a_seed_is_one_history() -> None:
    assert ChainHistory(FIRST_SEED).run() == ChainHistory(FIRST_SEED).run()


def test_every_style_is_drawn() -> None:
    drawn = {style for seed in range(150) for style in ChainHistory(seed).styles.values()}
    assert drawn == set(STYLES)


@pytest.mark.campaign
@pytest.mark.parametrize(("members", "count"), [(4, 15_000), (7, 4_000), (10, 700), (13, 300)])
def test_campaign(members: int, count: int) -> None:
    seeds = range(6_000_000, 6_000_000 + count)
    broken = [each.seed for each in run_seeds("chain", seeds, 2, group=GroupSize(members)) if each.broken]
    assert broken == []

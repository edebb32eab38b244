"""Histories of wide-area groups: every guarantee holds, and breaks without the clause that it rests on."""

from __future__ import annotations

import pytest

from levelcast.overlay.wide.choices import WIDE_PROTOCOLS
from levelcast.sim.mutations import MUTATIONS
from levelcast.sim.run import Summary, first_failing_seed, replay_command, run_seeds
from levelcast.sim.scenarios.group import GroupHistory

SEEDS = range(5_100_000, 5_100_024 if __debug__ else 5_100_004)
"""Seeds that nobody tunes against; `levelcast sim --scenario group` runs many more."""
BREAKS: dict[str, tuple[int, str]] = {
    "dropped-by-majority": (0, "needed"),
    "subgroup-stated-early": (2, "needed"),
    "predecessors-ignored": (0, "causal order"),
    "constraints-not-carried": (2, "causal order"),
    "no-repair": (0, "no loss"),
    "no-question": (8, "receipt"),
    "duties-of-first-view": (1, "no loss"),
    "removed-still-awaited": (1, "no loss"),
    "lost-one-awaited": (1, "no loss"),
    "received-twice": (0, "once"),
    "life-ignored": (1, "content"),
}
"""The seed of a history that each clause needs, and the guarantee that breaks without it."""
SCRIPTED = {
    "accepted-view-forgotten",
    "before-lost-one",
    "closed-without-past",
    "leaves-too-early",
    "received-after-promise",
    "report-of-majority",
    "wanted-not-requested",
}
"""Clauses for rare histories, which tests of `levelcast.overlay.wide` play step by step."""


def test_every_guarantee_holds_and_the_histories_are_not_empty() -> None:
    summary = Summary()
    for outcome in run_seeds("group", SEEDS):
        assert outcome.broken is None, f"{outcome.broken}\n{replay_command('group', outcome.seed)}"
        summary.add(outcome)
    assert summary.packets > 10 * len(SEEDS)
    assert summary.delivered > 20 * len(SEEDS)
    assert len(summary.liveness_ratios) == len(SEEDS)
    if __debug__:
        assert min(summary.reformations, summary.crashes, summary.malformed) > 0


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(44, id="a coordinator fails, and the next one has dropped the message"),
        pytest.param(91, id="a process is removed before it knows that it has joined"),
        pytest.param(5, id="messages wait for the next view at the end"),
        pytest.param(4, id="a member learns of a receipt before it learns of the view"),
    ],
)
def test_a_history_that_once_failed_holds(seed: int) -> None:
    (outcome,) = run_seeds("group", [seed])
    assert outcome.broken is None, f"{outcome.broken}\n{replay_command('group', seed)}"


@pytest.mark.parametrize("name", BREAKS)
def test_a_history_breaks_without_its_clause(name: str) -> None:
    seed, broken = BREAKS[name]
    found = first_failing_seed("group", name, [seed])
    assert found is not None
    assert (found.broken or "").split(":")[0] == broken


def test_every_clause_of_groups_has_its_history() -> None:
    clauses = {name for name, mutation in MUTATIONS.items() if mutation.rule.startswith("TT")}
    assert clauses == BREAKS.keys() | SCRIPTED


def test_histories_have_every_protocol() -> None:
    names = {GroupHistory(seed).name.split()[0] for seed in range(120)}
    assert names == set(WIDE_PROTOCOLS)

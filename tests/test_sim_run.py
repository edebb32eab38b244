"""Many histories: every promise holds in each of them, and what they contained adds up."""

from __future__ import annotations

from dataclasses import fields

import pytest

from levelcast.cli.sim.histories import parse_seeds
from levelcast.sim import run
from levelcast.sim.mutations import MUTATIONS, Mutation
from levelcast.sim.run import Summary, first_failing_seed, replay, replay_command, run_seed, run_seeds
from levelcast.sim.scenarios.ring import Outcome, RingHistory

FIRST_SEED = 3_700_000
"""Seeds that nobody tunes against; `levelcast sim` runs many more."""
CHUNKS, SEEDS_PER_CHUNK = 6 if __debug__ else 1, 25
"""Under `python -O` a few histories are enough: the same code has run without it."""


def chunk(number: int) -> range:
    first = FIRST_SEED + number * SEEDS_PER_CHUNK
    return range(first, first + SEEDS_PER_CHUNK)


@pytest.mark.parametrize("seeds", [chunk(i) for i in range(CHUNKS)], ids=lambda seeds: f"{seeds[0]}..{seeds[-1]}")
def test_every_promise_holds_in_random_histories_that_contain_faults(seeds: range) -> None:
    summary = Summary()
    for outcome in run_seeds("ring", seeds):
        assert outcome.broken is None, f"{outcome.broken}\n{replay_command('ring', outcome.seed)}"
        summary.add(outcome)
    # Nobody can call them vacuous.
    assert summary.histories == len(seeds)
    assert summary.packets > 100 * len(seeds)
    assert summary.releases > 50 * len(seeds)  # frames, at every receiver
    assert summary.reformations > len(seeds)
    assert summary.crashes > 0
    assert summary.strikes > 0
    assert summary.voided_slots > 0
    assert len(summary.liveness_ratios) == len(seeds)
    assert 0.0 < summary.liveness_quantile(0.5) <= summary.liveness_quantile(1.0) <= 1.0


@pytest.mark.parametrize("seed", [9900035, 9900501])
def test_in_an_undisturbed_history_every_ring_message_reaches_all(seed: int) -> None:
    """Members that enter their first ring late release late: only a lost RING makes them."""
    outcome = run_seed("ring", seed)
    assert outcome.broken is None, f"{outcome.broken}\n{replay_command('ring', seed)}"


def test_a_history_does_not_depend_on_how_many_processes_run_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "CHUNK", 2)
    seeds = range(FIRST_SEED, FIRST_SEED + 5)
    assert list(run_seeds("ring", seeds, jobs=2)) == list(run_seeds("ring", seeds, jobs=1))


class ScriptedHistory(RingHistory):
    """Breaks a promise for seeds that are divisible by 10; takes no time at all."""

    def run(self) -> Outcome:
        self.world.trace(1, "says", f"seed {self.seed}")
        broken = "agreement: scripted" if self.seed % 10 == 0 else None
        return Outcome(self.seed, broken, events=self.seed, crashes=1, liveness_ns=self.seed, bound_ns=100)


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(run.SCENARIOS, "ring", ScriptedHistory)


@pytest.mark.usefixtures("scripted")
def test_outcomes_come_in_the_order_of_the_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "CHUNK", 3)
    assert [outcome.seed for outcome in run_seeds("ring", range(5, 25), jobs=2)] == list(range(5, 25))


@pytest.mark.usefixtures("scripted")
def test_a_summary_adds_up_and_keeps_what_broke() -> None:
    summary = Summary()
    for outcome in run_seeds("ring", range(1, 21)):
        summary.add(outcome)
    assert (summary.histories, summary.events, summary.crashes) == (20, sum(range(1, 21)), 20)
    assert [outcome.seed for outcome in summary.broken] == [10, 20]
    assert len(summary.liveness_ratios) == 18
    assert summary.liveness_quantile(1.0) == 0.19
    assert summary.liveness_quantile(0.0) == 0.01
    report = summary.as_json()
    assert report["broken"] == [
        {"seed": 10, "why": "agreement: scripted"},
        {"seed": 20, "why": "agreement: scripted"},
    ]
    assert (report["histories"], report["events"]) == (20, 210)


def test_an_empty_summary_has_a_quantile_too() -> None:
    assert Summary().liveness_quantile(0.99) == 0.0


def test_every_count_of_an_outcome_is_added_up() -> None:
    summary = Summary()
    counts = [field.name for field in fields(Outcome) if field.type == "int"]
    for _ in range(2):
        outcome = Outcome(seed=0)
        for name in counts:
            setattr(outcome, name, 3)
        summary.add(outcome)
    added = [name for name in counts if name not in ("seed", "liveness_ns", "bound_ns", "members")]
    assert {name: getattr(summary, name) for name in added} == dict.fromkeys(added, 6)


@pytest.mark.usefixtures("scripted")
def test_the_first_failing_seed_is_the_lowest_one() -> None:
    found = first_failing_seed("ring", "no-lineage", range(3, 60))
    assert found is not None
    assert found.seed == 10
    assert first_failing_seed("ring", "no-lineage", range(11, 20)) is None


def test_a_clause_that_was_taken_out_is_put_back() -> None:
    mutation = MUTATIONS["later-tokens-known"]
    before = [getattr(place, name) for place, name, _ in mutation.patches]
    run_seed("ring", FIRST_SEED, mutation.name)
    assert [getattr(place, name) for place, name, _ in mutation.patches] == before


class Base:
    def inherited(self) -> None: ...


class Derived(Base): ...


@pytest.mark.parametrize(("place", "name"), [(run, "no_such_name"), (Derived, "inherited"), (Derived, "removed")])
def test_a_mutation_of_a_name_that_is_not_defined_there_fails(place: object, name: str) -> None:
    mutation = Mutation("stale", "F0", "0", "", ((run, "run_seed", print), (place, name, print)))
    with pytest.raises(AttributeError, match=f"mutation stale: .* does not define '{name}'"), mutation.applied():
        pytest.fail("nothing was replaced")
    assert run.run_seed is run_seed


def test_a_replay_is_the_same_history_with_its_end_as_text() -> None:
    outcome, lines = replay("ring", FIRST_SEED, last=30)
    assert outcome == run_seed("ring", FIRST_SEED)
    assert len(lines) == 30
    assert all(" ms " in line for line in lines)
    assert replay("ring", FIRST_SEED, last=10)[1] == lines[-10:]


@pytest.mark.parametrize("mutation", [None, "no-lineage"])
def test_the_replay_command_names_the_history_in_one_line(mutation: str | None) -> None:
    words = replay_command("ring", 2003, mutation).split()
    assert words[:2] == ["levelcast", "sim"]
    assert parse_seeds(words[words.index("--seeds") + 1]) == range(2003, 2004)
    assert words[words.index("--scenario") + 1] == "ring"
    assert ("--without" in words) is (mutation is not None)
    assert mutation is None or words[words.index("--without") + 1] == mutation

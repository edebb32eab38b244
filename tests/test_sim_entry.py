"""Random histories of order entry: the same sequence everywhere, nothing lost, nothing twice."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from levelcast.cli import main
from levelcast.sim.check.ring import InvariantBroken
from levelcast.sim.run import run_seed
from levelcast.sim.scenarios.entry import EntryHistory
from tests.fair_entry_parts import MS, START, Shown, Tape

SEEDS = range(8)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_history_keeps_all_invariants(seed: int) -> None:
    assert run_seed("entry", seed).broken is None


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(1046, id="rules change while a gateway lets Θ pass"),
        pytest.param(1184, id="a gateway that new rules remove lets Θ pass for its last buckets"),
    ],
)
def test_a_history_that_once_failed_holds(seed: int) -> None:
    assert run_seed("entry", seed).broken is None


def test_the_histories_are_not_vacuous() -> None:
    outcomes = [run_seed("entry", seed) for seed in (9, 11, 12)]
    assert sum(outcome.orders for outcome in outcomes) > 1_000
    assert sum(outcome.late_orders for outcome in outcomes) > 0
    assert sum(outcome.refused_orders for outcome in outcomes) > 0
    assert sum(outcome.crashes for outcome in outcomes) > 0


def test_a_history_is_the_same_every_time() -> None:
    first, again = (run_seed("entry", 5) for _ in range(2))
    assert first == again


def test_a_receiver_with_other_commands_is_found() -> None:
    history, tape = EntryHistory(1), Tape()
    tape.beats(START + 50 * MS)
    tape.add(START + 120 * MS, [Shown(11, START + 100 * MS, 1), Shown(12, START + 100 * MS, 2)])
    batch = tape.beats(START + 150 * MS)
    assert len(batch.orders) == 2
    one, other = history.receivers[:2]
    history.watch._check_same(one, 7, batch)
    with pytest.raises(InvariantBroken, match="other commands"):
        history.watch._check_same(other, 7, batch._replace(orders=batch.orders[::-1].copy()))


def test_an_order_that_is_in_the_sequence_twice_or_was_not_sent_is_found() -> None:
    history, tape = EntryHistory(1), Tape()
    tape.beats(START + 50 * MS)
    tape.add(START + 120 * MS, [Shown(11, START + 100 * MS, 1, 5)])
    batch = tape.beats(START + 150 * MS)
    with pytest.raises(InvariantBroken, match="was not sent"):
        history.watch._check_batch(batch, START)
    history.sent.add((1, 5))
    history.watch._check_batch(batch, START)
    with pytest.raises(InvariantBroken, match="twice"):
        history.watch._check_batch(batch, START)


def test_the_command_runs_the_scenario() -> None:
    result = CliRunner().invoke(main.app, ["sim", "--scenario", "entry", "--seeds", "0..1", "--jobs", "1"])
    assert result.exit_code == 0, result.output

"""`levelcast sim`, as somebody at a terminal meets it."""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner, Result

from levelcast.cli import main
from levelcast.sim import run
from levelcast.sim.mutations import MUTATIONS
from levelcast.sim.scenarios.ring import Outcome, RingHistory

SEED = 3_800_001


def sim(*arguments: str) -> Result:
    """The command's result; wide enough that no line is broken."""
    return CliRunner(env={"COLUMNS": "300", "NO_COLOR": "1", "TERM": "dumb"}).invoke(main.app, ["sim", *arguments])


class BrokenHistory(RingHistory):
    """Breaks a promise in every second history."""

    def run(self) -> Outcome:
        self.world.trace(1, "says", "the last words")
        broken = "agreement: [red]receiver 2[/red] differs" if self.seed % 2 else None
        return Outcome(self.seed, broken, mode="pipelined", members=3)


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(run.SCENARIOS, "ring", BrokenHistory)


def test_a_summary_of_receivers_counts_secondaries_and_their_groups() -> None:
    result = sim("--scenario", "receivers", "--seeds", "3", "--jobs", "1")
    assert result.exit_code == 0, result.output
    rows = dict(re.findall(r"│ (.+?) +│ +(.+?) │", result.output))
    assert int(rows["secondaries"]) > 0
    assert int(rows["groups formed"]) > 0


def test_a_summary_says_what_the_histories_contained_and_that_every_promise_held() -> None:
    result = sim("--seeds", f"{SEED}..{SEED + 1}", "--jobs", "1")
    assert result.exit_code == 0, result.output
    assert f"seeds {SEED}..{SEED + 1}" in result.output
    assert "Every guarantee held in every history." in result.output
    rows = dict(re.findall(r"│ (.+?) +│ +(.+?) │", result.output))
    assert rows["histories"] == "2"
    assert int(rows["packets submitted"].replace(",", "")) > 0
    assert int(rows["frames released"].replace(",", "")) > 0


def test_json_is_the_summary_and_nothing_else() -> None:
    result = sim("--seeds", str(SEED), "--jobs", "1", "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    outcome = run.run_seed("ring", SEED)
    assert (report["scenario"], report["seeds"], report["histories"]) == ("ring", [SEED, SEED], 1)
    assert (report["events"], report["releases"]) == (outcome.events, outcome.releases)
    assert (report["broken"], report["without"], report["jobs"]) == ([], None, 1)


def test_a_trace_is_the_history_itself_and_as_long_as_asked_for() -> None:
    result = sim("--seeds", str(SEED), "--trace", "--last", "15")
    assert result.exit_code == 0, result.output
    first, *lines, last = result.output.splitlines()
    assert first.startswith(f"history {SEED}: ")
    assert first.endswith("last 15 lines")
    assert lines == run.replay("ring", SEED, last=15)[1]
    assert last == f"history {SEED}: every guarantee held"


@pytest.mark.usefixtures("broken")
def test_a_broken_promise_is_exit_code_1_with_the_command_that_replays_it() -> None:
    result = sim("--seeds", "4..7", "--jobs", "1")
    assert result.exit_code == 1
    assert "2 histories violated a guarantee." in result.output
    assert "Every guarantee held" not in result.output
    for seed in (5, 7):
        assert f"seed {seed}: agreement: [red]receiver 2[/red] differs" in result.output
        assert run.replay_command("ring", seed) in result.output
    assert "the last words" in result.output


@pytest.mark.usefixtures("broken")
def test_a_broken_promise_is_exit_code_1_in_json_and_in_a_trace_too() -> None:
    result = sim("--seeds", "4..7", "--jobs", "1", "--json")
    assert result.exit_code == 1
    assert [each["seed"] for each in json.loads(result.stdout)["broken"]] == [5, 7]
    result = sim("--seeds", "5", "--trace")
    assert result.exit_code == 1
    assert "history 5: agreement" in result.output
    assert sim("--seeds", "4", "--trace").exit_code == 0


@pytest.mark.usefixtures("broken")
def test_the_replay_command_names_the_clause_that_was_taken_out() -> None:
    result = sim("--seeds", "5", "--jobs", "1", "--without", "no-lineage")
    assert result.exit_code == 1
    assert run.replay_command("ring", 5, "no-lineage") in result.output


@pytest.mark.usefixtures("broken")
def test_mutations_say_after_how_many_seeds_each_clause_was_missed() -> None:
    result = sim("--mutations", "--seeds", "4..7", "--jobs", "1", "--json")
    assert result.exit_code == 0
    report = json.loads(result.stdout)
    assert [row["clause"] for row in report] == list(MUTATIONS)
    assert {row["seeds"] for row in report} == {2}
    table = sim("--mutations", "--seeds", "4", "--jobs", "1")
    assert table.exit_code == 0
    assert table.output.count("not in 1") == len(MUTATIONS)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--seeds", "abc"], '"abc" is not a seed'),
        (["--seeds", "1..2..3"], "is not a seed"),
        (["--seeds", "-4"], "is not a seed"),
        (["--seeds", ""], "is not a seed"),
        (["--seeds", "9..3"], "runs backward; write 3..9"),
        (["--scenario", "square"], '"square" is not one of ring'),
        (["--without", "gravity"], 'unknown clause "gravity"'),
        (["--seeds", "1", "--trace", "--json"], "omit --json"),
        (["--jobs", "0", "--seeds", "1"], '--jobs: "0" is not a whole number of at least 1'),
    ],
)
def test_a_mistake_in_the_arguments_is_exit_code_2_and_one_sentence(arguments: list[str], says: str) -> None:
    result = sim(*arguments)
    assert result.exit_code == 2
    assert says in " ".join(result.output.split())

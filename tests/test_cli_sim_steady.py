"""`levelcast sim --scenario steady`: two protocols side by side, as somebody at a terminal meets them."""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner, Result

from levelcast.cli import main

FEW = ("--scenario", "steady", "--members", "4", "--seconds", "2", "--load", "20")


def sim(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "300", "NO_COLOR": "1", "TERM": "dumb"}).invoke(main.app, ["sim", *arguments])


def test_both_protocols_are_compared_side_by_side() -> None:
    result = sim(*FEW, "--loss", "0")
    assert result.exit_code == 0, result.output
    rows = {what: (timed, rmp) for what, timed, rmp in re.findall(r"│ (.+?) +│ +(.+?) │ +(.+?) │", result.output)}
    assert rows["sent: token"][0] == "100"
    assert rows["sent: confirm"][0] == "0"
    assert int(rows["sent: confirm"][1]) > 0
    assert 1.0 <= float(rows["control messages per packet"][1]) <= 2.0


def test_json_has_the_figures_of_the_chosen_protocol() -> None:
    result = sim(*FEW, "--protocol", "rmp", "--seeds", "1..2", "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert list(report["protocols"]) == ["rmp"]
    assert report["protocols"]["rmp"]["packets"] > 40
    assert report["protocols"]["rmp"]["control_per_packet"] > 1


def test_sets_make_fewer_requests_where_a_branch_loses_for_all_below_it() -> None:
    requests = {}
    for sets in ((), ("--nack-sets", "tree")):
        result = sim("--scenario", "steady", "--members", "12", "--seconds", "4", "--protocol", "timed", "--loss", "0",
                     "--branch-loss", "0.05", "--json", *sets)  # fmt: skip
        assert result.exit_code == 0, result.output
        requests[sets] = json.loads(result.stdout)["protocols"]["timed"]["sent"]["request"]
    assert requests["--nack-sets", "tree"] < 0.6 * requests[()]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--protocol", "tcp"], '"tcp" is not one of timed, rmp, both'),
        (["--members", "1"], "--members 1 is outside 2 to 100"),
        (["--loss", "0.9"], "--loss 0.9 is outside 0 to 0.5"),
        (["--load", "0"], "--load 0 is outside"),
        (["--seconds", "0"], "--seconds 0 is outside"),
        (["--nack-sets", "9"], "--nack-sets 9 is not valid; use a number from 1 to 5, or tree"),
        (["--nack-sets", "x"], "--nack-sets x is not valid"),
        (["--trace"], "does not support --trace"),
        (["--seeds", "2..1"], "runs backward"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_sentence(arguments: list[str], message: str) -> None:
    result = sim("--scenario", "steady", *arguments)
    assert result.exit_code == 2
    assert message in re.sub(r"\s+", " ", result.output.replace("│", " "))

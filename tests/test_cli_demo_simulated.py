"""`levelcast demo`, as somebody at a terminal meets it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from levelcast.cli import main
from levelcast.network import five_cities
from levelcast.sim.floors import RehearsalVerdict
from levelcast.sim.rehearsal import Rehearsal
from levelcast.sim.rehearsal_text import MOST_LINES, and_join, count_word

runner = CliRunner()


def run(*arguments: str) -> tuple[int, str]:
    result = runner.invoke(main.app, ["demo", *arguments], env={"COLUMNS": "80"})
    return result.exit_code, result.output


@pytest.fixture(scope="module")
def told() -> str:
    code, output = run("--simulated", "--kill", "tokyo", "--for", "12s")
    assert code == 0
    return output


def test_without_multicast_one_sentence_names_what_does_without(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(99, "Cannot assign requested address")

    monkeypatch.setattr("levelcast.node.demo.network.CoreSockets", refuse)
    code, output = run()
    assert code == 2
    assert output.count("\n") == 1
    assert "multicast is not available on the loopback interface" in output
    assert "or use `levelcast demo --simulated`" in output


def test_the_story_is_told_in_order_by_city_names(told: str) -> None:
    place = 0
    for sentence in (
        "request one from the reformation servers",
        "The server in London invites all receivers to generation 1",
        r"Five join \(.*\): generation 1 starts at slot 1\n",
        "five floors open",
        r"misses (a packet|the token of slot \d+) and requests it from",
        r"Tokyo is killed, just before slot \d+",
        r"misses the token of slot \d+; its request to Tokyo stays without a reply",
        r"reports a fault after \d+ requests for slot \d+: it suspects Tokyo",
        "generation 2 starts at slot",
        "The token circulates again",
        "Tokyo is restarted with its disk",
        r"Tokyo catches up \d+ slots by frames from",
    ):
        found = re.compile(sentence).search(told, place)
        assert found, f"{sentence} is missing after:\n{told[:place]}"
        place = found.end()
    assert "The floors close after" in told
    lines = [line for line in told.splitlines() if re.match(r" *\d+\.\d{3} s  ", line)]
    assert 15 <= len(lines) <= MOST_LINES
    times = [float(line.split()[0]) for line in lines]
    assert times == sorted(times)


def test_the_table_and_the_verdict_fit_a_narrow_terminal(told: str) -> None:
    table = told[told.index("receiver ") : told.index("late: ")]
    assert "…" not in table
    assert max(map(len, table.splitlines())) <= 80
    for city in ("New York", "London", "Frankfurt", "Tokyo", "Sydney"):
        assert re.search(rf"{city} +[\d,]+ +[\d,]+", table)
    assert "The five tapes are identical" in told
    assert re.search(r"SHA-256 [0-9a-f]{64}\n", told)


def test_there_are_no_control_codes_where_there_is_no_terminal(told: str) -> None:
    assert "\x1b" not in told
    assert "\r" not in told
    assert "━" not in told.split("trades released")[0]


def test_json_is_one_object_and_the_same_every_time() -> None:
    def printed(hash_seed: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "levelcast.cli.main", "demo", "--simulated", "--for", "2s", "--json"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            timeout=100,
            check=True,
        )
        assert done.stderr == ""
        return done.stdout

    first = printed("1")
    assert first == printed("2")
    report = json.loads(first)
    assert report["verdict"] == {"identical": True, "problems": []}
    assert [row["name"] for row in report["receivers"]] == [
        "New York",
        "London",
        "Frankfurt",
        "Tokyo",
        "Sydney",
    ]
    assert {row["released"] for row in report["receivers"]} == {report["trades"]}
    assert len({row["tape"]["sha256"] for row in report["receivers"]}) == 1


def test_quiet_has_no_narrative_and_kill_none_kills_nobody() -> None:
    code, output = run("--simulated", "--quiet", "--kill", "none", "--for", "1s")
    assert code == 0
    assert "invites" not in output
    assert "identical" in output
    code, output = run("--simulated", "--kill", "NONE", "--for", "1s")
    assert code == 0
    assert "killed" not in output


def test_a_network_file_and_another_loss_are_used(tmp_path: Path) -> None:
    path = tmp_path / "network.toml"
    path.write_text(five_cities().replace('name = "five cities"', 'name = "mine"'), encoding="utf-8")
    code, output = run("--simulated", "--network", str(path), "--loss", "0%", "--kill", "none", "--for", "1s")
    assert code == 0
    assert output.startswith("mine: 5 receivers")
    assert "0 % loss" in output
    assert "misses" not in output


def test_tapes_that_differ_end_with_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    def differ(rehearsal: Rehearsal) -> RehearsalVerdict:
        return RehearsalVerdict(real(rehearsal).prints, ["the tapes of Tokyo and London differ from slot 7 on"])

    real = Rehearsal.verdict
    monkeypatch.setattr(Rehearsal, "verdict", differ)
    code, output = run("--simulated", "--kill", "none", "--for", "500ms", "--seed", "3")
    assert code == 1
    assert "FAILED the check" in output
    assert "- the tapes of Tokyo and London differ from slot 7 on" in output
    assert "--seed 3" in output
    code, output = run("--simulated", "--kill", "none", "--for", "500ms", "--json")
    assert code == 1
    assert json.loads(output)["verdict"]["identical"] is False


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--kill", "paris"), "use one of frankfurt, london"),
        (("--for", "20"), "such as 20s"),
        (("--for", "0s"), "such as 20s"),
        (("--for", "11min"), "such as 20s"),
        (("--loss", "51%"), "such as 1% or"),
        (("--loss", "-1"), "such as 1% or"),
    ],
)
def test_a_bad_option_is_refused_with_what_would_do(arguments: tuple[str, str], says: str) -> None:
    code, output = run("--simulated", *arguments)
    assert code == 2
    assert says in " ".join(output.replace("│", " ").split())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--kill", "paris@2s"), "one of new-york-1, london-1"),
        (("--kill", "tokyo-1@2"), "is not a time such as 20s"),
        (("--kill", "tokyo-1@12s"), "not before the floors close at 12 s"),
        (("--kill", "tokyo-1@2s", "--kill", "tokyo-1@3s"), "cannot be killed again before it is back"),
        (("--kill", "XTKS@2s", "--trades", "trades.csv"), "one of new-york-1, london-1"),
        (("--for", "11min"), "such as 20s"),
        (("--loss", "51%"), "such as 1% or"),
        (("--rate", "0"), "--rate"),
        (("--network", "network.toml"), "levelcast up --network FILE --data DIR"),
        (("--date", "2013-10-07"), "needs --trades"),
        (("--trades", "ibm_trade.csv.gz"), "add --date YYYY-MM-DD"),
        (("--trades", "ibm_trade.csv.gz", "--date", "7.10.2013"), "is not a day such as 2013-10-07"),
        (("--trades", "nowhere.csv"), "nowhere.csv"),
        (("--simulated", "--keep", "kept"), "not supported with --simulated"),
        (("--simulated", "--kill", "tokyo", "--kill", "london"), "can kill only one site"),
    ],
)
def test_a_bad_option_of_the_real_demo_is_refused(arguments: tuple[str, ...], says: str) -> None:
    code, output = run(*arguments)
    assert code == 2
    assert says in " ".join(output.replace("│", " ").split())


def test_a_directory_that_was_used_is_refused(tmp_path: Path) -> None:
    (tmp_path / "network.toml").write_text("mine", encoding="utf-8")
    code, output = run("--keep", str(tmp_path))
    assert code == 2
    assert "directory is not empty; specify a new directory for the demo" in output
    assert (tmp_path / "network.toml").read_text(encoding="utf-8") == "mine"


def test_a_network_without_a_floor_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = five_cities()
    start, end = text.index("[[floor]]"), text.index("# ----", text.index("[[floor]]"))
    (tmp_path / "mute.toml").write_text(text[:start] + text[end:], encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["levelcast", "demo", "--simulated", "--network", "mute.toml"])
    with pytest.raises(SystemExit) as caught:
        main.run()
    assert caught.value.code == 2
    assert capsys.readouterr().err.startswith("mute.toml:1: no [[floor]]")


def test_help_has_examples() -> None:
    code, output = run("--help")
    assert code == 0
    assert "levelcast demo --simulated --kill tokyo" in output


def test_prose_helpers() -> None:
    assert [count_word(n) for n in (4, 12)] == ["four", "12"]
    assert [and_join(names) for names in ([], ["a"], ["a", "b", "c"])] == ["", "a", "a, b and c"]

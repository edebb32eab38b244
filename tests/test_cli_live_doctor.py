"""`levelcast doctor` on this machine, with short measurements. No test depends on what it finds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from levelcast.cli.live import doctor
from levelcast.cli.live.machine_checks import OK, PROBLEM, WARNING, CheckVerdict, MachineCheck
from levelcast.cli.main import app
from tests.test_network import SMALL

NAMES = ["multicast", "socket buffers", "real-time priority", "timer precision", "CPU time", "clock", "disk writes"]
NAMES += ["disk space", "Java", "extras"]


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"CPU_S": 0.1, "WAKE_S": 0.05, "SYNCS": 2}.items():
        monkeypatch.setattr(doctor, name, value)


def run(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["doctor", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.stdout, result.stderr


def test_all_checks_run_and_leave_nothing_behind(tmp_path: Path) -> None:
    file, data = tmp_path / "network.toml", tmp_path / "data"
    file.write_text(SMALL, encoding="utf-8")
    data.mkdir()
    code, output, errors = run("--network", file, "--data", data, "--json")
    found = json.loads(output)
    assert [check["name"] for check in found["checks"]] == NAMES
    verdicts = [check["verdict"] for check in found["checks"]]
    assert (found["problems"], found["warnings"]) == (verdicts.count("problem"), verdicts.count("warning"))
    assert code == (1 if found["problems"] else 0)
    assert found["checks"][0]["verdict"] == "ok"
    assert all(check["action"] for check in found["checks"] if check["verdict"] != "ok")
    assert (errors, list(data.iterdir())) == ("", [])


def test_without_options_a_line_per_check_and_a_summary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _, output, _ = run()
    *lines, summary = output.splitlines()
    assert [line[9:].split("  ")[0] for line in lines] == NAMES
    assert all(line.split()[0] in ("ok", "warning", "problem") for line in lines)
    assert summary.endswith((" warning.", " warnings."))


@pytest.mark.parametrize(
    ("verdicts", "code", "summary"),
    [
        ([OK, OK], 0, "no problems, no warnings."),
        ([OK, WARNING], 0, "no problems, 1 warning."),
        ([PROBLEM, WARNING, WARNING], 1, "1 problem, 2 warnings."),
    ],
)
def test_only_a_problem_is_exit_code_1(
    verdicts: list[CheckVerdict], code: int, summary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = [MachineCheck("clock", verdict, "found", "" if verdict is OK else "do this") for verdict in verdicts]
    monkeypatch.setattr(doctor, "examine", lambda *_: iter(checks))
    ended, output, _ = run()
    assert (ended, output.splitlines()[-1]) == (code, summary)
    assert ("problem  clock               found; do this" in output) is (PROBLEM in verdicts)


def test_a_data_directory_that_does_not_exist_is_checked_where_it_would_be(tmp_path: Path) -> None:
    _, output, _ = run("--data", tmp_path / "new" / "data", "--json")
    assert json.loads(output)["checks"][7]["found"].startswith(f"{tmp_path}: ")
    assert list(tmp_path.iterdir()) == []


def test_an_address_of_another_machine_is_a_problem(tmp_path: Path) -> None:
    code, output, _ = run("--interface", "192.0.2.1", "--data", tmp_path, "--json")
    assert (code, json.loads(output)["checks"][0]["verdict"]) == (1, "problem")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--interface", "lo"], '"lo" is not an IPv4 address'),
        (["--data", __file__], "not a directory"),
        (["--data", f"{__file__}/data"], "not a directory"),
        (["--network", __file__], "test_cli_live_doctor.py:"),
    ],
)
def test_bad_input_is_exit_code_2(arguments: list[str], words: str) -> None:
    code, _, errors = run(*arguments)
    assert code == 2
    assert words in " ".join(errors.replace("│", " ").split())

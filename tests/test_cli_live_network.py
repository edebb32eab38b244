"""`levelcast network`: the live matrix on a terminal, and what may go wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from levelcast.cli import main
from levelcast.cli.live import network as command
from levelcast.network import FiveCities, five_cities
from levelcast.node.status_client import Answer
from tests.test_node_path_report import three


class Shell:
    """Runs the command as a user does, in 80 columns."""

    def __init__(self, file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._file, self._patch, self._capsys = file, monkeypatch, capsys
        monkeypatch.setenv("COLUMNS", "80")

    def replies(self, *answers: Answer) -> None:
        self._patch.setattr(command, "ask_all", lambda *_, **__: list(answers))

    def run(self, *arguments: str) -> tuple[int, str, str]:
        self._patch.setattr("sys.argv", ["levelcast", "network", "--network", str(self._file), *arguments])
        with pytest.raises(SystemExit) as ended:
            main.run()
        printed = self._capsys.readouterr()
        return int(ended.value.code or 0), printed.out, " ".join(printed.err.split())


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    path = tmp_path / "network.toml"
    path.write_text(five_cities(FiveCities()), encoding="utf-8")
    return Shell(path, monkeypatch, capsys)


def test_it_says_that_no_node_runs(shell: Shell) -> None:
    shell.replies(Answer("tokyo-1", problem="not running"))
    code, _, error = shell.run()
    assert (code, error) == (2, "levelcast: no node replied; tokyo-1: not running")


def test_it_says_that_nothing_is_measured_yet(shell: Shell) -> None:
    shell.replies(Answer("tokyo-1", {"name": "tokyo-1", "site": "tokyo", "window_s": 600, "paths": [], "shared": []}))
    code, _, error = shell.run()
    assert code == 2
    assert "the nodes have not measured a path yet; wait a few seconds after the start" in error


def test_a_quantile_that_is_not_measured_is_refused(shell: Shell) -> None:
    code, _, error = shell.run("--quantile", "0.7")
    assert code == 2
    assert "0.7 is not measured; use one of 0.5, 0.99, 0.999" in error


def test_a_file_is_not_replaced_unless_told_to(shell: Shell, tmp_path: Path) -> None:
    shell.replies(*(Answer(each["name"], each) for each in three()))
    code, _, error = shell.run("-o", str(tmp_path / "network.toml"))
    assert code == 2
    assert "already exists; use --force to replace it" in error


def test_few_nodes_are_a_matrix_and_pairs_have_all_values(shell: Shell) -> None:
    shell.replies(*(Answer(each["name"], each) for each in three()))
    code, square, _ = shell.run()
    assert code == 0
    assert "Median delay in ms and loss in %, from (row) to (column)" in square
    assert "10.1 0.7" in square
    _, pairs, _ = shell.run("--pairs")
    lines = [line for line in pairs.splitlines() if "-1" in line]
    assert len(lines) == 6
    assert any("9.62 (7." in line for line in lines), "loss with its interval"
    assert all(len(line) <= 80 and "…" not in line for line in pairs.splitlines())

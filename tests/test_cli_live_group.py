"""`levelcast group`: the comparison of all protocols, and one sentence for each mistake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from levelcast.cli import main
from levelcast.network import FiveCities, five_cities
from levelcast.overlay.wide.choices import WIDE_PROTOCOLS


class Shell:
    """Runs the command as a user does, in 80 columns."""

    def __init__(self, file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.file, self._patch, self._capsys = file, monkeypatch, capsys
        monkeypatch.setenv("COLUMNS", "80")

    def run(self, *arguments: str) -> tuple[int, str, str]:
        self._patch.setattr("sys.argv", ["levelcast", "group", *arguments])
        with pytest.raises(SystemExit) as ended:
            main.run()
        printed = self._capsys.readouterr()
        return int(ended.value.code or 0), printed.out, " ".join(printed.err.split())


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    path = tmp_path / "network.toml"
    path.write_text(five_cities(FiveCities()), encoding="utf-8")
    return Shell(path, monkeypatch, capsys)


def test_it_compares_all_protocols_and_recommends_one(shell: Shell) -> None:
    code, out, error = shell.run(str(shell.file), "--messages", "20")
    assert (code, error) == (0, "")
    rows = [line.split()[0] for line in out.splitlines() if line.startswith(" ") and line.split()]
    assert [each for each in rows if each in WIDE_PROTOCOLS] == list(WIDE_PROTOCOLS)
    assert "5 receivers, 20 messages, virtual time" in out
    (recommended,) = [line for line in out.splitlines() if line.startswith("Recommended: ")]
    assert recommended.split(":")[1].strip() in WIDE_PROTOCOLS
    assert max(map(len, out[: out.index("ms from")].splitlines())) <= 80


def test_the_comparison_as_json_is_the_same_for_the_same_seed(shell: Shell) -> None:
    arguments = ("--network", str(shell.file), "--messages", "20", "--json")
    first, second, other = shell.run(*arguments), shell.run(*arguments), shell.run(*arguments, "--seed", "2")
    assert first == second != other
    found = json.loads(first[1])
    assert list(found["protocols"]) == list(WIDE_PROTOCOLS)
    assert found["protocols"]["B"]["messages"] == 20
    assert found["recommended"] in WIDE_PROTOCOLS


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--protocol", "QX"), 'levelcast: protocol "QX" not found; use one of B, M, N, D, BR, MR, NR, DR, HD'),
        (("--protocol", "M", "--copies", "two"), 'copies "two" not found; use one of none, sender, forwarded'),
        (("--name", "tokyo-1"), "with --name or --copies choose one of them"),
        (("--protocol", "M", "--name", "tokyo"), 'receiver "tokyo" not found in the network file; did you mean tokyo'),
        (("--protocol", "M", "--every", "5"), '--every: "5" is not a time such as 20s, 500ms or 2min'),
        (("--protocol", "M", "--size", "2000"), "2000"),
        (("--protocol", "M", "--port", "70000"), "port 70000 does not leave 5 ports up to 65535; use a lower one"),
    ],
)
def test_bad_input(shell: Shell, arguments: tuple[str, ...], why: str) -> None:
    code, out, error = shell.run("--network", str(shell.file), *arguments)
    assert code == 2
    assert why in error
    assert out == ""


def test_a_file_that_is_missing(shell: Shell, tmp_path: Path) -> None:
    code, _, error = shell.run(str(tmp_path / "none.toml"))
    assert code == 2
    assert "none.toml: network file not found" in error

"""The table of commands: true to the commands, and no command is imported to list them all."""

from __future__ import annotations

import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from levelcast.cli import main
from levelcast.cli.main import COMMANDS, CommandEntry, app, load_command
from levelcast.cli.old_spellings import current_spelling
from levelcast.errors import NetError, UserError
from levelcast.network import NetworkError, Problem


@pytest.mark.parametrize("name", COMMANDS)
def test_each_line_of_the_table_is_the_first_paragraph_of_the_command_s_help(name: str) -> None:
    first_paragraph = load_command(name).help.split("\n\n")[0]
    assert " ".join(first_paragraph.split()) == COMMANDS[name].help


def test_help_lists_every_command_and_imports_none_of_them() -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from levelcast.cli.main import app\n"
        "result = CliRunner().invoke(app, ['--help'])\n"
        "print(result.output, [name for name in sys.modules if name.startswith(('levelcast', 'numpy', 'asyncio'))])"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    listed, loaded = output.rsplit("[", 1)
    assert all(f" {name} " in listed for name in COMMANDS)
    assert sorted(loaded.strip(" \n]").replace("'", "").split(", ")) == [
        "levelcast",
        "levelcast.cli",
        "levelcast.cli.errors",
        "levelcast.cli.help",
        "levelcast.cli.main",
        "levelcast.cli.old_spellings",
        "levelcast.cli.usage_errors",
        "levelcast.errors",
        "levelcast.version",
    ]


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (UserError("this is wrong; do that"), "levelcast: this is wrong; do that\n"),
        (NetError("port already in use"), "levelcast: port already in use\n"),
        (NetworkError("a.toml", [Problem(3, "wrong")]), "a.toml:3: wrong\n"),
    ],
)
def test_an_error_for_a_person_is_one_sentence_and_exit_code_2(
    error: UserError, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(main, "fail", fail, raising=False)
    monkeypatch.setitem(COMMANDS, "fail", CommandEntry("main:fail", "Fail."))
    result = CliRunner().invoke(app, ["fail"])
    assert (result.exit_code, result.stderr) == (2, sentence)


def test_a_mistake_of_ours_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("ours")

    group = typer.Typer()
    group.command()(fail)
    monkeypatch.setattr(main, "group", group, raising=False)
    monkeypatch.setitem(COMMANDS, "group", CommandEntry("main:group", ""))
    assert isinstance(CliRunner().invoke(app, ["group", "fail"]).exception, RuntimeError)


def test_an_unknown_command_is_refused_with_the_nearest_name() -> None:
    result = CliRunner().invoke(app, ["statu"])
    assert result.exit_code == 2
    assert "status" in result.stderr


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("timing n.toml --stripe fx", "timing --network n.toml --stripe fx"),
        ("timing --stripe fx n.toml", "timing --stripe fx --network n.toml"),
        ("init n.toml --force", "init --out n.toml --force"),
        ("up n.toml --data d --no-impair", "up --network n.toml --data d --no-impair"),
        ("up --no-impair n.toml --data d", "up --no-impair --network n.toml --data d"),
        ("status n.toml --json", "status --network n.toml --json"),
        ("plan apply n.toml plan --json", "plan apply --network n.toml plan --json"),
        ("plan current n.toml", "plan current --network n.toml"),
        ("probe gather n.toml -o p.csv", "probe gather --network n.toml -o p.csv"),
        ("certify a b --output c", "certify a b --out c"),
        ("audit all a --output=c", "audit all a --out=c"),
        ("tape export a --output c.csv", "tape export a --out c.csv"),
        ("world --plot p", "world --plots p"),
    ],
)
def test_an_old_spelling_is_replaced_with_a_note(old: str, new: str, capsys: pytest.CaptureFixture[str]) -> None:
    def current(text: str) -> list[str]:
        name, *args = text.split()
        return [name, *current_spelling(load_command(name), name, args)]

    assert current(old) == new.split()
    assert " is now " in capsys.readouterr().err
    assert current(new) == new.split()
    assert not capsys.readouterr().err


def test_an_argument_too_many_stays_an_error() -> None:
    result = CliRunner().invoke(app, ["timing", "--network", "n.toml", "more"])
    assert (result.exit_code, "unexpected argument" in result.stderr) == (2, True)

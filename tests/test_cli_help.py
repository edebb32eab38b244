"""Help pages: readable at 80 columns, complete, and with examples that the commands accept."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from levelcast.cli.errors import one_sentence
from levelcast.cli.help import HelpCommand
from levelcast.cli.main import COMMANDS, app, load_command
from levelcast.cli.options import option

WIDTH = 80


def pages() -> Iterator[tuple[str, ...]]:
    """The words of every command and of every command below one."""
    yield ()
    for name in COMMANDS:
        yield (name,)
        yield from ((name, below) for below in getattr(load_command(name), "commands", ()))


PAGES = list(pages())
LEAVES = [words for words in PAGES if len(words) == 2 or (words and not hasattr(load_command(words[0]), "commands"))]
page = pytest.mark.parametrize("words", PAGES, ids=" ".join)
leaf = pytest.mark.parametrize("words", LEAVES, ids=" ".join)


def help_of(words: tuple[str, ...], width: int = WIDTH) -> str:
    result = CliRunner().invoke(app, [*words, "--help"], prog_name="levelcast", env={"COLUMNS": str(width)})
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def command_of(words: tuple[str, ...]) -> Any:
    found = load_command(words[0])
    return found.commands[words[1]] if len(words) == 2 else found


def examples_of(words: tuple[str, ...]) -> list[str]:
    """The examples on a page, each as one line."""
    text = help_of(words).partition("Examples:\n")[2].partition("\n\n")[0]
    return text.replace("\\\n", "").strip().split("\n")


@page
def test_no_line_is_cut_or_wider_than_the_terminal(words: tuple[str, ...]) -> None:
    lines = help_of(words).splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert not [line for line in lines if "…" in line and "A,B,…" not in line and "VALUE,…" not in line]


@page
def test_help_is_not_squeezed_into_a_narrow_column(words: tuple[str, ...]) -> None:
    for line in help_of(words).splitlines():
        assert len(line) - len(line.lstrip()) <= WIDTH // 2


@page
def test_every_parameter_and_command_has_a_sentence(words: tuple[str, ...]) -> None:
    if not words:
        return
    command = command_of(words)
    helps = [param.help for param in command.params] + [each.help for each in getattr(command, "commands", {}).values()]
    assert all(help and help.split("\n\n")[0].rstrip().endswith(".") for help in helps)


@leaf
def test_a_value_has_a_name_that_says_what_it_is(words: tuple[str, ...]) -> None:
    text = help_of(words)
    assert "<" not in text
    assert "TEXT" not in text


@leaf
def test_examples_have_only_options_of_the_command(words: tuple[str, ...]) -> None:
    examples = examples_of(words)
    assert examples
    for example in examples:
        for one in example.split(" && "):
            arguments = shlex.split(one.split(" > ")[0])
            arguments = arguments[arguments.index("levelcast") + 1 :] if "levelcast" in arguments else arguments[4:]
            depth = 2 if hasattr(load_command(arguments[0]), "commands") else 1
            command = command_of(tuple(arguments[:depth]))
            ctx = command.context_class(command)
            values, rest, _ = command.make_parser(ctx).parse_args(arguments[depth:])
            missing = [each.name for each in command.params if each.required and not values.get(each.name)]
            assert (rest, missing) == ([], [])


def test_the_first_page_has_all_commands_by_subject() -> None:
    text = help_of(())
    listed = [line.split()[0] for line in text.splitlines() if line[:3].strip() and line.startswith("  ")]
    assert [name for name in listed if name in COMMANDS] == list(COMMANDS)
    assert text.index("Network file:") < text.index("Running network:") < text.index("Tapes:")


def test_a_wide_terminal_has_longer_lines_up_to_a_limit() -> None:
    assert 80 < max(map(len, help_of(("sweep",), 200).splitlines())) <= 100
    assert max(map(len, help_of(("sweep",), 20).splitlines())) <= 60


def serve(
    port: Annotated[int, option("Port.", min=1, max=65_535)],
    ratio: Annotated[float, option("Ratio.", max=0.5)] = 0.25,
    names: Annotated[list[str] | None, option("Name (repeatable).", "--name", unset="all")] = None,
    fast: Annotated[bool, option("Be fast.")] = True,
    quiet: Annotated[bool, option("Be quiet.", "--quiet", "-q")] = False,
) -> None:
    """Serve.

    Examples:

    serve --port 1

    serve --port 65535 --ratio 0.125 --name one-long-name --name another-long-name && serve --port 2
    """
    raise typer.BadParameter("not today", param_hint="--port")


@pytest.fixture
def small() -> typer.Typer:
    small = typer.Typer(add_completion=False)
    small.command(cls=HelpCommand)(serve)
    return small


def test_a_row_has_names_limits_and_default(small: typer.Typer) -> None:
    result = CliRunner().invoke(small, ["--help"], prog_name="serve", env={"COLUMNS": "80"})
    assert (
        result.stdout
        == """\
Usage: serve [OPTIONS]

  Serve.

Options:
  --port N           Port. [1 to 65535; required]
  --ratio RATIO      Ratio. [at most 0.5; default: 0.25]
  --name NAMES       Name (repeatable). [default: all]
  --fast, --no-fast  Be fast. [default: --fast]
  --quiet, -q        Be quiet.
  --help             Show this message and exit.

Examples:
  serve --port 1
  serve --port 65535 --ratio 0.125 --name one-long-name \\
      --name another-long-name && \\
      serve --port 2
"""
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--port 1", "serve: --port: not today"),
        ("--port 0", 'serve: --port: "0" is not a whole number from 1 to 65535'),
        ("--port 1 --ratio 0.75", 'serve: --ratio: "0.75" is not a number of at most 0.5'),
        ("", "serve: --port is missing; see `serve --help`"),
        ("--port", "serve: option --port needs a value; see `serve --help`"),
        ("--pory 1", "serve: unknown option --pory; did you mean --port?"),
        ("--port 1 two", 'serve: unexpected argument "two"; quote values that contain spaces, and see `serve --help`'),
    ],
)
def test_a_usage_error_is_one_line_with_the_command(
    small: typer.Typer, arguments: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = typer.main.get_command(small)
    with pytest.raises(typer.Exit) as end, one_sentence():
        command.main(shlex.split(arguments), prog_name="serve", standalone_mode=False)
    assert end.value.exit_code == 2
    assert capsys.readouterr().err == message + "\n"

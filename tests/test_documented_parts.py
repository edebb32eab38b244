"""Pages with mistakes: unknown languages, comments without a reason, commands that fail, options that do not exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from levelcast.cli.main import COMMANDS
from tests.documented_parts import BadPage, Runner, Step, need_namespaces, parse_options, steps_of, steps_of_page


def kinds(text: str) -> list[tuple[str, str]]:
    return [(step.kind, step.text) for step in steps_of("page.md", text)]


def test_blocks_and_hidden_commands_are_steps_in_order() -> None:
    text = "Text\n\n```sh\none\n```\n<!-- run: two -->\n\n```console\n$ three \\\n    four\noutput\n```\n"
    assert kinds(text) == [("shell", "one\n"), ("shell", "two\n"), ("shell", "three \\\n    four\n")]


def test_a_block_with_a_reason_is_parsed_and_a_file_is_saved() -> None:
    text = "<!-- not run: needs a cluster -->\n```sh\none\n```\n\n<!-- file: a.py -->\n```python\ntwo\n```\n"
    assert steps_of("page.md", text) == [
        Step("page.md:2", "parsed", "one\n"),
        Step("page.md:7", "file", "two\n", "a.py"),
    ]


def test_examples_of_a_table_are_steps_only_in_a_column_of_examples() -> None:
    rows = "|---|---|\n| `levelcast a` | `levelcast b`, `levelcast c` |\n"
    more = "| x | `levelcast d` <!-- not run: long --> |\n"
    assert kinds(f"| Command | Example |\n{rows}{more}") == [
        ("shell", "levelcast b\n"),
        ("shell", "levelcast c\n"),
        ("parsed", "levelcast d\n"),
    ]
    assert kinds(f"| Command | Purpose |\n{rows}") == []


def test_the_readme_has_an_example_of_every_command() -> None:
    shown = {step.text.split()[1] for step in steps_of_page("README.md") if step.text.startswith("levelcast ")}
    assert set(COMMANDS) - shown == set()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("```\nlevelcast up\n```\n", 'page.md:1: the block\'s language is ""'),
        ("```perl\n1\n```\n", 'page.md:1: the block\'s language is "perl"'),
        ("\n```sh\nlevelcast up\n", "page.md:2: the block has no end"),
        ("<!-- not run -->\n```sh\nx\n```\n", 'page.md:1: "not run" needs a reason'),
        ("<!-- not run: -->\n```sh\nx\n```\n", 'page.md:1: "not run" needs a reason'),
        ("<!-- exit code: 1 -->\nText\n```sh\nx\n```\n", "page.md:1: no block follows this comment"),
        ("<!-- not run: long -->\n", "page.md:1: no block follows this comment"),
        ("```text\n$ levelcast up\n```\n", "page.md:1: commands in a block of text"),
        ("```toml\na = \n```\n", "page.md:1: not valid TOML"),
    ],
)
def test_a_mistake_in_a_page_is_reported_with_its_line(text: str, message: str) -> None:
    with pytest.raises(BadPage) as caught:
        steps_of("page.md", text)
    assert str(caught.value).startswith(message)


def test_options_of_commands_that_are_not_run_are_parsed() -> None:
    parse_options(
        "levelcast up --data data --for 20s > up.log &\nspark-submit $program tape verify a \\\n    b   # both\n"
    )
    for wrong in ("levelcast up --data", "levelcast tape verify a --quickly", "levelcast plan unmake", "levelcast go"):
        with pytest.raises(Exception, match=r"--data|--quickly|unmake|go"):
            parse_options(wrong)


def test_a_page_fails_with_the_place_of_the_command_that_failed(tmp_path: Path) -> None:
    need_namespaces()

    def run(text: str) -> str:
        folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        return Runner(folder, folder / "tools").run(steps_of("page.md", text))

    said = run("<!-- file: a.txt -->\n```text\nwords\n```\n```sh\ncat a.txt\n```\n```python\nprint(6 * 7)\n```\n")
    assert said.splitlines() == ["== page.md:2", "== page.md:5", "words", "== page.md:8", "42"]
    run("<!-- exit code: 3 -->\n```sh\n(exit 3)\n```\n<!-- exit code: 0 or 3 -->\n```sh\ntrue\n```\n")
    for text, words in (
        ("```sh\ntrue\nfalse\ntrue\n```\n", "page.md:1: exit code 1 of: false"),
        ("```python\nraise SystemExit(4)\n```\n", "page.md:1: exit code 4 of: run-block"),
        ("<!-- exit code: 3 -->\n```sh\ntrue\n```\n", "page.md:2: no command exits with 3"),
        ("<!-- exit code: 3 -->\n```sh\nfalse\n(exit 3)\n```\n", "page.md:2: exit code 1 of: false"),
        ("<!-- not run: long -->\n```sh\nlevelcast status --everywhere\n```\n", "page.md:2: No such option"),
    ):
        with pytest.raises((BadPage, pytest.fail.Exception)) as caught:
            run(text)
        assert words in str(caught.value)

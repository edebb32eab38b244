"""Command and group classes with a help page of two columns, and with usage errors that name their command.

The page has the usage, the text, the commands or options, and the examples. The examples are the paragraphs of a
docstring after "Examples:", one command per paragraph; " — " separates a command from its explanation.
"""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Iterator
from difflib import get_close_matches
from enum import Enum
from inspect import cleandoc
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from levelcast.cli.usage_errors import limits, naming, number_text

_NARROWEST, _WIDEST = 60, 100
_WHOLE_WORDS: Any = {"break_on_hyphens": False, "break_long_words": False}
_NAMES = 26
"""Maximum width of the left column; a longer name has a line of its own."""
_EXAMPLES = re.compile(r"Examples?:")
_JOINED = "\xa0"
"""Space at which a line is broken only if it would be too long."""


class HelpCommand(TyperCommand):
    """A command with a help page of this module."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(help_page(self, ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with naming(ctx):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        with naming(ctx):
            return super().invoke(ctx)


class HelpGroup(TyperGroup):
    """A group of commands with a help page of this module."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(help_page(self, ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with naming(ctx):
            return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in self.commands:
            near = get_close_matches(args[0], self.commands)
            help = f"did you mean {' or '.join(near)}?" if near else f"see `{ctx.command_path} --help`"
            ctx.fail(f'unknown command "{args[0]}"; {help}')
        return super().resolve_command(ctx, args)


def help_page(command: Any, ctx: Any) -> str:
    """Return the help of a command at the width of the terminal, which is at most 100 columns."""
    width = max(_NARROWEST, min(shutil.get_terminal_size().columns, _WIDEST))
    text, examples = _paragraphs(command)
    pages = [_usage(command, ctx, width), *(_wrapped(paragraph, width, "  ") for paragraph in text)]
    longest = max(map(len, getattr(command, "commands", ())), default=0)
    for title, rows in _sections(command, ctx).items():
        pages.append(_heading(title) + "\n" + _two_columns(rows, width, least=0 if title == "Options" else longest))
    if examples:
        pages.append(_heading("Examples") + "\n" + _example_lines(examples, width))
    if hasattr(command, "commands"):
        more = f"`{ctx.command_path} COMMAND --help` shows the options and examples of a command."
        pages.append(_wrapped(more, width, ""))
    return "\n\n".join(pages) + "\n"


def _paragraphs(command: Any) -> tuple[list[str], list[str]]:
    """Return the text of a command's docstring, and its examples."""
    found = [" ".join(one.split()) for one in re.split(r"\n\s*\n", cleandoc(command.help or ""))]
    found += [" ".join(one.split()) for one in re.split(r"\n\s*\n", cleandoc(command.epilog or ""))]
    found = [one for one in found if one]
    at = next((at for at, one in enumerate(found) if _EXAMPLES.fullmatch(one)), len(found))
    return found[:at], found[at + 1 :]


def _usage(command: Any, ctx: Any, width: int) -> str:
    arguments = [param for param in command.get_params(ctx) if param.param_type_name == "argument"]
    words = [_argument(param) if param.required else f"[{_argument(param)}]" for param in arguments]
    words += ["COMMAND", "..."] if hasattr(command, "commands") else []
    line = " ".join(["Usage:", ctx.command_path, "[OPTIONS]", *words])
    return textwrap.fill(line, width, subsequent_indent=" " * 7, **_WHOLE_WORDS)


def _argument(param: Any) -> str:
    return _metavar(param) + ("" if param.nargs == 1 else "...")


def _sections(command: Any, ctx: Any) -> dict[str, list[tuple[str, str]]]:
    """Return the rows of the page by heading: arguments, commands, options, and named panels of both."""
    rows: dict[str, list[tuple[str, str]]] = {}
    for param in command.get_params(ctx):
        if not param.hidden:
            usual = "Arguments" if param.param_type_name == "argument" else "Options"
            rows.setdefault(_panel(param) or usual, []).append(_parameter_row(param, ctx))
    for name, below in getattr(command, "commands", {}).items():
        if not below.hidden:
            rows.setdefault(_panel(below) or "Commands", []).append((name, _first_paragraph(below)))
    order = ["Arguments", *(title for title in rows if title not in ("Arguments", "Options")), "Options"]
    if not hasattr(command, "commands"):
        order = ["Arguments", "Options", *order[1:-1]]
    return {title: rows[title] for title in order if title in rows}


def _panel(of: Any) -> str | None:
    name = of.rich_help_panel
    return name if isinstance(name, str) else None


def _first_paragraph(command: Any) -> str:
    return _paragraphs(command)[0][0]


def _parameter_row(param: Any, ctx: Any) -> tuple[str, str]:
    """Return a parameter's names with its metavar, and its help with limits and default."""
    if param.param_type_name == "argument":
        name = _argument(param)
    else:
        name = ", ".join(sorted([*param.opts, *param.secondary_opts], key=lambda one: not one.startswith("--")))
        name += "" if param.is_flag else f" {_metavar(param)}"
    facts = [limits(param), "required" if param.required else _default(param, ctx)]
    known = "; ".join(fact for fact in facts if fact).replace(" ", _JOINED)
    return name, f"{param.help or ''} [{known}]".strip() if known else param.help or ""


def _metavar(param: Any) -> str:
    if param.metavar:
        return str(param.metavar).removesuffix("...")
    described = param.type_descriptor
    if described.choices:
        return "|".join(str(one.value if isinstance(one, Enum) else one) for one in described.choices)
    if described.annotation is float and param.max is not None and param.max <= 1:
        return "RATIO"
    return "N" if described.annotation is int else param.name.upper().replace("_", "-")


def _default(param: Any, ctx: Any) -> str:
    if isinstance(param.show_default, str):
        return f"default: {param.show_default}"
    value = param.get_default(ctx, call=False)
    if not param.show_default or value is None or value is False or value in ((), []):
        return ""
    if value is True:
        return f"default: {param.opts[0]}" if param.secondary_opts else ""
    return f"default: {number_text(value.value if isinstance(value, Enum) else value)}"


def _heading(text: str) -> str:
    return typer.style(f"{text}:", bold=True)


def _wrapped(text: str, width: int, indent: str) -> str:
    lines = textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent, **_WHOLE_WORDS)
    if _JOINED in text and any(len(line) > width for line in lines):
        return _wrapped(text.replace(_JOINED, " "), width, indent)
    return "\n".join(lines).replace(_JOINED, " ")


def _two_columns(rows: list[tuple[str, str]], width: int, names: int = _NAMES, least: int = 0) -> str:
    """Return rows of a name, at most `names` wide, and a text; the left column is at least `least` wide."""
    left = max([least, *(len(name) for name, _ in rows if len(name) <= names)]) + 4
    lines = []
    for name, text in rows:
        wrapped = _wrapped(text, width, " " * left)
        if len(name) > names:
            lines += [f"  {name}", wrapped]
        else:
            lines.append(f"  {name}".ljust(left) + wrapped[left:])
    return "\n".join(lines)


def _example_lines(examples: list[str], width: int) -> str:
    explained = [one.split(" — ", 1) for one in examples]
    if all(len(one) == 2 for one in explained):
        return _two_columns([(one[0], one[1]) for one in explained], width, names=width // 2)
    return "\n".join(_command_lines(one, width) for one in examples)


def _command_lines(command: str, width: int) -> str:
    """Break a long command with backslashes, so that it can be copied to a shell; never between option and value."""
    lines, line = [], " "
    long = len(command) > width - 2
    for word in _words(command):
        if len(line) + 1 + len(word) > width - 2 or (long and line.endswith("&&")):
            lines.append(line + " \\")
            line = "     "
        line += f" {word}"
    return "\n".join([*lines, line])


def _words(command: str) -> Iterator[str]:
    """Yield the words of a command, an option together with its value."""
    held = ""
    for word in command.split(" "):
        if held and not word.startswith("-"):
            yield f"{held} {word}"
            held = ""
            continue
        if held:
            yield held
        held = word if word.startswith("-") and "=" not in word else ""
        if not held:
            yield word
    if held:
        yield held

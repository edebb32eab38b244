"""Write `docs/commands.md`: every command and subcommand with usage, arguments, options, defaults and examples."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, get_args

from levelcast.cli.main import COMMANDS, load_command
from website.reference import markdown

_INTRO = """
`levelcast -h` lists the commands. `levelcast COMMAND -h` prints the options and examples of this page.
`levelcast --version` prints the version.

| exit code | meaning |
|---|---|
| 0 | success |
| 1 | a violated guarantee, or a negative result |
| 2 | an invalid command, file or setting; one sentence on stderr describes it |
| 130 | stopped by ^C |
"""
_EXAMPLES = re.compile(r"^Examples?:$", re.MULTILINE)
_TYPES = {int: "INTEGER", float: "NUMBER", str: "TEXT", Path: "PATH"}


def page() -> str:
    """Return the page."""
    parts = [_INTRO]
    for name in COMMANDS:
        command = load_command(name)
        parts += _section(f"levelcast {name}", command, 2)
        for subcommand, each in getattr(command, "commands", {}).items():
            parts += _section(f"levelcast {name} {subcommand}", each, 3)
    return markdown.page("Commands", *parts)


def _section(name: str, command: Any, level: int) -> Iterator[str]:
    yield f"{'#' * level} `{name}`"
    about, *examples = _EXAMPLES.split(command.help)
    yield from (_escape(" ".join(paragraph.split())) for paragraph in about.strip().split("\n\n"))
    arguments = [each for each in command.params if each.param_type_name == "argument" and not each.hidden]
    options = [each for each in command.params if each.param_type_name == "option" and not each.hidden]
    if getattr(command, "commands", None):
        usage = [name, "COMMAND"]
    else:
        usage = [name, *(["[OPTIONS]"] if options else []), *map(_argument, arguments)]
    yield f"```text\n{' '.join(usage)}\n```"
    if arguments:
        rows = [(markdown.code(_argument(each)), _default(each), _meaning(each)) for each in arguments]
        yield markdown.table(("argument", "default", "meaning"), rows)
    if options:
        rows = [(_option(each), _default(each), _meaning(each)) for each in options]
        yield markdown.table(("option", "default", "meaning"), rows)
    for lines in examples:
        listed = "\n".join(line.strip().replace("`", "") for line in lines.strip().split("\n\n"))
        yield f"<!-- not run: only shows options -->\n```sh\n{listed}\n```"


def _argument(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    if argument.nargs == -1 and not name.endswith("..."):
        name += "..."
    return name if argument.required else f"[{name.strip('[]')}]"


def _option(option: Any) -> str:
    names = [*option.opts, *option.secondary_opts]
    value = "" if option.is_flag else f" {option.metavar or _type(option)}"
    return ", ".join(markdown.code(name + value) for name in names)


def _type(option: Any) -> str:
    annotation = option.type_descriptor.annotation
    kind = get_args(annotation)[0] if get_args(annotation) else annotation
    return "|".join(str(word.value) for word in kind) if issubclass(kind, Enum) else _TYPES[kind]


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    if isinstance(parameter.show_default, str):
        return _escape(parameter.show_default)
    value = parameter.default
    if isinstance(value, bool):
        names = parameter.opts if value else parameter.secondary_opts
        return markdown.code(names[0]) if names else ""
    if value is None or value == "" or value == ():
        return ""
    values = value if isinstance(value, list | tuple) else [value]
    return markdown.code(" ".join(str(each.value if isinstance(each, Enum) else each) for each in values))


def _meaning(parameter: Any) -> str:
    low, high = parameter.min, parameter.max
    limits = f" {low:,} to {high:,}." if low is not None and high is not None else ""
    limits = limits or (f" At least {low:,}." if low is not None else f" At most {high:,}." if high is not None else "")
    return _escape(" ".join((parameter.help or "").split())) + limits


def _escape(text: str) -> str:
    """Escape marks of Markdown outside inline code."""
    parts = text.split("`")
    return "`".join(re.sub(r"([*<[_])", r"\\\1", part) if place % 2 == 0 else part for place, part in enumerate(parts))

"""Accept old spellings of arguments: each is replaced by the current one, with a note on stderr."""

from __future__ import annotations

from typing import Any

import typer

_OPTIONS = {
    "audit": {"--output": "--out"},
    "certify": {"--output": "--out"},
    "tape export": {"--output": "--out"},
    "world": {"--plot": "--plots"},
}
_FIRST_ARGUMENT = {
    "init": "--out",
    "plan apply": "--network",
    "plan current": "--network",
    "probe gather": "--network",
    "status": "--network",
    "timing": "--network",
    "up": "--network",
}
"""Options that were the first argument of a command."""


def current_spelling(command: Any, path: str, args: list[str]) -> list[str]:
    """Return the arguments of a command in their current spelling; `path` is its name, such as "plan apply"."""
    subcommands = getattr(command, "commands", None)
    if subcommands is not None:
        if not args or args[0] not in subcommands:
            return args
        return [args[0], *current_spelling(subcommands[args[0]], f"{path} {args[0]}", args[1:])]
    current = [_renamed(path, arg) for arg in args]
    option = _FIRST_ARGUMENT.get(path)
    if option is None or any(arg.split("=")[0] == option for arg in current):
        return current
    places = _argument_places(command, current)
    if len(places) > sum(param.param_type_name == "argument" for param in command.params):
        _note(path, f"the first argument is now an option: {option} {current[places[0]]}")
        current.insert(places[0], option)
    return current


def _renamed(path: str, arg: str) -> str:
    name, equals, value = arg.partition("=")
    new = _OPTIONS.get(path, {}).get(name)
    if new is None:
        return arg
    _note(path, f"{name} is now {new}")
    return new + equals + value


def _argument_places(command: Any, args: list[str]) -> list[int]:
    """Return the positions of the arguments that are neither options nor values of options."""
    with_value = {name for param in command.params if not getattr(param, "is_flag", True) for name in param.opts}
    places: list[int] = []
    is_value = False
    for place, arg in enumerate(args):
        if arg == "--":
            return places  # what follows is left as it is: it may begin with "-"
        is_option = arg.startswith("-") and len(arg) > 1
        if not is_value and not is_option:
            places.append(place)
        is_value = not is_value and is_option and arg in with_value
    return places


def _note(path: str, what: str) -> None:
    typer.echo(f"levelcast {path}: {what}", err=True)

"""Format errors in options and arguments as one line: the parameter, what is wrong, what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from typer._click.exceptions import BadParameter, MissingParameter, NoSuchOption, UsageError


@contextmanager
def naming(ctx: Any) -> Iterator[None]:
    """Add the context of a command to the usage errors that its function raises."""
    try:
        yield
    except UsageError as error:
        error.ctx = error.ctx or ctx
        raise


def usage_sentence(error: UsageError, command: str) -> str:
    """Return what is wrong with an option or argument, and what to do."""
    see = f"see `{command} --help`"
    if isinstance(error, MissingParameter):
        return f"{_parameter(error)} is missing; {see}"
    if isinstance(error, NoSuchOption):
        near = " or ".join(error.possibilities or ())
        return f"unknown option {error.option_name}; {f'did you mean {near}?' if near else see}"
    if isinstance(error, BadParameter):
        where = _parameter(error)
        return f"{where}: {_value_sentence(error)}" if where else error.message
    if extra := _EXTRA.match(error.message):
        return f'unexpected argument "{extra[1]}"; quote values that contain spaces, and {see}'
    if bare := _BARE.match(error.message):
        return f"option {bare[1]} needs a value; {see}"
    return error.message


_KINDS: dict[Any, str] = {
    int: "a whole number",
    list[int]: "a whole number",
    float: "a number",
    list[float]: "a number",
}
_EXTRA = re.compile(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)")
_BARE = re.compile(r"Option '(.*)' requires an argument")


def _parameter(error: BadParameter) -> str:
    """Return the name of the parameter with the error, as the user types it."""
    if error.param_hint is not None:
        return error.param_hint if isinstance(error.param_hint, str) else " or ".join(error.param_hint)
    if error.param is None:
        return ""
    if error.param.param_type_name == "argument":
        return (error.param.metavar or error.param.name.upper()).removesuffix("...")
    return max(error.param.opts, key=len)


def _value_sentence(error: BadParameter) -> str:
    """Return the message of a value that typer refused, by the type and the limits of its parameter."""
    details: Any = getattr(error.__cause__, "errors", None)
    if error.param is None or details is None:
        return error.message
    value, described = details()[0]["input"], error.param.type_descriptor
    if described.choices:
        return f'"{value}" is not one of {", ".join(str(getattr(one, "value", one)) for one in described.choices)}'
    kind = _KINDS.get(described.annotation)
    return f'"{value}" is not {" ".join(filter(None, [kind, limits(error.param, "of ")]))}' if kind else error.message


def limits(param: Any, of: str = "") -> str:
    """Return the limits of a number: "2 to 100", "at least 1" or nothing; `of` precedes a single limit."""
    low, high = (None if one is None else number_text(one) for one in (param.min, param.max))
    if low is None or high is None:
        return f"{of}at least {low}" if low is not None else f"{of}at most {high}" if high is not None else ""
    return f"{'from ' if of else ''}{low} to {high}"


def number_text(value: object) -> str:
    """Return a value as a user types it: 2.0 as 2."""
    return f"{value:g}" if isinstance(value, float) else str(value)

"""Share between commands: errors as one sentence, times and files on the command line, an orderly end on ^C."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from types import FrameType

import typer

from levelcast.errors import UserError

_UNIT_NS = {"ms": 1_000_000, "s": 1_000_000_000, "min": 60_000_000_000}
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*(ms|s|min)", re.ASCII)


@contextmanager
def one_sentence() -> Iterator[None]:
    """Print a `UserError` on stderr and exit with code 2; the group of all commands runs each inside this."""
    try:
        yield
    except UserError as error:
        typer.echo(str(error) if error.located else f"levelcast: {error}", err=True)
        raise typer.Exit(2) from None


def duration_ns(text: str, option: str = "--for", longest_min: int | None = None) -> int:
    """A time such as 20s, above 0 and at most `longest_min` minutes."""
    match = _DURATION.fullmatch(text.strip())
    ns = int(float(match[1]) * _UNIT_NS[match[2]]) if match else 0
    if longest_min is not None and not 0 < ns <= longest_min * _UNIT_NS["min"]:
        raise typer.BadParameter(f'"{text}" is not a time from 1ms to {longest_min}min, such as 20s', param_hint=option)
    if ns <= 0:
        raise typer.BadParameter(f'"{text}" is not a time such as 20s, 500ms or 2min', param_hint=option)
    return ns


def parse_day(text: str, option: str = "--date") -> date:
    """A day as in 2013-10-07."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f'"{text}" is not a day such as 2013-10-07', param_hint=option) from None


def require_new(path: Path | None, *, force: bool) -> None:
    """Refuse to replace a file unless told to."""
    if path is not None and path.exists() and not force:
        raise typer.BadParameter(f"{path} exists; --force replaces it")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A name to write a file under that takes its place when it is whole."""
    unfinished = path.with_name(path.name + ".new")
    try:
        yield unfinished
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def on_interrupt(end: Callable[[], None]) -> None:
    """Call `end` on ^C or SIGTERM; whoever is in a hurry presses ^C twice."""

    def interrupt(*_: int | FrameType | None) -> None:
        end()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)

"""Helpers for commands: one-line errors, durations, dates and losses, replacement of files, an orderly stop on ^C."""

from __future__ import annotations

import errno
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from types import FrameType

import typer
from typer._click.exceptions import NoArgsIsHelpError, UsageError

from levelcast.cli.usage_errors import usage_sentence
from levelcast.errors import UserError

_UNIT_NS = {"ms": 1_000_000, "s": 1_000_000_000, "min": 60_000_000_000}
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*(ms|s|min)", re.ASCII)


@contextmanager
def one_sentence() -> Iterator[None]:
    """Print a `UserError`, a system error or a usage error as one line on stderr and exit with code 2.

    The group of all commands parses and runs each command in this.
    """
    try:
        yield
    except UserError as error:
        typer.echo(str(error) if error.located else f"levelcast: {error}", err=True)
        raise typer.Exit(2) from None
    except BrokenPipeError:
        raise
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        typer.echo(f"levelcast: {where}{_system_sentence(error)}", err=True)
        raise typer.Exit(2) from None
    except NoArgsIsHelpError as error:
        typer.echo(error.message, err=True)
        raise typer.Exit(2) from None
    except UsageError as error:
        command = error.ctx.command_path if error.ctx else "levelcast"
        typer.echo(f"{command}: {usage_sentence(error, command)}", err=True)
        raise typer.Exit(2) from None


def _system_sentence(error: OSError) -> str:
    """Return the message of an error of the operating system, and what to do."""
    text = error.strerror or str(error)
    remedy = _REMEDIES.get(error.errno or 0)
    return text[:1].lower() + text[1:] + (f"; {remedy}" if remedy else "")


_REMEDIES = {
    errno.ENOENT: "check the path",
    errno.ENOTDIR: "check the path: a part of it is a file",
    errno.EISDIR: "pass a file",
    errno.EEXIST: "pass another path",
    errno.EACCES: "check the owner and the mode",
    errno.EPERM: "check the owner and the mode",
    errno.EROFS: "pass a path on another file system",
    errno.ENOSPC: "free disk space and run the command again",
    errno.EMFILE: "raise the limit with `ulimit -n`",
}


def duration_ns(text: str, option: str = "--for", longest_min: int | None = None) -> int:
    """Parse a time such as 20s, above 0 and at most `longest_min` minutes."""
    match = _DURATION.fullmatch(text.strip())
    ns = int(float(match[1]) * _UNIT_NS[match[2]]) if match else 0
    if longest_min is not None and not 0 < ns <= longest_min * _UNIT_NS["min"]:
        raise typer.BadParameter(f'"{text}" is not a time from 1ms to {longest_min}min, such as 20s', param_hint=option)
    if ns <= 0:
        raise typer.BadParameter(f'"{text}" is not a time such as 20s, 500ms or 2min', param_hint=option)
    return ns


def loss_ratio(text: str) -> float:
    """Return the loss that an option states as a ratio or in percent."""
    from levelcast.timing.rules import LOSS_LIMIT

    match = re.fullmatch(r"(\d{1,3}(?:\.\d{0,9})?|\.\d{1,9})\s*(%?)", text.strip(), re.ASCII)
    ratio = float(match[1]) / (100 if match[2] else 1) if match else 1.0
    if ratio > LOSS_LIMIT:
        raise typer.BadParameter(
            f'"{text}" is not a loss from 0 to {LOSS_LIMIT:.0%}, such as 1% or 0.01', param_hint="--loss"
        )
    return ratio


def parse_day(text: str, option: str = "--date") -> date:
    """Parse a day such as 2013-10-07."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f'"{text}" is not a day such as 2013-10-07', param_hint=option) from None


def require_new(path: Path | None, *, force: bool) -> None:
    """Raise BadParameter if the file exists, unless `force` is set."""
    if path is not None and path.exists() and not force:
        raise typer.BadParameter(f"{path}: already exists; use --force to replace it")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; rename it to `path` when it is complete."""
    unfinished = path.with_name(path.name + ".new")
    try:
        yield unfinished
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def on_interrupt(end: Callable[[], None]) -> None:
    """Call `end` on ^C or SIGTERM; a second ^C interrupts immediately."""

    def interrupt(*_: int | FrameType | None) -> None:
        end()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)

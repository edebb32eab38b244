"""Exceptions of the package.

`UserError` is for errors that the user can correct: bad input, a missing program, a port in use. Its message reads
`WHERE: what is wrong; what to do`. A command prints it and exits with 2. Other exceptions are defects.
"""

from __future__ import annotations

from typing import ClassVar


class LevelcastError(Exception):
    """Base class of the exceptions that the package raises on purpose."""


class UserError(LevelcastError):
    """An error with a one-line message for the user of the command."""

    located: ClassVar[bool] = False
    """The message begins with the file and the line."""


class NetError(UserError):
    """A node cannot run, or cannot use the network."""


def describe(error: BaseException) -> str:
    """Return an exception as text for a log: the message for the user, with the type of a defect."""
    return str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"

"""Exceptions of the package.

`UserError` is for what a person can put right: bad input, a missing program, a port in use. Its text is one
sentence: what is wrong, where, and what to do. A command prints it and exits with 2. Other exceptions are defects.
"""

from __future__ import annotations

from typing import ClassVar


class LevelcastError(Exception):
    """Base class of the exceptions that the package raises on purpose."""


class UserError(LevelcastError):
    """An error whose text is one sentence for the person who runs the command."""

    located: ClassVar[bool] = False
    """Its text begins with the file and the line."""


class NetError(UserError):
    """A node cannot run, or cannot use the network."""

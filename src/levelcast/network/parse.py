"""Parse the text of a network file to a `Network`, or to a list of all its problems.

Every problem has its line. All of them are collected: cross-checks use only the valid parts of the file. The
other parts could only add requirements, so problems found by cross-checks remain correct.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path

from levelcast.errors import UserError
from levelcast.network import include
from levelcast.network.fields import Fields, Problem, ProblemReport
from levelcast.network.model import Network
from levelcast.network.sections import SECTIONS
from levelcast.network.sections.draft import Draft
from levelcast.network.toml_lines import LineNumbers

_SYNTAX_LINE = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")


class NetworkError(UserError):
    """An invalid network file; the message has one line for each of `problems`."""

    located = True

    def __init__(self, name: str, problems: Sequence[Problem]) -> None:
        self.name = name
        self.problems = sorted(problems, key=lambda problem: (problem.file, problem.line, problem.message))
        super().__init__("\n".join(f"{file or name}:{line}: {message}" for line, message, file in self.problems))


def load_network(path: str | PathLike[str]) -> Network:
    """Read a network file. Raise NetworkError for invalid contents, UserError if it cannot be read."""
    try:
        raw = Path(path).read_bytes()
    except FileNotFoundError:
        command = f"levelcast init --out {shlex.quote(str(path))}"
        raise UserError(f"{path}: network file not found; write one with `{command}`") from None
    except IsADirectoryError:
        raise UserError(f"{path}: is a directory; pass a network file, such as {Path(path) / 'network.toml'}") from None
    except OSError as error:
        raise UserError(f"{path}: network file cannot be read ({error.strerror}); check the path") from error
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise NetworkError(str(path), [Problem(line, "not UTF-8 text")]) from None
    return parse_network(text, str(path), Path(path).parent)


def parse_network(text: str, name: str = "network.toml", directory: Path | None = None) -> Network:
    """Return the network that a text describes. Raise NetworkError, and no other exception, for an invalid text.

    Paths of included files are relative to `directory`; without it, includes are an error.
    """
    root, lines = _read_toml(text, name)
    merged, places, included, problems = include.merge(root, lines, directory, _read_toml)
    if problems:
        raise NetworkError(name, problems)
    report = ProblemReport(places)
    draft, fields = Draft(report), Fields(report, (), merged, "the file")
    for read in SECTIONS:
        read(fields, draft)
    fields.finish()
    for check in draft.checks:
        check()
    draft.add(included=included)
    if report.problems:
        raise NetworkError(name, report.problems)
    return _located(draft.network, directory)


def _located(network: Network, directory: Path | None) -> Network:
    """Return the network with paths of keys that do not depend on the directory of the process."""
    if network.keys is None or directory is None:
        return network
    keys = network.keys
    paths = {name: str((directory / getattr(keys, name)).absolute()) for name in ("statement", "directory")}
    return replace(network, keys=replace(keys, **paths))


def _read_toml(text: str, name: str) -> tuple[dict[str, object], LineNumbers]:
    try:
        return tomllib.loads(text), LineNumbers(text.replace("\r\n", "\n"))
    except RecursionError:
        message, line = "arrays or tables are nested too deeply", 1
    except ValueError as error:
        message = str(error)
        found = _SYNTAX_LINE.search(message)
        line = text.count("\n") + 1
        if found is None:
            line = 1
        elif found[1] is not None:
            line = int(found[1])
        message = _SYNTAX_LINE.sub("", message)
    raise NetworkError(name, [Problem(line, f"not valid TOML: {message[:1].lower()}{message[1:]}")])

"""Locate each table, key and array element in a TOML text, so that errors can report the line.

`tomllib` returns values without lines. This scanner reads only the structure (headers, keys, brackets) of a
text that `tomllib` has already accepted; it checks nothing. A path is a tuple of keys and array indices, as
used to index the parsed value: `("receiver", 2, "site")`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

KeyPath = tuple[str | int, ...]

# A multi-line string may end in up to two quotes of its own before the three that close it.
_TOKEN = re.compile(
    r"""
      (?P<string> \"{3} (?:\\.|[^\\])*? \"{3,5} | '{3} .*? '{3,5} | "(?:\\.|[^"\\\n])*" | '[^'\n]*' )
    | (?P<comment> \#[^\n]* )
    | (?P<newline> \n )
    | (?P<mark> [][{}=,.] )
    | (?P<bare> [^\s"'\[\]{}=,.\#]+ )
    """,
    re.VERBOSE | re.DOTALL,
)


class _Token(NamedTuple):
    kind: str
    text: str
    line: int
    start: int


@dataclass(slots=True)
class _Open:
    """An array or inline table that is being read: the path of its next element or of its current key."""

    path: KeyPath
    is_table: bool
    index: int = 0
    keys: list[str] = field(default_factory=list)
    has_key: bool = False
    """The key of a table's pair is complete."""

    def here(self) -> KeyPath:
        return (*self.path, *self.keys) if self.is_table else (*self.path, self.index)

    def next(self) -> None:
        self.index += 1
        self.keys, self.has_key = [], False


class LineNumbers:
    """The line of every path in a TOML text that `tomllib` accepts.

    >>> lines = LineNumbers('[[site]]\\nname = "tokyo"\\n[[site]]\\nname = "osaka"')
    >>> lines.of(("site", 1, "name")), lines.of(("site", 1, "region"))
    (4, 3)
    """

    def __init__(self, text: str) -> None:
        self._lines: dict[KeyPath, int] = {(): 1}
        self._array_sizes: dict[KeyPath, int] = {}
        self._scan(_tokens(text))

    def of(self, path: KeyPath) -> int:
        """Return the line (from 1) of `path`, or of the nearest enclosing path that has one."""
        while path not in self._lines:
            path = path[:-1]
        return self._lines[path]

    def file_of(self, path: KeyPath) -> str:
        """Return the file of `path`, if it is not that of the text itself (`levelcast.network.include`)."""
        del path
        return ""

    def _note(self, path: KeyPath, line: int) -> None:
        """Set the line of `path`, and of each enclosing path that occurs here for the first time."""
        while path not in self._lines:
            self._lines[path] = line
            path = path[:-1]

    def _scan(self, tokens: Iterator[_Token]) -> None:
        table: KeyPath = ()
        for token in tokens:
            if token.kind in ("newline", "comment"):
                continue
            if token.text == "[" and token.kind == "mark":
                table = self._header(tokens, token)
            else:
                self._statement(tokens, token, table)

    def _header(self, tokens: Iterator[_Token], opening: _Token) -> KeyPath:
        is_array = False
        keys: list[str] = []
        for token in tokens:
            if token.kind == "newline":
                break
            if token.text == "[" and token.kind == "mark" and token.start == opening.start + 1:
                is_array = True
            elif token.kind in ("bare", "string"):
                keys.append(_key(token))
        path: KeyPath = ()
        for depth, key in enumerate(keys):
            path = (*path, key)
            if is_array and depth == len(keys) - 1:
                self._array_sizes[path] = self._array_sizes.get(path, 0) + 1
            if path in self._array_sizes:
                path = (*path, self._array_sizes[path] - 1)
        self._note(path, opening.line)
        return path

    def _statement(self, tokens: Iterator[_Token], first: _Token, table: KeyPath) -> None:
        """Read `key = value` as the only pair of an inline table that a newline closes."""
        whole = _Open(table, is_table=True)
        stack = [whole]
        for token in chain((first,), tokens):
            top = stack[-1]
            if token.kind == "newline":
                if top is whole:
                    return
            elif token.kind == "mark":
                self._mark(stack, token)
            elif token.kind in ("bare", "string"):
                if top.is_table and not top.has_key:
                    top.keys.append(_key(token))
                self._note(top.here(), token.line)

    def _mark(self, stack: list[_Open], token: _Token) -> None:
        top = stack[-1]
        if token.text in "[{":
            self._note(top.here(), token.line)
            stack.append(_Open(top.here(), is_table=token.text == "{"))
        elif token.text in "]}":
            if len(stack) > 1:
                stack.pop()
        elif token.text == ",":
            top.next()
        elif token.text == "=":
            top.has_key = True


def _tokens(text: str) -> Iterator[_Token]:
    line = 1
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or "bare"
        yield _Token(kind, match.group(), line, match.start())
        line += match.group().count("\n")


def _key(token: _Token) -> str:
    if token.kind == "bare":
        return token.text
    try:
        return str(tomllib.loads(f"key = {token.text}")["key"])
    except ValueError:
        return token.text

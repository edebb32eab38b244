"""Read one table of the network file: check the type and range of each value, report each problem with its line.

A `Fields` never raises: it reports a problem and returns the default, so that one pass finds all
problems. The keys that were read are the valid keys: `finish` reports all others.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple, TypeGuard, TypeVar

from levelcast.network.toml_lines import KeyPath, LineNumbers
from levelcast.units import BYTES_PER_UNIT, NS_PER_AGE_UNIT, NS_PER_UNIT, RATE_PER_UNIT, parse_amount, show_ns

LONGEST_NS = 3_600_000_000_000
_TEXT_LIMIT = 200
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_HOST = re.compile(r"(?=.{1,253}$)[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63})*\.?", re.ASCII)
_IDENTIFIER = re.compile(r"[0-9a-f]{16}")
_NAME_RULE = 'up to 64 letters, digits, "-", "_" or ".", without spaces'

T = TypeVar("T")


class Problem(NamedTuple):
    """One error in a network file, and its line (from 1)."""

    line: int
    message: str
    file: str = ""
    """The included file that has the line; empty for the network file itself."""


class ProblemReport:
    """The problems found so far."""

    def __init__(self, lines: LineNumbers) -> None:
        self._lines = lines
        self.problems: list[Problem] = []

    def add(self, path: KeyPath, message: str) -> None:
        """Report a problem at the line of `path`; ignore duplicates."""
        problem = Problem(self._lines.of(path), message, self._lines.file_of(path))
        if problem not in self.problems:
            self.problems.append(problem)

    def line_of(self, path: KeyPath) -> int:
        """Return the line of `path`."""
        return self._lines.of(path)

    def file_of(self, path: KeyPath) -> str:
        """Return the included file that has `path`; empty for the network file itself."""
        return self._lines.file_of(path)


class Fields:
    """One table, its path in the file, and its label in messages."""

    def __init__(
        self, report: ProblemReport, path: KeyPath, table: dict[str, object], label: str, *, given: bool = True
    ) -> None:
        self.report = report
        self.path = path
        self.label = label
        self.given = given
        """True if the file has this table."""
        self._table = table
        self._asked: set[str] = set()
        self._parts: list[Fields] = []

    def __contains__(self, key: str) -> bool:
        return key in self._table

    def at(self, key: str) -> KeyPath:
        """Return the path of a key, for a message."""
        return (*self.path, key)

    def problem(self, key: str, message: str) -> None:
        """Report a problem with one key of this table."""
        self.report.add(self.at(key), f"{self.label} {message}")

    def raw(self, key: str) -> object:
        """Return an unchecked value; None if absent."""
        self._asked.add(key)
        return self._table.get(key)

    def read(
        self,
        key: str,
        accept: Callable[[Any], T | None],
        expected: str,
        hint: Callable[[object], str] = lambda _: "",
        shown: Callable[[object], str] = lambda value: show(value),
        missing: str = "",
    ) -> T | None:
        """Return a value converted by `accept`; None if it is absent, or is not as `expected`, which is reported."""
        value = self.raw(key)
        found = None if value is None else accept(value)
        if value is not None and found is None:
            self.problem(key, f"has {key} = {shown(value)}: it must be {expected}{hint(value)}")
        elif value is None and missing:
            self.problem(key, missing)
        return found

    def text(self, key: str) -> str:
        """Return free text; empty if absent."""

        def accept(value: object) -> str | None:
            return value if isinstance(value, str) and len(value) <= _TEXT_LIMIT else None

        return self.read(key, accept, f"a string of up to {_TEXT_LIMIT} characters") or ""

    def identifier(self, key: str) -> int | None:
        """Return an optional 64-bit number, written as 16 hexadecimal digits."""

        def accept(value: object) -> int | None:
            return int(value, 16) if isinstance(value, str) and _IDENTIFIER.fullmatch(value) else None

        return self.read(key, accept, 'a string of 16 hexadecimal digits, such as "00c0ffee00c0ffee"')

    def name(self, key: str = "name", pattern: re.Pattern[str] = _NAME, expected: str = _NAME_RULE) -> str | None:
        """Return a required name: letters, digits, dots, dashes and underscores, so that it is a valid file name."""

        def accept(value: object) -> str | None:
            return value if isinstance(value, str) and pattern.fullmatch(value) else None

        return self.read(key, accept, expected, missing=f"has no {key}")

    def own_name(self, kind: str, pattern: re.Pattern[str] = _NAME, expected: str = _NAME_RULE) -> str | None:
        """Return the required name of the object in the table, and use it as the label of messages from now on."""
        name = self.name("name", pattern, expected)
        if name is not None:
            self.label = f'{kind} "{name}"'
        return name

    def names(self, key: str, limit: int) -> tuple[str, ...]:
        """Return an optional array of different ASCII strings without spaces."""
        value = self.read(key, lambda value: value if isinstance(value, list) else None, "an array of strings")
        found: dict[str, None] = {}
        for index, item in enumerate(value or ()):
            where, has = (*self.path, key, index), f"{self.label} has {show(item)}"
            if not isinstance(item, str) or not re.fullmatch(rf"[!-~]{{1,{limit}}}", item, re.ASCII):
                rule = f"each must be a string of 1 to {limit} visible ASCII characters"
                self.report.add(where, f"{has} in {key}: {rule}")
            elif item in found:
                self.report.add(where, f"{has} twice in {key}")
            else:
                found[item] = None
        return tuple(found)

    def choice(self, key: str, *options: str) -> str | None:
        """Return one of a few words."""
        listed = " or ".join(f'"{option}"' for option in options)
        hint = partial(did_you_mean, options=options)
        return self.read(key, lambda value: value if value in options else None, listed, hint)

    def flag(self, key: str) -> bool | None:
        """Return true or false."""
        return self.read(key, lambda value: value if isinstance(value, bool) else None, "true or false")

    def whole(self, key: str, low: int, high: int, missing: str = "") -> int | None:
        """Return an integer from low to high, both included."""

        def accept(value: object) -> int | None:
            return value if is_int(value) and low <= value <= high else None

        return self.read(key, accept, f"an integer from {low} to {high}", missing=missing)

    def ratio(self, key: str) -> float | None:
        """Return a number from 0 to 1."""

        def hint(value: Any) -> str:
            return (
                f"; for {show(value)} percent write {value / 100:g}" if _is_number(value) and 1 < value <= 100 else ""
            )

        def accept(value: Any) -> float | None:
            return float(value) if _is_number(value) and 0 <= value <= 1 else None

        return self.read(key, accept, "a ratio from 0 to 1", hint)

    def duration(self, key: str, *, zero: bool = False, missing: str = "", word: str = "") -> int | None:
        """Return a duration in nanoseconds, from a string such as "35.5ms"; a caller may accept a `word` instead."""

        def hint(value: object) -> str:
            return f'; a number needs its unit: "{show(value)}ms"?' if _is_number(value) else ""

        expected = 'a duration with a unit (ns, us, ms, s, min), such as "50ms"' + (f', or "{word}"' if word else "")
        amount = self.read(key, partial(_amount, units=NS_PER_UNIT), expected, hint, missing=missing)
        if amount is None:
            return None
        ns = int(amount.to_integral_value())
        if ns < 0:
            fault = "a duration cannot be negative"
        elif not ns and not zero:
            fault = "it must be more than 0"
        elif ns > LONGEST_NS:
            fault = f"the maximum is {show_ns(LONGEST_NS)}"
        else:
            return ns
        self.problem(key, f"has {key} = {show(self._table[key])}: {fault}")
        return None

    def age(self, key: str) -> int | None:
        """Return a long time in nanoseconds, from a string such as "7d"."""
        return self._positive(key, NS_PER_AGE_UNIT, 'an age with a unit (s, min, h, d), such as "7d"')

    def size(self, key: str) -> int | None:
        """Return a number of bytes, from a string such as "10GB"."""
        return self._positive(key, BYTES_PER_UNIT, 'a size with a unit (kB, MB, GB, TB, MiB ...), such as "10GB"')

    def bit_rate(self, key: str) -> int | None:
        """Return bytes/s, from a string of bit/s such as "56kbit"."""
        return self._positive(key, RATE_PER_UNIT, 'a rate in bit/s with a unit (kbit, Mbit, Gbit), such as "56kbit"')

    def _positive(self, key: str, units: Mapping[str, int], expected: str) -> int | None:
        return self.read(key, lambda value: max(0, int(_amount(value, units) or 0)) or None, expected)

    def address(self, key: str) -> str | None:
        """Return an IPv4 address of one machine."""
        return self._ipv4(key, 'an IPv4 address of this machine, such as "127.0.0.1"', multicast=False)

    def host(self, key: str) -> str | None:
        """Return an IPv4 address, or a name that has one."""

        def accept(value: object) -> str | None:
            if not isinstance(value, str) or not _HOST.fullmatch(value):
                return None
            if not value.replace(".", "").isdigit():
                return value
            with suppress(ValueError):
                if not ipaddress.IPv4Address(value).is_multicast:
                    return value
            return None

        return self.read(key, accept, 'an IPv4 address or a host name, such as "203.0.113.5"')

    def multicast(self, key: str, missing: str = "") -> str | None:
        """Return an IPv4 multicast address."""
        expected = "an IPv4 multicast address, 224.0.0.0 to 239.255.255.255"
        return self._ipv4(key, expected, multicast=True, missing=missing)

    def _ipv4(self, key: str, expected: str, *, multicast: bool, missing: str = "") -> str | None:
        def accept(value: object) -> str | None:
            with suppress(ValueError):
                if isinstance(value, str) and ipaddress.IPv4Address(value).is_multicast is multicast:
                    return value
            return None

        return self.read(key, accept, expected, missing=missing)

    def table(self, key: str) -> Fields:
        """Return a table under this one; if absent, an empty one that is not `given`."""
        value, label = self.raw(key), f"[{'.'.join(map(str, self.at(key)))}]"
        is_table = isinstance(value, dict)
        if value is not None and not is_table:
            self.report.add(self.at(key), f"{key} is {show(value)}; it must be a table, written {label}")
        found = type(self)(self.report, self.at(key), value if isinstance(value, dict) else {}, label, given=is_table)
        self._parts.append(found)
        return found

    def tables(self, key: str, missing: str = "") -> list[Fields]:
        """Return the tables of an array of tables; if absent, empty, which is a problem with `missing`."""
        value, label = self.raw(key), f"[[{'.'.join(map(str, self.at(key)))}]]"
        value = [] if value is None else value
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            self.report.add(self.at(key), f"{key} must be an array of tables; write each one as {label}")
            return []
        if missing and not value:
            self.report.add((), missing)
        found = [
            type(self)(self.report, (*self.path, key, i), item, f"{label} {i + 1}") for i, item in enumerate(value)
        ]
        self._parts += found
        return found

    def names_of_keys(self) -> tuple[str, ...]:
        """Return all keys of a table that has names as keys."""
        return tuple(self._table)

    def subtables(self) -> list[tuple[str, Fields]]:
        """Return all tables under this one by key, for a table that has names as keys."""
        found = []
        for key in self._table:
            if not _NAME.fullmatch(key):
                self.raw(key)
                label = f"[{'.'.join(map(str, self.path))}.{show(key)}]"
                self.report.add(self.at(key), f"{label}: a name must have up to 64 letters, digits, dashes or dots")
            elif (fields := self.table(key)).given:
                found.append((key, fields))
        return found

    def finish(self) -> None:
        """Report unknown keys, in this table and in those under it."""
        for key in self._table:
            if key not in self._asked:
                hint = did_you_mean(key, sorted(self._asked))
                where = f" in {self.label}" if self.path else ""
                self.report.add(self.at(key), f"unknown key {show(key)}{where}{hint}")
        for part in self._parts:
            part.finish()


def known(**values: Any) -> dict[str, Any]:
    """Return the values that are not None: arguments of a dataclass that has the defaults of the file."""
    return {key: value for key, value in values.items() if value is not None}


def is_int(value: object) -> TypeGuard[int]:
    """Return whether a TOML value is an integer (in Python, true and false are integers too)."""
    return isinstance(value, int) and not isinstance(value, bool)


def did_you_mean(value: object, options: Iterable[str]) -> str:
    """Return '; did you mean "tokyo"?' if one of the options is similar, else an empty string."""
    if not isinstance(value, str):
        return ""
    by_lower = {option.lower(): option for option in sorted(options)}
    close = difflib.get_close_matches(value[:_TEXT_LIMIT].lower(), by_lower, n=1)
    return f'; did you mean "{by_lower[close[0]]}"?' if close else ""


def show(value: object) -> str:
    """Return a TOML value for a message: short, on one line, without terminal control characters."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        cut = value if len(value) <= 60 else value[:57] + "..."
        return '"' + "".join(c if c.isprintable() else ascii(c)[1:-1] for c in cut) + '"'
    if isinstance(value, int) and abs(value) >= 10**30:
        return "a huge number"
    if isinstance(value, list):
        return "an array"
    if isinstance(value, dict):
        return "a table"
    return str(value)


def _is_number(value: object) -> bool:
    return is_int(value) or isinstance(value, float)


def _amount(value: object, units: Mapping[str, int]) -> Decimal | None:
    return parse_amount(value, units) if isinstance(value, str) else None

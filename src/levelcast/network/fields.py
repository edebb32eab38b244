"""Reading one table of the network file: each value checked for kind and range, each problem with its line.

A `Fields` never raises: it reports a problem and hands back the default, so that one reading finds all
problems. The keys that were asked for are the keys that exist: `finish` reports every other one.
"""

from __future__ import annotations

import difflib
import ipaddress
import math
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeGuard

from levelcast.network.toml_lines import KeyPath, LineNumbers
from levelcast.units import BYTES_PER_UNIT, NS_PER_AGE_UNIT, NS_PER_UNIT, RATE_PER_UNIT, parse_amount, show_ns

LONGEST_NS = 3_600_000_000_000
_TEXT_LIMIT = 200
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)


class Problem(NamedTuple):
    """One thing that is wrong with a network file, and the line (from 1) where."""

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
        """Report a problem at the line of `path`; the same one twice counts once."""
        problem = Problem(self._lines.of(path), message, self._lines.file_of(path))
        if problem not in self.problems:
            self.problems.append(problem)

    def line_of(self, path: KeyPath) -> int:
        """The line where `path` stands."""
        return self._lines.of(path)

    def file_of(self, path: KeyPath) -> str:
        """The included file where `path` stands; empty for the network file itself."""
        return self._lines.file_of(path)


class Fields:
    """One table, its place in the file, and what to call it in a message."""

    def __init__(self, report: ProblemReport, path: KeyPath, table: dict[str, object], label: str) -> None:
        self.report = report
        self.path = path
        self.label = label
        self._table = table
        self._asked: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return key in self._table

    def at(self, key: str) -> KeyPath:
        """The path of a key, for a message."""
        return (*self.path, key)

    def problem(self, key: str, message: str) -> None:
        """Report a problem with one key of this table."""
        self.report.add(self.at(key), f"{self.label} {message}")

    def text(self, key: str) -> str:
        """Free text for people; empty if absent."""
        value = self._ask(key)
        if value is None:
            return ""
        if not isinstance(value, str) or len(value) > _TEXT_LIMIT:
            self.problem(key, f"has {key} = {show(value)}: it must be a text of up to {_TEXT_LIMIT} characters")
            return ""
        return value

    def name(self, key: str = "name", pattern: re.Pattern[str] = _NAME, expected: str = "") -> str | None:
        """A required name: letters, digits, dots, dashes and underscores, so that it can name a file too."""
        value = self._ask(key)
        if value is None:
            self.problem(key, f"has no {key}")
        elif not isinstance(value, str) or not pattern.fullmatch(value):
            expected = expected or 'up to 64 letters, digits, "-", "_" or ".", and no blank'
            self.problem(key, f"has {key} = {show(value)}: it must be {expected}")
        else:
            return value
        return None

    def names(self, key: str, limit: int) -> tuple[str, ...]:
        """An optional array of different ASCII texts without blanks."""
        value = self._ask(key)
        if value is None:
            return ()
        if not isinstance(value, list):
            self.problem(key, f"has {key} = {show(value)}: it must be an array of texts")
            return ()
        found: dict[str, None] = {}
        for index, item in enumerate(value):
            where = (*self.path, key, index)
            if not isinstance(item, str) or not re.fullmatch(rf"[!-~]{{1,{limit}}}", item, re.ASCII):
                self.report.add(
                    where,
                    f"{self.label} has {show(item)} in {key}: "
                    f"each must be a text of 1 to {limit} visible ASCII characters",
                )
            elif item in found:
                self.report.add(where, f"{self.label} has {show(item)} twice in {key}")
            else:
                found[item] = None
        return tuple(found)

    def choice(self, key: str, options: tuple[str, ...], default: str) -> str:
        """One of a few words."""
        value = self._ask(key)
        if value is None:
            return default
        if isinstance(value, str) and value in options:
            return value
        listed = " or ".join(f'"{option}"' for option in options)
        hint = did_you_mean(value, options)
        self.problem(key, f"has {key} = {show(value)}: it must be {listed}{hint}")
        return default

    def flag(self, key: str, default: bool) -> bool:
        """true or false."""
        value = self._ask(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.problem(key, f"has {key} = {show(value)}: it must be true or false")
            return default
        return value

    def whole(self, key: str, low: int, high: int) -> int | None:
        """A whole number from low to high, both included."""
        value = self._ask(key)
        if value is None:
            return None
        if is_int(value) and low <= value <= high:
            return value
        self.problem(key, f"has {key} = {show(value)}: it must be a whole number from {low} to {high}")
        return None

    def ratio(self, key: str) -> float | None:
        """A number from 0 to 1."""
        value = self._ask(key)
        if value is None:
            return None
        if (is_int(value) or isinstance(value, float)) and 0 <= value <= 1:
            return float(value)
        hint = ""
        if (is_int(value) or isinstance(value, float)) and math.isfinite(value) and 1 < value <= 100:
            hint = f"; for {show(value)} percent write {value / 100:g}"
        self.problem(key, f"has {key} = {show(value)}: it must be a ratio from 0 to 1{hint}")
        return None

    def duration(self, key: str, *, zero: bool = False) -> int | None:
        """A duration in nanoseconds, from a text such as "35.5ms"."""
        value = self._ask(key)
        if value is None:
            return None
        amount = parse_amount(value, NS_PER_UNIT) if isinstance(value, str) else None
        if amount is None:
            hint = f'; a number needs its unit: "{show(value)}ms"?' if _is_number(value) else ""
            self.problem(
                key,
                f"has {key} = {show(value)}: it must be a duration with a unit (ns, us, ms, s, min), "
                f'such as "50ms"{hint}',
            )
            return None
        ns = int(amount.to_integral_value())
        if ns < 0:
            self.problem(key, f"has {key} = {show(value)}: a duration cannot be negative")
        elif not ns and not zero:
            self.problem(key, f"has {key} = {show(value)}: it must be more than nothing")
        elif ns > LONGEST_NS:
            self.problem(key, f"has {key} = {show(value)}: that is longer than {show_ns(LONGEST_NS)}")
        else:
            return ns
        return None

    def age(self, key: str) -> int | None:
        """A long time in nanoseconds, from a text such as "7d"."""
        return self._amount(key, NS_PER_AGE_UNIT, 'an age with a unit (s, min, h, d), such as "7d"')

    def size(self, key: str) -> int | None:
        """A number of bytes, from a text such as "10GB"."""
        return self._amount(key, BYTES_PER_UNIT, 'a size with a unit (kB, MB, GB, TB, MiB ...), such as "10GB"')

    def bit_rate(self, key: str) -> int | None:
        """Bytes a second, from a number of bits a second such as "56kbit"."""
        return self._amount(key, RATE_PER_UNIT, 'bits a second with a unit (kbit, Mbit, Gbit), such as "56kbit"')

    def _amount(self, key: str, units: Mapping[str, int], expected: str) -> int | None:
        value = self._ask(key)
        if value is None:
            return None
        amount = int((isinstance(value, str) and parse_amount(value, units)) or 0)
        if amount > 0:
            return amount
        self.problem(key, f"has {key} = {show(value)}: it must be {expected}")
        return None

    def address(self, key: str) -> str | None:
        """An IPv4 address of one machine."""
        value = self._ask(key)
        if value is None:
            return None
        try:
            if isinstance(value, str) and not ipaddress.IPv4Address(value).is_multicast:
                return value
        except ValueError:
            pass
        self.problem(key, f'has {key} = {show(value)}: it must be an IPv4 address of this machine, such as "127.0.0.1"')
        return None

    def multicast(self, key: str) -> str | None:
        """An IPv4 multicast address."""
        value = self._ask(key)
        if value is None:
            return None
        try:
            if isinstance(value, str) and ipaddress.IPv4Address(value).is_multicast:
                return value
        except ValueError:
            pass
        self.problem(
            key,
            f"has {key} = {show(value)}: it must be an IPv4 multicast address, 224.0.0.0 to 239.255.255.255",
        )
        return None

    def raw(self, key: str) -> object:
        """A value as it is, for the caller to check; None if absent."""
        return self._ask(key)

    def table(self, key: str, label: str) -> Fields | None:
        """A table under this one; None if absent."""
        value = self._ask(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            self.report.add(self.at(key), f"{key} is {show(value)}: it must be a table, written {label}")
            return None
        return Fields(self.report, self.at(key), value, label)

    def tables(self, key: str, label: str) -> list[Fields]:
        """The tables of an array of tables; empty if absent."""
        value = self._ask(key)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            self.report.add(self.at(key), f"{key} must be an array of tables: write each one as {label}")
            return []
        return [Fields(self.report, (*self.path, key, i), item, f"{label} {i + 1}") for i, item in enumerate(value)]

    def names_of_keys(self) -> tuple[str, ...]:
        """All keys, for a table whose keys are names."""
        return tuple(self._table)

    def subtables(self) -> list[tuple[str, Fields]]:
        """All tables under this one by their keys, for a table whose keys are names."""
        found = []
        for key, value in self._table.items():
            self._asked.add(key)
            label = f"[{'.'.join(str(part) for part in self.path)}.{key if _NAME.fullmatch(key) else show(key)}]"
            if not _NAME.fullmatch(key):
                self.report.add(self.at(key), f"{label}: a name has up to 64 letters, digits, dashes or dots")
            elif not isinstance(value, dict):
                self.report.add(self.at(key), f"{key} is {show(value)}: it must be a table, written {label}")
            else:
                found.append((key, Fields(self.report, self.at(key), value, label)))
        return found

    def finish(self) -> None:
        """Report the keys that nobody asked for."""
        for key in self._table:
            if key not in self._asked:
                hint = did_you_mean(key, sorted(self._asked))
                where = f" in {self.label}" if self.path else ""
                self.report.add(self.at(key), f"unknown key {show(key)}{where}{hint}")

    def _ask(self, key: str) -> object:
        self._asked.add(key)
        return self._table.get(key)


def is_int(value: object) -> TypeGuard[int]:
    """Whether a TOML value is an integer (Python counts true and false among them)."""
    return isinstance(value, int) and not isinstance(value, bool)


def did_you_mean(value: object, options: Iterable[str]) -> str:
    """'; did you mean "tokyo"?' if one of the options is close, else nothing."""
    if not isinstance(value, str):
        return ""
    by_lower = {option.lower(): option for option in sorted(options)}
    close = difflib.get_close_matches(value[:_TEXT_LIMIT].lower(), by_lower, n=1)
    return f'; did you mean "{by_lower[close[0]]}"?' if close else ""


def show(value: object) -> str:
    """A TOML value for a message: short, on one line, nothing in it that a terminal would obey."""
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

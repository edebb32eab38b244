"""Merge included files into a network file, so that measurements are separate from configuration.

    include = ["measured.toml"]

An included file may have `[links]`, `[helpers]`, the numbers of `[timing]` that follow from a network (late, request,
attempts, hold), and `[measured]`, which describes the measurement. The including file has precedence, key by key and
pair by pair, then the later of two included files. A path is relative to the including file. Included files cannot
include others, so cycles are impossible.

The tables are merged before they are read, and `MergedTables` records the origin of each value, so that each problem
is reported with its own file and line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from levelcast.network.fields import Problem, show
from levelcast.network.keys import NONE, FileKey, FileTable
from levelcast.network.toml_lines import KeyPath, LineNumbers

KEY = "include"
MAY_SET = {
    "links": ("delay", "jitter", "loss", "pairs"),
    "timing": ("late", "request", "attempts", "hold"),
    "helpers": (),
    "measured": ("network", "at", "quantile"),
}
"""Tables of an included file and their keys; keys of [helpers] are sites."""
MOST_FILES = 16
TABLES = (
    FileTable(
        "",
        (
            FileKey(
                KEY,
                "files with measured values ([included files](network-file.md#included-files)); first line of the file",
                NONE,
                f"array of up to {MOST_FILES} paths",
            ),
        ),
    ),
    FileTable(
        "[measured]",
        (
            FileKey("network", "`name` of the measured network; another one is rejected", NONE, "text"),
            FileKey("at", "time of the measurement", NONE, "text"),
            FileKey("quantile", "quantile of the delay", NONE, "number"),
        ),
        "only in included files",
    ),
)

Table = dict[str, object]
ReadToml = Callable[[str, str], tuple[Table, LineNumbers]]


@dataclass(frozen=True, slots=True)
class Included:
    """An included file, and the amount of it that is used: keys that the including file sets are ignored."""

    file: str
    pairs: int
    helpers: int
    timing: tuple[str, ...]
    about: str
    """Time of the measurement, as text; empty if not specified."""


class MergedTables(LineNumbers):
    """The file and line of each path of merged tables."""

    def __init__(self, own: LineNumbers) -> None:
        self._own = own
        self._elsewhere: dict[KeyPath, tuple[LineNumbers, str, KeyPath]] = {}

    def of(self, path: KeyPath) -> int:
        lines, _, inside = self._found(path)
        return lines.of(inside)

    def file_of(self, path: KeyPath) -> str:
        return self._found(path)[1]

    def put(self, path: KeyPath, lines: LineNumbers, file: str, inside: KeyPath) -> None:
        """Record that the value at `path` is from `inside` of another file."""
        self._elsewhere[path] = (lines, file, inside)

    def _found(self, path: KeyPath) -> tuple[LineNumbers, str, KeyPath]:
        for length in range(len(path), 0, -1):
            known = self._elsewhere.get(path[:length])
            if known is not None:
                lines, file, inside = known
                return lines, file, inside + path[length:]
        return self._own, "", path


@dataclass(slots=True)
class _File:
    name: str
    root: Table
    lines: LineNumbers
    problems: list[Problem]

    def problem(self, path: KeyPath, message: str) -> None:
        self.problems.append(Problem(self.lines.of(path), message, self.name))

    def place(self, merged: MergedTables, *path: str) -> None:
        """Record that the value at `path` of the merged tables is from this file."""
        merged.put(path, self.lines, self.name, path)


def merge(
    root: Table, lines: LineNumbers, directory: Path | None, read_toml: ReadToml
) -> tuple[Table, MergedTables, tuple[Included, ...], list[Problem]]:
    """Return the merged tables, the origin of every value, the included files, and the problems of including."""
    merged = MergedTables(lines)
    own = _File("", root, lines, [])
    files = [
        file
        for place, name in enumerate(_names(own, directory))
        if (file := _read(name, own, place, directory or Path(), read_toml)) is not None
    ]
    sites = {name for site in _tables(root.get("site")) if isinstance(name := site.get("name"), str)}
    title = _table(root.get("network")).get("name")
    result = dict(root)
    result.pop(KEY, None)
    for file in files:
        _check(file, sites, title)
    taken = _pairs(result)
    # The later file has precedence, so it is added first; existing values stay.
    counts = [_add(result, file, merged, taken) for file in reversed(files)]
    return result, merged, tuple(reversed(counts)), own.problems


def _names(own: _File, directory: Path | None) -> list[str]:
    listed: Any = own.root.get(KEY, [])
    path: KeyPath = (KEY,)
    if not isinstance(listed, list) or not all(isinstance(each, str) and each for each in listed):
        what = 'include must be an array of files, such as ["measured.toml"]'
    elif directory is None and KEY in own.root:
        what = "include is supported only in a file"
    elif len(listed) > MOST_FILES:
        what = f"include has {len(listed)} files; the maximum is {MOST_FILES}"
    elif twice := [place for place, name in enumerate(listed) if name in listed[:place]]:
        path, what = (KEY, twice[0]), f"include has {show(listed[twice[0]])} twice"
    else:
        return listed
    own.problem(path, what)
    return []


def _read(name: str, own: _File, place: int, directory: Path, read_toml: ReadToml) -> _File | None:
    path = directory / name
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        why = "not UTF-8 text" if isinstance(error, UnicodeDecodeError) else _why(error)
        own.problem((KEY, place), f"include has {show(name)}, which cannot be read: {why}")
        return None
    file = _File(str(path), *read_toml(text, str(path)), own.problems)
    for table, value in file.root.items():
        if table == KEY:
            file.problem((KEY,), "an included file cannot include others")
        elif table not in MAY_SET:
            what = f"[{table}] cannot be included; only [links], [helpers], [timing] and [measured] can"
            file.problem((table,), what)
        elif not isinstance(value, dict):
            file.problem((table,), f"{table} must be a table, written [{table}]")
        elif may := MAY_SET[table]:
            for key in value.keys() - set(may):
                what = f"{show(key)} of [{table}] cannot be included; only {', '.join(may)} can"
                file.problem((table, key), what)
    return file


def _why(error: OSError | ValueError) -> str:
    if isinstance(error, FileNotFoundError):
        return "file not found; create it with levelcast matrix -o"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _check(file: _File, sites: set[str], title: object) -> None:
    """Report a file that was measured for another network as one problem, not pair by pair."""
    told = _table(file.root.get("measured")).get("network")
    if isinstance(told, str) and isinstance(title, str) and told and title and told != title:
        what = f"this was measured for the network {show(told)}, but the including file is for {show(title)}"
        file.problem(("measured", "network"), what)
        return
    strangers: dict[str, KeyPath] = {}
    for place, pair in enumerate(_tables(_table(file.root.get("links")).get("pairs"))):
        ends = pair.get("between")
        for end in ends if isinstance(ends, list) else ():
            if isinstance(end, str) and end not in sites:
                strangers.setdefault(end, ("links", "pairs", place, "between"))
    for site, helpers in _table(file.root.get("helpers")).items():
        for each in (site, *(helpers if isinstance(helpers, list) else ())):
            if isinstance(each, str) and each not in sites:
                strangers.setdefault(each, ("helpers", site))
    if strangers:
        first, path = next(iter(strangers.items()))
        others = len(strangers) - 1
        whose = f"site {show(first)} and {others} more of this file are" if others else f"site {show(first)} is"
        what = f"{whose} not defined in a [[site]] of the network; levelcast matrix --network writes only defined sites"
        file.problem(path, what)


def _add(result: Table, file: _File, merged: MergedTables, taken: dict[frozenset[object], str]) -> Included:
    """Add the values of a file that are not set yet."""
    for table in ("links", "timing", "helpers"):
        if table in file.root and table not in result:
            file.place(merged, table)
    added = {table: _add_keys(result, file, merged, table) for table in ("timing", "helpers", "links")}
    pairs = _add_pairs(result, file, merged, taken)
    about = _table(file.root.get("measured"))
    told = ", ".join(f"{key} {about[key]}" for key in ("at", "quantile") if key in about)
    return Included(file.name, pairs, len(added["helpers"]), tuple(added["timing"]), told)


def _add_keys(result: Table, file: _File, merged: MergedTables, table: str) -> list[str]:
    """Add the keys of a table that are not set yet, except pairs of links; return them."""
    theirs = _table(file.root.get(table))
    ours = result.get(table, {})
    if not theirs or not isinstance(ours, dict):
        return []
    new = [key for key, value in theirs.items() if key not in ours and (key != "pairs" or not isinstance(value, list))]
    result[table] = ours | {key: theirs[key] for key in new}
    for key in new:
        file.place(merged, table, key)
    return new


def _add_pairs(result: Table, file: _File, merged: MergedTables, taken: dict[frozenset[object], str]) -> int:
    """Add the pairs of links that are not set yet; return their number."""
    ours, listed = _table(result.get("links")), _list(_table(file.root.get("links")).get("pairs"))
    pairs = ours.get("pairs", [])
    if not listed or not isinstance(pairs, list):
        return 0
    kept = [
        (place, pair)
        for place, pair in enumerate(listed)
        if (ends := _ends(pair)) is None or taken.setdefault(ends, file.name) == file.name
    ]
    for number, (place, _) in enumerate(kept, len(pairs)):
        merged.put(("links", "pairs", number), file.lines, file.name, ("links", "pairs", place))
    result["links"] = ours | {"pairs": pairs + [pair for _, pair in kept]}
    return len(kept)


def _pairs(root: Table) -> dict[frozenset[object], str]:
    """Return the pairs of the including file, each with an empty file name."""
    listed = _list(_table(root.get("links")).get("pairs"))
    return {ends: "" for pair in listed if (ends := _ends(pair)) is not None}


def _ends(pair: object) -> frozenset[object] | None:
    ends = _table(pair).get("between")
    return frozenset(ends) if isinstance(ends, list) and all(isinstance(end, str) for end in ends) else None


def _table(value: object) -> Table:
    return value if isinstance(value, dict) else {}


def _tables(value: object) -> Iterable[Table]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else ()

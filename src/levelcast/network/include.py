"""Files that a network file includes: what was measured, kept apart from what was decided.

    include = ["measured.toml"]

An included file may have `[links]`, `[helpers]`, the numbers of `[timing]` that follow from a network (late, request,
attempts, hold), and `[measured]`, which says what it is. The file that includes wins, key by key and pair by pair; of
two included files the later one. A path is relative to the file that includes. Included files include nothing, so
there are no cycles.

The tables are merged before they are read, and `MergedTables` remembers where each value stands, so that whatever is
wrong is told with its own file and line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from levelcast.network.fields import Problem, show
from levelcast.network.toml_lines import KeyPath, LineNumbers

KEY = "include"
MAY_SET = {
    "links": ("delay", "jitter", "loss", "pairs"),
    "timing": ("late", "request", "attempts", "hold"),
    "helpers": (),
    "measured": ("network", "at", "quantile"),
}
"""The tables of an included file and their keys; those of [helpers] are sites."""
MOST_FILES = 16

Table = dict[str, object]
ReadToml = Callable[[str, str], tuple[Table, LineNumbers]]


@dataclass(frozen=True, slots=True)
class Included:
    """An included file, and how much of it counts: what the including file says itself is left out."""

    file: str
    pairs: int
    helpers: int
    timing: tuple[str, ...]
    about: str
    """When it was measured, for people; empty if it does not say."""


class MergedTables(LineNumbers):
    """Where each path of merged tables stands: in which file, and on which line."""

    def __init__(self, own: LineNumbers) -> None:
        self._own = own
        self._elsewhere: dict[KeyPath, tuple[LineNumbers, str, KeyPath]] = {}

    def of(self, path: KeyPath) -> int:
        lines, _, inside = self._found(path)
        return lines.of(inside)

    def file_of(self, path: KeyPath) -> str:
        return self._found(path)[1]

    def put(self, path: KeyPath, lines: LineNumbers, file: str, inside: KeyPath) -> None:
        """What is at `path` now stands at `inside` of another file."""
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


def merge(
    root: Table, lines: LineNumbers, directory: Path | None, read_toml: ReadToml
) -> tuple[Table, MergedTables, tuple[Included, ...], list[Problem]]:
    """The tables with what the included files add, where all of it stands, and what is wrong with the including."""
    merged = MergedTables(lines)
    problems: list[Problem] = []
    files = [
        file
        for place, name in enumerate(_names(root, lines, directory, problems))
        if (file := _read(name, lines.of((KEY, place)), directory or Path(), read_toml, problems)) is not None
    ]
    sites = {name for site in _tables(root.get("site")) if isinstance(name := site.get("name"), str)}
    title = _table(root.get("network")).get("name")
    result = dict(root)
    result.pop(KEY, None)
    for file in files:
        _check(file, sites, title, problems)
    taken = _pairs(result)
    # The later file wins, so it is asked first; what is there already stays.
    counts = [_add(result, file, merged, taken) for file in reversed(files)]
    _lay_out_pairs(result, merged)
    return result, merged, tuple(reversed(counts)), problems


def _names(root: Table, lines: LineNumbers, directory: Path | None, problems: list[Problem]) -> list[str]:
    listed = root.get(KEY)
    if listed is None:
        return []
    if not isinstance(listed, list) or not all(isinstance(each, str) and each for each in listed):
        problems.append(Problem(lines.of((KEY,)), 'include must be an array of files, such as ["measured.toml"]'))
        return []
    if directory is None:
        problems.append(Problem(lines.of((KEY,)), "include needs a file of its own: this text is none"))
        return []
    if len(listed) > MOST_FILES:
        problems.append(Problem(lines.of((KEY,)), f"include has {len(listed)} files, {MOST_FILES} at most"))
        return []
    for place, name in enumerate(listed):
        if name in listed[:place]:
            problems.append(Problem(lines.of((KEY, place)), f"include names {show(name)} twice"))
            return []
    return listed


def _read(name: str, line: int, directory: Path, read_toml: ReadToml, problems: list[Problem]) -> _File | None:
    path = directory / name
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        why = "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else _why(error)
        problems.append(Problem(line, f"include names {show(name)}, which cannot be read: {why}"))
        return None
    shown = str(path)
    root, lines = read_toml(text, shown)
    if KEY in root:
        problems.append(Problem(lines.of((KEY,)), "an included file includes nothing itself", shown))
    for table, value in root.items():
        if table == KEY:
            continue
        if table not in MAY_SET:
            what = f"[{table}] cannot be included: only [links], [helpers], [timing] and [measured] can"
            problems.append(Problem(lines.of((table,)), what, shown))
        elif not isinstance(value, dict):
            problems.append(Problem(lines.of((table,)), f"{table} must be a table, written [{table}]", shown))
        elif MAY_SET[table]:
            for key in value:
                if key not in MAY_SET[table]:
                    may = ", ".join(MAY_SET[table])
                    what = f"{show(key)} of [{table}] cannot be included: only {may} can"
                    problems.append(Problem(lines.of((table, key)), what, shown))
    return _File(shown, root, lines)


def _why(error: OSError | ValueError) -> str:
    if isinstance(error, FileNotFoundError):
        return "there is no such file; levelcast matrix -o writes one"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _check(file: _File, sites: set[str], title: object, problems: list[Problem]) -> None:
    """A file that was measured for another network is told in one sentence, not pair by pair."""
    told = _table(file.root.get("measured")).get("network")
    if isinstance(told, str) and isinstance(title, str) and told and title and told != title:
        line = file.lines.of(("measured", "network"))
        what = f"this was measured for the network {show(told)}, and the file that includes it is {show(title)}"
        problems.append(Problem(line, what, file.name))
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
        what = f"{whose} in no [[site]] of the network: levelcast matrix --network writes only those that are"
        problems.append(Problem(file.lines.of(path), what, file.name))


def _add(result: Table, file: _File, merged: MergedTables, taken: dict[frozenset[object], str]) -> Included:
    """Add what is not there yet."""
    for table in ("links", "timing", "helpers"):
        if table in file.root and table not in result:
            merged.put((table,), file.lines, file.name, (table,))
    added: dict[str, list[str]] = {"timing": [], "helpers": []}
    for table, keys in added.items():
        theirs = _table(file.root.get(table))
        ours = dict(_table(result.get(table)))
        for key, value in theirs.items():
            if key not in ours:
                ours[key] = value
                merged.put((table, key), file.lines, file.name, (table, key))
                keys.append(key)
        if table in result or theirs:
            result[table] = ours if isinstance(result.get(table, {}), dict) else result[table]
    pairs = _add_links(result, file, merged, taken)
    about = _table(file.root.get("measured"))
    told = ", ".join(f"{key} {about[key]}" for key in ("at", "quantile") if key in about)
    return Included(file.name, pairs, len(added["helpers"]), tuple(added["timing"]), told)


def _add_links(result: Table, file: _File, merged: MergedTables, taken: dict[frozenset[object], str]) -> int:
    theirs = _table(file.root.get("links"))
    if not theirs or not isinstance(result.get("links", {}), dict):
        return 0
    ours = dict(_table(result.get("links")))
    for key, value in theirs.items():
        if key != "pairs" and key not in ours:
            ours[key] = value
            merged.put(("links", key), file.lines, file.name, ("links", key))
    count = 0
    listed = theirs.get("pairs")
    if listed is not None and not isinstance(listed, list):
        ours.setdefault("pairs", listed)  # whoever reads it says what is wrong
        merged.put(("links", "pairs"), file.lines, file.name, ("links", "pairs"))
    elif isinstance(ours.get("pairs", []), list):
        kept: list[object] = []
        for place, pair in enumerate(listed or ()):
            ends = _ends(pair)
            if ends is not None and taken.get(ends, file.name) != file.name:
                continue
            if ends is not None:
                taken[ends] = file.name
            kept.append(_Placed(pair, file, place))
        count = len(kept)
        ours["pairs"] = [*_list(ours.get("pairs")), *kept]
    result["links"] = ours
    return count


@dataclass(slots=True)
class _Placed:
    """A pair of an included file, until all are in their place."""

    pair: object
    file: _File
    place: int


def _lay_out_pairs(result: Table, merged: MergedTables) -> None:
    links = result.get("links")
    if not isinstance(links, dict) or not isinstance(links.get("pairs"), list):
        return
    pairs = links["pairs"]
    for place, each in enumerate(pairs):
        if isinstance(each, _Placed):
            pairs[place] = each.pair
            merged.put(("links", "pairs", place), each.file.lines, each.file.name, ("links", "pairs", each.place))


def _pairs(root: Table) -> dict[frozenset[object], str]:
    """The pairs that the including file has itself; its name is the empty one."""
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

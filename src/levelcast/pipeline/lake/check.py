"""Examine a whole lake: its files, the keys of its tables, and whether it has every row once.

| kind | meaning | `--repair` |
|---|---|---|
| `damaged` | a file of the table is missing, truncated or unreadable | no: restore it from a backup |
| `orphan` | a data file that no commit knows, of a writer that was killed | no: `compact` removes it after a day |
| `key` | rows with the same key; equal in all columns, or different | removes equal ones; recomputes derived tables |
| `duplicate` | all rows of a file are in another one too | removes the file's rows |
| `overlap` | some rows of a file are in another one too | removes them from one of the two |
| `hole` | rows that the marks of the lake promise are not there | no |
| `unfinished` | a table has rows that `tape` lacks: a load was interrupted | no: repeat the load |

The caller holds the locks of the lake, so that a file that is being written is not taken for an orphan.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from levelcast.extras import arrow
from levelcast.pipeline.lake.defaults import LakeError
from levelcast.pipeline.lake.duplicates import ORIGIN, Origin, Overlap, QueryEngine, overlaps
from levelcast.pipeline.lake.files import File
from levelcast.pipeline.lake.lake import Lake
from levelcast.pipeline.lake.log import log_actions
from levelcast.pipeline.lake.tables import TABLES

OF_KIND = {"trade": "trades", "quote": "quotes", "order": "orders"}
RECORDED = ("tape", *OF_KIND.values())
DERIVED = ("bars", "bbo", "trade_throughs", "last_prices", "venue_share", "rates", "rate_fit")
"""Tables that are computed by day, with unique keys."""
FILE_MARK = "file/"
_SHOWN = 3

Names = Mapping[Origin, Mapping[str, Any]]
Counts = dict[Origin, int]


@dataclass(frozen=True, slots=True)
class Keys:
    """The sequences of an origin in a table."""

    count: int
    first: int
    last: int


NO_KEYS = Keys(0, 1, 0)


@dataclass(frozen=True, slots=True)
class LakeFault:
    """A fault of a lake; `rows` is the number of rows or files concerned."""

    kind: str
    table: str
    says: str
    rows: int = 0


@dataclass(slots=True)
class LakeCheck:
    """The result of a check, with what a repair needs."""

    findings: list[LakeFault] = field(default_factory=list)
    overlaps: list[Overlap] = field(default_factory=list)
    repeated: dict[str, set[Origin]] = field(default_factory=lambda: defaultdict(set))
    """By table, origins with rows that have the same key and are equal."""
    stale: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """By derived table, days with rows of the same key."""
    data_rows: Counts = field(default_factory=Counter)
    """Trades, quotes and orders of each origin."""

    def add(self, kind: str, table: str, says: str, rows: int = 0) -> None:
        self.findings.append(LakeFault(kind, table, says, rows))


def check(lake: Lake, engine: QueryEngine, tell: Callable[[str], None] = lambda _: None) -> LakeCheck:
    """Return the faults of a lake. Raises LakeError if the log of a table cannot be read, or changes meanwhile."""
    before = _versions(lake)
    try:
        checked = _check(lake, engine, tell)
    except LakeError:
        _require_unchanged(lake, before)
        raise
    _require_unchanged(lake, before)
    return checked


def _versions(lake: Lake) -> dict[str, int]:
    return {name: lake.handle(name).version() for name in filter(lake.has, TABLES)}


def _require_unchanged(lake: Lake, before: Mapping[str, int]) -> None:
    """Raise LakeError if a table has another version than `before`: its writer does not use the locks of the lake."""
    changed = [name for name, version in _versions(lake).items() if before.get(name) != version]
    if changed:
        raise LakeError(
            f"{lake.directory / changed[0]}: another process wrote to this table during the check; stop it, and repeat "
            "the check"
        )


def _check(lake: Lake, engine: QueryEngine, tell: Callable[[str], None]) -> LakeCheck:
    checked = LakeCheck()
    files = {}
    for name in filter(lake.has, TABLES):
        tell(f"files of {name}")
        files[name] = _check_files(lake, name, checked)
    inputs = {
        Origin(int(row["stripe"]), int(row["first_sequence"])): row
        for row in (lake.rows("inputs") if files.get("inputs") else [])
        if f"{FILE_MARK}{row['rows_hash']}" in lake.all_marks("tape", FILE_MARK)
    }
    keys: dict[str, dict[Origin, Keys]] = {}
    for name in RECORDED:
        tell(f"keys of {name}")
        keys[name] = _check_keys(lake, engine, name, files.get(name, []), checked)
    _check_holes(lake, engine, files.get("tape", []), inputs, keys["tape"], checked)
    _check_kinds(lake, engine, files, keys, checked)
    for name in DERIVED:
        if files.get(name):
            tell(f"keys of {name}")
            _check_derived(lake, engine, name, files[name], checked)
    tell("comparing the rows of tape")
    _check_overlaps(lake, engine, files.get("tape", []), inputs, checked)
    return checked


def name_of(lake: Lake, origin: Origin, inputs: Names) -> str:
    """Return the name of the source of rows."""
    if origin in inputs:
        return str(inputs[origin]["file"])
    if origin.block:
        return f"a file that `inputs` lacks (stripe {origin.stripe}, sequences from {origin.block})"
    if origin.stripe in lake.tape_ends():
        return f"the tape of stripe {origin.stripe}"
    return f"an earlier load of stripe {origin.stripe}"


# -- files ------------------------------------------------------------------------------------------------


def _check_files(lake: Lake, name: str, checked: LakeCheck) -> list[File]:
    """Compare the files on disk with the log; return those that can be read."""
    root = lake.directory / name
    disk = {str(path.relative_to(root)): path for path in root.rglob("*.parquet") if "_delta_log" not in path.parts}
    files = lake.files(name)
    known = {file.path for file in files}
    for _, action in log_actions(root):
        known |= {unquote(action[what]["path"]) for what in ("add", "remove") if what in action}
    for path in sorted(disk.keys() - known):
        checked.add(
            "orphan",
            name,
            f"{root / path}: no commit knows this file; `levelcast pipeline compact` removes it after a day",
            1,
        )
    good = []
    for file in files:
        fault = _fault(lake, name, file)
        if fault is None:
            good.append(file)
        else:
            says = f"{root / file.path}: {fault}, with {file.rows:,} rows; restore it from a backup"
            checked.add("damaged", name, says, file.rows)
    return good


def _fault(lake: Lake, name: str, file: File) -> str | None:
    path = lake.directory / name / file.path
    if not path.exists():
        return "this file of the table is missing"
    if path.stat().st_size != file.bytes:
        return f"has {path.stat().st_size:,} bytes, but the log has {file.bytes:,}"
    try:
        rows = arrow("pyarrow.parquet").read_metadata(path).num_rows
    except (OSError, arrow().ArrowException):
        return "is not a Parquet file"
    return None if rows == file.rows else f"has {rows:,} rows"


# -- keys and holes ---------------------------------------------------------------------------------------


def _check_keys(
    lake: Lake, engine: QueryEngine, name: str, files: list[File], checked: LakeCheck
) -> dict[Origin, Keys]:
    """Find rows with the same stripe and sequence; return the different keys of each origin."""
    if not files:
        return {}
    sql = f"""
        select stripe, origin, count(*), count(distinct sequence), min(sequence), max(sequence)
        from (select stripe, {ORIGIN} as origin, sequence from {name} ) as keys group by stripe, origin
    """
    found = engine.rows(lake, name, files, sql)
    for stripe, block, rows, keys, _, _ in found:
        if rows == keys:
            continue
        origin = Origin(stripe, block)
        least, kinds = _repeated(lake, engine, name, files, origin)
        same = "equal" if kinds == 1 else "different, so a repair keeps both"
        says = f"stripe {stripe}: {rows - keys:,} rows repeat a sequence, the first is {least:,}; they are {same}"
        checked.add("key", name, says, rows - keys)
        if kinds == 1:
            checked.repeated[name].add(origin)
    return {Origin(stripe, block): Keys(*keys) for stripe, block, _, *keys in found}


def _repeated(lake: Lake, engine: QueryEngine, name: str, files: list[File], origin: Origin) -> tuple[int, int]:
    """Return the first repeated sequence of an origin, and into how many different rows one sequence falls."""
    table = TABLES[name]
    columns = [each.name for each in table.columns if each.name not in ("stripe", "sequence")]
    text = ", ".join(f"coalesce(cast({column} as string), '')" for column in columns)
    sql = f"""
        select min(sequence), max(kinds) from (
            select sequence, count(distinct {engine.hash}({text})) as kinds from {name}
            where stripe = {origin.stripe} and {ORIGIN} = {origin.block} group by sequence having count(*) > 1
        ) as repeated
    """
    ((least, kinds),) = engine.rows(lake, name, files, sql.replace(f"from {name}\n", f"from {name} \n"))
    return int(least), int(kinds)


def _check_holes(
    lake: Lake, engine: QueryEngine, files: list[File], inputs: Names, keys: Mapping[Origin, Keys], checked: LakeCheck
) -> None:
    """Compare the rows of `tape` with its marks, and with `inputs`."""
    ends = lake.tape_ends()
    for origin in sorted(keys.keys() | inputs.keys() | {Origin(stripe, 0) for stripe in ends}):
        have = keys.get(origin, NO_KEYS)
        if origin.block and origin not in inputs:
            checked.add("hole", "inputs", f"the rows of {name_of(lake, origin, inputs)} are in tape", have.count)
        elif origin in inputs:
            lacking = int(inputs[origin]["rows"]) - int(inputs[origin]["removed"]) - have.count
            if lacking > 0:
                before = [(1, have.first - origin.block - 1)] if have.first > origin.block + 1 else []
                gaps = (
                    _shown(before + _gaps(lake, engine, files, origin, origin.block)) if have.count else "all of them"
                )
                checked.add("hole", "tape", f"{inputs[origin]['file']}: {lacking:,} rows are missing ({gaps})", lacking)
        elif origin.stripe in ends:
            # A lake may begin after the start of the tape.
            end = ends[origin.stripe]
            lacking = end - have.first + 1 - have.count
            if lacking > 0:
                after = [(have.last + 1, end)] if have.last < end else []
                gaps = _shown(_gaps(lake, engine, files, origin, 0) + after)
                says = f"the tape of stripe {origin.stripe}: {lacking:,} records are missing ({gaps})"
                checked.add("hole", "tape", says, lacking)


def _gaps(lake: Lake, engine: QueryEngine, files: list[File], origin: Origin, base: int) -> list[tuple[int, int]]:
    """Return the first gaps between the sequences of an origin, counted from `base`."""
    sql = f"""
        select sequence + 1, following - 1 from (
            select sequence, lead(sequence) over (order by sequence) as following
            from (
                select distinct sequence from tape where stripe = {origin.stripe} and {ORIGIN} = {origin.block}
            ) as keys
        ) as pairs where following > sequence + 1 order by sequence limit {_SHOWN + 1}
    """
    return [(low - base, high - base) for low, high in engine.rows(lake, "tape", files, sql)] if files else []


def _shown(gaps: list[tuple[int, int]]) -> str:
    shown = [f"{low:,}" if low == high else f"{low:,} to {high:,}" for low, high in gaps[:_SHOWN]]
    return ", ".join(shown) + (", …" if len(gaps) > _SHOWN else "") if shown else "at the end"


def _check_kinds(
    lake: Lake,
    engine: QueryEngine,
    files: Mapping[str, list[File]],
    keys: Mapping[str, Mapping[Origin, Keys]],
    checked: LakeCheck,
) -> None:
    """Compare `trades`, `quotes` and `orders` with the rows of their kind in `tape` that are not in quarantine."""
    expected: dict[str, Counts] = {name: Counter() for name in OF_KIND.values()}
    for stripe, block, kind, rows in _by_kind(lake, engine, "tape", "sequence", "kind", files):
        if kind in OF_KIND:
            expected[OF_KIND[kind]][Origin(stripe, block)] += rows
            checked.data_rows[Origin(stripe, block)] += rows
    kind = " ".join(f"when raw like '%\"kind\":\"{each}\"%' then '{each}'" for each in OF_KIND)
    for stripe, block, found, rows in _by_kind(lake, engine, "quarantine", "position", f"case {kind} end", files):
        if found is not None:
            expected[OF_KIND[found]][Origin(stripe, block)] -= rows
    for name, wanted in expected.items():
        for origin in sorted(wanted.keys() | keys[name].keys()):
            more = keys[name].get(origin, NO_KEYS).count - wanted.get(origin, 0)
            if more < 0:
                checked.add("hole", name, f"stripe {origin.stripe}: lacks {-more:,} rows that tape has", -more)
            elif more > 0:
                says = f"stripe {origin.stripe}: has {more:,} rows that tape lacks; repeat the load"
                checked.add("unfinished", name, says, more)


def _by_kind(
    lake: Lake, engine: QueryEngine, name: str, sequence: str, kind: str, files: Mapping[str, list[File]]
) -> Iterator[tuple[int, int, str | None, int]]:
    """Yield the number of rows of each stripe, origin and kind."""
    if not files.get(name):
        return
    sql = f"""
        select stripe, origin, kind, count(distinct sequence) from (
            select stripe, {ORIGIN.replace("sequence", sequence)} as origin, {kind} as kind, {sequence} as sequence
            from {name} where stripe is not null
        ) as kinds group by stripe, origin, kind
    """
    yield from engine.rows(lake, name, files[name], sql)


def _check_derived(lake: Lake, engine: QueryEngine, name: str, files: list[File], checked: LakeCheck) -> None:
    key = ", ".join(TABLES[name].key)
    sql = f"""
        select cast(day as string), sum(copies - 1) from (
            select day, {", ".join(part for part in TABLES[name].key if part != "day") or "1"}, count(*) as copies
            from {name} group by day, {key} having count(*) > 1
        ) as repeated group by day order by day
    """.replace("group by day, day", "group by day")
    for day, rows in engine.rows(lake, name, files, sql):
        checked.add(
            "key", name, f"{day}: {int(rows):,} rows repeat a key; --repair has the next run compute the day", int(rows)
        )
        checked.stale[name].add(str(day))


# -- equal rows of several files --------------------------------------------------------------------------


def _check_overlaps(lake: Lake, engine: QueryEngine, files: list[File], inputs: Names, checked: LakeCheck) -> None:
    pairs: dict[tuple[Origin, Origin], list[Overlap]] = defaultdict(list)
    for each in overlaps(engine, lake, files, rows=checked.data_rows):
        pairs[each.keep, each.drop].append(each)
        checked.overlaps.append(each)
    for (keep, drop), found in pairs.items():
        shared = sum(each.rows for each in found)
        whole = shared == checked.data_rows[drop]
        days = found[0].day if len(found) == 1 else f"{found[0].day} to {found[-1].day}"
        part = "all" if whole else f"{shared:,} of {checked.data_rows[drop]:,}"
        says = f"{name_of(lake, drop, inputs)}: {part} rows ({days}) are also in {name_of(lake, keep, inputs)}"
        checked.add("duplicate" if whole else "overlap", "tape", says, shared)

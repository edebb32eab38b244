"""Remove duplicates that a check has found, and undo that.

A repair writes the files with duplicates again, without them. Each table gets one commit, which exchanges the files;
`tape` is the last, so an interrupted repair can be repeated. The replaced files stay on disk until `compact` removes
them, and the note `levelcast.repair` in the log names the commits of a repair. `undo` exchanges the files back.

In both cases the marks of derived days are set to 0, so that the next `levelcast pipeline run` computes them again.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt

from levelcast.extras import arrow
from levelcast.pipeline.lake.check import DERIVED, RECORDED, LakeCheck
from levelcast.pipeline.lake.defaults import LakeError
from levelcast.pipeline.lake.duplicates import Origin, QueryEngine, origin_of, shared_rows
from levelcast.pipeline.lake.files import File, describe, write_arrow
from levelcast.pipeline.lake.lake import Lake
from levelcast.pipeline.lake.log import CommitMark, log_actions
from levelcast.pipeline.lake.tables import TABLES

REPAIR = "levelcast.repair"
UNDO = "levelcast.undo"
_TABLES = ("inputs", "quarantine", *RECORDED[1:], "tape")
"""The tables that a repair changes, in the order of its commits."""
_DAY_MARK = "day/"

Ints = npt.NDArray[np.int64]
Kept = npt.NDArray[np.bool_]


@dataclass(slots=True)
class _Plan:
    """Rows to be removed: sequences by stripe, and origins whose repeated keys are reduced to one row, by table."""

    doomed: dict[int, Ints]
    repeated: Mapping[str, set[Origin]]
    removed: Counter[Origin] = field(default_factory=Counter)
    days: set[str] = field(default_factory=set)


def repair(
    lake: Lake, engine: QueryEngine, checked: LakeCheck, tell: Callable[[str], None] = lambda _: None
) -> dict[str, int]:
    """Remove the duplicates that a check has found; return the number of rows removed from each table."""
    plan = _Plan(_doomed(lake, engine, checked), checked.repeated)
    note = {REPAIR: str(time.time_ns())}
    kept: dict[str, dict[str, Kept]] = {}
    for name in filter(lake.has, _TABLES[1:]):
        tell(f"searching {name}")
        kept[name] = _kept_rows(lake, name, plan)
    done: dict[str, int] = {}
    if lake.has("inputs") and plan.removed:
        _recount(lake, plan.removed, note)
    for name in _TABLES[1:]:
        if kept.get(name):
            tell(f"writing {name}")
            done[name] = _remove(lake, name, kept[name], note)
    _forget_days(lake, {name: plan.days | checked.stale.get(name, set()) for name in DERIVED}, note)
    return done


def _doomed(lake: Lake, engine: QueryEngine, checked: LakeCheck) -> dict[int, Ints]:
    """Return the sequences to be removed from each stripe."""
    files = lake.files("tape")
    found: dict[int, list[Ints]] = defaultdict(list)
    shared: Counter[tuple[Origin, Origin]] = Counter()
    for each in checked.overlaps:
        shared[each.keep, each.drop] += each.rows
    for each in checked.overlaps:
        if shared[each.keep, each.drop] == checked.data_rows[each.drop] and each.drop.block:
            sequences = _all_of(lake, files, each.drop)  # its definitions and statuses too
        else:
            sequences = np.array(shared_rows(engine, lake, files, each), np.int64)
        found[each.drop.stripe].append(sequences)
    return {stripe: np.unique(np.concatenate(parts)) for stripe, parts in found.items()}


def _all_of(lake: Lake, files: Sequence[File], origin: Origin) -> Ints:
    low, high = origin.block, origin.block + (1 << (origin.block >> 57 & 31)) - 1
    parts = [np.zeros(0, np.int64)]
    for file in files:
        if file.stripe == origin.stripe and file.meets("sequence", low, high):
            values = _column(lake.directory / "tape" / file.path, "sequence")
            parts.append(values[(values >= low) & (values <= high)])
    return np.concatenate(parts)


def _column(path: Path, name: str) -> Ints:
    table = arrow("pyarrow.parquet").read_table(path, columns=[name], partitioning=None)
    values: Ints = table[name].to_numpy().astype(np.int64)
    return values


def _kept_rows(lake: Lake, name: str, plan: _Plan) -> dict[str, Kept]:
    """Return which rows remain of each file of a table with rows to be removed, by its path."""
    none: Ints = np.zeros(0, np.int64)
    repeated = plan.repeated.get(name, set())
    seen: dict[Origin, Ints] = {}
    found: dict[str, Kept] = {}
    for file in lake.files(name):
        path = lake.directory / name / file.path
        if name == "quarantine":
            whole = arrow("pyarrow.parquet").read_table(path, columns=["stripe", "position"], partitioning=None)
            stripes, values = whole["stripe"].fill_null(-1).to_numpy(), whole["position"].to_numpy()
            doomed = np.zeros(len(values), bool)
            for stripe, sequences in plan.doomed.items():
                doomed |= (stripes == stripe) & np.isin(values, sequences)
            drop = doomed
        elif file.stripe in plan.doomed or any(origin.stripe == file.stripe for origin in repeated):
            values = _column(path, "sequence")
            doomed = np.isin(values, plan.doomed.get(file.stripe, none))
            drop = doomed | _again(values, file.stripe, repeated, seen)
        else:
            continue
        if drop.any():
            found[file.path] = ~drop
            plan.days |= {file.day} if name in RECORDED else set()
        if name == "tape":
            plan.removed.update(origin_of(file.stripe, sequence) for sequence in values[doomed].tolist())
    return found


def _again(values: Ints, stripe: int, origins: set[Origin], seen: dict[Origin, Ints]) -> npt.NDArray[np.bool_]:
    """Return which rows repeat the key of a row before them, in this file or in an earlier one."""
    drop = np.zeros(len(values), bool)
    for origin in (each for each in origins if each.stripe == stripe):
        size = origin.block >> 57 & 31
        low, high = (origin.block, origin.block + (1 << size) - 1) if size else (0, (1 << 57) - 1)
        mine = np.flatnonzero((values >= low) & (values <= high))
        firsts = np.zeros(len(mine), bool)
        firsts[np.unique(values[mine], return_index=True)[1]] = True
        before = seen.get(origin, np.zeros(0, np.int64))
        repeats = ~firsts | np.isin(values[mine], before)
        drop[mine[repeats]] = True
        seen[origin] = np.concatenate((before, values[mine[~repeats]]))
    return drop


def _remove(lake: Lake, name: str, kept: Mapping[str, Kept], note: Mapping[str, str]) -> int:
    """Write files again with the rows that remain; return the number of rows removed."""
    return _rewrite(lake, name, lambda path, rows: rows.filter(arrow().array(kept[path])), kept, note)


def _recount(lake: Lake, removed: Counter[Origin], note: Mapping[str, str]) -> None:
    """Write `inputs` again with the number of removed rows."""

    def counted(_: str, table: Any) -> Any:
        rows = table.to_pylist()
        for row in rows:
            row["removed"] += removed[Origin(row["stripe"], row["first_sequence"])]
        return arrow().Table.from_pylist(rows, schema=TABLES["inputs"].arrow_schema())

    _rewrite(lake, "inputs", counted, {file.path for file in lake.files("inputs")}, note)


def _rewrite(
    lake: Lake, name: str, change: Callable[[str, Any], Any], paths: Collection[str], note: Mapping[str, str]
) -> int:
    """Replace files by changed ones in one commit; return the number of rows removed. One file is in memory at a
    time."""
    old = [file for file in lake.files(name) if file.path in paths]

    def write(stages: Mapping[str, Path], attempt: str) -> Mapping[str, list[File]]:
        made = []
        for number, file in enumerate(old):
            rows = arrow("pyarrow.parquet").read_table(lake.directory / name / file.path, partitioning=None)
            path = (stages[name] / file.path).with_name(f"{attempt}-{number:05}.parquet")
            made.append(write_arrow(TABLES[name], change(file.path, rows), path, stages[name]))
        return {name: made}

    with lake.staged_by([name], write) as new:
        lake.exchange(name, old, new[name], note)
        return sum(file.rows for file in old) - sum(file.rows for file in new[name])


def _forget_days(lake: Lake, days: Mapping[str, set[str]], note: Mapping[str, str]) -> None:
    """Set the marks of derived days to 0: the next refresh computes them again."""
    everything = set().union(*days.values())
    for name in filter(lake.has, (*DERIVED, "instruments", "venues")):
        names = ["tape"] if name not in DERIVED else [f"{_DAY_MARK}{day}" for day in days[name]]
        marks = [CommitMark(mark, 0) for mark, at in lake.marks(name, names).items() if at]
        if everything and marks:
            lake.exchange(name, [], [], note, marks)


# -- undoing ----------------------------------------------------------------------------------------------


def undo(lake: Lake) -> dict[str, int]:
    """Undo the last repair that was not undone; return the number of rows restored in each table."""
    repairs, undone = _repairs(lake)
    left = sorted(set(repairs) - undone, key=int)
    if not left:
        raise LakeError(f"{lake.directory}: has no repair to undo")
    versions = repairs[left[-1]]
    exchanged = {name: _files_of_commit(lake, name, version) for name, version in versions.items()}
    done = {}
    for name in (each for each in _TABLES if each in exchanged):
        now, back = exchanged[name]
        lake.exchange(name, now, back, {UNDO: left[-1]})
        done[name] = sum(file.rows for file in back) - sum(file.rows for file in now)
    days = {file.day for name in RECORDED if name in exchanged for file in exchanged[name][1]}
    _forget_days(lake, dict.fromkeys(DERIVED, days), {UNDO: left[-1]})
    return {name: rows for name, rows in done.items() if rows}


def _repairs(lake: Lake) -> tuple[dict[str, dict[str, int]], set[str]]:
    """Return the versions of each repair, by table, and the repairs that were undone."""
    repairs: dict[str, dict[str, int]] = defaultdict(dict)
    undone = set()
    for name in filter(lake.has, _TABLES):
        for version, action in log_actions(lake.directory / name):
            told = action.get("commitInfo", {})
            if REPAIR in told:
                repairs[told[REPAIR]][name] = version
            if UNDO in told:
                undone.add(told[UNDO])
    return repairs, undone


def _files_of_commit(lake: Lake, name: str, version: int) -> tuple[list[File], list[File]]:
    """Return the files that a repair has added and removed. Raises LakeError if they cannot be exchanged any more."""
    root = lake.directory / name
    actions = [action for at, action in log_actions(root) if at == version]
    added = {unquote(action["add"]["path"]) for action in actions if "add" in action}
    removed = [unquote(action["remove"]["path"]) for action in actions if "remove" in action]
    now = [file for file in lake.files(name) if file.path in added]
    if len(now) != len(added) or not all((root / path).exists() for path in removed):
        raise LakeError(
            f"{root}: the repair can no longer be undone, because its files were compacted or removed since; "
            "load the files again into a new lake"
        )
    parquet = arrow("pyarrow.parquet")
    return now, [describe(root / path, root, parquet.read_metadata(root / path)) for path in removed]

"""Read Delta's log of a table: its files, and the marks of its commits."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from levelcast.extras import arrow
from levelcast.pipeline.lake.defaults import LakeError
from levelcast.pipeline.lake.files import File

if TYPE_CHECKING:
    from deltalake import DeltaTable

REWRITE = "rewrite"
_FIELDS: dict[str, dict[str, type]] = {
    "commitInfo": {},
    "add": {"path": str, "size": int, "partitionValues": dict, "modificationTime": int, "dataChange": bool},
    "remove": {"path": str},
    "txn": {"appId": str, "version": int},
}
"""Required fields of the actions in a log."""


@dataclass(frozen=True, slots=True)
class CommitMark:
    """Mark of a commit: `name` changes from `before` to `to`. Without `before`, from any lower value."""

    name: str
    to: int
    before: int | None = None


@dataclass(frozen=True, slots=True)
class Commit:
    """Result of a write."""

    table: str
    version: int
    rows: int
    files: int
    bytes: int


def files_of(handle: DeltaTable) -> list[File]:
    files = []
    for row in arrow().table(handle.get_add_actions()).to_pylist():
        partition = {
            name: None if value is None else str(value) for name, value in (row.get("partition") or {}).items()
        }
        stats = {"minValues": row.get("min") or {}, "maxValues": row.get("max") or {}}
        size, rows = row["size_bytes"], row["num_records"] or 0
        files.append(File(row["path"], size, rows, partition, stats, row["modification_time"]))
    return sorted(files, key=lambda file: file.path)


def is_taken(handle: DeltaTable, marks: Sequence[CommitMark]) -> bool:
    """Return True if a mark is already set in the table."""
    for mark in marks:
        have = handle.transaction_version(mark.name)
        if mark.before is None:
            if have is not None and have >= mark.to:
                return True
        elif (have or 0) != mark.before:
            return True
    return False


def rewrite_mark(handle: DeltaTable) -> CommitMark:
    return CommitMark(REWRITE, (handle.transaction_version(REWRITE) or 0) + 1)


def commit_properties(marks: Sequence[CommitMark], note: Mapping[str, str] | None = None) -> Any:
    from deltalake.transaction import Transaction

    told = None if note is None else dict(note)
    transactions = [Transaction(mark.name, mark.to) for mark in marks]
    return delta().CommitProperties(custom_metadata=told, app_transactions=transactions)


class CommitMarks:
    """All marks of a table, from its log: the last checkpoint, and the commits since then, each read once."""

    def __init__(self, root: Path) -> None:
        self._log = root / "_delta_log"
        self._version = -1
        self._marks: dict[str, int] = {}

    def now(self) -> dict[str, int]:
        while True:
            self._read_commits()
            checkpoint = self._checkpoint()
            if checkpoint <= self._version:
                return self._marks
            self._read_checkpoint(checkpoint)  # at the start, or unread commits were removed

    def _read_commits(self) -> None:
        if self._version < 0 and self._checkpoint() >= 0:
            return
        while True:
            path = self._log / f"{self._version + 1:020}.json"
            try:
                with _log_file(path):
                    for line in path.read_text(encoding="utf-8").splitlines():
                        if line.startswith('{"txn"') and (told := _checked(json.loads(line)).get("txn")):
                            self._marks[told["appId"]] = told["version"]
            except FileNotFoundError:
                return
            self._version += 1

    def _checkpoint(self) -> int:
        path = self._log / "_last_checkpoint"
        try:
            with _log_file(path):
                return int(json.loads(path.read_text(encoding="utf-8"))["version"])
        except FileNotFoundError:
            return -1

    def _read_checkpoint(self, version: int) -> None:
        for path in sorted(self._log.glob(f"{version:020}.checkpoint*.parquet")):
            with _log_file(path):
                for row in arrow("pyarrow.parquet").read_table(path, columns=["txn"])["txn"].to_pylist():
                    if row is not None and row["appId"] is not None:
                        self._marks[row["appId"]] = row["version"]
        self._version = version


def log_actions(root: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the actions of the commits in a table's log, with their version, and the files of its checkpoints."""
    log = root / "_delta_log"
    for path in sorted(log.glob("*.checkpoint*.parquet")):
        with _log_file(path):
            rows = arrow("pyarrow.parquet").read_table(path, columns=["add.path", "remove.path"]).to_pylist()
        for row in rows:
            yield int(path.name[:20]), {name: value for name, value in row.items() if value and value["path"]}
    for path in sorted(log.glob("*.json")):
        if path.stem.isdecimal():
            with _log_file(path):
                lines = path.read_text(encoding="utf-8").splitlines()
                actions = [_checked(json.loads(line)) for line in lines if line]
                if not actions:
                    raise ValueError("a commit has at least one action")
            for action in actions:
                yield int(path.stem), action


def require_intact_log(root: Path) -> None:
    """Raise LakeError for a file of a table's log that is damaged or missing."""
    for _ in log_actions(root):
        pass
    log = root / "_delta_log"
    last = max((int(path.name[:20]) for path in log.glob("*.checkpoint*.parquet")), default=-1)
    commits = sorted(int(path.stem) for path in log.glob("*.json") if path.stem.isdecimal() and int(path.stem) > last)
    for expected, version in enumerate(commits, last + 1):
        if version != expected:
            path = log / f"{expected:020}.json"
            raise LakeError(f"{path}: this file of the table's log is missing; restore it from a backup")


def _checked(action: Any) -> dict[str, Any]:
    """Return an action with fields of the types that are read here. Raise ValueError for any other value."""
    if not isinstance(action, dict):
        raise ValueError("an action is an object")
    found = {kind: value for kind, value in action.items() if value is not None}
    for kind, fields in _FIELDS.items():
        value = found.get(kind, fields)
        if not isinstance(value, dict):
            raise ValueError(f"{kind} is an object")
        if kind in found and any(type(value.get(name)) is not type_ for name, type_ in fields.items()):
            raise ValueError(f"{kind} has a field of another type")
    return found


@contextmanager
def _log_file(path: Path) -> Iterator[None]:
    """Raise LakeError if a file of a log cannot be understood."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (ValueError, KeyError, TypeError, OSError, arrow().ArrowException):
        raise LakeError(f"{path}: this file of the table's log is damaged; restore it from a backup") from None


def commit_of(handle: DeltaTable, name: str, files: Sequence[File]) -> Commit:
    handle.update_incremental()
    rows, size = sum(file.rows for file in files), sum(file.bytes for file in files)
    return Commit(name, handle.version(), rows, len(files), size)


def delta() -> Any:
    """Return deltalake; raise LakeError with instructions if it is not installed."""
    try:
        import deltalake
    except ImportError:
        raise LakeError("deltalake is not installed; run pip install 'levelcast[spark]'") from None
    return deltalake

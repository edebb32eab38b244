"""Store tables in a directory with Delta's log, without a JVM package.

        LAKE/lake.json                                 type of this directory, and the version of its tables
        LAKE/trades/_delta_log/…                       log: the files of each version of the table
        LAKE/trades/day=2013-10-07/stripe=0/….parquet  files; those in no version are ignored
        LAKE/trades/_staging/…                         files that executors write, before they are moved

To write, the executors create Parquet files under `_staging`. The driver moves them to their final path and then
commits their list with one entry of the log, through the `deltalake` library. Files without an entry are not in the
table, so a crash at any time leaves the table as it was.

**Exactly once.** A commit contains *marks*: Delta's application transactions, each a name and an increasing number.
A batch with a mark that is already set is skipped. A tape's mark is `tape/STRIPE` with the last sequence, so any job,
with any receiver's tape, continues after it. Other input is marked by its content.

**Rewriting.** Compaction and corrections remove files. `deltalake` does not reject two commits that remove the same
file, so each contains the mark `rewrite` with the next number: of two that began at the same version only one succeeds,
and the other retries.

The directory must be on a file system that driver and executors share.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from levelcast.extras import arrow
from levelcast.pipeline.lake.defaults import KEEP_HOURS, TARGET_BYTES, LakeError
from levelcast.pipeline.lake.files import File, bins_of, highest, name_file, write_arrow, write_rows
from levelcast.pipeline.lake.log import (
    Commit,
    CommitMark,
    CommitMarks,
    commit_of,
    commit_properties,
    delta,
    files_of,
    is_taken,
    require_intact_log,
    rewrite_mark,
)
from levelcast.pipeline.lake.tables import LAKE_VERSION, TABLES, Table
from levelcast.pipeline.session import first_line

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession

MARKER = "lake.json"
LOCK = "lake.lock"
COMPACT_LOCK = "compact.lock"
STAGING = "_staging"
PROPERTY = "levelcast.schema"
TAPE_MARK = "tape/"
_TRIES = 10
_BINS_PER_COMMIT = 16

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class State:
    """Current state of a table."""

    name: str
    version: int
    files: int
    rows: int
    bytes: int
    marks: Mapping[str, int]
    days: tuple[str, ...]


class _Own(threading.local):
    """Log handles of one thread: the library's handles are not thread-safe."""

    def __init__(self) -> None:
        self.handles: dict[str, DeltaTable] = {}
        self.marks: dict[str, CommitMarks] = {}
        self.handed: set[str] = set()
        """Files passed to the log: after a later error, it may contain them."""


class Lake:
    """The tables of one directory. Each call updates its view of the log, as another process may write meanwhile; only
    new entries are read."""

    def __init__(self, directory: Path | str) -> None:
        self.directory = Path(directory).resolve()
        self._own = _Own()
        marker = self.directory / MARKER
        try:
            told = json.loads(marker.read_text(encoding="utf-8"))
            version = int(told["version"])
        except FileNotFoundError:
            raise LakeError(
                f"{directory}: not a lake; create one with `levelcast pipeline run --input PATH --lake DIR`"
            ) from None
        except (ValueError, KeyError, TypeError):
            raise LakeError(f"{marker}: damaged; restore it from a backup") from None
        if version > LAKE_VERSION:
            raise LakeError(
                f"{directory}: has version {version} of the tables, but this Levelcast supports {LAKE_VERSION}; "
                "use a newer version"
            )

    @classmethod
    def create(cls, directory: Path | str) -> Lake:
        """Return the lake in a directory; create it if the directory is new or empty."""
        delta()
        there = cls.at(directory)
        if there is not None:
            return there
        path = Path(directory)
        marker = path / MARKER
        with _disk(directory):
            path.mkdir(parents=True, exist_ok=True)
            unfinished = marker.with_suffix(".tmp")
            unfinished.write_text(json.dumps({"what": "Levelcast lake", "version": LAKE_VERSION}) + "\n")
            unfinished.replace(marker)
        return cls(directory)

    @classmethod
    def at(cls, directory: Path | str) -> Lake | None:
        """Return the lake in a directory; None if one can be created. Raises LakeError if neither is possible."""
        path = Path(directory)
        if (path / MARKER).exists():
            return cls(directory)
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise LakeError(f"{directory}: neither empty nor a lake; pass a directory that is new or empty")
        return None

    def check(self) -> None:
        """Raise LakeError if this Levelcast cannot read one of the tables."""
        for name in filter(self.has, TABLES):
            self.handle(name)

    @contextmanager
    def alone(self, lock: str = LOCK) -> Iterator[None]:
        """Lock the lake for one job; the lock of a killed job is released. Readers and compaction need not wait.
        Compaction has a lock of its own, because a check must wait for it."""
        with (self.directory / lock).open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise LakeError(f"{self.directory}: in use by another job; wait for it, or stop it") from None
            yield

    # -- reading

    def has(self, name: str) -> bool:
        return (self.directory / _known(name).name / "_delta_log").is_dir()

    def handle(self, name: str, version: int | None = None) -> DeltaTable:
        """Return the table's log at a version, or the current one."""
        lib = delta()
        if not self.has(name):
            raise LakeError(f"{self.directory}: has no table {name} yet")
        try:
            handle = self._own.handles.get(name) if version is None else None
            if handle is None:
                handle = lib.DeltaTable(str(self.directory / name), version=version)
            else:
                handle.update_incremental()
        except lib.exceptions.DeltaError as error:
            require_intact_log(self.directory / name)
            raise LakeError(
                f"{self.directory / name}: cannot be read ({first_line(error)}); restore its log from a backup"
            ) from None
        if version is None:
            self._own.handles[name] = handle
        told = handle.metadata().configuration.get(PROPERTY, "")
        if not told.isdecimal() or int(told) > LAKE_VERSION:
            raise LakeError(
                f"{self.directory / name}: has version {told or 'none'} of the schema, but this Levelcast supports "
                f"{LAKE_VERSION}; use a newer version"
            )
        return handle

    def files(self, name: str, version: int | None = None, days: Sequence[str] | None = None) -> list[File]:
        """Return the files of a version, or the current ones; none if the table does not exist."""
        if version is None and not self.has(name):
            return []
        return [file for file in files_of(self.handle(name, version)) if days is None or file.partition["day"] in days]

    def read(
        self, spark: SparkSession, name: str, version: int | None = None, days: Sequence[str] | None = None
    ) -> DataFrame:
        """Return a version of a table in Spark. The files are those of the version, regardless of later commits."""
        return self.read_files(spark, name, self.files(name, version, days))

    def read_files(self, spark: SparkSession, name: str, files: Sequence[File]) -> DataFrame:
        """Read only these files, staged or committed."""
        table, root = _known(name), self.directory / name
        if not files:
            return spark.createDataFrame([], table.ddl)
        paths = [str(root / file.path) for file in files]
        found = spark.read.schema(table.ddl).option("basePath", str(root)).parquet(*paths)
        return found.select(*table.names)

    def arrow(
        self,
        name: str,
        version: int | None = None,
        days: Sequence[str] | None = None,
        where: Sequence[tuple[str, str, Any]] = (),
        columns: Sequence[str] | None = None,
    ) -> Any:
        """Return a version of a table as a pyarrow table, optionally filtered, for example by `("price", ">", 0)`."""
        filters = [*where, *([] if days is None else [("day", "in", [date.fromisoformat(day) for day in days])])]
        handle, system = self.handle(name, version), arrow("pyarrow.fs")
        # deltalake's own file system calls Python from Arrow's threads: one that does so at exit aborts the process.
        files = system.SubTreeFileSystem(str(self.directory / name), system.LocalFileSystem())
        chosen = None if columns is None else [*columns]
        try:
            return handle.to_pyarrow_table(filters=filters or None, columns=chosen, filesystem=files)
        except (OSError, arrow().ArrowException, delta().exceptions.DeltaError) as error:
            raise LakeError(
                f"{self.directory / name}: cannot be read ({first_line(error)}); restore the file from a backup"
            ) from None

    def rows(
        self, name: str, days: Sequence[str] | None = None, where: Sequence[tuple[str, str, Any]] = ()
    ) -> list[Row]:
        """Return rows of a table as dictionaries; none if the table does not exist."""
        found: list[Row] = self.arrow(name, days=days, where=where).to_pylist() if self.has(name) else []
        return found

    def duckdb(self, name: str, version: int | None = None) -> str:
        """Return the FROM clause for DuckDB: `duckdb.sql(f"select * from {lake.duckdb('bars')}")`."""
        return self.duckdb_files(name, files_of(self.handle(name, version)))

    def duckdb_files(self, name: str, files: Sequence[File]) -> str:
        """Return the FROM clause for DuckDB with only these files, staged or committed."""
        table, root = _known(name), self.directory / name
        paths = [str(root / file.path).replace("'", "''") for file in files]
        if not paths:
            raise LakeError(f"{root}: has no rows yet")
        listed = ", ".join(f"'{path}'" for path in paths)
        if not table.partition:
            return f"read_parquet([{listed}], hive_partitioning = false)"
        sql_types = {"date": "DATE", "int": "INTEGER"}
        by_name = {column.name: column.type for column in table.columns}
        types = ", ".join(f"'{column}': {sql_types[by_name[column]]}" for column in table.partition)
        return f"read_parquet([{listed}], hive_partitioning = true, hive_types = {{{types}}})"

    def marks(self, name: str, wanted: Sequence[str]) -> dict[str, int]:
        """Return the value of each of these marks in a table; a mark that was never set is missing."""
        if not self.has(name):
            return {}
        handle = self.handle(name)
        found = {mark: handle.transaction_version(mark) for mark in wanted}
        return {mark: number for mark, number in found.items() if number is not None}

    def all_marks(self, name: str, prefix: str = "") -> dict[str, int]:
        """Return every mark of a table with a prefix. The library looks up single names only, so this reads the log."""
        if not self.has(name):
            return {}
        found = self._own.marks.setdefault(name, CommitMarks(self.directory / name)).now()
        return {mark: number for mark, number in found.items() if mark.startswith(prefix)}

    def tape_ends(self, name: str = "tape") -> dict[int, int]:
        """Return the last sequence of each stripe in a table."""
        return {int(mark.removeprefix(TAPE_MARK)): upto for mark, upto in self.all_marks(name, TAPE_MARK).items()}

    def newest_ns(self) -> dict[int, int]:
        """Return the time of the newest record of each stripe. Everything up to the minimum of them is loaded."""
        return highest(self.files("tape"), "ts_recv")

    def states(self) -> Iterator[State]:
        """Yield the state of every existing table."""
        for name in filter(self.has, TABLES):
            handle = self.handle(name)
            files = files_of(handle)
            days = sorted({day for file in files if (day := file.partition.get("day")) is not None})
            rows, size = sum(file.rows for file in files), sum(file.bytes for file in files)
            yield State(name, handle.version(), len(files), rows, size, self.all_marks(name), tuple(days))

    # -- writing

    def append(
        self, name: str, rows: DataFrame, marks: Sequence[CommitMark] = (), *, skip_empty: bool = False
    ) -> Commit | None:
        """Add rows; return None if one of the marks is already set."""
        if self.has(name) and is_taken(self.handle(name), marks):
            return None
        with self.staged(name, rows) as files:
            if skip_empty and not files:
                return None
            return self.land(name, files, marks)

    def append_arrow(self, name: str, rows: Any, marks: Sequence[CommitMark] = ()) -> Commit | None:
        """Add a small pyarrow table to a table without partitions, without Spark."""
        table = _known(name)

        def write(stages: Mapping[str, Path], attempt: str) -> Mapping[str, list[File]]:
            return {name: [write_arrow(table, rows, stages[name] / f"{attempt}.parquet", stages[name])]}

        with self.staged_by([name], write) as files:
            return self.land(name, files[name], marks)

    def land(
        self,
        name: str,
        files: Sequence[File],
        marks: Sequence[CommitMark] = (),
        replaces: Callable[[File], bool] | None = None,
    ) -> Commit | None:
        """Commit staged files, replacing others if given; leave no trace if a mark is already set."""
        for _ in range(_TRIES):
            handle = self._ensure(name)
            if is_taken(handle, marks):
                self._discard(name, files)
                return None
            old = [] if replaces is None else [file for file in files_of(handle) if replaces(file)]
            if self._commit(handle, files, old, marks if replaces is None else [*marks, rewrite_mark(handle)]):
                return commit_of(handle, name, files)
        raise LakeError(f"{self.directory / name}: too many concurrent writes; try again")

    def replace(
        self, name: str, rows: DataFrame, days: Sequence[str] | None = None, marks: Sequence[CommitMark] = ()
    ) -> Commit | None:
        """Replace all rows of a table (of these days), in one commit: a correction, or a refresh."""
        with self.staged(name, rows) as files:
            foreign = {file.partition.get("day") for file in files} - set(days) if days is not None else set()
            if foreign:
                self._discard(name, files)
                raise LakeError(f"{name}: rows of {sorted(map(str, foreign))[0]} do not belong to the days replaced")
            return self.land(name, files, marks, lambda file: days is None or file.partition["day"] in days)

    def exchange(
        self,
        name: str,
        old: Sequence[File],
        new: Sequence[File],
        note: Mapping[str, str],
        marks: Sequence[CommitMark] = (),
    ) -> None:
        """Replace files by others in one commit with a note, for jobs that hold the lock. Marks get any value."""
        handle = self.handle(name)
        for _ in range(_TRIES):
            if self._commit(handle, new, old, [*marks, rewrite_mark(handle)], note=note):
                return
            handle = self.handle(name)
        raise LakeError(f"{self.directory / name}: too many concurrent writes; try again")

    def compact(self, spark: SparkSession, name: str, target_bytes: int = TARGET_BYTES) -> tuple[int, int]:
        """Merge small files into few large ones, concurrently with readers and writers; return counts before and after.

        Uses Spark and not `deltalake`'s own optimize: that one omits marks from its commit, so a correction at
        the same time would restore rows.
        """
        before = self.files(name)
        bins = bins_of(before, target_bytes)
        for first in range(0, len(bins), _BINS_PER_COMMIT):
            self._merge(spark, name, bins[first : first + _BINS_PER_COMMIT])
        return len(before), len(self.files(name))

    def _merge(self, spark: SparkSession, name: str, bins: Sequence[Sequence[File]]) -> None:
        """Merge each bin of files into one file, in one commit."""
        root = self.directory / name
        old = [file for bin in bins for file in bin]
        parts = [self.read_files(spark, name, bin).coalesce(1) for bin in bins]
        with self.staged(name, reduce(lambda one, other: one.union(other), parts)) as files:
            if sum(file.rows for file in files) != sum(file.rows for file in old):
                raise LakeError(f"{root}: its files lack rows that the log records; restore them")
            for _ in range(_TRIES):
                handle = self.handle(name)
                if not {file.path for file in old} <= {file.path for file in files_of(handle)}:
                    break  # rewritten by another job meanwhile: discard our files
                if self._commit(handle, files, old, [rewrite_mark(handle)], data_change=False):
                    return
            self._discard(name, files)

    def clean(self, name: str, keep_hours: int = KEEP_HOURS) -> int:
        """Remove files that left the table longer ago, and those of crashed writers; return their number."""
        handle = self.handle(name)
        removed = handle.vacuum(retention_hours=keep_hours, dry_run=False, enforce_retention_duration=False, full=True)
        root = self.directory / name
        count = len(removed)
        limit = time.time() - keep_hours * 3600
        for attempt in (root / STAGING).glob("*"):
            if attempt.stat().st_mtime < limit:
                count += sum(1 for path in attempt.rglob("*.parquet"))
                shutil.rmtree(attempt, ignore_errors=True)
        return count

    def _ensure(self, name: str) -> DeltaTable:
        """Return the table; create it if it does not exist."""
        table, lib = _known(name), delta()
        if not self.has(name):
            with _disk(self.directory / name):
                lib.DeltaTable.create(
                    str(self.directory / name),
                    table.arrow_schema(),
                    mode="ignore",
                    partition_by=list(table.partition) or None,
                    name=name,
                    description=table.says,
                    configuration={PROPERTY: str(LAKE_VERSION)},
                    raise_if_key_not_exists=False,
                )
        return self.handle(name)

    @contextmanager
    def staged(self, name: str, rows: DataFrame) -> Iterator[list[File]]:
        """Write rows as uncommitted files at their final path; remove them if the block fails."""
        table = _known(name)

        def write(stage: Path, attempt: str) -> list[File]:
            write_rows(table, rows, stage)
            return [name_file(path, stage, attempt) for path in sorted(stage.rglob("*.parquet"))]

        with self.staged_by([name], lambda stages, attempt: {name: write(stages[name], attempt)}) as files:
            yield files[name]

    @contextmanager
    def staged_by(
        self, names: Sequence[str], write: Callable[[Mapping[str, Path], str], Mapping[str, Sequence[File]]]
    ) -> Iterator[dict[str, list[File]]]:
        """Stage files of several tables. `write` creates them from a folder for each table and a name for the attempt,
        the prefix of all file names. A file's path in its folder is its path in the table. Files that `write` does not
        return, such as those of a repeated task, are ignored."""
        attempt = uuid.uuid4().hex
        roots = {name: self.directory / _known(name).name for name in names}
        stages = {name: root / STAGING / attempt for name, root in roots.items()}
        placed: dict[str, list[File]] = {name: [] for name in names}
        try:
            with _disk(self.directory):
                for name, files in write(stages, attempt).items():
                    for file in (each for each in files if each.rows):
                        place = roots[name] / file.path
                        place.parent.mkdir(parents=True, exist_ok=True)
                        placed[name].append(file)
                        (stages[name] / file.path).rename(place)
            yield placed
        except BaseException:
            for name, files in placed.items():
                self._discard(name, [file for file in files if file.path not in self._own.handed])
            raise
        finally:
            self._own.handed -= {file.path for files in placed.values() for file in files}
            for stage in stages.values():
                shutil.rmtree(stage, ignore_errors=True)

    def _discard(self, name: str, files: Sequence[File]) -> None:
        for file in files:
            (self.directory / name / file.path).unlink(missing_ok=True)

    def _commit(
        self,
        handle: DeltaTable,
        add: Sequence[File],
        remove: Sequence[File],
        marks: Sequence[CommitMark],
        *,
        data_change: bool = True,
        note: Mapping[str, str] | None = None,
    ) -> bool:
        """Commit against the version of `handle`; return False if another commit since then conflicts. The log keeps
        the `note` with the commit."""
        from deltalake.transaction import AddAction, RemoveAction

        now_ms = time.time_ns() // 1_000_000
        actions: list[Any] = [
            AddAction(file.path, file.bytes, dict(file.partition), now_ms, data_change, json.dumps(dict(file.stats)))
            for file in add
        ]
        actions += [RemoveAction(file.path, data_change, now_ms, file.bytes, dict(file.partition)) for file in remove]
        self._own.handed |= {file.path for file in add}
        try:
            with _disk(handle.table_uri):
                handle.create_write_transaction(
                    actions,
                    "append",
                    handle.schema(),
                    partition_by=handle.metadata().partition_columns,
                    commit_properties=commit_properties(marks, note),
                )
        except delta().exceptions.CommitFailedError:
            self._own.handed -= {file.path for file in add}
            return False
        return True


def _known(name: str) -> Table:
    if name not in TABLES:
        raise LakeError(f"unknown table {name!r}; the tables are {', '.join(TABLES)}")
    return TABLES[name]


@contextmanager
def _disk(where: object) -> Iterator[None]:
    """Raise a full disk as one LakeError, from any library."""
    try:
        yield
    except LakeError:
        raise
    except Exception as error:
        text = str(error)
        full = isinstance(error, OSError) and error.errno == 28
        if not full and "No space left on device" not in text and "os error 28" not in text:
            raise
        raise LakeError(
            f"{where}: disk full, nothing of this batch was committed; free some space and repeat it"
        ) from None

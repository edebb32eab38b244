"""Run a sweep: many histories of a simulator, on Spark's executors or in local processes, one row each.

The caller defines a history: `work` accepts items (scenario, parameters as JSON, seed) and returns their rows. It is
pickled by name, so the executors need Levelcast but no state of the driver.

**Tasks.** The cost of a history depends mainly on its parameters. The first round runs one history of each point of
the grid. From then on, the measured CPU time of a point determines how many of its histories form a task of about
`TASK_S`. A round is a Spark job, and two rounds run at a time, so no core waits for the last task of a round.

**Nothing is lost.** Successful tasks return rows through the driver: a task that was tried twice counts once. Each
round is stored when it is finished, and stored histories are not run again. A history that crashes its process (C
fault, out of memory) fails its task four times. Its round is then divided until it is alone, and it becomes a row too.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from levelcast.errors import LevelcastError, UserError
from levelcast.extras import arrow
from levelcast.pipeline.lake.defaults import LakeError
from levelcast.pipeline.session import cancel_jobs, first_line, on_spark, parallelism

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from levelcast.pipeline.lake.lake import Lake
    from levelcast.pipeline.lake.tables import Table

Item = tuple[str, str, int]
Row = dict[str, Any]
Work = Callable[[Iterable[Item]], list[Row]]
Point = tuple[str, str]

TASK_S = 2.0
"""CPU seconds of a task: long compared with Spark's overhead, short compared with a round."""
LEAST_TASK_S = 0.1
TASKS_PER_CORE = 8
"""Minimum number of tasks per core; a small sweep gets shorter tasks for this."""
ROUNDS_S = (5.0, 10.0, 20.0, 40.0)
"""Length of the first rounds in seconds; the last value applies to all others."""
IN_FLIGHT = 2
_DIED = "its process crashed (C fault, or out of memory)"


def _sweeps() -> Table:
    """Return the table; imported late because tables need Arrow."""
    from levelcast.pipeline.lake.tables import SWEEPS

    return SWEEPS


class RoundFailed(LevelcastError):
    """A task failed permanently; the engine still runs."""


class SweepStopped(UserError):
    """The engine has failed."""


class SweepEngine(Protocol):
    """Execution of tasks."""

    @property
    def cores(self) -> int: ...

    def cancel(self) -> None:
        """Stop running tasks."""

    def run(self, tasks: Sequence[Sequence[Item]]) -> list[Row]:
        """Return the rows of all tasks. Raises RoundFailed if one of them fails permanently."""


# -- engines ----------------------------------------------------------------------------------------------


class SparkEngine:
    """Run tasks on Spark's executors."""

    def __init__(self, spark: SparkSession, work: Work) -> None:
        self._spark, self._work = spark, work

    @property
    def cores(self) -> int:
        """Return the cores of the executors that are available now."""
        return max(1, parallelism(self._spark))

    def cancel(self) -> None:
        cancel_jobs(self._spark)

    def run(self, tasks: Sequence[Sequence[Item]]) -> list[Row]:
        try:
            return [row for rows in on_spark(self._spark, self._work, tasks) for row in rows]
        except Exception as error:
            if not type(error).__module__.startswith(("pyspark", "py4j")):
                raise
            self._check_alive()
            raise RoundFailed(first_line(error)) from None

    def _check_alive(self) -> None:
        try:
            self._spark.range(1).count()
        except Exception as error:
            raise SweepStopped(
                f"Spark has stopped ({first_line(error)}); stored rows are kept, so repeat the command"
            ) from None


class ProcessEngine:
    """Run tasks in processes of this machine, without Spark."""

    def __init__(self, jobs: int, work: Work) -> None:
        self.cores, self._work = jobs, work
        self._pool = self._new_pool()

    def _new_pool(self) -> ProcessPoolExecutor:
        # Not forked: threads submit the rounds.
        return ProcessPoolExecutor(self.cores, mp_context=get_context("forkserver"))

    def run(self, tasks: Sequence[Sequence[Item]]) -> list[Row]:
        pool = self._pool
        try:
            return [row for rows in pool.map(self._work, tasks) for row in rows]
        except BrokenProcessPool as error:
            if self._pool is pool:
                self._pool = self._new_pool()
            raise RoundFailed(str(error)) from None

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    cancel = close


# -- running ----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class HistoryCosts:
    """Mean CPU time of the histories of each point, if known."""

    total: dict[Point, tuple[float, int]] = field(default_factory=dict)

    def add(self, row: Row) -> None:
        if row["cpu_s"] is not None:
            point = (row["scenario"], row["parameters"])
            seconds, count = self.total.get(point, (0.0, 0))
            self.total[point] = seconds + row["cpu_s"], count + 1

    def known(self, item: Item) -> bool:
        return item[:2] in self.total

    def of(self, item: Item) -> float:
        seconds, count = self.total.get(item[:2], (LEAST_TASK_S, 1))
        return max(seconds / count, 1e-4)


def cut(items: Sequence[Item], costs: HistoryCosts, task_s: float) -> list[list[Item]]:
    """Split items into tasks of about equal work, the longest first; each has histories of one point."""
    by_point: dict[Point, list[Item]] = {}
    for item in items:
        by_point.setdefault(item[:2], []).append(item)
    tasks: list[list[Item]] = []
    for each in by_point.values():
        size = max(1, round(task_s / costs.of(each[0])))
        pieces = -(-len(each) // size)
        tasks += [each[number::pieces] for number in range(pieces)]
    return sorted(tasks, key=lambda task: -costs.of(task[0]) * len(task))


def rounds(items: Sequence[Item], costs: HistoryCosts, cores_now: Callable[[], int]) -> Iterator[list[list[Item]]]:
    """Yield tasks, a round at a time, with current costs and cores for each. The first round has one history of each
    point."""
    first: dict[Point, Item] = {}
    for item in items:
        if not costs.known(item):
            first.setdefault(item[:2], item)
    if first:
        yield [[item] for item in first.values()]
    chosen = set(first.values())
    left = [item for item in items if item not in chosen]
    at, number = 0, 0
    while at < len(left):
        cores = cores_now()
        rest = sum(costs.of(item) for item in left[at:])
        task_s = min(TASK_S, max(LEAST_TASK_S, rest / cores / TASKS_PER_CORE))
        room = ROUNDS_S[min(number, len(ROUNDS_S) - 1)] * cores
        begin = at
        while at < len(left) and room > 0:
            room -= costs.of(left[at])
            at += 1
        yield cut(left[begin:at], costs, task_s)
        number += 1


def run(
    items: Sequence[Item], engine: SweepEngine, died: Callable[[Item, str], Row], costs: HistoryCosts
) -> Iterator[list[Row]]:
    """Yield rows of all items, as rounds finish."""
    waiting = rounds(items, costs, lambda: engine.cores)
    stopping = threading.Event()
    with ThreadPoolExecutor(IN_FLIGHT, thread_name_prefix="sweep") as pool:
        begun: set[Future[list[Row]]] = set()
        probing = any(not costs.known(item) for item in items)
        try:
            while True:
                while len(begun) < (1 if probing else IN_FLIGHT) and (tasks := next(waiting, None)) is not None:
                    begun.add(pool.submit(_round, engine, tasks, died, stopping))
                    if probing:
                        break
                if not begun:
                    return
                done, begun = wait(begun, return_when=FIRST_COMPLETED)
                probing = False
                for each in done:
                    rows = each.result()
                    for row in rows:
                        costs.add(row)
                    yield rows
        except BaseException:
            stopping.set()
            engine.cancel()
            raise


def _round(
    engine: SweepEngine, tasks: Sequence[Sequence[Item]], died: Callable[[Item, str], Row], stopping: threading.Event
) -> list[Row]:
    try:
        return engine.run(tasks)
    except RoundFailed:
        if stopping.is_set():
            raise
        items = [item for task in tasks for item in task]
        if len(items) == 1:
            return [died(items[0], _DIED)]
        half = len(items) // 2
        return [
            row for part in (items[:half], items[half:]) for row in _round(engine, [[i] for i in part], died, stopping)
        ]


# -- storage ----------------------------------------------------------------------------------------------


def table_of(rows: Sequence[Row], code: str) -> Any:
    """Return rows as an Arrow table with the columns of `sweeps`."""
    cast = {"long": int, "double": float, "string": str}
    shaped = []
    for row in rows:
        whole = {**row["figures"], **row, "code": code, "figures": json.dumps(row["figures"], default=float)}
        known = [(name, kind, whole.get(name)) for name, kind, *_ in _sweeps().columns]
        shaped.append({name: None if value is None else cast[kind](value) for name, kind, value in known})
    return arrow().Table.from_pylist(shaped, schema=_sweeps().arrow_schema())


def row_of(stored: dict[str, Any]) -> Row:
    """Convert a stored row back."""
    names = ("scenario", "parameters", "seed", "verdict", "broken", "cpu_s")
    return {**{name: stored[name] for name in names}, "figures": json.loads(stored["figures"])}


def key_of(row: Row) -> Item:
    return row["scenario"], row["parameters"], row["seed"]


class LakeStore:
    """The table `sweeps` of a lake: one commit per round."""

    def __init__(self, spark: SparkSession, lake: Lake) -> None:
        self._spark, self._lake = spark, lake

    def rows(self, code: str) -> list[Row]:
        """Return rows of this version of the code."""
        return [row_of(each) for each in self._lake.rows("sweeps", where=[("code", "=", code)])]

    def keep(self, rows: Sequence[Row], code: str) -> None:
        if rows:
            self._lake.append("sweeps", self._spark.createDataFrame(table_of(rows, code)).coalesce(1))

    def close(self) -> None:
        pass


class FileStore:
    """A Parquet file with the columns of `sweeps`; every write replaces the file atomically."""

    SHARE = 0.05
    """Maximum fraction of the time for writing the file before the end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._tables: list[Any] = []
        self._took_s = 0.0
        self._written = time.perf_counter()
        self._dirty = False
        if path.is_dir():
            raise LakeError(f"{path}: is a directory; pass a file, or a lake with --lake")
        if not path.absolute().parent.is_dir():
            raise LakeError(f"{path}: directory {path.absolute().parent} not found")
        if path.exists():
            parquet, schema = arrow("pyarrow.parquet"), _sweeps().arrow_schema()
            try:
                found = parquet.read_table(path)
            except (OSError, ValueError):
                raise LakeError(f"{path}: not a Parquet file; pass another one") from None
            if set(found.column_names) != set(schema.names):
                raise LakeError(f"{path}: not a table of a sweep; pass another file")
            self._tables.append(found.select(schema.names).cast(schema))

    def rows(self, code: str) -> list[Row]:
        return [row_of(row) for table in self._tables for row in table.to_pylist() if row["code"] == code]

    def keep(self, rows: Sequence[Row], code: str) -> None:
        if rows:
            self._tables.append(table_of(rows, code))
            self._dirty = True
        if self._took_s <= self.SHARE * (time.perf_counter() - self._written):
            self.close()

    def close(self) -> None:
        if not self._dirty:
            return
        begun = time.perf_counter()
        unfinished = self._path.with_name(f".{self._path.name}.{os.getpid()}.tmp")
        whole = arrow().concat_tables(self._tables).sort_by([(name, "ascending") for name in _sweeps().key])
        try:
            arrow("pyarrow.parquet").write_table(whole, unfinished, compression="zstd")
            unfinished.replace(self._path)
        finally:
            unfinished.unlink(missing_ok=True)
        self._tables, self._dirty, self._written = [whole], False, time.perf_counter()
        self._took_s = self._written - begun


RowStore = LakeStore | FileStore
"""Storage of rows."""


@dataclass(slots=True)
class Swept:
    """Result of a sweep."""

    rows: list[Row]
    ran: int
    """Rows computed now; the others were stored before."""


def sweep(
    items: Sequence[Item],
    engine: SweepEngine,
    store: RowStore,
    code: str,
    died: Callable[[Item, str], Row],
    tell: Callable[[int, int], None] = lambda done, bad: None,
) -> Swept:
    """Run items that are not stored, store them, and return the rows of all items. `tell` gets the progress."""
    wanted = dict.fromkeys(items)
    have = {key: row for row in store.rows(code) if (key := key_of(row)) in wanted}
    costs = HistoryCosts()
    for row in have.values():
        costs.add(row)
    todo = [item for item in wanted if item not in have]
    bad = sum(row["verdict"] != "held" for row in have.values())
    tell(len(have), bad)
    try:
        for rows in run(todo, engine, died, costs):
            store.keep(rows, code)
            have |= {key_of(row): row for row in rows}
            bad += sum(row["verdict"] != "held" for row in rows)
            tell(len(have), bad)
    finally:
        store.close()
    return Swept([have[item] for item in wanted], len(todo))

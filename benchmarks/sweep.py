"""A sweep on Spark against the same histories in processes: growth, memory, and what each stage's tasks took.

    python -m benchmarks.sweep --histories 10000

Histories of the scenario `ring`, once a tenth of them and once all, on `local[2]` and by `levelcast sim --jobs 2` in
the same run. The memory is the peak of the whole family of processes, Java, Python's workers and the driver, what they
share counted once. The stages are those of Spark's event log: all rounds of the sweep together; the JSON has each.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.campaign import conduct
from benchmarks.cluster import environment
from benchmarks.processes import run_watched
from benchmarks.report import Cell, Figure, Options, Result, Table, tell

HISTORIES, QUICK_HISTORIES = 1_000, 40
GROWTH = 10
CORES = 2
SCENARIO = "ring"
_PROGRAM = """
import json, sys, time
from pathlib import Path
from levelcast.pipeline.session import spark_session
from benchmarks.stages import log_settings
from levelcast.pipeline.sweep.run import FileStore, SparkEngine, sweep
from levelcast.sim.history_rows import as_text, code_version, crashed, run_items
from levelcast.sim.parameters import complete

count, cores, place = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
items = [("ring", as_text(complete("ring", {})), seed) for seed in range(count)]
with spark_session(f"local[{cores}]", "sweep", log_settings(place / "log")) as spark:
    spark.range(1).count()
    begun = time.perf_counter()
    found = sweep(items, SparkEngine(spark, run_items), FileStore(place / "rows.parquet"), code_version(), crashed)
    took = time.perf_counter() - begun
bad = [row for row in found.rows if row["verdict"] != "held"]
told = {"seconds": took, "cpu_s": sum(row["cpu_s"] for row in found.rows),
        "broken": [f"seed {row['seed']} {row['verdict']}: {row['broken']}" for row in bad],
        "events": sum(row["figures"]["events"] for row in found.rows)}
(place / "told.json").write_text(json.dumps(told))
"""


def run(options: Options, histories: int | None = None) -> Result:
    """Both sizes, on Spark and in processes."""
    from levelcast.pipeline.session import SparkMissing, require_spark

    result = Result("sweep")
    try:
        require_spark()
    except SparkMissing as error:
        result.notes.append(f"{error}; nothing was measured")
        return result
    largest = histories or (QUICK_HISTORIES if options.quick else HISTORIES)
    rows: list[tuple[Cell, ...]] = []
    stage_rows: list[tuple[Cell, ...]] = []
    for count in (max(1, largest // GROWTH), largest):
        with TemporaryDirectory(prefix="sweep-") as folder:
            place = Path(folder)
            tell(f"sweep: {count:,} histories on Spark")
            spark = _on_spark(count, place)
            tell(f"sweep: {spark['seconds']:.1f} s; {count:,} histories in processes")
            plain = _in_processes(count)
            assert spark["events"] == plain["events"], "Spark's histories are not those of `levelcast sim`"
            stage_rows.append(_stages(place / "log", count, result))
        tell(f"sweep: {plain['seconds']:.1f} s")
        seconds = spark["seconds"]
        rows.append(
            (f"{count:,}", seconds, plain["seconds"], seconds / plain["seconds"], count / seconds,
             spark["cpu_s"] / seconds / CORES, spark["peak"] / 2**20, plain["peak"] / 2**20, len(spark["broken"]))
        )  # fmt: skip
        result.notes += spark["broken"]
    result.tables.append(
        Table(
            f"{SCENARIO}, {CORES} cores",
            ("histories", "Spark s", "sim --jobs s", "price", "per s", "busy", "Spark MB", "sim MB", "broken"),
            rows,
        )
    )
    columns = ("histories", "rounds", "tasks", "median s", "worst s", "all tasks s", "worst/all")
    result.tables.append(Table("tasks of all rounds", columns, stage_rows))
    small, large = rows
    result.figures.append(
        Figure("a sweep on Spark", float(large[1]), "s", "levelcast sim --jobs 2, same seeds", float(large[2]))
    )
    result.figures.append(
        Figure(f"growth from 1 to {GROWTH}", float(large[1]) / float(small[1]), "times", "linear", float(GROWTH))
    )
    return result


def _on_spark(count: int, place: Path) -> dict[str, Any]:
    command = [sys.executable, "-c", _PROGRAM, str(count), str(CORES), str(place)]
    with (place / "log.txt").open("wb") as log:
        ran = run_watched(command, log, log, environment())
    if ran.code:
        raise RuntimeError((place / "log.txt").read_text(errors="replace")[-2000:])
    told: dict[str, Any] = json.loads((place / "told.json").read_text())
    return told | {"peak": ran.peak_bytes}


def _in_processes(count: int) -> dict[str, Any]:
    seeds = f"0..{count - 1}"
    command = [sys.executable, "-m", "levelcast", "sim", "--scenario", SCENARIO, "--seeds", seeds]
    with TemporaryDirectory(prefix="sim-") as folder:
        out = Path(folder) / "out.json"
        with out.open("wb") as file:
            ran = run_watched([*command, "--jobs", str(CORES), "--json"], file, subprocess.DEVNULL, environment())
        if ran.code not in (0, 1):
            raise RuntimeError(f"levelcast sim failed with {ran.code}")
        told = json.loads(out.read_text())
    return {"seconds": told["wall_seconds"], "events": told["events"], "peak": ran.peak_bytes}


def _stages(log: Path, count: int, result: Result) -> tuple[Cell, ...]:
    from benchmarks.stages import stages

    found = stages(log)[1:]  # the first one only wakes Spark up
    result.more[f"stages of {count}"] = [each._asdict() for each in found]
    total, worst = sum(each.total_s for each in found), max(each.worst_s for each in found)
    middle = median(each.median_s for each in found)
    return f"{count:,}", len(found), sum(each.tasks for each in found), middle, worst, total, worst / total


def main(arguments: Sequence[str] | None = None) -> int:
    """The same, with a size of one's own."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sweep", description=run.__doc__)
    parser.add_argument("--histories", type=int, default=HISTORIES, help="the larger size (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Options().out, help="where the JSON goes (default: %(default)s)")
    chosen = parser.parse_args(arguments)
    options = Options(out=chosen.out)
    return conduct(lambda: (run(options, chosen.histories), True), options)


if __name__ == "__main__":
    raise SystemExit(main())

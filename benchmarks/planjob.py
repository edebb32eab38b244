"""The channel plan job at a million flows: from the tables of a lake to a plan with costs, on Spark.

    python -m benchmarks.planjob --flows 1000000

TH's model (§5.1) with a hundredth as many users as flows, each of whom wants two of ten markets and 1 % of each, is put
into a lake: `rates` has several intervals of a day for every flow, `subscriptions` every pair of user and flow, all by
name. Then `levelcast plan from-lake` runs as a process of its own, at a tenth of the size and at the whole of it, with
either engine where one process may plan so many pairs. Spark reads the lake for both. Memory is that of the process and
all below it, what they share counted once; times by stage are from Spark's event log.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.campaign import conduct
from benchmarks.processes import run_watched
from benchmarks.report import Cell, Figure, Options, Result, Table, tell
from levelcast.extras import arrow
from levelcast.planner.generator import Model, generate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from levelcast.pipeline.lake.lake import Lake

FLOWS, QUICK_FLOWS = 1_000_000, 20_000
GROWTH = 10
USERS_SHARE = 100
INTERVALS = 4
SPARK, LOCAL = "spark", "local"
GROUPS, SESSIONS = 50, 1000
DAY = "2026-11-16"
STAGES = 12
"""So many of the longest stages are shown."""


def fill(spark: SparkSession, lake: Lake, flows: int, seed: int = 0) -> int:
    """Rates and subscriptions of one draw of the model; how many pairs there are."""
    from pyspark.sql import functions as f

    instance = generate(Model(flows=flows, users=max(20, flows // USERS_SHARE)), seed)
    pa, parquet = arrow(), arrow("pyarrow.parquet")
    with TemporaryDirectory(prefix="planjob-", dir=lake.directory.parent) as folder:
        numbers = Path(folder) / "rates.parquet"
        messages = np.maximum(1, np.round(instance.rates * 100_000)).astype(np.int64)
        parquet.write_table(pa.table({"flow": np.arange(flows), "messages": messages}), str(numbers))
        rows = spark.read.parquet(str(numbers)).select(
            _name("S", "flow").alias("symbol"),
            f.explode(f.sequence(f.lit(36_000), f.lit(36_000 + 300 * (INTERVALS - 1)), f.lit(300))).alias("start_s"),
            "messages",
            f.lit(300).alias("seconds"),
            (f.col("messages") / 300).alias("rate"),
            f.lit(DAY).cast("date").alias("day"),
        )
        lake.append("rates", rows)
        pairs = Path(folder) / "pairs"
        pairs.mkdir()
        for part, (user, flow) in enumerate(_parts(instance)):
            parquet.write_table(pa.table({"user": user, "flow": flow}), str(pairs / f"{part}.parquet"))
        wants = spark.read.parquet(str(pairs))
        lake.append("subscriptions", wants.select(_name("u", "user").alias("user"), _name("S", "flow").alias("flow")))
    return len(instance.users)


def _name(letter: str, column: str) -> Any:
    from pyspark.sql import functions as f

    return f.concat(f.lit(letter), f.col(column).cast("string"))


def _parts(instance: Any, size: int = 4_000_000) -> Iterator[tuple[Any, Any]]:
    """Pairs of user and flow, some millions at a time."""
    for begin in range(0, len(instance.users), size):
        end = min(begin + size, len(instance.users))
        flow = np.searchsorted(instance.start, np.arange(begin, end), side="right") - 1
        yield instance.users[begin:end], flow


def plan(lake: Path, base: Path, engine: str, master: str) -> tuple[dict[str, Any], float, int]:
    """The job as a process: its report, the wall time of the whole command, and the memory of its family."""
    command = [sys.executable, "-m", "benchmarks.planjob", "--job", str(lake), str(base / engine), engine, master]
    with TemporaryFile() as told:
        ran = run_watched(command, told)
        if ran.code:
            raise RuntimeError(f"the job ended with code {ran.code}")
        told.seek(0)
        return json.load(told), ran.seconds, ran.peak_bytes


def job(lake: Path, out: Path, engine: str, master: str) -> None:
    """What `levelcast plan from-lake --engine ENGINE` does, with Spark's event log switched on."""
    from benchmarks.stages import log_settings
    from levelcast.pipeline.channels import job as channels_job
    from levelcast.pipeline.lake.lake import Lake
    from levelcast.pipeline.session import spark_session

    tables = Lake(lake)
    asked = channels_job.PlanRequest(sessions=SESSIONS, groups=GROUPS, spark=engine == SPARK)
    with spark_session(master, "levelcast plan", log_settings(out / "log")) as spark:
        made = channels_job.execute(spark, tables, asked)
        channels_job.write(made, out / "plan")
        channels_job.record(spark, tables, made)
    print(json.dumps(made.report))


def _stages(log: Path, size: int) -> Table:
    from benchmarks.stages import stages

    found = sorted(sorted(stages(log), key=lambda stage: -stage.total_s)[:STAGES])
    rows: list[tuple[Cell, ...]] = [
        (f"{each.id} {each.name}", each.tasks, each.total_s, each.median_s, each.worst_s,
         each.worst_s / max(each.median_s, 1e-3))
        for each in found
    ]  # fmt: skip
    heads = ("stage", "tasks", "all tasks", "median task", "worst task", "worst / median")
    return Table(f"stages of {size:,} flows with the longest time, s; the maximum task and the median", heads, rows)


def run(options: Options, flows: int | None = None, master: str = "local[2]") -> Result:
    """Both sizes."""
    from levelcast.pipeline.session import SparkMissing, require_spark, spark_session

    result = Result("planjob")
    try:
        require_spark()
    except SparkMissing as error:
        result.notes.append(f"{error}; nothing was measured")
        return result
    from levelcast.pipeline.channels.job import LOCAL_PAIRS
    from levelcast.pipeline.lake.lake import Lake

    largest = flows or (QUICK_FLOWS if options.quick else FLOWS)
    options.out.mkdir(parents=True, exist_ok=True)
    rows: list[tuple[Cell, ...]] = []
    with TemporaryDirectory(prefix="planjob-", dir=options.out) as folder:
        for size in (largest // GROWTH, largest):
            base = Path(folder) / str(size)
            tell(f"planjob: {size:,} flows into a lake")
            with spark_session(master, "planjob") as spark:
                lake = Lake.create(base / "lake")
                pairs = fill(spark, lake, size)
            stored = sum(file.bytes for name in ("rates", "subscriptions") for file in lake.files(name))
            tell(f"planjob: {size:,} flows, {pairs:,} pairs")
            for engine in (SPARK, LOCAL) if pairs <= LOCAL_PAIRS else (SPARK,):
                told, seconds, peak = plan(base / "lake", base, engine, master)
                rows.append((
                    size, engine, told["users"], pairs, f"{stored / 2**20:.0f}", f"{told['relative_cost']:.4f}",
                    f"{told['goodput_before']:.2%}", f"{told['goodput']:.2%}", f"{told['seconds']:.1f}",
                    f"{seconds:.1f}", 1e6 * seconds / pairs, f"{peak / 2**30:.2f}",
                ))  # fmt: skip
                tell(f"planjob: {size:,} flows, {engine}: {seconds:.1f} s and {peak / 2**30:.2f} GB")
            result.tables.append(_stages(base / SPARK / "log", size))
    columns = (
        "flows", "engine", "users", "pairs", "lake, MB", "C_x / C_f", "goodput before", "after", "job, s", "command, s",
        "us a pair", "peak GB",
    )  # fmt: skip
    result.tables.insert(
        0, Table(f"the plan job from a lake, {GROUPS} groups, {SESSIONS} sessions, {master}", columns, rows)
    )
    small, large = (row for row in rows if row[1] == SPARK)
    result.figures += [
        Figure("time of the command, on Spark", float(large[9]), "s", f"{small[0]:,} flows", float(small[9])),
        Figure("peak memory of the processes", float(large[11]), "GB", f"{small[0]:,} flows", float(small[11])),
        Figure("pairs", float(large[3]), "pairs", f"{small[0]:,} flows", float(small[3])),
    ]
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planjob", description="The channel plan job at scale.")
    parser.add_argument("--flows", type=int, default=FLOWS, help="of the larger of two sizes (default: %(default)s)")
    parser.add_argument("--master", default=f"local[{min(2, os.cpu_count() or 1)}]", help="default: %(default)s")
    parser.add_argument("--out", type=Path, default=Options().out, help="where the JSON goes (default: %(default)s)")
    parser.add_argument("--job", nargs=4, metavar=("LAKE", "OUT", "ENGINE", "MASTER"), help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.job is not None:
        lake, out, engine, master = chosen.job
        job(Path(lake), Path(out), engine, master)
        return 0
    options = Options(out=chosen.out)
    return conduct(lambda: (run(options, chosen.flows, chosen.master), True), options)


if __name__ == "__main__":
    sys.exit(main())

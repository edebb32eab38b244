"""One symbol has 65 % of a day: what the worst task of each job takes, beside the median and beside all tasks.

    python -m benchmarks.skew --millions 20

Made-up trades and quotes of a day (three quotes to a trade, as in `benchmarks.cluster`) go into a lake, and each
derived table is made by itself with Spark's event log on. For `bbo` and `trade_throughs` the same is measured with the
symbol in one piece, as it would be without cuts, and the results are compared.

Work is spread as on a cluster with sixteen cores, whatever this machine has: what matters is the worst task's part of
all, which nothing but the spread decides.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.campaign import conduct
from benchmarks.cluster import environment, make_market
from benchmarks.report import Cell, Options, Result, Table, tell

MILLIONS, QUICK_MILLIONS = 4.0, 0.02
CORES = 2
WHOLE = 1 << 60
TASKS = 16
SPREAD = {
    "spark.sql.shuffle.partitions": str(TASKS),
    "spark.default.parallelism": str(TASKS),
    "spark.sql.adaptive.coalescePartitions.enabled": "false",
}
"""Spark would join partitions for the two cores that it sees."""


def jobs(chunk_rows: int) -> dict[str, tuple[tuple[str, ...], Callable[..., Any]]]:
    """What is made, from which tables."""
    from levelcast.pipeline.derive import bars, bbo, rates

    return {
        "bars": (("trades",), bars.bars),
        "rates": (("quotes",), rates.rates),
        "bbo": (("quotes",), partial(bbo.bbo, chunk_rows=chunk_rows)),
        "bbo, one piece": (("quotes",), partial(bbo.bbo, chunk_rows=WHOLE)),
        "trade_throughs": (("trades", "quotes"), partial(bbo.trade_throughs, chunk_rows=chunk_rows)),
        "trade_throughs, one piece": (("trades", "quotes"), partial(bbo.trade_throughs, chunk_rows=WHOLE)),
    }


def run(options: Options, millions: float | None = None) -> Result:
    """Each job in a process of its own, so that each has its own log."""
    from benchmarks.stages import stages
    from levelcast.pipeline.session import SparkMissing, require_spark

    result = Result("skew")
    try:
        require_spark()
    except SparkMissing as error:
        result.notes.append(f"{error}; nothing was measured")
        return result
    records = round((millions or (QUICK_MILLIONS if options.quick else MILLIONS)) * 1e6)
    rows: list[tuple[Cell, ...]] = []
    sums: dict[str, str] = {}
    with TemporaryDirectory(prefix="skew-") as folder:
        place = Path(folder)
        _write(place, records)
        for name in jobs(1):
            tell(f"skew: {name}")
            told = _in_child(place, name, records)
            sums[name] = told["sum"]
            found = [each for each in stages(place / "log" / _slug(name)) if each.total_s]
            worst = max(found, key=lambda each: each.worst_s)
            total = sum(each.total_s for each in found)
            rows.append((name, told["seconds"], len(found), worst.tasks, worst.median_s, worst.worst_s, total,
                         worst.worst_s / total))  # fmt: skip
            result.more[f"stages of {name}"] = [each._asdict() for each in found]
    for name in ("bbo", "trade_throughs"):
        assert sums[name] == sums[f"{name}, one piece"], f"{name} cut by time differs from {name} in one piece"
    columns = ("job", "s", "stages", "tasks", "median s", "worst s", "all tasks s", "worst/all")
    title = f"{records:,} records, one symbol has 65 %, spread over {TASKS} tasks; the stage with the worst task"
    result.tables.append(Table(title, columns, rows))
    return result


def _slug(name: str) -> str:
    return name.replace(", ", "-").replace(" ", "-")


def _write(place: Path, records: int) -> None:
    import pyarrow.parquet as parquet

    for name, rows in zip(("trades", "quotes"), make_market(records // 4, records - records // 4), strict=True):
        parquet.write_table(rows, place / f"{name}.parquet", row_group_size=100_000)


def _in_child(place: Path, name: str, records: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.skew", "--job", name, "--place", str(place), "--records", str(records)]
    with (place / "child.txt").open("wb") as log:
        done = subprocess.run(command, stdout=log, stderr=log, env=environment(), check=False)
    if done.returncode:
        raise RuntimeError((place / "child.txt").read_text(errors="replace")[-2000:])
    told: dict[str, Any] = json.loads((place / "told.json").read_text())
    return told


def _job(place: Path, name: str, records: int) -> int:
    from benchmarks.stages import log_settings
    from levelcast.pipeline.lake.lake import Lake
    from levelcast.pipeline.session import spark_session

    bases, make = jobs(max(1_000, records // 20))[name]
    lake = Lake.create(place / "lake")
    if not lake.has("quotes"):
        with spark_session(f"local[{CORES}]", "skew input") as spark:
            for each in ("trades", "quotes"):
                lake.append(
                    each, spark.read.parquet(str(place / f"{each}.parquet")).repartitionByRange(TASKS, "sequence")
                )
    with spark_session(f"local[{CORES}]", "skew", SPREAD | log_settings(place / "log" / _slug(name))) as spark:
        begun = time.perf_counter()
        made = make(*(lake.read(spark, each) for each in bases))
        total = made.selectExpr("bit_xor(xxhash64(*)) as x", "count(*) as n").collect()[0]
        seconds = time.perf_counter() - begun
    (place / "told.json").write_text(json.dumps({"seconds": seconds, "sum": f"{total.n} {total.x}"}))
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """The same, with a size of one's own."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.skew", description=run.__doc__)
    parser.add_argument("--millions", type=float, default=MILLIONS, help="records (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Options().out, help="where the JSON goes (default: %(default)s)")
    for name in ("--job", "--place", "--records"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.job:
        return _job(Path(chosen.place), chosen.job, int(chosen.records))
    options = Options(out=chosen.out)
    return conduct(lambda: (run(options, chosen.millions), True), options)


if __name__ == "__main__":
    raise SystemExit(main())

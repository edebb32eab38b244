"""A day of streaming: how many files the lake has afterwards, before and after compaction, and what that costs a query.

    python -m benchmarks.lake_day --batches 390 --every 50

The tape of a session (6.5 hours of tape time) goes through `levelcast.pipeline.jobs.stream` in batches, all that is
there at once: what counts is the number of batches, not how long they wait. 390 of them are one a minute. Then
`Lake.compact`, as `levelcast pipeline compact` calls it. The query opens the log and sums up the trades of each symbol.
With `--every` the same day is streamed once more, and small files are put together after so many batches, as a live
stream that has the time does beside them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.campaign import conduct
from benchmarks.report import Cell, Figure, Options, Result, Table, tell
from benchmarks.source import PER_FRAME, make_tape, used_s

BATCHES = 390
QUICK_BATCHES = 4
FRAMES = 20
"""In a batch."""
SESSION_NS = 23_400 * 10**9
REPEATS = 3
CORES = 2


def run(options: Options, batches: int | None = None, every: int | None = None) -> Result:
    """Small files are left alone while it streams; with `every`, a second time, put together after so many batches."""
    from levelcast.pipeline.session import SparkMissing, require_spark, spark_session

    wanted = batches or (QUICK_BATCHES if options.quick else BATCHES)
    result = Result("lake-day")
    try:
        require_spark()
    except SparkMissing as error:
        result.notes.append(f"{error}; nothing was measured")
        return result
    options.out.mkdir(parents=True, exist_ok=True)
    every = every or (2 if options.quick else None)
    ways = {"never": 0} | ({f"every {every} batches": every} if every else {})
    with (
        TemporaryDirectory(prefix="lake-day-", dir=options.out) as folder,
        spark_session(f"local[{CORES}]", "bench") as spark,
    ):
        place = Path(folder).absolute()
        count = wanted * FRAMES * PER_FRAME
        tell(f"lake-day: a tape of {count:,} trades")
        make_tape(place / "tape", count, SESSION_NS // (wanted * FRAMES))
        _measure(result, spark, place, ways, options)
    return result


def _measure(result: Result, spark: Any, place: Path, ways: dict[str, int], options: Options) -> None:
    jvm = int(spark.sparkContext._gateway.proc.pid)
    repeats = 1 if options.quick else REPEATS
    rows: list[tuple[Cell, ...]] = []
    for number, (way, every) in enumerate(ways.items()):
        lake, batches, took, used = _stream(spark, place, place / f"lake{number}", jvm, every)
        result.notes.append(
            f"Small files put together {way}: {batches} batches needed {took:.0f} s and {used:.0f} s of CPU, "
            f"{used / batches:.2f} a batch."
        )
        before, slow = _files(lake), _query(spark, lake, repeats)
        begun, used = time.perf_counter(), used_s(jvm)
        for name in before:
            lake.compact(spark, name)
        took, used = time.perf_counter() - begun, used_s(jvm) - used
        after, fast = _files(lake), _query(spark, lake, repeats)
        rows += [(f"{way}: {name}", *before[name], *after[name]) for name in before]
        whole = [sum(files[name][0] for name in files) for files in (before, after)]
        result.figures.append(Figure(f"{way}: files", float(whole[1]), "after", "before compaction", float(whole[0])))
        result.figures.append(Figure(f"{way}: query", fast, "s", "before compaction", slow))
        result.notes.append(f"Small files put together {way}: compaction needed {took:.1f} s and {used:.1f} s of CPU.")
    result.tables.append(
        Table("files before and after compaction", ("table", "files", "MB", "files after", "MB after"), rows)
    )


def _stream(spark: Any, place: Path, where: Path, jvm: int, every: int) -> tuple[Any, int, float, float]:
    from levelcast.pipeline.jobs import stream
    from levelcast.pipeline.lake.lake import Lake

    lake, batches = Lake.create(where), 0

    def count(batch: int, *_: object) -> None:
        nonlocal batches
        batches = batch + 1
        if every and batches % every == 0:
            stream.compact_small(spark, where)
        if batches % 10 == 0:
            tell(f"lake-day: {batches} batches, {time.perf_counter() - begun:.0f} s")

    begun, used = time.perf_counter(), used_s(jvm)
    query, _ = stream.start(
        spark, lake, [place / "tape"], until_now=True, most_records=FRAMES * PER_FRAME, tell=count
    )  # fmt: skip
    query.awaitTermination()
    return lake, batches, time.perf_counter() - begun, used_s(jvm) - used


def _files(lake: Any) -> dict[str, tuple[int, float]]:
    """Files and megabytes of each table."""
    return {state.name: (state.files, state.bytes / 2**20) for state in lake.states()}


def _query(spark: Any, lake: Any, repeats: int) -> float:
    """The least wall time of a few, after one that does not count."""
    took = []
    for _ in range(repeats + 1):
        begun = time.perf_counter()
        lake.read(spark, "trades").groupBy("symbol").agg({"size": "sum"}).write.format("noop").mode("overwrite").save()
        took.append(time.perf_counter() - begun)
    return min(took[1:])


def main(arguments: Sequence[str] | None = None) -> int:
    """The same, with as many batches as one likes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lake_day", description=run.__doc__)
    parser.add_argument("--batches", type=int, default=BATCHES, help="batches of the day (default: %(default)s)")
    parser.add_argument("--every", type=int, help="a second time, with small files merged after this many batches")
    parser.add_argument("--out", type=Path, default=Options().out, help="where the JSON goes (default: %(default)s)")
    chosen = parser.parse_args(arguments)
    options = Options(out=chosen.out)
    return conduct(lambda: (run(options, chosen.batches, chosen.every), True), options)


if __name__ == "__main__":
    raise SystemExit(main())

"""Bars from the lake: our functions, the same query hand-written in Spark SQL, and DuckDB on the same files.

    python -m benchmarks.lake --millions 200

Made-up trades of one day: one symbol has 65 % of them, 500 others share the rest, on 13 venues. The query is bars of a
minute of every symbol and venue, and of all venues: open and close by sequence, the sum of price times size in
decimal(38). Ours also looks for busts and corrections, and goes by stripes. Rows go into Spark's sink that keeps
nothing; the least of a few runs counts, after one run that does not. At the smaller size ours is compared, bar by bar,
with the hand-written query.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.report import Cell, Figure, Options, Result, Table, machine_facts, show_facts, tell, write_json

MILLIONS = 20.0
QUICK_MILLIONS = 0.1
GROWTH = 10
"""The smaller of the two sizes has this many times less."""
REPEATS = 3
CORES = 2
DAY = "2026-11-16"
DAY_NS = 1_794_787_200 * 10**9
SESSION_NS = 23_400 * 10**9
PARTS = 8

_BARS = """
select symbol, coalesce(venue, 'ALL') as venue, start_ns,
       {first}(price, sequence) as open, max(price) as high, min(price) as low, {last}(price, sequence) as close,
       sum(size) as volume, sum(cast(price as decimal(19,0)) * cast(size as decimal(10,0))) as notional,
       count(*) as trades
from (select symbol, venue, {start} as start_ns, sequence, price, size from {table} where action = 'T')
group by grouping sets ((symbol, venue, start_ns), (symbol, start_ns))
"""
SPARK_SQL = {"first": "min_by", "last": "max_by", "start": "ts_recv div 60000000000 * 60000000000"}
DUCKDB_SQL = {"first": "arg_min", "last": "arg_max", "start": "ts_recv // 60000000000 * 60000000000"}


def run(options: Options, millions: float | None = None) -> Result:
    """Both sizes, all three."""
    from levelcast.pipeline.session import SparkMissing, require_spark, spark_session

    largest = millions or (QUICK_MILLIONS if options.quick else MILLIONS)
    result = Result("lake")
    try:
        require_spark()
    except SparkMissing as error:
        result.notes.append(f"{error}; nothing was measured")
        return result
    rows: list[tuple[Cell, ...]] = []
    options.out.mkdir(parents=True, exist_ok=True)
    with (
        TemporaryDirectory(prefix="lake-", dir=options.out) as folder,
        spark_session(f"local[{CORES}]", "bench") as spark,
    ):
        for count in (round(largest * 1e6 / GROWTH), round(largest * 1e6)):
            rows += [_measure(spark, Path(folder) / str(count), count, check=not rows, options=options)]
        peak = _peak_bytes(spark)
    result.tables.append(
        Table(
            f"bars of a minute, {CORES} cores: seconds",
            ("trades", "ours", "Spark SQL", "ratio", "DuckDB", "ours M/s", "files", "MB"),
            rows,
        )
    )
    small, large = rows
    result.figures.append(Figure("bars, ours", float(large[1]), "s", "hand-written Spark SQL", float(large[2])))
    result.figures.append(Figure("bars, ours", float(large[1]), "s", "DuckDB on the same files", float(large[4])))
    result.figures.append(
        Figure(f"growth from 1 to {GROWTH}", float(large[1]) / float(small[1]), "times", "linear", float(GROWTH))
    )
    result.notes.append(f"Peak memory of the JVM (its heap may grow to 3 GB): {peak / 2**20:,.0f} MB.")
    result.more["rows"] = rows
    return result


def make_trades(spark: Any, count: int) -> Any:
    """Trades spread over a session, in the order of the tape."""
    step = SESSION_NS // max(count, 1)
    return spark.range(1, count + 1, 1, PARTS).selectExpr(
        "0 as stripe", "id as sequence", f"{DAY_NS + 13 * 3600 * 10**9} + id * {step} as ts_recv", "'T' as action",
        "if(pmod(xxhash64(id, 1), 100) < 65, 'SPY', concat('S', pmod(xxhash64(id, 2), 500))) as symbol",
        "concat('V', pmod(xxhash64(id, 3), 13)) as venue",
        "100000000000 + pmod(xxhash64(id, 4), 10000) * 100000 as price",
        "100 * (1 + pmod(xxhash64(id, 5), 9)) as size", "0 as condition", "id as trade_id", f"date'{DAY}' as day",
    )  # fmt: skip


def _measure(spark: Any, place: Path, count: int, *, check: bool, options: Options) -> tuple[Cell, ...]:
    from levelcast.pipeline.bars import roll_up, seconds
    from levelcast.pipeline.lake import Lake
    from levelcast.pipeline.settle import settled

    tell(f"lake: writing {count:,} trades")
    lake = Lake.create(place)
    commit = lake.append("trades", make_trades(spark, count))
    assert commit is not None
    lake.read(spark, "trades").createOrReplaceTempView("trades")
    by_hand = _BARS.format(table="trades", **SPARK_SQL)

    def ours() -> Any:
        return roll_up(seconds(settled(lake.read(spark, "trades"))), ["1m"])

    if check:
        _check(spark, ours(), spark.sql(by_hand), lake)
    repeats = 1 if options.quick else REPEATS
    took = _least(lambda: _into_nothing(ours()), repeats)
    sql = _least(lambda: _into_nothing(spark.sql(by_hand)), repeats)
    duck = _duckdb(lake, repeats)
    tell(f"lake: {count:,} trades: ours {took:.2f} s, Spark SQL {sql:.2f} s, DuckDB {duck:.2f} s")
    rate = count / took / 1e6
    return count, took, sql, took / sql, duck, rate, commit.files, commit.bytes / 2**20


def _into_nothing(rows: Any) -> None:
    rows.write.format("noop").mode("overwrite").save()


def _least(work: Callable[[], object], repeats: int) -> float:
    work()
    least = float("inf")
    for _ in range(repeats):
        begun = time.perf_counter()
        work()
        least = min(least, time.perf_counter() - begun)
    return least


def _duckdb(lake: Any, repeats: int) -> float:
    """Seconds, or not a number where there is no DuckDB."""
    try:
        import duckdb
    except ImportError:
        return float("nan")
    with duckdb.connect() as connection:
        connection.execute(f"set threads = {CORES}")
        query = _BARS.format(table=lake.duckdb("trades"), **DUCKDB_SQL)
        return _least(lambda: connection.execute(f"create or replace temp table bars as {query}"), repeats)


def _check(spark: Any, ours: Any, by_hand: Any, lake: Any) -> None:
    columns = ["symbol", "venue", "start_ns", "open", "high", "low", "close", "volume", "notional", "trades"]
    mine = ours.selectExpr(*columns[:8], "cast(notional as string) notional", "trades")
    other = by_hand.selectExpr(*columns[:8], "cast(notional as string) notional", "trades")
    apart = mine.exceptAll(other).count() + other.exceptAll(mine).count()
    assert not apart, f"{apart} bars differ from the hand-written query"


def _peak_bytes(spark: Any) -> int:
    pid = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """The same, with a size of one's own."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lake", description=run.__doc__)
    parser.add_argument(
        "--millions", type=float, default=MILLIONS, help="trades of the larger size (default: %(default)s)"
    )
    parser.add_argument("--out", type=Path, default=Options().out, help="where the JSON goes (default: %(default)s)")
    chosen = parser.parse_args(arguments)
    options, facts = Options(out=chosen.out), machine_facts()
    print(f"{show_facts(facts)}\n")
    result = run(options, chosen.millions)
    print(result)
    tell(f"written: {write_json(result, facts, options)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

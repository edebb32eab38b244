"""Bars from the lake: our functions, the same query hand-written in Spark SQL, and DuckDB on the same files.

    python -m benchmarks.lake --millions 200

Made-up trades: one symbol has 65 % of a day, 500 others share the rest, on 13 venues; a day has at most 20 million.
Executors write them. The smaller size is the first tenth of the files. The query is bars of a minute of every day,
symbol and venue, and of all venues: open and close by sequence, the sum of price times size in decimal(38). Ours also
looks for busts and corrections, and goes by stripes.

By hand it is written twice: with grouping sets over the trades, as one writes it first, and in two steps, venues first
and then all of them. The faster one counts. All run in one session, one after the other in turn; rows go into Spark's
sink that keeps nothing, DuckDB's into a table in memory. The least of a few rounds counts, wall time and CPU time by
themselves; one round at the smaller size comes before and does not count. At the smaller size ours is compared, bar by
bar, with the query in two steps.

The whole job is `bars` as `levelcast pipeline run` makes it: 1 s, 1 min and 1 day, of all trades and of those that set
the price.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.campaign import conduct
from benchmarks.processes import peak_memory
from benchmarks.report import Cell, Figure, Options, Result, Table, tell
from benchmarks.source import used_s
from levelcast.extras import ExtraMissing
from levelcast.plots.style import BLUE, GREY, ORANGE, canvas

MILLIONS = 20.0
QUICK_MILLIONS = 0.1
GROWTH = 10
"""The smaller of the two sizes has this many times less."""
ROUNDS = 2
CORES = 2
DAY = date(2026, 11, 16)
DAY_NS = 1_794_787_200 * 10**9
PER_DAY = 20_000_000
SESSION_NS = 23_400 * 10**9
OURS, TWO_STEPS, ONE_STEP, DUCKDB, JOB = (
    "Levelcast",
    "Spark SQL",
    "Spark SQL, grouping sets",
    "DuckDB",
    "the complete job",
)

_BARS = """
select day, symbol, coalesce(venue, 'ALL') as venue, start_ns,
       {first}(price, sequence) as open, max(price) as high, min(price) as low, {last}(price, sequence) as close,
       sum(size) as volume, sum(cast(price as decimal(19,0)) * cast(size as decimal(10,0))) as notional,
       count(*) as trades
from (select day, symbol, venue, {start} as start_ns, sequence, price, size from {table} where action = 'T')
group by grouping sets ((day, symbol, venue, start_ns), (day, symbol, start_ns))
"""
_IN_TWO_STEPS = """
with by_venue as (
    select day, symbol, venue, {start} as start_ns, min(sequence) as first_at, max(sequence) as last_at,
           {first}(price, sequence) as open, max(price) as high, min(price) as low, {last}(price, sequence) as close,
           sum(size) as volume, sum(cast(price as decimal(19,0)) * cast(size as decimal(10,0))) as notional,
           count(*) as trades
    from {table} where action = 'T' group by all
)
select day, symbol, coalesce(venue, 'ALL') as venue, start_ns, {first}(open, first_at) as open, max(high) as high,
       min(low) as low, {last}(close, last_at) as close, sum(volume) as volume, sum(notional) as notional,
       sum(trades) as trades
from by_venue group by grouping sets ((day, symbol, venue, start_ns), (day, symbol, start_ns))
"""
SPARK_SQL = {"first": "min_by", "last": "max_by", "start": "ts_recv div 60000000000 * 60000000000"}
DUCKDB_SQL = {"first": "arg_min", "last": "arg_max", "start": "ts_recv // 60000000000 * 60000000000"}


def run(
    options: Options,
    millions: float | None = None,
    place: Path | None = None,
    *,
    job: bool = True,
    rounds: int = ROUNDS,
) -> Result:
    """Both sizes, all queries. The lake at `place` is made if it is not there, and stays; without one it goes again."""
    from levelcast.pipeline.session import SparkMissing, require_spark, spark_session

    count = round((millions or (QUICK_MILLIONS if options.quick else MILLIONS)) * 1e6)
    result = Result("lake")
    try:
        require_spark()
    except SparkMissing as error:
        result.notes.append(f"{error}; nothing was measured")
        return result
    options.out.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="lake-", dir=options.out) as folder:
        where = place or Path(folder) / "lake"
        with spark_session(f"local[{CORES}]", "bench") as spark:
            _measure(result, spark, where, count, 1 if options.quick else rounds, job=job, options=options)
    return result


def _measure(result: Result, spark: Any, place: Path, count: int, rounds: int, *, job: bool, options: Options) -> None:
    from levelcast.pipeline.lake.lake import Lake

    jvm = int(spark.sparkContext._gateway.proc.pid)
    lake = Lake.create(place)
    if not lake.has("trades"):
        tell(f"lake: writing {count:,} trades")
        begun, used = time.perf_counter(), used_s(jvm)
        make_days(spark, lake, count)
        took, used = time.perf_counter() - begun, used_s(jvm) - used
        result.notes.append(f"Writing {count:,} trades needed {took:.0f} s and {used:.0f} s of CPU.")
    every = sorted(lake.files("trades"), key=_place)
    if sum(file.rows for file in every) != count:
        raise SystemExit(f"{place}: does not have {count:,} trades: name another --lake, or its size")
    spent: dict[int, dict[str, tuple[float, float]]] = {}
    peaks: dict[int, tuple[int, int]] = {}
    rows: list[tuple[Cell, ...]] = []
    for files in (every[: max(len(every) // GROWTH, 1)], every):
        size, megabytes = sum(file.rows for file in files), sum(file.bytes for file in files) / 2**20
        works = _works(spark, lake, files, job=job)
        if not spent:
            _check(works[OURS][0](), works[TWO_STEPS][0]())
        with peak_memory(jvm) as peak:
            spent[size] = _rounds({name: run for name, (_, run) in works.items()}, spent, jvm, rounds)
        peaks[size] = peak.bytes, getrusage(RUSAGE_SELF).ru_maxrss * 1024
        rows += [
            (f"{size:,}: {name}", wall, cpu, size / wall / 1e6, len(files), megabytes)
            for name, (wall, cpu) in spent[size].items()
        ]
    result.tables.append(
        Table(f"bars, {CORES} cores", ("trades", "wall s", "CPU s", "million trades/s", "files", "MB"), rows)
    )
    _conclude(result, spent, peaks, options)


def _place(file: Any) -> tuple[str, int]:
    return str(file.partition["day"]), int(file.stats["minValues"]["sequence"])


def _conclude(
    result: Result,
    spent: dict[int, dict[str, tuple[float, float]]],
    peaks: dict[int, tuple[int, int]],
    options: Options,
) -> None:
    small, large = spent
    for unit, which in (("s", 0), ("CPU s", 1)):
        mine = spent[large][OURS][which]
        by_hand = min(spent[large][name][which] for name in (TWO_STEPS, ONE_STEP))
        result.figures.append(Figure("bars, Levelcast", mine, unit, "hand-written Spark SQL", by_hand))
        if DUCKDB in spent[large]:
            other = spent[large][DUCKDB][which]
            result.figures.append(Figure("bars, Levelcast", mine, unit, "DuckDB on the same files", other))
        growth = mine / spent[small][OURS][which]
        result.figures.append(
            Figure("growth of Levelcast", growth, f"times the {unit}", "of the trades", large / small)
        )
    for size, (spark_bytes, driver_bytes) in peaks.items():
        result.notes.append(
            f"{size:,} trades: peak memory of Spark's processes {spark_bytes / 2**20:,.0f} MB (its heap may grow to "
            f"3 GB), of this one with DuckDB in it {driver_bytes / 2**20:,.0f} MB."
        )
    result.more["spent"] = {str(size): times for size, times in spent.items()}
    path = options.plot_dir / "lake-growth.svg"
    try:
        _plot(path, spent)
        result.plots.append(str(path))
    except ExtraMissing as error:
        result.notes.append(str(error))


def make_days(spark: Any, lake: Any, count: int) -> None:
    """As many days as it takes, each in a commit of its own."""
    for number, begin in enumerate(range(0, count, PER_DAY)):
        lake.append("trades", make_trades(spark, begin, min(count - begin, PER_DAY), DAY + timedelta(number)))


def make_trades(spark: Any, begin: int, count: int, day: date = DAY) -> Any:
    """Trades spread over a session, in the order of the tape."""
    step = SESSION_NS // max(count, 1)
    opens = DAY_NS + (day - DAY).days * 86_400 * 10**9 + 13 * 3600 * 10**9
    return spark.range(begin + 1, begin + count + 1, 1, GROWTH).selectExpr(
        "0 as stripe", "id as sequence", f"{opens} + (id - {begin}) * {step} as ts_recv", "'T' as action",
        "if(pmod(xxhash64(id, 1), 100) < 65, 500, pmod(xxhash64(id, 2), 500)) as instrument_id",
        "if(instrument_id = 500, 'SPY', concat('S', instrument_id)) as symbol",
        "pmod(xxhash64(id, 3), 13) as publisher_id", "concat('V', publisher_id) as venue",
        "100000000000 + pmod(xxhash64(id, 4), 10000) * 100000 as price",
        "100 * (1 + pmod(xxhash64(id, 5), 9)) as size", "0 as condition", "id as trade_id", f"date'{day}' as day",
    )  # fmt: skip


def _works(
    spark: Any, lake: Any, files: Sequence[Any], *, job: bool
) -> dict[str, tuple[Callable[[], Any], Callable[[], object]]]:
    """What is measured: how its rows are asked for, and how all of it is run."""
    from levelcast.pipeline.derive import bars
    from levelcast.pipeline.derive.corrections import settled

    def trades() -> Any:
        return lake.read_files(spark, "trades", files)

    def ours() -> Any:
        rows = trades()
        return bars.roll_up(bars.parts(settled(rows), ["1m"]), ["1m"], one_stripe=bars.of_one_stripe(rows))

    def by_hand(query: str) -> Callable[[], Any]:
        def make() -> Any:
            trades().createOrReplaceTempView("trades")
            return spark.sql(query.format(table="trades", **SPARK_SQL))

        return make

    asked: dict[str, Callable[[], Any]] = {OURS: ours, TWO_STEPS: by_hand(_IN_TWO_STEPS), ONE_STEP: by_hand(_BARS)}
    if job:
        asked[JOB] = lambda: bars.bars(trades())

    def sink(make: Callable[[], Any]) -> Callable[[], object]:
        return lambda: make().write.format("noop").mode("overwrite").save()

    works: dict[str, tuple[Callable[[], Any], Callable[[], object]]] = {
        name: (make, sink(make)) for name, make in asked.items()
    }
    duck = _duckdb(lake, files)
    if duck is not None:
        works[DUCKDB] = duck, duck
    return works


def _duckdb(lake: Any, files: Sequence[Any]) -> Callable[[], object] | None:
    """The query in two steps in DuckDB, with as many threads; None where there is no DuckDB."""
    try:
        import duckdb
    except ImportError:
        return None
    listed = ", ".join("'" + str(lake.directory / "trades" / file.path).replace("'", "''") + "'" for file in files)
    table = f"read_parquet([{listed}], hive_partitioning = true, hive_types = {{'day': DATE, 'stripe': INTEGER}})"
    query = _IN_TWO_STEPS.format(table=table, **DUCKDB_SQL)

    def work() -> object:
        with duckdb.connect() as connection:
            connection.execute(f"set threads = {CORES}")
            return connection.execute(f"create temp table bars as {query}")

    return work


def _rounds(
    works: dict[str, Callable[[], object]], warm: object, jvm: int, rounds: int
) -> dict[str, tuple[float, float]]:
    """The least wall time and the least CPU time of each, in turn; without a round before there is one more."""
    least = {name: (float("inf"), float("inf")) for name in works}
    for number in range(rounds + (0 if warm else 1)):
        for name, work in works.items():
            if name == JOB and number > (0 if warm else 1):
                continue  # once is enough of what takes so long
            begun, used = time.perf_counter(), used_s(jvm)
            work()
            used, took = used_s(jvm) - used, time.perf_counter() - begun
            tell(f"lake: {name}: {took:.2f} s, {used:.2f} CPU s")
            if warm or number:
                least[name] = min(took, least[name][0]), min(used, least[name][1])
    return least


def _check(ours: Any, by_hand: Any) -> None:
    columns = ["day", "symbol", "venue", "start_ns", "open", "high", "low", "close", "volume", "trades"]
    mine, other = (rows.selectExpr(*columns, "cast(notional as string) notional") for rows in (ours, by_hand))
    apart = mine.exceptAll(other).count() + other.exceptAll(mine).count()
    assert not apart, f"{apart} bars differ from the hand-written query"


def _plot(path: Path, spent: dict[int, dict[str, tuple[float, float]]]) -> None:
    """Seconds over trades, both as logarithms: what is linear has the slope of the grey line."""
    sizes = [size / 1e6 for size in spent]
    with canvas(path, 6.4, 3.6) as (_, (axes,)):
        axes.set_xscale("log")
        axes.set_yscale("log")
        drawn = {OURS: (BLUE, -11), TWO_STEPS: (ORANGE, 3), DUCKDB: ("#5b7f3a", -3), JOB: ("#7a4fa3", -3)}
        least = min(times[OURS][0] for times in spent.values())
        axes.plot(sizes, [least * size / sizes[0] for size in sizes], color=GREY, linewidth=4, zorder=1)
        axes.annotate("linear", (sizes[-1], least * sizes[-1] / sizes[0]), (-4, 8), textcoords="offset points",
                      color="#8a929c", ha="right")  # fmt: skip
        for name, (color, lift) in drawn.items():
            if all(name in times for times in spent.values()):
                walls = [times[name][0] for times in spent.values()]
                axes.plot(sizes, walls, color=color, marker="o", markersize=4, zorder=2)
                axes.annotate(name, (sizes[-1], walls[-1]), (6, lift), textcoords="offset points", color=color)
        axes.set_xlim(sizes[0] * 0.8, sizes[-1] * 2.6)
        axes.set_xticks(sizes, [f"{size:g}" for size in sizes])
        axes.minorticks_off()
        axes.set_xlabel("million trades")
        axes.set_title(f"Bars from the lake, {CORES} cores: seconds")
        axes.grid(axis="y")


def main(arguments: Sequence[str] | None = None) -> int:
    """The same, with a size of one's own."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lake", description=run.__doc__)
    parser.add_argument(
        "--millions", type=float, default=MILLIONS, help="trades of the larger size (default: %(default)s)"
    )
    parser.add_argument("--lake", type=Path, help="a lake of that size, made if it is not there, and kept")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of which the minimum counts (default: %(default)s)")
    parser.add_argument("--no-job", action="store_true", help="without the complete job, which needs the longest time")
    parser.add_argument("--out", type=Path, default=Options().out, help="where the JSON goes (default: %(default)s)")
    parser.add_argument("--plots", type=Path, default=Options().plots, help="where plots go (default: %(default)s)")
    chosen = parser.parse_args(arguments)
    options = Options(out=chosen.out, plots=chosen.plots)

    def campaign() -> tuple[Result, bool]:
        return run(options, chosen.millions, chosen.lake, job=not chosen.no_job, rounds=chosen.rounds), True

    return conduct(campaign, options)


if __name__ == "__main__":
    raise SystemExit(main())

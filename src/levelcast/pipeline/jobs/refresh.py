"""Bring derived tables up to date: every day that has changed, each in one commit that replaces the day.

The mark `day/D` of a day is the time of the newest file that the day was computed from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import chain

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from levelcast.pipeline.derive import bars, bbo, corrections, rates
from levelcast.pipeline.lake.lake import Lake
from levelcast.pipeline.lake.log import Commit, CommitMark
from levelcast.pipeline.lake.tables import INSTRUMENTS, VENUES
from levelcast.pipeline.session import is_own

Tell = Callable[[str], None]
DAY_MARK = "day/"
LITTLE_ROWS = 200_000
"""Up to this many rows, derived tables are computed in parallel: Spark's overhead then dominates."""
_AT_ONCE = 3


def silent(_: str) -> None:
    pass


@dataclass(frozen=True, slots=True)
class DerivedTable:
    """A derived table: its base tables, and the function that computes it from the rows of a few days."""

    name: str
    bases: tuple[str, ...]
    make: Callable[..., DataFrame]


def derivations(mask: int = corrections.NO_PRICE, consolidated: bool = False) -> tuple[DerivedTable, ...]:
    """Return the derived tables in the order of computation: later ones read earlier ones."""
    return (
        DerivedTable("bars", ("trades",), lambda trades: bars.bars(trades, mask=mask)),
        DerivedTable("last_prices", ("trades",), bars.last_prices),
        DerivedTable("venue_share", ("trades",), bars.venue_share),
        DerivedTable("rates", ("tape",), rates.rates),
        DerivedTable("rate_fit", ("rates",), rates.rate_fit),
        DerivedTable("bbo", ("quotes",), partial(bbo.bbo, consolidated=consolidated)),
        DerivedTable("trade_throughs", ("trades", "quotes"), partial(bbo.trade_throughs, consolidated=consolidated)),
    )


def refresh(
    spark: SparkSession,
    lake: Lake,
    tell: Tell = silent,
    mask: int = corrections.NO_PRICE,
    consolidated: bool = False,
) -> dict[str, Commit]:
    """Update every derived table from its bases; skip those that are up to date.

    `mask` and `consolidated` describe the source: sale conditions that set no price, and quotes of the complete market.
    """
    made = derivations(mask, consolidated)
    little = _rows_to_read(lake, made) <= LITTLE_ROWS
    done: dict[str, Commit] = {}

    def make(each: DerivedTable) -> None:
        stale = stale_days(lake, each)
        if not stale:
            return
        tell(f"making {each.name}")
        days = sorted(stale)
        bases = [lake.read(spark, base, days=days) for base in each.bases]
        marks = [CommitMark(f"{DAY_MARK}{day}", newest) for day, newest in stale.items()]
        rows = each.make(*bases)
        # Not `repartition`: a day may be large, and would go to a single task.
        spread = rows.coalesce(1) if little else rows.hint("rebalance", f.col("day"))
        note(done, lake.replace(each.name, spread, days, marks))

    def list_all(name: str, find: Callable[[DataFrame], DataFrame]) -> None:
        newest = max((file.added_ms for file in lake.files("tape")), default=0)
        if newest and lake.marks(name, ["tape"]).get("tape", 0) < newest:
            tell(f"making {name}")
            rows = find(lake.read(spark, "tape")).coalesce(1)
            note(done, lake.replace(name, rows, None, [CommitMark("tape", newest)]))

    def make_all(tables: Sequence[DerivedTable]) -> None:
        for each in tables:
            make(each)

    work = [partial(make_all, tables) for tables in _chains(made)]
    work += [partial(list_all, name, find) for name, find in (("instruments", instruments), ("venues", venues))]
    with _for_little(spark) if little else nullcontext():
        _all_of(work, _AT_ONCE if little else 1)
        interest = refresh_interest(spark, lake, tell)
    order = [each.name for each in made] + ["instruments", "venues"]
    return {name: done[name] for name in order if name in done} | interest


def note(done: dict[str, Commit], commit: Commit | None) -> None:
    """Add the commit of a write, if it made one."""
    if commit is not None:
        done[commit.table] = commit


def _rows_to_read(lake: Lake, made: Iterable[DerivedTable]) -> int:
    """Return the number of base rows of the stale days, for the table with the largest number."""
    stale = [(each.bases, list(stale_days(lake, each))) for each in made]
    return max(sum(file.rows for base in bases for file in lake.files(base, days=days)) for bases, days in stale)


def _chains(made: Iterable[DerivedTable]) -> list[list[DerivedTable]]:
    """Group tables into chains of one and its dependents; the chains are independent of each other."""
    chains: list[list[DerivedTable]] = []
    for each in made:
        before = [chain for chain in chains if any(one.name in each.bases for one in chain)]
        before[0].append(each) if before else chains.append([each])
    return chains


def _all_of(work: Sequence[Callable[[], None]], at_once: int) -> None:
    """Run all jobs. Raise the first error, and skip jobs that have not started by then."""
    if at_once == 1:
        for each in work:
            each()
        return
    pool = ThreadPoolExecutor(at_once, "refresh")
    try:
        for future in as_completed([pool.submit(each) for each in work]):
            future.result()
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _for_little(spark: SparkSession) -> Iterator[None]:
    """Configure Spark for small input: adaptive plans, code generation and many partitions cost more than they save.
    Settings of the user stay."""
    settings = {
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
    settings = {name: value for name, value in settings.items() if not is_own(name)}
    before = {name: spark.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, was in before.items():
            spark.conf.unset(name) if was is None else spark.conf.set(name, was)


def refresh_interest(spark: SparkSession, lake: Lake, tell: Tell = silent) -> dict[str, Commit]:
    """Compute the interest pairs, if the lake has subscriptions."""
    bases = [name for name in ("subscriptions", "rates") if lake.has(name)]
    if len(bases) < 2:
        return {}
    newest = max((file.added_ms for name in bases for file in lake.files(name)), default=0)
    if lake.marks("interest", ["bases"]).get("bases", 0) >= newest:
        return {}
    tell("making interest")
    pairs = rates.interest(lake.read(spark, "subscriptions"), lake.read(spark, "rates"))
    done: dict[str, Commit] = {}
    note(done, lake.replace("interest", pairs, None, [CommitMark("bases", newest)]))
    return done


def stale_days(lake: Lake, derived: DerivedTable, *, of_any: bool = False) -> dict[str, int]:
    """Return days with base files newer than the table was computed from, with the newest file's time.

    They are days of all bases, or `of_any`.
    """
    files = [lake.files(base) for base in derived.bases]
    by_base = [{file.day for file in each} for each in files]
    days = set.union(*by_base) if of_any else set.intersection(*by_base)
    by_time = sorted(chain(*files), key=lambda file: file.added_ms)
    newest = {file.day: file.added_ms for file in by_time if file.day in days}
    known = lake.marks(derived.name, [f"{DAY_MARK}{day}" for day in newest])
    return {day: at for day, at in newest.items() if known.get(f"{DAY_MARK}{day}", 0) < at}


def _seen() -> list[Column]:
    """Return the columns of first and last record and number of records."""
    return [f.min("ts_recv").alias("first_ns"), f.max("ts_recv").alias("last_ns"), f.count("*").alias("records")]


def instruments(tape: DataFrame) -> DataFrame:
    """Return rows of `instruments`: each instrument on the tape, with its last definition."""
    defined = ("currency", "instrument_class", "security_type", "min_price_increment", "expiration")
    order = f.when(f.col("kind") == "instrument", f.struct("ts_recv", "stripe", "sequence"))
    found = (
        tape.filter("instrument_id is not null or symbol is not null")
        .groupBy("instrument_id", "symbol")
        .agg(*(f.max_by(name, order).alias(name) for name in defined), *_seen())
    )
    return INSTRUMENTS.shape(found)


def venues(tape: DataFrame) -> DataFrame:
    """Return rows of `venues`."""
    named = tape.filter("publisher_id is not null or venue is not null")
    return VENUES.shape(named.groupBy("publisher_id", "venue").agg(*_seen()))

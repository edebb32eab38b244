"""Find rows of a lake that are in it twice, with Spark or with DuckDB: one SQL text for both.

A row belongs to an *origin*: its stripe and the block of its file (`levelcast.pipeline.input.inputs`), or its stripe
and 0, for a tape and for files that an earlier version of Levelcast loaded. Rows of two origins are the same if these
are equal: the day, kind, `ts_event`, symbol, venue, action, price, size, and the prices and sizes of a quote. All
formats have these columns, so a file is recognised in any of them. Only trades, quotes and orders are compared:
definitions and statuses are repeated in every capture.

Two origins *overlap* if they have equal rows at more than one time, or if all rows of one are in the other. Equal rows
at one time only are not an overlap: a file may have been split between them.

Only files of the table that can have equal rows are read, by the bounds in the log: of the same day, with symbols and
times in common, and of different origins.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, Protocol

from levelcast.pipeline.lake.defaults import LakeError
from levelcast.pipeline.lake.files import File
from levelcast.pipeline.lake.lake import Lake
from levelcast.pipeline.session import first_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORIGIN = "case when ((sequence >> 57) & 31) = 0 then 0 else (sequence >> {k}) << {k} end".format(
    k="cast((sequence >> 57) & 31 as int)"
)
"""The start of the block of a row's file, 0 for a tape."""
_NUMBERS = ("price", "size", "bid_px", "ask_px", "bid_sz", "ask_sz")
_TEXTS = ("kind", "symbol", "venue", "action")
_NO_NUMBER = -(2**63) + 1
_FINGERPRINT = ", ".join(
    [*(f"coalesce({name}, '')" for name in _TEXTS), "ts_event"]
    + [f"coalesce({name}, cast({_NO_NUMBER} as bigint))" for name in _NUMBERS]
)
_COMPARED = f"""
    select {{hash}}({_FINGERPRINT}) as print, ts_event, stripe, {ORIGIN} as origin, sequence
    from tape where kind in ('trade', 'quote', 'order')
"""
_PAIRS = """
    with counted as (
        select print, ts_event, stripe, origin, count(*) as copies from ({compared}) as compared
        group by print, ts_event, stripe, origin
    ), sized as (
        select *, sum(copies) over (partition by stripe, origin) as size from counted
    ), paired as (
        select ts_event, stripe, origin, copies, first_value(stripe) over same as keeper_stripe,
            first_value(origin) over same as keeper, first_value(copies) over same as keeper_copies
        from sized
        window same as (
            partition by print, ts_event order by case when origin = 0 then 0 else 1 end, size desc, stripe, origin
        )
    )
    select keeper_stripe, keeper, stripe, origin, cast(sum(least(copies, keeper_copies)) as bigint),
        min(ts_event) as first_ns, max(ts_event)
    from paired where stripe <> keeper_stripe or origin <> keeper
    group by keeper_stripe, keeper, stripe, origin
    order by keeper_stripe, keeper, stripe, origin
"""
_SHARED = """
    with numbered as (
        select print, ts_event, stripe, origin, sequence,
            row_number() over (partition by print, ts_event, stripe, origin order by sequence) as copy
        from ({compared}) as compared
    )
    select dropped.sequence from numbered as dropped
    join numbered as kept
    on kept.print = dropped.print and kept.ts_event = dropped.ts_event and kept.copy = dropped.copy
    where kept.stripe = {keeper_stripe} and kept.origin = {keeper}
        and dropped.stripe = {stripe} and dropped.origin = {origin}
    order by dropped.sequence
"""


class QueryEngine(Protocol):
    """Runs SQL on files of a lake."""

    @property
    def hash(self) -> str:
        """The name of the function that returns a hash of 64 bits of its arguments."""
        ...

    def rows(self, lake: Lake, name: str, files: Sequence[File], sql: str) -> list[tuple[Any, ...]]:
        """Return the result of a query on some files of a table, which has the table's name in it."""
        ...


class DuckQueries:
    """DuckDB in this process: needs no Java, and uses the disk for what does not fit in memory."""

    hash = "hash"

    def rows(self, lake: Lake, name: str, files: Sequence[File], sql: str) -> list[tuple[Any, ...]]:
        try:
            import duckdb
        except ImportError:
            raise LakeError("duckdb is not installed; run pip install 'levelcast[spark]'") from None
        try:
            with duckdb.connect() as database:
                database.execute(f"create view {name} as select * from {lake.duckdb_files(name, files)}")
                found: list[tuple[Any, ...]] = database.execute(sql).fetchall()
        except duckdb.Error as error:
            raise LakeError(
                f"{lake.directory / name}: cannot be read ({first_line(error)}); restore the file from a backup"
            ) from None
        return found


@dataclass(frozen=True, slots=True)
class SparkQueries:
    """Spark, for a lake that is too large for one machine, and for rows that are being loaded."""

    spark: SparkSession
    hash: str = "xxhash64"

    def rows(self, lake: Lake, name: str, files: Sequence[File], sql: str) -> list[tuple[Any, ...]]:
        rows = lake.read_files(self.spark, name, files)
        return [tuple(row) for row in self.spark.sql(sql.replace(f"from {name} ", "from {rows} "), rows=rows).collect()]


@dataclass(frozen=True, slots=True, order=True)
class Origin:
    """Where rows come from: the block of a file in a stripe, 0 for a tape."""

    stripe: int
    block: int


@dataclass(frozen=True, slots=True)
class Overlap:
    """Two origins with equal rows on a day: how many rows, and between which times."""

    day: str
    keep: Origin
    """The origin that keeps the rows in a repair: a tape, or else the one with more rows on that day. The choice does
    not depend on the order of loading."""
    drop: Origin
    rows: int
    first_ns: int
    last_ns: int


def origin_of(stripe: int, sequence: int) -> Origin:
    """Return the origin of a row, as the SQL does."""
    size = (sequence >> 57) & 31
    return Origin(stripe, sequence >> size << size if size else 0)


def overlaps(
    engine: QueryEngine,
    lake: Lake,
    files: Iterable[File],
    new: Iterable[File] = (),
    rows: Mapping[Origin, int] | None = None,
) -> Iterator[Overlap]:
    """Yield the overlaps among files of `tape`; with `new` ones only those that they are part of. `rows` has the number
    of rows of each origin, if known."""
    for day, chosen in _by_day(_candidates([*files], [*new])).items():
        compared = _COMPARED.format(hash=engine.hash)
        for s1, b1, s2, b2, shared, first_ns, last_ns in engine.rows(
            lake, "tape", chosen, _PAIRS.format(compared=compared)
        ):
            found = Overlap(day, Origin(s1, b1), Origin(s2, b2), shared, first_ns, last_ns)
            if first_ns < last_ns or shared in [(rows or {}).get(each) for each in (found.keep, found.drop)]:
                yield found


def shared_rows(engine: QueryEngine, lake: Lake, files: Iterable[File], overlap: Overlap) -> list[int]:
    """Return the sequences of the rows of `overlap.drop` that `overlap.keep` has too."""
    keep, drop = overlap.keep, overlap.drop
    chosen = [file for file in files if file.day == overlap.day and file.stripe in (keep.stripe, drop.stripe)]
    sql = _SHARED.format(
        compared=_COMPARED.format(hash=engine.hash),
        keeper_stripe=keep.stripe,
        keeper=keep.block,
        stripe=drop.stripe,
        origin=drop.block,
    )
    return [sequence for (sequence,) in engine.rows(lake, "tape", chosen, sql)]


def _by_day(files: Iterable[File]) -> dict[str, list[File]]:
    days: dict[str, list[File]] = defaultdict(list)
    for file in files:
        days[file.day].append(file)
    return dict(sorted(days.items()))


def _candidates(files: Sequence[File], new: Sequence[File]) -> list[File]:
    """Return the files that can have rows of several origins in common."""
    found: dict[str, File] = {}
    for group in _by_day([*files, *new]).values():
        fresh = {file.path for file in new}
        for file in group:
            if _mixed(file) and (not new or file.path in fresh):
                found[file.path] = file
        for one, other in combinations(group, 2):
            if new and not {one.path, other.path} & fresh:
                continue
            if (one.path not in found or other.path not in found) and _may_share(one, other):
                found[one.path], found[other.path] = one, other
    return [*found.values()]


def _origins(file: File) -> tuple[Origin, Origin]:
    low, high = (int(file.stats[bound].get("sequence") or 0) for bound in ("minValues", "maxValues"))
    return origin_of(file.stripe, low), origin_of(file.stripe, high)


def _mixed(file: File) -> bool:
    first, last = _origins(file)
    return first != last


def _may_share(one: File, other: File) -> bool:
    if not _mixed(one) and _origins(one) == _origins(other):
        return False
    return all(
        one.meets(column, *(other.stats[bound].get(column) for bound in ("minValues", "maxValues")))
        for column in ("ts_event", "symbol")
        if other.stats["minValues"].get(column) is not None and other.stats["maxValues"].get(column) is not None
    )

"""The jobs: input into a lake, and what follows from it. Each step is a function of DataFrames or of the lake.

`load_pieces` takes ranges of tapes, `load_files` rows of the flat schema, into `tape`, `trades`, `quotes`, `orders` and
`quarantine`. Ranges become files of all tables at once, where they are read (`filing`). Rows become files of `tape`
first, and the other tables are made from those files. Either way `tape` is committed last. So after a crash the same
input is loaded again, each table takes what it does not have, and `tape` says that all of it is there. A table for
which a batch has nothing gets no commit: its mark stays behind, and there is nothing of its own in between.

`refresh` makes the derived tables of every day that has changed, each in one commit that replaces the day. How far a
day is known is a mark too: `day/D` with the time of the newest file that it was made from.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from levelcast.pipeline.derive import bars, bbo, corrections, rates
from levelcast.pipeline.input import probes, release_logs, tape_to_tables
from levelcast.pipeline.input.tape_to_tables import FILED, OF_KIND, Filed
from levelcast.pipeline.lake import quarantine
from levelcast.pipeline.lake.defaults import LakeError
from levelcast.pipeline.lake.lake import Commit, CommitMark, File, Lake, highest
from levelcast.pipeline.lake.tables import INSTRUMENTS, REQUESTS, VENUES
from levelcast.storage.append_file import TapeError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Tell = Callable[[str], None]
TAPE_MARK = "tape/"
DAY_MARK = "day/"
LITTLE_ROWS = 200_000
"""Up to this many rows the derived tables are made side by side: Spark's own work is then the most of it."""
_AT_ONCE = 3


def _silent(_: str) -> None:
    pass


@dataclass(slots=True)
class Loaded:
    """What a load has done: rows by table, and whether there was anything new."""

    commits: dict[str, Commit] = field(default_factory=dict)
    stripes: Mapping[int, int] = field(default_factory=dict)
    """The last sequence of each stripe."""
    files: dict[str, list[File]] = field(default_factory=dict)
    """What was written, by table."""
    amended: dict[str, int] = field(default_factory=dict)
    """Busts and corrections among the trades that were added, by day."""

    def rows(self, name: str) -> int:
        return self.commits[name].rows if name in self.commits else 0


# -- loading ----------------------------------------------------------------------------------------------


def load_pieces(spark: SparkSession, lake: Lake, pieces: DataFrame, source: str, tell: Tell = _silent) -> Loaded:
    """Ranges of tapes (`rows` = `pieces` of the data source) behind what the lake has of their stripes: they may be of
    any receiver. Raises TapeError if there is a hole between the two."""
    known = {name: tape_ends(lake, name) for name in FILED}
    done = Loaded()

    def write(stages: Mapping[str, Path], attempt: str) -> Mapping[str, list[File]]:
        order = tape_to_tables.Order({name: str(stage) for name, stage in stages.items()}, attempt, known, source)
        filed = tape_to_tables.file_pieces(pieces, order)
        _without_holes(filed, known["tape"], source)
        for day, count in (item for each in filed for item in each.amended.items()):
            done.amended[day] = done.amended.get(day, 0) + count
        return {name: [file for each in filed for file in each.files.get(name, ())] for name in FILED}

    tell("reading the tapes, writing tape, trades, quotes and orders")
    with lake.staged_by(FILED, write) as files:
        if not files["tape"]:
            return done
        done.files = files
        done.stripes = {int(stripe): upto for stripe, upto in highest(files["tape"], "sequence", "stripe").items()}
        tell("committing")
        for name in (*FILED[1:], "tape"):
            if files[name]:
                _keep(done, lake.land(name, files[name], _tape_claims(done.stripes, known[name])))
    return done


def _without_holes(filed: Iterable[Filed], known: Mapping[int, int], source: str) -> None:
    """Retention may have taken what lies between the lake and the oldest that is there."""
    upto = {stripe: last + 1 for stripe, last in known.items()}
    for each in filed:
        wanted = upto.get(each.stripe, each.start)
        if each.start > wanted:
            raise TapeError(
                f"{source}: retention has taken sequence {wanted:,} of stripe {each.stripe}, which the lake still "
                f"needs; the oldest there is {each.start:,}: name a receiver that still has it, or begin a new lake"
            )
        upto[each.stripe] = max(wanted, each.stop)


def _tape_claims(upto: Mapping[int, int], known: Mapping[int, int]) -> list[CommitMark]:
    return [
        CommitMark(f"{TAPE_MARK}{stripe}", to, before=known.get(stripe, 0))
        for stripe, to in upto.items()
        if to > known.get(stripe, 0)
    ]


def tape_ends(lake: Lake, name: str = "tape") -> dict[int, int]:
    """The last sequence of each stripe that a table has."""
    marks = lake.all_marks(name, TAPE_MARK)
    return {int(mark.removeprefix(TAPE_MARK)): upto for mark, upto in marks.items()}


def load_files(
    spark: SparkSession,
    lake: Lake,
    rows: DataFrame,
    source: str,
    identity: str,
    tell: Tell = _silent,
    refused: DataFrame | None = None,
) -> Loaded:
    """Rows of input that is known by what it is: `identity` lands once. `refused` is what could not be read."""
    mark = CommitMark(f"input/{identity}", 1)
    done = Loaded()
    if lake.marks("tape", [mark.name]):
        return done
    tell("reading the input, writing tape")
    with lake.staged("tape", rows) as files:
        if not files and refused is None:
            return done
        if not files and refused is not None and (first := refused.orderBy("position").first()) is not None:
            raise LakeError(f"{source}: not one row of it can be read ({first['reason']}): is the format right?")
        whole = lake.read_files(spark, "tape", files)
        done.stripes = {int(stripe): upto for stripe, upto in highest(files, "sequence", "stripe").items()}
        for kind, table in OF_KIND.items():
            if not any(_may_have(file, kind) for file in files):
                continue
            tell(f"writing {table.name}")
            part = quarantine.good(whole).filter(whole["kind"] == kind)
            _keep(done, lake.append(table.name, part, [mark], skip_empty=True))
        tell("looking for what contradicts itself")
        wrong = quarantine.bad(whole, source)
        if refused is not None:
            wrong = wrong.unionByName(refused, allowMissingColumns=True)
        _keep(done, lake.append("quarantine", wrong, [mark], skip_empty=True))
        tell("committing tape")
        _keep(done, lake.land("tape", files, [mark]))
    return done


def _may_have(file: File, kind: str) -> bool:
    """Whether a file of `tape` may have records of a kind, by the bounds of the column."""
    low, high = (file.stats[bound].get("kind") for bound in ("minValues", "maxValues"))
    return low is None or high is None or low <= kind <= high


def _keep(done: Loaded, commit: Commit | None) -> None:
    if commit is not None:
        done.commits[commit.table] = commit


def load_releases(spark: SparkSession, lake: Lake, inputs: Iterable[Path], tell: Tell = _silent) -> Commit | None:
    """The release logs beside the tapes, as far as they are new."""
    logs = release_logs.find_logs(inputs)
    marks = {receiver: f"releases/{receiver}" for receiver in logs}
    known = lake.marks("releases", list(marks.values()))
    new = release_logs.read_logs(logs, {receiver: known.get(mark, 0) for receiver, mark in marks.items()})
    if not new:
        return None
    tell("writing releases")
    rows = spark.createDataFrame(release_logs.release_rows(new))
    claims = [
        CommitMark(marks[receiver], int(log["slot"].max()), known.get(marks[receiver], 0))
        for receiver, log in new.items()
    ]
    return lake.append("releases", rows.coalesce(1), claims)


# -- what follows -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DerivedTable:
    """How a derived table is made of the rows of a few days, and from which tables."""

    name: str
    bases: tuple[str, ...]
    make: Callable[..., DataFrame]


def derivations(mask: int = corrections.NO_PRICE, consolidated: bool = False) -> tuple[DerivedTable, ...]:
    """In the order in which they are made: later ones read earlier ones."""
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
    tell: Tell = _silent,
    mask: int = corrections.NO_PRICE,
    consolidated: bool = False,
) -> dict[str, Commit]:
    """Bring every derived table up to its bases; what is up to date is left alone.

    `mask` and `consolidated` are of the source: its sale conditions, and whether its quotes are the whole market's.
    """
    from pyspark.sql import functions as f

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
        # Not `repartition`: a day may be large, and would be one task's.
        spread = rows.coalesce(1) if little else rows.hint("rebalance", f.col("day"))
        _note(done, lake.replace(each.name, spread, days, marks))

    def list_all(name: str, find: Callable[[DataFrame], DataFrame]) -> None:
        newest = max((file.added_ms for file in lake.files("tape")), default=0) if lake.has("tape") else 0
        if newest and lake.marks(name, ["tape"]).get("tape", 0) < newest:
            tell(f"making {name}")
            _note(
                done, lake.replace(name, find(lake.read(spark, "tape")).coalesce(1), None, [CommitMark("tape", newest)])
            )

    def follow(chain: Sequence[DerivedTable]) -> None:
        for each in chain:
            make(each)

    work = [partial(follow, chain) for chain in _chains(made)]
    work += [partial(list_all, name, find) for name, find in (("instruments", instruments), ("venues", venues))]
    with _for_little(spark) if little else nullcontext():
        _all_of(work, _AT_ONCE if little else 1)
        interest = refresh_interest(spark, lake, tell)
    order = [each.name for each in made] + ["instruments", "venues"]
    return {name: done[name] for name in order if name in done} | interest


def _note(done: dict[str, Commit], commit: Commit | None) -> None:
    if commit is not None:
        done[commit.table] = commit


def _rows_to_read(lake: Lake, made: Iterable[DerivedTable]) -> int:
    """The rows behind the stale days of the table that has most of them."""
    most = 0
    for each in made:
        days = stale_days(lake, each)
        if days:
            bases = (base for base in each.bases if lake.has(base))
            most = max(most, sum(file.rows for base in bases for file in lake.files(base, days=list(days))))
    return most


def _chains(made: Iterable[DerivedTable]) -> list[list[DerivedTable]]:
    """Those that read another one behind it; the chains have nothing to do with each other."""
    chains: list[list[DerivedTable]] = []
    for each in made:
        before = [chain for chain in chains if any(one.name in each.bases for one in chain)]
        before[0].append(each) if before else chains.append([each])
    return chains


def _all_of(work: Sequence[Callable[[], None]], at_once: int) -> None:
    """Do all of it. What fails first is raised, and what has not begun by then is left."""
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
    """Little to read: plans that adapt, compiled code and many partitions cost more than they save."""
    settings = {
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
    before = {name: spark.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, was in before.items():
            spark.conf.unset(name) if was is None else spark.conf.set(name, was)


def refresh_interest(spark: SparkSession, lake: Lake, tell: Tell = _silent) -> dict[str, Commit]:
    """Interest pairs, where there are subscriptions."""
    bases = [name for name in ("subscriptions", "rates") if lake.has(name)]
    if len(bases) < 2:
        return {}
    newest = max((file.added_ms for name in bases for file in lake.files(name)), default=0)
    if lake.marks("interest", ["bases"]).get("bases", 0) >= newest:
        return {}
    tell("making interest")
    pairs = rates.interest(lake.read(spark, "subscriptions"), lake.read(spark, "rates"))
    commit = lake.replace("interest", pairs, None, [CommitMark("bases", newest)])
    return {"interest": commit} if commit is not None else {}


def stale_days(lake: Lake, derived: DerivedTable) -> dict[str, int]:
    """Days of which a base has newer files than the table was made from, with the newest file's time."""
    newest: dict[str, int] = {}
    days: list[set[str]] = []
    for base in derived.bases:
        files = lake.files(base) if lake.has(base) else []
        days.append({str(file.partition["day"]) for file in files})
        for file in files:
            day = str(file.partition["day"])
            newest[day] = max(file.added_ms, newest.get(day, 0))
    newest = {day: at for day, at in newest.items() if all(day in each for each in days)}
    known = lake.marks(derived.name, [f"{DAY_MARK}{day}" for day in newest])
    return {day: at for day, at in newest.items() if known.get(f"{DAY_MARK}{day}", 0) < at}


def instruments(tape: DataFrame) -> DataFrame:
    """Rows of `instruments`: every one that the tape names, with its last definition."""
    from pyspark.sql import functions as f

    defined = ("currency", "instrument_class", "security_type", "min_price_increment", "expiration")
    order = f.when(f.col("kind") == "instrument", f.struct("ts_recv", "stripe", "sequence"))
    found = (
        tape.filter("instrument_id is not null or symbol is not null")
        .groupBy("instrument_id", "symbol")
        .agg(
            *(f.max_by(name, order).alias(name) for name in defined),
            f.min("ts_recv").alias("first_ns"),
            f.max("ts_recv").alias("last_ns"),
            f.count("*").alias("records"),
        )
    )
    return INSTRUMENTS.shape(found)


def venues(tape: DataFrame) -> DataFrame:
    """Rows of `venues`."""
    from pyspark.sql import functions as f

    found = tape.filter("publisher_id is not null or venue is not null").groupBy("publisher_id", "venue").agg(
        f.min("ts_recv").alias("first_ns"), f.max("ts_recv").alias("last_ns"), f.count("*").alias("records")
    )  # fmt: skip
    return VENUES.shape(found)


# -- what does not come from tapes ------------------------------------------------------------------------


def load_subscriptions(spark: SparkSession, lake: Lake, path: Path) -> Commit:
    """Who wants what, from the planner's interest file (`user, flow`): it takes the place of what was there."""
    from levelcast.pipeline.channels.spark_plan import read_table

    rows = read_table(spark, path, ("user", "flow")).distinct()
    return _landed(lake.replace("subscriptions", rows.coalesce(1)), path)


def load_status(spark: SparkSession, lake: Lake, path: Path) -> Commit:
    """Rows of `requests` from what `levelcast status --json` has printed."""
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        rows = [
            (name, node["now_ns"], *(node.get(key) for key in ("requests", "gaps", "frames", "late")),
             (node.get("edge") or {}).get("requests"), _day(node["now_ns"]))
            for name, node in told["nodes"].items()
        ]  # fmt: skip
    except (ValueError, KeyError, TypeError, AttributeError):
        raise LakeError(f"{path}: is not what `levelcast status --json` prints") from None
    return _landed(lake.append("requests", spark.createDataFrame(rows, REQUESTS.ddl).coalesce(1)), path)


LOADERS: dict[str, Callable[[SparkSession, Lake, Path], Commit]] = {
    "subscriptions": load_subscriptions,
    "requests": load_status,
    "probes": probes.load_probes,
}


def _landed(commit: Commit | None, path: Path) -> Commit:
    if commit is None:
        raise LakeError(f"{path}: could not be taken")
    return commit


def _day(at_ns: int) -> date:
    return datetime.fromtimestamp(at_ns // 1_000_000_000, UTC).date()

"""`levelcast pipeline`: load recorded tapes and captures into tables for Spark, DuckDB and pandas."""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from levelcast.cli.errors import duration_ns, on_interrupt, parse_day
from levelcast.cli.lake.check import check
from levelcast.cli.lake.spark import spark_errors, working
from levelcast.cli.main import COMMANDS
from levelcast.cli.options import AsJson, LakeDir, Master, Unsound, option
from levelcast.cli.output import print_json, table
from levelcast.pipeline.lake.defaults import EVERY_S, KEEP_HOURS, MOST_RECORDS, TARGET_BYTES, LakeError
from levelcast.pipeline.session import refuse_remote, require_spark, spark_session

if TYPE_CHECKING:
    from levelcast.pipeline.jobs.load import Loaded
    from levelcast.pipeline.lake.lake import Lake

app = typer.Typer(help=COMMANDS["pipeline"].help, no_args_is_help=True)
app.command()(check)


class Format(enum.StrEnum):
    """Format of the input."""

    TAPE = "tape"
    DBN = "dbn"
    CSV = "csv"
    PARQUET = "parquet"
    LEAN = "lean"
    LOBSTER = "lobster"
    ITCH = "itch"
    IEX = "iex"


Inputs = Annotated[
    list[Path], option("Directory of a tape or of nodes, or a file (repeatable).", "--input", metavar="PATH")
]
MEGABYTE = 2**20


@app.command()
def run(
    paths: Inputs,
    lake: LakeDir,
    format: Annotated[Format, option("Format of the input.")] = Format.TAPE,
    day: Annotated[
        str | None, option("Day of the records, if the files do not contain it.", "--date", metavar="YYYY-MM-DD")
    ] = None,
    venue: Annotated[
        str | None, option("Venue of CSV or Parquet trades without one.", metavar="MIC", unset="none")
    ] = None,
    stripe: Annotated[
        int | None, option("Stripe of the files, to separate inputs of one day.", min=0, unset="0")
    ] = None,
    unsound: Unsound = False,
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """Load the input into the lake and update the derived tables.

    A tape resumes after its last loaded record, from any receiver with valid frames. Other files are loaded once, by
    their content, under any name and in any list; a file with some rows of another one is refused. If a run was killed,
    repeat it: no row is duplicated or partial.

    Examples:

    levelcast pipeline run --input data/tokyo-1 --lake lake

    levelcast pipeline run --input us_equities --format lean --date 2013-10-07 --lake lake

    spark-submit --master spark://host:7077 PATH/levelcast/__main__.py pipeline run --input data --lake /shared/lake
    """
    on = None if day is None else parse_day(day)
    with spark_errors():
        done = execute(paths, lake, format, on, stripe, master, venue=venue, quiet=as_json, unsound=unsound)
    rows, seconds = done["rows"], done["seconds"]
    if as_json:
        print_json(done, None)
        return
    for line in done["skipped"]:
        typer.echo(f"levelcast: {line}", err=True)
    print_rows(Console(highlight=False), rows)
    typer.echo(f"Finished in {seconds:.1f} s. To see a report: levelcast report --lake {lake} -o report.html")


def execute(
    paths: Sequence[Path],
    lake: Path,
    format: Format,
    on: date | None = None,
    stripe: int | None = None,
    master: str | None = None,
    *,
    venue: str | None = None,
    quiet: bool = False,
    unsound: bool = False,
) -> dict[str, Any]:
    """Load the input and refresh the tables; return the number of rows added to each."""
    require_spark(master)
    from levelcast.pipeline.derive import corrections
    from levelcast.pipeline.input.load import CONSOLIDATED, MASKS, load
    from levelcast.pipeline.jobs.refresh import refresh

    began = time.perf_counter()
    _look_at(paths, format, on, venue, unsound=unsound)
    with working(quiet=quiet) as tell, _at_work(lake, master, "run", tell, paths) as (spark, tables):
        loaded = load(spark, tables, paths, format.value, on, stripe, tell, venue, unsound=unsound)
        mask = MASKS.get(format.value, corrections.NO_PRICE)
        made = refresh(spark, tables, tell, mask, format.value in CONSOLIDATED)
    rows = {name: commit.rows for name, commit in (loaded.commits | made).items()}
    seconds = round(time.perf_counter() - began, 3)
    return {
        "lake": str(lake),
        "rows": rows,
        "stripes": loaded.stripes,
        "skipped": loaded.skipped,
        "seconds": seconds,
    }


def _require(paths: Sequence[Path], what: str) -> None:
    for path in paths:
        if not path.exists():
            raise LakeError(f"{path}: {what} not found")


def _look_at(
    paths: Sequence[Path],
    format: Format,
    on: date | None = None,
    venue: str | None = None,
    *,
    unsound: bool = False,
) -> None:
    """Check the input before Spark is started; raise LakeError if it cannot be loaded."""
    from levelcast.formats.captures import tasks_of
    from levelcast.pipeline.input.tapes import Tapes

    _require(paths, "file or directory")
    if format in (Format.LEAN, Format.ITCH) and on is None:
        raise LakeError(f"files of format {format.value} do not contain their day; add it, such as --date 2013-10-07")
    if format is Format.TAPE:
        Tapes(paths, unsound=unsound)
    else:
        tasks_of(paths, format.value, day=on, venue=venue)


@contextmanager
def _at_work(
    directory: Path, master: str | None, what: str, tell: Callable[[str], None], inputs: Sequence[Path] | None = None
) -> Iterator[tuple[Any, Lake]]:
    """Yield a session and a locked lake. An existing lake is checked first; a new one is created last."""
    from levelcast.pipeline.lake.lake import Lake

    with ExitStack() as held:
        tables = Lake.at(directory)
        if tables is not None:
            held.enter_context(tables.alone())
            tables.check()
        tell("starting Spark")
        spark = held.enter_context(spark_session(master, f"levelcast pipeline {what}", inputs=inputs))
        if tables is None:
            tables = Lake.create(directory)
            held.enter_context(tables.alone())
        yield spark, tables


def print_rows(console: Console, rows: dict[str, int]) -> None:
    if "tape" not in rows:
        console.print("Nothing new: the lake already has all records.")
    for name, count in rows.items():
        console.print(f"{name:>16}  {count:>12,} rows")
    if rows.get("quarantine"):
        what = f"Unreadable or inconsistent: {rows['quarantine']:,} rows."
        why = "The table quarantine contains each with its reason."
        console.print(f"{what} {why}", style="yellow", soft_wrap=True)


@app.command(name="stream")
def stream_command(
    paths: Inputs,
    lake: LakeDir,
    until_now: Annotated[bool, option("Stop when the current records are in the lake.", "--until-now")] = False,
    every: Annotated[str, option("Interval between batches.", metavar="TIME")] = f"{EVERY_S:g}s",
    most: Annotated[int, option("Maximum number of records per batch.", "--max-records", min=1)] = MOST_RECORDS,
    master: Master = None,
) -> None:
    """Follow growing tapes until ^C. With several receivers, the stream continues with those that remain.

    Examples:

    levelcast pipeline stream --input data/tokyo-1 --input data/london-1 --lake lake
    """
    every_ns = duration_ns(every, "--every")
    console = Console(stderr=True, highlight=False)
    with spark_errors():
        refuse_remote(master, "levelcast pipeline stream")
        require_spark(master)
        from levelcast.pipeline.jobs import stream
        from levelcast.pipeline.jobs.load import load_releases
        from levelcast.pipeline.jobs.refresh import refresh

        _require(paths, "directory")
        with working(quiet=False) as tell, _at_work(lake, master, "stream", tell) as (spark, tables):
            tell("waiting for the first batch")

            def told(batch: int, done: Loaded, lag_s: float | None) -> None:
                ends = ", ".join(f"stripe {number} to {upto:,}" for number, upto in done.stripes.items())
                lag = "" if lag_s is None else f", lag {lag_s:.1f} s"
                line = f"batch {batch}: {done.rows('tape'):,} records, {ends or 'nothing new'}{lag}"
                tell(line) if console.is_terminal else console.print(line)

            query, follower = stream.start(
                spark, tables, paths, until_now=until_now, every_s=every_ns / 1e9, most_records=most, tell=told
            )
            stopping = threading.Event()
            on_interrupt(stopping.set)
            while query.isActive and not stopping.is_set():
                stopping.wait(0.2)
            if stopping.is_set():
                tell("stopping after this batch")
            query.stop()
            follower.end()
            if (failed := follower.failed or query.exception()) is not None:
                raise failed
            load_releases(spark, tables, paths, tell)
            refresh(spark, tables, tell)


@app.command()
def status(lake: LakeDir, as_json: AsJson = False) -> None:
    """Show every table (version, rows, files, bytes, days), and the last sequence of each stripe with its age. Needs no
    Java.

    Examples:

    levelcast pipeline status --lake lake

    levelcast pipeline status --lake lake --json
    """
    with spark_errors():
        from levelcast.pipeline.lake.lake import Lake

        tables = Lake(lake)
        states = list(tables.states())
        ends, times, now_ns = tables.tape_ends(), tables.newest_ns(), time.time_ns()
    if as_json:
        told = [
            {"table": each.name, "version": each.version, "rows": each.rows, "files": each.files, "bytes": each.bytes,
             "days": each.days, "marks": each.marks,
             **({"lag_s": {stripe: (now_ns - at_ns) / 1e9 for stripe, at_ns in times.items()}}
                if each.name == "tape" else {})}
            for each in states
        ]  # fmt: skip
        print_json(told, None)
        return
    if not states:
        typer.echo(f"{lake} has no tables yet.")
        return
    rows = []
    for each in states:
        days = each.days[0] if len(each.days) == 1 else f"{each.days[0]} to {each.days[-1]}" if each.days else ""
        size = f"{each.bytes / MEGABYTE:,.2f}"
        rows.append((each.name, str(each.version), each.rows, each.files, size, days))
    columns = ("table", ">version", ">rows", ">files", ">MB", "days")
    Console(highlight=False).print(table(columns, rows, box=None, pad_edge=False))
    for stripe, upto in sorted(ends.items()):
        lag = f", {(now_ns - times[stripe]) / 1e9:,.1f} s ago" if stripe in times else ""
        typer.echo(f"stripe {stripe}: up to sequence {upto:,}{lag}")


@app.command()
def compact(
    lake: LakeDir,
    name: Annotated[str | None, option("Compact only this table.", "--table", unset="all")] = None,
    target: Annotated[int, option("Target file size in MB.", "--target-mb", min=1)] = TARGET_BYTES // MEGABYTE,
    keep: Annotated[
        int, option("Hours to keep replaced files for readers that still use them.", "--keep-hours", min=0)
    ] = KEEP_HOURS,
    master: Master = None,
) -> None:
    """Merge small files and remove those that no reader can still be using. Safe while a stream runs.

    Examples:

    levelcast pipeline compact --lake lake

    levelcast pipeline compact --lake lake --table tape --keep-hours 48
    """
    console = Console(highlight=False)
    with spark_errors():
        from levelcast.pipeline.lake.lake import COMPACT_LOCK, Lake

        tables = Lake(lake)
        tables.check()
        require_spark(master)
        names = [name] if name is not None else [each.name for each in tables.states()]
        with working(quiet=False) as tell:
            tell("starting Spark")
            with (
                tables.alone(COMPACT_LOCK),
                spark_session(master, "levelcast pipeline compact", inputs=[lake]) as spark,
            ):
                for each in names:
                    tell(each)
                    before, after = tables.compact(spark, each, target * MEGABYTE)
                    removed = tables.clean(each, keep)
                    console.print(f"{each:>16}  {before:,} files, now {after:,}; {removed:,} old files removed")


@app.command()
def load(
    table: Annotated[
        str, typer.Argument(metavar="TABLE", help="subscriptions, requests, deliveries, probes or paths.")
    ],
    file: Annotated[
        Path,
        typer.Argument(
            help="CSV or Parquet, output of `levelcast status --json`, or the data directory of nodes (paths)."
        ),
    ],
    lake: LakeDir,
    master: Master = None,
) -> None:
    """Load data that tapes do not contain: subscriptions, probes, measured paths, and what a status tells.

    requests: for retransmission; deliveries: the spread between subscribers that deliver together.

    Examples:

    levelcast pipeline load subscriptions interest.csv --lake lake

    levelcast status --json > status.json && levelcast pipeline load requests status.json --lake lake

    levelcast pipeline load paths data --lake lake
    """
    with spark_errors():
        require_spark(master)
        from levelcast.pipeline.jobs.load import LOADERS
        from levelcast.pipeline.jobs.refresh import refresh_interest

        if table not in LOADERS:
            raise LakeError(f"{table!r} cannot be loaded from a file; use one of {', '.join(LOADERS)}")
        _require([file], "file")
        with working(quiet=False) as tell, _at_work(lake, master, "load", tell, [file]) as (spark, tables):
            tell(f"writing {table}")
            commit = LOADERS[table](spark, tables, file)
            refresh_interest(spark, tables, tell)
    typer.echo(f"{commit.table}: {commit.rows:,} rows")

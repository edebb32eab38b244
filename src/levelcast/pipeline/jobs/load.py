"""Load input into a lake. Each step is a function of DataFrames or of the lake.

`load_pieces` loads ranges of tapes, `load_files` the rows of files, into `tape`, `trades`, `quotes`, `orders` and
`quarantine`. Each file is loaded once (`levelcast.pipeline.input.inputs`). Tasks write ranges to the files of all
tables in one pass (`tape_to_tables`). Rows become files of `tape` first; the other tables are computed from those. In
both cases `tape` is committed last. So after a crash the same input is loaded again: each table accepts only rows
that it lacks, and the commit of `tape` marks it complete. A table without rows in a batch gets no commit: its mark
lags, but it has no rows in between.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from levelcast.formats.captures import FILE_STEP
from levelcast.pipeline.input import paths, probes, release_logs, tape_to_tables
from levelcast.pipeline.input.files import Input
from levelcast.pipeline.input.inputs import FILE_MARK, InputFile, check_blocks, choose, loaded, rows_of_inputs
from levelcast.pipeline.input.tape_to_tables import FILED, OF_KIND, Filed
from levelcast.pipeline.jobs.refresh import Tell, note, silent
from levelcast.pipeline.lake import quarantine
from levelcast.pipeline.lake.defaults import LakeError
from levelcast.pipeline.lake.duplicates import ORIGIN, Origin, SparkQueries, overlaps
from levelcast.pipeline.lake.files import File, highest
from levelcast.pipeline.lake.lake import TAPE_MARK, Lake
from levelcast.pipeline.lake.log import Commit, CommitMark
from levelcast.pipeline.lake.tables import DELIVERIES, RELEASES, REQUESTS, day_of
from levelcast.storage.append_file import TapeError

ENTRIES_PER_TASK = 200_000
"""Entries of release logs that one task reads."""


@dataclass(slots=True)
class Loaded:
    """Result of a load: commits by table; empty if there was nothing new."""

    commits: dict[str, Commit] = field(default_factory=dict)
    stripes: Mapping[int, int] = field(default_factory=dict)
    """The last sequence of each stripe."""
    files: dict[str, list[File]] = field(default_factory=dict)
    """Files written, by table."""
    amended: Counter[str] = field(default_factory=Counter)
    """Busts and corrections among the added trades, by day."""
    skipped: list[str] = field(default_factory=list)
    """Files that the lake already has, each with the reason."""

    def rows(self, name: str) -> int:
        return self.commits[name].rows if name in self.commits else 0


# -- loading ----------------------------------------------------------------------------------------------


def load_pieces(
    spark: SparkSession, lake: Lake, pieces: DataFrame, source: str, tell: Tell = silent, *, unsound: bool = False
) -> Loaded:
    """Load ranges of tapes (`rows` = `pieces` of the data source) after the end of their stripes in the lake, from any
    receiver. Raises TapeError if there is a gap between the two, or, unless `unsound`, if no receiver has a valid
    frame; nothing is committed then."""
    known = {name: lake.tape_ends(name) for name in FILED}
    done = Loaded()

    def write(stages: Mapping[str, Path], attempt: str) -> Mapping[str, list[File]]:
        places = {name: str(stage) for name, stage in stages.items()}
        order = tape_to_tables.Order(places, attempt, known, source, unsound)
        filed = tape_to_tables.file_pieces(pieces, order)
        _without_holes(filed, known["tape"], source)
        for each in filed:
            done.amended.update(each.amended)
        return {name: [file for each in filed for file in each.files.get(name, ())] for name in FILED}

    tell("reading the tapes, writing tape, trades, quotes and orders")
    with lake.staged_by(FILED, write) as files:
        if not files["tape"]:
            return done
        done.files = files
        done.stripes = highest(files["tape"], "sequence")
        tell("committing")
        for name in (*FILED[1:], "tape"):
            if files[name]:
                note(done.commits, lake.land(name, files[name], _tape_claims(done.stripes, known[name])))
    return done


def _without_holes(filed: Iterable[Filed], known: Mapping[int, int], source: str) -> None:
    """Raise TapeError if retention has removed records between the lake's end and the oldest available."""
    upto = {stripe: last + 1 for stripe, last in known.items()}
    for each in filed:
        wanted = upto.get(each.stripe, each.start)
        if each.start > wanted:
            raise TapeError(
                f"{source}: retention has removed sequence {wanted:,} of stripe {each.stripe}, which the lake still "
                f"needs; the oldest available is {each.start:,}; pass a receiver that has it, or create a new lake"
            )
        upto[each.stripe] = max(wanted, each.stop)


def _tape_claims(upto: Mapping[int, int], known: Mapping[int, int]) -> list[CommitMark]:
    return [
        CommitMark(f"{TAPE_MARK}{stripe}", to, before=known.get(stripe, 0))
        for stripe, to in upto.items()
        if to > known.get(stripe, 0)
    ]


def load_files(
    spark: SparkSession, lake: Lake, found: Input, files: Sequence[InputFile], tell: Tell = silent
) -> Loaded:
    """Load what has been read of files; their tasks begin at multiples of `FILE_STEP`, in this order. Raises LakeError
    if a file has no readable row, or has rows of another one; nothing is committed then."""
    tell("reading the input")
    chosen = choose(lake, _read(found, files), "rows_hash")
    done = Loaded(skipped=chosen.skipped)
    if not chosen.files:
        return done
    check_blocks(lake, chosen.files)
    blocks = spark.createDataFrame(
        [(file.task.first, file.first_sequence, file.stripe) for file in chosen.files],
        "first long, first_sequence long, loaded_as int",
    )
    at = f.col("sequence").bitwiseAND(FILE_STEP - 1)
    rows = (
        found.rows.withColumn("first", f.col("sequence") - at)
        .join(f.broadcast(blocks), "first")
        .withColumn("stripe", f.col("loaded_as"))
        .withColumn("sequence", f.col("first_sequence") + at)
        .select(*found.rows.columns)
    )
    names = [file.name for file in chosen.files]
    return land_rows(spark, lake, rows, chosen.files, tell, found.quarantine.filter(f.col("source").isin(names)), done)


def _read(found: Input, files: Sequence[InputFile]) -> list[InputFile]:
    """Return the files with the number and the hash of their rows; without empty ones."""
    at = f.col("sequence").bitwiseAND(FILE_STEP - 1)
    hashed = [name for name in found.rows.columns if name not in ("stripe", "sequence", "slot")]
    # xxhash64 skips nulls, so their places are hashed as well.
    where_null = f.array(*(f.col(name).isNull() for name in hashed))
    counted = found.both.groupBy((f.col("sequence") - at).alias("first"), "refused_source").agg(
        f.count("*").alias("rows"),
        f.max(at).alias("last"),
        f.expr("min_by(refused_reason, refused_position)").alias("reason"),
        *(f.bit_xor(f.xxhash64(f.lit(seed), at, *hashed, where_null)).alias(f"hash{seed}") for seed in (1, 2)),
    )
    good = {}
    bad = {}
    for row in counted.collect():
        if row["refused_source"] is None:
            good[row["first"]] = row
        else:
            bad[row["refused_source"]] = row
    read = []
    for file in files:
        mine, refused = good.get(file.task.first), bad.get(file.name)
        if mine is None and refused is not None:
            raise LakeError(f"{file.name}: no row is readable ({refused['reason']}); check the format")
        if mine is not None:
            rows_hash = "".join(f"{mine[name] % 2**64:016x}" for name in ("hash1", "hash2"))
            count = 0 if refused is None else refused["rows"]
            read.append(replace(file, rows=mine["rows"], refused=count, last=mine["last"], rows_hash=rows_hash))
    return read


def land_rows(
    spark: SparkSession,
    lake: Lake,
    rows: DataFrame,
    files: Sequence[InputFile],
    tell: Tell = silent,
    refused: DataFrame | None = None,
    done: Loaded | None = None,
) -> Loaded:
    """Load rows with their final sequences into each table, without those of files that it has. `refused` has the
    unreadable rows."""
    done = done or Loaded()
    tell("writing tape")
    with lake.staged("tape", rows) as staged:
        tell("comparing with the rows of the lake")
        _without_overlaps(spark, lake, staged, files)
        whole = lake.read_files(spark, "tape", staged)
        done.stripes = highest(staged, "sequence")
        if new := _lacking(lake, "inputs", files):
            lake.append_arrow("inputs", rows_of_inputs(new), [file.mark for file in new])
        for kind, table in OF_KIND.items():
            new = _lacking(lake, table.name, files)
            if not new or not any(file.meets("kind", kind, kind) for file in staged):
                continue
            tell(f"writing {table.name}")
            part = _rows_of(spark, quarantine.good(whole).filter(whole["kind"] == kind), new, files)
            note(done.commits, lake.append(table.name, part, [file.mark for file in new], skip_empty=True))
        tell("checking rows for contradictions")
        if new := _lacking(lake, "quarantine", files):
            wrong = quarantine.bad(_named(spark, _rows_of(spark, whole, new, files), new), f.col("file"))
            if refused is not None:
                kept = refused.filter(f.col("source").isin([file.name for file in new]))
                wrong = wrong.unionByName(kept, allowMissingColumns=True)
            note(done.commits, lake.append("quarantine", wrong, [file.mark for file in new], skip_empty=True))
        tell("committing tape")
        note(done.commits, lake.land("tape", staged, [file.mark for file in files]))
    return done


def _lacking(lake: Lake, name: str, files: Sequence[InputFile]) -> list[InputFile]:
    """Return the files that a table does not have: all, unless an earlier load was interrupted."""
    marks = lake.all_marks(name, FILE_MARK)
    return [file for file in files if file.mark.name not in marks]


def _rows_of(
    spark: SparkSession, rows: DataFrame, wanted: Sequence[InputFile], files: Sequence[InputFile]
) -> DataFrame:
    """Return the rows of some of the files."""
    return rows if len(wanted) == len(files) else _named(spark, rows, wanted).drop("file")


def _named(spark: SparkSession, rows: DataFrame, files: Sequence[InputFile]) -> DataFrame:
    """Return the rows of these files with a column `file`."""
    names = spark.createDataFrame([(file.first_sequence, file.name) for file in files], "block long, file string")
    return rows.withColumn("block", f.expr(ORIGIN)).join(f.broadcast(names), "block").drop("block")


def _without_overlaps(spark: SparkSession, lake: Lake, staged: Sequence[File], files: Sequence[InputFile]) -> None:
    """Raise LakeError if a new file has rows of another one, in the lake or in the same list."""
    sizes = {Origin(file.stripe, file.first_sequence): file.rows for file in files}
    names = {origin: file.name for origin, file in zip(sizes, files, strict=True)}
    for overlap in overlaps(SparkQueries(spark), lake, lake.files("tape"), staged, sizes):
        new, old = sorted((overlap.keep, overlap.drop), key=lambda origin: origin not in names)
        if new not in names:
            continue  # both are in the lake: `levelcast pipeline check` reports them
        if old not in names:
            known = [row for row in loaded(lake, "first_sequence", [old.block]) if row["stripe"] == old.stripe]
            other = str(known[0]["file"]) if known else f"an earlier load of stripe {old.stripe}"
        else:
            other = names[old]
        raise LakeError(
            f"{names[new]}: {overlap.rows:,} of its rows of {overlap.day} are also in {other}; "
            "nothing was loaded; remove them from one of the two, or load it into another lake"
        )


def load_releases(spark: SparkSession, lake: Lake, inputs: Iterable[Path], tell: Tell = silent) -> Commit | None:
    """Load the new entries of the release logs next to the tapes."""
    logs = release_logs.find_logs(inputs)
    marks = {receiver: f"releases/{receiver}" for receiver in logs}
    known = lake.marks("releases", list(marks.values()))
    after = {receiver: known.get(mark, 0) for receiver, mark in marks.items()}
    ranges = release_logs.slot_ranges(logs, after, ENTRIES_PER_TASK)
    if len(ranges) > 1:
        tell("writing releases")
        rows = _release_rows(spark, ranges)
        upto = dict(ranges[0].upto)
    else:
        new = release_logs.read_logs(logs, after)
        if not new:
            return None
        tell("writing releases")
        rows = spark.createDataFrame(release_logs.release_rows(new)).coalesce(1)
        upto = {receiver: int(log["slot"].max()) for receiver, log in new.items()}
    claims = [CommitMark(marks[receiver], to, after[receiver]) for receiver, to in upto.items()]
    return lake.append("releases", rows, claims)


def _release_rows(spark: SparkSession, ranges: Sequence[release_logs.SlotRange]) -> DataFrame:
    """Return rows of `releases`, each range from a task of its own; counts of the same minute are added."""

    def work(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from ranges[number].rows().to_batches()

    found = spark.range(0, len(ranges), 1, len(ranges)).mapInArrow(work, RELEASES.ddl)
    counted = ("releases", "records")
    key = [name for name in RELEASES.names if name not in counted]
    return found.groupBy(*key).agg(*(f.sum(name).alias(name) for name in counted)).coalesce(1)


# -- input other than tapes -------------------------------------------------------------------------------


def load_subscriptions(spark: SparkSession, lake: Lake, path: Path) -> Commit:
    """Replace the subscriptions with those of the planner's interest file (`user, flow`)."""
    from levelcast.pipeline.channels.spark_plan import read_table

    rows = read_table(spark, path, ("user", "flow")).distinct()
    return _landed(lake.replace("subscriptions", rows.coalesce(1)), path)


def load_status(spark: SparkSession, lake: Lake, path: Path) -> Commit:
    """Add rows to `requests` from the output of `levelcast status --json`."""
    rows = [
        (name, at_ns, *(node.get(key) for key in ("requests", "gaps", "frames", "late")),
         (node.get("edge") or {}).get("requests"), day_of(at_ns))
        for name, at_ns, node in _nodes_of(path)
    ]  # fmt: skip
    return _landed(lake.append("requests", spark.createDataFrame(rows, REQUESTS.ddl).coalesce(1)), path)


def load_deliveries(spark: SparkSession, lake: Lake, path: Path) -> Commit:
    """Add rows to `deliveries` from the output of `levelcast status --json`."""
    counted = [name for name in DELIVERIES.names if name not in ("receiver", "at_ns", "worst", "day")]
    rows = []
    for name, at_ns, node in _nodes_of(path):
        if (found := (node.get("edge") or {}).get("together")) is not None:
            worst = next((each["address"] for each in found["worst"]), None)
            rows.append((name, at_ns, *(found[key] for key in counted), worst, day_of(at_ns)))
    if not rows:
        raise LakeError(f"{path}: has no edge with subscribers that deliver together")
    return _landed(lake.append("deliveries", spark.createDataFrame(rows, DELIVERIES.ddl).coalesce(1)), path)


def _nodes_of(path: Path) -> list[tuple[str, int, dict[str, Any]]]:
    """Return name, time and status of each node in the output of `levelcast status --json`."""
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        return [(name, int(node["now_ns"]), dict(node)) for name, node in told["nodes"].items()]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise LakeError(f"{path}: not the output of `levelcast status --json`") from None


LOADERS: dict[str, Callable[[SparkSession, Lake, Path], Commit]] = {
    "subscriptions": load_subscriptions,
    "requests": load_status,
    "deliveries": load_deliveries,
    "probes": probes.load_probes,
    "paths": paths.load_paths,
}


def _landed(commit: Commit | None, path: Path) -> Commit:
    if commit is None:
        raise LakeError(f"{path}: could not be loaded")
    return commit

"""Load input into a lake. Each step is a function of DataFrames or of the lake.

`load_pieces` loads ranges of tapes, `load_files` rows of the flat schema, into `tape`, `trades`, `quotes`, `orders` and
`quarantine`. Tasks write ranges to the files of all tables in one pass (`tape_to_tables`). Rows become files of `tape`
first, and the other tables are computed from those files. In both cases `tape` is committed last. So after a crash the
same input is loaded again: each table accepts only rows that it lacks, and the commit of `tape` marks it complete. A
table without rows in a batch gets no commit: its mark lags, but it has no rows in between.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from levelcast.pipeline.input import probes, release_logs, tape_to_tables
from levelcast.pipeline.input.tape_to_tables import FILED, OF_KIND, Filed
from levelcast.pipeline.jobs.refresh import Tell, note, silent
from levelcast.pipeline.lake import quarantine
from levelcast.pipeline.lake.defaults import LakeError
from levelcast.pipeline.lake.files import File, highest
from levelcast.pipeline.lake.lake import TAPE_MARK, Lake
from levelcast.pipeline.lake.log import Commit, CommitMark
from levelcast.pipeline.lake.tables import REQUESTS, day_of
from levelcast.storage.append_file import TapeError


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
    spark: SparkSession,
    lake: Lake,
    rows: DataFrame,
    source: str,
    identity: str,
    tell: Tell = silent,
    refused: DataFrame | None = None,
) -> Loaded:
    """Load rows of input that is identified by its content: each `identity` once. `refused` has the unreadable rows."""
    mark = CommitMark(f"input/{identity}", 1)
    done = Loaded()
    if lake.marks("tape", [mark.name]):
        return done
    tell("reading the input, writing tape")
    with lake.staged("tape", rows) as files:
        if not files and refused is None:
            return done
        if not files and refused is not None and (first := refused.orderBy("position").first()) is not None:
            raise LakeError(f"{source}: no row is readable ({first['reason']}); check the format")
        whole = lake.read_files(spark, "tape", files)
        done.stripes = highest(files, "sequence")
        for kind, table in OF_KIND.items():
            if not any(file.meets("kind", kind, kind) for file in files):
                continue
            tell(f"writing {table.name}")
            part = quarantine.good(whole).filter(whole["kind"] == kind)
            note(done.commits, lake.append(table.name, part, [mark], skip_empty=True))
        tell("checking rows for contradictions")
        wrong = quarantine.bad(whole, source)
        if refused is not None:
            wrong = wrong.unionByName(refused, allowMissingColumns=True)
        note(done.commits, lake.append("quarantine", wrong, [mark], skip_empty=True))
        tell("committing tape")
        note(done.commits, lake.land("tape", files, [mark]))
    return done


def load_releases(spark: SparkSession, lake: Lake, inputs: Iterable[Path], tell: Tell = silent) -> Commit | None:
    """Load the new entries of the release logs next to the tapes."""
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


# -- input other than tapes -------------------------------------------------------------------------------


def load_subscriptions(spark: SparkSession, lake: Lake, path: Path) -> Commit:
    """Replace the subscriptions with those of the planner's interest file (`user, flow`)."""
    from levelcast.pipeline.channels.spark_plan import read_table

    rows = read_table(spark, path, ("user", "flow")).distinct()
    return _landed(lake.replace("subscriptions", rows.coalesce(1)), path)


def load_status(spark: SparkSession, lake: Lake, path: Path) -> Commit:
    """Add rows to `requests` from the output of `levelcast status --json`."""
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        rows = [
            (name, node["now_ns"], *(node.get(key) for key in ("requests", "gaps", "frames", "late")),
             (node.get("edge") or {}).get("requests"), day_of(node["now_ns"]))
            for name, node in told["nodes"].items()
        ]  # fmt: skip
    except (ValueError, KeyError, TypeError, AttributeError):
        raise LakeError(f"{path}: not the output of `levelcast status --json`") from None
    return _landed(lake.append("requests", spark.createDataFrame(rows, REQUESTS.ddl).coalesce(1)), path)


LOADERS: dict[str, Callable[[SparkSession, Lake, Path], Commit]] = {
    "subscriptions": load_subscriptions,
    "requests": load_status,
    "probes": probes.load_probes,
}


def _landed(commit: Commit | None, path: Path) -> Commit:
    if commit is None:
        raise LakeError(f"{path}: could not be loaded")
    return commit

"""Load the input of a job: tapes from where the last load stopped, and files once each."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from levelcast.formats.captures import tasks_of
from levelcast.pipeline.input.files import Input, read_tapes, read_tasks
from levelcast.pipeline.input.inputs import OLD_MARK, choose, input_files, old_identity, renumbered
from levelcast.pipeline.jobs.load import Loaded, load_files, load_pieces, load_releases
from levelcast.pipeline.jobs.refresh import Tell
from levelcast.pipeline.lake.defaults import PIECE_RECORDS
from levelcast.pipeline.lake.lake import Lake

TAPE = "tape"
MASKS = {"iex": 0x60}
"""Sale conditions that set no price, for formats without LEAN's bits: IEX has extended hours and odd lots."""
CONSOLIDATED = frozenset({"lean"})
"""Formats with quotes of the complete market's best, not each venue's own."""


def load(
    spark: SparkSession,
    lake: Lake,
    paths: Sequence[Path],
    format: str,
    day: date | None,
    stripe: int | None,
    tell: Tell,
    venue: str | None = None,
    *,
    unsound: bool = False,
) -> Loaded:
    """Read the input and load it into the lake; do nothing if it is loaded already."""
    from pyspark import StorageLevel

    source = ", ".join(map(str, paths))
    if format == TAPE:
        loaded = load_pieces(spark, lake, read_pieces(spark, paths, unsound=unsound), source, tell, unsound=unsound)
        released = load_releases(spark, lake, paths, tell)
        if released is not None:
            loaded.commits[released.table] = released
        return loaded
    tasks = tasks_of([path.absolute() for path in paths], format, day=day, venue=venue)
    if lake.all_marks("tape", OLD_MARK):
        name = old_identity(paths, [format, str(day), str(stripe), str(venue)])
        if lake.marks("tape", [f"{OLD_MARK}{name}"]):
            return Loaded(skipped=[f"{source}: skipped, already loaded"])
    chosen = choose(lake, input_files(tasks, stripe, spark), "content_hash")
    if not chosen.files:
        return Loaded(skipped=chosen.skipped)
    files = renumbered(chosen.files)
    # On disk temporarily, so that the files are read once.
    both = read_tasks(spark, [file.task for file in files]).both.persist(StorageLevel.DISK_ONLY)
    try:
        done = load_files(spark, lake, Input.of(both), files, tell)
    finally:
        both.unpersist()
    done.skipped = sorted(done.skipped + chosen.skipped)
    return done


def read_pieces(spark: SparkSession, paths: Sequence[Path], *, unsound: bool = False) -> DataFrame:
    """Return the contents of the tapes, as ranges of at most `PIECE_RECORDS` records."""
    options: dict[str, str | int] = {"rows": "pieces", "recordsPerPartition": PIECE_RECORDS, "unsound": f"{unsound}"}
    return read_tapes(spark, paths, options)

"""Load the input of a job: tapes from where the last load stopped, and files once each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date
from pathlib import Path

from blake3 import blake3
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from levelcast.pipeline.input.files import Input, read_both, read_tapes
from levelcast.pipeline.jobs.load import Loaded, load_files, load_pieces, load_releases
from levelcast.pipeline.jobs.refresh import Tell
from levelcast.pipeline.lake.defaults import PIECE_RECORDS, LakeError
from levelcast.pipeline.lake.lake import Lake

TAPE = "tape"
MASKS = {"iex": 0x60}
"""Sale conditions that set no price, for formats without LEAN's bits: IEX has extended hours and odd lots."""
CONSOLIDATED = frozenset({"lean"})
"""Formats with quotes of the complete market's best, not each venue's own."""
_DIGITS = 32


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
    name = identity(paths, [format, str(day), str(stripe), str(venue)])
    # On disk temporarily, so that the files are read once.
    both = read_both(spark, paths, format, day, venue=venue).both.persist(StorageLevel.DISK_ONLY)
    try:
        found = Input.of(both)
        rows = found.rows if stripe is None else found.rows.withColumn("stripe", f.lit(stripe))
        return load_files(spark, lake, rows, source, name, tell, found.quarantine)
    finally:
        both.unpersist()


def read_pieces(spark: SparkSession, paths: Sequence[Path], *, unsound: bool = False) -> DataFrame:
    """Return the contents of the tapes, as ranges of at most `PIECE_RECORDS` records."""
    options: dict[str, str | int] = {"rows": "pieces", "recordsPerPartition": PIECE_RECORDS, "unsound": f"{unsound}"}
    return read_tapes(spark, paths, options)


def identity(paths: Iterable[Path], how: Sequence[str]) -> str:
    """Return a hash of the files' content and how they are read; their names do not matter."""
    digest = blake3("\0".join(how).encode())
    for path in paths:
        files = sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]
        if not files:
            raise LakeError(f"{path}: empty directory; pass one with files in it")
        for file in files:
            each = blake3()
            each.update_mmap(file) if file.stat().st_size else each.update(b"")
            digest.update(each.digest())
    return digest.hexdigest()[:_DIGITS]

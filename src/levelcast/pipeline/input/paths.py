"""Load the paths that nodes have measured into a lake, from the files that they keep (`levelcast.node.path_log`)."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from levelcast.pipeline.lake.defaults import LakeError
from levelcast.pipeline.lake.lake import Lake
from levelcast.pipeline.lake.log import Commit
from levelcast.pipeline.lake.tables import PATHS

DIRECTORY = "paths"
"""Name of the directory of a node's files."""
_COLUMNS = [column for column in PATHS.columns if column.name != "day"]
_WRONG = """
    from_site is null or to_site is null or from_node is null or to_node is null or start_ns is null or start_ns < 0
    or since_ns is null or heard is null or heard < 0 or lost is null or lost < 0 or bursts is null or outages is null
    or (heard > 0 and (least_ns is null or delays is null or not delays rlike '^-?[0-9]+:[0-9]+( -?[0-9]+:[0-9]+)*$'))
"""


def load_paths(spark: SparkSession, lake: Lake, path: Path) -> Commit:
    """Load the lines that the lake does not have yet, from a file or from all nodes of a data directory.

    The files grow while nodes run, so a line is known by its path, minute and start of measurement. Raises LakeError if
    nothing is new, or for a line that is not a measured path; then nothing is loaded.
    """
    files = [path] if path.is_file() else sorted(path.glob(f"**/{DIRECTORY}/*.csv")) or sorted(path.glob("*.csv"))
    if not files:
        raise LakeError(f"{path}: has no measured paths; nodes write them to NODE/{DIRECTORY}/DAY.csv, every minute")
    rows = read_paths(spark, files)
    key = [*PATHS.key]
    days = [row[0].isoformat() for row in rows.select("day").distinct().collect()]
    known = lake.read(spark, "paths", days=days).select(*key) if lake.has("paths") else None
    new = rows.dropDuplicates(key) if known is None else rows.dropDuplicates(key).join(known, key, "left_anti")
    if new.isEmpty():
        raise LakeError(f"{path}: all of its {rows.count():,} lines are already in the lake")
    commit = lake.append("paths", PATHS.shape(new).coalesce(1))
    assert commit is not None
    return commit


def read_paths(spark: SparkSession, files: list[Path]) -> DataFrame:
    """Return the checked lines of files."""
    where = [str(file.resolve()) for file in files]
    table = spark.read.option("header", True).csv(where)
    missing = [column.name for column in _COLUMNS if column.name not in table.columns]
    if missing:
        raise LakeError(f"{files[0]}: line 1 has no column {missing[0]}; these are not measured paths of a node")
    typed = table.select(
        *(f.expr(f"try_cast(`{column.name}` as {column.type})").alias(column.name) for column in _COLUMNS),
        f.input_file_name().alias("file"),
    )
    wrong = typed.filter(_WRONG).limit(1).collect()
    if wrong:
        row = wrong[0]
        raise LakeError(
            f"{Path(row['file']).name}: the line from {row['from_node']} to {row['to_node']} of minute "
            f"{row['start_ns']} is not a measured path; if its node is just writing it, load again, otherwise remove it"
        )
    return PATHS.shape(typed.withColumn("day", f.expr("date_from_unix_date(cast(start_ns div 86400000000000 as int))")))

"""Load probes into a lake. Check every row; the error for the first invalid row contains its line."""

from __future__ import annotations

import csv
import hashlib
import math
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from levelcast.pipeline.lake.defaults import LakeError
from levelcast.pipeline.lake.lake import Lake
from levelcast.pipeline.lake.log import Commit, CommitMark
from levelcast.pipeline.lake.tables import PROBES

REQUIRED = ("from_site", "to_site", "at_ns", "round_trip_ns", "loss_ratio")
OPTIONAL = ("one_way_ns",)
LONGEST_NS = 3_600_000_000_000
_BLOCK = 1 << 20

_WRONG = f"""
    from_site is null or trim(from_site) = '' or to_site is null or trim(to_site) = ''
    or at_ns is null or at_ns < 0 or (round_trip_ns is null and one_way_ns is null and loss_ratio is null)
    or round_trip_ns not between 0 and {LONGEST_NS} or one_way_ns not between 0 and {LONGEST_NS}
    or loss_ratio not between 0 and 1 or isnan(loss_ratio) or unread
"""


def load_probes(spark: SparkSession, lake: Lake, path: Path) -> Commit:
    """Load rows of `probes` from a table with its columns (CSV or Parquet); the day is computed from `at_ns`.

    A file is loaded once, by its content. Raises LakeError for a row that is not a probe; then nothing is loaded.
    """
    rows = read_probes(spark, path)
    commit = lake.append("probes", rows.coalesce(1), [CommitMark(f"input/{_identity(path)}", 1)])
    if commit is None:
        raise LakeError(f"{path}: already loaded into the lake")
    return commit


def read_probes(spark: SparkSession, path: Path) -> DataFrame:
    """Return the checked rows of a file."""
    where = str(path.resolve())
    is_csv = path.suffix not in (".parquet", ".pq") and not path.is_dir()
    table = spark.read.option("header", True).csv(where) if is_csv else spark.read.parquet(where)
    missing = [name for name in REQUIRED if name not in table.columns]
    if missing:
        has = ", ".join(table.columns) or "nothing"
        raise LakeError(f"{path}: line 1 has no column {missing[0]}; required: {', '.join(REQUIRED)}; found: {has}")
    wanted = [column for column in PROBES.columns if column.name != "day"]
    known = [column for column in wanted if column.name in table.columns]
    typed = table.select(
        *(f.expr(f"try_cast(`{column.name}` as {column.type})").alias(column.name) for column in known),
        *(f.lit(None).cast(column.type).alias(column.name) for column in wanted if column not in known),
        f.expr(" or ".join(
            f"(`{c.name}` is not null and try_cast(`{c.name}` as {c.type}) is null)" for c in known
        )).alias("unread"),
    )  # fmt: skip
    wrong = typed.filter(_WRONG).limit(1).collect()
    if wrong:
        raise LakeError(f"{path}: {_told(path, wrong[0].asDict(), is_csv=is_csv)}")
    return PROBES.shape(typed.withColumn("day", f.expr("date_from_unix_date(cast(at_ns div 86400000000000 as int))")))


def _told(path: Path, row: Mapping[str, object], *, is_csv: bool) -> str:
    """Return the position of the row and its fault."""
    if is_csv:
        with path.open(newline="", encoding="utf-8", errors="replace") as file:
            reader = csv.DictReader(file)
            for each in reader:
                fault = _fault(each)
                if fault is not None:
                    return f"line {reader.line_num} is not a probe: {fault}"
    shown = {name: None if row[name] is None else str(row[name]) for name in (*REQUIRED, *OPTIONAL)}
    return f"the row {shown['from_site']}, {shown['to_site']}, {shown['at_ns']} is not a probe: {_fault(shown)}"


def _fault(row: Mapping[str, str | None]) -> str | None:
    """Return the fault of a row of texts; None if it is valid."""
    text = {name: (row.get(name) or "").strip() for name in (*REQUIRED, *OPTIONAL)}
    for name in ("from_site", "to_site"):
        if not text[name]:
            return f"{name} is empty"
    if _number(text["at_ns"]) is None:
        return f'at_ns is "{text["at_ns"]}", not a time in nanoseconds'
    for name in ("round_trip_ns", "one_way_ns"):
        value = _number(text[name]) if text[name] else 0
        if value is None or value > LONGEST_NS:
            return f'{name} is "{text[name]}", not nanoseconds from 0 to an hour'
    if text["loss_ratio"]:
        ratio = _number(text["loss_ratio"])
        if ratio is None or not 0 <= ratio <= 1:
            return f'loss_ratio is "{text["loss_ratio"]}", not a number from 0 to 1'
    elif not text["round_trip_ns"] and not text["one_way_ns"]:
        return "it has neither a time nor a loss"
    return None


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _identity(path: Path) -> str:
    """The content of a file, or of all files of a directory."""
    digest = hashlib.sha256()
    for each in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if each.is_file():
            with each.open("rb") as file:
                while block := file.read(_BLOCK):
                    digest.update(block)
    return digest.hexdigest()[:32]

"""Write, name and describe the Parquet files of a table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from levelcast.extras import arrow
from levelcast.pipeline.lake.tables import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS_PER_FILE = 8_000_000
LONGEST_BOUND = 32


@dataclass(frozen=True, slots=True)
class File:
    """A data file of a table: `path` is relative to it."""

    path: str
    bytes: int
    rows: int
    partition: Mapping[str, str | None]
    stats: Mapping[str, Any]
    """Statistics as in Delta: `numRecords`, `minValues`, `maxValues`, `nullCount`."""
    added_ms: int = 0

    @property
    def stripe(self) -> int:
        return int(self.partition["stripe"] or 0)

    @property
    def day(self) -> str:
        return str(self.partition["day"])

    def meets(self, column: str, low: Any, high: Any) -> bool:
        """Return True if the file may have values of a column from `low` to `high`, by its bounds."""
        least, most = (self.stats[bound].get(column) for bound in ("minValues", "maxValues"))
        return least is None or most is None or (least <= high and most >= low)


def write_rows(table: Table, rows: DataFrame, stage: Path) -> None:
    shaped = table.shape(rows)
    order = [*table.partition, *table.order]
    if order:
        shaped = shaped.sortWithinPartitions(*order)
    writer = shaped.write.option("compression", "zstd").option("maxRecordsPerFile", ROWS_PER_FILE)
    if table.partition:
        writer = writer.partitionBy(*table.partition)
    writer.parquet(str(stage))


def write_arrow(table: Table, rows: Any, path: Path, stage: Path) -> File:
    """Write a pyarrow table as one file of a table, in the folder of its partition."""
    schema = arrow().schema([each for each in table.arrow_schema() if each.name not in table.partition])
    path.parent.mkdir(parents=True, exist_ok=True)
    footers: list[Any] = []
    writer = arrow("pyarrow.parquet").ParquetWriter(
        path, schema, compression="zstd", store_schema=False, metadata_collector=footers
    )
    with writer:
        writer.write_table(rows.select(schema.names).cast(schema))
    return describe(path, stage, footers[0])


def name_file(path: Path, stage: Path, attempt: str) -> File:
    """Give a file that Spark has written its final name."""
    number = path.name.split("-")[1] + path.name.rpartition(".c")[2].split(".")[0]
    named = path.with_name(f"{attempt}-{number}.parquet")
    path.rename(named)
    return describe(named, stage, arrow("pyarrow.parquet").read_metadata(named))


def describe(path: Path, stage: Path, footer: Any) -> File:
    """Describe a file for the log: its path, its size, and the column statistics of its footer."""
    place = path.relative_to(stage)
    partition = dict(part.partition("=")[::2] for part in place.parent.parts)
    stats = {"numRecords": footer.num_rows, **_bounds(footer)}
    return File(str(place), path.stat().st_size, footer.num_rows, partition, stats)


def _bounds(footer: Any) -> dict[str, Any]:
    """Return minimum and maximum of every column. `deltalake` treats a column without them as one without a match, so
    none is omitted."""
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for group in (footer.row_group(i) for i in range(footer.num_row_groups)):
        for chunk in (group.column(i) for i in range(group.num_columns)):
            name, found = chunk.path_in_schema, chunk.statistics
            if found is None:
                continue
            nulls[name] = nulls.get(name, 0) + (found.null_count or 0)
            if found.has_min_max:
                low[name] = min(found.min, low.get(name, found.min))
                high[name] = max(found.max, high.get(name, found.max))
    return {
        "minValues": {name: _bound(value, -1) for name, value in low.items()},
        "maxValues": {name: _bound(value, 1) for name, value in high.items()},
        "nullCount": nulls,
    }


def _bound(value: Any, side: int) -> Any:
    """Convert a bound to JSON: truncate long texts, and round wide numbers outwards to a double."""
    if isinstance(value, str):
        return value if len(value) <= LONGEST_BOUND else value[:LONGEST_BOUND] + ("\U0010ffff" if side > 0 else "")
    if isinstance(value, Decimal):
        whole, near = int(value), float(value)
        if (int(near) - whole) * side < 0:
            near = math.nextafter(near, side * math.inf)
        return int(near)
    return value.isoformat() if isinstance(value, date) else value


def highest(files: Iterable[File], column: str) -> dict[int, int]:
    """Return the maximum of a column in each stripe, by the bounds of files."""
    found: dict[int, int] = {}
    for file in files:
        found[file.stripe] = max(int(file.stats["maxValues"].get(column) or 0), found.get(file.stripe, 0))
    return found


def bins_of(files: Sequence[File], target_bytes: int) -> list[list[File]]:
    """Group files of one partition into sets of about the target size."""
    bins: list[list[File]] = []
    open_bins: dict[tuple[tuple[str, str | None], ...], list[File]] = {}
    for file in files:
        if file.bytes >= target_bytes * 3 // 4:
            continue
        key = tuple(sorted(file.partition.items()))
        bin = open_bins.setdefault(key, [])
        if sum(each.bytes for each in bin) + file.bytes > target_bytes:
            bins.append(bin)
            bin = open_bins[key] = []
        bin.append(file)
    return [bin for bin in (*bins, *open_bins.values()) if len(bin) > 1]

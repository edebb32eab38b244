"""The tape into the lake while it grows.

Every batch goes through `job.load_tape`, which takes what lies behind the marks of each table: the last sequence of
each stripe. So a batch that Spark repeats after a crash adds nothing, and neither does a stream that begins anew
without its checkpoint, or at another receiver. Spark's batch number is not asked: with a new checkpoint it begins at 0
again, and a table that went by it would refuse what it does not have.

Bars are added as they close. A bar is closed when the tape of every stripe has come to its end, by the timestamp of the
last slot: everything with an earlier one is on the tape already (rule 15), so nothing is late and nothing is dropped.
A bust or correction of a closed bar makes its day anew. At the end of the stream, and by `levelcast pipeline run`, the
derived tables are brought up to date as a whole, with the bars that were still open; a stream that goes on afterwards
begins by taking those out again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from levelcast.pipeline import bars, settle
from levelcast.pipeline.job import DAY_MARK, Loaded, load_tape
from levelcast.pipeline.lake import File, Lake, Mark
from levelcast.pipeline.limits import MOST_RECORDS, LakeError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

CHECKPOINT = "_checkpoint"
CLOSED = "closed/"
AMENDED = "amended/"
COMPACT_EVERY = 50
"""Batches after which small files are put together."""
EVERY_S = 2.0


def start(
    spark: SparkSession,
    lake: Lake,
    inputs: list[Path],
    *,
    until_now: bool = False,
    every_s: float = EVERY_S,
    most_records: int = MOST_RECORDS,
    mask: int = settle.NO_PRICE,
    tell: Callable[[int, Loaded], None] | None = None,
) -> tuple[StreamingQuery, Follower]:
    """Follow tapes into a lake. With `until_now` the query ends when what is there at the start is in it."""
    from levelcast.pipeline.source import register

    register(spark)
    first, *others = (str(path.resolve()) for path in inputs)
    reader = spark.readStream.format("levelcast").option("maxRecordsPerBatch", most_records)
    if others:
        reader = reader.option("receivers", ",".join(others))
    follower = Follower(spark, lake, ", ".join(map(str, inputs)), mask, tell)
    follower.begin()
    writer = (
        reader.load(first)
        .writeStream.foreachBatch(follower)
        .option("checkpointLocation", str(lake.directory / CHECKPOINT))
    )
    when = {"availableNow": True} if until_now else {"processingTime": f"{every_s} seconds"}
    return writer.trigger(**when).start(), follower


@dataclass(slots=True)
class Follower:
    """What happens with each batch; `tell` hears of it."""

    spark: SparkSession
    lake: Lake
    source: str
    mask: int = settle.NO_PRICE
    tell: Callable[[int, Loaded], None] | None = None

    failed: LakeError | None = None
    """Spark makes a long text of an error in a batch: this is the error."""

    def __call__(self, rows: DataFrame, batch: int) -> None:
        try:
            self._take(rows, batch)
        except LakeError as error:
            self.failed = error
            raise

    def _take(self, rows: DataFrame, batch: int) -> None:
        done = load_tape(self.spark, self.lake, rows, self.source)
        self.close_bars()
        self.amend_bars()
        if batch % COMPACT_EVERY == COMPACT_EVERY - 1:
            for name in ("tape", "trades", "quotes", "orders", "bars"):
                if self.lake.has(name):
                    self.lake.compact(self.spark, name)
        if self.tell is not None:
            self.tell(batch, done)

    def begin(self) -> None:
        """Leave only closed bars of days that are not over: the others were made of what there was."""
        upto = complete_upto(self.lake)
        if not upto or not self.lake.has("bars"):
            return
        days = [day for day in _days(self.lake.files("trades")) if _end_ns(day) > upto]
        known = self.lake.all_marks("bars")
        ends = {f"{CLOSED}{name}": _floor(upto, name) for name in bars.INTERVALS}
        ends |= {f"{DAY_MARK}{day}": 0 for day in days}  # they are not up to date any more
        self._make_again(days, upto, [Mark(name, to, known.get(name, 0)) for name, to in ends.items()])

    def close_bars(self) -> None:
        """Add the bars that have closed since the last time."""
        upto = complete_upto(self.lake)
        known = self.lake.all_marks("bars", CLOSED)
        for interval in bars.INTERVALS:
            mark, end = f"{CLOSED}{interval}", _floor(upto, interval)
            begin = known.get(mark, 0)
            if end > begin:
                made = bars.bars(self._trades(begin, end), [interval], self.mask)
                self.lake.append("bars", made.coalesce(1), [Mark(mark, end, begin)])

    def amend_bars(self) -> None:
        """Make the bars of a day anew when more of its trades have been busted or corrected."""
        counts = amendments(self.spark, self.lake)
        known = self.lake.marks("bars", [f"{AMENDED}{day}" for day in counts])
        for day, count in counts.items():
            mark = f"{AMENDED}{day}"
            if count > known.get(mark, 0):
                self._make_again([day], complete_upto(self.lake), [Mark(mark, count)])

    def _make_again(self, days: list[str], upto: int, marks: list[Mark]) -> None:
        trades = self.lake.read(self.spark, "trades", days=days)
        made = bars.complete(bars.bars(trades, mask=self.mask), upto)
        self.lake.replace("bars", made.coalesce(1), days, marks)

    def _trades(self, begin: int, end: int) -> DataFrame:
        """Trades of this time; files that have none of it are not opened."""
        rows = self.lake.read_files(
            self.spark,
            "trades",
            [file for file in self.lake.files("trades") if _meets(file, "ts_recv", begin, end - 1)],
        )
        return rows.filter((rows["ts_recv"] >= begin) & (rows["ts_recv"] < end))


def complete_upto(lake: Lake) -> int:
    """The time up to which the tape of every stripe is in the lake: that of the last slot, of the stripe that is
    furthest behind. 0 if nothing is known."""
    ends: dict[str, int] = {}
    for file in lake.files("tape") if lake.has("tape") else []:
        stripe = str(file.partition["stripe"])
        ends[stripe] = max(int(file.stats["maxValues"].get("ts_recv") or 0), ends.get(stripe, 0))
    return min(ends.values(), default=0)


def amendments(spark: SparkSession, lake: Lake) -> Mapping[str, int]:
    """How many busts and corrections each day has. Files of trades only, by what the log says, are not opened."""
    files = [file for file in lake.files("trades") if file.stats["minValues"].get("action") != "T"]
    if not files:
        return {}
    found = lake.read_files(spark, "trades", files).filter("action in ('C', 'M')").groupBy("day").count()
    return {str(row["day"]): row["count"] for row in found.collect()}


def _meets(file: File, column: str, low: int, high: int) -> bool:
    least, most = (file.stats[bound].get(column) for bound in ("minValues", "maxValues"))
    return least is None or most is None or (least <= high and most >= low)


def _days(files: list[File]) -> list[str]:
    return sorted({str(file.partition["day"]) for file in files})


def _floor(upto: int, interval: str) -> int:
    length = bars.INTERVALS[interval] * bars.SECOND_NS
    return upto // length * length


def _end_ns(day: str) -> int:
    return ((date.fromisoformat(day) - date(1970, 1, 1)).days + 1) * bars.INTERVALS["1d"] * bars.SECOND_NS

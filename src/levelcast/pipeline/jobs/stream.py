"""Load growing tapes into the lake continuously.

`load.load_pieces` processes every batch. It loads records after the marks of each table: the last sequence of each
stripe. So a batch that Spark repeats after a crash adds nothing, and neither does a stream that restarts without its
checkpoint, or at another receiver. Spark's batch number is not used: with a new checkpoint it restarts at 0, and a
table that relied on it would refuse records that it lacks. Spark passes ranges of the tapes, not records; its tasks
read and write the records themselves.

Bars are added as they close. A bar is closed when the tape of every stripe has reached its end, by the timestamp of
the last slot: everything earlier is on the tape already (rule 15), so nothing is late and nothing is dropped. Seconds
are computed from trades, minutes from seconds, days from minutes. A bust or correction of a closed bar recomputes its
day. At the end of the stream, and by `levelcast pipeline run`, all derived tables are updated, including the bars that
were still open. A stream that resumes afterwards first removes those again.

The stream reads the state of the lake once, when it starts. After that no other job adds to these tables (a lake has
one job at a time), so each batch only updates that state.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from threading import Thread

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from levelcast.pipeline.derive import bars, bars_arrow, corrections
from levelcast.pipeline.input.files import read_tapes
from levelcast.pipeline.jobs.load import Loaded, load_pieces
from levelcast.pipeline.jobs.refresh import DAY_MARK
from levelcast.pipeline.lake.defaults import EVERY_S, MOST_RECORDS, PIECE_RECORDS, LakeError
from levelcast.pipeline.lake.files import File, highest
from levelcast.pipeline.lake.lake import Lake
from levelcast.pipeline.lake.log import CommitMark

CHECKPOINT = "_checkpoint"
CLOSED = "closed/"
AMENDED = "amended/"
COMPACT_EVERY = 50
"""Number of batches between compactions of small files."""
COMPACT_BYTES = 32 * 2**20
"""Target size of compacted files during a stream, which runs on the same cores."""
_COMPACTED = ("tape", "trades", "quotes", "orders", "bars")


def start(
    spark: SparkSession,
    lake: Lake,
    inputs: list[Path],
    *,
    until_now: bool = False,
    every_s: float = EVERY_S,
    most_records: int = MOST_RECORDS,
    mask: int = corrections.NO_PRICE,
    tell: Callable[[int, Loaded, float | None], None] | None = None,
) -> tuple[StreamingQuery, StreamWriter]:
    """Follow tapes into a lake. With `until_now`, the query ends when it has loaded what is available at the start."""
    options: dict[str, str | int] = {"maxRecordsPerBatch": most_records, "recordsPerPartition": PIECE_RECORDS}
    pieces = read_tapes(spark, [path.resolve() for path in inputs], {"rows": "pieces", **options}, stream=True)
    follower = StreamWriter(spark, lake, ", ".join(map(str, inputs)), mask, tell, None if until_now else every_s)
    follower.begin()
    writer = pieces.writeStream.foreachBatch(follower).option("checkpointLocation", str(lake.directory / CHECKPOINT))
    when = {"availableNow": True} if until_now else {"processingTime": f"{every_s} seconds"}
    return writer.trigger(**when).start(), follower


@dataclass(slots=True)
class StreamWriter:
    """Process each batch and report it to `tell`. `every_s` is the time between batches; with it, small files are
    compacted in idle time."""

    spark: SparkSession
    lake: Lake
    source: str
    mask: int = corrections.NO_PRICE
    tell: Callable[[int, Loaded, float | None], None] | None = None
    every_s: float | None = None

    failed: LakeError | None = None
    """The original error: Spark converts an error in a batch to a long text."""
    newest_ns: dict[int, int] = field(default_factory=dict)
    """Time of the newest record of each stripe in the lake."""
    _trades: list[File] = field(default_factory=list)
    """Files that may have trades of a second that is not closed."""
    _amended: Counter[str] = field(default_factory=Counter)
    """Number of busts and corrections of each day."""
    _marks: dict[str, int] = field(default_factory=dict)
    """Marks of the table `bars`."""
    _uncompacted: int = 0
    _compaction: Thread | None = None

    def __call__(self, rows: DataFrame, batch: int) -> None:
        try:
            self._take(rows, batch)
        except LakeError as error:
            self.failed = error
            raise

    def _take(self, pieces: DataFrame, batch: int) -> None:
        began = time.monotonic()
        done = load_pieces(self.spark, self.lake, pieces, self.source)
        self._learn(done)
        self.close_bars()
        self.amend_bars()
        self._uncompacted += 1
        if self.every_s is not None and time.monotonic() - began < self.every_s / 2:
            self._compact()
        if self.tell is not None:
            self.tell(batch, done, self.lag_s)

    def _learn(self, done: Loaded) -> None:
        for stripe, newest in highest(done.files.get("tape", ()), "ts_recv").items():
            self.newest_ns[stripe] = max(newest, self.newest_ns.get(stripe, 0))
        self._trades += done.files.get("trades", ())
        self._amended.update(done.amended)

    @property
    def upto_ns(self) -> int:
        """Return the time up to which the tape of every stripe is in the lake."""
        return min(self.newest_ns.values(), default=0)

    @property
    def lag_s(self) -> float | None:
        """Return the age of the newest record in the lake, of the stripe with the greatest lag."""
        return (time.time_ns() - self.upto_ns) / 1e9 if self.newest_ns else None

    def begin(self) -> None:
        """Read the state of the lake. Keep only closed bars of days that are not over: bars that the last job computed
        before their end are incomplete."""
        self.newest_ns = self.lake.newest_ns()
        self._trades = self.lake.files("trades")
        self._amended = Counter(amendments(self.spark, self.lake, self._trades))
        self._marks = self.lake.all_marks("bars")
        upto = self.upto_ns
        days = [day for day in sorted({file.day for file in self._trades}) if _end_ns(day) > upto]
        made = [name.removeprefix(DAY_MARK) for name, at in self._marks.items() if name.startswith(DAY_MARK) and at]
        if any(_end_ns(day) > self._marks.get(f"{CLOSED}1s", 0) for day in made):
            ends = {f"{CLOSED}{name}": _floor(upto, name) for name in bars.INTERVALS}
            ends |= {f"{DAY_MARK}{day}": 0 for day in days}  # they are no longer up to date
            ends |= {f"{AMENDED}{day}": self._amended[day] for day in days if day in self._amended}
            self._make_again(days, ends)
        self._forget_trades()

    def close_bars(self) -> None:
        """Add the bars that have closed since the last call."""
        for interval in bars.INTERVALS:
            mark, end = f"{CLOSED}{interval}", _floor(self.upto_ns, interval)
            begin = self._marks.get(mark, 0)
            if end <= begin:
                return  # no longer interval has closed either
            self._close(interval, begin, end, CommitMark(mark, end, begin))
            self._marks[mark] = end
        self._forget_trades()

    def _close(self, interval: str, begin: int, end: int, mark: CommitMark) -> None:
        """Add the bars of an interval that began in this time range; files without rows in it are not opened."""
        name, column = ("bars", "start_ns") if interval != "1s" else ("trades", "ts_recv")
        files = self._trades if interval == "1s" else self.lake.files("bars")
        files = [file for file in files if file.meets(column, begin, end - 1)]
        if interval == "1s" and any(file.stats["minValues"].get("action") != "T" for file in files):
            rows = self.lake.read_files(self.spark, name, files)
            rows = rows.filter((rows[column] >= begin) & (rows[column] < end))
            self.lake.append("bars", bars.bars(rows, [interval], self.mask).coalesce(1), [mark])
            return
        paths = [str(self.lake.directory / name / file.path) for file in files]

        def write(stages: Mapping[str, Path], attempt: str) -> Mapping[str, list[File]]:
            place = stages["bars"]
            if not paths:
                return {}
            if interval == "1s":
                trades = [(file.stripe, path) for file, path in zip(files, paths, strict=True)]
                return {"bars": bars_arrow.file_seconds(self.spark, trades, begin, end, self.mask, place, attempt)}
            return {"bars": bars_arrow.file_longer(self.spark, paths, interval, begin, end, place, attempt)}

        with self.lake.staged_by(["bars"], write) as made:
            self.lake.land("bars", made["bars"], [mark])

    def _forget_trades(self) -> None:
        closed = self._marks.get(f"{CLOSED}1s", 0)
        self._trades = [file for file in self._trades if file.meets("ts_recv", closed, closed + 2**62)]

    def amend_bars(self) -> None:
        """Recompute the bars of a day after further busts or corrections of its trades."""
        for day, count in self._amended.items():
            mark = f"{AMENDED}{day}"
            if count > self._marks.get(mark, 0):
                self._make_again([day], {mark: count})

    def _make_again(self, days: list[str], marks: Mapping[str, int]) -> None:
        """Recompute the closed bars of some days from all of their trades."""
        trades = self.lake.read(self.spark, "trades", days=days)
        made = bars.complete(bars.bars(trades, mask=self.mask), self.upto_ns)
        claims = [CommitMark(name, to, self._marks.get(name, 0)) for name, to in marks.items()]
        self.lake.replace("bars", made.coalesce(1), days, claims)
        self._marks |= marks

    # -- small files

    def _compact(self) -> None:
        """Compact small files in the background, one compaction at a time."""
        busy = self._compaction is not None and self._compaction.is_alive()
        if self._uncompacted >= COMPACT_EVERY and not busy:
            self._uncompacted = 0
            self._compaction = Thread(target=compact_small, args=(self.spark, self.lake.directory), daemon=True)
            self._compaction.start()

    def end(self) -> None:
        """Wait for the background compaction."""
        if self._compaction is not None:
            self._compaction.join()


def compact_small(spark: SparkSession, directory: Path) -> None:
    """Compact the small files of a stream. On a full disk, the next batch reports the error; nothing is lost here."""
    lake = Lake(directory)
    for name in _COMPACTED:
        if lake.has(name):
            try:
                lake.compact(spark, name, COMPACT_BYTES)
            except LakeError:
                return


def amendments(spark: SparkSession, lake: Lake, trades: Iterable[File]) -> Mapping[str, int]:
    """Return the number of busts and corrections of each day. Files without any, by the log, are not opened."""
    files = [file for file in trades if file.stats["minValues"].get("action") != "T"]
    if not files:
        return {}
    found = lake.read_files(spark, "trades", files).filter("action in ('C', 'M')").groupBy("day").count()
    return {str(row["day"]): row["count"] for row in found.collect()}


def _floor(upto: int, interval: str) -> int:
    length = bars.INTERVALS[interval] * bars.SECOND_NS
    return upto // length * length


def _end_ns(day: str) -> int:
    return ((date.fromisoformat(day) - date(1970, 1, 1)).days + 1) * bars.INTERVALS["1d"] * bars.SECOND_NS

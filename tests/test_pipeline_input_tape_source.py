"""The data source `levelcast` in Spark itself: batch reads, filters, and streams that go on."""

from __future__ import annotations

import json
import shutil
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from levelcast.formats.columns import TradeFileError
from levelcast.protocol.history import Frame
from levelcast.storage.append_file import TapeError
from tests.spark_parts import spark
from tests.tape_parts import T0, make_frames, tip_after
from tests.test_pipeline_input_tapes import expected, write

pytest.importorskip("pyspark")

from levelcast.pipeline import register
from levelcast.pipeline.input.tape_source import (
    LevelcastSource,
    OptionError,
    SourceOptions,
    complete_upto,
    marks_of,
    sentence_of,
)
from levelcast.pipeline.lake.defaults import LakeError
from levelcast.pipeline.lake.schema import SchemaError

__all__ = ["spark"]


@pytest.fixture(scope="module")
def session(spark: Any) -> Any:
    register(spark)
    return spark


@pytest.fixture(scope="module")
def frames() -> list[Frame]:
    return make_frames(150, 3)


@pytest.fixture(scope="module")
def tape(tmp_path_factory: pytest.TempPathFactory, frames: list[Frame]) -> Path:
    directory = tmp_path_factory.mktemp("data") / "one" / "tape"
    write(directory, frames).close()
    return directory


def sequences(rows: Any) -> list[int]:
    return [row.sequence for row in rows.select("sequence").collect()]


def test_a_tape_is_read_with_everything_in_it(session: Any, tape: Path, frames: list[Frame]) -> None:
    rows = session.read.format("levelcast").load(str(tape.parent))
    assert rows.rdd.getNumPartitions() == len(list(tape.glob("*.idx")))
    wanted = expected(tape)
    found = rows.orderBy("sequence").collect()
    assert [row.sequence for row in found] == [row["sequence"] for row in wanted]
    for row, right in zip(found, wanted, strict=True):
        if row.kind == "trade":
            assert row.trade_id % 2**64 == right["trade_id"]
        assert (row.slot, row.ts_recv, row.kind) == (right["slot"], right["ts_recv"], right["kind"])
    assert {row.day for row in found} == {date(2023, 11, 14)}


def test_columns_range_and_schema_of_ones_own(session: Any, tape: Path) -> None:
    reader = session.read.format("levelcast").option("from", 100).option("to", 300).option("rowsPerBatch", 50)
    rows = reader.option("columns", "price, sequence").option("recordsPerPartition", 30).load(str(tape))
    assert rows.columns == ["sequence", "price"]
    assert sorted(sequences(rows)) == list(range(100, 301))
    own = session.read.format("levelcast").schema("kind string, sequence bigint").load(str(tape))
    assert own.columns == ["kind", "sequence"]
    assert own.where("kind = 'quote'").count() == sum(row["kind"] == "quote" for row in expected(tape))


def test_filters_leave_out_what_is_not_wanted(session: Any, tape: Path) -> None:
    rows = session.read.format("levelcast").load(str(tape))
    wanted = expected(tape)
    for condition, right in (
        ("sequence between 201 and 240", lambda row: 201 <= row["sequence"] <= 240),
        ("slot > 150 and stripe = 0", lambda row: row["slot"] > 150),
        (f"ts_recv < {T0 + 10**9}", lambda row: row["ts_recv"] < T0 + 10**9),
        ("day = date'2023-11-14' and sequence in (5, 900)", lambda row: row["sequence"] in (5, 900)),
        ("day < date'2023-11-14'", lambda row: False),
        ("stripe = 1", lambda row: False),
        ("kind = 'status'", lambda row: row["kind"] == "status"),
        ("symbol = 'NONE'", lambda row: False),
    ):
        found = rows.where(condition)
        assert sorted(sequences(found)) == [row["sequence"] for row in wanted if right(row)], condition


def test_queries_on_one_frame_do_not_share_their_filters(session: Any, tape: Path) -> None:
    rows = session.read.format("levelcast").load(str(tape))
    everything = len(expected(tape))
    assert rows.count() == everything
    assert rows.where("kind = 'order' and symbol = 'NONE'").count() == 0
    assert rows.count() == everything
    few, many = rows.where("sequence <= 10"), rows.where("sequence > 10")
    assert few.union(many).count() == everything


@pytest.mark.parametrize(
    ("options", "right"),
    [
        ({"days": "2023-11-14", "kinds": "status"}, lambda row: row["kind"] == "status"),
        ({"days": "2023-11-10..2023-11-13"}, lambda row: False),
        ({"days": "2023-11-13..2023-11-20", "to": "40"}, lambda row: row["sequence"] <= 40),
        ({"kinds": "trade,status"}, lambda row: row["kind"] in ("trade", "status")),
        ({"symbols": "NONE"}, lambda row: False),
        ({"venues": "NONE"}, lambda row: False),
    ],
    ids=["a day", "days before", "days and sequences", "kinds", "symbols", "venues"],
)
def test_options_select(options: dict[str, str], right: Any, session: Any, tape: Path) -> None:
    found = session.read.format("levelcast").options(**options).load(str(tape))
    assert sorted(sequences(found)) == [row["sequence"] for row in expected(tape) if right(row)]


def test_what_is_wrong_is_one_sentence(session: Any, tape: Path, tmp_path: Path) -> None:
    reader = session.read.format("levelcast")
    for load, sentence in (
        (lambda: reader.load(str(tmp_path / "none")), "directory not found"),
        (lambda: reader.load(str(tmp_path)), "no tape found"),
        (lambda: session.read.format("levelcast").option("prefix", 1).load(str(tape)), "unknown option 'prefix'"),
        (lambda: session.read.format("levelcast").option("columns", "prize").load(str(tape)), "unknown column"),
        (lambda: session.read.format("levelcast").option("from", "x").load(str(tape)), "'x' is not an integer"),
    ):
        with pytest.raises(Exception, match=sentence) as caught:
            load()
        told = sentence_of(caught.value)
        assert told is not None
        assert sentence in told
        assert "\n" not in told
    write(tmp_path / "empty", []).close()
    with pytest.raises(Exception, match="the tape is empty; nothing has been released yet"):
        reader.load(str(tmp_path / "empty")).count()
    truncated = tmp_path / "truncated"
    shutil.copytree(tape, truncated)
    data = min(truncated.glob("*.dbn"))
    data.write_bytes(data.read_bytes()[:-70])
    with pytest.raises(Exception, match="truncated") as caught:
        reader.load(str(truncated)).count()
    assert "its index has records up to byte" in str(sentence_of(caught.value))
    with pytest.raises(OptionError, match="exclude each other"):
        SourceOptions({"path": "x", "maxRecordsPerBatch": "1", "maxSegmentsPerBatch": "1"})
    assert LevelcastSource.name() == "levelcast"


# -- streams ----------------------------------------------------------------------------------------------


class Stream:
    """A stream that runs to the end of what is there, into files, and can be run again."""

    def __init__(self, session: Any, place: Path, directory: Path, **options: Any) -> None:
        self.session, self.place, self.directory, self.options = session, place, directory, options

    def run(self) -> list[dict[str, Any]]:
        """The progress of each batch."""
        reader = self.session.readStream.format("levelcast").option("columns", "stripe,sequence,slot,ts_recv,symbol")
        rows = reader.options(**self.options).load(str(self.directory))
        query = (
            rows.writeStream.format("parquet")
            .option("path", str(self.place / "out"))
            .option("checkpointLocation", str(self.place / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return [json.loads(each.json) for each in query.recentProgress]

    def found(self) -> list[int]:
        return sorted(sequences(self.session.read.parquet(str(self.place / "out"))))


def test_a_stream_goes_on_with_a_growing_tape_and_with_another_receivers(
    session: Any, tmp_path: Path, frames: list[Frame]
) -> None:
    writer = write(tmp_path / "a", frames[:60])
    other = write(tmp_path / "b", frames)
    other.close()
    stream = Stream(session, tmp_path, tmp_path / "a", maxRecordsPerBatch=100, receivers=str(tmp_path / "c"))
    progress = stream.run()
    upto = tip_after(frames[:60]).next_sequence
    assert stream.found() == list(range(1, upto))
    assert len([each for each in progress if each["numInputRows"]]) > 3
    assert all(each["numInputRows"] <= 100 for each in progress)
    (mark,) = marks_of(progress[-1]["sources"][0]["endOffset"]).values()
    assert mark == (upto, frames[59].slot, frames[59].timestamp_ns)

    writer.extend(frames[60:100])
    writer.close()
    stream.run()
    assert stream.found() == list(range(1, tip_after(frames[:100]).next_sequence))

    shutil.rmtree(tmp_path / "a")
    (tmp_path / "b").rename(tmp_path / "c")
    stream.run()
    assert stream.found() == list(range(1, tip_after(frames).next_sequence))
    assert not [each for each in stream.run() if each["numInputRows"]]


def test_a_stream_fails_when_retention_has_eaten_what_it_needed(
    session: Any, tmp_path: Path, frames: list[Frame]
) -> None:
    writer = write(tmp_path / "a", frames[:10])
    stream = Stream(session, tmp_path, tmp_path / "a")
    stream.run()
    writer.extend(frames[10:])
    writer.retain(0, max_bytes=30_000)
    writer.close()
    with pytest.raises(Exception, match="retention has removed sequence") as caught:
        stream.run()
    told = sentence_of(caught.value)
    assert told is not None
    assert "which is still needed; the oldest available is" in told
    assert stream.found() == list(range(1, tip_after(frames[:10]).next_sequence))


def test_a_stream_takes_whole_segments_and_all_stripes(session: Any, tmp_path: Path, frames: list[Frame]) -> None:
    write(tmp_path / "data" / "a" / "tape", frames).close()
    write(tmp_path / "data" / "b" / "tape", make_frames(40, 9), stripe=1).close()
    progress = Stream(session, tmp_path, tmp_path / "data", maxSegmentsPerBatch=1).run()
    rows = session.read.parquet(str(tmp_path / "out"))
    assert rows.where("stripe = 0").count() == tip_after(frames).next_sequence - 1
    assert rows.where("stripe = 1").count() == tip_after(make_frames(40, 9)).next_sequence - 1
    assert len([each for each in progress if each["numInputRows"]]) >= len(list(tmp_path.glob("data/a/tape/*.idx"))) - 1


def test_a_batch_says_how_far_the_tape_is_complete(session: Any, tape: Path, frames: list[Frame]) -> None:
    rows = session.read.format("levelcast").option("columns", "stripe,sequence,slot,ts_recv").load(str(tape))
    (end,) = complete_upto(rows).collect()
    assert tuple(end) == (0, tip_after(frames).next_sequence, frames[-1].slot, frames[-1].timestamp_ns)


def test_the_sentence_of_any_user_error_in_a_worker_is_found() -> None:
    for raised in (TapeError("a: b"), OptionError("c"), SchemaError("d"), TradeFileError("e"), LakeError("f")):
        kind = type(raised)
        text = f"Job aborted.\n{kind.__module__}.{kind.__qualname__}: {raised}\n\tat org.apache.spark"
        assert sentence_of(Exception(text)) == str(raised)
    assert sentence_of(Exception("levelcast.records.walk.BadRecords: not for a person")) is None
    assert sentence_of(Exception("levelcast.nowhere.TapeError: no such module")) is None

"""Ranges of tapes into a lake: what tasks write themselves is what Spark's functions would have made of the rows."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as f

from levelcast.storage.append_file import TapeError
from tests.spark_parts import spark
from tests.tape_parts import make_frames, tip_after
from tests.test_pipeline_input_tapes import write

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from levelcast.pipeline import register
from levelcast.pipeline.derive import bars, bars_arrow
from levelcast.pipeline.derive.corrections import NO_PRICE
from levelcast.pipeline.input.load import read_pieces
from levelcast.pipeline.input.tape_source import LevelcastSource, OptionError
from levelcast.pipeline.input.tape_to_tables import FILED, OF_KIND
from levelcast.pipeline.input.tapes import Definitions
from levelcast.pipeline.jobs.load import load_pieces
from levelcast.pipeline.lake import quarantine
from levelcast.pipeline.lake.files import File, highest
from levelcast.pipeline.lake.lake import STAGING, Lake
from levelcast.pipeline.lake.log import CommitMark
from levelcast.pipeline.lake.schema import SchemaError, arrow_schema, spark_schema
from levelcast.pipeline.lake.tables import BARS, TAPE, TRADES

__all__ = ["spark"]

pytestmark = pytest.mark.timeout(600)

S = 1_000_000_000
T0 = 1_794_787_200 * S


def content(lake: Lake, name: str) -> list[str]:
    return sorted(map(str, lake.arrow(name).to_pylist())) if lake.has(name) else []


def test_tasks_write_what_spark_makes_of_the_rows(spark: Any, tmp_path: Path) -> None:
    write(tmp_path / "tape", make_frames(80, 3)).close()
    register(spark)
    by_rows, by_ranges = Lake.create(tmp_path / "rows"), Lake.create(tmp_path / "ranges")
    rows = spark.read.format("levelcast").load(str(tmp_path / "tape"))
    by_rows.append("tape", rows)
    rows = by_rows.read(spark, "tape")
    for kind, table in OF_KIND.items():
        by_rows.append(table.name, quarantine.good(rows).filter(rows["kind"] == kind), skip_empty=True)
    by_rows.append("quarantine", quarantine.bad(rows, f.lit("x")))
    done = load_pieces(spark, by_ranges, read_pieces(spark, [tmp_path / "tape"]), "x")
    assert done.stripes == highest(by_rows.files("tape"), "sequence") == by_ranges.tape_ends()
    assert content(by_rows, "quarantine")
    for name in FILED:
        assert content(by_ranges, name) == content(by_rows, name), name
        if by_rows.has(name):
            read = by_ranges.read(spark, name)  # Spark reads the files as well
            assert sorted(map(str, read.collect())) == sorted(map(str, by_rows.read(spark, name).collect()))
    for file in by_ranges.files("tape"):
        assert file.stats["maxValues"]["sequence"] - file.stats["minValues"]["sequence"] == file.rows - 1
        assert not (by_ranges.directory / "tape" / STAGING).exists() or not any(
            (by_ranges.directory / "tape" / STAGING).iterdir()
        )


def test_what_retention_took_before_it_was_in_the_lake_is_said(spark: Any, tmp_path: Path) -> None:
    frames = make_frames(30, 4)
    write(tmp_path / "a", frames[:10]).close()
    lake = Lake.create(tmp_path / "lake")
    load_pieces(spark, lake, read_pieces(spark, [tmp_path / "a"]), "a")
    had = {name: content(lake, name) for name in FILED}
    write(tmp_path / "b", frames[20:], first=tip_after(frames[:20])).close()
    with pytest.raises(TapeError, match=r"b: retention has removed sequence [\d,]+ of stripe 0, which the lake still"):
        load_pieces(spark, lake, read_pieces(spark, [tmp_path / "b"]), "b")
    assert {name: content(lake, name) for name in FILED} == had
    write(tmp_path / "c", frames).close()
    load_pieces(spark, lake, read_pieces(spark, [tmp_path / "b", tmp_path / "c"]), "both")
    assert lake.tape_ends() == {0: sum(frame.records for frame in frames)}


def test_files_that_no_task_told_of_are_nothing(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path / "lake")

    def write_two(stages: Any, attempt: str) -> dict[str, list[File]]:
        place = stages["trades"] / "day=2026-11-16" / "stripe=0"
        place.mkdir(parents=True)
        for name in ("told", "repeated"):
            (place / f"{attempt}-{name}.parquet").write_bytes(b"x")
        return {"trades": [File(f"day=2026-11-16/stripe=0/{attempt}-told.parquet", 1, 1, {}, {})]}

    with lake.staged_by(["trades"], write_two) as files:
        (file,) = files["trades"]
        assert (lake.directory / "trades" / file.path).exists()
    left = [path.name for path in (lake.directory / "trades").rglob("*.parquet")]
    assert left == [Path(file.path).name]


def test_both_ways_find_the_same_reasons(spark: Any) -> None:
    rng = Random(5)
    kinds = ("trade", "quote", "order", "instrument")
    rows = [
        {
            "stripe": rng.choice((0, 0, 0, 0, -1)),
            "sequence": rng.choice((1, 2, 3, -4)),
            "ts_recv": rng.choice((T0, T0, T0, T0, 0, -1)),
            "rtype": 1,
            "kind": rng.choice(kinds),
            "action": rng.choice(("T", "C", "M", "X", None)),
            "side": rng.choice(("A", "B", "N", "?", None)),
            "price": rng.choice((5, None)),
            "size": rng.choice((7, None)),
            "trade_id": rng.choice((9, 0, None)),
            "bid_sz": rng.choice((1, -1, None)),
            "ask_sz": rng.choice((1, -1, None)),
            "symbol": rng.choice(("A", 'q"uo\\te', "é", None)),
            "day": date(2026, 11, 16),
        }
        for _ in range(600)
    ]
    schema = pa.schema([pa.field(each.name, each.type) for each in arrow_schema()])
    batch = pa.Table.from_pylist(rows, schema=schema).combine_chunks().to_batches()[0]
    reasons = quarantine.reasons_of(batch)
    assert reasons is not None
    frame = spark.createDataFrame(pa.Table.from_batches([batch]), TAPE.ddl)
    theirs = [row.reason for row in frame.select(quarantine.reason().alias("reason")).coalesce(1).collect()]
    assert reasons.to_pylist() == theirs
    assert {each for each in theirs if each is not None} == {sentence for _, sentence in quarantine.RULES}
    bad = quarantine.bad_of(batch, reasons, "x").to_pylist()
    spark_bad = quarantine.bad(frame, f.lit("x")).coalesce(1).collect()
    assert [tuple(row.values()) for row in bad] == [tuple(row) for row in spark_bad]
    good = batch.filter(pa.compute.is_null(reasons))
    assert quarantine.reasons_of(good) is None


def random_trades(seed: int, count: int, stripes: int, span_s: int) -> pa.Table:
    """Trades as tapes have them: in each stripe the time grows with the sequence."""
    rng = Random(seed)
    rows = []
    for stripe in range(stripes):
        at = T0 - 30 * S
        for sequence in range(1, count + 1):
            at += rng.choice((0, 0, rng.randint(1, 2 * span_s * S // count)))
            publisher, instrument = rng.randint(1, 3), rng.randint(1, 3)
            rows.append(
                {
                    "stripe": stripe,
                    "sequence": sequence,
                    "ts_recv": at,
                    "publisher_id": publisher,
                    "venue": rng.choice((None, f"V{publisher}")) if publisher == 3 else f"V{publisher}",
                    "instrument_id": instrument,
                    "symbol": None if instrument == 2 else f"S{instrument}",
                    "action": "T",
                    "price": rng.choice((None, -7, 3, rng.randint(1, 2**62))),
                    "size": rng.choice((0, 1, 2**32 - 1, rng.randint(1, 500))),
                    "condition": rng.choice((None, 0, 1 << 10, 1 << 5)),
                    "trade_id": sequence,
                    "day": date(1970, 1, 1).fromordinal(date(1970, 1, 1).toordinal() + at // (86_400 * S)),
                }
            )
    return pa.Table.from_pylist(rows, schema=pa.schema([*TRADES.arrow_schema()]))


@pytest.mark.parametrize("stripes", [1, 2])
def test_bars_by_arrow_are_those_by_spark(spark: Any, stripes: int) -> None:
    trades = random_trades(stripes, 400, stripes, 150)
    frame = spark.createDataFrame(trades, TRADES.ddl)
    wanted = {
        name: sorted(str(tuple(row)) for row in bars.bars(frame, [name]).select(*BARS.names).collect())
        for name in bars.INTERVALS
    }
    shuffled = trades.take(pa.array(Random(1).sample(range(trades.num_rows), trades.num_rows)))
    found = bars_arrow.seconds(shuffled, NO_PRICE)
    for name in bars.INTERVALS:
        if name != "1s":
            found = bars_arrow.longer(found, name)
        assert found.schema.names == list(BARS.names)
        assert sorted(str(tuple(row.values())) for row in found.to_pylist()) == wanted[name], name
        assert len(wanted[name]) > 10


def test_marks_are_read_on_from_where_they_were(tmp_path: Path) -> None:
    """By one who has followed all along, by one who comes late, and by one who missed entries that have gone."""
    lake = Lake.create(tmp_path / "lake")
    follower, behind = Lake(lake.directory), Lake(lake.directory)
    for number in range(1, 8):
        assert lake.land(
            "trades", [], [CommitMark("tape/0", number, before=number - 1), CommitMark(f"input/{number}", 1)]
        )
        assert follower.all_marks("trades", "tape/") == {"tape/0": number}
        if number == 3:
            assert behind.all_marks("trades", "tape/") == {"tape/0": 3}
    lake.handle("trades").create_checkpoint()
    *old, _ = sorted((lake.directory / "trades" / "_delta_log").glob("*.json"))
    for path in old:
        path.unlink()
    lake.land("trades", [], [CommitMark("tape/0", 8, before=7)])
    for each in (lake, follower, behind, Lake(lake.directory)):
        assert each.all_marks("trades") == {"tape/0": 8} | {f"input/{number}": 1 for number in range(1, 8)}


def test_a_source_of_ranges_has_their_columns_and_no_others(tmp_path: Path) -> None:
    frames = make_frames(20, 9)
    write(tmp_path / "tape", frames).close()
    source = LevelcastSource({"path": str(tmp_path / "tape"), "rows": "pieces", "recordsPerPartition": "25"})
    reader = source.reader(source.schema())
    found = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    assert [row["start"] for row in found[1:]] == [row["stop"] for row in found[:-1]]
    assert (found[0]["start"], found[-1]["stop"]) == (1, sum(frame.records for frame in frames) + 1)
    assert all(row["stop"] - row["start"] <= 25 and row["tapes"] == [str(tmp_path / "tape")] for row in found)
    assert Definitions.from_json(found[0]["names"]) == Definitions.from_json(Definitions({}, {}).as_json())
    with pytest.raises(SchemaError, match="rows = pieces has the columns stripe, tapes"):
        source.reader(spark_schema(["price"]))
    with pytest.raises(OptionError, match="option rows: 'frames' is neither records nor pieces"):
        LevelcastSource({"path": str(tmp_path / "tape"), "rows": "frames"}).schema()
    named = Definitions({1: "é", 7: "B"}, {3: "XNYS"})
    assert Definitions.from_json(named.as_json()) == named

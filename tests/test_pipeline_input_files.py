"""Files and captures in Spark: read where Spark puts them, in a tape's schema, with what was refused beside it."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from levelcast.formats.captures import Task
from levelcast.formats.columns import TradeFileError
from tests.spark_parts import spark
from tests.tape_parts import make_frames, tip_after
from tests.test_pipeline_input_tapes import write

pytest.importorskip("pyspark")

from levelcast.pipeline.input import files
from levelcast.pipeline.input.files import QUARANTINE, read_both
from levelcast.pipeline.lake.schema import NAMES

__all__ = ["spark"]

HEADER = "ts_event,symbol,price,size,floor\n"


def test_files_are_read_with_what_is_wrong_beside_them(spark: Any, tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        good = "".join(f"138116160000000000{i},SPY,1.{i},{i},XNYS\n" for i in range(1, 6))
        (tmp_path / name).write_text(HEADER + good + "never,SPY,1,1,XNYS\n")
    found = read_both(spark, [tmp_path], "csv")
    assert found.both.rdd.getNumPartitions() == 2
    assert tuple(found.rows.columns) == NAMES
    rows = found.rows.orderBy("sequence").collect()
    assert [row.sequence for row in rows] == [*range(1, 6), *range(2**40 + 1, 2**40 + 6)]
    assert [row.price for row in rows[:5]] == [10**9 + i * 10**8 for i in range(1, 6)]
    assert {row.day for row in rows} == {date(2013, 10, 7)}
    bad = found.quarantine.orderBy("source").collect()
    assert tuple(found.quarantine.columns) == QUARANTINE
    assert [(row.source, row.position, row.raw) for row in bad] == [
        (str(tmp_path / name), 6, "never,SPY,1,1,XNYS") for name in ("a.csv", "b.csv")
    ]


def test_tapes_are_an_input_like_any_other(spark: Any, tmp_path: Path) -> None:
    frames = make_frames(60, 5)
    write(tmp_path / "a", frames).close()
    write(tmp_path / "b", frames[:20]).close()
    found = read_both(spark, [tmp_path / "b", tmp_path / "a"], "tape", columns=["sequence"])
    assert found.rows.columns == ["sequence"]
    assert found.rows.distinct().count() == found.rows.count() == tip_after(frames).next_sequence - 1
    assert found.quarantine.count() == 0


def test_a_day_of_lean_and_only_some_columns(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "ibm_trade.csv").write_text("1000,1810000,100,N,0,0\n2000,1820000,100,D,40,0\n")
    (tmp_path / "ibm_quote.csv").write_text("1500,1800100,300,0,0,P,1,0\n")
    rows = read_both(spark, [tmp_path], "lean", date(2013, 10, 7), columns=["kind", "sequence", "venue"]).rows
    assert [tuple(row) for row in rows.orderBy("sequence").collect()] == [
        (1, "quote", "ARCX"), (2**40 + 1, "trade", "XNYS"), (2**40 + 2, "trade", "FINR"),
    ]  # fmt: skip
    with pytest.raises(TradeFileError, match="do not contain their date"):
        read_both(spark, [tmp_path], "lean")
    with pytest.raises(TradeFileError, match="the formats are tape, dbn"):
        read_both(spark, [tmp_path], "fix")


def test_several_tasks_read_a_day_and_a_large_file(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of LEAN were one task together, and a capture was one task whatever its size."""
    for symbol in ("ibm", "aig", "spy"):
        rows = "".join(f"{1000 + i},1810000,100,N,0,0\n" for i in range(50))
        (tmp_path / f"{symbol}_trade.csv").write_text(rows + "oops\n")
    found = read_both(spark, [tmp_path], "lean", date(2013, 10, 7))
    assert found.both.rdd.getNumPartitions() == 3
    whole = sorted(map(str, read_both(spark, [tmp_path / "ibm_trade.csv"], "lean", date(2013, 10, 7)).both.collect()))
    monkeypatch.setattr(files, "SHARE_BYTES", 100)
    monkeypatch.setattr(files, "BATCH_ROWS", 7)
    monkeypatch.setattr(files, "parallelism", lambda _: 2)
    shared = read_both(spark, [tmp_path / "ibm_trade.csv"], "lean", date(2013, 10, 7)).both
    assert shared.rdd.getNumPartitions() == 4
    assert sorted(map(str, shared.collect())) == whole
    task = Task("lean", (str(tmp_path / "ibm_trade.csv"),), day=date(2013, 10, 7))
    counts = [sum(batch.num_rows for batch in files.task_rows(task, NAMES, share, 4)) for share in range(4)]
    assert counts == [9, 14, 14, 14]

"""The lake: batches land once, rewriting is safe beside others, and what cannot be used is refused in one sentence."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from levelcast.pipeline.lake.defaults import LakeError
from levelcast.pipeline.lake.files import highest
from levelcast.pipeline.lake.lake import STAGING, Lake
from levelcast.pipeline.lake.log import CommitMark
from levelcast.pipeline.lake.tables import LAKE_VERSION, TABLES
from tests.conftest import REPOSITORY
from tests.spark_parts import spark

__all__ = ["spark"]

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    pytest.importorskip("deltalake")
    return Lake.create(tmp_path / "lake")


def rows(spark: Any, first: int, last: int, stripe: int = 0, price: str = "id * 1000") -> Any:
    """Trades of these sequences: odd ones on the 16th, even ones on the 17th."""
    return spark.range(first, last + 1, numPartitions=2).selectExpr(
        f"{stripe} as stripe", "id as sequence", "id as ts_recv", "'T' as action", f"{price} as price", "1 as size",
        "'A' as symbol", "'XNYS' as venue", "date_add(date'2026-11-17', -cast(id % 2 as int)) as day",
    )  # fmt: skip


def sequences(spark: Any, lake: Lake, **more: Any) -> list[int]:
    return sorted(row.sequence for row in lake.read(spark, "trades", **more).select("sequence").collect())


def test_all_readers_see_the_same_rows_of_a_version(spark: Any, lake: Lake) -> None:
    first = lake.append("trades", rows(spark, 1, 10))
    assert first is not None
    assert (first.rows, first.table) == (10, "trades")
    lake.append("trades", rows(spark, 11, 14, stripe=1))
    assert sequences(spark, lake) == list(range(1, 15))
    assert sequences(spark, lake, version=first.version) == list(range(1, 11))
    assert sequences(spark, lake, days=["2026-11-16"]) == list(range(1, 15, 2))
    table = lake.arrow("trades")
    assert sorted(table["sequence"].to_pylist()) == list(range(1, 15))
    assert table.schema.names == list(TABLES["trades"].names)
    assert lake.arrow("trades", days=["2026-11-17"]).num_rows == 7
    assert lake.arrow("trades", first.version).num_rows == 10


def test_duckdb_reads_it(spark: Any, lake: Lake) -> None:
    duckdb = pytest.importorskip("duckdb")
    lake.append("trades", rows(spark, 1, 10))
    lake.append("venues", spark.createDataFrame([(1, "XNYS")], "publisher_id int, venue string"))
    (found,) = duckdb.sql(f"select count(*), sum(price), min(day), max(stripe) from {lake.duckdb('trades')}").fetchall()
    assert (found[0], int(found[1]), str(found[2]), found[3]) == (10, 55_000, "2026-11-16", 0)
    assert duckdb.sql(f"select venue from {lake.duckdb('venues')}").fetchall() == [("XNYS",)]
    with pytest.raises(LakeError, match="has no table bars yet"):
        lake.duckdb("bars")


def test_a_batch_lands_once(spark: Any, lake: Lake) -> None:
    assert lake.append("trades", rows(spark, 1, 10), [CommitMark("tape/0", 10, before=0)]) is not None
    assert lake.append("trades", rows(spark, 1, 10), [CommitMark("tape/0", 10, before=0)]) is None
    assert lake.append("trades", rows(spark, 1, 12), [CommitMark("tape/0", 12, before=0)]) is None
    assert lake.append("trades", rows(spark, 11, 12), [CommitMark("tape/0", 12, before=10)]) is not None
    assert lake.append("trades", rows(spark, 90, 95), [CommitMark("input/abc", 1)]) is not None
    assert lake.append("trades", rows(spark, 90, 95), [CommitMark("input/abc", 1)]) is None
    assert lake.marks("trades", ["tape/0", "tape/1", "input/abc"]) == {"tape/0": 12, "input/abc": 1}
    assert sequences(spark, lake) == [*range(1, 13), *range(90, 96)]


def test_a_mark_may_follow_from_what_was_written(spark: Any, lake: Lake) -> None:
    both = rows(spark, 1, 10).union(rows(spark, 1, 7, stripe=1))
    with lake.staged("trades", both) as files:
        ends = highest(files, "sequence")
        lake.land("trades", files, [CommitMark(f"tape/{stripe}", to, before=0) for stripe, to in ends.items()])
    assert lake.marks("trades", ["tape/0", "tape/1"]) == {"tape/0": 10, "tape/1": 7}


def test_two_who_write_the_same_batch_at_once(spark: Any, lake: Lake) -> None:
    """The other one commits after we have looked and before we commit."""
    other, mark = Lake(lake.directory), CommitMark("tape/0", 4, before=0)
    lake.append("trades", rows(spark, 1, 2))
    with lake.staged("trades", rows(spark, 3, 4)) as files:
        assert other.append("trades", rows(spark, 3, 4), [mark]) is not None
        assert lake.land("trades", files, [mark]) is None
    assert sequences(spark, lake) == [1, 2, 3, 4]
    assert _orphans(lake, "trades") == []


def _orphans(lake: Lake, name: str) -> list[str]:
    root = lake.directory / name
    named = {file.path for file in lake.files(name)}
    return sorted(
        str(path.relative_to(root)) for path in root.rglob("*.parquet") if str(path.relative_to(root)) not in named
    )


def test_files_of_a_crashed_writer_are_nothing_and_go_later(spark: Any, lake: Lake) -> None:
    lake.append("trades", rows(spark, 1, 4))
    root = lake.directory / "trades"
    whole = root / lake.files("trades")[0].path
    left = whole.with_name("left-behind.parquet")
    left.write_bytes(whole.read_bytes())
    staged = root / STAGING / "attempt" / "part.parquet"
    staged.parent.mkdir(parents=True)
    staged.write_bytes(whole.read_bytes())
    assert sequences(spark, lake) == [1, 2, 3, 4]
    assert lake.clean("trades", keep_hours=1) == 0  # they may be another writer's, at work just now
    for path in (left, staged.parent):
        os.utime(path, (1, 1))
    assert lake.clean("trades", keep_hours=1) == 2
    assert not left.exists()
    assert not staged.exists()
    assert sequences(spark, lake) == [1, 2, 3, 4]


def test_what_fails_before_the_commit_leaves_nothing(spark: Any, lake: Lake) -> None:
    lake.append("trades", rows(spark, 1, 4))
    with pytest.raises(KeyboardInterrupt), lake.staged("trades", rows(spark, 5, 8)):
        raise KeyboardInterrupt
    assert sequences(spark, lake) == [1, 2, 3, 4]
    assert _orphans(lake, "trades") == []
    assert list((lake.directory / "trades" / STAGING).iterdir()) == []


def test_a_correction_replaces_a_day_in_one_commit(spark: Any, lake: Lake) -> None:
    lake.append("trades", rows(spark, 1, 10))
    before = lake.handle("trades").version()
    done = lake.replace("trades", rows(spark, 1, 3).filter("sequence % 2 = 1"), ["2026-11-16"])
    assert done is not None
    assert done.version == before + 1
    assert sequences(spark, lake) == [1, 2, 3, 4, 6, 8, 10]
    before_orphans = _orphans(lake, "trades")  # the files that were replaced
    with pytest.raises(LakeError, match="rows of 2026-11-17 do not belong"):
        lake.replace("trades", rows(spark, 1, 2), ["2026-11-16"])
    assert _orphans(lake, "trades") == before_orphans
    assert sequences(spark, lake, version=before) == list(range(1, 11))
    lake.replace("trades", rows(spark, 1, 2).limit(0), ["2026-11-16", "2026-11-17"])
    assert sequences(spark, lake) == []


def test_compaction_keeps_the_rows_and_goes_beside_a_writer(spark: Any, lake: Lake) -> None:
    for start in range(1, 41, 10):
        lake.append("trades", rows(spark, start, start + 9))
    merge = lake._merge

    def slow(*arguments: Any) -> None:
        lake.append("trades", rows(spark, 41, 50), [CommitMark("tape/0", 50)])
        merge(*arguments)

    lake._merge = slow  # type: ignore[method-assign,assignment]
    before, after = lake.compact(spark, "trades")
    assert before == 16
    assert after == 2 + 4
    assert sequences(spark, lake) == list(range(1, 51))
    assert lake.marks("trades", ["tape/0"]) == {"tape/0": 50}
    assert Lake(lake.directory).compact(spark, "trades", target_bytes=1)[1] == 6  # nothing is smaller than that


def test_compaction_gives_way_to_a_correction_made_meanwhile(spark: Any, lake: Lake) -> None:
    lake.append("trades", rows(spark, 1, 10))
    lake.append("trades", rows(spark, 11, 20))
    staged = lake.staged

    def correct_first(name: str, frame: Any) -> Any:
        lake.staged = staged  # type: ignore[method-assign]
        held = staged(name, frame)
        Lake(lake.directory).replace("trades", rows(spark, 1, 1), ["2026-11-16"])
        return held

    lake.staged = correct_first  # type: ignore[method-assign,assignment]
    lake.compact(spark, "trades")
    assert sequences(spark, lake) == [1, *range(2, 21, 2)]


def test_two_corrections_of_the_same_day_do_not_both_stay(spark: Any, lake: Lake) -> None:
    lake.append("trades", rows(spark, 1, 10))
    commit = lake._commit

    def other_first(*arguments: Any, **more: Any) -> bool:
        lake._commit = commit  # type: ignore[method-assign]
        Lake(lake.directory).replace("trades", rows(spark, 3, 3), ["2026-11-16"])
        return commit(*arguments, **more)

    lake._commit = other_first  # type: ignore[method-assign]
    lake.replace("trades", rows(spark, 5, 5), ["2026-11-16"])
    assert sequences(spark, lake) == [2, 4, 5, 6, 8, 10]


def test_state_tells_rows_files_days_and_marks(spark: Any, lake: Lake) -> None:
    lake.append("trades", rows(spark, 1, 10), [CommitMark("tape/0", 10)])
    (state,) = lake.states()
    assert (state.name, state.rows, state.days) == ("trades", 10, ("2026-11-16", "2026-11-17"))
    assert state.marks == {"tape/0": 10}
    for number in range(11, 24):  # more commits than lie between two checkpoints of the log
        lake.append("trades", rows(spark, number, number), [CommitMark("tape/0", number)])
    (state,) = lake.states()
    assert (state.rows, state.marks) == (23, {"tape/0": 23})


def test_an_empty_batch_makes_no_file_and_still_counts(spark: Any, lake: Lake) -> None:
    assert lake.append("quotes", rows(spark, 1, 2).limit(0), [CommitMark("tape/0", 2)]) is not None
    assert lake.marks("quotes", ["tape/0"]) == {"tape/0": 2}
    assert lake.files("quotes") == []
    assert lake.read(spark, "quotes").count() == 0


def test_what_is_no_lake_or_of_the_future_is_refused(tmp_path: Path, lake: Lake, spark: Any) -> None:
    with pytest.raises(LakeError, match="not a lake"):
        Lake(tmp_path / "nothing")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "letter.txt").write_text("hello")
    with pytest.raises(LakeError, match="neither empty nor a lake"):
        Lake.create(tmp_path / "foreign")
    assert [path.name for path in (tmp_path / "foreign").iterdir()] == ["letter.txt"]
    with pytest.raises(LakeError, match="unknown table 'ticks'"):
        lake.read(spark, "ticks")
    lake.append("trades", rows(spark, 1, 2))
    log = next((lake.directory / "trades" / "_delta_log").glob("*00.json"))
    log.write_text(log.read_text().replace('levelcast.schema":"1"', 'levelcast.schema":"9"'))
    with pytest.raises(LakeError, match="has version 9 of the schema"):
        Lake(lake.directory).append("trades", rows(spark, 3, 4))
    marker = lake.directory / "lake.json"
    marker.write_text(json.dumps({"version": LAKE_VERSION + 1}))
    with pytest.raises(LakeError, match=f"has version {LAKE_VERSION + 1} of the tables"):
        Lake(lake.directory)
    marker.write_text("{")
    with pytest.raises(LakeError, match="damaged; restore"):
        Lake(lake.directory)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MB, where one may mount."""
    place = tmp_path / "small"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(place)], capture_output=True).returncode:
        pytest.skip("needs the right to mount")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_commits_nothing(spark: Any, small_disk: Path) -> None:
    pytest.importorskip("deltalake")
    lake = Lake.create(small_disk / "lake")
    lake.append("trades", rows(spark, 1, 10))
    with pytest.raises(LakeError, match="disk full, nothing of this batch was committed"):
        lake.append("trades", rows(spark, 11, 2_000_000, price="xxhash64(id)"), [CommitMark("tape/0", 2_000_000)])
    assert sequences(spark, lake) == list(range(1, 11))
    spark.range(1).count()  # on one core: behind tasks of the failed job that were still at it
    lake.clean("trades", keep_hours=0)
    spark._jvm.System.gc()  # a failed task leaves its file open, so its room comes back with the garbage
    assert _orphans(lake, "trades") == []
    assert lake.append("trades", rows(spark, 11, 20), [CommitMark("tape/0", 20)]) is not None


def test_the_documented_tables_are_those_of_the_code() -> None:
    text = (REPOSITORY / "docs" / "tables.md").read_text(encoding="utf-8")
    for table in TABLES.values():
        section = text.split(f"\n## {table.name}\n")[1].split("\n## ")[0]
        rows = [line for line in section.splitlines() if line.startswith("| `")]
        assert rows == [f"| `{column.name}` | {column.type} | {column.says} |" for column in table.columns]
        partition, key = (", ".join(f"`{name}`" for name in names) for names in (table.partition, table.key))
        by = f"Partitioned by {partition}." if partition else "Not partitioned."
        assert f"{table.says} {by} Key: {key}." in section

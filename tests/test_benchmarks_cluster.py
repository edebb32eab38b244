"""Jobs on a standalone cluster, a worker killed in the middle of them, against one process: the rows are the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import cluster, skew, sweep
from benchmarks.report import Options
from tests.spark_parts import need_spark, spark

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800), pytest.mark.usefixtures("_spark_here")]

__all__ = ["spark"]


@pytest.fixture(scope="module")
def _spark_here() -> None:
    need_spark()


def test_a_sweep_on_a_cluster_whose_worker_is_killed_gives_what_one_process_gives(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "inputs").mkdir()
    place = cluster.Place(tmp_path / "inputs", tmp_path / "here")
    here = cluster.run_jobs(spark, place, ["sweep"], None, {})
    killed = cluster.run_way("killed", tmp_path, ["sweep"], {"sweep": 1.0})
    assert killed.killed == {"sweep": True}
    assert killed.digests == here.digests
    assert here.digests["sweep"]


def test_a_symbol_that_is_cut_has_the_same_rows(spark: Any, tmp_path: Path) -> None:
    skew._write(tmp_path, 4_000)
    tables = {name: spark.read.parquet(str(tmp_path / f"{name}.parquet")) for name in ("trades", "quotes")}
    sums = {
        name: make(*(tables[each] for each in bases)).selectExpr("bit_xor(xxhash64(*)) as x", "count(*) as n").first()
        for name, (bases, make) in skew.jobs(200).items()
    }
    for name in ("bbo", "trade_throughs"):
        assert sums[name] == sums[f"{name}, one piece"]
        assert sums[name].n > 0


def test_a_sweep_on_spark_has_the_histories_of_processes(tmp_path: Path) -> None:
    there = sweep._on_spark(4, tmp_path)
    assert there["events"] == sweep._in_processes(4)["events"] > 0
    assert there["broken"] == []


@pytest.mark.campaign
def test_a_cluster_whose_worker_is_killed_gives_what_local_spark_gives(tmp_path: Path) -> None:
    result = cluster.run(Options(quick=True, out=tmp_path))
    assert result.more["identical"], result.notes
    (table,) = result.tables
    assert [(row[0], row[2]) for row in table.rows] == [("refresh", "identical"), ("sweep", "identical")]
    assert {row[-1] for row in table.rows} == {"yes"}, table
    assert all(int(row[1]) > 0 for row in table.rows)


@pytest.mark.campaign
def test_a_symbol_that_is_cut_has_the_same_rows_and_no_task_that_is_the_whole_job(tmp_path: Path) -> None:
    result = skew.run(Options(quick=True, out=tmp_path))
    (table,) = result.tables
    share = {str(row[0]): float(row[-1]) for row in table.rows}
    tasks = {str(row[0]): int(row[3]) for row in table.rows}
    assert tasks["bbo"] > tasks["bbo, one piece"] or share["bbo"] < share["bbo, one piece"]


@pytest.mark.campaign
def test_a_sweep_is_measured_against_processes(tmp_path: Path) -> None:
    result = sweep.run(Options(quick=True, out=tmp_path))
    histories, tasks = result.tables
    assert [row[0] for row in histories.rows] == ["4", "40"]
    assert all(int(row[1]) >= 1 for row in tasks.rows)

"""Jobs on a standalone cluster, a worker killed in the middle of them, against `local[2]`: the rows are the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import cluster, skew, sweep
from benchmarks.report import Options
from tests.spark_parts import need_spark

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")
pytestmark = [pytest.mark.campaign, pytest.mark.timeout(1800), pytest.mark.usefixtures("_spark_here")]


@pytest.fixture(scope="module")
def _spark_here() -> None:
    need_spark()


def test_a_cluster_whose_worker_is_killed_gives_what_local_spark_gives(tmp_path: Path) -> None:
    result = cluster.run(Options(quick=True, out=tmp_path))
    assert result.more["identical"], result.notes
    (table,) = result.tables
    assert [(row[0], row[2]) for row in table.rows] == [("refresh", "identical"), ("sweep", "identical")]
    assert {row[-1] for row in table.rows} == {"yes"}, table
    assert all(int(row[1]) > 0 for row in table.rows)


def test_a_symbol_that_is_cut_has_the_same_rows_and_no_task_that_is_the_whole_job(tmp_path: Path) -> None:
    result = skew.run(Options(quick=True, out=tmp_path))
    (table,) = result.tables
    share = {str(row[0]): float(row[-1]) for row in table.rows}
    tasks = {str(row[0]): int(row[3]) for row in table.rows}
    assert tasks["bbo"] > tasks["bbo, one piece"] or share["bbo"] < share["bbo, one piece"]


def test_a_sweep_is_measured_against_processes(tmp_path: Path) -> None:
    result = sweep.run(Options(quick=True, out=tmp_path))
    histories, tasks = result.tables
    assert [row[0] for row in histories.rows] == ["4", "40"]
    assert all(int(row[1]) >= 1 for row in tasks.rows)

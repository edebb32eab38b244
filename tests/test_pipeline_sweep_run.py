"""Sweeps: rounds and tasks, what is kept and not run again, histories that break or take their process with them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from levelcast.pipeline.lake.defaults import LakeError
from levelcast.pipeline.sweep.plots import SweepPlot, plot
from levelcast.pipeline.sweep.run import (
    FileStore,
    HistoryCosts,
    Item,
    LakeStore,
    ProcessEngine,
    RoundFailed,
    Row,
    SparkEngine,
    Swept,
    cut,
    key_of,
    rounds,
    sweep,
)
from levelcast.sim.history_rows import as_text, code_version, crashed, run_item, run_items
from levelcast.sim.parameters import complete
from levelcast.sim.run import Summary, run_seed
from tests.spark_parts import spark

__all__ = ["spark"]

pytestmark = pytest.mark.timeout(300)
pytest.importorskip("pyarrow")

CODE = "code"
RING = as_text(complete("ring", {}))
DEADLY = 13


def fast(items: Iterable[Item]) -> list[Row]:
    """Histories of no scenario: seed 13 ends its process, seed 14 breaks a promise."""
    rows = []
    for scenario, parameters, seed in items:
        if seed == DEADLY:
            os._exit(1)
        broken = "agreement: two frames" if seed == 14 else None
        rows.append(
            {"scenario": scenario, "parameters": parameters, "seed": seed, "verdict": "broken" if broken else "held",
             "broken": broken, "cpu_s": 0.01, "figures": {"events": seed * 2}}
        )  # fmt: skip
    return rows


class InProcess:
    """Runs tasks here, and fails like a cluster whose worker has died."""

    cores = 2

    def __init__(self) -> None:
        self.ran: list[Item] = []
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True

    def run(self, tasks: Sequence[Sequence[Item]]) -> list[Row]:
        items = [item for task in tasks for item in task]
        if any(seed == DEADLY for *_, seed in items):
            raise RoundFailed
        self.ran += items
        return fast(items)


def items(count: int, *points: str) -> list[Item]:
    return [("fast", point, seed) for seed in range(count) for point in points or ("{}",)]


def test_tasks_have_about_the_same_work_and_every_item_once() -> None:
    costs = HistoryCosts()
    for point, cpu_s in (("cheap", 0.01), ("dear", 1.5)):
        costs.add({"scenario": "fast", "parameters": point, "cpu_s": cpu_s})
    wanted = items(400, "cheap", "dear")
    tasks = cut(wanted, costs, 2.0)
    assert sorted(item for task in tasks for item in task) == sorted(wanted)
    work = [sum(costs.of(item) for item in task) for task in tasks]
    assert max(work) <= 2.01
    assert len([task for task in tasks if task[0][1] == "cheap"]) == 2
    assert work == sorted(work, reverse=True)


def test_the_first_round_has_one_history_of_each_point_and_later_ones_go_by_its_cost() -> None:
    costs, wanted = HistoryCosts(), items(3000, "cheap", "dear")
    made = rounds(wanted, costs, lambda: 2)
    assert next(made) == [[("fast", "cheap", 0)], [("fast", "dear", 0)]]
    costs.add({"scenario": "fast", "parameters": "cheap", "cpu_s": 0.001})
    costs.add({"scenario": "fast", "parameters": "dear", "cpu_s": 0.1})
    rest = list(made)
    seconds = [sum(costs.of(item) for task in tasks for item in task) for tasks in rest]
    assert seconds[0] == pytest.approx(10, rel=0.02)  # 5 s on two cores
    assert seconds[1] == pytest.approx(20, rel=0.02)
    assert sorted(item for tasks in rest for task in tasks for item in task) == sorted(wanted[2:])


def test_what_is_kept_is_not_run_again_but_by_other_code(tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    first = InProcess()
    sweep(items(10), first, FileStore(file), CODE, crashed)
    again = InProcess()
    found = sweep(items(12), again, FileStore(file), CODE, crashed)
    assert [seed for *_, seed in again.ran] == [10, 11]
    assert (found.ran, [row["figures"]["events"] for row in found.rows]) == (2, [2 * n for n in range(12)])
    other = InProcess()
    sweep(items(12), other, FileStore(file), "other", crashed)
    assert len(other.ran) == 12
    assert len(FileStore(file).rows(CODE)) == len(FileStore(file).rows("other")) == 12


def test_a_history_that_takes_its_process_with_it_is_a_row_and_the_others_are_there(tmp_path: Path) -> None:
    found = sweep(items(40), InProcess(), FileStore(tmp_path / "rows.parquet"), CODE, crashed)
    _check_deadly(found)
    assert sorted(row["seed"] for row in FileStore(tmp_path / "rows.parquet").rows(CODE)) == list(range(40))


def test_processes_that_die_are_replaced(tmp_path: Path) -> None:
    engine = ProcessEngine(2, fast)
    try:
        _check_deadly(sweep(items(20), engine, FileStore(tmp_path / "rows.parquet"), CODE, crashed))
    finally:
        engine.close()


def _check_deadly(found: Swept) -> None:
    bad = {row["seed"]: (row["verdict"], row["broken"]) for row in found.rows if row["verdict"] != "held"}
    assert bad.keys() == {DEADLY, 14}
    assert bad[14] == ("broken", "agreement: two frames")
    assert bad[DEADLY][0] == "crashed"
    assert "process crashed" in bad[DEADLY][1]


def test_a_sweep_that_is_stopped_has_kept_its_rounds(tmp_path: Path) -> None:
    class Stops(InProcess):
        def run(self, tasks: Sequence[Sequence[Item]]) -> list[Row]:
            if self.ran:
                raise KeyboardInterrupt
            return super().run(tasks)

    engine = Stops()
    with pytest.raises(KeyboardInterrupt):
        sweep(items(12), engine, FileStore(tmp_path / "rows.parquet"), CODE, crashed)
    assert engine.cancelled
    assert [row["seed"] for row in FileStore(tmp_path / "rows.parquet").rows(CODE)] == [0]


def test_an_error_inside_a_history_is_a_row() -> None:
    row = run_item("ring", '{"without":"no such clause"}', 1)
    assert row["verdict"] == "crashed"
    assert "KeyError" in row["broken"]


def test_histories_are_those_of_the_simulator() -> None:
    rows = [run_item("ring", RING, seed) for seed in range(5)]
    summary = Summary()
    for seed in range(5):
        summary.add(run_seed("ring", seed))
    told = summary.as_json()
    for name in ("events", "datagrams", "simulated_ns", "releases", "late_releases", "reformations", "crashes"):
        assert sum(row["figures"][name] for row in rows) == told[name]
    assert sorted(row["figures"]["liveness_ratio"] for row in rows) == sorted(summary.liveness_ratios)


def test_a_broken_promise_is_told_with_its_seed() -> None:
    without = as_text(complete("ring", {"without": "own-token-not-journaled"}))
    row = run_item("ring", without, 10)
    assert (row["verdict"], row["seed"]) == ("broken", 10)
    assert row["broken"] == run_seed("ring", 10, "own-token-not-journaled").broken


def test_a_file_that_is_no_sweep_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    (tmp_path / "text.parquet").write_text("no parquet", encoding="utf-8")
    parquet.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")
    for name, why in (("text.parquet", "not a Parquet file"), ("other.parquet", "not a table of a sweep")):
        before = (tmp_path / name).read_bytes()
        with pytest.raises(LakeError, match=why):
            FileStore(tmp_path / name)
        assert (tmp_path / name).read_bytes() == before
    with pytest.raises(LakeError, match="is a directory"):
        FileStore(tmp_path)
    with pytest.raises(LakeError, match=r"directory .* not found"):
        FileStore(tmp_path / "none" / "rows.parquet")


def test_a_picture_has_a_panel_for_each_value_and_a_band() -> None:
    rows = [
        {"scenario": "s", "parameters": json.dumps({"members": n, "loss": loss}), "seed": seed, "cpu_s": 0.1,
         "figures": {"wait": n + seed * loss}}
        for n in (3, 5) for loss in (0.0, 0.1) for seed in range(10)
    ]  # fmt: skip
    text = plot(rows, SweepPlot("wait", "members", "loss"))
    assert text.startswith('<svg xmlns="http://www.w3.org/2000/svg"')
    assert (text.count("<polygon"), text.count("<polyline")) == (4, 2)
    assert "loss 0.1" in text
    with pytest.raises(ValueError, match="no history has 'speed'"):
        plot(rows, SweepPlot("speed", "members"))
    with pytest.raises(ValueError, match="is not a plot"):
        SweepPlot.read("wait")


def test_spark_gives_the_rows_that_this_process_gives(spark: Any, tmp_path: Path) -> None:
    pytest.importorskip("deltalake")
    from levelcast.pipeline.lake.lake import Lake

    wanted = [("ring", RING, seed) for seed in range(6)]
    store = LakeStore(spark, Lake.create(tmp_path / "lake"))
    found = sweep(wanted, SparkEngine(spark, run_items), store, code_version(), crashed)
    here = {key_of(row): row for row in run_items(wanted)}
    for row in found.rows:
        assert {**row, "cpu_s": None} == {**here[key_of(row)], "cpu_s": None}
    again = sweep(wanted, InProcess(), store, code_version(), crashed)
    assert again.ran == 0
    assert [row["figures"] for row in again.rows] == [row["figures"] for row in found.rows]


def test_spark_makes_a_row_of_a_history_that_kills_its_worker(spark: Any, tmp_path: Path) -> None:
    found = sweep(items(16), SparkEngine(spark, fast), FileStore(tmp_path / "rows.parquet"), CODE, crashed)
    _check_deadly(found)

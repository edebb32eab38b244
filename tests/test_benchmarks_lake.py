"""The benchmark of the lake runs in its quick form, and without Spark says that it measured nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import lake, lake_day
from benchmarks.report import Options
from tests.spark_parts import ROOT, need_spark


def test_without_pyspark_a_sentence_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    for run in (lake.run, lake_day.run):
        (note,) = run(Options(quick=True, out=tmp_path)).notes
        assert "pyspark is not installed" in note
        assert "nothing was measured" in note


def quick(name: str, out: Path) -> dict[str, Any]:
    """A run in a process of its own: it needs a Spark of its own."""
    need_spark()
    command = [sys.executable, "-m", "benchmarks", name, "--quick", "--out", str(out)]
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    subprocess.run(command, check=True, cwd=ROOT, env=os.environ | {"PYTHONPATH": path}, timeout=800)
    written: dict[str, Any] = json.loads((out / f"{name}.json").read_text(encoding="utf-8"))
    return written


@pytest.mark.campaign
@pytest.mark.timeout(900)
def test_a_quick_run_compares_with_the_query_by_hand(tmp_path: Path) -> None:
    written = quick("lake", tmp_path)
    assert written["figures"][0]["against"] == "hand-written Spark SQL"
    assert list(written["spent"]) == ["10000", "100000"]
    assert {lake.OURS, lake.TWO_STEPS, lake.JOB} <= set(written["spent"]["100000"])
    assert sum("peak memory" in note for note in written["notes"]) == 2


@pytest.mark.campaign
@pytest.mark.timeout(900)
def test_a_quick_day_of_streaming_counts_the_files(tmp_path: Path) -> None:
    written = quick("lake-day", tmp_path)
    (table,) = written["tables"]
    found = {row[0]: row[1:] for row in table["rows"]}
    assert found["never: trades"][0] > found["never: trades"][2] == 1
    assert found["every 2 batches: trades"][0] < found["never: trades"][0]

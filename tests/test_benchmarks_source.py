"""The benchmark of the data source runs in its quick form, and without Spark says that it measured nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import source
from benchmarks.report import Options
from tests.spark_parts import ROOT, need_spark


def test_without_pyspark_a_sentence_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    result = source.run(Options(quick=True, out=tmp_path))
    assert result.notes == ["pyspark is not installed, so nothing was measured: pip install 'levelcast[spark]'"]


@pytest.mark.campaign
def test_a_quick_run_compares_with_parquet(tmp_path: Path) -> None:
    """In a process of its own: it needs a Spark of its own."""
    need_spark()
    command = [sys.executable, "-m", "benchmarks", "source", "--quick", "--out", str(tmp_path)]
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    subprocess.run(command, check=True, cwd=ROOT, env=os.environ | {"PYTHONPATH": path}, timeout=110)
    written = json.loads((tmp_path / "source.json").read_text(encoding="utf-8"))
    assert [figure["against"] for figure in written["figures"]] == ["Parquet", "Parquet"]
    assert all(figure["ratio"] > 0 for figure in written["figures"])
    (table,) = written["tables"]
    assert len(table["rows"]) == 14
    assert sum("is left over" in note for note in written["notes"]) == 4

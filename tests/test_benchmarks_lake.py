"""The benchmark of the lake runs in its quick form, and without Spark says that it measured nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import lake
from benchmarks.report import Options
from tests.spark_parts import ROOT


def test_without_pyspark_a_sentence_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    (note,) = lake.run(Options(quick=True, out=tmp_path)).notes
    assert "which is not here" in note
    assert "nothing was measured" in note


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_quick_run_compares_with_the_query_by_hand(tmp_path: Path) -> None:
    """In a process of its own: it needs a Spark of its own."""
    pytest.importorskip("pyspark")
    pytest.importorskip("deltalake")
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        pytest.skip("needs Java")
    command = [sys.executable, "-m", "benchmarks", "lake", "--quick", "--out", str(tmp_path)]
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    subprocess.run(command, check=True, cwd=ROOT, env=os.environ | {"PYTHONPATH": path}, timeout=800)
    written = json.loads((tmp_path / "lake.json").read_text(encoding="utf-8"))
    assert written["figures"][0]["against"] == "hand-written Spark SQL"
    assert [row[0] for row in written["tables"][0]["rows"]] == [10_000, 100_000]

"""The benchmark of the plan job runs in its quick form; what it draws is what the lake has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import planjob
from benchmarks.report import Options
from tests.plan_parts import random_instance
from tests.spark_parts import ROOT, need_spark


def test_without_pyspark_a_sentence_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    (note,) = planjob.run(Options(quick=True, out=tmp_path)).notes
    assert "nothing was measured" in note


def test_pairs_in_parts_are_the_pairs() -> None:
    instance = random_instance(3)
    parts = list(planjob._parts(instance, 7))
    flows = np.repeat(np.arange(instance.n_flows), instance.degrees)
    assert np.concatenate([user for user, _ in parts]).tolist() == instance.users.tolist()
    assert np.concatenate([flow for _, flow in parts]).tolist() == flows.tolist()


@pytest.mark.campaign
@pytest.mark.timeout(900)
def test_a_quick_run_plans_two_sizes(tmp_path: Path) -> None:
    """In a process of its own: it needs a Spark of its own."""
    need_spark()
    command = [sys.executable, "-m", "benchmarks", "planjob", "--quick", "--out", str(tmp_path)]
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    subprocess.run(command, check=True, cwd=ROOT, env=os.environ | {"PYTHONPATH": path}, timeout=800)
    written = json.loads((tmp_path / "planjob.json").read_text(encoding="utf-8"))
    sizes, *stages = written["tables"]
    assert [row[:2] for row in sizes["rows"]] == [[size, how] for size in (2_000, 20_000) for how in ("spark", "local")]
    assert all(len(table["rows"]) > 3 for table in stages)

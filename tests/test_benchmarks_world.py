"""The run of the largest world measures its memory, and fails if a release is late."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import world
from levelcast.sim.bulk.run import WorldRun, run_world


def test_the_largest_world_is_run_once_in_three_layers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert world.main(["--large", "--quick", "--out", str(tmp_path)]) == 0
    written = json.loads((tmp_path / "world-large.json").read_text(encoding="utf-8"))
    assert [figure["name"] for figure in written["figures"]][:2] == ["peak memory", "wall time"]
    assert written["figures"][0]["against_value"] == pytest.approx(17.18, abs=0.01)
    assert "10 primaries, each with 3 secondaries, each of them with 2" in written["notes"]
    told = capsys.readouterr().err
    assert all(f"world: {part}, " in told for part in ("trial", "core", "customers"))


def test_a_late_release_fails_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def late(*arguments: object) -> WorldRun:
        run = run_world(*arguments)  # type: ignore[arg-type]
        return replace(run, core=replace(run.core, late=run.core.release > 0))

    monkeypatch.setattr(world, "run_world", late)
    assert world.main(["--large", "--quick", "--out", str(tmp_path)]) == 1

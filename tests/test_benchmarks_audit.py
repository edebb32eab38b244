"""The audits' benchmark runs in its small form, and what it makes is what a receiver would have written."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import audit, audit_tapes
from levelcast.pipeline.audit import fairness, order, timeliness
from levelcast.pipeline.audit.base import Job
from levelcast.pipeline.audit.inputs import gather
from levelcast.storage.release_log import read_releases
from levelcast.storage.tape.compare import verify


def test_made_tapes_are_sound_and_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_tapes, "RECORDS_PER_SEGMENT", 5_000)
    size = audit_tapes.make_day(tmp_path, 12_000, audit.NAMES[:3])
    assert size > 3 * 12_000 * 64
    verdict = verify(tmp_path / "london-1")
    assert verdict.fault is None
    assert verdict.records >= 12_000
    assert verdict.segments == 3
    assert len(read_releases(tmp_path / "london-1" / "releases")) == verdict.frames
    job = Job(None, gather([tmp_path]))
    for each in (order, fairness, timeliness):
        assert each.run(job).passed


def test_a_short_run_states_the_rate_of_false_alarms(capsys: pytest.CaptureFixture[str]) -> None:
    assert audit.main(["--false-alarms", "1", "--seconds", "8"]) == 0
    told = capsys.readouterr().out
    assert "1 clean days of 8 s" in told
    assert "found, and named as that and nothing else" in told
    rows = [line.split() for line in told.splitlines()]
    assert ["released", "early", "2", "ms", "100%"] in rows
    assert ["released", "early", "0.05", "ms", "0%"] in rows

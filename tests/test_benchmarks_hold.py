"""The bulk run of the hold-time model derives each case and judges it with fresh seeds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import hold
from levelcast.timing.hold import worst_late_share
from levelcast.timing.hold_rules import TODAY, HoldRules


def test_bulk_run_counts_late_slots_of_every_case(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert hold.main(["--bulk", "--quick", "--out", str(tmp_path)]) == 0
    written = json.loads((tmp_path / "hold-bulk.json").read_text(encoding="utf-8"))
    [table] = written["tables"]
    assert [row[0] for row in table["rows"]] == [f"five cities, {label}" for label, _, _ in hold.CASES]
    assert all(row[3] >= hold.QUICK_SLOTS for row in table["rows"])
    holds = [row[1] for row in table["rows"]]
    assert holds[:4] == sorted(holds[:4])
    assert f"hold: {len(hold.CASES)} of {len(hold.CASES)} cases" in capsys.readouterr().err


def test_a_case_above_its_target_fails_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hold, "worst_late_share", lambda counts, hold_ms: worst_late_share(counts, hold_ms // 2))
    assert hold.main(["--bulk", "--quick", "--only", "1.0% indep", "--out", str(tmp_path)]) == 1
    written = json.loads((tmp_path / "hold-bulk.json").read_text(encoding="utf-8"))
    assert [row[0] for row in written["tables"][0]["rows"]] == ["five cities, 1.0% independent"]


def test_the_changes_lead_from_the_old_rules_to_the_new() -> None:
    rows = hold.rule_rows()
    assert rows[hold.TODAY_NAME] == TODAY
    assert HoldRules() in rows.values()


def test_each_change_is_in_the_table_with_the_others_and_alone() -> None:
    rows = hold.rule_rows()
    assert len(rows) == 1 + 2 * len(hold.STEPS)
    assert rows["only gaps requested immediately"] == replace(TODAY, gaps=True)
    assert rows["only beats and one release time for all"] == replace(TODAY, beats=True, common_time=True)

"""`python -m benchmarks fair-entry` measures every rule, the criteria and the attacks."""

from __future__ import annotations

from pathlib import Path

from benchmarks.fair_entry import RULES, pairs_table, run
from benchmarks.report import Options


def test_a_quick_run_has_all_tables_and_every_pair(tmp_path: Path) -> None:
    result = run(Options(quick=True, out=tmp_path))
    titles = [table.title for table in result.tables]
    assert len(titles) == 8
    assert [row[0] for row in result.tables[0].rows] == list(RULES)
    names = {figure.name for figure in result.figures}
    assert {"worst pair, q = 5 ms", "worst pair, q = 1 ms", "one account in 19 cities"} <= names
    pairs = pairs_table(result.more).splitlines()
    assert len(pairs) == 2 + 190
    assert any("synthetic" in note for note in result.notes)

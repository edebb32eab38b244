"""Every planted fault of the audits on real Spark: found, named, and nothing else with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.audit_stage import Day, simulate
from levelcast.pipeline.audit import run as audit_run
from levelcast.pipeline.audit.base import AUDITS, Audit, Finding, Job, Result, register
from levelcast.pipeline.audit.inputs import gather
from levelcast.pipeline.session import on_spark
from levelcast.storage.append_file import TapeError
from tests.audit_parts import change_byte, rewrite, segment_with, shift_releases, swap_bytes
from tests.spark_parts import spark as spark  # the fixture

pytestmark = pytest.mark.timeout(900)
SECONDS = 40


@pytest.fixture(scope="module")
def clean() -> Day:
    return simulate(5, SECONDS)


@pytest.fixture(scope="module")
def slow() -> Day:
    return simulate(6, SECONDS, slow_source="XTKS", slow_ns=30_000_000)


def ask(spark: Any, which: str, day: Day, data: Path) -> audit_run.AuditOutcome:
    return audit_run.run(audit_run.names_of(which), Job(spark, gather([data], day.network)))


def only(outcome: audit_run.AuditOutcome) -> Finding:
    assert outcome.exit_code == 1
    (found,) = [finding for result in outcome.results for finding in result.findings]
    return found


def frame_at(day: Day, number: int) -> int:
    """The slot of a frame with several records, from `number` on."""
    frames = day.frames["tokyo-1"]
    return next(frame.slot for frame in frames[number:] if frame.records > 3)


def test_a_clean_day_passes_all_audits(spark: Any, clean: Day, tmp_path: Path) -> None:
    clean.write(tmp_path, records_per_segment=5_000)
    outcome = ask(spark, "all", clean, tmp_path)
    assert [result.audit for result in outcome.results] == ["order", "fairness", "timeliness", "entry"]
    assert outcome.exit_code == 0, outcome.results


def one_byte(data: Path, slot: int) -> tuple[int, str]:
    segment, number = segment_with(data / "tokyo-1", slot)
    at = segment.lines[number].at + 2 * 64 + 20  # the price of its third record
    change_byte(segment.data_path, at)
    return at, str(segment.data_path)


def test_one_changed_byte(spark: Any, clean: Day, tmp_path: Path) -> None:
    clean.write(tmp_path, records_per_segment=5_000)
    slot = frame_at(clean, 300)
    at, file = one_byte(tmp_path, slot)
    found = only(ask(spark, "order", clean, tmp_path))
    assert (found.kind, found.subject, found.file, found.slot) == ("changed bytes", "tokyo-1", file, slot)
    assert found.offset == at
    assert found.sequence is not None
    assert found.record == found.sequence + 2


def test_a_swapped_pair(spark: Any, clean: Day, tmp_path: Path) -> None:
    clean.write(tmp_path, records_per_segment=5_000)
    segment, number = segment_with(tmp_path / "london-1", frame_at(clean, 300))
    one, other = segment.lines[number : number + 2]
    swap_bytes(segment, (one.at, one.at + one.size), (other.at, other.at + other.size))
    found = only(ask(spark, "order", clean, tmp_path))
    assert (found.kind, found.subject, found.slot) == ("swapped frames", "london-1", one.slot)
    assert f"slots {one.slot} and {other.slot}" in found.says


def test_a_missing_frame(spark: Any, clean: Day, tmp_path: Path) -> None:
    clean.write(tmp_path, records_per_segment=5_000)
    slot = frame_at(clean, 300)
    segment, _ = segment_with(tmp_path / "sydney-1", slot)
    rewrite(segment, lambda frames: [frame for frame in frames if frame.slot != slot])
    found = only(ask(spark, "order", clean, tmp_path))
    assert (found.kind, found.subject, found.slot) == ("missing frame", "sydney-1", slot)


def test_a_receiver_2_ms_early(spark: Any, clean: Day, tmp_path: Path) -> None:
    clean.write(tmp_path)
    shift_releases(tmp_path / "frankfurt-1", -2_000_000)
    found = only(ask(spark, "all", clean, tmp_path))
    assert (found.kind, found.subject) == ("released early", "frankfurt-1")


def test_one_source_served_late(spark: Any, slow: Day, tmp_path: Path) -> None:
    slow.write(tmp_path)
    found = only(ask(spark, "all", slow, tmp_path))
    assert (found.kind, found.subject) == ("source served late", "XTKS")


def test_one_region_1_ms_late(spark: Any, clean: Day, tmp_path: Path) -> None:
    clean.write(tmp_path)
    for name in ("tokyo-1", "sydney-1"):
        shift_releases(tmp_path / name, 1_000_000)
    found = only(ask(spark, "all", clean, tmp_path))
    assert (found.kind, found.subject) == ("region late", "asia-pacific")


def test_spark_and_this_process_find_the_same(spark: Any, slow: Day, tmp_path: Path) -> None:
    slow.write(tmp_path, records_per_segment=5_000)
    one_byte(tmp_path, frame_at(slow, 300))
    here = audit_run.run(["order", "fairness", "timeliness", "entry"], Job(None, gather([tmp_path], slow.network)))
    there = ask(spark, "all", slow, tmp_path)
    assert [result.as_json() for result in there.results] == [result.as_json() for result in here.results]


def test_units_come_back_in_order(spark: Any) -> None:
    assert on_spark(spark, lambda number: number * 2, list(range(7))) == [0, 2, 4, 6, 8, 10, 12]
    assert on_spark(spark, lambda number: number, []) == []


def test_verdicts_are_kept_in_the_lake(spark: Any, clean: Day, tmp_path: Path) -> None:
    pytest.importorskip("deltalake")
    from levelcast.pipeline.lake.lake import Lake

    clean.write(tmp_path / "data")
    shift_releases(tmp_path / "data" / "frankfurt-1", -2_000_000)
    outcome = ask(spark, "fairness", clean, tmp_path / "data")
    lake = Lake.create(tmp_path / "lake")
    run_id = audit_run.keep(spark, lake, outcome.results, ["frankfurt-1", "tokyo-1"])
    (told,) = lake.arrow("audits").to_pylist()
    assert (told["run"], told["audit"], told["verdict"], told["findings"]) == (run_id, "fairness", "found", 1)
    assert json.loads(told["receivers"]) == ["frankfurt-1", "tokyo-1"]
    assert "receivers" in json.loads(told["figures"])
    (fault,) = lake.arrow("audit_findings").to_pylist()
    assert (fault["run"], fault["number"], fault["subject"]) == (run_id, 1, "frankfurt-1")
    assert fault["value"] < -1_800_000


# -- the frame, without Spark ---------------------------------------------------------------------------


@pytest.fixture
def added() -> Any:
    def run(job: Job) -> Result:
        return Result("empty-floors", [Finding("no trade", "XNYS", "sent nothing")], "One floor sent nothing.")

    yield register(Audit("empty-floors", "Which floors sent nothing?", run))
    del AUDITS["empty-floors"]


def test_an_audit_that_was_added_is_run_by_name_and_with_all(added: Audit, clean: Day, tmp_path: Path) -> None:
    clean.write(tmp_path)
    job = Job(None, gather([tmp_path], clean.network))
    assert audit_run.run(audit_run.names_of(added.name), job).exit_code == 1
    assert audit_run.names_of("all")[-1] == added.name
    with pytest.raises(TapeError, match='unknown audit "colour"; use one of order, fairness, timeliness, entry, empty'):
        audit_run.names_of("colour")


def test_of_several_audits_one_that_cannot_be_run_does_not_stop_the_others(clean: Day, tmp_path: Path) -> None:
    clean.write(tmp_path)
    for path in (tmp_path / "tokyo-1" / "releases").iterdir():
        path.unlink()
    job = Job(None, gather([tmp_path], clean.network))
    outcome = audit_run.run(audit_run.names_of("all"), job)
    assert outcome.exit_code == 2
    assert [result.audit for result in outcome.results] == ["order", "timeliness", "entry"]
    assert "release log of tokyo-1 not found" in outcome.not_run["fairness"]
    with pytest.raises(TapeError):
        audit_run.run(["fairness"], job)


def test_the_example_of_the_docs_runs(clean: Day, tmp_path: Path) -> None:
    text = (Path(__file__).resolve().parents[1] / "docs" / "audits.md").read_text(encoding="utf-8")
    example = text.partition("```python\n")[2].partition("```")[0]
    clean.write(tmp_path)
    try:
        exec(compile(example, "docs/audits.md", "exec"), {})
        job = Job(None, gather([tmp_path], clean.network))
        (result,) = audit_run.run(audit_run.names_of("silent-floors"), job).results
        assert result.sentence == "0 of 5 floors sent nothing."
    finally:
        AUDITS.pop("silent-floors", None)

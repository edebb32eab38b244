"""`levelcast audit` as somebody at a terminal meets it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from levelcast.cli.main import app
from levelcast.network import five_cities
from tests.audit_parts import change_byte, rechained, record, record_all, segment_with
from tests.spark_parts import spark as spark  # the fixture
from tests.tape_parts import make_frames
from tests.test_cli_lake_pipeline import levelcast_here

FRAMES = make_frames(200, 3)
runner = CliRunner()


def refused(*arguments: object) -> str:
    """What is said of input of which nothing can be said; no Spark is started for it."""
    result = runner.invoke(app, ["audit", *map(str, arguments)])
    assert result.exit_code == 2, result.output
    (sentence,) = result.stderr.splitlines()
    assert sentence.startswith("levelcast: ")
    return sentence


def test_tapes_of_different_networks(tmp_path: Path) -> None:
    record(tmp_path / "a", FRAMES)
    record(tmp_path / "b", rechained([f._replace(timestamp_ns=f.timestamp_ns + 10**12) for f in FRAMES]))
    assert "are of different networks" in refused("order", tmp_path / "a", tmp_path / "b")


def test_a_missing_receiver(tmp_path: Path) -> None:
    record_all(tmp_path / "data", FRAMES, ("new-york-1", "london-1", "frankfurt-1", "sydney-1"))
    (tmp_path / "network.toml").write_text(five_cities())
    told = refused("all", tmp_path / "data", "--network", tmp_path / "network.toml")
    assert '"tokyo-1" is a receiver of five cities, but its tape of stripe 0 is missing' in told


def test_overlapping_days(tmp_path: Path) -> None:
    record(tmp_path / "monday" / "tokyo-1", FRAMES)
    record(tmp_path / "tuesday" / "tokyo-1", FRAMES)
    assert "the days overlap, pass only one of them" in refused("order", tmp_path / "monday", tmp_path / "tuesday")


def test_an_empty_tape_and_none_at_all(tmp_path: Path) -> None:
    (tmp_path / "tokyo-1" / "tape").mkdir(parents=True)
    assert "the tape is empty" in refused("order", tmp_path)
    assert "directory not found" in refused("order", tmp_path / "nowhere")


def test_a_release_log_that_is_damaged_empty_or_missing(tmp_path: Path) -> None:
    record_all(tmp_path, FRAMES, ("london-1", "tokyo-1"))
    (log,) = (tmp_path / "tokyo-1" / "releases").iterdir()
    content = log.read_bytes()
    change_byte(log, 500)
    for audit in ("fairness", "all"):
        assert f"{log}: damaged at byte 480" in refused(audit, tmp_path)
    log.write_bytes(b"nonsense" * 30)
    assert f"{log}: damaged at byte 0: not a Levelcast release log" in refused("fairness", tmp_path)
    log.write_bytes(content[:10])
    advice = "restore it, or exclude the receiver with --without tokyo-1"
    assert f"release log of tokyo-1 has no release; {advice}" in refused("fairness", tmp_path)
    log.unlink()
    assert f"release log of tokyo-1 not found; {advice}" in refused("fairness", tmp_path)


def test_an_unknown_audit(tmp_path: Path) -> None:
    assert 'unknown audit "colour"' in refused("colour", tmp_path)


def test_a_file_is_not_replaced_unasked(tmp_path: Path) -> None:
    (tmp_path / "verdict.json").write_text("mine")
    result = runner.invoke(app, ["audit", "order", str(tmp_path), "-o", str(tmp_path / "verdict.json")])
    assert result.exit_code == 2
    assert (tmp_path / "verdict.json").read_text() == "mine"


def test_without_spark_small_tapes_get_the_same_answer(tmp_path: Path) -> None:
    data = tmp_path / "data"
    record_all(data, FRAMES, ("new-york-1", "london-1", "frankfurt-1"))
    clean = runner.invoke(app, ["audit", "order", str(data), "--no-spark", "--json"])
    assert clean.exit_code == 0, clean.output
    assert json.loads(clean.stdout)["audits"][0]["verdict"] == "passed"
    segment, number = segment_with(data / "london-1", FRAMES[90].slot)
    change_byte(segment.data_path, segment.lines[number].at + 20)
    found = runner.invoke(app, ["audit", "order", str(data), "--no-spark"])
    assert found.exit_code == 1
    assert "order: FOUND" in found.stdout
    assert "changed bytes" in found.stdout
    assert "london-1" in found.stdout
    beside = runner.invoke(app, ["audit", "order", str(data), "--no-spark", "--lake", str(tmp_path / "lake")])
    assert beside.exit_code == 2


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("spark")
def test_a_fault_is_shown_and_written_down(tmp_path: Path) -> None:
    data = tmp_path / "data"
    record_all(data, FRAMES, ("new-york-1", "london-1", "frankfurt-1"))
    segment, number = segment_with(data / "london-1", FRAMES[90].slot)
    change_byte(segment.data_path, segment.lines[number].at + 20)
    written = tmp_path / "verdict.json"
    done = levelcast_here("audit", "all", data, "--master", "local[1]", "--lake", tmp_path / "lake", "-o", written)
    assert done.returncode == 1, done.stderr
    assert "order: FOUND" in done.stdout
    assert "fairness: PASSED" in done.stdout
    document = json.loads(written.read_text())
    (finding,) = document["audits"][0]["findings"]
    assert (finding["subject"], finding["slot"]) == ("london-1", FRAMES[90].slot)
    assert document["exit_code"] == 1
    shown = runner.invoke(app, ["pipeline", "status", "--lake", str(tmp_path / "lake"), "--json"])
    rows = {each["table"]: each["rows"] for each in json.loads(shown.output)}
    assert rows["audit_findings"] == len([f for each in document["audits"] for f in each["findings"]])
    assert rows["audits"] == 4

"""`levelcast pipeline` and `levelcast report` as somebody at a terminal meets them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from levelcast.cli.main import app
from tests.spark_parts import spark
from tests.tape_parts import make_frames
from tests.test_pipeline_input_tapes import write

pytest.importorskip("deltalake")

__all__ = ["spark"]

ROOT = Path(__file__).resolve().parents[1]
runner = CliRunner()


def levelcast(*arguments: object, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """In a process of its own: it has a session of its own."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-m", "levelcast", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": path, **(env or {})},
        capture_output=True,
        text=True,
        timeout=900,
    )


def levelcast_here(*arguments: object) -> subprocess.CompletedProcess[str]:
    """In this process, on the session of the tests."""
    command = [*map(str, arguments)]
    result = runner.invoke(app, command)
    return subprocess.CompletedProcess(command, result.exit_code, result.stdout, result.stderr)


def one_sentence(result: subprocess.CompletedProcess[str]) -> str:
    ours = [line for line in result.stderr.splitlines() if line.startswith("levelcast: ")]
    assert result.returncode == 2, result.stderr
    assert len(ours) == 1, result.stderr
    assert "Traceback" not in result.stderr
    return ours[0]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("spark")
def test_from_a_tape_to_a_page(tmp_path: Path) -> None:
    frames = make_frames(80, 4)
    write(tmp_path / "node" / "tape", frames).close()
    lake, page = tmp_path / "lake", tmp_path / "report.html"
    done = levelcast("pipeline", "run", "--input", tmp_path / "node", "--lake", lake, "--master", "local[1]", "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # nothing of Spark's start
    told = json.loads(done.stdout)
    assert told["rows"]["tape"] == sum(frame.records for frame in frames)
    assert told["rows"]["bars"] > 0

    shown = runner.invoke(app, ["pipeline", "status", "--lake", str(lake), "--json"])
    by_name = {each["table"]: each for each in json.loads(shown.output)}
    assert by_name["tape"]["rows"] == told["rows"]["tape"]
    assert by_name["tape"]["marks"]["tape/0"] == told["rows"]["tape"]
    lag_s = by_name["tape"]["lag_s"]["0"]
    assert 0 < time.time() - frames[-1].timestamp_ns / 1e9 - lag_s < 600
    said = runner.invoke(app, ["pipeline", "status", "--lake", str(lake)]).output
    assert re.search(r"stripe 0: up to sequence [\d,]+, [\d,.]+ s ago", said)

    result = runner.invoke(app, ["report", "--lake", str(lake), "-o", str(page)])
    assert result.exit_code == 0, result.output
    html = page.read_text(encoding="utf-8")
    assert html.count("<svg") >= 3
    assert not re.search(r"(?:src|href)\s*=|url\(|@import|<script", html)  # nothing is loaded from anywhere
    refused = runner.invoke(app, ["report", "--lake", str(lake), "--date", "1999-01-01", "-o", str(page)])
    assert refused.exit_code == 2
    assert "no trades for 1999-01-01" in refused.stderr

    write(tmp_path / "empty" / "tape", []).close()
    told_empty = levelcast_here(
        "pipeline", "run", "--input", tmp_path / "empty", "--lake", tmp_path / "none", "--master", "local[1]"
    )
    assert "the tape is empty" in one_sentence(told_empty)


def test_what_cannot_be_is_one_sentence(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    pytest.importorskip("pyspark")
    missing = levelcast("pipeline", "run", "--input", tmp_path / "none", "--lake", lake)
    assert "none: file or directory not found" in one_sentence(missing) or "java" in missing.stderr
    without = {"PATH": str(Path(sys.executable).parent), "JAVA_HOME": ""}
    no_java = levelcast("pipeline", "run", "--input", tmp_path, "--lake", lake, env=without)
    assert "install Java 17 or newer" in one_sentence(no_java)
    assert not lake.exists()
    for command in (["pipeline", "status"], ["report"], ["pipeline", "compact"]):
        result = runner.invoke(app, [*command, "--lake", str(tmp_path)])
        assert result.exit_code == 2
        assert "not a lake" in result.stderr
    result = runner.invoke(app, ["pipeline", "run", "--input", str(tmp_path), "--lake", str(lake), "--date", "soon"])
    assert result.exit_code == 2
    result = runner.invoke(app, ["demo", "--simulated", "--pipeline"])
    assert result.exit_code == 2


def test_the_commands_load_neither_spark_nor_arrow_before_they_are_used() -> None:
    code = "import sys, levelcast.cli.main; print([n for n in ('pyarrow', 'pyspark', 'deltalake') if n in sys.modules])"
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    result = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert result.stdout.strip() == "[]", result.stderr

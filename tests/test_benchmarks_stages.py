"""What the event log says of each stage."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.stages import DESCRIPTION, Stage, log_settings, stages
from tests.spark_parts import need_spark


def submitted(stage: int, name: str, described: str | None = None) -> dict[str, Any]:
    properties = {} if described is None else {DESCRIPTION: described}
    info = {"Stage ID": stage, "Stage Name": name}
    return {"Event": "SparkListenerStageSubmitted", "Stage Info": info, "Properties": properties}


def ended(stage: int, ms: int, memory: int = 0, reason: str = "Success") -> dict[str, Any]:
    return {
        "Event": "SparkListenerTaskEnd",
        "Stage ID": stage,
        "Task End Reason": {"Reason": reason},
        "Task Info": {"Launch Time": 5_000, "Finish Time": 5_000 + ms},
        "Task Executor Metrics": {"ProcessTreePythonRSSMemory": memory, "ProcessTreeJVMRSSMemory": 1},
    }


def write(path: Path, events: list[dict[str, Any]], tail: str = "") -> None:
    path.write_text("".join(json.dumps(event, separators=(",", ":")) + "\n" for event in events) + tail)


def test_the_worst_task_stands_beside_the_median(tmp_path: Path) -> None:
    events = [submitted(0, "collect at /a/b/x.py:1"), submitted(1, "save", "hashes"), ended(0, 100), ended(0, 300, 70)]
    events += [ended(0, 200), ended(0, 9_000, reason="ExceptionFailure"), ended(1, 50)]
    write(tmp_path / "local-1", events, tail='{"Event":"SparkListenerTaskEnd","Sta')
    first, second = stages(tmp_path)
    assert first == Stage(0, "collect at x.py:1", 3, 0.2, 0.3, 0.6000000000000001, 71)
    assert second[:4] == (1, "hashes", 1, 0.05)


def test_a_session_leaves_a_log_that_is_read(tmp_path: Path) -> None:
    """The real thing, in a process of its own: the tests' session has no log."""
    need_spark()
    program = (
        "import sys, time\n"
        "from levelcast.pipeline.session import spark_session\n"
        "from benchmarks.stages import log_settings\n"
        "with spark_session('local[1]', 'stages', settings=log_settings(sys.argv[1])) as spark:\n"
        "    spark.sparkContext.setJobDescription('one that waits')\n"
        "    spark.sparkContext.parallelize([0.01] * 6 + [1.0], 7).map(time.sleep).collect()\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "log")], check=True, timeout=300)
    (stage,) = stages(tmp_path / "log")
    assert (stage.name, stage.tasks) == ("one that waits", 7)
    assert stage.worst_s >= 1.0 > stage.median_s
    assert log_settings(tmp_path / "log")["spark.eventLog.enabled"] == "true"

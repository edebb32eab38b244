"""Measure the stages of a Spark job from its event log: the slowest task compared with the median.

    with spark_session(master, name, settings=log_settings(directory)) as spark:
        ...
    for stage in stages(directory): ...

A session has to be stopped before its log is whole. Of a stage that was run again all tasks count that succeeded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

DESCRIPTION = "spark.job.description"
_WHERE = re.compile(r"at \S*/")
_PYTHON, _JVM = "ProcessTreePythonRSSMemory", "ProcessTreeJVMRSSMemory"


class Stage(NamedTuple):
    """One stage: times are those of its tasks, from launch to end."""

    id: int
    name: str
    """The job's description, where one was set, else where in which file it was called."""
    tasks: int
    median_s: float
    worst_s: float
    total_s: float
    peak_memory: int
    """The most bytes of an executor and its Python processes that Spark saw while a task ran; 0 if it saw none."""


def log_settings(directory: Path | str) -> dict[str, str]:
    """What a session needs to leave its event log there, in plain text."""
    Path(directory).mkdir(parents=True, exist_ok=True)
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": Path(directory).resolve().as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.executor.processTreeMetrics.enabled": "true",
        "spark.executor.metrics.pollingInterval": "500",
    }


def stages(event_log_dir: Path | str) -> list[Stage]:
    """Every stage of every application that left its log in the directory, in the order in which they began."""
    found: list[Stage] = []
    for path in sorted(each for each in Path(event_log_dir).rglob("*") if each.is_file()):
        found += _stages_of(path)
    return found


def _stages_of(path: Path) -> Iterator[Stage]:
    names: dict[int, str] = {}
    times: dict[int, list[float]] = {}
    memory: dict[int, int] = {}
    for event in _events(path):
        kind = event["Event"]
        if kind == "SparkListenerStageSubmitted":
            info = event["Stage Info"]
            described = (event.get("Properties") or {}).get(DESCRIPTION)
            names.setdefault(info["Stage ID"], described or _WHERE.sub("at ", info["Stage Name"]))
        elif kind == "SparkListenerTaskEnd":
            stage, info = event["Stage ID"], event["Task Info"]
            if event["Task End Reason"]["Reason"] == "Success":
                times.setdefault(stage, []).append((info["Finish Time"] - info["Launch Time"]) / 1000)
            told = event.get("Task Executor Metrics") or {}
            memory[stage] = max(memory.get(stage, 0), told.get(_PYTHON, 0) + told.get(_JVM, 0))
    for stage, name in sorted(names.items()):
        if taken := times.get(stage):
            yield Stage(stage, name, len(taken), median(taken), max(taken), sum(taken), memory.get(stage, 0))


def _events(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a log that say something; the last one of a killed application may be cut short."""
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith('{"Event":"SparkListener'):
                try:
                    yield json.loads(line)
                except ValueError:
                    return

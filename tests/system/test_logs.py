"""Logs of real processes: start and stop, a first start without a fault, the cause of a reformation, and a pipe."""

from __future__ import annotations

import fcntl
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from levelcast.network import load_network
from levelcast.node.status_client import ask_all
from tests.system.processes import LIMIT_S, Nodes, in_ring, levelcast, nodes_of, write_network

RECEIVERS = ("a-1", "b-1", "c-1")
NAMES = (*RECEIVERS, "reform-a")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_network(tmp_path / "network.toml")


@pytest.fixture
def nodes(file: Path, tmp_path: Path) -> Iterator[Nodes]:
    with nodes_of(file, tmp_path) as running:
        for name in NAMES:
            running.start(name, tmp_path / "data", "--init")
        running.wait_for(lambda told: in_ring(told, *RECEIVERS))
        yield running


def lines_of(data: Path, name: str) -> list[str]:
    return (data / f"{name}.log").read_text(encoding="utf-8").splitlines()


def objects_of(data: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (data / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def test_a_first_start_logs_no_fault_and_a_stop_is_the_last_line(nodes: Nodes, tmp_path: Path) -> None:
    data = tmp_path / "data"
    for name in NAMES:
        assert nodes.end(name) == 0
    for name in NAMES:
        lines, objects = lines_of(data, name), objects_of(data, name)
        assert [line.split()[:3] for line in lines] == [[each["time"], each["level"], name] for each in objects]
        assert f" INFO {name} start: version " in lines[0]
        assert lines[-1].endswith(f" INFO {name} stop: SIGTERM")
        ring = next(at for at, each in enumerate(objects) if each["event"] in ("entered", "forms"))
        assert {each["level"] for each in objects[: ring + 1]} == {"INFO"}
        assert "fault" not in "".join(lines[: ring + 1]) + json.dumps(objects[: ring + 1])
        assert nodes.log(name).read_text().splitlines() == lines  # the lines on stderr are those of the log


def test_the_cause_of_a_reformation_names_reporter_and_suspect(nodes: Nodes, file: Path, tmp_path: Path) -> None:
    assert nodes.end("b-1", signal.SIGKILL) == -signal.SIGKILL
    nodes.wait_for(lambda told: in_ring(told, "a-1", "c-1"))
    causes = [f"{name} reported a missing token of b-1" for name in ("a-1", "c-1")]
    lines = lines_of(tmp_path / "data", "reform-a")
    assert any(line.endswith(f"WARNING reform-a starts a reformation: {cause}") for line in lines for cause in causes)
    status = levelcast("status", "--network", file).stdout
    assert any(cause in " ".join(status.split()) for cause in causes)


def test_an_error_is_in_the_log(nodes: Nodes, file: Path, tmp_path: Path) -> None:
    done = levelcast("node", "--network", file, "--name", "a-1", "--data", tmp_path / "data")
    assert done.returncode == 2
    assert "a-1 is already running on this machine" in done.stderr
    assert any(" ERROR a-1 stop: error: a-1 is already running" in line for line in lines_of(tmp_path / "data", "a-1"))


def test_a_reader_that_is_slow_neither_stops_a_node_nor_loses_events(file: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "levelcast", "node", "--network", str(file), "--name", "reform-a"]
    node = subprocess.Popen([*command, "--data", str(tmp_path), "--init", "--json"], stdout=subprocess.PIPE, text=True)
    assert node.stdout is not None
    fcntl.fcntl(node.stdout.fileno(), fcntl.F_SETPIPE_SZ, 4096)  # a second of status lines
    deadline, uptime_s = time.monotonic() + LIMIT_S, 0.0
    while uptime_s < 3.0:
        assert time.monotonic() < deadline
        (answer,) = ask_all(load_network(file), ["reform-a"], 5.0)
        uptime_s = answer.status["uptime_s"] if answer.ok else 0.0
        time.sleep(0.1)
    node.send_signal(signal.SIGTERM)
    output, _ = node.communicate(timeout=LIMIT_S)
    said = [json.loads(line) for line in output.splitlines()]
    assert node.returncode == 0
    assert [each["event"] for each in said if "event" in each] == ["start", "stop"]
    assert said[-1]["final"] is True

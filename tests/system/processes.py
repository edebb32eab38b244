"""Nodes as processes of their own, for tests that do to them what happens to machines."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from levelcast.network import load_network
from levelcast.node.status_client import ask_all
from levelcast.storage.release_log import MOVED, TOKEN, read_releases
from tests.network_parts import TWO_FLOORS, free_ports, three_rooms

LIMIT_S = 60.0


def levelcast(*arguments: object, timeout_s: float = LIMIT_S) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    command = [sys.executable, "-m", "levelcast", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)


def write_network(path: Path, more: str = "") -> Path:
    """A network file with a group, a port and status ports that no other test has."""
    path.write_text(f"{three_rooms(TWO_FLOORS)}\n[status]\nport = {free_ports()}\n{more}", encoding="utf-8")
    return path


class Nodes:
    """Running nodes of one network file; `logs` has what each says on stderr."""

    def __init__(self, file: Path, logs: Path) -> None:
        self.file = file
        self.logs = logs
        self.running: dict[str, subprocess.Popen[str]] = {}

    def start(self, name: str, data: Path, *options: object) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "levelcast", "node", "--network", str(self.file), "--name", name]
        with self.log(name).open("a", encoding="utf-8") as log:
            self.running[name] = subprocess.Popen(
                [*command, "--data", str(data), *map(str, options)], stdout=subprocess.DEVNULL, stderr=log, text=True
            )
        return self.running[name]

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.err"

    def end(self, name: str, number: int = signal.SIGTERM) -> int:
        process = self.running.pop(name)
        process.send_signal(number)
        return process.wait(LIMIT_S)

    def status(self) -> dict[str, Any]:
        """What each node that answers says."""
        return {answer.name: answer.status for answer in ask_all(load_network(self.file), (), 5.0) if answer.ok}

    def _ends(self) -> dict[str, tuple[int | None, str]]:
        """Of each process its exit code and what it said last."""
        words = {name: self.log(name).read_text().splitlines()[-1:] for name in self.running}
        return {name: (process.poll(), " ".join(words[name])) for name, process in self.running.items()}

    def wait_for(self, condition: Callable[[dict[str, Any]], bool], limit_s: float = LIMIT_S) -> dict[str, Any]:
        """The first answers of the nodes that meet a condition."""
        deadline = time.monotonic() + limit_s
        while True:
            nodes = self.status()
            try:
                if condition(nodes):
                    return nodes
            except KeyError:
                pass  # a node does not answer yet
            assert time.monotonic() < deadline, f"never: {nodes}, {self._ends()}"
            time.sleep(0.2)


@contextmanager
def nodes_of(file: Path, logs: Path) -> Iterator[Nodes]:
    """Nodes that are all ended at the end."""
    nodes = Nodes(file, logs)
    try:
        yield nodes
    finally:
        for process in nodes.running.values():
            process.kill()
            process.wait()


def in_ring(nodes: dict[str, Any], *names: str) -> bool:
    """Whether these receivers, and no others, are active in one ring."""
    members = {nodes[name]["id"] for name in names}
    same = len({nodes[name]["generation"] for name in names}) == 1
    return same and all(nodes[name]["state"] == "ACTIVE" and set(nodes[name]["members"]) == members for name in names)


def check_release_times(data: Path, names: Sequence[str]) -> None:
    """Check that each slot has one release time at all receivers, after that of the slot before (rules 7, W9)."""
    times: dict[int, set[int]] = {}
    for name in names:
        log = read_releases(data / name / "releases")
        on_time = log[(log["flags"] & (MOVED | TOKEN)) == 0]
        for slot, at in zip(on_time["slot"].tolist(), on_time["scheduled_ns"].tolist(), strict=True):
            times.setdefault(slot, set()).add(at)
    assert all(len(each) == 1 for each in times.values()), "every slot has one release time"
    at = np.array([min(each) for _, each in sorted(times.items())])
    assert len(at) > 0
    assert (np.diff(at) > 0).all(), "no slot is due before the one ahead of it"

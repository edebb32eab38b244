"""The hold time changes while everything runs: nothing is lost, and every slot has one release time (rule W9)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from itertools import cycle, islice
from pathlib import Path

import pytest

from levelcast.network import FiveCities, five_cities, load_network
from levelcast.node.cluster import Cluster, ClusterRun
from levelcast.node.options import NodeOptions
from levelcast.node.verdict import check_floors, judge
from tests.network_parts import TWO_FLOORS, free_ports, three_rooms
from tests.system.processes import check_release_times

RUN_S = 3600.0
APPLIED = re.compile(r"(\d+) ms -> (\d+) ms .*timing record (\d+)")


class Changes:
    """A running network whose hold time an operator changes."""

    def __init__(self, file: Path, data: Path, *, impair: bool) -> None:
        self.file = file
        self.network = load_network(file)
        self.cluster = Cluster(self.network, file, data, NodeOptions(1000, int(RUN_S * 1e9), impair))
        self._run = ClusterRun(self.cluster, RUN_S, 60.0)
        self._steps = self._run.steps()

    def begin(self) -> None:
        while not all(each.status.get("state") == "ACTIVE" for each in self.cluster.releasing):
            next(self._steps)
        self.run_for(2.0)

    def run_for(self, seconds: float) -> None:
        until = self.cluster.elapsed_s + seconds
        while self.cluster.elapsed_s < until:
            next(self._steps)

    def apply(self, hold_ms: int) -> tuple[int, int, int]:
        """Change the hold time; return the one before, the new one, and the version of the record."""
        command = [sys.executable, "-m", "levelcast", "timing", "--network", str(self.file)]
        process = subprocess.Popen(
            [*command, "--apply", "--hold", f"{hold_ms}ms"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        while process.poll() is None:
            next(self._steps)
        printed, _ = process.communicate()
        found = APPLIED.search(printed)
        assert process.returncode == 0, printed
        assert found is not None, printed
        before, after, version = map(int, found.groups())
        return before, after, version

    def end(self) -> None:
        self._run.interrupted = True
        for _ in self._steps:
            pass

    def check(self) -> None:
        names = [member.place.part for member in self.cluster.releasing]
        verdict = judge(self.cluster.data, names, self._run.problems)
        check_floors(self.cluster, self.network.stripes[0].name, verdict)
        assert verdict.problems == []
        check_release_times(self.cluster.data, names)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_running_ring_takes_a_longer_and_a_shorter_hold_time(tmp_path: Path) -> None:
    file = tmp_path / "network.toml"
    file.write_text(three_rooms(TWO_FLOORS) + f"[status]\nport = {free_ports()}\n", encoding="utf-8")
    changes = Changes(file, tmp_path / "data", impair=False)
    changes.begin()
    assert changes.apply(900)[1:] == (900, 1)
    changes.run_for(3.5)
    assert changes.apply(300) == (900, 300, 2)
    changes.run_for(4.0)
    changes.end()
    changes.check()


@pytest.mark.campaign
@pytest.mark.timeout(900)
def test_twenty_changes_under_load(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "network.toml"
    file.write_text(five_cities(FiveCities(network_id=os.getpid())), encoding="utf-8")
    changes = Changes(file, tmp_path / "data", impair=True)
    changes.begin()
    for number, hold_ms in enumerate(islice(cycle((600, 417, 800, 500, 450)), 20), start=1):
        assert changes.apply(hold_ms)[1:] == (hold_ms, number)
        changes.run_for(4.5)
    changes.end()
    changes.check()
    with capsys.disabled():
        print("\n20 changes: tapes identical, nothing lost, one release time for each slot", flush=True)

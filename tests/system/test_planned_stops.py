"""Receivers restart one after the other with SIGTERM, under load: no fault is reported, and nothing is lost or late."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from levelcast.network import FiveCities, five_cities, load_network
from levelcast.node.cluster import Cluster, ClusterNode, ClusterRun
from levelcast.node.options import NodeOptions
from levelcast.node.verdict import check_floors, judge
from levelcast.protocol.events import FaultReported
from levelcast.storage.release_log import read_releases
from levelcast.wire.messages import FaultReason
from tests.network_parts import TWO_FLOORS, three_rooms

REQUESTS = (FaultReason.OUTSIDE, FaultReason.MEMBERSHIP)
"""Requests to join, which are no faults."""
RUN_S = 3600.0


class RollingRestart:
    """Stop and start every receiver of a network in turn, while its floors trade."""

    def __init__(self, file: Path, data: Path, *, impair: bool) -> None:
        self.network = load_network(file)
        self.cluster = Cluster(self.network, file, data, NodeOptions(1000, int(RUN_S * 1e9), impair))
        self.run = ClusterRun(self.cluster, RUN_S, 60.0)
        self.faults: Counter[str] = Counter()
        self.outside: list[tuple[str, int, int]] = []
        """Receiver, and when it was in no ring."""
        self._steps = self.run.steps()

    def until(self, condition: object) -> None:
        """Run until the condition holds."""
        assert callable(condition)
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline, {n: m.status for n, m in self.cluster.members.items()}
            next(self._steps)
            for _, event in list(self.cluster.events):
                if isinstance(event, FaultReported) and event.reason not in REQUESTS:
                    self.faults[FaultReason.NAMES[event.reason]] += 1
            self.cluster.events.clear()

    def ring_is_complete(self) -> bool:
        said = [member.status for member in self.receivers]
        names = {status.get("generation") for status in said}
        return len(names) == 1 and all(
            status.get("state") == "ACTIVE" and len(status["members"]) == len(said) for status in said
        )

    @property
    def receivers(self) -> list[ClusterNode]:
        return self.cluster.releasing

    def restart(self, member: ClusterNode) -> float:
        """Stop a receiver with SIGTERM and start it again; return how long it took to stop."""
        name, process = member.place.part, member.process
        assert process is not None
        began, began_ns = time.monotonic(), time.time_ns()
        os.kill(process.pid, signal.SIGTERM)
        self.until(lambda: not member.running)
        took = time.monotonic() - began
        assert process.returncode == 0
        self.cluster.start(name)
        self.until(self.ring_is_complete)
        self.outside.append((name, began_ns, time.time_ns()))
        return took

    def end(self) -> None:
        self.run.interrupted = True
        for _ in self._steps:
            pass

    def check(self) -> tuple[int, int]:
        """Check tapes and releases; return the largest gap between two slots, and the largest lateness."""
        names = [member.place.part for member in self.receivers]
        verdict = judge(self.cluster.data, names, self.run.problems)
        check_floors(self.cluster, self.network.stripes[0].name, verdict)
        assert verdict.problems == []
        gap_ns = late_ns = 0
        for name in names:
            log = np.sort(read_releases(self.cluster.data / name / "releases"), order="slot")
            gap_ns = max(gap_ns, int(np.diff(log["scheduled_ns"].astype(np.int64)).max()))
            due, late = log["scheduled_ns"].astype(np.int64), log["released_ns"].astype(np.int64)
            running = np.ones(len(log), bool)
            for _, began, ended in (each for each in self.outside if each[0] == name):
                running &= (due < began) | (due > ended)
            late_ns = max(late_ns, int((late - due)[running].max()))
        return gap_ns, late_ns


def rolling(file: Path, data: Path, rounds: int, *, impair: bool) -> Iterator[str]:
    restart = RollingRestart(file, data, impair=impair)
    lead_ns = restart.network.timing().lead_ns
    longest = 0.0
    restart.until(restart.ring_is_complete)
    restart.faults.clear()
    for number in range(rounds):
        for member in restart.receivers:
            longest = max(longest, restart.restart(member))
        yield f"round {number + 1}: longest stop {longest:.2f} s, faults {dict(restart.faults)}"
    restart.end()
    gap_ns, late_ns = restart.check()
    yield f"lead {lead_ns / 1e6:.0f} ms, largest gap {gap_ns / 1e6:.0f} ms, largest lateness {late_ns / 1e6:.0f} ms"
    assert restart.faults == {}
    assert gap_ns <= 2 * lead_ns
    assert late_ns <= 2 * lead_ns


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_receiver_restarts_once(tmp_path: Path) -> None:
    file = tmp_path / "network.toml"
    file.write_text(three_rooms(TWO_FLOORS), encoding="utf-8")
    restart = RollingRestart(file, tmp_path / "data", impair=False)
    restart.until(restart.ring_is_complete)
    stops = [restart.restart(member) for member in restart.receivers]
    restart.end()
    restart.check()
    assert max(stops) < 5.0, "each got its answer"


@pytest.mark.campaign
@pytest.mark.timeout(3600)
def test_twenty_rolling_restarts_of_five_cities(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "network.toml"
    file.write_text(five_cities(FiveCities(network_id=os.getpid())), encoding="utf-8")
    for line in rolling(file, tmp_path / "data", 20, impair=True):
        with capsys.disabled():
            print(line, flush=True)

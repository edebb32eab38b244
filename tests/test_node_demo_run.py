"""Figures of a running demo, from the release logs as they grow."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from levelcast.network import five_cities, parse_network
from levelcast.network.roles import FLOOR, RECEIVER
from levelcast.node.cluster import Cluster
from levelcast.node.demo.run import NICE, LiveReleases, Show
from levelcast.node.options import NodeOptions
from levelcast.storage.release_log import Released, ReleaseLog


def release(log: ReleaseLog, slot: int, at_ns: int, *, late: bool = False) -> None:
    log.append([Released(slot, 1, at_ns, at_ns, 10, late)])


def test_release_logs_are_read_as_they_grow(tmp_path: Path) -> None:
    logs = {name: ReleaseLog(tmp_path / name / "releases", entries_per_file=2) for name in ("a", "b", "c")}
    releases = LiveReleases(tmp_path, [*logs, "d"])
    releases.look()
    assert releases.spread_ns() is None
    for slot in (1, 2, 3):
        release(logs["a"], slot, 1000 * slot)
        release(logs["b"], slot, 1000 * slot + 40)
        release(logs["c"], slot, 1000 * slot + 10, late=slot == 3)
        releases.look()
    assert releases.spread_ns() == 40
    assert releases.behind_ns("b") == 40
    assert releases.behind_ns("c") == 10
    assert releases.behind_ns("d") is None
    assert releases.logs["c"].late == 10
    assert releases.logs["a"].late == 0
    assert releases.logs["c"].count == 3
    assert releases.logs["c"].last_on_time <= 2
    assert releases.logs["a"].last_on_time > 2
    for log in logs.values():
        log.close()


def test_floors_and_subscribers_yield_to_receivers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(parse_network(five_cities()), tmp_path / "network.toml", tmp_path, NodeOptions(rate=1))
    for pid, member in enumerate([*cluster.of_role(FLOOR), *cluster.of_role(RECEIVER)], 1):
        member.process = cast("subprocess.Popen[str]", SimpleNamespace(pid=pid))
    lowered: list[int] = []

    def set_priority(which: int, pid: int, priority: int) -> None:
        assert (which, priority) == (os.PRIO_PROCESS, NICE)
        lowered.append(pid)
        if pid == 2:
            raise ProcessLookupError

    monkeypatch.setattr(os, "setpriority", set_priority)
    Show(cluster, 12.0, 10.0)._yield_to_receivers()
    assert lowered == [0, 1, 2, 3, 4, 5], "this process, and the floors"

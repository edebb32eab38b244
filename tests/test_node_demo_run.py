"""Figures of a running demo, from the release logs as they grow."""

from __future__ import annotations

from pathlib import Path

from levelcast.node.demo.run import LiveReleases
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

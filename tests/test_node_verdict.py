"""The verdict on a run: tapes that differ, and runs that were stopped before their end."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from levelcast.cli.live.up import print_results
from levelcast.network import Network, parse_network
from levelcast.network.roles import FLOOR, RoleKind
from levelcast.node import cluster as cluster_module
from levelcast.node.cluster import Cluster, ClusterRun, Kill
from levelcast.node.options import NodeOptions
from levelcast.node.verdict import ClusterVerdict, judge
from levelcast.runtime.cpu_contention import CpuContention
from tests.audit_parts import record
from tests.tape_parts import make_frames
from tests.test_network import SMALL

LATE = "not ready within 60 s: c has not reported its status"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two receivers, one of which ends early, and one that has not begun."""
    frames = make_frames(20)
    for name, count in (("a", 20), ("b", 15)):
        record(tmp_path / name, frames[:count])
    (tmp_path / "c" / "journal").mkdir(parents=True)
    return tmp_path


def test_short_and_missing_tapes_of_an_unfinished_run_are_not_errors_in_the_tapes(data: Path) -> None:
    verdict = judge(data, ("a", "b", "c"), unfinished=[LATE])
    assert verdict.problems == []
    assert verdict.unfinished[0] == LATE
    assert verdict.unfinished[1] == "c has no tape yet"
    assert "have different lengths" in verdict.unfinished[2]
    assert not verdict.identical
    assert [each.name for each in verdict.receivers] == ["a", "b"]
    nothing = judge(data, ("c",), unfinished=[LATE])
    assert (nothing.problems, nothing.receivers) == ([], [])


def test_short_and_missing_tapes_of_a_complete_run_are_errors(data: Path) -> None:
    assert "have different lengths" in judge(data, ("a", "b")).problems[0]
    assert judge(data, ("a", "c")).problems != []


def test_tapes_that_differ_are_errors_in_an_unfinished_run_as_well(data: Path) -> None:
    record(data / "d", make_frames(20, seed=2))
    verdict = judge(data, ("a", "d"), unfinished=[LATE])
    assert "differ from slot" in verdict.problems[0]
    assert verdict.unfinished == [LATE]


@pytest.mark.parametrize("problems", [[], ["the tapes differ"]])
def test_an_unfinished_run_is_not_printed_as_a_failed_check(tmp_path: Path, problems: list[str]) -> None:
    cluster = Cluster(parse_network(SMALL, "n.toml"), tmp_path / "n.toml", tmp_path, NodeOptions())
    text = io.StringIO()
    verdicts = {"main": ClusterVerdict(problems=problems, unfinished=[LATE])}
    print_results(Console(file=text, width=200), cluster, verdicts, CpuContention(20.0, 0.0, 0.2))
    assert "The run is NOT COMPLETE" in text.getvalue()
    assert f"- {LATE}" in text.getvalue()
    assert ("The tapes FAILED the check" in text.getvalue()) == bool(problems)
    assert ("the tapes agree as far as they go" in text.getvalue()) == (not problems)


class SlowCluster(Cluster):
    """Nodes that are not started: the test sets what they report."""

    def __init__(self, network: Network, data: Path) -> None:
        super().__init__(network, data / "n.toml", data, NodeOptions(rate=0))

    def start_all(self, *roles: RoleKind) -> None:
        self._began -= 100.0

    def kill(self, name: str) -> None:
        self.members[name].kills += 1

    def start(self, name: str) -> None:
        pass


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlowCluster:
    monkeypatch.setattr(cluster_module, "STEP_S", 0.0)
    return SlowCluster(parse_network(SMALL, "n.toml"), tmp_path)


def test_a_run_begins_when_all_nodes_are_running(slow: SlowCluster) -> None:
    name, *others = slow.members
    run = ClusterRun(slow, 50.0, 10.0, [Kill(name, 30.0, 32.0)])
    steps = run.steps()
    for _ in range(3):
        next(steps)
        assert run.phase == "starting"
    for each in others:
        slow.members[each].has_run = True
    next(steps)
    assert run.phase == "starting"
    slow.members[name].has_run = True
    next(steps)
    assert run.phase == "running"
    assert slow.elapsed_s < 30, "the clock starts when the last node is running"
    assert slow.members[name].kills == 0


def test_a_slow_start_does_not_shorten_the_trading_of_a_floor(tmp_path: Path) -> None:
    network = parse_network(SMALL, "n.toml")
    cluster = Cluster(network, tmp_path / "n.toml", tmp_path, NodeOptions(rate=1, run_ns=20 * 10**9))
    floor = cluster.of_role(FLOOR)[0]
    cluster._began -= 15.0
    assert cluster._arguments(floor.place)[-2:] == ["--for", "20000ms"]
    floor.has_run = True
    assert int(cluster._arguments(floor.place)[-1].removesuffix("ms")) <= 5_000, "after a restart, the rest"


def test_nodes_that_are_not_ready_in_time_are_named(slow: SlowCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "START_LIMIT_S", 0.0)
    name = next(iter(slow.members))
    run = ClusterRun(slow, 50.0, 10.0)
    for _ in run.steps():
        assert run.phase == "starting"
    (problem,) = run.problems
    assert problem.startswith("not ready within 0 s: ")
    assert f"{name} has not reported its status" in problem

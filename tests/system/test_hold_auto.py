"""Running nodes follow the delays of their links with the hold time: hold = "auto" (rule W10)."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from levelcast.cli.network_file.hold import missing_holds
from levelcast.network import load_network
from levelcast.node.cluster import Cluster, ClusterRun
from levelcast.node.options import NodeOptions
from levelcast.node.status_client import ask_all
from levelcast.node.verdict import check_floors, judge
from tests.network_parts import TWO_FLOORS, free_ports, three_rooms
from tests.system.processes import check_release_times

MS = 1_000_000
WIRES = """
[links]
delay = "{delay}ms"
jitter = "2ms"

[timing]
slot = "50ms"
late = "300ms"
attempts = 6
process = "10ms"
scheduling = "20ms"
hold = "auto"
lengthen_after = "5s"
shorten_after = "30s"
"""
BEGIN_MS, SLOW_MS, FAST_MS = 60, 120, 30


def set_delay(cluster: Cluster, file: Path, before_ms: int, delay_ms: int) -> None:
    """Change the delay of all links in the file, and let the nodes read it again."""
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace(f'delay = "{before_ms}ms"', f'delay = "{delay_ms}ms"'), encoding="utf-8")
    for member in cluster.members.values():
        assert member.process is not None
        member.process.send_signal(signal.SIGHUP)


@pytest.mark.campaign
@pytest.mark.timeout(900)
def test_the_hold_time_follows_delays_that_double_and_then_are_a_quarter(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "network.toml"
    text = three_rooms(TWO_FLOORS, wires=WIRES.format(delay=BEGIN_MS)) + f"[status]\nport = {free_ports()}\n"
    file.write_text(text, encoding="utf-8")
    holds = missing_holds(load_network(file), quiet=True)
    network = load_network(file).with_holds(holds)
    options = NodeOptions(rate=200, run_ns=int(3600e9), impair=True)
    cluster = Cluster(network, file, tmp_path / "data", options, holds=holds)
    run = ClusterRun(cluster, 3600.0, 60.0)
    changes = [(20.0, BEGIN_MS, SLOW_MS), (60.0, SLOW_MS, FAST_MS)]
    marks = [19.0, 59.0, 150.0]
    in_force: list[int] = []
    for _ in run.steps():
        if run.phase != "running":
            continue
        if changes and cluster.elapsed_s > changes[0][0]:
            set_delay(cluster, file, *changes.pop(0)[1:])
        if marks and cluster.elapsed_s > marks[0]:
            marks.pop(0)
            answers = ask_all(network, ("a-1", "b-1", "c-1"), 5.0)
            found = {answer.status["timing"]["hold_ns"] for answer in answers if answer.ok}
            assert all(answer.status["timing"]["auto"] for answer in answers if answer.ok)
            in_force.append(max(found))
        run.interrupted = not marks
    log = (tmp_path / "data" / "a-1.log").read_text(encoding="utf-8")
    chosen = [line for line in log.splitlines() if "hold-chosen" in line]
    with capsys.disabled():
        print("", *chosen, f"hold time in ms: {[ns / MS for ns in in_force]}", sep="\n", flush=True)
    begin, slow, fast = in_force
    assert begin < slow
    assert fast < slow
    assert any(" slots late in 5 s: " in line for line in chosen)
    assert any("no receiver needed more than " in line for line in chosen)
    assert not run.problems
    verdict = judge(tmp_path / "data", ["a-1", "b-1", "c-1"])
    check_floors(cluster, network.stripe().name, verdict)
    assert verdict.problems == []
    check_release_times(tmp_path / "data", ["a-1", "b-1", "c-1"])

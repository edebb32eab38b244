"""The results that `levelcast up` prints."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from levelcast.cli.live.up import _EventPrinter, print_results
from levelcast.network import parse_network
from levelcast.node.cluster import Cluster
from levelcast.node.options import NodeOptions
from levelcast.node.verdict import ClusterVerdict
from levelcast.protocol.events import FaultReceived, NodeStop, UnlistedSource
from levelcast.runtime.cpu_contention import CpuContention
from levelcast.wire.messages import FaultReason
from tests.test_network import SMALL


@pytest.mark.parametrize(("stolen", "printed"), [(0.31, True), (0.01, False)])
def test_stolen_cpu_time_is_printed_when_it_matters(stolen: float, printed: bool, tmp_path: Path) -> None:
    cluster = Cluster(parse_network(SMALL, "n.toml"), tmp_path / "n.toml", tmp_path, NodeOptions())
    text = io.StringIO()
    verdicts = {"main": ClusterVerdict(problems=["b-1: no tape"])}
    print_results(Console(file=text), cluster, verdicts, CpuContention(20.0, stolen, 0.2))
    assert "b-1: no tape" in text.getvalue()
    line = "The machine lost 31 % of its CPU time to the hypervisor during this run, which delays releases."
    assert (line in text.getvalue()) is printed


def test_events_have_names_and_the_last_ones_are_printed_at_the_end(tmp_path: Path) -> None:
    network = parse_network(SMALL, "n.toml")
    cluster = Cluster(network, tmp_path / "n.toml", tmp_path, NodeOptions())
    text = io.StringIO()
    ids = [receiver.id for receiver in network.receivers]
    fault = FaultReceived(0, FaultReason.TOKEN_MISSING, ids[0], ids[1])
    with _EventPrinter(Console(file=text), cluster) as events:
        for _ in range(3):
            cluster.events.append(("r-1", fault))
        events.print_new()
        cluster.events += [("r-1", UnlistedSource(0, 77, ids[0])), ("r-1", NodeStop(0, "SIGTERM"))]
    reporter, suspect = (receiver.name for receiver in network.receivers[:2])
    cause = f"starts a reformation: {reporter} reported a missing token of {suspect}"
    lines = [line.split(" s  ", 1)[1] for line in text.getvalue().splitlines()]
    assert lines[0] == f"r-1 {cause}"
    assert lines[1].endswith("add its [[floor]]")
    assert lines[2:] == [f"r-1 repeated 2 times in 1 s: {cause}", "r-1 stop: SIGTERM"]

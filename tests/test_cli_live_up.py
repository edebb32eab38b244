"""The results that `levelcast up` prints."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from levelcast.cli.live.up import print_results
from levelcast.network import parse_network
from levelcast.node.cluster import Cluster
from levelcast.node.options import NodeOptions
from levelcast.node.verdict import ClusterVerdict
from levelcast.runtime.cpu_contention import CpuContention
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

"""Running nodes measure the paths between them from their beats, without probes (TT §2)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from levelcast.network import FiveCities, five_cities, load_network
from levelcast.node.cluster import Cluster, ClusterRun
from levelcast.node.options import NodeOptions
from tests.network_parts import TWO_FLOORS, free_ports, three_rooms

MS = 1_000_000


def ask(file: Path, *more: str) -> str:
    command = [sys.executable, "-m", "levelcast", "network", "--network", str(file), *more]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert found.returncode == 0, found.stderr
    return found.stdout


def run_for(file: Path, data: Path, seconds: float, *asked: tuple[str, ...]) -> list[str]:
    """Run the nodes of a file with the delay and loss of its links; return what `levelcast network` prints then."""
    network = load_network(file)
    cluster = Cluster(network, file, data, NodeOptions(rate=200, run_ns=int(3600e9), impair=True))
    run = ClusterRun(cluster, 3600.0, 60.0)
    began: float | None = None
    printed: list[str] = []
    for _ in run.steps():
        if began is None and all(each.status.get("state") == "ACTIVE" for each in cluster.releasing):
            began = cluster.elapsed_s
        if began is not None and cluster.elapsed_s - began > seconds and not printed:
            printed = [ask(file, *options) for options in asked]
            run.interrupted = True
    return printed


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_command_shows_what_the_nodes_measure_and_writes_a_file_to_include(tmp_path: Path) -> None:
    file, measured = tmp_path / "network.toml", tmp_path / "measured.toml"
    text = three_rooms(TWO_FLOORS) + f"[status]\nport = {free_ports()}\n"
    file.write_text(text, encoding="utf-8")
    table, pairs, found = run_for(
        file, tmp_path / "data", 5.0, ("-o", str(measured)), ("--pairs",), ("--json", "-o", str(measured), "--force")
    )
    assert "Wrote" in table
    for name in ("a-1", "b-1", "c-1"):
        assert name in table
        assert name in pairs
    paths: list[dict[str, Any]] = json.loads(found)["paths"]
    directions = {(each["from"], each["to"]) for each in paths}
    assert directions == {(a, b) for a in ("a-1", "b-1", "c-1") for b in ("a-1", "b-1", "c-1") if a != b}
    links = load_network(file).links
    assert links is not None
    for each in paths:
        link = links.pairs.get((min(each["from_site"], each["to_site"]), max(each["from_site"], each["to_site"])))
        link = link or links.default
        assert link is not None
        assert each["least_ns"] >= link.delay_ns
    file.write_text('include = ["measured.toml"]\n' + text[text.index("[network]") :], encoding="utf-8")
    assert load_network(file).included


@pytest.mark.campaign
@pytest.mark.timeout(600)
def test_a_minute_of_beats_measures_delay_and_loss_of_five_cities(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "network.toml"
    file.write_text(five_cities(FiveCities(network_id=os.getpid())), encoding="utf-8")
    table, found = run_for(file, tmp_path / "data", 60.0, ("--pairs",), ("--json",))
    network = load_network(file)
    good = 0
    for each in json.loads(found)["paths"]:
        link = network.link(each["from_site"], each["to_site"])
        median_ns = link.delay_ns + link.jitter_ns // 2
        low, high = each["loss_limits"]
        good += abs(each["p50_ns"] - median_ns) <= MS and low <= link.loss_ratio <= high
    with capsys.disabled():
        print(f"\n{table}\n{good} of 20 directions: median within 1 ms, loss inside its 95 % interval", flush=True)
    assert good >= 18

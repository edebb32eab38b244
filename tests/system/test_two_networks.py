"""Two networks on one multicast group: each ignores the other, and a second start of one file is refused."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from levelcast.network import load_network
from levelcast.node.cluster import Cluster, ClusterRun, Kill
from levelcast.node.options import NodeOptions
from levelcast.node.status_client import ask_all
from levelcast.node.verdict import check_floors, judge
from levelcast.records import RTYPE_TRADE
from levelcast.storage.tape.directory import tape_directory
from levelcast.storage.tape.reader import TapeReader
from tests.network_parts import TWO_FLOORS, three_rooms
from tests.system.processes import LIMIT_S, levelcast, write_network

RECEIVERS = ("a-1", "b-1", "c-1")
ENDED = object()
VARIANTS = ("same ids", "different ids", "one restarts")


def two_files(folder: Path, variant: str) -> list[Path]:
    """Two network files with one core group; the floors of the second have other publishers."""
    text = three_rooms(TWO_FLOORS)
    other = text.replace('"three rooms"', '"three other rooms"').replace("publisher = ", "publisher = 7")
    if variant == "different ids":
        other = other.replace("\nid = ", "\nid = 1")
    files = []
    for name, content in (("one", text), ("two", other)):
        files.append(folder / f"{name}.toml")
        files[-1].write_text(content, encoding="utf-8")
    return files


def run_both(folder: Path, variant: str, run_s: float) -> None:
    runs = []
    for file in two_files(folder, variant):
        options = NodeOptions(rate=1000, run_ns=int(run_s * 1e9), impair=True)
        cluster = Cluster(load_network(file), file, folder / file.stem, options)
        kills = [Kill("b-1", run_s / 3, run_s / 2)] if variant == "one restarts" and file.stem == "two" else []
        runs.append(ClusterRun(cluster, run_s, 30.0, kills))
    foreign: dict[str, int] = {}
    steps = [run.steps() for run in runs]
    while steps:
        for each in list(steps):
            if next(each, ENDED) is ENDED:
                steps.remove(each)
        for run in runs:
            for name, member in run.cluster.members.items():
                found = member.status.get("malformed", {}).get("wrong network", 0)
                key = f"{run.cluster.data.name}/{name}"
                foreign[key] = max(found, foreign.get(key, 0))
    for run, publishers in zip(runs, ({1, 2}, {71, 72}), strict=True):
        verdict = judge(run.cluster.data, RECEIVERS, run.problems)
        cluster, network = run.cluster, run.cluster.network
        check_floors(cluster, network.stripes[0].name, verdict)
        assert verdict.identical, verdict.problems
        cluster.network = replace(network, floors=network.floors[:1])
        check_floors(cluster, network.stripes[0].name, verdict)
        assert len(verdict.problems) == 1
        assert f"of publisher {max(publishers)}, which the network file lacks" in verdict.problems[0]
        assert publishers_of(run.cluster.data / "a-1") == publishers
        assert all(foreign[f"{run.cluster.data.name}/{name}"] > 0 for name in RECEIVERS), foreign


def publishers_of(directory: Path) -> set[int]:
    """Publishers of the trades on a tape."""
    return {
        publisher
        for frame in TapeReader(tape_directory(directory)).frames()
        for batch in frame.batches()
        if batch.kind.rtype == RTYPE_TRADE
        for publisher in batch.records["publisher_id"].tolist()
    }


def test_two_networks_with_the_same_ids_share_a_group(tmp_path: Path) -> None:
    run_both(tmp_path, "same ids", 3.0)


@pytest.mark.campaign
@pytest.mark.parametrize("variant", VARIANTS)
def test_two_networks_share_a_group_for_a_minute(variant: str, tmp_path: Path) -> None:
    run_both(tmp_path, variant, 60.0)


def test_a_second_start_of_one_file_is_refused_and_does_not_disturb_the_first(tmp_path: Path) -> None:
    file = write_network(tmp_path / "network.toml")
    command = [sys.executable, "-m", "levelcast", "up", "--network", str(file), "--data", str(tmp_path / "first")]
    with subprocess.Popen([*command, "--rate", "200"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as first:
        try:
            deadline = time.monotonic() + LIMIT_S
            while levelcast("status", "--network", file, "--json").returncode:
                assert time.monotonic() < deadline
                time.sleep(0.2)
            rings = [node["rings_entered"] for node in statuses(file)]
            second = tmp_path / "second"
            for name in (*RECEIVERS, "reform-a", "XNYS"):
                node = levelcast("node", "--network", file, "--name", name, "--data", second, "--init", "--for", "1s")
                assert node.returncode == 2
                assert node.stderr.startswith(f"levelcast: {name} is already running on this machine, as process ")
            assert not list(second.rglob("tape"))
            done = levelcast("up", "--network", file, "--data", second, "--for", "1s")
            assert done.returncode == 2
            assert "is already running on this machine" in done.stderr
            assert not list(second.rglob("tape"))
            assert [node["rings_entered"] for node in statuses(file)] == rings
        finally:
            first.send_signal(signal.SIGINT)
            output = first.communicate(timeout=LIMIT_S)[0].decode()
    assert first.returncode == 0, output


def statuses(file: Path) -> list[dict[str, int]]:
    return [each.status for each in ask_all(load_network(file), RECEIVERS, 5.0) if each.ok]

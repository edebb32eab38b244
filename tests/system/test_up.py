"""A whole network as real processes over loopback multicast: the tapes are identical, whoever is killed.

Nothing here depends on how fast the machine is: only what is on the tapes counts.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import SystemRandom
from typing import Any

import numpy as np
import pytest

from levelcast.market.synthetic import MOST_RECORDS
from levelcast.network import Network, load_network
from levelcast.node.cluster import FIRST_RESTART_S, Cluster, ClusterRun, Kill
from levelcast.node.options import NodeOptions
from levelcast.node.verdict import check_floors, judge
from levelcast.protocol.events import NodeDied
from levelcast.storage.tape.directory import tape_directory
from levelcast.storage.tape.reader import TapeReader
from tests.network_parts import TWO_FLOORS, three_rooms

RECEIVERS = ("a-1", "b-1", "c-1")
FLOORS = {"XNYS": 1, "XLON": 2}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "network.toml"
    path.write_text(three_rooms(TWO_FLOORS), encoding="utf-8")
    return path


@pytest.fixture
def network(file: Path) -> Network:
    return load_network(file)


def batches_of(directory: Path, kind: str) -> Iterator[np.ndarray]:
    for frame in TapeReader(tape_directory(directory)).frames():
        for batch in frame.batches():
            if batch.kind.name == kind:
                yield batch.records


def perform(file: Path, network: Network, data: Path, kills: list[Kill]) -> Cluster:
    """Five seconds at 1,000 records a second; then everything ends in order."""
    cluster = Cluster(network, file, data, NodeOptions(rate=1000, run_ns=5_000_000_000, impair=True))
    run = ClusterRun(cluster, 5.0, 15.0, kills)
    for _ in run.steps():
        pass
    verdict = judge(data, RECEIVERS, run.problems)
    check_floors(cluster, network.stripes[0].name, verdict)
    assert verdict.problems == []
    assert verdict.latency_ns is not None
    assert network.timing().hold_ns < verdict.latency_ns[0] <= verdict.latency_ns[2]
    assert len({each.chain for each in verdict.receivers}) == 1
    assert not any(member.running for member in cluster.members.values())
    return cluster


def check_trades(cluster: Cluster, data: Path) -> None:
    """Everything that a floor published and saw witnessed is on every tape, once and in its order."""
    said = {name: cluster.members[name].status for name in FLOORS}
    assert all(status["final"] and status["packets_unwitnessed"] == 0 for status in said.values())
    for name in RECEIVERS:
        records = np.concatenate(list(batches_of(data / name, "trade")))
        definitions = np.concatenate(list(batches_of(data / name, "instrument")))
        assert sorted(definitions["raw_symbol"]) == sorted(floor.encode() for floor in FLOORS)
        assert set(records["instrument_id"]) == set(definitions["instrument_id"])
        assert np.all(np.diff(records["sequence"].astype(np.int64)) >= 1)
        assert records["sequence"][-1] == len(records) + len(definitions)  # nothing else is there
        for floor, publisher in FLOORS.items():
            ids = records["trade_id"][records["publisher_id"] == publisher]
            assert said[floor]["published"] > MOST_RECORDS
            assert np.array_equal(ids, np.arange(1, said[floor]["published"] + 1))


def test_with_loss_all_tapes_are_identical_and_complete(file: Path, network: Network, tmp_path: Path) -> None:
    cluster = perform(file, network, tmp_path / "data", [])
    check_trades(cluster, tmp_path / "data")
    assert all(cluster.members[name].status["lost_on_purpose"] > 0 for name in RECEIVERS)


def test_a_receiver_that_is_killed_goes_on_where_it_was(file: Path, network: Network, tmp_path: Path) -> None:
    at_s = 2.5 + SystemRandom().random()
    cluster = perform(file, network, tmp_path / "data", [Kill("b-1", at_s, at_s + 0.7)])
    assert cluster.members["b-1"].kills == 1
    check_trades(cluster, tmp_path / "data")


def test_up_restarts_a_node_that_died_and_leaves_one_that_was_stopped(
    file: Path, network: Network, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    cluster = Cluster(network, file, data, NodeOptions(500, 12_000_000_000, impair=False))
    run = ClusterRun(cluster, 12.0, 60.0)
    stage, events = 0, []
    for _ in run.steps():
        events += [(name, event) for name, event in cluster.events]
        cluster.events.clear()
        victim, server = cluster.members["b-1"], cluster.members["reform-b"]
        assert victim.process is not None
        assert server.process is not None
        if stage == 0 and victim.status.get("state") == "ACTIVE":
            os.kill(victim.process.pid, signal.SIGKILL)
            os.kill(server.process.pid, signal.SIGTERM)
            stage = 1
        elif stage == 1 and victim.deaths == 1 and victim.status.get("state") == "ACTIVE":
            stage = 2
    assert stage == 2
    assert (cluster.members["b-1"].deaths, cluster.members["reform-b"].deaths) == (1, 0)
    (died,) = [event for name, event in events if isinstance(event, NodeDied)]
    assert died == NodeDied(0, "killed by SIGKILL", FIRST_RESTART_S)
    assert judge(data, RECEIVERS, run.problems).problems == []


def start(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "levelcast", "node", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_node_ends_cleanly_on_sigterm_and_says_what_it_did(file: Path, tmp_path: Path) -> None:
    node = start("--network", file, "--name", "a-1", "--data", tmp_path, "--init", "--json")
    assert node.stdout is not None
    first: dict[str, Any] = json.loads(node.stdout.readline())
    os.kill(node.pid, signal.SIGTERM)
    output, complaints = node.communicate(timeout=20)
    assert (node.returncode, complaints) == (0, "")
    last = json.loads(output.splitlines()[-1])
    assert last["final"] is True
    assert last["state"] == "NEW"
    assert {"name": "a-1", "role": "receiver"}.items() <= last.items()
    assert first


def test_a_node_whose_listener_has_gone_ends_by_itself(file: Path, tmp_path: Path) -> None:
    node = start("--network", file, "--name", "reform-a", "--data", tmp_path, "--init", "--json")
    assert node.stdout is not None
    assert node.stderr is not None
    node.stdout.readline()
    node.stdout.close()
    deadline = time.monotonic() + 20
    while node.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    complaints = node.stderr.read()
    node.stderr.close()
    assert (node.returncode, complaints) == (0, "")


@pytest.mark.parametrize(
    ("name", "says"),
    [("nobody", 'node "nobody" not found in the network'), ("a-1", "files but no journal found")],
)
def test_what_a_person_can_mend_is_one_sentence(name: str, says: str, file: Path, tmp_path: Path) -> None:
    used = tmp_path / "a-1" / "tape" / "something"
    used.parent.mkdir(parents=True)
    used.write_bytes(b"this directory was used, and its journal is gone")
    node = start("--network", file, "--name", name, "--data", tmp_path)
    output, complaints = node.communicate(timeout=20)
    assert (node.returncode, output, complaints.count("\n")) == (2, "", 1)
    assert says in complaints

"""A network without multicast as real processes: the tapes are identical, whoever is killed, and commands reach it.

Nothing here depends on how fast the machine is: only what is on the tapes counts.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import levelcast
from levelcast.client.source_loop import SourceLoop
from levelcast.network import Network, load_network
from levelcast.network.packet_routes import packet_routes
from levelcast.node.cluster import Cluster, ClusterRun, Kill
from levelcast.node.options import NodeOptions
from levelcast.node.verdict import check_floors, judge
from levelcast.runtime.core_sockets import free_loopback_port
from tests.network_parts import TWO_FLOORS, free_ports, three_rooms
from tests.test_client_publisher import some

MORE_AT_A = "".join(f'[[receiver]]\nname = "a-{n}"\nid = 11{n}\nsite = "a"\n' for n in (2, 3))
FLOORS = TWO_FLOORS.replace("site =", 'symbols = ["IBM"]\nsite =')
RUN_S = 5.0


def write(directory: Path, transport: str, more: str = "") -> Path:
    path = directory / "network.toml"
    text = three_rooms(FLOORS + more)
    text = re.sub(r"(?m)^port = .*", f'port = {free_ports(48)}\ntransport = "{transport}"', text)
    path.write_text(f"{text}\n[status]\nport = {free_ports(16)}\n", encoding="utf-8")
    return path


def perform(file: Path, data: Path, kills: list[Kill]) -> Cluster:
    """Five seconds at 1,000 records/s with loss; then everything ends in order, and the tapes are compared."""
    network = load_network(file)
    options = NodeOptions(rate=1000, run_ns=int(RUN_S * 1e9), impair=True)
    cluster = Cluster(network, file, data, options, loopback_port=free_loopback_port(network))
    run = ClusterRun(cluster, RUN_S, 20.0, kills)
    for _ in run.steps():
        pass
    verdict = judge(data, [member.place.part for member in cluster.releasing], run.problems)
    check_floors(cluster, network.stripes[0].name, verdict)
    assert verdict.problems == []
    assert verdict.latency_ns is not None
    assert len({each.chain for each in verdict.receivers}) == 1
    statuses = [member.status for member in cluster.members.values()]
    assert all(status["unknown_peer"] == status["unknown_address"] == 0 for status in statuses)
    assert sum(status["lost_on_purpose"] for status in statuses) > 0
    return cluster


@pytest.mark.parametrize("transport", ["unicast", "sites"])
def test_the_tapes_are_identical_and_complete(transport: str, tmp_path: Path) -> None:
    perform(write(tmp_path, transport, MORE_AT_A), tmp_path / "data", [])


def test_packets_take_trees_within_uplinks(tmp_path: Path) -> None:
    file = write(tmp_path, "unicast", MORE_AT_A)
    text = file.read_text(encoding="utf-8").replace('transport = "unicast"', 'transport = "unicast"\nrate = "1MB"')
    for name, copies in {"XNYS": 1, "XLON": 1, "a-1": 4, "b-1": 4, "c-1": 1}.items():
        text = text.replace(f'name = "{name}"\n', f'name = "{name}"\nuplink = "{8 * copies}Mbit"\n')
    file.write_text(text, encoding="utf-8")
    network = load_network(file)
    trees = packet_routes(network)
    assert all(len(tree.children()[floor]) == 1 for floor, tree in trees.items())
    perform(file, tmp_path / "data", [])


@pytest.mark.parametrize(("transport", "victim"), [("unicast", "b-1"), ("sites", "a-1")])
def test_a_coordinator_and_a_forwarder_may_be_killed(transport: str, victim: str, tmp_path: Path) -> None:
    file = write(tmp_path, transport, MORE_AT_A)
    cluster = perform(file, tmp_path / "data", [Kill(victim, 2.5, 3.5)])
    assert cluster.members[victim].kills == 1


def test_publishers_and_operators_reach_a_network_without_multicast(tmp_path: Path) -> None:
    file, data = write(tmp_path, "unicast"), tmp_path / "data"
    network = load_network(file)
    cluster = Cluster(network, file, data, NodeOptions(impair=False), floors=False, loopback_port=network.core.port)
    run = ClusterRun(cluster, 3600.0, 20.0)
    steps = run.steps()
    while not all(each.status.get("state") == "ACTIVE" for each in cluster.releasing):
        next(steps)
    loop = SourceLoop(network)
    with (
        levelcast.Publisher(network, "XNYS", loop=loop) as floor,
        levelcast.Publisher(network, "XLON", loop=loop) as other,
    ):
        floor.publish(some(network, 500))
        other.publish(some(network, 300, "XLON"))
        assert floor.flush(20.0)
        assert other.flush(20.0)
    loop.close()
    command = [sys.executable, "-m", "levelcast", "timing", "--network", str(file), "--apply", "--hold", "300ms"]
    applied = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    while applied.poll() is None:
        next(steps)
    printed, _ = applied.communicate()
    assert applied.returncode == 0, printed
    assert "200 ms -> 300 ms" in printed
    run.interrupted = True
    for _ in steps:
        pass
    verdict = judge(data, ["a-1", "b-1", "c-1"], run.problems)
    assert verdict.problems == []
    assert [each.records for each in verdict.receivers] == [803] * 3  # two definitions, and the timing record


def levelcast_command(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "levelcast", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_transport_that_the_kernel_refuses_is_one_sentence(tmp_path: Path) -> None:
    file, data = write(tmp_path, "unicast"), tmp_path / "data"
    text = re.sub(r'(?m)^(name = "(?:[abc]-1|reform-.|X...)")$', r'\1\nhost = "192.0.2.HERE"', file.read_text())
    for place in range(1, 8):
        text = text.replace("HERE", str(place), 1)
    file.write_text(text, encoding="utf-8")
    refused = levelcast_command("node", "--network", file, "--name", "a-1", "--data", data, "--init")
    assert refused.returncode == 2 or refused.returncode == 1
    assert refused.stderr.strip().endswith(
        "address not found on this machine; set `bind` of the node to one of `ip -4 address`"
    )
    assert len(refused.stderr.strip().splitlines()) == 1
    operator = levelcast_command("timing", "--network", file, "--apply", "--hold", "300ms")
    assert operator.returncode != 0
    assert os.linesep not in operator.stderr.strip()


EDGES = """
[edge]
unicast = 20
[[edge.group]]
name = "west-a"
address = "239.193.GROUP.1"
port = PORT
region = "west"
line = "a"
[[edge.group]]
name = "west-b"
address = "239.193.GROUP.2"
port = PORT
region = "west"
line = "b"
"""


async def follow(network: Network, steps: Iterator[None]) -> list[int]:
    """Receive while the network trades; return the trade ids of one floor in their order."""
    ids: list[int] = []
    async with levelcast.Subscriber(network, "west", transport="unicast") as tape:
        reading = asyncio.create_task(read(tape, ids))
        while not reading.done():
            if next(steps, reading) is reading:
                break
            await asyncio.sleep(0)
        await asyncio.sleep(0.5)
        reading.cancel()
    return ids


async def read(tape: levelcast.Subscriber, ids: list[int]) -> None:
    async for batch in tape:
        if batch.kind.name == "trade":
            ids += batch.records["trade_id"][batch.records["publisher_id"] == 1].tolist()


def test_a_subscriber_without_multicast_receives_everything_although_its_edge_is_killed(tmp_path: Path) -> None:
    file, data = write(tmp_path, "unicast"), tmp_path / "data"
    edges = EDGES.replace("GROUP", str(file.stat().st_ino % 250)).replace("PORT", str(free_ports()))
    file.write_text(file.read_text(encoding="utf-8") + edges, encoding="utf-8")
    network = load_network(file)
    options = NodeOptions(rate=400, run_ns=int(RUN_S * 1e9), impair=False)
    cluster = Cluster(network, file, data, options, loopback_port=network.core.port)
    run = ClusterRun(cluster, RUN_S, 20.0, [Kill("a-1", 2.5, 3.5)])
    ids = asyncio.run(follow(network, run.steps()))
    verdict = judge(data, ["a-1", "b-1", "c-1"], run.problems)
    assert verdict.problems == []
    published = cluster.members["XNYS"].status["published"]
    assert ids == list(range(ids[0], published + 1))
    assert ids[0] < published
    served = [member.status["edge"]["unicast"] for member in cluster.releasing if member.place.site != "c"]
    assert sum(each["sent"] for each in served) > 0
    assert len({each["address"] for each in served[1]["registered"]}) == 2


def test_a_subscriber_needs_an_edge_that_accepts_registrations(tmp_path: Path) -> None:
    file = write(tmp_path, "unicast")
    edges = EDGES.replace("unicast = 20\n", "").replace("GROUP", "1").replace("PORT", "9000")
    file.write_text(file.read_text(encoding="utf-8") + edges, encoding="utf-8")
    refused = levelcast_command("watch", "--network", file, "--region", "west", "--unicast")
    assert refused.returncode == 2
    assert "has no `unicast` in [edge], so edges accept no registrations; add it" in refused.stderr

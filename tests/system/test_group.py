"""`levelcast group` as processes over UDP: every message at every receiver, and known to be."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from levelcast.network import FiveCities, five_cities, load_network
from levelcast.node.group_run import GroupRun, GroupRunOptions
from tests.network_parts import free_ports, three_rooms
from tests.system.processes import levelcast

NAMES = ("a-1", "b-1", "c-1")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "network.toml"
    path.write_text(three_rooms("").replace("loss = 0.01", "loss = 0.05"), encoding="utf-8")
    return path


@pytest.mark.parametrize("protocol", ["MR", "N"])
def test_a_process_for_each_receiver_of_five_cities(protocol: str, tmp_path: Path) -> None:
    path = tmp_path / "network.toml"
    path.write_text(five_cities(FiveCities(nearer=4.0, loss_ratio=0.1)), encoding="utf-8")
    port = str(free_ports(5))
    run = ("group", path, "--protocol", protocol, "--messages", "30", "--every", "50ms", "--port", port, "--json")
    done = levelcast(*run)
    assert (done.returncode, done.stderr) == (0, ""), done
    found = json.loads(done.stdout)
    assert found["received"] is True
    assert found["figures"]["messages"] == 30
    assert found["figures"]["data"] > (2 if protocol == "MR" else 1)  # 10 % loss and 1 % allowed: two copies
    assert 5 < found["figures"]["delivered_mean_ms"] <= found["figures"]["last_mean_ms"]
    assert [each["sent"] for each in found["receivers"]] == [6] * 5
    assert [each["delivered"] for each in found["receivers"]] == [24] * 5
    assert [each["known"] for each in found["receivers"]] == [30] * 5
    assert all(each["dropped"] == {} for each in found["receivers"])


def test_receivers_that_are_started_alone(file: Path) -> None:
    port = str(free_ports(3))

    def alone(name: str) -> subprocess.CompletedProcess[str]:
        run = ("--protocol", "D", "--messages", "12", "--every", "20ms", "--port", port, "--impair", "--name", name)
        return levelcast("group", "--network", file, *run)

    with ThreadPoolExecutor(3) as pool:
        results = dict(zip(NAMES, pool.map(alone, NAMES), strict=True))
    for name, done in results.items():
        assert (done.returncode, done.stderr) == (0, ""), done
        assert f"{name} waits for 2 other receivers." in done.stdout
        assert re.search(rf"{name} +4 +8 +12 ", done.stdout)


def test_a_receiver_that_waits_in_vain(file: Path) -> None:
    port = str(free_ports(3))
    done = levelcast("group", file, "--protocol", "D", "--port", port, "--name", "b-1", "--start", "500ms")
    assert done.returncode == 2
    assert done.stderr == (
        "levelcast: b-1: no message from a-1, c-1 within 0.5 s; start all receivers of the group, and check host, port "
        "and firewall\n"
    )


def test_a_port_in_use(file: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as somebody:
        somebody.bind(("127.0.0.1", 0))
        port = somebody.getsockname()[1]
        done = levelcast("group", file, "--protocol", "M", "--port", str(port - 1), "--messages", "3")
    assert done.returncode == 1
    assert f"cannot listen on 127.0.0.1 port {port}: port already in use; stop the other program" in done.stdout


def test_a_process_that_is_killed_ends_the_run(file: Path) -> None:
    run = GroupRun(load_network(file), GroupRunOptions("M", None, 10_000, 0.01, port=free_ports(3)))
    steps = run.steps()
    while not all(counts.delivered for counts in run.counts.values()):
        next(steps)
    os.kill(run.pids["b-1"], signal.SIGKILL)
    for _ in steps:
        pass
    assert not run.all_received
    assert run.problems[0] == "b-1 ended by itself, with exit code -9"
    assert sorted(run.reports) == ["a-1", "c-1"]
    assert any(each.startswith("a-1 did not deliver ") for each in run.problems)


PROGRAM = """
import asyncio, sys
import levelcast

async def main() -> None:
    path, name, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
    async with levelcast.Group(path, name, protocol="MR", port=port) as group:
        await group.send(name.encode())
        heard = {(await group.receive()).source for _ in range(2)}
        print(sorted(heard))

asyncio.run(main())
"""


def test_programs_of_a_group(file: Path) -> None:
    port = str(free_ports(3))
    command = [sys.executable, "-c", PROGRAM, str(file)]
    programs = [
        subprocess.Popen([*command, name, port], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for name in NAMES
    ]
    for name, program in zip(NAMES, programs, strict=True):
        out, error = program.communicate(timeout=60)
        assert (program.returncode, error) == (0, "")
        assert out == f"{sorted(set(NAMES) - {name})}\n"

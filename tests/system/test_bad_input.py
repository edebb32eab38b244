"""What a machine can do to a node: each is one sentence and an exit code, and nothing that was promised is lost."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from levelcast.network import load_network
from levelcast.node.verdict import judge
from levelcast.runtime.sockets import RECEIVE_BUFFER
from tests.system.processes import in_ring, levelcast, nodes_of, write_network


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_network(tmp_path / "network.toml")


def sentence_of(done: subprocess.CompletedProcess[str]) -> str:
    """The one sentence on stderr of a command that was refused."""
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done
    return done.stderr


def test_a_status_port_in_use(file: Path, tmp_path: Path) -> None:
    address = load_network(file).status_address("a-1")
    assert address is not None
    with socket.create_server(address):
        run = ("node", "--network", file, "--name", "a-1", "--data", tmp_path, "--init")
        assert f"port {address[1]}: port already in use" in sentence_of(levelcast(*run))
        elsewhere = levelcast(*run, "--status-port", "0", "--for", "100ms")
        assert (elsewhere.returncode, elsewhere.stderr.count("cannot")) == (0, 0)


def test_a_network_says_which_node_could_not_have_its_port(file: Path, tmp_path: Path) -> None:
    address = load_network(file).status_address("b-1")
    assert address is not None
    with socket.create_server(address):
        done = levelcast("up", "--network", file, "--data", tmp_path / "data", "--for", "1s")
    assert done.returncode == 2
    assert f"levelcast: b-1 has exited: cannot serve status at 127.0.0.1 port {address[1]}" in done.stderr


def test_a_core_port_that_somebody_has_to_himself(file: Path, tmp_path: Path) -> None:
    group = load_network(file).core_group()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as somebody:
        somebody.bind((group.address, group.port))
        done = levelcast("node", "--network", file, "--name", "a-1", "--data", tmp_path, "--init")
    assert "port already in use" in sentence_of(done)


def test_a_directory_that_has_vanished(file: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert levelcast("disk", "init", "--network", file, "--all", "--data", data).returncode == 0
    shutil.rmtree(data / "a-1")
    assert "its journal is missing" in sentence_of(levelcast("up", "--network", file, "--data", data, "--for", "1s"))


def test_an_interface_that_is_not_there(file: Path, tmp_path: Path) -> None:
    run = ("node", "--network", file, "--name", "a-1", "--data", tmp_path, "--init")
    assert "192.0.2.1" in sentence_of(levelcast(*run, "--interface", "192.0.2.1"))


def test_no_multicast_route(file: Path, tmp_path: Path) -> None:
    """In a network namespace of its own there is a loopback interface, and it is down."""
    alone = ["unshare", "--net", "--map-root-user"]
    if shutil.which("unshare") is None or subprocess.run([*alone, "true"], capture_output=True).returncode:
        pytest.skip("needs a network namespace")
    command = [sys.executable, "-m", "levelcast", "node", "--network", str(file), "--name", "a-1", "--data"]
    done = subprocess.run(
        [*alone, *command, str(tmp_path), "--init", "--for", "2s"],
        capture_output=True,
        text=True,
        timeout=45,
        check=False,
    )
    sentence = sentence_of(done)
    assert "multicast" in sentence
    assert "ip route add 224.0.0.0/4" in sentence


def test_small_receive_buffers_are_told_and_do_not_stop_a_node(file: Path, tmp_path: Path) -> None:
    largest = int(Path("/proc/sys/net/core/rmem_max").read_text())
    run = ("node", "--network", file, "--name", "reform-a", "--data", tmp_path, "--init", "--for", "100ms")
    done = levelcast(*run)
    assert done.returncode == 0
    assert ("sysctl -w net.core.rmem_max=" in done.stderr) == (largest < RECEIVE_BUFFER)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    path = tmp_path / "small"
    path.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(path)], capture_output=True)
    if mounted.returncode:
        pytest.skip("needs the right to mount a file system")
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_full_disk_ends_a_receiver_and_costs_nothing_else(file: Path, small_disk: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with nodes_of(file, tmp_path) as nodes:
        for name in ("a-1", "b-1", "reform-a", "reform-b"):
            nodes.start(name, data, "--init")
        full = nodes.start("c-1", small_disk, "--init")
        nodes.start("XNYS", data, "--init", "--rate", 4000)
        assert full.wait(90) == 2
        nodes.end("XNYS")
        last = nodes.log("c-1").read_text().splitlines()[-1]
        assert last.startswith(f"levelcast: {small_disk / 'c-1'}")
        assert "the disk is full, nothing of this write is in the file" in last
        assert "session" not in last  # what went wrong first is told, not what its closing met

        nodes.wait_for(lambda said: in_ring(said, "a-1", "b-1"))
        subprocess.run(["mount", "-o", "remount,size=200m", str(small_disk)], check=True)
        nodes.start("c-1", small_disk)
        said = nodes.wait_for(lambda said: in_ring(said, "a-1", "b-1", "c-1"))
        nodes.wait_for(lambda now: now["c-1"]["released_slot"] > said["a-1"]["slot"])
        assert [nodes.end(name) for name in ("a-1", "b-1", "c-1")] == [0, 0, 0]
    (data / "c-1").symlink_to(small_disk / "c-1")
    verdict = judge(data, ("a-1", "b-1", "c-1"))
    assert [problem for problem in verdict.problems if "different lengths" not in problem] == []
    assert verdict.receivers[2].records > 0


def test_a_node_that_is_started_twice(file: Path, tmp_path: Path) -> None:
    with nodes_of(file, tmp_path) as nodes:
        nodes.start("reform-a", tmp_path, "--init")
        nodes.wait_for(lambda said: "reform-a" in said)
        done = levelcast("node", "--network", file, "--name", "reform-a", "--data", tmp_path, "--status-port", "0")
        assert "reform-a is already running on this machine, as process" in sentence_of(done)
        assert nodes.end("reform-a", signal.SIGTERM) == 0

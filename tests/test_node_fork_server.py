"""Nodes started by fork are processes like any other: own session, signals, command line and exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from levelcast.errors import NetError
from levelcast.network import FiveCities, five_cities
from levelcast.node.fork_server import ForkedProcess, ForkServer


@pytest.fixture
def server() -> Iterator[ForkServer]:
    server = ForkServer()
    yield server
    server.close()


def start(server: ForkServer, log: Path, *arguments: str) -> ForkedProcess:
    with log.open("a") as file:
        return server.start(list(arguments), file)


def output_of(process: ForkedProcess) -> str:
    assert process.stdout is not None
    with process.stdout:
        return process.stdout.read()


def start_floor(server: ForkServer, folder: Path) -> ForkedProcess:
    """A node that runs until it is told to end."""
    network = folder / "network.toml"
    network.write_text(five_cities(FiveCities(network_id=os.getpid())), encoding="utf-8")
    process = start(
        server, folder / "log", "node", "--network", str(network), "--name", "XTKS", "--data", str(folder / "data"),
        "--init", "--json", "--status-port", "0",
    )  # fmt: skip
    assert process.stdout is not None
    assert '"node": "XTKS", "event": "start"' in process.stdout.readline()
    return process


def test_output_errors_and_exit_codes_are_the_node_s(server: ForkServer, tmp_path: Path) -> None:
    log = tmp_path / "log"
    well, wrong = start(server, log, "--version"), start(server, log, "timing", "--network", "no such file")
    assert output_of(well).startswith("levelcast ")
    assert output_of(wrong) == ""
    assert (well.wait(30), wrong.wait(30)) == (0, 2)
    assert log.read_text().startswith("levelcast: no such file: network file not found; ")


def test_a_node_has_its_own_session_and_command_line_and_ends_in_order(server: ForkServer, tmp_path: Path) -> None:
    process = start_floor(server, tmp_path)
    assert os.getsid(process.pid) == process.pid
    assert "-m\0levelcast\0node\0--network" in Path(f"/proc/{process.pid}/cmdline").read_text()
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    assert '"final": true' in output_of(process)


def test_kill_9_ends_one_node_alone(server: ForkServer, tmp_path: Path) -> None:
    process = start_floor(server, tmp_path)
    process.kill()
    assert process.wait(30) == -signal.SIGKILL
    process.kill()  # of a process that has ended: nothing
    again = start(server, tmp_path / "log", "--version")
    assert (output_of(again)[:9], again.wait(30)) == ("levelcast", 0)


def test_a_node_ends_when_its_cluster_has_gone(tmp_path: Path) -> None:
    server = ForkServer()
    process = start_floor(server, tmp_path)
    assert process.stdout is not None
    process.stdout.close()  # as the kernel does for a cluster that was killed
    server.close()
    for _ in range(600):
        if not Path(f"/proc/{process.pid}").exists():
            return
        time.sleep(0.05)
    pytest.fail("the node still runs")


def test_a_server_that_nothing_needs_is_killed_and_may_be_closed_twice() -> None:
    with ForkServer() as server:
        server.close()
    assert server._server.returncode == -signal.SIGKILL


def test_a_node_imports_no_more_to_read_its_options_than_the_server_has() -> None:
    program = (
        "import sys\n"
        "from levelcast.cli.live.fork_server import EXAMPLE, load_command\n"
        "load_command('node').make_context('node', list(EXAMPLE))\n"
        "before = set(sys.modules)\n"
        "words = '--network n --name XNYS --data d --json --seed 2 --impair --rate 9.5 --for 12s'.split()\n"
        "load_command('node').make_context('node', words)\n"
        "print(sorted(set(sys.modules) - before))"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def test_a_server_that_has_died_is_told(tmp_path: Path) -> None:
    server = ForkServer()
    process = start_floor(server, tmp_path)
    server._server.kill()
    assert process.wait(30) == 1  # how it ends is not known
    with pytest.raises(NetError, match="restart the network"):
        start(server, tmp_path / "log", "--version")
    os.kill(process.pid, signal.SIGKILL)
    output_of(process)
    server.close()

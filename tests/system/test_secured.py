"""Running nodes with keys: rotation and revocations without a restart, and a tap that reads nothing early (K10, K17)."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

import levelcast
from levelcast.network import load_network
from levelcast.node.cluster import Cluster
from levelcast.node.options import NodeOptions
from levelcast.node.verdict import judge
from levelcast.records import RecordArray, trades
from levelcast.storage.release_log import read_releases
from tests.network_parts import PATIENT_WIRES, TWO_FLOORS, free_ports, three_rooms
from tests.system.processes import levelcast as command

RECEIVERS = ("a-1", "b-1", "c-1")
MARK = b"tapped!!"
"""In the price of every trade: 8 bytes that are nowhere else."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "network.toml"
    edge = f'\n[[edge.group]]\naddress = "239.192.9.9"\nport = {free_ports()}\nregion = "west"\n'
    text = three_rooms(TWO_FLOORS, wires=PATIENT_WIRES).replace("[network]\n", "[network]\nid = 77\n")
    path.write_text(f"{text}{edge if False else ''}\n[status]\nport = {free_ports()}\n", encoding="utf-8")
    done = command("keys", "init", "--all", "--network", path)
    assert done.returncode == 0, done.stderr
    return path


class Secured:
    """A cluster with keys, and publishers of both floors in this process."""

    def __init__(self, file: Path, data: Path) -> None:
        self.file, self.data = file, data
        self.network = load_network(file)
        self.cluster = Cluster(self.network, file, data, NodeOptions(), floors=False)
        self.members = [self.cluster.members[name] for name in RECEIVERS]
        self.published = 0

    def __enter__(self) -> Secured:
        self.cluster.start_all()
        self.until(lambda: all(member.status.get("state") == "ACTIVE" for member in self.members))
        self.floors = [levelcast.Publisher(self.network, name) for name in ("XNYS", "XLON")]
        return self

    def __exit__(self, *_: object) -> None:
        for floor in self.floors:
            floor.close()
        self.cluster.stop()

    def until(self, condition: Callable[[], bool], limit_s: float = 60.0) -> None:
        ends = time.monotonic() + limit_s
        while not condition():
            self.cluster.check()
            assert time.monotonic() < ends, [member.status for member in self.members]
            time.sleep(0.05)

    def publish(self, number: int = 50, *floors: int) -> None:
        """Publish marked trades as both floors, or as some."""
        for place in floors or (0, 1):
            self.floors[place].publish(marked(number, place + 1))
            self.published += number

    def run_keys(self, *arguments: object) -> str:
        done = command("keys", *arguments, "--network", self.file)
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    def check_all_released(self, *receivers: str) -> None:
        """Every record is on the tapes of these receivers, which are the same."""
        names = receivers or RECEIVERS
        verdict = judge(self.data, names, [])
        assert verdict.problems == []
        assert len({each.chain for each in verdict.receivers}) == 1
        assert {each.records for each in verdict.receivers} == {self.published + 2}, "and a definition of each floor"

    def keys(self) -> list[dict[str, Any]]:
        return [member.status["keys"] for member in self.members if member.running]


def marked(number: int, publisher: int) -> RecordArray:
    made = trades(number)
    made["publisher_id"], made["instrument_id"] = publisher, publisher
    made["price"] = int.from_bytes(MARK, "little")
    return made


class Tap:
    """Reads every packet on the loopback interface, and every file of the nodes, until it is closed."""

    def __init__(self, data: Path) -> None:
        self.seen: list[str] = []
        self.bytes = 0
        self._data = data
        self._stop = Event()
        self._packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self._packets.bind(("lo", 0))
        self._packets.settimeout(0.05)
        self._threads = [Thread(target=self._listen), Thread(target=self._read)]
        for each in self._threads:
            each.start()

    def _listen(self) -> None:
        while not self._stop.is_set():
            try:
                frame = self._packets.recv(70_000)
            except TimeoutError:
                continue
            self.bytes += len(frame)
            if MARK in frame:
                self.seen.append("a datagram")

    def _read(self) -> None:
        while not self._stop.is_set():
            for path in self._data.rglob("*"):
                if path.is_file():
                    content = path.read_bytes()
                    self.bytes += len(content)
                    if MARK in content:
                        self.seen.append(str(path.relative_to(self._data)))
            time.sleep(0.01)

    def close(self) -> list[str]:
        self._stop.set()
        for each in self._threads:
            each.join()
        self._packets.close()
        return self.seen


@pytest.fixture
def secured(file: Path, tmp_path: Path) -> Iterator[Secured]:
    with Secured(file, tmp_path / "data") as running:
        yield running

"""Running nodes with keys: rotation and revocations without a restart; a tap reads nothing early (K10, K17)."""

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
from tests.network_parts import PATIENT_WIRES, TWO_FLOORS, free_ports, three_rooms
from tests.system.processes import levelcast as command

RECEIVERS = ("a-1", "b-1", "c-1")
MARK = b"tapped!!"
"""In the price of every trade: 8 bytes that are nowhere else."""


def write_network(directory: Path, hold: str = "500ms", *, keys: bool = True) -> Path:
    path = directory / "network.toml"
    wires = f'{PATIENT_WIRES}hold = "{hold}"\n'
    path.write_text(f"{three_rooms(TWO_FLOORS, wires=wires)}\n[status]\nport = {free_ports()}\n", encoding="utf-8")
    if keys:
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

    def publish(self, number: int = 50, *floors: int) -> bool:
        """Publish marked trades as both floors, or as some."""
        for place in floors or (0, 1):
            self.floors[place].publish(marked(number, place + 1))
            self.published += number
        return False

    def run_keys(self, *arguments: object) -> str:
        done = command("keys", *arguments, "--network", self.file)
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    def run_keys_check(self) -> str:
        return command("keys", "check", "--network", self.file).stdout

    def finish(self, *floors: int) -> None:
        """Wait until everything that floors have published is released everywhere, and stop."""
        for place in floors or (0, 1):
            assert self.floors[place].flush(30)
        horizon_ns = self.cluster.horizon_ns()
        self.until(lambda: self.cluster.complete_upto(horizon_ns))
        time.sleep(0.3)
        self.cluster.stop()

    def check_all_released(self, *receivers: str) -> None:
        """Every record is on the tapes of these receivers, which are the same."""
        names = receivers or RECEIVERS
        verdict = judge(self.data, names, [])
        assert verdict.problems == []
        assert len({each.chain for each in verdict.receivers}) == 1
        assert {each.records for each in verdict.receivers} == {self.published + 2}, "and a definition of each floor"

    def have_moved(self) -> bool:
        """Return whether both floors seal with the second epoch."""
        return all(floor.keys is not None and floor.keys["source_epoch"] == 2 for floor in self.floors)

    def keys_in_use(self) -> list[dict[str, Any]]:
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
def secured(tmp_path: Path) -> Iterator[Secured]:
    with Secured(write_network(tmp_path), tmp_path / "data") as running:
        yield running


def test_keys_are_rotated_while_everything_runs(secured: Secured) -> None:
    secured.publish()
    assert {(keys["statement"], keys["epoch"], keys["newest_epoch"]) for keys in secured.keys_in_use()} == {(1, 1, 1)}
    secured.run_keys("rotate", "--in", "2s")
    secured.until(lambda: all(keys["epoch_of_all"] == 2 for keys in secured.keys_in_use()))
    assert "5 running nodes use it" in secured.run_keys("check")
    secured.until(lambda: secured.publish() or secured.have_moved())
    secured.until(lambda: secured.publish(1) or all(keys["epoch"] == 2 for keys in secured.keys_in_use()))
    secured.publish()
    secured.finish()
    secured.check_all_released()
    assert all(member.status["late"] == 0 for member in secured.members)
    assert all(member.status["rings_entered"] == 1 for member in secured.members)


def test_packets_of_a_revoked_floor_are_refused_and_others_go_on(secured: Secured) -> None:
    secured.publish()
    for floor in secured.floors:
        assert floor.flush(20)
    secured.run_keys("revoke", "--name", "XNYS")
    secured.until(lambda: {keys["statement"] for keys in secured.keys_in_use()} == {2})
    secured.floors[0].publish(marked(10, 1))
    for _ in range(10):
        secured.publish(10, 1)
        time.sleep(0.1)
    secured.until(lambda: all(member.status["malformed"].get("unknown key") for member in secured.members))
    secured.finish(1)
    secured.check_all_released()
    assert secured.floors[0].unwitnessed, "nothing of the revoked floor is ordered"
    assert all(member.status["late"] == 0 for member in secured.members)


def test_the_ring_forms_again_without_a_revoked_member(secured: Secured) -> None:
    secured.publish()
    secured.run_keys("revoke", "--name", "c-1")
    others = secured.members[:2]
    secured.until(lambda: secured.publish(1) or all(len(member.status["members"]) == 2 for member in others))
    secured.until(lambda: secured.publish(1) or secured.have_moved())
    secured.publish()
    for floor in secured.floors:
        assert floor.flush(30)
    horizon_ns = secured.cluster.horizon_ns()
    secured.until(lambda: all(member.status["complete_upto_ns"] >= horizon_ns for member in others))
    refused = secured.run_keys_check()
    assert "c-1: has been revoked" in refused
    secured.cluster.stop()
    secured.check_all_released("a-1", "b-1")


@pytest.mark.parametrize("keys", [True, False])
def test_a_tap_finds_no_record_before_its_release(tmp_path: Path, *, keys: bool) -> None:
    file = write_network(tmp_path, "4s", keys=keys)
    with Secured(file, tmp_path / "data") as running:
        tap = Tap(tmp_path / "data")
        running.publish()
        for floor in running.floors:
            assert floor.flush(20), "everything is witnessed, and nothing is due"
        time.sleep(0.5)
        early = all(member.status["tape_records"] == 0 for member in running.members)
        seen = tap.close()
        assert early
        assert tap.bytes > 100_000
        assert bool(seen) is not keys, seen
        running.finish()
        running.check_all_released()
    on_tape = [path for path in (tmp_path / "data").rglob("*") if path.is_file() and MARK in path.read_bytes()]
    assert {path.parent.name for path in on_tape} >= {"tape"}

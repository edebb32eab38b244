"""What the tests of the edge over sockets share: a network file, a receiver's edge on its tape, an ear in the group."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

from levelcast.edge.server.machine import EdgeConfig
from levelcast.network import Network, parse_network
from levelcast.node.edge_service import EdgeService
from levelcast.protocol.effects import Release
from levelcast.protocol.history import Frame
from levelcast.storage.tape.stamps import frame_bytes
from levelcast.storage.tape.writer import TapeWriter
from tests.network_parts import free_group, free_port, three_rooms
from tests.tape_parts import FIRST

LOOPBACK = "127.0.0.1"

FLOORS = """
[[floor]]
name = "XNYS"
publisher = 1
site = "a"
symbols = ["IBM", "GE", "KO"]
[[floor]]
name = "XLON"
publisher = 2
site = "b"
symbols = ["VOD"]
"""
GROUPS = """
[[edge.group]]
name = "west"
address = "{west}"
port = {port}
region = "west"

[[edge.group]]
name = "east"
address = "{east}"
port = {port}
region = "east"
"""


def network_text() -> str:
    """A network file with groups and a port that no other test has."""
    west = east = free_group()
    while east == west:
        east = free_group()
    return three_rooms(FLOORS) + GROUPS.format(west=west, east=east, port=free_port())


def some_network() -> Network:
    return parse_network(network_text())


class Ear:
    """A socket that hears a group."""

    def __init__(self, address: str, port: int) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self.socket.bind((address, port))
        membership = socket.inet_aton(address) + socket.inet_aton(LOOPBACK)
        self.socket.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
        self.socket.setblocking(False)

    def all(self) -> list[tuple[bytes, tuple[str, int]]]:
        """What has come; on loopback a datagram is there when its `sendto` returns."""
        found = []
        while True:
            try:
                found.append(self.socket.recvfrom(65_535))
            except BlockingIOError:
                return found

    def close(self) -> None:
        self.socket.close()


class Receiver:
    """A receiver as its edge sees it: frames are released, and then they are on the tape."""

    def __init__(
        self,
        network: Network,
        name: str,
        data: Path,
        now: Callable[[], int],
        records_per_segment: int = 1_000_000,
        held: Callable[[int], tuple[str, ...]] = lambda _: (),
        config: EdgeConfig | None = None,
        hold_ns: int = 0,
    ) -> None:
        self.hold_ns = hold_ns
        self.directory = data / name
        self.network, self.name, self.now = network, name, now
        self.complete_ns = 0
        self._held = held
        self._config = config
        self._per_segment = records_per_segment
        self.start()

    def start(self) -> None:
        self.tape = TapeWriter.open(self.directory / "tape", FIRST, records_per_segment=self._per_segment)
        try:
            self.edge = EdgeService(
                self.network,
                self.name,
                "main",
                self.directory,
                LOOPBACK,
                lambda: self.complete_ns,
                self.now(),
                held=self._held,
                config=self._config,
                ring_hold_ns=lambda _: self.hold_ns,
            )
        except BaseException:
            self.tape.close()
            raise

    def release(self, frame: Frame, *, to_tape: bool = True, late: bool = False) -> None:
        content = frame_bytes(frame)
        self.edge.released(Release(frame, frame.timestamp_ns, late), content, self.now())
        if to_tape:
            self.tape.append(frame, content)
            self.complete_ns = frame.timestamp_ns

    def step(self) -> None:
        """A turn in which every socket may have something."""
        self.edge.step(self.edge.filenos, self.now())

    def kill(self) -> None:
        """As kill -9 does it: nothing more is written."""
        for each in (self.edge._udp, self.edge._snapshots._listener):
            each.close()
        self.tape.close()

    def stop(self) -> None:
        self.edge.close()
        self.tape.close()

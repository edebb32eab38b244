"""Hash what an edge sends over real sockets for fixed frames, plans and requests, and compare with the recorded hashes.

Each scenario has one hash for each destination: the datagrams in order, with a mark between turns, so that pacing
counts too. The snapshot and the saved files are hashed as bytes.

    python -m tests.baseline.edge_bytes            # compare all
    python -m tests.baseline.edge_bytes --write    # record them again
"""

from __future__ import annotations

import hashlib
import json
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from levelcast.network import MulticastGroup, Network
from levelcast.protocol.history import Frame
from levelcast.wire import mold
from levelcast.wire.mold import RetransmitRequest
from tests.net_edge_parts import LOOPBACK, Ear, Receiver, some_network
from tests.network_parts import free_group
from tests.planned_parts import SYMBOLS, planned_tape
from tests.tape_parts import T0, make_frames

RECORDED = Path(__file__).with_name("edge_bytes.json")
MAIN = mold.session_name("main")
MS = 1_000_000


class Recorder:
    """One receiver's edge, the groups that it sends to and subscribers that request; hashes what each of them gets."""

    def __init__(self, network: Network, data: Path) -> None:
        self.now = T0
        self.held: tuple[str, ...] = ()
        self._hashes: dict[str, list[bytes]] = {}
        groups = [(group, number) for group in network.edge.groups for number in range(group.count)]
        self._ears = {f"{group.name} {number}": Ear(group.at(number).address, group.port) for group, number in groups}
        self._subscribers: dict[str, socket.socket] = {}
        self.receiver = Receiver(network, "a-1", data, lambda: self.now, 100, lambda _: self.held)
        self.note()

    def note(self) -> None:
        """Add what has arrived since the last call to the hashes."""
        for name, ear in self._ears.items():
            self._add(name, [datagram for datagram, _ in ear.all()])
        for name, subscriber in self._subscribers.items():
            self._add(name, list(_received(subscriber)))

    def _add(self, name: str, datagrams: list[bytes]) -> None:
        self._hashes.setdefault(name, []).extend([*datagrams, b"|"])

    def release(self, frame: Frame, *, late: bool = False) -> None:
        self.receiver.release(frame, late=late)
        self.note()

    def step(self, after_ns: int = 0) -> None:
        self.now += after_ns
        self.receiver.step()
        self.note()

    def request(self, name: str, first: int, count: int, session: bytes = MAIN) -> None:
        if name not in self._subscribers:
            made = self._subscribers[name] = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            made.bind((LOOPBACK, 0))
            made.setblocking(False)
        datagram = mold.encode(RetransmitRequest(session, first, count))
        self._subscribers[name].sendto(datagram, self.receiver.edge.address)

    def snapshot(self) -> None:
        with socket.create_connection(self.receiver.edge.address, timeout=5) as subscriber:
            subscriber.settimeout(0.02)
            content = b""
            while True:
                self.step()
                try:
                    part = subscriber.recv(1 << 20)
                except TimeoutError:
                    continue
                if not part:
                    break
                content += part
        self._add("snapshot", [content])

    def close(self) -> dict[str, list[object]]:
        self.receiver.stop()
        self.note()
        for path in sorted((self.receiver.directory / "edge").iterdir()):
            self._hashes[path.name] = [path.read_bytes()]
        for each in (*(ear.socket for ear in self._ears.values()), *self._subscribers.values()):
            each.close()
        return {
            name: [sum(map(len, parts)), hashlib.sha256(b"".join(parts)).hexdigest()[:32]]
            for name, parts in self._hashes.items()
        }


def _received(subscriber: socket.socket) -> Iterator[bytes]:
    while True:
        try:
            yield subscriber.recv(65_535)
        except BlockingIOError:
            return


def on_time(edge: Recorder) -> None:
    """Frames, watermarks, heartbeats, a snapshot, and the ends of the sessions."""
    frames = make_frames(120)
    for number, frame in enumerate(frames):
        edge.release(frame)
        if number % 3:
            edge.step(5 * MS)
    edge.receiver.complete_ns += 500 * MS
    edge.step(MS)
    edge.snapshot()
    edge.step(1_000 * MS)
    edge.step(1_000 * MS)
    edge.receiver.edge.end_sessions()
    for _ in range(8):
        edge.step(50 * MS)


def late(edge: Recorder) -> None:
    """More than a burst of late frames at one time, one on time among them, and what is left when it closes."""
    frames = make_frames(400, 3, records=80)
    for frame in frames[:300]:
        edge.release(frame, late=True)
    edge.release(frames[300])
    for _ in range(4):
        edge.step(MS)
    for frame in frames[301:]:
        edge.release(frame, late=True)
    edge.step()


def lines(edge: Recorder) -> None:
    """Two lines with a rate and a group without; a line is taken over and given back."""
    for number, frame in enumerate(make_frames(90, 4)):
        edge.held = ("west",) if number < 50 else ("west", "east")
        edge.release(frame)
        edge.step(5 * MS)
    for _ in range(80):
        edge.step(20 * MS)


def plans(edge: Recorder) -> None:
    """Plans that replace each other, in four groups."""
    for frame in planned_tape(9, 4).frames:
        edge.release(frame)
        edge.step(5 * MS)
    for _ in range(8):
        edge.step(100 * MS)


def requests(edge: Recorder) -> None:
    """Requests to the store, to the group, to the tape, for what retention has removed, and too many of them."""
    for frame in make_frames(150, 5):
        edge.release(frame)
        edge.step(5 * MS)
    retransmitter = held_from(edge)
    for first in (retransmitter, retransmitter + 7):
        edge.request("one", first, 4)
        edge.step(20 * MS)
    for name in ("one", "two", "three"):
        edge.request(name, retransmitter + 2, 9)
    edge.step(20 * MS)
    for first, count in ((1, 5), (200, 65_535), (17, 60), (400, 1), (10**6, 3)):
        edge.request("one", first, count)
        edge.request("two", first + 3, count)
        for _ in range(12):
            edge.step(MS)
    edge.request("one", 1, 3, mold.session_name("other"))
    for _ in range(60):
        edge.request("flood", retransmitter, 1)
    for _ in range(4):
        edge.step()
    edge.receiver.tape.retain(T0, max_bytes=edge.receiver.tape.size_bytes // 2)
    edge.request("three", 1, 5)
    for _ in range(5):
        edge.step(MS)


def held_from(edge: Recorder) -> int:
    """The first message in the store: three packets of it are kept."""
    service = edge.receiver.edge
    feed = service.server.feed
    held = feed.retransmitter.held(MAIN)
    assert held is not None
    first: int = held[0]
    return first


def _with_lines(network: Network) -> Network:
    west, east = network.edge.groups
    groups = (
        replace(west, line="a", rate_bytes=40_000),
        replace(east, region="west", line="b", rate_bytes=20_000, ttl=3),
        MulticastGroup("all", free_group(), west.port, "west"),
    )
    return replace(network, edge=replace(network.edge, groups=groups))


def _with_blocks(network: Network) -> Network:
    address = f"{free_group().rsplit('.', 1)[0]}.16"
    west, _ = network.edge.groups
    floor, *others = network.floors
    floors = (replace(floor, symbols=tuple(SYMBOLS.values())), *others)
    block = replace(west, address=address, count=4)
    return replace(network, floors=floors, edge=replace(network.edge, groups=(block,)))


def _with_small_store(network: Network) -> Network:
    edge = replace(network.edge, store_bytes=3 * 1_400)
    return replace(network, edge=edge, tape=replace(network.tape, segment_records=100))


SCENARIOS: dict[str, tuple[Callable[[Network], Network], Callable[[Recorder], None]]] = {
    "on time": (lambda network: network, on_time),
    "late": (lambda network: network, late),
    "lines": (_with_lines, lines),
    "plans": (_with_blocks, plans),
    "requests": (_with_small_store, requests),
}


@contextmanager
def _directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def edge_hashes(scenario: str) -> dict[str, list[object]]:
    """Size and hash of what each destination got, and of each file."""
    prepare, play = SCENARIOS[scenario]
    with _directory() as data:
        recorder = Recorder(prepare(some_network()), data)
        play(recorder)
        return recorder.close()


def recorded() -> dict[str, dict[str, list[object]]]:
    hashes: dict[str, dict[str, list[object]]] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return hashes


def main() -> int:
    found = {scenario: edge_hashes(scenario) for scenario in SCENARIOS}
    if "--write" in sys.argv[1:]:
        RECORDED.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        return 0
    changed = [name for name, hashes in recorded().items() if found[name] != hashes]
    print(f"{len(found)} scenarios, {len(changed)} changed: {', '.join(changed)}")
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())

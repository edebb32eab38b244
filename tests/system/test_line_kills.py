"""Kill receivers that hold lines, primaries and secondaries, under load: every region keeps two sources (MS §4.3).

Listeners of their own in every line note sender and kernel time of each packet. A sender is a source of a region from
its first packet on, until `IDLE_NS` pass without another one: then it ended with its last packet.
"""

from __future__ import annotations

import json
import signal
import socket
import struct
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import chain, pairwise
from pathlib import Path
from select import select
from threading import Event, Thread
from typing import Any, NamedTuple

import pytest

from levelcast.edge.server.packetizer import GatherConfig
from levelcast.network import Network, load_network
from levelcast.node.verdict import judge
from tests.net_edge_parts import Ear
from tests.network_parts import PATIENT_WIRES, free_group, free_port, free_ports, three_rooms
from tests.system.processes import LIMIT_S, Nodes, in_ring, levelcast, nodes_of

PRIMARIES = ("a-1", "b-1", "c-1")
HOLDERS = ("a-1", "d-1", "b-1", "d-2")
"""The preferred receivers of the lines of west and south, in the order of the kills."""
OTHERS = ("reform-a", "reform-b")
IDLE_NS = 2 * GatherConfig().heartbeat_ns
SO_TIMESTAMPNS = 35
SOUTH = """
[[site]]
name = "d"
region = "south"
[[secondary]]
name = "d-1"
site = "d"
home = "a-1"
[[secondary]]
name = "d-2"
site = "d"
home = "b-1"
[[floor]]
name = "XNYS"
publisher = 1
site = "c"
"""


def write_network(path: Path) -> Network:
    """Two primaries in the west, two secondaries in the south, a primary elsewhere; two lines for west and south."""
    groups = [
        f'[[edge.group]]\nname = "{region}-{line}"\nregion = "{region}"\nline = "{line}"\n'
        f'address = "{free_group()}"\nport = {free_port()}\n'
        for region in ("west", "south")
        for line in "ab"
    ]
    text = f"{three_rooms(SOUTH, wires=PATIENT_WIRES)}{''.join(groups)}[status]\nport = {free_ports()}\n"
    path.write_text(text, encoding="utf-8")
    return load_network(path)


class Packet(NamedTuple):
    """A packet in a line, by the kernel's clock."""

    at_ns: int
    sender: tuple[str, int]


class Listeners:
    """Sockets in every line of a network, read by a thread."""

    def __init__(self, network: Network) -> None:
        self._ears = {group.name: Ear(group.address, group.port) for group in network.edge.groups}
        for ear in self._ears.values():
            ear.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self.heard: dict[str, list[Packet]] = {name: [] for name in self._ears}
        self._over = Event()
        self._thread = Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        names = {ear.socket: name for name, ear in self._ears.items()}
        while not self._over.is_set():
            for ready in select(list(names), (), (), 0.1)[0]:
                _, ancillary, _, sender = ready.recvmsg(65_535, 64)
                seconds, rest_ns = struct.unpack("qq", ancillary[0][2])
                self.heard[names[ready]].append(Packet(seconds * 10**9 + rest_ns, sender))

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        for ear in self._ears.values():
            ear.close()


def spans(packets: Iterable[Packet]) -> Iterator[tuple[int, int]]:
    """Yield when each sender began and ended to be a source."""
    by_sender: dict[tuple[str, int], list[int]] = {}
    for packet in packets:
        by_sender.setdefault(packet.sender, []).append(packet.at_ns)
    for times in by_sender.values():
        times.sort()
        begin = times[0]
        for one, other in pairwise(times):
            if other - one > IDLE_NS:
                yield begin, one
                begin = other
        yield begin, times[-1]


def longest_below(sources: int, packets: Iterable[Packet], begin_ns: int, end_ns: int) -> int:
    """Return the longest time between `begin_ns` and `end_ns` with fewer senders than `sources`."""
    changes = sorted(chain.from_iterable(((begin, 1), (end, -1)) for begin, end in spans(packets)))
    longest = count = 0
    since = begin_ns
    for at_ns, change in (*changes, (end_ns, 0)):
        now = min(max(at_ns, begin_ns), end_ns)
        if count < sources:
            longest = max(longest, now - since)
        else:
            since = now
        count += change
    return longest


class Kill(NamedTuple):
    """One kill, and the time until which its region was watched."""

    name: str
    began_ns: int
    ended_ns: int


def run_kills(network: Network, nodes: Nodes, data: Path, kills: int, settle_s: float) -> list[Kill]:
    """Start the network under load; kill holders of lines in turn, and restart each when its lines have moved."""
    everyone = {name: [f"{region}-{line}"] for name, (region, line) in zip(HOLDERS, _homes(), strict=True)}

    def lines_are_at_home(said: dict[str, Any]) -> bool:
        held = {name: said[name]["edge"]["groups"] for name in (*HOLDERS, "c-1")}
        return in_ring(said, *PRIMARIES) and held == {**everyone, "c-1": []}

    for name in (*PRIMARIES, "d-1", "d-2", *OTHERS):
        nodes.start(name, data)
    nodes.start("XNYS", data, "--rate", 1000)
    nodes.wait_for(lines_are_at_home)
    done = []
    for number in range(kills):
        time.sleep(settle_s)
        name = HOLDERS[number % len(HOLDERS)]
        began_ns = time.time_ns()
        assert nodes.end(name, signal.SIGKILL) == -signal.SIGKILL
        nodes.wait_for(lambda said, name=name: _has_moved(said, everyone[name], name))  # type: ignore[misc]
        time.sleep(settle_s)
        nodes.start(name, data)
        nodes.wait_for(lines_are_at_home)
        done.append(Kill(name, began_ns, time.time_ns()))
    return done


def _homes() -> list[tuple[str, str]]:
    return [("west", "a"), ("south", "a"), ("west", "b"), ("south", "b")]


def _has_moved(said: dict[str, Any], lines: list[str], name: str) -> bool:
    others = [each for each in (*HOLDERS, "c-1") if each != name]
    return any(set(lines) <= set(said[each]["edge"]["groups"]) for each in others)


def measured(network: Network, kill: Kill, heard: dict[str, list[Packet]], sources: int) -> int:
    """Return the longest time during a kill in which a region had fewer sources."""
    regions = sorted({group.region or "" for group in network.edge.groups})
    return max(
        longest_below(sources, [*heard[f"{region}-a"], *heard[f"{region}-b"]], kill.began_ns, kill.ended_ns)
        for region in regions
    )


def stated_bounds(file: Path) -> dict[str, int]:
    """Return the bounds that `levelcast timing` states, by layer."""
    (said,) = json.loads(levelcast("timing", "--network", file, "--json").stdout)["stripes"]
    return {layer: each["bound_ns"] for layer, each in said["lines"].items()}


def play(tmp_path: Path, kills: int, settle_s: float) -> tuple[Network, list[Kill], dict[str, list[Packet]]]:
    file, data = tmp_path / "network.toml", tmp_path / "data"
    network = write_network(file)
    assert levelcast("disk", "init", "--network", file, "--data", data, "--all").returncode == 0
    with closing(Listeners(network)) as listeners, nodes_of(file, tmp_path) as nodes:
        done = run_kills(network, nodes, data, kills, settle_s)
        assert nodes.end("XNYS") == 0
        have = nodes.wait_for(lambda said: said["c-1"])["c-1"]["have"]
        nodes.wait_for(lambda said: min(said[name]["released_slot"] for name in (*HOLDERS, "c-1")) > have)
        for process in nodes.running.values():
            process.send_signal(signal.SIGTERM)
        assert {process.wait(LIMIT_S) for process in nodes.running.values()} == {0}
    return network, done, listeners.heard


def test_time_with_fewer_sources_is_measured() -> None:
    one, other, third = ("127.0.0.1", 1), ("127.0.0.1", 2), ("127.0.0.1", 3)
    beat = IDLE_NS // 2
    packets = [Packet(n * beat, one) for n in range(41)]
    packets += [Packet(n * beat + 5, other) for n in range(11)]
    packets += [Packet(n * beat, third) for n in range(20, 41)]
    assert longest_below(2, packets, beat, 40 * beat) == 10 * beat - 5
    assert longest_below(1, packets, beat, 40 * beat) == 0
    assert longest_below(1, packets[41:], beat, 40 * beat) == 10 * beat - 5
    assert longest_below(3, packets, 20 * beat, 40 * beat) == 20 * beat


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_lines_of_a_killed_primary_and_secondary_move(tmp_path: Path) -> None:
    network, kills, heard = play(tmp_path, 2, 0.0)
    assert [kill.name for kill in kills] == ["a-1", "d-1"]
    senders = {line: {packet.sender for packet in packets} for line, packets in heard.items()}
    assert min(len(senders[line]) for line in ("west-a", "south-a")) >= 3, "the first, its successor, the restarted one"
    assert judge(tmp_path / "data", (*PRIMARIES, "d-1", "d-2")).problems == []
    assert len(network.edge.groups) == len(senders)


@pytest.mark.campaign
@pytest.mark.timeout(3600)
def test_twenty_kills_leave_every_region_two_sources(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    network, kills, heard = play(tmp_path, 20, 2.0)
    bounds = stated_bounds(tmp_path / "network.toml")
    found = [(kill, measured(network, kill, heard, 2), measured(network, kill, heard, 1)) for kill in kills]
    with capsys.disabled():
        for kill, short_ns, none_ns in found:
            print(f"{kill.name}: one source for {short_ns / 1e9:.3f} s, none for {none_ns / 1e9:.3f} s")
    for layer, bound_ns in bounds.items():
        longest_ns = max(short_ns for kill, short_ns, _ in found if (kill.name in PRIMARIES) == (layer == "primary"))
        with capsys.disabled():
            print(f"{layer}: one source for {longest_ns / 1e9:.3f} s at most, bound {bound_ns / 1e9:.3f} s", flush=True)
        assert longest_ns <= bound_ns
    assert max(none_ns for _, _, none_ns in found) == 0
    assert judge(tmp_path / "data", (*PRIMARIES, "d-1", "d-2")).problems == []

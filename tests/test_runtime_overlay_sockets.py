"""Sockets without multicast: known nodes are reached, strangers are neither answered nor learned."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from levelcast import native
from levelcast.errors import NetError
from levelcast.overlay.detours import SETTLED_NS, Detours
from levelcast.overlay.duplicates import RecentMessages
from levelcast.overlay.fanout import CONTROL, Fanout, Hop, OverlayNode
from levelcast.overlay.paths import HeardPath
from levelcast.protocol.effects import GROUP, SERVERS
from levelcast.runtime.overlay_sockets import OverlaySockets, resolve
from levelcast.runtime.sockets import LOOPBACK, RECEIVERS, Address, Buffer, Via
from levelcast.wire.codec import encode
from levelcast.wire.messages import NOTHING_RECENT, Data, Packet, PathFigures, Probe, Token
from levelcast.wire.packets import join, seal, singles

A, B, C, FLOOR, SERVER = 1, 2, 3, 21, 11
SITES = {A: "a", B: "b", C: "c", FLOOR: "a", SERVER: "c"}
NODES = [OverlayNode(A, "a", "receiver"), OverlayNode(B, "b", "receiver"), OverlayNode(C, "c", "receiver")]
NODES += [OverlayNode(FLOOR, "a", "floor"), OverlayNode(SERVER, "c", "server")]
GROUP_ADDRESS = "239.192.74.83"


def free_port(count: int) -> int:
    for first in range(23_000, 30_000, count):
        try:
            with ExitStack() as trials:
                for port in range(first, first + count):
                    trials.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)).bind((LOOPBACK, port))
            return first
        except OSError:
            continue
    raise AssertionError("no free ports")


@dataclass
class Net:
    """The sockets of all nodes on loopback."""

    of: dict[int, OverlaySockets]
    ports: dict[int, int]


def open_all(nodes: list[OverlayNode], large: tuple[str, ...], opened: ExitStack) -> Net:
    first = free_port(3 * len(nodes) + 2)
    ports = {each.node: first + 3 * place for place, each in enumerate(nodes)}
    of = {}
    for each in nodes:
        peers = {node: (LOOPBACK, port) for node, port in ports.items() if node != each.node}
        fanout = Fanout(each.node, nodes, large, lambda one, other: float(one != other), 10**9, 10**9)
        group = (GROUP_ADDRESS, first + 3 * len(nodes)) if each.site in large else None
        own = LOOPBACK, ports[each.node]
        sockets = OverlaySockets(own, peers, fanout, RecentMessages(), site_group=group, hears_data=each.receives)
        opened.callback(sockets.close)
        of[each.node] = sockets
    return Net(of, ports)


@pytest.fixture
def net() -> Iterator[Net]:
    with ExitStack() as opened:
        yield open_all(NODES, (), opened)


def arrivals(sockets: OverlaySockets, domain: int | None = None) -> list[tuple[bytes | Data, Via]]:
    found = []
    while sockets.wait(0.1)[0]:
        for content, source, _ in sockets.drain(domain):
            assert isinstance(source, Via)
            found.append((content, source))
    return found


def contents(sockets: OverlaySockets) -> list[bytes | Data]:
    return [content for content, _ in arrivals(sockets)]


def packets(first: int, last: int, source: int = FLOOR) -> Data:
    (data,) = join(seal(Packet(source, 1, number, 1, b"x"), 0) for number in range(first, last + 1))
    return data


def test_a_message_reaches_a_node_the_servers_or_all(net: Net) -> None:
    probe = encode(Probe(A, 1, 5), 0)
    net.of[A].send(B, [b"to b"])
    net.of[A].send(SERVERS, [b"to servers"])
    net.of[A].send(GROUP, [probe])
    assert contents(net.of[B]) == [b"to b", probe]
    assert contents(net.of[SERVER]) == [b"to servers", probe]
    assert contents(net.of[FLOOR]) == [probe]
    assert contents(net.of[A]) == []
    assert net.of[A].counts.sent == 6


def test_a_stranger_is_neither_heard_nor_answered_nor_learned(net: Net) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.bind((LOOPBACK, 0))
        stranger.sendto(encode(Probe(B, 1, 5), 0), (LOOPBACK, net.ports[A]))
        stranger.sendto(packets(1, 1).sealed, (LOOPBACK, net.ports[A] + 1))
        assert arrivals(net.of[A], 0) == []
        assert net.of[A].counts.unknown_address == 2
        net.of[A].learn(B, stranger.getsockname())
        net.of[A].send(B, [b"for b"])
        assert contents(net.of[B]) == [b"for b"]
        stranger.settimeout(0.05)
        with pytest.raises(TimeoutError):
            stranger.recvfrom(100)


def test_a_floor_sends_over_its_coordinator_which_forwards_new_packets_once(net: Net) -> None:
    net.of[A].send(GROUP, [encode(Probe(A, 1, 5), 0)])
    for node in (FLOOR, B, C):
        arrivals(net.of[node])
    data = packets(1, 3)
    net.of[FLOOR].send_buffer(RECEIVERS, data.sealed, native.ends(data.sealed))
    found = arrivals(net.of[A])
    assert [content for content, _ in found] == [each.sealed for each in singles(data)]
    assert all(via.forward and via.node == FLOOR for _, via in found)
    assert [contents(net.of[node]) for node in (B, C)] == [[each.sealed for each in singles(data)]] * 2
    assert net.of[A].take(data, found[0][1], 1) == [data]
    assert net.of[A].take(data, found[0][1], 2) == []
    assert net.of[A].recent.dropped == 3
    assert [contents(net.of[node]) for node in (B, C)] == [[], []]  # the floor has served them


def test_a_coordinator_sends_to_all_that_the_floor_has_not_served() -> None:
    nodes = [*NODES[:4], OverlayNode(5, "d", "receiver")]
    with ExitStack() as opened:
        net = open_all(nodes, (), opened)
        data = packets(1, 3)
        net.of[A].take(data, Via((LOOPBACK, net.ports[FLOOR]), FLOOR, forward=True), 1)
        net.of[A].take(data, Via((LOOPBACK, net.ports[FLOOR]), FLOOR, forward=True), 2)
        assert [contents(net.of[node]) for node in (B, C)] == [[], []]
        assert contents(net.of[5]) == [each.sealed for each in singles(data)]


def test_the_nodes_of_a_large_site_multicast_to_each_other() -> None:
    site = [OverlayNode(node, "a", "receiver") for node in (A, B, C)]
    with ExitStack() as opened:
        net = open_all([*site, OverlayNode(4, "b", "receiver")], ("a",), opened)
        probe, data = encode(Probe(A, 1, 5), 0), packets(1, 2, source=9)
        net.of[A].send(GROUP, [probe])
        assert [contents(net.of[node]) for node in (B, C, 4)] == [[probe]] * 3
        net.of[4].send_buffer(RECEIVERS, data.sealed, len(data.sealed).to_bytes(4, "little"))
        ends = [arrivals(net.of[node]) for node in (A, B, C)]
        assert [len(each) for each in ends] == [1, 1, 0]
        net.of[A].take(data, ends[0][0][1], 1)
        assert contents(net.of[C]) == [packets(1, 1, source=9).sealed, packets(2, 2, source=9).sealed]


def test_an_unreachable_node_does_not_stop_the_others(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    sender, send_buffer = net.of[A], net.of[A]._sender.send_buffer

    def no_route_to_b(address: Address, buffer: Buffer, ends: Buffer) -> tuple[int, OSError | None]:
        if address == (LOOPBACK, net.ports[B]):
            return 1, OSError(errno.ENETUNREACH, "Network is unreachable")
        return send_buffer(address, buffer, ends)

    monkeypatch.setattr(sender._sender, "send_buffer", no_route_to_b)
    sender.send(GROUP, [encode(Probe(A, 1, 5), 0)])
    assert sender.counts.refused == 1
    assert len(contents(net.of[C])) == 1


def test_errors_name_the_cause_and_the_remedy(net: Net) -> None:
    fanout = net.of[A].fanout
    with pytest.raises(NetError, match=r"cannot listen on 127.0.0.1 port \d+: port already in use; .* of the node"):
        OverlaySockets((LOOPBACK, net.ports[A]), {}, fanout, RecentMessages())
    with pytest.raises(NetError, match=r"cannot listen on 192.0.2.1 port 9000: .*; set `bind` of the node to one of"):
        OverlaySockets(("192.0.2.1", 9000), {}, fanout, RecentMessages())
    with pytest.raises(NetError, match=r'host "no.such.invalid" of the network file has no IPv4 address'):
        resolve("no.such.invalid")
    assert resolve("127.0.0.1") == LOOPBACK
    net.of[A]._to[Hop(B, CONTROL)] = ("240.0.0.1", 9)
    with pytest.raises(NetError, match=r"cannot send to 240.0.0.1 port 9 from this node's address; set `host` or"):
        net.of[A].send(B, [b"to b"])


def test_a_detour_passes_on_packets_and_new_tokens_to_a_receiver_that_is_cut_off(net: Net) -> None:
    paths = {(A, C): NOTHING_RECENT, (A, B): 1_000, (B, C): 1_000}
    net.of[B].detours = Detours(B, frozenset((A, B, C)), {FLOOR: A}, shorter=False)
    for now in (0, SETTLED_NS):
        rows: dict[int, dict[int, HeardPath]] = {}
        for (sender, to), recent in paths.items():
            figures = PathFigures(sender, 100, 0, 0, 1_000, 1_000, 1_000, 1_000, 50, b"", recent)
            rows.setdefault(to, {})[sender] = HeardPath(now, figures)
        net.of[B].learn_paths(rows, now)
    token = encode(Token(1, 5, 10, A, 4, 64, (), ()), 0)
    net.of[A].send(B, [token, encode(Probe(A, 1, 5), 0)])
    for content, source in arrivals(net.of[B]):
        assert isinstance(content, bytes)
        assert not net.of[B].is_repeated(content, source, 1)
    assert contents(net.of[C]) == [token]
    assert net.of[B].is_repeated(token, Via(("", 0), A), 2)
    for via in (Via(("", 0), A), Via(("", 0), FLOOR)):
        first = 1 if via.node == A else 3
        assert len(net.of[B].take(packets(first, first + 1), via, 3)) == 1
        assert net.of[B].take(packets(first, first + 1), via, 3) == []
    found = contents(net.of[C])
    assert b"".join(each for each in found if isinstance(each, bytes)) == packets(1, 4).sealed
    assert net.of[B].counts.detours == 1 + 4
    assert net.of[B].take(packets(5, 5), Via(("", 0), C), 4) != []
    assert contents(net.of[A]) == []

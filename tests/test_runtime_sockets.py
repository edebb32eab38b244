"""The sockets of a node, on this machine's loopback."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from levelcast.errors import NetError
from levelcast.protocol.effects import GROUP, SERVERS
from levelcast.runtime.sockets import RECEIVERS, Address, CoreSockets
from levelcast.wire.messages import Data

ADDRESS = "239.192.74.77"


@pytest.fixture
def port() -> int:
    """A port that nobody has at the moment."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("", 0))
        found: int = probe.getsockname()[1]
        return found


@pytest.fixture
def pair(port: int) -> Iterator[tuple[CoreSockets, CoreSockets]]:
    one, other = CoreSockets(ADDRESS, port), CoreSockets(ADDRESS, port)
    yield one, other
    one.close()
    other.close()


def receive(sockets: CoreSockets) -> list[tuple[bytes | Data, Address]]:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        if sockets.wait(0.1)[0] and (arrivals := sockets.drain()):
            return [arrival[:2] for arrival in arrivals]
    return []


def test_the_group_hears_everything_but_not_its_own_voice(pair: tuple[CoreSockets, CoreSockets]) -> None:
    one, other = pair
    one.send(GROUP, [b"to all"])
    one.send(SERVERS, [b"to servers"])
    heard = receive(other)
    while len(heard) < 2:
        heard += receive(other)
    assert heard == [(b"to all", one.address), (b"to servers", one.address)]
    one.wait(0.2)
    assert one.drain() == []
    assert one.counts.sent == 2


def test_an_arrival_has_the_time_at_which_the_kernel_received_it(pair: tuple[CoreSockets, CoreSockets]) -> None:
    one, other = pair
    for _ in range(100):  # the kernel starts to stamp datagrams soon after the first socket has requested it
        one.send(GROUP, [b"control"])
        one.send(RECEIVERS, [b"data"])
        one.send(7, [b"own"])
        one.learn(7, other.address)
        after = time.time_ns()
        time.sleep(0.01)
        arrivals = other.drain()
        if len(arrivals) == 3 and all(arrival[2] <= after for arrival in arrivals):
            return
    pytest.fail("the times are those of reading")


def test_packets_reach_only_those_who_hear_them(port: int) -> None:
    receiver, floor = CoreSockets(ADDRESS, port), CoreSockets(ADDRESS, port, hears_data=False)
    try:
        floor.send(RECEIVERS, [b"packet"])
        receiver.send(GROUP, [b"token"])
        assert receive(receiver) == [(b"packet", floor.address)]
        assert receive(floor) == [(b"token", receiver.address)]
        receiver.send(RECEIVERS, [b"packet"])
        assert not floor.wait(0.2)[0]
    finally:
        receiver.close()
        floor.close()


def test_control_is_read_before_packets(pair: tuple[CoreSockets, CoreSockets]) -> None:
    one, other = pair
    one.send(RECEIVERS, [b"packet"])
    one.send(GROUP, [b"token"])
    time.sleep(0.05)
    assert [each[:2] for each in other.drain()] == [(b"token", one.address), (b"packet", one.address)]


def test_waiting_wakes_up_for_other_descriptors_too(pair: tuple[CoreSockets, CoreSockets]) -> None:
    one, other = pair
    quiet, loud = socket.socketpair()
    with quiet, loud:
        loud.send(b"x")
        assert one.wait(5.0, [quiet.fileno()]) == (False, [quiet.fileno()])
        other.send(GROUP, [b"to all"])
        while not one.wait(0.1, [quiet.fileno()])[0]:
            pass
        assert one.wait(5.0, [loud.fileno()]) == (True, [])


def test_a_node_is_reached_once_it_has_spoken(pair: tuple[CoreSockets, CoreSockets]) -> None:
    one, other = pair
    one.send(7, [b"too early"])
    assert (one.counts.sent, one.counts.unknown_peer) == (0, 1)
    one.learn(7, other.address)
    one.send(7, [b"now"])
    assert receive(other) == [(b"now", one.address)]


def test_a_port_in_use_is_one_sentence(port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as holder:
        holder.bind(("", port))
        with pytest.raises(NetError, match="port already in use"):
            CoreSockets(ADDRESS, port)


def test_an_interface_without_multicast_is_one_sentence(port: int) -> None:
    with pytest.raises(NetError, match=r"cannot listen on 192\.0\.2\.1"):
        CoreSockets(ADDRESS, port, interface="192.0.2.1")


def test_too_small_a_buffer_is_a_warning_that_says_what_to_raise(port: int) -> None:
    sockets = CoreSockets(ADDRESS, port, receive_buffer=1 << 30)
    try:
        assert sockets.warning is not None
        assert "sysctl -w net.core.rmem_max=1073741824" in sockets.warning
    finally:
        sockets.close()


@pytest.mark.parametrize("together", [True, False])
def test_many_datagrams_arrive_in_order_with_and_without_trains(
    pair: tuple[CoreSockets, CoreSockets], together: bool
) -> None:
    one, other = pair
    if together and not one.trains:
        pytest.skip("this kernel has no segmentation offload")
    one.trains = together
    sent = [bytes([number]) * (1000 if number % 40 else 200) for number in range(100)]
    one.send(GROUP, sent)
    heard = receive(other)
    while len(heard) < len(sent):
        heard += receive(other)
    assert heard == [(datagram, one.address) for datagram in sent]
    assert one.counts.sent == len(sent)
    assert bool(one.counts.trains) is together

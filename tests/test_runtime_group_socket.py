"""The socket of a group: known senders only, one datagram per message, and no answers to strangers."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterator

import pytest

from levelcast.errors import NetError
from levelcast.network import Link
from levelcast.protocol.effects import Send
from levelcast.runtime.group_socket import GroupSocket
from levelcast.runtime.impairment import Impairment
from levelcast.wire.codec import encode
from levelcast.wire.header import domain_of
from levelcast.wire.messages import Message
from levelcast.wire.wide_messages import WideRequest
from tests.network_parts import free_ports

HOST, DOMAIN = "127.0.0.1", domain_of(7, 0)


def request(sender: int, incarnation: int = 1) -> WideRequest:
    return WideRequest(sender, 0, incarnation, False)


class Pair:
    """Processes 1 and 2."""

    def __init__(self, impairment: Impairment | None = None) -> None:
        port = free_ports(2)
        self.addresses = {1: (HOST, port), 2: (HOST, port + 1)}
        self.one = GroupSocket(self.addresses[1], {2: self.addresses[2]}, DOMAIN)
        self.two = GroupSocket(self.addresses[2], {1: self.addresses[1]}, DOMAIN, impairment)

    def arrived(self, wait_s: float = 2.0) -> list[Message]:
        select.select([self.two.fileno], [], [], wait_s)
        return self.two.receive(time.time_ns())

    def close(self) -> None:
        self.one.close()
        self.two.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.close()


def test_messages_arrive_in_order(pair: Pair) -> None:
    messages = [request(1, number) for number in range(1, 6)]
    pair.one.send(Send(2, each) for each in messages)
    assert pair.arrived() == messages
    assert pair.one.sent == {"views": 5}
    assert pair.two.heard == {1}


def test_a_message_to_an_unknown_process_is_counted(pair: Pair) -> None:
    pair.one.send([Send(9, request(1))])
    assert pair.one.counts.unknown_peer == 1


def test_a_stranger_is_dropped_and_not_answered(pair: Pair) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.bind((HOST, 0))
        stranger.sendto(encode(request(1), DOMAIN), pair.addresses[2])
        assert pair.arrived() == []
        assert pair.two.counts.unknown_address == 1
        assert pair.two.heard == set()
        assert select.select([stranger], [], [], 0.05)[0] == []


def test_a_process_that_uses_the_name_of_another_is_dropped(pair: Pair) -> None:
    pair.one.send([Send(2, request(2))])
    assert pair.arrived() == []
    assert pair.two.counts.unknown_address == 1


def test_damaged_datagrams_and_those_of_another_network_are_counted(pair: Pair) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as same:
        pair.one.close()
        same.bind(pair.addresses[1])
        good = encode(request(1), DOMAIN)
        for datagram in (good[:-1] + bytes((good[-1] ^ 1,)), encode(request(1), domain_of(8, 0)), good):
            same.sendto(datagram, pair.addresses[2])
        assert pair.arrived() == [request(1)]
    assert pair.two.malformed == {"broken seal": 1, "wrong network": 1}


def test_delay_and_loss_of_the_links_are_injected() -> None:
    pair = Pair(Impairment({1: Link(50_000_000, 0, 0.0)}, 1))
    try:
        before = time.time_ns()
        pair.one.send([Send(2, request(1))])
        select.select([pair.two.fileno], [], [], 2.0)
        assert pair.two.receive(before) == []
        due = pair.two.next_ns
        assert due is not None
        assert due >= before + 50_000_000
        assert pair.two.receive(due) == [request(1)]
    finally:
        pair.close()


def test_an_address_in_use_is_one_sentence(pair: Pair) -> None:
    with pytest.raises(NetError, match="port already in use; stop the other program, or change the port of the node"):
        GroupSocket(pair.addresses[1], {}, DOMAIN)

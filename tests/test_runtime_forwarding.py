"""Over sockets and through a restart, a node passes on what others have sealed, byte for byte."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from levelcast.protocol.effects import GROUP, Effect
from levelcast.protocol.history import first_tip
from levelcast.protocol.machine import Machine
from levelcast.records import trades
from levelcast.ring.member import Member
from levelcast.runtime.driver import Driver
from levelcast.runtime.sockets import RECEIVERS, CoreSockets
from levelcast.storage.journal.file import initialise
from levelcast.storage.receiver_store import ReceiverStore
from levelcast.wire.codec import encode
from levelcast.wire.messages import Data, Invite, Message, Repair, Request, Ring, Run, Token
from tests.ring_parts import SERVER, make_config, make_data, make_ring, make_token

ADDRESS = "239.192.74.78"
CONFIG = make_config()
MEMBER, OTHER, ASKER, SOURCE = 1, 2, 3, 201


class Records(Machine):
    """A machine that keeps what it is given."""

    def __init__(self) -> None:
        self.wake_ns = None
        self.got: list[Message] = []

    def step(self, batch: Iterable[Message], now: int, *, clock_trusted: bool = True) -> list[Effect]:
        self.got += batch
        return []


class Net:
    """A member with its files, a node that asks it, and three authors that only send."""

    def __init__(self, directory: Path) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind(("", 0))
            self._port = probe.getsockname()[1]
        self._directory = directory / "member"
        self.server, self.other, self.source = (self._sockets() for _ in range(3))
        for each in (directory / "asker", self._directory):
            initialise(each / "journal", 1)
        store = ReceiverStore.open(directory / "asker", first_tip(CONFIG))
        self.asker = Driver(ASKER, 0, Records(), self._sockets(), store)
        self.member = self._start()

    def _sockets(self) -> CoreSockets:
        return CoreSockets(ADDRESS, self._port)

    def _start(self) -> Driver:
        store = ReceiverStore.open(self._directory, first_tip(CONFIG))
        machine = Member(CONFIG, MEMBER, store.image, store.tape.tip, time.time_ns())
        return Driver(MEMBER, 0, machine, self._sockets(), store)

    def restart(self) -> None:
        self.member.close()
        self.member = self._start()

    def until(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 20
        while not done():
            assert time.monotonic() < deadline
            self.member.turn()
            self.asker.turn()

    def ask(self, request: Request, *kinds: type) -> Repair:
        """Send a request until a Repair with items of these kinds comes."""
        machine = self.asker.machine
        assert isinstance(machine, Records)
        machine.got.clear()

        def answers() -> list[Repair]:
            repairs = [message for message in machine.got if isinstance(message, Repair)]
            return [repair for repair in repairs if [type(item) for item in repair.items] == list(kinds)]

        def answered() -> bool:
            self.asker.sockets.send(GROUP, [encode(request, 0)])
            return bool(answers())

        self.until(answered)
        return answers()[0]

    def close(self) -> None:
        for each in (self.server, self.other, self.source, self.asker, self.member):
            each.close()


@pytest.fixture
def net(tmp_path: Path) -> Iterator[Net]:
    found = Net(tmp_path)
    yield found
    found.close()


def test_tokens_packets_and_rings_are_passed_on_as_their_authors_sent_them_also_after_a_restart(net: Net) -> None:
    ring = make_ring(1 << 32, start_ns=time.time_ns() + 100_000_000)
    token = make_token(ring, 2, have=0)
    packet = make_data(SOURCE, 1, payload=trades(1).tobytes())
    member = net.member.machine
    assert isinstance(member, Member)

    def entered() -> bool:
        net.server.send(GROUP, [encode(Invite(ring.generation, SERVER), 0), ring.sealed])
        return member.generation == ring.generation

    net.until(entered)
    net.other.send(GROUP, [token.sealed])
    net.source.send(RECEIVERS, [packet.sealed])
    request = Request(ASKER, ring.generation, 0, (2,), (Run(SOURCE, 1, 1, 1),))
    for _ in range(2):
        answer = net.ask(request, Token, Data)
        assert (answer.sender, [item.sealed for item in answer.items]) == (MEMBER, [token.sealed, packet.sealed])
        older = net.ask(request._replace(generation=1, slots=(), packets=()), Ring)
        assert (older.sender, [item.sealed for item in older.items]) == (MEMBER, [ring.sealed])
        net.restart()
    sockets = net.asker.sockets
    assert isinstance(sockets, CoreSockets)
    assert sockets.peers[SERVER] == net.server.address, "the ring came from another address last"
    assert sockets.peers[OTHER] == net.other.address

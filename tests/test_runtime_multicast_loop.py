"""The loop of a member of a multicast group, over sockets that a test fills."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from levelcast.byzantine.config import ChainConfig
from levelcast.byzantine.digests import Author
from levelcast.byzantine.epochs import EpochMachine, EpochMember
from levelcast.byzantine.image import ChainImage, EpochsImage
from levelcast.byzantine.member import ChainMember
from levelcast.byzantine.refusal import ChainRefusal
from levelcast.byzantine.signatures import KeyedHash, KeyedHashVerifier, RecentVerifier
from levelcast.byzantine.turns import BySlot
from levelcast.errors import NetError
from levelcast.protocol.effects import GROUP
from levelcast.runtime.multicast_loop import GroupDelivery, Measured, MulticastLoop, measure_signatures
from levelcast.runtime.sockets import Address, Arrival
from levelcast.runtime.verify_pool import VerifyPool
from levelcast.storage.chain_store import ChainStore
from levelcast.wire.chain_codec import pack_content
from levelcast.wire.chain_messages import ChainContent, ChainMessage
from levelcast.wire.codec import decode, encode
from levelcast.wire.messages import Echo, Message, Probe
from tests.epoch_parts import record

MEMBERS = (1, 2, 3, 4)
CONFIG = ChainConfig(MEMBERS)
OTHER: Address = ("127.0.0.9", 9)


class FilledSockets:
    """Sockets whose arrivals a test provides."""

    def __init__(self) -> None:
        self.arrivals: list[Arrival] = []
        self.sent: list[tuple[int, Message]] = []
        self.learned: dict[int, Address] = {}

    def wait(self, timeout_s: float, others: Sequence[int] = (), *, packets: bool = True) -> tuple[bool, list[int]]:
        time.sleep(min(timeout_s, 0.002))
        return bool(self.arrivals), list(others)

    def drain(self, domain: int | None = None) -> list[Arrival]:
        arrivals, self.arrivals = self.arrivals, []
        return arrivals

    def learn(self, node: int, address: Address) -> None:
        self.learned[node] = address

    def send(self, to: int, datagrams: Sequence[bytes]) -> None:
        self.sent += [(to, decode(datagram).message) for datagram in datagrams]

    def send_buffer(self, to: int, buffer: bytes, ends: bytes) -> None:
        raise NotImplementedError

    def close(self) -> None:
        return

    def add(self, *messages: Message | bytes) -> None:
        for each in messages:
            datagram = each if isinstance(each, bytes) else encode(each, 0)
            self.arrivals.append((datagram, OTHER, time.time_ns()))


class Stage:
    def __init__(self, directory: Path) -> None:
        self.sockets, self.delivered = FilledSockets(), list[GroupDelivery]()
        self.store = ChainStore(directory, 0)

        def part(epochs: EpochMember, config: ChainConfig, image: ChainImage, now: int) -> EpochMachine:
            turns = BySlot(config, 1, now, start_ns=now, slot_ns=10**12)
            return ChainMember(config, 1, KeyedHash(1), epochs.verifiers[1], image, now, lambda _: turns)

        machine = EpochMember(
            record(1, MEMBERS), CONFIG, 1, KeyedHash(1),
            lambda each: RecentVerifier(KeyedHashVerifier(tuple(each.keys))), EpochsImage(), time.time_ns(), part,
        )  # fmt: skip
        self.loop = MulticastLoop(machine, self.sockets, self.store, 0, VerifyPool(1), self.delivered.append)
        made = machine.machines[1]
        assert isinstance(made, ChainMember)
        self.member = made

    def turns(self, count: int = 20) -> None:
        for _ in range(count):
            self.loop.turn()


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def signed(sender: int, seq: int = 1, key: int | None = None) -> ChainMessage:
    content = pack_content(ChainContent((0,) * 4, (), (b"packet",)))
    return Author(sender, 0, 1, KeyedHash(key or sender)).message(seq, sender, content, ())


def test_a_message_is_verified_elsewhere_and_its_author_found_by_it(stage: Stage) -> None:
    stage.sockets.add(signed(2), signed(3, key=2))
    stage.turns()
    assert [node.ref.sender for node in stage.member.chain.graph.nodes.values()] == [2]
    assert stage.member.refused == {ChainRefusal.SIGNATURE: 1}
    assert stage.sockets.learned == {2: OTHER, 3: OTHER}


def test_a_verified_message_replaces_an_address_that_was_only_seen(stage: Stage) -> None:
    stage.sockets.add(Probe(2, 1, 1))
    stage.turns(2)
    forged = signed(2, key=3)
    stage.sockets.arrivals.append((encode(forged, 0), ("127.0.0.66", 6), time.time_ns()))
    stage.turns()
    assert stage.sockets.learned == {2: OTHER}
    stage.sockets.arrivals.append((encode(signed(2), 0), ("127.0.0.7", 7), time.time_ns()))
    stage.turns()
    assert stage.sockets.learned == {2: ("127.0.0.7", 7)}


def test_what_is_no_message_of_this_network_is_counted(stage: Stage) -> None:
    stage.sockets.add(b"nothing", encode(Probe(2, 1, 1), 7), encode(signed(2), 0)[:-1])
    stage.turns(3)
    assert sum(stage.loop.malformed.values()) == 3
    assert stage.loop.malformed["wrong network"] == 1
    assert not stage.member.chain.graph.nodes


def test_a_second_process_with_the_key_ends_this_one(stage: Stage) -> None:
    stage.sockets.add(signed(1, key=2))  # not signed with the key: refused, and nothing else
    stage.turns()
    stage.sockets.add(signed(1, seq=7))
    with pytest.raises(NetError, match="another process signs with the same key"):
        stage.turns()


def test_probes_are_answered_and_measured(stage: Stage) -> None:
    now = time.time_ns()
    stage.sockets.add(Probe(2, 5, now), Echo(3, 1, 1, now - 3_000_000, now - 2_000_000, now - 2_000_000))
    stage.turns(2)
    assert [(to, message.number) for to, message in stage.sockets.sent if isinstance(message, Echo)] == [(2, 5)]
    assert stage.loop.transmit_ns is not None
    assert stage.loop.transmit_ns >= 1_500_000
    stage.loop.measure(30_000_000)
    assert any(to == GROUP and isinstance(message, Probe) for to, message in stage.sockets.sent)


@pytest.mark.parametrize(("sign", "transmit", "hops"), [(30, 150, 0), (80, 150, 1), (12_000, 1_500, 8), (50, None, 0)])
def test_hops_are_the_turns_that_signing_takes(sign: int, transmit: int | None, hops: int) -> None:
    assert Measured(sign, 1, transmit).hops == hops


def test_signatures_are_measured() -> None:
    found = measure_signatures(KeyedHash(1), KeyedHashVerifier((1,)), 1)
    assert found.sign_ns > 0
    assert found.verify_ns > 0

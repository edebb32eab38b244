"""A receiver's edge over real sockets: what it sends, answers and tells, and that it numbers alike after any start."""

from __future__ import annotations

import errno
import shutil
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from select import select
from typing import Any

import numpy as np
import pytest

from levelcast import native
from levelcast.edge.server.feed import END_EVERY_NS, END_TIMES, Feed
from levelcast.edge.server.machine import EdgeConfig
from levelcast.edge.server.packetizer import SessionMap
from levelcast.errors import NetError
from levelcast.network import Network
from levelcast.network.model import Stripe, TimingRules
from levelcast.network.sessions import stripe_session
from levelcast.node import snapshot_server
from levelcast.node.edge_service import EdgeService, everything_in_one
from levelcast.node.edge_state_files import EdgeFiles
from levelcast.protocol.history import Frame
from levelcast.records import split
from levelcast.storage.append_file import TapeError
from levelcast.storage.tape.reader import TapeReader
from levelcast.storage.tape.stamps import frame_bytes
from levelcast.storage.tape.writer import TapeWriter
from levelcast.wire import mold
from levelcast.wire.mold import EdgePacket, EndOfSession, Heartbeat, RetransmitRequest
from levelcast.wire.snapshot import decode_snapshot
from tests.edge_parts import each_record
from tests.net_edge_parts import LOOPBACK, Ear, Receiver, some_network
from tests.tape_parts import FIRST, SLOT_NS, T0, make_frames

MAIN = mold.session_name("main")
SECOND = 1_000_000_000


class Clock:
    def __init__(self) -> None:
        self.now = T0

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def network() -> Network:
    return some_network()


@pytest.fixture
def west(network: Network) -> Iterator[Ear]:
    group = network.groups_of_region("west")[0]
    ear = Ear(group.address, group.port)
    yield ear
    ear.close()


@pytest.fixture
def start(network: Network, tmp_path: Path, clock: Clock) -> Iterator[Callable[..., Receiver]]:
    made: list[Receiver] = []

    def begin(name: str, **more: Any) -> Receiver:
        made.append(Receiver(network, name, tmp_path, clock, **more))
        return made[-1]

    yield begin
    for each in made:
        each.stop()


def numbered(heard: list[tuple[bytes, tuple[str, int]]]) -> dict[int, bytes]:
    """The packets with messages, by their number; the same number never has other bytes."""
    found: dict[int, bytes] = {}
    for datagram, _ in heard:
        packet = mold.decode(datagram)
        if isinstance(packet, EdgePacket):
            assert found.setdefault(packet.sequence, datagram) == datagram
    return found


def records_in(packets: dict[int, bytes]) -> list[bytes]:
    found: list[bytes] = []
    following = 1
    for sequence, datagram in sorted(packets.items()):
        packet = mold.decode(datagram)
        assert isinstance(packet, EdgePacket)
        assert sequence == following, "a hole"
        following += packet.records
        found += [each for each in each_record(packet.payload) if b"levelcast complete to" not in each]
    return found


def market_records(frames: list[Frame]) -> list[bytes]:
    """What a session with everything has of the frames: all but the ring's own records."""
    found = []
    for frame in frames:
        for each in each_record(bytes(frame_bytes(frame))):
            floor, instrument = int.from_bytes(each[2:4], "little"), int.from_bytes(each[4:8], "little")
            if floor or instrument:
                found.append(each)
    return found


def ask(edge: EdgeService, request: RetransmitRequest) -> list[EdgePacket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as customer:
        customer.bind((LOOPBACK, 0))
        customer.settimeout(0.2)
        customer.sendto(mold.encode(request), edge.address)
        edge.step(edge.filenos, T0)
        found = []
        try:
            while True:
                datagram, source = customer.recvfrom(65_535)
                assert source == edge.address
                packet = mold.decode(datagram)
                assert isinstance(packet, EdgePacket)
                found.append(packet)
        except TimeoutError:
            return found


# -- packets ----------------------------------------------------------------------------------------------


def test_everything_released_goes_to_the_regions_group(start: Callable[..., Receiver], west: Ear) -> None:
    receiver, elsewhere = start("a-1"), start("c-1")
    frames = make_frames(40)
    for frame in frames:
        receiver.release(frame)
        receiver.step()
        elsewhere.release(frame)
    heard = west.all()
    assert {source for _, source in heard} == {receiver.edge.address}
    assert records_in(numbered(heard)) == market_records(frames)
    status = receiver.edge.status()
    assert status["packets"] == len(heard) - 1  # the first is the heartbeat of the start
    assert status["bytes"] == sum(len(datagram) for datagram, _ in heard[1:])
    assert status["unsent"] == {}


def test_two_receivers_of_a_region_send_the_same_numbered_bytes(start: Callable[..., Receiver], west: Ear) -> None:
    one, other = start("a-1"), start("b-1")
    for frame in make_frames(40):
        one.release(frame)
        one.step()
        other.release(frame)
    other.step()
    heard = west.all()
    mine = numbered([each for each in heard if each[1] == one.edge.address])
    assert mine == numbered([each for each in heard if each[1] == other.edge.address])


def test_a_silent_edge_is_heard_at_once_and_every_second(
    start: Callable[..., Receiver], west: Ear, clock: Clock
) -> None:
    receiver = start("a-1")
    assert [mold.decode(datagram) for datagram, _ in west.all()] == [Heartbeat(MAIN, 1)]
    receiver.step()
    assert west.all() == []
    assert receiver.edge.wake_ns == T0 + SECOND
    clock.now += SECOND
    receiver.step()
    assert [mold.decode(datagram) for datagram, _ in west.all()] == [Heartbeat(MAIN, 1)]


def test_sessions_end_only_when_asked_and_several_times(
    start: Callable[..., Receiver], west: Ear, clock: Clock
) -> None:
    receiver = start("a-1")
    frames = make_frames(3)
    receiver.release(frames[0])
    receiver.edge.end_sessions()
    for _ in range(10):
        receiver.step()
        clock.now += END_EVERY_NS
    receiver.release(frames[1])  # the ring goes on; nothing of it is sent
    ends = [each for each in map(mold.decode, (datagram for datagram, _ in west.all())) if type(each) is EndOfSession]
    assert ends == [EndOfSession(MAIN, receiver.edge.server.feed.next_sequences[MAIN])] * END_TIMES
    receiver.stop()
    assert all(type(mold.decode(datagram)) is not EndOfSession for datagram, _ in west.all())
    receiver.start()
    assert receiver.edge.server.feed.slot == frames[1].slot


def test_the_sessions_name_is_the_stripes() -> None:
    assert stripe_session(Stripe("main", 0, TimingRules())) == b"main      "
    assert stripe_session(Stripe("a-very-long-name", 12, TimingRules())) == b"a-very-~12"


# -- answers ----------------------------------------------------------------------------------------------


def test_what_was_sent_can_be_asked_for_where_it_came_from(start: Callable[..., Receiver], west: Ear) -> None:
    receiver = start("a-1")
    for frame in make_frames(20):
        receiver.release(frame)
    sent = records_in(numbered(west.all()))
    answer = ask(receiver.edge, RetransmitRequest(MAIN, 3, 5))
    assert [each for packet in answer for each in each_record(packet.payload)] == sent[2:7]
    status = receiver.edge.status()
    assert (status["requests"], status["retransmitted"], status["refused"]) == (1, len(answer), {})


def test_refusals_are_counted_by_reason(start: Callable[..., Receiver]) -> None:
    edge = start("a-1").edge
    assert ask(edge, RetransmitRequest(MAIN, 1, 5)) == []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as customer:
        customer.sendto(b"what?", edge.address)
        customer.sendto(bytes(4000), edge.address)
    edge.step(edge.filenos, T0)
    assert edge.status()["refused"] == {"unknown session": 1, "too short": 1, "bad field": 1}
    assert edge.status()["requests"] == 3


def test_requests_are_bounded_in_one_turn(start: Callable[..., Receiver]) -> None:
    edge = start("a-1").edge
    for _ in range(EdgeConfig().max_requests + 5):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as customer:
            customer.sendto(b"?", edge.address)
    edge.step(edge.filenos, T0)
    assert edge.status()["requests"] == EdgeConfig().max_requests
    edge.step(edge.filenos, T0)
    assert edge.status()["requests"] == EdgeConfig().max_requests + 5


class Customer:
    """A socket that asks."""

    def __init__(self, edge: EdgeService) -> None:
        self.edge = edge
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self.socket.bind((LOOPBACK, 0))
        self.socket.setblocking(False)

    def ask(self, sequence: int, messages: int) -> None:
        self.socket.sendto(mold.encode(RetransmitRequest(MAIN, sequence, messages)), self.edge.address)

    def heard(self) -> int:
        """How many packets have come since."""
        found = 0
        while True:
            try:
                self.socket.recv(65_535)
            except BlockingIOError:
                return found
            found += 1


@pytest.fixture
def customers(start: Callable[..., Receiver]) -> Iterator[tuple[Receiver, list[Customer]]]:
    receiver = start("a-1")
    made = [Customer(receiver.edge) for _ in range(12)]
    yield receiver, made
    for each in made:
        each.socket.close()


def test_what_several_customers_miss_is_sent_once_to_the_group(
    customers: tuple[Receiver, list[Customer]], west: Ear
) -> None:
    receiver, several = customers
    for frame in make_frames(20):
        receiver.release(frame)
    receiver.step()
    sent = numbered(west.all())
    for each in several:
        each.ask(1, 5)
    receiver.step()
    assert [each.heard() for each in several] == [1] + [0] * 11
    answers = [mold.decode(datagram) for datagram, _ in west.all()]
    assert [(each.sequence, each.records) for each in answers if isinstance(each, EdgePacket)] == [(1, 5)]
    assert len(answers) == 1
    status = receiver.edge.status()
    assert (status["requests"], status["shared"], status["to_group"], status["retransmitted"]) == (12, 11, 1, 2)
    assert len(sent) > 10


def test_a_flood_of_requests_leaves_releases_and_other_customers_alone(
    customers: tuple[Receiver, list[Customer]], west: Ear, clock: Clock
) -> None:
    receiver, (flooding, other, *_) = customers
    frames = make_frames(60)
    for frame in frames[:20]:
        receiver.release(frame)
    receiver.step()
    last = max(numbered(west.all()))
    answers = 0
    desk = receiver.edge.server._policy
    for number, frame in enumerate(frames[20:]):
        for _ in range(200):
            flooding.ask(1, 65_535)
        asked = number % 10 == 0
        if asked:
            other.ask(last, 1)
        before = receiver.edge.status()["requests"]
        receiver.release(frame)
        assert west.all(), "sent before any request is looked at"
        clock.now += SLOT_NS
        receiver.step()
        assert receiver.edge.status()["requests"] - before <= EdgeConfig().max_read
        if asked:
            answers += min(1, other.heard())
    assert answers == 4, "answered in the turn in which it asked"
    most = desk.config.burst + desk.config.requests_a_second * 40 * SLOT_NS // SECOND
    assert flooding.heard() <= 8 * most
    assert receiver.edge.status()["refused"]["too fast"] > 5_000


# -- lines ------------------------------------------------------------------------------------------------


def test_a_line_is_sent_to_by_its_holder_alone_and_taken_over(network: Network, tmp_path: Path, clock: Clock) -> None:
    """The customer of one line sees the same numbered bytes from another address, and knows at once whom to ask."""
    west, east = network.edge.groups
    lines = (replace(west, line="a"), replace(east, region="west", line="b", ttl=3))
    network = replace(network, edge=replace(network.edge, groups=lines))
    held: dict[str, tuple[str, ...]] = {"a-1": (), "b-1": (), "c-1": ()}
    ears = [Ear(group.address, group.port) for group in lines]

    def begin(name: str) -> Receiver:
        return Receiver(network, name, tmp_path, clock, held=lambda _: held[name])

    receivers = {name: begin(name) for name in held}

    def turn(frame: Frame, *alive: str) -> list[set[tuple[str, int]]]:
        for name in alive:
            receivers[name].step()
            receivers[name].release(frame)
        found = [ear.all() for ear in ears]
        for heard in found:
            for datagram, source in heard:
                packet = mold.decode(datagram)
                if isinstance(packet, EdgePacket):
                    assert sent.setdefault(packet.sequence, datagram) == datagram
                assert source in addresses
        return [{source for _, source in heard} for heard in found]

    def groups(name: str) -> list[str]:
        found = receivers[name].edge.status()["groups"]
        assert isinstance(found, list)
        return found

    sent: dict[int, bytes] = {}
    addresses = {each.edge.address: name for name, each in receivers.items()}
    own = {name: {each.edge.address} for name, each in receivers.items()}
    frames = iter(make_frames(20))
    try:
        assert turn(next(frames), *receivers) == [set(), set()], "no line is assigned"
        held |= {"a-1": ("west",), "b-1": ("east",)}
        assert turn(next(frames), *receivers) == [own["a-1"], own["b-1"]]
        assert (groups("a-1"), groups("b-1"), groups("c-1")) == (["west"], ["east"], [])
        held |= {"c-1": ("west",)}  # a-1 does not answer any more
        heard = turn(next(frames), "b-1", "c-1")
        assert heard == [own["c-1"], own["b-1"]], "the line is assigned to another one"
        assert receivers["b-1"].edge._socket_ttl == 3
        held |= {"c-1": ()}
        assert turn(next(frames), "b-1", "c-1") == [set(), own["b-1"]], "it is given back"
    finally:
        for each in receivers.values():
            each.stop()
        for ear in ears:
            ear.close()


# -- snapshots --------------------------------------------------------------------------------------------


def read_snapshot(receiver: Receiver) -> bytes:
    with socket.create_connection(receiver.edge.address, timeout=5) as customer:
        content = b""
        for _ in range(1_000):
            receiver.step()
            customer.settimeout(0.05)
            try:
                part = customer.recv(1 << 20)
            except TimeoutError:
                continue
            if not part:
                return content
            content += part
    raise AssertionError("the snapshot does not end")


def test_a_snapshot_has_the_last_price_of_each_and_where_sessions_stand(start: Callable[..., Receiver]) -> None:
    receiver = start("a-1")
    frames = make_frames(30)
    for frame in frames:
        receiver.release(frame)
        receiver.step()
    snapshot = decode_snapshot(read_snapshot(receiver))
    assert snapshot.timestamp_ns == frames[-1].timestamp_ns
    assert snapshot.next_global == receiver.tape.tip.next_sequence
    assert dict(snapshot.sessions) == receiver.edge.server.feed.next_sequences
    (trades,) = (batch.records for batch in split(snapshot.records) if batch.kind.name == "trade")
    last: dict[tuple[int, int], int] = {}
    for found in TapeReader(receiver.directory / "tape").frames():
        for batch in found.batches():
            if batch.kind.name == "trade":
                for record in batch.records:
                    last[int(record["instrument_id"]), int(record["publisher_id"])] = int(record["price"])
    keys = zip(trades["instrument_id"].tolist(), trades["publisher_id"].tolist(), strict=True)
    assert dict(zip(keys, trades["price"].tolist(), strict=True)) == last
    assert receiver.edge.status()["snapshots"] == 1


def test_a_customer_that_does_not_read_holds_up_nobody_and_is_dropped(
    start: Callable[..., Receiver], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver = start("a-1")
    monkeypatch.setattr(type(receiver.edge.server.feed), "snapshot", lambda _: bytes(64 << 20))
    with socket.create_connection(receiver.edge.address) as slow:
        for _ in range(2_000):
            receiver.step()
        assert receiver.edge._snapshots.wake_ns == clock.now + snapshot_server.CHECK_NS
        assert not select(receiver.edge.filenos, (), (), 0)[0], "it does not wake the loop"
        assert receiver.edge.status()["clients_dropped"] == 0
        clock.now += snapshot_server.CLIENT_SILENCE_NS
        receiver.step()
        assert receiver.edge.status()["clients_dropped"] == 1
        assert receiver.edge.status()["snapshots"] == 0
        del slow


def test_customers_that_go_away_are_dropped(start: Callable[..., Receiver], monkeypatch: pytest.MonkeyPatch) -> None:
    receiver = start("a-1")
    monkeypatch.setattr(type(receiver.edge.server.feed), "snapshot", lambda _: bytes(64 << 20))
    customers = [socket.create_connection(receiver.edge.address) for _ in range(32)]
    while len(receiver.edge._snapshots._clients) < len(customers):
        receiver.step()
    for each in customers:
        each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        each.close()
    while receiver.edge._snapshots._clients:
        receiver.step()
    assert receiver.edge.status()["clients_dropped"] == len(customers)


def test_more_customers_than_are_served_at_one_time_join_and_none_is_dropped(start: Callable[..., Receiver]) -> None:
    receiver = start("a-1")
    for frame in make_frames(30):
        receiver.release(frame)
        receiver.step()
    customers = [socket.create_connection(receiver.edge.address) for _ in range(snapshot_server.MAX_CLIENTS + 50)]
    found = dict.fromkeys(customers, b"")
    most = 0
    while reading := [each for each in customers if each.fileno() >= 0]:
        receiver.step()
        most = max(most, len(receiver.edge._snapshots._clients))
        for each in select(reading, (), (), 0)[0]:
            part = each.recv(1 << 20)
            found[each] += part
            if not part:
                each.close()
    assert most <= snapshot_server.MAX_CLIENTS
    (content,) = set(found.values())
    assert decode_snapshot(content).next_global == receiver.tape.tip.next_sequence
    status = receiver.edge.status()
    assert (status["snapshots"], status["clients_dropped"]) == (len(customers), 0)
    assert receiver.edge._snapshots.wake_ns is None


# -- starts -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_killed_anywhere_it_sends_the_same_bytes_under_the_same_numbers(
    seed: int, start: Callable[..., Receiver], west: Ear
) -> None:
    chance = Random(seed)
    steady, killed = (start(name, config=EdgeConfig(save_frames=7)) for name in ("a-1", "b-1"))
    frames = make_frames(60, seed=seed)
    addresses = {killed.edge.address}
    for frame in frames:
        steady.release(frame)
        steady.step()
        how = chance.random()
        if how < 0.1:  # between the edge and the tape
            killed.release(frame, to_tape=False)
            killed.kill()
            killed.start()
        elif how < 0.15:
            killed.stop()
            killed.start()
        addresses.add(killed.edge.address)
        killed.release(frame)
        if chance.random() < 0.5:
            killed.step()
    steady.step()
    killed.step()
    heard = west.all()
    wanted = numbered([each for each in heard if each[1] == steady.edge.address])
    assert numbered([each for each in heard if each[1] in addresses - {steady.edge.address}]) == wanted
    assert records_in(wanted) == market_records(frames)
    assert steady.edge.server.feed.snapshot() == killed.edge.server.feed.snapshot()
    assert len(addresses) > 1


def test_after_a_restart_customers_can_ask_for_what_was_sent_before(start: Callable[..., Receiver], west: Ear) -> None:
    receiver = start("a-1", config=EdgeConfig(save_frames=10))
    for frame in make_frames(55):
        receiver.release(frame)
        receiver.step()
    packets = numbered(west.all())
    receiver.stop()
    receiver.start()
    held = receiver.edge.server.feed.retransmitter.held(MAIN)
    assert held is not None
    first = held[0]
    assert first < sorted(packets)[-10]
    answer = ask(receiver.edge, RetransmitRequest(MAIN, first, 3))
    assert [each for packet in answer for each in each_record(packet.payload)][:1] == each_record(
        packets[first][mold.HEADER_SIZE + mold.LENGTH_SIZE :][: packets[first][mold.HEADER_SIZE + 2] * 4]
    )


def restored(directory: Path, plan: SessionMap) -> dict[bytes, int]:
    archive = EdgeFiles(directory).restore(Feed(plan), 1_000_000)
    archive.close()
    return archive.live.next_sequences


def feed_at(directory: Path, network: Network) -> dict[bytes, int]:
    return restored(directory, everything_in_one(network.stripe()))


def test_a_state_that_is_missing_damaged_or_of_another_tape_is_made_anew(
    start: Callable[..., Receiver], network: Network, tmp_path: Path
) -> None:
    one, other = start("a-1"), start("b-1")
    for frame in make_frames(20):
        one.release(frame)
    for frame in make_frames(20, seed=9):
        other.release(frame)
    one.stop()
    other.stop()
    state = one.directory / "edge" / "state"
    wanted = feed_at(one.directory, network)
    assert wanted == one.edge.server.feed.next_sequences
    content = state.read_bytes()
    for wrong in (None, b"", content[:-1], (other.directory / "edge" / "state").read_bytes()):
        state.unlink(missing_ok=True)
        if wrong is not None:
            state.write_bytes(wrong)
        assert feed_at(one.directory, network) == wanted
    state.write_bytes(content)
    later = restored(one.directory, SessionMap({1: MAIN}, mold.session_name("rest")))
    assert set(later) == {MAIN, mold.session_name("rest")}


def test_where_the_tape_has_lost_its_beginning_the_state_is_needed_and_another_receivers_will_do(
    start: Callable[..., Receiver], network: Network
) -> None:
    one, other = start("a-1", records_per_segment=50), start("b-1")
    for frame in make_frames(60):
        one.release(frame)
        other.release(frame)
    for receiver in (one, other):
        receiver.stop()
    with_beginning = feed_at(other.directory, network)
    writer = TapeWriter.open(one.directory / "tape", FIRST, records_per_segment=50)
    writer.retain(T0, max_bytes=1)
    writer.close()
    state = one.directory / "edge" / "state"
    assert feed_at(one.directory, network) == with_beginning
    state.unlink()
    with pytest.raises(TapeError, match="copy this file from another receiver"):
        feed_at(one.directory, network)
    shutil.copy(other.directory / "edge" / "state", state)
    assert feed_at(one.directory, network) == with_beginning


def test_a_state_that_cannot_be_saved_is_counted_and_nothing_else(start: Callable[..., Receiver]) -> None:
    receiver = start("a-1", config=EdgeConfig(save_frames=1))
    shutil.rmtree(receiver.directory / "edge")
    receiver.release(make_frames(1)[0])
    receiver.step()
    assert receiver.edge.status()["states_unsaved"] == 1
    (receiver.directory / "edge").mkdir()


# -- what can be in the way -------------------------------------------------------------------------------


def test_an_interface_that_is_not_here_is_one_sentence(network: Network, tmp_path: Path) -> None:
    TapeWriter.open(tmp_path / "tape", FIRST).close()
    with pytest.raises(NetError, match=r"the edge cannot open a socket on 203\.0\.113\.7"):
        EdgeService(network, "a-1", "main", tmp_path, "203.0.113.7", lambda: 0, T0)


def test_a_group_that_cannot_be_reached_is_one_sentence(
    start: Callable[..., Receiver], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*arguments: Any) -> tuple[int, int, int, int, bool]:
        return 0, 0, errno.ENETUNREACH, 0, arguments[5]

    monkeypatch.setattr(native, "send_many", unreachable)
    with pytest.raises(NetError, match="ip route add"):
        start("a-1")


def test_packets_that_the_kernel_refuses_are_counted_and_can_be_asked_for(
    start: Callable[..., Receiver], monkeypatch: pytest.MonkeyPatch, west: Ear
) -> None:
    receiver = start("a-1")
    west.all()

    def full(*arguments: Any) -> tuple[int, int, int, int, bool]:
        return 0, len(arguments[4]) // 4, errno.ENOBUFS, 0, arguments[5]

    frame = make_frames(1)[0]
    with monkeypatch.context() as patched:
        patched.setattr(native, "send_many", full)
        receiver.release(frame)
    assert west.all() == []
    assert sum(receiver.edge.status()["unsent"].values()) > 0
    assert receiver.edge.status()["packets"] == 0
    total = len(market_records([frame]))
    answer = ask(receiver.edge, RetransmitRequest(MAIN, 1, total))
    assert sum(packet.records for packet in answer) == total


def test_late_frames_are_paced_and_one_on_time_does_not_wait(
    start: Callable[..., Receiver], west: Ear, clock: Clock
) -> None:
    frames = make_frames(60)
    receiver = start("a-1", config=EdgeConfig(pace_rate=3_000_000, pace_burst=3_000))
    west.all()
    for frame in frames[:-1]:
        receiver.release(frame, late=True)
    behind = len(receiver.edge.server._backlog)
    assert behind > 20
    largest = max(len(out.buffer) for out, _ in receiver.edge.server._backlog)
    received = numbered(west.all())
    assert sum(map(len, received.values())) < 3_000 + largest
    receiver.release(frames[-1])
    at_once = numbered(west.all())
    assert at_once
    assert min(at_once) > max(received) + 1, "it went ahead of what waits"
    assert len(receiver.edge.server._backlog) == behind
    received |= at_once
    wakes = 0
    while receiver.edge.server._backlog:
        assert receiver.edge.wake_ns is not None
        clock.now = max(clock.now, receiver.edge.wake_ns)
        before = receiver.edge.server._backlog_bytes
        receiver.step()
        assert before - receiver.edge.server._backlog_bytes < 3_000 + largest
        received |= numbered(west.all())
        wakes += 1
    assert wakes > 3
    receiver.step()
    received |= numbered(west.all())
    assert records_in(received) == market_records(frames)
    assert receiver.edge.server._backlog_bytes == 0


def test_what_waits_is_bounded_and_sent_at_the_end(start: Callable[..., Receiver], west: Ear) -> None:
    frames = make_frames(60)
    receiver = start("a-1", config=EdgeConfig(pace_burst=1, max_backlog=10_000))
    for frame in frames:
        receiver.release(frame, late=True)
        assert receiver.edge.server._backlog_bytes <= 10_000
    assert receiver.edge.server._backlog
    receiver.edge.close()
    assert records_in(numbered(west.all())) == market_records(frames)


def test_watermarks_stand_where_the_ring_is_complete(start: Callable[..., Receiver], west: Ear) -> None:
    receiver = start("a-1")
    frame = make_frames(1)[0]
    receiver.complete_ns = frame.timestamp_ns - SLOT_NS
    receiver.step()
    assert all(type(mold.decode(datagram)) is Heartbeat for datagram, _ in west.all()), "no grid before the first frame"
    receiver.release(frame)
    receiver.complete_ns += 350_000_000
    receiver.step()
    packets = [mold.decode(datagram) for datagram, _ in west.all()]
    marks = [each for each in packets if isinstance(each, EdgePacket) and b"levelcast complete to" in each.payload]
    times = [int(np.frombuffer(each.payload[8:16], "<u8")[0]) for each in marks]
    first = (frame.timestamp_ns - 1) // 100_000_000 * 100_000_000 + 100_000_000
    assert times == [first + i * 100_000_000 for i in range(len(times))]
    assert len(times) in (3, 4)

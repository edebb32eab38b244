"""What has left the memory of an edge comes from its tape: every message under its old number, in small slices."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Hashable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

import levelcast
from levelcast.edge.server import archive as module
from levelcast.edge.server import checkpoints
from levelcast.edge.server.archive import Archive
from levelcast.edge.server.feed import Feed
from levelcast.edge.server.machine import DIG_GAP_NS, DIG_PATIENCE_NS
from levelcast.edge.server.packetizer import Outgoing
from levelcast.edge.server.plan_switch import PlanLimits
from levelcast.network import Network
from levelcast.node.edge_service import everything_in_one
from levelcast.node.edge_state_files import CHECKPOINTS, STATE
from levelcast.protocol.history import Frame
from levelcast.storage.tape.directory import first_sequence_of
from levelcast.storage.tape.stamps import frame_bytes
from levelcast.wire import mold
from levelcast.wire.channel_plan import plan_session, session_of
from levelcast.wire.mold import EdgePacket, Heartbeat, RetransmitRequest
from tests.edge_parts import each_record
from tests.net_edge_parts import Ear, Receiver, some_network
from tests.planned_parts import planned_tape
from tests.tape_parts import T0, make_frames

MAIN = mold.session_name("main")
CUSTOMER, OTHER = ("127.0.0.1", 9), ("127.0.0.1", 10)
SEGMENT = 100


@pytest.fixture(autouse=True)
def small_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "CHECKPOINT_FRAMES", 7)
    monkeypatch.setattr(checkpoints, "FRAMES_A_SESSION", 0)
    monkeypatch.setattr(module, "SLICE_BYTES", 4_000)


@pytest.fixture
def network() -> Network:
    found = some_network()
    edge = replace(found.edge, store_bytes=3 * 1_400)
    return replace(found, edge=edge, tape=replace(found.tape, segment_records=SEGMENT))


@pytest.fixture
def receiver(network: Network, tmp_path: Path) -> Iterator[Receiver]:
    made = Receiver(network, "a-1", tmp_path, lambda: T0, records_per_segment=SEGMENT)
    yield made
    made.stop()


@pytest.fixture
def west(network: Network) -> Iterator[Ear]:
    group = network.groups_of_region("west")[0]
    ear = Ear(group.address, group.port)
    yield ear
    ear.close()


def messages(datagrams: list[bytes]) -> dict[int, bytes]:
    """Every message by its number."""
    found: dict[int, bytes] = {}
    for datagram in datagrams:
        packet = mold.decode(datagram)
        if isinstance(packet, EdgePacket):
            found |= dict(enumerate(each_record(packet.payload), packet.sequence))
    return found


def play(receiver: Receiver, west: Ear, frames: list[Frame]) -> dict[int, bytes]:
    for frame in frames:
        receiver.release(frame)
        receiver.step()
    return messages([datagram for datagram, _ in west.all()])


def archive_of(receiver: Receiver) -> Archive:
    return receiver.edge.server.archive


def dig(archive: Archive, limit: int = 10_000) -> list[tuple[Hashable, Outgoing]]:
    """Work until nothing waits."""
    found = []
    for _ in range(limit):
        found += archive.work(T0)
        if not archive.is_busy:
            return found
    raise AssertionError("it does not end")


def answered(archive: Archive, first: int, count: int) -> dict[int, bytes]:
    request = RetransmitRequest(MAIN, first, count)
    assert archive.takes(request)
    assert archive.ask(request, CUSTOMER)
    ((customer, out),) = dig(archive)
    assert customer == CUSTOMER
    assert out.packets <= 8
    return messages(out.datagrams)


def test_any_message_that_was_sent_can_be_had(receiver: Receiver, west: Ear) -> None:
    sent = play(receiver, west, make_frames(150))
    archive = archive_of(receiver)
    held = receiver.edge.server.feed.retransmitter.held(MAIN)
    assert held is not None
    assert held[0] > len(sent) - 200
    chance = Random(1)
    for _ in range(60):
        first = chance.randrange(1, held[0])
        count = chance.choice((1, 5, 60, 65_535))
        found = answered(archive, first, count)
        assert min(found) == first
        assert found == {number: sent[number] for number in found}
        assert len(found) == count or len(found) > 50
    assert receiver.edge.status()["from_tape"] > 0
    assert not archive.takes(RetransmitRequest(MAIN, held[0], 5))
    assert len(archive._readings) == module.READINGS


@pytest.mark.parametrize("lost", [False, True])
def test_after_a_restart_too_and_without_the_file_of_marks(receiver: Receiver, west: Ear, lost: bool) -> None:
    sent = play(receiver, west, make_frames(150))
    before = len(archive_of(receiver).checkpoints)
    assert before > 20
    receiver.stop()
    if lost:
        (receiver.directory / CHECKPOINTS).unlink()
        (receiver.directory / STATE).with_name("state.before").unlink(missing_ok=True)
    receiver.start()
    archive = archive_of(receiver)
    assert len(archive.checkpoints) == before if not lost else len(archive.checkpoints) < before
    assert answered(archive, 400, 9) == {number: sent[number] for number in range(400, 409)}
    if lost:
        slices = archive.counts.slices
        archive.close()
        assert answered(archive, 400, 9) == {number: sent[number] for number in range(400, 409)}
        assert archive.counts.slices - slices < slices, "the first reading has made marks"


def test_damaged_marks_are_cut_off(receiver: Receiver, west: Ear) -> None:
    sent = play(receiver, west, make_frames(100))
    receiver.stop()
    path = receiver.directory / CHECKPOINTS
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content[:-3])
    receiver.start()
    for first in range(1, 300, 40):
        assert answered(archive_of(receiver), first, 3) == {number: sent[number] for number in range(first, first + 3)}


def test_marks_of_another_tape_are_not_believed(receiver: Receiver, west: Ear) -> None:
    play(receiver, west, make_frames(100))
    receiver.stop()
    shutil.rmtree(receiver.directory / "tape")
    marks = (receiver.directory / CHECKPOINTS).read_bytes()
    receiver.start()
    west.all()
    sent = play(receiver, west, make_frames(120, seed=9))
    receiver.stop()
    (receiver.directory / CHECKPOINTS).write_bytes(marks)
    receiver.start()
    for first in range(1, 300, 40):
        assert answered(archive_of(receiver), first, 3) == {number: sent[number] for number in range(first, first + 3)}


def test_the_file_of_marks_shrinks_with_the_tape(receiver: Receiver, west: Ear) -> None:
    sent = play(receiver, west, make_frames(150))
    path = receiver.directory / CHECKPOINTS
    receiver.tape.retain(T0, max_bytes=receiver.tape.size_bytes // 4)
    receiver.stop()
    before = path.stat().st_size
    receiver.start()
    assert path.stat().st_size < before / 2
    archive = archive_of(receiver)
    left = archive.checkpoints.first(MAIN, first_sequence_of(receiver.directory / "tape") or 0)
    assert left is not None
    assert answered(archive, left, 5) == {number: sent[number] for number in range(left, left + 5)}


def test_a_reading_that_nobody_wants_is_let_go(receiver: Receiver, west: Ear) -> None:
    play(receiver, west, make_frames(100))
    archive = archive_of(receiver)
    answered(archive, 5, 5)
    receiver.edge.step((), T0 + module.READING_IDLE_NS)
    assert len(archive._readings) == 1
    receiver.edge.step((), T0 + module.READING_IDLE_NS + 1)
    assert len(archive._readings) == 0


def test_gone_is_only_what_retention_has_taken_and_the_customer_is_told(receiver: Receiver, west: Ear) -> None:
    sent = play(receiver, west, make_frames(150))
    archive = archive_of(receiver)
    receiver.tape.retain(T0, max_bytes=receiver.tape.size_bytes // 2)
    left = archive.checkpoints.first(MAIN, first_sequence_of(receiver.directory / "tape") or 0)
    assert left is not None
    assert left > 100
    archive.ask(RetransmitRequest(MAIN, left - 1, 5), CUSTOMER)
    ((_, out),) = dig(archive)
    assert [mold.decode(each) for each in out.datagrams] == [Heartbeat(MAIN, left)]
    assert answered(archive, left, 5) == {number: sent[number] for number in range(left, left + 5)}
    assert receiver.edge.status()["refused"] == {"gone": 1}


def test_watermarks_behind_the_last_frame_can_be_had(receiver: Receiver, west: Ear) -> None:
    sent = play(receiver, west, make_frames(40))
    receiver.complete_ns += 10 * 10**9
    receiver.step()
    sent |= messages([datagram for datagram, _ in west.all()])
    held = receiver.edge.server.feed.retransmitter.held(MAIN)
    assert held is not None
    first = held[0] - 3
    assert all(b"levelcast complete" in sent[number] for number in range(first, held[1]))
    assert answered(archive_of(receiver), first, 3) == {number: sent[number] for number in range(first, first + 3)}


def test_customers_take_turns_and_each_has_so_many_waiting(receiver: Receiver, west: Ear) -> None:
    play(receiver, west, make_frames(100))
    archive = archive_of(receiver)
    for number in range(module.MAX_WAITING + 5):
        assert archive.ask(RetransmitRequest(MAIN, 1 + number, 1), CUSTOMER) == (number < module.MAX_WAITING)
    assert archive.ask(RetransmitRequest(MAIN, 1, 1), CUSTOMER), "it waits already"
    assert archive.ask(RetransmitRequest(MAIN, 2, 1), OTHER)
    assert archive.counts.too_many == 5
    order = [customer for customer, _ in dig(archive)]
    assert order[1] == OTHER
    assert len(order) == module.MAX_WAITING + 1
    for port in range(module.MAX_SUBSCRIBERS):
        assert archive.ask(RetransmitRequest(MAIN, 1, 1), ("10.0.0.1", port))
    assert not archive.ask(RetransmitRequest(MAIN, 1, 1), CUSTOMER)


def test_one_turn_reads_one_slice_and_none_when_the_ring_is_about_to_be_due(
    receiver: Receiver, west: Ear, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(receiver, west, make_frames(150))
    archive, edge = archive_of(receiver), receiver.edge
    monkeypatch.setattr(module, "SLICE_BYTES", 500)
    due_ns = T0 + DIG_GAP_NS // 2
    edge._ring_ns = lambda: due_ns
    edge.server._dug_ns = T0
    archive.ask(RetransmitRequest(MAIN, 300, 65_535), CUSTOMER)
    for _ in range(5):
        edge.step((), T0)
    assert archive.counts.slices == 0
    assert edge.wake_ns is not None
    assert edge.wake_ns > due_ns
    due_ns = T0 + 2 * DIG_GAP_NS
    for number in range(5):
        edge.step((), T0)
        assert archive.counts.slices == number + 1
        assert edge.wake_ns == T0
    due_ns = T0
    edge.step((), T0 + 10)
    assert archive.counts.slices == 5
    edge.step((), T0 + DIG_PATIENCE_NS)  # a ring that is always due
    assert archive.counts.slices == 6


def test_a_late_joiner_reads_from_the_beginning_of_the_tape_without_a_hole(
    receiver: Receiver, network: Network, west: Ear
) -> None:
    """Over real sockets, with a store of three packets, while the market goes on."""
    frames = make_frames(400)
    play(receiver, west, frames[:300])
    receiver.now = lambda: T0 + time.monotonic_ns()

    async def story() -> list[int]:
        found: list[int] = []

        async def read() -> None:
            async for batch in tape:
                found.extend(range(batch.sequence, batch.sequence + len(batch.records)))

        async with asyncio.timeout(60), levelcast.Subscriber(network, "west", start={"main": 1}) as tape:
            reading = asyncio.create_task(read())
            coming = iter(frames[300:])
            while tape.positions.get("main", 0) <= frames[-1].first_sequence:
                if frame := next(coming, None):
                    receiver.release(frame)
                else:
                    receiver.complete_ns += 10**9
                receiver.step()
                await asyncio.sleep(0.002)
            reading.cancel()
            assert tape.counts.lost == 0
            assert tape.counts.records == tape.positions["main"] - 1
        return found

    found = asyncio.run(story())
    assert found == sorted(set(found))
    sent = messages([datagram for datagram, _ in west.all()])
    marks = [number for number, record in sent.items() if b"levelcast complete to" in record]
    assert set(found) | set(marks) >= set(sent) - set(range(found[-1], max(sent) + 1))
    assert found[0] <= 2
    assert receiver.edge.status()["from_tape"] > 100


def test_the_sessions_of_plans_that_were_replaced_can_be_had_from_the_tape(
    network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PlanLimits, "of_network", lambda _: PlanLimits())
    tape = planned_tape(9, 4)
    receiver = Receiver(network, "a-1", tmp_path, lambda: T0, records_per_segment=SEGMENT)
    sent: dict[bytes, dict[int, bytes]] = {}
    whole = Feed(everything_in_one(network.stripe()), config=receiver.edge.server.feed.config)
    for frame in tape.frames:
        receiver.release(frame)
        receiver.step()
        for out in whole.release(frame, frame_bytes(frame), 0):
            sent.setdefault(out.session, {}).update(messages(out.datagrams))
    feed, archive = receiver.edge.server.feed, archive_of(receiver)
    feed.heartbeats(T0 * 2)  # old sessions are forgotten
    number = feed.plans.number
    assert number == 4
    old = [name for name in sent if name not in feed.next_sequences and name != plan_session(number, 0)]
    assert plan_session(2, 0) in old
    for name in old:
        assert feed.retransmitter.held(name) is None
        request = RetransmitRequest(name, 1, min(40, len(sent[name])))
        assert archive.takes(request)
        assert archive.ask(request, CUSTOMER)
        ((_, out),) = dig(archive)
        found = messages(out.datagrams)
        assert found
        assert found.items() <= sent[name].items()
        assert 1 in found
    for unknown in (session_of(9, 0, 0), session_of(2, 1, 0), mold.session_name("other")):
        assert not archive.takes(RetransmitRequest(unknown, 1, 1))
    assert archive.ask(RetransmitRequest(session_of(1, 0, 999), 1, 1), CUSTOMER)
    assert [out.records for _, out in dig(archive)] in ([], [0]), "it was never there"
    receiver.stop()

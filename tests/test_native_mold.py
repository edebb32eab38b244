"""The compiled module for MoldUDP64 against its twin in Python: the same answers to everything, sound and broken."""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterator
from itertools import accumulate, pairwise
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from levelcast import native, records
from levelcast.native import pure_mold as twin
from levelcast.records import record_places
from levelcast.wire import mold
from levelcast.wire.header import Malformed
from tests.conftest import lacking
from tests.test_native import damaged, payloads


@pytest.fixture(scope="module")
def compiled() -> ModuleType:
    try:
        from levelcast.native import _mold  # type: ignore[attr-defined]
    except ImportError:
        lacking("the compiled module: a C compiler at installation")
    found: ModuleType = _mold
    found.teach([(kind.rtype, kind.base_size, -1, -1) for kind in records.RECORD_TYPES])  # also where it is not chosen
    return found


class Numbers(NamedTuple):
    session: bytes
    sequence: int
    records: int
    size: int
    payload: bytes


@given(
    damaged(
        st.tuples(payloads().filter(bool), st.integers(1, 2**63)).map(
            lambda each: mold.encode_payload(mold.session_name("A b"), each[1], each[0], 1400)[0]
        )
    )
)
def test_a_mold_packet_is_opened_alike(compiled: ModuleType, datagram: bytes) -> None:
    ours = compiled.open_mold(datagram, Numbers)
    assert ours == twin.open_mold(datagram, Numbers)
    if ours is not None:
        assert mold.decode(datagram) == ours


def one_by_one(content: bytes, session: bytes, sequence: int, packet_bytes: int) -> list[bytes]:
    """The packets of the records of `content`, a record and a packet at a time."""
    packets: list[tuple[int, list[bytes]]] = []
    at, room = 0, 0
    while at < len(content):
        record = content[at : at + content[at] * 4]
        if not packets or room < len(record) + 2 or len(packets[-1][1]) == 0xFFFE:
            sequence += len(packets[-1][1]) if packets else 0
            packets.append((sequence, []))
            room = packet_bytes - 20
        packets[-1][1].append(len(record).to_bytes(2, "big") + record)
        room -= len(record) + 2
        at += len(record)
    return [struct.pack(">10sQH", session, first, len(blocks)) + b"".join(blocks) for first, blocks in packets]


def bound(payload: bytes) -> bytes:
    """The same records, each of an instrument."""
    content = bytearray(payload)
    for place, _ in zip(*record_places(content), strict=True):
        content[place + 4] = 7
    return bytes(content)


SESSION = mold.session_name("A b")


@given(damaged(payloads()), st.booleans(), st.booleans(), st.sampled_from([1042, 1400, 9000, 65_507]))
def test_trains_are_made_alike_and_as_packets_one_by_one(
    compiled: ModuleType, payload: bytes, is_bound: bool, every: bool, packet_bytes: int
) -> None:
    if is_bound and native.count(payload) > 0:
        payload = bound(payload)
    ours = compiled.mold_train(payload, SESSION, 5, packet_bytes, every)
    assert ours == twin.mold_train(payload, SESSION, 5, packet_bytes, every)
    if native.count(payload) >= 0 and (is_bound or every):
        assert ours is not None
    if ours is not None:
        assert mold.split_train(*ours[1:]) == one_by_one(payload, SESSION, 5, packet_bytes)
        assert ours[0] == len(record_places(payload)[0])


def test_a_packet_has_no_more_records_than_its_count_can_say(compiled: ModuleType) -> None:
    content = b"\1\0\0\0" * 70_000
    for packet_bytes in (1_042, 65_507):
        made = compiled.mold_train(content, SESSION, 1, packet_bytes, True)
        assert made == twin.mold_train(content, SESSION, 1, packet_bytes, True)
        assert mold.split_train(*made[1:]) == one_by_one(content, SESSION, 1, packet_bytes)


# -- blocks -----------------------------------------------------------------------------------------------


@st.composite
def arrivals(draw: st.DrawFn) -> list[bytes]:
    """Packets of a few sessions in runs, some of them lost, doubled, exchanged, changed, or of another kind."""
    found: list[bytes] = []
    for name in draw(st.lists(st.sampled_from(["A", "A", "B"]), min_size=1, max_size=4)):
        first = draw(st.sampled_from([1, 1, 40, 2**64 - 200]))
        train = mold.encode_payload(mold.session_name(name), first, draw(payloads()) * draw(st.integers(1, 9)))
        found += train
        if len(train) > 1 and len(found) % 2:
            found.append(mold.encode(mold.Heartbeat(mold.session_name(name), first)))
    for _ in range(draw(st.integers(0, 3)) if found else 0):
        at, other = draw(st.integers(0, len(found) - 1)), draw(st.integers(0, len(found) - 1))
        what = draw(st.integers(0, 3))
        if what == 0:
            found[at], found[other] = found[other], found[at]
        elif what == 1:
            found.insert(at, found[other])
        elif what == 2:
            found[at] = draw(damaged(st.just(found[at])))
        elif len(found) > 1:
            del found[at]
    return found


def said_by(datagrams: list[bytes]) -> list[Any]:
    """What the codec reads from packets of one size and allowed records, one by one; others as they are."""
    found: list[Any] = []
    for datagram in datagrams:
        try:
            packet = mold.decode(datagram)
        except Malformed:
            packet = None
        if isinstance(packet, mold.EdgePacket) and packet.size and native.count(packet.payload) == packet.records:
            found += [
                (packet.session, packet.sequence + i, packet.payload[i * packet.size : (i + 1) * packet.size])
                for i in range(packet.records)
            ]
        else:
            found.append(datagram)
    return found


def said_by_blocks(joined: list[Any]) -> list[Any]:
    found: list[Any] = []
    for item in joined:
        if isinstance(item, bytes):
            found.append(item)
            continue
        assert type(item) is mold.Block
        assert len(item.payload) == item.records * item.size
        found += [
            (item.session, item.sequence + i, item.payload[i * item.size : (i + 1) * item.size])
            for i in range(item.records)
        ]
    return found


@given(arrivals())
def test_packets_are_joined_alike_and_nothing_is_added_or_lost(compiled: ModuleType, datagrams: list[bytes]) -> None:
    joined = compiled.join_molds(datagrams, mold.Block)
    assert joined == twin.join_molds(datagrams, mold.Block)
    assert said_by_blocks(joined) == said_by(datagrams)
    assert sum(1 if isinstance(each, bytes) else each.packets for each in joined) == len(datagrams)
    for one, other in pairwise(joined):
        if isinstance(one, mold.Block) and isinstance(other, mold.Block):
            follows = one.sequence + one.records == other.sequence and one.packets < twin.BLOCK_PACKETS
            assert (one.session, one.size) != (other.session, other.size) or not follows


@given(st.lists(st.binary(max_size=90), max_size=5))
def test_no_bytes_are_an_error_to_join(compiled: ModuleType, datagrams: list[bytes]) -> None:
    assert compiled.join_molds(datagrams, mold.Block) == twin.join_molds(datagrams, mold.Block)


def test_a_block_is_bounded(compiled: ModuleType) -> None:
    many = mold.encode_payload(SESSION, 1, records.trades(1042 // 66 * 600).tobytes(), 1042)
    large = mold.encode_payload(SESSION, 1, records.trades(30_000).tobytes(), 65_507)
    for datagrams in (many, large):
        joined = compiled.join_molds(datagrams, mold.Block)
        assert joined == twin.join_molds(datagrams, mold.Block)
        assert all(each.packets <= twin.BLOCK_PACKETS and len(each.payload) <= twin.BLOCK_BYTES for each in joined)
        assert said_by_blocks(joined) == said_by(datagrams)


# -- the last records -------------------------------------------------------------------------------------


def kinds_of_latest() -> tuple[tuple[int, int, bytes, int, int], ...]:
    found = []
    for kind in records.RECORD_TYPES[:4]:
        fields = kind.dtype.fields
        assert fields is not None
        where = fields["action"][1] if "action" in fields else -1
        found.append((kind.rtype, kind.base_size, kind.blank.tobytes(), where, ord("T")))
    return tuple(found)


@st.composite
def many_records(draw: st.DrawFn) -> bytes:
    """Records of a few instruments and floors, some of them bare or with a longer tail."""
    found = b""
    for _ in range(draw(st.integers(0, 12))):
        kind = draw(st.sampled_from(records.RECORD_TYPES))
        record = bytearray(kind.blank.tobytes())
        size = draw(st.sampled_from([kind.base_size, len(record), len(record), len(record) + 8]))
        record = (record + bytes(range(8)))[:size]
        record[0] = size // 4
        record[2], record[4] = draw(st.integers(0, 2)), draw(st.integers(0, 2))
        record[draw(st.integers(8, size - 1))] = draw(st.integers(0, 255))
        found += bytes(record) * draw(st.integers(1, 3))
    return found


@given(st.lists(damaged(many_records()), max_size=4))
def test_the_last_records_are_kept_alike(compiled: ModuleType, contents: list[bytes]) -> None:
    ours, theirs = compiled.LastRecords(kinds_of_latest()), twin.LastRecords(kinds_of_latest())
    for content in contents:
        assert ours.update(content) == theirs.update(content)
        assert ours.payload() == theirs.payload()
        assert len(ours) == len(theirs)


def test_many_last_records_are_kept_alike(compiled: ModuleType) -> None:
    ours, theirs = compiled.LastRecords(kinds_of_latest()), twin.LastRecords(kinds_of_latest())
    chance = np.random.default_rng(1)
    for count in (10, 3_000, 5_000, 100):
        batch = records.trades(count)
        batch["instrument_id"] = chance.integers(0, 4_000, count)
        batch["publisher_id"] = chance.integers(0, 3, count)
        batch["price"] = np.arange(count)
        batch["action"] = chance.choice([b"T", b"T", b"C"], count)
        assert ours.update(batch.tobytes()) == theirs.update(batch.tobytes()) is True
        assert ours.payload() == theirs.payload()
        assert len(ours) == len(theirs)
    assert len(ours) > 2_000


@pytest.mark.parametrize(
    "bad",
    [
        [(0, 48, bytes(64), -1, 0)],
        ((256, 48, bytes(64), -1, 0),),
        ((0, 4, bytes(64), -1, 0),),
        ((0, 68, bytes(64), -1, 0),),
        ((0, 48, bytes(1024), -1, 0),),
        ((0, 48, bytes(63), -1, 0),),
        ((0, 48, bytes(64), 48, 0),),
        ((0, 48, bytes(64), -2, 0),),
        ((0, 48, bytes(64), -1, 256),),
        ((0, 48, bytes(64), -1, 0),) * 2,
        tuple((each, 48, bytes(64), -1, 0) for each in range(17)),
        (None,),
    ],
)
def test_kinds_that_cannot_be_kept(compiled: ModuleType, bad: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        compiled.LastRecords(bad)
    if isinstance(bad, tuple):
        with pytest.raises((TypeError, ValueError)):
            twin.LastRecords(bad)


@pytest.mark.parametrize(
    "name", ["open_mold", "mold_train", "send_many", "join_molds", "drain_molds", "teach", "LastRecords"]
)
def test_nonsense_is_an_exception_and_no_crash(compiled: ModuleType, name: str) -> None:
    function: Any = getattr(compiled, name)
    for arguments in ((), (None,), (1, 2, 3), ("x", 0, int), ((1,), 2, 3)):
        with pytest.raises((TypeError, ValueError)):
            function(*arguments)


# -- sending ----------------------------------------------------------------------------------------------


def test_neighbours_of_one_size_are_a_train_and_the_last_may_be_shorter() -> None:
    assert list(twin.trains([3, 3, 2, 3, 5, 5, 5, 1, 1])) == [(0, 3), (3, 4), (4, 8), (8, 9)]
    assert list(twin.trains([0, 0, 3, 0])) == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert list(twin.trains([])) == []


def test_a_train_is_no_longer_than_the_kernel_takes() -> None:
    assert list(twin.trains([1] * 130)) == [(0, 64), (64, 128), (128, 130)]
    assert list(twin.trains([30_000] * 5)) == [(0, 2), (2, 4), (4, 5)]


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
    ):
        receiver.bind(("127.0.0.1", 0))
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        receiver.setblocking(False)
        yield sender, receiver


def ends_of(datagrams: list[bytes]) -> bytes:
    return b"".join(struct.pack("<I", end) for end in accumulate(map(len, datagrams)))


def received(receiver: socket.socket) -> list[bytes]:
    found = []
    while True:
        try:
            found.append(receiver.recv(65_536))
        except BlockingIOError:
            return found


SIZES = st.lists(st.one_of(st.integers(0, 40), st.sampled_from([1, 7, 7, 7, 1400, 1400, 30_000])), max_size=12)


@given(runs=st.lists(st.tuples(SIZES, st.integers(1, 30)), max_size=3), offload=st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_many_datagrams_are_sent_alike_and_in_order(
    compiled: ModuleType, pair: tuple[socket.socket, socket.socket], runs: list[tuple[list[int], int]], offload: bool
) -> None:
    sender, receiver = pair
    sizes = [size for some, times in runs for size in some * times]
    while sum(sizes) > 1 << 20 or len(sizes) > 300:
        sizes.pop()
    datagrams = [bytes([number % 256]) * size for number, size in enumerate(sizes)]
    for module in (compiled, twin):
        told = module.send_many(
            sender.fileno(), *receiver.getsockname(), b"".join(datagrams), ends_of(datagrams), offload
        )
        assert received(receiver) == datagrams
        expected = sum(last - first > 1 for first, last in twin.trains(sizes)) if offload else 0
        assert told == (len(sizes), 0, 0, expected, offload)


@pytest.mark.parametrize("pure", [False, True])
@pytest.mark.parametrize("offload", [False, True])
def test_what_finds_no_room_is_refused_and_the_others_go_on(compiled: ModuleType, pure: bool, offload: bool) -> None:
    module = twin if pure else compiled
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.bind(("127.0.0.1", 0))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as gone:
            gone.bind(("127.0.0.1", 0))
            address = gone.getsockname()
        sender.connect(address)  # so that it hears that nobody is there
        sender.send(b"x")
        told = module.send_many(sender.fileno(), *address, b"abc", ends_of([b"a", b"bc"]), offload)
        assert told == (1, 1, errno.ECONNREFUSED, 0, offload)


@pytest.mark.parametrize("pure", [False, True])
@pytest.mark.parametrize("offload", [False, True])
def test_another_error_ends_it(compiled: ModuleType, pure: bool, offload: bool) -> None:
    module = twin if pure else compiled
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        datagrams = [b"a", bytes(66_000), b"b"]
        told = module.send_many(sender.fileno(), "127.0.0.1", 9, b"".join(datagrams), ends_of(datagrams), offload)
        assert told == (1, 0, errno.EMSGSIZE, 0, offload)


@pytest.mark.parametrize("pure", [False, True])
def test_where_the_kernel_takes_no_trains_each_goes_alone(
    compiled: ModuleType, pair: tuple[socket.socket, socket.socket], pure: bool
) -> None:
    module = twin if pure else compiled
    sender, receiver = pair
    SO_NO_CHECK = 11  # noqa: N806 - the native's name; the native refuses to segment without checksums
    sender.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, 1)
    datagrams = [bytes([number]) * 100 for number in range(100)]
    told = module.send_many(sender.fileno(), *receiver.getsockname(), b"".join(datagrams), ends_of(datagrams), True)
    assert received(receiver) == datagrams
    assert told == (100, 0, 0, 0, False)


@pytest.mark.parametrize("pure", [False, True])
def test_ends_that_are_not_in_the_buffer_or_not_in_order_are_refused(compiled: ModuleType, pure: bool) -> None:
    module = twin if pure else compiled
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for buffer, ends in ((b"abc", b"\4\0\0\0"), (b"abc", b"\2\0\0\0\1\0\0\0"), (b"abc", b"\1\0\0")):
            with pytest.raises(ValueError):
                module.send_many(sender.fileno(), "127.0.0.1", 9, buffer, ends, True)
        for host, port in (("nowhere", 9), ("127.0.0.1", 65_536), ("127.0.0.1", -1)):
            with pytest.raises(ValueError):
                module.send_many(sender.fileno(), host, port, b"abc", b"\1\0\0\0", True)
        assert module.send_many(sender.fileno(), "127.0.0.1", 9, b"", b"", True) == (0, 0, 0, 0, True)


# -- draining ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pure", [False, True])
@pytest.mark.parametrize("trains", [False, True])
def test_a_socket_is_drained_in_blocks(compiled: ModuleType, pure: bool, trains: bool) -> None:
    module = twin if pure else compiled
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other,
    ):
        for each in (receiver, one, other):
            each.bind(("127.0.0.1", 0))
        if trains:
            try:
                receiver.setsockopt(socket.IPPROTO_UDP, 104, 1)
            except OSError:
                pytest.skip("this kernel has no segmentation offload")
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        here, there, elsewhere = receiver.getsockname(), one.getsockname(), other.getsockname()
        payload = records.trades(200).tobytes()
        train = mold.encode_payload(SESSION, 1, payload)
        heartbeat = mold.encode(mold.Heartbeat(SESSION, 201))
        sent = [*train, heartbeat]
        for sender in (one, other):
            told = compiled.send_many(sender.fileno(), *here, b"".join(sent), ends_of(sent), trains)
            assert told[:3] == (len(sent), 0, 0)
        found = []
        while some := module.drain_molds(receiver.fileno(), 40, mold.Block):
            found += some
        assert said_by_blocks([item for item, _ in found]) == said_by(sent) * 2
        assert [item for item, _ in found if isinstance(item, bytes)] == [heartbeat] * 2
        half = [heartbeat in each for each in found].index(True) + 1
        assert [source for _, source in found] == [there] * half + [elsewhere] * (len(found) - half)
        assert all(item.packets > 5 for item, _ in found if isinstance(item, mold.Block))
        assert module.drain_molds(receiver.fileno(), 40, mold.Block) == []
        for _ in range(3):
            one.sendto(b"", here)
        assert module.drain_molds(receiver.fileno(), 2, mold.Block) == [(b"", there)] * 2
        assert module.drain_molds(receiver.fileno(), 0, mold.Block) == []
        assert module.drain_molds(receiver.fileno(), 9, mold.Block) == [(b"", there)]

"""The compiled module against its pure_core in Python: the same answers to everything, sound and broken."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelcast import native, records
from levelcast.native import layout, pure_core
from levelcast.native.layout import DATA_BODY as BODY
from levelcast.native.layout import KIND_DATA
from levelcast.storage.tape.stamps import packet_fault
from levelcast.wire.codec import decode
from levelcast.wire.header import Malformed, seal_datagram
from levelcast.wire.messages import Data, Packet
from levelcast.wire.packets import DATA_OVERHEAD, join, open_packets, seal, singles
from tests.conftest import lacking


@pytest.fixture(scope="module")
def compiled() -> ModuleType:
    try:
        from levelcast.native import _core  # type: ignore[attr-defined]
    except ImportError:
        lacking("the compiled module: a C compiler at installation")
    found: ModuleType = _core
    return found


MAKERS = (records.trades, records.quotes, records.orders, records.instruments, records.mappings, records.statuses)


@st.composite
def payloads(draw: st.DrawFn) -> bytes:
    """Records of all types, mixed or not."""
    runs = draw(st.lists(st.tuples(st.sampled_from(MAKERS), st.integers(1, 5)), max_size=4))
    return b"".join(make(count).tobytes() for make, count in runs)


@st.composite
def damaged(draw: st.DrawFn, whole: st.SearchStrategy[bytes]) -> bytes:
    """Bytes as they should be, or with a few of them changed, or cut off."""
    content = bytearray(draw(whole))
    for _ in range(draw(st.integers(0, 3))):
        if content:
            content[draw(st.integers(0, len(content) - 1))] = draw(st.integers(0, 255))
    return bytes(content[: draw(st.integers(0, len(content)))] if draw(st.booleans()) else content)


@given(content=st.binary(max_size=400), value=st.integers(0, 2**32 - 1))
def test_the_checksum_is_zlibs(compiled: ModuleType, content: bytes, value: int) -> None:
    assert compiled.crc32(content, value) == pure_core.crc32(content, value)
    assert compiled.crc32(memoryview(content)) == pure_core.crc32(content)


def test_the_checksum_of_every_length_up_to_three_kilobytes(compiled: ModuleType) -> None:
    content = os.urandom(3 * 1024)
    assert all(compiled.crc32(content[:size]) == pure_core.crc32(content[:size]) for size in range(3 * 1024 + 1))
    assert all(
        compiled.crc32(content[:size], size) == pure_core.crc32(content[:size], size) for size in range(0, 3072, 7)
    )


@given(damaged(payloads()))
def test_records_are_counted_alike(compiled: ModuleType, payload: bytes) -> None:
    assert compiled.count(payload) == pure_core.count(payload)
    assert compiled.count_fresh(payload) == pure_core.count_fresh(payload)
    assert compiled.record_ends(payload) == pure_core.record_ends(payload)


@given(damaged(payloads()), st.integers(1, 2**64 - 1000), st.integers(0, 2**64 - 1))
def test_records_are_stamped_alike_and_the_stamp_comes_off(
    compiled: ModuleType, payload: bytes, sequence: int, ts_ns: int
) -> None:
    ours, theirs = bytearray(payload), bytearray(payload)
    assert compiled.stamp(ours, sequence, ts_ns) == pure_core.stamp(theirs, sequence, ts_ns)
    assert ours == theirs
    assert compiled.unstamp(ours) == pure_core.unstamp(theirs)
    assert ours == theirs
    if compiled.count_fresh(payload) >= 0:
        assert ours == payload


@given(st.lists(damaged(payloads()), max_size=4), st.integers(-1, 1), st.integers(1, 2**40))
def test_frames_are_assembled_alike(compiled: ModuleType, contents: list[bytes], off: int, sequence: int) -> None:
    counts = [max(0, native.count(content)) for content in contents]
    packets = [Packet(1, 1, i + 1, counts[i], content) for i, content in enumerate(contents)]
    if packets:
        packets[-1] = packets[-1]._replace(records=max(0, counts[-1] + off))
    datagrams = [
        seal_datagram(KIND_DATA, 2, 1, 0, BODY.pack(1, each.number, each.records) + each.payload) for each in packets
    ]
    values = [Data(1, 1, each.number, each.number, datagram) for each, datagram in zip(packets, datagrams, strict=True)]
    table, content, records = compiled.assemble(values)
    assert (table, content, records) == pure_core.assemble(values)
    assert content == b"".join(contents)
    assert records == sum(each.records for each in packets)
    if len(values) > 1:
        together = [Data(1, 1, 1, len(values), b"".join(datagrams))]
        assert compiled.assemble(together) == (table, content, records)
    stamped = compiled.stamped(table, content, sequence, 7)
    assert stamped == pure_core.stamped(table, content, sequence, 7)
    sound = all(native.count_fresh(each.payload) == each.records for each in packets)
    assert (stamped is not None) == sound
    assert (
        compiled.stamped(table[:-1], content, sequence, 7)
        is pure_core.stamped(table[:-1], content, sequence, 7)
        is None
        or not table
    )


@given(st.lists(damaged(payloads()), max_size=4), st.integers(0, 200), st.integers(-1, 9), st.integers(1, 9))
def test_records_are_sealed_alike_and_cut_alike(
    compiled: ModuleType, contents: list[bytes], packet_bytes: int, most: int, number: int
) -> None:
    payload = b"".join(contents)
    given_ = (payload, DATA_OVERHEAD + packet_bytes, most, 2, 7, 3, number)
    sealed, packets, records, taken = compiled.seal_packets(*given_)
    assert (sealed, packets, records, taken) == pure_core.seal_packets(*given_)
    assert compiled.ends(sealed) == pure_core.ends(sealed)
    assert len(compiled.ends(sealed)) == 4 * packets
    if not packets:
        return
    data = Data(7, 3, number, number + packets - 1, sealed)
    opened = open_packets(data)
    assert b"".join(each.payload for each in opened) == payload[:taken]
    assert sum(each.records for each in opened) == records
    assert [decode(each.sealed)[1] for each in singles(data)] == singles(data)
    assert join(singles(data)) == [data]
    for skip in range(packets):
        for take in range(1, packets - skip + 1):
            assert compiled.cut(sealed, skip, take) == pure_core.cut(sealed, skip, take)
    for function in (compiled.cut, pure_core.cut):
        for nonsense in ((sealed, 0, packets + 1), (sealed[:-1], 0, packets), (sealed, -1, 1), (sealed, 0, 0)):
            with pytest.raises(ValueError, match="no sealed packets"):
                function(*nonsense)


@given(damaged(payloads().filter(bool).map(lambda each: seal(Packet(3, 9, 4, native.count(each), each), 2).sealed)))
def test_a_data_datagram_is_opened_as_the_codec_does_it(compiled: ModuleType, datagram: bytes) -> None:
    ours = compiled.open_data(datagram, 2, Data)
    assert ours == pure_core.open_data(datagram, 2, Data)
    try:
        stripe, message = decode(datagram)
    except Malformed:
        assert ours is None
        return
    sound = (
        isinstance(message, Data)
        and stripe == 2
        and all(packet.payload and packet_fault(packet) is None for packet in open_packets(message))
    )
    assert ours == (message if sound else None)
    assert type(ours) in (Data, type(None))
    assert compiled.open_data(datagram, 1, Data) is None


def test_compiled_code_has_the_layout_of_the_header(compiled: ModuleType) -> None:
    assert (layout.VERSION, layout.HEADER.size) == (compiled.VERSION, compiled.HEADER_SIZE)
    assert layout.DATA_BODY.size == compiled.DATA_BODY_SIZE
    for name in ("SENDER_AT", "LENGTH_AT", "SEAL_KIND_AT", "SEAL_SIZE_AT"):
        assert getattr(compiled, name) == getattr(layout, name)


@pytest.mark.parametrize("size", [0, 16, 94])
def test_the_size_of_a_seal_is_read_from_the_datagram(compiled: ModuleType, size: int) -> None:
    """Packets with a seal that this code cannot check are cut and assembled all the same."""
    payload = records.trades(2).tobytes()
    bodies = [BODY.pack(3, number, 2) + payload for number in (1, 2)]
    heads = [
        layout.HEADER.pack(b"LC", layout.VERSION, 1, 2, 7, 99, 32 + len(body) + size, 2, size, 5, 6) for body in bodies
    ]
    sealed = b"".join(head + body + b"s" * size for head, body in zip(heads, bodies, strict=True))
    for module in (compiled, pure_core):
        table, content, count = module.assemble([Data(7, 3, 1, 2, sealed)])
        assert (content, count) == (payload * 2, 4)
        assert len(table) == 2 * 26
        assert module.cut(sealed, 1, 1) == sealed[len(sealed) // 2 :]
        assert len(module.ends(sealed)) == 8
        assert module.open_data(sealed[: len(sealed) // 2], 2, Data) is None
    assert [packet.payload for packet in open_packets(Data(7, 3, 1, 2, sealed))] == [payload] * 2


@pytest.mark.parametrize(
    "name",
    [
        "open_data",
        "assemble",
        "stamp",
        "stamped",
        "cut",
        "ends",
        "seal_packets",
        "crc32",
        "drain",
        "drain_packets",
        "teach",
    ],
)
def test_nonsense_is_an_exception_and_no_crash(compiled: ModuleType, name: str) -> None:
    function: Any = getattr(compiled, name)
    for arguments in ((), (None,), (1, 2, 3), ("x", 0, int), ((1,), 2, 3)):
        with pytest.raises((TypeError, ValueError)):
            function(*arguments)


@pytest.mark.parametrize("pure", [False, True])
def test_a_socket_is_drained_without_ones_own_and_trains_are_cut_up(compiled: ModuleType, pure: bool) -> None:
    drain = pure_core.drain if pure else compiled.drain
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer,
    ):
        receiver.bind(("127.0.0.1", 0))
        peer.bind(("127.0.0.1", 0))
        here, there = receiver.getsockname(), peer.getsockname()
        receiver.sendto(b"own", here)
        for content in (b"one", b"", b"three"):
            peer.sendto(content, here)
        assert [each[:2] for each in drain(receiver.fileno(), 2, *here)] == [(b"one", there)]
        assert [each[:2] for each in drain(receiver.fileno(), 99, *here)] == [(b"", there), (b"three", there)]
        assert drain(receiver.fileno(), 99, *here) == []
        try:
            receiver.setsockopt(socket.IPPROTO_UDP, 104, 1)
            peer.setsockopt(socket.IPPROTO_UDP, 103, 4)
        except OSError:
            pytest.skip("this kernel has no segmentation offload")
        peer.sendto(b"aaaabbbbcc", here)
        cut = [each[:2] for each in drain(receiver.fileno(), 99, *here)]
        assert cut == [(b"aaaa", there), (b"bbbb", there), (b"cc", there)]


@pytest.mark.parametrize("pure", [False, True])
@pytest.mark.parametrize("packets", [False, True])
def test_an_arrival_has_the_time_at_which_the_kernel_received_it(
    compiled: ModuleType, pure: bool, packets: bool
) -> None:
    module = pure_core if pure else compiled
    sealed = [seal(Packet(1, 1, number, 1, records.trades(1).tobytes()), 0).sealed for number in (1, 2)]
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer,
    ):
        receiver.bind(("127.0.0.1", 0))
        here = receiver.getsockname()
        receiver.setsockopt(socket.SOL_SOCKET, 35, 1)  # SO_TIMESTAMPNS

        def drained() -> list[tuple[Any, Any, int]]:
            other = ("127.0.0.1", 1)
            if packets:
                return list(module.drain_packets(receiver.fileno(), 1 << 16, *other, 0, 1 << 16, Data))
            return list(module.drain(receiver.fileno(), 99, *other))

        for _ in range(100):  # the kernel starts to stamp datagrams soon after the first socket has requested it
            before = time.time_ns()
            for datagram in sealed:
                peer.sendto(datagram, here)
            after = time.time_ns()
            time.sleep(0.01)
            arrivals = drained()
            assert len(arrivals) == (1 if packets else 2)
            if all(before <= received_ns <= after for _, _, received_ns in arrivals):
                return
    pytest.fail("the times are those of reading")


def test_the_twin_can_be_chosen() -> None:
    program = "from levelcast import native; print(native.COMPILED)"
    found = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "LEVELCAST_PURE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout == "False\n"


@given(parts=st.lists(st.binary(max_size=70), max_size=6))
def test_the_xor_is_that_of_each_byte_with_zeros_after_shorter_ones(compiled: ModuleType, parts: list[bytes]) -> None:
    found = compiled.xor_padded(parts)
    assert found == pure_core.xor_padded(parts)
    assert len(found) == max(map(len, parts), default=0)
    for at, byte in enumerate(found):
        expected = 0
        for part in parts:
            expected ^= part[at] if at < len(part) else 0
        assert byte == expected


def test_the_xor_of_anything_but_bytes_is_refused(compiled: ModuleType) -> None:
    for parts in ([b"a", "b"], 5):
        with pytest.raises(TypeError):
            compiled.xor_padded(parts)

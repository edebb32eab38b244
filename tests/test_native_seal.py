"""The compiled sealing of packets against its Python twin: the same bytes, and the same answers to damaged ones."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from levelcast import records
from levelcast.native import layout, pure_seal, seal
from levelcast.native.pure_seal import OVERHEAD, PAYLOAD_AT
from levelcast.wire.header import domain_of
from levelcast.wire.messages import Data, Packet
from levelcast.wire.packets import cut, join, singles
from levelcast.wire.packets import seal as crc_sealed
from tests.conftest import lacking
from tests.test_native import payloads

KEY, OTHER_KEY = bytes(range(32)), bytes(32)
DOMAIN = domain_of(0x0123456789ABCDEF, 7)
HEAD = (DOMAIN, 3, 4, 5, 6)
"""Domain, source, incarnation, epoch, salt."""
ID = (3, 5, 4, 6)


@pytest.fixture(scope="module")
def compiled() -> ModuleType:
    if not seal.COMPILED:
        lacking("the compiled sealing: OpenSSL's headers at installation")
    from levelcast.native import _seal  # type: ignore[attr-defined]

    found: ModuleType = _seal
    return found


MODULES = ("compiled", "python")


@pytest.fixture(params=MODULES)
def module(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue("compiled") if request.param == "compiled" else pure_seal


def opener(module: Any, *ids: tuple[int, int, int, int]) -> Any:
    made = module.Opener()
    for each in ids or (ID,):
        made.add(*each, KEY)
    return made


def train(count: int = 100, packet_bytes: int = 1_400, first: int = 1) -> Data:
    sealed, packets, _, _ = pure_seal.Sealer(KEY, *HEAD).seal_packets(
        records.trades(count).tobytes(), packet_bytes, 99, first
    )
    return Data(3, 4, first, first + packets - 1, sealed)


@given(payloads(), st.integers(0, 4_000), st.integers(-1, 20), st.integers(1, 2**63))
def test_both_make_the_same_bytes(
    compiled: ModuleType, payload: bytes, packet_bytes: int, most: int, number: int
) -> None:
    ours = compiled.Sealer(KEY, *HEAD).seal_packets(payload, packet_bytes, most, number)
    assert ours == pure_seal.Sealer(KEY, *HEAD).seal_packets(payload, packet_bytes, most, number)
    one = payload[:1_000]
    assert compiled.Sealer(KEY, *HEAD).seal(number, 2, one) == pure_seal.Sealer(KEY, *HEAD).seal(number, 2, one)


def test_the_layout_is_the_standards_cipher_over_the_header(module: Any) -> None:
    payload = records.trades(2).tobytes()
    sealed = module.Sealer(KEY, *HEAD).seal(9, 2, payload)
    head = (
        b"LC\x02\x01" + (7).to_bytes(2, "little") + (3).to_bytes(2, "little") + (6).to_bytes(8, "little")
        + len(sealed).to_bytes(4, "little") + b"\x02\x10" + (5).to_bytes(2, "little")
        + (0x0123456789ABCDEF).to_bytes(8, "little")
        + (4).to_bytes(8, "little") + (9).to_bytes(8, "little") + (2).to_bytes(4, "little")
    )  # fmt: skip
    nonce = bytes(4) + (9).to_bytes(8, "little")
    assert sealed == head + AESGCM(KEY).encrypt(nonce, payload, head)
    assert len(sealed) == len(payload) + OVERHEAD


def test_a_train_is_opened_and_assembled(module: Any) -> None:
    data = train()
    assert opener(module).open(data.sealed, DOMAIN, Data) == data
    table, content, count = opener(module).assemble([data])
    assert (content, count) == (records.trades(100).tobytes(), 100)
    assert len(table) == 26 * (data.last - data.first + 1)


def test_trains_are_cut_and_joined_like_those_with_a_checksum(module: Any) -> None:
    data = train()
    assert join(singles(data)) == [data]
    middle = cut(data, 2, 3)
    assert opener(module).open(middle.sealed, DOMAIN, Data) == middle


@given(st.data())
def test_damaged_trains_get_the_same_answer(compiled: ModuleType, data: st.DataObject) -> None:
    content = bytearray(train(50).sealed)
    for _ in range(data.draw(st.integers(0, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(content[: data.draw(st.integers(0, len(content)))] if data.draw(st.booleans()) else content)
    assert answer(lambda: opener(compiled).open(damaged, DOMAIN, Data)) == answer(
        lambda: opener(pure_seal).open(damaged, DOMAIN, Data)
    )
    value = Data(3, 4, 1, 1, damaged)
    assert answer(lambda: opener(compiled).assemble([value])) == answer(lambda: opener(pure_seal).assemble([value]))


def answer(call: Callable[[], object]) -> object:
    try:
        return call()
    except (KeyError, ValueError) as error:
        return type(error), error.args


def test_every_flipped_bit_is_found(module: Any) -> None:
    sealed = module.Sealer(KEY, *HEAD).seal(1, 1, records.trades(1).tobytes())
    reads = opener(module)
    assert reads.open(sealed, DOMAIN, Data) is not None
    for at in range(8 * len(sealed)):
        changed = bytearray(sealed)
        changed[at // 8] ^= 1 << at % 8
        found = answer(lambda changed=changed: reads.open(bytes(changed), DOMAIN, Data))  # type: ignore[misc]
        assert found is None or (isinstance(found, tuple) and found[0] is KeyError)


@pytest.mark.parametrize(
    "head",
    [
        (domain_of(0x0123456789ABCDEF, 8), 3, 4, 5, 6),
        (domain_of(0x0123456789ABCDEE, 7), 3, 4, 5, 6),
        (DOMAIN, 2, 4, 5, 6),
        (DOMAIN, 3, 3, 5, 6),
        (DOMAIN, 3, 4, 4, 6),
        (DOMAIN, 3, 4, 5, 7),
    ],
)
def test_a_packet_for_another_place_does_not_open_here(module: Any, head: tuple[int, int, int, int, int]) -> None:
    """Another source, incarnation, epoch or salt even under the same key bytes: the head is authenticated."""
    sealed = module.Sealer(KEY, *head).seal(1, 1, records.trades(1).tobytes())
    place = bytearray(sealed)
    own = module.Sealer(KEY, *HEAD).seal(1, 1, records.trades(1).tobytes())
    place[:PAYLOAD_AT] = own[:PAYLOAD_AT]
    assert opener(module).open(bytes(place), DOMAIN, Data) is None


def test_a_renumbered_packet_does_not_open(module: Any) -> None:
    one, two = singles(train(40))
    assert opener(module).open(one.sealed[:40] + two.sealed[40:48] + one.sealed[48:], DOMAIN, Data) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda one, two, three: one + three,
        lambda one, two, three: two + one,
        lambda one, two, three: one + one,
        lambda one, two, three: one + two[:-1],
        lambda one, two, three: one + b"x",
        lambda one, two, three: b"",
    ],
)
def test_only_consecutive_packets_are_one_value(module: Any, change: Callable[..., bytes]) -> None:
    one, two, three = (each.sealed for each in singles(train(60)))
    assert opener(module).open(change(one, two, three), DOMAIN, Data) is None


def test_packets_of_two_keys_are_not_one_value(module: Any) -> None:
    payload = records.trades(1).tobytes()
    one = module.Sealer(KEY, *HEAD).seal(1, 1, payload)
    two = module.Sealer(KEY, *HEAD[:-1], 99).seal(2, 1, payload)
    reads = opener(module, ID, (*ID[:-1], 99))
    assert reads.open(two, DOMAIN, Data) is not None
    assert reads.open(one + two, DOMAIN, Data) is None


def test_records_with_stamps_or_another_count_are_refused(module: Any) -> None:
    stamped = records.trades(1)
    stamped["ts_recv"] = 5
    for payload, count in ((stamped.tobytes(), 1), (records.trades(2).tobytes(), 1), (b"no records", 1)):
        sealed = module.Sealer(KEY, *HEAD).seal(1, count, payload)
        assert opener(module).open(sealed, DOMAIN, Data) is None


def test_a_missing_key_is_named_and_a_wrong_one_does_not_open(module: Any) -> None:
    data = train()
    for call in (lambda reads: reads.open(data.sealed, DOMAIN, Data), lambda reads: reads.assemble([data])):
        with pytest.raises(KeyError) as raised:
            call(module.Opener())
        assert raised.value.args == ID
    reads = module.Opener()
    reads.add(*ID, OTHER_KEY)
    assert reads.open(data.sealed, DOMAIN, Data) is None
    with pytest.raises(ValueError, match="does not open"):
        reads.assemble([data])
    reads.add(*ID, KEY)
    assert reads.open(data.sealed, DOMAIN, Data) == data
    reads.remove(*ID)
    reads.remove(*ID)
    with pytest.raises(KeyError):
        reads.open(data.sealed, DOMAIN, Data)


def test_thousands_of_keys(module: Any) -> None:
    reads = module.Opener()
    for salt in range(3_000):
        reads.add(3, 5, 4, salt, KEY if salt % 2 else OTHER_KEY)
    for salt in range(0, 3_000, 7):
        sealed = module.Sealer(KEY, DOMAIN, 3, 4, 5, salt).seal(1, 1, records.trades(1).tobytes())
        assert (reads.open(sealed, DOMAIN, Data) is not None) is bool(salt % 2)
        reads.remove(3, 5, 4, salt)
        with pytest.raises(KeyError):
            reads.open(sealed, DOMAIN, Data)


def test_packets_from_a_tape_are_assembled_beside_sealed_ones(module: Any) -> None:
    payload = records.trades(3).tobytes()
    plain = crc_sealed(Packet(3, 4, 100, 3, payload), DOMAIN)
    data = train(20)
    assert opener(module).assemble([data, plain])[1:] == (records.trades(20).tobytes() + payload, 23)


def test_a_number_is_sealed_once(module: Any) -> None:
    payload = records.trades(40).tobytes()
    seals = module.Sealer(KEY, *HEAD)
    _, packets, _, _ = seals.seal_packets(payload, 1_400, 99, 5)
    for number in (0, 1, 5, 5 + packets - 1):
        with pytest.raises(ValueError, match="sealed before"):
            seals.seal(number, 1, payload[:64])
        with pytest.raises(ValueError, match="sealed before"):
            seals.seal_packets(payload, 1_400, 99, number)
    assert seals.seal_packets(payload, 10, 99, 5 + packets)[1] == 0, "nothing fits, so no number is used"
    seals.seal(5 + packets, 1, payload[:64])


@pytest.mark.parametrize("key", [b"", bytes(16), bytes(33), "x" * 32, None])
def test_keys_have_32_bytes(module: Any, key: Any) -> None:
    with pytest.raises(ValueError, match="a key has 32 bytes"):
        module.Sealer(key, *HEAD)
    with pytest.raises(ValueError, match="a key has 32 bytes"):
        module.Opener().add(*ID, key)


def test_records_that_no_datagram_can_carry(module: Any) -> None:
    with pytest.raises(ValueError, match="do not fit a datagram"):
        module.Sealer(KEY, *HEAD).seal(1, 1, bytes(65_507 - OVERHEAD + 1))
    assert len(module.Sealer(KEY, *HEAD).seal(1, 1, bytes(65_507 - OVERHEAD))) == 65_507


def test_bad_values_are_refused(module: Any) -> None:
    for bad in ([5], [()], [(1, 2, 3, 4, "text")], [(3, 4, 1, 1, b"short")]):
        with pytest.raises((TypeError, ValueError)):
            module.Opener().assemble(bad)


def test_the_compiled_code_has_the_layout() -> None:
    assert (layout.SALT_AT, layout.EPOCH_AT, layout.AES_GCM_KIND, layout.AES_GCM_SIZE) == (8, 22, 2, 16)


@pytest.mark.parametrize("pure", ["0", "1"])
def test_the_implementation_in_use_is_named(pure: str) -> None:
    code = "from levelcast.native import seal; print(seal.COMPILED, seal.IMPLEMENTATION)"
    environment = os.environ | {"LEVELCAST_PURE": pure}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    is_compiled, _, name = done.stdout.partition(" ")
    assert name.startswith("C, OpenSSL 3" if is_compiled == "True" else "Python, cryptography ")
    assert pure == "0" or is_compiled == "False"


def drained(module: Any, datagrams: list[bytes], *, known: bool = True, together: bool = False) -> tuple[Any, int]:
    """What a drain returns of datagrams that one socket sends, without source and time; and how many it refused.

    `together`: they are one train in the kernel, so one arrival.
    """
    made = opener(module) if known else module.Opener()
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receives,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sends,
    ):
        receives.bind(("127.0.0.1", 0))
        receives.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        if together:
            receives.setsockopt(socket.IPPROTO_UDP, 104, 1)  # UDP_GRO
            sends.connect(receives.getsockname())
            segment = struct.pack("=H", len(datagrams[0]))
            sends.sendmsg([b"".join(datagrams)], [(socket.IPPROTO_UDP, 103, segment)])  # UDP_SEGMENT
        else:
            for each in datagrams:
                sends.sendto(each, receives.getsockname())
        arrivals = made.drain_packets(receives.fileno(), 1 << 22, "127.0.0.1", 1, DOMAIN, 1 << 20, Data)
    return [content for content, *_ in arrivals], made.take_refused()


def flipped(datagram: bytes) -> bytes:
    return datagram[:-1] + bytes([datagram[-1] ^ 1])


def test_a_drain_opens_trains_and_drops_what_is_forged(module: Any) -> None:
    whole = train(60)
    pieces = [each.sealed for each in singles(whole)]
    assert drained(module, pieces) == ([whole], 0)
    stray, other = b"LC" + bytes(40), pieces[2][:22] + b"\x09" + pieces[2][23:]
    mixed = [pieces[0], flipped(pieces[1]), pieces[1], stray, other, pieces[2]]
    found, refused = drained(module, mixed)
    assert found == [cut(whole, 1, 1), cut(whole, 2, 2), stray, other, cut(whole, 3, 3)]
    assert refused == 1
    assert drained(module, pieces[:2], known=False) == (pieces[:2], 0), "Python derives the key"


def test_a_value_has_packets_of_one_key(module: Any) -> None:
    pieces = [each.sealed for each in singles(train(60))]
    sealer = pure_seal.Sealer(KEY, *HEAD[:4], 7)
    again = sealer.seal(2, 3, records.trades(3).tobytes())
    assert drained(module, [pieces[0], again])[0] == [train(60)._replace(last=1, sealed=pieces[0]), again]


def test_forged_packets_within_a_train_of_the_kernel(module: Any) -> None:
    """Every second datagram is forged: a batch has far more stretches than arrivals."""
    good = [each.sealed for each in singles(train(62, OVERHEAD + 64))]
    assert len({len(each) for each in good}) == 1
    mixed = [each for datagram in good[:31] for each in (datagram, flipped(datagram))]
    found, refused = drained(module, mixed, together=True)
    assert b"".join(each.sealed for each in found) == b"".join(good[:31])
    assert refused == 31

"""Parities of a train: each packet of a group is the XOR of the others, byte for byte, with its seal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelcast.wire.codec import decode, encode
from levelcast.wire.header import MAX_DATAGRAM, Malformed, Reason
from levelcast.wire.messages import Data, Packet, Parity
from levelcast.wire.packets import DATA_OVERHEAD, MAX_PAYLOAD, join, seal, singles
from levelcast.wire.parity import MAX_PARITY_PACKETS, parities_of, rebuilt_datagram, sent_bytes

CONTENT = bytes(DATA_OVERHEAD)


def train_of(sizes: list[int], first: int = 5) -> Data:
    """Consecutive packets of source 7 with payloads of these sizes."""
    packets = [seal(Packet(7, 2, first + at, 1, bytes([at + 1]) * size), 3) for at, size in enumerate(sizes)]
    [train] = join(packets)
    return train


@given(sizes=st.lists(st.integers(1, 60), min_size=1, max_size=12), groups=st.integers(1, 13), lost=st.integers(0, 11))
def test_each_packet_is_rebuilt_from_the_parity_and_the_others(sizes: list[int], groups: int, lost: int) -> None:
    train = train_of(sizes)
    packets = {data.first: data for data in singles(train)}
    parities = parities_of(train, groups)
    assert len(parities) == min(groups, len(sizes))
    assert sorted(number for parity in parities for number in parity.numbers) == sorted(packets)
    missing = train.first + lost % len(sizes)
    [parity] = [parity for parity in parities if missing in parity.numbers]
    others = [packets[number].sealed for number in parity.numbers if number != missing]
    assert rebuilt_datagram(parity, others) == packets[missing].sealed
    assert decode(encode(parity, 3)).message == parity
    assert len(encode(parity, 3)) == sent_bytes(parity)


def test_neighbours_are_in_different_groups() -> None:
    first, second = parities_of(train_of([9] * 6), 2)
    assert (list(first.numbers), list(second.numbers)) == ([5, 7, 9], [6, 8, 10])


def test_what_does_not_fit_has_no_parity() -> None:
    assert parities_of(train_of([9]), 0) == []
    assert len(encode(parities_of(train_of([MAX_PAYLOAD]), 1)[0], 3)) <= MAX_DATAGRAM
    assert parities_of(train_of([1] * (MAX_PARITY_PACKETS + 1)), 1) == []
    assert len(parities_of(train_of([1] * (MAX_PARITY_PACKETS + 1)), 2)) == 2


@pytest.mark.parametrize(
    "content",
    [CONTENT, b"\xff" * 99, seal(Packet(7, 2, 5, 1, b"a"), 3).sealed + b"\1"],
    ids=["no length", "too long", "bytes after it"],
)
def test_what_cannot_be_a_packet_is_none(content: bytes) -> None:
    assert rebuilt_datagram(Parity(7, 2, 5, 1, 1, content), []) is None


@pytest.mark.parametrize(
    "parity",
    [
        Parity(7, 2, 5, 0, 1, CONTENT),
        Parity(7, 2, 5, MAX_PARITY_PACKETS + 1, 1, CONTENT),
        Parity(7, 2, 5, 2, 0, CONTENT),
        Parity(7, 2, 5, 2, 1_025, CONTENT),
        Parity(7, 2, 5, 1, 2, CONTENT),
        Parity(7, 2, 0, 2, 2, CONTENT),
        Parity(7, 2, 2**64 - 3, 2, 2, CONTENT),
        Parity(7, 2, 5, 2, 2, CONTENT[:-1]),
    ],
)
def test_a_parity_that_no_receiver_accepts_is_not_sent(parity: Parity) -> None:
    with pytest.raises(Malformed) as malformed:
        encode(parity, 3)
    assert malformed.value.reason is Reason.BAD_FIELD

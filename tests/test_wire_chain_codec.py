"""Contents and signed bytes of chain messages, and every datagram of a group with random damage."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelcast.wire.chain_codec import (
    MAX_CONTENT,
    MAX_PROOFS,
    epoch_bytes,
    pack_content,
    signed_bytes,
    unpack_content,
)
from levelcast.wire.chain_messages import (
    ChainContent,
    ChainHeader,
    EpochKey,
    EpochRecord,
    PriorPlace,
)
from levelcast.wire.header import Malformed
from tests.fuzz.targets import TARGETS

u64 = st.integers(0, 2**64 - 1)
contents = st.builds(
    ChainContent,
    st.lists(u64, max_size=6).map(tuple),
    st.sets(st.integers(0, 2**16 - 1), max_size=4).map(sorted).map(tuple),
    st.lists(st.binary(max_size=40), max_size=5).map(tuple),
    st.builds(PriorPlace, u64, u64),
    st.lists(st.binary(max_size=40), max_size=3).map(tuple),
)
KEYS = tuple(EpochKey(node, bytes([node]) * 32) for node in range(1, 6))


@given(contents)
def test_a_content_survives(content: ChainContent) -> None:
    assert unpack_content(pack_content(content)) == content


@given(contents, st.integers(0, 200))
def test_a_truncated_content_is_malformed(content: ChainContent, cut: int) -> None:
    packed = pack_content(content)
    with pytest.raises(Malformed):
        unpack_content(packed[: -1 - cut % len(packed)])
    with pytest.raises(Malformed):
        unpack_content(packed + b"\0")


@pytest.mark.parametrize(
    "content",
    [
        ChainContent((), (2, 1), ()),
        ChainContent((), (1, 1), ()),
        ChainContent((), (), (bytes(MAX_CONTENT),)),
        ChainContent((), (), (), PriorPlace(), (b"",) * (MAX_PROOFS + 1)),
    ],
)
def test_a_content_that_no_receiver_accepts_is_not_packed(content: ChainContent) -> None:
    with pytest.raises(Malformed):
        pack_content(content)


def test_signatures_of_one_kind_are_none_of_another() -> None:
    header = ChainHeader(1, 1, 1, bytes(32), (), b"")
    record = EpochRecord(2, KEYS)
    signed = {
        signed_bytes(header, 1, 1), signed_bytes(header, 2, 1), signed_bytes(header, 1, 2),
        epoch_bytes(record, 1), epoch_bytes(record, 2), epoch_bytes(record._replace(epoch=3), 1),
        epoch_bytes(EpochRecord(2, KEYS[:4], KEYS[4:]), 1), epoch_bytes(EpochRecord(2, KEYS[::-1]), 1),
    }  # fmt: skip
    assert len(signed) == 8


@pytest.mark.parametrize(
    "record",
    [
        EpochRecord(0, KEYS),
        EpochRecord(2, ()),
        EpochRecord(2, (KEYS[0], KEYS[0])),
        EpochRecord(2, (KEYS[0], EpochKey(9, KEYS[0].key))),
        EpochRecord(2, KEYS[:2], KEYS[1:3]),
        EpochRecord(2, (EpochKey(1, b"short"),)),
    ],
)
def test_a_record_that_names_a_node_or_a_key_twice_is_refused(record: EpochRecord) -> None:
    with pytest.raises(Malformed):
        epoch_bytes(record, 1)


@pytest.mark.parametrize("name", ["chain-content", "chain-member"])
def test_damaged_datagrams_of_a_group_cause_no_error(name: str) -> None:
    check, seeds = TARGETS[name].prepare()
    rng = Random(26)
    for seed in seeds:
        check(seed)
        for _ in range(40):
            damaged = bytearray(seed)
            for _ in range(rng.randint(1, 4)):
                damaged[rng.randrange(len(damaged))] = rng.choice((0, 1, 255, rng.randrange(256)))
            check(bytes(damaged[: rng.choice((len(damaged), rng.randrange(len(damaged))))]))

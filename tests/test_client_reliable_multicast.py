"""Payloads of a multicast group as packets, and their confirmation."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelcast.client.reliable_multicast import MAX_PAYLOAD, PART_BYTES, PayloadAssembler, ReliableMulticast, divide

sizes = st.sampled_from((0, 1, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES, 3 * PART_BYTES + 7))


@given(st.lists(st.tuples(st.integers(1, 3), sizes), max_size=6), st.randoms())
def test_payloads_of_several_senders_come_out_whole(payloads: list[tuple[int, int]], rng: object) -> None:
    assembler, found, expected = PayloadAssembler(), [], []
    queues: dict[int, list[bytes]] = {}
    for sender, size in payloads:
        payload = bytes([sender]) * size
        expected.append((sender, payload))
        queues.setdefault(sender, []).extend(divide(payload))
    while any(queues.values()):
        sender = rng.choice([each for each, queue in queues.items() if queue])  # type: ignore[attr-defined]
        complete = assembler.add(sender, queues[sender].pop(0))
        if complete is not None:
            found.append((sender, complete))
    assert sorted(found) == sorted(expected)
    assert not assembler.pending
    assert not assembler.dropped


def test_packets_that_do_not_fit_are_dropped_and_the_next_payload_is_delivered() -> None:
    assembler = PayloadAssembler()
    first, second = divide(b"a" * (2 * PART_BYTES)), divide(b"b" * (2 * PART_BYTES))
    assert assembler.add(1, first[0]) is None
    assert assembler.add(1, second[0]) is None  # a liar begins another one
    assert assembler.add(1, b"short") is None
    assert assembler.add(1, second[1]) is None
    assert assembler.dropped == 3
    assert not assembler.pending
    assert assembler.add(1, divide(b"whole")[0]) == b"whole"


def test_a_payload_beyond_the_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="maximum"):
        divide(bytes(MAX_PAYLOAD + 1))


def test_a_group_that_is_not_open_says_so() -> None:
    with pytest.raises(RuntimeError, match="async with"):
        asyncio.run(ReliableMulticast().send(b"x"))

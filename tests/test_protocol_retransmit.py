"""Answering those who ask (rule 5): what fits a datagram, and who else should hear it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from levelcast.protocol.retransmit import MAX_ITEMS_PER_REPAIR, RetransmitScope, pack_repairs
from levelcast.timing.derive import Path, Shape, derive
from levelcast.wire.codec import encode, seal_message
from levelcast.wire.header import MAX_DATAGRAM
from levelcast.wire.messages import Data, Packet, Run, Token
from levelcast.wire.packets import MAX_PAYLOAD, seal

MS = 1_000_000
TIMING = derive(Path(5 * MS, 0.01), Shape("pipelined", 10 * MS, 2, 3, 2)).timing

packets = st.builds(
    lambda number, size: seal(Packet(7, 1, number, 1, bytes(size)), 0), st.integers(1, 99), st.integers(1, MAX_PAYLOAD)
)
tokens = st.builds(
    lambda slot, runs: seal_message(
        Token(1, slot, 10**18, 2, slot, 8, tuple(Run(i, 1, 1, 1) for i in range(runs)), ()), 0
    ),
    st.integers(1, 99),
    st.integers(0, 600),
)


@given(st.lists(st.one_of(packets, tokens), max_size=40))
def test_every_repair_fits_a_datagram_and_nothing_is_left_out(items: list[Token | Data]) -> None:
    repairs = list(pack_repairs(3, items))
    assert [item for repair in repairs for item in repair.items] == items
    for repair in repairs:
        assert 0 < len(repair.items) <= MAX_ITEMS_PER_REPAIR
        assert len(encode(repair, 0)) <= MAX_DATAGRAM


def test_a_repair_that_a_second_member_asks_for_soon_goes_to_everybody() -> None:
    packet = seal(Packet(7, 1, 1, 1, b"x"), 0)
    audience = RetransmitScope(TIMING)
    assert audience.split([packet], 1, 0) == ([packet], [])
    assert audience.split([packet], 1, 1) == ([packet], []), "the same member again is no second one"
    assert audience.split([packet], 2, TIMING.request_ns) == ([], [packet])


def test_a_repair_that_a_second_member_asks_for_later_goes_to_it_alone() -> None:
    packet = seal(Packet(7, 1, 1, 1, b"x"), 0)
    audience = RetransmitScope(TIMING)
    audience.split([packet], 1, 0)
    assert audience.split([packet], 2, TIMING.request_ns + 1) == ([packet], [])

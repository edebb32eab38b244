"""Copies are dropped while they can only be copies, and never as retransmissions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from levelcast.overlay.duplicates import RecentMessages
from levelcast.wire.messages import Data, Packet
from levelcast.wire.packets import join, seal

KEEP_NS = 100


def packets(first: int, last: int, incarnation: int = 1) -> Data:
    (data,) = join(seal(Packet(7, incarnation, number, 1, b"%d" % number), 0) for number in range(first, last + 1))
    return data


def numbers(parts: list[Data]) -> list[int]:
    return [number for part in parts for number in range(part.first, part.last + 1)]


def test_only_the_new_packets_of_a_train_remain() -> None:
    recent = RecentMessages(KEEP_NS)
    assert recent.new_parts(packets(3, 5), 0) == [packets(3, 5)]
    assert recent.new_parts(packets(3, 5), 1) == []
    assert recent.new_parts(packets(1, 7), 2) == [packets(1, 2), packets(6, 7)]
    assert recent.dropped == 6
    assert recent.new_parts(packets(3, 5, incarnation=2), 3) == [packets(3, 5, incarnation=2)]


def test_a_packet_that_is_sent_again_later_arrives() -> None:
    recent = RecentMessages(KEEP_NS)
    recent.new_parts(packets(1, 4), 1_000)
    assert recent.new_parts(packets(1, 4), 1_000 + 2 * KEEP_NS) == [packets(1, 4)]


def test_a_clock_that_is_set_back_forgets_all() -> None:
    recent = RecentMessages(KEEP_NS)
    recent.new_parts(packets(1, 4), 1_000)
    assert recent.new_parts(packets(1, 4), 500) == [packets(1, 4)]


def test_tokens_are_compared_byte_by_byte() -> None:
    recent = RecentMessages(KEEP_NS)
    assert [recent.is_repeated(token, at) for token, at in ((b"t", 0), (b"t", 1), (b"u", 2))] == [False, True, False]
    assert not recent.is_repeated(b"t", 2 * KEEP_NS)


TRAINS = st.tuples(st.integers(1, 12), st.integers(0, 5), st.integers(0, 60))


@given(st.lists(TRAINS, max_size=12))
def test_no_packet_is_dropped_unless_it_arrived_lately(trains: list[tuple[int, int, int]]) -> None:
    recent, arrived, now = RecentMessages(KEEP_NS), dict[int, int](), 0
    for first, more, gap in trains:
        now += gap
        wanted = list(range(first, first + more + 1))
        new = numbers(recent.new_parts(packets(first, first + more), now))
        for number in wanted:
            if number in new:
                arrived[number] = now
            else:
                assert now - arrived[number] < 2 * KEEP_NS
        assert new == sorted(set(new))
        assert all(number in new or now - arrived[number] < 2 * KEEP_NS for number in wanted)

"""The links of the network file, played where a datagram is received."""

from __future__ import annotations

from levelcast.network import Link
from levelcast.runtime.impairment import Impairment
from levelcast.runtime.sockets import Arrival
from levelcast.wire.codec import encode
from levelcast.wire.header import sender_of
from levelcast.wire.messages import Invite

MS = 1_000_000
THERE = ("127.0.0.1", 4000)


def arrival(sender: int, generation: int = 1, at: int = 0) -> Arrival:
    return (encode(Invite(generation, sender), 0), THERE, at)


def test_the_sender_is_read_from_the_header() -> None:
    assert sender_of(encode(Invite(1, 201), 0)) == 201
    assert sender_of(b"LC") is None


def test_a_datagram_takes_the_delay_of_its_link() -> None:
    impairment = Impairment({1: Link(10 * MS), 2: Link(3 * MS)}, seed=1)
    far, near = arrival(1), arrival(2)
    impairment.hold([far, near])
    assert impairment.next_ns == 3 * MS
    assert impairment.due(3 * MS - 1) == []
    assert impairment.due(3 * MS) == [arrival(2, at=3 * MS)]
    assert impairment.due(20 * MS) == [arrival(1, at=10 * MS)], "its time is that at which it was due"
    assert impairment.next_ns is None


def test_the_delay_counts_from_the_receive_time_and_not_from_the_time_of_reading() -> None:
    impairment = Impairment({1: Link(10 * MS)}, seed=1)
    impairment.hold([arrival(1, at=7 * MS)])
    assert impairment.next_ns == 17 * MS


def test_equal_delays_keep_the_order() -> None:
    impairment = Impairment({1: Link(MS)}, seed=1)
    sent = [arrival(1, generation) for generation in range(50)]
    impairment.hold(sent)
    assert [each[0] for each in impairment.due(MS)] == [each[0] for each in sent]


def test_jitter_only_adds_and_stays_within_its_bound() -> None:
    impairment = Impairment({1: Link(10 * MS, 4 * MS)}, seed=1)
    impairment.hold([arrival(1, generation) for generation in range(1000)])
    assert impairment.due(10 * MS - 1) == []
    middle = len(impairment.due(12 * MS))
    assert 400 < middle < 600
    assert len(impairment.due(14 * MS)) == 1000 - middle


def test_loss_is_as_large_as_the_link_says_and_the_seed_repeats_it() -> None:
    def survivors(seed: int) -> list[Arrival]:
        impairment = Impairment({1: Link(0, 0, 0.1)}, seed)
        impairment.hold([arrival(1, generation) for generation in range(5000)])
        kept = impairment.due(0)
        assert len(kept) + impairment.lost == 5000
        return kept

    assert 400 < 5000 - len(survivors(7)) < 600
    assert survivors(7) == survivors(7)
    assert survivors(7) != survivors(8)


def test_where_there_is_no_link_nothing_comes_and_strangers_are_left_to_the_decoder() -> None:
    impairment = Impairment({1: None}, seed=1)
    stranger, noise = arrival(9, at=5), (b"?", THERE, 5)
    impairment.hold([arrival(1), stranger, noise])
    assert impairment.due(5) == [stranger, noise]
    assert impairment.lost == 1

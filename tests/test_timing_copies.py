"""The bytes of additional copies, per receiver and of all senders."""

from __future__ import annotations

import doctest

import pytest

from levelcast.timing import copies
from levelcast.timing.copies import NOTHING, Copies, cost_of, parity_groups
from levelcast.wire.codec import encode
from levelcast.wire.messages import Beat, Claim, Mark, Run, Token


def test_the_examples_of_the_module_run() -> None:
    assert doctest.testmod(copies).failed == 0


def test_copies_cost_what_each_receiver_gets() -> None:
    plan = (Copies(1, 3), NOTHING, Copies(0, 6), Copies(0, 0, second_path=True))
    cost = cost_of(plan, members=4, packets=6, slot_ms=50.0, beat_ms=25.0)
    assert cost.data == pytest.approx(1.0 + (2 / 6 + 1 / 6 + 1.0) / 4)
    control = 2 * copies.TOKEN_BYTES + 3 * copies.BEAT_BYTES * 2.0
    assert cost.control == pytest.approx(1.0 + 2 * copies.TOKEN_BYTES / (4 * control))
    assert 1.0 < cost.control < cost.total < cost.data
    assert cost_of((NOTHING,) * 4, 4, 6, 50.0, 25.0) == (1.0, 1.0, 1.0)


def test_a_train_has_a_parity_for_every_part_of_it() -> None:
    assert [parity_groups(7, each) for each in (0, 1, 2, 3, 7, 64)] == [0, 7, 4, 3, 1, 1]


def test_tokens_and_beats_weigh_what_their_datagrams_do() -> None:
    runs = (Run(1, 1, 1, 3), Run(2, 1, 1, 3))
    token = Token(1, 9, 10**18, 1, 8, 64, runs, (Mark(1, 1, 1), Mark(2, 1, 1)))
    beat = Beat(1, 1, tuple(Claim(tick, tick) for tick in range(1, 9)), 1, 10**18)
    assert len(encode(token, 0)) == pytest.approx(copies.TOKEN_BYTES, rel=0.15)
    assert len(encode(beat, 0)) == pytest.approx(copies.BEAT_BYTES, rel=0.15)


def test_copies_are_described() -> None:
    assert str(Copies(1, 3, second_path=True)) == "token 3 times, parity for 3 packets, second path"
    assert str(Copies(0, 1)) == "parity for 1 packet"
    assert str(NOTHING) == "nothing"

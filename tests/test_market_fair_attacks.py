"""Attacks on order entry: each gains nothing, or what its test states (E2, E4 to E6)."""

from __future__ import annotations

import numpy as np

from levelcast.market.fair import eras, fair_order
from levelcast.market.fair.stamps import ReleaseClock
from tests.fair_entry_parts import MS, RULES, START, T0, Shown, Tape

MANY = 20_000
ZERO = np.zeros(MANY, np.int64)


def first_share(orders: list[tuple[int, int]], seed: int, draws: int = 2_000) -> float:
    """Return how often account 1 is first in a bucket of these orders: account and stamp each."""
    accounts = np.tile(np.array([account for account, _ in orders], np.uint64), draws)
    stamps = np.tile(np.array([stamp for _, stamp in orders], np.int64), draws)
    ends = np.repeat(np.arange(1, draws + 1, dtype=np.int64), len(orders))
    places = fair_order.fair_order(ends, accounts, stamps, np.arange(len(ends)), seed.to_bytes(32, "little"))
    return float((accounts[places][:: len(orders)] == 1).mean())


def test_copies_gain_nothing() -> None:
    for copies in (2, 10, 100):
        share = first_share([(1, 0)] * copies + [(2, 0)], copies)
        assert abs(share - 0.5) < 4.5 * 0.5 / np.sqrt(2_000)


def test_copies_in_a_bucket_come_after_the_first_orders_of_all_others() -> None:
    accounts = np.array([1] * 10 + [2, 3, 4], np.uint64)
    ends, stamps = np.ones(13, np.int64), np.arange(13)
    places = fair_order.fair_order(ends, accounts, stamps, np.arange(13), bytes(range(32)))
    assert sorted(accounts[places][:4].tolist()) == [1, 2, 3, 4]
    assert places[accounts[places] == 1].tolist() == list(range(10))


def test_inside_a_bucket_the_stamp_does_not_matter() -> None:
    assert abs(first_share([(1, 0), (2, 4 * MS)], 1) - 0.5) < 4.5 * 0.5 / np.sqrt(2_000)


def test_tickets_are_unknown_until_the_bucket_is_closed() -> None:
    """The order of two accounts depends on the frame that closes their bucket."""
    accounts, ends = np.array([1, 2], np.uint64), np.ones(2, np.int64)
    firsts = [
        int(fair_order.fair_order(ends, accounts, ZERO[:2], np.arange(2), seed.to_bytes(32, "little"))[0])
        for seed in range(200)
    ]
    assert 60 < sum(firsts) < 140


def test_the_borders_of_buckets_are_unknown_until_the_epoch_is_over() -> None:
    tape = Tape()
    for step in range(20):
        tape.beats(START + step * 500 * MS)
    era, log = tape.entry.eras[0], tape.entry.log
    epochs = [START + number * RULES.epoch_ns for number in range(1, 8)]
    phases = {(era.border_before(start + 500 * MS, log) - start) % RULES.quantum_ns for start in epochs}
    assert len(phases) >= 5
    draws = [eras.phase(bytes([number]) * 32, 0, RULES.quantum_ns) / RULES.quantum_ns for number in range(256)]
    assert abs(float(np.mean(draws)) - 0.5) < 4 * 0.29 / 16


def test_a_gateway_that_dates_back_gains_at_most_the_time_for_which_it_held_back_its_beats() -> None:
    tape = Tape()
    tape.beats(START + 100 * MS)
    at = START + 200 * MS
    tape.beats(at)
    back = tape.add(at + 30 * MS, [Shown(13, at - 50 * MS, 9)])
    assert len(back.refused) == 1, "it has shown a later clock"


def test_a_gateway_that_holds_its_beats_back_delays_the_others_by_at_most_theta() -> None:
    """It then leaves the set, and what it dates back is late: it goes into the first open bucket, and is marked."""
    tape = Tape()
    tape.beats(START + 100 * MS)
    mine = START + 150 * MS
    tape.add(mine + 20 * MS, [Shown(11, mine, 1)])
    at = mine + 20 * MS
    while not tape.accounts():
        at += 20 * MS
        tape.beats(at, (11, 12))
    assert tape.entry.timestamp_ns - mine <= RULES.close_ns + 2 * RULES.quantum_ns + 20 * MS
    assert tape.batches[-1].left == (13,) or not tape.entry.gateways[13].waited_for
    tape.add(at + 25 * MS, [Shown(13, mine - MS, 9), Shown(11, at + 22 * MS, 2)])
    tape.beats(at + 60 * MS)
    assert tape.accounts()[0] == 1, "an order that was dated back does not come before one whose bucket is closed"
    assert tape.entry.gateways[13].late == 1


def test_listening_elsewhere_and_sending_through_a_late_site_gains_less_than_the_way() -> None:
    """A release is punctual at one site and 50 ms late at the other, 2 ms away."""
    way = 2 * MS
    late = ReleaseClock(RULES.late_cap_ns)
    late.released((0, 1), T0, T0 + 50 * MS)
    punctual = ReleaseClock(RULES.late_cap_ns)
    punctual.released((0, 1), T0, T0)
    for reaction in (5 * MS, 60 * MS):
        here = int(punctual.stamps(np.array([T0 + reaction]))[0][0])
        there = int(late.stamps(np.array([T0 + reaction + way]))[0][0])
        assert there > here
